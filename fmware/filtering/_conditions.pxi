# Conditions: predicates on the columns. Part of _kernel.pyx, which includes it.
#
# A condition is shared: equal predicates, nested paths and combinations of them, whichever statements
# they come from, are one `Cond` with a number. Its truth at a node is found out once and remembered by
# (node, number) for the length of a document.

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

cdef struct Way:
    # What to look up, and with which key, to find the nodes at which a condition may hold.
    int32_t aim
    int8_t ask
    double key

cdef struct Cond:
    int32_t id
    int32_t uses
    int32_t gate         # the route that must lead somewhere from the node, or -1
    bint gated           # `gate` has been looked for
    bint decided         # the gate alone decides
    bint brief           # cheaper to evaluate than to remember
    bint proves          # each of its ways proves it; otherwise it is evaluated as well
    int32_t way_count    # if one of them finds nothing, the others may; if none does, it is false
    Way* ways
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

cdef struct Memo:
    uint64_t key         # (row, number of the condition)
    uint32_t epoch       # another than the document's: the place is free
    bint truth
    bint unsure

cdef enum:
    MEMOS = 4096         # places for truths at first; they double as they fill up
    MOST_MEMOS = 1 << 20 # from then on truths are found out again: 24 MB are enough

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
    Name** names         # of the vocabulary, by tag
    bint partial         # a batch of a larger document: some elements may be open
    bint continued       # and batches came before it
    bint unsure          # what the last condition gave may be otherwise in the whole document
    bint doubted         # and because of that, a node was left out
    int64_t budget       # units of work left, see `Work`; below 0, nothing found is certain
    char* scratch
    int32_t scratch_size
    Placed* placed
    uint32_t epoch
    Memo* memos
    uint32_t memo_mask
    uint32_t memo_count
    bint failed          # memory was used up: no answer is right any more


cdef enum Work:
    # What a document is charged. A unit is 2 to 5 ns where memory is near, up to 30 where it is not.
    # A node that is visited, or an entry that fires, is one unit. Moves of the DFA that are known
    # cost nothing: there are as many as elements.
    FOR_CONDITION = 4    # a condition that is tried, or looked up
    FOR_SET = 32         # a step of the NFA, and for each state of the sets it leads from and to, ...
    FOR_STATE = 4
    FOR_ACCEPT = 8       # ... for each statement that ends there, gathered and sorted, ...
    FOR_ENTRY = 32       # ... for each entry, and each way to find it, that groups are made of
    FOR_FLUSH = 1024     # new tables for the DFA
    FOR_LITERAL = 8      # a byte of a literal that a scanner is made of
    FOR_TUPLE = 4        # a path tuple, sorted; as much again for each row of it
    FOR_COPY = 4         # a path tuple for each statement that gets it
    BYTES_COPIED = 4     # as shifts: 16 bytes copied or compared, ...
    BYTES_READ = 3       # ... 8 bytes hashed, searched or read as a number are one unit


cdef inline int32_t size_of(Doc* doc, int32_t row) noexcept nogil:
    cdef int32_t last
    if doc.ends[row] == OPEN:
        # It may have ended before the batch does.
        last = row + 1
        while last < doc.rows and doc.levels[last] > doc.levels[row]:
            last += 1
        doc.budget -= (last - row) >> BYTES_READ
        return last - row
    return <int32_t>((doc.ends[row] - doc.starts[row] + 1) >> 1)


cdef inline bint fits(Doc* doc, int32_t test, int32_t row) noexcept nogil:
    cdef int32_t tag = doc.tags[row]
    if test >= 0:
        return tag == test
    return test == ANY or (tag > 0 and is_in_space(doc.names, tag, -2 - test))


cdef inline bint is_in_space(Name** names, int32_t tag, int32_t space) noexcept nogil:
    # REQUIRES: a name is in the vocabulary, as there is where a test asks for a namespace.
    return space > 0 and names[tag // PAGE][tag % PAGE].space == space


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
    if doc.budget < 0:
        text[0] = doc.text
        length[0] = 0
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
            doc.failed = True
            return False
        doc.scratch = <char*>grown
        doc.scratch_size = total * 2
    doc.budget -= total >> BYTES_COPIED
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
        doc.budget -= length >> BYTES_READ
        return compare_numbers(to_number(text, length), cond.op, cond.number)
    doc.budget -= cond.length >> BYTES_COPIED
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
        at += 1 if deep else size_of(doc, at)
        doc.budget -= 1
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


cdef bint contains(Doc* doc, const char* text, int32_t length, const char* part,
                   int32_t size) noexcept nogil:
    # At worst, parts of up to 256 bytes are compared at every place; longer ones never are.
    doc.budget -= (<int64_t>length * (1 + (min(size, 256) >> 5))) >> BYTES_READ
    return size == 0 or (length >= size and memmem(text, length, part, size) != NULL)


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
    # Whether a condition holds at a node; found out once a document.
    cdef uint64_t key
    cdef Memo* memo
    cdef bint truth, unsure
    doc.budget -= FOR_CONDITION
    if doc.budget < 0:
        return False
    if cond.brief:
        return evaluated(doc, cond, row)
    key = (<uint64_t>row << 32) | <uint32_t>cond.id
    memo = recalled(doc, key)
    if memo != NULL:
        doc.unsure = doc.unsure or memo.unsure
        return memo.truth
    unsure = doc.unsure
    doc.unsure = False
    truth = evaluated(doc, cond, row)
    if doc.budget >= 0:
        remember(doc, key, truth)
    doc.unsure = doc.unsure or unsure
    return truth


cdef inline Memo* recalled(Doc* doc, uint64_t key) noexcept nogil:
    # What is remembered of a condition at a node, or NULL.
    cdef uint32_t slot = <uint32_t>mix(key) & doc.memo_mask
    while doc.memos[slot].epoch == doc.epoch:
        if doc.memos[slot].key == key:
            return &doc.memos[slot]
        slot = (slot + 1) & doc.memo_mask
    return NULL


cdef void remember(Doc* doc, uint64_t key, bint truth) noexcept nogil:
    cdef uint32_t slot
    if doc.memo_count * 2 > doc.memo_mask and not more_memos(doc):
        return
    slot = <uint32_t>mix(key) & doc.memo_mask
    while doc.memos[slot].epoch == doc.epoch:
        slot = (slot + 1) & doc.memo_mask
    doc.memos[slot].key = key
    doc.memos[slot].epoch = doc.epoch
    doc.memos[slot].truth = truth
    doc.memos[slot].unsure = doc.unsure
    doc.memo_count += 1


cdef bint more_memos(Doc* doc) noexcept nogil:
    # False where there is no room for more: what is not remembered is only found out again.
    cdef uint32_t size = (doc.memo_mask + 1) * 2
    cdef uint32_t i, slot
    cdef Memo* memos
    if size > MOST_MEMOS:
        return False
    memos = <Memo*>calloc(size, sizeof(Memo))
    if memos == NULL:
        return False
    for i in range(doc.memo_mask + 1):
        if doc.memos[i].epoch == doc.epoch:
            slot = <uint32_t>mix(doc.memos[i].key) & (size - 1)
            while memos[slot].epoch == doc.epoch:
                slot = (slot + 1) & (size - 1)
            memos[slot] = doc.memos[i]
    free(doc.memos)
    doc.memos = memos
    doc.memo_mask = size - 1
    return True


cdef bint evaluated(Doc* doc, Cond* cond, int32_t row) noexcept nogil:
    cdef int32_t i
    cdef const char* text = NULL
    cdef int32_t length = 0
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
    return contains(doc, text, length, cond.text, cond.length)


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


cdef inline bint is_brief(Cond* cond) noexcept nogil:
    # The value of an attribute, or its being there.
    return cond.test >= EXISTS and cond.test != POSITION and is_attribute(&cond.route) and (
        cond.route.steps[0].cond == NULL)


cdef Cond* new_cond(int test) except NULL:
    cdef Cond* cond = <Cond*>calloc(1, sizeof(Cond))
    if cond == NULL:
        raise MemoryError
    cond.test = test
    cond.gate = -1
    return cond


cdef void free_cond(Cond* cond) noexcept nogil:
    # The memory of a condition; the conditions it consists of are not its own.
    if cond == NULL:
        return
    free(cond.terms)
    free(cond.text)
    free(cond.route.steps)
    free(cond.ways)
    free(cond)


cdef int set_text(Cond* cond, str value) except -1:
    cdef bytes raw = value.encode()
    cond.text = <char*>malloc(len(raw) + 1)
    if cond.text == NULL:
        raise MemoryError
    memcpy(cond.text, <char*>raw, len(raw))
    cond.length = <int32_t>len(raw)
    return 0
