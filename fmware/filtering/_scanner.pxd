"""Many literals looked for in one pass over a text: the automaton of Aho and Corasick.

A scanner is made in three steps: `new_scanner`, `add_literal` for each, `link_scanner`. Then `scan`
and `begin` may be called any number of times, by one thread at a time. What a call finds is in
`found` until the next call. `free_scanner` frees all of it.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef struct Node:
    int32_t parent
    int32_t fail         # the node of the longest proper suffix that begins a literal
    int32_t place        # what the literal that ends here was added with, or -1
    int32_t shorter      # the nearest node on the way by `fail` at which a literal ends, or 0
    int32_t depth
    uint32_t stamp       # the last scan that came here
    uint8_t byte

cdef struct Scanner:
    Node* nodes          # the first is the root
    int32_t count
    int32_t room
    uint64_t* keys       # open hash table of (node, byte) to node; 0: free
    int32_t* ends
    uint32_t mask
    int32_t first[256]   # the nodes below the root
    uint32_t stamp
    int32_t literals
    int32_t* found
    int32_t found_count

cdef Scanner* new_scanner() noexcept nogil
cdef bint add_literal(Scanner* scanner, const char* text, int32_t length,
                      int32_t place) noexcept nogil
cdef bint link_scanner(Scanner* scanner) noexcept nogil
cdef void scan(Scanner* scanner, const char* text, int32_t length) noexcept nogil
cdef int32_t begin(Scanner* scanner, const char* text, int32_t length) noexcept nogil
cdef int64_t scanner_bytes(Scanner* scanner) noexcept nogil
cdef void free_scanner(Scanner* scanner) noexcept nogil
