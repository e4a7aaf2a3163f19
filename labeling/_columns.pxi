# The columns. Part of _kernel.pyx, which includes it.

cdef class Columns:
    """A table of nodes in document order, a column an aspect."""

    def __len__(self):
        return self.rows

    cdef object _view(self, str name, void* data, str dtype, Py_ssize_t count):
        view = self._arrays.get(name) if self._arrays is not None else None
        if view is None:
            view = np.ndarray(count, dtype, cython_view(data, count * np.dtype(dtype).itemsize, self._owner))
            view.flags.writeable = False
            if self._arrays is None:
                self._arrays = {}
            self._arrays[name] = view
        return view

    @property
    def kind(self):
        """0 element, 1 attribute, 2 text (uint8)."""
        return self._view("kind", self.kinds, "u1", self.rows)

    @property
    def tag(self):
        """Ids in the vocabulary (int32)."""
        return self._view("tag", self.tags, "i4", self.rows)

    @property
    def parent(self):
        """Row of the parent, -1 at the root (int32)."""
        return self._view("parent", self.parents, "i4", self.rows)

    @property
    def level(self):
        """Depth, 0 at the document's root element (int16)."""
        return self._view("level", self.levels, "i2", self.rows)

    @property
    def start(self):
        """Left end of the AD label (int64)."""
        return self._view("start", self.starts, "i8", self.rows)

    @property
    def end(self):
        """Right end of the AD label (int64)."""
        return self._view("end", self.ends, "i8", self.rows)

    @property
    def has_values(self):
        """Whether the values were read."""
        return self.offsets != NULL

    @property
    def value_offsets(self):
        """Where the values begin in `value_bytes`: one more than there are rows (int32)."""
        if self.offsets == NULL:
            raise ValueError("the table was read without values")
        return self._view("offsets", self.offsets, "i4", self.rows + 1)

    @property
    def value_bytes(self):
        """The values, one after the other, in UTF-8 (uint8)."""
        if self.offsets == NULL:
            raise ValueError("the table was read without values")
        return self._view("values", self.text, "u1", self.offsets[self.rows])

    def value_at(self, Py_ssize_t row):
        """The value of an attribute or a text node, in UTF-8."""
        if not 0 <= row < self.rows:
            raise IndexError(row)
        if self.offsets == NULL:
            raise ValueError("the table was read without values")
        return self.text[self.offsets[row]:self.offsets[row + 1]]

    def adopt(self, Vocabulary vocabulary not None, dict arrays not None):
        """Take columns that live elsewhere (numpy arrays of the right types), without copying."""
        self.vocabulary = vocabulary
        self._owner = arrays
        self._arrays = {}
        self.rows = len(arrays["kind"])
        self.kinds = <uint8_t*>address(arrays["kind"], "u1")
        self.tags = <int32_t*>address(arrays["tag"], "i4")
        self.parents = <int32_t*>address(arrays["parent"], "i4")
        self.levels = <int16_t*>address(arrays["level"], "i2")
        self.starts = <int64_t*>address(arrays["start"], "i8")
        self.ends = <int64_t*>address(arrays["end"], "i8")
        self.offsets = NULL
        self.text = NULL
        if "offsets" in arrays:
            self.offsets = <int32_t*>address(arrays["offsets"], "i4")
            self.text = <char*>address(arrays["values"], "u1")

    def attach(self, root):
        """Say which lxml element stands behind row 0."""
        self._root = root

    @property
    def root(self):
        """The lxml element of row 0; None for a table that did not come from a document."""
        if self._root is None and self._document is not None:
            parser = tree_parser(self._huge, "internal" if self._resolve else False)
            root = fromstring(self._document, parser)
            self._root = root[0] if self._wrapped else root
        elif self._root is None and self._whole is not None and self.kinds[0] == kELEMENT:
            self._root = self._whole.element_at(self._first)
        return self._root

    @property
    def has_root(self):
        """Whether there is a document behind the table, so that `root` is not None."""
        if self._whole is not None:
            return self.kinds[0] == kELEMENT and self._whole.has_root
        return self._root is not None or self._document is not None

    def name_at(self, Py_ssize_t row):
        """The Clark name of an element or attribute, as its document has it; `#text` for text."""
        cdef RealNames names
        if not -self.rows <= row < self.rows:
            raise IndexError(row)
        if row < 0:
            row += self.rows
        if self.known and self.vocabulary.is_weak(self.tags[row]):
            names = self._names_of_rows()
            if names is not None:
                return names.vocabulary.name(names.tags[row])
            return "#unknown"
        return self.vocabulary.name(self.tags[row])

    cdef RealNames _names_of_rows(self):
        # None if the table does not know them.
        cdef RealNames whole
        cdef RealNames names
        if self._real is None:
            if self._whole is not None:
                whole = self._whole._names_of_rows()
                if whole is not None:
                    names = RealNames.__new__(RealNames)
                    names.vocabulary = whole.vocabulary
                    names.tags = whole.tags + self._first
                    names.owner = whole
                    self._real = names
            elif self._document is not None:
                self._real = names_by_reading(self)
        return self._real

    def looked_up(self):
        """The ids of the rows in the vocabulary as it is now (int32), and how many names it has.

        None if the table does not know the names of its rows.
        """
        cdef int32_t known = load_int(self.vocabulary._count)
        cdef RealNames names
        cdef int32_t[::1] view
        cdef int32_t tag, own, space
        cdef Py_ssize_t row
        cdef Name* name
        cdef Name* uri
        cdef dict found = {}
        names = self._names_of_rows()
        if names is None:
            for row in range(self.rows):
                if self.vocabulary.is_weak(self.tags[row]):
                    return None
        tags = np.array(self.tag)
        view = tags
        for row in range(self.rows):
            tag = view[row]
            if not self.vocabulary.is_weak(tag):
                continue
            own = names.tags[row]
            if own not in found:
                name = &names.vocabulary._pages[own // PAGE][own % PAGE]
                uri = &names.vocabulary._spaces[name.space // PAGE][name.space % PAGE]
                space = self.vocabulary.find_space(uri.text, uri.length) if name.space else 0
                tag = self.vocabulary.find(space, name.text, name.length) if space >= 0 else -1
                found[own] = tag if tag >= 0 else self.vocabulary.wildcard(space)
            view[row] = found[own]
        return tags, known

    def derive(self, Columns whole, Py_ssize_t first, int32_t known):
        """Say how many names the table's reader knew, and that its rows are some of another's.

        These are the rows of `whole` from the row `first` on; what is known of its document, and
        of the names of its rows, is then known of these. None if there is no such table.
        """
        self._whole = whole
        self._first = first
        self.known = known
        if whole is not None:
            self.continued = whole.continued

    def serialise(self, Py_ssize_t row):
        """The XML of an element as its document has it, in UTF-8; None without a document."""
        cdef Py_ssize_t ordinal = 0
        cdef Py_ssize_t i
        cdef tree.xmlNode* node
        if self._whole is not None:
            return self._whole.serialise(self._first + row)
        if self._document is None or not trees_work:
            return None
        if self._tree is None:
            self._tree = parse_tree(self._document, self._huge, self._resolve)
        for i in range(row):
            ordinal += self.kinds[i] == kELEMENT
        node = nth_element(<tree.xmlNode*>self._tree.top(self._wrapped), ordinal)
        return None if node == NULL else self._tree.fragment(node)

    def element_at(self, Py_ssize_t row):
        """The lxml element of a row; for an attribute or a text node, that of its parent."""
        cdef cetree._Element root
        cdef tree.xmlNode* node
        cdef Py_ssize_t ordinal = 0
        cdef Py_ssize_t i
        if not 0 <= row < self.rows:
            raise IndexError(row)
        root = self.root
        if root is None:
            return None
        if self.kinds[row] != kELEMENT:
            row = self.parents[row]
        for i in range(row):
            ordinal += self.kinds[i] == kELEMENT
        node = nth_element(root._c_node, ordinal)
        return None if node == NULL else cetree.elementFactory(root._doc, node)


def tree_parser(huge, resolve=False):
    """A parser that fetches nothing and expands nothing unless told to."""
    return etree.XMLParser(
        resolve_entities=resolve,
        no_network=True,
        huge_tree=huge,
        load_dtd=False,
        dtd_validation=False,
        attribute_defaults=False,
        collect_ids=False,
    )


cdef class Consumer:
    """Does something with a document's columns as soon as they are read, still without the GIL."""

    cdef void consume(self, Raw* raw) noexcept nogil:
        pass


cdef tree.xmlNode* nth_element(tree.xmlNode* root, Py_ssize_t ordinal) noexcept nogil:
    cdef tree.xmlNode* node = root
    while ordinal > 0:
        if node.type == tree.XML_ELEMENT_NODE and node.children != NULL:
            node = node.children
        else:
            while node != root and node.next == NULL:
                node = node.parent
            if node == root:
                return NULL
            node = node.next
        ordinal -= node.type == tree.XML_ELEMENT_NODE
    return node


@cython.final
cdef class Memory:
    """A stretch of memory that another object owns, as a buffer."""

    cdef void* data
    cdef Py_ssize_t size
    cdef object owner

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        buffer.buf = self.data
        buffer.obj = self
        buffer.len = self.size
        buffer.readonly = 1
        buffer.itemsize = 1
        buffer.format = NULL
        buffer.ndim = 1
        buffer.shape = &self.size
        buffer.strides = &buffer.itemsize
        buffer.suboffsets = NULL
        buffer.internal = NULL

    def __releasebuffer__(self, Py_buffer* buffer):
        pass


cdef object cython_view(void* data, Py_ssize_t size, object owner):
    cdef Memory memory = Memory.__new__(Memory)
    memory.data = data
    memory.size = size
    memory.owner = owner
    return memory


cdef void* address(array, str dtype) except? NULL:
    cdef Py_buffer view
    cdef void* data
    if array.dtype != np.dtype(dtype) or not array.flags.c_contiguous:
        raise TypeError(f"a contiguous column of {np.dtype(dtype)} is needed, not {array.dtype}")
    PyObject_GetBuffer(array, &view, PyBUF_SIMPLE)
    data = view.buf
    PyBuffer_Release(&view)
    return data
