# The join as a whole: batches of inputs on its left, vectors of candidates on its right.

# --- vectors -----------------------------------------------------------------------------------

ctypedef struct Vector:
    # Candidates of one label in AD order, with what queries need.
    View view
    Levels levels
    void* owned


cdef void free_vector(Vector* vector) noexcept nogil:
    returned(vector.owned)
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
    cdef Py_ssize_t row, from_, count = vector.view.count
    cdef uint64_t* memory = <uint64_t*> lent(2 * count * sizeof(uint64_t))
    cdef const uint64_t* places
    cdef uint64_t mask = 0
    cdef char* owned = <char*> lent(18 * count)
    cdef int64_t* start = <int64_t*> owned
    cdef int64_t* end = start + count
    cdef int16_t* level = <int16_t*> (end + count)
    vector.owned = owned
    if memory == NULL or owned == NULL:
        returned(memory)
        return 0
    places = by_place(vector.view.start, vector.view.end, count, memory, &mask)
    for row in range(count):
        from_ = <Py_ssize_t> (places[row] & mask)
        start[row] = vector.view.start[from_]
        end[row] = vector.view.end[from_]
        level[row] = vector.view.level[from_]
    returned(memory)
    vector.view.start = start
    vector.view.end = end
    vector.view.level = level
    return 1


# --- what is new --------------------------------------------------------------------------------

ctypedef struct Fresh:
    # A label that is to be asked for.
    uint64_t key
    uint32_t row         # of the batch, where it is met first
    uint32_t number      # what became of it; until that is known, EMPTY, or DUE if it was rented

ctypedef struct Hand:
    # Candidates of a new label that memory has no room for. They are on disk; but while they are
    # still in the hand of who brought them, the batch that they were fetched for queries them there.
    uint32_t number
    List list
    Vector vector
    Hand* next

ctypedef struct Ask:
    # A batch with labels that are to be asked for, from the first chunk on that has some. Until it
    # is answered its inputs are not stored: the slots of new labels, and the numbers of their
    # inputs, say EMPTY and the place of the label among all that were new so far. Whatever has no
    # candidates stays like that for ever; others get a label, and their slot its number.
    Py_ssize_t begin
    Py_ssize_t total
    uint32_t* numbers    # of the inputs from there on
    Fresh* fresh
    Py_ssize_t size
    Py_ssize_t room
    uint32_t base        # EMPTY and the place of the first of them
    uint32_t* uses       # how many inputs have each; counted only if labels are rented
    uint64_t* order      # their places by segment; NULL if all are of one
    int64_t* deferred    # rows of inputs that ADMatch takes
    Py_ssize_t deferrals
    Py_ssize_t deferrals_room
    bint sends           # whether there are any
    Hand* hands


cdef void let_go_of(Join* join, Ask* ask) noexcept nogil:
    """Candidates in hand are no longer there."""
    cdef Hand* hand
    while ask.hands != NULL:
        hand = ask.hands
        ask.hands = hand.next
        if not join.shut:
            join.labels[hand.number].list = NULL
        free_vector(&hand.vector)
        free(hand)


cdef void drop_ask(Join* join, Ask* ask) noexcept nogil:
    if ask.hands != NULL:
        pthread_mutex_lock(&join.mutex)
        let_go_of(join, ask)
        pthread_mutex_unlock(&join.mutex)
    if ask.numbers == NULL and ask.fresh == NULL and ask.deferred == NULL:
        return
    free(ask.numbers)
    free(ask.fresh)
    free(ask.uses)
    free(ask.order)
    free(ask.deferred)
    memset(ask, 0, sizeof(Ask))


cdef int add_fresh(Join* join, Ask* ask, uint64_t key, Py_ssize_t row, bint due) noexcept nogil:
    cdef Fresh* moved
    if ask.size == ask.room:
        moved = <Fresh*> resized(ask.fresh, (2 * ask.room + 16) * sizeof(Fresh))
        if moved == NULL:
            return NO_MEMORY
        ask.fresh = moved
        ask.room = 2 * ask.room + 16
    if join.bare >= NEVER - 2:
        return NO_MEMORY
    moved = &ask.fresh[ask.size]
    moved.key = key
    moved.row = <uint32_t> row
    moved.number = DUE if due else EMPTY
    ask.size += 1
    join.bare += 1
    return FINE


cdef int add_deferred(Ask* ask, Py_ssize_t row) noexcept nogil:
    cdef int64_t* moved
    if ask.deferrals == ask.deferrals_room:
        moved = <int64_t*> realloc(
            ask.deferred, (2 * ask.deferrals_room + 16) * sizeof(int64_t)
        )
        if moved == NULL:
            return NO_MEMORY
        ask.deferred = moved
        ask.deferrals_room = 2 * ask.deferrals_room + 16
    ask.deferred[ask.deferrals] = row
    ask.deferrals += 1
    return FINE


# Inputs of many labels are all over the memory. What one look leads to next is fetched for all of a
# chunk, before it is looked at: slots, labels, the heads of lists, their rows.


cdef int recognise(
    Join* join, const Batch* batch, Py_ssize_t begin, Py_ssize_t count, Ask* ask, uint32_t* numbers
) noexcept nogil:
    """The labels of inputs, by number; those that are to be asked for are noted."""
    cdef uint64_t keys[CHUNK]
    cdef uint64_t key, before = 0
    cdef uint32_t number = NO_LABEL
    cdef Slot* slot
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
        if number >= RENTED or keys[row] != before:
            before = keys[row]
            slot = find_slot(join, before)
            number = slot.label
            if number >= RENTED:
                if number == RENTED and slot.rent:
                    slot.rent -= slot.rent != NEVER
                    ask.sends = True
                else:
                    number = EMPTY | join.bare
                    status = add_fresh(join, ask, before, begin + row, slot.label == RENTED)
                    if status == FINE and slot.label == NO_LABEL:
                        status = occupy(join, &slot, before, number)
                    if status:
                        return status
                    slot.label = number
            elif number < EMPTY:
                prefetch(&join.labels[number])
        numbers[row] = number
    return FINE


cdef int recognise_all(
    Join* join, const Batch* batch, Py_ssize_t begin, Py_ssize_t count, Ask* ask,
    const uint32_t* numbers,
) noexcept nogil:
    """The same for the rest of a batch, of which the first chunk has new labels."""
    cdef Py_ssize_t at = begin + count, known = 0, more
    cdef int status
    ask.begin = begin
    ask.total = batch.count
    ask.numbers = <uint32_t*> resized(NULL, (batch.count - begin) * sizeof(uint32_t))
    if ask.numbers == NULL:
        return NO_MEMORY
    memcpy(ask.numbers, numbers, count * sizeof(uint32_t))
    while at < batch.count:
        # If most labels are new, so will be those to come, and a table that grows is copied.
        if 2 * (ask.size - known) > count:
            more = (batch.count - at) * (ask.size - known) // count
            status = reserve(join, min(more, 16 * ask.size))
            if status:
                return status
        known = ask.size
        breathe(join, True)
        if join.shut:
            return SHUT
        count = min(batch.count - at, <Py_ssize_t> CHUNK)
        status = recognise(join, batch, at, count, ask, ask.numbers + (at - begin))
        if status:
            return status
        at += count
    return FINE


cdef int by_number(const void* left, const void* right) noexcept nogil:
    cdef uint64_t one = (<const uint64_t*> left)[0], other = (<const uint64_t*> right)[0]
    return (one > other) - (one < other)


cdef int by_segment(Ask* ask) noexcept nogil:
    """Have the new labels in the order of their segments."""
    cdef Py_ssize_t at
    if ask.order != NULL:
        return FINE
    for at in range(1, ask.size):
        if ask.fresh[at].key >> 32 != ask.fresh[0].key >> 32:
            break
    else:
        return FINE
    ask.order = <uint64_t*> malloc(ask.size * sizeof(uint64_t))
    if ask.order == NULL:
        return NO_MEMORY
    for at in range(ask.size):
        ask.order[at] = (ask.fresh[at].key >> 32 << 31) | <uint64_t> at
    qsort(ask.order, ask.size, sizeof(uint64_t), by_number)
    return FINE


cdef inline Fresh* fresh_at(const Ask* ask, Py_ssize_t place) noexcept nogil:
    """A new label by its place among them, by segment."""
    if ask.order != NULL:
        place = <Py_ssize_t> (<uint32_t> ask.order[place] & <uint32_t> NEVER)
    return &ask.fresh[place]


# --- what becomes of it -------------------------------------------------------------------------


cdef int adopt_label(Join* join, Fresh* fresh) noexcept nogil:
    """A label for one that is new and will have candidates."""
    cdef int status = add_label(join, fresh.key, &fresh.number)
    if status == FINE:
        find_slot(join, fresh.key).label = fresh.number
    return status


cdef int pend_fresh(Join* join, Fresh* fresh) noexcept nogil:
    cdef int status = adopt_label(join, fresh)
    return status if status else pend(join, fresh.number)


cdef int count_uses(Ask* ask) noexcept nogil:
    """How many inputs of a batch have each of its new labels."""
    cdef Py_ssize_t row
    cdef uint32_t place
    ask.uses = <uint32_t*> calloc(ask.size, sizeof(uint32_t))
    if ask.uses == NULL:
        return NO_MEMORY
    for row in range(ask.total - ask.begin):
        place = ask.numbers[row] - ask.base
        if ask.numbers[row] >= ask.base and place < ask.size:
            ask.uses[place] += 1
    return FINE


cdef inline bint rents(const Join* join) noexcept nogil:
    return join.rent_label > 0 or join.rent_each > 0


cdef inline double rent_of(
    const Join* join, const Ask* ask, const Fresh* fresh, int64_t candidates
) noexcept nogil:
    """How many inputs of a new label are deferred before it is fetched; 0: it is fetched now.

    That is so if it was rented before, if it has no candidates, and if this batch alone has as many
    inputs of it as were to be deferred.
    """
    cdef double rent = join.rent_label + join.rent_each * <double> candidates
    if fresh.number != EMPTY or candidates == 0 or ask.uses[fresh - ask.fresh] >= rent:
        return 0.0
    return rent


cdef bint defer(Join* join, const Ask* ask, Fresh* fresh, int64_t candidates) noexcept nogil:
    """Rent a new label, if that is to be done: this batch defers its inputs, and later ones do."""
    cdef double rent = rent_of(join, ask, fresh, candidates)
    cdef Slot* slot
    cdef int64_t inputs
    if fresh.number == RENTED:
        return True
    if rent <= 0.0:
        return False
    inputs = NEVER if rent >= NEVER else <int64_t> ceil(rent)
    slot = find_slot(join, fresh.key)
    slot.label = fresh.number = RENTED
    slot.rent = NEVER if inputs == NEVER else <uint32_t> inputs - ask.uses[fresh - ask.fresh]
    if join.tracing:
        note(join, DEFERRED, LEFT, fresh.key, -1, -1, -1, inputs)
    return True


cdef int settle(Join* join, Ask* ask, Fresh* fresh, Vector* vector) noexcept nogil:
    """All candidates of a new label, of which no input is stored."""
    cdef int status
    if join.shut:
        return SHUT
    if fresh.number != EMPTY and fresh.number != DUE:
        return FINISHED
    join.clock += 1
    join.tally.candidates += vector.view.count
    if join.tracing:
        note(join, INSERTED, RIGHT, fresh.key, -1, -1, join.clock, vector.view.count)
        note(join, LAST, RIGHT, fresh.key, -1, -1, -1, vector.view.count)
    if vector.view.count == 0:
        return FINE
    status = adopt_label(join, fresh)
    if status == FINE:
        status = keep(join, fresh.number, &vector.view, &vector.levels, True)
    if status == FINE and join.labels[fresh.number].list == NULL:
        status = take_in_hand(join, ask, fresh.number, vector)
    return status


cdef int take_in_hand(Join* join, Ask* ask, uint32_t number, Vector* vector) noexcept nogil:
    cdef Hand* hand = <Hand*> calloc(1, sizeof(Hand))
    if hand == NULL:
        return NO_MEMORY
    hand.number = number
    hand.vector = vector[0]
    memset(vector, 0, sizeof(Vector))
    hand.list.view = hand.vector.view
    hand.next = ask.hands
    ask.hands = hand
    join.labels[number].list = &hand.list
    return FINE


cdef int settle_all(
    Join* join, Ask* ask, Py_ssize_t first, const int64_t* rows, const int64_t* left,
    const int64_t* start, const int64_t* end, const int16_t* level, Py_ssize_t count,
) noexcept nogil:
    cdef Py_ssize_t low = 0, high = 0, place, done = 0
    cdef Vector vector
    cdef int status = FINE
    pthread_mutex_lock(&join.mutex)
    # Labels that come together are used at the same time: none is pushed out for another.
    join.tick += 1
    while low < count and status == FINE:
        while high < count and (left == NULL or left[high] == left[low]):
            high += 1
        place = 0 if left == NULL else <Py_ssize_t> left[low]
        place = first + (place if rows == NULL else <Py_ssize_t> rows[place])
        status = make_vector(join.axis, start + low, end + low, level + low, high - low, &vector)
        if status == FINE:
            status = settle(join, ask, fresh_at(ask, place), &vector)
        free_vector(&vector)
        low = high
        done += 1
        breathe(join, done % 64 == 0)
    if status != FINISHED:
        status = hand_out(join, status, NULL)
    pthread_mutex_unlock(&join.mutex)
    return status


# --- the left -----------------------------------------------------------------------------------


cdef inline Entry input_of(const Batch* batch, Py_ssize_t at, int64_t stamp) noexcept nogil:
    cdef Entry entry
    entry.id = batch.id[at]
    entry.start = batch.start[at]
    entry.end = batch.end[at]
    entry.level = batch.level[at]
    entry.stamp = stamp
    return entry


cdef int ask_inputs(Join* join, const Batch* batch, Ask* ask, Sink* out) noexcept nogil:
    """A batch up to new labels; if there are none, what comes out is swapped with an empty sink."""
    cdef int status
    pthread_mutex_lock(&join.mutex)
    status = take_known(join, batch, ask, out)
    pthread_mutex_unlock(&join.mutex)
    return status


cdef int take_known(Join* join, const Batch* batch, Ask* ask, Sink* out) noexcept nogil:
    """The same with the mutex held.

    It goes a chunk at a time, up to one with new labels: these are looked for in all the rest.
    """
    cdef uint32_t numbers[CHUNK]
    cdef Py_ssize_t at = 0, count
    cdef int status = FINE
    ask.base = EMPTY | join.bare
    if batch.count > CHUNK and not expect(join, batch.count):
        status = NO_MEMORY
    while status == FINE and at < batch.count:
        count = min(batch.count - at, <Py_ssize_t> CHUNK)
        status = SHUT if join.shut else recognise(join, batch, at, count, ask, numbers)
        if status == FINE and ask.size:
            status = recognise_all(join, batch, at, count, ask, numbers)
            break
        if status == FINE:
            status = take_chunk(join, batch, at, count, ask, numbers)
        at += count
        breathe(join, at < batch.count)
    return hand_out(join, status, NULL if ask.size else out)


cdef int answer_inputs(Join* join, const Batch* batch, Ask* ask, Sink* out) noexcept nogil:
    """The rest of a batch, when it is known what becomes of its new labels."""
    cdef Py_ssize_t at = ask.begin, count
    cdef int status = FINE
    pthread_mutex_lock(&join.mutex)
    while status == FINE and at < batch.count:
        count = min(batch.count - at, <Py_ssize_t> CHUNK)
        status = take_chunk(join, batch, at, count, ask, ask.numbers + (at - ask.begin))
        at += count
        breathe(join, at < batch.count)
    let_go_of(join, ask)
    status = hand_out(join, status, out)
    pthread_mutex_unlock(&join.mutex)
    return status


cdef int join_inputs(Join* join, const Batch* batch, Ask* ask, Sink* out) noexcept nogil:
    """The same in one go, as the paper has it: inputs of new labels wait for their candidates.

    Nobody who has candidates comes in between: labels that are new and do not wait look as if they
    had none.
    """
    cdef int status
    cdef Py_ssize_t at
    pthread_mutex_lock(&join.mutex)
    status = take_known(join, batch, ask, out)
    for at in range(ask.size if status == FINE else 0):
        status = pend_fresh(join, &ask.fresh[at])
        if status:
            break
    status = hand_out(join, status, NULL)
    pthread_mutex_unlock(&join.mutex)
    return status if status or not ask.size else answer_inputs(join, batch, ask, out)


cdef inline void breathe(Join* join, bint more) noexcept nogil:
    """Between chunks, whoever has candidates gets a turn."""
    if more:
        pthread_mutex_unlock(&join.mutex)
        pthread_mutex_lock(&join.mutex)


cdef int hand_out(Join* join, int status, Sink* out) noexcept nogil:
    """Swap what has come out with an empty sink, if there is one; after an error end it all."""
    cdef Sink taken
    if join.shut and status == FINE:
        status = SHUT
    if status != FINE:
        if status != SHUT:
            shut_down(join)
    elif out != NULL:
        taken = join.out
        join.tally.pairs += taken.size
        join.out = out[0]
        out[0] = taken
    return status


cdef int expect(Join* join, Py_ssize_t count) noexcept nogil:
    """Room for the pairs of a large batch, if they are as many as before: growing costs copies."""
    cdef double each = 1.0
    if join.tally.inputs:
        each = (<double> join.tally.pairs + join.out.size) / join.tally.inputs
    cdef Py_ssize_t pairs = <Py_ssize_t> min(each * 1.05 * count, 16e6)
    return join.shut or join.out.size + pairs <= join.out.room or grow_sink(&join.out, pairs)


cdef int take_chunk(
    Join* join, const Batch* batch, Py_ssize_t begin, Py_ssize_t count, Ask* ask, uint32_t* numbers
) noexcept nogil:
    """Step 1 for some inputs, then Step 2."""
    cdef int64_t began = nanoseconds(), inserted = began, waiting = 0, stamp
    cdef int status = FINE
    if join.shut:
        return SHUT
    join.tick += 1
    stamp = join.clock + 1
    join.clock += count
    join.tally.inputs += count
    if ask.size or ask.sends:
        status = translate(join, ask, begin, count, numbers)
    if status == FINE:
        status = insert_inputs(join, batch, begin, count, stamp, numbers, &waiting)
    if status:
        return status
    if waiting:
        join.tally.stored += waiting
        inserted = nanoseconds()
        pause(join)
        if join.shut:
            return SHUT
    status = query_inputs(join, batch, begin, count, stamp, numbers)
    join.tally.insert_time += inserted - began
    join.tally.query_time += nanoseconds() - inserted
    return status


cdef int translate(
    Join* join, Ask* ask, Py_ssize_t begin, Py_ssize_t count, uint32_t* numbers
) noexcept nogil:
    """What became of labels that were new; inputs that ADMatch takes are noted."""
    cdef Py_ssize_t row, before = ask.deferrals
    cdef uint32_t place
    cdef int status
    for row in range(count):
        if numbers[row] < ask.base:
            continue
        place = numbers[row] - ask.base
        if place < ask.size:
            numbers[row] = ask.fresh[place].number
        if numbers[row] == RENTED:
            status = add_deferred(ask, begin + row)
            if status:
                return status
    join.tally.deferred += ask.deferrals - before
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
        if numbers[row] >= EMPTY or (numbers[row] == before and settled):
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
        number = numbers[row]
        if number >= EMPTY:
            row += 1
            continue
        if row >= ahead:
            ahead = min(row + AHEAD, count)
            fetch_rows(join, numbers, row, ahead)
            if are_apart(join, numbers, row, ahead):
                status = query_apart(join, batch, begin, numbers, row, ahead)
                if status:
                    return status
                row = ahead
                continue
        label = &join.labels[number]
        if label.list != NULL and lies_right(join, &label.list.view) and not join.tracing:
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


cdef inline bint are_apart(
    Join* join, const uint32_t* numbers, Py_ssize_t row, Py_ssize_t last
) noexcept nogil:
    """Whether inputs have lists, as a rule another than the one before, of more than a few rows."""
    cdef Py_ssize_t changes = 0, first = row
    cdef const Label* label
    if join.tracing:
        return False
    for row in range(first, last):
        if numbers[row] >= EMPTY:
            continue
        label = &join.labels[numbers[row]]
        if label.list == NULL or not lies_right(join, &label.list.view):
            return False
        if row == first or numbers[row] != numbers[row - 1]:
            changes += label.list.view.count > FEW
    return 2 * changes > last - first


cdef inline bint lies_right(Join* join, const View* view) noexcept nogil:
    """Whether candidates lie by level, where lists do; those in hand do not."""
    return not levelled(join.axis) or view.begin != NULL


cdef inline void fetch_rows(
    Join* join, const uint32_t* numbers, Py_ssize_t row, Py_ssize_t last
) noexcept nogil:
    """Fetch rows of lists that are queried soon: the middles, where searches begin."""
    cdef const View* view
    cdef Py_ssize_t middle
    cdef uint32_t before = NO_LABEL
    for row in range(row, last):
        if numbers[row] == before or numbers[row] >= EMPTY:
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
    label = find_slot(join, key).label
    if label == NO_LABEL:
        status = new_label(join, key, &label)
        if status:
            return status
    if label >= EMPTY:
        return FINISHED
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


cdef int new_label(Join* join, uint64_t key, uint32_t* label) noexcept nogil:
    """A label whose candidates come before its inputs."""
    cdef Slot* slot = find_slot(join, key)
    cdef int status = add_label(join, key, label)
    if status == FINE:
        status = occupy(join, &slot, key, label[0])
    return status if status else pend(join, label[0])


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
        free(label.run.leaves)
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
    cdef Slot* slots = free_slots(join.mask + 1)
    cdef Slot* slot
    cdef Label* label
    cdef uint64_t at, key
    cdef int64_t place
    cdef int side, status
    cdef bint spilled[2]
    if slots == NULL:
        return NO_MEMORY
    for number in range(join.count):
        label = &join.labels[number]
        place = place_of(label.key, places, count)
        if place < 0:
            status = forget(join, number)
            if status:
                free(slots)
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
        enter(slots, join.mask, label.key, kept, 0)
        kept += 1
    join.count = kept
    join.used = kept
    for at in range(join.mask + 1):
        slot = &join.slots[at]
        if EMPTY <= slot.label < NO_LABEL:
            place = place_of(slot.key, places, count)
            if place >= 0:
                key = ((<uint64_t> place) << 32) | <uint32_t> slot.key
                enter(slots, join.mask, key, slot.label, slot.rent)
                join.used += 1
    free(join.slots)
    join.slots = slots
    return FINE


cdef inline int64_t place_of(uint64_t key, const int32_t* places, Py_ssize_t count) noexcept nogil:
    cdef int64_t place = <int64_t> (key >> 32)
    return places[place] if place < count else -1


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
