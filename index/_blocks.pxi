# A list of blocks: its directory, and the blocks that have been touched.

cdef enum:
    MAGIC = 0x31444D46
    HEADER = 16


cdef inline Py_ssize_t padded(Py_ssize_t size) noexcept nogil:
    return (size + 7) & ~<Py_ssize_t> 7


cdef inline Py_ssize_t block_of(
    const uint64_t* first, Py_ssize_t count, Py_ssize_t at, uint64_t key
) noexcept nogil:
    """The last block whose `first` is not above key, -1 if none is; looks near `at` first."""
    cdef Py_ssize_t low = 0, high = count, step = 1, middle
    if first[at] <= key:
        # Ahead, by growing steps: sorted keys go to this block or to one soon after.
        low = at
        while low + step < count and first[low + step] <= key:
            low += step
            step <<= 1
        high = min(low + step, count)
        low += 1
    else:
        high = at
    while low < high:
        middle = (low + high) >> 1
        if first[middle] <= key:
            low = middle + 1
        else:
            high = middle
    return low - 1


# How a scan by SES label goes that does not touch postings. It only asks whether pages are in memory,
# and stops at the first that is not; or it announces those that are not, and goes on. Blocks of labels
# are asked for and announced as a whole: they are small, and searched. So are blocks of postings, once:
# only if some of their pages are missing, it is asked for those of each label.
ctypedef struct Scout:
    bint announces
    bint cold            # it stopped at pages that are not in memory
    uint8_t* seen        # what is known of blocks of labels,
    uint8_t* met         # and of postings


cdef enum:
    WHOLE = 1            # all of it is in memory, or announced
    PARTS = 2            # some of it is not


# Where a probe stands that stopped for blocks which are not ready: go on at `at`, once the blocks
# from `low` to `high` are there. Only scans look at `scout`; NULL, if they touch what they find.
ctypedef struct Halt:
    Py_ssize_t at
    Py_ssize_t low
    Py_ssize_t high
    Scout* scout


cdef class Blocks:
    """A list of blocks; `source` finds a block's bytes and knows how to say that one is bad.

    Blocks are made ready under the lock and never taken back, so what a thread has seen to be
    ready it may read without it. The memory they lie in is kept by `source` or is a copy here.
    """

    cdef readonly object source
    cdef readonly Py_ssize_t count
    cdef readonly int64_t rows
    cdef object lock
    cdef bytes directory
    cdef list copies
    cdef const uint64_t* first
    cdef const uint64_t* begin
    cdef const uint32_t* crc
    cdef const uint8_t** data
    cdef Py_ssize_t* sizes
    cdef object __weakref__

    def __cinit__(self, *arguments, **options):
        self.data = NULL
        self.sizes = NULL

    def __init__(self, source, directory, lock):
        self.source = source
        self.lock = lock
        # bytes objects are aligned, values in LMDB's pages need not be.
        self.directory = bytes(directory)
        self.copies = []
        self._read_directory()
        self.data = <const uint8_t**> calloc(self.count + 1, sizeof(uint8_t*))
        self.sizes = <Py_ssize_t*> calloc(self.count + 1, sizeof(Py_ssize_t))
        if self.data == NULL or self.sizes == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.data)
        free(self.sizes)

    cdef int _read_directory(self) except -1:
        cdef const uint8_t* data = <const uint8_t*> PyBytes_AS_STRING(self.directory)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(self.directory)
        cdef uint64_t count
        cdef Py_ssize_t block
        if size < HEADER or (<const uint32_t*> data)[0] != MAGIC:
            raise self.source.corrupt(None, "is not a directory")
        if zlib.crc32(memoryview(self.directory)[8:]) != (<const uint32_t*> data)[1]:
            raise self.source.corrupt(None, "does not have its checksum")
        count = (<const uint64_t*> data)[1]
        if count > <uint64_t> size or <Py_ssize_t> (HEADER + 20 * count + 8) > size:
            raise self.source.corrupt(None, "is too short for its blocks")
        self.count = <Py_ssize_t> count
        self.first = <const uint64_t*> (data + HEADER)
        self.begin = self.first + count
        self.crc = <const uint32_t*> (self.begin + count + 1)
        for block in range(self.count):
            if self.begin[block] >= self.begin[block + 1] or self.begin[0] != 0:
                raise self.source.corrupt(None, "has blocks without rows")
            if block and self.first[block - 1] > self.first[block]:
                raise self.source.corrupt(None, "is not in order")
        self.rows = <int64_t> self.begin[self.count]
        return 0

    cdef bint adopt(self, Py_ssize_t block, const uint8_t* data, Py_ssize_t size) noexcept:
        """Take the columns of a checked block; whether they fit into it."""
        return True

    cdef inline Py_ssize_t rows_of(self, Py_ssize_t block) noexcept nogil:
        return <Py_ssize_t> (self.begin[block + 1] - self.begin[block])

    cdef inline Py_ssize_t block_of_row(self, Py_ssize_t at, int64_t row) noexcept nogil:
        """The block of a row, which is one of the list's; looks at `at` first."""
        if self.begin[at] <= <uint64_t> row < self.begin[at + 1]:
            return at
        return block_of(self.begin, self.count, at, <uint64_t> row)

    cdef bint in_memory(self, Py_ssize_t low, Py_ssize_t high) except -1:
        """Whether the blocks from `low` to `high`, ready or not, are in memory."""
        cdef Py_ssize_t block
        for block in range(low, high + 1):
            if self.data[block] == NULL and not self.source.in_memory(block):
                return False
        return True

    cdef bint passes(self, Py_ssize_t block, Scout* scout) noexcept nogil:
        """Whether a scout may look into a block, which is ready."""
        if scout.seen[block]:
            return True
        if scout.announces:
            announce(self.data[block], self.sizes[block])
        elif not in_memory(self.data[block], self.sizes[block]):
            scout.cold = True
            return False
        scout.seen[block] = WHOLE
        return True

    cdef bint is_whole(self, Py_ssize_t block, Scout* scout) noexcept nogil:
        """Whether all of a block, which is ready, is in memory."""
        if not scout.met[block]:
            scout.met[block] = WHOLE if in_memory(self.data[block], self.sizes[block]) else PARTS
        return scout.met[block] == WHOLE

    cdef int load(self, Py_ssize_t low, Py_ssize_t high) except -1:
        """Make the blocks from `low` to `high` ready."""
        cdef Py_ssize_t block
        for block in range(low, high + 1):
            if self.data[block] == NULL:
                self._load(block)
        return 0

    cdef int _load(self, Py_ssize_t block) except -1:
        cdef Py_buffer view
        with self.lock:
            if self.data[block] != NULL:
                return 0
            value = self.source.block(block)
            if zlib.crc32(value) != self.crc[block]:
                raise self.source.corrupt(block, "does not have its checksum")
            PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
            try:
                self._take(block, <const uint8_t*> view.buf, view.len)
            finally:
                PyBuffer_Release(&view)
        return 0

    cdef int _take(self, Py_ssize_t block, const uint8_t* data, Py_ssize_t size) except -1:
        cdef bytes copy
        if <size_t> data & 7:
            copy = data[:size]
            self.copies.append(copy)
            data = <const uint8_t*> PyBytes_AS_STRING(copy)
        if (
            size < 8
            or (<const uint64_t*> data)[0] != self.begin[block + 1] - self.begin[block]
            or not self.adopt(block, data, size)
        ):
            raise self.source.corrupt(block, "does not have the rows it should have")
        self.sizes[block] = size
        self.data[block] = data
        return 0

    cdef int resume(self, int state, Halt* halt) except -1:
        """Do what a probe that stopped asks for. 1: call it again; 0: it is done."""
        if state == DONE:
            return 0
        if state == NO_MEMORY:
            raise MemoryError
        if state == BROKEN:
            raise self.source.corrupt(halt.low, "refers to rows that are not there")
        self.load(halt.low, halt.high)
        return 1

    def view(self, Py_ssize_t block):
        """The checked bytes of a block; they keep the list."""
        if not 0 <= block < self.count:
            raise IndexError(f"no block {block} in a list of {self.count}")
        self.load(block, block)
        return borrowed(self.data[block], self.sizes[block], self)

    def block_at(self, uint64_t key):
        """The last block whose `first` is not above key; -1 if there is none."""
        return block_of(self.first, self.count, 0, key) if self.count else -1

    def begin_of(self, Py_ssize_t block):
        """The ordinal of the first row of a block; of all rows, if it is one past the last."""
        if not 0 <= block <= self.count:
            raise IndexError(f"no block {block} in a list of {self.count}")
        return self.begin[block]

    def check(self):
        """Make every block ready, which checks it."""
        self.load(0, self.count - 1)
