# The columns in which pairs gather, and how they become `Matches`.

INT64 = np.dtype(np.int64)
INT32 = np.dtype(np.int32)
INT16 = np.dtype(np.int16)
cdef object frombuffer = np.frombuffer
cdef object empty_array = np.empty
cdef object nothing = ()

cdef enum:
    SMALL = 16384        # bytes of a column that are copied sooner than memory is handed over


cdef int grow_sink(Sink* sink, Py_ssize_t more) noexcept nogil:
    """Room for so many pairs more; what is written stays. 0 if there is no memory."""
    cdef Py_ssize_t room = max(sink.size + more, 2 * sink.room, 512)
    cdef void* moved
    moved = resized(sink.id, room * sizeof(int64_t))
    if moved == NULL:
        return 0
    sink.id = <int64_t*> moved
    moved = resized(sink.start, room * sizeof(int64_t))
    if moved == NULL:
        return 0
    sink.start = <int64_t*> moved
    moved = resized(sink.end, room * sizeof(int64_t))
    if moved == NULL:
        return 0
    sink.end = <int64_t*> moved
    moved = resized(sink.segment, room * sizeof(int32_t))
    if moved == NULL:
        return 0
    sink.segment = <int32_t*> moved
    moved = resized(sink.level, room * sizeof(int16_t))
    if moved == NULL:
        return 0
    sink.level = <int16_t*> moved
    sink.room = room
    return 1


cdef void drop_sink(Sink* sink) noexcept nogil:
    free(sink.id)
    free(sink.start)
    free(sink.end)
    free(sink.segment)
    free(sink.level)
    memset(sink, 0, sizeof(Sink))


cdef inline int emit(
    Join* join, uint64_t key, const Entry* input, int64_t start, int64_t end, int64_t level
) noexcept nogil:
    """One pair."""
    cdef Sink* sink = &join.out
    cdef Py_ssize_t at = sink.size
    if at == sink.room and not grow_sink(sink, 1):
        return NO_MEMORY
    sink.id[at] = input.id
    sink.segment[at] = <int32_t> (key >> 32)
    sink.start[at] = start
    sink.end[at] = end
    sink.level[at] = <int16_t> level
    sink.size = at + 1
    join.tally.pairs += 1
    if join.tracing:
        note(join, PAIR, LEFT, key, input.id, start, input.stamp, 1)
    return FINE


cdef inline int emit_rows(
    Join* join, uint64_t key, const Entry* input, const View* view, Py_ssize_t low, Py_ssize_t high
) noexcept nogil:
    """The pairs of an input with neighbouring candidates."""
    cdef Sink* sink = &join.out
    cdef Py_ssize_t size = sink.size, count = high - low, row
    cdef int32_t segment = <int32_t> (key >> 32)
    cdef int64_t id = input.id
    cdef int64_t* ids
    cdef int32_t* segments
    if count <= 0:
        return FINE
    if size + count > sink.room and not grow_sink(sink, count):
        return NO_MEMORY
    ids = sink.id + size
    segments = sink.segment + size
    for row in range(count):
        ids[row] = id
        segments[row] = segment
    if count <= 8:
        for row in range(count):
            sink.start[size + row] = view.start[low + row]
            sink.end[size + row] = view.end[low + row]
            sink.level[size + row] = view.level[low + row]
    else:
        memcpy(sink.start + size, view.start + low, count * sizeof(int64_t))
        memcpy(sink.end + size, view.end + low, count * sizeof(int64_t))
        memcpy(sink.level + size, view.level + low, count * sizeof(int16_t))
    sink.size = size + count
    join.tally.pairs += count
    if join.tracing:
        for row in range(low, high):
            note(join, PAIR, LEFT, key, id, view.start[row], input.stamp, 1)
    return FINE


@cython.final
cdef class Memory:
    """C memory as a buffer, freed with it."""

    cdef void* data
    cdef Py_ssize_t size

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, False, flags)


cdef object handed(void** data, Py_ssize_t rows, Py_ssize_t room, object dtype, Py_ssize_t width):
    """An array of a column: small ones are copied, large ones are given away, and NULL is left."""
    cdef Py_ssize_t size = rows * width
    cdef Py_buffer view
    cdef Memory memory
    cdef void* moved
    if room * 8 <= SMALL or not rows:
        array = empty_array(rows, dtype)
        if rows:
            PyObject_GetBuffer(array, &view, PyBUF_SIMPLE)
            memcpy(view.buf, data[0], size)
            PyBuffer_Release(&view)
        return array
    memory = Memory.__new__(Memory)
    memory.data = data[0]
    memory.size = size
    data[0] = NULL
    if rows < room >> 1:
        moved = realloc(memory.data, size + 1)
        if moved != NULL:
            memory.data = moved
    return frombuffer(memory, dtype)


cdef object matches_of(Sink* sink):
    """The pairs of a sink; what small ones lay in stays with it for the next."""
    cdef Py_ssize_t size = sink.size, room = sink.room
    cdef object made = (<PyTypeObject*> Matches).tp_new(Matches, <PyObject*> nothing, NULL)
    # The class is frozen, so it is filled as its own constructor fills it.
    PyObject_GenericSetAttr(made, "id", handed(<void**> &sink.id, size, room, INT64, 8))
    PyObject_GenericSetAttr(made, "segment", handed(<void**> &sink.segment, size, room, INT32, 4))
    PyObject_GenericSetAttr(made, "start", handed(<void**> &sink.start, size, room, INT64, 8))
    PyObject_GenericSetAttr(made, "end", handed(<void**> &sink.end, size, room, INT64, 8))
    PyObject_GenericSetAttr(made, "level", handed(<void**> &sink.level, size, room, INT16, 2))
    sink.size = 0
    if sink.id == NULL:
        sink.room = 0
    return made
