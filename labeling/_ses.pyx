"""The native kernel of SES labels: tries that grow, are numbered and are merged.

A trie node is a symbol (tag, extra) below a parent. Nothing here recurses: a trie can be a chain of
as many nodes as a record has. A `TrieMap` is worked on without the GIL and is not guarded against
a second thread, which is turned away instead. Everything else works on columns that nobody changes.
"""

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

import numpy as np

cdef enum:
    FINE = 0
    NO_MEMORY = 1
    FULL = 2
    NO_ROW = 3
    TOO_EARLY = 4
    TWICE = 5
    BROKEN = 6
    DIGIT = 11
    SMALLEST = 64

cdef extern from *:
    """
    #define NONE 0xFFFFFFFFu
    """
    const uint32_t NONE

NO_PARENT = NONE

cdef enum:
    ELEMENT, ATTRIBUTE, TEXT


def forest_of(
    const uint8_t[::1] kind,
    const int32_t[::1] tag,
    const int32_t[::1] parent,
    const int16_t[::1] level,
    const int64_t[::1] start,
    const int64_t[::1] end,
):
    """(tag, parent, depth, size, rows) of the elements and attributes of a table, by its columns.

    The columns are those of `fmware.labeling.ses.Forest`. Raises ValueError if a parent does not come before
    its row, or a row's label spans more rows than follow it.
    """
    cdef Py_ssize_t row, count = kind.shape[0], kept = 0, root = 0
    cdef int64_t span
    cdef bint bad = (tag.shape[0] != count or parent.shape[0] != count or level.shape[0] != count
                     or start.shape[0] != count or end.shape[0] != count)
    if bad:
        raise ValueError("columns of different lengths")
    # How many rows before each are kept.
    befores = np.empty(count + 1, np.int32)
    cdef int32_t[::1] before = befores
    with nogil:
        for row in range(count):
            before[row] = <int32_t> kept
            kept += kind[row] != TEXT
        before[count] = <int32_t> kept
    tags, ups, depths, sizes = (np.empty(kept, np.int32) for _ in range(4))
    rows = np.empty(kept, np.intp)
    cdef int32_t[::1] own = tags, up = ups, depth = depths, size = sizes
    cdef Py_ssize_t[::1] place = rows
    kept = 0
    with nogil:
        for row in range(count):
            if kind[row] == TEXT:
                continue
            span = <int64_t> ((<uint64_t> end[row] - <uint64_t> start[row] + 1) >> 1)
            if parent[row] >= row or span < 0 or span > count - row:
                bad = True
                break
            if parent[row] < 0:
                root = row
            own[kept] = <int32_t> (<uint32_t> tag[row] * 2 + kind[row])
            up[kept] = -1 if parent[row] < 0 else before[parent[row]]
            depth[kept] = level[row] - level[root]
            size[kept] = before[row + span] - before[row]
            place[kept] = row
            kept += 1
    if bad:
        raise ValueError("a row whose parent or label is not one of a forest")
    return tags, ups, depths, sizes, rows


# --- growing --------------------------------------------------------------------------------

# Most trie nodes are only children, in tails that one record has made. So a node knows its first
# child, which is found without hashing and lies right behind it in such a tail; only the
# children that came later are in the hash map.
cdef struct Node:
    uint32_t parent
    uint32_t tag
    uint32_t extra
    uint32_t first

# The symbol is in the slot too: a look-up touches one line of the cache. `id` is NONE if empty.
cdef struct Slot:
    uint32_t parent
    uint32_t tag
    uint32_t extra
    uint32_t id


cdef inline uint64_t mixed(uint32_t parent, uint32_t tag, uint32_t extra) noexcept nogil:
    # The symbol's half is known before the parent's id is, which the look-up before this gives.
    cdef uint64_t h = (((<uint64_t>tag) << 32) | extra) * 0x9E3779B97F4A7C15ULL
    h = (h ^ (h >> 29) ^ parent) * 0xBF58476D1CE4E5B9ULL
    h ^= h >> 32
    return h * 0x94D049BB133111EBULL


@cython.final
cdef class TrieMap:
    """Trie nodes by (parent id, tag, extra). Ids count from 0 and parents have the smaller ones."""

    cdef Node* nodes
    cdef uint64_t room
    cdef uint32_t count
    cdef Slot* slots
    cdef uint64_t mask
    cdef int shift
    cdef uint64_t hashed
    cdef bint busy

    def __cinit__(self):
        self.nodes = <Node*>malloc(SMALLEST * sizeof(Node))
        self.slots = <Slot*>malloc(SMALLEST * sizeof(Slot))
        if self.nodes == NULL or self.slots == NULL:
            raise MemoryError
        memset(self.slots, 0xFF, SMALLEST * sizeof(Slot))
        self.room = SMALLEST
        self.mask = SMALLEST - 1
        self.shift = 64 - 6

    def __dealloc__(self):
        free(self.nodes)
        free(self.slots)

    def __len__(self):
        return self.count

    def extend(
        self,
        const int32_t[::1] tag not None,
        const int32_t[::1] before not None,
        const uint32_t[::1] extra not None,
        const int32_t[::1] order,
    ):
        """The ids of the rows' trie nodes; those that are not there yet are added.

        `before` names the row whose trie node is the parent, -1 for none. Rows are taken in
        `order`, or as they stand.
        """
        cdef Py_ssize_t rows = tag.shape[0]
        cdef Py_ssize_t at = 0
        cdef bint ordered = order is not None
        cdef int status
        if before.shape[0] != rows or extra.shape[0] != rows:
            raise ValueError(f"{before.shape[0]} and {extra.shape[0]} links for {rows} rows")
        if ordered and order.shape[0] != rows:
            raise ValueError(f"an order of {order.shape[0]} rows for {rows}")
        ids = np.full(rows, NONE, np.uint32)
        if rows == 0:
            return ids
        cdef uint32_t[::1] view = ids
        if self.busy:
            raise RuntimeError("another thread is extending this trie; give each thread its own")
        self.busy = True
        with nogil:
            status = self._extend(
                rows, &tag[0], &before[0], &extra[0], &order[0] if ordered else NULL, &view[0], &at
            )
        self.busy = False
        if status != FINE:
            complain(status, at)
        return ids

    cdef int _extend(
        self,
        Py_ssize_t rows,
        const int32_t* tag,
        const int32_t* before,
        const uint32_t* extra,
        const int32_t* order,
        uint32_t* ids,
        Py_ssize_t* failed,
    ) noexcept nogil:
        cdef Py_ssize_t i, row
        cdef int32_t link
        cdef uint32_t parent
        cdef int status
        for i in range(rows):
            row = i
            if order != NULL:
                row = order[i]
                failed[0] = i
                if not 0 <= row < rows:
                    return NO_ROW
                if ids[row] != NONE:
                    return TWICE
            parent = NONE
            link = before[row]
            if link != -1:
                failed[0] = row
                if not 0 <= link < rows:
                    return NO_ROW
                parent = ids[link]
                if parent == NONE:
                    return TOO_EARLY
            status = self._find(parent, tag[row], extra[row], &ids[row])
            if status != FINE:
                return status
        return FINE

    cdef inline int _find(
        self, uint32_t parent, uint32_t tag, uint32_t extra, uint32_t* found
    ) noexcept nogil:
        cdef uint32_t first
        cdef uint64_t at
        cdef Slot* slot
        cdef int status
        if parent != NONE:
            first = self.nodes[parent].first
            if first == NONE:
                status = self._add(parent, tag, extra, found)
                if status != FINE:
                    return status
                self.nodes[parent].first = found[0]
                return FINE
            if self.nodes[first].tag == tag and self.nodes[first].extra == extra:
                found[0] = first
                return FINE
        at = mixed(parent, tag, extra) >> self.shift
        while True:
            slot = &self.slots[at]
            if slot.id == NONE:
                # Nothing leads to the node before it is there: a trie outlives a lack of memory.
                status = self._add(parent, tag, extra, found)
                if status != FINE:
                    return status
                slot.parent = parent
                slot.tag = tag
                slot.extra = extra
                slot.id = found[0]
                self.hashed += 1
                # Linear probing stays short up to five eighths.
                return self._grow() if self.hashed * 8 > (self.mask + 1) * 5 else FINE
            if slot.parent == parent and slot.tag == tag and slot.extra == extra:
                found[0] = slot.id
                return FINE
            at = (at + 1) & self.mask

    cdef inline int _add(
        self, uint32_t parent, uint32_t tag, uint32_t extra, uint32_t* found
    ) noexcept nogil:
        cdef Node* moved
        cdef Node* node
        if self.count == self.room:
            if self.room > NONE // 2:
                return FULL
            moved = <Node*>realloc(self.nodes, self.room * 2 * sizeof(Node))
            if moved == NULL:
                return NO_MEMORY
            self.nodes = moved
            self.room *= 2
        node = &self.nodes[self.count]
        node.parent = parent
        node.tag = tag
        node.extra = extra
        node.first = NONE
        found[0] = self.count
        self.count += 1
        return FINE

    cdef int _grow(self) noexcept nogil:
        cdef uint64_t held = self.mask + 1
        cdef uint64_t room = held * 2
        cdef uint64_t i, at
        cdef Slot* old = self.slots
        cdef Slot* new = <Slot*>malloc(room * sizeof(Slot))
        if new == NULL:
            return NO_MEMORY
        memset(new, 0xFF, room * sizeof(Slot))
        self.shift -= 1
        self.mask = room - 1
        # A slot goes to about twice its place, so that both tables are passed over in order.
        for i in range(held):
            if old[i].id != NONE:
                at = mixed(old[i].parent, old[i].tag, old[i].extra) >> self.shift
                while new[at].id != NONE:
                    at = (at + 1) & self.mask
                new[at] = old[i]
        self.slots = new
        free(old)
        return FINE

    def columns(self):
        """Parent, tag and extra of each id; the parent is `NO_PARENT` at the top."""
        if self.busy:
            raise RuntimeError("another thread is extending this trie; wait for it")
        cdef Py_ssize_t count = self.count
        cdef Py_ssize_t i
        parents = np.empty(count, np.uint32)
        tags = np.empty(count, np.uint32)
        extras = np.empty(count, np.uint32)
        cdef uint32_t[::1] parent = parents
        cdef uint32_t[::1] tag = tags
        cdef uint32_t[::1] extra = extras
        for i in range(count):
            parent[i] = self.nodes[i].parent
            tag[i] = self.nodes[i].tag
            extra[i] = self.nodes[i].extra
        return parents, tags, extras


cdef object complain(int status, Py_ssize_t at):
    if status == NO_MEMORY:
        raise MemoryError("no memory for a larger trie")
    if status == FULL:
        raise OverflowError("a trie of more than 2**31 nodes; label the corpus in smaller parts")
    if status == NO_ROW:
        raise ValueError(f"at {at}: no such row")
    if status == TOO_EARLY:
        raise ValueError(f"row {at} comes before the row that it follows")
    if status == TWICE:
        raise ValueError(f"at {at}: a row comes twice")
    raise ValueError(f"trie {at} is not in canonical preorder")


# --- numbering ------------------------------------------------------------------------------


def numbered(
    const uint32_t[::1] parent not None,
    const uint32_t[::1] tag not None,
    const uint32_t[::1] extra not None,
):
    """Rank in canonical preorder, and size of the subtree, of each id of a trie.

    Parents have smaller ids than their children. No child lists are made: over all nodes in the
    order of their symbols, each takes its place behind the siblings that came before it.
    """
    cdef Py_ssize_t count = parent.shape[0]
    cdef Py_ssize_t i
    cdef int status
    if tag.shape[0] != count or extra.shape[0] != count:
        raise ValueError("the columns of a trie have one length")
    ranks = np.empty(count, np.uint32)
    sizes = np.empty(count, np.uint32)
    if count == 0:
        return ranks, sizes
    cdef uint32_t[::1] rank = ranks
    cdef uint32_t[::1] size = sizes
    with nogil:
        status = number(count, &parent[0], &tag[0], &extra[0], &rank[0], &size[0])
    if status != FINE:
        complain(status, 0)
    return ranks, sizes


cdef int number(
    Py_ssize_t count,
    const uint32_t* parent,
    const uint32_t* tag,
    const uint32_t* extra,
    uint32_t* rank,
    uint32_t* size,
) noexcept nogil:
    cdef uint32_t* order = <uint32_t*>malloc(count * sizeof(uint32_t))
    cdef uint32_t* other = <uint32_t*>malloc(count * sizeof(uint32_t))
    cdef uint32_t* taken = NULL
    cdef uint32_t top = 0
    cdef uint32_t node
    cdef Py_ssize_t i
    cdef int status = FINE
    if order == NULL or other == NULL:
        status = NO_MEMORY
    else:
        for i in range(count):
            order[i] = <uint32_t>i
            size[i] = 1
        for i in range(count - 1, -1, -1):
            if parent[i] != NONE:
                if parent[i] >= i:
                    status = BROKEN
                    break
                size[parent[i]] += size[i]
    if status == FINE:
        by_digits(count, extra, &order, &other)
        by_digits(count, tag, &order, &other)
        taken = other
        memset(taken, 0, count * sizeof(uint32_t))
        for i in range(count):
            node = order[i]
            if parent[node] == NONE:
                rank[node] = top
                top += size[node]
            else:
                rank[node] = taken[parent[node]] + 1
                taken[parent[node]] += size[node]
        for i in range(count):
            if parent[i] != NONE:
                rank[i] += rank[parent[i]]
    free(order)
    free(other)
    return status


cdef void by_digits(
    Py_ssize_t count, const uint32_t* key, uint32_t** order, uint32_t** other
) noexcept nogil:
    """Sort `order` by key, keeping the order of equal keys; `other` is scratch."""
    cdef uint32_t[1 << DIGIT] begin
    cdef uint32_t most = 0
    cdef uint32_t digit, held, total
    cdef uint32_t* swapped
    cdef int shift = 0
    cdef Py_ssize_t i
    for i in range(count):
        if key[i] > most:
            most = key[i]
    while shift < 32 and (most >> shift) > 0:
        memset(begin, 0, sizeof(begin))
        for i in range(count):
            begin[(key[i] >> shift) & ((1 << DIGIT) - 1)] += 1
        total = 0
        for i in range(1 << DIGIT):
            held = begin[i]
            begin[i] = total
            total += held
        for i in range(count):
            digit = (key[order[0][i]] >> shift) & ((1 << DIGIT) - 1)
            other[0][begin[digit]] = order[0][i]
            begin[digit] += 1
        swapped = order[0]
        order[0] = other[0]
        other[0] = swapped
        shift += DIGIT


def parents(const uint32_t[::1] size not None):
    """The parent's rank of each node of a preorder; ValueError where subtrees do not nest."""
    cdef Py_ssize_t count = size.shape[0]
    found = np.empty(count, np.uint32)
    cdef uint32_t[::1] parent = found
    cdef uint32_t open = NONE
    cdef uint64_t end
    cdef Py_ssize_t i
    cdef Py_ssize_t bad = -1
    with nogil:
        for i in range(count):
            # The column itself is the stack of what is open.
            while open != NONE and <uint64_t>open + size[open] <= <uint64_t>i:
                open = parent[open]
            end = <uint64_t>count if open == NONE else <uint64_t>open + size[open]
            if size[i] == 0 or <uint64_t>i + size[i] > end:
                bad = i
                break
            parent[i] = open
            open = <uint32_t>i
    if bad >= 0:
        raise ValueError(f"the subtree of rank {bad} has size {size[bad]}, which does not nest")
    return found


# --- merging --------------------------------------------------------------------------------

cdef struct Input:
    const uint32_t* tag
    const uint32_t* extra
    const uint32_t* size
    uint32_t* place

# Where an input is among the children of a merged node: the next one, and where they end.
cdef struct Cursor:
    uint64_t key
    uint32_t input
    uint32_t at
    uint32_t end

# A merged node whose children are being merged; its cursors are a heap, by key.
cdef struct Level:
    uint64_t rank
    Py_ssize_t begin
    Py_ssize_t count


cdef inline uint64_t key_at(Input* source, uint32_t at) noexcept nogil:
    return ((<uint64_t>source.tag[at]) << 32) | source.extra[at]


cdef inline void sift(Cursor* heap, Py_ssize_t count, Py_ssize_t at) noexcept nogil:
    cdef Cursor moving = heap[at]
    cdef Py_ssize_t child = 2 * at + 1
    while child < count:
        if child + 1 < count and heap[child + 1].key < heap[child].key:
            child += 1
        if moving.key <= heap[child].key:
            break
        heap[at] = heap[child]
        at = child
        child = 2 * at + 1
    heap[at] = moving


@cython.final
cdef class Merger:
    """Merges tries in canonical preorder, one merged node after the other, in preorder."""

    cdef Input* inputs
    cdef uint32_t* tag
    cdef uint32_t* extra
    cdef uint32_t* size
    cdef uint64_t out
    cdef uint64_t room
    cdef Cursor* cursors
    cdef Py_ssize_t cursors_held
    cdef Py_ssize_t cursors_room
    cdef Level* levels
    cdef Py_ssize_t levels_held
    cdef Py_ssize_t levels_room

    def __dealloc__(self):
        free(self.inputs)
        free(self.cursors)
        free(self.levels)

    cdef int _push_cursor(self, uint32_t number, uint32_t at, uint32_t end) noexcept nogil:
        cdef Cursor* moved
        cdef Cursor* cursor
        if self.cursors_held == self.cursors_room:
            moved = <Cursor*>realloc(self.cursors, (self.cursors_room * 2 + 64) * sizeof(Cursor))
            if moved == NULL:
                return NO_MEMORY
            self.cursors = moved
            self.cursors_room = self.cursors_room * 2 + 64
        cursor = &self.cursors[self.cursors_held]
        cursor.key = key_at(&self.inputs[number], at)
        cursor.input = number
        cursor.at = at
        cursor.end = end
        self.cursors_held += 1
        return FINE

    cdef int _push_level(self, uint64_t rank, Py_ssize_t begin) noexcept nogil:
        cdef Level* moved
        cdef Level* level
        cdef Py_ssize_t i
        if self.levels_held == self.levels_room:
            moved = <Level*>realloc(self.levels, (self.levels_room * 2 + 64) * sizeof(Level))
            if moved == NULL:
                return NO_MEMORY
            self.levels = moved
            self.levels_room = self.levels_room * 2 + 64
        level = &self.levels[self.levels_held]
        level.rank = rank
        level.begin = begin
        level.count = self.cursors_held - begin
        self.levels_held += 1
        for i in range(level.count // 2 - 1, -1, -1):
            sift(&self.cursors[begin], level.count, i)
        return FINE

    cdef int _copy(self, Cursor* cursor) noexcept nogil:
        """What only one input has is copied as it lies."""
        cdef Input* source = &self.inputs[cursor.input]
        cdef uint32_t at = cursor.at
        cdef Py_ssize_t count = cursor.end - at
        cdef uint32_t* place = source.place + at
        cdef uint32_t out = <uint32_t>self.out
        cdef Py_ssize_t i
        if self.out + count > self.room:
            return FULL
        memcpy(self.tag + out, source.tag + at, count * sizeof(uint32_t))
        memcpy(self.extra + out, source.extra + at, count * sizeof(uint32_t))
        memcpy(self.size + out, source.size + at, count * sizeof(uint32_t))
        for i in range(count):
            place[i] = out + <uint32_t>i
        self.out += count
        return FINE

    cdef int _merge(self, uint32_t* bad) noexcept nogil:
        cdef Level* level
        cdef Cursor* heap
        cdef Cursor* first
        cdef Input* source
        cdef uint64_t key
        cdef uint32_t rank, size, number, at
        cdef Py_ssize_t begin, count
        cdef int status
        while self.levels_held > 0:
            level = &self.levels[self.levels_held - 1]
            heap = &self.cursors[level.begin]
            if level.count == 1:
                status = self._copy(heap)
                if status != FINE:
                    return status
                level.count = 0
            if level.count == 0:
                if level.rank != NONE:
                    self.size[level.rank] = <uint32_t>(self.out - level.rank)
                self.cursors_held = level.begin
                self.levels_held -= 1
                continue
            if self.out == self.room:
                return FULL
            key = heap[0].key
            rank = <uint32_t>self.out
            self.out += 1
            self.tag[rank] = <uint32_t>(key >> 32)
            self.extra[rank] = <uint32_t>key
            begin = self.cursors_held
            while level.count > 0 and heap[0].key == key:
                first = &heap[0]
                number = first.input
                bad[0] = number
                source = &self.inputs[number]
                at = first.at
                size = source.size[at]
                if size == 0 or size > first.end - at:
                    return BROKEN
                source.place[at] = rank
                first.at += size
                if first.at == first.end:
                    level.count -= 1
                    heap[0] = heap[level.count]
                else:
                    first.key = key_at(source, first.at)
                    if first.key <= key:
                        return BROKEN
                sift(heap, level.count, 0)
                if size > 1:
                    status = self._push_cursor(number, at + 1, at + size)
                    if status != FINE:
                        return status
                    heap = &self.cursors[level.begin]
            count = self.cursors_held - begin
            if count > 1:
                status = self._push_level(rank, begin)
                if status != FINE:
                    return status
            elif count == 1:
                status = self._copy(&self.cursors[begin])
                if status != FINE:
                    return status
                self.cursors_held = begin
                self.size[rank] = <uint32_t>(self.out - rank)
            else:
                self.size[rank] = 1
        return FINE


def merged(list tries not None):
    """Merge (tag, extra, size) columns; returns the merged ones and, for each, rank to rank."""
    cdef Merger merger = Merger.__new__(Merger)
    cdef const uint32_t[::1] tag
    cdef const uint32_t[::1] extra
    cdef const uint32_t[::1] size
    cdef uint32_t[::1] place
    cdef uint32_t bad = 0
    cdef uint32_t number
    cdef int status = FINE
    # At most as many as come in. What is not written to takes no memory.
    most = min(sum(len(columns[0]) for columns in tries), NONE)
    out = [np.empty(most + 1, np.uint32) for _ in range(3)]
    places = [np.empty(len(columns[0]), np.uint32) for columns in tries]
    place = out[0]
    merger.tag = &place[0]
    place = out[1]
    merger.extra = &place[0]
    place = out[2]
    merger.size = &place[0]
    merger.room = most
    merger.inputs = <Input*>calloc(len(tries) + 1, sizeof(Input))
    if merger.inputs == NULL:
        raise MemoryError
    for number, columns in enumerate(tries):
        tag, extra, size = columns
        if not tag.shape[0] == extra.shape[0] == size.shape[0]:
            raise ValueError(f"trie {number} has columns of different lengths")
        if tag.shape[0] == 0:
            continue
        place = places[number]
        merger.inputs[number].tag = &tag[0]
        merger.inputs[number].extra = &extra[0]
        merger.inputs[number].size = &size[0]
        merger.inputs[number].place = &place[0]
        status = merger._push_cursor(number, 0, <uint32_t>tag.shape[0])
        if status != FINE:
            complain(status, 0)
    with nogil:
        status = merger._push_level(NONE, 0)
        if status == FINE:
            status = merger._merge(&bad)
    if status != FINE:
        complain(status, bad)
    return tuple(column[: merger.out].copy() for column in out), places
