# New labels that are asked for natively, in the call that met them: the way that a few take.
#
# Whoever has to be asked about them, or has to wait for them, is in Python; so is whoever gets blocks
# that were never touched, and says what is wrong with them. Then nothing is done here (LATER).

ctypedef struct Scans:
    # The labels of one segment, and their candidates.
    int64_t* ranks
    int64_t* lasts
    int64_t* counts
    int64_t* lows
    int64_t* left
    int64_t* start
    int64_t* end
    int16_t* level
    Py_ssize_t rows


cdef void drop_scans(Scans* scans) noexcept nogil:
    free(scans.ranks)
    returned(scans.left)
    memset(scans, 0, sizeof(Scans))


ctypedef struct Probes:
    # How to ask each segment, by its place; NULL where that is not known.
    const Probe** at
    Py_ssize_t count


cdef int list_labels(
    const Batch* batch, Ask* ask, const Probes* probes, Scans* scans
) noexcept nogil:
    """The new labels by segment, if all segments are known and no label was aside before."""
    cdef Py_ssize_t at
    cdef const Fresh* fresh
    for at in range(ask.size):
        fresh = &ask.fresh[at]
        if probe_of(probes, fresh) == NULL or fresh.number != EMPTY:
            return LATER
    if by_segment(ask):
        return NO_MEMORY
    scans.ranks = <int64_t*> malloc(4 * ask.size * sizeof(int64_t))
    if scans.ranks == NULL:
        return NO_MEMORY
    scans.lasts = scans.ranks + ask.size
    scans.counts = scans.lasts + ask.size
    scans.lows = scans.counts + ask.size
    for at in range(ask.size):
        fresh = fresh_at(ask, at)
        scans.ranks[at] = batch.rank[fresh.row]
        scans.lasts[at] = batch.last[fresh.row]
    return FINE


cdef inline const Probe* probe_of(const Probes* probes, const Fresh* fresh) noexcept nogil:
    cdef Py_ssize_t place = <Py_ssize_t> (fresh.key >> 32)
    return probes.at[place] if place < probes.count else NULL


cdef inline Py_ssize_t group_end(const Ask* ask, Py_ssize_t low) noexcept nogil:
    """Where the labels of the next segment begin."""
    cdef uint64_t segment = fresh_at(ask, low).key >> 32
    while low < ask.size and fresh_at(ask, low).key >> 32 == segment:
        low += 1
    return low


cdef int count_candidates(
    const Ask* ask, const Probes* probes, Scans* scans, int64_t* total
) noexcept nogil:
    cdef const Probe* probe
    cdef Py_ssize_t at, low = 0, high
    while low < ask.size:
        high = group_end(ask, low)
        probe = probe_of(probes, fresh_at(ask, low))
        if probe.counts(
            probe.postings, probe.removed, scans.ranks + low, scans.lasts + low, high - low,
            probe.side, scans.counts + low, scans.lows + low,
        ):
            return LATER
        low = high
    for at in range(ask.size):
        total[0] += scans.counts[at]
    return FINE


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


cdef int get_candidates(
    const Ask* ask, const Probes* probes, Scans* scans, Py_ssize_t total
) noexcept nogil:
    cdef const Probe* probe
    cdef Py_ssize_t at, low = 0, high, rows, done = 0
    cdef int status = make_columns(scans, total)
    if status:
        return status
    while low < ask.size:
        high = group_end(ask, low)
        probe = probe_of(probes, fresh_at(ask, low))
        rows = probe.rows(
            probe.postings, probe.removed, scans.ranks + low, scans.lasts + low, high - low,
            probe.side, scans.counts + low, scans.lows + low, total - done, scans.left + done,
            scans.start + done, scans.end + done, scans.level + done,
        )
        if rows < 0:
            return LATER
        for at in range(done, done + rows if low else 0):
            scans.left[at] += low
        done += rows
        low = high
    scans.rows = done
    return FINE


cdef int learn_inputs(
    Join* join, const Probes* probes, const Batch* batch, Ask* ask, int64_t most, Sink* out,
) noexcept nogil:
    """Ask for the new labels of a batch, then take it. LATER: somebody else is to do that."""
    cdef int64_t began = nanoseconds(), total = 0
    cdef Scans scans
    cdef int status
    memset(&scans, 0, sizeof(Scans))
    status = list_labels(batch, ask, probes, &scans)
    if status == FINE:
        status = count_candidates(ask, probes, &scans, &total)
    if status == FINE and total > most:
        status = LATER
    if status == FINE and total:
        status = get_candidates(ask, probes, &scans, <Py_ssize_t> total)
    if status == FINE and scans.rows:
        status = settle_all(
            join, ask, 0, NULL, scans.left, scans.start, scans.end, scans.level, scans.rows
        )
    if status == FINE:
        pthread_mutex_lock(&join.mutex)
        join.tally.scans += ask.size
        join.tally.probe_time += nanoseconds() - began
        pthread_mutex_unlock(&join.mutex)
        # What is in hand lies in these columns until the batch is taken.
        status = answer_inputs(join, batch, ask, out)
    drop_scans(&scans)
    return status


cdef int fetch_labels(
    Join* join, Ask* ask, const Probe* probe, Py_ssize_t first, const int64_t* rows,
    const int64_t* ranks, const int64_t* lasts, Py_ssize_t labels, Scans* scans,
) noexcept nogil:
    """All candidates of some new labels of one segment, whoever said that they are to be fetched."""
    cdef Py_ssize_t at, total = 0
    cdef int status
    scans.ranks = <int64_t*> malloc(2 * labels * sizeof(int64_t))
    if scans.ranks == NULL:
        return NO_MEMORY
    scans.counts = scans.ranks
    scans.lows = scans.counts + labels
    if probe.counts(
        probe.postings, probe.removed, ranks, lasts, labels, probe.side, scans.counts, scans.lows
    ):
        return LATER
    for at in range(labels):
        total += <Py_ssize_t> scans.counts[at]
    status = make_columns(scans, total)
    if status:
        return status
    scans.rows = probe.rows(
        probe.postings, probe.removed, ranks, lasts, labels, probe.side, scans.counts, scans.lows,
        total, scans.left, scans.start, scans.end, scans.level,
    )
    if scans.rows < 0:
        return LATER
    return settle_all(
        join, ask, first, rows, scans.left, scans.start, scans.end, scans.level, scans.rows
    )
