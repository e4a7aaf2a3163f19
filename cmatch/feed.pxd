# What another kernel calls of an operator: a batch in C columns, instead of `Inputs`. A `Feeder` comes
# in a capsule, "fmware.cmatch.feeder", which keeps the operator's native part.

from libc.stdint cimport int16_t, int32_t, int64_t
from libc.stdlib cimport free
from libc.string cimport memset

# The columns of inputs. ADMatch does not look at `rank` and `last`.
ctypedef struct Batch:
    const int64_t* id
    const int32_t* segment
    const int64_t* start
    const int64_t* end
    const int16_t* level
    const int64_t* rank
    const int64_t* last
    Py_ssize_t count

# Pairs, in columns that grow by `realloc`. One of zeros is empty.
ctypedef struct Sink:
    int64_t* id
    int64_t* start
    int64_t* end
    int32_t* segment
    int16_t* level
    Py_ssize_t size
    Py_ssize_t room


cdef inline void drop_sink(Sink* sink) noexcept nogil:
    free(sink.id)
    free(sink.start)
    free(sink.end)
    free(sink.segment)
    free(sink.level)
    memset(sink, 0, sizeof(Sink))


# Take a batch, with the GIL, which is let go while lists are read. The pairs that are ready are put
# into the caller's sink, in place of what was there; its memory is used again, or exchanged. Not 0: more is
# to be done, and `Operator.resume`, with the same inputs, does it.
ctypedef int (*FeedBatch)(void* taker, const Batch* batch, Sink* pairs) except -1

# Where `shared`, several threads may feed at once, each with a sink of its own: there is no state that
# one batch leaves to another. Otherwise one thread at a time may. `stored` counts the inputs that were
# stored so far, because candidates of their label were still to come; it is NULL where none ever is.
ctypedef struct Feeder:
    void* taker
    FeedBatch feed
    bint shared
    const int64_t* stored
