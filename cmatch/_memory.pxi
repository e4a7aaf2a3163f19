# The budget: who is the victim when it is used up, and how it is pushed to disk.


cdef inline void unchain(Join* join, Unit* unit) noexcept nogil:
    if unit.older != NULL:
        unit.older.newer = unit.newer
    else:
        join.oldest = unit.newer
    if unit.newer != NULL:
        unit.newer.older = unit.older
    else:
        join.newest = unit.older


cdef inline void chain(Join* join, Unit* unit) noexcept nogil:
    unit.newer = NULL
    unit.older = join.newest
    if join.newest != NULL:
        join.newest.newer = unit
    else:
        join.oldest = unit
    join.newest = unit
    unit.placed = join.tick
    unit.used = join.tick


cdef inline void use(Join* join, Unit* unit) noexcept nogil:
    """It is used now. It stays in its place: to move it would touch its neighbours' memory, too."""
    unit.used = join.tick


cdef inline void hold(Join* join, Unit* unit) noexcept nogil:
    join.held += unit.bytes
    join.peak = max(join.peak, join.held)
    chain(join, unit)


cdef inline void release(Join* join, Unit* unit) noexcept nogil:
    """Free a unit, whatever is in it."""
    unchain(join, unit)
    join.held -= unit.bytes
    free(unit)


cdef enum:
    PEERS = 64           # how many of those used last at the same time are looked at


cdef Unit* victim_of(Join* join) noexcept nogil:
    """The fullest of those that have not been used for the longest time; NULL if there is none."""
    cdef Unit* found
    cdef Unit* unit
    cdef int looked = 0
    cdef uint64_t used
    # Those that were used since they got their place get another one first.
    while join.oldest != NULL and join.oldest.used != join.oldest.placed:
        unit = join.oldest
        used = unit.used
        unchain(join, unit)
        chain(join, unit)
        unit.used = unit.placed = used
    found = unit = join.oldest
    while unit != NULL and unit.used == found.used and looked < PEERS:
        if unit.fill > found.fill:
            found = unit
        unit = unit.newer
        looked += 1
    return found


# --- the bitmap of spilled labels ---------------------------------------------------------------


cdef inline bint is_spilled(Join* join, uint32_t label, int side) noexcept nogil:
    return (join.spilled[side][label >> 6] >> (label & 63)) & 1


cdef inline void set_spilled(Join* join, uint32_t label, int side, bint value) noexcept nogil:
    cdef uint64_t bit = (<uint64_t> 1) << (label & 63)
    if value:
        join.spilled[side][label >> 6] |= bit
    else:
        join.spilled[side][label >> 6] &= ~bit


# --- pieces -------------------------------------------------------------------------------------


cdef Piece* add_piece(Join* join, Pieces* pieces) noexcept nogil:
    """One piece more; NULL if there is no memory."""
    cdef Piece* moved
    cdef Py_ssize_t room
    if pieces.count == pieces.room:
        room = 2 * pieces.room if pieces.room else 1
        moved = <Piece*> realloc(pieces.at, room * sizeof(Piece))
        if moved == NULL:
            return NULL
        join.table += (room - pieces.room) * <int64_t> sizeof(Piece)
        pieces.at = moved
        pieces.room = room
    moved = &pieces.at[pieces.count]
    memset(moved, 0, sizeof(Piece))
    moved.low = INT64_MAX
    moved.high = moved.reach = moved.far = INT64_MIN
    pieces.count += 1
    return moved


cdef void free_pieces(Join* join, Pieces* pieces) noexcept nogil:
    join.table -= pieces.room * <int64_t> sizeof(Piece)
    free(pieces.at)
    memset(pieces, 0, sizeof(Pieces))


cdef inline void stretch(Piece* piece, const Entry* row) noexcept nogil:
    """Let a piece know of a row."""
    piece.rows += 1
    piece.low = min(piece.low, row.start)
    piece.high = max(piece.high, row.start)
    piece.reach = max(piece.reach, row.end)
    piece.far = max(piece.far, row.end)


cdef void lose(Side* side, Py_ssize_t place) noexcept nogil:
    """A partition is no longer in memory; pieces close up when half of them are gone."""
    cdef Pieces* parts = &side.parts
    cdef Py_ssize_t at, kept = 0
    if side.open == parts.at[place].part:
        side.open = NULL
    parts.at[place].part = NULL
    parts.gone += 1
    if 2 * parts.gone <= parts.count:
        return
    for at in range(parts.count):
        if parts.at[at].part != NULL:
            parts.at[kept] = parts.at[at]
            parts.at[kept].part.place = kept
            kept += 1
    parts.count = kept
    parts.gone = 0


# --- pushing to disk ----------------------------------------------------------------------------


cdef int spill_rows(
    Join* join, uint32_t label, int which, const Entry* rows, Py_ssize_t count, const Entry* extra
) noexcept nogil:
    """Push rows, and one more if there is one, to disk as an extent in AD order."""
    cdef Side* side = &join.labels[label].pending.sides[which]
    cdef Piece* piece = add_piece(join, &side.extents)
    cdef Py_ssize_t row
    cdef bint ordered = True
    cdef int status
    if piece == NULL:
        return NO_MEMORY
    memcpy(join.scratch, rows, count * sizeof(Entry))
    if extra != NULL:
        join.scratch[count] = extra[0]
        count += 1
    for row in range(count):
        stretch(piece, &join.scratch[row])
        ordered = ordered and (row == 0 or join.scratch[row - 1].start <= join.scratch[row].start)
    if not ordered:
        qsort(join.scratch, count, sizeof(Entry), by_start)
    status = write_extent(join, join.scratch, count, &piece.offset)
    if status:
        side.extents.count -= 1
        return status
    set_spilled(join, label, which, True)
    join.tally.spills += 1
    if join.tracing:
        note(join, SPILLED, which, join.labels[label].key, -1, -1, -1, count)
    return FINE


cdef int spill_partition(Join* join, Partition* part, const Entry* extra) noexcept nogil:
    """Push a partition to disk, with one row more if there is one; it is free then."""
    cdef uint32_t label = part.unit.label
    cdef int which = part.unit.kind
    cdef int status = spill_rows(
        join, label, which, part.rows, <Py_ssize_t> part.unit.fill, extra
    )
    if status == FINE:
        lose(&join.labels[label].pending.sides[which], part.place)
        release(join, &part.unit)
    return status


cdef int spill_list(Join* join, List* gone) noexcept nogil:
    """Push a list to disk, unless it is there already; it is free then."""
    cdef Label* label = &join.labels[gone.unit.label]
    cdef RunWriter writer
    cdef int status
    if label.run == NULL:
        status = begin_run(join, &writer, gone.view.count)
        if status == FINE:
            status = put_all_in_run(join, &writer, &gone.view)
        status = end_run(join, &writer, status, &label.run)
        if status:
            return status
        join.tally.spills += 1
        if join.tracing:
            note(join, SPILLED, LIST, label.key, -1, -1, -1, gone.view.count)
    label.run.heat = 0
    set_spilled(join, gone.unit.label, RIGHT, True)
    label.list = NULL
    release(join, &gone.unit)
    return FINE


cdef int put_all_in_run(Join* join, RunWriter* writer, const View* view) noexcept nogil:
    """Write a list in AD order; one by level is merged on the way."""
    cdef Py_ssize_t row, level, first
    cdef uint32_t* next
    cdef int status = FINE
    if view.begin == NULL:
        for row in range(view.count):
            status = put_in_run(join, writer, view.start[row], view.end[row], view.level[row])
            if status:
                return status
        return FINE
    next = <uint32_t*> malloc((view.span + 1) * sizeof(uint32_t))
    if next == NULL:
        return NO_MEMORY
    memcpy(next, view.begin, (view.span + 1) * sizeof(uint32_t))
    for row in range(view.count):
        first = -1
        for level in range(view.span):
            if next[level] < view.begin[level + 1] and (
                first < 0 or view.start[next[level]] < view.start[next[first]]
            ):
                first = level
        status = put_in_run(
            join, writer, view.start[next[first]], view.end[next[first]], view.low + first
        )
        if status:
            break
        next[first] += 1
    free(next)
    return status


cdef int push_out(Join* join, Unit* victim) noexcept nogil:
    if victim.kind == LEAF:
        drop_leaf(join, <Leaf*> victim)
        return FINE
    if join.tracing:
        note(join, VICTIM, victim.kind, join.labels[victim.label].key, -1, -1, -1, victim.fill)
    if victim.kind == LIST:
        return spill_list(join, <List*> victim)
    return spill_partition(join, <Partition*> victim, NULL)


cdef int make_room(Join* join, int64_t bytes, bint gently, bint* made) noexcept nogil:
    """Push victims out until so many bytes are free; gently: none that is in use right now."""
    cdef Unit* victim
    cdef int status
    made[0] = False
    if bytes > join.budget:
        return FINE
    while join.held + bytes > join.budget:
        victim = victim_of(join)
        if victim == NULL or (gently and victim.used == join.tick):
            return FINE
        status = push_out(join, victim)
        if status:
            return status
    made[0] = True
    return FINE


# --- pages that were read -----------------------------------------------------------------------


cdef void drop_leaf(Join* join, Leaf* leaf) noexcept nogil:
    leaf.run.leaves[leaf.page] = NULL
    leaf.run.held -= leaf.unit.bytes
    release(join, &leaf.unit)


cdef void drop_leaves(Join* join, Run* run) noexcept nogil:
    cdef Py_ssize_t page
    if run.held:
        for page in range(run.pages):
            if run.leaves[page] != NULL:
                drop_leaf(join, run.leaves[page])


cdef Leaf* new_leaf(Join* join, Run* run, int64_t page) noexcept nogil:
    """Memory for a page; NULL if there is none but where something else than pages would go."""
    cdef int64_t bytes = sizeof(Leaf) + room_of(run) * ROW_BYTES
    cdef Unit* victim
    cdef Leaf* leaf
    if bytes > join.budget:
        return NULL
    while join.held + bytes > join.budget:
        victim = victim_of(join)
        if victim == NULL or victim.kind != LEAF:
            return NULL
        drop_leaf(join, <Leaf*> victim)
    if run.leaves == NULL:
        run.leaves = <Leaf**> calloc(run.pages, sizeof(Leaf*))
        if run.leaves == NULL:
            return NULL
        join.table += run.pages * <int64_t> sizeof(Leaf*)
    leaf = <Leaf*> calloc(1, bytes)
    if leaf != NULL:
        leaf.unit.bytes = bytes
        leaf.unit.fill = room_of(run)
        leaf.unit.kind = LEAF
        leaf.run = run
        leaf.page = page
    return leaf


cdef int read_page(Join* join, Run* run, int64_t page, bint keep) noexcept nogil:
    """A page of a run, at `rows_at`; kept in memory if there is room and it is to be kept."""
    cdef int64_t at = run.offset + page * PAGE_BYTES
    cdef Leaf* leaf = NULL
    if run.held and run.leaves[page] != NULL:
        use(join, &run.leaves[page].unit)
        join.rows_at = <char*> (run.leaves[page] + 1)
        return FINE
    join.rows_at = join.page
    if join.page_at == at:
        return FINE
    if keep:
        leaf = new_leaf(join, run, page)
    if leaf != NULL:
        join.rows_at = <char*> (leaf + 1)
    else:
        join.page_at = -1
    join.error = read_all(join.file, join.rows_at, room_of(run) * ROW_BYTES, at)
    if join.error:
        free(leaf)
        return NO_DISK
    join.tally.overflow_reads += 1
    run.heat += 1
    if leaf == NULL:
        join.page_at = at
        return FINE
    run.leaves[page] = leaf
    run.held += leaf.unit.bytes
    hold(join, &leaf.unit)
    return FINE
