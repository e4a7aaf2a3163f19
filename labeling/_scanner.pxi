# The tag scanner. Part of _kernel.pyx, which includes it.

cdef enum Token:
    MORE = 0        # the markup is not whole yet
    START = 1
    EMPTY = 2
    END = 3
    DECLARATION = 4 # <?xml ...?>
    DOCTYPE = 5
    OTHER = 6       # one of the next three, as soon as it is whole
    COMMENT = 7
    CDATA = 8
    INSTRUCTION = 9
    BROKEN = 10     # no markup: a lone '<'


cdef inline bint is_space(char c) noexcept nogil:
    return c == 32 or c == 10 or c == 13 or c == 9


cdef inline bint is_name_start(char c) noexcept nogil:
    return c == 95 or c == 58 or (c >= 65 and c <= 90) or (c >= 97 and c <= 122) or c < 0


cdef enum:
    FEW_BYTES = 4096  # no declaration is longer

cdef struct Lexer:
    # Markup that may be whole only later. The work goes on where it stopped.
    Token token             # what it is going to be; MORE while that is not known
    Py_ssize_t at           # looked at up to here; behind the markup when it is whole
    bint named              # a tag: the name is over
    uint64_t name           # a tag: the hash of its name
    Py_ssize_t name_end     # a tag: where the name ends, from its '<'
    char quote              # a tag or DOCTYPE: inside such quotes
    char inner              # a DOCTYPE: inside a comment ('-') or an instruction ('?')
    int brackets


cdef bint find_closing(Lexer* lexer, const char* data, Py_ssize_t end, const char* mark,
                       Py_ssize_t size) noexcept nogil:
    # Goes behind the next `mark`, which ends in '>'.
    cdef const char* hit
    while lexer.at < end:
        hit = <const char*>memchr(data + lexer.at, 62, end - lexer.at)
        if hit == NULL:
            lexer.at = end
            return False
        lexer.at = hit - data + 1
        if memcmp(data + lexer.at - size, mark, size) == 0:
            return True
    return False


cdef bint find_tag_end(Lexer* lexer, const char* data, Py_ssize_t end) noexcept nogil:
    # Goes behind a tag's '>'; a '<' ends a malformed tag before itself.
    cdef Py_ssize_t at = lexer.at
    cdef char quote = lexer.quote
    cdef char c
    while at < end:
        c = data[at]
        if c == 60:
            break
        at += 1
        if quote:
            if c == quote:
                quote = 0
        elif c == 34 or c == 39:
            quote = c
        elif c == 62:
            lexer.at = at
            return True
    lexer.at = at
    lexer.quote = quote
    return at < end


cdef bint find_doctype_end(Lexer* lexer, const char* data, Py_ssize_t end) noexcept nogil:
    cdef char c
    while lexer.at < end:
        if lexer.inner == 45:
            if not find_closing(lexer, data, end, b"-->", 3):
                return False
            lexer.inner = 0
            continue
        if lexer.inner == 63:
            if not find_closing(lexer, data, end, b"?>", 2):
                return False
            lexer.inner = 0
            continue
        c = data[lexer.at]
        if lexer.quote:
            if c == lexer.quote:
                lexer.quote = 0
        elif c == 60:
            if end - lexer.at < 7:
                # Too few bytes to say what it is, and if the document ends here, it is bad.
                return False
            if memcmp(data + lexer.at, b"<!--", 4) == 0:
                lexer.inner = 45
                lexer.at += 6
                continue
            if data[lexer.at + 1] == 63:
                if memcmp(data + lexer.at, b"<?xml", 5) == 0 and is_space(data[lexer.at + 5]):
                    # No DOCTYPE holds a declaration: it was cut short before this one.
                    lexer.token = BROKEN
                    return True
                lexer.inner = 63
                lexer.at += 3
                continue
        elif c == 34 or c == 39:
            lexer.quote = c
        elif c == 91:
            lexer.brackets += 1
        elif c == 93:
            lexer.brackets -= 1
        elif c == 62 and lexer.brackets <= 0:
            lexer.at += 1
            return True
        lexer.at += 1
    return False


cdef Token known_by_now(const char* data, Py_ssize_t left) noexcept nogil:
    # What the markup at data[0] == '<' is going to be, as soon as that is clear.
    if left < 2:
        return MORE
    if data[1] == 33:  # '!'
        if memcmp(data, b"<!--", min(left, 4)) == 0:
            return COMMENT if left >= 7 else MORE
        if memcmp(data, b"<![CDATA[", min(left, 9)) == 0:
            return CDATA if left >= 12 else MORE
        if memcmp(data, b"<!DOCTYPE", min(left, 9)) == 0:
            return DOCTYPE if left >= 9 else MORE
        return BROKEN
    if data[1] == 63:  # '?'
        if memcmp(data, b"<?xml", min(left, 5)) != 0:
            return INSTRUCTION
        if left < 6:
            return MORE
        return DECLARATION if is_space(data[5]) else INSTRUCTION
    if data[1] == 47:  # '/'
        if left < 3:
            return MORE
        return END if is_name_start(data[2]) else BROKEN
    return START if is_name_start(data[1]) else BROKEN


cdef void begin_token(Lexer* lexer, const char* data, Py_ssize_t at) noexcept nogil:
    lexer.named = False
    lexer.quote = 0
    lexer.inner = 0
    lexer.brackets = 0
    # The least offset at which it may end.
    if lexer.token == COMMENT:
        lexer.at = at + 6
    elif lexer.token == CDATA:
        lexer.at = at + 11
    elif lexer.token == DOCTYPE:
        lexer.at = at + 9
    elif lexer.token == BROKEN:
        lexer.at = at + 1
    elif lexer.token == INSTRUCTION or lexer.token == DECLARATION:
        lexer.at = at + 3
    else:
        lexer.at = at + 2


cdef Token next_token(Lexer* lexer, const char* data, Py_ssize_t at,
                      Py_ssize_t end) noexcept nogil:
    # The markup at data[at] == '<': MORE until it is whole, then lexer.at lies behind it.
    # Whoever takes the token sets lexer.token to MORE for the next one.
    cdef Py_ssize_t i
    cdef bint whole
    if lexer.token == MORE:
        lexer.token = known_by_now(data + at, end - at)
        if lexer.token == MORE:
            lexer.at = at
            return MORE
        begin_token(lexer, data, at)
    if lexer.token == BROKEN:
        return BROKEN
    if lexer.token == DOCTYPE:
        return lexer.token if find_doctype_end(lexer, data, end) else MORE
    if lexer.token == COMMENT:
        return OTHER if find_closing(lexer, data, end, b"-->", 3) else MORE
    if lexer.token == CDATA:
        return OTHER if find_closing(lexer, data, end, b"]]>", 3) else MORE
    if lexer.token == INSTRUCTION or lexer.token == DECLARATION:
        whole = find_closing(lexer, data, end, b"?>", 2)
        if lexer.at - at > FEW_BYTES:
            lexer.token = INSTRUCTION
        if not whole:
            return MORE
        return DECLARATION if lexer.token == DECLARATION else OTHER
    if not lexer.named:
        i = lexer.at
        while i < end and not is_space(data[i]) and data[i] != 47 and data[i] != 62 and data[i] != 60:
            i += 1
        lexer.at = i
        if i == end:
            return MORE
        lexer.named = True
        lexer.name_end = i - at
        i = at + 2 if lexer.token == END else at + 1
        lexer.name = mix(SEED, data + i, <uint32_t>(lexer.at - i))
    if not find_tag_end(lexer, data, end):
        return MORE
    if lexer.token == START and data[lexer.at - 1] == 62 and data[lexer.at - 2] == 47:
        return EMPTY
    return lexer.token


cdef Py_ssize_t doctype_at(const char* text, Py_ssize_t size, Py_ssize_t* end) noexcept nogil:
    # Where the DOCTYPE begins, or -1; *end is -1 if it never ends.
    cdef Py_ssize_t at = 0
    cdef const char* hit
    cdef Token token
    cdef Lexer lexer
    while at < size:
        hit = <const char*>memchr(text + at, 60, size - at)
        if hit == NULL:
            return -1
        at = hit - text
        lexer.token = known_by_now(text + at, size - at)
        if lexer.token == START:
            return -1
        lexer.token = MORE
        token = next_token(&lexer, text, at, size)
        if lexer.token == DOCTYPE:
            if end != NULL:
                end[0] = lexer.at if token == DOCTYPE else -1
            return at
        if token != OTHER and token != DECLARATION:
            return -1
        at = lexer.at
    return -1


def doctype_span(bytes document not None):
    """Where the DOCTYPE of a document lies, as (begin, end), or None; end -1 if it never ends."""
    cdef Py_ssize_t end = -1
    cdef Py_ssize_t begin = doctype_at(PyBytes_AS_STRING(document), len(document), &end)
    return None if begin < 0 else (begin, end)


def start_tag_at(bytes document not None, Py_ssize_t ordinal):
    """The offset of the start tag with this ordinal, from 1, or -1."""
    cdef const char* text = PyBytes_AS_STRING(document)
    cdef Py_ssize_t size = len(document)
    cdef Py_ssize_t at = 0
    cdef const char* hit
    cdef Token token
    cdef Lexer lexer
    while at < size:
        hit = <const char*>memchr(text + at, 60, size - at)
        if hit == NULL:
            return -1
        at = hit - text
        lexer.token = MORE
        token = next_token(&lexer, text, at, size)
        if token == MORE:
            return -1
        if token == START or token == EMPTY:
            ordinal -= 1
            if ordinal <= 0:
                return at
        at = lexer.at
    return -1


cdef const char* tag_end(const char* at, const char* end) noexcept nogil:
    # The '>' of a start tag, from behind its name; NULL if it is malformed or not whole.
    cdef const char* close
    while at < end:
        if at[0] == 62:
            return at
        if at[0] == 60:
            return NULL
        if at[0] == 34 or at[0] == 39:
            close = <const char*>memchr(at + 1, at[0], end - at - 1)
            if close == NULL or memchr(at + 1, 60, close - at - 1) != NULL:
                return NULL
            at = close
        at += 1
    return NULL


cdef inline int64_t count_byte(const char* text, Py_ssize_t size, char byte) noexcept nogil:
    cdef int64_t count = 0
    cdef Py_ssize_t i
    for i in range(size):
        count += text[i] == byte
    return count


cdef inline uint64_t hash_tag(const char* name, Py_ssize_t size) noexcept nogil:
    return mix(SEED, name, <uint32_t>size)


cdef enum:
    DEEPEST = 4096      # no parser goes deeper, so no name below that needs to be known
    MANY_OPEN = 1000    # more unclosed roots in a piece than that are nesting, not lost ends
    MANY_CLOSED = 1 << 20
    HEAD = 4096         # what is kept of a piece over the limit
    MARGIN = 8          # longer than any mark that ends markup

cdef struct Open:
    uint64_t name
    Py_ssize_t at       # from the beginning of the piece; -1 if it is no boundary

cdef struct Span:
    Py_ssize_t begin
    Py_ssize_t end

cdef struct Outer:
    # An open element around records.
    uint64_t name
    Py_ssize_t end      # of its name, behind those of the elements around it


cdef bint holds_xmlns(const char* tag, Py_ssize_t size) noexcept nogil:
    cdef const char* end = tag + size - 5
    cdef const char* at = tag
    while at <= end:
        at = <const char*>memchr(at, 120, end - at + 1)
        if at == NULL:
            return False
        if memcmp(at, b"xmlns", 5) == 0:
            return True
        at += 1
    return False


@cython.final
cdef class Scanner:
    """Cuts a stream of bytes into documents, or into records, by their tags alone.

    Feed it bytes; `cut` gives the next piece as (bytes, offset, line, column, level, over), or
    None when it needs more. A piece ends where its root element ends. If the tags of a piece do
    not pair, it ends before the next XML declaration or DOCTYPE, or before the next boundary: a
    start tag of its own name or of a record. Boundaries inside a piece that turns out bad are
    cut out of it, so that one bad document never takes the next one with it.

    `over` says that the piece is over the limit of bytes: only its head is given, and the rest
    is passed over without being kept. The work is linear in the bytes, whatever the chunks. Only
    encodings that hold ASCII bytes as they are can be cut this way.

    Records can be had many at a time: see `gather`. A scan by records can also begin in the
    middle of a file, at a record's '<', given its `offset` and the `context` there: at such a
    place, the two are all of the scanner's state. Offsets are then those of the file; lines and
    columns count from where the scan began.
    """

    cdef char* _data
    cdef Py_ssize_t _size
    cdef Py_ssize_t _room
    cdef Py_ssize_t _at             # scanned up to here, or the markup that is being scanned
    cdef Lexer _lexer
    cdef Py_ssize_t _begin          # where the piece begins; only meaningful inside
    cdef int64_t _origin            # the stream's offset of _data[0]
    cdef int64_t _line
    cdef int64_t _line_origin       # the stream's offset where the current line begins
    cdef Py_ssize_t _counted        # lines are counted up to here
    cdef bint _inside
    cdef bint _broken               # the tags do not pair
    cdef bint _prolog               # the piece has a declaration or a DOCTYPE
    cdef bint _dropping             # the piece is over the limit: its bytes are not kept
    cdef bint _ended
    cdef uint64_t _name             # the root of the piece
    cdef Open* _open                # the open elements of the piece
    cdef Py_ssize_t _depth
    cdef Py_ssize_t _excess         # open elements below DEEPEST: counted only
    cdef Py_ssize_t _boundaries     # how many open elements other than the root are boundaries
    cdef Span* _closed              # the outermost closed boundaries inside the piece, in order
    cdef Py_ssize_t _closed_count
    cdef Py_ssize_t _closed_room
    cdef bint _replaying            # a bad piece is being cut at its boundaries
    cdef Py_ssize_t _replay_base
    cdef Py_ssize_t _replay_at
    cdef Py_ssize_t _replay_open
    cdef Py_ssize_t _replay_depth
    cdef Py_ssize_t _replay_closed
    cdef bint _endless[16]          # such markup, by token, has no end in the rest of the stream
    cdef bint _hopeless             # some markup is endless
    cdef Py_ssize_t _limit
    cdef uint64_t* _records
    cdef Py_ssize_t _by_record      # how many names records have
    cdef uint64_t _some_records     # a bit for each, by the low bits of its hash
    cdef Outer* _outers             # the open elements around records
    cdef Py_ssize_t _outer
    cdef char* _outer_names         # their names, one after the other
    cdef Py_ssize_t _outer_room
    cdef int64_t _piece_line
    cdef int64_t _piece_column
    cdef int64_t _piece_offset
    cdef readonly bytes declaration
    cdef readonly bytes doctype
    cdef readonly list ancestors    # (level, start tag) of the open elements that declare names
    cdef bint _gathering            # whole pieces go into the batch, or nowhere
    cdef bint _seeking              # nowhere
    cdef bint _halted               # the scan is to stop where it is
    cdef Py_ssize_t _wanted         # bytes a batch
    cdef int64_t _stop              # from this offset on, a record is not begun; -1: none
    cdef int64_t _reached           # the offset of the first such record; -1: none yet
    cdef object _waiting            # a piece that cannot be part of a batch
    cdef bint _moved                # what is around records may not be what the batch has
    cdef tuple _around              # what the batch has
    cdef char* _batch
    cdef Py_ssize_t _batch_size
    cdef Py_ssize_t _batch_room
    cdef int64_t* _batch_offsets
    cdef int64_t* _batch_sizes
    cdef int16_t* _batch_levels
    cdef Py_ssize_t _batch_count
    cdef Py_ssize_t _batch_places

    def __cinit__(self, records=(), Py_ssize_t limit=1 << 26, context=None, int64_t offset=0):
        records = tuple(records)
        self._records = <uint64_t*>malloc((len(records) + 1) * sizeof(uint64_t))
        if self._records == NULL:
            raise MemoryError
        for name in records:
            self._records[self._by_record] = hash_tag(<bytes>name, len(name))
            self._some_records |= <uint64_t>1 << (self._records[self._by_record] & 63)
            self._by_record += 1
        self._limit = limit
        self._line = 1
        self._origin = offset
        self._line_origin = offset
        self._stop = -1
        self._reached = -1
        self.ancestors = []
        self._open = <Open*>malloc(DEEPEST * sizeof(Open))
        self._outers = <Outer*>malloc(DEEPEST * sizeof(Outer))
        if self._open == NULL or self._outers == NULL:
            raise MemoryError
        if context is not None:
            declaration, doctype, names, ancestors, endless = context
            self._enter(declaration, doctype, names, ancestors, endless)

    cdef int _enter(self, bytes declaration, bytes doctype, tuple names, tuple ancestors,
                    int endless) except -1:
        cdef int token
        cdef bytes name
        if not self._by_record or len(names) > DEEPEST:
            raise ValueError("a context is one of records, less than 4,096 levels deep")
        self.declaration = declaration or None
        self.doctype = doctype or None
        self.ancestors = list(ancestors)
        for name in names:
            self._push_outer(hash_tag(name, len(name)), name, len(name))
        for token in range(16):
            self._endless[token] = endless >> token & 1
        self._hopeless = endless != 0
        return 0

    def __dealloc__(self):
        free(self._data)
        free(self._open)
        free(self._closed)
        free(self._records)
        free(self._outers)
        free(self._outer_names)
        free(self._batch)
        free(self._batch_offsets)
        free(self._batch_sizes)
        free(self._batch_levels)

    def feed(self, const unsigned char[::1] chunk not None):
        """More of the stream; only when `cut` has given None."""
        cdef Py_ssize_t size = chunk.shape[0]
        cdef Py_ssize_t keep = self._kept()
        cdef void* grown
        self._count_lines(keep)
        if keep > 0:
            memmove(self._data, self._data + keep, self._size - keep)
            self._size -= keep
            self._at = max(0, self._at - keep)
            self._lexer.at -= keep
            self._begin -= keep
            self._counted -= keep
            self._origin += keep
        if self._size + size > self._room:
            grown = realloc(self._data, (self._size + size) * 2)
            if grown == NULL:
                raise MemoryError
            self._data = <char*>grown
            self._room = (self._size + size) * 2
        if size:
            memcpy(self._data + self._size, &chunk[0], size)
            self._size += size

    cdef Py_ssize_t _kept(self) noexcept:
        # The offset of the first byte that is still needed.
        if self._inside and not self._dropping:
            return self._begin
        if self._passed_over():
            return max(self._at, self._lexer.at - MARGIN)
        return self._at

    cdef bint _passed_over(self) noexcept:
        # Whether nobody will ask for the bytes of the markup under way: only its end matters.
        if self._nameless():
            return True
        if not self._dropping:
            return False
        if self._lexer.token == DOCTYPE or self._lexer.token == BROKEN:  # long, it was a DOCTYPE
            return self._depth == 0 and not self._broken
        if not self._lexer.named or self._lexer.name_end > self._limit:
            return False
        return self._lexer.token == END or (
            self._lexer.token == START and not self._is_boundary())

    cdef bint _is_boundary(self) noexcept:
        return self._lexer.name == self._name or self._is_record()

    cdef bint _nameless(self) noexcept:
        return (self._lexer.token == COMMENT or self._lexer.token == CDATA
                or self._lexer.token == INSTRUCTION)

    def finish(self):
        """No more is to come."""
        self._ended = True

    @property
    def ended(self):
        """Whether it was told that no more is to come."""
        return self._ended

    @property
    def position(self):
        """How much of the stream has been scanned."""
        return self._origin + self._at

    @property
    def held(self):
        """How many bytes of the stream are kept."""
        return self._size

    @property
    def reached(self):
        """The offset of the first record at or behind `stop`, once there; else None."""
        return self._reached if self._reached >= 0 else None

    def context(self):
        """What is around the records here, as a tuple.

        The declaration; the DOCTYPE; the names of the open elements; level and start tag of those
        that declare namespaces; and which kinds of markup, as bits, have no end in the file.
        """
        cdef Py_ssize_t i
        cdef Py_ssize_t begin = 0
        cdef int endless = 0
        cdef list names = []
        for i in range(self._outer):
            names.append(self._outer_names[begin:self._outers[i].end])
            begin = self._outers[i].end
        for i in range(16):
            endless |= self._endless[i] << i
        return (self.declaration or b"", self.doctype or b"", tuple(names), tuple(self.ancestors),
                endless)

    def cut(self):
        """The next piece, or None."""
        if self._waiting is not None:
            piece = self._waiting
            self._waiting = None
            return piece
        if self._reached >= 0:
            return None
        self._halted = False
        return self._scan()

    def gather(self, Py_ssize_t size, int64_t stop=-1):
        """The next records, about `size` bytes of them; None if there are not so many yet.

        As (the bytes of all, their offsets, sizes and levels, what is around them); the last is
        (declaration, DOCTYPE, ancestors), which all of them share. Only whole pieces are gathered,
        neither bad ones nor those over the limit: such a one ends the batch, and when `gather`
        then gives None, `cut` gives that piece. If `cut` gives None too, feed more. Behind the end
        of the stream, what there is is given.

        A record that begins at or behind `stop` is not begun: `reached` is then where it lies,
        `context` says what is around it, and a later call with another `stop` goes on there.
        Pieces that come of a bad one are given even if they lie behind `stop`: only between pieces
        is there a place where another scan could begin.
        """
        if not self._by_record:
            raise ValueError("only records can be gathered")
        if self._waiting is not None:
            return None
        if self._batch_count == 0 or self._batch_size < size:
            self._wanted = size
            self._waiting = self._scan_until(stop, False)
            if self._batch_count == 0 or not (self._halted or self._ended
                                              or self._waiting is not None):
                return None
        return self._take_batch()

    def seek(self, int64_t stop):
        """Goes on to the first record at or behind `stop`, passing over what lies before it.

        Gives its offset, or None if more has to be fed first or, at the end, if there is none.
        """
        if not self._by_record:
            raise ValueError("only records can be sought")
        self._waiting = None
        while self._scan_until(stop, True) is not None:
            pass
        return self.reached

    cdef object _scan_until(self, int64_t stop, bint seeking):
        self._gathering = True
        self._seeking = seeking
        self._halted = False
        self._stop = stop
        self._reached = -1
        try:
            return self._scan()
        finally:
            self._gathering = False
            self._stop = -1

    cdef object _take_batch(self):
        cdef Py_ssize_t count = self._batch_count
        cdef bytes data = self._batch[:self._batch_size]
        offsets = np.empty(count, np.int64)
        sizes = np.empty(count, np.int64)
        levels = np.empty(count, np.int16)
        memcpy(address(offsets, "i8"), self._batch_offsets, count * sizeof(int64_t))
        memcpy(address(sizes, "i8"), self._batch_sizes, count * sizeof(int64_t))
        memcpy(address(levels, "i2"), self._batch_levels, count * sizeof(int16_t))
        self._batch_count = 0
        self._batch_size = 0
        return data, offsets, sizes, levels, self._around

    cdef bint _is_elsewhere(self) except -1:
        # Whether the record at _at belongs to another range or another batch.
        if self._stop >= 0 and self._origin + self._at >= self._stop:
            self._reached = self._origin + self._at
            return True
        if self._seeking or not (self._moved or self._around is None):
            return False
        around = (self.declaration or b"", self.doctype or b"", tuple(self.ancestors))
        if self._batch_count > 0 and around != self._around:
            return True
        self._around = around
        self._moved = False
        return False

    cdef int _gather_piece(self, Py_ssize_t end) except -1:
        cdef Py_ssize_t size = end - self._begin
        cdef Py_ssize_t at = self._batch_count
        if self._batch_size + size > self._batch_room:
            self._more_batch(size)
        if at == self._batch_places:
            self._more_places()
        memcpy(self._batch + self._batch_size, self._data + self._begin, size)
        self._batch_size += size
        self._batch_offsets[at] = self._origin + self._begin
        self._batch_sizes[at] = size
        self._batch_levels[at] = <int16_t>self._outer
        self._batch_count += 1
        self._halted = self._batch_size >= self._wanted
        return 0

    cdef int _more_batch(self, Py_ssize_t size) except -1:
        cdef Py_ssize_t room = (self._batch_size + size) * 3 // 2
        cdef void* grown = realloc(self._batch, room)
        if grown == NULL:
            raise MemoryError
        self._batch = <char*>grown
        self._batch_room = room
        return 0

    cdef int _more_places(self) except -1:
        cdef Py_ssize_t places = self._batch_places * 2 + 1024
        cdef void* offsets = realloc(self._batch_offsets, places * sizeof(int64_t))
        cdef void* sizes
        cdef void* levels
        if offsets != NULL:
            self._batch_offsets = <int64_t*>offsets
        sizes = realloc(self._batch_sizes, places * sizeof(int64_t))
        if sizes != NULL:
            self._batch_sizes = <int64_t*>sizes
        levels = realloc(self._batch_levels, places * sizeof(int16_t))
        if levels != NULL:
            self._batch_levels = <int16_t*>levels
        if offsets == NULL or sizes == NULL or levels == NULL:
            raise MemoryError
        self._batch_places = places
        return 0

    cdef object _scan(self):
        cdef const char* hit
        cdef Token token
        while not self._halted:
            if self._replaying:
                piece = self._replay()
                if piece is not None:
                    return piece
            if self._lexer.token == MORE:
                if self._inside:
                    self._run()
                elif not self._by_record:
                    piece = self._between()
                    if piece is not None:
                        return piece
                    if not self._inside:
                        return None
                hit = (<const char*>memchr(self._data + self._at, 60, self._size - self._at)
                       if self._at < self._size else NULL)
                self._at = hit - self._data if hit != NULL else self._size
                if self._inside and not self._dropping and self._at - self._begin > self._limit:
                    piece = self._too_long()
                    if piece is not None:
                        return piece
                    continue
                if hit == NULL:
                    if not self._ended or not self._inside:
                        return None
                    piece = self._at_end()
                    if piece is not None:
                        return piece
                    continue
                self._lexer.at = self._at
            if self._hopeless and self._lexer.token == MORE and self._endless[
                    <int>known_by_now(self._data + self._at, self._size - self._at)]:
                token = BROKEN
                self._lexer.at = self._at + 1
            else:
                token = next_token(&self._lexer, self._data, self._at, self._size)
            if self._lexer.at - self._at > self._limit:
                if self._dropping:
                    if not self._passed_over():
                        # Too long to begin another piece: pass over the '<'.
                        self._broken = True
                        self._lexer.token = MORE
                        self._at += 1
                        continue
                elif self._inside or not self._nameless():
                    piece = self._too_long_markup(token)
                    if piece is not None:
                        return piece
                    continue
            if token == OTHER or token == DECLARATION:
                token = self._cut_short(token)
            elif token == MORE and self._ended and not self._dropping and self._nameless():
                # Only the '<' is bad: what follows may hold documents.
                if self._inside or not self._by_record:
                    token = BROKEN
                    self._endless[<int>self._lexer.token] = True
                    self._hopeless = True
                    self._lexer.at = self._at + 1
            if token == MORE:
                if not self._ended:
                    return None
                # The markup never ends.
                if not self._inside:
                    if self._by_record and self._nameless():
                        return None
                    self._start_piece(self._at)
                self._broken = not self._can_replay()
                self._at = self._size
                self._lexer.token = MORE
                continue
            self._lexer.token = MORE
            piece = self._take(token, self._lexer.at)
            if piece is not None:
                return piece
        return None

    cdef void _run(self) noexcept nogil:
        # Passes over what most of a sound piece is made of: whole, plain tags inside its root, of
        # elements that are no boundary. It stops before anything else, and must leave behind what
        # the steps of the lexer would.
        cdef const char* data = self._data
        cdef const char* end = data + self._size
        cdef const char* at = data + self._at
        cdef const char* name
        cdef const char* mark
        cdef uint64_t hashed
        cdef Py_ssize_t depth = self._depth
        cdef bint closing
        if self._broken or self._dropping or self._excess > 0 or depth == 0:
            return
        while at < end:
            mark = <const char*>memchr(at, 60, end - at)
            if mark == NULL or mark - data - self._begin > self._limit:
                break
            at = mark
            name = mark + 1
            if end - mark < 4:
                break
            closing = name[0] == 47
            name += closing
            if not is_name_start(name[0]):
                break
            mark = name + 1
            while mark < end and not is_space(mark[0]) and mark[0] != 47 and mark[0] != 62 and mark[0] != 60:
                mark += 1
            if mark == end:
                break
            hashed = hash_tag(name, mark - name)
            if closing:
                if (mark[0] != 62 or depth == 1 or self._open[depth - 1].name != hashed
                        or self._open[depth - 1].at >= 0):
                    break
                depth -= 1
            else:
                if hashed == self._name or depth == DEEPEST or (
                        self._some_records >> (hashed & 63) & 1 and self._is_named(hashed)):
                    break
                mark = tag_end(mark, end)
                if mark == NULL:
                    break
                if (mark - 1)[0] != 47:
                    self._open[depth].name = hashed
                    self._open[depth].at = -1
                    depth += 1
            if mark + 1 - at > self._limit:
                # The depth is taken back: the lexer will look at this tag again.
                if closing:
                    depth += 1
                elif (mark - 1)[0] != 47:
                    depth -= 1
                break
            at = mark + 1
        self._depth = depth
        self._at = at - data

    cdef Token _cut_short(self, Token token) noexcept:
        # A declaration inside an instruction means that the instruction was cut short.
        cdef Py_ssize_t at = self._at + 2
        cdef const char* hit
        if self._dropping or not self._inside or (
                self._lexer.token != INSTRUCTION and self._lexer.token != DECLARATION):
            return token
        while True:
            hit = <const char*>memchr(self._data + at, 60, self._lexer.at - at)
            if hit == NULL:
                return token
            at = hit - self._data
            if self._lexer.at - at > 6 and memcmp(hit, b"<?xml", 5) == 0 and is_space(hit[5]):
                self._lexer.at = at
                return BROKEN
            at += 1

    cdef object _between(self):
        # Between documents: blanks belong to none, text is a piece of its own, markup begins one.
        cdef Py_ssize_t end
        cdef Py_ssize_t left
        cdef const char* hit
        while self._at < self._size:
            left = self._size - self._at
            if is_space(self._data[self._at]):
                self._at += 1
            elif memcmp(self._data + self._at, b"\xef\xbb\xbf", min(left, 3)) == 0 and (left >= 3 or not self._ended):
                if left < 3:
                    return None
                self._at += 3
            else:
                break
        if self._at == self._size:
            return None
        if self._data[self._at] == 60:
            self._start_piece(self._at)
            return None
        hit = <const char*>memchr(self._data + self._at, 60, self._size - self._at)
        end = hit - self._data if hit != NULL else self._size
        if end - self._at > self._limit:
            end = self._at + self._limit
        elif hit == NULL and not self._ended:
            return None
        self._start_piece(self._at)
        return self._finish_piece(end)

    cdef object _take(self, Token token, Py_ssize_t after):
        cdef Py_ssize_t at = self._at
        cdef bint head = token == DECLARATION or token == DOCTYPE
        if head and not self._by_record and self._inside:
            if self._depth > 0 or self._broken or (token == DECLARATION and self._prolog):
                # No document holds a declaration inside: the one under way was cut short.
                return self._fail()
            if token == DECLARATION and at > self._begin:
                self._start_piece(at)  # only comments so far: they close the document before
            self._prolog = True
        elif head and self._by_record and not self._inside:
            if token == DECLARATION:
                self.declaration = self._data[at:after]
            else:
                self.doctype = self._data[at:after]
            self._moved = True
        elif head or token == BROKEN:
            if self._inside:
                if self._can_replay():
                    return self._fail()
                self._broken = True
        elif token == START or token == EMPTY:
            if not self._inside:
                return self._open_outer(token, after)
            if self._depth == 0 and not self._broken:
                return self._open_root(token, after)
            return self._open_element(token, after)
        elif token == END:
            if self._inside:
                return self._close_element(after)
            return self._close_outer(after)
        self._at = after
        return None

    cdef bint _is_record(self) noexcept nogil:
        return self._is_named(self._lexer.name)

    cdef bint _is_named(self, uint64_t name) noexcept nogil:
        cdef Py_ssize_t i
        for i in range(self._by_record):
            if self._records[i] == name:
                return True
        return False

    cdef object _open_outer(self, Token token, Py_ssize_t after):
        if self._is_record():
            if self._gathering and self._is_elsewhere():
                self._halted = True
                return None
            self._start_piece(self._at)
            return self._open_root(token, after)
        if token == START:
            if self._outer == DEEPEST:
                # So deep that no record below can be read: this tag is said to be bad.
                self._start_piece(self._at)
                return self._finish_piece(after)
            if holds_xmlns(self._data + self._at, after - self._at):
                self.ancestors.append((self._outer, self._data[self._at:after]))
                self._moved = True
            self._push_outer(self._lexer.name, self._data + self._at + 1,
                             self._lexer.name_end - 1)
        self._at = after
        return None

    cdef int _push_outer(self, uint64_t hashed, const char* name, Py_ssize_t size) except -1:
        cdef Py_ssize_t begin = self._outers[self._outer - 1].end if self._outer > 0 else 0
        cdef void* grown
        if begin + size > self._outer_room:
            grown = realloc(self._outer_names, (begin + size) * 2)
            if grown == NULL:
                raise MemoryError
            self._outer_names = <char*>grown
            self._outer_room = (begin + size) * 2
        memcpy(self._outer_names + begin, name, size)
        self._outers[self._outer].name = hashed
        self._outers[self._outer].end = begin + size
        self._outer += 1
        return 0

    cdef object _close_outer(self, Py_ssize_t after):
        cdef Py_ssize_t level = self._outer
        while level > 0 and self._outers[level - 1].name != self._lexer.name:
            level -= 1
        if level == 0 or level < self._outer:
            # It closes nothing, or more than one element: bad either way.
            self._start_piece(self._at)
        if level > 0:
            self._outer = level - 1
            while self.ancestors and self.ancestors[len(self.ancestors) - 1][0] >= self._outer:
                self.ancestors.pop()
                self._moved = True
        if self._inside:
            return self._finish_piece(after)
        self._at = after
        return None

    cdef object _open_root(self, Token token, Py_ssize_t after):
        self._name = self._lexer.name
        if token == EMPTY:
            return self._finish_whole(after)
        self._open[0].name = self._name
        self._open[0].at = -1
        self._depth = 1
        self._at = after
        return None

    cdef object _open_element(self, Token token, Py_ssize_t after):
        cdef bint boundary = self._is_boundary()
        if self._broken and boundary:
            return self._finish_piece(self._at)
        if boundary and token == EMPTY and self._excess == 0:
            self._close_boundary(self._at - self._begin, after - self._begin)
        if token == START and not self._broken:
            if self._depth == DEEPEST:
                self._excess += 1
            else:
                self._open[self._depth].name = self._lexer.name
                self._open[self._depth].at = self._at - self._begin if boundary else -1
                self._depth += 1
                self._boundaries += boundary
        self._at = after
        return None

    cdef object _close_element(self, Py_ssize_t after):
        if self._excess > 0:
            self._excess -= 1
            self._at = after
            return None
        if not self._broken and self._depth > 0 and self._open[self._depth - 1].name == self._lexer.name:
            self._depth -= 1
            if self._depth == 0:
                return self._finish_whole(after)
            if self._open[self._depth].at >= 0:
                self._boundaries -= 1
                self._close_boundary(self._open[self._depth].at, after - self._begin)
            self._at = after
            return None
        if self._depth == 0 and not self._broken:
            return self._finish_piece(after)  # an end tag where a root should be
        if self._can_replay():
            # An end tag is missing somewhere: what looked like an inner element may well be the
            # next document.
            return self._fail()
        self._broken = True
        if self._lexer.name == self._name:
            return self._finish_piece(after)
        self._at = after
        return None

    cdef int _close_boundary(self, Py_ssize_t begin, Py_ssize_t end) except -1:
        cdef void* grown
        while self._closed_count > 0 and self._closed[self._closed_count - 1].begin > begin:
            self._closed_count -= 1
        if self._dropping or self._closed_count == MANY_CLOSED:
            return 0
        if self._closed_count == self._closed_room:
            grown = realloc(self._closed, (self._closed_room * 2 + 16) * sizeof(Span))
            if grown == NULL:
                raise MemoryError
            self._closed = <Span*>grown
            self._closed_room = self._closed_room * 2 + 16
        self._closed[self._closed_count].begin = begin
        self._closed[self._closed_count].end = end
        self._closed_count += 1
        return 0

    cdef bint _can_replay(self) noexcept:
        return not self._dropping and not self._broken and (
            self._closed_count > 0 or 0 < self._boundaries <= MANY_OPEN)

    cdef object _fail(self):
        # The piece under way is bad, and another one may begin at _at.
        if not self._can_replay():
            return self._finish_piece(self._at)
        self._replaying = True
        self._replay_base = self._begin
        self._replay_at = self._begin
        self._replay_depth = self._depth if self._boundaries <= MANY_OPEN else 0
        self._replay_open = 1
        self._replay_closed = 0
        return None

    cdef object _replay(self):
        # The next piece of a bad one. Behind its last boundary, the scan goes on as ever.
        cdef Py_ssize_t base = self._replay_base
        cdef Py_ssize_t at = self._replay_at
        cdef Py_ssize_t next = -1
        while self._replay_open < self._replay_depth:
            next = self._open[self._replay_open].at
            if next >= 0 and base + next > at:
                break
            next = -1
            self._replay_open += 1
        if self._replay_closed < self._closed_count:
            if base + self._closed[self._replay_closed].begin == at:
                next = self._closed[self._replay_closed].end
                self._replay_closed += 1
            elif next < 0 or self._closed[self._replay_closed].begin < next:
                next = self._closed[self._replay_closed].begin
        if next < 0:
            self._replaying = False
            self._inside = False
            self._closed_count = 0
            self._at = at
            return None
        self._replay_at = base + next
        while at < base + next and is_space(self._data[at]):
            at += 1
        if at == base + next:
            return self._replay()
        self._place_piece(at)
        return self._piece(base + next)

    cdef object _at_end(self):
        if self._depth == 0 and not self._broken and not self._prolog:
            self._inside = False  # comments behind the last document
            return None
        return self._fail()

    cdef object _too_long(self):
        if self._can_replay():
            return self._fail()
        return self._drop()

    cdef object _too_long_markup(self, Token token):
        # One tag or comment over the limit.
        if token != MORE:
            self._lexer.token = MORE  # to be looked at again, from its beginning
        if not self._inside:
            # Around records, where its name would matter: it is reported, then passed over.
            self._start_piece(self._at)
            piece = self._drop()
            self._inside = False
            self._dropping = False
            self._lexer.token = MORE
            self._at += 1
            return piece
        if self._can_replay():
            self._lexer.token = MORE
            return self._fail()
        return self._drop()

    cdef void _start_piece(self, Py_ssize_t at) noexcept:
        self._inside = True
        self._broken = False
        self._prolog = False
        self._dropping = False
        self._begin = at
        self._depth = 0
        self._excess = 0
        self._boundaries = 0
        self._closed_count = 0
        self._place_piece(at)

    cdef void _place_piece(self, Py_ssize_t at) noexcept:
        # Lines are counted up to a piece only where it is given: a gathered one needs none.
        self._begin = at
        self._piece_offset = self._origin + at
        self._piece_line = 0

    cdef object _drop(self):
        # Over the limit: give its head away and go on to its end without keeping the bytes.
        piece = self._piece(self._size)
        self._dropping = True
        return piece

    cdef object _piece(self, Py_ssize_t end):
        cdef bint over = end - self._begin > self._limit
        if self._piece_line == 0:
            self._count_lines(self._begin)
            self._piece_line = self._line
            self._piece_column = self._piece_offset - self._line_origin + 1
        if over:
            end = self._begin + min(HEAD, self._limit)
        return (self._data[self._begin:end], self._piece_offset, self._piece_line,
                self._piece_column, self._outer, over)

    cdef object _finish_whole(self, Py_ssize_t end):
        # The tags of the piece pair, up to the one that closes its root.
        if not self._gathering or self._dropping or end - self._begin > self._limit:
            return self._finish_piece(end)
        if not self._seeking:
            self._gather_piece(end)
        self._at = end
        self._inside = False
        return None

    cdef object _finish_piece(self, Py_ssize_t end):
        piece = None if self._dropping else self._piece(end)
        self._at = end
        self._inside = False
        self._dropping = False
        return piece

    cdef void _count_lines(self, Py_ssize_t until) noexcept:
        cdef Py_ssize_t last
        cdef int64_t lines
        if self._counted >= until:
            return
        lines = count_byte(self._data + self._counted, until - self._counted, 10)
        if lines:
            last = until - 1
            while self._data[last] != 10:
                last -= 1
            self._line += lines
            self._line_origin = self._origin + last + 1
        self._counted = until


include "_records.pxi"
