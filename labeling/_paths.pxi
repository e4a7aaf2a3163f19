# Names and paths of rows. Part of _kernel.pyx, which includes it.

from libc.stdlib cimport qsort


cdef class RealNames:
    """The names of the rows whose ids in the table stand for more than one name."""

    def __dealloc__(self):
        # `owner` says nothing here: the collector of cycles may have cleared it.
        free(self.held)


cdef RealNames names_by_reading(Columns table):
    # Read the document again, with all its names.
    cdef RealNames names = RealNames.__new__(RealNames)
    cdef tuple bounds = (0x7ffffff0, 0x7fff, 0x7ffffff0, 0x7ffffff0, 0x7ffffff0, 1 << 62)
    cdef Columns again
    names.vocabulary = Vocabulary(limit=PAGE * PAGES, size=1 << 62)
    cdef Walker walker = Walker(Columns, names.vocabulary, bounds, False, table._blanks, True,
                                table._huge)
    if table._resolve or table._wrapped:
        again = walker.read_tree(table._document, resolve=table._resolve, wrapped=table._wrapped)
    else:
        again = walker.read(table._document, ThreadParser(), 0)
        if again is None:
            again = walker.read_tree(table._document)
    if again is None or again.rows != table.rows:
        raise RuntimeError("the document is not the one that the table was read from")
    names.tags = again.tags
    names.owner = again._owner
    return names


cdef RealNames names_of_pending(Vocabulary vocabulary, MetNames* met, int32_t* before,
                                int32_t rows):
    # The names of rows whose ids were weak, from the pending numbers that they had before; None
    # if there are no such rows.
    cdef RealNames names
    cdef Pending* pending
    cdef int32_t* own
    cdef int32_t i, space
    cdef bint any_weak = False
    for i in range(met.pending_count):
        any_weak = any_weak or vocabulary.is_weak(met.pending[i].tag)
    if not any_weak:
        return None
    names = RealNames.__new__(RealNames)
    names.vocabulary = Vocabulary(limit=PAGE * PAGES, size=1 << 62)
    names.held = names.tags = <int32_t*>calloc(<size_t>rows + 1, sizeof(int32_t))
    own = <int32_t*>calloc(<size_t>met.pending_count, sizeof(int32_t))
    if names.tags == NULL or own == NULL:
        free(own)
        raise MemoryError
    for i in range(rows):
        if before[i] >= 0:
            continue
        if own[-1 - before[i]] == 0:
            pending = &met.pending[-1 - before[i]]
            space = 0
            if pending.uri != NULL:
                space = names.vocabulary.intern_space(
                    <const char*>pending.uri, <uint32_t>strlen(<const char*>pending.uri))
            if space >= 0:
                space = names.vocabulary.intern(
                    space, <const char*>pending.name, <uint32_t>strlen(<const char*>pending.name))
            if space < 0:
                free(own)
                raise MemoryError
            own[-1 - before[i]] = space
        names.tags[i] = own[-1 - before[i]]
    free(own)
    return names


cdef int by_number(const void* left, const void* right) noexcept nogil:
    cdef int64_t a = (<const int64_t*>left)[0]
    cdef int64_t b = (<const int64_t*>right)[0]
    return (a > b) - (a < b)


cdef struct Text:
    char* data
    size_t length
    size_t room


cdef bint add_text(Text* text, const char* data, size_t size) noexcept nogil:
    cdef void* p
    if size > text.room - text.length:
        p = realloc(text.data, (text.length + size) * 2 + 64)
        if p == NULL:
            return False
        text.data = <char*>p
        text.room = (text.length + size) * 2 + 64
    memcpy(text.data + text.length, data, size)
    text.length += size
    return True


cdef bint add_number(Text* text, int64_t number) noexcept nogil:
    cdef char digits[24]
    cdef int at = 24
    while True:
        at -= 1
        digits[at] = <char>(48 + number % 10)
        number //= 10
        if number == 0:
            return add_text(text, digits + at, 24 - at)


cdef bint add_name(Text* text, Vocabulary vocabulary, int32_t tag) noexcept nogil:
    cdef Name* name = &vocabulary._pages[tag // PAGE][tag % PAGE]
    cdef Name* space
    if name.space > 0:
        space = &vocabulary._spaces[name.space // PAGE][name.space % PAGE]
        if not (add_text(text, b"{", 1) and add_text(text, space.text, space.length)
                and add_text(text, b"}", 1)):
            return False
    return add_text(text, name.text, name.length)


@cython.final
cdef class Paths:
    """Writes the paths of rows of one table: what rows share is looked at once."""

    cdef Columns table
    cdef RealNames real
    cdef int32_t known          # names of the table's vocabulary; real names count from there
    cdef uint8_t* needed        # rows whose steps are in a path
    cdef int64_t* rows          # the same in order
    cdef int64_t* pairs         # (parent, row) of the same, in order
    cdef int32_t* places        # position of each of `rows` among its siblings of the same name
    cdef int64_t count
    cdef int64_t room
    cdef int32_t* counts        # siblings so far, by name, and for which parent
    cdef int32_t* counted_for
    cdef Text text
    cdef int64_t* stack         # the rows whose steps are in the text, and where these end
    cdef size_t* ends
    cdef int depth
    cdef int stack_room

    def __dealloc__(self):
        free(self.needed)
        free(self.rows)
        free(self.pairs)
        free(self.places)
        free(self.counts)
        free(self.counted_for)
        free(self.text.data)
        free(self.stack)
        free(self.ends)

    cdef inline int32_t _key(self, int32_t row) noexcept:
        # What siblings of the same name have in common.
        cdef int32_t tag = self.table.tags[row]
        if self.real is not None and self.table.vocabulary.is_weak(tag):
            return self.known + self.real.tags[row]
        return tag

    cdef bint _need(self, int64_t row) noexcept:
        cdef void* p
        while row >= 0 and not self.needed[row]:
            self.needed[row] = 1
            if self.count == self.room:
                self.room = self.room * 2 + 64
                p = realloc(self.rows, <size_t>self.room * sizeof(int64_t))
                if p == NULL:
                    return False
                self.rows = <int64_t*>p
            self.rows[self.count] = row
            self.count += 1
            row = self.table.parents[row]
        return True

    cdef int32_t _behind(self, int32_t row, int32_t parent) noexcept:
        # The row behind a subtree; where labels do not tell, the next one with that parent.
        cdef Columns table = self.table
        cdef int64_t behind = row + 1
        if table.kinds[row] == kELEMENT and table.ends[row] != OPEN:
            behind = row + ((table.ends[row] - table.starts[row] + 1) >> 1)
            if behind <= row or behind > table.rows:
                behind = row + 1
        while behind < table.rows and table.parents[behind] > parent:
            behind += 1
        return <int32_t>behind

    cdef bint _place(self) noexcept:
        # Positions: the children of each parent are counted once, as far as they are needed.
        cdef Columns table = self.table
        cdef int64_t i = 0
        cdef int64_t n
        cdef int32_t parent, row, key, others, attributes, place
        cdef int32_t* at
        cdef int32_t keys = self.known + (self.real.vocabulary._count if self.real is not None else 0)
        self.pairs = <int64_t*>malloc(<size_t>self.count * sizeof(int64_t))
        self.places = <int32_t*>calloc(<size_t>table.rows, sizeof(int32_t))
        self.counts = <int32_t*>calloc(<size_t>keys, sizeof(int32_t))
        self.counted_for = <int32_t*>calloc(<size_t>keys, sizeof(int32_t))
        if (self.pairs == NULL or self.places == NULL or self.counts == NULL
                or self.counted_for == NULL):
            return False
        for n in range(self.count):
            self.pairs[n] = ((<int64_t>table.parents[self.rows[n]] + 1) << 32) | self.rows[n]
        qsort(self.pairs, <size_t>self.count, sizeof(int64_t), by_number)
        while i < self.count and self.pairs[i] >> 32 == 0:
            self.places[self.pairs[i] & 0xffffffff] = 1  # a root
            i += 1
        while i < self.count:
            parent = <int32_t>((self.pairs[i] >> 32) - 1)
            row = parent + 1
            others = 0
            attributes = 0
            while i < self.count and self.pairs[i] >> 32 == parent + 1:
                if row >= table.rows:
                    return True
                if table.parents[row] == parent:
                    key = self._key(row)
                    if table.kinds[row] == kATTRIBUTE:
                        attributes += 1
                        place = attributes
                    else:
                        if self.counted_for[key] != parent + 1:
                            self.counted_for[key] = parent + 1
                            self.counts[key] = 0
                        self.counts[key] += 1
                        others += table.kinds[row] == kELEMENT
                        place = self.counts[key]
                        if key < self.known and table.vocabulary.is_weak(key):
                            place = others
                    if row == (self.pairs[i] & 0xffffffff):
                        self.places[row] = place
                        i += 1
                elif row == (self.pairs[i] & 0xffffffff):
                    i += 1
                row = self._behind(row, parent)
        return True

    cdef bint _step(self, int32_t row) noexcept:
        cdef Columns table = self.table
        cdef int32_t key = self._key(row)
        cdef bint is_attribute = table.kinds[row] == kATTRIBUTE
        cdef bint is_named = True
        if not add_text(&self.text, b"/@" if is_attribute else b"/", 2 if is_attribute else 1):
            return False
        if table.kinds[row] == kTEXT:
            if not add_text(&self.text, b"text()", 6):
                return False
        elif key >= self.known:
            if not add_name(&self.text, self.real.vocabulary, key - self.known):
                return False
        elif table.vocabulary.is_weak(key):
            is_named = False
            if not add_text(&self.text, b"*", 1):
                return False
        elif not add_name(&self.text, table.vocabulary, key):
            return False
        if is_attribute and is_named:
            return True
        return (add_text(&self.text, b"[", 1) and add_number(&self.text, self.places[row])
                and add_text(&self.text, b"]", 1))

    cdef bint _turn_to(self, int64_t row) noexcept:
        # Make the text that of a row: from its nearest ancestor on that is in it already.
        cdef int64_t parent = self.table.parents[row]
        cdef void* p
        cdef int room
        while self.depth > 0 and self.stack[self.depth - 1] != parent:
            self.depth -= 1
        if parent >= 0 and self.depth == 0 and not self._turn_to(parent):
            return False
        self.text.length = self.ends[self.depth - 1] if self.depth > 0 else 0
        if self.depth == self.stack_room:
            room = self.stack_room * 2 + 32
            p = realloc(self.stack, room * sizeof(int64_t))
            if p == NULL:
                return False
            self.stack = <int64_t*>p
            p = realloc(self.ends, room * sizeof(size_t))
            if p == NULL:
                return False
            self.ends = <size_t*>p
            self.stack_room = room
        if not self._step(<int32_t>row):
            return False
        self.stack[self.depth] = row
        self.ends[self.depth] = self.text.length
        self.depth += 1
        return True

    cdef list write(self, list asked):
        """The paths of rows, in the order in which they are given."""
        cdef Columns table = self.table
        cdef dict made = {}
        cdef int64_t i, row
        cdef bint fine = True
        self.needed = <uint8_t*>calloc(<size_t>table.rows + 1, 1)
        if self.needed == NULL:
            raise MemoryError
        for row in asked:
            if not 0 <= row < table.rows:
                raise IndexError(f"no row {row} in a table of {table.rows}")
            fine = fine and self._need(row)
        if self.count == 0:
            return []
        for row in asked:
            self.needed[row] = 2
        if not fine or not self._place():
            raise MemoryError
        qsort(self.rows, <size_t>self.count, sizeof(int64_t), by_number)
        for i in range(self.count):
            row = self.rows[i]
            if not self._turn_to(row):
                raise MemoryError
            if self.needed[row] == 2:
                made[row] = self.text.data[:self.text.length].decode()
        return [made[row] for row in asked]


def paths_of(Columns table not None, rows):
    """The paths of rows; see NodeTable.paths."""
    cdef Paths paths = Paths.__new__(Paths)
    paths.table = table
    paths.known = load_int(table.vocabulary._count)
    if table.known:
        paths.real = table._names_of_rows()
    return paths.write([int(row) for row in rows])
