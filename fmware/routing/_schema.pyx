"""Statements on the documents of a schema, as products of automata.

A `Graph` is a schema: its declarations of elements, and for each which others may stand in it. A
`Product` is that graph with, for each declaration, the places that a path to be avoided has
reached: its nodes and edges are those of valid documents in which the path matches nothing. What a
second path accepts there is a document that the first one does not cover.
"""

from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset

from fmware.routing._paths cimport Symbols

cdef enum:
    _LONGEST = 63
    _ELEMENT = 0
    _SEQUENCE = 1
    _CHOICE = 2
    _DEEPEST = 500


cdef struct Part:
    int32_t kind, optional, place, inner, following


cdef class Graph:
    """A schema. `models` are nested tuples (kind, optional, declaration or parts)."""

    cdef Symbols symbols
    cdef int32_t count
    cdef int32_t *labels
    cdef int32_t *model
    cdef int32_t *first
    cdef int32_t *children
    cdef int32_t *needs_first
    cdef int32_t *needs
    cdef int32_t *has_first
    cdef int32_t *has
    cdef signed char *text
    cdef Part *parts
    cdef int32_t part_count, part_room
    cdef list roots
    cdef int32_t widest

    def __cinit__(self, Symbols symbols, labels, roots, models, required, attributes, text):
        cdef int32_t i
        self.symbols = symbols
        self.count = len(labels)
        self.roots = list(roots)
        self.labels = _column(labels)
        self.text = <signed char *>calloc(self.count + 1, 1)
        self.model = <int32_t *>calloc(self.count + 1, sizeof(int32_t))
        self.part_room = 64
        self.parts = <Part *>malloc(self.part_room * sizeof(Part))
        if self.text == NULL or self.model == NULL or self.parts == NULL:
            raise MemoryError
        lists = []
        for i in range(self.count):
            self.text[i] = bool(text[i])
            places = {}
            self.model[i] = -1 if models[i] is None else self._part(models[i], places, 0)
            lists.append(list(places))
            self.widest = max(self.widest, <int32_t>len(places))
        _rows(lists, &self.first, &self.children)
        _rows(required, &self.needs_first, &self.needs)
        _rows(attributes, &self.has_first, &self.has)

    def __dealloc__(self):
        free(self.labels)
        free(self.text)
        free(self.model)
        free(self.parts)
        free(self.first)
        free(self.children)
        free(self.needs_first)
        free(self.needs)
        free(self.has_first)
        free(self.has)

    def __len__(self):
        return self.count

    cdef int32_t _part(self, tuple model, dict places, int depth) except -1:
        """Lay a content model out; the places are its declarations, in the order met."""
        cdef int32_t number = self.part_count
        cdef int32_t last = -1, inner
        cdef void *grown
        if depth > _DEEPEST:
            raise ValueError(f"a content model is nested more than {_DEEPEST} deep")
        if number == self.part_room:
            grown = realloc(self.parts, 2 * self.part_room * sizeof(Part))
            if grown == NULL:
                raise MemoryError
            self.parts = <Part *>grown
            self.part_room *= 2
        self.part_count += 1
        kind, optional, content = model
        self.parts[number].kind = kind
        self.parts[number].optional = optional
        self.parts[number].inner = self.parts[number].following = -1
        if kind == _ELEMENT:
            self.parts[number].place = places.setdefault(content, len(places))
            return number
        for each in content:
            inner = self._part(each, places, depth + 1)
            if last < 0:
                self.parts[number].inner = inner
            else:
                self.parts[last].following = inner
            last = inner
        return number

    cdef bint _can(self, int32_t part, const signed char *good) noexcept nogil:
        """Whether a part can be written with good children only."""
        return self.parts[part].optional or self._must(part, good)

    cdef bint _must(self, int32_t part, const signed char *good) noexcept nogil:
        """The same, without leaving it out."""
        cdef int32_t each = self.parts[part].inner
        if self.parts[part].kind == _ELEMENT:
            return good[self.parts[part].place]
        if self.parts[part].kind == _SEQUENCE:
            while each >= 0:
                if not self._can(each, good):
                    return False
                each = self.parts[each].following
            return True
        # A choice among nothing cannot be made.
        while each >= 0:
            if self._can(each, good):
                return True
            each = self.parts[each].following
        return False

    cdef void _mark(self, int32_t part, const signed char *good, signed char *used) noexcept nogil:
        """Mark the children that stand in some content of good ones."""
        cdef int32_t each = self.parts[part].inner
        if not self._must(part, good):
            return
        if self.parts[part].kind == _ELEMENT:
            used[self.parts[part].place] = True
        while each >= 0:
            self._mark(each, good, used)
            each = self.parts[each].following


cdef int32_t *_column(values) except NULL:
    cdef int32_t *column = <int32_t *>malloc((len(values) + 1) * sizeof(int32_t))
    cdef Py_ssize_t i
    if column == NULL:
        raise MemoryError
    for i in range(len(values)):
        column[i] = values[i]
    return column


cdef int _rows(rows, int32_t **first, int32_t **column) except -1:
    """Lists of numbers as one column, and where each begins."""
    starts, flat = [0], []
    for row in rows:
        flat += row
        starts.append(len(flat))
    first[0] = _column(starts)
    column[0] = _column(flat)
    return 0


cdef struct State:
    uint64_t places
    int32_t declared, first
    signed char alive


cdef int _load(object codes, int32_t *into) except -1:
    cdef int length = len(codes), i
    if length > _LONGEST or length == 0:
        raise ValueError(f"a path has 1 to {_LONGEST} steps here, not {length}")
    for i in range(length):
        into[i] = codes[i]
    return length


cdef class _Mover:
    """A path, or several that differ in names only, as moves of a set of places."""

    cdef uint64_t *masks
    cdef uint64_t stay, done
    cdef int32_t codes[_LONGEST]
    cdef int length
    cdef Symbols symbols
    cdef int32_t *lasts
    cdef int32_t last_count

    def __cinit__(self, Graph graph, paths):
        cdef int32_t i, label
        self.symbols = graph.symbols
        self.last_count = len(paths)
        self.lasts = _column([path[len(path) - 1] >> 1 for path in paths])
        self.masks = <uint64_t *>calloc(graph.count + 1, sizeof(uint64_t))
        if self.masks == NULL:
            raise MemoryError
        for path in paths:
            self.length = _load(path, self.codes)
            for i in range(self.length):
                if self.codes[i] & 1:
                    self.stay |= <uint64_t>1 << i
            self.done = <uint64_t>1 << self.length
            for i in range(graph.count):
                label = graph.labels[i]
                if label == 0:
                    # A declaration of any name: a path may find its own there.
                    self.masks[i] |= self._elements()
                else:
                    self.masks[i] |= self.symbols.mask(self.codes, self.length, label)

    def __dealloc__(self):
        free(self.masks)
        free(self.lasts)

    cdef bint ends(self, uint64_t places, int32_t leaf) noexcept nogil:
        """Whether a path ends in an attribute or text of the node behind these places."""
        cdef int32_t i
        if not (places << 1) & self.done:
            return False
        for i in range(self.last_count):
            if self.symbols.accepts(self.lasts[i], leaf):
                return True
        return False

    cdef uint64_t _elements(self) noexcept nogil:
        cdef uint64_t found = 0
        cdef int i
        for i in range(self.length):
            if self.symbols.kind[self.codes[i] >> 1] == 0:
                found |= <uint64_t>1 << i
        return found

    cdef inline uint64_t move(self, uint64_t places, int32_t declared) noexcept nogil:
        return ((places & self.masks[declared]) << 1) | (places & self.stay)


cdef class Product:
    """The valid documents in which none of some paths matches; all valid ones, if there is none.

    The paths must have the same axes. `full` says that there was room for all states; if not, the
    product has none, and `escapes` must not be asked.
    """

    cdef Graph graph
    cdef _Mover avoided
    cdef State *states
    cdef int32_t *after
    cdef int32_t count, room, after_count, after_room
    cdef int32_t *slots
    cdef uint32_t slot_count
    cdef list starts
    cdef readonly bint full

    def __cinit__(self, Graph graph, avoided, int32_t most=200_000):
        self.graph = graph
        self.avoided = _Mover(graph, avoided)
        self.room = self.after_room = 256
        self.slot_count = 1024
        self.states = <State *>malloc(self.room * sizeof(State))
        self.after = <int32_t *>malloc(self.after_room * sizeof(int32_t))
        self.slots = <int32_t *>malloc(self.slot_count * sizeof(int32_t))
        if self.states == NULL or self.after == NULL or self.slots == NULL:
            raise MemoryError
        memset(self.slots, 255, self.slot_count * sizeof(int32_t))
        self.starts = []
        self.full = self._explore(most)
        if self.full:
            self._settle()

    def __dealloc__(self):
        free(self.states)
        free(self.after)
        free(self.slots)

    def __len__(self):
        cdef int32_t i, found = 0
        for i in range(self.count):
            found += self.states[i].alive
        return found

    # -- states --

    cdef inline uint32_t _hash(self, int32_t declared, uint64_t places) noexcept nogil:
        cdef uint64_t mixed = (places ^ (<uint64_t>declared << 40)) * <uint64_t>0x9E3779B97F4A7C15
        return <uint32_t>(mixed >> 32) & (self.slot_count - 1)

    cdef int32_t _state(self, int32_t declared, uint64_t places) except -1:
        cdef uint32_t at = self._hash(declared, places)
        cdef int32_t found
        cdef void *grown
        while self.slots[at] >= 0:
            found = self.slots[at]
            if self.states[found].declared == declared and self.states[found].places == places:
                return found
            at = (at + 1) & (self.slot_count - 1)
        if self.count == self.room:
            grown = realloc(self.states, 2 * self.room * sizeof(State))
            if grown == NULL:
                raise MemoryError
            self.states = <State *>grown
            self.room *= 2
        found = self.count
        self.count += 1
        self.states[found].declared = declared
        self.states[found].places = places
        self.states[found].alive = False
        self.slots[at] = found
        if 2 * <uint32_t>self.count >= self.slot_count:
            self._rehash()
        return found

    cdef int _rehash(self) except -1:
        cdef int32_t *slots = <int32_t *>malloc(2 * self.slot_count * sizeof(int32_t))
        cdef int32_t i
        cdef uint32_t at
        if slots == NULL:
            raise MemoryError
        free(self.slots)
        self.slots = slots
        self.slot_count *= 2
        memset(slots, 255, self.slot_count * sizeof(int32_t))
        for i in range(self.count):
            at = self._hash(self.states[i].declared, self.states[i].places)
            while slots[at] >= 0:
                at = (at + 1) & (self.slot_count - 1)
            slots[at] = i
        return 0

    cdef bint _explore(self, int32_t most) except -1:
        """Find all states, and of each the state of every child, -1 where the path would match."""
        cdef Graph graph = self.graph
        cdef int32_t at = 0, child, i, found, declared
        cdef uint64_t places, moved
        cdef void *grown
        for root in graph.roots:
            places = self.avoided.move(1, root)
            if not places & self.avoided.done:
                self.starts.append(self._state(root, places))
        while at < self.count:
            if self.count > most:
                return False
            declared = self.states[at].declared
            places = self.states[at].places
            self.states[at].first = self.after_count
            if self.after_count + graph.widest > self.after_room:
                self.after_room = 2 * (self.after_room + graph.widest)
                grown = realloc(self.after, self.after_room * sizeof(int32_t))
                if grown == NULL:
                    raise MemoryError
                self.after = <int32_t *>grown
            for i in range(graph.first[declared], graph.first[declared + 1]):
                child = graph.children[i]
                moved = self.avoided.move(places, child)
                found = -1 if moved & self.avoided.done else self._state(child, moved)
                self.after[self.after_count] = found
                self.after_count += 1
            at += 1
        return True

    cdef int _settle(self) except -1:
        """Keep what can be completed: least, by adding states whose content is good already."""
        cdef Graph graph = self.graph
        cdef signed char *good = <signed char *>malloc(2 * <size_t>graph.widest + 2)
        cdef signed char *used = good + graph.widest + 1
        cdef int32_t at, i, wide, declared
        cdef bint changed = True
        if good == NULL:
            raise MemoryError
        while changed:
            changed = False
            for at in range(self.count - 1, -1, -1):
                if not self.states[at].alive and self._good(at, good):
                    self.states[at].alive = changed = True
        for at in range(self.count):
            if not self.states[at].alive:
                continue
            declared = self.states[at].declared
            wide = graph.first[declared + 1] - graph.first[declared]
            self._good(at, good)
            memset(used, 0, wide + 1)
            if graph.model[declared] >= 0:
                graph._mark(graph.model[declared], good, used)
            for i in range(wide):
                if not used[i]:
                    self.after[self.states[at].first + i] = -1
        free(good)
        return 0

    cdef bint _good(self, int32_t at, signed char *good) noexcept:
        cdef Graph graph = self.graph
        cdef int32_t declared = self.states[at].declared
        cdef int32_t i, found
        for i in range(graph.needs_first[declared], graph.needs_first[declared + 1]):
            if self.avoided.ends(self.states[at].places, graph.needs[i]):
                return False
        if graph.model[declared] < 0:
            return True
        for i in range(graph.first[declared + 1] - graph.first[declared]):
            found = self.after[self.states[at].first + i]
            good[i] = found >= 0 and self.states[found].alive
        return graph._can(graph.model[declared], good)

    # -- questions --

    def edges(self):
        """Pairs of declarations, the second right below the first in some document."""
        cdef int32_t at, i, found
        pairs = set()
        for at in range(self.count):
            if self.states[at].alive:
                declared = self.states[at].declared
                for i in range(self.graph.first[declared + 1] - self.graph.first[declared]):
                    found = self.after[self.states[at].first + i]
                    if found >= 0:
                        pairs.add((declared, self.states[found].declared))
        return sorted(pairs)

    def escapes(self, codes):
        """Whether a path matches some document of the product."""
        return self._search(codes) is not None

    def word(self, codes):
        """The declarations on a way to a node where a path matches, or None."""
        return self._search(codes)

    cdef list _search(self, codes):
        """Breadth first; an entry of the queue holds the places that are new to its state."""
        cdef _Mover path = _Mover(self.graph, [codes])
        cdef int32_t *queue = NULL
        cdef int32_t *origin = NULL
        cdef uint64_t *seen = NULL
        cdef int32_t head = 0, tail = 0, at, i, found, declared
        cdef uint64_t moved
        if not self.full:
            raise ValueError("the product was too large to make")
        seen = <uint64_t *>calloc(self.count + 1, sizeof(uint64_t))
        cdef uint64_t *fresh = <uint64_t *>malloc(256 * sizeof(uint64_t))
        cdef int32_t size = 256
        queue = <int32_t *>malloc(size * sizeof(int32_t))
        origin = <int32_t *>malloc(size * sizeof(int32_t))
        try:
            if seen == NULL or fresh == NULL or queue == NULL or origin == NULL:
                raise MemoryError
            for start in self.starts:
                at = start
                if self.states[at].alive:
                    moved = path.move(1, self.states[at].declared)
                    seen[at] |= moved
                    queue[tail], origin[tail], fresh[tail] = at, -1, moved
                    tail += 1
                    if tail == size:
                        size = _wider(&queue, &origin, &fresh, size)
            while head < tail:
                at = queue[head]
                if fresh[head] & path.done or self._ends(at, fresh[head], path):
                    return self._way(queue, origin, head)
                declared = self.states[at].declared
                for i in range(self.graph.first[declared + 1] - self.graph.first[declared]):
                    found = self.after[self.states[at].first + i]
                    if found < 0:
                        continue
                    moved = path.move(fresh[head], self.states[found].declared) & ~seen[found]
                    if moved == 0:
                        continue
                    seen[found] |= moved
                    queue[tail], origin[tail], fresh[tail] = found, head, moved
                    tail += 1
                    if tail == size:
                        size = _wider(&queue, &origin, &fresh, size)
                head += 1
            return None
        finally:
            free(seen)
            free(fresh)
            free(queue)
            free(origin)

    cdef bint _ends(self, int32_t at, uint64_t places, _Mover path) noexcept:
        """Whether the path ends in an attribute or text that this state may have."""
        cdef Graph graph = self.graph
        cdef int32_t declared = self.states[at].declared
        cdef int32_t last = path.codes[path.length - 1] >> 1
        cdef int32_t i, leaf
        cdef uint64_t others = self.states[at].places
        if path.symbols.kind[last] == 0 or not (places << 1) & path.done:
            return False
        if path.symbols.kind[last] == 2:
            return graph.text[declared] and not self.avoided.ends(others, last)
        for i in range(graph.has_first[declared], graph.has_first[declared + 1]):
            # Where any attribute may stand, the one that is asked for may.
            leaf = last if graph.has[i] == 1 else graph.has[i]
            if path.symbols.accepts(last, leaf) and not self.avoided.ends(others, leaf):
                return True
        return False

    cdef list _way(self, int32_t *queue, int32_t *origin, int32_t head):
        way = []
        while head >= 0:
            way.append(self.states[queue[head]].declared)
            head = origin[head]
        way.reverse()
        return way


cdef int32_t _wider(
    int32_t **queue, int32_t **origin, uint64_t **fresh, int32_t size
) except -1:
    cdef void *grown = realloc(queue[0], 2 * <size_t>size * sizeof(int32_t))
    if grown == NULL:
        raise MemoryError
    queue[0] = <int32_t *>grown
    grown = realloc(origin[0], 2 * <size_t>size * sizeof(int32_t))
    if grown == NULL:
        raise MemoryError
    origin[0] = <int32_t *>grown
    grown = realloc(fresh[0], 2 * <size_t>size * sizeof(uint64_t))
    if grown == NULL:
        raise MemoryError
    fresh[0] = <uint64_t *>grown
    return 2 * size
