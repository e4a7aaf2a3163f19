# The walk. Part of _kernel.pyx, which includes it.

cdef enum Status:
    FINE = 0
    OUT_OF_MEMORY = 1
    TOO_MANY_NODES = 2
    TOO_DEEP = 3
    LONG_ATTRIBUTE = 4
    LONG_TEXT = 5
    ENTITY = 6
    TOO_MANY_NAMES = 7
    TOO_MUCH_TEXT = 8
    LONG_NAMES = 9
    VOCABULARY_FULL = 10
    VOCABULARY_BYTES = 11

cdef struct Uris:
    # The namespaces of a tree, which has a copy for every declaration: the first of each sort.
    const char** slots
    uint32_t size
    uint32_t used

cdef struct Walk:
    char* block
    size_t block_size
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
    int32_t room
    bint values
    bint blanks
    bint grow
    bint is_own             # the tree is this walk's alone
    bint lengthy            # the document is long enough to hold a value over its limit
    Bounds bounds
    MetNames* names
    Uris uris               # of a tree
    int32_t elements        # how many elements had begun: where an error lies


cdef extern from *:
    """
    #include <stdint.h>
    #ifdef __linux__
    #include <sys/mman.h>
    #endif
    /* Memory that is about to be touched for the first time: of huge pages it takes a few faults
       instead of thousands. Whether there are any is up to the system. */
    #define HUGE_FROM (4u << 20)
    static void* fresh_memory(size_t size) {
        void* block = malloc(size);
    #if defined(__linux__) && defined(MADV_HUGEPAGE)
        if (block != NULL && size >= HUGE_FROM) {
            uintptr_t begin = (uintptr_t)block & ~(uintptr_t)4095;
            madvise((void*)begin, ((uintptr_t)block + size - begin) & ~(size_t)4095, MADV_HUGEPAGE);
        }
    #endif
        return block;
    }
    #if defined(__GLIBC__)
    #include <malloc.h>
    #endif
    static void tune_malloc(int hold, int most, int spare) {
    #if defined(__GLIBC__)
        mallopt(M_MMAP_THRESHOLD, most);
        mallopt(M_TRIM_THRESHOLD, spare);
        if (!hold) malloc_trim(0);
    #endif
        (void)hold;
        (void)most;
        (void)spare;
    }
    """
    void* fresh_memory(size_t) noexcept nogil
    void tune_malloc(bint, int, int) noexcept nogil

# How many have asked malloc to hold memory. REQUIRES: the GIL.
cdef int holders = 0


def hold_memory():
    """Have malloc keep what is freed, until `release_memory` was called as often as this.

    By default it gives blocks of more than 128 KB back to the system and gets new pages for the
    next one, which are cleared first. Who works through batches of a megabyte, in arrays of that
    size, spends a fifth of the time on that.
    """
    global holders
    holders += 1
    if holders == 1:
        tune_malloc(True, 32 << 20, 512 << 20)


def release_memory():
    """Undo one `hold_memory`; after the last, free memory goes back to the system."""
    global holders
    holders -= 1
    if holders == 0:
        tune_malloc(False, 128 << 10, 128 << 10)


cdef enum:
    # Bytes of scratch, of each sort, that a parser keeps from document to document.
    LASTING = 1 << 20


# Blocks of a few KB are kept for the next document. To malloc each of them is a large request,
# at which it tidies up all the small ones that libxml2 has freed and is about to ask for again.
# REQUIRES: the GIL.
cdef enum:
    UNIT = 1024
    POOLED = 64
    SPARES = 8

cdef void* spares[POOLED + 1][SPARES]
cdef int spare_count[POOLED + 1]


cdef void* take_block(size_t* size) noexcept:
    # At least *size bytes; *size is set to how many there are.
    cdef size_t units = size[0] // UNIT + 1
    size[0] = units * UNIT
    if units <= POOLED and spare_count[units] > 0:
        spare_count[units] -= 1
        return spares[units][spare_count[units]]
    return malloc(size[0])


cdef void give_block(void* block, size_t size) noexcept:
    cdef size_t units = size // UNIT
    if block != NULL and 0 < units <= POOLED and spare_count[units] < SPARES:
        spares[units][spare_count[units]] = block
        spare_count[units] += 1
    else:
        free(block)


cdef inline size_t bytes_of(size_t rows) noexcept nogil:
    return rows * 31 + 4


cdef void lay_out(Walk* walk, char* block, int32_t capacity) noexcept nogil:
    # All columns in one block, the widest first, so that each is aligned.
    cdef size_t n = <size_t>capacity
    walk.block = block
    walk.capacity = capacity
    walk.starts = <int64_t*>block
    walk.ends = <int64_t*>(block + n * 8)
    walk.tags = <int32_t*>(block + n * 16)
    walk.parents = <int32_t*>(block + n * 20)
    walk.offsets = <int32_t*>(block + n * 24)  # one more than there are rows
    walk.levels = <int16_t*>(block + n * 28 + 4)
    walk.kinds = <uint8_t*>(block + n * 30 + 4)


cdef Status more_rows(Walk* walk) noexcept nogil:
    cdef Walk old = walk[0]
    cdef size_t n = <size_t>walk.rows
    cdef int32_t capacity = walk.bounds.nodes
    cdef char* block
    if walk.capacity >= capacity:
        return TOO_MANY_NODES
    if walk.capacity < capacity // 2:
        capacity = walk.capacity * 2
    block = <char*>fresh_memory(bytes_of(<size_t>capacity))
    if block == NULL:
        return OUT_OF_MEMORY
    walk.block_size = bytes_of(<size_t>capacity)
    lay_out(walk, block, capacity)
    memcpy(walk.starts, old.starts, n * 8)
    memcpy(walk.ends, old.ends, n * 8)
    memcpy(walk.tags, old.tags, n * 4)
    memcpy(walk.parents, old.parents, n * 4)
    memcpy(walk.offsets, old.offsets, n * 4)
    memcpy(walk.levels, old.levels, n * 2)
    memcpy(walk.kinds, old.kinds, n)
    free(old.block)
    return FINE


cdef const char* same_uri(Uris* uris, const char* uri) noexcept nogil:
    # The first copy of a namespace that was met; NULL without memory.
    cdef uint32_t length = <uint32_t>strlen(uri)
    cdef Uris old = uris[0]
    cdef uint32_t i, at
    if uris.used * 2 >= uris.size:
        uris.size = old.size * 2 if old.size else 16
        uris.slots = <const char**>calloc(uris.size, sizeof(char*))
        if uris.slots == NULL:
            uris[0] = old
            return NULL
        for i in range(old.size):
            if old.slots[i] != NULL:
                at = uri_slot(uris, old.slots[i], <uint32_t>strlen(old.slots[i]))
                uris.slots[at] = old.slots[i]
        free(old.slots)
    at = uri_slot(uris, uri, length)
    if uris.slots[at] == NULL:
        uris.slots[at] = uri
        uris.used += 1
    return uris.slots[at]


cdef uint32_t uri_slot(Uris* uris, const char* uri, uint32_t length) noexcept nogil:
    cdef uint32_t at = <uint32_t>mix(SEED, uri, length) & (uris.size - 1)
    while uris.slots[at] != NULL and strcmp(uris.slots[at], uri) != 0:
        at = (at + 1) & (uris.size - 1)
    return at


cdef inline int32_t tag_of(Walk* walk, const tree.xmlChar* name, tree.xmlNs* ns,
                           Status* status) noexcept nogil:
    cdef const char* uri
    if ns == NULL or ns.href == NULL:
        return met_tag(walk, walk.names, name, NULL, status)
    if not walk.is_own:
        uri = same_uri(&walk.uris, <const char*>ns.href)
    else:
        # The tree is ours, and nothing else uses this field.
        uri = <const char*>(<PrivateNs*>ns)._private
        if uri == NULL:
            uri = same_uri(&walk.uris, <const char*>ns.href)
            (<PrivateNs*>ns)._private = <void*>uri
    if uri == NULL:
        status[0] = OUT_OF_MEMORY
        return 0
    return met_tag(walk, walk.names, name, uri, status)


cdef bint is_no_text(tree.xmlNode* node, bint blanks) noexcept nogil:
    # Whether text and the text that adjoins it is empty, or blank where blanks do not count.
    cdef const tree.xmlChar* text
    while node != NULL and (node.type == tree.XML_TEXT_NODE
                            or node.type == tree.XML_CDATA_SECTION_NODE):
        text = node.content
        if text != NULL:
            if not blanks:
                while text[0] == 32 or text[0] == 10 or text[0] == 9 or text[0] == 13:
                    text += 1
            if text[0] != 0:
                return False
        node = node.next
    return True


cdef inline bint may_be_no_text(tree.xmlNode* node, bint blanks) noexcept nogil:
    return not blanks or node.content == NULL or (
        <void*>node.content == <void*>&node.properties and node.content[0] == 0)


cdef inline Status append_value(Walk* walk, const tree.xmlChar* text) noexcept nogil:
    cdef size_t size
    cdef size_t room
    cdef void* p
    if text == NULL:
        return FINE
    size = strlen(<const char*>text)
    if size > <size_t>(0x7ffffff0 - walk.length):
        return TOO_MUCH_TEXT
    if <int32_t>size > walk.room - walk.length:
        room = (<size_t>walk.length + size) * 2
        if room > 0x7ffffff0:
            room = 0x7ffffff0
        p = realloc(walk.text, room)
        if p == NULL:
            return OUT_OF_MEMORY
        walk.text = <char*>p
        walk.room = <int32_t>room
    memcpy(walk.text + walk.length, text, size)
    walk.length += <int32_t>size
    return FINE


cdef Status add_attributes(Walk* walk, tree.xmlNode* element, int32_t row, int16_t level,
                           int64_t* tick) noexcept nogil:
    cdef tree.xmlAttr* attribute = element.properties
    cdef tree.xmlNode* part
    cdef int32_t begin
    cdef Status status = FINE
    cdef int32_t at
    while attribute != NULL:
        if walk.rows == walk.capacity:
            status = more_rows(walk)
            if status != FINE:
                return status
        at = walk.rows
        walk.rows += 1
        walk.kinds[at] = kATTRIBUTE
        walk.tags[at] = tag_of(walk, attribute.name, attribute.ns, &status)
        if status != FINE:
            return status
        walk.parents[at] = row
        walk.levels[at] = level
        walk.starts[at] = tick[0]
        walk.ends[at] = tick[0] + 1
        tick[0] += 2
        begin = walk.length
        walk.offsets[at] = begin
        part = attribute.children
        while part != NULL:
            if part.type != tree.XML_TEXT_NODE and part.type != tree.XML_CDATA_SECTION_NODE:
                return ENTITY
            if walk.values:
                status = append_value(walk, part.content)
                if status != FINE:
                    return status
            elif walk.lengthy and part.content != NULL and strlen(<const char*>part.content) > <size_t>walk.bounds.attribute:
                return LONG_ATTRIBUTE
            part = part.next
        if walk.length - begin > walk.bounds.attribute:
            return LONG_ATTRIBUTE
        attribute = attribute.next
    return FINE


cdef Status walk_tree(Walk* walk, tree.xmlNode* root, int64_t base,
                      int16_t base_level) noexcept nogil:
    cdef tree.xmlNode* node = root
    cdef int32_t parent = -1
    cdef int32_t at
    cdef int32_t joined = -1      # the text row that adjacent text belongs to
    cdef int64_t tick = base
    cdef int16_t level = base_level
    cdef int32_t type
    cdef Status status = FINE
    while True:
        type = node.type
        if type == tree.XML_ELEMENT_NODE:
            joined = -1
            if walk.rows == walk.capacity:
                status = more_rows(walk)
                if status != FINE:
                    return status
            walk.elements += 1
            if level - base_level >= walk.bounds.depth:
                return TOO_DEEP
            at = walk.rows
            walk.rows += 1
            walk.kinds[at] = kELEMENT
            walk.tags[at] = tag_of(walk, node.name, node.ns, &status)
            if status != FINE:
                return status
            walk.parents[at] = parent
            walk.levels[at] = level
            walk.starts[at] = tick
            walk.offsets[at] = walk.length
            tick += 1
            if node.properties != NULL:
                status = add_attributes(walk, node, at, level + 1, &tick)
                if status != FINE:
                    return status
            if node.children != NULL:
                node = node.children
                parent = at
                level += 1
                continue
            walk.ends[at] = tick
            tick += 1
        elif type == tree.XML_TEXT_NODE or type == tree.XML_CDATA_SECTION_NODE:
            # Text of a few bytes, or none, lies in the node itself: longer text is not looked at,
            # which would mean to wait for its memory.
            if joined < 0 and (not may_be_no_text(node, walk.blanks)
                               or not is_no_text(node, walk.blanks)):
                if walk.rows == walk.capacity:
                    status = more_rows(walk)
                    if status != FINE:
                        return status
                joined = walk.rows
                walk.rows += 1
                walk.kinds[joined] = kTEXT
                walk.tags[joined] = tTEXT
                walk.parents[joined] = parent
                walk.levels[joined] = level
                walk.starts[joined] = tick
                walk.ends[joined] = tick + 1
                walk.offsets[joined] = walk.length
                tick += 2
            if joined >= 0:
                if walk.values:
                    status = append_value(walk, node.content)
                    if status != FINE:
                        return status
                    if walk.length - walk.offsets[joined] > walk.bounds.text:
                        return LONG_TEXT
                elif walk.lengthy and node.content != NULL and strlen(<const char*>node.content) > <size_t>walk.bounds.text:
                    return LONG_TEXT
        elif type == tree.XML_COMMENT_NODE or type == tree.XML_PI_NODE:
            joined = -1
        else:
            return ENTITY
        while node.next == NULL or node == root:
            if node == root:
                walk.offsets[walk.rows] = walk.length
                return FINE
            node = node.parent
            walk.ends[parent] = tick
            tick += 1
            parent = walk.parents[parent]
            level -= 1
            joined = -1
            if node == root:
                walk.offsets[walk.rows] = walk.length
                return FINE
        node = node.next


cdef void forget(Walk* walk) noexcept nogil:
    free(walk.block)
    free(walk.text)
    walk.block = NULL
    walk.block_size = 0
    walk.text = NULL
    walk.room = 0


cdef void trim(Walk* walk) noexcept nogil:
    # What one long document needed must not stay for good.
    if walk.block_size > LASTING:
        free(walk.block)
        walk.block = NULL
        walk.block_size = 0
    if <size_t>walk.room > LASTING:
        free(walk.text)
        walk.text = NULL
        walk.room = 0


cdef bint begin_walk(Walk* walk, int32_t capacity, int32_t room) noexcept nogil:
    # Room for so many rows and bytes, in the blocks of the document before if they are enough.
    cdef size_t size = bytes_of(<size_t>capacity)
    walk.rows = 0
    walk.length = 0
    walk.elements = 0
    if walk.block == NULL or walk.block_size < size:
        free(walk.block)
        walk.block = <char*>fresh_memory(size)
        walk.block_size = size
    if walk.text == NULL or walk.room < room:
        free(walk.text)
        walk.text = <char*>fresh_memory(<size_t>room + 1)
        walk.room = room
    if walk.block == NULL or walk.text == NULL:
        forget(walk)
        return False
    lay_out(walk, walk.block, capacity)
    return True


cdef void expose(Walk* walk, Raw* raw, int32_t known) noexcept nogil:
    # The columns as others see them; they stay where they are.
    walk.offsets[walk.rows] = walk.length
    raw.kinds = walk.kinds
    raw.tags = walk.tags
    raw.parents = walk.parents
    raw.levels = walk.levels
    raw.starts = walk.starts
    raw.ends = walk.ends
    raw.offsets = walk.offsets if walk.values else NULL
    raw.text = walk.text
    raw.rows = walk.rows
    raw.known = known
    raw.continued = False


cdef inline char* put(char* to, void* data, size_t size) noexcept nogil:
    memcpy(to, data, size)
    return to + size


@cython.final
cdef class Blocks:
    """The memory of a table."""

    cdef char* block
    cdef size_t size
    cdef char* text     # of a large table only: it lies apart

    def __dealloc__(self):
        give_block(self.block, self.size)
        free(self.text)


cdef inline bint is_kept(Walk* walk) noexcept nogil:
    # Whether a table takes over the memory that its document was read into: it is more than a
    # parser keeps, and most of it is used.
    return walk.block_size > LASTING and walk.rows >= walk.capacity // 2


cdef object keep(Walk* walk, Columns table):
    # A copy would touch as many pages again.
    cdef Blocks blocks = Blocks.__new__(Blocks)
    cdef void* text = realloc(walk.text, walk.length + 1)
    if text != NULL:
        walk.text = <char*>text
    blocks.block = walk.block
    blocks.size = walk.block_size
    blocks.text = walk.text
    table._owner = blocks
    table.rows = walk.rows
    table.starts = walk.starts
    table.ends = walk.ends
    table.tags = walk.tags
    table.parents = walk.parents
    table.levels = walk.levels
    table.kinds = walk.kinds
    table.offsets = walk.offsets if walk.values else NULL
    table.text = walk.text
    walk.block = NULL
    walk.text = NULL
    forget(walk)


cdef inline size_t packed_size(Raw* raw) noexcept nogil:
    cdef size_t size = <size_t>raw.rows * 27
    if raw.offsets != NULL:
        size += (<size_t>raw.rows + 1) * 4 + <size_t>raw.offsets[raw.rows]
    return size


cdef void copy_raw(Raw* raw, char* to) noexcept nogil:
    cdef size_t n = <size_t>raw.rows
    to = put(to, raw.starts, n * 8)
    to = put(to, raw.ends, n * 8)
    to = put(to, raw.tags, n * 4)
    to = put(to, raw.parents, n * 4)
    if raw.offsets != NULL:
        to = put(to, raw.offsets, (n + 1) * 4)
    to = put(to, raw.levels, n * 2)
    to = put(to, raw.kinds, n)
    if raw.offsets != NULL:
        memcpy(to, raw.text, <size_t>raw.offsets[n])


cdef char* pack_raw(Raw* raw, size_t* size) noexcept nogil:
    """The columns in one block from malloc, which the caller owns; NULL if there is no memory.

    *size is set to the bytes of the block, as `table_of_packed` wants to know them.
    """
    cdef char* block
    size[0] = packed_size(raw)
    block = <char*>malloc(size[0])
    if block != NULL:
        copy_raw(raw, block)
    return block


cdef object own_packed(Columns table, char* block, size_t size, int32_t rows, bint values):
    # The table takes a block as `copy_raw` fills it; it is freed with the table.
    cdef size_t n = <size_t>rows
    cdef char* at = block
    cdef Blocks blocks = Blocks.__new__(Blocks)
    blocks.block = block
    blocks.size = size
    table._owner = blocks
    table.rows = rows
    table.starts = <int64_t*>at
    at += n * 8
    table.ends = <int64_t*>at
    at += n * 8
    table.tags = <int32_t*>at
    at += n * 4
    table.parents = <int32_t*>at
    at += n * 4
    table.offsets = NULL
    if values:
        table.offsets = <int32_t*>at
        at += (n + 1) * 4
    table.levels = <int16_t*>at
    at += n * 2
    table.kinds = <uint8_t*>at
    table.text = at + n


cdef object pack(Raw* raw, Columns table):
    # One block of about the right size: a table that is kept costs little slack.
    cdef size_t size = packed_size(raw)
    cdef char* block = <char*>take_block(&size)
    if block == NULL:
        raise MemoryError
    copy_raw(raw, block)
    own_packed(table, block, size, raw.rows, raw.offsets != NULL)


class WalkStopped(Exception):
    """The walk met what it may not pass: `reason` says what, `element` in which element."""

    position = (1, 1)

    def __init__(self, reason, element):
        super().__init__(reason)
        self.reason = reason
        self.element = element


REASONS = {
    TOO_MANY_NODES: "nodes",
    TOO_DEEP: "depth",
    LONG_ATTRIBUTE: "attribute",
    LONG_TEXT: "text",
    ENTITY: "entity",
    TOO_MANY_NAMES: "names",
    LONG_NAMES: "name_bytes",
    VOCABULARY_FULL: "vocabulary",
    VOCABULARY_BYTES: "vocabulary_size",
    TOO_MUCH_TEXT: "bytes",
}
