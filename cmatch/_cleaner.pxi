# The join as Python sees it.

cdef int64_t FOREVER = INT64_MAX >> 3      # batches, and inputs of one, that never come


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


cdef int hold_batch(object inputs, str scheme, Held* held) except -1:
    """The columns of inputs, which keep them; what had to be converted is kept by its buffer."""
    cdef int each
    rank = inputs.rank
    named = inputs.scheme
    if rank is None or (named is not None and named is not scheme and named != scheme):
        raise MissingLabels(scheme)
    take_column(rank, INT64, 8, &held.columns[0])
    take_column(inputs.id, INT64, 8, &held.columns[1])
    take_column(inputs.start, INT64, 8, &held.columns[2])
    take_column(inputs.end, INT64, 8, &held.columns[3])
    take_column(inputs.level, INT16, 2, &held.columns[4])
    take_column(inputs.segment, INT32, 4, &held.columns[5])
    held.batch.count = held.columns[0].rows
    for each in range(1, 6):
        if held.columns[each].rows != held.batch.count:
            raise ValueError("the columns of inputs are not of one length")
    held.batch.rank = <const int64_t*> held.columns[0].data
    held.batch.id = <const int64_t*> held.columns[1].data
    held.batch.start = <const int64_t*> held.columns[2].data
    held.batch.end = <const int64_t*> held.columns[3].data
    held.batch.level = <const int16_t*> held.columns[4].data
    held.batch.segment = <const int32_t*> held.columns[5].data
    held.batch.last = NULL
    return 0


cdef int hold_lasts(object inputs, Held* held) except -1:
    """The column that is needed to ask for new labels, too."""
    take_column(inputs.last, INT64, 8, &held.columns[6])
    if held.columns[6].rows != held.batch.count:
        raise ValueError("the columns of inputs are not of one length")
    held.batch.last = <const int64_t*> held.columns[6].data
    return 0


cdef object rows_aside(const Ask* ask):
    """The rows of inputs that are not ours; None if there are none."""
    return copied(ask.aside, ask.asides, INT64, 8) if ask.asides else None


cdef object groups(const Batch* batch, Ask* ask):
    """New labels by segment."""
    cdef Column of_ranks
    cdef Column of_lasts
    cdef Fresh* fresh
    cdef Py_ssize_t low = 0, high, at, due
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
        due = 0
        for at in range(low, high):
            fresh = fresh_at(ask, at)
            due += fresh.number == DUE
            (<int64_t*> of_ranks.data)[at - low] = batch.rank[fresh.row]
            (<int64_t*> of_lasts.data)[at - low] = batch.last[fresh.row]
        leave_column(&of_ranks)
        leave_column(&of_lasts)
        found.append((segment, low, rank, last, due))
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


cdef class Cleaner:
    """CClean, natively; see `cmatch.cclean`. Safe to share between threads."""

    cdef Join join
    cdef Sink spare              # memory for the pairs of the next batch; the GIL guards it
    cdef Ask asked               # what `ask` found new, until `answer`; one thread at a time asks
    cdef list brought            # the columns of what is in hand
    cdef Sink lent               # the pairs of the batch that was fed last,
    cdef object failure          # why it was not taken,
    cdef bint looking            # and whether it is to be looked at first
    cdef Probes known            # how to ask for new labels
    cdef list probes             # the capsules that keep them
    cdef public int64_t most     # candidates of a batch's new labels that are fetched natively,
    cdef public int64_t each     # and so many more for each of its inputs
    cdef int64_t patience        # batches with new labels until the counts are noted,
    cdef int64_t further         # and so many more until somebody is to look
    cdef readonly tuple noted    # the counts as they were then
    cdef readonly bint watched   # whether batches are counted for somebody:
    cdef int64_t ahead           # he is to look at one after so many,
    cdef int64_t least           # or at the next, if it has fewer inputs,
    cdef int64_t largest         # or more
    cdef bytes place
    cdef readonly str scheme

    def __cinit__(self, *arguments, **options):
        memset(&self.join, 0, sizeof(Join))
        memset(&self.spare, 0, sizeof(Sink))
        memset(&self.lent, 0, sizeof(Sink))
        memset(&self.asked, 0, sizeof(Ask))
        memset(&self.known, 0, sizeof(Probes))
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
        self.probes = []
        self.most = self.each = 0
        self.trust(FOREVER, 0)
        self.expect(FOREVER, 0, FOREVER)
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
        drop_sink(&self.lent)
        drop_ask(&self.join, &self.asked)
        free(self.join.events)
        free(self.known.at)
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
        """(pairs, new labels or None, rows aside or None).

        No label at all, where there should be some: it is time to look, and nothing was taken.
        If there is a `probe` of their segment, new labels with few candidates are asked for here.
        Of others, no input is taken before `answer`, with the same inputs, is called. Of
        each segment that has some there is (its place, the place of its first label among all that
        are new, their ranks, their lasts, how many at the end were set aside before). Until
        `answer`, somebody is to `settle` them, to let them `wait`, or to `set_aside` them; what is
        left of them has no candidates.
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
            if self.watched and self.looks(held.batch.count):
                return no_matches, [], None
            with nogil:
                status = ask_inputs(&self.join, &held.batch, &ask, &sink)
            if status:
                raise self.fail(status)
            if ask.size:
                self.tires()
                if self.learns(&held.batch, &ask, &sink):
                    return matches_of(&sink), None, rows_aside(&ask)
                fresh = groups(&held.batch, &ask)
                self.forget()
                self.asked = ask
                memset(&ask, 0, sizeof(Ask))
                return no_matches, fresh, None
            return matches_of(&sink), None, rows_aside(&ask)
        finally:
            leave(&held)
            drop_ask(&self.join, &ask)
            self.keep(&sink)

    def watch(self, int64_t ahead, int64_t least=0, int64_t largest=FOREVER):
        """Have somebody look, once: after so many batches, or if the next is of another size."""
        self.expect(ahead, least, largest)

    def trust(self, int64_t batches, int64_t more=0):
        """Have somebody look, once so many batches have brought new labels, and then so many more.

        What was counted when the first of these had come is `noted`.
        """
        self.patience = batches
        self.further = more
        self.noted = None

    cdef void expect(self, int64_t ahead, int64_t least, int64_t largest) noexcept:
        self.ahead = ahead
        self.least = least
        self.largest = largest
        self.watched = ahead < FOREVER or least > 0 or largest < FOREVER

    cdef bint looks(self, Py_ssize_t count) noexcept:
        """Whether somebody is to look at a batch."""
        cdef bint unlike = not self.least <= count <= self.largest
        if self.ahead < FOREVER:
            self.ahead -= 1
        if unlike or self.ahead < 0:
            self.expect(FOREVER, 0, FOREVER)
            return True
        self.expect(self.ahead, 0, FOREVER)
        return False

    cdef int tires(self) except -1:
        """A batch with new labels: if there have been so many, somebody is to look at the next."""
        if self.patience >= FOREVER:
            return 0
        self.patience -= 1
        if self.patience > 0:
            return 0
        if self.further > 0:
            self.noted = self.tallies()
            self.patience, self.further = self.further, 0
        else:
            self.patience = FOREVER
            self.expect(0, 0, FOREVER)
        return 0

    cdef bint learns(self, const Batch* batch, Ask* ask, Sink* sink) except -1:
        """Whether the new labels of a batch were asked for here, and the batch was taken."""
        cdef int64_t most = max(self.most, self.each * <int64_t> batch.count)
        cdef int status
        # Closing the operator meanwhile must not free them.
        cdef Probes known = self.known
        kept = self.probes
        if not known.count:
            return False
        with nogil:
            status = learn_inputs(&self.join, &known, batch, ask, most, sink)
        if status == LATER:
            return False
        if status:
            raise self.fail(status)
        return True

    # --- the left, for other kernels --------------------------------------------------------

    def feeder(self):
        """A capsule with a `Feeder`, for other kernels; it keeps this."""
        cdef Feeder* feeder = <Feeder*> malloc(sizeof(Feeder))
        if feeder == NULL:
            raise MemoryError
        feeder.cleaner = <void*> self
        feeder.feed = <FeedBatch> feed_batch
        Py_INCREF(self)
        return PyCapsule_New(feeder, FEEDER, drop_feeder)

    cdef int feed(self, const Batch* batch, const Sink** pairs) except -1:
        """`ask`, whose answer is in two parts: pairs, and what `rest` gives, if this is not 0."""
        cdef Ask ask
        cdef Sink sink = self.lent
        memset(&self.lent, 0, sizeof(Sink))
        memset(&ask, 0, sizeof(Ask))
        sink.size = 0
        if sink.room * 8 > SMALL:
            drop_sink(&sink)
        self.failure = None
        self.looking = self.watched and self.looks(batch.count)
        try:
            if not self.looking:
                self.ask_batch(batch, &ask, &sink)
        except Exception as error:
            self.failure = error
            sink.size = 0
        self.lent = sink
        pairs[0] = &self.lent
        if self.failure is None and (ask.size or ask.asides):
            self.forget()
            self.asked = ask
            return 1
        drop_ask(&self.join, &ask)
        return self.looking or self.failure is not None

    cdef int ask_batch(self, const Batch* batch, Ask* ask, Sink* sink) except -1:
        cdef int status
        with nogil:
            status = ask_inputs(&self.join, batch, ask, sink)
        if status:
            raise self.fail(status)
        if ask.size:
            self.tires()
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
            aside = rows_aside(&self.asked)
            self.forget()
            return no_matches, None, aside
        clear(&held)
        try:
            hold_batch(inputs, self.scheme, &held)
            hold_lasts(inputs, &held)
            return no_matches, groups(&held.batch, &self.asked), None
        finally:
            leave(&held)

    def set_aside(self, Py_ssize_t first, wanted):
        """Send inputs of new labels, from one on, to somebody else: so many of each.

        Gives the places, from that one on, of those that are to be asked for none the less: none
        of their inputs were to be sent, as many as were wanted have been sent already, or this
        batch alone has more. None: all of them.
        """
        cdef Column column
        cdef Column target
        cdef Ask* ask = &self.asked
        cdef int64_t* kept
        cdef Py_ssize_t at, left = 0
        cdef int status = FINE
        wanted = take_column(wanted, INT64, 8, &column)
        rows = take_column(empty_array(column.rows, INT64), INT64, 8, &target)
        kept = <int64_t*> target.data
        try:
            self.within(first, column.rows)
            for at in range(column.rows):
                if (<int64_t*> column.data)[at] > 0:
                    break
            else:
                return None
            with nogil:
                pthread_mutex_lock(&self.join.mutex)
                if self.join.shut:
                    status = SHUT
                elif ask.uses == NULL:
                    status = count_uses(ask)
                for at in range(column.rows if status == FINE else 0):
                    if not set_aside(
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

    def probe(self, Py_ssize_t place, capsule):
        """How to ask for new labels of a segment: `Segment.probe`. None: by whoever calls `ask`."""
        cdef const Probe** moved
        cdef Py_ssize_t count = place + 1
        if count > self.known.count:
            moved = <const Probe**> realloc(self.known.at, count * sizeof(Probe*))
            if moved == NULL:
                raise MemoryError
            memset(moved + self.known.count, 0, (count - self.known.count) * sizeof(Probe*))
            self.known.at = moved
            self.known.count = count
            self.probes += [None] * (count - len(self.probes))
        self.known.at[place] = NULL
        if capsule is not None:
            self.known.at[place] = <const Probe*> PyCapsule_GetPointer(capsule, "index.probe")
        self.probes[place] = capsule

    def knows(self, Py_ssize_t place):
        """Whether it can ask for new labels of a segment."""
        return place < self.known.count and self.known.at[place] != NULL

    def fetch(self, Py_ssize_t place, Py_ssize_t first, rows, ranks, lasts):
        """`settle` with what a segment that it knows has for some new labels.

        Whether that was possible: blocks that are not ready yet are for somebody else to get.
        """
        cdef Column columns[3]
        cdef Scans scans
        cdef Memory memory
        cdef Py_ssize_t at
        cdef const int64_t* places = NULL
        cdef int status, each
        cdef const Probe* probe
        kept = self.probes
        if not self.knows(place):
            return False
        probe = self.known.at[place]
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
                    &self.join, &self.asked, probe, first, places,
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

    cdef int within(self, Py_ssize_t first, int64_t count) except -1:
        if first < 0 or count < 0 or first + count > self.asked.size:
            raise ValueError("labels that were not asked for")
        return 0

    def answer(self, inputs):
        """The rest of what was asked: (the pairs that are ready, rows aside or None)."""
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
            return matches_of(&sink), rows_aside(&self.asked)
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

    def right_all(self, uint32_t segment, ranks, left, start, end, level):
        """All candidates of several labels.

        `left` says, in ascending order, to which of the ranks, by its place, each belongs.
        """
        cdef Column columns[5]
        cdef int status, each
        for each in range(5):
            columns[each].held = False
        try:
            ranks = take_column(ranks, INT64, 8, &columns[0])
            left = take_column(left, INT64, 8, &columns[1])
            start = take_column(start, INT64, 8, &columns[2])
            end = take_column(end, INT64, 8, &columns[3])
            level = take_column(level, INT16, 2, &columns[4])
            for each in range(2, 5):
                if columns[each].rows != columns[1].rows:
                    raise ValueError("the columns of candidates are not of one length")
            with nogil:
                status = self.deliver(
                    segment, <const int64_t*> columns[0].data, columns[0].rows,
                    <const int64_t*> columns[1].data, <const int64_t*> columns[2].data,
                    <const int64_t*> columns[3].data, <const int16_t*> columns[4].data,
                    columns[1].rows,
                )
            if status:
                raise self.fail(status)
        finally:
            for each in range(5):
                leave_column(&columns[each])

    cdef int deliver(
        self, uint32_t segment, const int64_t* ranks, Py_ssize_t labels, const int64_t* left,
        const int64_t* start, const int64_t* end, const int16_t* level, Py_ssize_t count,
    ) noexcept nogil:
        cdef Py_ssize_t each, low = 0, high = 0
        cdef Vector vector
        cdef int status = FINE
        for each in range(labels):
            low = high
            while high < count and left[high] == each:
                high += 1
            status = make_vector(
                self.join.axis, start + low, end + low, level + low, high - low, &vector
            )
            if status == FINE:
                status = take_candidates(
                    &self.join, (<uint64_t> segment << 32) | <uint32_t> ranks[each], &vector, True
                )
            free_vector(&vector)
            if status:
                break
        return status

    # --- all of it --------------------------------------------------------------------------

    def renumber(self, places):
        """Segment i is now places[i], or is no more if that is -1; nothing may be under way."""
        cdef Column column
        cdef int status
        self.forget()
        self.known.count = 0
        self.probes = []
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
        """The counts, in the order of `cmatch.cclean`."""
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
            tally.inputs, tally.aside, tally.unique, tally.candidates, tally.false_hits, tally.pairs,
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
    def together(self):
        """Batches of so many inputs, or fewer, go aside as a whole, if any of their inputs does.

        Those because of whom they go count for all, between them.
        """
        return self.join.together

    @together.setter
    def together(self, Py_ssize_t inputs):
        self.join.together = inputs

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
        self.known.count = 0
        self.probes = []


cdef const char* FEEDER = "cmatch.feeder"


cdef void drop_feeder(object capsule) noexcept:
    cdef Feeder* feeder = <Feeder*> PyCapsule_GetPointer(capsule, FEEDER)
    Py_DECREF(<object> feeder.cleaner)
    free(feeder)


cdef int feed_batch(Cleaner cleaner, const Batch* batch, const Sink** pairs) except -1:
    return cleaner.feed(batch, pairs)
