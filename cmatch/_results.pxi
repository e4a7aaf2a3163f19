# The columns in which pairs gather, and how they become `Matches`.

cdef object nothing = ()
cdef object no_matches = Matches.empty()

cdef enum:
    FEW = 8
    SMALL = 16384        # bytes of a column that are copied sooner than memory is handed over


cdef int grow_sink(Sink* sink, Py_ssize_t more) noexcept nogil:
    """Room for so many pairs more; what is written stays. 0 if there is no memory."""
    # Few at first: most batches have few pairs, and memory that is new costs more than they do.
    cdef Py_ssize_t room = max(sink.size + more, 2 * sink.room, 64)
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
    if join.tracing:
        note(join, PAIR, LEFT, key, input.id, start, input.stamp, 1)
    return FINE


cdef inline int emit_rows(
    Sink* sink, int32_t segment, int64_t id, const View* view, Py_ssize_t low, Py_ssize_t high
) noexcept nogil:
    """The pairs of an input with neighbouring candidates."""
    cdef Py_ssize_t size = sink.size, count = high - low, row
    cdef int64_t* ids
    cdef int64_t* starts
    cdef int64_t* ends
    cdef int32_t* segments
    cdef int16_t* levels
    if count <= 0:
        return FINE
    if size + count > sink.room and not grow_sink(sink, count):
        return NO_MEMORY
    ids = sink.id + size
    starts = sink.start + size
    ends = sink.end + size
    segments = sink.segment + size
    levels = sink.level + size
    sink.size = size + count
    if count <= FEW:
        # Row by row: calls and wide registers do not pay for so few.
        row = 0
        while True:
            ids[row] = id
            segments[row] = segment
            starts[row] = view.start[low]
            ends[row] = view.end[low]
            levels[row] = view.level[low]
            row += 1
            low += 1
            if low == high:
                return FINE
    for row in range(count):
        ids[row] = id
    for row in range(count):
        segments[row] = segment
    memcpy(starts, view.start + low, count * sizeof(int64_t))
    memcpy(ends, view.end + low, count * sizeof(int64_t))
    memcpy(levels, view.level + low, count * sizeof(int16_t))
    return FINE


@cython.final
cdef class Memory:
    """C memory as a buffer, which may be lent; it ends with it."""

    cdef void* data
    cdef Py_ssize_t size

    def __dealloc__(self):
        returned(self.data)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, False, flags)


cdef object handed(void** data, Py_ssize_t rows, Py_ssize_t room, object dtype, Py_ssize_t width):
    """An array of a column: small ones are copied, large ones are given away, and NULL is left."""
    cdef Py_ssize_t size = rows * width
    cdef Memory memory
    cdef void* moved
    if room * 8 <= SMALL:
        return copied(data[0], rows, dtype, width)
    memory = Memory.__new__(Memory)
    memory.data = data[0]
    memory.size = size
    data[0] = NULL
    if rows < room >> 1:
        moved = realloc(memory.data, size + 1)
        if moved != NULL:
            memory.data = moved
    return frombuffer(memory, dtype)


cdef object made_matches(object id, object segment, object start, object end, object level):
    """`Matches`, filled as its own constructor fills it, because it is frozen, but natively."""
    cdef object made = (<PyTypeObject*> Matches).tp_new(Matches, <PyObject*> nothing, NULL)
    PyObject_GenericSetAttr(made, "id", id)
    PyObject_GenericSetAttr(made, "segment", segment)
    PyObject_GenericSetAttr(made, "start", start)
    PyObject_GenericSetAttr(made, "end", end)
    PyObject_GenericSetAttr(made, "level", level)
    return made


cdef object matches_of(Sink* sink):
    """The pairs of a sink; what small ones lay in stays with it for the next."""
    cdef Py_ssize_t size = sink.size, room = sink.room
    cdef object made
    if size == 0:
        return no_matches
    made = made_matches(
        handed(<void**> &sink.id, size, room, INT64, 8),
        handed(<void**> &sink.segment, size, room, INT32, 4),
        handed(<void**> &sink.start, size, room, INT64, 8),
        handed(<void**> &sink.end, size, room, INT64, 8),
        handed(<void**> &sink.level, size, room, INT16, 2),
    )
    sink.size = 0
    if sink.id == NULL:
        sink.room = 0
    return made


def both(one, other):
    """The pairs of two answers as one."""
    if len(one.id) == 0:
        return other
    if len(other.id) == 0:
        return one
    return made_matches(
        chained(one.id, other.id, INT64, 8),
        chained(one.segment, other.segment, INT32, 4),
        chained(one.start, other.start, INT64, 8),
        chained(one.end, other.end, INT64, 8),
        chained(one.level, other.level, INT16, 2),
    )


cdef object chained(object one, object other, object dtype, Py_ssize_t width):
    """Two columns as one; numpy takes longer to look at them than to copy a few rows."""
    cdef Column first, second, target
    one = take_column(one, dtype, width, &first)
    other = take_column(other, dtype, width, &second)
    array = take_column(
        empty_array(first.rows + second.rows, dtype), dtype, width, &target
    )
    memcpy(target.data, first.data, first.rows * width)
    memcpy(<char*> target.data + first.rows * width, second.data, second.rows * width)
    leave_column(&first)
    leave_column(&second)
    leave_column(&target)
    return array


def chosen(inputs, rows):
    """Some of the inputs, by their places, without their SES labels."""
    cdef object made = (<PyTypeObject*> Inputs).tp_new(Inputs, <PyObject*> nothing, NULL)
    cdef Column column
    rows = take_column(rows, INT64, 8, &column)
    try:
        PyObject_GenericSetAttr(made, "id", picked(inputs.id, &column, INT64, 8))
        PyObject_GenericSetAttr(made, "segment", picked(inputs.segment, &column, INT32, 4))
        PyObject_GenericSetAttr(made, "start", picked(inputs.start, &column, INT64, 8))
        PyObject_GenericSetAttr(made, "end", picked(inputs.end, &column, INT64, 8))
        PyObject_GenericSetAttr(made, "level", picked(inputs.level, &column, INT16, 2))
        PyObject_GenericSetAttr(made, "rank", None)
        PyObject_GenericSetAttr(made, "last", None)
        PyObject_GenericSetAttr(made, "scheme", None)
    finally:
        leave_column(&column)
    return made


cdef object picked(object values, const Column* rows, object dtype, Py_ssize_t width):
    cdef Column source, target
    cdef const int64_t* places = <const int64_t*> rows.data
    cdef Py_ssize_t at
    cdef bint inside = True
    values = take_column(values, dtype, width, &source)
    array = take_column(empty_array(rows.rows, dtype), dtype, width, &target)
    for at in range(rows.rows):
        if not 0 <= places[at] < source.rows:
            inside = False
            break
        if width == 8:
            (<int64_t*> target.data)[at] = (<const int64_t*> source.data)[places[at]]
        elif width == 4:
            (<int32_t*> target.data)[at] = (<const int32_t*> source.data)[places[at]]
        else:
            (<int16_t*> target.data)[at] = (<const int16_t*> source.data)[places[at]]
    leave_column(&source)
    leave_column(&target)
    if not inside:
        raise IndexError("an input that was not given")
    return array
