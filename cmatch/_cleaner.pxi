# The join as Python sees it.

ctypedef struct Held:
    # A batch, and what its columns are held by.
    Column columns[7]
    Batch batch


cdef inline void clear(Held* held) noexcept:
    cdef int each
    for each in range(7):
        held.columns[each].held = False


cdef inline void leave(Held* held) noexcept:
    cdef int each
    for each in range(7):
        leave_column(&held.columns[each])


cdef int hold_anchors(object inputs, Held* held) except -1:
    """The columns of inputs, which keep them; what had to be converted is kept by its buffer."""
    cdef int each
    take_column(inputs.id, INT64, 8, &held.columns[1])
    take_column(inputs.start, INT64, 8, &held.columns[2])
    take_column(inputs.end, INT64, 8, &held.columns[3])
    take_column(inputs.level, INT16, 2, &held.columns[4])
    take_column(inputs.segment, INT32, 4, &held.columns[5])
    held.batch.count = held.columns[1].rows
    for each in range(2, 6):
        if held.columns[each].rows != held.batch.count:
            raise ValueError("the columns of inputs are not of one length")
    held.batch.id = <const int64_t*> held.columns[1].data
    held.batch.start = <const int64_t*> held.columns[2].data
    held.batch.end = <const int64_t*> held.columns[3].data
    held.batch.level = <const int16_t*> held.columns[4].data
    held.batch.segment = <const int32_t*> held.columns[5].data
    held.batch.rank = held.batch.last = NULL
    return 0


cdef int hold_batch(object inputs, str scheme, Held* held) except -1:
    """The same, with the ranks of their SES labels."""
    rank = inputs.rank
    named = inputs.scheme
    if rank is None or (named is not None and named is not scheme and named != scheme):
        raise MissingLabels(scheme)
    hold_anchors(inputs, held)
    take_column(rank, INT64, 8, &held.columns[0])
    if held.columns[0].rows != held.batch.count:
        raise ValueError("the columns of inputs are not of one length")
    held.batch.rank = <const int64_t*> held.columns[0].data
    return 0


cdef int hold_lasts(object inputs, Held* held) except -1:
    """The column that is needed to ask for new labels, too."""
    take_column(inputs.last, INT64, 8, &held.columns[6])
    if held.columns[6].rows != held.batch.count:
        raise ValueError("the columns of inputs are not of one length")
    held.batch.last = <const int64_t*> held.columns[6].data
    return 0


cdef object rows_deferred(const Ask* ask):
    """The rows of inputs that ADMatch takes; None if there are none."""
    return copied(ask.deferred, ask.deferrals, INT64, 8) if ask.deferrals else None


cdef object groups(const Batch* batch, Ask* ask):
    """New labels by segment."""
    cdef Column of_ranks
    cdef Column of_lasts
    cdef Fresh* fresh
    cdef Py_ssize_t low = 0, high, at
    cdef uint64_t segment
    if by_segment(ask):
        raise MemoryError
    found = []
    while low < ask.size:
        segment = fresh_at(ask, low).key >> 32
        high = low + 1
        while high < ask.size and fresh_at(ask, high).key >> 32 == segment:
            high += 1
        rank = take_column(empty_array(high - low, INT64), INT64, 8, &of_ranks)
        last = take_column(empty_array(high - low, INT64), INT64, 8, &of_lasts)
        for at in range(low, high):
            fresh = fresh_at(ask, at)
            (<int64_t*> of_ranks.data)[at - low] = batch.rank[fresh.row]
            (<int64_t*> of_lasts.data)[at - low] = batch.last[fresh.row]
        leave_column(&of_ranks)
        leave_column(&of_lasts)
        found.append((segment, low, rank, last))
        low = high
    return found


cdef object cold_groups(const Cold* cold, Py_ssize_t count):
    """Labels by segment: its place, their ranks, their lasts."""
    cdef Column of_ranks
    cdef Column of_lasts
    cdef Py_ssize_t low = 0, high, at
    found = []
    while low < count:
        high = low + 1
        while high < count and cold[high].segment == cold[low].segment:
            high += 1
        ranks = take_column(empty_array(high - low, INT64), INT64, 8, &of_ranks)
        lasts = take_column(empty_array(high - low, INT64), INT64, 8, &of_lasts)
        for at in range(low, high):
            (<int64_t*> of_ranks.data)[at - low] = cold[at].rank
            (<int64_t*> of_lasts.data)[at - low] = cold[at].last
        leave_column(&of_ranks)
        leave_column(&of_lasts)
        found.append((cold[low].segment, ranks, lasts))
        low = high
    return found


def total(counts):
    """Their sum; numpy's takes longer than all that is done with it."""
    cdef Column column
    cdef int64_t found = 0
    cdef Py_ssize_t at
    counts = take_column(counts, INT64, 8, &column)
    for at in range(column.rows):
        found += (<const int64_t*> column.data)[at]
    leave_column(&column)
    return found


@cython.final
cdef class Lists:
    """How to ask for nodes of some tags in the segments of one generation, as an index gave it."""

    cdef tuple segments
    cdef tuple tags
    cdef const void** at         # by segment, then by tag; NULL until it is known
    cdef list capsules           # that keep them

    def __cinit__(self, segments, tags):
        self.segments = tuple(segments)
        self.tags = tuple(tags)
        self.capsules = []
        self.at = <const void**> calloc(len(self.segments) * len(self.tags) + 1, sizeof(void*))
        if self.at == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.at)

    cdef const void* get(self, Py_ssize_t segment, Py_ssize_t tag) noexcept:
        return load_ready(self.at[segment * len(self.tags) + tag])

    cdef bint has(self, Py_ssize_t segment) noexcept:
        """Whether all tags are known; they become so in their order."""
        cdef Py_ssize_t tags = len(self.tags)
        return tags == 0 or self.get(segment, tags - 1) != NULL

    cdef const void* put(
        self, Py_ssize_t segment, Py_ssize_t tag, capsule, const char* name
    ) except NULL:
        """Threads that put the same at once keep one each."""
        cdef const void* probe = PyCapsule_GetPointer(capsule, name)
        if not (0 <= segment < len(self.segments) and 0 <= tag < len(self.tags)):
            raise IndexError(f"no segment {segment}, or no tag {tag}")
        self.capsules.append(capsule)
        store_ready(self.at[segment * len(self.tags) + tag], probe)
        return probe


cdef inline Probes probes_of(Lists lists) noexcept:
    cdef Probes probes
    probes.at = <const Probe**> lists.at
    probes.segments = len(lists.segments)
    probes.tags = len(lists.tags)
    return probes


cdef class Cleaner:
    """CClean, natively; see `fmware.cmatch.cclean`. Safe to share between threads."""

    cdef Join join
    cdef Sink spare              # memory for the pairs of the next batch; the GIL guards it
    cdef Ask asked               # what `ask` found new, until `answer`; one thread at a time asks
    cdef list brought            # the columns of what is in hand
    cdef object failure          # why the batch that was fed last was not taken,
    cdef bint looking            # and whether it was handed back
    cdef Lists lists             # how to ask for new labels
    cdef public bint wary        # whether those whose candidates are not in memory wait for them,
    cdef public list cold        # and which of the last batch do, until somebody has taken the list
    cdef public int64_t most     # candidates of a batch's new labels that are fetched natively,
    cdef public int64_t each     # and so many more for each of its inputs
    cdef public int64_t ahead    # inputs that are taken before a batch is handed back, see `ask`
    cdef bytes place
    cdef readonly str scheme

    def __cinit__(self, *arguments, **options):
        memset(&self.join, 0, sizeof(Join))
        memset(&self.spare, 0, sizeof(Sink))
        memset(&self.asked, 0, sizeof(Ask))
        self.join.file = -1
        self.join.page_at = -1
        self.join.shut = True
        pthread_mutex_init(&self.join.mutex, NULL)

    def __init__(
        self, int axis, int64_t budget, Py_ssize_t partition, bytes place, str scheme,
        bint tracing=False, unsigned jitter=0,
    ):
        cdef Join* join = &self.join
        if not join.shut or join.count:
            raise RuntimeError("made already")
        if not CHILD <= axis <= ANCESTOR:
            raise ValueError(f"no axis {axis}")
        if budget < 0 or partition < 1 or partition > 1 << 24:
            raise ValueError("a budget is not negative, and a partition has 1 to 2**24 rows")
        self.place = place
        self.scheme = scheme
        self.lists = Lists((), ())
        self.wary = False
        self.most = self.each = 0
        self.ahead = INT64_MAX
        join.place = self.place
        join.axis = axis
        join.budget = budget
        join.rows = partition
        join.tracing = tracing
        join.jitter = jitter
        join.scratch = <Entry*> malloc((partition + 1) * sizeof(Entry))
        join.page = <char*> malloc(PAGE_BYTES)
        if (
            join.scratch == NULL or join.page == NULL or rehash(join, 64)
            or (not join.room and grow_labels(join))
        ):
            # As it does with one that was open.
            join.shut = False
            shut_down(join)
            raise MemoryError
        # Touched now: the first message that comes need not wait for the system to give it.
        memset(join.labels, 0, join.room * sizeof(Label))
        join.shut = False

    def __dealloc__(self):
        shut_down(&self.join)
        drop_sink(&self.spare)
        drop_ask(&self.join, &self.asked)
        free(self.join.events)
        pthread_mutex_destroy(&self.join.mutex)

    cdef object fail(self, int status):
        if status == NO_DISK:
            reason = strerror(self.join.error).decode("utf-8", "replace")
            return SpillFailed(self.place.decode("utf-8", "replace"), reason, self.join.error)
        if status == NO_MEMORY:
            return MemoryError("no memory for inputs and candidates")
        if status == FINISHED:
            return ValueError("candidates for a label that was complete")
        return OperatorClosed("CClean")

    # --- the left ---------------------------------------------------------------------------

    def left(self, inputs):
        """(the pairs that are ready, the places of inputs whose label is new, or None)."""
        cdef Held held
        cdef Ask ask
        cdef Sink sink = self.spare
        cdef Py_ssize_t at
        cdef int status
        memset(&self.spare, 0, sizeof(Sink))
        memset(&ask, 0, sizeof(Ask))
        clear(&held)
        try:
            hold_batch(inputs, self.scheme, &held)
            with nogil:
                status = join_inputs(&self.join, &held.batch, &ask, &sink)
            if status:
                raise self.fail(status)
            matches = matches_of(&sink)
            if ask.size == 0:
                return matches, None
            return matches, np.array([ask.fresh[at].row for at in range(ask.size)], INT64)
        finally:
            leave(&held)
            drop_ask(&self.join, &ask)
            self.keep(&sink)

    def ask(self, inputs):
        """(pairs, new labels or None, rows deferred or None).

        An empty list of new labels: the batch has more inputs than were `ahead`. It was not taken,
        and the caller is to reconsider before it feeds it again.
        If there is a `probe` of their segment, new labels with few candidates are asked for here.
        Of others, no input is taken before `answer`, with the same inputs, is called. Of
        each segment that has some there is (its place, the place of its first label among all that
        are new, their ranks, their lasts). Until `answer`, the caller is to `settle` them, to let
        them `wait`, or to `defer` them. A label of which none of this was said has no candidates.
        """
        cdef Held held
        cdef Ask ask
        cdef Sink sink = self.spare
        cdef int status
        memset(&self.spare, 0, sizeof(Sink))
        memset(&ask, 0, sizeof(Ask))
        clear(&held)
        try:
            hold_batch(inputs, self.scheme, &held)
            # Now: a batch that is refused later would leave its labels without candidates.
            hold_lasts(inputs, &held)
            if not self.passes(held.batch.count):
                return no_matches, [], None
            with nogil:
                status = ask_inputs(&self.join, &held.batch, &ask, &sink)
            if status:
                raise self.fail(status)
            if ask.size:
                if self.learns(&held.batch, &ask, &sink):
                    return matches_of(&sink), None, rows_deferred(&ask)
                fresh = groups(&held.batch, &ask)
                self.forget()
                self.asked = ask
                memset(&ask, 0, sizeof(Ask))
                return no_matches, fresh, None
            return matches_of(&sink), None, rows_deferred(&ask)
        finally:
            leave(&held)
            drop_ask(&self.join, &ask)
            self.keep(&sink)

    cdef inline bint passes(self, Py_ssize_t count) noexcept:
        """Whether a batch is taken, and not handed back."""
        if count > self.ahead:
            return False
        self.ahead -= count
        return True

    cdef bint learns(self, const Batch* batch, Ask* ask, Sink* sink) except -1:
        """Whether the new labels of a batch were asked for here, and the batch was taken."""
        cdef int64_t most = max(self.most, self.each * <int64_t> batch.count)
        cdef Lists lists = self.lists
        cdef Probes probes = probes_of(lists)
        cdef bint wary = self.wary
        cdef Cold* cold = NULL
        cdef Py_ssize_t colds = 0
        cdef int status
        try:
            with nogil:
                status = learn_inputs(
                    &self.join, &probes, batch, ask, most, wary, sink, &cold, &colds
                )
            if status == LATER:
                return False
            if status:
                raise self.fail(status)
            if colds:
                self.cold = cold_groups(cold, colds)
            return True
        finally:
            free(cold)

    # --- the left, for other kernels --------------------------------------------------------

    def feeder(self):
        """A capsule with a `Feeder`, for other kernels; it keeps this."""
        return feeder_of(self, <FeedBatch> feed_batch, False, &self.join.tally.stored)

    cdef int feed(self, const Batch* batch, Sink* sink) except -1:
        """`ask`, whose answer is in two parts: pairs, and what `rest` gives, if this is not 0."""
        cdef Ask ask
        memset(&ask, 0, sizeof(Ask))
        sink.size = 0
        if sink.room * 8 > SMALL:
            drop_sink(sink)
        self.failure = None
        self.looking = not self.passes(batch.count)
        try:
            if not self.looking:
                self.ask_batch(batch, &ask, sink)
        except Exception as error:
            self.failure = error
            sink.size = 0
        if self.failure is None and (ask.size or ask.deferrals):
            self.forget()
            self.asked = ask
            return 1
        drop_ask(&self.join, &ask)
        return self.looking or self.failure is not None or self.cold is not None

    cdef int ask_batch(self, const Batch* batch, Ask* ask, Sink* sink) except -1:
        cdef int status
        with nogil:
            status = ask_inputs(&self.join, batch, ask, sink)
        if status:
            raise self.fail(status)
        if ask.size:
            if self.learns(batch, ask, sink):
                # None of them is for `rest`.
                ask.size = 0
        return 0

    def rest(self, inputs):
        """What `ask` would have said of the batch that was fed, the pairs that were given apart."""
        cdef Held held
        error, self.failure = self.failure, None
        if error is not None:
            raise error
        if self.looking:
            return no_matches, [], None
        if not self.asked.size:
            deferred = rows_deferred(&self.asked)
            self.forget()
            return no_matches, None, deferred
        clear(&held)
        try:
            hold_batch(inputs, self.scheme, &held)
            hold_lasts(inputs, &held)
            return no_matches, groups(&held.batch, &self.asked), None
        finally:
            leave(&held)

    def defer(self, Py_ssize_t first, counts):
        """Rent new labels, from one on, that have so many candidates, where `rent` says so.

        Gives the places, from that one on, of those that are to be fetched. None: all of them.
        """
        cdef Column column
        cdef Column target
        cdef Ask* ask = &self.asked
        cdef int64_t* kept
        cdef Py_ssize_t at, left = 0
        cdef int status = FINE
        if not rents(&self.join):
            return None
        counts = take_column(counts, INT64, 8, &column)
        rows = take_column(empty_array(column.rows, INT64), INT64, 8, &target)
        kept = <int64_t*> target.data
        try:
            self.within(first, column.rows)
            with nogil:
                pthread_mutex_lock(&self.join.mutex)
                if self.join.shut:
                    status = SHUT
                elif ask.uses == NULL:
                    status = count_uses(ask)
                for at in range(column.rows if status == FINE else 0):
                    if not defer(
                        &self.join, ask, fresh_at(ask, first + at), (<int64_t*> column.data)[at]
                    ):
                        kept[left] = at
                        left += 1
                pthread_mutex_unlock(&self.join.mutex)
            if status:
                raise self.fail(status)
            return None if left == column.rows else rows[:left]
        finally:
            leave_column(&column)
            leave_column(&target)

    def wait(self, Py_ssize_t first, rows):
        """Store inputs of new labels, at places from one on, until `right` has their candidates."""
        cdef Column column
        cdef Py_ssize_t at
        cdef int status
        rows = take_column(rows, INT64, 8, &column)
        try:
            for at in range(column.rows):
                self.within(first, (<int64_t*> column.data)[at] + 1)
            with nogil:
                pthread_mutex_lock(&self.join.mutex)
                status = SHUT if self.join.shut else FINE
                for at in range(column.rows):
                    if status == FINE:
                        status = pend_fresh(
                            &self.join,
                            fresh_at(&self.asked, first + (<int64_t*> column.data)[at]),
                        )
                status = hand_out(&self.join, status, NULL)
                pthread_mutex_unlock(&self.join.mutex)
            if status:
                raise self.fail(status)
        finally:
            leave_column(&column)

    def settle(self, Py_ssize_t first, rows, left, start, end, level):
        """All candidates of new labels.

        `left` says, in ascending order, to which each belongs: by its place from `first` on, or,
        if there are `rows`, by its place in these, which say that. None: all to the first.
        """
        cdef Column columns[5]
        cdef int status, each
        cdef Py_ssize_t at, labels
        cdef const int64_t* lefts = NULL
        cdef const int64_t* places = NULL
        for each in range(5):
            columns[each].held = False
        try:
            start = take_column(start, INT64, 8, &columns[0])
            end = take_column(end, INT64, 8, &columns[1])
            level = take_column(level, INT16, 2, &columns[2])
            if left is not None:
                left = take_column(left, INT64, 8, &columns[3])
                lefts = <const int64_t*> columns[3].data
            for each in range(1, 4 if lefts != NULL else 3):
                if columns[each].rows != columns[0].rows:
                    raise ValueError("the columns of candidates are not of one length")
            labels = self.asked.size - first
            if rows is not None:
                rows = take_column(rows, INT64, 8, &columns[4])
                places = <const int64_t*> columns[4].data
                labels = columns[4].rows
                for at in range(labels):
                    self.within(first, places[at] + 1)
            if labels < 1:
                raise ValueError("candidates of a label that was not asked for")
            for at in range(columns[0].rows if lefts != NULL else 0):
                if not (lefts[at - 1] if at else 0) <= lefts[at] < labels:
                    raise ValueError("candidates of a label that was not asked for")
            with nogil:
                status = settle_all(
                    &self.join, &self.asked, first, places, lefts,
                    <const int64_t*> columns[0].data, <const int64_t*> columns[1].data,
                    <const int16_t*> columns[2].data, columns[0].rows,
                )
            if status:
                raise self.fail(status)
            if self.asked.hands != NULL:
                self.brought = [*(self.brought or ()), start, end, level]
        finally:
            for each in range(5):
                leave_column(&columns[each])

    def aim(self, segments, tags):
        """Ask these segments for candidates of these tags, once they are introduced."""
        self.lists = Lists(segments, tags)

    def introduce(self, Py_ssize_t place, capsules):
        """How to ask a segment: for each tag, what `Segment.probe` gave."""
        cdef Py_ssize_t tag
        for tag, capsule in enumerate(capsules):
            self.lists.put(place, tag, capsule, "fmware.index.probe")

    def knows(self, Py_ssize_t place):
        """Whether it can ask for new labels of a segment."""
        return 0 <= place < len(self.lists.segments) and self.lists.has(place)

    def fetch(self, Py_ssize_t place, Py_ssize_t first, rows, ranks, lasts):
        """`settle` with what a segment that it knows has for some new labels.

        Whether that was possible: not if some block is not ready, or the segment was closed.
        """
        cdef Column columns[3]
        cdef Scans scans
        cdef Memory memory
        cdef Py_ssize_t at
        cdef const int64_t* places = NULL
        cdef int status, each
        cdef Lists lists = self.lists
        cdef Probes probes = probes_of(lists)
        if not self.knows(place):
            return False
        for each in range(3):
            columns[each].held = False
        memset(&scans, 0, sizeof(Scans))
        try:
            ranks = take_column(ranks, INT64, 8, &columns[0])
            lasts = take_column(lasts, INT64, 8, &columns[1])
            if columns[1].rows != columns[0].rows:
                raise ValueError("the columns of labels are not of one length")
            self.within(first, columns[0].rows)
            if rows is not None:
                rows = take_column(rows, INT64, 8, &columns[2])
                places = <const int64_t*> columns[2].data
                if columns[2].rows != columns[0].rows:
                    raise ValueError("the columns of labels are not of one length")
                for at in range(columns[2].rows):
                    self.within(first, places[at] + 1)
            with nogil:
                status = fetch_labels(
                    &self.join, &self.asked, probes.at + place * probes.tags, probes.tags, first,
                    places,
                    <const int64_t*> columns[0].data, <const int64_t*> columns[1].data,
                    columns[0].rows, &scans,
                )
            if status == LATER:
                return False
            if status:
                raise self.fail(status)
            if self.asked.hands != NULL:
                # Some of them are in hand, and lie here until the batch is taken.
                memory = Memory.__new__(Memory)
                memory.data = scans.left
                scans.left = NULL
                self.brought = [*(self.brought or ()), memory]
            return True
        finally:
            drop_scans(&scans)
            for each in range(3):
                leave_column(&columns[each])

    def bring(self, Py_ssize_t place, ranks, lasts, Py_ssize_t most):
        """All candidates of labels whose inputs wait, in vectors of at most so many.

        Whether that was possible, as of `fetch`. None of them has come if some block is not ready.
        """
        cdef Column columns[2]
        cdef Lists lists = self.lists
        cdef Probes probes = probes_of(lists)
        cdef int status, each
        if not self.knows(place):
            return False
        for each in range(2):
            columns[each].held = False
        try:
            ranks = take_column(ranks, INT64, 8, &columns[0])
            lasts = take_column(lasts, INT64, 8, &columns[1])
            if columns[1].rows != columns[0].rows:
                raise ValueError("the columns of labels are not of one length")
            with nogil:
                status = bring_labels(
                    &self.join, probes.at + place * probes.tags, probes.tags, place,
                    <const int64_t*> columns[0].data, <const int64_t*> columns[1].data,
                    columns[0].rows, max(most, <Py_ssize_t> 1),
                )
            if status == LATER:
                return False
            if status:
                raise self.fail(status)
            return True
        finally:
            for each in range(2):
                leave_column(&columns[each])

    cdef int within(self, Py_ssize_t first, int64_t count) except -1:
        if first < 0 or count < 0 or first + count > self.asked.size:
            raise ValueError("labels that were not asked for")
        return 0

    def answer(self, inputs):
        """The rest of what was asked: (the pairs that are ready, rows deferred or None)."""
        cdef Held held
        cdef Sink sink = self.spare
        cdef int status
        memset(&self.spare, 0, sizeof(Sink))
        clear(&held)
        try:
            hold_batch(inputs, self.scheme, &held)
            if self.asked.numbers == NULL or held.batch.count != self.asked.total:
                raise ValueError("other inputs than those that were asked")
            with nogil:
                status = answer_inputs(&self.join, &held.batch, &self.asked, &sink)
            if status:
                raise self.fail(status)
            return matches_of(&sink), rows_deferred(&self.asked)
        finally:
            leave(&held)
            self.forget()
            self.keep(&sink)

    cdef void forget(self) noexcept:
        drop_ask(&self.join, &self.asked)
        self.brought = None

    cdef void keep(self, Sink* sink) noexcept:
        if self.spare.id == NULL and sink.id != NULL and sink.room * 8 <= SMALL:
            self.spare = sink[0]
            self.spare.size = 0
        else:
            drop_sink(sink)

    def take(self):
        """The pairs that have become ready."""
        cdef Sink sink = self.spare
        cdef int status
        memset(&self.spare, 0, sizeof(Sink))
        try:
            with nogil:
                pthread_mutex_lock(&self.join.mutex)
                status = hand_out(&self.join, FINE, &sink)
                pthread_mutex_unlock(&self.join.mutex)
            if status:
                raise self.fail(status)
            return matches_of(&sink)
        finally:
            self.keep(&sink)

    # --- the right --------------------------------------------------------------------------

    def right(self, uint32_t segment, int64_t rank, start, end, level, bint last):
        """Candidates of one label; with `last`, there are no more of it."""
        cdef Column columns[3]
        cdef Vector vector
        cdef uint64_t key = (<uint64_t> segment << 32) | <uint32_t> rank
        cdef int status, each
        memset(&vector, 0, sizeof(Vector))
        for each in range(3):
            columns[each].held = False
        try:
            start = take_column(start, INT64, 8, &columns[0])
            end = take_column(end, INT64, 8, &columns[1])
            level = take_column(level, INT16, 2, &columns[2])
            if columns[1].rows != columns[0].rows or columns[2].rows != columns[0].rows:
                raise ValueError("the columns of candidates are not of one length")
            with nogil:
                status = make_vector(
                    self.join.axis, <const int64_t*> columns[0].data,
                    <const int64_t*> columns[1].data, <const int16_t*> columns[2].data,
                    columns[0].rows, &vector,
                )
                if status == FINE:
                    status = take_candidates(&self.join, key, &vector, last)
            if status:
                raise self.fail(status)
        finally:
            free_vector(&vector)
            for each in range(3):
                leave_column(&columns[each])

    # --- all of it --------------------------------------------------------------------------

    def renumber(self, places):
        """Segment i is now places[i], or is no more if that is -1; nothing may be under way."""
        cdef Column column
        cdef int status
        self.forget()
        self.lists = Lists((), ())
        places = take_column(places, INT32, 4, &column)
        try:
            with nogil:
                pthread_mutex_lock(&self.join.mutex)
                status = SHUT if self.join.shut else renumber(
                    &self.join, <const int32_t*> column.data, column.rows
                )
                if status:
                    shut_down(&self.join)
                pthread_mutex_unlock(&self.join.mutex)
            if status:
                raise self.fail(status)
        finally:
            leave_column(&column)

    def tallies(self):
        """The counts, in the order of `fmware.cmatch.cclean`."""
        cdef Tally tally
        cdef int64_t held, peak, table
        with nogil:
            pthread_mutex_lock(&self.join.mutex)
            tally = self.join.tally
            tally.pairs += self.join.out.size
            held = self.join.held
            peak = self.join.peak
            table = self.join.table
            pthread_mutex_unlock(&self.join.mutex)
        return (
            tally.inputs, tally.deferred, tally.unique, tally.candidates, tally.false_hits, tally.pairs,
            tally.spills, tally.spilled_bytes, tally.overflow_reads, held, peak, table,
            tally.insert_time / 1e9, tally.query_time / 1e9, tally.scans, tally.probe_time / 1e9,
        )

    def events(self):
        """The steps since the last call: (kind, side, segment, rank, id, start, stamp, rows)."""
        cdef Event* events
        cdef Py_ssize_t count, at
        with nogil:
            pthread_mutex_lock(&self.join.mutex)
            events = self.join.events
            count = self.join.noted
            self.join.events = NULL
            self.join.noted = self.join.notes_room = 0
            pthread_mutex_unlock(&self.join.mutex)
        found = []
        for at in range(count):
            found.append((
                events[at].kind, events[at].side, events[at].key >> 32,
                events[at].key & 0xFFFFFFFF, events[at].id, events[at].start, events[at].stamp,
                events[at].rows,
            ))
        free(events)
        return found

    @property
    def rent(self):
        """(a, b): a new label with n candidates is fetched once a + b * n inputs were deferred."""
        return self.join.rent_label, self.join.rent_each

    @rent.setter
    def rent(self, rent):
        self.join.rent_label, self.join.rent_each = rent

    @property
    def stored(self):
        """Inputs that were stored so far, because candidates of their label were still to come."""
        return self.join.tally.stored

    @property
    def closed(self):
        """Whether it was closed, or is dead after an error."""
        return self.join.shut

    def close(self):
        """Free everything, and let go of the index."""
        with nogil:
            pthread_mutex_lock(&self.join.mutex)
            shut_down(&self.join)
            pthread_mutex_unlock(&self.join.mutex)
        self.lists = Lists((), ())


cdef const char* FEEDER = "fmware.cmatch.feeder"


cdef object feeder_of(object taker, FeedBatch feed, bint shared, const int64_t* stored):
    cdef Feeder* feeder = <Feeder*> malloc(sizeof(Feeder))
    if feeder == NULL:
        raise MemoryError
    feeder.taker = <void*> taker
    feeder.feed = feed
    feeder.shared = shared
    feeder.stored = stored
    Py_INCREF(taker)
    return PyCapsule_New(feeder, FEEDER, drop_feeder)


cdef void drop_feeder(object capsule) noexcept:
    cdef Feeder* feeder = <Feeder*> PyCapsule_GetPointer(capsule, FEEDER)
    Py_DECREF(<object> feeder.taker)
    free(feeder)


cdef int feed_batch(Cleaner cleaner, const Batch* batch, Sink* pairs) except -1:
    return cleaner.feed(batch, pairs)
