# `identity` lists: rows of a tag's `ad` list by key.

ctypedef struct KeyBlock:
    const uint64_t* hash        # NULL until the block is ready
    const uint32_t* row
    const uint32_t* offset
    const uint8_t* keys


cdef class Keys(Blocks):
    """The identity keys of a tag, by hash, then by their bytes, then by row."""

    cdef KeyBlock* blocks

    def __cinit__(self, *arguments, **options):
        self.blocks = NULL

    def __init__(self, source, directory, lock):
        super().__init__(source, directory, lock)
        self.blocks = <KeyBlock*> calloc(self.count + 1, sizeof(KeyBlock))
        if self.blocks == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.blocks)

    cdef bint adopt(self, Py_ssize_t block, const uint8_t* data, Py_ssize_t size) noexcept:
        cdef KeyBlock* taken = &self.blocks[block]
        cdef Py_ssize_t row, rows = self.rows_of(block)
        cdef Py_ssize_t head = 8 + 8 * rows + padded(4 * rows) + padded(4 * rows + 4)
        # The keys may be empty, and then nothing follows the offsets.
        if size < head - padded(4 * rows + 4) + 4 * rows + 4:
            return False
        taken.row = <const uint32_t*> (data + 8 + 8 * rows)
        taken.offset = <const uint32_t*> (data + 8 + 8 * rows + padded(4 * rows))
        taken.keys = data + head
        if (<const uint64_t*> data)[1] != self.first[block] or taken.offset[0] != 0:
            return False
        for row in range(rows):
            if taken.offset[row] > taken.offset[row + 1]:
                return False
        if taken.offset[rows] and head + <Py_ssize_t> taken.offset[rows] > size:
            return False
        store_ready(taken.hash, data + 8)
        return True

    cdef inline bint lacks(self, Py_ssize_t block) noexcept nogil:
        return load_ready(self.blocks[block].hash) == NULL

    def find(self, keys, Nodes nodes not None):
        """(left, start, end, level, row) for each key and each node that has it.

        `nodes` are those of the tag.
        """
        cdef list held = keys if type(keys) is list else list(keys)
        cdef Py_ssize_t at, count = len(held)
        cdef Text* texts = NULL
        cdef int64_t* rows = NULL
        cdef Sink sink
        fresh(&sink, True)
        try:
            texts = <Text*> malloc((count + 1) * sizeof(Text))
            if texts == NULL or not grow(&sink, max(count, 1)):
                raise MemoryError
            for at in range(count):
                key = held[at]
                if type(key) is not bytes:
                    raise TypeError(f"identity keys are bytes, not {type(key).__name__}")
                texts[at].data = PyBytes_AS_STRING(key)
                texts[at].size = PyBytes_GET_SIZE(key)
            self._search(texts, count, &sink)
            rows = <int64_t*> malloc(sink.size * sizeof(int64_t) + 1)
            if rows == NULL:
                raise MemoryError
            memcpy(rows, sink.start, sink.size * sizeof(int64_t))
            self._label(nodes, rows, &sink)
            at = sink.size
            left, start, end, level = columns(&sink)
            row = adopted(rows, at * sizeof(int64_t), INT64, 8)
            rows = NULL
            return left, start, end, level, row
        finally:
            free(texts)
            free(rows)
            drop(&sink)

    def finder(self, Nodes nodes not None, Removed removed not None):
        """A capsule with a `Finder`, for other kernels; `removed` keeps this list and the nodes."""
        cdef Finder* finder = <Finder*> malloc(sizeof(Finder))
        if finder == NULL:
            raise MemoryError
        finder.keys = <void*> self
        finder.nodes = <void*> nodes
        finder.removed = <void*> removed
        finder.find = <FindKeys> find_keys
        removed.keep(self)
        removed.keep(nodes)
        Py_INCREF(removed)
        return PyCapsule_New(finder, FINDER, drop_finder)

    cdef int _search(self, const Text* texts, Py_ssize_t count, Sink* sink) except -1:
        cdef Halt halt
        cdef int state
        halt.at = 0
        while self.count:
            with nogil:
                state = self.search(texts, count, &halt, sink)
            if not self.resume(state, &halt):
                break
        return 0

    cdef int _label(self, Nodes nodes, const int64_t* rows, Sink* sink) except -1:
        cdef Halt halt
        cdef int state
        halt.at = 0
        while True:
            with nogil:
                state = nodes.gather(rows, sink.size, &halt, sink.start, sink.end, sink.level)
            if state == BROKEN:
                raise self.source.corrupt(None, f"has keys of row {rows[halt.at]}, which is not there")
            if not nodes.resume(state, &halt):
                return 0

    cdef int search(
        self, const Text* texts, Py_ssize_t count, Halt* halt, Sink* sink
    ) noexcept nogil:
        cdef Py_ssize_t at, block, row, rows, size
        cdef uint64_t value
        cdef uint32_t begin
        cdef KeyBlock* held
        # Until they have labels, rows are kept as `start`.
        for at in range(halt.at, count):
            value = hash_of(<const uint8_t*> texts[at].data, texts[at].size)
            size = sink.size
            # Hashes are spread evenly, so the block is near where its share of them says. Equal
            # ones may begin at the end of the block before.
            block = block_of(
                self.first, self.count, <Py_ssize_t> high_of_product(value, self.count), value
            )
            if block < 0:
                continue
            while block and self.first[block] == value:
                block -= 1
            if self.lacks(block):
                halt.at = at
                halt.low = halt.high = block
                return WANTING
            held = &self.blocks[block]
            rows = self.rows_of(block)
            row = at_least(
                held.hash, rows, value,
                self.first[block + 1] if block + 1 < self.count else <uint64_t> -1,
            )
            while True:
                if row == rows:
                    block += 1
                    if block == self.count or self.first[block] != value:
                        break
                    if self.lacks(block):
                        sink.size = size
                        halt.at = at
                        halt.low = halt.high = block
                        return WANTING
                    held = &self.blocks[block]
                    rows = self.rows_of(block)
                    row = 0
                if held.hash[row] != value:
                    break
                begin = held.offset[row]
                if (
                    <Py_ssize_t> (held.offset[row + 1] - begin) == texts[at].size
                    and memcmp(held.keys + begin, texts[at].data, texts[at].size) == 0
                ):
                    if sink.size >= sink.room and not grow(sink, 1):
                        return NO_MEMORY
                    sink.left[sink.size] = at
                    sink.start[sink.size] = held.row[row]
                    sink.size += 1
                row += 1
        return DONE


cdef inline Py_ssize_t at_least(
    const uint64_t* hashes, Py_ssize_t rows, uint64_t key, uint64_t behind
) noexcept nogil:
    """The first row whose hash is not below key: guessed by its share, then found by steps."""
    cdef uint64_t low = hashes[0]
    cdef Py_ssize_t at, first, last, step = 4, middle
    if key <= low:
        return 0
    at = <Py_ssize_t> (<double> (key - low) / <double> (behind - low + 1) * rows)
    if at >= rows:
        at = rows - 1
    # Bracket: hashes[first] < key <= hashes[last], or last == rows.
    if hashes[at] < key:
        first = at
        last = at + step
        while last < rows and hashes[last] < key:
            first = last
            step <<= 1
            last += step
        if last > rows:
            last = rows
    else:
        last = at
        first = at - step
        while first > 0 and hashes[first] >= key:
            last = first
            step <<= 1
            first -= step
        if first < 0:
            first = 0
    while last - first > 1:
        middle = (first + last) >> 1
        if hashes[middle] < key:
            first = middle
        else:
            last = middle
    return last


cdef const char* FINDER = "fmware.index.finder"


cdef void drop_finder(object capsule) noexcept:
    cdef Finder* finder = <Finder*> PyCapsule_GetPointer(capsule, FINDER)
    Py_DECREF(<object> finder.removed)
    free(finder)


cdef Py_ssize_t find_keys(
    Keys keys, Nodes nodes, Removed removed, const Text* texts, Py_ssize_t count, Keyed* found,
    Py_ssize_t room,
) noexcept nogil:
    cdef Py_ssize_t rows
    if not removed.enter():
        return -1
    rows = find_in(keys, nodes, removed, texts, count, found, room)
    removed.leave()
    return rows


cdef Py_ssize_t find_in(
    Keys keys, Nodes nodes, Removed removed, const Text* texts, Py_ssize_t count, Keyed* found,
    Py_ssize_t room,
) noexcept nogil:
    cdef Halt halt
    cdef Sink sink
    cdef Py_ssize_t row, size = -1, kept = 0, place = 0
    halt.at = 0
    if not keys.count:
        return 0
    fresh(&sink, True)
    if grow(&sink, count) and keys.search(texts, count, &halt, &sink) == DONE and sink.size <= room:
        size = sink.size
        # Rows are kept as `start` until they have labels.
        for row in range(size):
            found[row].row = sink.start[row]
        halt.at = 0
        if size and nodes.gather(sink.start, size, &halt, sink.start, sink.end, sink.level):
            size = -1
    for row in range(size):
        if removed.count:
            place = range_of(removed.lows, removed.count, place, sink.start[row])
            if place >= 0 and sink.start[row] <= removed.highs[place]:
                continue
        found[kept].row = found[row].row
        found[kept].key = sink.left[row]
        found[kept].start = sink.start[row]
        found[kept].end = sink.end[row]
        found[kept].level = sink.level[row]
        kept += 1
    drop(&sink)
    return -1 if size < 0 else kept
