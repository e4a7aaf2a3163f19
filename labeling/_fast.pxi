# The fast reader and the columns that it writes. Part of _kernel.pyx, which includes it.

# fast_reader.h reads the common documents; whatever it gives up on is read by libxml2. It has names
# of its own, with addresses that identify them, so that `met_tag` serves both.

cdef extern from "fast_reader.h" nogil:
    enum:
        FM_READ
        FM_MARKUP
        FM_DOCTYPE
        FM_ENCODING
        FM_CHARACTER
        FM_NAME
        FM_ATTRIBUTES
        FM_NAMESPACE
        FM_REFERENCE
        FM_SIZE
        FM_MEMORY
        FM_REASONS
        FM_NO_TAG
    ctypedef struct fm_reader:
        void* owner
        int32_t (*resolve)(void*, const char*, const char*) noexcept nogil
        int (*grow)(void*, fm_reader*) noexcept nogil
        uint8_t* kinds
        int32_t* tags
        int32_t* parents
        int16_t* levels
        int64_t* starts
        int64_t* ends
        int32_t* offsets
        int32_t rows
        int32_t capacity
        char* text
        int32_t length
        int32_t depth
        int32_t attribute_bytes
        int32_t text_bytes
        bint values
        bint blanks
        int64_t tick
        const int64_t* bases
        const int16_t* record_levels
        int64_t* firsts
        Py_ssize_t records
        int32_t record_nodes
        int32_t elements
        Py_ssize_t met
        size_t held
    void fm_begin()
    bint fm_prepare(fm_reader*, uint64_t, bint)
    void fm_forget(fm_reader*)
    bint fm_has_avx2()
    size_t fm_count_rows(const char*, size_t, bint)
    int fm_read(fm_reader*, const char*, size_t, bint)

cdef extern from *:
    """
    static long long fast_counts[FM_REASONS];
    #define count_document(reason) __atomic_add_fetch(&fast_counts[reason], 1, __ATOMIC_RELAXED)
    #define counted_documents(reason) __atomic_load_n(&fast_counts[reason], __ATOMIC_RELAXED)
    """
    void count_document(int) noexcept nogil
    long long counted_documents(int) noexcept nogil

cdef enum:
    # Bytes that are written behind a value, 32 at a time.
    SLACK = 64
    # Bytes of a document, from which on its rows are counted before it is read.
    COUNTED = 1 << 16

REASON_NAMES = {
    FM_READ: "read",
    FM_MARKUP: "markup",
    FM_DOCTYPE: "doctype",
    FM_ENCODING: "encoding",
    FM_CHARACTER: "character",
    FM_NAME: "name",
    FM_ATTRIBUTES: "attributes",
    FM_NAMESPACE: "namespace",
    FM_REFERENCE: "reference",
    FM_SIZE: "size",
    FM_MEMORY: "memory",
}

cdef bint fast_works = True
cdef bint avx2_works = fm_has_avx2()
fm_begin()


cdef struct Fast:
    # A fast reader, the ids of its names, and the walk whose columns it writes.
    fm_reader reader
    MetNames names
    Walk* walk


cdef void free_fast(Fast* fast) noexcept nogil:
    if fast != NULL:
        fm_forget(&fast.reader)
        free_met(&fast.names)
        free(fast)


cdef int32_t resolve_name(void* owner, const char* local, const char* uri) noexcept nogil:
    cdef Fast* fast = <Fast*>owner
    cdef Status status = FINE
    cdef int32_t tag
    fast.walk.elements = fast.reader.elements
    tag = met_tag(fast.walk, &fast.names, local, uri, &status)
    return tag if status == FINE else FM_NO_TAG


cdef void lend_columns(Fast* fast) noexcept nogil:
    cdef fm_reader* reader = &fast.reader
    cdef Walk* walk = fast.walk
    reader.kinds = walk.kinds
    reader.tags = walk.tags
    reader.parents = walk.parents
    reader.levels = walk.levels
    reader.starts = walk.starts
    reader.ends = walk.ends
    reader.offsets = walk.offsets
    reader.capacity = walk.capacity


cdef int more_columns(void* owner, fm_reader* reader) noexcept nogil:
    cdef Fast* fast = <Fast*>owner
    fast.walk.rows = reader.rows
    if more_rows(fast.walk) != FINE:
        return 0
    lend_columns(fast)
    return 1


cdef Fast* begin_fast(Fast* fast, Walk* walk, Py_ssize_t size, int64_t base, int32_t known,
                      bint keep_weak) noexcept nogil:
    # A fast reader for a new document of that size, made if there is none; NULL without memory. The
    # walk has begun, with room for all bytes of the document and SLACK more.
    cdef bint afresh
    if fast == NULL:
        fast = <Fast*>calloc(1, sizeof(Fast))
        if fast == NULL:
            return NULL
        fast.reader.owner = fast
        fast.reader.resolve = resolve_name
        fast.reader.grow = more_columns
    elif fast.reader.held + met_size(&fast.names) > LASTING:
        fm_forget(&fast.reader)
        free_met(&fast.names)
    fast.walk = walk
    lend_columns(fast)
    fast.reader.rows = 0
    fast.reader.text = walk.text
    fast.reader.length = 0
    fast.reader.depth = walk.bounds.depth
    fast.reader.attribute_bytes = walk.bounds.attribute
    fast.reader.text_bytes = walk.bounds.text
    fast.reader.values = walk.values
    fast.reader.blanks = walk.blanks
    fast.reader.tick = base
    fast.reader.firsts = NULL
    # Ids of names that were final in the document before are so in this one. Names are then not
    # counted, so there must be too few bytes for the limits: a name takes four, with a tag or a
    # value, and each namespace but that of `xml:` is written down.
    afresh = (fast.names.pending_count > 0 or fast.names.known != known
              or fast.names.keep_weak != keep_weak
              or size // 4 >= walk.bounds.names or size + 64 > walk.bounds.name_bytes)
    if not fm_prepare(&fast.reader, SEED, afresh) or not begin_names(&fast.names, known, keep_weak):
        free_fast(fast)
        return NULL
    return fast


cdef int32_t rows_for(const char* text, Py_ssize_t size, int32_t most) noexcept nogil:
    # How many rows to make room for, of a document that may have `most`. Where memory is touched
    # for the first time it is counted; a short document is read into what is there, and grows.
    cdef size_t rows = <size_t>size // 8
    if size > COUNTED:
        rows = fm_count_rows(text, <size_t>size, avx2_works)
    return <int32_t>min(rows + 16, <size_t>most)


cdef bint read_fast(Fast* fast, const char* text, Py_ssize_t size) noexcept nogil:
    # Whether the document was read. Its rows have no names yet.
    cdef int reason = fm_read(&fast.reader, text, <size_t>size, avx2_works)
    count_document(reason)
    fast.walk.rows = fast.reader.rows
    fast.walk.length = fast.reader.length
    fast.walk.elements = fast.reader.elements
    fast.walk.names = &fast.names
    return reason == FM_READ


def use_fast(bint wanted):
    """Read with the fast reader or not; for comparing the two. Says how it was before."""
    global fast_works
    before = fast_works
    fast_works = wanted
    return before


def use_avx2(bint wanted):
    """Use AVX2 where the processor has it, or not; for comparing. Says how it was before."""
    global avx2_works
    before = avx2_works
    avx2_works = wanted and fm_has_avx2()
    return before


def reading_counts():
    """How many documents of this process the fast reader has read, and left to libxml2, by reason.

    `read` are those it has read. The others: see `fm_reason` in fast_reader.h.
    """
    return {name: counted_documents(reason) for reason, name in REASON_NAMES.items()}
