"""Linear paths as codes: covering of two of them, and a trie that finds covers among many.

A step is one number, `symbol << 1 | axis`, where axis 1 is `//`. A set of places in a path of at
most `LONGEST` steps is a word of 64 bits: bit i says that i steps have been matched. Nothing here is
guarded: the owner of an index lets one thread at a time use it.
"""

from libc.stdint cimport int32_t, uint64_t, uint32_t, int64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset

LONGEST = 63


cdef enum:
    _LONGEST = 63
    _SETS = 1024
    _ANY_ELEMENT = 0
    _ANY_ATTRIBUTE = 1


cdef class Symbols:
    """Numbers for the names in paths: 0 is `*`, 1 is `@*`, 2 is text().

    A wildcard stands also for "a name that no path uses": as a letter of a word it is accepted by
    itself and by wider wildcards alone.
    """

    def __cinit__(self):
        self.count = 0
        self.room = 64
        self.kind = <signed char *>malloc(self.room)
        self.wild = <int32_t *>malloc(self.room * sizeof(int32_t))
        if self.kind == NULL or self.wild == NULL:
            raise MemoryError
        self._ids = {}
        self._names = []
        self._put(0, "*", -1)
        self._put(1, "*", -1)
        self._put(2, "", -1)

    def __dealloc__(self):
        free(self.kind)
        free(self.wild)

    def __len__(self):
        return self.count

    def name(self, int32_t symbol):
        """The name of a symbol, as it was given."""
        return self._names[symbol]

    cdef int32_t _put(self, int kind, str name, int32_t wild) except -1:
        cdef void *grown
        if self.count == self.room:
            grown = realloc(self.kind, 2 * self.room)
            if grown == NULL:
                raise MemoryError
            self.kind = <signed char *>grown
            grown = realloc(self.wild, 2 * self.room * sizeof(int32_t))
            if grown == NULL:
                raise MemoryError
            self.wild = <int32_t *>grown
            self.room *= 2
        self.kind[self.count] = kind
        self.wild[self.count] = wild
        self._ids[(kind, name)] = self.count
        self._names.append(name)
        self.count += 1
        return self.count - 1

    cpdef int32_t add(self, int kind, str name) except -1:
        """The number of a Clark name of a kind (0 element, 1 attribute, 2 text)."""
        found = self._ids.get((kind, name))
        if found is not None:
            return found
        cdef int32_t wild = -1
        if name.startswith("{") and not name.endswith("}*"):
            wild = self.add(kind, name[: name.index("}") + 1] + "*")
        return self._put(kind, name, wild)

    cdef bint accepts(self, int32_t test, int32_t letter) noexcept nogil:
        if test == letter:
            return True
        if test == _ANY_ELEMENT or test == _ANY_ATTRIBUTE:
            return self.kind[letter] == test
        return self.wild[letter] == test

    cdef uint64_t mask(self, const int32_t *codes, int length, int32_t letter) noexcept nogil:
        """Bit i of a path that accepts the letter in its step i."""
        cdef uint64_t found = 0
        cdef int i
        for i in range(length):
            if self.accepts(codes[i] >> 1, letter):
                found |= <uint64_t>1 << i
        return found


cdef int _load(object codes, int32_t *into) except -1:
    cdef int length = len(codes)
    cdef int i
    if length > _LONGEST or length == 0:
        raise ValueError(f"a path has 1 to {_LONGEST} steps here, not {length}")
    for i in range(length):
        into[i] = codes[i]
    return length


cdef uint64_t _loops(const int32_t *codes, int length) noexcept nogil:
    """The places that a path may stay in while it skips elements: those before a `//`."""
    cdef uint64_t found = 0
    cdef int i
    for i in range(length):
        if codes[i] & 1:
            found |= <uint64_t>1 << i
    return found


cdef int _least(uint64_t *sets, int count, uint64_t added) noexcept nogil:
    """Add a set to those that are least by inclusion: a larger one covers whatever it covers."""
    cdef int i, kept = 0
    for i in range(count):
        if sets[i] & ~added == 0:
            return count
    for i in range(count):
        if added & ~sets[i]:
            sets[kept] = sets[i]
            kept += 1
    sets[kept] = added
    return kept + 1


cdef int _covers(
    Symbols symbols, const int32_t *p, int m, const int32_t *q, int n, int most
) noexcept nogil:
    """1 if every word of q has a prefix in p, 0 if one has none, -1 if that takes too many sets.

    Gaps and wildcards of q are filled with a name that p does not use, for it is accepted by the
    fewest steps of p; gaps of all lengths are tried until the places in p change no more.
    """
    cdef uint64_t old[_SETS + 1]
    cdef uint64_t new[_SETS + 1]
    cdef uint64_t stay = _loops(p, m)
    cdef uint64_t any = symbols.mask(p, m, _ANY_ELEMENT)
    cdef uint64_t done = <uint64_t>1 << m
    cdef uint64_t accepting, places, moved
    cdef int count = 1, fresh, i, j
    cdef bint leaf
    old[0] = 1
    for j in range(n):
        leaf = symbols.kind[q[j] >> 1] != 0
        accepting = symbols.mask(p, m, q[j] >> 1)
        fresh = 0
        for i in range(count):
            places = old[i]
            if leaf and j == 0:
                # The root is an element: what is no element stands below one.
                if not q[j] & 1:
                    continue
                places = ((places & any) << 1) | (places & stay)
            while places & done == 0:
                moved = (places & accepting) << 1
                if not leaf:
                    moved |= places & stay
                if moved & done == 0:
                    fresh = _least(new, fresh, moved)
                    if fresh > most:
                        return -1
                if not q[j] & 1:
                    break
                moved = ((places & any) << 1) | (places & stay)
                if moved == places:
                    break
                places = moved
        if fresh == 0:
            return 1
        for i in range(fresh):
            old[i] = new[i]
        count = fresh
    return 0


def covers(Symbols symbols, covering, covered, int most=_SETS):
    """Whether one path covers another; None if more than `most` sets of places were needed."""
    cdef int32_t p[_LONGEST]
    cdef int32_t q[_LONGEST]
    cdef int m = _load(covering, p)
    cdef int n = _load(covered, q)
    cdef int found = _covers(symbols, p, m, q, n, min(most, _SETS))
    return None if found < 0 else bool(found)


cdef struct Names:
    # A set of names, by their number modulo 128: it may hold too many, never too few.
    uint64_t low, high

cdef struct Node:
    int32_t parent, code, child, following, before
    int32_t refs, tops, downs, entry
    Names below, tops_below

cdef struct Entry:
    int32_t node, following, before, owner
    signed char spine, plain, top, live


cdef inline void _note(Names *names, int32_t symbol) noexcept nogil:
    """Put a name into a set; a wildcard is no name."""
    if symbol != _ANY_ELEMENT and symbol != _ANY_ATTRIBUTE:
        if symbol & 64:
            names.high |= <uint64_t>1 << (symbol & 63)
        else:
            names.low |= <uint64_t>1 << (symbol & 63)


cdef inline void _join(Names *names, Names more) noexcept nogil:
    names.low |= more.low
    names.high |= more.high


cdef class PathIndex:
    """A trie of paths, run as an automaton over words and searched as words by an automaton.

    Each entry belongs to an owner, a statement. The `spine` of a statement is the path it selects;
    its other branches are words its documents have. `plain`: the spine is all there is. `top`
    marks entries of statements that no other covers; subtrees without one can be passed over.
    """

    cdef Symbols symbols
    cdef Node *_nodes
    cdef int32_t _count, _room, _free_node, _live
    cdef Entry *_entries
    cdef int32_t _entry_count, _entry_room, _free_entry
    cdef uint64_t *_keys
    cdef int32_t *_values
    cdef uint32_t _slots, _used
    cdef int32_t *_seen
    cdef int32_t *_kept
    cdef int32_t _tick
    cdef int _stars
    cdef readonly int64_t capped

    def __cinit__(self, Symbols symbols):
        self.symbols = symbols
        self._room = self._entry_room = 64
        self._slots = 256
        self._nodes = <Node *>calloc(self._room, sizeof(Node))
        self._seen = <int32_t *>calloc(self._room, sizeof(int32_t))
        self._kept = <int32_t *>calloc(self._room, sizeof(int32_t))
        self._entries = <Entry *>calloc(self._entry_room, sizeof(Entry))
        self._keys = <uint64_t *>calloc(self._slots, sizeof(uint64_t))
        self._values = <int32_t *>calloc(self._slots, sizeof(int32_t))
        if (self._nodes == NULL or self._seen == NULL or self._kept == NULL
                or self._entries == NULL or self._keys == NULL or self._values == NULL):
            raise MemoryError
        self._count = 1
        self._live = 1
        self._free_node = self._free_entry = -1
        self._nodes[0].child = self._nodes[0].entry = self._nodes[0].following = -1

    def __dealloc__(self):
        free(self._nodes)
        free(self._seen)
        free(self._kept)
        free(self._entries)
        free(self._keys)
        free(self._values)

    @property
    def nodes(self):
        """Nodes of the trie that are in use."""
        return self._live

    # -- the table of edges: (node, code) to child; 0 is an empty slot, for the root is no child --

    cdef inline uint32_t _slot(self, uint64_t key) noexcept nogil:
        return <uint32_t>((key * <uint64_t>0x9E3779B97F4A7C15) >> 32) & (self._slots - 1)

    cdef inline int32_t _find(self, int32_t node, int32_t code) noexcept nogil:
        cdef uint64_t key = (<uint64_t>node << 32) | <uint32_t>code
        cdef uint32_t at = self._slot(key)
        while self._values[at]:
            if self._keys[at] == key:
                return self._values[at]
            at = (at + 1) & (self._slots - 1)
        return 0

    cdef void _link(self, uint64_t key, int32_t child) noexcept nogil:
        cdef uint32_t at = self._slot(key)
        while self._values[at]:
            at = (at + 1) & (self._slots - 1)
        self._keys[at] = key
        self._values[at] = child

    cdef int _grow_table(self) except -1:
        cdef uint64_t *keys = self._keys
        cdef int32_t *values = self._values
        cdef uint32_t slots = self._slots, i
        cdef uint64_t *more = <uint64_t *>calloc(2 * slots, sizeof(uint64_t))
        cdef int32_t *wider = <int32_t *>calloc(2 * slots, sizeof(int32_t))
        if more == NULL or wider == NULL:
            free(more)
            free(wider)
            raise MemoryError
        self._keys, self._values, self._slots = more, wider, 2 * slots
        for i in range(slots):
            if values[i]:
                self._link(keys[i], values[i])
        free(keys)
        free(values)
        return 0

    cdef void _unlink(self, int32_t node, int32_t code) noexcept nogil:
        """Empty a slot, and move up what was put behind it because it was taken."""
        cdef uint64_t key = (<uint64_t>node << 32) | <uint32_t>code
        cdef uint32_t at = self._slot(key), look, home, last = self._slots - 1
        while self._keys[at] != key or self._values[at] == 0:
            at = (at + 1) & last
        look = at
        while True:
            look = (look + 1) & last
            if self._values[look] == 0:
                break
            home = self._slot(self._keys[look])
            if ((look - home) & last) >= ((look - at) & last):
                self._keys[at] = self._keys[look]
                self._values[at] = self._values[look]
                at = look
        self._values[at] = 0
        self._used -= 1

    # -- nodes --

    cdef int _grow_nodes(self) except -1:
        cdef int32_t room = 2 * self._room
        cdef void *nodes = realloc(self._nodes, room * sizeof(Node))
        if nodes == NULL:
            raise MemoryError
        self._nodes = <Node *>nodes
        cdef void *seen = realloc(self._seen, room * sizeof(int32_t))
        if seen == NULL:
            raise MemoryError
        self._seen = <int32_t *>seen
        cdef void *kept = realloc(self._kept, room * sizeof(int32_t))
        if kept == NULL:
            raise MemoryError
        self._kept = <int32_t *>kept
        memset(self._seen + self._room, 0, self._room * sizeof(int32_t))
        memset(self._kept + self._room, 0, self._room * sizeof(int32_t))
        self._room = room
        return 0

    cdef int32_t _child(self, int32_t parent, int32_t code) except -1:
        cdef int32_t found = self._find(parent, code)
        if found:
            return found
        if 2 * self._used >= self._slots:
            self._grow_table()
        if self._free_node >= 0:
            found = self._free_node
            self._free_node = self._nodes[found].following
        else:
            if self._count == self._room:
                self._grow_nodes()
            found = self._count
            self._count += 1
        cdef Node *node = &self._nodes[found]
        cdef Node *above = &self._nodes[parent]
        node.parent, node.code = parent, code
        node.child = node.entry = -1
        node.refs = node.tops = node.downs = 0
        memset(&node.below, 0, sizeof(Names))
        memset(&node.tops_below, 0, sizeof(Names))
        node.before, node.following = -1, above.child
        if above.child >= 0:
            self._nodes[above.child].before = found
        above.child = found
        if code & 1:
            above.downs += 1
        self._link((<uint64_t>parent << 32) | <uint32_t>code, found)
        self._used += 1
        self._live += 1
        return found

    cdef void _drop(self, int32_t number) noexcept nogil:
        cdef Node *node = &self._nodes[number]
        self._unlink(node.parent, node.code)
        if node.before >= 0:
            self._nodes[node.before].following = node.following
        else:
            self._nodes[node.parent].child = node.following
        if node.following >= 0:
            self._nodes[node.following].before = node.before
        if node.code & 1:
            self._nodes[node.parent].downs -= 1
        self._seen[number] = self._kept[number] = 0
        node.following = self._free_node
        self._free_node = number
        self._live -= 1

    # -- entries --

    cdef int32_t _new_entry(self) except -1:
        cdef int32_t found = self._free_entry
        cdef void *grown
        if found >= 0:
            self._free_entry = self._entries[found].following
            return found
        if self._entry_count == self._entry_room:
            grown = realloc(self._entries, 2 * self._entry_room * sizeof(Entry))
            if grown == NULL:
                raise MemoryError
            self._entries = <Entry *>grown
            self._entry_room *= 2
        self._entry_count += 1
        return self._entry_count - 1

    def add(self, int32_t owner, codes, bint spine, bint plain):
        """Add a path of an owner and get its entry."""
        cdef int32_t steps[_LONGEST]
        cdef int length = _load(codes, steps)
        cdef int32_t number = self._new_entry()
        cdef int32_t node = 0
        cdef int i, stars = 0
        for i in range(length):
            node = self._child(node, steps[i])
            self._nodes[node].refs += 1
            stars += steps[i] >> 1 == _ANY_ELEMENT
        self._stars = max(self._stars, stars)
        cdef Entry *entry = &self._entries[number]
        entry.node, entry.owner = node, owner
        entry.spine, entry.plain, entry.top, entry.live = spine, plain, 0, 1
        entry.before, entry.following = -1, self._nodes[node].entry
        if entry.following >= 0:
            self._entries[entry.following].before = number
        self._nodes[node].entry = number
        cdef Names names
        memset(&names, 0, sizeof(Names))
        while node:
            _join(&self._nodes[node].below, names)
            _note(&names, self._nodes[node].code >> 1)
            node = self._nodes[node].parent
        return number

    def remove(self, int32_t number):
        """Take an entry out, with the nodes that only it needed."""
        self._check(number)
        self.set_top(number, False)
        cdef Entry *entry = &self._entries[number]
        cdef int32_t node = entry.node, above
        if entry.before >= 0:
            self._entries[entry.before].following = entry.following
        else:
            self._nodes[node].entry = entry.following
        if entry.following >= 0:
            self._entries[entry.following].before = entry.before
        entry.live = 0
        entry.following = self._free_entry
        self._free_entry = number
        while node:
            above = self._nodes[node].parent
            self._nodes[node].refs -= 1
            if self._nodes[node].refs == 0:
                self._drop(node)
            node = above

    def set_top(self, int32_t number, bint top):
        """Say whether the owner of an entry is one that no other statement covers."""
        self._check(number)
        cdef Entry *entry = &self._entries[number]
        cdef int32_t node = entry.node
        cdef int change = <int>top - entry.top
        cdef Names names
        memset(&names, 0, sizeof(Names))
        entry.top = top
        while node and change:
            self._nodes[node].tops += change
            if self._nodes[node].tops == 0:
                memset(&self._nodes[node].tops_below, 0, sizeof(Names))
            elif top:
                _join(&self._nodes[node].tops_below, names)
                _note(&names, self._nodes[node].code >> 1)
            node = self._nodes[node].parent

    cdef int _check(self, int32_t number) except -1:
        if not 0 <= number < self._entry_count or not self._entries[number].live:
            raise IndexError(f"no entry {number}")
        return 0

    cdef int _codes(self, int32_t node, int32_t *into) noexcept nogil:
        """The codes of the path that ends in a node."""
        cdef int32_t back[_LONGEST]
        cdef int length = 0, i
        while node:
            back[length] = self._nodes[node].code
            length += 1
            node = self._nodes[node].parent
        for i in range(length):
            into[i] = back[length - 1 - i]
        return length

    # -- which entries a word is accepted by --

    cdef int _begin(self) except -1:
        if self._tick > 0x7ffffff0:
            memset(self._seen, 0, self._room * sizeof(int32_t))
            memset(self._kept, 0, self._room * sizeof(int32_t))
            self._tick = 0
        return 0

    def covering(
        self, codes, int32_t skip=-1, bint tops=False, bint first=False, int64_t work=1_000_000
    ):
        """Owners of paths that cover a path, and owners whose spine does but that ask for more.

        Finds spines that accept the path's word with gaps too long to be bridged by `*`, and
        decides of these exactly. `skip` is an owner to leave out; `first` stops at the first cover.
        """
        cdef _Walk walk = _Walk(self, skip, tops, first, work)
        walk.n = _load(codes, walk.q)
        walk.exact = True
        walk.run(self._stars + 1)
        return walk.sure, walk.unsure

    def matching(self, word, int64_t work=10_000_000):
        """Owners whose spine accepts a prefix of a word of symbols, with its last letter a leaf."""
        cdef _Walk walk = _Walk(self, -1, False, False, work)
        walk.letters = [code << 1 for code in word]
        walk.run_word()
        return walk.unsure

    # -- which entries, as words, a path accepts --

    def covered(
        self, codes, bint plain, int32_t skip=-1, bint tops=False, int64_t work=1_000_000
    ):
        """Owners of words that a path covers, and, if it is not `plain`, those it may cover."""
        cdef int32_t p[_LONGEST]
        cdef int32_t q[_LONGEST]
        cdef int m = _load(codes, p)
        cdef uint64_t stay = _loops(p, m)
        cdef uint64_t any = self.symbols.mask(p, m, _ANY_ELEMENT)
        cdef uint64_t done = <uint64_t>1 << m
        cdef uint64_t places, moved
        cdef int32_t node = 0, down, entry
        cdef int depth = 0, n
        cdef uint64_t sets[_LONGEST + 2]
        cdef list sure = [], unsure = []
        cdef Names needs[_LONGEST + 1]
        cdef Names names
        memset(&needs[m], 0, sizeof(Names))
        for n in range(m - 1, -1, -1):
            needs[n] = needs[n + 1]
            _note(&needs[n], p[n] >> 1)
        sets[0] = 1
        node = self._nodes[0].child
        depth = 1
        # A walk down the trie in which sets[depth] are the places behind the node at this depth.
        while node > 0:
            work -= 1
            if work < 0:
                self.capped += 1
                break
            places = sets[depth - 1]
            if (tops and self._nodes[node].tops == 0):
                places = 0
            elif places & done == 0:
                places = self._after(p, m, places, stay, any, done, self._nodes[node].code, depth)
                if places & done == 0:
                    names = self._nodes[node].tops_below if tops else self._nodes[node].below
                    for n in range(m):
                        if needs[n].low & ~names.low or needs[n].high & ~names.high:
                            places &= ~(<uint64_t>1 << n)
                        else:
                            break
            sets[depth] = places
            if places & done:
                entry = self._nodes[node].entry
                while entry >= 0:
                    if self._entries[entry].owner != skip and (
                            not tops or self._entries[entry].top):
                        n = self._codes(node, q)
                        if plain:
                            if _covers(self.symbols, p, m, q, n, _SETS) == 1:
                                sure.append(self._entries[entry].owner)
                        else:
                            unsure.append(self._entries[entry].owner)
                    entry = self._entries[entry].following
            down = self._nodes[node].child if places else -1
            if down >= 0:
                node = down
                depth += 1
                continue
            while node > 0 and self._nodes[node].following < 0:
                node = self._nodes[node].parent
                depth -= 1
            if node > 0:
                node = self._nodes[node].following
        return sure, unsure

    cdef uint64_t _after(
        self, const int32_t *p, int m, uint64_t places, uint64_t stay, uint64_t any,
        uint64_t done, int32_t code, int depth
    ) noexcept nogil:
        """The places in a path behind a step of a word, over the longest gap if it has one."""
        cdef uint64_t moved
        cdef int32_t letter = code >> 1
        cdef bint leaf = self.symbols.kind[letter] != 0
        if code & 1:
            while True:
                moved = ((places & any) << 1) | (places & stay)
                if moved & done:
                    return done
                if moved == places:
                    break
                places = moved
        elif leaf and depth == 1:
            return done
        moved = (places & self.symbols.mask(p, m, letter)) << 1
        if not leaf:
            moved |= places & stay
        return done if moved & done else moved


cdef class _Walk:
    """One run of a trie over a word."""

    cdef PathIndex index
    cdef int32_t skip
    cdef bint tops, first, exact
    cdef int64_t work
    cdef int32_t q[_LONGEST]
    cdef int n
    cdef list letters, sure, unsure
    cdef int32_t *here
    cdef int32_t *there
    cdef int32_t *waiting
    cdef int32_t here_count, there_count, waiting_count
    cdef int32_t kept_tick

    def __cinit__(self, PathIndex index, int32_t skip, bint tops, bint first, int64_t work):
        self.index = index
        self.skip, self.tops, self.first, self.work = skip, tops, first, work
        self.sure, self.unsure = [], []
        self.here = <int32_t *>malloc(3 * <size_t>index._count * sizeof(int32_t))
        if self.here == NULL:
            raise MemoryError
        self.there = self.here + index._count
        self.waiting = self.there + index._count

    def __dealloc__(self):
        if self.here < self.there:
            free(self.here)
        else:
            free(self.there)

    cdef int _start(self) except -1:
        cdef PathIndex index = self.index
        index._begin()
        index._tick += 1
        self.kept_tick = index._tick
        self.here[0] = 0
        self.here_count = 1
        self.waiting_count = 0
        if index._nodes[0].downs:
            self.waiting[0] = 0
            self.waiting_count = 1
        return 0

    cdef int run(self, int gap) except -1:
        """Over the word of the path q, each of whose gaps is filled with `gap` unknown names."""
        cdef int j, k
        self._start()
        for j in range(self.n):
            if self.q[j] & 1:
                for k in range(gap):
                    if self._step(_ANY_ELEMENT, False):
                        return 0
            elif j == 0 and self.index.symbols.kind[self.q[0] >> 1]:
                return 0
            if self._step(self.q[j] >> 1, self.index.symbols.kind[self.q[j] >> 1] != 0):
                return 0
        return 0

    cdef int run_word(self) except -1:
        """Over the letters as they are."""
        cdef int32_t letter
        self._start()
        for code in self.letters:
            letter = code >> 1
            if self._step(letter, self.index.symbols.kind[letter] != 0):
                return 0
        return 0

    cdef int _step(self, int32_t letter, bint leaf) except -1:
        """Take a letter; 1 when nothing more is to be found."""
        cdef PathIndex index = self.index
        cdef int32_t i, waited = self.waiting_count
        cdef int32_t wild = index.symbols.wild[letter]
        cdef int32_t any = index.symbols.kind[letter]
        cdef int32_t *swap
        index._tick += 1
        self.there_count = 0
        self.work -= self.here_count + waited
        if self.work < 0:
            index.capped += 1
            return 1
        for i in range(self.here_count):
            if self._move(self.here[i], 0, letter, any, wild):
                return 1
        for i in range(waited):
            if self._move(self.waiting[i], 1, letter, any, wild):
                return 1
        swap = self.here
        self.here = self.there
        self.there = swap
        self.here_count = self.there_count
        return leaf or self.here_count + self.waiting_count == 0

    cdef int _move(
        self, int32_t node, int32_t axis, int32_t letter, int32_t any, int32_t wild
    ) except -1:
        cdef int32_t found
        found = self.index._find(node, letter << 1 | axis)
        if found and self._enter(found):
            return 1
        if any < 2 and any != letter:
            found = self.index._find(node, any << 1 | axis)
            if found and self._enter(found):
                return 1
        if wild >= 0:
            found = self.index._find(node, wild << 1 | axis)
            if found and self._enter(found):
                return 1
        return 0

    cdef int _enter(self, int32_t node) except -1:
        cdef PathIndex index = self.index
        if index._seen[node] == index._tick:
            return 0
        index._seen[node] = index._tick
        if self.tops and index._nodes[node].tops == 0:
            return 0
        if index._nodes[node].child >= 0:
            self.there[self.there_count] = node
            self.there_count += 1
        if index._kept[node] == self.kept_tick:
            return 0
        index._kept[node] = self.kept_tick
        if index._nodes[node].downs:
            self.waiting[self.waiting_count] = node
            self.waiting_count += 1
        if index._nodes[node].entry >= 0:
            return self._accept(node)
        return 0

    cdef int _accept(self, int32_t node) except -1:
        cdef PathIndex index = self.index
        cdef int32_t number = index._nodes[node].entry
        cdef int32_t p[_LONGEST]
        cdef int m, known = -1
        cdef Entry *entry
        while number >= 0:
            entry = &index._entries[number]
            number = entry.following
            if not entry.spine or entry.owner == self.skip or (self.tops and not entry.top):
                continue
            if not self.exact:
                self.unsure.append(entry.owner)
                continue
            if known < 0:
                m = index._codes(node, p)
                known = _covers(index.symbols, p, m, self.q, self.n, _SETS) == 1
            if entry.plain and known:
                self.sure.append(entry.owner)
                if self.first:
                    return 1
            elif not entry.plain:
                self.unsure.append(entry.owner)
        return 0
