"""The native kernel of labeling: the vocabulary, the columns, the walk and the tag scanner.

The walk goes over the tree that lxml has parsed, through lxml's documented C interface, with
the GIL released: the tree is private to the caller until the walk returns.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memmove, memset, strlen

from lxml.includes cimport etreepublic as cetree
from lxml.includes cimport tree

import os

import numpy as np
from lxml import etree
from lxml.etree import fromstring

cetree.import_lxml__etree()

cdef extern from *:
    """
    #include <pthread.h>
    #define load_pointer(p) __atomic_load_n(&(p), __ATOMIC_ACQUIRE)
    #define store_pointer(p, v) __atomic_store_n(&(p), (v), __ATOMIC_RELEASE)
    #define load_int(p) __atomic_load_n(&(p), __ATOMIC_ACQUIRE)
    #define store_int(p, v) __atomic_store_n(&(p), (v), __ATOMIC_RELEASE)
    """
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_init(pthread_mutex_t*, void*) nogil
    int pthread_mutex_destroy(pthread_mutex_t*) nogil
    int pthread_mutex_lock(pthread_mutex_t*) nogil
    int pthread_mutex_unlock(pthread_mutex_t*) nogil
    Names* load_pointer(Names*) noexcept nogil
    void store_pointer(Names*, Names*) noexcept nogil
    int32_t load_int(int32_t) noexcept nogil
    void store_int(int32_t, int32_t) noexcept nogil


ELEMENT = 0
ATTRIBUTE = 1
TEXT = 2

# Ids that no name has.
TEXT_TAG = 0
UNKNOWN_TAG = 1

# The right end of the AD label of an element that a batch leaves open.
OPEN_END = (1 << 63) - 1

cdef enum:
    kELEMENT = 0
    kATTRIBUTE = 1
    kTEXT = 2
    tTEXT = 0
    tUNKNOWN = 1
    FULL = -2
    NO_MEMORY = -3
    PAGE = 4096
    PAGES = 1024


# --- the vocabulary -------------------------------------------------------------------------

# Of this process alone, so that nobody can make up names that fall into one slot.
cdef uint64_t SEED = int.from_bytes(os.urandom(8), "little")


cdef inline uint64_t mix(uint64_t value, const char* text, uint32_t length) noexcept nogil:
    # Eight bytes at a time; the length tells a short rest from one with zeros behind it.
    cdef uint64_t word
    value ^= length
    while length >= 8:
        memcpy(&word, text, 8)
        value = (value ^ word) * 0x9E3779B97F4A7C15ULL
        value ^= value >> 32
        text += 8
        length -= 8
    word = 0
    while length > 0:
        length -= 1
        word = word << 8 | <uint8_t>text[length]
    value = (value ^ word) * 0xD6E8FEB86659FD93ULL
    return value ^ (value >> 32)


cdef inline uint64_t hash_name(const char* uri, uint32_t uri_length,
                               const char* local, uint32_t local_length) noexcept nogil:
    return mix(mix(SEED, uri, uri_length) if uri_length else SEED, local, local_length)


cdef Names* new_names(uint32_t size) noexcept nogil:
    cdef Names* names = <Names*>malloc(sizeof(Names))
    if names == NULL:
        return NULL
    names.mask = size - 1
    names.slots = <int32_t*>calloc(size, sizeof(int32_t))
    names.older = NULL
    if names.slots == NULL:
        free(names)
        return NULL
    return names


cdef class Vocabulary:
    """Names of elements and attributes, as Clark names, and their ids.

    Ids are dense and never change; id 0 stands for text nodes and id 1 for names that a closed
    reader did not know. Safe for any number of threads: look-ups take no lock. `limit` bounds
    how many names may be held, so that a hostile stream cannot fill the memory.
    """

    def __cinit__(self, names=(), int32_t limit=1 << 20):
        cdef Py_ssize_t i
        if not 2 <= limit <= PAGE * PAGES:
            raise ValueError(f"the limit of a vocabulary lies between 2 and {PAGE * PAGES}")
        self.limit = limit
        self._clark_ids = {}
        self._clark_names = ["#text", "#unknown"]
        self._dictionary = None
        self._count = 2
        self._pages = <Name**>calloc(PAGES, sizeof(Name*))
        self._names = new_names(1024)
        self._mutex = malloc(sizeof(pthread_mutex_t))
        if self._pages == NULL or self._names == NULL or self._mutex == NULL:
            raise MemoryError
        pthread_mutex_init(<pthread_mutex_t*>self._mutex, NULL)
        for name in names:
            self.add(name)

    def __dealloc__(self):
        cdef int32_t i
        cdef Names* older
        if self._pages != NULL:
            for i in range(2, self._count):
                free(self._pages[i // PAGE][i % PAGE].text)
            for i in range(PAGES):
                free(self._pages[i])
            free(self._pages)
        while self._names != NULL:
            older = self._names.older
            free(self._names.slots)
            free(self._names)
            self._names = older
        if self._mutex != NULL:
            pthread_mutex_destroy(<pthread_mutex_t*>self._mutex)
            free(self._mutex)

    cdef int32_t find(self, const char* uri, uint32_t uri_length,
                      const char* local, uint32_t local_length) noexcept nogil:
        """The id of a name, or -1."""
        cdef uint64_t value = hash_name(uri, uri_length, local, local_length)
        cdef Names* names = load_pointer(self._names)
        cdef uint32_t slot = <uint32_t>value & names.mask
        cdef int32_t tag
        cdef Name* name
        while True:
            tag = load_int(names.slots[slot])
            if tag == 0:
                return -1
            name = &self._pages[tag // PAGE][tag % PAGE]
            if (name.hash == value and name.uri_length == uri_length
                    and name.local_length == local_length
                    and memcmp(name.text, uri, uri_length) == 0
                    and memcmp(name.text + uri_length, local, local_length) == 0):
                return tag
            slot = (slot + 1) & names.mask

    cdef int32_t intern(self, const char* uri, uint32_t uri_length,
                        const char* local, uint32_t local_length) noexcept nogil:
        """The id of a name, which is added if it is new; FULL or NO_MEMORY if it cannot be."""
        cdef int32_t tag = self.find(uri, uri_length, local, local_length)
        if tag >= 0:
            return tag
        pthread_mutex_lock(<pthread_mutex_t*>self._mutex)
        tag = self.find(uri, uri_length, local, local_length)
        if tag < 0:
            tag = self._append(uri, uri_length, local, local_length)
        pthread_mutex_unlock(<pthread_mutex_t*>self._mutex)
        return tag

    cdef int32_t _append(self, const char* uri, uint32_t uri_length,
                         const char* local, uint32_t local_length) noexcept nogil:
        cdef int32_t tag = self._count
        cdef Name* name
        if tag >= self.limit:
            return FULL
        if self._pages[tag // PAGE] == NULL:
            self._pages[tag // PAGE] = <Name*>calloc(PAGE, sizeof(Name))
            if self._pages[tag // PAGE] == NULL:
                return NO_MEMORY
        name = &self._pages[tag // PAGE][tag % PAGE]
        name.text = <char*>malloc(uri_length + local_length + 1)
        if name.text == NULL:
            return NO_MEMORY
        memcpy(name.text, uri, uri_length)
        memcpy(name.text + uri_length, local, local_length)
        name.uri_length = uri_length
        name.local_length = local_length
        name.hash = hash_name(uri, uri_length, local, local_length)
        if <uint32_t>tag * 2 > self._names.mask and not self._grow():
            free(name.text)
            return NO_MEMORY
        # The name is whole before any slot shows it: readers come without a lock.
        self._place(self._names, tag)
        store_int(self._count, tag + 1)
        return tag

    cdef void _place(self, Names* names, int32_t tag) noexcept nogil:
        cdef uint32_t slot = <uint32_t>self._pages[tag // PAGE][tag % PAGE].hash & names.mask
        while names.slots[slot] != 0:
            slot = (slot + 1) & names.mask
        store_int(names.slots[slot], tag)

    cdef bint _grow(self) noexcept nogil:
        cdef Names* grown = new_names((self._names.mask + 1) * 4)
        cdef int32_t tag
        if grown == NULL:
            return False
        for tag in range(2, self._count):
            self._place(grown, tag)
        grown.older = self._names
        store_pointer(self._names, grown)
        return True

    def add(self, str name not None):
        """The id of a Clark name; a name seen for the first time gets the next one."""
        uri, local = split_clark(name)
        cdef bytes raw_uri = uri.encode()
        cdef bytes raw_local = local.encode()
        cdef int32_t tag = self.intern(raw_uri, <uint32_t>len(raw_uri),
                                       raw_local, <uint32_t>len(raw_local))
        if tag == NO_MEMORY:
            raise MemoryError
        if tag == FULL:
            raise OverflowError(f"the vocabulary is full: it may hold {self.limit} names")
        return tag

    def get(self, str name not None, default=None):
        """The id of a Clark name, or `default`."""
        tag = self._clark_ids.get(name)
        if tag is None:
            self._catch_up()
            tag = self._clark_ids.get(name, default)
        return tag

    def name(self, tag):
        """The Clark name of an id."""
        if not 0 <= tag < len(self._clark_names):
            self._catch_up()
        if tag < 0:
            raise IndexError(tag)
        return self._clark_names[tag]

    @property
    def names(self):
        """All names in the order of their ids, the two reserved ones first."""
        self._catch_up()
        return tuple(self._clark_names)

    def _catch_up(self):
        # Names that threads interned without the GIL get their Python strings here.
        cdef int32_t tag
        cdef int32_t count = load_int(self._count)
        cdef Name* name
        for tag in range(<int32_t>len(self._clark_names), count):
            name = &self._pages[tag // PAGE][tag % PAGE]
            uri = name.text[:name.uri_length].decode()
            local = name.text[name.uri_length:name.uri_length + name.local_length].decode()
            clark = f"{{{uri}}}{local}" if uri else local
            self._clark_ids[clark] = tag
            # Another thread may have been here while a string was made.
            if tag == <int32_t>len(self._clark_names):
                self._clark_names.append(clark)

    def dictionary(self):
        """The names as an Arrow array; the same object until a name is added."""
        import pyarrow as pa
        self._catch_up()
        if self._dictionary is None or len(self._dictionary) != len(self._clark_names):
            self._dictionary = pa.array(self._clark_names, pa.utf8())
        return self._dictionary

    def __len__(self):
        return load_int(self._count)

    def __contains__(self, name):
        return isinstance(name, str) and self.get(name) is not None

    def __reduce__(self):
        return Vocabulary, (self.names[2:], self.limit)

    def __repr__(self):
        return f"<Vocabulary of {len(self)} names>"


def split_clark(str name not None):
    """`{uri}local` as its two parts."""
    if name.startswith("{"):
        uri, closed, local = name[1:].rpartition("}")
        if closed and local:
            return uri, local
    elif name:
        return "", name
    raise ValueError(f"not a Clark name: {name!r}")


# --- the columns ----------------------------------------------------------------------------

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
            self._root = fromstring(self._document, tree_parser(self._huge))
        return self._root

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


# --- the walk -------------------------------------------------------------------------------

cdef enum Status:
    FINE = 0
    OUT_OF_MEMORY = 1
    TOO_MANY_NODES = 2
    TOO_DEEP = 3
    LONG_ATTRIBUTE = 4
    LONG_TEXT = 5
    ENTITY = 6
    TOO_MANY_NAMES = 7
    TOO_MUCH_TEXT = 8

cdef struct Bounds:
    int32_t nodes
    int32_t depth
    int32_t attribute
    int32_t text

cdef struct Seen:
    # libxml2 keeps one copy of each name in a document, so its address identifies it there.
    const void* name
    const void* uri
    int32_t tag

cdef enum:
    SEEN = 128   # 2 ** (64 - 57), see tag_of
    PLAIN = 256  # 2 ** (64 - 56)

cdef struct Walk:
    char* block
    size_t block_size
    uint8_t* kinds
    int32_t* tags
    int32_t* parents
    int16_t* levels
    int64_t* starts
    int64_t* ends
    int32_t* offsets
    int32_t rows
    int32_t capacity
    char* text
    int32_t length
    int32_t room
    bint values
    bint blanks
    bint grow
    bint lengthy            # the document is long enough to hold a value over its limit
    Bounds bounds
    Seen* seen
    Seen* plain             # for names without a namespace
    int32_t elements        # how many elements had begun: where an error lies


cdef enum:
    # From here on malloc always asks the system, and gives pages that nobody has touched.
    KEEP = 32 << 20


# Blocks of a few KB are kept for the next document. To malloc each of them is a large request,
# at which it tidies up all the small ones that libxml2 has freed and is about to ask for again.
# Only whoever has the GIL comes here.
cdef enum:
    UNIT = 1024
    POOLED = 64
    SPARES = 8

cdef void* spares[POOLED + 1][SPARES]
cdef int spare_count[POOLED + 1]


cdef void* take_block(size_t* size) noexcept:
    # At least *size bytes; *size is set to how many there are.
    cdef size_t units = size[0] // UNIT + 1
    size[0] = units * UNIT
    if units <= POOLED and spare_count[units] > 0:
        spare_count[units] -= 1
        return spares[units][spare_count[units]]
    return malloc(size[0])


cdef void give_block(void* block, size_t size) noexcept:
    cdef size_t units = size // UNIT
    if block != NULL and 0 < units <= POOLED and spare_count[units] < SPARES:
        spares[units][spare_count[units]] = block
        spare_count[units] += 1
    else:
        free(block)


cdef inline size_t bytes_of(size_t rows) noexcept nogil:
    return rows * 31 + 4


cdef void lay_out(Walk* walk, char* block, int32_t capacity) noexcept nogil:
    # All columns in one block, the widest first, so that each is aligned.
    cdef size_t n = <size_t>capacity
    walk.block = block
    walk.capacity = capacity
    walk.starts = <int64_t*>block
    walk.ends = <int64_t*>(block + n * 8)
    walk.tags = <int32_t*>(block + n * 16)
    walk.parents = <int32_t*>(block + n * 20)
    walk.offsets = <int32_t*>(block + n * 24)  # one more than there are rows
    walk.levels = <int16_t*>(block + n * 28 + 4)
    walk.kinds = <uint8_t*>(block + n * 30 + 4)


cdef Status more_rows(Walk* walk) noexcept nogil:
    cdef Walk old = walk[0]
    cdef size_t n = <size_t>walk.rows
    cdef int32_t capacity = walk.bounds.nodes
    cdef char* block
    if walk.capacity >= capacity:
        return TOO_MANY_NODES
    if walk.capacity < capacity // 2:
        capacity = walk.capacity * 2
    block = <char*>malloc(bytes_of(<size_t>capacity))
    if block == NULL:
        return OUT_OF_MEMORY
    walk.block_size = bytes_of(<size_t>capacity)
    lay_out(walk, block, capacity)
    memcpy(walk.starts, old.starts, n * 8)
    memcpy(walk.ends, old.ends, n * 8)
    memcpy(walk.tags, old.tags, n * 4)
    memcpy(walk.parents, old.parents, n * 4)
    memcpy(walk.offsets, old.offsets, n * 4)
    memcpy(walk.levels, old.levels, n * 2)
    memcpy(walk.kinds, old.kinds, n)
    free(old.block)
    return FINE


cdef inline int32_t tag_of(Walk* walk, Vocabulary vocabulary, const tree.xmlChar* name,
                           tree.xmlNs* ns) noexcept nogil:
    cdef Seen* seen
    if ns == NULL:
        seen = &walk.plain[(<uint64_t>name * 0x9E3779B97F4A7C15ULL) >> 56]
        if seen.name != name:
            seen.tag = look_up(walk, vocabulary, name, NULL)
            # What is not known now may be known later, and this may be kept till then.
            seen.name = name if seen.tag > tUNKNOWN else NULL
        return seen.tag
    seen = &walk.seen[((<uint64_t>name ^ (<uint64_t>ns.href << 7)) * 0x9E3779B97F4A7C15ULL) >> 57]
    if seen.name != name or seen.uri != ns.href:
        seen.name = name
        seen.uri = ns.href
        seen.tag = look_up(walk, vocabulary, name, ns.href)
    return seen.tag


cdef int32_t look_up(Walk* walk, Vocabulary vocabulary, const tree.xmlChar* name,
                     const tree.xmlChar* uri) noexcept nogil:
    cdef const char* local = <const char*>name
    cdef const char* space = <const char*>uri if uri != NULL else local
    cdef uint32_t space_length = <uint32_t>strlen(<const char*>uri) if uri != NULL else 0
    cdef int32_t tag
    if walk.grow:
        return vocabulary.intern(space, space_length, local, <uint32_t>strlen(local))
    tag = vocabulary.find(space, space_length, local, <uint32_t>strlen(local))
    return tag if tag >= 0 else tUNKNOWN


cdef bint is_no_text(tree.xmlNode* node, bint blanks) noexcept nogil:
    # Whether text and the text that adjoins it is empty, or blank where blanks do not count.
    cdef const tree.xmlChar* text
    while node != NULL and (node.type == tree.XML_TEXT_NODE
                            or node.type == tree.XML_CDATA_SECTION_NODE):
        text = node.content
        if text != NULL:
            if not blanks:
                while text[0] == 32 or text[0] == 10 or text[0] == 9 or text[0] == 13:
                    text += 1
            if text[0] != 0:
                return False
        node = node.next
    return True


cdef inline bint may_be_no_text(tree.xmlNode* node, bint blanks) noexcept nogil:
    return not blanks or node.content == NULL or (
        <void*>node.content == <void*>&node.properties and node.content[0] == 0)


cdef inline Status append_value(Walk* walk, const tree.xmlChar* text) noexcept nogil:
    cdef size_t size
    cdef size_t room
    cdef void* p
    if text == NULL:
        return FINE
    size = strlen(<const char*>text)
    if size > <size_t>(0x7ffffff0 - walk.length):
        return TOO_MUCH_TEXT
    if <int32_t>size > walk.room - walk.length:
        room = (<size_t>walk.length + size) * 2
        if room > 0x7ffffff0:
            room = 0x7ffffff0
        p = realloc(walk.text, room)
        if p == NULL:
            return OUT_OF_MEMORY
        walk.text = <char*>p
        walk.room = <int32_t>room
    memcpy(walk.text + walk.length, text, size)
    walk.length += <int32_t>size
    return FINE


cdef Status add_attributes(Walk* walk, Vocabulary vocabulary, tree.xmlNode* element, int32_t row,
                           int16_t level, int64_t* tick) noexcept nogil:
    cdef tree.xmlAttr* attribute = element.properties
    cdef tree.xmlNode* part
    cdef int32_t begin
    cdef Status status
    cdef int32_t at
    while attribute != NULL:
        if walk.rows == walk.capacity:
            status = more_rows(walk)
            if status != FINE:
                return status
        at = walk.rows
        walk.rows += 1
        walk.kinds[at] = kATTRIBUTE
        walk.tags[at] = tag_of(walk, vocabulary, attribute.name, attribute.ns)
        if walk.tags[at] < 0:
            return TOO_MANY_NAMES if walk.tags[at] == FULL else OUT_OF_MEMORY
        walk.parents[at] = row
        walk.levels[at] = level
        walk.starts[at] = tick[0]
        walk.ends[at] = tick[0] + 1
        tick[0] += 2
        begin = walk.length
        walk.offsets[at] = begin
        part = attribute.children
        while part != NULL:
            if part.type != tree.XML_TEXT_NODE and part.type != tree.XML_CDATA_SECTION_NODE:
                return ENTITY
            if walk.values:
                status = append_value(walk, part.content)
                if status != FINE:
                    return status
            elif walk.lengthy and part.content != NULL and strlen(<const char*>part.content) > <size_t>walk.bounds.attribute:
                return LONG_ATTRIBUTE
            part = part.next
        if walk.length - begin > walk.bounds.attribute:
            return LONG_ATTRIBUTE
        attribute = attribute.next
    return FINE


cdef Status walk_tree(Walk* walk, Vocabulary vocabulary, tree.xmlNode* root, int64_t base,
                      int16_t base_level) noexcept nogil:
    cdef tree.xmlNode* node = root
    cdef int32_t parent = -1
    cdef int32_t at
    cdef int32_t joined = -1      # the text row that adjacent text belongs to
    cdef int64_t tick = base
    cdef int16_t level = base_level
    cdef int32_t type
    cdef Status status
    while True:
        type = node.type
        if type == tree.XML_ELEMENT_NODE:
            joined = -1
            if walk.rows == walk.capacity:
                status = more_rows(walk)
                if status != FINE:
                    return status
            walk.elements += 1
            if level - base_level >= walk.bounds.depth:
                return TOO_DEEP
            at = walk.rows
            walk.rows += 1
            walk.kinds[at] = kELEMENT
            walk.tags[at] = tag_of(walk, vocabulary, node.name, node.ns)
            if walk.tags[at] < 0:
                return TOO_MANY_NAMES if walk.tags[at] == FULL else OUT_OF_MEMORY
            walk.parents[at] = parent
            walk.levels[at] = level
            walk.starts[at] = tick
            walk.offsets[at] = walk.length
            tick += 1
            if node.properties != NULL:
                status = add_attributes(walk, vocabulary, node, at, level + 1, &tick)
                if status != FINE:
                    return status
            if node.children != NULL:
                node = node.children
                parent = at
                level += 1
                continue
            walk.ends[at] = tick
            tick += 1
        elif type == tree.XML_TEXT_NODE or type == tree.XML_CDATA_SECTION_NODE:
            # Text of a few bytes, or none, lies in the node itself: longer text is not looked at,
            # which would mean to wait for its memory.
            if joined < 0 and (not may_be_no_text(node, walk.blanks)
                               or not is_no_text(node, walk.blanks)):
                if walk.rows == walk.capacity:
                    status = more_rows(walk)
                    if status != FINE:
                        return status
                joined = walk.rows
                walk.rows += 1
                walk.kinds[joined] = kTEXT
                walk.tags[joined] = tTEXT
                walk.parents[joined] = parent
                walk.levels[joined] = level
                walk.starts[joined] = tick
                walk.ends[joined] = tick + 1
                walk.offsets[joined] = walk.length
                tick += 2
            if joined >= 0:
                if walk.values:
                    status = append_value(walk, node.content)
                    if status != FINE:
                        return status
                    if walk.length - walk.offsets[joined] > walk.bounds.text:
                        return LONG_TEXT
                elif walk.lengthy and node.content != NULL and strlen(<const char*>node.content) > <size_t>walk.bounds.text:
                    return LONG_TEXT
        elif type == tree.XML_COMMENT_NODE or type == tree.XML_PI_NODE:
            joined = -1
        else:
            return ENTITY
        while node.next == NULL or node == root:
            if node == root:
                walk.offsets[walk.rows] = walk.length
                return FINE
            node = node.parent
            walk.ends[parent] = tick
            tick += 1
            parent = walk.parents[parent]
            level -= 1
            joined = -1
            if node == root:
                walk.offsets[walk.rows] = walk.length
                return FINE
        node = node.next


cdef void forget(Walk* walk) noexcept:
    give_block(walk.block, walk.block_size)
    give_block(walk.text, walk.room)
    walk.block = NULL
    walk.text = NULL


cdef bint begin_walk(Walk* walk, int32_t capacity, int32_t room) noexcept:
    cdef size_t size = bytes_of(<size_t>capacity)
    cdef size_t text = <size_t>room
    cdef char* block = <char*>take_block(&size)
    walk.rows = 0
    walk.length = 0
    walk.elements = 0
    walk.block = block
    walk.block_size = size
    walk.text = <char*>take_block(&text)
    walk.room = <int32_t>text
    if block == NULL or walk.text == NULL:
        return False
    lay_out(walk, block, capacity)
    return True


cdef inline char* put(char* to, void* data, size_t size) noexcept nogil:
    memcpy(to, data, size)
    return to + size


@cython.final
cdef class Blocks:
    """The memory of a table."""

    cdef char* block
    cdef size_t size
    cdef char* text     # of a large table only: it lies apart

    def __dealloc__(self):
        give_block(self.block, self.size)
        free(self.text)


cdef object keep(Walk* walk, Columns table):
    # Pages behind the last row of a column were never touched, so they cost nothing but their
    # addresses, while a copy would touch as many pages again.
    cdef Blocks blocks = Blocks.__new__(Blocks)
    cdef void* text = realloc(walk.text, walk.length + 1)
    if text != NULL:
        walk.text = <char*>text
    blocks.block = walk.block
    blocks.size = walk.block_size
    blocks.text = walk.text
    table._owner = blocks
    table.rows = walk.rows
    table.starts = walk.starts
    table.ends = walk.ends
    table.tags = walk.tags
    table.parents = walk.parents
    table.levels = walk.levels
    table.kinds = walk.kinds
    table.offsets = walk.offsets if walk.values else NULL
    table.text = walk.text
    walk.block = NULL
    walk.text = NULL


cdef object pack(Walk* walk, Columns table):
    # One block of about the right size: a table that is kept costs little slack.
    cdef size_t n = <size_t>walk.rows
    cdef size_t offsets = (n + 1) * 4 if walk.values else 0
    cdef size_t size = n * 27 + offsets + <size_t>(walk.length if walk.values else 0)
    cdef Blocks blocks = Blocks.__new__(Blocks)
    cdef char* to = <char*>take_block(&size)
    if to == NULL:
        raise MemoryError
    blocks.block = to
    blocks.size = size
    table._owner = blocks
    table.rows = walk.rows
    table.starts = <int64_t*>to
    to = put(to, walk.starts, n * 8)
    table.ends = <int64_t*>to
    to = put(to, walk.ends, n * 8)
    table.tags = <int32_t*>to
    to = put(to, walk.tags, n * 4)
    table.parents = <int32_t*>to
    to = put(to, walk.parents, n * 4)
    table.offsets = NULL
    if walk.values:
        table.offsets = <int32_t*>to
        to = put(to, walk.offsets, offsets)
    table.levels = <int16_t*>to
    to = put(to, walk.levels, n * 2)
    table.kinds = <uint8_t*>to
    to = put(to, walk.kinds, n)
    table.text = to
    if walk.values:
        memcpy(to, walk.text, walk.length)


class WalkStopped(Exception):
    """The walk met what it may not pass: `reason` says what, `element` in which element."""

    position = (1, 1)

    def __init__(self, reason, element):
        super().__init__(reason)
        self.reason = reason
        self.element = element


REASONS = {
    TOO_MANY_NODES: "nodes",
    TOO_DEEP: "depth",
    LONG_ATTRIBUTE: "attribute",
    LONG_TEXT: "text",
    ENTITY: "entity",
    TOO_MANY_NAMES: "names",
    TOO_MUCH_TEXT: "bytes",
}


# --- the events -----------------------------------------------------------------------------

# libxml2 parses two to three times faster when it need not build a tree. lxml carries libxml2
# inside its own library and exports it, so its event interface is there for whoever asks the
# loader. It is used only when the headers are those of the library; else there is the tree.

cdef extern from "dlfcn.h" nogil:
    void* dlopen(const char*, int)
    void* dlsym(void*, const char*)
    enum:
        RTLD_NOW
        RTLD_NOLOAD

cdef extern from "libxml/parser.h" nogil:
    enum:
        XML_SAX2_MAGIC
        LIBXML_VERSION
        XML_PARSE_NOENT
        XML_PARSE_NONET
        XML_PARSE_HUGE
        XML_PARSE_NOERROR
        XML_PARSE_NOWARNING
    ctypedef struct xmlSAXHandler:
        void* internalSubset
        void* reference
        void* startElementNs
        void* endElementNs
        void* characters
        void* ignorableWhitespace
        void* cdataBlock
        void* comment
        void* processingInstruction
        void* serror
        unsigned int initialized
    ctypedef struct xmlParserCtxt:
        int wellFormed
        int nsWellFormed
        int errNo
    ctypedef struct xmlError:
        int code
        char* message
        int line
        int int2

ctypedef xmlParserCtxt* (*NewContext)(xmlSAXHandler*, void*) noexcept nogil
ctypedef void* (*ReadMemory)(xmlParserCtxt*, const char*, int, const char*, const char*, int) noexcept nogil
ctypedef void (*ContextCall)(xmlParserCtxt*) noexcept nogil
ctypedef xmlParserCtxt* (*NewPush)(xmlSAXHandler*, void*, const char*, int, const char*) noexcept nogil
ctypedef int (*UseOptions)(xmlParserCtxt*, int) noexcept nogil
ctypedef int (*ParseChunk)(xmlParserCtxt*, const char*, int, int) noexcept nogil
ctypedef const xmlError* (*LastError)(void*) noexcept nogil
ctypedef int (*PlaceCall)(void*) noexcept nogil

cdef NewContext new_context = NULL
cdef ReadMemory read_memory = NULL
cdef ContextCall free_context = NULL
cdef ContextCall stop_parser = NULL
cdef NewPush new_push = NULL
cdef UseOptions use_options = NULL
cdef ParseChunk parse_chunk = NULL
cdef LastError last_error = NULL
cdef PlaceCall line_of_parser = NULL
cdef PlaceCall column_of_parser = NULL
cdef xmlSAXHandler handlers
cdef bint sax_works = False

cdef enum:
    NAMES = 512        # 2 ** (64 - 55), see seen_slot
    FORGET = 100_000

cdef struct Sax:
    xmlParserCtxt* context
    Walk walk
    int32_t parent
    int32_t joined          # the text row that adjacent text belongs to, or -1
    int64_t joined_size     # bytes of that text so far
    int64_t tick
    int16_t level
    Status status
    Seen names[NAMES]       # the context keeps its names from document to document
    Seen* pending           # names without an id yet; their rows hold -1, -2, ...
    int32_t pending_count
    int32_t pending_room
    int64_t new_names


cdef inline Seen* seen_slot(Sax* sax, const void* name, const void* uri) noexcept nogil:
    cdef uint64_t mixed = (<uint64_t>name ^ (<uint64_t>uri << 7)) * 0x9E3779B97F4A7C15ULL
    return &sax.names[mixed >> 55]


cdef void stop(Sax* sax, Status status) noexcept nogil:
    sax.status = status
    stop_parser(sax.context)


cdef int32_t event_tag(Sax* sax, const void* name, const void* uri) noexcept nogil:
    cdef Seen* slot = seen_slot(sax, name, uri)
    cdef void* grown
    if slot.name == name and slot.uri == uri:
        return slot.tag
    if sax.pending_count == sax.pending_room:
        grown = realloc(sax.pending, (sax.pending_room * 2 + 64) * sizeof(Seen))
        if grown == NULL:
            stop(sax, OUT_OF_MEMORY)
            return 0
        sax.pending = <Seen*>grown
        sax.pending_room = sax.pending_room * 2 + 64
    sax.pending[sax.pending_count].name = name
    sax.pending[sax.pending_count].uri = uri
    sax.pending_count += 1
    slot.name = name
    slot.uri = uri
    slot.tag = -sax.pending_count
    return slot.tag


cdef int32_t event_row(Sax* sax, uint8_t kind, int32_t tag) noexcept nogil:
    # A new row below the open element, or -1.
    cdef Walk* walk = &sax.walk
    cdef Status status
    cdef int32_t at
    if walk.rows == walk.capacity:
        status = more_rows(walk)
        if status != FINE:
            stop(sax, status)
            return -1
    at = walk.rows
    walk.rows += 1
    walk.kinds[at] = kind
    walk.tags[at] = tag
    walk.parents[at] = sax.parent
    walk.levels[at] = sax.level
    walk.starts[at] = sax.tick
    walk.ends[at] = sax.tick + 1
    walk.offsets[at] = walk.length
    return at


cdef bint append_bytes(Walk* walk, const unsigned char* text, int32_t size) noexcept nogil:
    cdef size_t room
    cdef void* p
    if size > walk.room - walk.length:
        room = (<size_t>walk.length + <size_t>size) * 2
        if room > 0x7ffffff0:
            return False
        p = realloc(walk.text, room)
        if p == NULL:
            return False
        walk.text = <char*>p
        walk.room = <int32_t>room
    memcpy(walk.text + walk.length, text, size)
    walk.length += size
    return True


cdef void end_text(Sax* sax) noexcept nogil:
    # Text is over; if it was all blank and blanks do not count, it never was.
    cdef Walk* walk = &sax.walk
    cdef int32_t i
    if not walk.blanks and sax.joined >= 0:
        for i in range(walk.offsets[sax.joined], walk.length):
            if not is_space(walk.text[i]):
                sax.joined = -1
                return
        walk.length = walk.offsets[sax.joined]
        walk.rows -= 1
        sax.tick -= 2
    sax.joined = -1


cdef void on_start(void* data, const unsigned char* name, const unsigned char* prefix,
                   const unsigned char* uri, int spaces, const unsigned char** space_list,
                   int count, int defaulted, const unsigned char** attributes) noexcept nogil:
    cdef Sax* sax = <Sax*>data
    cdef Walk* walk = &sax.walk
    cdef int32_t at, row, size
    cdef int i
    if sax.status != FINE:
        return
    if sax.joined >= 0:
        end_text(sax)
    walk.elements += 1
    if sax.level >= walk.bounds.depth:
        stop(sax, TOO_DEEP)
        return
    row = event_row(sax, kELEMENT, event_tag(sax, name, uri))
    if row < 0:
        return
    sax.tick += 1
    sax.parent = row
    sax.level += 1
    for i in range(count):
        at = event_row(sax, kATTRIBUTE, event_tag(sax, attributes[0], attributes[2]))
        if at < 0:
            return
        sax.tick += 2
        size = <int32_t>(attributes[4] - attributes[3])
        if size > walk.bounds.attribute:
            stop(sax, LONG_ATTRIBUTE)
            return
        if walk.values and not append_bytes(walk, attributes[3], size):
            stop(sax, OUT_OF_MEMORY)
            return
        attributes += 5


cdef void on_end(void* data, const unsigned char* name, const unsigned char* prefix,
                 const unsigned char* uri) noexcept nogil:
    cdef Sax* sax = <Sax*>data
    if sax.status != FINE:
        return
    if sax.joined >= 0:
        end_text(sax)
    sax.walk.ends[sax.parent] = sax.tick
    sax.tick += 1
    sax.parent = sax.walk.parents[sax.parent]
    sax.level -= 1


cdef void on_text(void* data, const unsigned char* text, int size) noexcept nogil:
    cdef Sax* sax = <Sax*>data
    cdef Walk* walk = &sax.walk
    if sax.status != FINE or size == 0:
        return
    if sax.joined < 0:
        sax.joined = event_row(sax, kTEXT, tTEXT)
        if sax.joined < 0:
            return
        sax.joined_size = 0
        sax.tick += 2
    sax.joined_size += size
    if sax.joined_size > walk.bounds.text:
        stop(sax, LONG_TEXT)
        return
    # Without values the text is still needed for a while if it may turn out to be blank.
    if (walk.values or not walk.blanks) and not append_bytes(walk, text, size):
        stop(sax, OUT_OF_MEMORY)


cdef void on_comment(void* data, const unsigned char* text) noexcept nogil:
    if (<Sax*>data).joined >= 0:
        end_text(<Sax*>data)


cdef void on_instruction(void* data, const unsigned char* target,
                         const unsigned char* text) noexcept nogil:
    if (<Sax*>data).joined >= 0:
        end_text(<Sax*>data)


cdef void on_subset(void* data, const unsigned char* name, const unsigned char* external,
                    const unsigned char* system) noexcept nogil:
    stop(<Sax*>data, ENTITY)


cdef void on_reference(void* data, const unsigned char* name) noexcept nogil:
    stop(<Sax*>data, ENTITY)


cdef void on_error(void* data, const void* error) noexcept nogil:
    pass  # the parser of trees will say it


cdef Sax* new_sax(bint pushed) noexcept nogil:
    cdef Sax* sax = <Sax*>calloc(1, sizeof(Sax))
    if sax == NULL:
        return NULL
    if pushed:
        sax.context = new_push(&handlers, sax, NULL, 0, NULL)
    else:
        sax.context = new_context(&handlers, sax)
    if sax.context == NULL:
        free(sax)
        return NULL
    return sax


cdef void free_sax(Sax* sax) noexcept:
    if sax != NULL:
        forget(&sax.walk)
        free_context(sax.context)
        free(sax.pending)
        free(sax)


cdef void begin_events(Sax* sax, int64_t base) noexcept nogil:
    sax.parent = -1
    sax.joined = -1
    sax.tick = base
    sax.level = 0
    sax.status = FINE
    sax.pending_count = 0


cdef int parser_options(bint huge) noexcept nogil:
    # NOENT: else `&amp;` in an attribute would come as `&#38;`. There are no other entities, as
    # a DOCTYPE stops the parser.
    cdef int options = (XML_PARSE_NOENT | XML_PARSE_NONET | XML_PARSE_NOERROR
                        | XML_PARSE_NOWARNING)
    return options | XML_PARSE_HUGE if huge else options


cdef void parse_events(Sax* sax, const char* text, int size, bint huge) noexcept nogil:
    read_memory(sax.context, text, size, NULL, NULL, parser_options(huge))


cdef bint end_events(Sax* sax) noexcept nogil:
    # Whether the document was read to its end without anything to complain of.
    if (not sax.context.wellFormed or not sax.context.nsWellFormed or sax.context.errNo != 0
            or sax.walk.rows == 0):
        return False
    sax.walk.offsets[sax.walk.rows] = sax.walk.length
    return True


cdef void find_events() noexcept:
    # Ask the loader for the event interface of the libxml2 inside lxml.
    global new_context, read_memory, free_context, stop_parser, sax_works
    global new_push, use_options, parse_chunk, last_error, line_of_parser, column_of_parser
    cdef bytes path = etree.__file__.encode()
    cdef void* library
    cdef int version = LIBXML_VERSION // 100
    if etree.LIBXML_VERSION[0] * 100 + etree.LIBXML_VERSION[1] != version:
        return
    library = dlopen(path, RTLD_NOW | RTLD_NOLOAD)
    if library == NULL:
        return
    new_context = <NewContext>dlsym(library, b"xmlNewSAXParserCtxt")
    read_memory = <ReadMemory>dlsym(library, b"xmlCtxtReadMemory")
    free_context = <ContextCall>dlsym(library, b"xmlFreeParserCtxt")
    stop_parser = <ContextCall>dlsym(library, b"xmlStopParser")
    new_push = <NewPush>dlsym(library, b"xmlCreatePushParserCtxt")
    use_options = <UseOptions>dlsym(library, b"xmlCtxtUseOptions")
    parse_chunk = <ParseChunk>dlsym(library, b"xmlParseChunk")
    last_error = <LastError>dlsym(library, b"xmlCtxtGetLastError")
    line_of_parser = <PlaceCall>dlsym(library, b"xmlSAX2GetLineNumber")
    column_of_parser = <PlaceCall>dlsym(library, b"xmlSAX2GetColumnNumber")
    memset(&handlers, 0, sizeof(handlers))
    handlers.initialized = XML_SAX2_MAGIC
    handlers.internalSubset = <void*>on_subset
    handlers.reference = <void*>on_reference
    handlers.startElementNs = <void*>on_start
    handlers.endElementNs = <void*>on_end
    handlers.characters = <void*>on_text
    handlers.ignorableWhitespace = <void*>on_text
    handlers.cdataBlock = <void*>on_text
    handlers.comment = <void*>on_comment
    handlers.processingInstruction = <void*>on_instruction
    handlers.serror = <void*>on_error
    sax_works = (new_context != NULL and read_memory != NULL and free_context != NULL
                 and stop_parser != NULL and new_push != NULL and use_options != NULL
                 and parse_chunk != NULL and last_error != NULL and line_of_parser != NULL
                 and column_of_parser != NULL)


find_events()


def reads_events():
    """Whether documents are read from events; if not, lxml's tree is walked."""
    return sax_works


def use_events(bint wanted):
    """Read from events or not; for comparing the two ways. Says how it was before."""
    global sax_works
    before = sax_works
    sax_works = wanted and new_context != NULL
    return before


cdef extern from *:
    """
    #include <time.h>
    /* A thread that comes back from a few microseconds without the GIL finds it taken, as often
       as not, by another that will need it for a few microseconds. To sleep and be woken takes
       ten times as long, so it first spins a little. The stamp says since when a thread that
       read a document has had the GIL; an old one says nothing. */
    #define SPIN_NS 30000
    static long long taken_since = 0;
    static long long now_ns(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return t.tv_sec * 1000000000LL + t.tv_nsec;
    }
    static void gil_given(void) { __atomic_store_n(&taken_since, 0, __ATOMIC_RELEASE); }
    static void gil_taken(void) { __atomic_store_n(&taken_since, now_ns(), __ATOMIC_RELEASE); }
    static void await_gil(void) {
        long long since;
        while ((since = __atomic_load_n(&taken_since, __ATOMIC_ACQUIRE)) != 0) {
            if (now_ns() - since > SPIN_NS) return;
    #if defined(__x86_64__) || defined(__i386__)
            __builtin_ia32_pause();
    #endif
        }
    }
    """
    void gil_given() noexcept nogil
    void gil_taken() noexcept nogil
    void await_gil() noexcept nogil


@cython.final
cdef class ThreadParser:
    """One thread's parser for one reader, and the ids of the names that it has met.

    lxml keeps one dictionary of names for all documents that a thread parses, so the address of
    a name is the same in each of them. A document that is held on to keeps the dictionary alive.
    """

    cdef object parser
    cdef cetree._Element _keeper
    cdef Seen _plain[PLAIN]
    cdef Sax* sax
    cdef bint huge

    def __init__(self, parser, huge):
        self.parser = parser
        self.huge = huge
        self._keeper = fromstring(b"<a/>", parser)

    def __dealloc__(self):
        free_sax(self.sax)

    cdef Sax* events(self) noexcept:
        # The event parser; NULL if there is none to be had.
        if self.sax == NULL and sax_works:
            self.sax = new_sax(False)
        return self.sax

    cdef void renew(self) noexcept:
        # Names that are never seen again must not pile up.
        free_sax(self.sax)
        self.sax = NULL

    cdef Seen* names_of(self, tree.xmlDoc* document) noexcept:
        cdef void* names = <void*>document.dict
        if names != NULL and names == <void*>self._keeper._c_node.doc.dict:
            return self._plain
        return NULL


@cython.final
cdef class Walker:
    """The walk with one set of options. It has no state of its own: threads may share it."""

    cdef Vocabulary vocabulary
    cdef type cls
    cdef Bounds bounds
    cdef bint values
    cdef bint blanks
    cdef bint grow

    def __init__(self, type cls not None, Vocabulary vocabulary not None, tuple bounds not None,
                 bint values, bint blanks, bint grow):
        self.cls = cls
        self.vocabulary = vocabulary
        self.bounds.nodes, self.bounds.depth, self.bounds.attribute, self.bounds.text = bounds
        self.values = values
        self.blanks = blanks
        self.grow = grow

    def read(self, bytes document not None, ThreadParser parser not None, int64_t base,
             Consumer consumer=None):
        """The table of a document; None if others have to look at it first.

        That is so if it has a DOCTYPE or may be in an encoding whose markup is not ASCII. The
        consumer gets the columns only if they were read from events.
        """
        cdef cetree._Element root
        cdef const char* text = PyBytes_AS_STRING(document)
        # An empty or a one-byte document ends in the zero that ends every bytes object.
        if text[0] == 0 or <uint8_t>text[0] >= 0xfe or text[1] == 0:
            return None
        if doctype_at(PyBytes_AS_STRING(document), len(document), NULL) >= 0:
            return None
        table = self._read_events(document, parser, base, consumer)
        if table is not None:
            return table
        # Whatever was wrong, the parser of trees tells it better.
        root = fromstring(document, parser.parser)
        if root._c_node.doc.intSubset != NULL:
            return None
        return self._walk(root, len(document), base, 0, parser.names_of(root._c_node.doc))

    cdef object _read_events(self, bytes document, ThreadParser parser, int64_t base,
                             Consumer consumer):
        # The table straight from the parser's events, without a tree; None if that did not go
        # through to the end.
        cdef Sax* sax = parser.events()
        cdef Columns table
        cdef const char* text = PyBytes_AS_STRING(document)
        cdef Py_ssize_t size = len(document)
        cdef int32_t capacity = <int32_t>min(size // 8 + 16, self.bounds.nodes)
        cdef int32_t room = <int32_t>min(size // 2, 1 << 29) + 16 if self.values else 0
        cdef bint fine
        cdef bint consumed = consumer is not None
        cdef Raw raw
        if sax == NULL or size > 0x7fffffff:
            return None
        table = self.cls.__new__(self.cls)
        if not begin_walk(&sax.walk, capacity, room):
            forget(&sax.walk)
            raise MemoryError
        sax.walk.values = self.values
        sax.walk.blanks = self.blanks
        sax.walk.grow = self.grow
        sax.walk.bounds = self.bounds
        table.known = 0 if self.grow else load_int(self.vocabulary._count)
        with nogil:
            gil_given()
            begin_events(sax, base)
            parse_events(sax, text, <int>size, parser.huge)
            fine = sax.status == FINE and end_events(sax) and self._name_tags(sax)
            if fine and consumed:
                raw.kinds = sax.walk.kinds
                raw.tags = sax.walk.tags
                raw.parents = sax.walk.parents
                raw.levels = sax.walk.levels
                raw.starts = sax.walk.starts
                raw.ends = sax.walk.ends
                raw.offsets = sax.walk.offsets if self.values else NULL
                raw.text = sax.walk.text
                raw.rows = sax.walk.rows
                raw.known = table.known
                raw.continued = False
                consumer.consume(&raw)
            await_gil()
        gil_taken()
        try:
            if not fine:
                parser.renew()
                return None
            if bytes_of(<size_t>sax.walk.capacity) > KEEP:
                keep(&sax.walk, table)
            else:
                pack(&sax.walk, table)
        finally:
            if parser.sax != NULL:
                forget(&sax.walk)
        if sax.new_names > FORGET:
            parser.renew()
        table.vocabulary = self.vocabulary
        table._document = document
        table._huge = parser.huge
        return table

    cdef bint _name_tags(self, Sax* sax) noexcept nogil:
        # Names that were new to the parser get their ids, and so do their rows.
        cdef int32_t i, tag
        cdef Seen* slot
        if sax.pending_count == 0:
            return True
        for i in range(sax.pending_count):
            tag = look_up(&sax.walk, self.vocabulary, <const tree.xmlChar*>sax.pending[i].name,
                          <const tree.xmlChar*>sax.pending[i].uri)
            if tag < 0:
                return False
            sax.pending[i].tag = tag
            slot = seen_slot(sax, sax.pending[i].name, sax.pending[i].uri)
            if slot.name == sax.pending[i].name and slot.uri == sax.pending[i].uri:
                slot.tag = tag
                if tag == tUNKNOWN:
                    slot.name = NULL  # what is not known now may be known later
        for i in range(sax.walk.rows):
            if sax.walk.tags[i] < 0:
                sax.walk.tags[i] = sax.pending[-1 - sax.walk.tags[i]].tag
        sax.new_names += sax.pending_count
        return True

    def walk(self, cetree._Element root not None, Py_ssize_t size, int64_t base, int16_t level):
        """The table of the subtree below an element; `size` is about how many bytes it has."""
        return self._walk(root, size, base, level, NULL)

    cdef object _walk(self, cetree._Element root, Py_ssize_t size, int64_t base, int16_t level,
                      Seen* plain):
        cdef Columns table = self.cls.__new__(self.cls)
        cdef Walk work
        cdef Seen seen[SEEN]
        cdef Seen own[PLAIN]
        cdef Status status
        cdef int32_t capacity = <int32_t>min(size // 8 + 16, self.bounds.nodes)
        cdef int32_t room = <int32_t>min(size // 2, 1 << 29) + 16 if self.values else 0
        if not begin_walk(&work, capacity, room):
            forget(&work)
            raise MemoryError
        memset(seen, 0, sizeof(seen))
        if plain == NULL:
            memset(own, 0, sizeof(own))
            plain = own
        work.seen = seen
        work.plain = plain
        work.values = self.values
        work.blanks = self.blanks
        work.grow = self.grow
        work.bounds = self.bounds
        work.lengthy = size > min(work.bounds.attribute, work.bounds.text)
        table.known = 0 if self.grow else load_int(self.vocabulary._count)
        with nogil:
            status = walk_tree(&work, self.vocabulary, root._c_node, base, level)
        try:
            if status == OUT_OF_MEMORY:
                raise MemoryError
            if status != FINE:
                raise WalkStopped(REASONS[status], work.elements)
            if bytes_of(<size_t>work.capacity) > KEEP:
                keep(&work, table)
            else:
                pack(&work, table)
        finally:
            forget(&work)
        table.vocabulary = self.vocabulary
        table._root = root
        return table


# --- batches of one document ----------------------------------------------------------------

@cython.final
cdef class Batcher:
    """Reads one document of any length in batches of rows.

    Feed it bytes; `cut` gives the next batch once there are enough rows. A batch ends where an
    element begins, as far up the document as it can: what has begun and not ended by then goes
    into the next batch whole, unless that were more than half a batch. The elements that are
    still open then begin the next batch again, with their attributes; the right end of their
    label is OPEN in every batch, also where they end. Text is never cut.
    """

    cdef Walker walker
    cdef Sax* sax
    cdef int32_t most
    cdef bint _continued
    cdef int32_t _carried   # rows that began in a batch before

    def __cinit__(self, Walker walker not None, bint huge, int32_t most):
        if not sax_works:
            raise NotImplementedError("this lxml does not export the event parser of libxml2")
        if not 2 <= most <= 1 << 24:
            raise ValueError(f"a batch has between 2 and {1 << 24:,} nodes, not {most:,}")
        self.walker = walker
        self.most = most
        self.sax = new_sax(True)
        if self.sax == NULL:
            raise MemoryError
        use_options(self.sax.context, parser_options(huge))
        begin_events(self.sax, 0)
        self._begin(self.most + 64, 1 << 16)

    def __dealloc__(self):
        free_sax(self.sax)

    cdef int _begin(self, int32_t capacity, int32_t room) except -1:
        cdef Walk* walk = &self.sax.walk
        if not begin_walk(walk, capacity, room):
            raise MemoryError
        walk.values = self.walker.values
        walk.blanks = self.walker.blanks
        walk.grow = self.walker.grow
        walk.bounds = self.walker.bounds
        walk.bounds.nodes = 0x7ffffff0
        return 0

    def feed(self, bytes chunk not None, bint last=False):
        """More bytes; raises WalkStopped or BatchBroken, with where it was."""
        cdef Sax* sax = self.sax
        cdef const char* text = PyBytes_AS_STRING(chunk)
        cdef Py_ssize_t size = len(chunk)
        cdef const xmlError* error
        if size > 1 << 30:
            raise ValueError("a chunk has at most a gigabyte")
        with nogil:
            parse_chunk(sax.context, text, <int>size, last)
        if sax.status == OUT_OF_MEMORY:
            raise MemoryError
        if sax.status != FINE:
            stopped = WalkStopped(REASONS[sax.status], sax.walk.elements)
            stopped.position = (max(1, line_of_parser(sax.context)), max(1, column_of_parser(sax.context)))
            raise stopped
        if not sax.context.wellFormed or not sax.context.nsWellFormed or sax.context.errNo != 0:
            error = last_error(sax.context)
            if error == NULL:
                raise BatchBroken(0, "not well-formed", 1, 1)
            raise BatchBroken(error.code, (<bytes>error.message).decode("utf-8", "replace").strip(),
                              error.line, error.int2)

    def cut(self, bint last=False):
        """The next batch, or None if there are too few rows; with `last`, all that is left."""
        cdef Sax* sax = self.sax
        cdef Walk* walk = &sax.walk
        # Text in progress may go on, or turn out to be blank and go: it is left for the next batch.
        cdef int32_t count = sax.joined if sax.joined >= 0 else walk.rows
        cdef int32_t i, end, at
        cdef list stack
        if count == self._carried or (count - self._carried < self.most and not last):
            return None
        stack = []
        at = sax.parent
        while at >= 0:
            stack.append(at)
            at = walk.parents[at]
        stack.reverse()
        end = count
        for i in range(1, <int32_t>len(stack)):
            if count - <int32_t>stack[i] <= self.most // 2:
                end = stack[i]
                del stack[i:]
                break
        return self._split(end, stack)

    cdef object _split(self, int32_t end, list kept):
        cdef Sax* sax = self.sax
        cdef Walk old = sax.walk
        cdef Walk* walk = &sax.walk
        cdef Columns table = self.walker.cls.__new__(self.walker.cls)
        cdef Seen* pending = sax.pending
        cdef int32_t* tags = <int32_t*>malloc(<size_t>(old.rows + 1) * sizeof(int32_t))
        cdef int32_t row, at, shift
        cdef dict moved = {-1: -1}
        if tags == NULL:
            raise MemoryError
        old.offsets[old.rows] = old.length
        memcpy(tags, old.tags, <size_t>old.rows * sizeof(int32_t))
        table.known = 0 if self.walker.grow else load_int(self.walker.vocabulary._count)
        try:
            if not self.walker._name_tags(sax):
                raise WalkStopped("names", walk.elements)
            sax.pending = NULL
            sax.pending_count = 0
            sax.pending_room = 0
            for row in range(self._carried):
                if old.kinds[row] == kELEMENT:
                    old.ends[row] = OPEN
            for row in kept:
                old.ends[row] = OPEN
            # The new walk first: packing the old one must not take what it is copied from.
            self._begin(max(self.most, old.rows - end) + 4096,
                        old.length - old.offsets[end] + (1 << 16))
            for row in kept:
                moved[row] = walk.rows
                self._carry(&old, row, moved[old.parents[row]], tags[row], pending)
                at = row + 1
                while at < end and old.kinds[at] == kATTRIBUTE:
                    self._carry(&old, at, moved[row], tags[at], pending)
                    at += 1
            self._carried = walk.rows
            shift = walk.rows - end
            for at in range(end, old.rows):
                row = old.parents[at]
                self._carry(&old, at, row + shift if row >= end else <int32_t>moved[row], tags[at],
                            pending)
            if sax.parent >= 0:
                sax.parent = sax.parent + shift if sax.parent >= end else moved[sax.parent]
            if sax.joined >= 0:
                sax.joined += shift
            walk.elements = old.elements
            old.rows = end
            old.length = old.offsets[end]
            pack(&old, table)
        finally:
            free(tags)
            if sax.pending != pending:
                free(pending)
            if walk.block != old.block:
                forget(&old)
        table.vocabulary = self.walker.vocabulary
        table.continued = self._continued
        self._continued = True
        return table

    cdef int _carry(self, Walk* old, int32_t at, int32_t parent, int32_t tag,
                    Seen* pending) except -1:
        # A row goes on to the next batch.
        cdef Walk* walk = &self.sax.walk
        cdef int32_t row
        if walk.rows == walk.capacity and more_rows(walk) != FINE:
            raise MemoryError
        row = walk.rows
        walk.rows += 1
        walk.kinds[row] = old.kinds[at]
        walk.tags[row] = old.tags[at]
        if tag < 0 and old.tags[at] == tUNKNOWN:
            # The name may be known by then: it is looked up again.
            walk.tags[row] = event_tag(self.sax, pending[-1 - tag].name, pending[-1 - tag].uri)
            if self.sax.status == OUT_OF_MEMORY:
                raise MemoryError
        walk.parents[row] = parent
        walk.levels[row] = old.levels[at]
        walk.starts[row] = old.starts[at]
        walk.ends[row] = old.ends[at]
        walk.offsets[row] = walk.length
        # Without values, too, text in progress may have to be looked at.
        if not append_bytes(walk, <unsigned char*>old.text + old.offsets[at],
                            old.offsets[at + 1] - old.offsets[at]):
            raise MemoryError
        return 0


class BatchBroken(Exception):
    """The document is not well-formed from here on."""

    def __init__(self, code, reason, line, column):
        super().__init__(reason)
        self.code = code
        self.msg = reason
        self.position = (line, column)


# --- the tag scanner ------------------------------------------------------------------------

cdef enum Token:
    MORE = 0        # the markup is not whole yet
    START = 1
    EMPTY = 2
    END = 3
    DECLARATION = 4 # <?xml ...?>
    DOCTYPE = 5
    OTHER = 6       # one of the next three, as soon as it is whole
    COMMENT = 7
    CDATA = 8
    INSTRUCTION = 9
    BROKEN = 10     # no markup: a lone '<'


cdef inline bint is_space(char c) noexcept nogil:
    return c == 32 or c == 10 or c == 13 or c == 9


cdef inline bint is_name_start(char c) noexcept nogil:
    return c == 95 or c == 58 or (c >= 65 and c <= 90) or (c >= 97 and c <= 122) or c < 0


cdef enum:
    FEW_BYTES = 4096  # no declaration is longer

cdef struct Lexer:
    # Markup that may be whole only later. The work goes on where it stopped.
    Token token             # what it is going to be; MORE while that is not known
    Py_ssize_t at           # looked at up to here; behind the markup when it is whole
    bint named              # a tag: the name is over
    uint64_t name           # a tag: the hash of its name
    Py_ssize_t name_end     # a tag: where the name ends, from its '<'
    char quote              # a tag or DOCTYPE: inside such quotes
    char inner              # a DOCTYPE: inside a comment ('-') or an instruction ('?')
    int brackets


cdef bint find_closing(Lexer* lexer, const char* data, Py_ssize_t end, const char* mark,
                       Py_ssize_t size) noexcept nogil:
    # Goes behind the next `mark`, which ends in '>'.
    cdef const char* hit
    while lexer.at < end:
        hit = <const char*>memchr(data + lexer.at, 62, end - lexer.at)
        if hit == NULL:
            lexer.at = end
            return False
        lexer.at = hit - data + 1
        if memcmp(data + lexer.at - size, mark, size) == 0:
            return True
    return False


cdef bint find_tag_end(Lexer* lexer, const char* data, Py_ssize_t end) noexcept nogil:
    # Goes behind a tag's '>'; a '<' ends a malformed tag before itself.
    cdef Py_ssize_t at = lexer.at
    cdef char quote = lexer.quote
    cdef char c
    while at < end:
        c = data[at]
        if c == 60:
            break
        at += 1
        if quote:
            if c == quote:
                quote = 0
        elif c == 34 or c == 39:
            quote = c
        elif c == 62:
            lexer.at = at
            return True
    lexer.at = at
    lexer.quote = quote
    return at < end


cdef bint find_doctype_end(Lexer* lexer, const char* data, Py_ssize_t end) noexcept nogil:
    cdef char c
    while lexer.at < end:
        if lexer.inner == 45:
            if not find_closing(lexer, data, end, b"-->", 3):
                return False
            lexer.inner = 0
            continue
        if lexer.inner == 63:
            if not find_closing(lexer, data, end, b"?>", 2):
                return False
            lexer.inner = 0
            continue
        c = data[lexer.at]
        if lexer.quote:
            if c == lexer.quote:
                lexer.quote = 0
        elif c == 60:
            if end - lexer.at < 7:
                # Too few bytes to say what it is, and if the document ends here, it is bad.
                return False
            if memcmp(data + lexer.at, b"<!--", 4) == 0:
                lexer.inner = 45
                lexer.at += 6
                continue
            if data[lexer.at + 1] == 63:
                if memcmp(data + lexer.at, b"<?xml", 5) == 0 and is_space(data[lexer.at + 5]):
                    # No DOCTYPE holds a declaration: it was cut short before this one.
                    lexer.token = BROKEN
                    return True
                lexer.inner = 63
                lexer.at += 3
                continue
        elif c == 34 or c == 39:
            lexer.quote = c
        elif c == 91:
            lexer.brackets += 1
        elif c == 93:
            lexer.brackets -= 1
        elif c == 62 and lexer.brackets <= 0:
            lexer.at += 1
            return True
        lexer.at += 1
    return False


cdef Token known_by_now(const char* data, Py_ssize_t left) noexcept nogil:
    # What the markup at data[0] == '<' is going to be, as soon as that is clear.
    if left < 2:
        return MORE
    if data[1] == 33:  # '!'
        if memcmp(data, b"<!--", min(left, 4)) == 0:
            return COMMENT if left >= 7 else MORE
        if memcmp(data, b"<![CDATA[", min(left, 9)) == 0:
            return CDATA if left >= 12 else MORE
        if memcmp(data, b"<!DOCTYPE", min(left, 9)) == 0:
            return DOCTYPE if left >= 9 else MORE
        return BROKEN
    if data[1] == 63:  # '?'
        if memcmp(data, b"<?xml", min(left, 5)) != 0:
            return INSTRUCTION
        if left < 6:
            return MORE
        return DECLARATION if is_space(data[5]) else INSTRUCTION
    if data[1] == 47:  # '/'
        if left < 3:
            return MORE
        return END if is_name_start(data[2]) else BROKEN
    return START if is_name_start(data[1]) else BROKEN


cdef void begin_token(Lexer* lexer, const char* data, Py_ssize_t at) noexcept nogil:
    lexer.named = False
    lexer.quote = 0
    lexer.inner = 0
    lexer.brackets = 0
    # The least offset at which it may end.
    if lexer.token == COMMENT:
        lexer.at = at + 6
    elif lexer.token == CDATA:
        lexer.at = at + 11
    elif lexer.token == DOCTYPE:
        lexer.at = at + 9
    elif lexer.token == BROKEN:
        lexer.at = at + 1
    elif lexer.token == INSTRUCTION or lexer.token == DECLARATION:
        lexer.at = at + 3
    else:
        lexer.at = at + 2


cdef Token next_token(Lexer* lexer, const char* data, Py_ssize_t at,
                      Py_ssize_t end) noexcept nogil:
    # The markup at data[at] == '<': MORE until it is whole, then lexer.at lies behind it.
    # Whoever takes the token sets lexer.token to MORE for the next one.
    cdef Py_ssize_t i
    cdef bint whole
    if lexer.token == MORE:
        lexer.token = known_by_now(data + at, end - at)
        if lexer.token == MORE:
            lexer.at = at
            return MORE
        begin_token(lexer, data, at)
    if lexer.token == BROKEN:
        return BROKEN
    if lexer.token == DOCTYPE:
        return lexer.token if find_doctype_end(lexer, data, end) else MORE
    if lexer.token == COMMENT:
        return OTHER if find_closing(lexer, data, end, b"-->", 3) else MORE
    if lexer.token == CDATA:
        return OTHER if find_closing(lexer, data, end, b"]]>", 3) else MORE
    if lexer.token == INSTRUCTION or lexer.token == DECLARATION:
        whole = find_closing(lexer, data, end, b"?>", 2)
        if lexer.at - at > FEW_BYTES:
            lexer.token = INSTRUCTION
        if not whole:
            return MORE
        return DECLARATION if lexer.token == DECLARATION else OTHER
    if not lexer.named:
        i = lexer.at
        while i < end and not is_space(data[i]) and data[i] != 47 and data[i] != 62 and data[i] != 60:
            i += 1
        lexer.at = i
        if i == end:
            return MORE
        lexer.named = True
        lexer.name_end = i - at
        i = at + 2 if lexer.token == END else at + 1
        lexer.name = hash_name(data, 0, data + i, <uint32_t>(lexer.at - i))
    if not find_tag_end(lexer, data, end):
        return MORE
    if lexer.token == START and data[lexer.at - 1] == 62 and data[lexer.at - 2] == 47:
        return EMPTY
    return lexer.token


cdef Py_ssize_t doctype_at(const char* text, Py_ssize_t size, Py_ssize_t* end) noexcept nogil:
    # Where the DOCTYPE begins, or -1; *end is -1 if it never ends.
    cdef Py_ssize_t at = 0
    cdef const char* hit
    cdef Token token
    cdef Lexer lexer
    while at < size:
        hit = <const char*>memchr(text + at, 60, size - at)
        if hit == NULL:
            return -1
        at = hit - text
        lexer.token = known_by_now(text + at, size - at)
        if lexer.token == START:
            return -1
        lexer.token = MORE
        token = next_token(&lexer, text, at, size)
        if lexer.token == DOCTYPE:
            if end != NULL:
                end[0] = lexer.at if token == DOCTYPE else -1
            return at
        if token != OTHER and token != DECLARATION:
            return -1
        at = lexer.at
    return -1


def doctype_span(bytes document not None):
    """Where the DOCTYPE of a document lies, as (begin, end), or None; end -1 if it never ends."""
    cdef Py_ssize_t end = -1
    cdef Py_ssize_t begin = doctype_at(PyBytes_AS_STRING(document), len(document), &end)
    return None if begin < 0 else (begin, end)


def start_tag_at(bytes document not None, Py_ssize_t ordinal):
    """The offset of the start tag with this ordinal, from 1, or -1."""
    cdef const char* text = PyBytes_AS_STRING(document)
    cdef Py_ssize_t size = len(document)
    cdef Py_ssize_t at = 0
    cdef const char* hit
    cdef Token token
    cdef Lexer lexer
    while at < size:
        hit = <const char*>memchr(text + at, 60, size - at)
        if hit == NULL:
            return -1
        at = hit - text
        lexer.token = MORE
        token = next_token(&lexer, text, at, size)
        if token == MORE:
            return -1
        if token == START or token == EMPTY:
            ordinal -= 1
            if ordinal <= 0:
                return at
        at = lexer.at
    return -1


cdef inline uint64_t hash_tag(const char* name, Py_ssize_t size) noexcept nogil:
    return hash_name(name, 0, name, <uint32_t>size)


cdef enum:
    DEEPEST = 4096      # no parser goes deeper, so no name below that needs to be known
    MANY_OPEN = 1000    # more unclosed roots in a piece than that are nesting, not lost ends
    MANY_CLOSED = 1 << 20
    HEAD = 4096         # what is kept of a piece over the limit
    MARGIN = 8          # longer than any mark that ends markup

cdef struct Open:
    uint64_t name
    Py_ssize_t at       # from the beginning of the piece; -1 if it is no boundary

cdef struct Span:
    Py_ssize_t begin
    Py_ssize_t end


@cython.final
cdef class Scanner:
    """Cuts a stream of bytes into documents, or into records, by their tags alone.

    Feed it bytes; `cut` gives the next piece as (bytes, offset, line, column, level, over), or
    None when it needs more. A piece ends where its root element ends. If the tags of a piece do
    not pair, it ends before the next XML declaration or DOCTYPE, or before the next boundary: a
    start tag of its own name or of a record. Boundaries inside a piece that turns out bad are
    cut out of it, so that one bad document never takes the next one with it.

    `over` says that the piece is over the limit of bytes: only its head is given, and the rest
    is passed over without being kept. The work is linear in the bytes, whatever the chunks. Only
    encodings that hold ASCII bytes as they are can be cut this way.
    """

    cdef char* _data
    cdef Py_ssize_t _size
    cdef Py_ssize_t _room
    cdef Py_ssize_t _at             # scanned up to here, or the markup that is being scanned
    cdef Lexer _lexer
    cdef Py_ssize_t _begin          # where the piece begins; only meaningful inside
    cdef int64_t _origin            # the stream's offset of _data[0]
    cdef int64_t _line
    cdef int64_t _line_origin       # the stream's offset where the current line begins
    cdef Py_ssize_t _counted        # lines are counted up to here
    cdef bint _inside
    cdef bint _broken               # the tags do not pair
    cdef bint _prolog               # the piece has a declaration or a DOCTYPE
    cdef bint _dropping             # the piece is over the limit: its bytes are not kept
    cdef bint _ended
    cdef uint64_t _name             # the root of the piece
    cdef Open* _open                # the open elements of the piece
    cdef Py_ssize_t _depth
    cdef Py_ssize_t _excess         # open elements below DEEPEST: counted only
    cdef Py_ssize_t _boundaries     # how many open elements other than the root are boundaries
    cdef Span* _closed              # the outermost closed boundaries inside the piece, in order
    cdef Py_ssize_t _closed_count
    cdef Py_ssize_t _closed_room
    cdef bint _replaying            # a bad piece is being cut at its boundaries
    cdef Py_ssize_t _replay_base
    cdef Py_ssize_t _replay_at
    cdef Py_ssize_t _replay_open
    cdef Py_ssize_t _replay_depth
    cdef Py_ssize_t _replay_closed
    cdef bint _endless[16]          # such markup, by token, has no end in the rest of the stream
    cdef Py_ssize_t _limit
    cdef uint64_t* _records
    cdef Py_ssize_t _by_record      # how many names records have
    cdef uint64_t* _outer_names     # names of the open elements around records
    cdef Py_ssize_t _outer
    cdef int64_t _piece_line
    cdef int64_t _piece_column
    cdef int64_t _piece_offset
    cdef readonly bytes declaration
    cdef readonly bytes doctype
    cdef readonly list ancestors    # (level, start tag) of the open elements that declare names

    def __cinit__(self, records=(), Py_ssize_t limit=1 << 26):
        records = tuple(records)
        self._records = <uint64_t*>malloc((len(records) + 1) * sizeof(uint64_t))
        if self._records == NULL:
            raise MemoryError
        for name in records:
            self._records[self._by_record] = hash_tag(<bytes>name, len(name))
            self._by_record += 1
        self._limit = limit
        self._line = 1
        self.ancestors = []
        self._open = <Open*>malloc(DEEPEST * sizeof(Open))
        self._outer_names = <uint64_t*>malloc(DEEPEST * sizeof(uint64_t))
        if self._open == NULL or self._outer_names == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self._data)
        free(self._open)
        free(self._closed)
        free(self._records)
        free(self._outer_names)

    def feed(self, const unsigned char[::1] chunk not None):
        """More of the stream; only when `cut` has given None."""
        cdef Py_ssize_t size = chunk.shape[0]
        cdef Py_ssize_t keep = self._kept()
        cdef void* grown
        self._count_lines(keep)
        if keep > 0:
            memmove(self._data, self._data + keep, self._size - keep)
            self._size -= keep
            self._at = max(0, self._at - keep)
            self._lexer.at -= keep
            self._begin -= keep
            self._counted -= keep
            self._origin += keep
        if self._size + size > self._room:
            grown = realloc(self._data, (self._size + size) * 2)
            if grown == NULL:
                raise MemoryError
            self._data = <char*>grown
            self._room = (self._size + size) * 2
        if size:
            memcpy(self._data + self._size, &chunk[0], size)
            self._size += size

    cdef Py_ssize_t _kept(self) noexcept:
        # The offset of the first byte that is still needed.
        if self._inside and not self._dropping:
            return self._begin
        if self._passed_over():
            return max(self._at, self._lexer.at - MARGIN)
        return self._at

    cdef bint _passed_over(self) noexcept:
        # Whether nobody will ask for the bytes of the markup under way: only its end matters.
        if self._nameless():
            return True
        if not self._dropping:
            return False
        if self._lexer.token == DOCTYPE or self._lexer.token == BROKEN:  # long, it was a DOCTYPE
            return self._depth == 0 and not self._broken
        if not self._lexer.named or self._lexer.name_end > self._limit:
            return False
        return self._lexer.token == END or (
            self._lexer.token == START and not self._is_boundary())

    cdef bint _is_boundary(self) noexcept:
        return self._lexer.name == self._name or self._is_record()

    cdef bint _nameless(self) noexcept:
        return (self._lexer.token == COMMENT or self._lexer.token == CDATA
                or self._lexer.token == INSTRUCTION)

    def finish(self):
        """No more is to come."""
        self._ended = True

    @property
    def position(self):
        """How much of the stream has been scanned."""
        return self._origin + self._at

    @property
    def held(self):
        """How many bytes of the stream are kept."""
        return self._size

    def cut(self):
        """The next piece, or None."""
        cdef const char* hit
        cdef Token token
        while True:
            if self._replaying:
                piece = self._replay()
                if piece is not None:
                    return piece
            if self._lexer.token == MORE:
                if not self._inside and not self._by_record:
                    piece = self._between()
                    if piece is not None:
                        return piece
                    if not self._inside:
                        return None
                hit = (<const char*>memchr(self._data + self._at, 60, self._size - self._at)
                       if self._at < self._size else NULL)
                self._at = hit - self._data if hit != NULL else self._size
                if self._inside and not self._dropping and self._at - self._begin > self._limit:
                    piece = self._too_long()
                    if piece is not None:
                        return piece
                    continue
                if hit == NULL:
                    if not self._ended or not self._inside:
                        return None
                    piece = self._at_end()
                    if piece is not None:
                        return piece
                    continue
                self._lexer.at = self._at
            if self._ended and self._lexer.token == MORE and self._endless[
                    <int>known_by_now(self._data + self._at, self._size - self._at)]:
                token = BROKEN
                self._lexer.at = self._at + 1
            else:
                token = next_token(&self._lexer, self._data, self._at, self._size)
            if self._lexer.at - self._at > self._limit:
                if self._dropping:
                    if not self._passed_over():
                        # Too long to begin another piece: pass over the '<'.
                        self._broken = True
                        self._lexer.token = MORE
                        self._at += 1
                        continue
                elif self._inside or not self._nameless():
                    piece = self._too_long_markup(token)
                    if piece is not None:
                        return piece
                    continue
            if token == OTHER or token == DECLARATION:
                token = self._cut_short(token)
            elif token == MORE and self._ended and not self._dropping and self._nameless():
                # Only the '<' is bad: what follows may hold documents.
                if self._inside or not self._by_record:
                    token = BROKEN
                    self._endless[<int>self._lexer.token] = True
                    self._lexer.at = self._at + 1
            if token == MORE:
                if not self._ended:
                    return None
                # The markup never ends.
                if not self._inside:
                    if self._by_record and self._nameless():
                        return None
                    self._start_piece(self._at)
                self._broken = not self._can_replay()
                self._at = self._size
                self._lexer.token = MORE
                continue
            self._lexer.token = MORE
            piece = self._take(token, self._lexer.at)
            if piece is not None:
                return piece

    cdef Token _cut_short(self, Token token) noexcept:
        # A declaration inside an instruction means that the instruction was cut short.
        cdef Py_ssize_t at = self._at + 2
        cdef const char* hit
        if self._dropping or not self._inside or (
                self._lexer.token != INSTRUCTION and self._lexer.token != DECLARATION):
            return token
        while True:
            hit = <const char*>memchr(self._data + at, 60, self._lexer.at - at)
            if hit == NULL:
                return token
            at = hit - self._data
            if self._lexer.at - at > 6 and memcmp(hit, b"<?xml", 5) == 0 and is_space(hit[5]):
                self._lexer.at = at
                return BROKEN
            at += 1

    cdef object _between(self):
        # Between documents: blanks belong to none, text is a piece of its own, markup begins one.
        cdef Py_ssize_t end
        cdef Py_ssize_t left
        cdef const char* hit
        while self._at < self._size:
            left = self._size - self._at
            if is_space(self._data[self._at]):
                self._at += 1
            elif memcmp(self._data + self._at, b"\xef\xbb\xbf", min(left, 3)) == 0 and (left >= 3 or not self._ended):
                if left < 3:
                    return None
                self._at += 3
            else:
                break
        if self._at == self._size:
            return None
        if self._data[self._at] == 60:
            self._start_piece(self._at)
            return None
        hit = <const char*>memchr(self._data + self._at, 60, self._size - self._at)
        end = hit - self._data if hit != NULL else self._size
        if end - self._at > self._limit:
            end = self._at + self._limit
        elif hit == NULL and not self._ended:
            return None
        self._start_piece(self._at)
        return self._finish_piece(end)

    cdef object _take(self, Token token, Py_ssize_t after):
        cdef Py_ssize_t at = self._at
        cdef bint head = token == DECLARATION or token == DOCTYPE
        if head and not self._by_record and self._inside:
            if self._depth > 0 or self._broken or (token == DECLARATION and self._prolog):
                # No document holds a declaration inside: the one under way was cut short.
                return self._fail()
            if token == DECLARATION and at > self._begin:
                self._start_piece(at)  # only comments so far: they close the document before
            self._prolog = True
        elif head and self._by_record and not self._inside:
            if token == DECLARATION:
                self.declaration = self._data[at:after]
            else:
                self.doctype = self._data[at:after]
        elif head or token == BROKEN:
            if self._inside:
                if self._can_replay():
                    return self._fail()
                self._broken = True
        elif token == START or token == EMPTY:
            if not self._inside:
                return self._open_outer(token, after)
            if self._depth == 0 and not self._broken:
                return self._open_root(token, after)
            return self._open_element(token, after)
        elif token == END:
            if self._inside:
                return self._close_element(after)
            return self._close_outer(after)
        self._at = after
        return None

    cdef bint _is_record(self) noexcept:
        cdef Py_ssize_t i
        for i in range(self._by_record):
            if self._records[i] == self._lexer.name:
                return True
        return False

    cdef object _open_outer(self, Token token, Py_ssize_t after):
        if self._is_record():
            self._start_piece(self._at)
            return self._open_root(token, after)
        if token == START:
            if self._outer == DEEPEST:
                # So deep that no record below can be read: this tag is said to be bad.
                self._start_piece(self._at)
                return self._finish_piece(after)
            tag = self._data[self._at:after]
            if b"xmlns" in tag:
                self.ancestors.append((self._outer, tag))
            self._outer_names[self._outer] = self._lexer.name
            self._outer += 1
        self._at = after
        return None

    cdef object _close_outer(self, Py_ssize_t after):
        cdef Py_ssize_t level = self._outer
        while level > 0 and self._outer_names[level - 1] != self._lexer.name:
            level -= 1
        if level == 0 or level < self._outer:
            # It closes nothing, or more than one element: bad either way.
            self._start_piece(self._at)
        if level > 0:
            self._outer = level - 1
            while self.ancestors and self.ancestors[len(self.ancestors) - 1][0] >= self._outer:
                self.ancestors.pop()
        if self._inside:
            return self._finish_piece(after)
        self._at = after
        return None

    cdef object _open_root(self, Token token, Py_ssize_t after):
        self._name = self._lexer.name
        if token == EMPTY:
            return self._finish_piece(after)
        self._open[0].name = self._name
        self._open[0].at = -1
        self._depth = 1
        self._at = after
        return None

    cdef object _open_element(self, Token token, Py_ssize_t after):
        cdef bint boundary = self._is_boundary()
        if self._broken and boundary:
            return self._finish_piece(self._at)
        if boundary and token == EMPTY and self._excess == 0:
            self._close_boundary(self._at - self._begin, after - self._begin)
        if token == START and not self._broken:
            if self._depth == DEEPEST:
                self._excess += 1
            else:
                self._open[self._depth].name = self._lexer.name
                self._open[self._depth].at = self._at - self._begin if boundary else -1
                self._depth += 1
                self._boundaries += boundary
        self._at = after
        return None

    cdef object _close_element(self, Py_ssize_t after):
        if self._excess > 0:
            self._excess -= 1
            self._at = after
            return None
        if not self._broken and self._depth > 0 and self._open[self._depth - 1].name == self._lexer.name:
            self._depth -= 1
            if self._depth == 0:
                return self._finish_piece(after)
            if self._open[self._depth].at >= 0:
                self._boundaries -= 1
                self._close_boundary(self._open[self._depth].at, after - self._begin)
            self._at = after
            return None
        if self._depth == 0 and not self._broken:
            return self._finish_piece(after)  # an end tag where a root should be
        if self._can_replay():
            # An end tag is missing somewhere: what looked like an inner element may well be the
            # next document.
            return self._fail()
        self._broken = True
        if self._lexer.name == self._name:
            return self._finish_piece(after)
        self._at = after
        return None

    cdef int _close_boundary(self, Py_ssize_t begin, Py_ssize_t end) except -1:
        cdef void* grown
        while self._closed_count > 0 and self._closed[self._closed_count - 1].begin > begin:
            self._closed_count -= 1
        if self._dropping or self._closed_count == MANY_CLOSED:
            return 0
        if self._closed_count == self._closed_room:
            grown = realloc(self._closed, (self._closed_room * 2 + 16) * sizeof(Span))
            if grown == NULL:
                raise MemoryError
            self._closed = <Span*>grown
            self._closed_room = self._closed_room * 2 + 16
        self._closed[self._closed_count].begin = begin
        self._closed[self._closed_count].end = end
        self._closed_count += 1
        return 0

    cdef bint _can_replay(self) noexcept:
        return not self._dropping and not self._broken and (
            self._closed_count > 0 or 0 < self._boundaries <= MANY_OPEN)

    cdef object _fail(self):
        # The piece under way is bad, and another one may begin at _at.
        if not self._can_replay():
            return self._finish_piece(self._at)
        self._replaying = True
        self._replay_base = self._begin
        self._replay_at = self._begin
        self._replay_depth = self._depth if self._boundaries <= MANY_OPEN else 0
        self._replay_open = 1
        self._replay_closed = 0
        return None

    cdef object _replay(self):
        # The next piece of a bad one. Behind its last boundary, the scan goes on as ever.
        cdef Py_ssize_t base = self._replay_base
        cdef Py_ssize_t at = self._replay_at
        cdef Py_ssize_t next = -1
        while self._replay_open < self._replay_depth:
            next = self._open[self._replay_open].at
            if next >= 0 and base + next > at:
                break
            next = -1
            self._replay_open += 1
        if self._replay_closed < self._closed_count:
            if base + self._closed[self._replay_closed].begin == at:
                next = self._closed[self._replay_closed].end
                self._replay_closed += 1
            elif next < 0 or self._closed[self._replay_closed].begin < next:
                next = self._closed[self._replay_closed].begin
        if next < 0:
            self._replaying = False
            self._inside = False
            self._closed_count = 0
            self._at = at
            return None
        self._replay_at = base + next
        while at < base + next and is_space(self._data[at]):
            at += 1
        if at == base + next:
            return self._replay()
        self._place_piece(at)
        return self._piece(base + next)

    cdef object _at_end(self):
        if self._depth == 0 and not self._broken and not self._prolog:
            self._inside = False  # comments behind the last document
            return None
        return self._fail()

    cdef object _too_long(self):
        if self._can_replay():
            return self._fail()
        return self._drop()

    cdef object _too_long_markup(self, Token token):
        # One tag or comment over the limit.
        if token != MORE:
            self._lexer.token = MORE  # to be looked at again, from its beginning
        if not self._inside:
            # Around records, where its name would matter: it is reported, then passed over.
            self._start_piece(self._at)
            piece = self._drop()
            self._inside = False
            self._dropping = False
            self._lexer.token = MORE
            self._at += 1
            return piece
        if self._can_replay():
            self._lexer.token = MORE
            return self._fail()
        return self._drop()

    cdef void _start_piece(self, Py_ssize_t at) noexcept:
        self._inside = True
        self._broken = False
        self._prolog = False
        self._dropping = False
        self._begin = at
        self._depth = 0
        self._excess = 0
        self._boundaries = 0
        self._closed_count = 0
        self._place_piece(at)

    cdef void _place_piece(self, Py_ssize_t at) noexcept:
        self._begin = at
        self._count_lines(at)
        self._piece_offset = self._origin + at
        self._piece_line = self._line
        self._piece_column = self._piece_offset - self._line_origin + 1

    cdef object _drop(self):
        # Over the limit: give its head away and go on to its end without keeping the bytes.
        piece = self._piece(self._size)
        self._dropping = True
        return piece

    cdef object _piece(self, Py_ssize_t end):
        cdef bint over = end - self._begin > self._limit
        if over:
            end = self._begin + min(HEAD, self._limit)
        return (self._data[self._begin:end], self._piece_offset, self._piece_line,
                self._piece_column, self._outer, over)

    cdef object _finish_piece(self, Py_ssize_t end):
        piece = None if self._dropping else self._piece(end)
        self._at = end
        self._inside = False
        self._dropping = False
        return piece

    cdef void _count_lines(self, Py_ssize_t until) noexcept:
        cdef const char* hit
        while self._counted < until:
            hit = <const char*>memchr(self._data + self._counted, 10, until - self._counted)
            if hit == NULL:
                self._counted = until
                return
            self._counted = hit - self._data + 1
            self._line += 1
            self._line_origin = self._origin + self._counted
