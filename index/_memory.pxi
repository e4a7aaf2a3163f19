# C memory as numpy arrays, and the columns in which the pairs of a probe gather.

INT64 = np.dtype(np.int64)
INT16 = np.dtype(np.int16)
cdef object frombuffer = np.frombuffer
cdef object empty = np.empty


@cython.final
cdef class Memory:
    """A stretch of C memory as a buffer: its own, freed with it, or a part of what `owner` keeps."""

    cdef void* data
    cdef Py_ssize_t size
    cdef object owner

    def __cinit__(self):
        self.data = NULL

    def __dealloc__(self):
        if self.owner is None:
            free(self.data)

    def __getbuffer__(self, Py_buffer* view, int flags):
        # What belongs to another is a block of an index, which nobody may write to.
        PyBuffer_FillInfo(view, self, self.data, self.size, self.owner is not None, flags)

    def __len__(self):
        return self.size


cdef Memory borrowed(const void* data, Py_ssize_t size, object owner):
    cdef Memory memory = Memory.__new__(Memory)
    memory.data = <void*> data
    memory.size = size
    memory.owner = owner
    return memory


cdef enum:
    SMALL = 4096         # bytes that are copied sooner than an array is made around them


cdef object adopted(void* data, Py_ssize_t size, object dtype, Py_ssize_t width):
    """An array over memory that was allocated here; it frees the memory."""
    cdef Memory memory
    cdef Py_buffer view
    if size <= SMALL:
        array = empty(size // width, dtype)
        if size:
            PyObject_GetBuffer(array, &view, PyBUF_SIMPLE)
            memcpy(view.buf, data, size)
            PyBuffer_Release(&view)
        free(data)
        return array
    memory = Memory.__new__(Memory)
    memory.data = data
    memory.size = size
    return frombuffer(memory, dtype)


# Pairs of a left row and a label. `left` stays unused where there is only one left row.
ctypedef struct Sink:
    int64_t* left
    int64_t* start
    int64_t* end
    int16_t* level
    Py_ssize_t size
    Py_ssize_t room
    bint paired


cdef inline void fresh(Sink* sink, bint paired) noexcept nogil:
    sink.left = sink.start = sink.end = NULL
    sink.level = NULL
    sink.size = sink.room = 0
    sink.paired = paired


cdef int grow(Sink* sink, Py_ssize_t more) noexcept nogil:
    """Room for `more` rows; what is written stays. 0 if there is no memory."""
    cdef Py_ssize_t room = sink.size + more
    cdef void* moved
    if room <= sink.room:
        return 1
    # The first room is generous, because memory that is not touched costs nothing.
    room = max(room, 2 * sink.room, 256)
    if sink.paired:
        moved = resized(sink.left, room * sizeof(int64_t))
        if moved == NULL:
            return 0
        sink.left = <int64_t*> moved
    moved = resized(sink.start, room * sizeof(int64_t))
    if moved == NULL:
        return 0
    sink.start = <int64_t*> moved
    moved = resized(sink.end, room * sizeof(int64_t))
    if moved == NULL:
        return 0
    sink.end = <int64_t*> moved
    moved = resized(sink.level, room * sizeof(int16_t))
    if moved == NULL:
        return 0
    sink.level = <int16_t*> moved
    sink.room = room
    return 1


cdef void drop(Sink* sink) noexcept nogil:
    free(sink.left)
    free(sink.start)
    free(sink.end)
    free(sink.level)
    sink.left = sink.start = sink.end = NULL
    sink.level = NULL
    sink.size = sink.room = 0


cdef void reverse(Sink* sink, Py_ssize_t low) noexcept nogil:
    """The rows from `low` on the other way round; they all have the same left row."""
    cdef Py_ssize_t high = sink.size - 1
    while low < high:
        sink.start[low], sink.start[high] = sink.start[high], sink.start[low]
        sink.end[low], sink.end[high] = sink.end[high], sink.end[low]
        sink.level[low], sink.level[high] = sink.level[high], sink.level[low]
        low += 1
        high -= 1


cdef object columns(Sink* sink):
    """(left, start, end, level) as arrays that own the memory; left is None if not paired."""
    cdef Py_ssize_t size = sink.size
    cdef int64_t* left = sink.left
    cdef int64_t* start = sink.start
    cdef int64_t* end = sink.end
    cdef int16_t* level = sink.level
    sink.left = sink.start = sink.end = NULL
    sink.level = NULL
    return (
        taken(left, size, sink.room, 8, INT64) if sink.paired else None,
        taken(start, size, sink.room, 8, INT64),
        taken(end, size, sink.room, 8, INT64),
        taken(level, size, sink.room, 2, INT16),
    )


cdef object taken(void* data, Py_ssize_t rows, Py_ssize_t room, Py_ssize_t width, object dtype):
    """A column of a sink as an array; what it has too much of is given back."""
    cdef void* moved
    if rows * width > SMALL and rows < room // 2:
        moved = realloc(data, rows * width)
        data = data if moved == NULL else moved
    return adopted(data, rows * width, dtype, width)


@cython.final
cdef class Column:
    """A numpy column as a pointer, for as long as this lives."""

    cdef Py_buffer view
    cdef bint held

    def __cinit__(self, object array, Py_ssize_t width):
        PyObject_GetBuffer(array, &self.view, PyBUF_SIMPLE)
        self.held = True
        if self.view.itemsize != width and self.view.len:
            raise TypeError(f"a column of {width}-byte numbers was expected")

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


def is_in_memory(view):
    """Whether all pages of a buffer are in memory; none is touched."""
    cdef Py_buffer held
    PyObject_GetBuffer(view, &held, PyBUF_SIMPLE)
    cdef bint there = in_memory(held.buf, held.len)
    PyBuffer_Release(&held)
    return there


cdef void sift(
    Sink* sink, Py_ssize_t first, const int64_t* lows, const int64_t* highs, Py_ssize_t count
) noexcept nogil:
    """Leave out rows, from one on, that begin in one of the ranges, which are sorted and apart."""
    cdef Py_ssize_t row, kept = first, at = 0
    for row in range(first, sink.size):
        at = range_of(lows, count, at, sink.start[row])
        if at >= 0 and sink.start[row] <= highs[at]:
            continue
        if sink.paired:
            sink.left[kept] = sink.left[row]
        sink.start[kept] = sink.start[row]
        sink.end[kept] = sink.end[row]
        sink.level[kept] = sink.level[row]
        kept += 1
    sink.size = kept


cdef inline Py_ssize_t range_of(
    const int64_t* lows, Py_ssize_t count, Py_ssize_t at, int64_t key
) noexcept nogil:
    """The last range that begins at or before key, -1 if none does; `at` is where to look first."""
    cdef Py_ssize_t low = 0, high = count, middle
    if at >= 0 and lows[at] <= key:
        if at + 1 == count or key < lows[at + 1]:
            return at
        low = at + 1
    while low < high:
        middle = (low + high) >> 1
        if lows[middle] <= key:
            low = middle + 1
        else:
            high = middle
    return low - 1


@cython.final
cdef class Removed:
    """The labels of removed records, as sorted ranges; probes leave out what begins in them."""

    cdef readonly object starts
    cdef readonly object ends
    cdef Column low_column, high_column
    cdef const int64_t* lows
    cdef const int64_t* highs
    cdef Py_ssize_t count
    cdef int over                # the segment was closed
    cdef int readers             # calls of other kernels that read its lists now
    cdef dict kept               # the lists that other kernels read, by their address
    cdef int process             # that opened it, by how often it was forked

    def __init__(self, starts, ends):
        self.process = forks()
        self.starts = np.ascontiguousarray(starts, np.int64)
        self.ends = np.ascontiguousarray(ends, np.int64)
        self.low_column = Column(self.starts, 8)
        self.high_column = Column(self.ends, 8)
        self.lows = <const int64_t*> self.low_column.view.buf
        self.highs = <const int64_t*> self.high_column.view.buf
        self.count = len(self.starts)
        self.kept = {}

    def __len__(self):
        return self.count

    def close(self):
        """Let go of the lists, as soon as no other kernel reads them; none begins to, from now on.

        In a child of the process that opened the segment nobody reads: threads are not inherited.
        """
        store_int(self.over, 1)
        if forks() == self.process:
            with nogil:
                while load_int(self.readers):
                    nap()
        self.kept = {}

    cdef int keep(self, blocks) except -1:
        """Keep a list, unless the segment was closed."""
        if not self.over:
            self.kept[<size_t> <void*> blocks] = blocks
        return 0

    cdef inline bint enter(self) noexcept nogil:
        """Begin to read lists that are kept here; not if the segment was closed. See `leave`."""
        if forks() != self.process:
            return False
        add_to(self.readers, 1)
        if load_int(self.over):
            add_to(self.readers, -1)
            return False
        return True

    cdef inline void leave(self) noexcept nogil:
        add_to(self.readers, -1)

    def holds(self, starts):
        """Which of the nodes that begin at `starts` are in a removed record."""
        starts = np.ascontiguousarray(starts, np.int64)
        found = np.zeros(len(starts), np.uint8)
        cdef Column source = Column(starts, 8)
        cdef Column target = Column(found, 1)
        cdef const int64_t* keys = <const int64_t*> source.view.buf
        cdef uint8_t* out = <uint8_t*> target.view.buf
        cdef Py_ssize_t row, at = 0, rows = len(starts)
        if self.count:
            with nogil:
                for row in range(rows):
                    at = range_of(self.lows, self.count, at, keys[row])
                    out[row] = at >= 0 and keys[row] <= self.highs[at]
        return found.view(np.bool_)
