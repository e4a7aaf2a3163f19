# What another kernel calls of an index, without the GIL unless it says otherwise. All of it comes in
# capsules. A capsule keeps no list: `removed`, which it does keep, has them until the segment is closed.
# Closing waits for calls that have begun; a call that begins later is refused. So a reader that
# forgets to drop a capsule does not keep files open, and one that calls it need hold nothing but it.

from libc.stdint cimport int16_t, int64_t, uint8_t

# --- by SES label: `Segment.probe` --------------------------------------------------------------

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

# Of which labels the two above would wait for pages that are not in memory: they are marked with 1, others
# stay as they are. No such page is touched. With NULL for the marks, all that the two will touch is
# announced to the system instead, to be read at once. Not 0: some block is not ready, or as above;
# `Segment.cold` tells, or `Segment.prepare`.
ctypedef int (*ProbeCold)(
    void* postings, void* removed, const int64_t* ranks, const int64_t* lasts, Py_ssize_t count,
    int side, uint8_t* cold,
) noexcept nogil

ctypedef struct Probe:
    void* postings
    void* removed
    int side
    ProbeCounts counts
    ProbeRows rows
    ProbeCold cold

# --- by AD label: `Segment.related` -------------------------------------------------------------

# Axes, in the order in which `cmatch.Axis` has them.
cdef enum:
    AD_CHILD = 0
    AD_DESCENDANT = 1
    AD_SELF = 2
    AD_PARENT = 3
    AD_ANCESTOR = 4

# Pairs of an anchor, by its place among those that were given, and a node, in columns that grow by
# `realloc`. They are the caller's.
ctypedef struct Related:
    int64_t* left
    int64_t* start
    int64_t* end
    int16_t* level
    Py_ssize_t size
    Py_ssize_t room

# Add the pairs of anchors on an axis, less removed nodes. Not 0: nothing was added; some block is not
# ready, or something is wrong, and `fetch` is to be called.
ctypedef int (*RelateNodes)(
    void* nodes, void* removed, int axis, const int64_t* starts, const int64_t* ends,
    const int16_t* levels, Py_ssize_t count, Related* pairs,
) noexcept nogil

# The same, called with the GIL, which it lets go while it reads lists: it gets blocks that are not
# ready, and says what is wrong with them. Not 0: the segment was closed, or this is a child of the
# process that opened it; `Segment.related` tells.
ctypedef int (*FetchRelated)(
    void* nodes, void* removed, int axis, const int64_t* starts, const int64_t* ends,
    const int16_t* levels, Py_ssize_t count, Related* pairs,
) except -1

ctypedef struct RelatedProbe:
    void* nodes
    void* removed
    RelateNodes get
    FetchRelated fetch

# --- labels of rows: `Segment.labeller` ---------------------------------------------------------

# The SES labels of rows of a tag, under the scheme with that number. Not 0: as above.
ctypedef int (*LabelsOf)(
    void* nodes, void* labels, void* removed, Py_ssize_t scheme, const int64_t* rows,
    Py_ssize_t count, int64_t* ranks, int64_t* lasts,
) noexcept nogil

ctypedef struct Labeller:
    void* nodes
    void* labels
    void* removed
    Py_ssize_t scheme
    LabelsOf get

# --- rows by key: `Segment.finder` --------------------------------------------------------------

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
) noexcept nogil

ctypedef struct Finder:
    void* keys
    void* nodes
    void* removed
    FindKeys find
