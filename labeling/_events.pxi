# The events. Part of _kernel.pyx, which includes it.

# libxml2 parses two to three times faster when it need not build a tree. lxml carries libxml2
# inside its own library and exports it, so the loader finds its event interface. It is used only when the headers are those of the library; else there is the tree.

cdef extern from "dlfcn.h" nogil:
    void* dlopen(const char*, int)
    void* dlsym(void*, const char*)
    enum:
        RTLD_NOW
        RTLD_NOLOAD

cdef extern from "libxml/parser.h" nogil:
    enum:
        XML_SAX2_MAGIC
        LIBXML_VERSION
        XML_PARSE_NOENT
        XML_PARSE_NONET
        XML_PARSE_HUGE
        XML_PARSE_NOCDATA
        XML_PARSE_COMPACT
        XML_PARSE_BIG_LINES
    ctypedef struct xmlSAXHandler:
        void* internalSubset
        void* reference
        void* startElementNs
        void* endElementNs
        void* characters
        void* ignorableWhitespace
        void* cdataBlock
        void* comment
        void* processingInstruction
        void* serror
        unsigned int initialized
    ctypedef struct xmlParserCtxt:
        int wellFormed
        int nsWellFormed
        int errNo
        void* dict
    ctypedef struct xmlError:
        int level
        int code
        char* message
        int line
        int int2

ctypedef xmlParserCtxt* (*NewContext)(xmlSAXHandler*, void*) noexcept nogil
ctypedef void* (*ReadMemory)(xmlParserCtxt*, const char*, int, const char*, const char*, int) noexcept nogil
ctypedef void (*ContextCall)(xmlParserCtxt*) noexcept nogil
ctypedef xmlParserCtxt* (*NewPush)(xmlSAXHandler*, void*, const char*, int, const char*) noexcept nogil
ctypedef int (*UseOptions)(xmlParserCtxt*, int) noexcept nogil
ctypedef int (*ParseChunk)(xmlParserCtxt*, const char*, int, int) noexcept nogil
ctypedef size_t (*DictUsage)(void*) noexcept nogil
ctypedef int (*DictSize)(void*) noexcept nogil
ctypedef int (*PlaceCall)(void*) noexcept nogil

cdef NewContext new_context = NULL
cdef ReadMemory read_memory = NULL
cdef ContextCall free_context = NULL
cdef ContextCall stop_parser = NULL
cdef NewPush new_push = NULL
cdef UseOptions use_options = NULL
cdef ParseChunk parse_chunk = NULL
cdef DictUsage dict_usage = NULL
cdef DictSize dict_size = NULL
cdef PlaceCall line_of_parser = NULL
cdef PlaceCall column_of_parser = NULL
cdef xmlSAXHandler handlers
cdef bint sax_works = False
cdef bint events_there = False

cdef struct Complaint:
    # The first error that libxml2 reported.
    int code
    int line
    int column
    bint is_there
    char message[1300]      # more than errors repeat of it

cdef struct Sax:
    xmlParserCtxt* context
    Walk walk
    int32_t parent
    int32_t joined          # the text row that adjacent text belongs to, or -1
    int64_t joined_size     # bytes of that text so far
    int64_t tick
    int16_t level
    Status status
    MetNames names          # the context keeps its names from document to document
    int64_t widest          # attributes of one element, and namespaces declared: the context
    int64_t declared        # keeps room for as many
    Complaint complaint
    Fast* fast              # the fast reader, which is asked first; NULL until it is
    bint spent              # to be done away with: its last document was not read to the end
    bint touched            # libxml2 has read something since its size was looked at


cdef void stop(Sax* sax, Status status) noexcept nogil:
    sax.status = status
    stop_parser(sax.context)


cdef inline int32_t event_tag(Sax* sax, const void* name, const void* uri) noexcept nogil:
    cdef Status status = FINE
    cdef int32_t tag = met_tag(&sax.walk, &sax.names, name, uri, &status)
    if status != FINE:
        stop(sax, status)
    return tag


cdef int32_t event_row(Sax* sax, uint8_t kind, int32_t tag) noexcept nogil:
    # A new row below the open element, or -1.
    cdef Walk* walk = &sax.walk
    cdef Status status
    cdef int32_t at
    if walk.rows == walk.capacity:
        status = more_rows(walk)
        if status != FINE:
            stop(sax, status)
            return -1
    at = walk.rows
    walk.rows += 1
    walk.kinds[at] = kind
    walk.tags[at] = tag
    walk.parents[at] = sax.parent
    walk.levels[at] = sax.level
    walk.starts[at] = sax.tick
    walk.ends[at] = sax.tick + 1
    walk.offsets[at] = walk.length
    return at


cdef Status append_bytes(Walk* walk, const unsigned char* text, int32_t size) noexcept nogil:
    cdef size_t room
    cdef void* p
    if size > walk.room - walk.length:
        if size > 0x7ffffff0 - walk.length:
            return TOO_MUCH_TEXT
        room = min((<size_t>walk.length + <size_t>size) * 2, <size_t>0x7ffffff0)
        p = realloc(walk.text, room)
        if p == NULL:
            return OUT_OF_MEMORY
        walk.text = <char*>p
        walk.room = <int32_t>room
    memcpy(walk.text + walk.length, text, size)
    walk.length += size
    return FINE


cdef void end_text(Sax* sax) noexcept nogil:
    # Text is over; if it was all blank and blanks do not count, it never was.
    cdef Walk* walk = &sax.walk
    cdef int32_t i
    if not walk.blanks and sax.joined >= 0:
        for i in range(walk.offsets[sax.joined], walk.length):
            if not is_space(walk.text[i]):
                sax.joined = -1
                return
        walk.length = walk.offsets[sax.joined]
        walk.rows -= 1
        sax.tick -= 2
    sax.joined = -1


cdef void on_start(void* data, const unsigned char* name, const unsigned char* prefix,
                   const unsigned char* uri, int spaces, const unsigned char** space_list,
                   int count, int defaulted, const unsigned char** attributes) noexcept nogil:
    cdef Sax* sax = <Sax*>data
    cdef Walk* walk = &sax.walk
    cdef int32_t at, row, size
    cdef Status status
    cdef int i
    if sax.status != FINE:
        return
    sax.declared += spaces
    if count > sax.widest:
        sax.widest = count
    if sax.joined >= 0:
        end_text(sax)
    walk.elements += 1
    if sax.level >= walk.bounds.depth:
        stop(sax, TOO_DEEP)
        return
    row = event_row(sax, kELEMENT, event_tag(sax, name, uri))
    if row < 0:
        return
    sax.tick += 1
    sax.parent = row
    sax.level += 1
    for i in range(count):
        at = event_row(sax, kATTRIBUTE, event_tag(sax, attributes[0], attributes[2]))
        if at < 0:
            return
        sax.tick += 2
        size = <int32_t>(attributes[4] - attributes[3])
        if size > walk.bounds.attribute:
            stop(sax, LONG_ATTRIBUTE)
            return
        if walk.values:
            status = append_bytes(walk, attributes[3], size)
            if status != FINE:
                stop(sax, status)
                return
        attributes += 5


cdef void on_end(void* data, const unsigned char* name, const unsigned char* prefix,
                 const unsigned char* uri) noexcept nogil:
    cdef Sax* sax = <Sax*>data
    if sax.status != FINE:
        return
    if sax.joined >= 0:
        end_text(sax)
    sax.walk.ends[sax.parent] = sax.tick
    sax.tick += 1
    sax.parent = sax.walk.parents[sax.parent]
    sax.level -= 1


cdef void on_text(void* data, const unsigned char* text, int size) noexcept nogil:
    cdef Sax* sax = <Sax*>data
    cdef Walk* walk = &sax.walk
    cdef Status status
    if sax.status != FINE or size == 0:
        return
    if sax.joined < 0:
        sax.joined = event_row(sax, kTEXT, tTEXT)
        if sax.joined < 0:
            return
        sax.joined_size = 0
        sax.tick += 2
    sax.joined_size += size
    if sax.joined_size > walk.bounds.text:
        stop(sax, LONG_TEXT)
        return
    # Without values the text is still needed for a while if it may turn out to be blank.
    if walk.values or not walk.blanks:
        status = append_bytes(walk, text, size)
        if status != FINE:
            stop(sax, status)


cdef void on_comment(void* data, const unsigned char* text) noexcept nogil:
    if (<Sax*>data).joined >= 0:
        end_text(<Sax*>data)


cdef void on_instruction(void* data, const unsigned char* target,
                         const unsigned char* text) noexcept nogil:
    if (<Sax*>data).joined >= 0:
        end_text(<Sax*>data)


cdef void on_subset(void* data, const unsigned char* name, const unsigned char* external,
                    const unsigned char* system) noexcept nogil:
    stop(<Sax*>data, ENTITY)


cdef void on_reference(void* data, const unsigned char* name) noexcept nogil:
    stop(<Sax*>data, ENTITY)


cdef void on_error(void* data, const void* error) noexcept nogil:
    note(&(<Sax*>data).complaint, <const xmlError*>error)


cdef void note(Complaint* complaint, const xmlError* error) noexcept nogil:
    cdef size_t size = 0
    if complaint.is_there or error.level < 2:  # but a warning
        return
    complaint.is_there = True
    complaint.code = error.code
    complaint.line = error.line
    complaint.column = error.int2
    if error.message != NULL:
        size = min(strlen(error.message), sizeof(complaint.message) - 1)
        memcpy(complaint.message, error.message, size)
    complaint.message[size] = 0


cdef Sax* new_sax(bint pushed) noexcept nogil:
    cdef Sax* sax = <Sax*>calloc(1, sizeof(Sax))
    if sax == NULL:
        return NULL
    if pushed:
        sax.context = new_push(&handlers, sax, NULL, 0, NULL)
    else:
        sax.context = new_context(&handlers, sax)
    if sax.context == NULL:
        free(sax)
        return NULL
    return sax


cdef void free_sax(Sax* sax) noexcept nogil:
    if sax != NULL:
        forget(&sax.walk)
        free_fast(sax.fast)
        free_context(sax.context)
        free_met(&sax.names)
        free(sax)


cdef bint begin_events(Sax* sax, int64_t base, int32_t known, bint keep_weak) noexcept nogil:
    # A new document, with room for its rows ready; False if there is no memory.
    sax.parent = -1
    sax.joined = -1
    sax.tick = base
    sax.level = 0
    sax.status = FINE
    sax.complaint.is_there = False
    sax.widest = 0
    sax.declared = 0
    sax.walk.names = &sax.names
    return begin_names(&sax.names, known, keep_weak)


cdef enum:
    # Bytes of a document at most: lengths are of 31 bits, with SLACK behind them.
    LONGEST = 0x7fffffff - SLACK - 1


cdef inline int32_t room_for_values(Py_ssize_t size, bint values, bint fast) noexcept nogil:
    # Bytes that the values of a document get at first: as many as it has for the fast reader,
    # which does not look whether there is room. Pages that are never written take no memory.
    if fast and fast_works:
        return <int32_t>min(size, LONGEST) + SLACK
    return <int32_t>min(size // 2, 1 << 29) + 16 if values else 0


cdef inline void begin_again(Walk* walk) noexcept nogil:
    # Once more from the start of a document, after another way to read it was given up.
    walk.rows = 0
    walk.length = 0
    walk.elements = 0


cdef int parser_options(bint huge) noexcept nogil:
    # NOENT: else `&amp;` in an attribute would come as `&#38;`. There are no other entities, as
    # a DOCTYPE stops the parser.
    cdef int options = XML_PARSE_NOENT | XML_PARSE_NONET
    return options | XML_PARSE_HUGE if huge else options


cdef void parse_events(Sax* sax, const char* text, int size, bint huge) noexcept nogil:
    read_memory(sax.context, text, size, NULL, NULL, parser_options(huge))


cdef inline bint is_malformed(Sax* sax) noexcept nogil:
    return not sax.context.wellFormed or not sax.context.nsWellFormed


cdef inline bint ended_well(Sax* sax) noexcept nogil:
    # Whether the document was read to its end without anything to complain of.
    return (sax.status == FINE and not is_malformed(sax) and sax.context.errNo == 0
            and sax.walk.rows > 0)


cdef bint end_events(Sax* sax, Vocabulary vocabulary) noexcept nogil:
    # Whether the document ended well; names its rows.
    if not ended_well(sax):
        return False
    sax.walk.offsets[sax.walk.rows] = sax.walk.length
    sax.status = name_rows(&sax.walk, &sax.names, vocabulary)
    return sax.status == FINE


cdef bint is_swollen(Sax* sax) noexcept nogil:
    # Whether the parser holds more than it may keep from document to document: names, and room
    # for as many attributes and namespaces as there were.
    return (dict_usage(sax.context.dict) + <size_t>dict_size(sax.context.dict) * 32
            + met_size(&sax.names) + <size_t>(sax.widest + sax.declared) * 64 > LASTING)


cdef void find_events() noexcept:
    # Ask the loader for the event interface of the libxml2 inside lxml.
    global new_context, read_memory, free_context, stop_parser, sax_works, events_there
    global new_push, use_options, parse_chunk, dict_usage, dict_size, line_of_parser, column_of_parser
    cdef bytes path = etree.__file__.encode()
    cdef void* library
    cdef int version = LIBXML_VERSION // 100
    if etree.LIBXML_VERSION[0] * 100 + etree.LIBXML_VERSION[1] != version:
        return
    library = dlopen(path, RTLD_NOW | RTLD_NOLOAD)
    if library == NULL:
        return
    new_context = <NewContext>dlsym(library, b"xmlNewSAXParserCtxt")
    read_memory = <ReadMemory>dlsym(library, b"xmlCtxtReadMemory")
    free_context = <ContextCall>dlsym(library, b"xmlFreeParserCtxt")
    stop_parser = <ContextCall>dlsym(library, b"xmlStopParser")
    new_push = <NewPush>dlsym(library, b"xmlCreatePushParserCtxt")
    use_options = <UseOptions>dlsym(library, b"xmlCtxtUseOptions")
    parse_chunk = <ParseChunk>dlsym(library, b"xmlParseChunk")
    dict_usage = <DictUsage>dlsym(library, b"xmlDictGetUsage")
    dict_size = <DictSize>dlsym(library, b"xmlDictSize")
    line_of_parser = <PlaceCall>dlsym(library, b"xmlSAX2GetLineNumber")
    column_of_parser = <PlaceCall>dlsym(library, b"xmlSAX2GetColumnNumber")
    memset(&handlers, 0, sizeof(handlers))
    handlers.initialized = XML_SAX2_MAGIC
    handlers.internalSubset = <void*>on_subset
    handlers.reference = <void*>on_reference
    handlers.startElementNs = <void*>on_start
    handlers.endElementNs = <void*>on_end
    handlers.characters = <void*>on_text
    handlers.ignorableWhitespace = <void*>on_text
    handlers.cdataBlock = <void*>on_text
    handlers.comment = <void*>on_comment
    handlers.processingInstruction = <void*>on_instruction
    handlers.serror = <void*>on_error
    sax_works = (new_context != NULL and read_memory != NULL and free_context != NULL
                 and stop_parser != NULL and new_push != NULL and use_options != NULL
                 and parse_chunk != NULL and dict_usage != NULL and dict_size != NULL
                 and line_of_parser != NULL
                 and column_of_parser != NULL)
    events_there = sax_works
    find_trees(library)


def reads_events():
    """Whether documents are read from events; if not, lxml's tree is walked."""
    return sax_works


def use_events(bint wanted):
    """Read from events or not; for comparing the two ways. Says how it was before."""
    global sax_works
    before = sax_works
    sax_works = wanted and events_there
    return before


cdef extern from *:
    """
    #include <time.h>
    /* A thread that comes back from a few microseconds without the GIL finds it taken, as often
       as not, by another that will need it for a few microseconds. To sleep and be woken takes
       ten times as long, so it first spins a little. The stamp says since when a thread that
       read a document has had the GIL; an old one says nothing. */
    #define SPIN_NS 30000
    static long long taken_since = 0;
    static long long now_ns(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return t.tv_sec * 1000000000LL + t.tv_nsec;
    }
    static void gil_given(void) { __atomic_store_n(&taken_since, 0, __ATOMIC_RELEASE); }
    static void gil_taken(void) { __atomic_store_n(&taken_since, now_ns(), __ATOMIC_RELEASE); }
    static void await_gil(void) {
        long long since;
        while ((since = __atomic_load_n(&taken_since, __ATOMIC_ACQUIRE)) != 0) {
            if (now_ns() - since > SPIN_NS) return;
    #if defined(__x86_64__) || defined(__i386__)
            __builtin_ia32_pause();
    #endif
        }
    }
    """
    void gil_given() noexcept nogil
    void gil_taken() noexcept nogil
    void await_gil() noexcept nogil


cdef class ThreadParser:
    """One thread's event parser, with the names that it has met and the buffers it reads into."""

    def __dealloc__(self):
        free_sax(self.sax)

    cdef Sax* events(self) noexcept nogil:
        """The event parser; NULL if there is none to be had."""
        if self.sax == NULL and sax_works:
            self.sax = new_sax(False)
        return self.sax

    cdef void release(self) noexcept nogil:
        """Free what the last document has left, as far as it is more than a parser may keep.

        To be called once the columns of that document are no longer needed.
        """
        cdef Sax* sax = self.sax
        if sax == NULL:
            return
        if sax.spent or (sax.touched and is_swollen(sax)):
            free_sax(sax)
            self.sax = NULL
        else:
            sax.touched = False
            trim(&sax.walk)


cdef class Walker:
    """Reading with one set of options. It has no state of its own: threads may share it."""

    def __init__(self, type cls not None, Vocabulary vocabulary not None, tuple bounds not None,
                 bint values, bint blanks, bint grow, bint huge, bint fast=True,
                 bint entities=False):
        self.cls = cls
        self.vocabulary = vocabulary
        (self.bounds.nodes, self.bounds.depth, self.bounds.attribute, self.bounds.text,
         self.bounds.names, self.bounds.name_bytes) = bounds
        self.values = values
        self.blanks = blanks
        self.grow = grow
        self.huge = huge
        self.fast = fast
        self.entities = entities

    def read(self, bytes document not None, ThreadParser parser not None, int64_t base,
             Consumer consumer=None):
        """The table of a document; None if others have to look at it first.

        That is so if it has a DOCTYPE or may be in an encoding whose markup is not ASCII. The
        consumer gets the columns only if they were read from events. Raises WalkStopped or
        ParseFailed.
        """
        cdef const char* text = PyBytes_AS_STRING(document)
        cdef Py_ssize_t size = len(document)
        cdef bint consumed = consumer is not None
        cdef bint fine
        cdef Raw raw
        if not is_plain(text, size):
            return None
        with nogil:
            gil_given()
            fine = self._parse(parser, text, size, base, &raw)
            if fine and consumed:
                consumer.consume(&raw)
            await_gil()
        gil_taken()
        try:
            if fine:
                return self._table(parser, &raw, document)
            if parser.sax != NULL:
                raise_failure(parser.sax)
        finally:
            parser.release()
        return self.read_tree(document, base)

    cdef bint read_raw(self, ThreadParser parser, const char* text, Py_ssize_t size,
                       Raw* raw) noexcept nogil:
        """Read a document into the parser's buffers; whether it went through without complaint.

        The columns are valid until the parser's next document, or until `parser.release()`, which
        the caller should call when it has done with them. If False comes back, `Reader.read` says
        what is wrong with the document, or reads it in its more careful way.
        """
        cdef Sax* sax
        if self.entities:
            # Of what the fast reader reads, it is known that it refers to none.
            sax = self._begin(parser, text, size)
            return sax != NULL and self._fast(sax, text, size, 0,
                                              load_int(self.vocabulary._count), raw)
        return is_plain(text, size) and self._parse(parser, text, size, 0, raw)

    cdef bint _parse(self, ThreadParser parser, const char* text, Py_ssize_t size, int64_t base,
                     Raw* raw) noexcept nogil:
        cdef int32_t count = load_int(self.vocabulary._count)
        cdef Sax* sax = self._begin(parser, text, size)
        if sax == NULL:
            return False
        if self._fast(sax, text, size, base, count, raw):
            return True
        begin_again(&sax.walk)
        if not begin_events(sax, base, count, False):
            return False
        sax.spent = sax.touched = True
        parse_events(sax, text, <int>size, self.huge)
        if not end_events(sax, self.vocabulary):
            return False
        sax.spent = False
        expose(&sax.walk, raw, 0 if self.grow else count)
        return True

    cdef Sax* _begin(self, ThreadParser parser, const char* text, Py_ssize_t size) noexcept nogil:
        """The parser's events, ready for a document; NULL if that cannot be."""
        cdef int32_t capacity = rows_for(text, size, self.bounds.nodes)
        cdef int32_t room = room_for_values(size, self.values, self.fast)
        cdef Sax* sax
        parser.release()
        sax = parser.events()
        if sax == NULL or size > LONGEST or not begin_walk(&sax.walk, capacity, room):
            return NULL
        sax.walk.values = self.values
        sax.walk.blanks = self.blanks
        sax.walk.grow = self.grow
        sax.walk.bounds = self.bounds
        return sax

    cdef bint _fast(self, Sax* sax, const char* text, Py_ssize_t size, int64_t base, int32_t count,
                    Raw* raw) noexcept nogil:
        """Whether the fast reader has read a document."""
        if not (self.fast and fast_works):
            return False
        sax.fast = begin_fast(sax.fast, &sax.walk, size, base, count, False)
        if (sax.fast == NULL or not read_fast(sax.fast, text, size)
                or name_rows(&sax.walk, &sax.fast.names, self.vocabulary) != FINE):
            return False
        expose(&sax.walk, raw, 0 if self.grow else count)
        return True

    def read_plain(self, bytes document not None, ThreadParser parser not None, int64_t base,
                   Consumer consumer=None):
        """The table of a document if the fast reader reads it, which refers to no entities; or None.

        The consumer gets the columns of such a document.
        """
        cdef const char* text = PyBytes_AS_STRING(document)
        cdef Py_ssize_t size = len(document)
        cdef bint consumed = consumer is not None
        cdef bint fine = False
        cdef Sax* sax
        cdef Raw raw
        with nogil:
            sax = self._begin(parser, text, size)
            if sax != NULL:
                fine = self._fast(sax, text, size, base, load_int(self.vocabulary._count), &raw)
                if fine and consumed:
                    consumer.consume(&raw)
        try:
            return self._table(parser, &raw, document) if fine else None
        finally:
            parser.release()

    cdef object _table(self, ThreadParser parser, Raw* raw, bytes document):
        cdef Columns table = self.cls.__new__(self.cls)
        if is_kept(&parser.sax.walk):
            keep(&parser.sax.walk, table)
        else:
            pack(raw, table)
        table.known = raw.known
        table.vocabulary = self.vocabulary
        table._document = document
        table._huge = self.huge
        table._blanks = self.blanks
        return table

    cdef object _walk(self, void* root, bint is_own, Py_ssize_t size, int64_t base,
                      int16_t level):
        # The table of the subtree below an element; `size` is about how many bytes it has.
        cdef Columns table = self.cls.__new__(self.cls)
        cdef Walk work
        cdef MetNames names
        cdef Raw raw
        cdef Status status
        cdef int32_t capacity = <int32_t>min(size // 8 + 16, self.bounds.nodes)
        cdef int32_t room = <int32_t>min(size // 2, 1 << 29) + 16 if self.values else 0
        cdef int32_t known = load_int(self.vocabulary._count)
        memset(&work, 0, sizeof(work))
        memset(&names, 0, sizeof(names))
        work.names = &names
        work.values = self.values
        work.blanks = self.blanks
        work.grow = self.grow
        work.bounds = self.bounds
        work.is_own = is_own
        work.lengthy = size > min(work.bounds.attribute, work.bounds.text)
        table.known = 0 if self.grow else known
        try:
            if not begin_walk(&work, capacity, room) or not begin_names(&names, known, False):
                raise MemoryError
            with nogil:
                status = walk_tree(&work, <tree.xmlNode*>root, base, level)
                if status == FINE:
                    status = name_rows(&work, &names, self.vocabulary)
            if status == OUT_OF_MEMORY:
                raise MemoryError
            if status != FINE:
                raise WalkStopped(REASONS[status], work.elements)
            if is_kept(&work):
                keep(&work, table)
            else:
                expose(&work, &raw, table.known)
                pack(&raw, table)
        finally:
            forget(&work)
            free_met(&names)
            free(work.uris.slots)
        table.vocabulary = self.vocabulary
        table._huge = self.huge
        table._blanks = self.blanks
        return table

    def read_tree(self, bytes document not None, int64_t base=0, int16_t level=0, *,
                  bint resolve=False, bint wrapped=False):
        """The table of a document by way of its tree; None if it has a DOCTYPE that may not be.

        With `resolve`, a DOCTYPE may be there, and the characters it declares are put in their
        places: the caller has made sure that it declares nothing else. With `wrapped`, the
        table is that of the only child of the root element.
        """
        cdef Document own
        cdef cetree._Element root
        cdef Columns table
        if trees_work:
            own = parse_tree(document, self.huge, resolve)
            if own.doc.intSubset != NULL and not resolve:
                return None
            table = self._walk(own.top(wrapped), True, len(document), base, level)
        else:
            root = fromstring(document, tree_parser(self.huge, "internal" if resolve else False))
            if root._c_node.doc.intSubset != NULL and not resolve:
                return None
            table = self._walk(top_element(root._c_node, wrapped), False, len(document), base, level)
        table._document = document
        table._resolve = resolve
        table._wrapped = wrapped
        return table


cdef object raise_failure(Sax* sax):
    # What kept a document from being read, if that is known; nothing if a tree may do better.
    if sax.status == OUT_OF_MEMORY:
        raise MemoryError
    if sax.status == ENTITY:
        return
    if sax.status != FINE:
        raise WalkStopped(REASONS[sax.status], sax.walk.elements)
    if is_malformed(sax) and sax.complaint.is_there:
        raise failure(&sax.complaint)


cdef object failure(Complaint* complaint):
    if not complaint.is_there:
        return ParseFailed(0, "not well-formed", 1, 1)
    return ParseFailed(complaint.code, (<bytes>complaint.message).decode("utf-8", "replace").strip(),
                       complaint.line, complaint.column)


class ParseFailed(Exception):
    """The document is not well-formed: the parser's first error, with its number and place."""

    def __init__(self, code, reason, line, column):
        super().__init__(reason)
        self.code = code
        self.msg = reason
        self.position = (line, column)


cdef inline bint is_plain(const char* text, Py_ssize_t size) noexcept nogil:
    # Whether a document may be read from events: its markup is ASCII, and it has no DOCTYPE. An
    # empty or a one-byte document ends in the zero that ends every bytes object.
    return (text[0] != 0 and <uint8_t>text[0] < 0xfe and text[1] != 0
            and doctype_at(text, size, NULL) < 0)


cdef object table_of_packed(Walker walker, char* block, size_t size, int32_t rows, int32_t known,
                            bytes document):
    """A table that owns a block from `pack_raw`, of a document that this walker has read.

    `size`, `rows` and `known` are as `pack_raw` and the Raw said. The block is the table's from
    here on, also if this raises.
    """
    cdef Columns table
    try:
        table = walker.cls.__new__(walker.cls)
        own_packed(table, block, size, rows, walker.values)
    except:
        free(block)
        raise
    table.known = known
    table.vocabulary = walker.vocabulary
    table._document = document
    table._huge = walker.huge
    table._blanks = walker.blanks
    return table
