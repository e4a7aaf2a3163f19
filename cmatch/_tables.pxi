# The table of labels, and insertion: Step 1 of CClean, with its two cases.


cdef inline uint64_t slot_of(uint64_t key, uint64_t mask) noexcept nogil:
    key *= <uint64_t> 0x9E3779B97F4A7C15
    return (key >> 32) & mask


cdef inline Slot* find_slot(Join* join, uint64_t key) noexcept nogil:
    """The slot of a label, or the free one where it belongs."""
    cdef uint64_t at = slot_of(key, join.mask)
    while join.slots[at].label != NO_LABEL and join.slots[at].key != key:
        at = (at + 1) & join.mask
    return &join.slots[at]


cdef inline void enter(
    Slot* slots, uint64_t mask, uint64_t key, uint32_t label, uint32_t rent
) noexcept nogil:
    cdef uint64_t at = slot_of(key, mask)
    while slots[at].label != NO_LABEL:
        at = (at + 1) & mask
    slots[at].key = key
    slots[at].label = label
    slots[at].rent = rent


cdef Slot* free_slots(uint64_t size) noexcept nogil:
    """So many slots; NULL if there is no memory."""
    cdef Slot* slots = <Slot*> resized(NULL, size * sizeof(Slot))
    if slots != NULL:
        memset(slots, 0xFF, size * sizeof(Slot))
    return slots


cdef int rehash(Join* join, uint64_t size) noexcept nogil:
    """A table of so many slots, a power of two."""
    cdef Slot* slots = free_slots(size)
    cdef Slot* slot
    cdef uint64_t at
    if slots == NULL:
        return NO_MEMORY
    if join.slots != NULL:
        for at in range(join.mask + 1):
            slot = &join.slots[at]
            if slot.label != NO_LABEL:
                enter(slots, size - 1, slot.key, slot.label, slot.rent)
        join.table -= (join.mask + 1) * sizeof(Slot)
    free(join.slots)
    join.slots = slots
    join.mask = size - 1
    join.table += size * sizeof(Slot)
    return FINE


cdef int reserve(Join* join, uint64_t more) noexcept nogil:
    """Slots for so many labels more; at least a third of all stay free."""
    cdef uint64_t size = join.mask + 1
    while 3 * (join.used + more) > 2 * size:
        size <<= 1
    return rehash(join, size) if size > join.mask + 1 else FINE


cdef int grow_labels(Join* join) noexcept nogil:
    cdef uint32_t room = 2 * join.room if join.room else 64
    cdef void* moved
    cdef int side
    if room < join.room or room > EMPTY:
        return NO_MEMORY
    moved = realloc(join.labels, room * sizeof(Label))
    if moved == NULL:
        return NO_MEMORY
    join.labels = <Label*> moved
    for side in range(2):
        moved = realloc(join.spilled[side], room >> 3)
        if moved == NULL:
            return NO_MEMORY
        join.spilled[side] = <uint64_t*> moved
        memset(<char*> moved + (join.room >> 3), 0, (room - join.room) >> 3)
    join.table += (room - join.room) * (<int64_t> sizeof(Label)) + ((room - join.room) >> 2)
    join.room = room
    return FINE


cdef int add_label(Join* join, uint64_t key, uint32_t* number) noexcept nogil:
    """A label that has more than its slot."""
    cdef int status
    if join.count == join.room:
        status = grow_labels(join)
        if status:
            return status
    memset(&join.labels[join.count], 0, sizeof(Label))
    join.labels[join.count].key = key
    number[0] = join.count
    join.count += 1
    return FINE


cdef int pend(Join* join, uint32_t number) noexcept nogil:
    """From now on inputs and candidates of a label are stored, until all candidates have come."""
    cdef Pending* pending = <Pending*> calloc(1, sizeof(Pending))
    if pending == NULL:
        return NO_MEMORY
    pending.sides[LEFT].ordered = pending.sides[RIGHT].ordered = True
    pending.sides[LEFT].tail = pending.sides[RIGHT].tail = INT64_MIN
    join.labels[number].pending = pending
    join.table += sizeof(Pending)
    return FINE


cdef int occupy(Join* join, Slot** slot, uint64_t key, uint32_t label) noexcept nogil:
    """Enter a label that was not seen before, for which a free slot was found."""
    cdef int status
    if 3 * (join.used + 1) > 2 * (join.mask + 1):
        status = reserve(join, 1)
        if status:
            return status
        slot[0] = find_slot(join, key)
    slot[0].key = key
    slot[0].label = label
    slot[0].rent = 0
    join.used += 1
    join.tally.unique += 1
    if join.tracing:
        note(join, NEW_LABEL, LEFT, key, -1, -1, -1, 0)
    return FINE


# --- Step 1 -------------------------------------------------------------------------------------


cdef inline int64_t partition_bytes(Join* join) noexcept nogil:
    return sizeof(Partition) + join.rows * sizeof(Entry)


cdef Partition* new_partition(Join* join, uint32_t label, int which, int* status) noexcept nogil:
    """An empty partition for a label; NULL if none is free."""
    cdef int64_t bytes = partition_bytes(join)
    cdef Side* side = &join.labels[label].pending.sides[which]
    cdef Partition* part
    cdef Piece* piece
    cdef int64_t far = INT64_MIN
    if join.held + bytes > join.budget:
        return NULL
    part = <Partition*> malloc(bytes)
    if side.parts.count:
        far = side.parts.at[side.parts.count - 1].far
    piece = add_piece(join, &side.parts) if part != NULL else NULL
    if piece == NULL:
        free(part)
        status[0] = NO_MEMORY
        return NULL
    memset(part, 0, sizeof(Partition))
    part.rows = <Entry*> (part + 1)
    part.unit.bytes = bytes
    part.unit.label = label
    part.unit.kind = which
    part.ordered = True
    part.place = side.parts.count - 1
    piece.part = part
    piece.far = far
    # Older ones take no more rows, so that rows which come in order lie in order, piece by piece.
    side.open = part
    hold(join, &part.unit)
    return part


cdef inline int remember(Join* join, Side* side, int which, const Entry* row) noexcept nogil:
    side.ordered = side.ordered and row.start > side.tail
    side.tail = row.start
    side.rows += 1
    if which == RIGHT and levelled(join.axis) and not count_level(&side.levels, row.level, 1):
        return NO_MEMORY
    return FINE


cdef int insert(Join* join, uint32_t label, int which, const Entry* row) noexcept nogil:
    """Step 1: a row, time-stamped, goes into a partition of its label, or to disk."""
    cdef Side* side = &join.labels[label].pending.sides[which]
    cdef Partition* part = side.open
    cdef Partition* another
    cdef Unit* victim
    cdef int status = remember(join, side, which, row)
    if status:
        return status
    if join.tracing:
        note(join, INSERTED, which, join.labels[label].key, row.id, row.start, row.stamp, 1)
    if partition_bytes(join) > join.budget:
        return spill_rows(join, label, which, row, 1, NULL)
    if part != NULL and part.unit.fill == join.rows:
        # Buckets grow as long as there is memory.
        another = new_partition(join, label, which, &status)
        if status:
            return status
        if another == NULL:
            # Case 1: the full partition is pushed to disk along with the new row.
            if join.tracing:
                note(join, CASE_1, which, join.labels[label].key, row.id, row.start, row.stamp, 1)
            return spill_partition(join, part, row)
        part = another
    if part == NULL:
        # Case 2: an empty partition is allocated; if there is none, a victim makes room.
        part = new_partition(join, label, which, &status)
        if part == NULL and status == FINE and join.tracing:
            note(join, CASE_2, which, join.labels[label].key, row.id, row.start, row.stamp, 1)
        while part == NULL and status == FINE:
            victim = victim_of(join)
            if victim == NULL:
                return spill_rows(join, label, which, row, 1, NULL)
            status = push_out(join, victim)
            if status == FINE:
                part = new_partition(join, label, which, &status)
        if status:
            return status
    if part.unit.fill and part.rows[part.unit.fill - 1].start > row.start:
        part.ordered = False
    part.rows[part.unit.fill] = row[0]
    part.unit.fill += 1
    stretch(&side.parts.at[part.place], row)
    use(join, &part.unit)
    return FINE


cdef int insert_vector(
    Join* join, uint32_t label, const View* vector, int64_t stamp
) noexcept nogil:
    """Step 1 for candidates that come together, in AD order."""
    cdef Side* side = &join.labels[label].pending.sides[RIGHT]
    cdef Py_ssize_t at = 0, row, count
    cdef Entry entry
    cdef Entry* rows
    cdef int status = FINE
    if partition_bytes(join) <= join.budget:
        for at in range(vector.count):
            entry = candidate(vector, at, stamp)
            status = insert(join, label, RIGHT, &entry)
            if status:
                break
        return status
    rows = <Entry*> malloc(join.rows * sizeof(Entry))
    if rows == NULL:
        return NO_MEMORY
    while at < vector.count and status == FINE:
        count = min(join.rows, vector.count - at)
        for row in range(count):
            rows[row] = candidate(vector, at + row, stamp)
            status = remember(join, side, RIGHT, &rows[row])
            if status:
                break
            if join.tracing:
                note(
                    join, INSERTED, RIGHT, join.labels[label].key, -1, rows[row].start, stamp, 1
                )
        if status == FINE:
            status = spill_rows(join, label, RIGHT, rows, count, NULL)
        at += count
    free(rows)
    return status


cdef inline Entry candidate(const View* vector, Py_ssize_t row, int64_t stamp) noexcept nogil:
    cdef Entry entry
    entry.id = -1
    entry.start = vector.start[row]
    entry.end = vector.end[row]
    entry.level = vector.level[row]
    entry.stamp = stamp
    return entry


# --- the end of a side --------------------------------------------------------------------------


cdef int drop_side(Join* join, uint32_t label, int which) noexcept nogil:
    """Free a side of a label, in memory and on disk."""
    cdef Side* side = &join.labels[label].pending.sides[which]
    cdef Py_ssize_t at
    cdef int status
    for at in range(side.parts.count):
        if side.parts.at[at].part != NULL:
            release(join, &side.parts.at[at].part.unit)
    free_pieces(join, &side.parts)
    for at in range(side.extents.count):
        status = free_place(join, side.extents.at[at].offset)
        if status:
            return status
    free_pieces(join, &side.extents)
    free_levels(&side.levels)
    set_spilled(join, label, which, False)
    side.open = NULL
    side.rows = 0
    return FINE


cdef void free_pending(Join* join, uint32_t label) noexcept nogil:
    join.table -= sizeof(Pending)
    free(join.labels[label].pending)
    join.labels[label].pending = NULL
