# The groups of entries that a set of states asks. Part of _kernel.pyx, which includes it.

cdef struct Ints:
    int32_t* items
    int32_t count
    int32_t room


cdef struct Run:
    int32_t ask
    int32_t begin
    int32_t end
    Scanner* scanner     # of the literals of contains() and starts-with(), once they are looked for

cdef struct Group:
    # The entries that look at one thing: the same aim, the same number of levels up.
    int32_t aim
    int32_t rank         # as in Sortable
    int64_t born         # of the aim
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
    bint simple          # what it says depends on the node it looks at and those above it alone, ...
    uint32_t epoch       # ... so once it has looked at a node,
    int32_t row          # it need not look again
    int16_t up
    Ints kept            # else, if up > 0: items whose conditions on that node and above it hold
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
    # What firing an entry needs of it, in the order in which they fire. 32 bytes: there are very
    # many, and a range of them is gone through.
    int32_t head         # the first subscriber of its pattern, or -1 if it arms
    int32_t entry
    int32_t needs
    int32_t arms
    int32_t gate         # the route without which the next part cannot hold, and from which node:
    int16_t gate_up      # as it mostly decides, it stands here; -1 if there is none
    int16_t span
    int16_t proven       # the part of the entry that holds when this fires, or -1
    int16_t next_part    # the part to look at first of the others, or -1 if there are none
    int8_t alone         # one subscriber, no plan, nothing more to see to

cdef struct Groups:
    Group* groups
    Run* runs
    Bank* banks
    Word* words
    int32_t bank_count
    int32_t word_count
    Item* items
    double* keys
    int64_t* borns       # of the entries, by item
    int32_t count
    int32_t size
    int32_t run_count
    bint layered         # some of its entries may have gone since it was made
    int32_t entries      # how many there were, if it is
    int64_t wasted       # how often an entry fired in vain
    int64_t scanners     # bytes
    uint32_t given_up    # the document in which the work was used up here

cdef struct Layers:
    # The entries of one state that has many: groups of them, the oldest and largest first. Entries
    # that came since are put into groups of their own, and these together with the ones before when
    # they have become half as many, so that a change costs little whatever there is already.
    int32_t state
    int64_t stamp        # the version up to which entries are in it
    Groups** groups
    int32_t count
    int32_t room
    int32_t entries      # in all, with those that have gone
    uint8_t rounds       # how often groups were made anew for what they wasted

cdef struct Dfa:
    int32_t* members     # matched states first, then the self-loop states that are not matched
    int32_t matched
    int32_t count
    int32_t* accepts     # subscribers; of routes, aims: first those that are not valued
    int32_t accept_count
    int32_t plain_count  # how many aims are not valued
    uint64_t walk        # the last walk below a node that came here
    Groups* own
    Layers** shared      # of its states with many entries
    int32_t shared_count
    int64_t version      # of the automaton when it was last known to be right
    uint64_t hash
    uint8_t epoch
    uint32_t given_up    # the document in which the work was used up here
    uint8_t rounds       # how often its groups were made anew for what they wasted

cdef struct Sortable:
    Item item
    int64_t item_born    # of the entry
    bint simple
    bint exact
    int8_t cls
    int16_t up
    int32_t rank         # within its class: the attribute's tag, or the aim
    int32_t aim
    int64_t born         # of the aim
    int8_t ask
    double key

cdef struct Undo:
    int32_t slot
    int16_t depth
    int16_t level

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
    int32_t* last_end    # by aim, if it is valued: where in `ends` the last node it leads to stands
    int32_t room         # in words of 64 aims
    Ints found
    Ints ends            # pairs: a node, and where the one before it stands, or -1
    int32_t* values_at   # by aim, if it is valued: where its nodes stand in `values`, or -1
    Ints values          # [first node, count, nodes]: nodes of equal value stand there once

cdef enum:
    DEEPEST = 32760
    DOUBTS = 4096
    VALUES = 2048
    UNASKED = -3
    SEARCH = 16          # steps of a bisection, about: so many times fewer must be searched for
    FEW_LITERALS = 4     # are compared one by one: a scanner looks a byte up, they mostly do not
    VALUED = 1 << 30     # a bit that sorts the valued aims of a set behind the others
    WASTE = 16           # an entry may fire in vain so often before groups are made anew
    MOST_ROUNDS = 20
    FEWEST = 1024        # sets of the DFA that are nobody's concern
    RESERVE = 4          # a part of the work that the automaton may use when all of it is used up
    SPENT = 16           # beside the outcomes, within a run: that is used up, too
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


cdef bint never(Way* way) noexcept nogil:
    # No number equals, or is less or more than, what is not a number.
    return isnan(way.key) and way.ask >= EQUAL and way.ask <= AT_LEAST and way.ask != UNEQUAL


cdef void free_groups(Groups* groups) noexcept nogil:
    cdef int32_t i
    if groups != NULL:
        for i in range(groups.bank_count):
            free(groups.banks[i].kept.items)
        for i in range(groups.run_count):
            free_scanner(groups.runs[i].scanner)
    free(groups)


cdef struct Draft:
    # Where groups are put together, as many as there could be; kept from one time to the next.
    Group* groups
    Run* runs
    Bank* banks
    Word* words
    int32_t room


cdef void free_draft(Draft* draft) noexcept nogil:
    free(draft.groups)
    free(draft.runs)
    free(draft.banks)
    free(draft.words)
    memset(draft, 0, sizeof(Draft))


cdef bint make_room(Draft* draft, int32_t count) noexcept nogil:
    cdef int32_t room = count + count // 2 + 16
    if count <= draft.room:
        return True
    free_draft(draft)
    draft.groups = <Group*>malloc(room * sizeof(Group))
    draft.runs = <Run*>malloc(room * sizeof(Run))
    draft.banks = <Bank*>malloc(room * sizeof(Bank))
    draft.words = <Word*>malloc(room * sizeof(Word))
    if draft.groups == NULL or draft.runs == NULL or draft.banks == NULL or draft.words == NULL:
        free_draft(draft)
        return False
    draft.room = room
    return True


cdef size_t roomy(size_t size) noexcept nogil:
    # A little more than is needed: what a statement more or less takes fits in the same place.
    cdef size_t step = 64
    while step * 16 <= size:
        step *= 2
    return (size + step - 1) & ~(step - 1)


cdef Groups* packed(Groups* draft, Sortable* items) noexcept nogil:
    # All of it in one piece. Groups are made anew with every statement that comes or goes: in
    # many pieces, and these first as large as they could be, they left ever more gaps.
    cdef size_t size = groups_bytes(draft)
    cdef char* place = <char*>malloc(size)
    cdef Groups* made = <Groups*>place
    cdef int32_t i
    if place == NULL:
        return NULL
    made[0] = draft[0]
    place += sizeof(Groups)
    made.keys = <double*>place
    place += made.size * sizeof(double)
    made.borns = <int64_t*>place
    place += made.size * sizeof(int64_t)
    made.words = <Word*>place
    memcpy(place, draft.words, made.word_count * sizeof(Word))
    place += made.word_count * sizeof(Word)
    made.groups = <Group*>place
    memcpy(place, draft.groups, made.count * sizeof(Group))
    place += made.count * sizeof(Group)
    made.runs = <Run*>place
    memcpy(place, draft.runs, made.run_count * sizeof(Run))
    place += made.run_count * sizeof(Run)
    made.banks = <Bank*>place
    memcpy(place, draft.banks, made.bank_count * sizeof(Bank))
    place += made.bank_count * sizeof(Bank)
    made.items = <Item*>place
    for i in range(made.size):
        made.items[i] = items[i].item
        made.keys[i] = items[i].key
        made.borns[i] = items[i].item_born
    return made


cdef Groups* make_groups(Sortable* items, int32_t count, Draft* draft) noexcept nogil:
    cdef Groups groups
    cdef Groups* made = &groups
    cdef int32_t i
    cdef Group* group = NULL
    cdef Run* run = NULL
    cdef Bank* bank = NULL
    if not make_room(draft, count):
        return NULL
    qsort(items, count, sizeof(Sortable), by_key)
    memset(made, 0, sizeof(Groups))
    made.banks = draft.banks
    made.words = draft.words
    made.groups = draft.groups
    made.runs = draft.runs
    made.size = count
    for i in range(count):
        if (bank == NULL or bank.cls != items[i].cls or bank.up != items[i].up
                or bank.simple != items[i].simple):
            bank = &made.banks[made.bank_count]
            memset(bank, 0, sizeof(Bank))
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
            group.rank = items[i].rank
            group.born = items[i].born
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
            run.scanner = NULL
            group.asks |= 1u << <uint32_t>items[i].ask
        run.end = i + 1
        group.end = made.run_count
        group.last = i + 1
    return packed(made, items)


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


cdef int64_t groups_bytes(Groups* groups) noexcept nogil:
    if groups == NULL:
        return 0
    return <int64_t>roomy(
        sizeof(Groups) + groups.count * sizeof(Group) + groups.run_count * sizeof(Run)
        + groups.bank_count * sizeof(Bank) + groups.word_count * sizeof(Word)
        + <size_t>groups.size * (sizeof(Item) + sizeof(double) + sizeof(int64_t)))


cdef Scanner* make_scanner(Groups* groups, Run* run, Literal* literals) noexcept nogil:
    # A scanner of the literals of a run, each with the place of its first item. NULL: no memory.
    cdef Scanner* scanner = new_scanner()
    cdef Literal* literal
    cdef int32_t i
    if scanner == NULL:
        return NULL
    for i in range(run.begin, run.end):
        if i == run.begin or groups.keys[i] != groups.keys[i - 1]:
            literal = &literals[<int32_t>groups.keys[i]]
            if literal.text == NULL:
                continue  # it went, with all entries that looked for it
            if not add_literal(scanner, literal.text, literal.length, i):
                free_scanner(scanner)
                return NULL
    if not link_scanner(scanner):
        free_scanner(scanner)
        return NULL
    return scanner


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
