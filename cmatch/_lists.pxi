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
    free(filler.next)
    if filler.up != NULL:
        trace_up(filler.start, filler.end, filler.list.view.count, filler.up)
    return filler.list


# --- queries in memory --------------------------------------------------------------------------


cdef inline int query_view(
    Join* join, uint64_t key, const View* view, Py_ssize_t* cursor, const Entry* input
) noexcept nogil:
    """The pairs of an input with candidates in AD order."""
    cdef Py_ssize_t low, high
    cdef int64_t wanted
    if join.axis == DESCENDANT:
        low = above_near(view.start, cursor[0], view.count, input.start)
        cursor[0] = low
        high = above_from(view.start, low, view.count, input.end - 1)
        return emit_rows(join, key, input, view, low, high)
    if join.axis == ANCESTOR:
        low = above_near(view.start, cursor[0], view.count, input.start - 1)
        cursor[0] = low
        return climb(join, key, view, low - 1, input)
    if join.axis == SELF:
        low = above_near(view.start, cursor[0], view.count, input.start - 1)
        cursor[0] = low
        if low < view.count and view.start[low] == input.start and view.end[low] == input.end:
            return emit_rows(join, key, input, view, low, low + 1)
        return FINE
    if view.begin == NULL:
        return query_plain(join, key, view, cursor, input)
    wanted = input.level + (1 if join.axis == CHILD else -1) - view.low
    if wanted < 0 or wanted >= view.span:
        return FINE
    low = view.begin[wanted]
    high = view.begin[wanted + 1]
    if join.axis == CHILD:
        if cursor[0] < low or cursor[0] > high:
            cursor[0] = low
        low += above_near(view.start + low, cursor[0] - low, high - low, input.start)
        cursor[0] = low
        high = above_from(view.start, low, high, input.end - 1)
        return emit_rows(join, key, input, view, low, high)
    if cursor[0] < low or cursor[0] > high:
        cursor[0] = low
    high = low + above_near(view.start + low, cursor[0] - low, high - low, input.start - 1)
    cursor[0] = high
    if high > low and view.end[high - 1] > input.end:
        return emit_rows(join, key, input, view, high - 1, high)
    return FINE


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


cdef int query_plain(
    Join* join, uint64_t key, const View* view, Py_ssize_t* cursor, const Entry* input
) noexcept nogil:
    """Children and parents among candidates that lie by start alone."""
    cdef Py_ssize_t low, high
    cdef int status = FINE
    if join.axis == PARENT:
        low = above_near(view.start, cursor[0], view.count, input.start - 1)
        cursor[0] = low
        return climb(join, key, view, low - 1, input)
    low = above_near(view.start, cursor[0], view.count, input.start)
    cursor[0] = low
    high = above_from(view.start, low, view.count, input.end - 1)
    while low < high and status == FINE:
        if view.level[low] == input.level + 1:
            status = emit(join, key, input, view.start[low], view.end[low], view.level[low])
        else:
            join.tally.false_hits += 1
        low += 1
    return status


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
    cdef Page held = page_of(join.page)
    cdef Py_ssize_t row, rows
    cdef int status
    if page < 0:
        page = 0
    while page < run.pages and run.first[page] < high:
        status = read_page(join, run, page)
        if status:
            return status
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
    cdef Page held = page_of(join.page)
    cdef int64_t row
    cdef Py_ssize_t at
    cdef int status
    if page < 0:
        return FINE
    status = read_page(join, run, page)
    if status:
        return status
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
        status = read_page(join, run, row // PAGE)
        if status:
            return status
        at = <Py_ssize_t> (row % PAGE)
