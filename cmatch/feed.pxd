# What another kernel calls of CMatch: a batch in C columns, instead of `Inputs`. A `Feeder` comes in
# a capsule, which keeps CClean: see `Cleaner.feeder`.

from libc.stdint cimport int16_t, int32_t, int64_t

# The columns of inputs. `last` is NULL where only labels that are known are asked for.
ctypedef struct Batch:
    const int64_t* id
    const int32_t* segment
    const int64_t* start
    const int64_t* end
    const int16_t* level
    const int64_t* rank
    const int64_t* last
    Py_ssize_t count

# Pairs, in columns that grow.
ctypedef struct Sink:
    int64_t* id
    int64_t* start
    int64_t* end
    int32_t* segment
    int16_t* level
    Py_ssize_t size
    Py_ssize_t room

# Take a batch, with the GIL. `pairs` are those that are ready; they stay until the next call. Not 0:
# more is to be done, and `CMatch.resume`, with the same inputs, does it.
ctypedef int (*FeedBatch)(void* cleaner, const Batch* batch, const Sink** pairs) except -1

ctypedef struct Feeder:
    void* cleaner
    FeedBatch feed
