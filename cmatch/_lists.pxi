# The candidates of a complete label in AD order, and the queries on them.
#
# Lists of CHILD and PARENT lie by level and then by start: within one level, children are a range,
# and a parent can only be the node before. Otherwise they lie by start: descendants are a range,
# and ancestors are the node before and those around it, which `up` leads to.


cdef inline bint climbs(int axis) noexcept nogil:
    """Whether lists of this axis have `up`."""
    return axis == ANCESTOR


cdef inline bint levelled(int axis) noexcept nogil:
    """Whether lists of this axis lie by level."""
    return axis == CHILD or axis == PARENT


cdef inline int64_t list_bytes(int axis, int64_t rows, Py_ssize_t span) noexcept nogil:
    cdef int64_t bytes = sizeof(List) + 18 * rows
    if climbs(axis):
        bytes += 4 * rows
    if levelled(axis):
        bytes += 4 * (span + 1)
    if rows >= LONG:
        bytes += 8 * (rows // SAMPLE + 1)
    return bytes


cdef void trace_up(
    const int64_t* start, const int64_t* end, Py_ssize_t count, uint32_t* up
) noexcept nogil:
    """For each of the candidates in AD order, the nearest one around it."""
    cdef Py_ssize_t row
    cdef uint32_t around = NO_ROW
    for row in range(count):
        while around != NO_ROW and end[around] < start[row]:
            around = up[around]
        up[row] = around
        around = <uint32_t> row


ctypedef struct Filler:
    # Puts candidates, which come in AD order, where they belong in a list.
    List* list
    int64_t* start
    int64_t* end
    int16_t* level
    uint32_t* up
    int64_t* sample
    uint32_t* next       # of a list by level: where the next row of each level goes
    Py_ssize_t row


cdef int begin_list(Join* join, Filler* filler, int64_t rows, const Levels* levels) noexcept nogil:
    """A list in memory; there must be room in the budget."""
    cdef Py_ssize_t span = levels.span if levelled(join.axis) else 0
    cdef int64_t bytes = list_bytes(join.axis, rows, span)
    cdef char* data = <char*> malloc(bytes)
    cdef List* made = <List*> data
    cdef uint32_t* begin
    cdef Py_ssize_t level
    memset(filler, 0, sizeof(Filler))
    if data == NULL:
        return NO_MEMORY
    memset(made, 0, sizeof(List))
    made.unit.bytes = bytes
    made.unit.fill = rows
    made.unit.kind = LIST
    filler.list = made
    data += sizeof(List)
    filler.start = <int64_t*> data
    data += 8 * rows
    filler.end = <int64_t*> data
    data += 8 * rows
    if rows >= LONG:
        filler.sample = <int64_t*> data
        data += 8 * (rows // SAMPLE + 1)
    if climbs(join.axis):
        filler.up = <uint32_t*> data
        data += 4 * rows
    if levelled(join.axis):
        begin = <uint32_t*> data
        data += 4 * (span + 1)
        filler.next = <uint32_t*> malloc((span + 1) * sizeof(uint32_t))
        if filler.next == NULL:
            free(made)
            return NO_MEMORY
        begin[0] = 0
        for level in range(span):
            begin[level + 1] = begin[level] + levels.counts[level]
        memcpy(filler.next, begin, (span + 1) * sizeof(uint32_t))
        made.view.begin = begin
        made.view.span = span
        made.view.low = levels.low
    filler.level = <int16_t*> data
    made.view.start = filler.start
    made.view.end = filler.end
    made.view.level = filler.level
    made.view.up = filler.up
    made.view.sample = filler.sample
    made.view.count = <Py_ssize_t> rows
    return FINE


cdef inline void put_in_list(
    Filler* filler, int64_t start, int64_t end, int64_t level
) noexcept nogil:
    cdef Py_ssize_t row = filler.row
    if filler.next != NULL:
        row = filler.next[level - filler.list.view.low]
        filler.next[level - filler.list.view.low] += 1
    filler.start[row] = start
    filler.end[row] = end
    filler.level[row] = <int16_t> level
    filler.row += 1


cdef List* end_list(Filler* filler) noexcept nogil:
    cdef Py_ssize_t at
    free(filler.next)
    if filler.sample != NULL:
        for at in range((filler.list.view.count - 1) // SAMPLE + 1):
            filler.sample[at] = filler.start[at * SAMPLE]
    if filler.up != NULL:
        trace_up(filler.start, filler.end, filler.list.view.count, filler.up)
    return filler.list


# --- queries in memory --------------------------------------------------------------------------


cdef int query_view(
    Join* join, uint64_t key, const View* view, Py_ssize_t* cursor, const Entry* input
) noexcept nogil:
    """The pairs of an input with candidates in AD order; `cursor` is where the last one ended up."""
    cdef Py_ssize_t low = 0, high = view.count
    cdef int status = FINE
    if join.axis == ANCESTOR or (join.axis == PARENT and view.begin == NULL):
        cursor[0] = above_near(view, cursor[0], 0, view.count, input.start - 1)
        return climb(join, key, view, cursor[0] - 1, input)
    if not span_of(join.axis, view, input.level, &low, &high):
        return FINE
    cursor[0] = range_of(
        join.axis, view, above_near(view, cursor[0], low, high, first_above(join.axis, input.start)),
        low, high, input.start, input.end, &low, &high,
    )
    while low < high and status == FINE:
        if view.begin == NULL and join.axis == CHILD and view.level[low] != input.level + 1:
            join.tally.false_hits += 1
        else:
            status = emit(join, key, input, view.start[low], view.end[low], view.level[low])
        low += 1
    return status


cdef inline int64_t first_above(int axis, int64_t start) noexcept nogil:
    """What the rows that matter are above of: the input's start, or just before it."""
    return start if axis == DESCENDANT or axis == CHILD else start - 1


cdef inline bint span_of(
    int axis, const View* view, int64_t level, Py_ssize_t* low, Py_ssize_t* high
) noexcept nogil:
    """The rows of the one level that matters; False if there are none."""
    cdef int64_t wanted
    if view.begin == NULL:
        return True
    wanted = level + (1 if axis == CHILD else -1) - view.low
    if wanted < 0 or wanted >= view.span:
        return False
    low[0] = view.begin[wanted]
    high[0] = view.begin[wanted + 1]
    return low[0] < high[0]


cdef inline Py_ssize_t range_of(
    int axis, const View* view, Py_ssize_t found, Py_ssize_t low, Py_ssize_t high, int64_t start,
    int64_t end, Py_ssize_t* begin, Py_ssize_t* stop,
) noexcept nogil:
    """The rows that match, where `found` is the first above: a range for all axes but ANCESTOR."""
    begin[0] = found
    if axis == DESCENDANT or axis == CHILD:
        stop[0] = above_from(view.start, found, high, end - 1)
    elif axis == SELF:
        stop[0] = found + (
            found < high and view.start[found] == start and view.end[found] == end
        )
    else:
        # Nodes of one level do not overlap: only the one before can be the parent.
        begin[0] = found - (found > low and view.end[found - 1] > end)
        stop[0] = found
    return found


cdef int climb(
    Join* join, uint64_t key, const View* view, Py_ssize_t row, const Entry* input
) noexcept nogil:
    """The pairs of an input with the candidates around it, from the one before it on."""
    cdef int status = FINE
    cdef uint32_t up
    while row >= 0 and status == FINE:
        if view.end[row] > input.end:
            if join.axis == PARENT and view.level[row] != input.level - 1:
                join.tally.false_hits += 1
                if view.level[row] < input.level - 1:
                    break
            else:
                status = emit(
                    join, key, input, view.start[row], view.end[row], view.level[row]
                )
        else:
            join.tally.false_hits += 1
        up = view.up[row]
        row = -1 if up == NO_ROW else <Py_ssize_t> up
    return status


# --- many inputs at once, of one complete label: the way that most inputs go ----------------------

cdef enum:
    AHEAD = 32           # inputs whose rows are fetched while others are looked at


cdef int query_list(
    Join* join, uint64_t key, List* list, const Batch* batch, Py_ssize_t begin, Py_ssize_t end
) noexcept nogil:
    """The pairs of neighbouring inputs with the candidates of their label."""
    cdef Py_ssize_t stop
    cdef int status = FINE
    while begin < end and status == FINE:
        stop = min(begin + AHEAD, end)
        if list.view.sample != NULL and not ascending(batch.start, begin, stop):
            status = query_ahead(join, key, list, batch, begin, stop)
        else:
            status = query_onwards(join, key, list, batch, begin, stop)
        begin = stop
    return status


cdef inline bint ascending(const int64_t* values, Py_ssize_t begin, Py_ssize_t end) noexcept nogil:
    cdef Py_ssize_t at
    for at in range(begin + 1, end):
        if values[at - 1] > values[at]:
            return False
    return True


cdef int query_onwards(
    Join* join, uint64_t key, List* list, const Batch* batch, Py_ssize_t begin, Py_ssize_t end
) noexcept nogil:
    """Each input begins where the one before ended up."""
    cdef int axis = join.axis
    cdef View view = list.view
    cdef Py_ssize_t at, low = 0, high = view.count, found = list.cursor
    cdef int status = FINE
    for at in range(begin, end):
        if view.begin != NULL and not span_of(axis, &view, batch.level[at], &low, &high):
            continue
        found = above_near(&view, found, low, high, first_above(axis, batch.start[at]))
        status = answer(join, key, axis, &view, batch, at, found, low, high)
        if status:
            break
    list.cursor = found
    return status


cdef int query_ahead(
    Join* join, uint64_t key, List* list, const Batch* batch, Py_ssize_t begin, Py_ssize_t end
) noexcept nogil:
    """First where to look for each, so that memory fetches it meanwhile; then look."""
    cdef int axis = join.axis
    cdef View view = list.view
    cdef Py_ssize_t windows[AHEAD]
    cdef Py_ssize_t at, low = 0, high = view.count, found
    cdef int status = FINE
    for at in range(begin, end):
        windows[at - begin] = -1
        if view.begin != NULL and not span_of(axis, &view, batch.level[at], &low, &high):
            continue
        found = window(&view, low, high, first_above(axis, batch.start[at]))
        windows[at - begin] = found
        prefetch(&view.start[found])
        prefetch(&view.start[found + 8])
        prefetch(&view.end[found + 4])
        prefetch(&view.end[found + 12])
        prefetch(&view.level[found])
    for at in range(begin, end):
        found = windows[at - begin]
        if found < 0:
            continue
        if view.begin != NULL:
            span_of(axis, &view, batch.level[at], &low, &high)
        found += above(
            view.start + found, min(high - found, <Py_ssize_t> SAMPLE),
            first_above(axis, batch.start[at]),
        )
        status = answer(join, key, axis, &view, batch, at, found, low, high)
        if status:
            break
    return status


cdef int query_apart(
    Join* join, const Batch* batch, Py_ssize_t begin, const uint32_t* numbers, Py_ssize_t row,
    Py_ssize_t last,
) noexcept nogil:
    """The pairs of some inputs with the lists of their labels, of which there are many.

    Searches in lists that caches do not hold wait for memory, so they take turns: in the samples of
    long lists first, then among the rows.
    """
    cdef int axis = join.axis
    cdef Search searches[AHEAD]
    cdef const View* views[AHEAD]
    cdef Py_ssize_t lows[AHEAD]
    cdef Py_ssize_t highs[AHEAD]
    cdef Py_ssize_t places[AHEAD]
    cdef Py_ssize_t at, input, found, number = 0
    cdef const View* view
    cdef bint sampled = False
    cdef int status
    for input in range(row, last):
        if numbers[input] >= EMPTY:
            continue
        view = &join.labels[numbers[input]].list.view
        lows[number] = 0
        highs[number] = view.count
        if not span_of(axis, view, batch.level[begin + input], &lows[number], &highs[number]):
            continue
        places[number] = begin + input
        views[number] = view
        searches[number].key = first_above(axis, batch.start[begin + input])
        if has_windows(view, lows[number], highs[number]):
            sampled = True
            searches[number].low = view.sample + lows[number] // SAMPLE + 1
            searches[number].count = (highs[number] - 1) // SAMPLE - lows[number] // SAMPLE
        else:
            searches[number].low = view.start + lows[number]
            searches[number].count = highs[number] - lows[number]
        number += 1
    above_each(searches, number)
    if sampled:
        for at in range(number):
            view = views[at]
            searches[at].count = 0
            if has_windows(view, lows[at], highs[at]):
                found = searches[at].low - view.sample - 1
                found = lows[at] if found == lows[at] // SAMPLE else found * SAMPLE
                searches[at].low = view.start + found
                searches[at].count = min(highs[at] - found, <Py_ssize_t> SAMPLE)
        above_each(searches, number)
    for at in range(number):
        found = searches[at].low - views[at].start
        prefetch(&views[at].start[found + 8])
        prefetch(&views[at].end[found])
        prefetch(&views[at].end[found + 8])
        prefetch(&views[at].level[found])
    for at in range(number):
        view = views[at]
        status = answer(
            join, join.labels[numbers[places[at] - begin]].key, axis, view, batch, places[at],
            searches[at].low - view.start, lows[at], highs[at],
        )
        if status:
            return status
    return FINE


cdef inline int answer(
    Join* join, uint64_t key, int axis, const View* view, const Batch* batch, Py_ssize_t at,
    Py_ssize_t found, Py_ssize_t low, Py_ssize_t high,
) noexcept nogil:
    """The pairs of an input, when the row above which they are was found."""
    cdef Entry input
    cdef Py_ssize_t first = 0, stop = 0
    if axis == ANCESTOR:
        input.id = batch.id[at]
        input.end = batch.end[at]
        return climb(join, key, view, found - 1, &input)
    range_of(axis, view, found, low, high, batch.start[at], batch.end[at], &first, &stop)
    return emit_rows(&join.out, <int32_t> (key >> 32), batch.id[at], view, first, stop)


# --- queries on disk ----------------------------------------------------------------------------


cdef int query_run(Join* join, uint64_t key, Run* run, const Entry* input) noexcept nogil:
    """The pairs of an input with candidates on disk, which lie by start alone."""
    if join.axis == ANCESTOR or join.axis == PARENT:
        return climb_run(join, key, run, input)
    return range_of_run(join, key, run, input)


cdef inline int64_t rows_of_page(const Run* run, int64_t page) noexcept nogil:
    return min(<int64_t> PAGE, run.rows - page * PAGE)


cdef int range_of_run(Join* join, uint64_t key, Run* run, const Entry* input) noexcept nogil:
    """Descendants, children, or the node itself."""
    cdef int64_t low = input.start - (1 if join.axis == SELF else 0)
    cdef int64_t high = input.end if join.axis != SELF else input.start + 1
    cdef int64_t page = above(run.first, run.pages, low) - 1
    cdef Page held
    cdef Py_ssize_t row, rows
    cdef int status
    if page < 0:
        page = 0
    while page < run.pages and run.first[page] < high:
        status = read_page(join, run, page, True)
        if status:
            return status
        held = page_of(join.rows_at, run)
        rows = <Py_ssize_t> rows_of_page(run, page)
        row = above(held.start, rows, low)
        while row < rows and held.start[row] < high:
            if (join.axis == CHILD and held.level[row] != input.level + 1) or (
                join.axis == SELF and held.end[row] != input.end
            ):
                join.tally.false_hits += 1
            elif emit(join, key, input, held.start[row], held.end[row], held.level[row]):
                return NO_MEMORY
            row += 1
        page += 1
    return FINE


cdef int climb_run(Join* join, uint64_t key, Run* run, const Entry* input) noexcept nogil:
    """Ancestors, or the parent."""
    cdef int64_t page = above(run.first, run.pages, input.start - 1) - 1
    cdef Page held
    cdef int64_t row
    cdef Py_ssize_t at
    cdef int status
    if page < 0:
        return FINE
    status = read_page(join, run, page, True)
    if status:
        return status
    held = page_of(join.rows_at, run)
    at = above(held.start, <Py_ssize_t> rows_of_page(run, page), input.start - 1) - 1
    row = page * PAGE + at
    while True:
        if held.end[at] <= input.end:
            join.tally.false_hits += 1
        elif join.axis == PARENT and held.level[at] != input.level - 1:
            join.tally.false_hits += 1
            if held.level[at] < input.level - 1:
                return FINE
        elif emit(join, key, input, held.start[at], held.end[at], held.level[at]):
            return NO_MEMORY
        if held.up[at] == NO_ROW:
            return FINE
        row = held.up[at]
        status = read_page(join, run, row // PAGE, True)
        if status:
            return status
        held = page_of(join.rows_at, run)
        at = <Py_ssize_t> (row % PAGE)
