# The names of a document. Part of _kernel.pyx, which includes it.

# libxml2 keeps one copy of each name and each namespace of a document, so that their addresses
# identify them there. The table below has one entry for each, with its id. A parser that keeps its
# names from document to document keeps the table with them.

cdef struct Met:
    const void* name        # NULL for a namespace itself
    const void* uri
    uint32_t stamp          # the document in which the id can be used as it is
    uint32_t counted        # the document in which it was last counted
    int32_t tag             # the id, -1 - i if it is the i-th pending; or number of the namespace
    int32_t looked_up       # names in the vocabulary when only a weak id was found; else 0
    uint32_t length

cdef struct Pending:
    # A name whose id is looked up when the document is read.
    const void* name
    const void* uri
    int32_t tag
    int32_t element         # the ordinal of the element that it first came with

cdef struct MetNames:
    Met* slots
    uint32_t size
    int shift               # 64 less the binary logarithm of the size
    uint32_t used
    Pending* pending
    int32_t pending_count
    int32_t pending_room
    uint32_t stamp          # of the document at hand
    int32_t count           # distinct names of the document
    int64_t bytes           # of the names, and of each namespace once
    int32_t known           # names in the vocabulary when the document began
    bint keep_weak          # weak names stay apart from each other until the document is read

cdef enum:
    FIRST_NAMES = 8         # binary logarithm of the slots of a new table


cdef void free_met(MetNames* names) noexcept nogil:
    free(names.slots)
    free(names.pending)
    memset(names, 0, sizeof(MetNames))


cdef inline size_t met_size(MetNames* names) noexcept nogil:
    return names.size * sizeof(Met) + <size_t>names.pending_room * sizeof(Pending)


cdef bint begin_names(MetNames* names, int32_t known, bint keep_weak) noexcept nogil:
    # A new document; False if there is no memory.
    if names.slots == NULL or names.stamp == 0xffffffffU:
        free_met(names)
        names.slots = <Met*>calloc(1 << FIRST_NAMES, sizeof(Met))
        if names.slots == NULL:
            return False
        names.size = 1 << FIRST_NAMES
        names.shift = 64 - FIRST_NAMES
    names.stamp += 1
    names.count = 0
    names.bytes = 0
    names.pending_count = 0
    names.known = known
    names.keep_weak = keep_weak
    return True


cdef inline uint32_t met_slot(MetNames* names, const void* name, const void* uri) noexcept nogil:
    return <uint32_t>((<uint64_t>name * 0x9E3779B97F4A7C15ULL
                       + <uint64_t>uri * (SEED | 1)) >> names.shift)


cdef inline Met* find_met(MetNames* names, const void* name, const void* uri) noexcept nogil:
    # The entry of a name, or the empty one where it belongs.
    cdef uint32_t at = met_slot(names, name, uri)
    cdef Met* met = &names.slots[at]
    while (met.name != name or met.uri != uri) and met.counted != 0:
        at = (at + 1) & (names.size - 1)
        met = &names.slots[at]
    return met


cdef bint more_slots(MetNames* names) noexcept nogil:
    cdef Met* old = names.slots
    cdef uint32_t size = names.size
    cdef uint32_t i
    names.slots = <Met*>calloc(<size_t>size * 2, sizeof(Met))
    if names.slots == NULL:
        names.slots = old
        return False
    names.size = size * 2
    names.shift -= 1
    for i in range(size):
        if old[i].counted != 0:
            find_met(names, old[i].name, old[i].uri)[0] = old[i]
    free(old)
    return True


cdef Met* count_met(MetNames* names, const void* name, const void* uri) noexcept nogil:
    # The entry of a name or a namespace, made if it is new, and counted; NULL without memory.
    cdef Met* met
    if names.used * 2 > names.size and not more_slots(names):
        return NULL
    met = find_met(names, name, uri)
    if met.counted == 0:
        met.name = name
        met.uri = uri
        met.length = <uint32_t>strlen(<const char*>(name if name != NULL else uri))
        met.tag = -1
        met.looked_up = -1
        names.used += 1
    if met.counted != names.stamp:
        met.counted = names.stamp
        names.bytes += met.length
        names.count += name != NULL
    return met


cdef inline int32_t met_tag(Walk* walk, MetNames* names, const void* name, const void* uri,
                            Status* status) noexcept nogil:
    # The id of a name, or -1 - i if it is pending.
    cdef uint32_t at = met_slot(names, name, uri)
    cdef Met* met = &names.slots[at]
    while met.name != name or met.uri != uri:
        if met.counted == 0:
            return first_met(walk, names, name, uri, status)
        at = (at + 1) & (names.size - 1)
        met = &names.slots[at]
    if met.stamp == names.stamp:
        return met.tag
    return first_met(walk, names, name, uri, status)


cdef int32_t first_met(Walk* walk, MetNames* names, const void* name, const void* uri,
                       Status* status) noexcept nogil:
    # A name comes for the first time in a document.
    cdef Met* met
    cdef void* grown
    cdef Pending* pending
    if uri != NULL and count_met(names, NULL, uri) == NULL:
        status[0] = OUT_OF_MEMORY
        return 0
    met = count_met(names, name, uri)
    if met == NULL:
        status[0] = OUT_OF_MEMORY
        return 0
    if names.count > walk.bounds.names:
        status[0] = TOO_MANY_NAMES
        return 0
    if names.bytes > walk.bounds.name_bytes:
        status[0] = LONG_NAMES
        return 0
    met.stamp = names.stamp
    if met.tag >= 0 and (met.looked_up == 0
                         or (met.looked_up == names.known and not names.keep_weak)):
        return met.tag
    if names.pending_count == names.pending_room:
        grown = realloc(names.pending, <size_t>(names.pending_room * 2 + 64) * sizeof(Pending))
        if grown == NULL:
            status[0] = OUT_OF_MEMORY
            return 0
        names.pending = <Pending*>grown
        names.pending_room = names.pending_room * 2 + 64
    pending = &names.pending[names.pending_count]
    pending.name = name
    pending.uri = uri
    pending.element = walk.elements
    names.pending_count += 1
    met.tag = -names.pending_count
    return met.tag


cdef int32_t space_of(MetNames* names, Vocabulary vocabulary, const void* uri,
                      bint grow) noexcept nogil:
    # The number of a namespace that was met; -1 if the vocabulary does not have it.
    cdef Met* met
    if uri == NULL:
        return 0
    met = find_met(names, NULL, uri)
    if met.tag < 0 and met.looked_up != names.known or grow and met.tag < 0:
        if grow:
            met.tag = vocabulary.intern_space(<const char*>uri, met.length)
        else:
            met.tag = vocabulary.find_space(<const char*>uri, met.length)
        met.looked_up = names.known
    return met.tag


cdef Status name_rows(Walk* walk, MetNames* names, Vocabulary vocabulary) noexcept nogil:
    # Pending names get their ids, and so do their rows.
    cdef int32_t i, space, tag
    cdef Pending* pending
    cdef Met* met
    if names.pending_count == 0:
        return FINE
    for i in range(names.pending_count):
        pending = &names.pending[i]
        met = find_met(names, pending.name, pending.uri)
        space = space_of(names, vocabulary, pending.uri, walk.grow)
        met.looked_up = 0
        if walk.grow:
            tag = space
            if space >= 0:
                tag = vocabulary.intern(space, <const char*>pending.name, met.length)
            if tag < 0:
                walk.elements = pending.element
                return (VOCABULARY_FULL if tag == FULL else VOCABULARY_BYTES if tag == FULL_BYTES
                        else OUT_OF_MEMORY)
        else:
            tag = -1
            if space >= 0:
                tag = vocabulary.find(space, <const char*>pending.name, met.length)
            if tag < 0:
                tag = vocabulary.wildcard(space)
                met.looked_up = names.known
                if names.keep_weak:
                    met.stamp = 0
        met.tag = tag
        pending.tag = tag
    for i in range(walk.rows):
        if walk.tags[i] < 0:
            walk.tags[i] = names.pending[-1 - walk.tags[i]].tag
    return FINE
