# The automaton. Part of _kernel.pyx, which includes it.

cdef enum Target:
    ALWAYS = 0      # nothing to look at
    SELF_VALUE = 1  # the string-value of the node
    ATTRIBUTE_VALUE = 2
    TEXT_VALUE = 3  # the text nodes of the node
    ROUTE_VALUE = 4 # what a longer route leads to
    PLACE = 5       # position()
    TRUTH = 6       # a condition that must be tried, as a whole

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
    int32_t elements     # how many these are
    bint exact           # they are all there is to it
    bint valued          # which nodes they lead to is of interest too
    int32_t next         # of the same state
    int64_t born         # version in which it came; 0 when it has gone

cdef struct Part:
    # A condition of an entry, on the node so many levels up.
    int16_t up
    Cond* cond

cdef struct Entry:
    int32_t pattern       # -1 if it arms: such an entry serves all patterns with its beginning
    int32_t next          # of the same state, ...
    int32_t before        # ... in both directions
    int32_t state
    int32_t uses          # by patterns and by entries that need its slot
    int32_t needs         # slot of the segment before, or -1
    int32_t arms          # slot to arm, or -1 for the last segment
    int16_t span          # steps of the segment
    int16_t part_count
    Part* parts           # what usually lets the fewest through comes first
    int64_t born          # version in which it came or last changed; 0 when it has gone

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
    int32_t entries       # head of the chain of entries; what changed last comes first
    int32_t entry_count
    int32_t uses          # children, loop, accepts and entries
    bint is_loop
    bint is_route         # of the trie of routes: `accepts` is then a chain of aims

@cython.final
cdef class Automaton:
    """All statements, as one NFA and its entries. See the module's docstring for the locking."""

    cdef pthread_rwlock_t lock
    cdef readonly Vocabulary vocabulary
    cdef readonly int64_t version
    cdef bint changing          # a writer holds the lock over several changes
    cdef public bint waiting    # changes are queued: a batch lets them in before its next message
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
    cdef uint8_t* sub_wants     # what it asks to be given, see Want
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
    cdef Cond** conds           # conditions, each once however many statements have it
    cdef int32_t cond_room
    cdef int32_t cond_count
    cdef list free_conds
    cdef dict cond_ids
    cdef list cond_keys
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
    cdef bint spaced            # there is a test of `prefix:*`
    # the names that statements use: a closed table must have been read with all of them
    cdef int32_t names_needed
    cdef readonly Rules rules   # of statements that are decided from several subscribers

    def __cinit__(self, Vocabulary vocabulary not None):
        self.vocabulary = vocabulary
        self.rules = Rules()
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
        self.free_conds = []
        self.cond_ids = {}
        self.cond_keys = []
        self.free_literals = []
        self.literal_ids = {}
        self.literal_mask = 255
        self.literal_slots = <int32_t*>malloc(256 * sizeof(int32_t))
        memset(self.literal_slots, 0xff, 256 * sizeof(int32_t))
        self.free_slots = []
        self.arms = {}
        self.arm_keys = {}
        self.free_plans = []
        self._new_state(-1, 0, False)
        self.states[0].uses = 1  # the roots stay
        self.route_root = self._new_state(-1, 0, False)
        self.states[self.route_root].uses = 1
        self.states[self.route_root].is_route = True

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self.entry_count):
            free(self.entries[i].parts)
        for i in range(self.aim_count):
            free(self.aims[i].route.steps)
        for i in range(self.cond_count):
            free_cond(self.conds[i])
        for i in range(self.literal_count):
            free(self.literals[i].text)
        for i in range(self.plan_count):
            free(self.plans[i].steps)
        free(self.conds)
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

    cdef void _hold(self) noexcept:
        # Who waits for the GIL with the lock in hand holds up every document. So a writer waits
        # for a gap without the GIL, and takes the lock with it; only if others are in again each
        # time does it keep what it waited for.
        cdef int tries = 0
        while pthread_rwlock_trywrlock(&self.lock) != 0:
            tries += 1
            with nogil:
                pthread_rwlock_wrlock(&self.lock)
                if tries < PATIENCE:
                    pthread_rwlock_unlock(&self.lock)
            if tries >= PATIENCE:
                break

    cdef void _write(self) noexcept:
        # One change: of a version of its own, unless it is one of several.
        if not self.changing:
            self._hold()
            self.version += 1

    cdef void _done(self) noexcept:
        if not self.changing:
            pthread_rwlock_unlock(&self.lock)

    def begin_change(self):
        """Hold the lock over several changes, so that no document sees only some of them."""
        self._hold()
        self.changing = True

    def try_change(self):
        """The same if no document is in the automaton, and whether that is so."""
        if pthread_rwlock_trywrlock(&self.lock) != 0:
            return False
        self.changing = True
        return True

    def begin_version(self, int64_t version):
        """Number what the changes make. REQUIRES: the lock, and a number that was not there before."""
        self.version = version

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

    @property
    def has_rules(self):
        """Whether any statement is decided by a rule."""
        return self.rules.count > 0

    def add_rule(self, int32_t subscriber, uint8_t wants, list atoms not None, list code not None,
                 set triggers not None, bytes program, bint exact, tags not None):
        """Subscribe a statement that is decided from others, its `atoms`.

        `code` is its guard: atoms by their place, `[..., -1, n]` and `[..., -2, n]` for all and any
        of n terms, -3 for not. It is evaluated if one of the `triggers` matched or is undecided.
        If the guard is not `exact`, or nodes are wanted, `program` decides; it uses the `tags`.
        """
        self._write()
        try:
            self._room_for(subscriber)
            self.rules.put(subscriber, wants, atoms, code, triggers, program, exact)
            for tag in tags:
                self._need(tag)
            self.sub_home[subscriber] = -1
            self.sub_wants[subscriber] = wants
        finally:
            self._done()

    def add_to_pattern(self, int32_t subscriber, int32_t pattern, uint8_t wants):
        """Subscribe a statement equal to one that is there; `wants` is as in `Want`."""
        self._write()
        try:
            self._room_for(subscriber)
            self.sub_wants[subscriber] = wants
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
        self.sub_wants[subscriber] = 0
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
            self.rules.drop(subscriber)
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
        # Sets of states keep the subscribers of patterns.
        cdef int32_t entry = self.patterns[pattern].entry
        self._unchain(entry)
        self._chain(entry)
        self.stamps[self.entries[entry].state] = self.version

    cdef int _remove_pattern(self, int32_t pattern) except -1:
        self._release_entry(self.patterns[pattern].entry)
        if self.patterns[pattern].plan >= 0:
            self._release_route(&self.plans[self.patterns[pattern].plan])
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
        cdef int32_t i
        self._unchain(index)
        entry.born = 0
        self.states[entry.state].entry_count -= 1
        self._release(entry.state)
        for i in range(entry.part_count):
            self._release_cond(entry.parts[i].cond)
        free(entry.parts)
        entry.parts = NULL
        entry.part_count = 0
        if entry.arms >= 0:
            self.free_slots.append(entry.arms)
            del self.arms[self.arm_keys.pop(index)]
        self.free_entries.append(index)
        return 0

    cdef void _chain(self, int32_t index) noexcept:
        # To the head of its state's chain, with the version of now.
        cdef Entry* entry = &self.entries[index]
        cdef int32_t after = self.states[entry.state].entries
        entry.born = self.version
        entry.next = after
        entry.before = -1
        if after >= 0:
            self.entries[after].before = index
        self.states[entry.state].entries = index

    cdef void _unchain(self, int32_t index) noexcept:
        cdef Entry* entry = &self.entries[index]
        if entry.before >= 0:
            self.entries[entry.before].next = entry.next
        else:
            self.states[entry.state].entries = entry.next
        if entry.next >= 0:
            self.entries[entry.next].before = entry.before

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
        cdef Cond* cond
        if self.free_entries:
            index = self.free_entries.pop()
        else:
            index = self.entry_count
            grow(<void**>&self.entries, &self.entry_room, index + 1, sizeof(Entry))
            self.entry_count += 1
        entry = &self.entries[index]
        memset(entry, 0, sizeof(Entry))
        entry.pattern = pattern
        entry.state = state
        entry.needs = -1
        entry.arms = -1
        self._chain(index)
        self.states[state].entry_count += 1
        self._touch(state)
        if conditions:
            entry.parts = <Part*>calloc(len(conditions), sizeof(Part))
            if entry.parts == NULL:
                raise MemoryError
            for up, tag, expr, before in sorted(conditions, key=by_eagerness):
                cond = self._cond(expr, tag, ELEMENT, before, resolve)
                self.entries[index].parts[self.entries[index].part_count].up = up
                self.entries[index].parts[self.entries[index].part_count].cond = cond
                self.entries[index].part_count += 1
                if cond.way_count == 0:
                    self._add_ways(cond, expr, tag, before, resolve)
                if not cond.gated:
                    self._add_gate(cond, expr, resolve)
        return index

    cdef int _add_ways(self, Cond* cond, expr, tag, before, resolve) except -1:
        # How the nodes at which it may hold are found; see `fmware.filtering.lookups`.
        cdef int32_t aim
        found = lookups(expr, before)
        if found is None:
            aim = self._intern_aim(("truth", cond.id), TRUTH, 0, None, resolve)
            self.aims[aim].cond = cond
            looked = [(aim, THERE, 0.0)]
        else:
            looked = [self._aim(way, tag, resolve) for way in found.ways]
        cond.proves = found is None or found.proves
        cond.ways = <Way*>calloc(len(looked), sizeof(Way))
        if cond.ways == NULL:
            raise MemoryError
        for aim, ask, key in looked:
            if ask != THERE and self.aims[aim].state >= 0 and not self.aims[aim].valued:
                self.aims[aim].valued = True
                self.stamps[self.aims[aim].state] = self.version
            cond.ways[cond.way_count].aim = aim
            cond.ways[cond.way_count].ask = ask
            cond.ways[cond.way_count].key = key
            cond.way_count += 1
        return 0

    cdef int _add_gate(self, Cond* cond, expr, resolve) except -1:
        # The route without which it cannot hold: whether that leads somewhere is known at once.
        cdef int32_t i
        if cond.gated:
            return 0
        cond.gated = True
        if isinstance(expr, Not):
            return self._add_gate(cond.terms[0], expr.term, resolve)
        if isinstance(expr, (And, Or)):
            for i in range(cond.count):
                self._add_gate(cond.terms[i], expr.terms[i], resolve)
            return 0
        if isinstance(expr, Position) or not expr.path.steps or expr.path.steps[0].kind:
            return 0
        if isinstance(expr, (Contains, StartsWith)) and not expr.text:
            return 0  # holds even of what is not there
        path = bare(expr.path)
        if cond.way_count == 1 and cond.proves and path is expr.path:
            cond.gate = cond.ways[0].aim  # it is looked up by that very path
            self.aims[cond.gate].uses += 1
        else:
            cond.gate = self._path_aim(path, resolve)
        cond.decided = (cond.test == EXISTS and path is expr.path
                        and self.aims[cond.gate].exact)
        return 0

    cdef tuple _aim(self, expr, tag, resolve):
        # What a simple condition looks at, how it asks, and with which key.
        if isinstance(expr, Position):
            aim = self._intern_aim(("place", tag), PLACE, tag, None, resolve)
            return aim, NUMBER_ASKS[expr.op], expr.value
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

    cdef int32_t _path_aim(self, path, resolve) except -1:
        # REQUIRES: no step of the path has predicates.
        steps = path.steps
        if not steps:
            return self._intern_aim(("self",), SELF_VALUE, 0, None, resolve)
        if len(steps) == 1 and steps[0].axis == Axis.CHILD:
            if steps[0].kind == Kind.TEXT:
                return self._intern_aim(("text",), TEXT_VALUE, 0, None, resolve)
            if steps[0].kind == Kind.ATTRIBUTE:
                tag = resolve(steps[0])
                if tag >= 0:
                    return self._intern_aim(("@", tag), ATTRIBUTE_VALUE, tag, None, resolve)
        return self._intern_aim(("path", resolve.key(path)), ROUTE_VALUE, 0, path, resolve)

    cdef int32_t _intern_aim(self, tuple key, int kind, int32_t tag, path, resolve) except -1:
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
        self.aims[index].born = self.version
        if kind == ATTRIBUTE_VALUE or kind == PLACE:
            self._need(tag)
        self.aims[index].state = -1
        if path is not None:
            self.aims[index].route = self._route(path, resolve)
            self._add_route(index)
        self.aim_ids[key] = index
        self.aim_keys[index] = key
        return index

    cdef int _add_route(self, int32_t index) except -1:
        # The leading element steps in a trie of all routes: walked once below a node, it says
        # which routes cannot lead anywhere and which surely do.
        cdef Aim* aim = &self.aims[index]
        cdef int32_t state = self.route_root
        cdef int32_t i = 0
        while i < aim.route.count and aim.route.steps[i].kind == ELEMENT:
            state = self._walk_in(state, aim.route.steps[i].axis, aim.route.steps[i].tag)
            i += 1
        aim.elements = i
        aim.exact = i == aim.route.count
        aim.valued = not aim.exact
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
            self.aims[index].born = 0
            self._cut_route(index)
            self._release_route(&self.aims[index].route)
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
        if route.steps == NULL:
            raise MemoryError
        for step in path.steps:
            tag = resolve(step)
            self._need(tag)
            route.steps[i].axis = step.axis
            route.steps[i].kind = step.kind
            route.steps[i].tag = tag
            route.steps[i].cond = self._all_of(step.predicates, tag, step.kind, resolve)
            i += 1
        return route

    cdef int _release_route(self, Route* route) except -1:
        cdef int32_t i
        for i in range(route.count):
            self._release_cond(route.steps[i].cond)
        free(route.steps)
        route.steps = NULL
        route.count = 0
        return 0

    # -- conditions, shared by all statements that have them --

    cdef Cond* _all_of(self, tuple predicates, int32_t tag, int8_t kind, resolve) except? NULL:
        # The predicates of a step together; NULL if there are none.
        cdef Cond* cond
        cdef Py_ssize_t i
        if not predicates:
            return NULL
        if len(predicates) == 1:
            return self._cond(predicates[0], tag, kind, (), resolve)
        key = resolve.text_key("", str(tag), str(kind), *map(expr_text, predicates))
        cond = self._shared_cond(key)
        if cond == NULL:
            cond = self._new_cond(key, ALL)
            self._room_for_terms(cond, len(predicates))
            for i in range(len(predicates)):
                cond.terms[i] = self._cond(predicates[i], tag, kind, predicates[:i], resolve)
                cond.count += 1
        return cond

    cdef Cond* _cond(self, expr, int32_t tag, int8_t kind, before, resolve) except NULL:
        # One use of the condition. Where it looks at positions, the step's own test and the
        # predicates before it are part of what it says.
        cdef Cond* cond
        if positional(expr):
            key = resolve.text_key(expr_text(expr), str(tag), str(kind), *map(expr_text, before))
        else:
            key = resolve.text_key(expr_text(expr))
        cond = self._shared_cond(key)
        if cond != NULL:
            return cond
        if isinstance(expr, (And, Or, Not)):
            terms = (expr.term,) if isinstance(expr, Not) else expr.terms
            cond = self._new_cond(
                key, NONE if isinstance(expr, Not) else ALL if isinstance(expr, And) else SOME)
            self._room_for_terms(cond, len(terms))
            for term in terms:
                cond.terms[cond.count] = self._cond(term, tag, kind, before, resolve)
                cond.count += 1
            return cond
        if isinstance(expr, Position):
            cond = self._new_cond(key, POSITION)
            cond.op = expr.op
            cond.number = expr.value
            cond.tag = tag
            cond.kind = kind
            cond.before = self._all_of(tuple(before), tag, kind, resolve)
            return cond
        if isinstance(expr, Exists):
            cond = self._new_cond(key, EXISTS)
        elif isinstance(expr, Compare):
            cond = self._new_cond(key, COMPARE)
            cond.op = expr.op
            cond.numeric = not (isinstance(expr.value, str) and expr.op <= 1)
            if cond.numeric:
                cond.number = number_of(expr.value)
            else:
                set_text(cond, expr.value)
        else:
            cond = self._new_cond(key, CONTAINS if isinstance(expr, Contains) else STARTS)
            set_text(cond, expr.text)
        cond.route = self._route(expr.path, resolve)
        cond.brief = is_brief(cond)
        return cond

    cdef Cond* _shared_cond(self, key) except? NULL:
        cdef Cond* cond
        known = self.cond_ids.get(key)
        if known is None:
            return NULL
        cond = self.conds[<int32_t>known]
        cond.uses += 1
        return cond

    cdef Cond* _new_cond(self, key, int test) except NULL:
        cdef Cond* cond
        cdef int32_t index
        if self.free_conds:
            index = self.free_conds.pop()
        else:
            index = self.cond_count
            grow(<void**>&self.conds, &self.cond_room, index + 1, sizeof(void*))
            self.cond_keys.append(None)
            self.cond_count += 1
        cond = new_cond(test)
        cond.id = index
        cond.uses = 1
        self.conds[index] = cond
        self.cond_ids[key] = index
        self.cond_keys[index] = key
        return cond

    cdef int _room_for_terms(self, Cond* cond, Py_ssize_t count) except -1:
        cond.terms = <Cond**>calloc(count, sizeof(void*))
        if cond.terms == NULL:
            raise MemoryError
        return 0

    cdef int _release_cond(self, Cond* cond) except -1:
        # One use less; with the last, the conditions and aims that it uses lose one too.
        cdef int32_t i
        cdef Way* way
        if cond == NULL:
            return 0
        cond.uses -= 1
        if cond.uses > 0:
            return 0
        del self.cond_ids[self.cond_keys[cond.id]]
        self.cond_keys[cond.id] = None
        self.conds[cond.id] = NULL
        self.free_conds.append(cond.id)
        for i in range(cond.count):
            self._release_cond(cond.terms[i])
        self._release_cond(cond.before)
        for i in range(cond.way_count):
            way = &cond.ways[i]
            self._release_aim(way.aim)
            if way.ask in (SAME, OTHER, HOLDING, HEADED):
                self._release_literal(<int32_t>way.key)
        if cond.gate >= 0:
            self._release_aim(cond.gate)
        for i in range(cond.route.count):
            self._release_cond(cond.route.steps[i].cond)
        free_cond(cond)
        return 0

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

    cdef int32_t find_literal(self, const char* text, int32_t length,
                              int64_t* budget) noexcept nogil:
        cdef uint64_t value
        cdef uint32_t slot
        cdef int32_t index
        if length > self.longest_literal:
            return -1
        value = hash_text(text, length)
        budget[0] -= length >> BYTES_READ
        slot = <uint32_t>value & self.literal_mask
        while True:
            budget[0] -= 1
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
        """The test of `prefix:*` for a namespace: -2 less the vocabulary's number for it.

        The vocabulary gets the name `{uri}*`, whose id closed readers give to all names of the
        namespace that they do not know.
        """
        cdef int32_t tag
        if not uri:
            return -2  # fits no name
        tag = self.vocabulary.add(f"{{{uri}}}*")
        if not self.spaced or tag >= self.names_needed:
            # Not a version of its own: the statements with the test are yet to come.
            if not self.changing:
                self._hold()
            self.spaced = True
            self._need(tag)
            self._done()
        return -2 - self.vocabulary._pages[tag // PAGE][tag % PAGE].space

    def way(self, list axes not None, list tags not None):
        """The states that steps lead through, two a step: the self-loop state that `//` waits in,
        0 for `/`, and the state behind the step's name; it ends where no state leads on."""
        cdef int32_t state = 0
        cdef int32_t loop
        cdef list states = []
        for axis, tag in zip(axes, tags, strict=True):
            loop = self.states[state].loop if axis == DESCENDANT else 0
            if axis == DESCENDANT and loop == 0:
                break
            state = self.edge(loop if loop else state, tag)
            if state == 0:
                break
            states.append((loop, state))
        return states

    def stats(self):
        """Counts and bytes of the shared structure."""
        cdef int64_t held = (<int64_t>self.state_room * (sizeof(State) + sizeof(int64_t))
                             + (<int64_t>self.edge_mask + 1) * 12
                             + <int64_t>self.sub_room * 12
                             + <int64_t>self.pattern_room * sizeof(Pattern)
                             + <int64_t>self.entry_room * sizeof(Entry)
                             + <int64_t>self.aim_room * sizeof(Aim)
                             + <int64_t>self.cond_room * (sizeof(void*) + sizeof(Cond))
                             + <int64_t>self.literal_room * sizeof(Literal))
        return {
            "states": self.live_states - 1,  # the root of routes is none of the statements'
            "edges": self.edge_live,
            "patterns": self.pattern_count - len(self.free_patterns),
            "entries": self.entry_count - len(self.free_entries),
            "conditions": self.cond_count - len(self.free_conds),
            "aims": self.aim_count - len(self.free_aims),
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


def by_eagerness(condition):
    """Sorts the conditions of an entry: what usually lets the fewest through comes first."""
    return eagerness(condition[2])
