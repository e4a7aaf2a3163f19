# AD-only match: batches that are looked up in the lists of some tags, in all segments.

ctypedef struct Walk:
    # Anchors by segment, and the list at which a walk over all lists of each segment stands.
    const int64_t* id
    const int32_t* segment
    const int64_t* start
    const int64_t* end
    const int16_t* level
    Py_ssize_t count
    Py_ssize_t low       # the anchors of the segment that is asked now
    Py_ssize_t high
    Py_ssize_t tag
    void* memory         # of columns that had to be sorted


cdef int begin_walk(const Batch* batch, Py_ssize_t segments, Walk* walk) noexcept nogil:
    """Have the anchors of a batch by segment. FINISHED: one is of a segment that is not there."""
    cdef Py_ssize_t row
    cdef bint ordered = True
    memset(walk, 0, sizeof(Walk))
    for row in range(batch.count):
        if not 0 <= batch.segment[row] < segments:
            return FINISHED
        if row and batch.segment[row - 1] > batch.segment[row]:
            ordered = False
    walk.count = batch.count
    if not ordered:
        return sort_walk(batch, segments, walk)
    walk.id, walk.segment, walk.level = batch.id, batch.segment, batch.level
    walk.start, walk.end = batch.start, batch.end
    return FINE


cdef int sort_walk(const Batch* batch, Py_ssize_t segments, Walk* walk) noexcept nogil:
    cdef Py_ssize_t count = batch.count, row, at
    cdef Py_ssize_t* places = <Py_ssize_t*> calloc(segments + 1, sizeof(Py_ssize_t))
    cdef int64_t* ids = <int64_t*> malloc(count * 30)
    cdef int64_t* starts = ids + count
    cdef int64_t* ends = starts + count
    cdef int32_t* own = <int32_t*> (ends + count)
    cdef int16_t* levels = <int16_t*> (own + count)
    if places == NULL or ids == NULL:
        free(places)
        free(ids)
        return NO_MEMORY
    for row in range(count):
        places[batch.segment[row] + 1] += 1
    for at in range(segments):
        places[at + 1] += places[at]
    for row in range(count):
        at = places[batch.segment[row]]
        places[batch.segment[row]] += 1
        ids[at], own[at], levels[at] = batch.id[row], batch.segment[row], batch.level[row]
        starts[at], ends[at] = batch.start[row], batch.end[row]
    free(places)
    walk.memory = ids
    walk.id, walk.segment, walk.level, walk.start, walk.end = ids, own, levels, starts, ends
    return FINE


cdef inline Related related_of(const Sink* sink) noexcept nogil:
    """A sink as an index takes it: ids are places of anchors, until `gain` says which these are."""
    cdef Related pairs
    pairs.left, pairs.start, pairs.end, pairs.level = sink.id, sink.start, sink.end, sink.level
    pairs.size, pairs.room = sink.size, sink.room
    return pairs


cdef int gain(const Walk* walk, const Related* pairs, Sink* sink) noexcept nogil:
    """Take over what an index has put into the columns of a sink."""
    cdef Py_ssize_t row, before = sink.size
    cdef int32_t segment = walk.segment[walk.low]
    cdef const int64_t* ids = walk.id + walk.low
    cdef void* moved
    sink.id, sink.start, sink.end, sink.level = pairs.left, pairs.start, pairs.end, pairs.level
    if pairs.room > sink.room:
        moved = resized(sink.segment, pairs.room * sizeof(int32_t))
        if moved == NULL:
            return NO_MEMORY
        sink.segment = <int32_t*> moved
        sink.room = pairs.room
    for row in range(before, pairs.size):
        sink.id[row] = ids[sink.id[row]]
    for row in range(before, pairs.size):
        sink.segment[row] = segment
    sink.size = pairs.size
    return FINE


cdef int walk_on(
    Walk* walk, const RelatedProbe** lists, Py_ssize_t tags, int axis, Sink* sink
) noexcept nogil:
    """Look up anchors in list after list. LATER: it stands at one that is not ready."""
    cdef const RelatedProbe* probe
    cdef Related pairs
    cdef int status, gained
    while walk.low < walk.count:
        while walk.high < walk.count and walk.segment[walk.high] == walk.segment[walk.low]:
            walk.high += 1
        while walk.tag < tags:
            probe = <const RelatedProbe*> load_ready(
                lists[walk.segment[walk.low] * tags + walk.tag]
            )
            if probe == NULL:
                return LATER
            pairs = related_of(sink)
            status = probe.get(
                probe.nodes, probe.removed, axis, walk.start + walk.low, walk.end + walk.low,
                walk.level + walk.low, walk.high - walk.low, &pairs,
            )
            gained = gain(walk, &pairs, sink)
            if status or gained:
                return gained if gained else LATER
            walk.tag += 1
        walk.low = walk.high
        walk.tag = 0
    return FINE


@cython.final
cdef class Prober:
    """ADMatch, natively; see `fmware.cmatch.admatch`. Threads may use it at once.

    The GIL guards what is counted, and the memory that is kept for pairs.
    """

    cdef int axis
    cdef str name
    cdef Lists lists
    cdef bint shut
    cdef Sink spare
    cdef readonly int64_t inputs
    cdef readonly int64_t pairs
    cdef readonly int64_t nanoseconds
    cdef public object look          # takes a batch that has more inputs than are `ahead`
    cdef public int64_t ahead

    def __cinit__(self, *arguments):
        memset(&self.spare, 0, sizeof(Sink))

    def __init__(self, int axis, str name not None):
        if not CHILD <= axis <= ANCESTOR:
            raise ValueError(f"no axis {axis}")
        self.axis = axis
        self.name = name
        self.ahead = INT64_MAX

    def __dealloc__(self):
        drop_sink(&self.spare)

    def aim(self, segments, tags):
        """Ask these segments for nodes of these tags, from the next batch on."""
        self.lists = Lists(segments, tags)

    def feed(self, inputs):
        """The pairs of a batch."""
        cdef Held held
        cdef Sink sink = self.spare
        memset(&self.spare, 0, sizeof(Sink))
        clear(&held)
        try:
            hold_anchors(inputs, &held)
            if held.batch.count > self.ahead:
                return self.look(inputs)
            self.match(&held.batch, &sink)
            return matches_of(&sink)
        finally:
            leave(&held)
            if self.spare.id == NULL and sink.room * 8 <= SMALL:
                self.spare = sink
            else:
                drop_sink(&sink)

    def feeder(self):
        """A capsule with a `Feeder`, for other kernels, which threads may share; it keeps this.

        A batch that is to be looked at is not taken: the caller has it resumed.
        """
        return feeder_of(self, <FeedBatch> match_batch, True, NULL)

    def close(self):
        """Take no more batches, and let go of the index."""
        self.shut = True
        self.lists = None
        self.look = None
        self.ahead = INT64_MAX

    @property
    def closed(self):
        return self.shut

    cdef int match(self, const Batch* batch, Sink* sink) except -1:
        cdef int64_t began = nanoseconds()
        cdef Lists lists = self.lists
        cdef Walk walk
        cdef int status
        sink.size = 0
        if self.shut:
            raise OperatorClosed(self.name)
        with nogil:
            status = begin_walk(batch, PyTuple_GET_SIZE(lists.segments), &walk)
        try:
            while status == FINE and walk.low < walk.count:
                with nogil:
                    status = walk_on(
                        &walk, <const RelatedProbe**> lists.at, PyTuple_GET_SIZE(lists.tags), self.axis, sink
                    )
                if status == LATER:
                    status = self.fetch(lists, &walk, sink)
        finally:
            free(walk.memory)
        if status == FINISHED:
            raise IndexError(f"an input of a segment that is not among {len(lists.segments)}")
        if status:
            raise MemoryError("no memory for pairs")
        self.inputs += batch.count
        self.ahead -= batch.count
        self.pairs += sink.size
        self.nanoseconds += nanoseconds() - began
        return 0

    cdef int fetch(self, Lists lists, Walk* walk, Sink* sink) except -1:
        """Open the list at which a walk stands, get its blocks, and go on to the next."""
        cdef Py_ssize_t segment = walk.segment[walk.low]
        cdef const RelatedProbe* probe = <const RelatedProbe*> lists.get(segment, walk.tag)
        cdef Related pairs = related_of(sink)
        cdef int status, gone
        if probe == NULL:
            capsule = lists.segments[segment].related(lists.tags[walk.tag])
            probe = <const RelatedProbe*> lists.put(segment, walk.tag, capsule, "fmware.index.related")
        try:
            gone = probe.fetch(
                probe.nodes, probe.removed, self.axis, walk.start + walk.low,
                walk.end + walk.low, walk.level + walk.low, walk.high - walk.low, &pairs,
            )
        finally:
            status = gain(walk, &pairs, sink)
        if gone:
            # It says why: closed, or forked.
            lists.segments[segment].related(lists.tags[walk.tag])
            raise OperatorClosed(self.name)
        walk.tag += 1
        return status


cdef int match_batch(Prober prober, const Batch* batch, Sink* pairs) except -1:
    if batch.count > prober.ahead:
        pairs.size = 0
        return 1
    return prober.match(batch, pairs)
