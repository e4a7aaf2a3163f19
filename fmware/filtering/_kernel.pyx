"""The native kernel of filtering.

Three parts, in the order the data goes:

- `Conditions`: predicates as small trees, evaluated on the columns of a NodeTable.
- `Automaton`: the shared NFA in packed arrays. Statements are stripped of their predicates on the
  way in, so that structure is shared as far as it goes. What was stripped comes back as
  *entries*: a statement is cut at its `//` into segments of child steps, so that within a segment
  every step lies a known number of levels above the node that ends it. An entry hangs on the
  state that ends its segment and says which conditions must hold how many levels up, and which
  earlier segment must have ended above.
- `Runner`: one run at a time over one document. It memoises sets of active states as a lazy DFA
  of its own, and fires the entries of the states it enters.

Locking: the automaton has one readers-writer lock. A run holds it for reading, without the GIL,
for the length of one document; a change of statements holds it for writing. So a document is
answered by exactly the statements that were there when its run began. The lock is only ever
waited for without the GIL, and a run never asks for the GIL while it holds the lock.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.math cimport NAN, isnan
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc, strtod
from libc.string cimport memcmp, memcpy, memmove, memset

from labeling._kernel cimport OPEN, Columns, Consumer, Raw, Vocabulary

import numpy as np

from fmware.xpath.tree import (
    And,
    Axis,
    Compare,
    Contains,
    Exists,
    Kind,
    Not,
    Or,
    Position,
    StartsWith,
    positional,
)

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <pthread.h>
    static int lock_init(pthread_rwlock_t* lock) {
        /* Readers come in an endless stream: a writer must not wait for a gap in it. */
        pthread_rwlockattr_t attributes;
        pthread_rwlockattr_init(&attributes);
    #ifdef PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP
        pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    #endif
        return pthread_rwlock_init(lock, &attributes);
    }
    """
    int popcount "__builtin_popcountll"(uint64_t) noexcept nogil
    ctypedef struct pthread_rwlock_t:
        pass
    int lock_init(pthread_rwlock_t*) nogil
    int pthread_rwlock_destroy(pthread_rwlock_t*) nogil
    int pthread_rwlock_rdlock(pthread_rwlock_t*) nogil
    int pthread_rwlock_wrlock(pthread_rwlock_t*) nogil
    int pthread_rwlock_unlock(pthread_rwlock_t*) nogil

cdef enum:
    ELEMENT = 0
    ATTRIBUTE = 1
    TEXT = 2
    CHILD = 0
    DESCENDANT = 1
    ANY = -1             # the test `*`; -2 and below are `prefix:*`, one number a namespace
    NOWHERE = 0x7fff     # the armed depth of a slot that is not armed
    UNKNOWN_TAG = 1
    CLEARED = -2         # a literal's slot after it went
    PLACES = 256


# --- conditions: predicates on the columns ---------------------------------------------------

cdef enum Test:
    ALL = 0
    SOME = 1
    NONE = 2
    EXISTS = 3
    COMPARE = 4
    POSITION = 5
    CONTAINS = 6
    STARTS = 7

cdef enum Op:
    EQ = 0
    NE = 1
    LT = 2
    LE = 3
    GT = 4
    GE = 5

cdef struct Step:
    int8_t axis
    int8_t kind
    int32_t tag
    Cond* cond           # all predicates of the step, or NULL

cdef struct Route:
    int32_t count
    Step* steps

cdef struct Cond:
    int8_t test
    int8_t op
    bint numeric
    double number
    char* text
    int32_t length
    int32_t count
    Cond** terms
    Route route
    int32_t tag          # POSITION: the step's own test ...
    int8_t kind
    Cond* before         # ... and the predicates before it, which decide who is counted

cdef struct Placed:
    # The last position that was asked for below a parent: the next one is counted from there.
    void* asker
    int32_t parent
    int32_t row
    int32_t place
    uint32_t epoch

cdef struct Doc:
    uint8_t* kinds
    int32_t* tags
    int32_t* parents
    int16_t* levels
    int64_t* starts
    int64_t* ends
    int32_t* offsets
    char* text
    int32_t rows
    int32_t* spaces      # namespace wildcard of a tag, 0 if none
    int32_t space_count
    bint partial         # a batch of a larger document: some elements may be open
    bint continued       # and batches came before it
    bint unsure          # what the last condition gave may be otherwise in the whole document
    bint doubted         # and because of that, a node was left out
    int64_t budget       # node visits left for conditions
    char* scratch
    int32_t scratch_size
    Placed* placed
    uint32_t epoch


cdef inline int32_t size_of(Doc* doc, int32_t row) noexcept nogil:
    cdef int32_t last
    if doc.ends[row] == OPEN:
        # It may have ended before the batch does.
        last = row + 1
        while last < doc.rows and doc.levels[last] > doc.levels[row]:
            last += 1
        return last - row
    return <int32_t>((doc.ends[row] - doc.starts[row] + 1) >> 1)


cdef inline bint fits(Doc* doc, int32_t test, int32_t row) noexcept nogil:
    cdef int32_t tag = doc.tags[row]
    if test >= 0:
        return tag == test
    return test == ANY or (tag < doc.space_count and doc.spaces[tag] == test)


cdef double to_number(const char* text, int32_t length) noexcept nogil:
    # XPath's number(): blanks, an optional minus, digits with at most one point, blanks.
    cdef const char* at = text
    cdef const char* end = text + length
    cdef uint64_t digits = 0
    cdef int count = 0
    cdef int scale = 0
    cdef bint negative = False
    cdef bint any_digit = False
    cdef bint exact = True
    cdef double value
    cdef const char* begin
    cdef char buffer[512]
    while at < end and (at[0] == 32 or at[0] == 9 or at[0] == 10 or at[0] == 13):
        at += 1
    while end > at and ((end - 1)[0] == 32 or (end - 1)[0] == 9 or (end - 1)[0] == 10
                        or (end - 1)[0] == 13):
        end -= 1
    begin = at
    if at < end and at[0] == 45:
        negative = True
        at += 1
    while at < end and at[0] >= 48 and at[0] <= 57:
        any_digit = True
        if count < 15:
            digits = digits * 10 + <uint64_t>(at[0] - 48)
            count += digits != 0
        else:
            exact = False
        at += 1
    if at < end and at[0] == 46:
        at += 1
        while at < end and at[0] >= 48 and at[0] <= 57:
            any_digit = True
            if count < 15 and scale < 22:
                digits = digits * 10 + <uint64_t>(at[0] - 48)
                count += digits != 0
                scale += 1
            elif at[0] != 48:
                exact = False
            at += 1
    if at != end or not any_digit:
        return NAN
    if not exact:
        begin += negative
        while begin[0] == 48:
            begin += 1
        if end - begin >= 512:
            end = begin + 511
        memcpy(buffer, begin, end - begin)
        buffer[end - begin] = 0
        value = strtod(buffer, NULL)
        return -value if negative else value
    # At most 15 digits over at most ten to the 22nd: both exact, so one rounding.
    value = <double>digits / POWERS[scale]
    return -value if negative else value


cdef double[23] POWERS
cdef int _power
POWERS[0] = 1.0
for _power in range(1, 23):
    POWERS[_power] = POWERS[_power - 1] * 10.0


cdef bint string_value(Doc* doc, int32_t row, const char** text, int32_t* length) noexcept nogil:
    cdef int32_t last, i, size
    cdef int32_t only = -1
    cdef int32_t total = 0
    cdef int32_t texts = 0
    cdef void* grown
    if doc.kinds[row] != ELEMENT:
        text[0] = doc.text + doc.offsets[row]
        length[0] = doc.offsets[row + 1] - doc.offsets[row]
        return True
    if doc.ends[row] == OPEN:
        doc.unsure = True
    last = row + size_of(doc, row)
    doc.budget -= last - row
    for i in range(row + 1, last):
        if doc.kinds[i] == TEXT:
            texts += 1
            only = i
            total += doc.offsets[i + 1] - doc.offsets[i]
    length[0] = total
    if texts <= 1:
        text[0] = doc.text + doc.offsets[only] if texts else doc.text
        return True
    if total > doc.scratch_size:
        grown = realloc(doc.scratch, total * 2)
        if grown == NULL:
            length[0] = 0
            return False
        doc.scratch = <char*>grown
        doc.scratch_size = total * 2
    total = 0
    for i in range(row + 1, last):
        if doc.kinds[i] == TEXT:
            size = doc.offsets[i + 1] - doc.offsets[i]
            memcpy(doc.scratch + total, doc.text + doc.offsets[i], size)
            total += size
    text[0] = doc.scratch
    return True


cdef inline bint compare_numbers(double left, int8_t op, double right) noexcept nogil:
    if op == EQ:
        return left == right
    if op == NE:
        return left != right
    if op == LT:
        return left < right
    if op == LE:
        return left <= right
    if op == GT:
        return left > right
    return left >= right


cdef bint compare(Doc* doc, Cond* cond, int32_t row) noexcept nogil:
    cdef const char* text = NULL
    cdef int32_t length = 0
    cdef bint same
    string_value(doc, row, &text, &length)
    if cond.numeric:
        return compare_numbers(to_number(text, length), cond.op, cond.number)
    same = length == cond.length and memcmp(text, cond.text, length) == 0
    return same if cond.op == EQ else not same


cdef bint reaches(Doc* doc, Route* route, int32_t index, int32_t row, Cond* test,
                  int32_t* first) noexcept nogil:
    # Whether the route leads from `row` to a node that passes `test`. With `first`, goes on to
    # the end and leaves the smallest row reached there.
    cdef Step* step
    cdef int32_t last, at
    cdef bint deep
    doc.budget -= 1
    if doc.budget < 0:
        return False
    if index == route.count:
        if first != NULL:
            if first[0] < 0 or row < first[0]:
                first[0] = row
            return False
        return test == NULL or test.test != COMPARE or compare(doc, test, row)
    if doc.kinds[row] != ELEMENT:
        return False
    step = &route.steps[index]
    deep = step.axis == DESCENDANT
    if doc.ends[row] == OPEN and (deep or step.kind != ATTRIBUTE):
        return reaches_partly(doc, route, index, row, test, first)
    last = row + size_of(doc, row)
    at = row + 1
    while at < last:
        if doc.kinds[at] == step.kind:
            if ((step.kind == TEXT or fits(doc, step.tag, at))
                    and (step.cond == NULL or holds(doc, step.cond, at))
                    and reaches(doc, route, index + 1, at, test, first)):
                return True
        elif step.kind == ATTRIBUTE and not deep:
            return False  # an element's attributes stand directly behind it
        if deep:
            at += 1
            doc.budget -= 1
        else:
            at += size_of(doc, at)
    return False


cdef bint reaches_partly(Doc* doc, Route* route, int32_t index, int32_t row, Cond* test,
                         int32_t* first) noexcept nogil:
    # From an element that is open, a node that is found is certain, and that there is none is not.
    cdef Step* step = &route.steps[index]
    cdef bint unsure = doc.unsure
    cdef bint deep = step.axis == DESCENDANT
    cdef int32_t last = row + size_of(doc, row)
    cdef int32_t at = row + 1
    while at < last and first == NULL:
        if doc.kinds[at] == step.kind and (step.kind == TEXT or fits(doc, step.tag, at)):
            doc.unsure = False
            if ((step.cond == NULL or holds(doc, step.cond, at)) and not doc.unsure
                    and reaches(doc, route, index + 1, at, test, NULL) and not doc.unsure):
                doc.unsure = unsure
                return True
        doc.budget -= 1
        at += 1 if deep else size_of(doc, at)
    doc.unsure = True
    return False


cdef bint first_text(Doc* doc, Route* route, int32_t row, const char** text,
                     int32_t* length) noexcept nogil:
    # The string-value of the first node in document order; the empty string if there is none.
    cdef int32_t first = -1
    reaches(doc, route, 0, row, NULL, &first)
    text[0] = doc.text
    length[0] = 0
    return first < 0 or string_value(doc, first, text, length)


cdef bint contains(const char* text, int32_t length, const char* part,
                   int32_t size) noexcept nogil:
    cdef int32_t at
    if size == 0:
        return True
    for at in range(length - size + 1):
        if text[at] == part[0] and memcmp(text + at, part, size) == 0:
            return True
    return False


cdef int32_t position_of(Doc* doc, int32_t row, int32_t tag, int8_t kind, Cond* before,
                         void* asker) noexcept nogil:
    # The place of a row among the siblings that pass the same test and the predicates before.
    cdef int32_t parent = doc.parents[row]
    cdef int32_t at = parent + 1
    cdef int32_t place = 1
    cdef Placed* placed
    if parent < 0:
        return 1
    if doc.continued and doc.ends[parent] == OPEN:
        doc.unsure = True  # siblings have gone with the batches before
    placed = &doc.placed[((<uint64_t>asker >> 4) * 31 + <uint32_t>parent) & (PLACES - 1)]
    if (placed.asker == asker and placed.parent == parent and placed.row <= row
            and placed.epoch == doc.epoch):
        at = placed.row
        place = placed.place
    while at < row:
        if (doc.kinds[at] == kind and (kind == TEXT or fits(doc, tag, at))
                and (before == NULL or holds(doc, before, at))):
            place += 1
        at += size_of(doc, at)
        doc.budget -= 1
        if doc.budget < 0:
            return place
    placed.asker = asker
    placed.parent = parent
    placed.row = row
    placed.place = place
    placed.epoch = doc.epoch
    return place


cdef bint holds(Doc* doc, Cond* cond, int32_t row) noexcept nogil:
    cdef int32_t i
    cdef const char* text = NULL
    cdef int32_t length = 0
    if doc.budget < 0:
        return False
    if doc.partial and cond.test <= SOME:
        return holds_partly(doc, cond, row)
    if cond.test == ALL:
        for i in range(cond.count):
            if not holds(doc, cond.terms[i], row):
                return False
        return True
    if cond.test == SOME:
        for i in range(cond.count):
            if holds(doc, cond.terms[i], row):
                return True
        return False
    if cond.test == NONE:
        return not holds(doc, cond.terms[0], row)
    if cond.test == POSITION:
        return compare_numbers(<double>position_of(doc, row, cond.tag, cond.kind, cond.before,
                                                   cond), cond.op, cond.number)
    if cond.test == EXISTS or cond.test == COMPARE:
        return reaches(doc, &cond.route, 0, row, cond, NULL)
    first_text(doc, &cond.route, row, &text, &length)
    if cond.test == STARTS:
        return length >= cond.length and memcmp(text, cond.text, cond.length) == 0
    return contains(text, length, cond.text, cond.length)


cdef bint looks_at_attributes(Cond* cond) noexcept nogil:
    # Whether nothing but the attributes of the node itself decides.
    cdef int32_t i
    if cond.test == ALL or cond.test == SOME or cond.test == NONE:
        for i in range(cond.count):
            if not looks_at_attributes(cond.terms[i]):
                return False
        return True
    return cond.test != POSITION and is_attribute(&cond.route)


cdef inline bint is_attribute(Route* route) noexcept nogil:
    return (route.count == 1 and route.steps[0].kind == ATTRIBUTE
            and route.steps[0].axis == CHILD)


cdef bint holds_partly(Doc* doc, Cond* cond, int32_t row) noexcept nogil:
    # One term that is certain may decide, whatever the others are.
    cdef bint unsure = doc.unsure
    cdef bint open_terms = False
    cdef bint decides = cond.test == SOME
    cdef int32_t i
    for i in range(cond.count):
        doc.unsure = False
        if holds(doc, cond.terms[i], row) == decides and not doc.unsure:
            doc.unsure = unsure
            return decides
        open_terms = open_terms or doc.unsure
    doc.unsure = unsure or open_terms
    return not decides


cdef void free_route(Route* route) noexcept nogil:
    cdef int32_t i
    for i in range(route.count):
        free_cond(route.steps[i].cond)
    free(route.steps)
    route.steps = NULL
    route.count = 0


cdef void free_cond(Cond* cond) noexcept nogil:
    cdef int32_t i
    if cond == NULL:
        return
    for i in range(cond.count):
        free_cond(cond.terms[i])
    free(cond.terms)
    free(cond.text)
    free_route(&cond.route)
    free_cond(cond.before)
    free(cond)


cdef Cond* new_cond(int test) except NULL:
    cdef Cond* cond = <Cond*>calloc(1, sizeof(Cond))
    if cond == NULL:
        raise MemoryError
    cond.test = test
    return cond


cdef int set_text(Cond* cond, str value) except -1:
    cdef bytes raw = value.encode()
    cond.text = <char*>malloc(len(raw) + 1)
    if cond.text == NULL:
        raise MemoryError
    memcpy(cond.text, <char*>raw, len(raw))
    cond.length = <int32_t>len(raw)
    return 0


# --- the automaton ---------------------------------------------------------------------------

cdef enum Target:
    ALWAYS = 0      # nothing to look at
    SELF_VALUE = 1  # the string-value of the node
    ATTRIBUTE_VALUE = 2
    TEXT_VALUE = 3  # the text nodes of the node
    ROUTE_VALUE = 4 # what a longer route leads to
    PLACE = 5       # position()
    TRUTH = 6       # any other condition, as a whole

cdef enum Ask:
    # How an entry asks its target; in the order in which a group keeps them.
    THERE = 0
    SAME = 1        # = string
    OTHER = 2       # != string
    EQUAL = 3       # = number, and so on
    UNEQUAL = 4
    BELOW = 5
    AT_MOST = 6
    ABOVE = 7
    AT_LEAST = 8
    HOLDING = 9     # contains()
    HEADED = 10     # starts-with()
    ASKS = 11

cdef struct Aim:
    int8_t kind
    int32_t tag
    Route route
    Cond* cond
    int32_t uses
    int32_t state        # where its element steps end in the trie of routes, or -1
    bint exact           # they are all there is to it
    int32_t next         # of the same state

cdef struct Rest:
    # Further conditions of an entry: each on the node so many levels up.
    int16_t up
    Cond* cond

cdef struct Entry:
    int32_t pattern       # -1 if it arms: such an entry serves all patterns with its beginning
    int32_t next          # of the same state
    int32_t state
    int32_t uses          # by patterns and by entries that need its slot
    int32_t aim
    double key
    int32_t needs         # slot of the segment before, or -1
    int32_t arms          # slot to arm, or -1 for the last segment
    int16_t up            # levels from the node to the one that is asked
    int16_t span          # steps of the segment
    int8_t ask
    int16_t rests
    Rest* rest

cdef struct Pattern:
    int32_t subscribers   # head of the chain
    int32_t entry         # of its last segment
    int32_t plan          # index of its route for tuples, or -1


cdef inline uint64_t mix(uint64_t value) noexcept nogil:
    value ^= value >> 33
    value *= 0xff51afd7ed558ccdULL
    value ^= value >> 33
    return value


cdef inline uint64_t hash_text(const char* text, int32_t length) noexcept nogil:
    cdef uint64_t value = 1469598103934665603ULL
    cdef int32_t i
    for i in range(length):
        value = (value ^ <uint8_t>text[i]) * 1099511628211ULL
    return mix(value)


cdef struct Literal:
    uint64_t hash
    char* text
    int32_t length
    int32_t uses


cdef int grow(void** array, int32_t* capacity, int32_t needed, size_t item) except -1:
    # At least `needed` items; new ones are zero.
    cdef int32_t wanted
    cdef void* grown
    if needed <= capacity[0]:
        return 0
    wanted = max(needed, capacity[0] + capacity[0] // 2, 64)
    grown = realloc(array[0], <size_t>wanted * item)
    if grown == NULL:
        raise MemoryError
    memset(<char*>grown + <size_t>capacity[0] * item, 0, <size_t>(wanted - capacity[0]) * item)
    array[0] = grown
    capacity[0] = wanted
    return 0


cdef struct State:
    uint64_t bloom        # of the tags that lead on
    int64_t edge_stamp    # version in which its edges by name last changed
    int64_t any_stamp     # ... its edges by `*` and `prefix:*`
    int32_t parent
    int32_t tag
    int32_t loop          # the self-loop state behind it, 0 if none
    int32_t accepts       # head of the chain of subscribers whose whole statement ends here
    int32_t entries       # head of the chain of entries
    int32_t uses          # children, loop, accepts and entries
    bint is_loop
    bint is_route         # of the trie of routes: `accepts` is then a chain of aims

@cython.final
cdef class Automaton:
    """All statements, as one NFA and its entries. See the module's docstring for the locking."""

    cdef pthread_rwlock_t lock
    cdef readonly Vocabulary vocabulary
    cdef int64_t version
    cdef bint changing          # a writer holds the lock over several changes
    cdef int64_t* tag_stamps    # version in which an edge by a name last came or went
    cdef int32_t tag_room
    cdef int64_t any_stamp      # ... by `*` and `prefix:*`
    # states
    cdef State* states
    cdef int64_t* stamps        # version in which accepts, entries or loop of a state last
    cdef int32_t stamp_room     # changed; apart, as all of a set are looked at at a time
    cdef int32_t state_count
    cdef int32_t state_room
    cdef int32_t free_state
    cdef readonly int32_t live_states
    # edges: an open hash table of (state, tag)
    cdef uint64_t* edge_keys
    cdef int32_t* edge_ends
    cdef uint32_t edge_mask
    cdef uint32_t edge_used     # with those deleted
    cdef uint32_t edge_live
    # subscribers: doubly linked chains
    cdef int32_t* sub_next
    cdef int32_t* sub_before
    cdef uint8_t* sub_wants     # of a statement with a pattern: whether it asks for tuples
    cdef int32_t* sub_home      # state (>= 0) of a plain statement, or -2 - pattern, or -1
    cdef int32_t sub_room
    cdef int32_t sub_next_room
    cdef int32_t sub_before_room
    cdef int32_t sub_wants_room
    cdef readonly int32_t sub_count
    # patterns, entries, aims, literals, slots, plans
    cdef Pattern* patterns
    cdef int32_t pattern_room
    cdef int32_t pattern_count
    cdef int32_t live_patterns
    cdef list free_patterns
    cdef Entry* entries
    cdef int32_t entry_room
    cdef int32_t entry_count
    cdef list free_entries
    cdef Aim* aims
    cdef int32_t aim_room
    cdef int32_t aim_count
    cdef list free_aims
    cdef dict aim_ids
    cdef dict aim_keys
    cdef Literal* literals
    cdef int32_t literal_room
    cdef int32_t literal_count
    cdef list free_literals
    cdef dict literal_ids
    cdef int32_t* literal_slots
    cdef uint32_t literal_mask
    cdef uint32_t literal_used
    cdef int32_t longest_literal
    cdef int32_t* slot_entries  # the entry that arms a slot
    cdef int32_t slot_room
    cdef int32_t slot_count
    cdef list free_slots
    cdef dict arms              # entries that arm, by what they ask
    cdef dict arm_keys
    cdef int32_t route_root
    cdef Route* plans
    cdef int32_t plan_room
    cdef int32_t plan_count
    cdef list free_plans
    # namespace wildcards
    cdef dict spaces            # uri -> -2, -3, ...
    cdef int32_t* space_of      # by tag
    cdef int32_t space_room
    cdef int32_t space_known
    cdef bint spaced            # there are some
    # the names that statements use: a closed table must have been read with all of them
    cdef int32_t names_needed

    def __cinit__(self, Vocabulary vocabulary not None):
        self.vocabulary = vocabulary
        self.version = 1
        self.free_state = 0
        self.edge_mask = 1023
        self.edge_keys = <uint64_t*>calloc(1024, sizeof(uint64_t))
        self.edge_ends = <int32_t*>calloc(1024, sizeof(int32_t))
        if self.edge_keys == NULL or self.edge_ends == NULL or lock_init(&self.lock) != 0:
            raise MemoryError
        self.free_patterns = []
        self.free_entries = []
        self.free_aims = []
        self.aim_ids = {}
        self.aim_keys = {}
        self.free_literals = []
        self.literal_ids = {}
        self.literal_mask = 255
        self.literal_slots = <int32_t*>malloc(256 * sizeof(int32_t))
        memset(self.literal_slots, 0xff, 256 * sizeof(int32_t))
        self.free_slots = []
        self.arms = {}
        self.arm_keys = {}
        self.free_plans = []
        self.spaces = {}
        self._new_state(-1, 0, False)
        self.states[0].uses = 1  # the roots stay
        self.route_root = self._new_state(-1, 0, False)
        self.states[self.route_root].uses = 1
        self.states[self.route_root].is_route = True

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self.entry_count):
            self._free_rest(&self.entries[i])
        for i in range(self.aim_count):
            free_route(&self.aims[i].route)
            free_cond(self.aims[i].cond)
        for i in range(self.literal_count):
            free(self.literals[i].text)
        for i in range(self.plan_count):
            free_route(&self.plans[i])
        free(self.states)
        free(self.stamps)
        free(self.edge_keys)
        free(self.edge_ends)
        free(self.sub_next)
        free(self.sub_before)
        free(self.sub_home)
        free(self.sub_wants)
        free(self.patterns)
        free(self.entries)
        free(self.aims)
        free(self.literals)
        free(self.literal_slots)
        free(self.plans)
        free(self.slot_entries)
        free(self.tag_stamps)
        free(self.space_of)
        pthread_rwlock_destroy(&self.lock)

    # -- states and edges --

    cdef int32_t _new_state(self, int32_t parent, int32_t tag, bint is_loop) except -1:
        cdef int32_t state
        if self.free_state:
            state = self.free_state
            self.free_state = self.states[state].parent
        else:
            state = self.state_count
            grow(<void**>&self.states, &self.state_room, state + 1, sizeof(State))
            grow(<void**>&self.stamps, &self.stamp_room, state + 1, sizeof(int64_t))
            self.state_count += 1
        memset(&self.states[state], 0, sizeof(State))
        self.states[state].parent = parent
        self.states[state].tag = tag
        self.states[state].is_loop = is_loop
        self.states[state].is_route = parent >= 0 and self.states[parent].is_route
        self.states[state].accepts = -1
        self.states[state].entries = -1
        self.stamps[state] = self.version
        self.states[state].edge_stamp = self.version
        self.states[state].any_stamp = self.version
        self.live_states += 1
        return state

    cdef inline int32_t edge(self, int32_t state, int32_t tag) noexcept nogil:
        # The state behind an edge, or 0: no edge leads to the root.
        cdef uint64_t key = (<uint64_t>(state + 1) << 32) | <uint32_t>tag
        cdef uint32_t slot = <uint32_t>mix(key) & self.edge_mask
        while self.edge_keys[slot] != 0:
            if self.edge_keys[slot] == key:
                return self.edge_ends[slot]
            slot = (slot + 1) & self.edge_mask
        return 0

    cdef int _set_edge(self, int32_t state, int32_t tag, int32_t end) except -1:
        cdef uint64_t key = (<uint64_t>(state + 1) << 32) | <uint32_t>tag
        cdef uint32_t slot
        if (self.edge_used + 1) * 3 > (self.edge_mask + 1) * 2:
            self._rehash()
        slot = <uint32_t>mix(key) & self.edge_mask
        while self.edge_keys[slot] > 1:
            slot = (slot + 1) & self.edge_mask
        self.edge_used += self.edge_keys[slot] == 0
        self.edge_live += 1
        self.edge_keys[slot] = key
        self.edge_ends[slot] = end
        self.states[state].bloom |= 1ULL << (<uint32_t>tag & 63)
        return 0

    cdef int _rehash(self) except -1:
        cdef uint32_t size = self.edge_mask + 1
        cdef uint32_t new_size = size * 2 if self.edge_live * 3 > size else size
        cdef uint64_t* keys = <uint64_t*>calloc(new_size, sizeof(uint64_t))
        cdef int32_t* ends = <int32_t*>calloc(new_size, sizeof(int32_t))
        cdef uint32_t i, slot
        if keys == NULL or ends == NULL:
            free(keys)
            free(ends)
            raise MemoryError
        for i in range(size):
            if self.edge_keys[i] > 1:
                slot = <uint32_t>mix(self.edge_keys[i]) & (new_size - 1)
                while keys[slot] != 0:
                    slot = (slot + 1) & (new_size - 1)
                keys[slot] = self.edge_keys[i]
                ends[slot] = self.edge_ends[i]
        free(self.edge_keys)
        free(self.edge_ends)
        self.edge_keys = keys
        self.edge_ends = ends
        self.edge_mask = new_size - 1
        self.edge_used = self.edge_live
        return 0

    cdef void _cut_edge(self, int32_t state, int32_t tag) noexcept:
        cdef uint64_t key = (<uint64_t>(state + 1) << 32) | <uint32_t>tag
        cdef uint32_t slot = <uint32_t>mix(key) & self.edge_mask
        while self.edge_keys[slot] != key:
            slot = (slot + 1) & self.edge_mask
        self.edge_keys[slot] = 1
        self.edge_live -= 1

    cdef int32_t _walk_in(self, int32_t state, int8_t axis, int32_t tag) except -1:
        # The state one step on, made if it is not there.
        cdef int32_t end
        if axis == DESCENDANT:
            if self.states[state].loop == 0:
                end = self._new_state(state, 0, True)
                self.states[state].loop = end
                self._touch(state)
            state = self.states[state].loop
        end = self.edge(state, tag)
        if end == 0:
            end = self._new_state(state, tag, False)
            self._set_edge(state, tag, end)
            self.states[state].uses += 1
            self._stamp_edge(state, tag)
        return end

    cdef int _stamp_edge(self, int32_t state, int32_t tag) except -1:
        # Sets keep what they are when an edge comes or goes, but not where it leads from them.
        if tag < 0:
            self.states[state].any_stamp = self.version
            self.any_stamp = self.version
            return 0
        grow(<void**>&self.tag_stamps, &self.tag_room, tag + 1, sizeof(int64_t))
        self.states[state].edge_stamp = self.version
        self.tag_stamps[tag] = self.version
        return 0

    cdef void _touch(self, int32_t state) noexcept:
        self.stamps[state] = self.version
        self.states[state].uses += 1

    cdef int _release(self, int32_t state) except -1:
        # One use less; a state without uses goes, and with it its use of the state before.
        cdef int32_t parent
        self.stamps[state] = self.version
        while True:
            self.states[state].uses -= 1
            if self.states[state].uses > 0:
                return 0
            self.stamps[state] = self.version
            parent = self.states[state].parent
            if self.states[state].is_loop:
                self.states[parent].loop = 0
                self.stamps[parent] = self.version
            else:
                self._cut_edge(parent, self.states[state].tag)
                self._stamp_edge(parent, self.states[state].tag)
            self.states[state].parent = self.free_state
            self.free_state = state
            self.live_states -= 1
            state = parent

    # -- changes, each under the write lock --

    cdef void _write(self) noexcept:
        if not self.changing:
            with nogil:
                pthread_rwlock_wrlock(&self.lock)
        self.version += 1

    cdef void _done(self) noexcept:
        if not self.changing:
            pthread_rwlock_unlock(&self.lock)

    def begin_change(self):
        """Hold the lock over several changes, so that no document sees only some of them."""
        self._write()
        self.changing = True

    def end_change(self):
        """Let documents through again."""
        self.changing = False
        self._done()

    def add_plain(self, int32_t subscriber, list axes not None, list tags not None):
        """Subscribe a statement without conditions; -1 if it can never match."""
        cdef int32_t state = 0
        cdef Py_ssize_t i
        cdef int8_t axis
        cdef int32_t tag
        self._write()
        try:
            self._room_for(subscriber)
            for i in range(len(axes)):
                axis = axes[i]
                tag = tags[i]
                self._need(tag)
                state = self._walk_in(state, axis, tag)
            self.sub_home[subscriber] = state
            self._link(&self.states[state].accepts, subscriber)
            self._touch(state)
        finally:
            self._done()

    def add_dead(self, int32_t subscriber):
        """Subscribe a statement that no document can match."""
        self._write()
        try:
            self._room_for(subscriber)
            self.sub_home[subscriber] = -1
        finally:
            self._done()

    def add_to_pattern(self, int32_t subscriber, int32_t pattern, bint tuples):
        """Subscribe a statement equal to one that is there."""
        self._write()
        try:
            self._room_for(subscriber)
            self.sub_wants[subscriber] = tuples
            self.sub_home[subscriber] = -2 - pattern
            self._link(&self.patterns[pattern].subscribers, subscriber)
            self._stamp(pattern)
        finally:
            self._done()

    cdef int _room_for(self, int32_t subscriber) except -1:
        grow(<void**>&self.sub_next, &self.sub_next_room, subscriber + 1, sizeof(int32_t))
        grow(<void**>&self.sub_before, &self.sub_before_room, subscriber + 1, sizeof(int32_t))
        grow(<void**>&self.sub_home, &self.sub_room, subscriber + 1, sizeof(int32_t))
        grow(<void**>&self.sub_wants, &self.sub_wants_room, subscriber + 1, sizeof(uint8_t))
        self.sub_count = max(self.sub_count, subscriber + 1)
        return 0

    cdef void _link(self, int32_t* head, int32_t subscriber) noexcept:
        self.sub_next[subscriber] = head[0]
        self.sub_before[subscriber] = -1
        if head[0] >= 0:
            self.sub_before[head[0]] = subscriber
        head[0] = subscriber

    cdef void _unlink(self, int32_t* head, int32_t subscriber) noexcept:
        cdef int32_t after = self.sub_next[subscriber]
        cdef int32_t before = self.sub_before[subscriber]
        if after >= 0:
            self.sub_before[after] = before
        if before >= 0:
            self.sub_next[before] = after
        else:
            head[0] = after

    def remove(self, int32_t subscriber):
        """Unsubscribe; gives the pattern that went with it, or -1."""
        cdef int32_t home
        cdef int32_t pattern = -1
        self._write()
        try:
            home = self.sub_home[subscriber]
            self.sub_home[subscriber] = -1
            if home >= 0:
                self._unlink(&self.states[home].accepts, subscriber)
                self._release(home)
            elif home <= -2:
                pattern = -2 - home
                self._unlink(&self.patterns[pattern].subscribers, subscriber)
                self._stamp(pattern)
                if self.patterns[pattern].subscribers >= 0:
                    return -1
                self._remove_pattern(pattern)
            return pattern
        finally:
            self._done()

    cdef void _stamp(self, int32_t pattern) noexcept:
        # Sets of states keep the subscribers of simple patterns.
        self.stamps[self.entries[self.patterns[pattern].entry].state] = self.version

    cdef int _remove_pattern(self, int32_t pattern) except -1:
        self._release_entry(self.patterns[pattern].entry)
        if self.patterns[pattern].plan >= 0:
            free_route(&self.plans[self.patterns[pattern].plan])
            self.free_plans.append(self.patterns[pattern].plan)
        self.live_patterns -= 1
        self.free_patterns.append(pattern)
        return 0

    cdef int _release_entry(self, int32_t index) except -1:
        # One use less of an entry; if it was the last, the entry it needs loses one too.
        cdef int32_t needs
        while index >= 0:
            self.entries[index].uses -= 1
            if self.entries[index].uses > 0:
                return 0
            needs = self.entries[index].needs
            self._remove_entry(index)
            index = self.slot_entries[needs] if needs >= 0 else -1
        return 0

    cdef int _remove_entry(self, int32_t index) except -1:
        cdef Entry* entry = &self.entries[index]
        cdef int32_t* link = &self.states[entry.state].entries
        while link[0] != index:
            link = &self.entries[link[0]].next
        link[0] = entry.next
        self._release(entry.state)
        self._free_rest(entry)
        self._release_aim(entry.aim)
        if entry.ask in (SAME, OTHER, HOLDING, HEADED):
            self._release_literal(<int32_t>entry.key)
        if entry.arms >= 0:
            self.free_slots.append(entry.arms)
            del self.arms[self.arm_keys.pop(index)]
        self.free_entries.append(index)
        return 0

    cdef void _free_rest(self, Entry* entry) noexcept:
        cdef int i
        for i in range(entry.rests):
            free_cond(entry.rest[i].cond)
        free(entry.rest)
        entry.rest = NULL
        entry.rests = 0

    # -- statements with conditions --

    def add_pattern(self, segments not None, plan, resolve not None):
        """A statement with conditions.

        `segments` are lists of (step, axis, tag, conditions) cut before each `//`; conditions are
        (expr, predicates before it) pairs. `plan` is the whole path if tuples are wanted of it.
        `resolve` gives the tag of a step. Gives the pattern's number.
        """
        cdef int32_t pattern
        self._write()
        try:
            if self.free_patterns:
                pattern = self.free_patterns.pop()
            else:
                pattern = self.pattern_count
                grow(<void**>&self.patterns, &self.pattern_room, pattern + 1, sizeof(Pattern))
                self.pattern_count += 1
            self.live_patterns += 1
            self.patterns[pattern].subscribers = -1
            self.patterns[pattern].entry = -1
            self.patterns[pattern].plan = -1
            self._add_segments(pattern, segments, resolve)
            if plan is not None:
                self._add_plan(pattern, plan, resolve)
            return pattern
        finally:
            self._done()

    def add_plan(self, int32_t pattern, plan not None, resolve not None):
        """Keep the whole path of a pattern, for its tuples."""
        self._write()
        try:
            if self.patterns[pattern].plan < 0:
                self._add_plan(pattern, plan, resolve)
        finally:
            self._done()

    cdef int _add_plan(self, int32_t pattern, plan, resolve) except -1:
        cdef int32_t index
        if self.free_plans:
            index = self.free_plans.pop()
        else:
            index = self.plan_count
            grow(<void**>&self.plans, &self.plan_room, index + 1, sizeof(Route))
            self.plan_count += 1
        self.plans[index] = self._route(plan, resolve)
        self.patterns[pattern].plan = index
        self._stamp(pattern)
        return 0

    cdef int _add_segments(self, int32_t pattern, segments, resolve) except -1:
        cdef int32_t state = 0
        cdef int32_t needs = -1
        cdef bint conditioned = False
        cdef Py_ssize_t number, count = len(segments)
        cdef int32_t entry
        for number, segment in enumerate(segments):
            conditions = []
            for index, (axis, tag, tests) in enumerate(segment):
                self._need(tag)
                state = self._walk_in(state, axis, tag)
                conditions += [(len(segment) - 1 - index, tag, *test) for test in tests]
            conditioned = conditioned or bool(conditions)
            if number == count - 1:
                entry = self._add_entry(pattern, state, conditions, resolve)
                self.entries[entry].needs = needs
                self.entries[entry].span = <int16_t>len(segment)
                self.entries[entry].uses = 1
                self.patterns[pattern].entry = entry
                if needs >= 0:
                    self.entries[self.slot_entries[needs]].uses += 1
            elif conditioned:
                needs = self._armed(state, conditions, needs, <int16_t>len(segment), resolve)
        return 0

    cdef int32_t _armed(self, int32_t state, list conditions, int32_t needs, int16_t span,
                        resolve) except -1:
        # The slot that says a beginning has been met. Equal beginnings share it.
        cdef int32_t entry, slot
        key = (state, needs, resolve.key(tuple(conditions)))
        known = self.arms.get(key)
        if known is not None:
            return self.entries[<int32_t>known].arms
        entry = self._add_entry(-1, state, conditions, resolve)
        if self.free_slots:
            slot = self.free_slots.pop()
        else:
            slot = self.slot_count
            grow(<void**>&self.slot_entries, &self.slot_room, slot + 1, sizeof(int32_t))
            self.slot_count += 1
        self.slot_entries[slot] = entry
        self.entries[entry].needs = needs
        self.entries[entry].arms = slot
        self.entries[entry].span = span
        self.entries[entry].uses = 0
        if needs >= 0:
            self.entries[self.slot_entries[needs]].uses += 1
        self.arms[key] = entry
        self.arm_keys[entry] = key
        return slot

    cdef int32_t _add_entry(self, int32_t pattern, int32_t state, list conditions,
                            resolve) except -1:
        cdef int32_t index
        cdef Entry* entry
        cdef int i = 0
        if self.free_entries:
            index = self.free_entries.pop()
        else:
            index = self.entry_count
            grow(<void**>&self.entries, &self.entry_room, index + 1, sizeof(Entry))
            self.entry_count += 1
        conditions = sorted(conditions, key=eagerness)
        trigger = conditions[0] if conditions else (0, 0, None, ())
        aim, ask, key = self._aim(trigger, resolve)
        rest = conditions[1:]
        entry = &self.entries[index]
        memset(entry, 0, sizeof(Entry))
        entry.pattern = pattern
        entry.state = state
        entry.aim = aim
        entry.ask = ask
        entry.key = key
        entry.up = trigger[0]
        entry.needs = -1
        entry.arms = -1
        entry.next = self.states[state].entries
        self.states[state].entries = index
        self._touch(state)
        if rest:
            entry.rest = <Rest*>calloc(len(rest), sizeof(Rest))
            for up, tag, expr, before in rest:
                entry.rest[i].up = up
                entry.rest[i].cond = self._cond(expr, tag, ELEMENT, before, resolve)
                i += 1
                entry.rests = i
        return index

    cdef tuple _aim(self, tuple trigger, resolve):
        # What an entry's first condition looks at, how it asks, and with which key.
        up, tag, expr, before = trigger
        if expr is None:
            return self._intern_aim(("always",), ALWAYS, 0, None, None, resolve), THERE, 0.0
        if isinstance(expr, Position) and not before:
            aim = self._intern_aim(("place", tag), PLACE, tag, None, None, resolve)
            return aim, NUMBER_ASKS[expr.op], expr.value
        if isinstance(expr, (Exists, Compare, Contains, StartsWith)):
            aim = self._path_aim(expr.path, resolve)
            if isinstance(expr, Exists):
                return aim, THERE, 0.0
            if isinstance(expr, Contains):
                return aim, HOLDING, <double>self._literal(expr.text)
            if isinstance(expr, StartsWith):
                return aim, HEADED, <double>self._literal(expr.text)
            if isinstance(expr.value, str) and expr.op <= 1:
                return aim, SAME if expr.op == 0 else OTHER, <double>self._literal(expr.value)
            return aim, NUMBER_ASKS[expr.op], number_of(expr.value)
        key = ("truth", resolve.key((expr, before)), tag)
        cond = (expr, tag, before)
        return self._intern_aim(key, TRUTH, 0, None, cond, resolve), THERE, 0.0

    cdef int32_t _path_aim(self, path, resolve) except -1:
        steps = path.steps
        if not steps:
            return self._intern_aim(("self",), SELF_VALUE, 0, None, None, resolve)
        if len(steps) == 1 and steps[0].axis == Axis.CHILD and not steps[0].predicates:
            if steps[0].kind == Kind.TEXT:
                return self._intern_aim(("text",), TEXT_VALUE, 0, None, None, resolve)
            if steps[0].kind == Kind.ATTRIBUTE:
                tag = resolve(steps[0])
                if tag >= 0:
                    return self._intern_aim(("@", tag), ATTRIBUTE_VALUE, tag, None, None, resolve)
        return self._intern_aim(("path", resolve.key(path)), ROUTE_VALUE, 0, path, None, resolve)

    cdef int32_t _intern_aim(self, tuple key, int kind, int32_t tag, path, cond,
                             resolve) except -1:
        cdef int32_t index
        known = self.aim_ids.get(key)
        if known is not None:
            index = known
            self.aims[index].uses += 1
            return index
        if self.free_aims:
            index = self.free_aims.pop()
        else:
            index = self.aim_count
            grow(<void**>&self.aims, &self.aim_room, index + 1, sizeof(Aim))
            self.aim_count += 1
        memset(&self.aims[index], 0, sizeof(Aim))
        self.aims[index].kind = kind
        self.aims[index].tag = tag
        self.aims[index].uses = 1
        if kind == ATTRIBUTE_VALUE or kind == PLACE:
            self._need(tag)
        self.aims[index].state = -1
        if path is not None:
            self.aims[index].route = self._route(path, resolve)
            self._add_route(index)
        if cond is not None:
            self.aims[index].cond = self._cond(cond[0], cond[1], ELEMENT, cond[2], resolve)
        self.aim_ids[key] = index
        self.aim_keys[index] = key
        return index

    cdef int _add_route(self, int32_t index) except -1:
        # The leading element steps, without their predicates, in a trie of all routes: walked
        # once below a node, it says which routes cannot lead anywhere and which surely do.
        cdef Aim* aim = &self.aims[index]
        cdef int32_t state = self.route_root
        cdef int32_t i = 0
        aim.exact = True
        while i < aim.route.count and aim.route.steps[i].kind == ELEMENT:
            state = self._walk_in(state, aim.route.steps[i].axis, aim.route.steps[i].tag)
            aim.exact = aim.exact and aim.route.steps[i].cond == NULL
            i += 1
        aim.exact = aim.exact and i == aim.route.count
        if i > 0:
            aim.state = state
            aim.next = self.states[state].accepts
            self.states[state].accepts = index
            self._touch(state)
        return 0

    cdef void _cut_route(self, int32_t index) noexcept:
        cdef int32_t* link
        if self.aims[index].state >= 0:
            link = &self.states[self.aims[index].state].accepts
            while link[0] != index:
                link = &self.aims[link[0]].next
            link[0] = self.aims[index].next
            self._release(self.aims[index].state)

    cdef int _release_aim(self, int32_t index) except -1:
        self.aims[index].uses -= 1
        if self.aims[index].uses == 0:
            self._cut_route(index)
            free_route(&self.aims[index].route)
            free_cond(self.aims[index].cond)
            self.aims[index].cond = NULL
            del self.aim_ids[self.aim_keys.pop(index)]
            self.free_aims.append(index)
        return 0

    cdef Route _route(self, path, resolve) except *:
        cdef Route route
        cdef int i = 0
        cdef int32_t tag
        route.count = <int32_t>len(path.steps)
        route.steps = <Step*>calloc(max(1, route.count), sizeof(Step))
        for step in path.steps:
            tag = resolve(step)
            self._need(tag)
            route.steps[i].axis = step.axis
            route.steps[i].kind = step.kind
            route.steps[i].tag = tag
            route.steps[i].cond = self._predicates(step, tag, resolve)
            i += 1
        return route

    cdef Cond* _predicates(self, step, int32_t tag, resolve) except? NULL:
        cdef Cond* all_of
        cdef int i = 0
        predicates = step.predicates
        if not predicates:
            return NULL
        all_of = new_cond(ALL)
        all_of.terms = <Cond**>calloc(len(predicates), sizeof(void*))
        for expr in predicates:
            all_of.terms[i] = self._cond(expr, tag, step.kind, predicates[:i], resolve)
            i += 1
            all_of.count = i
        return all_of

    cdef Cond* _cond(self, expr, int32_t tag, int8_t kind, before, resolve) except NULL:
        cdef Cond* cond
        cdef int i = 0
        if isinstance(expr, (And, Or, Not)):
            terms = (expr.term,) if isinstance(expr, Not) else expr.terms
            cond = new_cond(NONE if isinstance(expr, Not) else ALL if isinstance(expr, And) else SOME)
            cond.terms = <Cond**>calloc(len(terms), sizeof(void*))
            for term in terms:
                cond.terms[i] = self._cond(term, tag, kind, before, resolve)
                i += 1
                cond.count = i
            return cond
        if isinstance(expr, Position):
            return self._position(expr, tag, kind, before, resolve)
        if isinstance(expr, Exists):
            cond = new_cond(EXISTS)
        elif isinstance(expr, Compare):
            cond = new_cond(COMPARE)
            cond.op = expr.op
            cond.numeric = not (isinstance(expr.value, str) and expr.op <= 1)
            if cond.numeric:
                cond.number = number_of(expr.value)
            else:
                set_text(cond, expr.value)
        else:
            cond = new_cond(CONTAINS if isinstance(expr, Contains) else STARTS)
            set_text(cond, expr.text)
        cond.route = self._route(expr.path, resolve)
        return cond

    cdef Cond* _position(self, expr, int32_t tag, int8_t kind, before, resolve) except NULL:
        cdef Cond* cond = new_cond(POSITION)
        cdef Cond* all_of
        cdef int i = 0
        cond.op = expr.op
        cond.number = expr.value
        cond.tag = tag
        cond.kind = kind
        if before:
            all_of = new_cond(ALL)
            all_of.terms = <Cond**>calloc(len(before), sizeof(void*))
            for earlier in before:
                all_of.terms[i] = self._cond(earlier, tag, kind, before[:i], resolve)
                i += 1
                all_of.count = i
            cond.before = all_of
        return cond

    # -- literals --

    cdef int32_t _literal(self, str value) except -1:
        cdef int32_t index
        cdef bytes raw
        known = self.literal_ids.get(value)
        if known is not None:
            index = known
            self.literals[index].uses += 1
            return index
        raw = value.encode()
        if self.free_literals:
            index = self.free_literals.pop()
        else:
            index = self.literal_count
            grow(<void**>&self.literals, &self.literal_room, index + 1, sizeof(Literal))
            self.literal_count += 1
        self.literals[index].text = <char*>malloc(len(raw) + 1)
        memcpy(self.literals[index].text, <char*>raw, len(raw))
        self.literals[index].length = <int32_t>len(raw)
        self.literals[index].hash = hash_text(raw, <int32_t>len(raw))
        self.literals[index].uses = 1
        self.longest_literal = max(self.longest_literal, <int32_t>len(raw))
        self.literal_ids[value] = index
        self.literal_used += 1
        if self.literal_used * 2 > self.literal_mask:
            # Either full, or full of cleared slots.
            live = <uint32_t>len(self.literal_ids)
            self._place_literals((self.literal_mask + 1) * (2 if live * 4 > self.literal_mask else 1))
            self.literal_used = live
        else:
            self._place_literal(index)
        return index

    cdef int _release_literal(self, int32_t index) except -1:
        self.literals[index].uses -= 1
        if self.literals[index].uses == 0:
            value = self.literals[index].text[:self.literals[index].length].decode()
            del self.literal_ids[value]
            free(self.literals[index].text)
            self.literals[index].text = NULL
            self.free_literals.append(index)
            self._clear_literal(index)
        return 0

    cdef void _clear_literal(self, int32_t index) noexcept:
        cdef uint32_t slot = <uint32_t>self.literals[index].hash & self.literal_mask
        while self.literal_slots[slot] != index:
            slot = (slot + 1) & self.literal_mask
        self.literal_slots[slot] = CLEARED

    cdef int _place_literals(self, uint32_t size) except -1:
        cdef void* grown = realloc(self.literal_slots, size * sizeof(int32_t))
        cdef int32_t i
        if grown == NULL:
            raise MemoryError
        self.literal_slots = <int32_t*>grown
        self.literal_mask = size - 1
        memset(self.literal_slots, 0xff, size * sizeof(int32_t))
        for i in range(self.literal_count):
            if self.literals[i].text != NULL:
                self._place_literal(i)
        return 0

    cdef void _place_literal(self, int32_t index) noexcept:
        cdef uint32_t slot = <uint32_t>self.literals[index].hash & self.literal_mask
        while self.literal_slots[slot] >= 0:
            slot = (slot + 1) & self.literal_mask
        self.literal_slots[slot] = index

    cdef int32_t find_literal(self, const char* text, int32_t length) noexcept nogil:
        cdef uint64_t value
        cdef uint32_t slot
        cdef int32_t index
        if length > self.longest_literal:
            return -1
        value = hash_text(text, length)
        slot = <uint32_t>value & self.literal_mask
        while True:
            index = self.literal_slots[slot]
            if index == -1:
                return -1
            if (index >= 0 and self.literals[index].hash == value and self.literals[index].length == length
                    and memcmp(self.literals[index].text, text, length) == 0):
                return index
            slot = (slot + 1) & self.literal_mask

    # -- names --

    cdef void _need(self, int32_t tag) noexcept:
        if tag >= self.names_needed:
            self.names_needed = tag + 1

    def space(self, str uri not None):
        """The test of `prefix:*` for a namespace."""
        self._write()
        try:
            if uri not in self.spaces:
                self.spaces[uri] = -2 - len(self.spaces)
                self.spaced = True
                self.space_known = 0
                self._know_spaces()
                self.names_needed = 0x7fffffff  # no closed reader keeps the names it asks for
            return self.spaces[uri]
        finally:
            self._done()

    cdef int _know_spaces(self) except -1:
        # Which namespace wildcard each name falls under.
        cdef int32_t tag
        names = self.vocabulary.names
        grow(<void**>&self.space_of, &self.space_room, <int32_t>len(names), sizeof(int32_t))
        for tag in range(self.space_known, <int32_t>len(names)):
            name = names[tag]
            uri = name[1:].partition("}")[0] if name.startswith("{") else ""
            self.space_of[tag] = self.spaces.get(uri, 0) if uri else 0
        self.space_known = <int32_t>len(names)
        return 0

    def learn_spaces(self):
        """Look at names that came since; needed before a run once a `prefix:*` is subscribed."""
        if self.spaces and self.space_known < len(self.vocabulary):
            self._write()
            try:
                self.version -= 1  # statements are as they were
                self._know_spaces()
            finally:
                self._done()

    @property
    def open_names(self):
        """Whether documents must be read with all their names, for the sake of `prefix:*`."""
        return bool(self.spaces)

    def stats(self):
        """Counts and bytes of the shared structure."""
        cdef int64_t held = (<int64_t>self.state_room * (sizeof(State) + sizeof(int64_t))
                             + (<int64_t>self.edge_mask + 1) * 12
                             + <int64_t>self.sub_room * 12
                             + <int64_t>self.pattern_room * sizeof(Pattern)
                             + <int64_t>self.entry_room * sizeof(Entry)
                             + <int64_t>self.aim_room * sizeof(Aim)
                             + <int64_t>self.literal_room * sizeof(Literal))
        return {
            "states": self.live_states - 1,  # the root of routes is none of the statements'
            "edges": self.edge_live,
            "patterns": self.pattern_count - len(self.free_patterns),
            "entries": self.entry_count - len(self.free_entries),
            "conditions": self.aim_count - len(self.free_aims),
            "literals": self.literal_count - len(self.free_literals),
            "bytes": held,
        }


NUMBER_ASKS = (EQUAL, UNEQUAL, BELOW, AT_MOST, ABOVE, AT_LEAST)


def number_of(value):
    """A literal as XPath's number()."""
    cdef bytes raw
    if isinstance(value, str):
        raw = value.encode()
        return to_number(raw, <int32_t>len(raw))
    return value


def eagerness(condition):
    """Sorts first what can be looked up, and of that what lets the fewest through."""
    up, tag, expr, before = condition
    if isinstance(expr, Compare):
        return 0 if expr.op == 0 else 3 if expr.op == 1 else 1
    if isinstance(expr, Position) and not before:
        return 1
    if isinstance(expr, (StartsWith, Contains)):
        return 2
    if isinstance(expr, Exists):
        return 2
    return 4


# --- the run ---------------------------------------------------------------------------------

cdef struct Ints:
    int32_t* items
    int32_t count
    int32_t room


cdef struct Run:
    int32_t ask
    int32_t begin
    int32_t end

cdef struct Group:
    # The entries that look at one thing: the same aim, the same number of levels up.
    int32_t aim
    int16_t up
    uint32_t asks        # a bit for each kind of question in it
    bint exact           # of the aim
    int32_t begin        # its runs
    int32_t end
    int32_t first        # its entries
    int32_t last

cdef enum Class:
    # How the groups that have something to say are found.
    ASKED = 0            # by asking each
    BY_ATTRIBUTE = 1     # by the attributes that the node has
    BY_ROUTE = 2         # by the routes that lead somewhere from the node

cdef struct Bank:
    # The groups of one class that look at nodes the same number of levels up.
    int8_t cls
    bint simple          # what it says hangs on the node it looks at alone ...
    uint32_t epoch       # ... so once it has looked at a node,
    int32_t row          # it need not look again
    int16_t up
    int32_t begin
    int32_t end
    int32_t word         # BY_ROUTE: its words
    int32_t last_word

cdef struct Word:
    # Which of 64 aims have a group here; the groups stand in the order of the aims.
    int32_t index
    int32_t first
    uint64_t mask

cdef struct Item:
    # What firing an entry needs of it, in the order in which they fire.
    int32_t head         # the first subscriber of its pattern, or -1 if it arms
    int32_t entry
    int32_t needs
    int32_t arms
    int16_t span
    bint alone           # one subscriber, no plan, nothing more to see to
    bint more            # further conditions

cdef struct Groups:
    Group* groups
    Run* runs
    Bank* banks
    Word* words
    int32_t bank_count
    int32_t word_count
    Item* items
    double* keys
    int32_t count
    int32_t size
    int32_t run_count
    int64_t stamp
    int32_t state        # the one state it belongs to, or -1

cdef struct Dfa:
    int32_t* members     # matched states first, then the self-loop states that are not matched
    int32_t matched
    int32_t count
    int32_t* accepts     # subscribers
    int32_t accept_count
    Groups* own
    Groups** shared
    int32_t shared_count
    int64_t version      # of the automaton when it was last known to be right
    uint64_t hash
    uint8_t epoch
    uint32_t given_up    # the document in which the work was used up here

cdef struct Sortable:
    Item item
    bint simple
    bint exact
    int8_t cls
    int16_t up
    int32_t rank         # within its class: the attribute's tag, or the aim
    int32_t aim
    int8_t ask
    double key

cdef struct Undo:
    int32_t slot
    int16_t depth
    int16_t level

cdef struct Memo:
    uint64_t key
    uint32_t epoch
    bint truth
    bint unsure

cdef struct Value:
    # What an attribute's value is: looked at once, however many entries ask.
    uint32_t epoch
    int32_t row
    int32_t literal      # UNASKED until a string is asked for
    bint counted
    double number

cdef struct Truths:
    # Which routes lead somewhere from the open element at one level.
    int32_t row
    uint32_t epoch
    uint64_t* bits       # by aim
    int32_t room         # in aims
    Ints found

cdef enum:
    DEEPEST = 32760
    MEMOS = 8192
    DOUBTS = 4096
    VALUES = 2048
    UNASKED = -3
    OWN_LIMIT = 256      # a state with more entries keeps groups of its own, shared by all sets
    STRING_ASKS = (1 << 1) | (1 << 2)
    NUMBER_ASK_BITS = (1 << 3) | (1 << 4) | (1 << 5) | (1 << 6) | (1 << 7) | (1 << 8)
    FIRST_ASKS = (1 << 9) | (1 << 10)

cpdef enum Outcome:
    DONE = 0
    NO_MEMORY = 1
    STALE_NAMES = 2
    TOO_ACTIVE = 3
    NO_VALUES = 4
    NO_TREE = 5


cdef int by_key(const void* left, const void* right) noexcept nogil:
    cdef Sortable* a = <Sortable*>left
    cdef Sortable* b = <Sortable*>right
    if a.cls != b.cls:
        return -1 if a.cls < b.cls else 1
    if a.simple != b.simple:
        return -1 if a.simple else 1
    if a.up != b.up:
        return -1 if a.up < b.up else 1
    if a.rank != b.rank:
        return -1 if a.rank < b.rank else 1
    if a.ask != b.ask:
        return -1 if a.ask < b.ask else 1
    if isnan(a.key) or isnan(b.key):
        return <int>isnan(b.key) - <int>isnan(a.key)
    return -1 if a.key < b.key else 1 if a.key > b.key else 0


cdef bint never(Entry* entry) noexcept nogil:
    # No number equals, or is less or more than, what is not a number.
    return isnan(entry.key) and entry.ask >= EQUAL and entry.ask <= AT_LEAST and entry.ask != UNEQUAL


cdef void free_groups(Groups* groups) noexcept nogil:
    if groups != NULL:
        free(groups.groups)
        free(groups.runs)
        free(groups.banks)
        free(groups.words)
        free(groups.items)
        free(groups.keys)
        free(groups)


cdef Groups* make_groups(Sortable* items, int32_t count) noexcept nogil:
    cdef Groups* made = <Groups*>calloc(1, sizeof(Groups))
    cdef int32_t i
    cdef Group* group = NULL
    cdef Run* run = NULL
    cdef Bank* bank = NULL
    if made == NULL:
        return NULL
    qsort(items, count, sizeof(Sortable), by_key)
    made.banks = <Bank*>malloc(count * sizeof(Bank))
    made.words = <Word*>malloc(count * sizeof(Word))
    made.groups = <Group*>malloc(count * sizeof(Group))
    made.runs = <Run*>malloc(count * sizeof(Run))
    made.items = <Item*>malloc(count * sizeof(Item))
    made.keys = <double*>malloc(count * sizeof(double))
    if (made.groups == NULL or made.runs == NULL or made.items == NULL or made.keys == NULL
            or made.banks == NULL or made.words == NULL):
        free_groups(made)
        return NULL
    made.size = count
    for i in range(count):
        made.items[i] = items[i].item
        made.keys[i] = items[i].key
        if (bank == NULL or bank.cls != items[i].cls or bank.up != items[i].up
                or bank.simple != items[i].simple):
            bank = &made.banks[made.bank_count]
            made.bank_count += 1
            bank.cls = items[i].cls
            bank.simple = items[i].simple
            bank.epoch = 0
            bank.up = items[i].up
            bank.begin = made.count
            bank.word = made.word_count
            bank.last_word = made.word_count
            group = NULL
        if group == NULL or group.aim != items[i].aim:
            group = &made.groups[made.count]
            made.count += 1
            group.aim = items[i].aim
            group.up = items[i].up
            group.asks = 0
            group.exact = items[i].exact
            group.first = i
            group.begin = made.run_count
            bank.end = made.count
            if bank.cls == BY_ROUTE:
                add_to_words(made, bank, group.aim)
            run = NULL
        if run == NULL or run.ask != items[i].ask:
            run = &made.runs[made.run_count]
            made.run_count += 1
            run.ask = items[i].ask
            run.begin = i
            group.asks |= 1u << <uint32_t>items[i].ask
        run.end = i + 1
        group.end = made.run_count
        group.last = i + 1
    # Most sets have few groups: what was set aside for the worst case goes back.
    made.groups = <Group*>realloc(made.groups, max(1, made.count) * sizeof(Group))
    made.runs = <Run*>realloc(made.runs, max(1, made.run_count) * sizeof(Run))
    made.banks = <Bank*>realloc(made.banks, max(1, made.bank_count) * sizeof(Bank))
    made.words = <Word*>realloc(made.words, max(1, made.word_count) * sizeof(Word))
    return made


cdef void add_to_words(Groups* made, Bank* bank, int32_t aim) noexcept nogil:
    cdef Word* word
    if bank.last_word == bank.word or made.words[made.word_count - 1].index != aim >> 6:
        word = &made.words[made.word_count]
        word.index = aim >> 6
        word.first = made.count - 1
        word.mask = 0
        made.word_count += 1
        bank.last_word = made.word_count
    made.words[made.word_count - 1].mask |= 1ULL << (aim & 63)


cdef inline int64_t groups_bytes(Groups* groups) noexcept nogil:
    if groups == NULL:
        return 0
    return (sizeof(Groups) + groups.count * sizeof(Group) + groups.run_count * sizeof(Run)
            + groups.bank_count * sizeof(Bank) + groups.word_count * sizeof(Word)
            + <int64_t>groups.size * <int64_t>(sizeof(Item) + 8))


cdef int32_t lower_bound(double* keys, int32_t begin, int32_t end, double key) noexcept nogil:
    cdef int32_t middle
    while begin < end:
        middle = (begin + end) >> 1
        if keys[middle] < key:
            begin = middle + 1
        else:
            end = middle
    return begin


cdef int32_t upper_bound(double* keys, int32_t begin, int32_t end, double key) noexcept nogil:
    cdef int32_t middle
    while begin < end:
        middle = (begin + end) >> 1
        if keys[middle] <= key:
            begin = middle + 1
        else:
            end = middle
    return begin


cdef inline bint push(Ints* list_, int32_t item) noexcept nogil:
    cdef void* grown
    if list_.count == list_.room:
        grown = realloc(list_.items, (<size_t>list_.room * 2 + 256) * sizeof(int32_t))
        if grown == NULL:
            return False
        list_.items = <int32_t*>grown
        list_.room = list_.room * 2 + 256
    list_.items[list_.count] = item
    list_.count += 1
    return True


@cython.final
cdef class Runner(Consumer):
    """Runs documents through an automaton, one at a time; keeps its own lazy DFA.

    `cache` bounds the bytes of the DFA: over it, the DFA is thrown away and grows anew from where
    the document stands.
    """

    cdef Automaton automaton
    cdef int64_t cache
    cdef int32_t max_active
    # the DFA
    cdef Dfa* dfas
    cdef int32_t dfa_count
    cdef int32_t dfa_room
    cdef int64_t held
    cdef uint64_t* move_keys     # (dfa, tag) -> dfa
    cdef int32_t* move_ends
    cdef int64_t* move_versions  # of the automaton when the move was last known to be right
    cdef uint32_t move_mask
    cdef uint32_t move_used
    cdef int32_t* set_slots      # sets by their hash
    cdef uint32_t set_mask
    cdef uint32_t set_used
    cdef Groups** shared         # groups of single states with many entries
    cdef int32_t shared_count
    cdef int32_t shared_room
    # scratch
    cdef uint32_t* seen          # by state
    cdef int32_t seen_room
    cdef uint32_t seen_stamp
    cdef Ints fresh
    cdef Ints loops
    cdef Ints gathered
    cdef Sortable* sortable
    cdef int32_t sortable_room
    cdef uint8_t* marks          # by subscriber
    cdef int32_t mark_room
    cdef uint8_t epoch
    cdef int16_t* armed          # by slot
    cdef int32_t armed_room
    cdef Undo* undos
    cdef int32_t undo_count
    cdef int32_t undo_room
    cdef Memo* memos
    cdef uint32_t memo_epoch
    cdef int32_t doubts[DOUBTS]
    cdef Value* values
    cdef Truths* truths          # by level
    cdef int32_t truth_levels
    cdef int32_t route_dfa       # the set before any step of a route, or -1
    cdef int32_t* stack_route
    cdef Ints out
    cdef Ints undecided
    cdef Ints planned            # patterns that matched and have a plan
    cdef Ints tuples
    cdef int32_t* stack_dfa
    cdef int32_t* stack_row
    cdef Doc doc
    cdef readonly bint consumed  # the document has come through
    cdef Outcome outcome
    cdef int64_t budget
    cdef int32_t most_tuples
    # counters
    cdef readonly int64_t documents
    cdef readonly int64_t elements
    cdef readonly int64_t steps      # NFA steps: paths that were not known
    cdef readonly int64_t flushes
    cdef readonly int64_t asked      # groups looked at
    cdef readonly int64_t fired      # entries whose first condition held

    def __cinit__(self, Automaton automaton not None, int64_t cache, int32_t max_active):
        self.automaton = automaton
        self.cache = cache
        self.max_active = max_active
        self.stack_dfa = <int32_t*>malloc((DEEPEST + 2) * sizeof(int32_t))
        self.stack_row = <int32_t*>malloc((DEEPEST + 2) * sizeof(int32_t))
        self.stack_route = <int32_t*>malloc((DEEPEST + 2) * sizeof(int32_t))
        self.memos = <Memo*>calloc(MEMOS, sizeof(Memo))
        self.values = <Value*>calloc(VALUES, sizeof(Value))
        if (self.stack_dfa == NULL or self.stack_row == NULL or self.stack_route == NULL
                or self.memos == NULL or self.values == NULL):
            raise MemoryError
        memset(&self.doc, 0, sizeof(Doc))
        self.doc.placed = <Placed*>calloc(PLACES, sizeof(Placed))
        if self.doc.placed == NULL or not self._start_cache():
            raise MemoryError

    def __dealloc__(self):
        cdef int32_t level
        self._drop_cache()
        free(self.dfas)
        free(self.shared)
        free(self.seen)
        free(self.fresh.items)
        free(self.loops.items)
        free(self.gathered.items)
        free(self.sortable)
        free(self.marks)
        free(self.armed)
        free(self.undos)
        free(self.memos)
        free(self.values)
        for level in range(self.truth_levels):
            free(self.truths[level].bits)
            free(self.truths[level].found.items)
        free(self.truths)
        free(self.stack_route)
        free(self.out.items)
        free(self.undecided.items)
        free(self.planned.items)
        free(self.tuples.items)
        free(self.stack_dfa)
        free(self.stack_row)
        free(self.doc.scratch)
        free(self.doc.placed)

    # -- the lazy DFA --

    cdef bint _start_cache(self) noexcept nogil:
        self.move_mask = 4095
        self.move_used = 0
        self.move_keys = <uint64_t*>calloc(4096, sizeof(uint64_t))
        self.move_ends = <int32_t*>malloc(4096 * sizeof(int32_t))
        self.move_versions = <int64_t*>malloc(4096 * sizeof(int64_t))
        self.set_mask = 1023
        self.set_used = 0
        self.set_slots = <int32_t*>malloc(1024 * sizeof(int32_t))
        if (self.move_keys == NULL or self.move_ends == NULL or self.move_versions == NULL
                or self.set_slots == NULL):
            return False
        memset(self.set_slots, 0xff, 1024 * sizeof(int32_t))
        self.dfa_count = 0
        self.held = 0
        self.route_dfa = -1
        return True

    cdef void _drop_cache(self) noexcept nogil:
        cdef int32_t i
        for i in range(self.dfa_count):
            self._empty(&self.dfas[i])
        for i in range(self.shared_count):
            free_groups(self.shared[i])
        self.shared_count = 0
        self.dfa_count = 0
        free(self.move_keys)
        free(self.move_ends)
        free(self.move_versions)
        free(self.set_slots)
        self.move_keys = NULL
        self.move_ends = NULL
        self.move_versions = NULL
        self.set_slots = NULL

    cdef void _empty(self, Dfa* dfa) noexcept nogil:
        self.held -= dfa_bytes(dfa) - <int64_t>sizeof(Dfa)  # its place is not used again
        free(dfa.members)
        free(dfa.accepts)
        free_groups(dfa.own)
        free(dfa.shared)
        memset(dfa, 0, sizeof(Dfa))
        dfa.version = -1

    cdef inline bint _fresh(self, Dfa* dfa) noexcept nogil:
        # Whether no state of the set has changed since the set was made.
        cdef int32_t i
        cdef int64_t version = dfa.version
        if version == self.automaton.version:
            return True
        if version < 0:
            return False
        for i in range(dfa.count):
            if self.automaton.stamps[dfa.members[i]] > version:
                return False
        dfa.version = self.automaton.version
        return True

    cdef inline int32_t _known(self, int32_t dfa, int32_t tag) noexcept nogil:
        cdef uint64_t key = (<uint64_t>(dfa + 1) << 32) | <uint32_t>tag
        cdef uint32_t slot = <uint32_t>mix(key) & self.move_mask
        while self.move_keys[slot] != 0:
            if self.move_keys[slot] == key:
                if (self.move_versions[slot] == self.automaton.version
                        or self._still_leads(slot, dfa, tag)):
                    return self.move_ends[slot]
                return -1
            slot = (slot + 1) & self.move_mask
        return -1

    cdef bint _still_leads(self, uint32_t slot, int32_t dfa, int32_t tag) noexcept nogil:
        # Whether no edge that a move took, or would have taken, has come or gone since.
        cdef int64_t version = self.move_versions[slot]
        cdef bint named = (tag < self.automaton.tag_room
                           and self.automaton.tag_stamps[tag] > version)
        cdef bint starred = self.automaton.any_stamp > version
        cdef State* state
        cdef int32_t i
        if named or starred:
            for i in range(self.dfas[dfa].count):
                state = &self.automaton.states[self.dfas[dfa].members[i]]
                if (starred and state.any_stamp > version) or (named and state.edge_stamp > version):
                    return False
        self.move_versions[slot] = self.automaton.version
        return True

    cdef bint _remember(self, int32_t dfa, int32_t tag, int32_t end) noexcept nogil:
        cdef uint64_t key = (<uint64_t>(dfa + 1) << 32) | <uint32_t>tag
        cdef uint32_t slot, i, size
        cdef uint64_t* keys
        cdef int32_t* ends
        cdef int64_t* versions
        if (self.move_used + 1) * 2 > self.move_mask:
            size = (self.move_mask + 1) * 2
            keys = <uint64_t*>calloc(size, sizeof(uint64_t))
            ends = <int32_t*>malloc(size * sizeof(int32_t))
            versions = <int64_t*>malloc(size * sizeof(int64_t))
            if keys == NULL or ends == NULL or versions == NULL:
                free(keys)
                free(ends)
                free(versions)
                return False
            for i in range(self.move_mask + 1):
                if self.move_keys[i] != 0:
                    slot = <uint32_t>mix(self.move_keys[i]) & (size - 1)
                    while keys[slot] != 0:
                        slot = (slot + 1) & (size - 1)
                    keys[slot] = self.move_keys[i]
                    ends[slot] = self.move_ends[i]
                    versions[slot] = self.move_versions[i]
            free(self.move_keys)
            free(self.move_ends)
            free(self.move_versions)
            self.move_keys = keys
            self.move_ends = ends
            self.move_versions = versions
            self.move_mask = size - 1
            self.held += size * 10
        slot = <uint32_t>mix(key) & self.move_mask
        while self.move_keys[slot] != 0 and self.move_keys[slot] != key:
            slot = (slot + 1) & self.move_mask
        self.move_used += self.move_keys[slot] == 0
        self.move_keys[slot] = key
        self.move_ends[slot] = end
        self.move_versions[slot] = self.automaton.version
        return True

    cdef inline void _next_stamp(self) noexcept nogil:
        self.seen_stamp += 1
        if self.seen_stamp == 0:
            memset(self.seen, 0, self.seen_room * sizeof(uint32_t))
            self.seen_stamp = 1

    cdef int32_t _root(self, int32_t root) noexcept nogil:
        # The set before any step: above the root element, or at the node a route begins at.
        cdef int32_t loop = self.automaton.states[root].loop
        self.fresh.count = 0
        self.loops.count = 0
        self._next_stamp()
        if not push(&self.fresh, root) or (loop and not push(&self.loops, loop)):
            return -NO_MEMORY
        return self._intern()

    cdef inline bint _enter(self, int32_t state) noexcept nogil:
        # A state that the step leads to, and the self-loop state behind it.
        cdef int32_t loop
        if self.seen[state] == self.seen_stamp:
            return True
        self.seen[state] = self.seen_stamp
        if not push(&self.fresh, state):
            return False
        loop = self.automaton.states[state].loop
        if loop and self.seen[loop] != self.seen_stamp:
            self.seen[loop] = self.seen_stamp
            return push(&self.loops, loop)
        return True

    cdef int32_t _step(self, int32_t from_, int32_t tag) noexcept nogil:
        # One step of the NFA: from every state of the set along the tag, `*` and `prefix:*`.
        cdef Dfa* dfa = &self.dfas[from_]
        cdef int32_t i, state, end
        cdef int32_t space = self.automaton.space_of[tag] if tag < self.automaton.space_known else 0
        cdef uint64_t tag_bit = 1ULL << (<uint32_t>tag & 63)
        cdef uint64_t any_bit = 1ULL << (<uint32_t>ANY & 63)
        cdef uint64_t bloom
        self.steps += 1
        self._next_stamp()
        self.fresh.count = 0
        self.loops.count = 0
        for i in range(dfa.count):
            state = dfa.members[i]
            if self.automaton.states[state].is_loop and self.seen[state] != self.seen_stamp:
                self.seen[state] = self.seen_stamp
                if not push(&self.loops, state):
                    return -NO_MEMORY
            bloom = self.automaton.states[state].bloom
            if bloom & tag_bit:
                end = self.automaton.edge(state, tag)
                if end and not self._enter(end):
                    return -NO_MEMORY
            if bloom & any_bit:
                end = self.automaton.edge(state, ANY)
                if end and not self._enter(end):
                    return -NO_MEMORY
            if space:
                end = self.automaton.edge(state, space)
                if end and not self._enter(end):
                    return -NO_MEMORY
        if self.fresh.count + self.loops.count > self.max_active:
            return -TOO_ACTIVE
        return self._intern()

    cdef int32_t _intern(self) noexcept nogil:
        # The DFA state of the set in `fresh` and `loops`.
        cdef uint64_t value = 0
        cdef int32_t i, found
        cdef uint32_t slot
        for i in range(self.fresh.count):
            value += mix(<uint64_t>self.fresh.items[i] + 0x9E3779B97F4A7C15ULL)
        for i in range(self.loops.count):
            value += mix(<uint64_t>self.loops.items[i] + 0xD1B54A32D192ED03ULL)
        value |= 1
        slot = <uint32_t>value & self.set_mask
        while True:
            found = self.set_slots[slot]
            if found < 0:
                break
            if self.dfas[found].hash == value and self._same_set(&self.dfas[found]):
                if self._fresh(&self.dfas[found]):
                    return found
                self._empty(&self.dfas[found])
                break
            slot = (slot + 1) & self.set_mask
        return self._new_dfa(value, slot)

    cdef bint _same_set(self, Dfa* dfa) noexcept nogil:
        # Sets come in different orders: every member must carry the stamp of this step.
        cdef int32_t i
        if dfa.matched != self.fresh.count or dfa.count != self.fresh.count + self.loops.count:
            return False
        if dfa.count == 0:
            return True
        for i in range(dfa.count):
            if self.seen[dfa.members[i]] != self.seen_stamp:
                return memcmp(dfa.members, self.fresh.items, 4 * self.fresh.count) == 0 and \
                    memcmp(dfa.members + dfa.matched, self.loops.items, 4 * self.loops.count) == 0
        return True

    cdef int32_t _new_dfa(self, uint64_t value, uint32_t slot) noexcept nogil:
        cdef int32_t index = self.dfa_count
        cdef int32_t room
        cdef void* grown
        cdef Dfa* dfa
        if index == self.dfa_room:
            room = index * 2 + 256
            grown = realloc(self.dfas, room * sizeof(Dfa))
            if grown == NULL:
                return -NO_MEMORY
            self.dfas = <Dfa*>grown
            self.dfa_room = room
        dfa = &self.dfas[index]
        memset(dfa, 0, sizeof(Dfa))
        self.dfa_count += 1
        dfa.hash = value
        dfa.version = self.automaton.version
        dfa.matched = self.fresh.count
        dfa.count = self.fresh.count + self.loops.count
        dfa.members = <int32_t*>malloc(max(1, dfa.count) * sizeof(int32_t))
        if dfa.members == NULL:
            return -NO_MEMORY
        memcpy(dfa.members, self.fresh.items, self.fresh.count * sizeof(int32_t))
        memcpy(dfa.members + dfa.matched, self.loops.items, self.loops.count * sizeof(int32_t))
        if not self._gather_accepts(dfa) or not self._gather_groups(dfa):
            return -NO_MEMORY
        self.held += dfa_bytes(dfa)
        self.set_used += self.set_slots[slot] < 0
        self.set_slots[slot] = index
        if self.set_used * 2 > self.set_mask and not self._grow_sets():
            return -NO_MEMORY
        return index

    cdef bint _grow_sets(self) noexcept nogil:
        cdef uint32_t size = (self.set_mask + 1) * 2
        cdef int32_t* slots = <int32_t*>malloc(size * sizeof(int32_t))
        cdef uint32_t i, slot
        if slots == NULL:
            return False
        memset(slots, 0xff, size * sizeof(int32_t))
        for i in range(self.set_mask + 1):
            if self.set_slots[i] >= 0:
                slot = <uint32_t>self.dfas[self.set_slots[i]].hash & (size - 1)
                while slots[slot] >= 0:
                    slot = (slot + 1) & (size - 1)
                slots[slot] = self.set_slots[i]
        free(self.set_slots)
        self.set_slots = slots
        self.set_mask = size - 1
        return True

    cdef bint _gather_accepts(self, Dfa* dfa) noexcept nogil:
        # Subscribers or, of the trie of routes, aims.
        cdef int32_t i, at
        cdef bint routes = dfa.matched > 0 and self.automaton.states[dfa.members[0]].is_route
        self.gathered.count = 0
        for i in range(dfa.matched):
            at = self.automaton.states[dfa.members[i]].accepts
            while at >= 0:
                if not push(&self.gathered, at):
                    return False
                at = self.automaton.aims[at].next if routes else self.automaton.sub_next[at]
        dfa.accept_count = self.gathered.count
        if dfa.accept_count:
            dfa.accepts = <int32_t*>malloc(dfa.accept_count * sizeof(int32_t))
            if dfa.accepts == NULL:
                return False
            memcpy(dfa.accepts, self.gathered.items, dfa.accept_count * sizeof(int32_t))
            # In order, so that marking goes through memory one way.
            qsort(dfa.accepts, dfa.accept_count, sizeof(int32_t), by_int)
        return True

    cdef bint _gather_groups(self, Dfa* dfa) noexcept nogil:
        cdef int32_t i, entry, begin
        cdef int32_t count = 0
        cdef Groups* groups
        cdef void* grown
        for i in range(dfa.matched):
            begin = count
            entry = self.automaton.states[dfa.members[i]].entries
            while entry >= 0:
                if not never(&self.automaton.entries[entry]):
                    if count == self.sortable_room:
                        grown = realloc(self.sortable, (count * 2 + 256) * sizeof(Sortable))
                        if grown == NULL:
                            return False
                        self.sortable = <Sortable*>grown
                        self.sortable_room = count * 2 + 256
                    self._classify(&self.sortable[count], entry)
                    self.sortable[count].aim = self.automaton.entries[entry].aim
                    self.sortable[count].up = self.automaton.entries[entry].up
                    self.sortable[count].ask = self.automaton.entries[entry].ask
                    self.sortable[count].key = self.automaton.entries[entry].key
                    count += 1
                entry = self.automaton.entries[entry].next
            if count - begin > OWN_LIMIT:
                groups = self._shared_groups(dfa.members[i], &self.sortable[begin], count - begin)
                if groups == NULL:
                    return False
                grown = realloc(dfa.shared, (dfa.shared_count + 1) * sizeof(void*))
                if grown == NULL:
                    return False
                dfa.shared = <Groups**>grown
                dfa.shared[dfa.shared_count] = groups
                dfa.shared_count += 1
                count = begin
        if count:
            dfa.own = make_groups(self.sortable, count)
            return dfa.own != NULL
        return True

    cdef void _classify(self, Sortable* sortable, int32_t index) noexcept nogil:
        cdef Entry* entry = &self.automaton.entries[index]
        cdef Aim* aim = &self.automaton.aims[entry.aim]
        cdef Item* item = &sortable.item
        item.entry = index
        item.needs = entry.needs
        item.arms = entry.arms
        item.span = entry.span
        item.more = entry.rests > 0
        item.head = -1
        item.alone = False
        if entry.pattern >= 0:
            item.head = self.automaton.patterns[entry.pattern].subscribers
            item.alone = (item.head >= 0 and self.automaton.sub_next[item.head] < 0
                          and self.automaton.patterns[entry.pattern].plan < 0)
        sortable.simple = item.arms < 0 and item.needs < 0 and not item.more
        sortable.exact = aim.exact
        sortable.cls = ASKED
        sortable.rank = entry.aim
        # contains() and starts-with() have something to say even of what is not there.
        if entry.ask != HOLDING and entry.ask != HEADED:
            if aim.kind == ATTRIBUTE_VALUE:
                sortable.cls = BY_ATTRIBUTE
                sortable.rank = aim.tag
            elif aim.kind == ROUTE_VALUE and aim.state >= 0:
                sortable.cls = BY_ROUTE

    cdef Groups* _shared_groups(self, int32_t state, Sortable* items, int32_t count) noexcept nogil:
        cdef int32_t i
        cdef void* grown
        cdef Groups* groups
        for i in range(self.shared_count):
            groups = self.shared[i]
            if groups.state == state and groups.stamp == self.automaton.stamps[state]:
                return groups
        groups = make_groups(items, count)
        if groups == NULL:
            return NULL
        groups.state = state
        groups.stamp = self.automaton.stamps[state]
        if self.shared_count == self.shared_room:
            grown = realloc(self.shared, (self.shared_room * 2 + 16) * sizeof(void*))
            if grown == NULL:
                free_groups(groups)
                return NULL
            self.shared = <Groups**>grown
            self.shared_room = self.shared_room * 2 + 16
        self.shared[self.shared_count] = groups
        self.shared_count += 1
        self.held += groups_bytes(groups)
        return groups

    # -- one document --

    cdef Outcome _prepare(self) noexcept nogil:
        cdef void* grown
        cdef int32_t room, i
        if self.seen_room < self.automaton.state_count:
            room = self.automaton.state_count + self.automaton.state_count // 4 + 64
            grown = realloc(self.seen, room * sizeof(uint32_t))
            if grown == NULL:
                return NO_MEMORY
            self.seen = <uint32_t*>grown
            memset(self.seen, 0, room * sizeof(uint32_t))
            self.seen_room = room
            self.seen_stamp = 0
        if self.mark_room < self.automaton.sub_count:
            room = self.automaton.sub_count + self.automaton.sub_count // 4 + 64
            grown = realloc(self.marks, room)
            if grown == NULL:
                return NO_MEMORY
            self.marks = <uint8_t*>grown
            memset(self.marks + self.mark_room, 0, room - self.mark_room)
            self.mark_room = room
        if self.armed_room < self.automaton.slot_count:
            room = self.automaton.slot_count + self.automaton.slot_count // 4 + 64
            grown = realloc(self.armed, room * sizeof(int16_t))
            if grown == NULL:
                return NO_MEMORY
            self.armed = <int16_t*>grown
            for i in range(self.armed_room, room):
                self.armed[i] = NOWHERE
            self.armed_room = room
        self.epoch += 1
        if self.epoch == 0:
            memset(self.marks, 0, self.mark_room)
            for i in range(self.dfa_count):
                self.dfas[i].epoch = 0
            self.epoch = 1
        self.memo_epoch += 1
        self.doc.epoch = self.memo_epoch
        self.route_dfa = -1
        self.out.count = 0
        self.undecided.count = 0
        memset(self.doubts, 0xff, sizeof(self.doubts) if self.doc.partial else 0)
        self.planned.count = 0
        self.tuples.count = 0
        return DONE

    cdef int32_t _advance(self, int32_t depth, int32_t row) noexcept nogil:
        # The DFA state of an element below the one at `depth - 1` on the stack.
        cdef int32_t from_ = self.stack_dfa[depth]
        cdef int32_t tag = self.doc.tags[row]
        cdef int32_t end = self._known(from_, tag)
        if end >= 0 and self._fresh(&self.dfas[end]):
            return end
        if self.held > self.cache and self.dfa_count > depth + 16:
            end = self._flush(depth)
            if end < 0:
                return end
            from_ = self.stack_dfa[depth]
        end = self._step(from_, tag)
        if end >= 0 and not self._remember(from_, tag, end):
            return -NO_MEMORY
        return end

    cdef int32_t _flush(self, int32_t depth) noexcept nogil:
        # Throw the DFA away and walk the open elements again.
        cdef int32_t i, end
        self.flushes += 1
        self._drop_cache()
        if not self._start_cache():
            return -NO_MEMORY
        end = self._root(0)
        for i in range(depth + 1):
            if end < 0:
                return end
            self.stack_dfa[i] = end
            if i < depth:
                end = self._step(end, self.doc.tags[self.stack_row[i]])
        return 0

    cdef Outcome _run(self) noexcept nogil:
        cdef Doc* doc = &self.doc
        cdef int32_t row, depth, dfa
        cdef int32_t last = -1
        cdef int16_t base
        cdef Outcome outcome = self._prepare()
        if outcome != DONE or doc.rows == 0:
            return outcome
        base = doc.levels[0]
        dfa = self._root(0)
        if dfa < 0:
            return <Outcome>-dfa
        self.stack_dfa[0] = dfa
        for row in range(doc.rows):
            if doc.kinds[row] != ELEMENT:
                continue
            depth = doc.levels[row] - base
            if depth < 0 or depth > last + 1:
                self._disarm(-1)
                return NO_TREE
            last = depth
            self.elements += 1
            if self.undo_count:
                self._disarm(<int16_t>depth)
            dfa = self._advance(depth, row)
            if dfa < 0:
                self._disarm(-1)
                return <Outcome>-dfa
            self.stack_dfa[depth + 1] = dfa
            self.stack_row[depth] = row
            if self.dfas[dfa].epoch != self.epoch:
                self.dfas[dfa].epoch = self.epoch
                if self.dfas[dfa].accept_count and not self._accept(&self.dfas[dfa]):
                    return NO_MEMORY
            if self.dfas[dfa].own != NULL:
                self._ask_groups(self.dfas[dfa].own, depth)
            if self.dfas[dfa].shared_count:
                self._ask_shared(dfa, depth)
            if doc.budget < 0:
                self._give_up(&self.dfas[dfa])
        self._disarm(-1)
        self.documents += 1
        return DONE

    cdef bint _accept(self, Dfa* dfa) noexcept nogil:
        # Every subscriber once, without a branch that depends on whether it was there before.
        cdef int32_t i, subscriber
        cdef int32_t count = self.out.count
        cdef int32_t* out
        cdef uint8_t epoch = self.epoch
        cdef uint8_t* marks = self.marks
        cdef void* grown
        if count + dfa.accept_count > self.out.room:
            grown = realloc(self.out.items, <size_t>(count + dfa.accept_count) * 2 * sizeof(int32_t))
            if grown == NULL:
                return False
            self.out.items = <int32_t*>grown
            self.out.room = (count + dfa.accept_count) * 2
        out = self.out.items
        for i in range(dfa.accept_count):
            subscriber = dfa.accepts[i]
            out[count] = subscriber
            count += marks[subscriber] != epoch
            marks[subscriber] = epoch
        self.out.count = count
        return True

    cdef void _disarm(self, int16_t level) noexcept nogil:
        # Leave the elements at this level and below.
        while self.undo_count and self.undos[self.undo_count - 1].level >= level:
            self.undo_count -= 1
            self.armed[self.undos[self.undo_count].slot] = self.undos[self.undo_count].depth

    cdef void _give_up(self, Dfa* dfa) noexcept nogil:
        # The work is used up: nothing that hangs on this state is certain any more.
        cdef int32_t i, j
        if dfa.given_up == self.memo_epoch:
            return
        dfa.given_up = self.memo_epoch
        if dfa.own != NULL:
            for i in range(dfa.own.size):
                push(&self.undecided, dfa.own.items[i].entry)
        for i in range(dfa.shared_count):
            for j in range(dfa.shared[i].size):
                push(&self.undecided, dfa.shared[i].items[j].entry)

    cdef void _ask_shared(self, int32_t dfa, int32_t depth) noexcept nogil:
        # By number: the walk below a node may make sets, and their array moves as it grows.
        cdef int32_t i
        for i in range(self.dfas[dfa].shared_count):
            self._ask_groups(self.dfas[dfa].shared[i], depth)

    cdef void _ask_groups(self, Groups* groups, int32_t depth) noexcept nogil:
        cdef int32_t i, j
        cdef Bank* bank
        for i in range(groups.bank_count):
            bank = &groups.banks[i]
            if bank.simple:
                if (bank.epoch == self.memo_epoch
                        and bank.row == self.stack_row[depth - bank.up]):
                    continue
                bank.epoch = self.memo_epoch
                bank.row = self.stack_row[depth - bank.up]
            if bank.cls == BY_ATTRIBUTE:
                self._ask_attributes(groups, bank, depth)
            elif bank.cls == BY_ROUTE and not (
                    self.doc.partial and self.doc.ends[self.stack_row[depth - bank.up]] == OPEN):
                self._ask_routes(groups, bank, depth)
            else:
                for j in range(bank.begin, bank.end):
                    self._ask(groups, &groups.groups[j], depth)

    cdef bint _ask_partly(self, Groups* groups, Group* group, int32_t depth) noexcept nogil:
        # In a batch, nobody knows the whole content of an element that is open, nor the place of
        # its children. Whether all is done that can be done; if not, the group is asked as ever.
        cdef Doc* doc = &self.doc
        cdef Aim* aim = &self.automaton.aims[group.aim]
        cdef int32_t row = self.stack_row[depth - group.up]
        cdef bint is_open = doc.ends[row] == OPEN
        cdef bint truth, doubted
        cdef int32_t at, last, i
        cdef Run* run
        doc.unsure = False
        if aim.kind == ALWAYS or aim.kind == ATTRIBUTE_VALUE:
            return False
        if aim.kind == PLACE:
            position_of(doc, row, aim.tag, ELEMENT, NULL, aim)
        elif aim.kind == TRUTH:
            self._remembered(group.aim, row, NULL, aim.cond)
        elif is_open and aim.kind == SELF_VALUE:
            doc.unsure = True
        elif is_open and group.up > 0:
            # All elements below it may come to ask, so it is not looked through each time.
            if aim.kind == ROUTE_VALUE and group.asks == 1:
                self._remembered(group.aim, row, &aim.route, NULL)
            else:
                doc.unsure = aim.kind == TEXT_VALUE or not is_attribute(&aim.route)
        if doc.unsure:
            doc.unsure = False
            self._doubt(groups, group.first, group.last)
            return True
        if not is_open or group.up > 0 or aim.kind == PLACE or aim.kind == TRUTH:
            return False
        if aim.kind == ROUTE_VALUE and is_attribute(&aim.route):
            return False
        doc.doubted = False
        self.gathered.count = 0
        if aim.kind == TEXT_VALUE:
            at = row + 1
            last = row + size_of(doc, row)
            while at < last:
                if doc.kinds[at] == TEXT:
                    push(&self.gathered, at)
                at += size_of(doc, at)
        else:
            collect(doc, &aim.route, 0, row, &self.gathered)
        doubted = doc.doubted
        truth = self.gathered.count > 0
        for i in range(self.gathered.count):
            at = self.gathered.items[i]
            if doc.kinds[at] != ELEMENT or doc.ends[at] != OPEN:
                self._ask_row(groups, group, at, depth)
                continue
            doubted = doubted or group.asks != 1
            if group.asks & 1:
                run = &groups.runs[group.begin]
                self._fire_range(groups, run.begin, run.end, depth)
        if doubted:
            self._doubt(groups, group.first, group.last)
        elif not truth or group.asks != 1:
            # The batch with the node that is looked for will tell, if the entry asks for no more
            # than this element and that node.
            for i in range(group.first, group.last):
                if groups.items[i].arms >= 0:
                    self._doubt_entry(groups.items[i].entry)
        if group.asks & FIRST_ASKS:
            for i in range(group.begin, group.end):
                run = &groups.runs[i]
                if run.ask == HOLDING or run.ask == HEADED:
                    self._doubt(groups, run.begin, run.end)
        return True

    cdef void _doubt(self, Groups* groups, int32_t begin, int32_t end) noexcept nogil:
        cdef int32_t i
        for i in range(begin, end):
            self._doubt_entry(groups.items[i].entry)

    cdef inline void _doubt_entry(self, int32_t entry) noexcept nogil:
        # Many elements ask the same in vain.
        cdef int32_t* last = &self.doubts[entry & (DOUBTS - 1)]
        if last[0] != entry:
            last[0] = entry
            push(&self.undecided, entry)

    cdef void _ask_attributes(self, Groups* groups, Bank* bank, int32_t depth) noexcept nogil:
        cdef Doc* doc = &self.doc
        cdef int32_t at = self.stack_row[depth - bank.up] + 1
        cdef int32_t begin, end, middle, tag
        while at < doc.rows and doc.kinds[at] == ATTRIBUTE:
            tag = doc.tags[at]
            begin = bank.begin
            end = bank.end
            while begin < end:
                middle = (begin + end) >> 1
                if self.automaton.aims[groups.groups[middle].aim].tag < tag:
                    begin = middle + 1
                else:
                    end = middle
            if (begin < bank.end
                    and self.automaton.aims[groups.groups[begin].aim].tag == tag):
                self._ask_value(groups, &groups.groups[begin], self._value(at), depth)
            at += 1

    cdef inline Value* _value(self, int32_t row) noexcept nogil:
        # The memo of an attribute's value.
        cdef Value* value = &self.values[row & (VALUES - 1)]
        if value.row != row or value.epoch != self.memo_epoch:
            value.epoch = self.memo_epoch
            value.row = row
            value.literal = UNASKED
            value.counted = False
        return value

    cdef void _ask_routes(self, Groups* groups, Bank* bank, int32_t depth) noexcept nogil:
        # Only the routes that are there, whichever of the two lists is the shorter way to them.
        cdef Truths* truths = self._truths_of(depth - bank.up)
        cdef int32_t i, begin, end, middle, aim
        cdef uint64_t hits
        cdef Word* word
        if truths == NULL or truths.found.count == 0:
            return
        if truths.found.count * 8 < bank.last_word - bank.word:
            for i in range(truths.found.count):
                aim = truths.found.items[i]
                begin = bank.word
                end = bank.last_word
                while begin < end:
                    middle = (begin + end) >> 1
                    if groups.words[middle].index < aim >> 6:
                        begin = middle + 1
                    else:
                        end = middle
                word = &groups.words[begin]
                if (begin < bank.last_word and word.index == aim >> 6
                        and (word.mask >> (aim & 63)) & 1):
                    self._ask_route(groups, word, 1ULL << (aim & 63), depth)
            return
        for i in range(bank.word, bank.last_word):
            word = &groups.words[i]
            hits = word.mask & truths.bits[word.index]
            while hits:
                self._ask_route(groups, word, hits & (~hits + 1), depth)
                hits &= hits - 1

    cdef inline void _ask_route(self, Groups* groups, Word* word, uint64_t bit,
                                int32_t depth) noexcept nogil:
        cdef Group* group = &groups.groups[word.first + popcount(word.mask & (bit - 1))]
        self.asked += 1
        if group.asks == 1 and group.exact:
            self._fire_range(groups, group.first, group.last, depth)
        else:
            self._ask(groups, group, depth)

    cdef void _ask(self, Groups* groups, Group* group, int32_t depth) noexcept nogil:
        cdef Doc* doc = &self.doc
        cdef Aim* aim = &self.automaton.aims[group.aim]
        cdef int32_t row = self.stack_row[depth - group.up]
        cdef int32_t at, last
        cdef int32_t first = -1
        self.asked += 1
        if doc.partial and self._ask_partly(groups, group, depth):
            return
        if aim.kind == ALWAYS:
            self._fire_range(groups, group.first, group.last, depth)
        elif aim.kind == ATTRIBUTE_VALUE:
            at = row + 1
            while at < doc.rows and doc.kinds[at] == ATTRIBUTE:
                if doc.tags[at] == aim.tag:
                    first = at
                    break
                at += 1
            self._ask_first(groups, group, first, depth)
        elif aim.kind == PLACE:
            self._ask_number(groups, group,
                             <double>position_of(doc, row, aim.tag, ELEMENT, NULL, aim),
                             depth)
        elif aim.kind == TRUTH:
            if self._remembered(group.aim, row, NULL, aim.cond):
                self._fire_range(groups, group.first, group.last, depth)
        elif aim.kind == SELF_VALUE:
            self._ask_row(groups, group, row, depth)
            if group.asks & FIRST_ASKS:
                self._ask_first(groups, group, row, depth)
        elif aim.kind == TEXT_VALUE:
            at = row + 1
            last = row + size_of(doc, row)
            while at < last:
                if doc.kinds[at] == TEXT:
                    if first < 0:
                        first = at
                    self._ask_row(groups, group, at, depth)
                at += size_of(doc, at)
            if group.asks & FIRST_ASKS:
                self._ask_first(groups, group, first, depth)
        elif group.asks == 1:
            if self._remembered(group.aim, row, &aim.route, NULL):
                self._fire_range(groups, group.first, group.last, depth)
        else:
            self.gathered.count = 0
            collect(doc, &aim.route, 0, row, &self.gathered)
            for at in range(self.gathered.count):
                last = self.gathered.items[at]
                if first < 0 or last < first:
                    first = last
                self._ask_row(groups, group, last, depth)
            if group.asks & FIRST_ASKS:
                self._ask_first(groups, group, first, depth)

    cdef inline Truths* _truths_of(self, int32_t level) noexcept nogil:
        # Which routes lead somewhere from the open element at a level, predicates aside.
        cdef Truths* truths
        if level >= self.truth_levels and not self._more_levels(level):
            return NULL
        truths = &self.truths[level]
        if truths.row != self.stack_row[level] or truths.epoch != self.memo_epoch:
            if not self._find_truths(truths, self.stack_row[level]):
                return NULL
        return truths

    cdef bint _more_levels(self, int32_t level) noexcept nogil:
        cdef int32_t wanted = level + 16
        cdef void* grown = realloc(self.truths, wanted * sizeof(Truths))
        if grown == NULL:
            return False
        self.truths = <Truths*>grown
        memset(&self.truths[self.truth_levels], 0, (wanted - self.truth_levels) * sizeof(Truths))
        self.truth_levels = wanted
        return True

    cdef bint _find_truths(self, Truths* truths, int32_t row) noexcept nogil:
        # One walk below the row, through the trie of all routes.
        cdef Doc* doc = &self.doc
        cdef int32_t i, at, last, dfa, depth, aim
        cdef int32_t words = (self.automaton.aim_count >> 6) + 1
        cdef int16_t base = doc.levels[row]
        cdef void* grown
        truths.epoch = 0
        if truths.room < words:
            grown = realloc(truths.bits, words * 2 * sizeof(uint64_t))
            if grown == NULL:
                return False
            truths.bits = <uint64_t*>grown
            memset(truths.bits, 0, words * 2 * sizeof(uint64_t))
            truths.room = words * 2
        else:
            for i in range(truths.found.count):
                truths.bits[truths.found.items[i] >> 6] = 0
        truths.found.count = 0
        if self.route_dfa < 0:
            self.route_dfa = self._root(self.automaton.route_root)
            if self.route_dfa < 0:
                return False
        self.stack_route[0] = self.route_dfa
        last = row + size_of(doc, row)
        at = row + 1
        while at < last:
            if doc.kinds[at] == ELEMENT:
                depth = doc.levels[at] - base
                dfa = self._known(self.stack_route[depth - 1], doc.tags[at])
                if dfa < 0 or not self._fresh(&self.dfas[dfa]):
                    dfa = self._step(self.stack_route[depth - 1], doc.tags[at])
                    if dfa < 0 or not self._remember(self.stack_route[depth - 1],
                                                     doc.tags[at], dfa):
                        return False
                self.stack_route[depth] = dfa
                if self.dfas[dfa].count == 0:
                    at += size_of(doc, at)  # no route goes on below
                    continue
                for i in range(self.dfas[dfa].accept_count):
                    aim = self.dfas[dfa].accepts[i]
                    if not (truths.bits[aim >> 6] >> (aim & 63)) & 1:
                        truths.bits[aim >> 6] |= 1ULL << (aim & 63)
                        if not push(&truths.found, aim):
                            return False
            at += 1
        truths.row = row
        truths.epoch = self.memo_epoch
        return True

    cdef bint _remembered(self, int32_t aim, int32_t row, Route* route, Cond* cond) noexcept nogil:
        # Several elements ask the same of one node above them.
        cdef uint64_t key = (<uint64_t>row << 32) | <uint32_t>aim
        cdef Memo* memo = &self.memos[mix(key) & (MEMOS - 1)]
        if memo.key == key and memo.epoch == self.memo_epoch:
            self.doc.unsure = memo.unsure
            return memo.truth
        self.doc.unsure = False
        memo.key = key
        memo.epoch = self.memo_epoch
        if route != NULL:
            memo.truth = reaches(&self.doc, route, 0, row, NULL, NULL)
        else:
            memo.truth = holds(&self.doc, cond, row)
        memo.unsure = self.doc.unsure
        return memo.truth

    cdef void _ask_row(self, Groups* groups, Group* group, int32_t row,
                       int32_t depth) noexcept nogil:
        cdef Value value
        value.row = row
        value.literal = UNASKED
        value.counted = False
        self._ask_value(groups, group, &value, depth)

    cdef void _ask_value(self, Groups* groups, Group* group, Value* value,
                         int32_t depth) noexcept nogil:
        cdef const char* text = NULL
        cdef int32_t length = 0
        cdef int32_t i, j, begin, end
        cdef Run* run
        self.asked += 1
        if group.asks & 1:
            run = &groups.runs[group.begin]
            self._fire_range(groups, run.begin, run.end, depth)
        if group.asks & STRING_ASKS:
            if value.literal == UNASKED:
                string_value(&self.doc, value.row, &text, &length)
                value.literal = self.automaton.find_literal(text, length)
            for i in range(group.begin, group.end):
                run = &groups.runs[i]
                if run.ask == SAME and value.literal >= 0:
                    begin = lower_bound(groups.keys, run.begin, run.end, value.literal)
                    end = begin
                    while end < run.end and groups.keys[end] == value.literal:
                        end += 1
                    self._fire_range(groups, begin, end, depth)
                elif run.ask == OTHER:
                    for j in range(run.begin, run.end):
                        if groups.keys[j] != value.literal:
                            self._fire(&groups.items[j], depth)
        if group.asks & NUMBER_ASK_BITS:
            if not value.counted:
                string_value(&self.doc, value.row, &text, &length)
                value.number = to_number(text, length)
                value.counted = True
            self._ask_number(groups, group, value.number, depth)

    cdef void _ask_number(self, Groups* groups, Group* group, double number,
                          int32_t depth) noexcept nogil:
        cdef int32_t i, j, begin, end
        cdef Run* run
        for i in range(group.begin, group.end):
            run = &groups.runs[i]
            begin = run.begin
            end = run.end
            if run.ask == UNEQUAL:
                for j in range(begin, end):
                    if groups.keys[j] != number:
                        self._fire(&groups.items[j], depth)
                continue
            if run.ask < EQUAL or run.ask > AT_LEAST or isnan(number):
                continue
            if run.ask == EQUAL:
                begin = lower_bound(groups.keys, begin, end, number)
                end = upper_bound(groups.keys, begin, end, number)
            elif run.ask == BELOW:
                begin = upper_bound(groups.keys, begin, end, number)
            elif run.ask == AT_MOST:
                begin = lower_bound(groups.keys, begin, end, number)
            elif run.ask == ABOVE:
                end = lower_bound(groups.keys, begin, end, number)
            else:
                end = upper_bound(groups.keys, begin, end, number)
            self._fire_range(groups, begin, end, depth)

    cdef void _ask_first(self, Groups* groups, Group* group, int32_t row,
                         int32_t depth) noexcept nogil:
        # contains() and starts-with() look at the first node only, and at "" if there is none.
        cdef const char* text = self.doc.text
        cdef int32_t length = 0
        cdef int32_t i, j
        cdef Run* run
        cdef Literal* literal
        if row >= 0:
            string_value(&self.doc, row, &text, &length)
        for i in range(group.begin, group.end):
            run = &groups.runs[i]
            if run.ask != HOLDING and run.ask != HEADED:
                continue
            for j in range(run.begin, run.end):
                literal = &self.automaton.literals[<int32_t>groups.keys[j]]
                if run.ask == HOLDING:
                    if not contains(text, length, literal.text, literal.length):
                        continue
                elif length < literal.length or memcmp(text, literal.text, literal.length) != 0:
                    continue
                self._fire(&groups.items[j], depth)

    cdef void _fire_range(self, Groups* groups, int32_t begin, int32_t end,
                          int32_t depth) noexcept nogil:
        cdef int32_t i
        self.fired += end - begin
        for i in range(begin, end):
            self._fire(&groups.items[i], depth)

    cdef inline void _fire(self, Item* item, int32_t depth) noexcept nogil:
        # An entry's first condition holds: see to the others, then arm the next or answer.
        if item.arms >= 0:
            if self.armed[item.arms] <= depth:
                return
        elif item.head < 0 or self.marks[item.head] == self.epoch:
            return  # answered, or not yet subscribed to
        if item.needs >= 0 and self.armed[item.needs] > depth - item.span:
            return
        if item.more and not self._rest_holds(&self.automaton.entries[item.entry], depth):
            if self.doc.unsure:
                self.doc.unsure = False
                self._doubt_entry(item.entry)
            return
        if self.doc.budget < 0:
            return  # under not(), what was cut short looks true: undecided, by `_give_up`
        if item.arms >= 0:
            self._arm(item.arms, <int16_t>depth)
        elif item.alone:
            self.marks[item.head] = self.epoch
            push(&self.out, item.head)
        else:
            self._answer(self.automaton.entries[item.entry].pattern)

    cdef bint _rest_holds(self, Entry* entry, int32_t depth) noexcept nogil:
        cdef int32_t i, row
        cdef bint unsure = False
        self.doc.unsure = False
        for i in range(entry.rests):
            row = self.stack_row[depth - entry.rest[i].up]
            if (entry.rest[i].up > 0 and self.doc.ends[row] == OPEN
                    and not looks_at_attributes(entry.rest[i].cond)):
                unsure = True
                continue
            self.doc.unsure = False
            if holds(&self.doc, entry.rest[i].cond, row) or self.doc.unsure:
                unsure = unsure or self.doc.unsure
                continue
            return False
        self.doc.unsure = unsure
        return not unsure

    cdef void _arm(self, int32_t slot, int16_t depth) noexcept nogil:
        # The shallowest open element that ends the segment is as good as any.
        cdef void* grown
        if self.armed[slot] <= depth:
            return
        if self.undo_count == self.undo_room:
            grown = realloc(self.undos, (self.undo_room * 2 + 256) * sizeof(Undo))
            if grown == NULL:
                return
            self.undos = <Undo*>grown
            self.undo_room = self.undo_room * 2 + 256
        self.undos[self.undo_count].slot = slot
        self.undos[self.undo_count].depth = self.armed[slot]
        self.undos[self.undo_count].level = depth
        self.undo_count += 1
        self.armed[slot] = depth

    cdef void _answer(self, int32_t pattern) noexcept nogil:
        cdef int32_t subscriber = self.automaton.patterns[pattern].subscribers
        while subscriber >= 0:
            self.marks[subscriber] = self.epoch
            push(&self.out, subscriber)
            subscriber = self.automaton.sub_next[subscriber]
        if self.automaton.patterns[pattern].plan >= 0:
            push(&self.planned, pattern)

    # -- tuples --

    cdef void _list_tuples(self, int32_t limit) noexcept nogil:
        # Per pattern of which some are asked for: [askers, width, count, whether there are more,
        # askers..., rows...], in document order. All of it while the statements stand still.
        cdef int32_t i, at, pattern, subscriber
        cdef Route* route
        cdef int32_t[512] rows
        for i in range(self.planned.count):
            pattern = self.planned.items[i]
            route = &self.automaton.plans[self.automaton.patterns[pattern].plan]
            at = self.tuples.count
            push(&self.tuples, 0)
            push(&self.tuples, route.count)
            push(&self.tuples, 0)
            push(&self.tuples, 0)
            subscriber = self.automaton.patterns[pattern].subscribers
            while subscriber >= 0:
                if self.automaton.sub_wants[subscriber]:
                    push(&self.tuples, subscriber)
                    self.tuples.items[at] += 1
                subscriber = self.automaton.sub_next[subscriber]
            self.doc.doubted = False
            if self.tuples.items[at] == 0:
                self.tuples.count = at
            elif route.count > 512 or not extend_tuple(&self.doc, route, 0, -1, rows, &self.tuples,
                                                       at + 2, limit) or self.doc.doubted:
                self.tuples.items[at + 3] = 1

    def begin(self, int64_t budget, int32_t most_tuples):
        """Make ready for one document, which comes by `consume` or by `run`."""
        self.consumed = False
        self.budget = budget
        self.most_tuples = most_tuples

    cdef void consume(self, Raw* raw) noexcept nogil:
        # Filter the document; what came out waits for `take`.
        cdef Doc* doc = &self.doc
        doc.kinds = raw.kinds
        doc.tags = raw.tags
        doc.parents = raw.parents
        doc.levels = raw.levels
        doc.starts = raw.starts
        doc.ends = raw.ends
        doc.offsets = raw.offsets
        doc.text = raw.text
        doc.rows = raw.rows
        doc.partial = raw.rows > 0 and raw.ends[0] == OPEN or raw.continued
        doc.continued = raw.continued
        doc.unsure = False
        doc.budget = self.budget
        self.consumed = True
        pthread_rwlock_rdlock(&self.automaton.lock)
        doc.spaces = self.automaton.space_of
        doc.space_count = self.automaton.space_known
        if raw.known and raw.known < self.automaton.names_needed:
            self.outcome = STALE_NAMES
        elif self.automaton.spaced and self.automaton.space_known < self.automaton.vocabulary._count:
            self.outcome = STALE_NAMES  # whose namespaces nobody has looked at yet
        elif raw.offsets == NULL and self.automaton.live_patterns > 0:
            self.outcome = NO_VALUES
        else:
            self.outcome = self._run()
            if self.outcome == DONE and self.planned.count:
                doc.budget = self.budget
                self._list_tuples(self.most_tuples)
        if self.outcome == DONE and self.undecided.count:
            self._name_undecided()
        pthread_rwlock_unlock(&self.automaton.lock)

    def run(self, Columns table not None):
        """Filter a document that is a table already."""
        cdef Raw raw
        raw.kinds = table.kinds
        raw.tags = table.tags
        raw.parents = table.parents
        raw.levels = table.levels
        raw.starts = table.starts
        raw.ends = table.ends
        raw.offsets = table.offsets
        raw.text = table.text
        raw.rows = <int32_t>table.rows
        raw.known = table.known
        raw.continued = table.continued
        with nogil:
            self.consume(&raw)

    def take(self):
        """What came out: (outcome, subscribers, tuples, undecided)."""
        return (self.outcome, to_array(&self.out),
                self._tuple_list() if self.tuples.count else None,
                to_array(&self.undecided) if self.undecided.count else None)

    cdef void _name_undecided(self) noexcept nogil:
        # Entries to the subscribers that hang on them, those that matched otherwise left out.
        cdef int32_t i, entry, needs, pattern, subscriber
        cdef Ints* found = &self.gathered
        found.count = 0
        qsort(self.undecided.items, self.undecided.count, sizeof(int32_t), by_int)
        for pattern in range(self.automaton.pattern_count):
            entry = self.automaton.patterns[pattern].entry
            if (self.automaton.patterns[pattern].subscribers < 0
                    or self.marks[self.automaton.patterns[pattern].subscribers] == self.epoch):
                continue
            while entry >= 0 and not self._is_undecided(entry):
                needs = self.automaton.entries[entry].needs
                entry = self.automaton.slot_entries[needs] if needs >= 0 else -1
            if entry >= 0:
                subscriber = self.automaton.patterns[pattern].subscribers
                while subscriber >= 0:
                    push(found, subscriber)
                    subscriber = self.automaton.sub_next[subscriber]
        self.undecided.count = 0
        for i in range(found.count):
            push(&self.undecided, found.items[i])

    cdef bint _is_undecided(self, int32_t entry) noexcept nogil:
        cdef int32_t begin = 0
        cdef int32_t end = self.undecided.count
        cdef int32_t middle
        while begin < end:
            middle = (begin + end) >> 1
            if self.undecided.items[middle] < entry:
                begin = middle + 1
            else:
                end = middle
        return begin < self.undecided.count and self.undecided.items[begin] == entry

    cdef list _tuple_list(self):
        # (askers, rows, whether there are more) of each pattern.
        cdef int32_t at = 0
        cdef int32_t askers, width, count
        cdef list found = []
        flat = to_array(&self.tuples)
        while at < self.tuples.count:
            askers = self.tuples.items[at]
            width = self.tuples.items[at + 1]
            count = self.tuples.items[at + 2]
            more = self.tuples.items[at + 3] != 0
            at += 4
            rows = flat[at + askers:at + askers + width * count].reshape(count, width)
            found.append((flat[at:at + askers].tolist(), rows, more))
            at += askers + width * count
        return found

    def stats(self):
        """What the run has cost so far."""
        return {
            "documents": self.documents,
            "elements": self.elements,
            "nfa_steps": self.steps,
            "flushes": self.flushes,
            "asked": self.asked,
            "fired": self.fired,
            "dfa_states": self.dfa_count,
            "dfa_bytes": self.held,
        }


cdef object to_array(Ints* items):
    raw = PyBytes_FromStringAndSize(<char*>items.items, items.count * sizeof(int32_t))
    return np.frombuffer(raw, np.int32)


cdef inline int64_t dfa_bytes(Dfa* dfa) noexcept nogil:
    return sizeof(Dfa) + 4 * <int64_t>(dfa.count + dfa.accept_count) + groups_bytes(dfa.own) + 48


cdef int by_int(const void* left, const void* right) noexcept nogil:
    cdef int32_t a = (<int32_t*>left)[0]
    cdef int32_t b = (<int32_t*>right)[0]
    return -1 if a < b else 1 if a > b else 0


cdef inline bint is_known(Doc* doc, Cond* cond, int32_t row) noexcept nogil:
    # Whether a condition holds for certain; if that cannot be said, it is noted.
    cdef bint truth
    doc.unsure = False
    truth = holds(doc, cond, row)
    if doc.unsure:
        doc.unsure = False
        doc.doubted = True
        return False
    return truth


cdef void collect(Doc* doc, Route* route, int32_t index, int32_t row, Ints* found) noexcept nogil:
    # The rows that a route leads to; some of them more than once.
    cdef Step* step
    cdef int32_t at, last
    cdef bint deep
    doc.budget -= 1
    if doc.budget < 0:
        return
    if index == route.count:
        push(found, row)
        return
    if doc.kinds[row] != ELEMENT:
        return
    step = &route.steps[index]
    last = row + size_of(doc, row)
    deep = step.axis == DESCENDANT
    at = row + 1
    while at < last:
        if doc.kinds[at] == step.kind:
            if ((step.kind == TEXT or fits(doc, step.tag, at))
                    and (step.cond == NULL or is_known(doc, step.cond, at))):
                collect(doc, route, index + 1, at, found)
        elif step.kind == ATTRIBUTE and not deep:
            return
        if deep:
            at += 1
            doc.budget -= 1
        else:
            at += size_of(doc, at)


cdef bint extend_tuple(Doc* doc, Route* route, int32_t index, int32_t row, int32_t* rows,
                       Ints* found, int32_t counter, int32_t limit) noexcept nogil:
    # All ways to go on from `row` (-1: from above the root). False once there are enough, or the
    # work is used up.
    cdef Step* step
    cdef int32_t at, last, i
    cdef bint deep
    if index == route.count:
        if found.items[counter] >= limit:
            return False
        for i in range(route.count):
            push(found, rows[i])
        found.items[counter] += 1
        return True
    if row >= 0 and doc.kinds[row] != ELEMENT:
        return True
    step = &route.steps[index]
    deep = step.axis == DESCENDANT
    at = row + 1
    last = doc.rows if row < 0 else row + size_of(doc, row)
    while at < last:
        doc.budget -= 1
        if (doc.kinds[at] == step.kind and (step.kind == TEXT or fits(doc, step.tag, at))
                and (step.cond == NULL or is_known(doc, step.cond, at))):
            if doc.budget < 0:
                return False
            rows[index] = at
            if not extend_tuple(doc, route, index + 1, at, rows, found, counter, limit):
                return False
        if doc.budget < 0:
            return False
        at += 1 if deep else size_of(doc, at)
    return True
