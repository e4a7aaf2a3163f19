# The queries of either side: Step 2 of CClean. And what happens when a label is complete.


cdef inline bint holds(int axis, const Entry* input, const Entry* row) noexcept nogil:
    """Theta: whether a candidate stands on the axis of an input."""
    if axis == SELF:
        return row.start == input.start and row.end == input.end
    if axis == CHILD or axis == DESCENDANT:
        return (
            input.start < row.start and row.end < input.end
            and (axis == DESCENDANT or row.level == input.level + 1)
        )
    return (
        row.start < input.start and input.end < row.end
        and (axis == ANCESTOR or row.level == input.level - 1)
    )


cdef inline bint may_hold(int axis, const Entry* input, const Piece* piece) noexcept nogil:
    """Whether some row of a piece can stand there."""
    if axis == SELF:
        return piece.low <= input.start <= piece.high
    if axis == CHILD or axis == DESCENDANT:
        return input.start < piece.high and piece.low < input.end
    return piece.low < input.start and input.end < piece.reach


# --- left queries -------------------------------------------------------------------------------


cdef int join_rows(
    Join* join, uint64_t key, const Entry* input, const Entry* rows, Py_ssize_t count, bint ordered
) noexcept nogil:
    """The pairs of an input with candidates of one piece: those with ts_left > ts_right."""
    cdef Py_ssize_t low = 0, high = count, middle
    cdef bint downwards = join.axis == CHILD or join.axis == DESCENDANT
    if ordered and join.axis != ANCESTOR and join.axis != PARENT:
        while low < high:
            middle = (low + high) >> 1
            if rows[middle].start < input.start:
                low = middle + 1
            else:
                high = middle
    while low < count:
        if ordered and rows[low].start > (input.end if downwards else input.start):
            break
        if not holds(join.axis, input, &rows[low]):
            join.tally.false_hits += 1
        elif input.stamp > rows[low].stamp:
            if emit(join, key, input, rows[low].start, rows[low].end, rows[low].level):
                return NO_MEMORY
        low += 1
    return FINE


cdef Py_ssize_t first_piece(const Pieces* parts, int axis, const Entry* input) noexcept nogil:
    """Of pieces by start, the first that an input can have pairs in, looking up or down."""
    cdef Py_ssize_t low = 0, high = parts.count, middle
    cdef bint before
    while low < high:
        middle = (low + high) >> 1
        if axis == ANCESTOR or axis == PARENT:
            before = parts.at[middle].low < input.start
        else:
            before = parts.at[middle].high < input.start
        if before:
            low = middle + 1
        else:
            high = middle
    return low


cdef int query_right(Join* join, uint32_t label, const Entry* input) noexcept nogil:
    """Step 2 of an input: the candidates of its label that have come, in memory and on disk."""
    cdef uint64_t key = join.labels[label].key
    cdef Side* side = &join.labels[label].pending.sides[RIGHT]
    cdef Piece* piece
    cdef Py_ssize_t at
    cdef int status = FINE
    if join.tracing:
        note(join, QUERY_MEMORY, LEFT, key, input.id, input.start, input.stamp, side.parts.count)
    if not side.ordered:
        for at in range(side.parts.count):
            piece = &side.parts.at[at]
            if piece.part != NULL and status == FINE and may_hold(join.axis, input, piece):
                status = join_piece(join, key, input, piece)
    elif join.axis == ANCESTOR or join.axis == PARENT:
        at = first_piece(&side.parts, join.axis, input) - 1
        while at >= 0 and side.parts.at[at].far > input.end and status == FINE:
            piece = &side.parts.at[at]
            if piece.part != NULL and piece.reach > input.end:
                status = join_piece(join, key, input, piece)
            at -= 1
    else:
        at = first_piece(&side.parts, join.axis, input)
        while at < side.parts.count and side.parts.at[at].low < input.end and status == FINE:
            piece = &side.parts.at[at]
            if piece.part != NULL:
                status = join_piece(join, key, input, piece)
            at += 1
    if status or not is_spilled(join, label, RIGHT):
        return status
    if join.tracing:
        note(join, QUERY_DISK, LEFT, key, input.id, input.start, input.stamp, side.extents.count)
    for at in range(side.extents.count):
        piece = &side.extents.at[at]
        if may_hold(join.axis, input, piece):
            status = read_extent(join, piece)
            if status == FINE:
                status = join_rows(
                    join, key, input, join.scratch, <Py_ssize_t> piece.rows, True
                )
            if status:
                return status
    return FINE


cdef inline int join_piece(
    Join* join, uint64_t key, const Entry* input, Piece* piece
) noexcept nogil:
    use(join, &piece.part.unit)
    return join_rows(
        join, key, input, piece.part.rows, <Py_ssize_t> piece.part.unit.fill, piece.part.ordered
    )


# --- right queries ------------------------------------------------------------------------------


cdef int query_left(Join* join, uint32_t label, const View* vector, int64_t stamp) noexcept nogil:
    """Step 2 of a vector of candidates: the inputs of their label, in memory and on disk."""
    cdef uint64_t key = join.labels[label].key
    cdef Side* side = &join.labels[label].pending.sides[LEFT]
    cdef Partition* part
    cdef Py_ssize_t at
    cdef int status = FINE
    if vector.count == 0:
        return FINE
    if join.tracing:
        note(join, QUERY_MEMORY, RIGHT, key, -1, -1, stamp, side.parts.count)
    for at in range(side.parts.count):
        part = side.parts.at[at].part
        if part != NULL and status == FINE:
            use(join, &part.unit)
            status = meet(join, key, vector, stamp, part.rows, <Py_ssize_t> part.unit.fill)
    if status or not is_spilled(join, label, LEFT):
        return status
    if join.tracing:
        note(join, QUERY_DISK, RIGHT, key, -1, -1, stamp, side.extents.count)
    for at in range(side.extents.count):
        status = read_extent(join, &side.extents.at[at])
        if status == FINE:
            status = meet(
                join, key, vector, stamp, join.scratch, <Py_ssize_t> side.extents.at[at].rows
            )
        if status:
            return status
    return FINE


cdef int meet(
    Join* join, uint64_t key, const View* vector, int64_t stamp, const Entry* inputs,
    Py_ssize_t count,
) noexcept nogil:
    """The pairs of a vector with inputs of one piece: those with ts_right >= ts_left."""
    cdef Py_ssize_t at, cursor = 0
    cdef int status = FINE
    for at in range(count):
        if stamp >= inputs[at].stamp:
            status = query_view(join, key, vector, &cursor, &inputs[at])
            if status:
                break
    return status


# --- a complete label ---------------------------------------------------------------------------


cdef int complete(Join* join, uint32_t label) noexcept nogil:
    """All candidates have come and have met all inputs: only candidates are needed from now on."""
    cdef Pending* pending = join.labels[label].pending
    cdef Side* side = &pending.sides[RIGHT]
    cdef int64_t bytes
    cdef int status
    cdef bint room = False
    status = drop_left(join, label)
    if status:
        return status
    pending.complete = True
    if side.rows == 0:
        free_pending(join, label)
        return FINE
    bytes = list_bytes(join.axis, side.rows, side.levels.span)
    if side.ordered:
        status = make_room(join, bytes, False, &room)
        if status == FINE:
            status = order_in_memory(join, label) if room else order_on_disk(join, label)
    elif bytes + side.rows * <int64_t> sizeof(Entry) <= join.budget:
        # Candidates that came in no order: sorted on the side, within the budget, too.
        status = make_room(join, bytes + side.rows * sizeof(Entry), False, &room)
        if status == FINE and room:
            status = sort_in_memory(join, label)
    # Others stay as they are, and queries look into each of their pieces.
    return status


cdef int drop_left(Join* join, uint32_t label) noexcept nogil:
    cdef int status = drop_side(join, label, LEFT)
    if join.tracing:
        note(join, LEFT_DROPPED, LEFT, join.labels[label].key, -1, -1, -1, 0)
    return status


cdef int by_low(const void* left, const void* right) noexcept nogil:
    cdef const Piece* one = <const Piece*> left
    cdef const Piece* other = <const Piece*> right
    return (one.low > other.low) - (one.low < other.low)


cdef Piece* all_pieces(Side* side, Py_ssize_t* count) noexcept nogil:
    """Copies of all pieces of a side, by start; the caller frees them."""
    cdef Py_ssize_t at, most = side.parts.count + side.extents.count
    cdef Piece* found = <Piece*> malloc((most + 1) * sizeof(Piece))
    count[0] = 0
    if found == NULL:
        return NULL
    for at in range(side.parts.count):
        if side.parts.at[at].part != NULL:
            found[count[0]] = side.parts.at[at]
            count[0] += 1
    for at in range(side.extents.count):
        found[count[0]] = side.extents.at[at]
        found[count[0]].part = NULL
        count[0] += 1
    qsort(found, count[0], sizeof(Piece), by_low)
    return found


cdef int rows_of(Join* join, const Piece* piece, const Entry** rows) noexcept nogil:
    """The rows of a piece, which may be in `scratch` then."""
    if piece.part != NULL:
        rows[0] = piece.part.rows
        return FINE
    rows[0] = join.scratch
    return read_extent(join, piece)


cdef int order_in_memory(Join* join, uint32_t label) noexcept nogil:
    """Pieces that follow each other become a list."""
    cdef Side* side = &join.labels[label].pending.sides[RIGHT]
    cdef Py_ssize_t at, row, count = 0
    cdef Piece* pieces = all_pieces(side, &count)
    cdef const Entry* rows = NULL
    cdef Filler filler
    cdef int status
    if pieces == NULL:
        return NO_MEMORY
    status = begin_list(join, &filler, side.rows, &side.levels)
    for at in range(count):
        if status == FINE:
            status = rows_of(join, &pieces[at], &rows)
        if status == FINE:
            for row in range(pieces[at].rows):
                put_in_list(&filler, rows[row].start, rows[row].end, rows[row].level)
    free(pieces)
    if status:
        free(filler.list)
        free(filler.next)
        return status
    return adopt(join, label, end_list(&filler))


cdef int adopt(Join* join, uint32_t label, List* made) noexcept nogil:
    """A list takes the place of the right side."""
    cdef int status
    made.unit.label = label
    hold(join, &made.unit)
    join.labels[label].list = made
    if join.tracing:
        note(join, ORDERED, LIST, join.labels[label].key, -1, -1, -1, made.view.count)
    if join.labels[label].pending == NULL:
        return FINE
    status = drop_side(join, label, RIGHT)
    free_pending(join, label)
    return status


cdef int order_on_disk(Join* join, uint32_t label) noexcept nogil:
    """Pieces that follow each other become a run, a page at a time."""
    cdef Side* side = &join.labels[label].pending.sides[RIGHT]
    cdef Py_ssize_t at, row, count = 0
    cdef Piece* pieces = all_pieces(side, &count)
    cdef const Entry* rows = NULL
    cdef RunWriter writer
    cdef int status
    if pieces == NULL:
        return NO_MEMORY
    status = begin_run(join, &writer, side.rows)
    for at in range(count):
        if status == FINE:
            status = rows_of(join, &pieces[at], &rows)
        if status == FINE:
            for row in range(pieces[at].rows):
                status = put_in_run(
                    join, &writer, rows[row].start, rows[row].end, rows[row].level
                )
                if status:
                    break
    free(pieces)
    status = end_run(join, &writer, status, &join.labels[label].run)
    if status:
        return status
    return ordered_on_disk(join, label)


cdef int ordered_on_disk(Join* join, uint32_t label) noexcept nogil:
    """A run takes the place of the right side."""
    cdef int status = FINE
    join.tally.spills += 1
    if join.tracing:
        note(join, ORDERED, RIGHT, join.labels[label].key, -1, -1, -1, join.labels[label].run.rows)
    if join.labels[label].pending != NULL:
        status = drop_side(join, label, RIGHT)
        free_pending(join, label)
    set_spilled(join, label, RIGHT, True)
    return status


cdef int sort_in_memory(Join* join, uint32_t label) noexcept nogil:
    """Pieces in no order become a list."""
    cdef Side* side = &join.labels[label].pending.sides[RIGHT]
    cdef Py_ssize_t at, row, count = 0, filled = 0
    cdef Piece* pieces = all_pieces(side, &count)
    cdef Entry* sorted_rows = <Entry*> malloc(side.rows * sizeof(Entry))
    cdef const Entry* rows = NULL
    cdef Filler filler
    cdef int status = FINE
    if pieces == NULL or sorted_rows == NULL:
        status = NO_MEMORY
    for at in range(count):
        if status == FINE:
            status = rows_of(join, &pieces[at], &rows)
        if status == FINE:
            memcpy(sorted_rows + filled, rows, pieces[at].rows * sizeof(Entry))
            filled += <Py_ssize_t> pieces[at].rows
    free(pieces)
    if status == FINE:
        qsort(sorted_rows, filled, sizeof(Entry), by_start)
        status = begin_list(join, &filler, side.rows, &side.levels)
    if status == FINE:
        for row in range(filled):
            put_in_list(
                &filler, sorted_rows[row].start, sorted_rows[row].end, sorted_rows[row].level
            )
    free(sorted_rows)
    return status if status else adopt(join, label, end_list(&filler))


cdef int seal(Join* join, uint32_t label, const View* vector, const Levels* levels) noexcept nogil:
    """The same for a label whose candidates all came in one vector."""
    cdef int status = drop_left(join, label)
    if status:
        return status
    free_pending(join, label)
    return keep(join, label, vector, levels, False) if vector.count else FINE


cdef int keep(
    Join* join, uint32_t label, const View* vector, const Levels* levels, bint gently
) noexcept nogil:
    """Candidates that are all there are of a label become its list, or its run."""
    cdef int64_t bytes = list_bytes(join.axis, vector.count, levels.span)
    cdef Filler filler
    cdef RunWriter writer
    cdef Py_ssize_t row
    cdef bint room = False
    cdef int status = make_room(join, bytes, gently, &room)
    if status:
        return status
    if room:
        status = begin_list(join, &filler, vector.count, levels)
        if status:
            return status
        for row in range(vector.count):
            put_in_list(&filler, vector.start[row], vector.end[row], vector.level[row])
        return adopt(join, label, end_list(&filler))
    status = begin_run(join, &writer, vector.count)
    if status == FINE:
        status = put_all_in_run(join, &writer, vector)
    status = end_run(join, &writer, status, &join.labels[label].run)
    return status if status else ordered_on_disk(join, label)


cdef int query_complete(Join* join, uint32_t number, const Entry* input) noexcept nogil:
    """Step 2 of an input whose label is complete."""
    cdef Label* label = &join.labels[number]
    cdef int status
    if label.list != NULL:
        if join.tracing:
            note(join, QUERY_MEMORY, LEFT, label.key, input.id, input.start, input.stamp, 1)
        return query_view(join, label.key, &label.list.view, &label.list.cursor, input)
    if not is_spilled(join, number, RIGHT):
        return FINE
    status = reload(join, number)
    if status == FINE and label.list != NULL:
        return query_view(join, label.key, &label.list.view, &label.list.cursor, input)
    if status:
        return status
    if join.tracing:
        note(join, QUERY_DISK, LEFT, label.key, input.id, input.start, input.stamp, 1)
    return query_run(join, label.key, label.run, input)


cdef int reload(Join* join, uint32_t number) noexcept nogil:
    """Bring a run back into memory: if there is room, or if it was read so often that it pays."""
    cdef Label* label = &join.labels[number]
    cdef Run* run = label.run
    cdef int64_t bytes = list_bytes(join.axis, run.rows, run.levels.span)
    cdef int64_t number_of_page
    cdef Py_ssize_t row
    cdef Page page
    cdef Filler filler
    cdef bint room = join.held - run.held + bytes <= join.budget
    cdef int status = FINE
    if not room and run.heat >= 2 * run.pages:
        status = make_room(join, bytes, True, &room)
    if status or not room:
        return status
    drop_leaves(join, run)
    status = begin_list(join, &filler, run.rows, &run.levels)
    number_of_page = 0
    while status == FINE and number_of_page < run.pages:
        status = read_page(join, run, number_of_page, False)
        if status == FINE:
            page = page_of(join.rows_at, run)
            for row in range(rows_of_page(run, number_of_page)):
                put_in_list(&filler, page.start[row], page.end[row], page.level[row])
        number_of_page += 1
    if status:
        free(filler.list)
        free(filler.next)
        return status
    run.heat = 0
    if join.tracing:
        note(join, RELOADED, LIST, label.key, -1, -1, -1, run.rows)
    return adopt(join, number, end_list(&filler))
