# The run of one document through the automaton. Part of _kernel.pyx, which includes it.

@cython.final
cdef class Runner(Consumer):
    """Runs documents through an automaton, one at a time; keeps its own lazy DFA.

    `cache` bounds the bytes of the DFA: over it, the DFA is thrown away and grows anew from where
    the document stands. Groups of states with many entries stay: statements bound them, documents do
    not. All goes between two documents, once statements that came and went have left more sets
    behind that no document can reach than there are others.
    """

    cdef Automaton automaton
    cdef int64_t cache
    cdef int32_t max_active
    # the DFA
    cdef Dfa* dfas
    cdef int32_t dfa_count
    cdef int32_t dfa_room
    cdef int64_t held            # bytes of the DFA, ...
    cdef int64_t layered         # ... and of `shared`
    cdef int32_t most            # sets from which on those that were left behind are looked for
    cdef int64_t looked          # version of the automaton when they were last looked for
    cdef uint64_t* move_keys     # (dfa, tag) -> dfa
    cdef int32_t* move_ends
    cdef int64_t* move_versions  # of the automaton when the move was last known to be right
    cdef uint32_t move_mask
    cdef uint32_t move_used
    cdef int32_t* set_slots      # sets by their hash
    cdef uint32_t set_mask
    cdef uint32_t set_used
    cdef Layers** shared         # groups of single states with many entries
    cdef int32_t shared_count
    cdef int32_t shared_room
    # scratch
    cdef uint32_t* seen          # by state
    cdef int32_t seen_room
    cdef uint32_t seen_stamp
    cdef Ints fresh
    cdef Ints loops
    cdef Ints gathered
    cdef Ints chosen             # entries that go into one layer
    cdef Ints reached            # nodes that a group looks at
    cdef Ints named              # (bank, group, attribute) that are to be asked next
    cdef Ints hits               # groups, or ranges of items, that are to be looked at next
    cdef Bank* keeping           # the bank whose items are kept while it is asked, or NULL
    cdef Sortable* sortable
    cdef int32_t sortable_room
    cdef Draft draft
    cdef uint8_t* marks          # by subscriber
    cdef int32_t mark_room
    cdef uint8_t epoch
    cdef int16_t* armed          # by slot
    cdef int32_t armed_room
    cdef Undo* undos
    cdef int32_t undo_count
    cdef int32_t undo_room
    cdef uint32_t memo_epoch
    cdef uint32_t* aim_found     # by aim: at how many nodes it was there
    cdef int32_t aim_room
    cdef uint64_t* literal_marks # by literal: whether it was met already
    cdef int32_t literal_room
    cdef uint64_t literal_stamp
    cdef uint32_t nodes_walked   # from how many nodes routes were walked
    cdef uint32_t nodes_named    # of how many nodes attributes were looked up
    cdef int32_t doubts[DOUBTS]
    cdef Value* values
    cdef Truths* truths          # by level
    cdef int32_t truth_levels
    cdef uint64_t walk           # counts the walks below nodes
    cdef int32_t route_dfa       # the set before any step of a route, or -1
    cdef int32_t* stack_route
    cdef Ints out
    cdef Ints undecided
    cdef Ints planned            # patterns that matched and have a plan
    cdef int32_t* row_dfas       # by row of an element; kept while statements ask for tuples
    cdef int32_t row_room
    cdef int64_t reached_states  # states that the elements of the document have reached
    cdef int32_t* end_of         # by state: its number among those whose rows are looked for
    cdef int32_t end_room
    cdef Ints end_pairs          # (number of the state, row)
    cdef Ints end_rows           # rows by state, ...
    cdef Ints end_begins         # ... which begin here
    cdef Found* found            # where results are collected, or NULL
    cdef Ints tuples
    cdef int32_t* stack_dfa
    cdef int32_t* stack_row
    cdef Doc doc
    cdef readonly bint consumed  # the document has come through
    cdef readonly int64_t version  # of the automaton that answered it
    cdef Outcome outcome
    cdef int64_t budget
    cdef int64_t floor           # down to which the automaton goes on when the budget is used up
    cdef bint stopped            # it came there, and the rest of the document was not looked at
    cdef int32_t most_tuples
    cdef readonly int64_t work   # units that the last document was charged
    cdef Settler settler         # decides statements that have rules
    cdef Body body               # the document, for what its columns do not have
    # counters
    cdef readonly int64_t documents
    cdef readonly int64_t elements
    cdef readonly int64_t steps      # NFA steps: paths that were not known
    cdef readonly int64_t flushes
    cdef readonly int64_t asked      # groups looked at
    cdef readonly int64_t fired      # entries whose first condition held
    cdef readonly int64_t charged    # units of work of all documents

    def __cinit__(self, Automaton automaton not None, int64_t cache, int32_t max_active):
        self.automaton = automaton
        self.cache = cache
        self.max_active = max_active
        self.most = FEWEST
        self.settler = Settler()
        self.stack_dfa = <int32_t*>malloc((DEEPEST + 2) * sizeof(int32_t))
        self.stack_row = <int32_t*>malloc((DEEPEST + 2) * sizeof(int32_t))
        self.stack_route = <int32_t*>malloc((DEEPEST + 2) * sizeof(int32_t))
        self.values = <Value*>calloc(VALUES, sizeof(Value))
        if (self.stack_dfa == NULL or self.stack_row == NULL or self.stack_route == NULL
                or self.values == NULL):
            raise MemoryError
        memset(&self.doc, 0, sizeof(Doc))
        self.doc.placed = <Placed*>calloc(PLACES, sizeof(Placed))
        self.doc.memos = <Memo*>calloc(MEMOS, sizeof(Memo))
        self.doc.memo_mask = MEMOS - 1
        if self.doc.placed == NULL or self.doc.memos == NULL or not self._start_cache():
            raise MemoryError

    def __dealloc__(self):
        cdef int32_t level
        self._drop_cache()
        self._drop_shared()
        free(self.dfas)
        free(self.shared)
        free(self.seen)
        free(self.fresh.items)
        free(self.loops.items)
        free(self.gathered.items)
        free(self.chosen.items)
        free(self.reached.items)
        free(self.hits.items)
        free(self.named.items)
        free(self.sortable)
        free_draft(&self.draft)
        free(self.marks)
        free(self.armed)
        free(self.undos)
        free(self.doc.memos)
        free(self.aim_found)
        free(self.literal_marks)
        free(self.values)
        for level in range(self.truth_levels):
            free(self.truths[level].bits)
            free(self.truths[level].last_end)
            free(self.truths[level].found.items)
            free(self.truths[level].ends.items)
            free(self.truths[level].values_at)
            free(self.truths[level].values.items)
        free(self.truths)
        free(self.stack_route)
        free(self.out.items)
        free(self.undecided.items)
        free(self.planned.items)
        free(self.tuples.items)
        free(self.row_dfas)
        free(self.end_of)
        free(self.end_pairs.items)
        free(self.end_rows.items)
        free(self.end_begins.items)
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
            free(self.dfas[i].members)
        self.dfa_count = 0
        free(self.move_keys)
        free(self.move_ends)
        free(self.move_versions)
        free(self.set_slots)
        self.move_keys = NULL
        self.move_ends = NULL
        self.move_versions = NULL
        self.set_slots = NULL

    cdef void _drop_shared(self) noexcept nogil:
        # REQUIRES: no set is left that points there.
        cdef int32_t i
        for i in range(self.shared_count):
            self._drop_layers(self.shared[i])
            free(self.shared[i].groups)
            free(self.shared[i])
        self.shared_count = 0

    cdef void _empty(self, Dfa* dfa) noexcept nogil:
        # What it says goes; which set it is, and the moves from it, stay.
        self.held -= dfa_bytes(dfa)
        free(dfa.accepts)
        free_groups(dfa.own)
        free(dfa.shared)
        dfa.accepts = NULL
        dfa.accept_count = 0
        dfa.own = NULL
        dfa.shared = NULL
        dfa.shared_count = 0
        dfa.version = -1

    cdef bint _fill(self, Dfa* dfa) noexcept nogil:
        cdef bint filled = self._gather_accepts(dfa) and self._gather_groups(dfa)
        self.held += dfa_bytes(dfa)
        if filled:
            dfa.version = self.automaton.version
        return filled

    cdef bint _look_after(self) noexcept nogil:
        # Whether there is room for sets; most of them may be there for statements long gone.
        # It is rare, and no document's fault: none is charged.
        cdef int32_t reached
        cdef int64_t budget = self.doc.budget
        if self.dfa_count < self.most or self.looked == self.automaton.version:
            return True
        self.looked = self.automaton.version
        reached = self._reached()
        self.doc.budget = budget
        if reached < 0:
            return False
        if reached * 2 >= self.dfa_count:
            self.most = self.dfa_count * 2
            return True
        self.flushes += 1
        self.most = max(FEWEST, reached * 2)
        self._drop_cache()
        self._drop_shared()
        return self._start_cache()

    cdef int32_t _reached(self) noexcept nogil:
        # How many sets moves that still hold lead to, from those before any step; -1: no memory.
        cdef uint32_t size = self.move_mask + 1
        cdef int32_t* first = <int32_t*>malloc(self.dfa_count * sizeof(int32_t))  # of its moves
        cdef int32_t* next_ = <int32_t*>malloc(size * sizeof(int32_t))
        cdef int32_t* found = <int32_t*>malloc(self.dfa_count * sizeof(int32_t))
        cdef uint8_t* marks = <uint8_t*>calloc(self.dfa_count, 1)
        cdef int32_t count = -1
        cdef int32_t at, dfa, end, slot
        cdef uint32_t i
        if first != NULL and next_ != NULL and found != NULL and marks != NULL:
            memset(first, 0xff, self.dfa_count * sizeof(int32_t))
            for i in range(size):
                if self.move_keys[i] != 0:
                    dfa = <int32_t>(self.move_keys[i] >> 32) - 1
                    next_[i] = first[dfa]
                    first[dfa] = <int32_t>i
            count = 0
            for dfa in range(self.dfa_count):
                # Roots lead everywhere, and nothing leads to them; there are few.
                if self._is_root(&self.dfas[dfa]):
                    marks[dfa] = 1
                    found[count] = dfa
                    count += 1
            at = 0
            while at < count:
                dfa = found[at]
                at += 1
                slot = first[dfa]
                while slot >= 0:
                    end = self.move_ends[slot]
                    if not marks[end] and self._still_leads(
                            slot, dfa, <int32_t><uint32_t>self.move_keys[slot]):
                        marks[end] = 1
                        found[count] = end
                        count += 1
                    slot = next_[slot]
        free(first)
        free(next_)
        free(found)
        free(marks)
        return count

    cdef inline bint _is_root(self, Dfa* dfa) noexcept nogil:
        # Whether it is a set before any step, as it is now.
        cdef int32_t root = dfa.members[0] if dfa.matched == 1 else -1
        cdef int32_t loop
        if root < 0 or (root != 0 and root != self.automaton.route_root):
            return False
        loop = self.automaton.states[root].loop
        return dfa.count == 1 if loop == 0 else dfa.count == 2 and dfa.members[1] == loop

    cdef inline bint _fresh(self, Dfa* dfa) noexcept nogil:
        # Whether no state of the set has changed since the set was made.
        cdef int32_t i
        cdef int64_t version = dfa.version
        if version == self.automaton.version:
            return True
        if version < 0:
            return False
        self.doc.budget -= dfa.count
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
            self.doc.budget -= self.dfas[dfa].count
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
        cdef int32_t space = 0
        cdef uint64_t tag_bit = 1ULL << (<uint32_t>tag & 63)
        cdef uint64_t any_bit = 1ULL << (<uint32_t>ANY & 63)
        cdef uint64_t bloom
        if self.automaton.spaced:
            space = self.automaton.vocabulary._pages[tag // PAGE][tag % PAGE].space
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
                end = self.automaton.edge(state, -2 - space)
                if end and not self._enter(end):
                    return -NO_MEMORY
        self.doc.budget -= FOR_SET + FOR_STATE * (
            <int64_t>dfa.count + self.fresh.count + self.loops.count)
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
                if not self._fresh(&self.dfas[found]):
                    # No open element has it: statements do not change within a document.
                    self._empty(&self.dfas[found])
                    if not self._fill(&self.dfas[found]):
                        return -NO_MEMORY
                return found
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
        dfa.version = -1
        dfa.hash = value
        dfa.matched = self.fresh.count
        dfa.count = self.fresh.count + self.loops.count
        dfa.members = <int32_t*>malloc(max(1, dfa.count) * sizeof(int32_t))
        if dfa.members == NULL:
            return -NO_MEMORY
        memcpy(dfa.members, self.fresh.items, self.fresh.count * sizeof(int32_t))
        memcpy(dfa.members + dfa.matched, self.loops.items, self.loops.count * sizeof(int32_t))
        self.dfa_count += 1
        if not self._fill(dfa):
            return -NO_MEMORY
        self.set_used += 1
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
                if not push(&self.gathered,
                            at | VALUED if routes and self.automaton.aims[at].valued else at):
                    return False
                at = self.automaton.aims[at].next if routes else self.automaton.sub_next[at]
        if self.gathered.count:
            self.doc.budget -= FOR_ACCEPT * <int64_t>self.gathered.count
            dfa.accepts = <int32_t*>malloc(self.gathered.count * sizeof(int32_t))
            if dfa.accepts == NULL:
                return False
            dfa.accept_count = self.gathered.count
            memcpy(dfa.accepts, self.gathered.items, dfa.accept_count * sizeof(int32_t))
            # In order, so that marking goes through memory one way.
            qsort(dfa.accepts, dfa.accept_count, sizeof(int32_t), by_int)
            dfa.plain_count = dfa.accept_count
            while routes and dfa.plain_count and dfa.accepts[dfa.plain_count - 1] & VALUED:
                dfa.plain_count -= 1
                dfa.accepts[dfa.plain_count] ^= VALUED
        return True

    cdef bint _gather_groups(self, Dfa* dfa) noexcept nogil:
        cdef int32_t i, entry
        cdef int32_t count = 0
        cdef Layers* layers
        cdef void* grown
        for i in range(dfa.matched):
            if self.automaton.states[dfa.members[i]].entry_count > OWN_LIMIT:
                layers = self._layers_of(dfa.members[i])
                if layers == NULL or not self._add_new(layers):
                    return False
                grown = realloc(dfa.shared, (dfa.shared_count + 1) * sizeof(void*))
                if grown == NULL:
                    return False
                dfa.shared = <Layers**>grown
                dfa.shared[dfa.shared_count] = layers
                dfa.shared_count += 1
        # Only now: layers are sorted in the same place.
        for i in range(dfa.matched):
            if self.automaton.states[dfa.members[i]].entry_count > OWN_LIMIT:
                continue
            self.doc.budget -= FOR_ENTRY * self.automaton.states[dfa.members[i]].entry_count
            entry = self.automaton.states[dfa.members[i]].entries
            while entry >= 0:
                if not self._sort_in(entry, &count):
                    return False
                entry = self.automaton.entries[entry].next
        # Layers are not charged: they are made once for the statements, whatever documents come.
        self.doc.budget -= FOR_ENTRY * <int64_t>count
        if count:
            dfa.own = make_groups(self.sortable, count, False, &self.draft)
            return dfa.own != NULL
        return True

    # -- states with many entries --

    cdef Layers* _layers_of(self, int32_t state) noexcept nogil:
        cdef Layers* layers
        cdef void* grown
        cdef int32_t i
        self.doc.budget -= self.shared_count
        for i in range(self.shared_count):
            if self.shared[i].state == state:
                return self.shared[i]
        if self.shared_count == self.shared_room:
            grown = realloc(self.shared, (self.shared_room * 2 + 16) * sizeof(void*))
            if grown == NULL:
                return NULL
            self.shared = <Layers**>grown
            self.shared_room = self.shared_room * 2 + 16
        layers = <Layers*>calloc(1, sizeof(Layers))
        if layers != NULL:
            layers.state = state
            self.shared[self.shared_count] = layers
            self.shared_count += 1
        return layers

    cdef void _drop_layers(self, Layers* layers) noexcept nogil:
        while layers.count:
            self._drop_last(layers)

    cdef void _drop_last(self, Layers* layers) noexcept nogil:
        cdef Groups* last
        layers.count -= 1
        last = layers.groups[layers.count]
        layers.entries -= last.entries
        self.layered -= groups_bytes(last) + last.scanners
        free_groups(last)

    cdef bint _add_new(self, Layers* layers) noexcept nogil:
        # Take in the entries that came or changed since; those that went stay until they are
        # half of it. False: no memory, and it must be asked again before it is used.
        cdef State* state = &self.automaton.states[layers.state]
        cdef int64_t since = layers.stamp
        cdef int32_t entry = state.entries
        self.chosen.count = 0
        if layers.entries > 2 * state.entry_count:
            self._drop_layers(layers)
            since = 0
        while entry >= 0 and self.automaton.entries[entry].born > since:
            if not push(&self.chosen, entry):
                return False
            entry = self.automaton.entries[entry].next
        if self.chosen.count == 0:
            return True
        layers.stamp = 0
        while layers.count and self.chosen.count * 2 >= layers.groups[layers.count - 1].entries:
            if not self._choose_living(layers.groups[layers.count - 1]):
                return False
            self._drop_last(layers)
        if not self._add_layer(layers):
            return False
        layers.stamp = self.automaton.version
        return True

    cdef bint _choose_living(self, Groups* groups) noexcept nogil:
        # The entries of groups that are still there. One that is found in several ways once only.
        cdef int32_t i, kept
        cdef int32_t begin = self.chosen.count
        for i in range(groups.size):
            if self._lives(groups, i) and not push(&self.chosen, groups.items[i].entry):
                return False
        if self.chosen.count > begin:
            qsort(self.chosen.items + begin, self.chosen.count - begin, sizeof(int32_t), by_int)
            kept = begin
            for i in range(begin + 1, self.chosen.count):
                if self.chosen.items[i] != self.chosen.items[kept]:
                    kept += 1
                    self.chosen.items[kept] = self.chosen.items[i]
            self.chosen.count = kept + 1
        return True

    cdef inline bint _lives(self, Groups* groups, int32_t i) noexcept nogil:
        # Whether the entry of an item is what it was when the groups were made. A set is made
        # anew when one of its entries changes; layers are not.
        return not groups.layered or (
            self.automaton.entries[groups.items[i].entry].born == groups.borns[i])

    cdef bint _add_layer(self, Layers* layers) noexcept nogil:
        # Groups of the entries in `chosen`.
        cdef Groups* groups
        cdef void* grown
        cdef int32_t i
        cdef int32_t count = 0
        for i in range(self.chosen.count):
            if not self._sort_in(self.chosen.items[i], &count):
                return False
        if count == 0:
            return True
        if layers.count == layers.room:
            grown = realloc(layers.groups, (layers.room + 16) * sizeof(void*))
            if grown == NULL:
                return False
            layers.groups = <Groups**>grown
            layers.room += 16
        groups = make_groups(self.sortable, count, True, &self.draft)
        if groups == NULL:
            return False
        layers.groups[layers.count] = groups
        layers.count += 1
        groups.entries = self.chosen.count
        layers.entries += groups.entries
        self.layered += groups_bytes(groups)
        return True

    cdef bint _order_layers_anew(self, Layers* layers) noexcept nogil:
        # As `_order_anew`, for all that the state has.
        layers.rounds = min(layers.rounds + 1, MOST_ROUNDS)
        self._drop_layers(layers)
        layers.stamp = 0
        return self._add_new(layers)

    # -- what an entry is found by --

    cdef bint _sort_in(self, int32_t index, int32_t* count) noexcept nogil:
        # The ways in which an entry is found: those of the part that is expected to let the
        # fewest through. The next best is what is looked at first when it has been found.
        cdef Entry* entry = &self.automaton.entries[index]
        cdef int32_t first = -1
        cdef int32_t second = -1
        cdef double least = 0
        cdef double less = 0
        cdef double share
        cdef int32_t i
        cdef Cond* cond
        for i in range(min(entry.part_count, MOST_CHOSEN)):
            share = self._share_of(entry.parts[i].cond)
            if first < 0 or share < least:
                second = first
                less = least
                first = i
                least = share
            elif second < 0 or share < less:
                second = i
                less = share
        if first < 0:
            return self._add_item(entry, index, NULL, 0, -1, -1, count)
        cond = entry.parts[first].cond
        for i in range(cond.way_count):
            if not never(&cond.ways[i]) and not self._add_item(
                    entry, index, &cond.ways[i], entry.parts[first].up,
                    first if cond.proves else -1, second if cond.proves else first, count):
                return False
        return True

    cdef double _share_of(self, Cond* cond) noexcept nogil:
        # At how large a part of the nodes a condition is expected to hold, as far as a look-up
        # tells: from how often what it looks at was there, and how many keys are asked of it.
        cdef double share = 0
        cdef double there
        cdef Way* way
        cdef Aim* aim
        cdef int32_t i
        for i in range(cond.way_count):
            way = &cond.ways[i]
            aim = &self.automaton.aims[way.aim]
            there = 1
            if way.aim < self.aim_room:
                if aim.kind == ATTRIBUTE_VALUE:
                    there = (self.aim_found[way.aim] + 1.0) / (self.nodes_named + 1.0)
                elif aim.kind == ROUTE_VALUE and aim.state >= 0:
                    there = (self.aim_found[way.aim] + 1.0) / (self.nodes_walked + 1.0)
            if way.ask == SAME or way.ask == EQUAL or way.ask == HEADED or way.ask == HOLDING:
                # A tenth, and a third of a range, are what databases assume without counts.
                there /= max(aim.uses, 10)
            elif way.ask >= BELOW and way.ask <= AT_LEAST:
                there /= 3
            share += there
            # What must be tried everywhere costs that much, whatever comes of it.
            share += aim.kind == TRUTH
        return share

    cdef bint _add_item(self, Entry* entry, int32_t index, Way* way, int16_t up, int32_t proven,
                        int32_t next_part, int32_t* count) noexcept nogil:
        cdef Sortable* sortable
        cdef Aim* aim
        cdef Item* item
        cdef void* grown
        cdef int32_t i
        if count[0] == self.sortable_room:
            grown = realloc(self.sortable, (count[0] * 2 + 256) * sizeof(Sortable))
            if grown == NULL:
                return False
            self.sortable = <Sortable*>grown
            self.sortable_room = count[0] * 2 + 256
        sortable = &self.sortable[count[0]]
        count[0] += 1
        item = &sortable.item
        item.entry = index
        sortable.item_born = entry.born
        item.needs = entry.needs
        item.arms = entry.arms >= 0
        item.target = entry.arms
        item.span = entry.span
        item.proven = <int8_t>proven
        item.next_part = <int8_t>next_part
        item.gate = -1
        item.gate_up = 0
        if next_part >= 0:
            item.gate = entry.parts[next_part].cond.gate
            item.gate_up = entry.parts[next_part].up
        item.alone = False
        if entry.pattern >= 0:
            item.target = self.automaton.patterns[entry.pattern].subscribers
            item.alone = (item.target >= 0 and self.automaton.sub_next[item.target] < 0
                          and self.automaton.patterns[entry.pattern].plan < 0)
        sortable.simple = not item.arms
        for i in range(entry.part_count):
            sortable.simple = sortable.simple and entry.parts[i].up >= up
        sortable.up = up
        sortable.cls = ASKED
        if way == NULL:
            sortable.aim = -1
            sortable.rank = -1
            sortable.born = 0
            sortable.exact = True
            sortable.ask = THERE
            item.key = entry.needs
            return True
        aim = &self.automaton.aims[way.aim]
        sortable.aim = way.aim
        sortable.born = aim.born
        sortable.rank = way.aim
        sortable.exact = aim.exact
        sortable.ask = way.ask
        item.key = way.key
        if aim.kind == ATTRIBUTE_VALUE:
            sortable.cls = BY_ATTRIBUTE
            sortable.rank = aim.tag
        elif aim.kind == ROUTE_VALUE and aim.state >= 0:
            sortable.cls = BY_ROUTE
        return True

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
        if self.literal_room < self.automaton.literal_count:
            room = self.automaton.literal_count + self.automaton.literal_count // 4 + 64
            grown = realloc(self.literal_marks, room * sizeof(uint64_t))
            if grown == NULL:
                return NO_MEMORY
            self.literal_marks = <uint64_t*>grown
            memset(self.literal_marks, 0, room * sizeof(uint64_t))
            self.literal_room = room
            self.literal_stamp = 0
        if self.aim_room < self.automaton.aim_count:
            room = self.automaton.aim_count + self.automaton.aim_count // 4 + 64
            grown = realloc(self.aim_found, room * sizeof(uint32_t))
            if grown == NULL:
                return NO_MEMORY
            self.aim_found = <uint32_t*>grown
            memset(self.aim_found + self.aim_room, 0, (room - self.aim_room) * sizeof(uint32_t))
            self.aim_room = room
        self.epoch += 1
        if self.epoch == 0:
            memset(self.marks, 0, self.mark_room)
            for i in range(self.dfa_count):
                self.dfas[i].epoch = 0
            self.epoch = 1
        self.memo_epoch += 1
        self.doc.epoch = self.memo_epoch
        self.doc.memo_count = 0
        self.doc.failed = False
        self.route_dfa = -1
        self.out.count = 0
        self.undecided.count = 0
        memset(self.doubts, 0xff, sizeof(self.doubts) if self.doc.partial else 0)
        self.planned.count = 0
        self.tuples.count = 0
        self.reached_states = 0
        self.stopped = False
        if self.automaton.plan_count and self.row_room < self.doc.rows:
            grown = realloc(self.row_dfas, <size_t>self.doc.rows * sizeof(int32_t))
            if grown == NULL:
                return NO_MEMORY
            self.row_dfas = <int32_t*>grown
            self.row_room = self.doc.rows
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
        self.reached_states = <int64_t>1 << 62  # the rows' sets are gone
        self.doc.budget -= FOR_FLUSH
        self._drop_cache()
        if not self._start_cache():
            return -NO_MEMORY
        end = self._root(0)
        for i in range(depth + 1):
            if end < 0:
                return end
            self.stack_dfa[i] = end
            if self.doc.budget < self.floor:
                return -SPENT
            if i < depth:
                end = self._step(end, self.doc.tags[self.stack_row[i]])
        return 0

    cdef Outcome _run(self) noexcept nogil:
        cdef Doc* doc = &self.doc
        cdef int32_t row, depth, dfa
        cdef int32_t last = -1
        cdef int16_t base
        cdef Outcome outcome = self._prepare()
        cdef bint recording = self.automaton.plan_count > 0
        if outcome != DONE or doc.rows == 0:
            return outcome
        base = doc.levels[0]
        if not self._look_after():
            return NO_MEMORY
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
                return self._stop() if dfa == -SPENT else <Outcome>-dfa
            prefetch(self.dfas[dfa].own)
            self.stack_dfa[depth + 1] = dfa
            self.stack_row[depth] = row
            if recording:
                self.row_dfas[row] = dfa
                self.reached_states += self.dfas[dfa].matched
            if self.dfas[dfa].epoch != self.epoch:
                self.dfas[dfa].epoch = self.epoch
                if self.dfas[dfa].accept_count and not self._accept(&self.dfas[dfa]):
                    self._disarm(-1)
                    return NO_MEMORY
            if depth >= self.truth_levels and not self._more_levels(depth):
                self._disarm(-1)
                return NO_MEMORY
            if doc.budget < 0:
                self._give_up(&self.dfas[dfa])
                if doc.budget < self.floor:
                    self._disarm(-1)
                    return self._stop()
                continue
            if self.dfas[dfa].own != NULL:
                if (self.dfas[dfa].own.wasted > self._tolerated(&self.dfas[dfa])
                        and not self._order_anew(&self.dfas[dfa])):
                    self._disarm(-1)
                    return NO_MEMORY
                self._ask_groups(self.dfas[dfa].own, depth)
            if self.dfas[dfa].shared_count and not self._ask_shared(dfa, depth):
                self._disarm(-1)
                return NO_MEMORY
            if doc.budget < 0:
                self._give_up(&self.dfas[dfa])
            if doc.failed:
                self._disarm(-1)
                return NO_MEMORY
        self._disarm(-1)
        self.documents += 1
        return DONE

    cdef Outcome _stop(self) noexcept nogil:
        # The automaton has used up what it may: statements that have not matched are undecided.
        self.stopped = True
        self.reached_states = <int64_t>1 << 62  # not all rows have sets
        self.documents += 1
        return DONE

    cdef inline int64_t _tolerated(self, Dfa* dfa) noexcept nogil:
        return (<int64_t>WASTE * dfa.own.size) << dfa.rounds

    cdef bint _order_anew(self, Dfa* dfa) noexcept nogil:
        # Entries fired in vain so often that it is worth deciding again by what they are found,
        # from the counts as they are now. Each time it takes twice as many. False: no memory.
        self._empty(dfa)
        dfa.rounds = min(dfa.rounds + 1, MOST_ROUNDS)
        return self._fill(dfa)

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
        self.doc.budget -= dfa.accept_count >> 3  # next to nothing each
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

    cdef inline void _put(self, Ints* list_, int32_t item) noexcept nogil:
        # An item that is lost would be a wrong answer: the document fails instead.
        if not push(list_, item):
            self.doc.failed = True

    cdef void _give_up(self, Dfa* dfa) noexcept nogil:
        # The work is used up: nothing that hangs on this state is certain any more.
        cdef int32_t i, j
        if dfa.given_up == self.memo_epoch:
            return
        dfa.given_up = self.memo_epoch
        self.doc.budget -= 1 + dfa.shared_count
        if dfa.own != NULL:
            self._give_up_groups(dfa.own)
        for i in range(dfa.shared_count):
            for j in range(dfa.shared[i].count):
                self._give_up_groups(dfa.shared[i].groups[j])

    cdef void _give_up_groups(self, Groups* groups) noexcept nogil:
        cdef int32_t i
        if groups.given_up == self.memo_epoch:
            return
        groups.given_up = self.memo_epoch
        self.doc.budget -= groups.size
        for i in range(groups.size):
            if self._lives(groups, i):
                self._put(&self.undecided, groups.items[i].entry)

    cdef bint _ask_shared(self, int32_t dfa, int32_t depth) noexcept nogil:
        # By number: the walk below a node may make sets, and their array moves as it grows.
        cdef Layers* layers
        cdef int32_t i, j
        for i in range(self.dfas[dfa].shared_count):
            layers = self.dfas[dfa].shared[i]
            for j in range(layers.count):
                if layers.groups[j].wasted > (<int64_t>WASTE * layers.entries) << layers.rounds:
                    if not self._order_layers_anew(layers):
                        return False
                    break
            for j in range(layers.count):
                self._ask_groups(layers.groups[j], depth)
        return True

    cdef void _ask_groups(self, Groups* groups, int32_t depth) noexcept nogil:
        # What attributes lead to is only collected at first, and asked when it had time to come
        # from memory: the order in which entries fire does not matter.
        cdef int32_t i, j, row
        cdef Bank* bank
        self.doc.budget -= groups.bank_count
        self.named.count = 0
        for i in range(groups.bank_count):
            bank = &groups.banks[i]
            row = self.stack_row[depth - bank.up]
            self.keeping = NULL
            if self._remembers(bank):
                if bank.epoch == self.memo_epoch and bank.row == row:
                    self.doc.budget -= bank.kept.count
                    for j in range(bank.kept.count):
                        prefetch(&groups.items[bank.kept.items[j]])
                    for j in range(bank.kept.count):
                        self._fire_again(groups, bank, &groups.items[bank.kept.items[j]], depth)
                    continue
                bank.epoch = self.memo_epoch
                bank.row = row
                bank.kept.count = 0
                self.keeping = NULL if bank.simple else bank
            if bank.cls == BY_ATTRIBUTE:
                self._find_attributes(groups, i, row)
            elif bank.cls == BY_ROUTE and not (self.doc.partial and self.doc.ends[row] == OPEN):
                self._ask_routes(groups, bank, depth)
            else:
                j = bank.begin
                if groups.groups[j].aim < 0:
                    self._fire_armed(groups, bank, depth)
                    j += 1
                while j < bank.end:
                    self._ask(groups, &groups.groups[j], depth)
                    j += 1
        if self.named.count:
            self._ask_attributes(groups, depth)

    cdef inline bint _remembers(self, Bank* bank) noexcept nogil:
        # Whether a bank need not be asked twice of one node.
        return (bank.simple or bank.up > 0) and not self.doc.partial

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
        if aim.kind == ATTRIBUTE_VALUE:
            return False
        if aim.kind == PLACE:
            position_of(doc, row, aim.tag, ELEMENT, NULL, aim)
        elif aim.kind == TRUTH:
            holds(doc, aim.cond, row)
        elif is_open and aim.kind == SELF_VALUE:
            doc.unsure = True
        elif is_open and group.up > 0:
            # All elements below it may come to ask, so it is not looked through each time.
            if aim.kind == ROUTE_VALUE and group.asks & ANY_ASK == 1:
                self._leads(group.aim, row, &aim.route)
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
        self.reached.count = 0
        if aim.kind == TEXT_VALUE:
            at = row + 1
            last = row + size_of(doc, row)
            while at < last:
                if doc.kinds[at] == TEXT:
                    self._put(&self.reached, at)
                at += size_of(doc, at)
        else:
            collect(doc, &aim.route, 0, row, &self.reached)
        doubted = doc.doubted
        truth = self.reached.count > 0
        for i in range(self.reached.count):
            at = self.reached.items[i]
            if doc.kinds[at] != ELEMENT or doc.ends[at] != OPEN:
                self._ask_row(groups, group, at, depth)
                continue
            doubted = doubted or group.asks & ANY_ASK != 1
            if group.asks & 1:
                self._fire_run(groups, &groups.runs[group.begin], depth)
        if doubted:
            self._doubt(groups, group.first, group.last)
        elif not truth or group.asks & ANY_ASK != 1:
            # The batch with the node that is looked for will tell, if the entry asks for no more
            # than this element and that node.
            for i in range(group.first, group.last):
                if groups.items[i].arms:
                    self._doubt(groups, i, i + 1)
        if group.asks & FIRST_ASKS:
            for i in range(group.begin, group.end):
                run = &groups.runs[i]
                if run.ask == HOLDING or run.ask == HEADED:
                    self._doubt(groups, run.begin, run.end)
        return True

    cdef void _doubt(self, Groups* groups, int32_t begin, int32_t end) noexcept nogil:
        cdef int32_t i
        self.doc.budget -= end - begin
        for i in range(begin, end):
            if self._lives(groups, i):
                self._doubt_entry(groups.items[i].entry)

    cdef inline void _doubt_entry(self, int32_t entry) noexcept nogil:
        # Many elements ask the same in vain.
        cdef int32_t* last = &self.doubts[entry & (DOUBTS - 1)]
        if last[0] != entry:
            last[0] = entry
            self._put(&self.undecided, entry)

    cdef void _find_attributes(self, Groups* groups, int32_t index, int32_t row) noexcept nogil:
        # The groups of a bank that ask for attributes of the row, into `named`.
        cdef Doc* doc = &self.doc
        cdef Bank* bank = &groups.banks[index]
        cdef int32_t at = row + 1
        cdef int32_t begin, end, middle, tag
        self.nodes_named += 1
        while at < doc.rows and doc.kinds[at] == ATTRIBUTE:
            tag = doc.tags[at]
            begin = bank.begin
            end = bank.end
            while begin < end:
                middle = (begin + end) >> 1
                if groups.ranks[middle] < tag:
                    begin = middle + 1
                else:
                    end = middle
            if begin < bank.end and groups.ranks[begin] == tag:
                prefetch(&groups.groups[begin])
                self._put(&self.named, index)
                self._put(&self.named, begin)
                self._put(&self.named, at)
            at += 1
        doc.budget -= 2 * (at - row)  # bisections

    cdef void _ask_attributes(self, Groups* groups, int32_t depth) noexcept nogil:
        # What `_find_attributes` has found.
        cdef int32_t i, at
        cdef Bank* bank
        cdef Group* group
        if self.doc.failed:
            return  # not all of it is there
        for i in range(0, self.named.count, 3):
            group = &groups.groups[self.named.items[i + 1]]
            prefetch(&groups.runs[group.begin])
            for at in range(group.first, min(group.last, group.first + FETCHED), 2):
                prefetch(&groups.items[at])
        for i in range(0, self.named.count, 3):
            bank = &groups.banks[self.named.items[i]]
            group = &groups.groups[self.named.items[i + 1]]
            at = self.named.items[i + 2]
            self.keeping = bank if self._remembers(bank) and not bank.simple else NULL
            self.aim_found[group.aim] += 1
            self._ask_value(groups, group, self._value(at), depth)
            if group.asks & FIRST_ASKS:
                self._ask_first(groups, group, at, depth)

    cdef inline Value* _value(self, int32_t row) noexcept nogil:
        # The memo of a node's value.
        cdef Value* value = &self.values[row & (VALUES - 1)]
        if value.row != row or value.epoch != self.memo_epoch:
            value.epoch = self.memo_epoch
            value.row = row
            value.literal = UNASKED
            value.counted = False
        return value

    cdef void _ask_routes(self, Groups* groups, Bank* bank, int32_t depth) noexcept nogil:
        # Only the routes that are there. They are collected first: what they lead to in memory is
        # fetched for all of them at once.
        cdef Truths* truths = self._truths_of(depth - bank.up)
        cdef int32_t i
        cdef Group* group
        if truths == NULL or truths.found.count == 0:
            return
        self.hits.count = 0
        self._find_routes(groups, bank, truths)
        for i in range(self.hits.count):
            prefetch(&groups.items[groups.groups[self.hits.items[i]].first])
        for i in range(self.hits.count):
            group = &groups.groups[self.hits.items[i]]
            if group.asks == (1 | EXACT):
                self.asked += 1
                self._fire_range(groups, group.first, group.last, depth)
            else:
                self._ask(groups, group, depth)

    cdef void _find_routes(self, Groups* groups, Bank* bank, Truths* truths) noexcept nogil:
        # Into `hits`, whichever of the two lists is the shorter way to them.
        cdef int32_t i, begin, end, middle, aim
        cdef int32_t size = (bank.last_word - bank.word if bank.last_word > bank.word
                             else bank.end - bank.begin)
        if truths.found.count * SEARCH >= size:
            self.doc.budget -= size >> 2
            self._scan_routes(groups, bank, truths)
            return
        self.doc.budget -= 2 * truths.found.count
        for i in range(truths.found.count):
            aim = truths.found.items[i]
            begin = bank.begin
            end = bank.end
            while begin < end:
                middle = (begin + end) >> 1
                if groups.ranks[middle] < aim:
                    begin = middle + 1
                else:
                    end = middle
            if begin < bank.end and groups.ranks[begin] == aim:
                self._hit(groups, begin)

    cdef void _scan_routes(self, Groups* groups, Bank* bank, Truths* truths) noexcept nogil:
        cdef int32_t i, aim
        cdef uint64_t found
        cdef Word* word
        if bank.last_word == bank.word:
            for i in range(bank.begin, bank.end):
                aim = groups.ranks[i]
                if (truths.bits[aim >> 6] >> (aim & 63)) & 1:
                    self._hit(groups, i)
            return
        for i in range(bank.word, bank.last_word):
            word = &groups.words[i]
            found = word.mask & truths.bits[word.index]
            while found:
                self._hit(groups, word.first + popcount(word.mask & ((found & (~found + 1)) - 1)))
                found &= found - 1

    cdef inline void _hit(self, Groups* groups, int32_t group) noexcept nogil:
        prefetch(&groups.groups[group])
        self._put(&self.hits, group)

    cdef void _ask(self, Groups* groups, Group* group, int32_t depth) noexcept nogil:
        cdef Doc* doc = &self.doc
        cdef Aim* aim
        cdef int32_t row = self.stack_row[depth - group.up]
        cdef int32_t at, last
        cdef int32_t first = -1
        self.asked += 1
        doc.budget -= 1
        aim = &self.automaton.aims[group.aim]
        if aim.born != group.born:
            return  # gone, with all its entries
        if doc.partial and self._ask_partly(groups, group, depth):
            return
        if aim.kind == PLACE:
            self._ask_number(groups, group,
                             <double>position_of(doc, row, aim.tag, ELEMENT, NULL, aim),
                             depth)
        elif aim.kind == TRUTH:
            if self._holds_at(aim.cond, depth - group.up):
                self._fire_run(groups, &groups.runs[group.begin], depth)
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
                doc.budget -= 1
            if group.asks & FIRST_ASKS:
                self._ask_first(groups, group, first, depth)
        elif aim.state >= 0 and not doc.partial:
            self._ask_ends(groups, group, depth)
        else:
            self.reached.count = 0
            collect(doc, &aim.route, 0, row, &self.reached)
            for at in range(self.reached.count):
                last = self.reached.items[at]
                if first < 0 or last < first:
                    first = last
                self._ask_row(groups, group, last, depth)
            if group.asks & FIRST_ASKS:
                self._ask_first(groups, group, first, depth)

    cdef void _ask_ends(self, Groups* groups, Group* group, int32_t depth) noexcept nogil:
        # Ask about the nodes that a route leads to; equal values are looked up once.
        cdef Truths* truths = self._truths_of(depth - group.up)
        cdef int32_t at, i
        if truths == NULL or not (truths.bits[group.aim >> 6] >> (group.aim & 63)) & 1:
            return
        at = truths.values_at[group.aim]
        if at < 0:
            at = self._collect_values(truths, group.aim)
        if truths.values.items[at + 1] == 0:
            return
        if group.asks & ANY_ASK == 1:
            self._fire_run(groups, &groups.runs[group.begin], depth)
            return
        for i in range(at + 2, at + 2 + truths.values.items[at + 1]):
            self._ask_row(groups, group, truths.values.items[i], depth)
        if group.asks & FIRST_ASKS:
            self._ask_first(groups, group, truths.values.items[at], depth)

    cdef int32_t _collect_values(self, Truths* truths, int32_t index) noexcept nogil:
        # Where the nodes of a route stand in `values`, put there by what the walk has met.
        cdef Aim* aim = &self.automaton.aims[index]
        cdef int32_t begin = truths.values.count
        cdef int32_t at = truths.last_end[index]
        cdef int32_t first = -1
        cdef bint others = False     # there is a value that is neither a literal nor a number
        cdef int32_t i, row
        cdef Value* value
        self.reached.count = 0
        while at >= 0:
            collect(&self.doc, &aim.route, aim.elements, truths.ends.items[at], &self.reached)
            at = truths.ends.items[at + 1]
        self._put(&truths.values, -1)
        self._put(&truths.values, 0)
        self.literal_stamp += 1
        for i in range(self.reached.count):
            row = self.reached.items[i]
            if first < 0 or row < first:
                first = row
            value = self._value(row)
            self._find_literal(value)
            if value.literal >= 0:
                if self.literal_marks[value.literal] == self.literal_stamp:
                    continue
                self.literal_marks[value.literal] = self.literal_stamp
            else:
                self._count(value)
                if isnan(value.number):
                    if others:
                        continue
                    others = True
            self._put(&truths.values, row)
        if not self.doc.failed:
            truths.values.items[begin] = first
            truths.values.items[begin + 1] = truths.values.count - begin - 2
            truths.values_at[index] = begin
            return begin
        # Memory is used up, and the document fails: any list will do, if it is one.
        truths.values.count = 0
        truths.values_at[index] = -1
        return self._no_values(truths)

    cdef int32_t _no_values(self, Truths* truths) noexcept nogil:
        # An empty list, made before any other while there was memory.
        truths.values.items[0] = -1
        truths.values.items[1] = 0
        return 0

    cdef inline void _find_literal(self, Value* value) noexcept nogil:
        cdef const char* text = NULL
        cdef int32_t length = 0
        if value.literal == UNASKED:
            string_value(&self.doc, value.row, &text, &length)
            value.literal = self.automaton.find_literal(text, length, &self.doc.budget)

    cdef inline void _count(self, Value* value) noexcept nogil:
        cdef const char* text = NULL
        cdef int32_t length = 0
        if not value.counted:
            string_value(&self.doc, value.row, &text, &length)
            self.doc.budget -= length >> BYTES_READ
            value.number = to_number(text, length)
            value.counted = True

    cdef inline Truths* _truths_of(self, int32_t level) noexcept nogil:
        # Which routes lead somewhere from the open element at a level, predicates aside.
        # REQUIRES: there is room for the level. `_run` sees to it, as the array must not move
        # while one level's truths are gone through and another's are asked for.
        cdef Truths* truths = &self.truths[level]
        if truths.row != self.stack_row[level] or truths.epoch != self.memo_epoch:
            if not self._find_truths(truths, self.stack_row[level]):
                self.doc.failed = True
                return NULL
        return truths

    cdef bint _more_levels(self, int32_t level) noexcept nogil:
        cdef int32_t wanted = level + 16
        cdef void* grown = realloc(self.truths, wanted * sizeof(Truths))
        if grown == NULL:
            return False
        self.truths = <Truths*>grown
        memset(&self.truths[self.truth_levels], 0, (wanted - self.truth_levels) * sizeof(Truths))
        while self.truth_levels < wanted:
            # Room for an empty list of values: see `_no_values`.
            if not push(&self.truths[self.truth_levels].values, 0):
                return False
            self.truth_levels += 1
        return True

    cdef bint _find_truths(self, Truths* truths, int32_t row) noexcept nogil:
        # One walk below the row, through the trie of all routes; what it has not come to when the
        # work is used up is missing. False: no memory.
        cdef Doc* doc = &self.doc
        cdef int32_t i, at, last, dfa, depth, aim
        cdef int32_t words = (self.automaton.aim_count >> 6) + 1
        cdef int16_t base = doc.levels[row]
        cdef int64_t visited = 0
        cdef int64_t left = doc.budget
        cdef void* grown
        # Shares are estimated from a sample of the walks, once there have been some.
        cdef bint counting = self.nodes_walked < SAMPLE or self.walk % SAMPLED == 0
        truths.epoch = 0
        if truths.room < words:
            grown = realloc(truths.last_end, <size_t>words * 128 * sizeof(int32_t))
            if grown == NULL:
                return False
            truths.last_end = <int32_t*>grown
            grown = realloc(truths.values_at, <size_t>words * 128 * sizeof(int32_t))
            if grown == NULL:
                return False
            truths.values_at = <int32_t*>grown
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
        truths.ends.count = 0
        truths.values.count = 0
        if self.route_dfa < 0:
            self.route_dfa = self._root(self.automaton.route_root)
            if self.route_dfa < 0:
                return False
        self.walk += 1
        self.stack_route[0] = self.route_dfa
        last = row + size_of(doc, row)
        at = row + 1
        while at < last:
            visited += 1
            if doc.kinds[at] == ELEMENT:
                depth = doc.levels[at] - base
                dfa = self._known(self.stack_route[depth - 1], doc.tags[at])
                if dfa < 0 or not self._fresh(&self.dfas[dfa]):
                    dfa = self._step(self.stack_route[depth - 1], doc.tags[at])
                    if dfa < 0 or not self._remember(self.stack_route[depth - 1],
                                                     doc.tags[at], dfa):
                        return False
                    if doc.budget < 0:
                        break
                self.stack_route[depth] = dfa
                if self.dfas[dfa].count == 0:
                    at += size_of(doc, at)  # no route goes on below
                    continue
                # What was there once is there: only further nodes of valued aims are new.
                i = self.dfas[dfa].plain_count if self.dfas[dfa].walk == self.walk else 0
                self.dfas[dfa].walk = self.walk
                visited += self.dfas[dfa].accept_count - i
                if visited > left:
                    break
                while i < self.dfas[dfa].accept_count:
                    aim = self.dfas[dfa].accepts[i]
                    if not (truths.bits[aim >> 6] >> (aim & 63)) & 1:
                        truths.bits[aim >> 6] |= 1ULL << (aim & 63)
                        if i >= self.dfas[dfa].plain_count:
                            truths.last_end[aim] = -1
                            truths.values_at[aim] = -1
                        if counting:
                            self.aim_found[aim] += 1
                        if not push(&truths.found, aim):
                            return False
                    if i >= self.dfas[dfa].plain_count:
                        if not push(&truths.ends, at) or not push(&truths.ends,
                                                                  truths.last_end[aim]):
                            return False
                        truths.last_end[aim] = truths.ends.count - 2
                    i += 1
            at += 1
        doc.budget -= visited
        truths.row = row
        truths.epoch = self.memo_epoch
        self.nodes_walked += counting
        return True

    cdef bint _leads(self, int32_t aim, int32_t row, Route* route) noexcept nogil:
        # Whether a route leads somewhere. Several elements ask the same of one node above them.
        cdef Doc* doc = &self.doc
        cdef uint64_t key = (<uint64_t>row << 32) | 0x80000000u | <uint32_t>aim
        cdef Memo* memo = recalled(doc, key)
        cdef bint truth
        if memo != NULL:
            doc.unsure = memo.unsure
            return memo.truth
        doc.unsure = False
        truth = reaches(doc, route, 0, row, NULL, NULL)
        if doc.budget >= 0:
            remember(doc, key, truth)
        return truth

    cdef bint _holds_at(self, Cond* cond, int32_t level) noexcept nogil:
        # Whether a condition holds at an open element. Which routes lead somewhere from there is
        # known for all of them at once, and often decides.
        cdef Doc* doc = &self.doc
        cdef int32_t row = self.stack_row[level]
        cdef Truths* truths
        cdef Memo* memo
        cdef uint64_t key
        cdef bint truth
        cdef int32_t i
        doc.budget -= FOR_CONDITION
        if doc.budget < 0:
            return False
        if doc.partial:
            return holds(doc, cond, row)
        if cond.gate >= 0:
            truths = self._truths_of(level)
            if truths == NULL or not (truths.bits[cond.gate >> 6] >> (cond.gate & 63)) & 1:
                return False
            return cond.decided or holds(doc, cond, row)
        if cond.test > NONE:
            return holds(doc, cond, row)
        key = (<uint64_t>row << 32) | <uint32_t>cond.id
        memo = recalled(doc, key)
        if memo != NULL:
            return memo.truth
        truth = cond.test != SOME
        for i in range(cond.count):
            if self._holds_at(cond.terms[i], level) == (cond.test != ALL):
                truth = cond.test == SOME
                break
        if doc.budget >= 0:
            remember(doc, key, truth)
        return truth

    cdef void _ask_row(self, Groups* groups, Group* group, int32_t row,
                       int32_t depth) noexcept nogil:
        self._ask_value(groups, group, self._value(row), depth)

    cdef void _ask_value(self, Groups* groups, Group* group, Value* value,
                         int32_t depth) noexcept nogil:
        cdef int32_t i, begin, end
        cdef Run* run
        if self.doc.budget < 0:
            return
        self.asked += 1
        self.doc.budget -= 1
        if group.asks & 1:
            self._fire_run(groups, &groups.runs[group.begin], depth)
        if group.asks & STRING_ASKS:
            self._find_literal(value)
            for i in range(group.begin, group.end):
                run = &groups.runs[i]
                if run.ask == SAME and value.literal >= 0:
                    begin = lower_bound(groups.items, run.begin, run.end, value.literal)
                    end = begin
                    while end < run.end and groups.items[end].key == value.literal:
                        end += 1
                    self._fire_range(groups, begin, end, depth)
                elif run.ask == OTHER:
                    self._fire_others(groups, run, value.literal, depth)
        if group.asks & NUMBER_ASK_BITS:
            self._count(value)
            self._ask_number(groups, group, value.number, depth)

    cdef void _ask_number(self, Groups* groups, Group* group, double number,
                          int32_t depth) noexcept nogil:
        cdef int32_t i, begin, end
        cdef Run* run
        for i in range(group.begin, group.end):
            run = &groups.runs[i]
            begin = run.begin
            end = run.end
            if run.ask == UNEQUAL:
                self._fire_others(groups, run, number, depth)
                continue
            if run.ask < EQUAL or run.ask > AT_LEAST or isnan(number):
                continue
            if run.ask == EQUAL:
                begin = lower_bound(groups.items, begin, end, number)
                end = upper_bound(groups.items, begin, end, number)
            elif run.ask == BELOW:
                begin = upper_bound(groups.items, begin, end, number)
            elif run.ask == AT_MOST:
                begin = lower_bound(groups.items, begin, end, number)
            elif run.ask == ABOVE:
                end = lower_bound(groups.items, begin, end, number)
            else:
                end = upper_bound(groups.items, begin, end, number)
            self._fire_range(groups, begin, end, depth)

    cdef void _ask_first(self, Groups* groups, Group* group, int32_t row,
                         int32_t depth) noexcept nogil:
        # contains() and starts-with() look at the first node only. Their literals are not empty,
        # so that nothing is found where there is no node.
        cdef const char* text = self.doc.text
        cdef int32_t length = 0
        cdef int32_t i, j, count
        cdef int32_t hits[FEW_LITERALS]
        cdef Run* run
        cdef Literal* literal
        if row < 0 or not string_value(&self.doc, row, &text, &length):
            return
        for i in range(group.begin, group.end):
            run = &groups.runs[i]
            if run.ask != HOLDING and run.ask != HEADED:
                continue
            if run.end - run.begin > FEW_LITERALS:
                self._scan(groups, run, text, length, depth)
                if not string_value(&self.doc, row, &text, &length):
                    return
                continue
            count = 0
            for j in range(run.begin, run.end):
                literal = &self.automaton.literals[<int32_t>groups.items[j].key]
                if run.ask == HOLDING:
                    if not contains(&self.doc, text, length, literal.text, literal.length):
                        continue
                elif length < literal.length or memcmp(text, literal.text, literal.length) != 0:
                    continue
                hits[count] = j
                count += 1
            # Only now: what firing evaluates may overwrite the text.
            for j in range(count):
                self._fire(groups, &groups.items[hits[j]], depth)
            if i + 1 < group.end and count and not string_value(&self.doc, row, &text, &length):
                return

    cdef void _scan(self, Groups* groups, Run* run, const char* text, int32_t length,
                    int32_t depth) noexcept nogil:
        # One pass over the text, however many literals are looked for.
        cdef int32_t i, j
        if run.scanner == NULL:
            run.scanner = make_scanner(groups, run, self.automaton.literals)
            if run.scanner == NULL:
                self.doc.failed = True
                return
            groups.scanners += scanner_bytes(run.scanner)
            if groups.layered:
                self.layered += scanner_bytes(run.scanner)
            else:
                self.held += scanner_bytes(run.scanner)
                for i in range(run.begin, run.end):
                    j = <int32_t>groups.items[i].key
                    self.doc.budget -= FOR_LITERAL * self.automaton.literals[j].length
        if run.ask == HOLDING:
            self.doc.budget -= length
            scan(run.scanner, text, length)
        else:
            self.doc.budget -= begin(run.scanner, text, length)
        for i in range(run.scanner.found_count):
            j = run.scanner.found[i]
            while True:
                self.fired += 1
                self.doc.budget -= 1
                self._fire(groups, &groups.items[j], depth)
                j += 1
                if j == run.end or groups.items[j].key != groups.items[j - 1].key:
                    break

    cdef void _fire_others(self, Groups* groups, Run* run, double key,
                           int32_t depth) noexcept nogil:
        # All of a run but those with the key.
        cdef int32_t i
        self.doc.budget -= run.end - run.begin
        for i in range(run.begin, run.end):
            if groups.items[i].key != key:
                self._fire(groups, &groups.items[i], depth)

    cdef void _fire_armed(self, Groups* groups, Bank* bank, int32_t depth) noexcept nogil:
        # Entries without conditions: those that need no slot, and those whose slot was armed above
        # this element. Slots that are armed meanwhile are of no use to it.
        cdef Group* group = &groups.groups[bank.begin]
        cdef int32_t waits = bank.last_word - bank.word
        cdef int32_t armed = self.undo_count
        cdef int32_t i
        self.asked += 1
        self.doc.budget -= 1
        self._fire_range(groups, group.first,
                         groups.waits[bank.word].begin if waits else group.last, depth)
        if armed == 0 or waits == 0:
            return
        self.hits.count = 0
        if <int64_t>armed * SEARCH >= waits:
            self.doc.budget -= waits >> 2
            for i in range(bank.word, bank.last_word):
                if self.armed[groups.waits[i].slot] < depth:
                    self._wake(groups, bank, i, group.last)
        else:
            self.doc.budget -= 4 * <int64_t>armed  # bisections
            for i in range(armed):
                self._find_wait(groups, bank, self.undos[i].slot, group.last)
        i = 0
        while i < self.hits.count:
            self._fire_range(groups, self.hits.items[i], self.hits.items[i + 1], depth)
            i += 2

    cdef void _find_wait(self, Groups* groups, Bank* bank, int32_t slot,
                         int32_t last) noexcept nogil:
        cdef int32_t begin = bank.word
        cdef int32_t end = bank.last_word
        cdef int32_t middle
        while begin < end:
            middle = (begin + end) >> 1
            if groups.waits[middle].slot < slot:
                begin = middle + 1
            else:
                end = middle
        if begin < bank.last_word and groups.waits[begin].slot == slot:
            self._wake(groups, bank, begin, last)

    cdef inline void _wake(self, Groups* groups, Bank* bank, int32_t wait,
                           int32_t last) noexcept nogil:
        # The items that wait for a slot, into `hits`.
        prefetch(&groups.items[groups.waits[wait].begin])
        self._put(&self.hits, groups.waits[wait].begin)
        self._put(&self.hits,
                  groups.waits[wait + 1].begin if wait + 1 < bank.last_word else last)

    cdef inline void _fire_run(self, Groups* groups, Run* run, int32_t depth) noexcept nogil:
        self._fire_range(groups, run.begin, run.end, depth)

    cdef void _fire_range(self, Groups* groups, int32_t begin, int32_t end,
                          int32_t depth) noexcept nogil:
        cdef int32_t i
        self.fired += end - begin
        self.doc.budget -= end - begin
        for i in range(begin, end):
            self._fire(groups, &groups.items[i], depth)

    cdef inline void _fire(self, Groups* groups, Item* item, int32_t depth) noexcept nogil:
        # What an entry was looked up by is there: see to the rest, then arm the next or answer.
        if item.arms:
            if self.armed[item.target] <= depth and self.keeping == NULL:
                return
        elif item.target < 0 or self.marks[item.target] == self.epoch:
            return  # answered, or not yet subscribed to
        if groups.layered and not self._lives(groups, <int32_t>(item - groups.items)):
            return
        if item.needs >= 0 and self.armed[item.needs] > depth - item.span:
            return
        if item.next_part >= 0 and not (
                self._gate_opens(item, depth) and self._rest_holds(groups, item, depth)):
            groups.wasted += 1
            if self.doc.unsure:
                self.doc.unsure = False
                self._doubt_entry(item.entry)
            return
        if item.next_part < 0 and self.keeping != NULL:
            self._put(&self.keeping.kept, <int32_t>(item - groups.items))
        self._found_to_hold(item, depth)

    cdef inline void _found_to_hold(self, Item* item, int32_t depth) noexcept nogil:
        if self.doc.budget < 0:
            return  # under not(), what was cut short looks true: undecided, by `_give_up`
        if item.arms:
            self._arm(item.target, <int16_t>depth)
        elif item.alone:
            self.marks[item.target] = self.epoch
            self._put(&self.out, item.target)
        else:
            self._answer(self.automaton.entries[item.entry].pattern)

    cdef inline void _fire_again(self, Groups* groups, Bank* bank, Item* item,
                                 int32_t depth) noexcept nogil:
        # The same node was asked before: of what holds there, see to the nodes below it.
        if item.arms:
            if self.armed[item.target] <= depth:
                return
        elif self.marks[item.target] == self.epoch:
            return
        self.fired += 1
        if self._gate_opens(item, depth) and self._parts_hold(item, depth, 0, bank.up):
            self._found_to_hold(item, depth)
        else:
            groups.wasted += 1

    cdef inline bint _gate_opens(self, Item* item, int32_t depth) noexcept nogil:
        # False only if the next part of the entry cannot hold. An item that is kept for later
        # must not be judged by a node that is another one then.
        cdef Truths* truths
        if item.gate < 0 or self.doc.partial or (
                self.keeping != NULL and item.gate_up < self.keeping.up):
            return True
        truths = self._truths_of(depth - item.gate_up)
        return truths != NULL and (truths.bits[item.gate >> 6] >> (item.gate & 63)) & 1

    cdef bint _rest_holds(self, Groups* groups, Item* item, int32_t depth) noexcept nogil:
        # Whether the other parts of an entry hold; the one that most likely does not goes first.
        cdef Part* part
        cdef int16_t up = 0
        self.doc.budget -= FOR_CONDITION
        if self.doc.partial:
            return self._rest_holds_partly(item, depth)
        if self.keeping != NULL:
            up = self.keeping.up
            if not self._parts_hold(item, depth, up, DEEPEST):
                return False
            self._put(&self.keeping.kept, <int32_t>(item - groups.items))
            return self._parts_hold(item, depth, 0, up)
        part = &self.automaton.entries[item.entry].parts[item.next_part]
        return (self._holds_at(part.cond, depth - part.up)
                and self._parts_hold(item, depth, 0, DEEPEST))

    cdef bint _parts_hold(self, Item* item, int32_t depth, int32_t least,
                          int32_t most) noexcept nogil:
        # The parts that look at nodes from `least` to less than `most` levels up.
        cdef Entry* entry = &self.automaton.entries[item.entry]
        cdef Part* part
        cdef int32_t i
        for i in range(entry.part_count):
            part = &entry.parts[i]
            if (i != item.proven and part.up >= least and part.up < most
                    and not self._holds_at(part.cond, depth - part.up)):
                return False
        return True

    cdef bint _rest_holds_partly(self, Item* item, int32_t depth) noexcept nogil:
        cdef Entry* entry = &self.automaton.entries[item.entry]
        cdef Part* part
        cdef int32_t i, row
        cdef bint unsure = False
        for i in range(entry.part_count):
            if i == item.proven:
                continue
            part = &entry.parts[i]
            row = self.stack_row[depth - part.up]
            if (part.up > 0 and self.doc.ends[row] == OPEN
                    and not looks_at_attributes(part.cond)):
                unsure = True
                continue
            self.doc.unsure = False
            if holds(&self.doc, part.cond, row) or self.doc.unsure:
                unsure = unsure or self.doc.unsure
                continue
            self.doc.unsure = False
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
                self.doc.failed = True
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
            self._put(&self.out, subscriber)
            self.doc.budget -= 1
            subscriber = self.automaton.sub_next[subscriber]
        if self.automaton.patterns[pattern].plan >= 0:
            self._put(&self.planned, pattern)

    # -- tuples --

    cdef bint _list_tuples(self, int32_t limit) noexcept nogil:
        # Per pattern whose tuples are asked for: [askers, width, count, whether there are more,
        # askers..., rows...]. All of it while the statements stand still. False: no memory.
        cdef int32_t i, at, pattern, subscriber, most
        cdef Route* route
        cdef bint whole
        cdef int32_t[512] rows
        cdef bint by_ends = self._find_ends()
        for i in range(self.planned.count):
            pattern = self.planned.items[i]
            route = &self.automaton.plans[self.automaton.patterns[pattern].plan]
            at = self.tuples.count
            if not (push(&self.tuples, 0) and push(&self.tuples, route.count)
                    and push(&self.tuples, 0) and push(&self.tuples, 0)):
                return False
            subscriber = self.automaton.patterns[pattern].subscribers
            while subscriber >= 0:
                if self.automaton.sub_wants[subscriber]:
                    if not push(&self.tuples, subscriber):
                        return False
                    self.tuples.items[at] += 1
                subscriber = self.automaton.sub_next[subscriber]
            if self.tuples.items[at] == 0:
                self.tuples.count = at
                continue
            self.doc.doubted = False
            # No more than can be given to all askers with the work that is left.
            most = <int32_t>min(limit, max(0, self.doc.budget) // (
                FOR_COPY * <int64_t>self.tuples.items[at]))
            if route.count > 512:
                whole = False
            elif by_ends and is_structural(route):
                whole = self._climb_all(pattern, route, rows, at + 2, most)
            else:
                whole = extend_tuple(&self.doc, route, 0, -1, rows, &self.tuples, at + 2, most)
            self.doc.budget -= (FOR_COPY * <int64_t>self.tuples.items[at]
                                * self.tuples.items[at + 2])
            self.tuples.items[at + 3] = not whole or self.doc.doubted
        return True

    cdef bint _climb_all(self, int32_t pattern, Route* route, int32_t* rows, int32_t counter,
                         int32_t limit) noexcept nogil:
        # The tuples of a pattern, from the rows at which it ends.
        cdef int32_t number = self.end_of[self.automaton.entries[
            self.automaton.patterns[pattern].entry].state]
        cdef int32_t begin = self.tuples.count
        cdef bint whole = True
        cdef int32_t i
        for i in range(self.end_begins.items[number], self.end_begins.items[number + 1]):
            if not climb(&self.doc, route, route.count - 1, self.end_rows.items[i], rows,
                         &self.tuples, counter, limit):
                whole = False
                break
        sort_tuples(self.tuples.items + begin, route.count, self.tuples.items[counter])
        return whole

    cdef bint _find_ends(self) noexcept nogil:
        # The rows at which each planned pattern ends, from the sets of states that the run has
        # met. False where that would take longer than walking down for each pattern, or where
        # sets were thrown away during the run.
        cdef int32_t i, j, pattern, state, row
        cdef int32_t states = 0
        cdef Dfa* dfa
        cdef void* grown
        if self.reached_states > <int64_t>self.planned.count * self.doc.rows:
            return False
        self.doc.budget -= self.reached_states + self.planned.count
        if self.doc.budget < 0:
            return False
        if self.end_room < self.seen_room:
            grown = realloc(self.end_of, <size_t>self.seen_room * sizeof(int32_t))
            if grown == NULL:
                return False
            self.end_of = <int32_t*>grown
            self.end_room = self.seen_room
        self._next_stamp()
        self.end_begins.count = 0
        self.end_pairs.count = 0
        self.end_rows.count = 0
        for i in range(self.planned.count):
            pattern = self.planned.items[i]
            state = self.automaton.entries[self.automaton.patterns[pattern].entry].state
            if self.seen[state] != self.seen_stamp:
                self.seen[state] = self.seen_stamp
                self.end_of[state] = states
                states += 1
                if not push(&self.end_begins, 0):
                    return False
        if not push(&self.end_begins, 0):
            return False
        for row in range(self.doc.rows):
            if self.doc.kinds[row] != ELEMENT:
                continue
            dfa = &self.dfas[self.row_dfas[row]]
            for i in range(dfa.matched):
                state = dfa.members[i]
                if self.seen[state] == self.seen_stamp:
                    if not (push(&self.end_pairs, self.end_of[state])
                            and push(&self.end_pairs, row) and push(&self.end_rows, 0)):
                        return False
                    self.end_begins.items[self.end_of[state] + 1] += 1
        for i in range(states):
            self.end_begins.items[i + 1] += self.end_begins.items[i]
        # Filling from the back leaves each beginning where it belongs.
        i = self.end_pairs.count - 2
        while i >= 0:
            j = self.end_pairs.items[i] + 1
            self.end_begins.items[j] -= 1
            self.end_rows.items[self.end_begins.items[j]] = self.end_pairs.items[i + 1]
            i -= 2
        for i in range(states):
            self.end_begins.items[i] = self.end_begins.items[i + 1]
        self.end_begins.items[states] = self.end_rows.count
        return True

    def begin(self, int64_t budget, int32_t most_tuples):
        """Make ready for one document, which comes by `consume` or by `run`."""
        self.consumed = False
        self.budget = budget
        self.floor = -(budget // RESERVE)
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
        doc.names = self.automaton.vocabulary._pages
        if raw.known and raw.known < self.automaton.names_needed:
            self.outcome = STALE_NAMES
        elif raw.offsets == NULL and (self.automaton.live_patterns > 0
                                      or self.automaton.rules.count > 0):
            self.outcome = NO_VALUES
        else:
            self.outcome = self._run()
            if (self.outcome == DONE and self.planned.count
                    and not self._list_tuples(self.most_tuples)):
                self.outcome = NO_MEMORY
        if self.outcome == DONE and self.stopped:
            self._name_all()
        elif self.outcome == DONE and self.undecided.count:
            self._name_undecided()
        if (self.outcome == DONE and self.automaton.rules.count and not doc.failed
                and not self._settle(raw)):
            self.outcome = NO_MEMORY
        self.work = self.budget - doc.budget
        self.charged += self.work
        if doc.failed:
            self.outcome = NO_MEMORY
        if self.outcome == DONE and self.found != NULL and not self._collect(self.found):
            self.outcome = NO_MEMORY
        self.version = self.automaton.version
        pthread_rwlock_unlock(&self.automaton.lock)

    cdef bint _settle(self, Raw* raw) noexcept nogil:
        # Decide the statements that have rules. False: no memory.
        if not self.settler.settle(
                self.automaton.rules, raw, &self.body, self.automaton.vocabulary, self.out.items,
                self.out.count, self.undecided.items, self.undecided.count, self.doc.partial,
                self.most_tuples, &self.doc.budget):
            return False
        self.out.count = self.undecided.count = 0
        return (push_all(&self.out, self.settler.ids.items, self.settler.ids.count)
                and push_all(&self.undecided, self.settler.open.items, self.settler.open.count)
                and push_all(&self.tuples, self.settler.tuples.items, self.settler.tuples.count))

    cdef bint _collect(self, Found* found) noexcept nogil:
        # Add what was found to the columns of a batch. False: no memory.
        cdef int32_t i, j, at, subscriber, askers, width, count
        cdef int64_t begin
        if not reserve(&found.ids, self.out.count):
            return False
        for i in range(self.out.count):
            subscriber = self.out.items[i]
            found.ids.items[found.ids.count] = subscriber
            found.ids.count += self.automaton.sub_wants[subscriber] == NAME
        at = 0
        while at < self.tuples.count:
            askers = self.tuples.items[at]
            width = self.tuples.items[at + 1]
            count = self.tuples.items[at + 2]
            begin = found.rows.count
            if not (reserve(&found.rows, <int64_t>width * count)
                    and reserve(&found.told, <int64_t>askers * count * TOLD)
                    and reserve(&found.crossed, <int64_t>askers * CROSSED)
                    and reserve(&found.truncated, askers)):
                return False
            for i in range(askers):
                subscriber = self.tuples.items[at + 4 + i]
                if self.tuples.items[at + 3]:
                    append(&found.truncated, subscriber)
                if self.automaton.sub_wants[subscriber] == CROSSING:
                    append(&found.crossed, subscriber)
                    append(&found.crossed, begin)
                    append(&found.crossed, count)
                    append(&found.crossed, width)
                    continue
                if self.automaton.sub_wants[subscriber] == SELECTED:
                    if not self._select(found, subscriber, begin, at + 4 + askers, count, width):
                        return False
                    continue
                for j in range(count):
                    append(&found.told, subscriber)
                    append(&found.told, begin + <int64_t>j * width)
                    append(&found.told, width)
            at += 4 + askers
            memcpy(found.rows.items + begin, self.tuples.items + at,
                   <size_t>width * count * sizeof(int32_t))
            found.rows.count += <int64_t>width * count
            at += width * count
        if not reserve(&found.undecided, self.undecided.count):
            return False
        for i in range(self.undecided.count):
            append(&found.undecided, self.undecided.items[i])
        return True

    cdef bint _select(self, Found* found, int32_t subscriber, int64_t begin, int32_t at,
                      int32_t count, int32_t width) noexcept nogil:
        # The last nodes of tuples, each once and in document order. False: no memory.
        cdef int32_t i, row
        cdef Ints* last = &self.gathered
        last.count = 0
        for i in range(count):
            if not (push(last, self.tuples.items[at + i * width + width - 1]) and push(last, i)):
                return False
        qsort(last.items, count, 2 * sizeof(int32_t), by_int)
        row = -1
        for i in range(count):
            if last.items[2 * i] != row:
                row = last.items[2 * i]
                append(&found.told, subscriber)
                append(&found.told, begin + <int64_t>last.items[2 * i + 1] * width + width - 1)
                append(&found.told, 1)
        return True

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
        # Tables of a part of a document, and those of records, have another tree.
        self.body.text = NULL
        if table._document is not None and not table.continued and table._whole is None:
            self.body.text = PyBytes_AS_STRING(table._document)
            self.body.size = len(table._document)
            self.body.huge = table._huge
            self.body.resolve = table._resolve
            self.body.wrapped = table._wrapped
        with nogil:
            self.consume(&raw)
        self.body.text = NULL

    def take(self):
        """What came out: (outcome, subscribers, tuples, undecided)."""
        return (self.outcome, to_array(&self.out),
                self._tuple_list() if self.tuples.count else None,
                to_array(&self.undecided) if self.undecided.count else None)

    cdef void _name_all(self) noexcept nogil:
        # All statements but those that have matched and those that never can.
        cdef int32_t subscriber, home
        self.undecided.count = 0
        for subscriber in range(self.automaton.sub_count):
            home = self.automaton.sub_home[subscriber]
            if (home > 0 or home <= -2) and self.marks[subscriber] != self.epoch:
                self._put(&self.undecided, subscriber)

    cdef void _name_undecided(self) noexcept nogil:
        # Entries to the subscribers that hang on them, those that matched otherwise left out.
        cdef int32_t i, entry, needs, pattern, subscriber
        cdef Ints* found = &self.gathered
        cdef uint8_t* open_ = <uint8_t*>calloc(self.automaton.entry_count + 1, 1)
        if open_ == NULL:
            self.doc.failed = True
            return
        for i in range(self.undecided.count):
            open_[self.undecided.items[i]] = 1
        found.count = 0
        for pattern in range(self.automaton.pattern_count):
            entry = self.automaton.patterns[pattern].entry
            if (self.automaton.patterns[pattern].subscribers < 0
                    or self.marks[self.automaton.patterns[pattern].subscribers] == self.epoch):
                continue
            while entry >= 0 and not open_[entry]:
                needs = self.automaton.entries[entry].needs
                entry = self.automaton.slot_entries[needs] if needs >= 0 else -1
            if entry >= 0:
                subscriber = self.automaton.patterns[pattern].subscribers
                while subscriber >= 0:
                    self._put(found, subscriber)
                    subscriber = self.automaton.sub_next[subscriber]
        free(open_)
        self.undecided.count = 0
        for i in range(found.count):
            self._put(&self.undecided, found.items[i])

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

    def order(self, int32_t subscriber):
        """The conditions of a statement in the order in which they are looked at.

        Of each: its text, the share of nodes at which it is expected to hold, whether the
        statement, or the part of it before a `//`, is found by it. REQUIRES: no statement changes
        meanwhile.
        """
        cdef int32_t home = self.automaton.sub_home[subscriber]
        cdef int32_t entry = self.automaton.patterns[-2 - home].entry if home <= -2 else -1
        cdef list found = []
        cdef Cond* cond
        while entry >= 0:
            parts = []
            for i in range(self.automaton.entries[entry].part_count):
                cond = self.automaton.entries[entry].parts[i].cond
                text = self.automaton.cond_keys[cond.id].partition("\0")[0]
                parts.append((self._share_of(cond), i, text))
            # The first is what it is found by, the second is tried first: see `_sort_in`.
            ranked = sorted(parts)
            ranked[2:] = sorted(ranked[2:], key=second_of)
            found[:0] = [(text, share, i == 0) for i, (share, _, text) in enumerate(ranked)]
            needs = self.automaton.entries[entry].needs
            entry = self.automaton.slot_entries[needs] if needs >= 0 else -1
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
            "work": self.charged,
            "residuals_asked": self.settler.asked,
            "residuals_held": self.settler.held,
            "residual_trees": self.settler.trees,
            "dfa_states": self.dfa_count,
            "dfa_bytes": self.held + self.layered,
        }


def second_of(item):
    """What `order` sorts the rest by: its place among the parts of the entry."""
    return item[1]


cdef bint push_all(Ints* list_, const int32_t* items, int64_t count) noexcept nogil:
    cdef int64_t i
    for i in range(count):
        if not push(list_, items[i]):
            return False
    return True


cdef object to_array(Ints* items):
    raw = PyBytes_FromStringAndSize(<char*>items.items, items.count * sizeof(int32_t))
    return np.frombuffer(raw, np.int32)


cdef inline int64_t dfa_bytes(Dfa* dfa) noexcept nogil:
    return sizeof(Dfa) + 4 * <int64_t>(dfa.count + dfa.accept_count) + groups_bytes(dfa.own) + 48 + (
        dfa.own.scanners if dfa.own != NULL else 0)


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
        if not push(found, row):
            doc.failed = True
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
        at += 1 if deep else size_of(doc, at)
        doc.budget -= 1
