"""The automaton of Aho and Corasick over bytes; see `_scanner.pxd` for how it is used."""

from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset


cdef Scanner* new_scanner() noexcept nogil:
    """An empty scanner, or NULL if there is no memory."""
    cdef Scanner* scanner = <Scanner*>calloc(1, sizeof(Scanner))
    if scanner == NULL:
        return NULL
    scanner.mask = 255
    scanner.keys = <uint64_t*>calloc(256, sizeof(uint64_t))
    scanner.ends = <int32_t*>malloc(256 * sizeof(int32_t))
    if scanner.keys == NULL or scanner.ends == NULL or new_node(scanner, 0, 0) < 0:
        free_scanner(scanner)
        return NULL
    return scanner


cdef void free_scanner(Scanner* scanner) noexcept nogil:
    """Takes NULL as well."""
    if scanner != NULL:
        free(scanner.nodes)
        free(scanner.keys)
        free(scanner.ends)
        free(scanner.found)
        free(scanner)


cdef int64_t scanner_bytes(Scanner* scanner) noexcept nogil:
    return (sizeof(Scanner) + <int64_t>scanner.room * sizeof(Node)
            + <int64_t>(scanner.mask + 1) * (sizeof(uint64_t) + sizeof(int32_t))
            + <int64_t>scanner.literals * sizeof(int32_t))


cdef bint add_literal(Scanner* scanner, const char* text, int32_t length,
                      int32_t place) noexcept nogil:
    """Look for a literal that is not empty, each literal once. False: no memory."""
    cdef int32_t node = 0
    cdef int32_t i, below
    for i in range(length):
        below = child(scanner, node, <uint8_t>text[i])
        if below == 0:
            below = new_node(scanner, node, <uint8_t>text[i])
            if below < 0:
                return False
        node = below
    scanner.nodes[node].place = place
    scanner.literals += 1
    return True


cdef bint link_scanner(Scanner* scanner) noexcept nogil:
    """Make it ready when all literals have been added. False: no memory."""
    cdef int32_t* order = by_depth(scanner)
    cdef int32_t i, at, fail, below
    cdef Node* node
    scanner.found = <int32_t*>malloc((scanner.literals + 1) * sizeof(int32_t))
    if order == NULL or scanner.found == NULL:
        free(order)
        return False
    for i in range(1, scanner.count):
        at = order[i]
        node = &scanner.nodes[at]
        if node.parent != 0:
            fail = scanner.nodes[node.parent].fail
            below = child(scanner, fail, node.byte)
            while below == 0 and fail != 0:
                fail = scanner.nodes[fail].fail
                below = child(scanner, fail, node.byte)
            node.fail = below
        fail = node.fail
        node.shorter = fail if scanner.nodes[fail].place >= 0 else scanner.nodes[fail].shorter
    free(order)
    return True


cdef int32_t* by_depth(Scanner* scanner) noexcept nogil:
    # The nodes, those nearer to the root first; NULL: no memory.
    cdef int32_t* order = <int32_t*>malloc(scanner.count * sizeof(int32_t))
    cdef int32_t* begins = <int32_t*>calloc(scanner.count + 2, sizeof(int32_t))
    cdef int32_t i
    if order == NULL or begins == NULL:
        free(order)
        free(begins)
        return NULL
    for i in range(scanner.count):
        begins[scanner.nodes[i].depth + 1] += 1
    for i in range(scanner.count):
        begins[i + 1] += begins[i]
    for i in range(scanner.count):
        order[begins[scanner.nodes[i].depth]] = i
        begins[scanner.nodes[i].depth] += 1
    free(begins)
    return order


cdef void scan(Scanner* scanner, const char* text, int32_t length) noexcept nogil:
    """Find the literals that occur in a text, each once however often it does."""
    cdef int32_t node = 0
    cdef int32_t i, below, at
    cdef uint8_t byte
    next_stamp(scanner)
    for i in range(length):
        byte = <uint8_t>text[i]
        below = child(scanner, node, byte)
        while below == 0 and node != 0:
            node = scanner.nodes[node].fail
            below = child(scanner, node, byte)
        node = below
        at = node if scanner.nodes[node].place >= 0 else scanner.nodes[node].shorter
        # Where an earlier place of this text has come by, all that is shorter is found too.
        while at != 0 and scanner.nodes[at].stamp != scanner.stamp:
            scanner.nodes[at].stamp = scanner.stamp
            scanner.found[scanner.found_count] = scanner.nodes[at].place
            scanner.found_count += 1
            at = scanner.nodes[at].shorter


cdef int32_t begin(Scanner* scanner, const char* text, int32_t length) noexcept nogil:
    """Find the literals that a text begins with; how many bytes were looked at."""
    cdef int32_t node = 0
    cdef int32_t i
    scanner.found_count = 0
    for i in range(length):
        node = child(scanner, node, <uint8_t>text[i])
        if node == 0:
            return i + 1
        if scanner.nodes[node].place >= 0:
            scanner.found[scanner.found_count] = scanner.nodes[node].place
            scanner.found_count += 1
    return length


cdef void next_stamp(Scanner* scanner) noexcept nogil:
    cdef int32_t i
    scanner.found_count = 0
    scanner.stamp += 1
    if scanner.stamp == 0:
        for i in range(scanner.count):
            scanner.nodes[i].stamp = 0
        scanner.stamp = 1


cdef inline uint64_t mixed(uint64_t key) noexcept nogil:
    key *= 0x9E3779B97F4A7C15ULL
    return key ^ (key >> 32)


cdef inline int32_t child(Scanner* scanner, int32_t node, uint8_t byte) noexcept nogil:
    # The node behind a byte, or 0.
    cdef uint64_t key
    cdef uint32_t slot
    if node == 0:
        return scanner.first[byte]
    key = (<uint64_t>node << 8) | byte
    slot = <uint32_t>mixed(key) & scanner.mask
    while scanner.keys[slot] != 0:
        if scanner.keys[slot] == key:
            return scanner.ends[slot]
        slot = (slot + 1) & scanner.mask
    return 0


cdef int32_t new_node(Scanner* scanner, int32_t parent, uint8_t byte) noexcept nogil:
    # The node's number; -1: no memory.
    cdef int32_t index = scanner.count
    cdef int32_t room
    cdef void* grown
    if index == scanner.room:
        room = index * 2 + 64
        grown = realloc(scanner.nodes, <size_t>room * sizeof(Node))
        if grown == NULL:
            return -1
        scanner.nodes = <Node*>grown
        scanner.room = room
    memset(&scanner.nodes[index], 0, sizeof(Node))
    scanner.nodes[index].parent = parent
    scanner.nodes[index].byte = byte
    scanner.nodes[index].place = -1
    if index > 0:
        scanner.nodes[index].depth = scanner.nodes[parent].depth + 1
        if parent == 0:
            scanner.first[byte] = index
        elif not put_child(scanner, (<uint64_t>parent << 8) | byte, index):
            return -1
    scanner.count += 1
    return index


cdef bint put_child(Scanner* scanner, uint64_t key, int32_t node) noexcept nogil:
    cdef uint32_t slot
    if <uint32_t>scanner.count * 2 > scanner.mask and not more_children(scanner):
        return False
    slot = <uint32_t>mixed(key) & scanner.mask
    while scanner.keys[slot] != 0:
        slot = (slot + 1) & scanner.mask
    scanner.keys[slot] = key
    scanner.ends[slot] = node
    return True


cdef bint more_children(Scanner* scanner) noexcept nogil:
    cdef uint32_t size = (scanner.mask + 1) * 2
    cdef uint64_t* keys = <uint64_t*>calloc(size, sizeof(uint64_t))
    cdef int32_t* ends = <int32_t*>malloc(size * sizeof(int32_t))
    cdef uint32_t i, slot
    if keys == NULL or ends == NULL:
        free(keys)
        free(ends)
        return False
    for i in range(scanner.mask + 1):
        if scanner.keys[i] != 0:
            slot = <uint32_t>mixed(scanner.keys[i]) & (size - 1)
            while keys[slot] != 0:
                slot = (slot + 1) & (size - 1)
            keys[slot] = scanner.keys[i]
            ends[slot] = scanner.ends[i]
    free(scanner.keys)
    free(scanner.ends)
    scanner.keys = keys
    scanner.ends = ends
    scanner.mask = size - 1
    return True
