# `ad` lists: the nodes of one tag by AD label.

cdef enum:
    AD_HEADER = 24
    HAS_UP = 1
    NOWHERE = -1
    FEW = 16             # so few rows are copied faster one by one than column by column
    TURNS = 16           # searches that take turns: so many misses of the cache are under way at once
    PORTION = 1024       # anchors that are probed again, if some of their blocks were not ready
    APART = 64           # anchors from which on it pays to see whether they are sorted

ctypedef struct AdBlock:
    const uint32_t* start       # NULL until the block is ready
    const uint32_t* length
    const uint16_t* level
    const uint32_t* up          # NULL if the tag does not nest in itself
    const uint32_t* label       # of the first scheme; the others follow, `stride` apart
    Py_ssize_t stride
    int64_t base


cdef inline Py_ssize_t above(const uint32_t* start, Py_ssize_t rows, uint32_t key) noexcept nogil:
    """The first row whose start is above key; no branch hangs on what is compared."""
    cdef const uint32_t* low = start
    cdef Py_ssize_t half
    while rows > 1:
        half = rows >> 1
        low += half if low[half - 1] <= key else 0
        rows -= half
    if rows and low[0] <= key:
        low += 1
    return low - start


cdef inline Py_ssize_t above_from(
    const uint32_t* start, Py_ssize_t at, Py_ssize_t rows, uint32_t key
) noexcept nogil:
    """The same for a row that is `at` or, most likely, soon after it."""
    cdef Py_ssize_t step = 4
    while at < rows and start[at] <= key:
        if at + step >= rows or start[at + step] > key:
            return at + 1 + above(start + at + 1, min(step - 1, rows - at - 1), key)
        at += step + 1
        step <<= 1
    return at


# A search for the first row of a block whose start is above key: such are from `low` on, and it is
# one of the first `rows` there, or the one behind them.
ctypedef struct Search:
    const uint32_t* low
    Py_ssize_t rows
    uint32_t key
    Py_ssize_t block


cdef inline void above_each(Search* searches, Py_ssize_t count) noexcept nogil:
    """`above` for several keys, a step of each in turn: they wait for memory together."""
    cdef Py_ssize_t at, half, most = 0
    for at in range(count):
        most = max(most, searches[at].rows)
    while most > 1:
        for at in range(count):
            half = searches[at].rows >> 1
            if half:
                searches[at].low += half * (searches[at].low[half - 1] <= searches[at].key)
                searches[at].rows -= half
        most -= most >> 1
    for at in range(count):
        if searches[at].rows and searches[at].low[0] <= searches[at].key:
            searches[at].low += 1


cdef inline bint ascending(const int64_t* keys, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t at
    for at in range(1, count):
        if keys[at - 1] > keys[at]:
            return False
    return True


cdef inline uint32_t within(int64_t key, int64_t base) noexcept nogil:
    """A label as a block keeps it; one beyond its reach becomes the greatest, which none has."""
    key -= base
    return NO_ROW if key >= NO_ROW else <uint32_t> key


@cython.final
cdef class Anchors:
    """The columns of the nodes that a probe starts from."""

    cdef Column low, high, depth
    cdef const int64_t* starts
    cdef const int64_t* ends
    cdef const int16_t* levels
    cdef Py_ssize_t count

    def __cinit__(self, starts, ends, levels):
        self.low = Column(starts, 8)
        self.high = Column(ends, 8)
        self.starts = <const int64_t*> self.low.view.buf
        self.ends = <const int64_t*> self.high.view.buf
        self.levels = NULL
        self.count = self.low.view.len >> 3
        if levels is not None:
            self.depth = Column(levels, 2)
            self.levels = <const int16_t*> self.depth.view.buf
        if self.high.view.len >> 3 != self.count or (
            levels is not None and self.depth.view.len >> 1 != self.count
        ):
            raise ValueError("the columns of the anchors are not of one length")


# A place in a list before which all rows begin at or before `key`: where to look for greater ones. The
# row is NOWHERE if nothing is known of the block.
ctypedef struct Cursor:
    Py_ssize_t block
    Py_ssize_t row
    int64_t key


# The rows below an anchor: so many, from a row of a block on.
ctypedef struct Place:
    Py_ssize_t block
    Py_ssize_t row
    Py_ssize_t count


cdef class Nodes(Blocks):
    """The nodes of a tag, sorted by start."""

    cdef readonly Py_ssize_t schemes
    cdef AdBlock* blocks

    def __cinit__(self, *arguments, **options):
        self.blocks = NULL

    def __init__(self, source, directory, lock, schemes):
        super().__init__(source, directory, lock)
        self.schemes = schemes
        self.blocks = <AdBlock*> calloc(self.count + 1, sizeof(AdBlock))
        if self.blocks == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.blocks)

    cdef bint adopt(self, Py_ssize_t block, const uint8_t* data, Py_ssize_t size) noexcept:
        cdef AdBlock* taken = &self.blocks[block]
        cdef Py_ssize_t rows = self.rows_of(block)
        cdef Py_ssize_t wide = padded(4 * rows), narrow = padded(2 * rows)
        cdef bint nests
        if size < AD_HEADER or (<const uint16_t*> (data + 16))[0] != self.schemes:
            return False
        nests = (<const uint16_t*> (data + 18))[0] & HAS_UP
        # The last column need not be padded.
        if size < AD_HEADER + narrow + wide * (1 + self.schemes + nests) + 4 * rows:
            if self.schemes + nests or size < AD_HEADER + 2 * wide + 2 * rows:
                return False
        taken.base = (<const int64_t*> data)[1]
        if taken.base + (<const uint32_t*> (data + AD_HEADER))[0] != <int64_t> self.first[block]:
            return False
        data += AD_HEADER + wide
        taken.length = <const uint32_t*> data
        data += wide
        taken.level = <const uint16_t*> data
        data += narrow
        taken.label = <const uint32_t*> data
        taken.stride = wide >> 2
        taken.up = <const uint32_t*> (data + wide * self.schemes) if nests else NULL
        store_ready(taken.start, taken.length - taken.stride)
        return True

    cdef inline bint lacks(self, Py_ssize_t block) noexcept nogil:
        return load_ready(self.blocks[block].start) == NULL

    cdef inline int want(self, Halt* halt, Py_ssize_t at, Py_ssize_t low, Py_ssize_t high) noexcept nogil:
        halt.at = at
        halt.low = low
        halt.high = high
        return WANTING

    # --- descendants ------------------------------------------------------------------------

    cdef int descend(
        self,
        const int64_t* starts,
        const int64_t* ends,
        const int16_t* levels,
        Py_ssize_t count,
        Halt* halt,
        Place* places,
        Py_ssize_t* total,
    ) noexcept nogil:
        """Where the rows with start(u) < start < end(u) lie for each u, and how many they are.

        With levels, only rows one level down count. Room is then made once, for all of them: to
        touch new memory costs more than to look twice.
        """
        cdef Py_ssize_t at, block, row, last
        cdef int64_t low, high
        # Sorted anchors: the next begins behind where this one did, or even behind its end.
        cdef Cursor begun, ended
        begun.block = ended.block = 0
        begun.row = ended.row = NOWHERE
        begun.key = ended.key = -1
        for at in range(halt.at, count):
            low = starts[at]
            high = ends[at] - 1          # starts up to here are inside
            places[at].count = 0
            if high <= low:
                continue
            if low >= ended.key:
                begun = ended
            elif low < begun.key:
                begun.row = NOWHERE
                begun.key = -1
            block = block_of(self.first, self.count, begun.block, <uint64_t> low) if low >= 0 else -1
            if block != begun.block:
                begun.row = NOWHERE
                if block < 0:
                    # All rows begin behind the anchor.
                    block = 0
            if <int64_t> self.first[block] > high:
                continue
            last = block
            if last + 1 < self.count and <int64_t> self.first[last + 1] <= high:
                last = block_of(self.first, self.count, last, <uint64_t> high)
                if self.lacking(block, last):
                    return self.want(halt, at, block, last)
            elif self.lacks(block):
                return self.want(halt, at, block, block)
            row = self.row_above(block, begun.row, low)
            begun.block = block
            begun.row = row
            begun.key = low
            ended.row = self.row_above(last, row if last == block else NOWHERE, high)
            ended.block = last
            ended.key = high
            places[at].block = block
            places[at].row = row
            places[at].count = (
                <int64_t> self.begin[last] + ended.row - <int64_t> self.begin[block] - row
            )
            if levels == NULL:
                total[0] += places[at].count
            elif places[at].count:
                total[0] += self.count_level(&places[at], <int> levels[at] + 1)
        return DONE

    cdef int descend_apart(
        self,
        const int64_t* starts,
        const int64_t* ends,
        const int16_t* levels,
        Py_ssize_t count,
        Halt* halt,
        Place* places,
        Py_ssize_t* total,
    ) noexcept nogil:
        """`descend` for anchors that are far from each other, as those of a message are.

        A search in a list that caches do not hold waits for memory at most of its steps. So several
        take turns, and what is to be delivered is fetched ahead.
        """
        cdef Py_ssize_t begin = halt.at, number, at, last, row, stop, found
        cdef int64_t low, high
        cdef Search searches[TURNS]
        cdef Search* search
        cdef AdBlock* held
        while begin < count:
            number = min(<Py_ssize_t> TURNS, count - begin)
            for at in range(number):
                search = &searches[at]
                low = starts[begin + at]
                high = ends[begin + at] - 1
                search.block = self.block_from(low)
                search.rows = 0
                places[begin + at].count = 0
                if high <= low or <int64_t> self.first[search.block] > high:
                    search.low = NULL
                    continue
                if self.lacks(search.block):
                    return self.want(halt, begin, search.block, search.block)
                held = &self.blocks[search.block]
                search.low = held.start
                if low >= held.base:
                    search.key = within(low, held.base)
                    search.rows = self.rows_of(search.block)
            above_each(searches, number)
            for at in range(number):
                search = &searches[at]
                if search.low != NULL:
                    held = &self.blocks[search.block]
                    row = search.low - held.start
                    prefetch(search.low + FEW)
                    prefetch(held.length + row)
                    prefetch(held.length + row + FEW)
                    prefetch(held.level + row)
            found = 0
            for at in range(number):
                search = &searches[at]
                if search.low == NULL:
                    continue
                high = ends[begin + at] - 1
                held = &self.blocks[search.block]
                row = search.low - held.start
                last = search.block
                if last + 1 < self.count and <int64_t> self.first[last + 1] <= high:
                    last = block_of(self.first, self.count, last, <uint64_t> high)
                    if self.lacking(search.block, last):
                        return self.want(halt, begin, search.block, last)
                    stop = self.row_above(last, NOWHERE, high)
                else:
                    stop = above_from(
                        held.start, row, self.rows_of(last), within(high, held.base)
                    )
                places[begin + at].block = search.block
                places[begin + at].row = row
                places[begin + at].count = (
                    <int64_t> self.begin[last] + stop - <int64_t> self.begin[search.block] - row
                )
                if levels == NULL:
                    found += places[begin + at].count
                elif places[begin + at].count:
                    found += self.count_level(&places[begin + at], <int> levels[begin + at] + 1)
            total[0] += found
            begin += number
        return DONE

    cdef inline Py_ssize_t block_from(self, int64_t key) noexcept nogil:
        """The last block that begins at or before key, or the first; nothing is known of others."""
        cdef const uint64_t* low = self.first
        cdef Py_ssize_t rows = self.count, half
        if key < 0:
            return 0
        while rows > 1:
            half = rows >> 1
            low += half * (low[half] <= <uint64_t> key)
            rows -= half
        return low - self.first

    cdef Py_ssize_t count_level(self, const Place* place, int level) noexcept nogil:
        cdef Py_ssize_t block = place.block, row = place.row, left = place.count, found = 0, stop
        cdef const uint16_t* depths
        while left > 0:
            depths = self.blocks[block].level
            stop = min(self.rows_of(block), row + left)
            left -= stop - row
            while row < stop:
                found += depths[row] == level
                row += 1
            block += 1
            row = 0
        return found

    cdef void deliver(
        self, const Place* places, Py_ssize_t count, const int16_t* levels, Sink* sink
    ) noexcept nogil:
        """Give the rows that `descend` has found to the sink, which has room for them."""
        cdef Py_ssize_t at, block, row, left, stop
        for at in range(count):
            left = places[at].count
            block = places[at].block
            row = places[at].row
            while left > 0:
                stop = min(self.rows_of(block), row + left)
                left -= stop - row
                if levels == NULL:
                    put_all(sink, at, &self.blocks[block], row, stop)
                else:
                    put_level(sink, at, &self.blocks[block], row, stop, <int> levels[at] + 1)
                block += 1
                row = 0

    cdef inline Py_ssize_t row_above(self, Py_ssize_t block, Py_ssize_t row, int64_t key) noexcept nogil:
        """The first row of a block, most likely soon after `row`, that begins behind key."""
        cdef AdBlock* held = &self.blocks[block]
        if key < held.base:
            return max(row, 0)
        if row == NOWHERE:
            return above(held.start, self.rows_of(block), within(key, held.base))
        return above_from(held.start, row, self.rows_of(block), within(key, held.base))

    cdef bint lacking(self, Py_ssize_t low, Py_ssize_t high) noexcept nogil:
        cdef Py_ssize_t block
        for block in range(low, high + 1):
            if self.lacks(block):
                return True
        return False

    # --- ancestors --------------------------------------------------------------------------

    cdef int ascend(
        self,
        const int64_t* starts,
        const int64_t* ends,
        const int16_t* levels,
        Py_ssize_t count,
        Halt* halt,
        Sink* sink,
    ) noexcept nogil:
        """Rows that enclose each u, the outermost first; with levels, those one level up.

        Labels nest. So of all rows that begin before u, the last one either encloses u, or what
        encloses u encloses it as well: u's ancestors are on the way up from there.
        """
        cdef Py_ssize_t at, block, hint, row, size
        cdef int64_t low, start, end, whole, up
        cdef int wanted = -1, level
        cdef AdBlock* held
        cdef Cursor begun
        begun.block = 0
        begun.row = NOWHERE
        begun.key = -1
        for at in range(halt.at, count):
            low = starts[at] - 1
            if low < <int64_t> self.first[0]:
                continue
            if levels != NULL:
                wanted = <int> levels[at] - 1
            if low < begun.key:
                begun.row = NOWHERE
            block = block_of(self.first, self.count, begun.block, <uint64_t> low)
            if self.lacks(block):
                return self.want(halt, at, block, block)
            row = self.row_above(block, begun.row if block == begun.block else NOWHERE, low)
            begun.block = block
            begun.row = row
            begun.key = low
            row -= 1
            size = sink.size
            hint = block
            while True:
                held = &self.blocks[hint]
                start = held.base + held.start[row]
                end = start + held.length[row]
                level = held.level[row]
                if end > ends[at]:
                    if level < wanted:
                        break
                    if levels == NULL or level == wanted:
                        if sink.size >= sink.room and not grow(sink, 1):
                            return NO_MEMORY
                        sink.left[sink.size] = at
                        sink.start[sink.size] = start
                        sink.end[sink.size] = end
                        sink.level[sink.size] = <int16_t> level
                        sink.size += 1
                if held.up == NULL or held.up[row] == NO_ROW:
                    break
                whole = <int64_t> self.begin[hint] + row
                up = held.up[row]
                if up >= whole:
                    halt.low = hint
                    return BROKEN
                hint = self.block_of_row(hint, up)
                if self.lacks(hint):
                    sink.size = size
                    return self.want(halt, at, hint, hint)
                row = <Py_ssize_t> (up - <int64_t> self.begin[hint])
            reverse(sink, size)
        return DONE

    def descendants(self, starts, ends, levels, Removed removed):
        """(left, start, end, level) of the nodes below each anchor, by anchor, then by start."""
        return self._related(Anchors(starts, ends, levels), removed, True)

    def ancestors(self, starts, ends, levels, Removed removed):
        """(left, start, end, level) of the nodes around each anchor, by anchor, then by start."""
        return self._related(Anchors(starts, ends, levels), removed, False)

    cdef object _related(self, Anchors anchors, Removed removed, bint below):
        cdef int axis = AD_CHILD if below else AD_PARENT
        cdef Sink sink
        if anchors.levels == NULL:
            axis = AD_DESCENDANT if below else AD_ANCESTOR
        fresh(&sink, True)
        try:
            self.fetch(removed, axis, anchors.starts, anchors.ends, anchors.levels, anchors.count, &sink)
            return columns(&sink)
        finally:
            drop(&sink)

    cdef int fetch(
        self, Removed removed, int axis, const int64_t* starts, const int64_t* ends,
        const int16_t* levels, Py_ssize_t count, Sink* sink,
    ) except -1:
        """Add the pairs of anchors on an axis to the sink; blocks that are not ready are got.

        All anchors at once, or, from the first such block on, a portion at a time: it is probed
        again after each.
        """
        cdef Py_ssize_t low = 0, high = count, row, before
        cdef const int16_t* depths = levels
        cdef Halt halt
        cdef int state
        while low < count:
            before = sink.size
            if levels != NULL:
                depths = levels + low
            with nogil:
                state = self.relate(
                    removed, axis, starts + low, ends + low, depths, high - low, &halt, sink
                )
                for row in range(before, sink.size if low else before):
                    sink.left[row] += low
            if not self.resume(state, &halt):
                low = high
            high = min(low + PORTION, count)
        return 0

    cdef int relate(
        self, Removed removed, int axis, const int64_t* starts, const int64_t* ends,
        const int16_t* levels, Py_ssize_t count, Halt* halt, Sink* sink,
    ) noexcept nogil:
        """The same over blocks that are ready; nothing is added if one is not."""
        cdef Py_ssize_t before = sink.size
        cdef int state
        halt.at = 0
        if not self.count or not count:
            return DONE
        if axis == AD_SELF:
            state = self.meet(starts, ends, levels, count, halt, sink)
        elif axis <= AD_DESCENDANT:
            state = self.below(
                starts, ends, levels if axis == AD_CHILD else NULL, count, halt, sink
            )
        else:
            state = self.ascend(
                starts, ends, levels if axis == AD_PARENT else NULL, count, halt, sink
            )
        if state:
            sink.size = before
        elif removed is not None and removed.count:
            sift(sink, before, removed.lows, removed.highs, removed.count)
        return state

    cdef int below(
        self, const int64_t* starts, const int64_t* ends, const int16_t* levels,
        Py_ssize_t count, Halt* halt, Sink* sink,
    ) noexcept nogil:
        """Rows below each u."""
        cdef Place few[APART]
        cdef Place* places = few
        cdef Py_ssize_t total = 0
        cdef int state
        if count > APART:
            places = <Place*> malloc(count * sizeof(Place))
            if places == NULL:
                return NO_MEMORY
        if count < APART or not ascending(starts, count):
            state = self.descend_apart(starts, ends, levels, count, halt, places, &total)
        else:
            state = self.descend(starts, ends, levels, count, halt, places, &total)
        if state == DONE and total:
            if grow(sink, total):
                self.deliver(places, count, levels, sink)
            else:
                state = NO_MEMORY
        if places != few:
            free(places)
        return state

    cdef int meet(
        self, const int64_t* starts, const int64_t* ends, const int16_t* levels,
        Py_ssize_t count, Halt* halt, Sink* sink,
    ) noexcept nogil:
        """Rows that begin where u does. A start is of one node alone, so they have u's label."""
        cdef Py_ssize_t at, kept = sink.size
        cdef int64_t* rows
        cdef int state
        if not grow(sink, count):
            return NO_MEMORY
        rows = sink.left + kept
        state = self.find(starts, count, halt, rows)
        if state:
            return state
        for at in range(count):
            if rows[at] >= 0:
                sink.left[kept] = at
                sink.start[kept] = starts[at]
                sink.end[kept] = ends[at]
                sink.level[kept] = levels[at]
                kept += 1
        sink.size = kept
        return DONE

    def related(self, Removed removed not None):
        """A capsule with a `RelatedProbe`, for other kernels; `removed` keeps this list."""
        removed.keep(self)
        return related_probe(<void*> self, removed, <RelateNodes> relate_nodes)

    # --- rows and labels --------------------------------------------------------------------

    def locate(self, starts):
        """The rows of the nodes that begin at `starts`, -1 where none does."""
        rows = np.empty(len(starts), np.int64)
        cdef Column source = Column(starts, 8), target = Column(rows, 8)
        cdef Py_ssize_t count = source.view.len >> 3
        cdef Halt halt
        cdef int state
        halt.at = 0
        if not self.count:
            rows.fill(-1)
            return rows
        while True:
            with nogil:
                state = self.find(
                    <const int64_t*> source.view.buf, count, &halt, <int64_t*> target.view.buf
                )
            if not self.resume(state, &halt):
                return rows

    cdef int find(
        self, const int64_t* starts, Py_ssize_t count, Halt* halt, int64_t* rows
    ) noexcept nogil:
        cdef Py_ssize_t at, block, row
        cdef int64_t key
        cdef AdBlock* held
        cdef Cursor begun
        begun.block = 0
        begun.row = NOWHERE
        begun.key = -1
        for at in range(halt.at, count):
            key = starts[at]
            rows[at] = -1
            if key < <int64_t> self.first[0]:
                continue
            if key < begun.key:
                begun.row = NOWHERE
            block = block_of(self.first, self.count, begun.block, <uint64_t> key)
            if self.lacks(block):
                return self.want(halt, at, block, block)
            row = self.row_above(block, begun.row if block == begun.block else NOWHERE, key)
            begun.block = block
            begun.row = row
            begun.key = key
            held = &self.blocks[block]
            if held.base + held.start[row - 1] == key:
                rows[at] = <int64_t> self.begin[block] + row - 1
        return DONE

    def labels_of(self, rows):
        """(start, end, level) of the nodes in some rows, which must be rows of the list."""
        cdef Column source = Column(rows, 8)
        cdef Py_ssize_t count = source.view.len >> 3
        starts = np.empty(count, np.int64)
        ends = np.empty(count, np.int64)
        levels = np.empty(count, np.int16)
        cdef Column low = Column(starts, 8), high = Column(ends, 8), depth = Column(levels, 2)
        cdef Halt halt
        cdef int state
        halt.at = 0
        while True:
            with nogil:
                state = self.gather(
                    <const int64_t*> source.view.buf, count, &halt, <int64_t*> low.view.buf,
                    <int64_t*> high.view.buf, <int16_t*> depth.view.buf,
                )
            if state == BROKEN:
                raise IndexError(f"no row {rows[halt.at]} in a list of {self.rows}")
            if not self.resume(state, &halt):
                return starts, ends, levels

    cdef int gather(
        self,
        const int64_t* rows,
        Py_ssize_t count,
        Halt* halt,
        int64_t* starts,
        int64_t* ends,
        int16_t* levels,
    ) noexcept nogil:
        cdef Py_ssize_t at, row, block = 0
        cdef AdBlock* held
        for at in range(halt.at, count):
            if not 0 <= rows[at] < self.rows:
                halt.at = at
                return BROKEN
            block = self.block_of_row(block, rows[at])
            if self.lacks(block):
                return self.want(halt, at, block, block)
            held = &self.blocks[block]
            row = <Py_ssize_t> (rows[at] - <int64_t> self.begin[block])
            starts[at] = held.base + held.start[row]
            ends[at] = starts[at] + held.length[row]
            levels[at] = <int16_t> held.level[row]
        return DONE

    def label_rows(self, rows, Py_ssize_t scheme):
        """The rows in the `labels` list of a scheme that some rows have; -1 for row -1."""
        cdef Column source = Column(rows, 8)
        cdef Py_ssize_t count = source.view.len >> 3
        found = np.empty(count, np.int64)
        cdef Column target = Column(found, 8)
        cdef Halt halt
        cdef int state
        halt.at = 0
        if not 0 <= scheme < self.schemes:
            raise IndexError(f"no scheme {scheme} in a list of {self.schemes}")
        while True:
            with nogil:
                state = self.gather_labels(
                    <const int64_t*> source.view.buf, count, scheme, &halt,
                    <int64_t*> target.view.buf,
                )
            if state == BROKEN:
                raise IndexError(f"no row {rows[halt.at]} in a list of {self.rows}")
            if not self.resume(state, &halt):
                return found

    cdef int gather_labels(
        self,
        const int64_t* rows,
        Py_ssize_t count,
        Py_ssize_t scheme,
        Halt* halt,
        int64_t* found,
    ) noexcept nogil:
        cdef Py_ssize_t at, row, block = 0
        cdef AdBlock* held
        for at in range(halt.at, count):
            if rows[at] == -1:
                found[at] = -1
                continue
            if not 0 <= rows[at] < self.rows:
                halt.at = at
                return BROKEN
            block = self.block_of_row(block, rows[at])
            if self.lacks(block):
                return self.want(halt, at, block, block)
            held = &self.blocks[block]
            row = <Py_ssize_t> (rows[at] - <int64_t> self.begin[block])
            found[at] = held.label[scheme * held.stride + row]
        return DONE


cdef inline void put_all(
    Sink* sink, int64_t left, const AdBlock* held, Py_ssize_t low, Py_ssize_t high
) noexcept nogil:
    cdef Py_ssize_t row, size = sink.size, count = high - low
    cdef int64_t base = held.base, start
    cdef const uint32_t* starts = held.start + low
    cdef const uint32_t* lengths = held.length + low
    cdef int64_t* lefts = sink.left + size
    cdef int64_t* lows = sink.start + size
    cdef int64_t* highs = sink.end + size
    sink.size = size + count
    if count < FEW:
        for row in range(count):
            start = base + starts[row]
            lefts[row] = left
            lows[row] = start
            highs[row] = start + lengths[row]
            sink.level[size + row] = <int16_t> held.level[low + row]
        return
    for row in range(count):
        lefts[row] = left
    for row in range(count):
        lows[row] = base + starts[row]
    for row in range(count):
        highs[row] = base + starts[row] + lengths[row]
    memcpy(sink.level + size, held.level + low, count * sizeof(int16_t))


cdef inline void put_level(
    Sink* sink, int64_t left, const AdBlock* held, Py_ssize_t low, Py_ssize_t high, int level
) noexcept nogil:
    cdef Py_ssize_t row, size = sink.size
    for row in range(low, high):
        if held.level[row] != level:
            continue
        sink.left[size] = left
        sink.start[size] = held.base + held.start[row]
        sink.end[size] = sink.start[size] + held.length[row]
        sink.level[size] = <int16_t> level
        size += 1
    sink.size = size


# --- probes by other kernels --------------------------------------------------------------------

cdef const char* RELATED = "fmware.index.related"


def no_related(Removed removed not None):
    """A capsule with a `RelatedProbe` of a list that is not there: no anchor has nodes."""
    return related_probe(NULL, removed, <RelateNodes> relate_nothing)


cdef object related_probe(void* nodes, Removed removed, RelateNodes get):
    cdef RelatedProbe* probe = <RelatedProbe*> malloc(sizeof(RelatedProbe))
    if probe == NULL:
        raise MemoryError
    probe.nodes = nodes
    probe.removed = <void*> removed
    probe.get = get
    probe.fetch = <FetchRelated> fetch_related
    Py_INCREF(removed)
    return PyCapsule_New(probe, RELATED, drop_related)


cdef void drop_related(object capsule) noexcept:
    cdef RelatedProbe* probe = <RelatedProbe*> PyCapsule_GetPointer(capsule, RELATED)
    Py_DECREF(<object> probe.removed)
    free(probe)


cdef inline Sink sink_of(const Related* pairs) noexcept nogil:
    cdef Sink sink
    sink.left, sink.start, sink.end, sink.level = pairs.left, pairs.start, pairs.end, pairs.level
    sink.size, sink.room, sink.paired = pairs.size, pairs.room, True
    return sink


cdef inline void give_sink(const Sink* sink, Related* pairs) noexcept nogil:
    pairs.left, pairs.start, pairs.end, pairs.level = sink.left, sink.start, sink.end, sink.level
    pairs.size, pairs.room = sink.size, sink.room


cdef int relate_nodes(
    Nodes nodes, Removed removed, int axis, const int64_t* starts, const int64_t* ends,
    const int16_t* levels, Py_ssize_t count, Related* pairs,
) noexcept nogil:
    cdef Sink sink = sink_of(pairs)
    cdef Halt halt
    cdef int state
    if not removed.enter():
        return BROKEN
    state = nodes.relate(removed, axis, starts, ends, levels, count, &halt, &sink)
    removed.leave()
    give_sink(&sink, pairs)
    return state


cdef int relate_nothing(
    void* nodes, Removed removed, int axis, const int64_t* starts, const int64_t* ends,
    const int16_t* levels, Py_ssize_t count, Related* pairs,
) noexcept nogil:
    if not removed.enter():
        return BROKEN
    removed.leave()
    return DONE


cdef int fetch_related(
    void* nodes, Removed removed, int axis, const int64_t* starts, const int64_t* ends,
    const int16_t* levels, Py_ssize_t count, Related* pairs,
) except -1:
    cdef Sink sink
    cdef Nodes own
    if removed.over or forks() != removed.process:
        return BROKEN
    if nodes == NULL:
        return DONE
    # Closing the segment meanwhile must not free the list.
    own = <Nodes> nodes
    sink = sink_of(pairs)
    try:
        own.fetch(removed, axis, starts, ends, levels, count, &sink)
    finally:
        give_sink(&sink, pairs)
    return DONE
