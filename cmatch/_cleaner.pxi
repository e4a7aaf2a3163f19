# The join as Python sees it.

cdef object contiguous = np.ascontiguousarray


cdef object taken_column(object array, object dtype, Py_ssize_t width, Py_buffer* view):
    """The memory of a column; answers with the array that keeps it."""
    try:
        PyObject_GetBuffer(array, view, PyBUF_SIMPLE)
    except (BufferError, TypeError, ValueError):
        array = contiguous(array, dtype)
        PyObject_GetBuffer(array, view, PyBUF_SIMPLE)
    if view.itemsize != width:
        PyBuffer_Release(view)
        array = contiguous(array, dtype)
        PyObject_GetBuffer(array, view, PyBUF_SIMPLE)
    return array


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
        cdef Py_buffer views[6]
        cdef int taken = 0, status
        cdef Batch batch
        cdef Fresh fresh
        cdef Sink sink = self.spare
        cdef Py_ssize_t count
        memset(&self.spare, 0, sizeof(Sink))
        memset(&fresh, 0, sizeof(Fresh))
        try:
            rank = inputs.rank
            if rank is None:
                raise MissingLabels(self.scheme)
            rank = taken_column(rank, INT64, 8, &views[0])
            taken = 1
            id = taken_column(inputs.id, INT64, 8, &views[1])
            taken = 2
            start = taken_column(inputs.start, INT64, 8, &views[2])
            taken = 3
            end = taken_column(inputs.end, INT64, 8, &views[3])
            taken = 4
            level = taken_column(inputs.level, INT16, 2, &views[4])
            taken = 5
            segment = taken_column(inputs.segment, INT32, 4, &views[5])
            taken = 6
            count = views[0].len >> 3
            if (
                views[1].len != 8 * count or views[2].len != 8 * count
                or views[3].len != 8 * count or views[4].len != 2 * count
                or views[5].len != 4 * count
            ):
                raise ValueError("the columns of inputs are not of one length")
            batch.rank = <const int64_t*> views[0].buf
            batch.id = <const int64_t*> views[1].buf
            batch.start = <const int64_t*> views[2].buf
            batch.end = <const int64_t*> views[3].buf
            batch.level = <const int16_t*> views[4].buf
            batch.segment = <const int32_t*> views[5].buf
            batch.count = count
            with nogil:
                status = take_inputs(&self.join, &batch, &fresh, &sink)
            if status:
                raise self.fail(status)
            matches = matches_of(&sink)
            if fresh.size == 0:
                return matches, None
            rows = empty_array(fresh.size, INT64)
            copy_rows(rows, &fresh)
            return matches, rows
        finally:
            while taken:
                taken -= 1
                PyBuffer_Release(&views[taken])
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
        cdef Py_buffer views[3]
        cdef Vector vector
        cdef uint64_t key = (<uint64_t> segment << 32) | <uint32_t> rank
        cdef Py_ssize_t count
        cdef int taken = 0, status
        memset(&vector, 0, sizeof(Vector))
        try:
            start = taken_column(start, INT64, 8, &views[0])
            taken = 1
            end = taken_column(end, INT64, 8, &views[1])
            taken = 2
            level = taken_column(level, INT16, 2, &views[2])
            taken = 3
            count = views[0].len >> 3
            if views[1].len != 8 * count or views[2].len != 2 * count:
                raise ValueError("the columns of candidates are not of one length")
            with nogil:
                status = make_vector(
                    self.join.axis, <const int64_t*> views[0].buf, <const int64_t*> views[1].buf,
                    <const int16_t*> views[2].buf, count, &vector,
                )
                if status == FINE:
                    status = take_candidates(&self.join, key, &vector, last)
            if status:
                raise self.fail(status)
        finally:
            free_vector(&vector)
            while taken:
                taken -= 1
                PyBuffer_Release(&views[taken])

    def right_all(self, uint32_t segment, ranks, left, start, end, level):
        """All candidates of several labels: `left` says, in order, to which of the ranks each belongs."""
        cdef Py_buffer views[5]
        cdef Py_ssize_t count, labels
        cdef int taken = 0, status
        try:
            ranks = taken_column(ranks, INT64, 8, &views[0])
            taken = 1
            left = taken_column(left, INT64, 8, &views[1])
            taken = 2
            start = taken_column(start, INT64, 8, &views[2])
            taken = 3
            end = taken_column(end, INT64, 8, &views[3])
            taken = 4
            level = taken_column(level, INT16, 2, &views[4])
            taken = 5
            labels = views[0].len >> 3
            count = views[1].len >> 3
            if (
                views[2].len != 8 * count or views[3].len != 8 * count
                or views[4].len != 2 * count
            ):
                raise ValueError("the columns of candidates are not of one length")
            with nogil:
                status = self.deliver(
                    segment, <const int64_t*> views[0].buf, labels,
                    <const int64_t*> views[1].buf, <const int64_t*> views[2].buf,
                    <const int64_t*> views[3].buf, <const int16_t*> views[4].buf, count,
                )
            if status:
                raise self.fail(status)
        finally:
            while taken:
                taken -= 1
                PyBuffer_Release(&views[taken])

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
        cdef Py_buffer view
        cdef int status
        places = taken_column(places, INT32, 4, &view)
        try:
            with nogil:
                pthread_mutex_lock(&self.join.mutex)
                status = SHUT if self.join.shut else renumber(
                    &self.join, <const int32_t*> view.buf, view.len >> 2
                )
                if status:
                    shut_down(&self.join)
                pthread_mutex_unlock(&self.join.mutex)
            if status:
                raise self.fail(status)
        finally:
            PyBuffer_Release(&view)

    def tallies(self):
        """The counts, in the order of `cmatch.cclean`."""
        cdef Tally tally
        cdef int64_t held, peak, table
        with nogil:
            pthread_mutex_lock(&self.join.mutex)
            tally = self.join.tally
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


cdef void copy_rows(object array, Fresh* fresh):
    cdef Py_buffer view
    PyObject_GetBuffer(array, &view, PyBUF_SIMPLE)
    memcpy(view.buf, fresh.rows, fresh.size * sizeof(int64_t))
    PyBuffer_Release(&view)
