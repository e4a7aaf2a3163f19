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
    # The entries that look at one thing: the same aim, the same number of levels up. 32 bytes: two
    # to a cache line, and where the aim need only be there its runs are not looked at.
    int64_t born         # of the aim
    int32_t aim
    int32_t begin        # its runs
    int32_t end
    int32_t first        # its entries
    int32_t last
    int16_t up
    uint16_t asks        # a bit for each kind of question in it, and EXACT

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
    int32_t word         # BY_ROUTE: its words, if its aims are dense; ASKED: its waits
    int32_t last_word

cdef struct Word:
    # Which of 64 aims have a group here; the groups stand in the order of the aims.
    int32_t index
    int32_t first
    uint64_t mask

cdef struct Wait:
    # Entries without conditions that need the same slot begin at this item.
    int32_t slot
    int32_t begin

cdef struct Item:
    # What firing an entry needs of it, in the order in which they fire. 32 bytes, two to a cache
    # line: there are more of them than a cache holds, and fetching them is most of the time.
    double key
    int32_t target       # the first subscriber of its pattern, -1 if there is none yet; if it
    int32_t entry        # arms, the slot
    int32_t needs
    int32_t gate         # the route without which the next part cannot hold, and from which node:
    int16_t gate_up      # as it mostly decides, it stands here; -1 if there is none
    int16_t span
    int8_t proven        # the part of the entry that holds when this fires, or -1
    int8_t next_part     # the part to look at first of the others, or -1 if there are none
    int8_t arms
    int8_t alone         # one subscriber, no plan, nothing more to see to

cdef struct Groups:
    Group* groups
    int32_t* ranks       # of the groups, as in Sortable
    Run* runs
    Bank* banks
    Word* words
    Wait* waits
    int32_t bank_count
    int32_t word_count
    int32_t wait_count
    Item* items
    int64_t* borns       # of the entries, by item, if it is layered
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
    bint exact           # of the aim
    int8_t cls
    int16_t up
    int32_t rank         # within its class: the attribute's tag, or the aim
    int32_t aim
    int64_t born         # of the aim
    int8_t ask

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
    SEARCH = 16          # steps of a bisection among 65,000: to search for one is worth that many
                         # looks at a list
    FEW_LITERALS = 4     # are compared one by one: a scanner looks a byte up, they mostly do not
    VALUED = 1 << 30     # a bit that sorts the valued aims of a set behind the others
    WASTE = 16           # times that an entry may fire in vain before groups are made anew, which
                         # costs about as much: sorting it in takes some hundred ns, firing some ten
    MOST_ROUNDS = 20     # doublings of that: beyond any count of documents, and no shift overflows
    FETCHED = 16         # items of a group that are fetched ahead: eight cache lines
    SAMPLE = 1024        # walks below nodes of which all routes are counted,
    SAMPLED = 16         # and of how many after them one is: an error of a tenth does no harm
    FEWEST = 1024        # sets of the DFA that are nobody's concern
    RESERVE = 4          # a part of the work that the automaton may use when all of it is used up
    SPENT = 16           # beside the outcomes, within a run: that is used up, too
    OWN_LIMIT = 256      # entries. A state with more has groups of its own, shared by all sets: a
                         # change makes all sets with a state sort its entries, some 10 us for these
    STRING_ASKS = (1 << 1) | (1 << 2)
    NUMBER_ASK_BITS = (1 << 3) | (1 << 4) | (1 << 5) | (1 << 6) | (1 << 7) | (1 << 8)
    FIRST_ASKS = (1 << 9) | (1 << 10)
    ANY_ASK = (1 << 11) - 1
    EXACT = 1 << 15      # the element steps of the aim are all there is to it
    MOST_CHOSEN = 127    # parts of an entry among which the order is chosen: an Item has a byte

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
    if isnan(a.item.key) or isnan(b.item.key):
        return <int>isnan(b.item.key) - <int>isnan(a.item.key)
    return -1 if a.item.key < b.item.key else 1 if a.item.key > b.item.key else 0


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
    int32_t* ranks
    Run* runs
    Bank* banks
    Word* words
    Wait* waits
    int32_t room


cdef void free_draft(Draft* draft) noexcept nogil:
    free(draft.groups)
    free(draft.ranks)
    free(draft.waits)
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
    draft.ranks = <int32_t*>malloc(room * sizeof(int32_t))
    draft.waits = <Wait*>malloc(room * sizeof(Wait))
    draft.runs = <Run*>malloc(room * sizeof(Run))
    draft.banks = <Bank*>malloc(room * sizeof(Bank))
    draft.words = <Word*>malloc(room * sizeof(Word))
    if (draft.groups == NULL or draft.ranks == NULL or draft.runs == NULL or draft.banks == NULL
            or draft.words == NULL or draft.waits == NULL):
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
    # In the order in which they are looked at, which is also that of falling alignment but for
    # the items, which are given theirs.
    made.banks = <Bank*>placed_at(&place, draft.banks, made.bank_count * sizeof(Bank))
    made.words = <Word*>placed_at(&place, draft.words, made.word_count * sizeof(Word))
    made.waits = <Wait*>placed_at(&place, draft.waits, made.wait_count * sizeof(Wait))
    made.groups = <Group*>placed_at(&place, draft.groups, made.count * sizeof(Group))
    made.runs = <Run*>placed_at(&place, draft.runs, made.run_count * sizeof(Run))
    made.ranks = <int32_t*>placed_at(&place, draft.ranks, made.count * sizeof(int32_t))
    place += (-<uint64_t><void*>place) & (sizeof(Item) - 1)
    made.items = <Item*>place
    for i in range(made.size):
        made.items[i] = items[i].item
    if made.layered:
        made.borns = <int64_t*>(place + made.size * sizeof(Item))
        for i in range(made.size):
            made.borns[i] = items[i].item_born
    return made


cdef inline void* placed_at(char** place, void* source, size_t size) noexcept nogil:
    # A copy at the place, which moves behind it.
    cdef void* copy = memcpy(place[0], source, size)
    place[0] += size
    return copy


cdef Groups* make_groups(Sortable* items, int32_t count, bint layered,
                         Draft* draft) noexcept nogil:
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
    made.waits = draft.waits
    made.groups = draft.groups
    made.ranks = draft.ranks
    made.runs = draft.runs
    made.size = count
    made.layered = layered
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
            bank.word = made.word_count if bank.cls == BY_ROUTE else made.wait_count
            bank.last_word = bank.word
            group = NULL
        if group == NULL or group.aim != items[i].aim:
            group = &made.groups[made.count]
            made.ranks[made.count] = items[i].rank
            made.count += 1
            group.aim = items[i].aim
            group.born = items[i].born
            group.up = items[i].up
            group.asks = EXACT if items[i].exact else 0
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
            group.asks |= <uint16_t>(1u << <uint32_t>items[i].ask)
        run.end = i + 1
        group.end = made.run_count
        group.last = i + 1
        if group.aim < 0 and items[i].item.needs >= 0:
            add_to_waits(made, bank, items[i].item.needs, i)
    drop_sparse_words(made)
    return packed(made, items)


cdef void add_to_waits(Groups* made, Bank* bank, int32_t slot, int32_t item) noexcept nogil:
    if bank.last_word > bank.word and made.waits[made.wait_count - 1].slot == slot:
        return
    made.waits[made.wait_count].slot = slot
    made.waits[made.wait_count].begin = item
    made.wait_count += 1
    bank.last_word = made.wait_count


cdef void drop_sparse_words(Groups* made) noexcept nogil:
    # Words that are larger than the ranks of the groups say nothing that ranks do not.
    cdef int32_t i, j, count
    cdef int32_t kept = 0
    cdef Bank* bank
    for i in range(made.bank_count):
        bank = &made.banks[i]
        if bank.cls != BY_ROUTE:
            continue
        count = bank.last_word - bank.word
        if count * sizeof(Word) > (bank.end - bank.begin) * sizeof(int32_t):
            count = 0
        for j in range(count):
            made.words[kept + j] = made.words[bank.word + j]
        bank.word = kept
        kept += count
        bank.last_word = kept
    made.word_count = kept


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
        + groups.wait_count * sizeof(Wait) + groups.count * sizeof(int32_t) + sizeof(Item)
        + <size_t>groups.size * (sizeof(Item) + (sizeof(int64_t) if groups.layered else 0)))


cdef Scanner* make_scanner(Groups* groups, Run* run, Literal* literals) noexcept nogil:
    # A scanner of the literals of a run, each with the place of its first item. NULL: no memory.
    cdef Scanner* scanner = new_scanner()
    cdef Literal* literal
    cdef int32_t i
    if scanner == NULL:
        return NULL
    for i in range(run.begin, run.end):
        if i == run.begin or groups.items[i].key != groups.items[i - 1].key:
            literal = &literals[<int32_t>groups.items[i].key]
            if literal.text == NULL:
                continue  # it went, with all entries that looked for it
            if not add_literal(scanner, literal.text, literal.length, i):
                free_scanner(scanner)
                return NULL
    if not link_scanner(scanner):
        free_scanner(scanner)
        return NULL
    return scanner


cdef int32_t lower_bound(Item* items, int32_t begin, int32_t end, double key) noexcept nogil:
    cdef int32_t middle
    while begin < end:
        middle = (begin + end) >> 1
        if items[middle].key < key:
            begin = middle + 1
        else:
            end = middle
    return begin


cdef int32_t upper_bound(Item* items, int32_t begin, int32_t end, double key) noexcept nogil:
    cdef int32_t middle
    while begin < end:
        middle = (begin + end) >> 1
        if items[middle].key <= key:
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
