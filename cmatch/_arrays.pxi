# numpy columns as C memory.
#
# A batch of a few inputs takes a microsecond, and asking eleven arrays for their buffers would take
# another: numpy fills in a description that nobody reads. The head of an array is part of numpy's
# binary interface and has not changed since its first version; it is read directly, if a look at a
# known array, when this module is loaded, finds everything where it is expected. Otherwise, and for
# anything that is not a plain column, the buffer protocol is used.

cdef extern from *:
    """
    typedef struct {
        PyObject_HEAD
        char* data;
        int nd;
        Py_ssize_t* dimensions;
        Py_ssize_t* strides;
        PyObject* base;
        PyObject* descr;
        int flags;
    } ArrayHead;
    """
    ctypedef struct ArrayHead:
        char* data
        int nd
        Py_ssize_t* dimensions
        Py_ssize_t* strides
        PyObject* descr

INT64 = np.dtype(np.int64)
INT32 = np.dtype(np.int32)
INT16 = np.dtype(np.int16)
cdef object frombuffer = np.frombuffer
cdef object empty_array = np.empty
cdef object contiguous = np.ascontiguousarray
cdef type ndarray = np.ndarray


cdef bint heads_are_known() except -1:
    """Whether an array lies in memory as we think."""
    array = np.arange(24, dtype=np.int32).reshape(4, 6)[1:3, ::2]
    cdef ArrayHead* head
    if type(array).__basicsize__ < <Py_ssize_t> sizeof(ArrayHead):
        return False
    head = <ArrayHead*> <PyObject*> array
    return (
        <size_t> head.data == <size_t> array.ctypes.data
        and head.nd == 2 and head.dimensions[0] == 2 and head.dimensions[1] == 3
        and head.strides[0] == 24 and head.strides[1] == 8
        and head.descr == <PyObject*> array.dtype
    )


cdef bint direct = heads_are_known()


def look_directly(bint wanted):
    """Whether heads of arrays are read; for tests, which turn it off. Gives what it was."""
    global direct
    cdef bint before = direct
    direct = wanted and heads_are_known()
    return before


ctypedef struct Column:
    void* data
    Py_ssize_t rows
    Py_buffer view
    bint held            # the buffer is to be released


cdef object take_column(object array, object dtype, Py_ssize_t width, Column* column):
    """The memory of a column; answers with the array that keeps it."""
    cdef ArrayHead* head
    column.held = False
    if direct and type(array) is ndarray:
        head = <ArrayHead*> <PyObject*> array
        if head.nd == 1 and head.descr == <PyObject*> dtype and head.strides[0] == width:
            column.data = head.data
            column.rows = head.dimensions[0]
            return array
    array = contiguous(array, dtype)
    PyObject_GetBuffer(array, &column.view, PyBUF_SIMPLE)
    column.held = True
    column.data = column.view.buf
    column.rows = column.view.len // width
    return array


cdef inline void leave_column(Column* column) noexcept:
    if column.held:
        PyBuffer_Release(&column.view)
        column.held = False


cdef object copied(const void* data, Py_ssize_t rows, object dtype, Py_ssize_t width):
    """A new array with these rows."""
    cdef Column column
    array = empty_array(rows, dtype)
    array = take_column(array, dtype, width, &column)
    memcpy(column.data, data, rows * width)
    leave_column(&column)
    return array
