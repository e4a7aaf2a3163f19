# New labels that are asked for natively, in the call that met them: the way that most take.
#
# Blocks that were never touched are read by Python, which can say what is wrong with them, and so are
# very many candidates. Then nothing is done here (LATER). Labels whose candidates are not in memory
# wait for them, if there are threads to fetch them; no page of theirs is touched here.

ctypedef struct Probes:
    # How to ask each segment, by its place, for nodes of each tag; NULL where that is not known yet.
    const Probe** at
    Py_ssize_t segments
    Py_ssize_t tags

ctypedef struct Cold:
    # A label that other threads are to fetch.
    int64_t segment
    int64_t rank
    int64_t last

ctypedef struct Scans:
    # Labels by segment, and their candidates.
    int64_t* places      # which of the labels that are new each is
    int64_t* ranks
    int64_t* lasts
    int64_t* counts      # candidates of all tags
    int64_t* each        # by tag, `stride` apart: the candidates of each label,
    int64_t* lows        # and where they begin
    Py_ssize_t stride
    Py_ssize_t tags
    Py_ssize_t labels
    int64_t* rented      # which of the new labels are to be rented,
    int64_t* rents       # and their candidates
    Py_ssize_t renting
    int64_t* left
    int64_t* start
    int64_t* end
    int16_t* level
    Py_ssize_t rows


cdef void drop_scans(Scans* scans) noexcept nogil:
    free(scans.places)
    returned(scans.left)
    memset(scans, 0, sizeof(Scans))


cdef int make_scans(Scans* scans, Py_ssize_t labels, Py_ssize_t tags) noexcept nogil:
    """Room for so many labels."""
    scans.places = <int64_t*> malloc((6 + 2 * tags) * (labels + 1) * sizeof(int64_t))
    if scans.places == NULL:
        return NO_MEMORY
    scans.ranks = scans.places + labels
    scans.lasts = scans.ranks + labels
    scans.each = scans.lasts + labels
    scans.lows = scans.each + tags * labels
    scans.counts = scans.lows + tags * labels
    scans.rented = scans.counts + labels
    scans.rents = scans.rented + labels
    scans.stride = scans.labels = labels
    scans.tags = tags
    return FINE


cdef int list_labels(
    const Batch* batch, Ask* ask, const Probes* probes, Scans* scans
) noexcept nogil:
    """The new labels by segment, if all segments are known."""
    cdef Py_ssize_t at
    cdef const Fresh* fresh
    for at in range(ask.size):
        fresh = &ask.fresh[at]
        if probe_of(probes, fresh) == NULL:
            return LATER
    if by_segment(ask) or make_scans(scans, ask.size, probes.tags):
        return NO_MEMORY
    for at in range(ask.size):
        fresh = fresh_at(ask, at)
        scans.places[at] = at
        scans.ranks[at] = batch.rank[fresh.row]
        scans.lasts[at] = batch.last[fresh.row]
    return FINE


cdef inline const Probe** probe_of(const Probes* probes, const Fresh* fresh) noexcept nogil:
    """How to ask for a label: a probe for each tag."""
    cdef Py_ssize_t place = <Py_ssize_t> (fresh.key >> 32)
    cdef const Probe** own = probes.at + place * probes.tags
    # The last of them is known last.
    if place >= probes.segments or (
        probes.tags and load_ready(own[probes.tags - 1]) == NULL
    ):
        return NULL
    return own


cdef inline const Fresh* label_at(const Ask* ask, const Scans* scans, Py_ssize_t at) noexcept nogil:
    return fresh_at(ask, <Py_ssize_t> scans.places[at])


cdef inline Py_ssize_t group_end(
    const Ask* ask, const Scans* scans, Py_ssize_t low
) noexcept nogil:
    """Where the labels of the next segment begin."""
    cdef uint64_t segment = label_at(ask, scans, low).key >> 32
    while low < scans.labels and label_at(ask, scans, low).key >> 32 == segment:
        low += 1
    return low


cdef int part_cold(
    const Ask* ask, const Probes* probes, Scans* scans, Cold** cold, Py_ssize_t* colds
) noexcept nogil:
    """Take the labels out of which some candidates are not in memory; the caller frees them."""
    cdef const Probe** own
    cdef Py_ssize_t at, low = 0, high, tag, kept = 0
    cdef uint8_t* marks = <uint8_t*> calloc(scans.labels + 1, 1)
    cdef int status = NO_MEMORY if marks == NULL else FINE
    while low < scans.labels and status == FINE:
        high = group_end(ask, scans, low)
        own = probe_of(probes, label_at(ask, scans, low))
        for tag in range(probes.tags):
            if own[tag].cold(
                own[tag].postings, own[tag].removed, scans.ranks + low, scans.lasts + low,
                high - low, own[tag].side, marks + low,
            ):
                status = LATER
        low = high
    for at in range(scans.labels if status == FINE else 0):
        colds[0] += marks[at]
    if status == FINE and colds[0]:
        cold[0] = <Cold*> malloc(colds[0] * sizeof(Cold))
        if cold[0] == NULL:
            status = NO_MEMORY
    if cold[0] != NULL:
        colds[0] = 0
        for at in range(scans.labels):
            if marks[at]:
                cold[0][colds[0]].segment = <int64_t> (label_at(ask, scans, at).key >> 32)
                cold[0][colds[0]].rank = scans.ranks[at]
                cold[0][colds[0]].last = scans.lasts[at]
                colds[0] += 1
            else:
                scans.places[kept] = scans.places[at]
                scans.ranks[kept] = scans.ranks[at]
                scans.lasts[kept] = scans.lasts[at]
                kept += 1
        scans.labels = kept
    free(marks)
    return status


cdef int pend_cold(Join* join, const Cold* cold, Py_ssize_t colds, Ask* ask) noexcept nogil:
    """Have the inputs of labels stored, until their candidates come."""
    cdef Py_ssize_t at, place = 0
    cdef uint64_t key
    cdef int status
    pthread_mutex_lock(&join.mutex)
    status = SHUT if join.shut else FINE
    for at in range(colds):
        # They lie in the order of new labels.
        key = (<uint64_t> cold[at].segment << 32) | <uint32_t> cold[at].rank
        while fresh_at(ask, place).key != key:
            place += 1
        if status == FINE:
            status = pend_fresh(join, fresh_at(ask, place))
    status = hand_out(join, status, NULL)
    pthread_mutex_unlock(&join.mutex)
    return status


cdef int count_group(
    const Probe** own, Py_ssize_t tags, Scans* scans, Py_ssize_t low, Py_ssize_t high
) noexcept nogil:
    """The candidates of labels of one segment."""
    cdef Py_ssize_t at, tag
    memset(scans.counts + low, 0, (high - low) * sizeof(int64_t))
    for tag in range(tags):
        if own[tag].counts(
            own[tag].postings, own[tag].removed, scans.ranks + low, scans.lasts + low, high - low,
            own[tag].side, scans.each + tag * scans.stride + low,
            scans.lows + tag * scans.stride + low,
        ):
            return LATER
        for at in range(low, high):
            scans.counts[at] += scans.each[tag * scans.stride + at]
    return FINE


cdef int count_candidates(const Ask* ask, const Probes* probes, Scans* scans) noexcept nogil:
    cdef Py_ssize_t low = 0, high
    cdef int status = FINE
    while low < scans.labels and status == FINE:
        high = group_end(ask, scans, low)
        status = count_group(
            probe_of(probes, label_at(ask, scans, low)), probes.tags, scans, low, high
        )
        low = high
    return status


cdef void move_scan(Scans* scans, Py_ssize_t at, Py_ssize_t to) noexcept nogil:
    """Have a label, with its candidates counted, at another place."""
    cdef Py_ssize_t tag
    scans.places[to] = scans.places[at]
    scans.ranks[to] = scans.ranks[at]
    scans.lasts[to] = scans.lasts[at]
    scans.counts[to] = scans.counts[at]
    for tag in range(scans.tags):
        scans.each[tag * scans.stride + to] = scans.each[tag * scans.stride + at]
        scans.lows[tag * scans.stride + to] = scans.lows[tag * scans.stride + at]


cdef int part_rented(const Join* join, Ask* ask, Scans* scans) noexcept nogil:
    """Take the labels out that are to be rented."""
    cdef Py_ssize_t at, kept = 0
    if not rents(join):
        return FINE
    if ask.uses == NULL and count_uses(ask):
        return NO_MEMORY
    for at in range(scans.labels):
        if rent_of(join, ask, label_at(ask, scans, at), scans.counts[at]) > 0.0:
            scans.rented[scans.renting] = scans.places[at]
            scans.rents[scans.renting] = scans.counts[at]
            scans.renting += 1
            continue
        move_scan(scans, at, kept)
        kept += 1
    scans.labels = kept
    return FINE


cdef void rent_labels(Join* join, Ask* ask, const Scans* scans) noexcept nogil:
    cdef Py_ssize_t at
    pthread_mutex_lock(&join.mutex)
    for at in range(scans.renting if not join.shut else 0):
        defer(join, ask, fresh_at(ask, <Py_ssize_t> scans.rented[at]), scans.rents[at])
    pthread_mutex_unlock(&join.mutex)


cdef int64_t all_candidates(const Scans* scans) noexcept nogil:
    cdef int64_t total = 0
    cdef Py_ssize_t at
    for at in range(scans.labels):
        total += scans.counts[at]
    return total


cdef int make_columns(Scans* scans, Py_ssize_t rows) noexcept nogil:
    """Room for so many candidates."""
    cdef char* memory = <char*> lent(26 * rows + 1)
    if memory == NULL:
        return NO_MEMORY
    scans.left = <int64_t*> memory
    scans.start = scans.left + rows
    scans.end = scans.start + rows
    scans.level = <int16_t*> (scans.end + rows)
    return FINE


cdef Py_ssize_t get_rows(
    const Probe** own, Py_ssize_t tags, Scans* scans, Py_ssize_t low, Py_ssize_t high,
    Py_ssize_t room, Py_ssize_t done,
) noexcept nogil:
    """The candidates of labels of one segment, by label, behind those that are `done`; -1 if not."""
    cdef Py_ssize_t at, tag, found, row, first = done
    cdef Py_ssize_t step = high - low if tags == 1 else 1
    at = low
    while at < high:
        # Of one tag all labels at once, of several all tags of a label.
        for tag in range(tags):
            if step == 1 and not scans.each[tag * scans.stride + at]:
                continue
            found = own[tag].rows(
                own[tag].postings, own[tag].removed, scans.ranks + at, scans.lasts + at, step,
                own[tag].side, scans.each + tag * scans.stride + at,
                scans.lows + tag * scans.stride + at, room - done, scans.left + done,
                scans.start + done, scans.end + done, scans.level + done,
            )
            if found < 0:
                return -1
            for row in range(done, done + found if at else done):
                scans.left[row] += at
            done += found
        at += step
    return done - first


cdef int get_candidates(
    const Ask* ask, const Probes* probes, Scans* scans, Py_ssize_t total
) noexcept nogil:
    cdef Py_ssize_t low = 0, high, rows
    cdef int status = make_columns(scans, total)
    while low < scans.labels and status == FINE:
        high = group_end(ask, scans, low)
        rows = get_rows(
            probe_of(probes, label_at(ask, scans, low)), probes.tags, scans, low, high, total,
            scans.rows,
        )
        if rows < 0:
            return LATER
        scans.rows += rows
        low = high
    return status


cdef int learn_inputs(
    Join* join, const Probes* probes, const Batch* batch, Ask* ask, int64_t most, bint wary,
    Sink* out, Cold** cold, Py_ssize_t* colds,
) noexcept nogil:
    """Ask for the new labels of a batch, then take it. LATER: nothing was done.

    If it is `wary`, labels that are `cold` wait, and the caller has them fetched.
    """
    cdef int64_t began = nanoseconds(), total = 0
    cdef Scans scans
    cdef int status
    memset(&scans, 0, sizeof(Scans))
    status = list_labels(batch, ask, probes, &scans)
    if status == FINE and wary:
        status = part_cold(ask, probes, &scans, cold, colds)
    if status == FINE:
        status = count_candidates(ask, probes, &scans)
    if status == FINE:
        status = part_rented(join, ask, &scans)
    if status == FINE:
        total = all_candidates(&scans)
        if total > most:
            status = LATER
        elif total:
            status = get_candidates(ask, probes, &scans, <Py_ssize_t> total)
    # Nothing is in the way any more: from here on labels change.
    if status == FINE and scans.renting:
        rent_labels(join, ask, &scans)
    if status == FINE and colds[0]:
        status = pend_cold(join, cold[0], colds[0], ask)
    if status == FINE and scans.rows:
        status = settle_all(
            join, ask, 0, scans.places, scans.left, scans.start, scans.end, scans.level, scans.rows
        )
    if status == FINE:
        count_scans(join, scans.labels, began)
        # What is in hand lies in these columns until the batch is taken.
        status = answer_inputs(join, batch, ask, out)
    drop_scans(&scans)
    return status


cdef void count_scans(Join* join, Py_ssize_t labels, int64_t began) noexcept nogil:
    pthread_mutex_lock(&join.mutex)
    join.tally.scans += labels
    join.tally.probe_time += nanoseconds() - began
    pthread_mutex_unlock(&join.mutex)


cdef int scan_labels(
    const Probe** own, Py_ssize_t tags, const int64_t* ranks, const int64_t* lasts,
    Py_ssize_t labels, Scans* scans,
) noexcept nogil:
    """Count the candidates of some labels of one segment."""
    if make_scans(scans, labels, tags):
        return NO_MEMORY
    memcpy(scans.ranks, ranks, labels * sizeof(int64_t))
    memcpy(scans.lasts, lasts, labels * sizeof(int64_t))
    return count_group(own, tags, scans, 0, labels)


cdef int fetch_labels(
    Join* join, Ask* ask, const Probe** own, Py_ssize_t tags, Py_ssize_t first,
    const int64_t* rows, const int64_t* ranks, const int64_t* lasts, Py_ssize_t labels,
    Scans* scans,
) noexcept nogil:
    """All candidates of some new labels of one segment, whoever said that they are to be fetched."""
    cdef Py_ssize_t total
    cdef int status = scan_labels(own, tags, ranks, lasts, labels, scans)
    if status:
        return status
    total = <Py_ssize_t> all_candidates(scans)
    status = make_columns(scans, total)
    if status:
        return status
    scans.rows = get_rows(own, tags, scans, 0, labels, total, 0)
    if scans.rows < 0:
        return LATER
    return settle_all(
        join, ask, first, rows, scans.left, scans.start, scans.end, scans.level, scans.rows
    )


cdef int bring_labels(
    Join* join, const Probe** own, Py_ssize_t tags, uint64_t segment, const int64_t* ranks,
    const int64_t* lasts, Py_ssize_t labels, Py_ssize_t most,
) noexcept nogil:
    """All candidates of labels whose inputs wait, label by label, in vectors of at most so many."""
    cdef int64_t began = nanoseconds()
    cdef Scans scans
    cdef Py_ssize_t at, tag
    cdef int status
    memset(&scans, 0, sizeof(Scans))
    for tag in range(tags):
        # Pages are read together, and what is not ready is known before any candidate has come.
        if own[tag].cold(
            own[tag].postings, own[tag].removed, ranks, lasts, labels, own[tag].side, NULL
        ):
            return LATER
    status = scan_labels(own, tags, ranks, lasts, labels, &scans)
    for at in range(labels):
        if status == FINE:
            status = make_columns(&scans, <Py_ssize_t> scans.counts[at])
        if status == FINE:
            scans.rows = get_rows(
                own, tags, &scans, at, at + 1, <Py_ssize_t> scans.counts[at], 0
            )
            status = LATER if scans.rows < 0 else FINE
        if status == FINE:
            count_scans(join, 1, began)
            status = bring_label(
                join, (segment << 32) | <uint32_t> ranks[at], &scans, most
            )
        returned(scans.left)
        scans.left = NULL
        began = nanoseconds()
    drop_scans(&scans)
    return status


cdef int bring_label(
    Join* join, uint64_t key, const Scans* scans, Py_ssize_t most
) noexcept nogil:
    """The candidates of one label, in AD order, so that vectors follow each other."""
    cdef Vector whole, vector
    cdef Py_ssize_t low = 0, count
    cdef int status = make_vector(
        DESCENDANT, scans.start, scans.end, scans.level, scans.rows, &whole
    )
    while status == FINE:
        count = min(most, scans.rows - low)
        status = make_vector(
            join.axis, whole.view.start + low, whole.view.end + low, whole.view.level + low,
            count, &vector,
        )
        if status == FINE:
            status = take_candidates(join, key, &vector, low + count == scans.rows)
        free_vector(&vector)
        low += count
        if low == scans.rows:
            break
    free_vector(&whole)
    return status
