# `labels.*` and `ses.*` lists: the nodes of one tag by SES label.

cdef enum:
    WITHIN = 0           # labels inside the given one
    AROUND = 1           # labels around it
    EXACT = 2            # the label itself

cdef enum:
    FEW_SCANS = 32       # scans whose answers are not counted first

ctypedef struct LabelBlock:
    const uint32_t* rank        # NULL until the block is ready
    const uint32_t* last
    const uint32_t* up
    const uint32_t* count
    const uint64_t* begin

ctypedef struct SesBlock:
    const int64_t* start        # NULL until the block is ready
    const uint32_t* length
    const uint16_t* level


cdef class LabelRows(Blocks):
    """The SES labels of a tag under one scheme, by rank, and where their postings lie."""

    cdef LabelBlock* blocks

    def __cinit__(self, *arguments, **options):
        self.blocks = NULL

    def __init__(self, source, directory, lock):
        super().__init__(source, directory, lock)
        self.blocks = <LabelBlock*> calloc(self.count + 1, sizeof(LabelBlock))
        if self.blocks == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.blocks)

    cdef bint adopt(self, Py_ssize_t block, const uint8_t* data, Py_ssize_t size) noexcept:
        cdef LabelBlock* taken = &self.blocks[block]
        cdef Py_ssize_t rows = self.rows_of(block)
        cdef Py_ssize_t wide = padded(4 * rows)
        if size < 8 + 4 * wide + 8 * rows:
            return False
        data += 8
        if (<const uint32_t*> data)[0] != self.first[block]:
            return False
        taken.last = <const uint32_t*> (data + wide)
        taken.up = <const uint32_t*> (data + 2 * wide)
        taken.count = <const uint32_t*> (data + 3 * wide)
        taken.begin = <const uint64_t*> (data + 4 * wide)
        store_ready(taken.rank, data)
        return True

    cdef inline bint lacks(self, Py_ssize_t block) noexcept nogil:
        return load_ready(self.blocks[block].rank) == NULL

    cdef inline bint stops(self, Py_ssize_t block, Halt* halt) noexcept nogil:
        """Whether a scan must stop before it looks into a block; it is then told why."""
        if not self.lacks(block) and (halt.scout == NULL or self.passes(block, halt.scout)):
            return False
        halt.low = halt.high = block
        return True

    cdef int before(self, uint32_t rank, Halt* halt, int64_t* row) noexcept nogil:
        """The last row whose rank is not above the given one; -1 if there is none."""
        cdef Py_ssize_t block
        row[0] = -1
        if rank < self.first[0]:
            return DONE
        block = block_of(self.first, self.count, 0, rank)
        if self.stops(block, halt):
            return WANTING
        row[0] = <int64_t> self.begin[block] - 1
        row[0] += above(self.blocks[block].rank, self.rows_of(block), rank)
        return DONE

    cdef int before_each(
        self, const int64_t* ranks, const int64_t* lasts, Py_ssize_t number, int side, Halt* halt,
        int64_t* rows,
    ) noexcept nogil:
        """`before` for some labels, TURNS at most, as a scan on a side of each begins with it.

        The searches take turns, so that they wait for memory together; what is looked at next is
        fetched ahead.
        """
        cdef Search searches[TURNS]
        cdef Search* search
        cdef LabelBlock* held
        cdef int64_t key
        cdef Py_ssize_t at, row
        for at in range(number):
            search = &searches[at]
            search.low = NULL
            search.rows = 0
            if not is_label(ranks[at], lasts[at]):
                continue
            key = min(lasts[at], <int64_t> NO_ROW - 1) if side == WITHIN else ranks[at]
            if <uint64_t> key < self.first[0]:
                continue
            search.block = block_of(self.first, self.count, 0, <uint64_t> key)
            if self.stops(search.block, halt):
                return WANTING
            search.low = self.blocks[search.block].rank
            search.rows = self.rows_of(search.block)
            search.key = <uint32_t> key
        above_each(searches, number)
        for at in range(number):
            search = &searches[at]
            rows[at] = -1
            if search.low != NULL:
                held = &self.blocks[search.block]
                row = search.low - held.rank - 1
                rows[at] = <int64_t> self.begin[search.block] + row
                prefetch(held.begin + row)
                prefetch(held.count + row)
        return DONE

    def at(self, rows):
        """(rank, last) of some rows, as int64; -1 for row -1."""
        cdef Column source = Column(rows, 8)
        cdef Py_ssize_t count = source.view.len >> 3
        ranks = np.empty(count, np.int64)
        lasts = np.empty(count, np.int64)
        cdef Column low = Column(ranks, 8), high = Column(lasts, 8)
        cdef Halt halt
        cdef int state
        halt.at = 0
        while True:
            with nogil:
                state = self.gather(
                    <const int64_t*> source.view.buf, count, &halt, <int64_t*> low.view.buf,
                    <int64_t*> high.view.buf,
                )
            if state == BROKEN:
                raise IndexError(f"no row {rows[halt.at]} in a list of {self.rows}")
            if not self.resume(state, &halt):
                return ranks, lasts

    def labeller(self, Nodes nodes not None, Py_ssize_t scheme, Removed removed not None):
        """A capsule with a `Labeller` of rows of `nodes`; `removed` keeps both lists."""
        cdef Labeller* labeller
        if not 0 <= scheme < nodes.schemes:
            raise IndexError(f"no scheme {scheme} in a list of {nodes.schemes}")
        labeller = <Labeller*> malloc(sizeof(Labeller))
        if labeller == NULL:
            raise MemoryError
        labeller.nodes = <void*> nodes
        labeller.labels = <void*> self
        labeller.removed = <void*> removed
        labeller.scheme = scheme
        labeller.get = <LabelsOf> labels_of
        removed.keep(nodes)
        removed.keep(self)
        Py_INCREF(removed)
        return PyCapsule_New(labeller, LABELLER, drop_labeller)

    cdef int gather(
        self,
        const int64_t* rows,
        Py_ssize_t count,
        Halt* halt,
        int64_t* ranks,
        int64_t* lasts,
    ) noexcept nogil:
        cdef Py_ssize_t at, row, block = 0
        for at in range(halt.at, count):
            if rows[at] == -1:
                ranks[at] = lasts[at] = -1
                continue
            if not 0 <= rows[at] < self.rows:
                halt.at = at
                return BROKEN
            block = self.block_of_row(block, rows[at])
            if self.lacks(block):
                halt.at = at
                halt.low = halt.high = block
                return WANTING
            row = <Py_ssize_t> (rows[at] - <int64_t> self.begin[block])
            ranks[at] = self.blocks[block].rank[row]
            lasts[at] = self.blocks[block].last[row]
        return DONE


cdef const char* LABELLER = "fmware.index.labeller"


cdef void drop_labeller(object capsule) noexcept:
    cdef Labeller* labeller = <Labeller*> PyCapsule_GetPointer(capsule, LABELLER)
    Py_DECREF(<object> labeller.removed)
    free(labeller)


cdef int labels_of(
    Nodes nodes, LabelRows labels, Removed removed, Py_ssize_t scheme, const int64_t* rows,
    Py_ssize_t count, int64_t* ranks, int64_t* lasts,
) noexcept nogil:
    cdef Halt halt
    cdef int state
    halt.at = 0
    if not removed.enter():
        return BROKEN
    # The rows in the list of labels lie in `lasts` until they are looked up.
    state = nodes.gather_labels(rows, count, scheme, &halt, lasts)
    if state == DONE:
        halt.at = 0
        state = labels.gather(lasts, count, &halt, ranks, lasts)
    removed.leave()
    return state


# The labels that a scan takes: for WITHIN and EXACT one run of postings, for AROUND a label at a
# time, from the nearest up. `row` is the label to look at next, -1 when there is none left; `taken`,
# how many were, on the way up.
ctypedef struct Span:
    int64_t row
    int64_t low
    int64_t high
    int64_t taken


cdef enum:
    UNKNOWN = -2         # the row at which a scan begins is to be searched for


cdef inline bint is_label(int64_t rank, int64_t last) noexcept nogil:
    return 0 <= rank <= last and rank < NO_ROW


cdef int first_span(
    LabelRows labels, uint32_t rank, uint32_t last, int side, int64_t high, Halt* halt, Span* span
) noexcept nogil:
    """The first run of postings of a scan; low == high if it is empty.

    `high` is what `before_each` has found, or UNKNOWN.
    """
    cdef int64_t low
    cdef int state = DONE
    span.row = -1
    span.low = span.high = span.taken = 0
    if high == UNKNOWN:
        state = labels.before(rank if side != WITHIN else last, halt, &high)
    if state or high < 0:
        return state
    if side == AROUND:
        span.row = high
        return next_span(labels, rank, halt, span)
    if side == EXACT:
        low = high
        state = label_span(labels, low, halt, &span.low, &span.high)
        if state == DONE and rank_of(labels, low) != rank:
            span.low = span.high = 0
        return state
    if rank_of(labels, high) < rank:
        # Nothing lies between: most labels of one tag have no node of another in them.
        return DONE
    state = lowest_row(labels, rank, high, halt, &low)
    if state:
        return state
    state = label_span(labels, low, halt, &span.low, &span.high)
    if state == DONE and high > low:
        state = label_span(labels, high, halt, &low, &span.high)
    if state == DONE and span.high < span.low:
        halt.low = labels.block_of_row(0, high)
        return BROKEN
    return state


cdef int lowest_row(
    LabelRows labels, uint32_t rank, int64_t high, Halt* halt, int64_t* low
) noexcept nogil:
    """The first row whose rank is not below the given one; that of `high` is not. Most are near."""
    cdef Py_ssize_t block = labels.block_of_row(0, high)
    cdef const uint32_t* ranks = labels.blocks[block].rank
    cdef Py_ssize_t at = <Py_ssize_t> (high - <int64_t> labels.begin[block]), step = 1, bottom
    cdef int state
    low[0] = 0
    if rank == 0:
        return DONE
    while at >= step and ranks[at - step] >= rank:
        at -= step
        step <<= 1
    bottom = max(at - step, <Py_ssize_t> 0)
    if ranks[bottom] >= rank and block:
        # It may lie in a block before.
        state = labels.before(rank - 1, halt, low)
        low[0] += 1
        return state
    low[0] = <int64_t> labels.begin[block] + bottom + above(ranks + bottom, at - bottom, rank - 1)
    return DONE


cdef int next_span(LabelRows labels, uint32_t rank, Halt* halt, Span* span) noexcept nogil:
    """The next label up that encloses the rank; low == high and row == -1 if there is none."""
    cdef Py_ssize_t block = 0, row
    cdef LabelBlock* held
    cdef uint32_t up
    while span.row >= 0:
        block = labels.block_of_row(block, span.row)
        if labels.stops(block, halt):
            return WANTING
        held = &labels.blocks[block]
        row = <Py_ssize_t> (span.row - <int64_t> labels.begin[block])
        up = held.up[row]
        if up != NO_ROW and up >= span.row:
            halt.low = block
            return BROKEN
        span.row = -1 if up == NO_ROW else <int64_t> up
        if held.last[row] >= rank:
            span.low = <int64_t> held.begin[row]
            span.high = span.low + held.count[row]
            span.taken += 1
            return DONE
    span.low = span.high = 0
    return DONE


cdef int label_span(
    LabelRows labels, int64_t row, Halt* halt, int64_t* low, int64_t* high
) noexcept nogil:
    cdef Py_ssize_t block = labels.block_of_row(0, row)
    cdef Py_ssize_t at
    if labels.stops(block, halt):
        return WANTING
    at = <Py_ssize_t> (row - <int64_t> labels.begin[block])
    low[0] = <int64_t> labels.blocks[block].begin[at]
    high[0] = low[0] + labels.blocks[block].count[at]
    return DONE


cdef inline uint32_t rank_of(LabelRows labels, int64_t row) noexcept nogil:
    cdef Py_ssize_t block = labels.block_of_row(0, row)
    return labels.blocks[block].rank[row - <int64_t> labels.begin[block]]


cdef class Postings(Blocks):
    """The nodes of a tag, sorted by SES label under one scheme, then by start."""

    cdef readonly LabelRows labels
    cdef SesBlock* blocks

    def __cinit__(self, *arguments, **options):
        self.blocks = NULL

    def __init__(self, source, directory, lock, LabelRows labels not None):
        super().__init__(source, directory, lock)
        self.labels = labels
        self.blocks = <SesBlock*> calloc(self.count + 1, sizeof(SesBlock))
        if self.blocks == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.blocks)

    cdef bint adopt(self, Py_ssize_t block, const uint8_t* data, Py_ssize_t size) noexcept:
        cdef SesBlock* taken = &self.blocks[block]
        cdef Py_ssize_t rows = self.rows_of(block)
        if size < 8 + 8 * rows + padded(4 * rows) + 2 * rows:
            return False
        taken.length = <const uint32_t*> (data + 8 + 8 * rows)
        taken.level = <const uint16_t*> (data + 8 + 8 * rows + padded(4 * rows))
        store_ready(taken.start, data + 8)
        return True

    cdef inline bint lacks(self, Py_ssize_t block) noexcept nogil:
        return load_ready(self.blocks[block].start) == NULL

    # A scan stops for blocks of two lists. What it says for the labels' list it says with these.
    cdef int emit(self, Sink* sink, int64_t left, Span* span, Halt* halt) noexcept nogil:
        """Give the postings of a span to the sink."""
        cdef Py_ssize_t block, last, low, high
        if span.low >= span.high:
            return DONE
        if span.high > self.rows:
            halt.low = -1
            return BROKEN
        block = self.block_of_row(0, span.low)
        last = self.block_of_row(block, span.high - 1)
        for low in range(block, last + 1):
            if self.lacks(low):
                halt.low = block
                halt.high = last
                return WANTING
        if halt.scout != NULL:
            return self.explore(span, block, last, halt.scout)
        if not grow(sink, <Py_ssize_t> (span.high - span.low)):
            return NO_MEMORY
        low = <Py_ssize_t> (span.low - <int64_t> self.begin[block])
        while block <= last:
            high = self.rows_of(block)
            if block == last:
                high = <Py_ssize_t> (span.high - <int64_t> self.begin[block])
            put_postings(sink, left, &self.blocks[block], low, high)
            block += 1
            low = 0
        return DONE

    cdef int explore(
        self, const Span* span, Py_ssize_t block, Py_ssize_t last, Scout* scout
    ) noexcept nogil:
        """Ask for the pages of a span, or announce them."""
        cdef Py_ssize_t low = <Py_ssize_t> (span.low - <int64_t> self.begin[block]), high
        cdef SesBlock* held
        while block <= last:
            held = &self.blocks[block]
            high = self.rows_of(block)
            if block == last:
                high = <Py_ssize_t> (span.high - <int64_t> self.begin[block])
            if scout.announces:
                announce(held.start + low, (high - low) * sizeof(int64_t))
                announce(held.length + low, (high - low) * sizeof(uint32_t))
                announce(held.level + low, (high - low) * sizeof(uint16_t))
            elif not self.is_whole(block, scout) and not (
                in_memory(held.start + low, (high - low) * sizeof(int64_t))
                and in_memory(held.length + low, (high - low) * sizeof(uint32_t))
                and in_memory(held.level + low, (high - low) * sizeof(uint16_t))
            ):
                scout.cold = True
                return WANTING
            block += 1
            low = 0
        return DONE

    cdef int collect(
        self,
        const int64_t* ranks,
        const int64_t* lasts,
        Py_ssize_t count,
        int side,
        Halt* halt,
        bint* of_labels,
        Sink* sink,
        int64_t* sums,
        int64_t* lows=NULL,
        int64_t* climbs=NULL,
    ) noexcept nogil:
        """The postings of many scans, or, into `sums`, only how many there are.

        `lows` is filled in then, too: where the first run of postings of each begins; and `climbs`:
        how many labels each took on its way up.
        """
        cdef Py_ssize_t at, size, first = halt.at, turn
        cdef int64_t highs[TURNS]
        cdef int state
        cdef Span span
        for at in range(first, count):
            halt.at = at
            size = sink.size
            turn = (at - first) % TURNS
            if sums != NULL:
                sums[at] = 0
                if turn == 0:
                    of_labels[0] = True
                    state = self.labels.before_each(
                        ranks + at, lasts + at, min(<Py_ssize_t> TURNS, count - at), side, halt,
                        highs,
                    )
                    if state:
                        return state
            if not is_label(ranks[at], lasts[at]):
                continue
            of_labels[0] = True
            state = first_span(
                self.labels, <uint32_t> ranks[at], <uint32_t> min(lasts[at], <int64_t> NO_ROW - 1),
                side, highs[turn] if sums != NULL else UNKNOWN, halt, &span,
            )
            if lows != NULL:
                lows[at] = span.low
            while state == DONE:
                if sums != NULL:
                    sums[at] += span.high - span.low
                else:
                    of_labels[0] = False
                    state = self.emit(sink, at, &span, halt)
                    if state != DONE:
                        break
                    of_labels[0] = True
                if span.row < 0:
                    break
                state = next_span(self.labels, <uint32_t> ranks[at], halt, &span)
            if state != DONE:
                sink.size = size
                return state
            if climbs != NULL:
                climbs[at] = span.taken
        return DONE

    def scan(self, int64_t rank, int64_t last, int side, Removed removed):
        """(None, start, end, level) of the postings on one side of one label.

        What lies in one block is not copied: `start` and `level` are then views of the block.
        """
        cdef Sink sink
        cdef Span span
        cdef Halt halt
        cdef int state
        halt.scout = NULL
        if (
            side != AROUND and 0 <= rank <= last and rank < NO_ROW
            and self.count and self.labels.count and (removed is None or not removed.count)
        ):
            while True:
                state = first_span(
                    self.labels, <uint32_t> rank, <uint32_t> min(last, <int64_t> NO_ROW - 1), side,
                    UNKNOWN, &halt, &span,
                )
                if not self.labels.resume(state, &halt):
                    break
            if span.high - span.low and span.high <= self.rows:
                found = self._slice(span.low, span.high)
                if found is not None:
                    return found
        fresh(&sink, False)
        try:
            self._collect(&rank, &last, 1, side, &sink, NULL, removed)
            return columns(&sink)
        finally:
            drop(&sink)

    cdef object _slice(self, int64_t low, int64_t high):
        """A run of postings without copying them, if it lies in one block."""
        cdef Py_ssize_t block = self.block_of_row(0, low)
        cdef Py_ssize_t at, row, count = <Py_ssize_t> (high - low)
        cdef SesBlock* held
        cdef int64_t* ends
        if high > <int64_t> self.begin[block + 1]:
            return None
        self.load(block, block)
        held = &self.blocks[block]
        at = <Py_ssize_t> (low - <int64_t> self.begin[block])
        ends = <int64_t*> malloc(count * sizeof(int64_t))
        if ends == NULL:
            raise MemoryError
        for row in range(count):
            ends[row] = held.start[at + row] + held.length[at + row]
        return (
            None,
            frombuffer(borrowed(held.start + at, count * sizeof(int64_t), self), INT64),
            adopted(ends, count * sizeof(int64_t), INT64, 8),
            frombuffer(borrowed(held.level + at, count * sizeof(int16_t), self), INT16),
        )

    def scans(self, ranks, lasts, int side, Removed removed):
        """(left, start, end, level) of the postings on one side of each label."""
        cdef Column low = Column(ranks, 8), high = Column(lasts, 8)
        cdef Sink sink
        if low.view.len != high.view.len:
            raise ValueError("the columns of the labels are not of one length")
        fresh(&sink, True)
        try:
            # Room for many is made once: to touch new memory costs more than to look twice.
            if low.view.len >> 3 > FEW_SCANS and not grow(
                &sink, int(self.counts(ranks, lasts, side).sum())
            ):
                raise MemoryError
            self._collect(
                <const int64_t*> low.view.buf, <const int64_t*> high.view.buf,
                low.view.len >> 3, side, &sink, NULL, removed,
            )
            return columns(&sink)
        finally:
            drop(&sink)

    def counts(self, ranks, lasts, int side):
        """How many postings each scan would give, removed ones included."""
        return self.sizes(ranks, lasts, side)[0]

    def sizes(self, ranks, lasts, int side):
        """The same, and how many labels it would take one by one: on the way up, if it goes there."""
        cdef Column low = Column(ranks, 8), high = Column(lasts, 8)
        sums = np.zeros(low.view.len >> 3, np.int64)
        taken = np.zeros(low.view.len >> 3, np.int64)
        cdef Column target = Column(sums, 8), climbs = Column(taken, 8)
        cdef Sink sink
        if low.view.len != high.view.len:
            raise ValueError("the columns of the labels are not of one length")
        fresh(&sink, False)
        self._collect(
            <const int64_t*> low.view.buf, <const int64_t*> high.view.buf,
            low.view.len >> 3, side, &sink, <int64_t*> target.view.buf, None,
            <int64_t*> climbs.view.buf,
        )
        return sums, taken

    def cold(self, ranks, lasts, int side):
        """Of which labels a scan would wait for pages that are not in memory, as bytes.

        Blocks that were never touched are made ready, if they are in memory.
        """
        cdef Column low = Column(ranks, 8), high = Column(lasts, 8)
        found = np.zeros(low.view.len >> 3, np.uint8)
        cdef Column target = Column(found, 1)
        if low.view.len != high.view.len:
            raise ValueError("the columns of the labels are not of one length")
        self._scout(
            <const int64_t*> low.view.buf, <const int64_t*> high.view.buf, low.view.len >> 3, side,
            <uint8_t*> target.view.buf,
        )
        return found

    def prepare(self, ranks, lasts, int side):
        """Make all blocks ready that scans for labels look into, and have their pages read."""
        cdef Column low = Column(ranks, 8), high = Column(lasts, 8)
        if low.view.len != high.view.len:
            raise ValueError("the columns of the labels are not of one length")
        self._scout(
            <const int64_t*> low.view.buf, <const int64_t*> high.view.buf, low.view.len >> 3, side,
            NULL,
        )

    cdef int _scout(
        self, const int64_t* ranks, const int64_t* lasts, Py_ssize_t count, int side, uint8_t* cold
    ) except -1:
        """`cold`, or `prepare` if there is nowhere to say what is."""
        cdef Blocks blocks
        cdef Scout scout
        cdef Halt halt
        cdef bint of_labels = False
        cdef int state
        scout.announces = cold == NULL
        scout.seen = <uint8_t*> calloc(self.labels.count + self.count + 1, 1)
        scout.met = scout.seen + self.labels.count
        if scout.seen == NULL:
            raise MemoryError
        halt.at = 0
        try:
            while halt.at < count and self.count and self.labels.count:
                with nogil:
                    state = self.look(ranks, lasts, count, side, &scout, &halt, &of_labels, cold)
                blocks = self.labels if of_labels or state == BROKEN else self
                if state == WANTING and cold != NULL and not blocks.in_memory(halt.low, halt.high):
                    cold[halt.at] = 1
                    halt.at += 1
                    continue
                if state == BROKEN and not of_labels:
                    raise self._overrun()
                if not blocks.resume(state, &halt):
                    break
        finally:
            free(scout.seen)
        return 0

    cdef int look(
        self, const int64_t* ranks, const int64_t* lasts, Py_ssize_t count, int side,
        Scout* scout, Halt* halt, bint* of_labels, uint8_t* cold,
    ) noexcept nogil:
        """Say, of labels from one on, which are cold; or announce what their scans will touch."""
        cdef Sink sink
        cdef int state
        fresh(&sink, False)
        halt.scout = scout
        while halt.at < count:
            scout.cold = False
            state = self.collect(
                ranks, lasts, halt.at + 1, side, halt, of_labels, &sink, NULL
            )
            if state and not scout.cold:
                return state
            if cold != NULL:
                cold[halt.at] = scout.cold
            halt.at += 1
        return DONE

    def _overrun(self):
        return self.labels.source.corrupt(None, "has labels with more postings than there are")

    def probe(self, int side, Removed removed not None):
        """A capsule with a `Probe`, for other kernels; `removed` keeps this list."""
        cdef Probe* probe = <Probe*> malloc(sizeof(Probe))
        if probe == NULL:
            raise MemoryError
        probe.postings = <void*> self
        probe.removed = <void*> removed
        probe.side = side
        probe.counts = <ProbeCounts> probe_counts
        probe.rows = <ProbeRows> probe_rows
        probe.cold = <ProbeCold> probe_cold
        removed.keep(self)
        Py_INCREF(removed)
        return PyCapsule_New(probe, PROBE, drop_probe)

    cdef int _collect(
        self,
        const int64_t* ranks,
        const int64_t* lasts,
        Py_ssize_t count,
        int side,
        Sink* sink,
        int64_t* sums,
        Removed removed,
        int64_t* climbs=NULL,
    ) except -1:
        cdef Halt halt
        cdef bint of_labels = False
        cdef Blocks blocks
        cdef int state
        halt.at = 0
        halt.scout = NULL
        if not self.count or not self.labels.count:
            return 0
        while True:
            with nogil:
                state = self.collect(
                    ranks, lasts, count, side, &halt, &of_labels, sink, sums, NULL, climbs
                )
            # A span that leaves its list is the fault of the labels.
            blocks = self.labels if of_labels or state == BROKEN else self
            if state == BROKEN and not of_labels:
                raise self._overrun()
            if not blocks.resume(state, &halt):
                break
        if removed is not None and removed.count:
            with nogil:
                sift(sink, 0, removed.lows, removed.highs, removed.count)
        return 0


cdef inline void put_postings(
    Sink* sink, int64_t left, const SesBlock* held, Py_ssize_t low, Py_ssize_t high
) noexcept nogil:
    cdef Py_ssize_t row, size = sink.size, count = high - low
    cdef const int64_t* starts = held.start + low
    cdef const uint32_t* lengths = held.length + low
    cdef int64_t* lefts = sink.left + size
    cdef int64_t* highs = sink.end + size
    sink.size = size + count
    if sink.paired:
        for row in range(count):
            lefts[row] = left
    memcpy(sink.start + size, starts, count * sizeof(int64_t))
    for row in range(count):
        highs[row] = starts[row] + lengths[row]
    memcpy(sink.level + size, held.level + low, count * sizeof(int16_t))


# --- probes by other kernels --------------------------------------------------------------------

cdef const char* PROBE = "fmware.index.probe"


cdef void drop_probe(object capsule) noexcept:
    cdef Probe* probe = <Probe*> PyCapsule_GetPointer(capsule, PROBE)
    Py_DECREF(<object> probe.removed)
    free(probe)


def no_probe(Removed removed not None):
    """A capsule with a `Probe` of a list that is not there: no label has candidates."""
    cdef Probe* probe = <Probe*> malloc(sizeof(Probe))
    if probe == NULL:
        raise MemoryError
    probe.postings = NULL
    probe.removed = <void*> removed
    probe.side = 0
    probe.counts = <ProbeCounts> no_counts
    probe.rows = <ProbeRows> no_rows
    probe.cold = <ProbeCold> none_cold
    Py_INCREF(removed)
    return PyCapsule_New(probe, PROBE, drop_probe)


cdef int no_counts(
    void* postings, Removed removed, const int64_t* ranks, const int64_t* lasts,
    Py_ssize_t count, int side, int64_t* sums, int64_t* lows,
) noexcept nogil:
    memset(sums, 0, count * sizeof(int64_t))
    if not removed.enter():
        return BROKEN
    removed.leave()
    return DONE


cdef Py_ssize_t no_rows(
    void* postings, void* removed, const int64_t* ranks, const int64_t* lasts,
    Py_ssize_t count, int side, const int64_t* sums, const int64_t* lows, Py_ssize_t room,
    int64_t* left, int64_t* start, int64_t* end, int16_t* level,
) noexcept nogil:
    return 0


cdef int none_cold(
    void* postings, Removed removed, const int64_t* ranks, const int64_t* lasts,
    Py_ssize_t count, int side, uint8_t* cold,
) noexcept nogil:
    return DONE


cdef int probe_cold(
    Postings postings, Removed removed, const int64_t* ranks, const int64_t* lasts,
    Py_ssize_t count, int side, uint8_t* cold,
) noexcept nogil:
    cdef Halt halt
    cdef Scout scout
    cdef bint of_labels = False
    cdef uint8_t* own
    cdef int state = DONE
    cdef Py_ssize_t at
    if not removed.enter():
        return BROKEN
    if postings.count and postings.labels.count:
        scout.announces = cold == NULL
        scout.seen = <uint8_t*> calloc(postings.labels.count + postings.count + count, 1)
        scout.met = scout.seen + postings.labels.count
        own = NULL if cold == NULL else scout.met + postings.count
        halt.at = 0
        if scout.seen == NULL:
            state = NO_MEMORY
        else:
            state = postings.look(ranks, lasts, count, side, &scout, &halt, &of_labels, own)
            for at in range(count if cold != NULL else 0):
                cold[at] |= own[at]
        free(scout.seen)
    removed.leave()
    return state


cdef int probe_counts(
    Postings postings, Removed removed, const int64_t* ranks, const int64_t* lasts,
    Py_ssize_t count, int side, int64_t* sums, int64_t* lows,
) noexcept nogil:
    cdef Halt halt
    cdef Sink sink
    cdef bint of_labels = False
    cdef int state = DONE
    halt.at = 0
    halt.scout = NULL
    fresh(&sink, False)
    if not removed.enter():
        return BROKEN
    if not postings.count or not postings.labels.count:
        memset(sums, 0, count * sizeof(int64_t))
    else:
        state = postings.collect(ranks, lasts, count, side, &halt, &of_labels, &sink, sums, lows)
    removed.leave()
    return state


cdef Py_ssize_t probe_rows(
    Postings postings, Removed removed, const int64_t* ranks, const int64_t* lasts,
    Py_ssize_t count, int side, const int64_t* sums, const int64_t* lows, Py_ssize_t room,
    int64_t* left, int64_t* start, int64_t* end, int16_t* level,
) noexcept nogil:
    cdef Py_ssize_t found
    if not removed.enter():
        return -1
    found = rows_in(
        postings, removed, ranks, lasts, count, side, sums, lows, room, left, start, end, level
    )
    removed.leave()
    return found


cdef Py_ssize_t rows_in(
    Postings postings, Removed removed, const int64_t* ranks, const int64_t* lasts,
    Py_ssize_t count, int side, const int64_t* sums, const int64_t* lows, Py_ssize_t room,
    int64_t* left, int64_t* start, int64_t* end, int16_t* level,
) noexcept nogil:
    cdef Halt halt
    cdef Sink sink
    cdef Span span
    cdef Py_ssize_t at
    cdef bint of_labels = False
    cdef int state = DONE
    halt.scout = NULL
    if not postings.count or not postings.labels.count:
        return 0
    # The caller's memory, which has room for all: it is never made larger.
    sink.left = left
    sink.start = start
    sink.end = end
    sink.level = level
    sink.size = 0
    sink.room = room
    sink.paired = True
    for at in range(count):
        if not sums[at]:
            continue
        if sums[at] < 0 or sink.size + sums[at] > room:
            return -1
        if side == AROUND:
            halt.at = at
            state = postings.collect(
                ranks, lasts, at + 1, side, &halt, &of_labels, &sink, NULL
            )
        else:
            # One run each, which is known by now.
            span.low, span.high = lows[at], lows[at] + sums[at]
            state = postings.emit(&sink, at, &span, &halt)
        if state:
            break
    if state:
        return -1
    if removed.count:
        sift(&sink, 0, removed.lows, removed.highs, removed.count)
    return sink.size
