# Many records in one parse. Part of _scanner.pxi, which includes it.

cdef struct Joined:
    # Records one after the other inside a root that is none of them: each has its own label base.
    Sax sax                 # first, so that the handlers of events take one for the other
    const int64_t* bases
    const int16_t* levels
    int64_t* firsts         # the first row of each record
    Py_ssize_t count
    Py_ssize_t met          # how many have begun
    bint wrapped            # the root around them has begun
    int32_t nodes           # the limits are those of a record
    int32_t depth


cdef void on_joined_start(void* data, const unsigned char* name, const unsigned char* prefix,
                          const unsigned char* uri, int spaces, const unsigned char** space_list,
                          int count, int defaulted,
                          const unsigned char** attributes) noexcept nogil:
    cdef Joined* joined = <Joined*>data
    cdef Sax* sax = &joined.sax
    if sax.parent < 0:
        if not joined.wrapped:
            joined.wrapped = True
            return
        if sax.status != FINE:
            return
        if joined.met == joined.count:
            stop(sax, TOO_MANY_NODES)
            return
        joined.firsts[joined.met] = sax.walk.rows
        sax.tick = joined.bases[joined.met]
        sax.level = joined.levels[joined.met]
        sax.walk.bounds.depth = sax.level + joined.depth
        joined.met += 1
    on_start(data, name, prefix, uri, spaces, space_list, count, defaulted, attributes)


cdef void on_joined_end(void* data, const unsigned char* name, const unsigned char* prefix,
                        const unsigned char* uri) noexcept nogil:
    cdef Joined* joined = <Joined*>data
    cdef Sax* sax = &joined.sax
    if sax.parent < 0:
        return
    on_end(data, name, prefix, uri)
    if sax.parent < 0 and sax.walk.rows - joined.firsts[joined.met - 1] > joined.nodes:
        stop(sax, TOO_MANY_NODES)


cdef void on_joined_text(void* data, const unsigned char* text, int size) noexcept nogil:
    cdef Sax* sax = &(<Joined*>data).sax
    if sax.parent >= 0:
        on_text(data, text, size)
    elif size > 0:
        stop(sax, ENTITY)


cdef void on_joined_comment(void* data, const unsigned char* text) noexcept nogil:
    cdef Sax* sax = &(<Joined*>data).sax
    if sax.parent < 0:
        stop(sax, ENTITY)
    elif sax.joined >= 0:
        end_text(sax)


cdef void on_joined_instruction(void* data, const unsigned char* target,
                                const unsigned char* text) noexcept nogil:
    on_joined_comment(data, text)


cdef xmlSAXHandler joined_handlers = handlers
joined_handlers.startElementNs = <void*>on_joined_start
joined_handlers.endElementNs = <void*>on_joined_end
joined_handlers.characters = <void*>on_joined_text
joined_handlers.ignorableWhitespace = <void*>on_joined_text
joined_handlers.cdataBlock = <void*>on_joined_text
joined_handlers.comment = <void*>on_joined_comment
joined_handlers.processingInstruction = <void*>on_joined_instruction


@cython.final
cdef class RecordParser:
    """One thread's parser of joined records, from events alone."""

    cdef Joined* joined

    def __dealloc__(self):
        self._renew()

    cdef void _renew(self) noexcept:
        free_sax(<Sax*>self.joined)
        self.joined = NULL

    cdef Joined* _events(self) noexcept:
        cdef Joined* joined = self.joined
        if joined == NULL and sax_works:
            joined = <Joined*>calloc(1, sizeof(Joined))
            if joined != NULL:
                joined.sax.context = new_context(&joined_handlers, joined)
                if joined.sax.context == NULL:
                    free(joined)
                    joined = NULL
            self.joined = joined
        return joined

    cdef MetNames* _fast(self, Walker walker, const char* text, Py_ssize_t size,
                         int32_t known) noexcept nogil:
        """Read with the fast reader: the names that it met, or NULL if it gave up."""
        cdef Joined* joined = self.joined
        cdef Sax* sax = &joined.sax
        cdef Fast* fast
        if not (walker.fast and fast_works):
            return NULL
        sax.fast = fast = begin_fast(sax.fast, &sax.walk, size, 0, known,
                                     not walker.grow)
        if fast == NULL:
            return NULL
        fast.reader.depth = joined.depth
        fast.reader.bases = joined.bases
        fast.reader.record_levels = joined.levels
        fast.reader.firsts = joined.firsts
        fast.reader.records = joined.count
        fast.reader.record_nodes = joined.nodes
        if read_fast(fast, text, size):
            return &fast.names
        begin_again(&sax.walk)
        return NULL

    def read(self, Walker walker not None, bytes document not None, bases, levels):
        """The table of all records and the first row of each; None if anything is amiss.

        The document is one root around the records. Record i's labels count from bases[i]
        (int64), its levels from levels[i] (int16).
        """
        cdef Joined* joined = self._events()
        cdef const char* text = PyBytes_AS_STRING(document)
        cdef Py_ssize_t size = len(document)
        cdef Py_ssize_t count = len(bases)
        cdef int32_t capacity = rows_for(text, size, 0x7ffffff0)
        cdef int32_t room = room_for_values(size, walker.values, walker.fast)
        cdef int32_t known = load_int(walker.vocabulary._count)
        cdef Columns table
        cdef MetNames* names
        cdef Sax* sax
        cdef Raw raw
        cdef int32_t* tags = NULL
        cdef bint fine
        if joined == NULL or size > LONGEST or len(levels) != count:
            return None
        firsts = np.empty(count, np.int64)
        joined.bases = <int64_t*>address(bases, "i8")
        joined.levels = <int16_t*>address(levels, "i2")
        joined.firsts = <int64_t*>address(firsts, "i8")
        joined.count = count
        joined.met = 0
        joined.wrapped = False
        joined.nodes = walker.bounds.nodes
        joined.depth = walker.bounds.depth
        sax = &joined.sax
        table = walker.cls.__new__(walker.cls)
        if not begin_walk(&sax.walk, capacity, room):
            raise MemoryError
        sax.walk.values = walker.values
        sax.walk.blanks = walker.blanks
        sax.walk.grow = walker.grow
        sax.walk.bounds = walker.bounds
        sax.walk.bounds.nodes = 0x7ffffff0
        table.known = 0 if walker.grow else known
        with nogil:
            names = self._fast(walker, text, size, known)
            fine = names != NULL
            if not fine:
                names = &sax.names
                fine = begin_events(sax, 0, known, not walker.grow)
                if fine:
                    parse_events(sax, text, <int>size, walker.huge)
                    fine = sax.status == FINE and joined.met == count and ended_well(sax)
            if fine and not walker.grow:
                tags = <int32_t*>malloc(<size_t>(sax.walk.rows + 1) * sizeof(int32_t))
                if tags != NULL:
                    memcpy(tags, sax.walk.tags, <size_t>sax.walk.rows * sizeof(int32_t))
            fine = (fine and (walker.grow or tags != NULL)
                    and name_rows(&sax.walk, names, walker.vocabulary) == FINE)
        try:
            if not fine:
                return None
            if not walker.grow:
                table._real = names_of_pending(walker.vocabulary, names, tags, sax.walk.rows)
            if is_kept(&sax.walk):
                keep(&sax.walk, table)
            else:
                expose(&sax.walk, &raw, table.known)
                pack(&raw, table)
        finally:
            free(tags)
            if not fine or is_swollen(sax):
                self._renew()
            else:
                trim(&sax.walk)
        table.vocabulary = walker.vocabulary
        table._blanks = walker.blanks
        return table, firsts


cdef struct Reference:
    # What stands for a name: all names and replacements lie in one text.
    uint64_t name
    int32_t name_at
    int32_t name_size
    int32_t at
    int32_t size


@cython.final
cdef class References:
    """Named characters and what is written for them, to be put in place of `&name;`.

    Safe for any number of threads: nothing changes once it is made.
    """

    cdef Reference* _slots
    cdef uint32_t _mask
    cdef bytes _text
    cdef const char* _known         # the same

    def __cinit__(self, dict written not None):
        cdef uint32_t room = 16
        cdef uint32_t slot
        cdef Reference* found
        cdef bytes name, value
        cdef list parts = []
        cdef int32_t at = 0
        while room < 2 * len(written):
            room *= 2
        self._mask = room - 1
        self._slots = <Reference*>calloc(room, sizeof(Reference))
        if self._slots == NULL:
            raise MemoryError
        for name, value in written.items():
            slot = <uint32_t>hash_tag(name, len(name)) & self._mask
            while self._slots[slot].name_size > 0:
                slot = (slot + 1) & self._mask
            found = &self._slots[slot]
            found.name = hash_tag(name, len(name))
            found.name_at = at
            found.name_size = <int32_t>len(name)
            found.at = at + found.name_size
            found.size = <int32_t>len(value)
            at += found.name_size + found.size
            parts += (name, value)
        self._text = b"".join(parts)
        self._known = PyBytes_AS_STRING(self._text)

    def __dealloc__(self):
        free(self._slots)

    cdef Reference* _find(self, const char* name, Py_ssize_t size) noexcept nogil:
        cdef uint64_t hashed = hash_tag(name, size)
        cdef uint32_t slot = <uint32_t>hashed & self._mask
        cdef Reference* found = &self._slots[slot]
        while found.name_size > 0:
            if found.name == hashed and found.name_size == size and memcmp(
                    self._known + found.name_at, name, size) == 0:
                return found
            slot = (slot + 1) & self._mask
            found = &self._slots[slot]
        return NULL

    def replace(self, bytes data not None):
        """The data with characters in place of their names; None if one is not known.

        What stands in a CDATA section, a comment or an instruction stays as it is, and so do
        numbers and the five names that every parser knows.
        """
        cdef const char* text = PyBytes_AS_STRING(data)
        cdef Py_ssize_t size = len(data)
        cdef Py_ssize_t room = size + 64
        cdef Py_ssize_t at = 0          # looked at up to here
        cdef Py_ssize_t done = 0        # copied up to here
        cdef Py_ssize_t put = 0
        cdef Py_ssize_t mark = -1       # the next '&', '<!' and '<?': each looked for only once
        cdef Py_ssize_t bang = -1
        cdef Py_ssize_t ask = -1
        cdef Py_ssize_t end
        cdef Reference* found
        cdef char* out = NULL
        cdef void* grown
        cdef Lexer lexer
        try:
            while True:
                if mark < at:
                    mark = find_byte(text, 38, at, size)
                if bang < at:
                    bang = find_opening(text, 33, at, size)
                if ask < at:
                    ask = find_opening(text, 63, at, size)
                if bang < mark or ask < mark:
                    lexer.token = MORE
                    if next_token(&lexer, text, min(bang, ask), size) != OTHER:
                        return None
                    at = lexer.at
                    continue
                if mark == size:
                    break
                end = reference_end(text, mark + 1, size)
                at = max(end, mark + 1)
                if end < 0 or is_predefined(text + mark + 1, end - mark - 2):
                    continue
                found = self._find(text + mark + 1, end - mark - 2)
                if found == NULL:
                    return None
                if out == NULL or put + mark - done + found.size > room:
                    room = max(room, (put + mark - done + found.size) * 2)
                    grown = realloc(out, room)
                    if grown == NULL:
                        raise MemoryError
                    out = <char*>grown
                memcpy(out + put, text + done, mark - done)
                put += mark - done
                memcpy(out + put, self._known + found.at, found.size)
                put += found.size
                done = at
            if out == NULL:
                return data
            return out[:put] + data[done:]
        finally:
            free(out)


cdef inline Py_ssize_t find_byte(const char* text, char byte, Py_ssize_t at,
                                 Py_ssize_t size) noexcept nogil:
    # Where it is, or `size`.
    cdef const char* hit = NULL
    if at < size:
        hit = <const char*>memchr(text + at, byte, size - at)
    return hit - text if hit != NULL else size


cdef Py_ssize_t find_opening(const char* text, char second, Py_ssize_t at,
                             Py_ssize_t size) noexcept nogil:
    # The next '<' with this byte behind it: the byte is much rarer than the '<'.
    cdef Py_ssize_t hit = find_byte(text, second, at + 1, size)
    while hit < size and text[hit - 1] != 60:
        hit = find_byte(text, second, hit + 1, size)
    return hit - 1 if hit < size else size


cdef Py_ssize_t reference_end(const char* text, Py_ssize_t at, Py_ssize_t size) noexcept nogil:
    # Behind the ';' of a reference to a name that begins here; -1 if it is no such thing.
    cdef Py_ssize_t begin = at
    cdef char c
    while at < size:
        c = text[at]
        if c == 59:
            return at + 1 if at > begin else -1
        if (is_space(c) or c == 38 or c == 60 or c == 62 or c == 34 or c == 39
                or (c == 35 and at == begin)):
            return -1
        at += 1
    return -1


cdef bint is_predefined(const char* name, Py_ssize_t size) noexcept nogil:
    if size == 2:
        return (name[0] == 108 or name[0] == 103) and name[1] == 116
    if size == 3:
        return memcmp(name, b"amp", 3) == 0
    return size == 4 and (memcmp(name, b"quot", 4) == 0 or memcmp(name, b"apos", 4) == 0)
