# The columns in which a batch of messages collects what was found. Part of _kernel.pyx, which
# includes it.

cpdef enum Want:
    # What a statement asks to be given of its matches.
    NAME = 0        # that it matches
    TUPLES = 1      # its path tuples
    SELECTED = 2    # the nodes at the end of its tuples, each once
    CROSSING = 3    # its path tuples, for the local corpus to decide on

cdef enum:
    TOLD = 3        # numbers of a tuple in Found.told
    CROSSED = 4     # numbers of a statement in Found.crossed
    TRIES = 16      # reads of a message while statements with new names keep coming

cdef struct Narrow:
    int32_t* items
    int64_t count
    int64_t room

cdef struct Wide:
    int64_t* items
    int64_t count
    int64_t room

ctypedef fused Column:
    Narrow
    Wide

cdef struct Found:
    # What a batch has found so far; messages follow each other.
    Narrow ids         # statements that asked for their name
    Wide told          # (statement, where its rows begin, how many they are) of each tuple
    Wide crossed       # (statement, where its rows begin, tuples, rows of a tuple)
    Narrow rows        # rows of tuples
    Narrow undecided   # statements
    Narrow truncated   # statements


cdef bint reserve(Column* column, int64_t more) noexcept nogil:
    # Make room for so many items more; False: no memory.
    cdef int64_t room
    cdef void* grown
    if column.count + more <= column.room:
        return True
    room = max(column.count + more, column.room * 2, 256)
    grown = realloc(column.items, <size_t>room * sizeof(column.items[0]))
    if grown == NULL:
        return False
    if Column is Narrow:
        column.items = <int32_t*>grown
    else:
        column.items = <int64_t*>grown
    column.room = room
    return True


cdef inline void append(Column* column, int64_t item) noexcept nogil:
    # REQUIRES: `reserve` has made room.
    if Column is Narrow:
        column.items[column.count] = <int32_t>item
    else:
        column.items[column.count] = item
    column.count += 1
