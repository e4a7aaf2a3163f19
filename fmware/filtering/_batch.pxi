# A batch of messages, read and filtered in one stretch without the GIL. Part of _kernel.pyx, which
# includes it.

cdef struct Packed:
    # The columns of one message, until a table takes them.
    char* block
    size_t size
    int32_t rows
    int32_t known


cdef enum:
    COLUMNS = 6     # of Found


@cython.final
cdef class FilterBatch:
    """The statements that match each message of a batch, and the rows of tuples, as columns.

    Items of messages follow each other in the columns. Line `place` of `ends` says where those of
    a message end in `ids`, `told`, `crossed`, `rows`, `undecided` and `truncated`; they begin where
    those of the message before end. A column becomes an array when it is asked for.

    - `ids`: statements that asked for their name.
    - `told`: of each tuple of the others the statement, where its rows begin in `rows`, and how
      many they are. `crossed`: of statements with crossings the statement, where the rows begin,
      how many tuples there are, and how many rows one has.
    - `undecided`, `truncated`: statements, as in `FilterResult`.
    - `errors`: by place, why a message could not be read or filtered.
    - `version`: of the statements that answered, -1 if no message was given to them; `mixed` if
      they changed within the batch.

    Messages are added in their order: by `run`, or by `add` those that it does not take. For use
    by one thread until the batch is `whole`; then nothing changes any more.
    """

    cdef Found found
    cdef Wide ends               # of each message, where its items end in the columns of `found`
    cdef Packed* packed          # by message
    cdef readonly list bodies
    cdef readonly dict errors
    cdef object reader           # for the table of a message that was not kept
    cdef dict tables             # by place, those that were asked for
    cdef dict arrays             # by name, the columns that were asked for
    cdef Py_ssize_t size
    cdef Walker walker
    cdef readonly Outcome outcome  # of the message before which `run` ended
    cdef readonly int64_t version  # of the automaton when it answered the last message; -1: none
    cdef readonly bint mixed       # it was not the same for all messages
    cdef readonly bint interrupted # `run` ended because changes of statements are queued

    def __cinit__(self, list bodies not None, reader):
        self.bodies = bodies
        self.errors = {}
        self.reader = reader
        self.tables = {}
        self.arrays = {}
        self.size = len(bodies)
        self.version = -1
        self.packed = <Packed*>calloc(self.size + 1, sizeof(Packed))
        if self.packed == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef Py_ssize_t i
        free(self.found.ids.items)
        free(self.found.told.items)
        free(self.found.crossed.items)
        free(self.found.rows.items)
        free(self.found.undecided.items)
        free(self.found.truncated.items)
        free(self.ends.items)
        if self.packed != NULL:
            for i in range(self.size):
                free(self.packed[i].block)
            free(self.packed)

    def __len__(self):
        return self.size

    @property
    def done(self):
        """How many messages are in."""
        return self.ends.count // COLUMNS

    @property
    def whole(self):
        """Whether all messages are in."""
        return self.ends.count == self.size * COLUMNS

    def run(self, Runner runner not None, Walker walker not None, ThreadParser parser not None,
            Py_ssize_t most):
        """Read and filter the messages that are not in yet, without the GIL.

        It ends before a message that is not bytes, that is longer than `most`, that must be read in
        another way, or on which the filter fails: `outcome` tells. It also ends, `interrupted`, before
        a message that queued changes go before. REQUIRES: `runner.begin`.
        """
        cdef Py_ssize_t first = self.ends.count // COLUMNS
        cdef Py_ssize_t last = first
        cdef Py_ssize_t i
        cdef const char** texts = <const char**>malloc((self.size - first + 1) * sizeof(char*))
        cdef Py_ssize_t* sizes = <Py_ssize_t*>malloc((self.size - first + 1) * sizeof(Py_ssize_t))
        try:
            if texts == NULL or sizes == NULL:
                raise MemoryError
            while (last < self.size and type(self.bodies[last]) is bytes
                   and len(self.bodies[last]) <= most):
                texts[last - first] = PyBytes_AS_STRING(self.bodies[last])
                sizes[last - first] = len(self.bodies[last])
                last += 1
            self.walker = walker
            self.outcome = DONE
            self.interrupted = False
            runner.found = &self.found
            with nogil:
                for i in range(last - first):
                    self.interrupted = i > 0 and runner.automaton.waiting
                    if self.interrupted:
                        break
                    if not self._take(runner, walker, parser, texts[i], sizes[i]):
                        break
        finally:
            runner.found = NULL
            free(texts)
            free(sizes)

    cdef bint _take(self, Runner runner, Walker walker, ThreadParser parser, const char* text,
                    Py_ssize_t size) noexcept nogil:
        # Read, filter and add the next message; whether that was done.
        cdef int64_t given = self.found.told.count + self.found.crossed.count
        cdef int tries = 0
        cdef Raw raw
        cdef Packed* packed = &self.packed[self.ends.count // COLUMNS]
        runner.body.text = text
        runner.body.size = size
        runner.body.huge = walker.huge
        runner.body.resolve = runner.body.wrapped = False
        while True:
            if not walker.read_raw(parser, text, size, &raw):
                runner.body.text = NULL
                return False
            runner.consume(&raw)
            tries += 1
            # A statement with a new name came between the reading and the run: read it again.
            if runner.outcome != STALE_NAMES or tries == TRIES:
                break
        runner.body.text = NULL
        if runner.outcome == DONE and self.found.told.count + self.found.crossed.count > given:
            packed.block = pack_raw(&raw, &packed.size)
            packed.rows = raw.rows
            packed.known = raw.known
            if packed.block == NULL:
                runner.outcome = NO_MEMORY
        if runner.outcome == DONE and not self._end(runner.version):
            runner.outcome = NO_MEMORY
        if runner.outcome != DONE:
            self.outcome = runner.outcome
            self._drop_partial()
        return runner.outcome == DONE

    cdef bint _end(self, int64_t version) noexcept nogil:
        # The message is in; -1 as a version: no statements were asked. False: no memory.
        if not reserve(&self.ends, COLUMNS):
            return False
        if version >= 0:
            if self.version >= 0 and self.version != version:
                self.mixed = True
            self.version = version
        append(&self.ends, self.found.ids.count)
        append(&self.ends, self.found.told.count // TOLD)
        append(&self.ends, self.found.crossed.count // CROSSED)
        append(&self.ends, self.found.rows.count)
        append(&self.ends, self.found.undecided.count)
        append(&self.ends, self.found.truncated.count)
        return True

    cdef void _drop_partial(self) noexcept nogil:
        # Take back what a message that is not in has left.
        cdef int64_t* ends = self.ends.items + self.ends.count - COLUMNS
        cdef bint any_ = self.ends.count > 0
        self.found.ids.count = ends[0] if any_ else 0
        self.found.told.count = ends[1] * TOLD if any_ else 0
        self.found.crossed.count = ends[2] * CROSSED if any_ else 0
        self.found.rows.count = ends[3] if any_ else 0
        self.found.undecided.count = ends[4] if any_ else 0
        self.found.truncated.count = ends[5] if any_ else 0

    def add(self, Runner runner not None, Columns table):
        """Run a message that was read otherwise, and add it; the outcome.

        None as a table adds a message that could not be read: nothing is found in it.
        """
        if table is not None:
            runner.found = &self.found
            try:
                runner.run(table)
            finally:
                runner.found = NULL
        else:
            runner.outcome = DONE
        if runner.outcome == DONE and not self._end(-1 if table is None else runner.version):
            raise MemoryError
        if runner.outcome != DONE:
            self._drop_partial()
        return runner.outcome

    def answered(self, Py_ssize_t place):
        """Whether a message was read and filtered."""
        return place not in self.errors and self.bodies[place] is not None

    def keep(self, Py_ssize_t place, table):
        """Keep the table of a message that was read otherwise."""
        self.tables[place] = table

    def table(self, Py_ssize_t place):
        """The nodes of a message; None if it could not be read.

        The table of a message without tuples was not kept: it is read again when asked for.
        """
        found = self.tables.get(place)
        if found is None:
            found = self._packed_table(place)
            if found is None and place not in self.errors and isinstance(self.bodies[place], bytes):
                found = self.reader.read(self.bodies[place])
            if found is not None:
                # Another thread may have been faster: a message has one table.
                found = self.tables.setdefault(place, found)
        return found

    cdef object _packed_table(self, Py_ssize_t place):
        # The table of a message that `run` has read and kept, once; None for any other.
        cdef Packed* packed
        cdef char* block
        if not 0 <= place < self.size:
            raise IndexError(place)
        packed = &self.packed[place]
        block = packed.block
        packed.block = NULL  # the table's from here on, whatever another thread asks for
        if block == NULL:
            return None
        return table_of_packed(self.walker, block, packed.size, packed.rows, packed.known,
                               self.bodies[place])

    @property
    def crosses(self):
        """Whether a statement with crossings has let a message pass."""
        return self.found.crossed.count > 0

    def crossed_tables(self):
        """By place, the tables of messages that statements with crossings let pass; else None."""
        cdef Py_ssize_t place
        cdef int64_t before = 0, after
        cdef list found = []
        for place in range(self.ends.count // COLUMNS):
            after = self.ends.items[place * COLUMNS + 2]
            found.append(self.table(place) if after > before else None)
            before = after
        return found

    def passed(self):
        """The statements with crossings that let messages pass, in the order in which they came.

        Of each its number, its tuples (int32, a line each), and of each line the place of its
        message (int64); places ascend.
        """
        cdef Py_ssize_t i, count = self.found.crossed.count // CROSSED
        cdef int64_t* crossed = self.found.crossed.items
        cdef Py_ssize_t place = 0
        cdef dict parts = {}
        cdef list own
        for i in range(count):
            while i >= self.ends.items[place * COLUMNS + 2]:
                place += 1
            number = crossed[i * CROSSED]
            own = parts.get(number)
            if own is None:
                own = parts[number] = []
            own.append((place, i))
        return [(number, *self._lines(own)) for number, own in parts.items()]

    cdef tuple _lines(self, list parts):
        # The tuples of one statement in several messages, and their places.
        cdef int64_t* crossed = self.found.crossed.items
        cdef Py_ssize_t place, i, at
        cdef int64_t total = 0
        cdef int64_t width = 0
        cdef int64_t begin, count
        cdef int32_t* rows
        cdef int64_t* to
        for place, i in parts:
            total += crossed[i * CROSSED + 2]
            width = crossed[i * CROSSED + 3]
        tuples = np.empty((total, width), np.int32)
        places = np.empty(total, np.int64)
        rows = <int32_t*>data_of(tuples)
        to = <int64_t*>data_of(places)
        for place, i in parts:
            begin, count = crossed[i * CROSSED + 1], crossed[i * CROSSED + 2]
            memcpy(rows, self.found.rows.items + begin, <size_t>(count * width) * sizeof(int32_t))
            rows += count * width
            for at in range(count):
                to[at] = place
            to += count
        return tuples, places

    def count(self, passed_counts not None, told_counts not None):
        """Count by statement the messages it let pass, and its tuples and names that are given.

        Both are arrays of int64, with room for the number of every statement.
        """
        cdef int64_t* passed = <int64_t*>data_of(passed_counts)
        cdef int64_t* told = <int64_t*>data_of(told_counts)
        cdef int64_t room = min(len(passed_counts), len(told_counts))
        cdef Py_ssize_t i
        cdef int64_t number
        cdef int64_t last = -1
        cdef int64_t highest = -1
        cdef Py_ssize_t message = 0
        for i in range(self.found.ids.count):
            highest = max(highest, <int64_t>self.found.ids.items[i])
        for i in range(self.found.crossed.count // CROSSED):
            highest = max(highest, self.found.crossed.items[i * CROSSED])
        for i in range(self.found.told.count // TOLD):
            highest = max(highest, self.found.told.items[i * TOLD])
        if highest >= room:
            raise IndexError(f"no room to count statement {highest}")
        for i in range(self.found.ids.count):
            number = self.found.ids.items[i]
            passed[number] += 1
            told[number] += 1
        for i in range(self.found.crossed.count // CROSSED):
            passed[self.found.crossed.items[i * CROSSED]] += 1
        for i in range(self.found.told.count // TOLD):
            number = self.found.told.items[i * TOLD]
            told[number] += 1
            while i >= self.ends.items[message * COLUMNS + 1]:
                message += 1
                last = -1
            # The tuples of a statement in a message follow each other.
            passed[number] += number != last
            last = number

    def ends_of(self, int column):
        """Where the items of each message end in a column, by its place in `column`."""
        cdef Py_ssize_t i
        if not 0 <= column < COLUMNS:
            raise IndexError(column)
        return [self.ends.items[i * COLUMNS + column] for i in range(self.ends.count // COLUMNS)]

    def match_counts(self, list others not None):
        """How many names and tuples each message has, and what `others` say, which are ends, too."""
        cdef Py_ssize_t i
        cdef int64_t before = 0, after
        cdef list counts = []
        if len(others) != self.ends.count // COLUMNS:
            raise ValueError(f"{len(others)} ends for {self.ends.count // COLUMNS} messages")
        for i in range(self.ends.count // COLUMNS):
            after = self.ends.items[i * COLUMNS] + self.ends.items[i * COLUMNS + 1]
            after += <int64_t>others[i]
            counts.append(after - before)
            before = after
        return counts

    def totals(self, list others not None):
        """How many matches there are, and how many messages have some; see `match_counts`."""
        cdef int64_t total = 0, matched = 0, count
        for count in self.match_counts(others):
            total += count
            matched += count > 0
        return total, matched

    def count_of(self, Py_ssize_t place):
        """How many names and tuples a message has."""
        cdef const int64_t* ends = self.ends.items + place * COLUMNS
        if not 0 <= place < self.ends.count // COLUMNS:
            raise IndexError(place)
        if place == 0:
            return ends[0] + ends[1]
        return ends[0] + ends[1] - ends[-COLUMNS] - ends[1 - COLUMNS]

    def span(self, Py_ssize_t place, int column):
        """Where the items of a message begin and end in a column."""
        if not 0 <= column < COLUMNS or not 0 <= place < self.ends.count // COLUMNS:
            raise IndexError((place, column))
        begin = self.ends.items[(place - 1) * COLUMNS + column] if place else 0
        return begin, self.ends.items[place * COLUMNS + column]

    def raw(self, str name not None):
        """The bytes of `crossed` (int64) or `rows` (int32): another kernel needs no array."""
        if name == "crossed":
            return PyBytes_FromStringAndSize(
                <char*>self.found.crossed.items, self.found.crossed.count * sizeof(int64_t))
        if name == "rows":
            return PyBytes_FromStringAndSize(
                <char*>self.found.rows.items, self.found.rows.count * sizeof(int32_t))
        raise AttributeError(name)

    def __getattr__(self, str name):
        # A column becomes an array when it is first asked for: most batches need few of them.
        found = self.arrays.get(name)
        if found is None:
            found = self.arrays[name] = self._column(name)
        return found

    cdef object _column(self, str name):
        # A column by the name that it has in the docstring; `told` and `crossed` have a line each.
        if name == "ends":
            return wide_array(&self.ends).reshape(-1, COLUMNS)
        if name == "ids":
            return narrow_array(&self.found.ids)
        if name == "told":
            return wide_array(&self.found.told).reshape(-1, TOLD)
        if name == "crossed":
            return wide_array(&self.found.crossed).reshape(-1, CROSSED)
        if name == "rows":
            return narrow_array(&self.found.rows)
        if name == "undecided":
            return narrow_array(&self.found.undecided)
        if name == "truncated":
            return narrow_array(&self.found.truncated)
        raise AttributeError(name)


cdef void* data_of(array) except? NULL:
    cdef Py_buffer view
    cdef void* data
    PyObject_GetBuffer(array, &view, PyBUF_SIMPLE)
    data = view.buf
    PyBuffer_Release(&view)
    return data


cdef object narrow_array(Narrow* column):
    raw = PyBytes_FromStringAndSize(<char*>column.items, column.count * sizeof(int32_t))
    return np.frombuffer(raw, np.int32)


cdef object wide_array(Wide* column):
    raw = PyBytes_FromStringAndSize(<char*>column.items, column.count * sizeof(int64_t))
    return np.frombuffer(raw, np.int64)


def expand_rows(const int64_t[::1] begins, const int64_t[::1] widths, const int32_t[::1] rows):
    """The rows of tuples one after the other, and where those of each begin and end (int32)."""
    cdef Py_ssize_t i, count = begins.shape[0]
    cdef int64_t total = 0
    for i in range(count):
        total += widths[i]
    if total > 0x7fffffff:
        raise OverflowError("more rows than an Arrow list can hold; publish smaller batches")
    offsets = np.empty(count + 1, np.int32)
    values = np.empty(total, np.int32)
    cdef int32_t[::1] out = offsets
    cdef int32_t[::1] to = values
    cdef int64_t at = 0
    with nogil:
        for i in range(count):
            out[i] = <int32_t>at
            if widths[i]:
                memcpy(&to[at], &rows[begins[i]], widths[i] * sizeof(int32_t))
                at += widths[i]
        out[count] = <int32_t>at
    return offsets, values
