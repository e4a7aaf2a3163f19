# Batches of one document. Part of _kernel.pyx, which includes it.

@cython.final
cdef class Batcher:
    """Reads one document of any length in batches of rows.

    Feed it bytes; `cut` gives the next batch once there are enough rows. A batch ends where an
    element begins, as far up the document as it can: what has begun and not ended by then goes
    into the next batch whole, unless that were more than half a batch. The elements that are
    still open then begin the next batch again, with their attributes; the right end of their
    label is OPEN in every batch, also where they end. Text is never cut.
    """

    cdef Walker walker
    cdef Sax* sax
    cdef int32_t most
    cdef bint _continued
    cdef int32_t _carried   # rows that began in a batch before

    def __cinit__(self, Walker walker not None, int32_t most):
        if not 2 <= most <= 1 << 24:
            raise ValueError(f"a batch has between 2 and {1 << 24:,} nodes, not {most:,}")
        self.walker = walker
        self.most = most
        self.sax = new_sax(True)
        if self.sax == NULL:
            raise MemoryError
        use_options(self.sax.context, parser_options(walker.huge))
        if not begin_events(self.sax, 0, load_int(walker.vocabulary._count), not walker.grow):
            raise MemoryError
        self._begin(self.most + 64, 1 << 16)

    def __dealloc__(self):
        free_sax(self.sax)

    cdef int _begin(self, int32_t capacity, int32_t room) except -1:
        cdef Walk* walk = &self.sax.walk
        if not begin_walk(walk, capacity, room):
            raise MemoryError
        walk.values = self.walker.values
        walk.blanks = self.walker.blanks
        walk.grow = self.walker.grow
        walk.bounds = self.walker.bounds
        walk.names = &self.sax.names
        walk.bounds.nodes = 0x7ffffff0
        return 0

    def feed(self, bytes chunk not None, bint last=False):
        """More bytes; raises WalkStopped or ParseFailed, with where it was."""
        cdef Sax* sax = self.sax
        cdef const char* text = PyBytes_AS_STRING(chunk)
        cdef Py_ssize_t size = len(chunk)
        if size > 1 << 30:
            raise ValueError("a chunk has at most a gigabyte")
        with nogil:
            parse_chunk(sax.context, text, <int>size, last)
        if sax.status == OUT_OF_MEMORY:
            raise MemoryError
        if sax.status != FINE:
            stopped = WalkStopped(REASONS[sax.status], sax.walk.elements)
            stopped.position = (max(1, line_of_parser(sax.context)), max(1, column_of_parser(sax.context)))
            raise stopped
        if is_malformed(sax) or sax.context.errNo != 0:
            raise failure(&sax.complaint)

    def cut(self, bint last=False):
        """The next batch, or None if there are too few rows; with `last`, all that is left."""
        cdef Sax* sax = self.sax
        cdef Walk* walk = &sax.walk
        # Text in progress may go on, or turn out to be blank and go: it is left for the next batch.
        cdef int32_t count = sax.joined if sax.joined >= 0 else walk.rows
        cdef int32_t i, end, at
        cdef list stack
        if count == self._carried or (count - self._carried < self.most and not last):
            return None
        stack = []
        at = sax.parent
        while at >= 0:
            stack.append(at)
            at = walk.parents[at]
        stack.reverse()
        end = count
        for i in range(1, <int32_t>len(stack)):
            if count - <int32_t>stack[i] <= self.most // 2:
                end = stack[i]
                del stack[i:]
                break
        return self._split(end, stack)

    cdef object _split(self, int32_t end, list kept):
        cdef Sax* sax = self.sax
        cdef Walk old = sax.walk
        cdef Walk* walk = &sax.walk
        cdef MetNames met = sax.names
        cdef Raw raw
        cdef Columns table = self.walker.cls.__new__(self.walker.cls)
        cdef int32_t* tags = <int32_t*>malloc(<size_t>(old.rows + 1) * sizeof(int32_t))
        cdef int32_t row, at, shift
        cdef Status status
        cdef dict moved = {-1: -1}
        if tags == NULL:
            raise MemoryError
        old.offsets[old.rows] = old.length
        memcpy(tags, old.tags, <size_t>old.rows * sizeof(int32_t))
        sax.names.known = load_int(self.walker.vocabulary._count)
        table.known = 0 if self.walker.grow else sax.names.known
        try:
            status = name_rows(walk, &sax.names, self.walker.vocabulary)
            if status == OUT_OF_MEMORY:
                raise MemoryError
            if status != FINE:
                raise WalkStopped(REASONS[status], walk.elements)
            if not self.walker.grow:
                table._real = names_of_pending(self.walker.vocabulary, &sax.names, tags, end)
            # Pending names of rows that go on to the next batch are pending there again.
            met.pending = sax.names.pending
            sax.names.pending = NULL
            sax.names.pending_count = 0
            sax.names.pending_room = 0
            for row in range(self._carried):
                if old.kinds[row] == kELEMENT:
                    old.ends[row] = OPEN
            for row in kept:
                old.ends[row] = OPEN
            # The new walk first: packing the old one must not take what it is copied from.
            walk.block = NULL
            walk.text = NULL
            self._begin(max(self.most, old.rows - end) + 4096,
                        old.length - old.offsets[end] + (1 << 16))
            for row in kept:
                moved[row] = walk.rows
                self._carry(&old, row, moved[old.parents[row]], tags[row], met.pending)
                at = row + 1
                while at < end and old.kinds[at] == kATTRIBUTE:
                    self._carry(&old, at, moved[row], tags[at], met.pending)
                    at += 1
            self._carried = walk.rows
            shift = walk.rows - end
            for at in range(end, old.rows):
                row = old.parents[at]
                self._carry(&old, at, row + shift if row >= end else <int32_t>moved[row], tags[at],
                            met.pending)
            if sax.parent >= 0:
                sax.parent = sax.parent + shift if sax.parent >= end else moved[sax.parent]
            if sax.joined >= 0:
                sax.joined += shift
            walk.elements = old.elements
            old.rows = end
            old.length = old.offsets[end]
            expose(&old, &raw, table.known)
            pack(&raw, table)
        finally:
            free(tags)
            if sax.names.pending != met.pending:
                free(met.pending)
            if walk.block != old.block:
                forget(&old)
        table.vocabulary = self.walker.vocabulary
        table._blanks = self.walker.blanks
        table.continued = self._continued
        self._continued = True
        return table

    cdef int _carry(self, Walk* old, int32_t at, int32_t parent, int32_t tag,
                    Pending* pending) except -1:
        # A row goes on to the next batch.
        cdef Walk* walk = &self.sax.walk
        cdef int32_t row
        if walk.rows == walk.capacity and more_rows(walk) != FINE:
            raise MemoryError
        row = walk.rows
        walk.rows += 1
        walk.kinds[row] = old.kinds[at]
        walk.tags[row] = old.tags[at]
        if tag < 0 and self.walker.vocabulary.is_weak(old.tags[at]):
            # The name may be known by then: it is looked up again.
            walk.tags[row] = event_tag(self.sax, pending[-1 - tag].name, pending[-1 - tag].uri)
            if self.sax.status == OUT_OF_MEMORY:
                raise MemoryError
        walk.parents[row] = parent
        walk.levels[row] = old.levels[at]
        walk.starts[row] = old.starts[at]
        walk.ends[row] = old.ends[at]
        walk.offsets[row] = walk.length
        # Without values, too, text in progress may have to be looked at.
        if append_bytes(walk, <unsigned char*>old.text + old.offsets[at],
                        old.offsets[at + 1] - old.offsets[at]) != FINE:
            raise MemoryError
        return 0
