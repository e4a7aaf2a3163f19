# `values` lists: the values of a tag's nodes, by row.

cdef enum:
    PLACE = 0x1FFFFFFF   # bits of an offset; those above are the mark
    MARKS = 29
    ELSEWHERE = 1

ctypedef struct ValueBlock:
    const uint32_t* offset      # NULL until the block is ready
    const char* text


cdef int64_t row_of(Nodes nodes, int64_t start) except -2:
    """The row of the node that begins at `start`, -1 if there is none."""
    cdef int64_t row = -1
    cdef Halt halt
    halt.at = 0
    while nodes.count and nodes.resume(nodes.find(&start, 1, &halt, &row), &halt):
        pass
    return row


cdef class Values(Blocks):
    """The values of the nodes of a tag, in the order of their rows."""

    cdef ValueBlock* blocks

    def __cinit__(self, *arguments, **options):
        self.blocks = NULL

    def __init__(self, source, directory, lock):
        super().__init__(source, directory, lock)
        self.blocks = <ValueBlock*> calloc(self.count + 1, sizeof(ValueBlock))
        if self.blocks == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.blocks)

    cdef bint adopt(self, Py_ssize_t block, const uint8_t* data, Py_ssize_t size) noexcept:
        cdef ValueBlock* taken = &self.blocks[block]
        cdef const uint32_t* offset = <const uint32_t*> (data + 8)
        cdef Py_ssize_t row, rows = self.rows_of(block), head = 8 + padded(4 * rows + 4)
        if size < head or offset[0] & PLACE:
            return False
        for row in range(rows):
            if offset[row] & PLACE > offset[row + 1] & PLACE:
                return False
        if head + <Py_ssize_t> (offset[rows] & PLACE) > size:
            return False
        taken.text = <const char*> (data + head)
        store_ready(taken.offset, offset)
        return True

    cdef inline bint lacks(self, Py_ssize_t block) noexcept nogil:
        return load_ready(self.blocks[block].offset) == NULL

    def at(self, int64_t row):
        """The value of one row as a str; None if it is elsewhere."""
        cdef Py_ssize_t block
        cdef const uint32_t* offset
        cdef uint32_t begin
        if not 0 <= row < self.rows:
            raise IndexError(f"no row {row} in a list of {self.rows}")
        block = self.block_of_row(0, row)
        if self.lacks(block):
            self.load(block, block)
        offset = self.blocks[block].offset + (row - <int64_t> self.begin[block])
        if offset[0] >> MARKS & ELSEWHERE:
            return None
        begin = offset[0] & PLACE
        return PyUnicode_DecodeUTF8(
            self.blocks[block].text + begin, (offset[1] & PLACE) - begin, NULL
        )

    def described(self, Nodes nodes not None, int64_t start, bint wanted):
        """(end, level, value) of the tag's node that begins at `start`; None if none does.

        `nodes` are those of the tag. The value is None if it is elsewhere, or not wanted.
        """
        cdef Halt halt
        cdef int64_t row = row_of(nodes, start), begun, end
        cdef int16_t level
        if row < 0:
            return None
        halt.at = 0
        # The block that has the row is ready.
        nodes.gather(&row, 1, &halt, &begun, &end, &level)
        return end, level, self.at(row) if wanted else None

    def text(self, Nodes nodes not None, int64_t start):
        """(end, level, value) of the text node that begins at `start`, if it is all that one of the
        tag's elements holds beside attributes, and its value is here; None otherwise.
        """
        cdef Py_ssize_t block, row
        cdef AdBlock* held
        if not nodes.count or start <= <int64_t> nodes.first[0]:
            return None
        block = block_of(nodes.first, nodes.count, 0, <uint64_t> start)
        nodes.load(block, block)
        # An element that holds another has its value elsewhere. So it is the last to begin before.
        row = nodes.row_above(block, NOWHERE, start) - 1
        held = &nodes.blocks[block]
        if held.base + held.start[row] + held.length[row] != start + 2:
            return None
        level = held.level[row] + 1
        row += <Py_ssize_t> nodes.begin[block]
        if self.mark(row):
            return None
        return start + 1, level, self.at(row)

    cdef int mark(self, int64_t row) except -1:
        """The mark of a row of the list."""
        cdef Py_ssize_t block = self.block_of_row(0, row)
        self.load(block, block)
        return self.blocks[block].offset[row - <int64_t> self.begin[block]] >> MARKS

    def get(self, rows):
        """(mark, offsets, data) of some rows; row -1 has nothing, and is marked `ELSEWHERE`."""
        cdef Column source = Column(rows, 8)
        cdef Py_ssize_t count = source.view.len >> 3
        marks = empty(count, np.uint8)
        offsets = empty(count + 1, INT64)
        cdef Column mark = Column(marks, 1), places = Column(offsets, 8)
        cdef int64_t* out = <int64_t*> places.view.buf
        cdef Column target
        cdef Halt halt
        cdef int state
        halt.at = 0
        out[0] = 0
        while True:
            with nogil:
                state = self.measure(
                    <const int64_t*> source.view.buf, count, &halt, <uint8_t*> mark.view.buf, out
                )
            if state == BROKEN:
                raise IndexError(f"no row {rows[halt.at]} in a list of {self.rows}")
            if not self.resume(state, &halt):
                break
        data = empty(out[count], np.uint8)
        target = Column(data, 1)
        with nogil:
            self.copy(<const int64_t*> source.view.buf, count, out, <char*> target.view.buf)
        return marks, offsets, data

    cdef int measure(
        self, const int64_t* rows, Py_ssize_t count, Halt* halt, uint8_t* marks, int64_t* offsets
    ) noexcept nogil:
        """The marks of rows, and where their values are to end; all their blocks are ready then."""
        cdef Py_ssize_t at, block = 0
        cdef const uint32_t* offset
        for at in range(halt.at, count):
            if rows[at] == -1:
                marks[at] = ELSEWHERE
                offsets[at + 1] = offsets[at]
                continue
            if not 0 <= rows[at] < self.rows:
                halt.at = at
                return BROKEN
            block = self.block_of_row(block, rows[at])
            if self.lacks(block):
                halt.at = at
                halt.low = halt.high = block
                return WANTING
            offset = self.blocks[block].offset + (rows[at] - <int64_t> self.begin[block])
            marks[at] = <uint8_t> (offset[0] >> MARKS)
            offsets[at + 1] = offsets[at] + (offset[1] & PLACE) - (offset[0] & PLACE)
        return DONE

    cdef void copy(
        self, const int64_t* rows, Py_ssize_t count, const int64_t* offsets, char* data
    ) noexcept nogil:
        cdef Py_ssize_t at, block = 0
        cdef const uint32_t* offset
        for at in range(count):
            if offsets[at] == offsets[at + 1]:
                continue
            block = self.block_of_row(block, rows[at])
            offset = self.blocks[block].offset + (rows[at] - <int64_t> self.begin[block])
            memcpy(
                data + offsets[at], self.blocks[block].text + (offset[0] & PLACE),
                offsets[at + 1] - offsets[at],
            )


def describe_each(list candidates not None, starts):
    """(which, end, level, mark, offsets, data) of nodes of different tags, one for each start.

    `candidates` are for each start the tags that its node may have, a list of (anything, nodes,
    values); `which` says which of them it has, -1 if none: then nothing else is known of it. The
    others are as in `Values.get`.
    """
    cdef Column source = Column(starts, 8)
    cdef Py_ssize_t at, number, count = source.view.len >> 3
    cdef int64_t* keys = <int64_t*> source.view.buf
    which, ends = empty(count, INT64), empty(count, INT64)
    levels, marks = empty(count, INT16), empty(count, np.uint8)
    offsets = empty(count + 1, INT64)
    cdef Column column_1 = Column(which, 8), column_2 = Column(ends, 8)
    cdef Column column_3 = Column(levels, 2), column_4 = Column(marks, 1)
    cdef Column column_5 = Column(offsets, 8), column_6
    cdef int64_t* chosen = <int64_t*> column_1.view.buf
    cdef int64_t* end = <int64_t*> column_2.view.buf
    cdef int16_t* level = <int16_t*> column_3.view.buf
    cdef uint8_t* mark = <uint8_t*> column_4.view.buf
    cdef int64_t* places = <int64_t*> column_5.view.buf
    cdef int64_t row, begun
    cdef Py_ssize_t room = 0, size
    cdef char* data = NULL
    cdef void* moved
    cdef tuple candidate
    cdef list own
    cdef Nodes nodes
    cdef Values values
    cdef Halt halt
    if len(candidates) != count:
        raise ValueError(f"{len(candidates)} candidates for {count} nodes")
    places[0] = 0
    try:
        for at in range(count):
            chosen[at] = -1
            end[at] = level[at] = 0
            mark[at] = ELSEWHERE
            places[at + 1] = places[at]
            own = candidates[at]
            for number in range(len(own)):
                candidate = own[number]
                nodes = candidate[1]
                values = candidate[2]
                row = row_of(nodes, keys[at])
                if row < 0:
                    continue
                halt.at = 0
                nodes.gather(&row, 1, &halt, &begun, &end[at], &level[at])
                halt.at = 0
                while values.resume(
                    values.measure(&row, 1, &halt, &mark[at], &places[at]), &halt
                ):
                    pass
                size = places[at + 1]
                if size > room:
                    room = max(2 * room, size, 1024)
                    moved = realloc(data, room)
                    if moved == NULL:
                        raise MemoryError
                    data = <char*> moved
                values.copy(&row, 1, &places[at], data)
                chosen[at] = number
                break
        size = places[count]
        texts = empty(size, np.uint8)
        if size:
            column_6 = Column(texts, 1)
            memcpy(column_6.view.buf, data, size)
        return which, ends, levels, marks, offsets, texts
    finally:
        free(data)
