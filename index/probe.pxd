# What another kernel calls of an index, without the GIL. A `Probe` comes in a capsule, which keeps
# the list: see `Postings.probe`.

from libc.stdint cimport int16_t, int64_t

# How many candidates each label has, removed ones included, and where they begin. Not 0: some block
# is not ready, or something is wrong, or the segment was closed, or this is a child of the process
# that opened it; `Segment.counts` gets the one and tells the others.
ctypedef int (*ProbeCounts)(
    void* postings, void* removed, const int64_t* ranks, const int64_t* lasts, Py_ssize_t count, int side,
    int64_t* sums, int64_t* lows,
) noexcept nogil

# The candidates, by label, in columns with `room` for all that were counted; how many, or -1.
ctypedef Py_ssize_t (*ProbeRows)(
    void* postings, void* removed, const int64_t* ranks, const int64_t* lasts, Py_ssize_t count,
    int side, const int64_t* sums, const int64_t* lows, Py_ssize_t room, int64_t* left,
    int64_t* start, int64_t* end, int16_t* level,
) noexcept nogil

ctypedef struct Probe:
    void* postings
    void* removed
    int side
    ProbeCounts counts
    ProbeRows rows

# What follows is called with the GIL. Its lists are kept by `removed`, until the segment is closed,
# and not by the capsule: a reader that forgets to drop it does not keep files open.

# The SES labels of rows of a tag, under the scheme with that number. Not 0: as above.
ctypedef int (*LabelsOf)(
    void* nodes, void* labels, void* removed, Py_ssize_t scheme, const int64_t* rows,
    Py_ssize_t count, int64_t* ranks, int64_t* lasts,
) noexcept

# See `Segment.labeller`.
ctypedef struct Labeller:
    void* nodes
    void* labels
    void* removed
    Py_ssize_t scheme
    LabelsOf get

ctypedef struct Text:
    const char* data
    Py_ssize_t size

# A node that has a key, which is given by its place among those that were asked for.
ctypedef struct Keyed:
    int64_t row
    int64_t start
    int64_t end
    Py_ssize_t key
    int16_t level

# The nodes of a tag that have some keys, by key, in memory with `room`; how many. -1: as above, or
# there are more.
ctypedef Py_ssize_t (*FindKeys)(
    void* keys, void* nodes, void* removed, const Text* texts, Py_ssize_t count, Keyed* found,
    Py_ssize_t room,
) noexcept

# See `Segment.finder`.
ctypedef struct Finder:
    void* keys
    void* nodes
    void* removed
    FindKeys find
