# The join as Python sees it.

cdef class Cleaner:
    """CClean, natively; see `cmatch.cclean`. Safe to share between threads."""

    cdef Join join
    cdef Sink spare              # memory for the pairs of the next batch; the GIL guards it
    cdef bytes place
    cdef readonly str scheme

    def __cinit__(self, *arguments, **options):
        memset(&self.join, 0, sizeof(Join))
        memset(&self.spare, 0, sizeof(Sink))
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
        join.place = self.place
        join.axis = axis
        join.budget = budget
        join.rows = partition
        join.tracing = tracing
        join.jitter = jitter
        join.scratch = <Entry*> malloc((partition + 1) * sizeof(Entry))
        join.page = <char*> malloc(PAGE_BYTES)
        if join.scratch == NULL or join.page == NULL or rehash(join, 64):
            free(join.scratch)
            free(join.page)
            raise MemoryError
        join.shut = False

    def __dealloc__(self):
        shut_down(&self.join)
        drop_sink(&self.spare)
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
        cdef Column columns[6]
        cdef Batch batch
        cdef Fresh fresh
        cdef Sink sink = self.spare
        cdef int status, each
        memset(&self.spare, 0, sizeof(Sink))
        memset(&fresh, 0, sizeof(Fresh))
        for each in range(6):
            columns[each].held = False
        try:
            rank = inputs.rank
            if rank is None:
                raise MissingLabels(self.scheme)
            rank = take_column(rank, INT64, 8, &columns[0])
            id = take_column(inputs.id, INT64, 8, &columns[1])
            start = take_column(inputs.start, INT64, 8, &columns[2])
            end = take_column(inputs.end, INT64, 8, &columns[3])
            level = take_column(inputs.level, INT16, 2, &columns[4])
            segment = take_column(inputs.segment, INT32, 4, &columns[5])
            batch.count = columns[0].rows
            for each in range(1, 6):
                if columns[each].rows != batch.count:
                    raise ValueError("the columns of inputs are not of one length")
            batch.rank = <const int64_t*> columns[0].data
            batch.id = <const int64_t*> columns[1].data
            batch.start = <const int64_t*> columns[2].data
            batch.end = <const int64_t*> columns[3].data
            batch.level = <const int16_t*> columns[4].data
            batch.segment = <const int32_t*> columns[5].data
            with nogil:
                status = take_inputs(&self.join, &batch, &fresh, &sink)
            if status:
                raise self.fail(status)
            matches = matches_of(&sink)
            if fresh.size == 0:
                return matches, None
            return matches, copied(fresh.rows, fresh.size, INT64, 8)
        finally:
            for each in range(6):
                leave_column(&columns[each])
            free(fresh.rows)
            self.keep(&sink)

    cdef void keep(self, Sink* sink) noexcept:
        if self.spare.id == NULL and sink.id != NULL and sink.room * 8 <= SMALL:
            self.spare = sink[0]
            self.spare.size = 0
        else:
            drop_sink(sink)

    def take(self):
        """The pairs that have become ready."""
        cdef Sink sink = self.spare
        cdef Batch batch
        cdef int status
        memset(&self.spare, 0, sizeof(Sink))
        memset(&batch, 0, sizeof(Batch))
        try:
            with nogil:
                status = take_inputs(&self.join, &batch, NULL, &sink)
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
            tally.inputs, tally.unique, tally.candidates, tally.false_hits, tally.pairs,
            tally.spills, tally.spilled_bytes, tally.overflow_reads, held, peak, table,
            tally.insert_time / 1e9, tally.query_time / 1e9,
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
    def closed(self):
        """Whether it was closed, or is dead after an error."""
        return self.join.shut

    def close(self):
        """Free everything."""
        with nogil:
            pthread_mutex_lock(&self.join.mutex)
            shut_down(&self.join)
            pthread_mutex_unlock(&self.join.mutex)
