# The join as a whole: batches of inputs on its left, vectors of candidates on its right.

# --- the left -----------------------------------------------------------------------------------

ctypedef struct Fresh:
    # The places, in a batch, of labels that were not seen before.
    int64_t* rows
    Py_ssize_t size
    Py_ssize_t room


cdef int add_fresh(Fresh* fresh, Py_ssize_t row) noexcept nogil:
    cdef int64_t* moved
    if fresh.size == fresh.room:
        moved = <int64_t*> realloc(fresh.rows, (2 * fresh.room + 16) * sizeof(int64_t))
        if moved == NULL:
            return NO_MEMORY
        fresh.rows = moved
        fresh.room = 2 * fresh.room + 16
    fresh.rows[fresh.size] = row
    fresh.size += 1
    return FINE


cdef inline Entry input_of(const Batch* batch, Py_ssize_t at, int64_t stamp) noexcept nogil:
    cdef Entry entry
    entry.id = batch.id[at]
    entry.start = batch.start[at]
    entry.end = batch.end[at]
    entry.level = batch.level[at]
    entry.stamp = stamp
    return entry


cdef int take_inputs(Join* join, const Batch* batch, Fresh* fresh, Sink* out) noexcept nogil:
    """A batch, a chunk at a time; then swap what has come out with an empty sink."""
    cdef Py_ssize_t at = 0, count
    cdef int status = FINE
    cdef Sink taken
    pthread_mutex_lock(&join.mutex)
    if batch.count > CHUNK and not expect(join, batch.count):
        status = NO_MEMORY
    while status == FINE and at < batch.count:
        count = min(batch.count - at, <Py_ssize_t> CHUNK)
        status = take_chunk(join, batch, at, count, fresh)
        at += count
        if at < batch.count:
            # Whoever has candidates gets a turn.
            pthread_mutex_unlock(&join.mutex)
            pthread_mutex_lock(&join.mutex)
    if join.shut and status == FINE:
        status = SHUT
    if status == FINE:
        taken = join.out
        join.tally.pairs += taken.size
        join.out = out[0]
        out[0] = taken
    elif status != SHUT:
        shut_down(join)
    pthread_mutex_unlock(&join.mutex)
    return status


cdef int expect(Join* join, Py_ssize_t count) noexcept nogil:
    """Room for the pairs of a large batch, if they are as many as before: growing costs copies."""
    cdef double each = 1.0
    if join.tally.inputs:
        each = (<double> join.tally.pairs + join.out.size) / join.tally.inputs
    cdef Py_ssize_t pairs = <Py_ssize_t> min(each * 1.05 * count, 16e6)
    return join.shut or join.out.size + pairs <= join.out.room or grow_sink(&join.out, pairs)


cdef int take_chunk(
    Join* join, const Batch* batch, Py_ssize_t begin, Py_ssize_t count, Fresh* fresh
) noexcept nogil:
    """Step 1 for some inputs, then Step 2."""
    cdef uint32_t numbers[CHUNK]
    cdef int64_t began = nanoseconds(), inserted = began, waiting = 0, stamp
    cdef int status
    if join.shut:
        return SHUT
    join.tick += 1
    stamp = join.clock + 1
    join.clock += count
    join.tally.inputs += count
    status = recognise(join, batch, begin, count, fresh, numbers)
    if status == FINE:
        status = insert_inputs(join, batch, begin, count, stamp, numbers, &waiting)
    if status:
        return status
    if waiting:
        inserted = nanoseconds()
        pause(join)
        if join.shut:
            return SHUT
    status = query_inputs(join, batch, begin, count, stamp, numbers)
    join.tally.insert_time += inserted - began
    join.tally.query_time += nanoseconds() - inserted
    return status


# Inputs of many labels are all over the memory. What one look leads to next is fetched for all of a
# chunk, before it is looked at: slots, labels, the heads of lists, their rows.


cdef int recognise(
    Join* join, const Batch* batch, Py_ssize_t begin, Py_ssize_t count, Fresh* fresh,
    uint32_t* numbers,
) noexcept nogil:
    """The labels of inputs, by number; those that are new are noted."""
    cdef uint64_t keys[CHUNK]
    cdef uint64_t key, before = 0
    cdef uint32_t number = NO_LABEL
    cdef Py_ssize_t row
    cdef int status
    for row in range(count):
        key = (<uint64_t> <uint32_t> batch.segment[begin + row]) << 32
        key |= <uint32_t> batch.rank[begin + row]
        keys[row] = key
        if key != before:
            prefetch(&join.slots[slot_of(key, join.mask)])
            before = key
    for row in range(count):
        if number == NO_LABEL or keys[row] != before:
            before = keys[row]
            number = find_label(join, before)
            if number == NO_LABEL:
                status = new_label(join, before, &number)
                if status == FINE:
                    status = add_fresh(fresh, begin + row)
                if status:
                    return status
            prefetch(&join.labels[number])
        numbers[row] = number
    return FINE


cdef int insert_inputs(
    Join* join, const Batch* batch, Py_ssize_t begin, Py_ssize_t count, int64_t stamp,
    const uint32_t* numbers, int64_t* waiting,
) noexcept nogil:
    """Step 1, for inputs whose label is not complete; for others, fetch what they will query."""
    cdef uint32_t before = NO_LABEL
    cdef bint settled = False
    cdef Label* label
    cdef Entry entry
    cdef Py_ssize_t row
    cdef int status
    for row in range(count):
        if numbers[row] == before and settled:
            continue
        before = numbers[row]
        label = &join.labels[before]
        settled = label.pending == NULL
        if settled:
            if label.list != NULL:
                prefetch(label.list)
                prefetch(<char*> label.list + 64)
                prefetch(<char*> label.list + 128)
        elif not label.pending.complete:
            entry = input_of(batch, begin + row, stamp + row)
            status = insert(join, before, LEFT, &entry)
            if status:
                return status
            label.pending.querying += 1
            waiting[0] += 1
    return FINE


cdef int query_inputs(
    Join* join, const Batch* batch, Py_ssize_t begin, Py_ssize_t count, int64_t stamp,
    const uint32_t* numbers,
) noexcept nogil:
    """Step 2."""
    cdef Py_ssize_t row = 0, last, ahead = 0
    cdef uint32_t number
    cdef Label* label
    cdef Entry entry
    cdef int status
    while row < count:
        if row >= ahead:
            ahead = min(row + AHEAD, count)
            fetch_rows(join, numbers, row, ahead)
        number = numbers[row]
        label = &join.labels[number]
        if label.list != NULL and not join.tracing:
            last = row + 1
            while last < count and numbers[last] == number:
                last += 1
            status = query_list(join, label.key, label.list, batch, begin + row, begin + last)
            if status:
                return status
            row = last
            continue
        entry = input_of(batch, begin + row, stamp + row)
        if label.pending == NULL:
            status = query_complete(join, number, &entry)
        else:
            status = query_right(join, number, &entry)
            if status == FINE and not join.labels[number].pending.complete:
                status = queried(join, number)
        if status:
            return status
        row += 1
    return FINE


cdef inline void fetch_rows(
    Join* join, const uint32_t* numbers, Py_ssize_t row, Py_ssize_t last
) noexcept nogil:
    """Fetch rows of lists that are queried soon: the middles, where searches begin."""
    cdef const View* view
    cdef Py_ssize_t middle
    cdef uint32_t before = NO_LABEL
    for row in range(row, last):
        if numbers[row] == before:
            continue
        before = numbers[row]
        if join.labels[before].list != NULL:
            view = &join.labels[before].list.view
            middle = view.count >> 1
            use(join, &join.labels[before].list.unit)
            prefetch(&view.start[middle])
            prefetch(&view.start[middle >> 1])
            prefetch(&view.start[middle + (middle >> 1)])
            prefetch(&view.end[middle])
            prefetch(&view.level[middle])


cdef void pause(Join* join) noexcept nogil:
    """Between Step 1 and Step 2, whoever waits gets a turn."""
    pthread_mutex_unlock(&join.mutex)
    if join.jitter:
        nap(join.jitter)
    pthread_mutex_lock(&join.mutex)


cdef int queried(Join* join, uint32_t label) noexcept nogil:
    """A query of a label is done; it may have been the last that completing it waited for."""
    cdef Pending* pending = join.labels[label].pending
    pending.querying -= 1
    if pending.ended and pending.querying == 0:
        return complete(join, label)
    return FINE


# --- the right ----------------------------------------------------------------------------------

ctypedef struct Vector:
    # Candidates of one label in AD order, with what queries need.
    View view
    Levels levels
    void* owned


cdef void free_vector(Vector* vector) noexcept nogil:
    free(vector.owned)
    free_levels(&vector.levels)
    free(<void*> vector.view.up)
    memset(vector, 0, sizeof(Vector))


cdef int make_vector(
    int axis, const int64_t* start, const int64_t* end, const int16_t* level, Py_ssize_t count,
    Vector* vector,
) noexcept nogil:
    cdef Py_ssize_t row
    cdef bint ordered = True
    cdef uint32_t* up
    memset(vector, 0, sizeof(Vector))
    vector.view.start = start
    vector.view.end = end
    vector.view.level = level
    vector.view.count = count
    for row in range(1, count):
        if start[row - 1] > start[row]:
            ordered = False
            break
    if not ordered and not sort_vector(vector):
        return NO_MEMORY
    if axis == ANCESTOR or axis == PARENT:
        up = <uint32_t*> malloc(count * sizeof(uint32_t) + 4)
        vector.view.up = up
        if up == NULL:
            return NO_MEMORY
        trace_up(vector.view.start, vector.view.end, count, up)
    if levelled(axis):
        for row in range(count):
            if not count_level(&vector.levels, vector.view.level[row], 1):
                return NO_MEMORY
    return FINE


cdef int sort_vector(Vector* vector) noexcept nogil:
    """Put the candidates into AD order, in columns of our own; 0 if there is no memory."""
    cdef Py_ssize_t row, count = vector.view.count
    cdef Entry* rows = <Entry*> malloc(count * sizeof(Entry))
    cdef char* owned = <char*> malloc(18 * count)
    cdef int64_t* start = <int64_t*> owned
    cdef int64_t* end = start + count
    cdef int16_t* level = <int16_t*> (end + count)
    vector.owned = owned
    if rows == NULL or owned == NULL:
        free(rows)
        return 0
    for row in range(count):
        rows[row] = candidate(&vector.view, row, 0)
    qsort(rows, count, sizeof(Entry), by_start)
    for row in range(count):
        start[row] = rows[row].start
        end[row] = rows[row].end
        level[row] = <int16_t> rows[row].level
    free(rows)
    vector.view.start = start
    vector.view.end = end
    vector.view.level = level
    return 1


cdef int take_candidates(Join* join, uint64_t key, Vector* vector, bint last) noexcept nogil:
    """A vector of candidates of one label: Step 1, then Step 2."""
    cdef int64_t began, inserted
    cdef int status
    pthread_mutex_lock(&join.mutex)
    began = inserted = nanoseconds()
    status = receive(join, key, vector, last, &inserted)
    if status != FINE and status != SHUT and status != FINISHED:
        shut_down(join)
    join.tally.insert_time += inserted - began
    join.tally.query_time += nanoseconds() - inserted
    pthread_mutex_unlock(&join.mutex)
    return status


cdef int receive(
    Join* join, uint64_t key, Vector* vector, bint last, int64_t* inserted
) noexcept nogil:
    cdef uint32_t label
    cdef Pending* pending
    cdef int64_t stamp
    cdef int status = FINE
    if join.shut:
        return SHUT
    join.tick += 1
    label = find_label(join, key)
    if label == NO_LABEL:
        status = new_label(join, key, &label)
        if status:
            return status
    pending = join.labels[label].pending
    if pending == NULL or pending.ended:
        return FINISHED
    join.clock += 1
    stamp = join.clock
    join.tally.candidates += vector.view.count
    if last and pending.querying == 0 and pending.sides[RIGHT].rows == 0:
        # All at once, and nobody has a query to come: no partition is needed.
        if join.tracing:
            note(join, INSERTED, RIGHT, key, -1, -1, stamp, vector.view.count)
            note(join, LAST, RIGHT, key, -1, -1, -1, vector.view.count)
        status = query_left(join, label, &vector.view, stamp)
        return status if status else seal(join, label, &vector.view, &vector.levels)
    status = insert_vector(join, label, &vector.view, stamp)
    if status:
        return status
    pending.querying += 1
    inserted[0] = nanoseconds()
    pause(join)
    if join.shut:
        return SHUT
    status = query_left(join, label, &vector.view, stamp)
    if status:
        return status
    if last:
        pending.ended = True
        if join.tracing:
            note(join, LAST, RIGHT, key, -1, -1, -1, pending.sides[RIGHT].rows)
    return queried(join, label)


# --- the end ------------------------------------------------------------------------------------


cdef void free_label(Join* join, Label* label) noexcept nogil:
    """What a label has beside its units: those are freed as such."""
    cdef int side
    if label.pending != NULL:
        for side in range(2):
            free_pieces(join, &label.pending.sides[side].parts)
            free_pieces(join, &label.pending.sides[side].extents)
            free_levels(&label.pending.sides[side].levels)
        free(label.pending)
    if label.run != NULL:
        free(label.run.first)
        free_levels(&label.run.levels)
        free(label.run)


cdef void shut_down(Join* join) noexcept nogil:
    """Free everything; pairs that nobody took are gone, too."""
    cdef uint32_t number
    if join.shut:
        return
    join.shut = True
    while join.oldest != NULL:
        release(join, join.oldest)
    for number in range(join.count):
        free_label(join, &join.labels[number])
    free(join.labels)
    free(join.slots)
    free(join.spilled[LEFT])
    free(join.spilled[RIGHT])
    free(join.empty)
    free(join.scratch)
    free(join.page)
    drop_sink(&join.out)
    join.labels = NULL
    join.slots = NULL
    join.spilled[LEFT] = join.spilled[RIGHT] = NULL
    join.empty = NULL
    join.scratch = NULL
    join.page = NULL
    join.count = join.room = 0
    join.table = 0
    if join.file >= 0:
        close_file(join.file)
        join.file = -1


cdef int renumber(Join* join, const int32_t* places, Py_ssize_t count) noexcept nogil:
    """Labels of segment i become those of segment places[i]; those of -1 are forgotten."""
    cdef uint32_t number, kept = 0
    cdef Label* label
    cdef int64_t place
    cdef int side, status
    cdef bint spilled[2]
    for number in range(join.count):
        label = &join.labels[number]
        place = <int64_t> (label.key >> 32)
        place = places[place] if place < count else -1
        if place < 0:
            status = forget(join, number)
            if status:
                return status
            continue
        label.key = ((<uint64_t> place) << 32) | <uint32_t> label.key
        for side in range(2):
            spilled[side] = is_spilled(join, number, side)
            set_spilled(join, number, side, False)
        for side in range(2):
            set_spilled(join, kept, side, spilled[side])
        join.labels[kept] = label[0]
        relabel(&join.labels[kept], kept)
        kept += 1
    join.count = kept
    return rehash(join, join.mask + 1)


cdef int forget(Join* join, uint32_t number) noexcept nogil:
    cdef Label* label = &join.labels[number]
    cdef int side, status
    if label.pending != NULL:
        for side in range(2):
            status = drop_side(join, number, side)
            if status:
                return status
        free_pending(join, number)
    if label.list != NULL:
        release(join, &label.list.unit)
        label.list = NULL
    free_run(join, label.run)
    label.run = NULL
    for side in range(2):
        set_spilled(join, number, side, False)
    return FINE


cdef void relabel(Label* label, uint32_t number) noexcept nogil:
    """Tell the units of a label its new number."""
    cdef Pieces* parts
    cdef Py_ssize_t at
    cdef int side
    if label.list != NULL:
        label.list.unit.label = number
    if label.pending != NULL:
        for side in range(2):
            parts = &label.pending.sides[side].parts
            for at in range(parts.count):
                if parts.at[at].part != NULL:
                    parts.at[at].part.unit.label = number
