"""The native kernel of matching: a batch from path tuples to local nodes and back.

`Batch` owns the way of the data. In its order:

1. It numbers the anchors of all crossings, crossings that seek the same next to each other.
2. `Anchors` reads from the messages what these are known by, labels and keys, and finds the local
   nodes that have them. `LocalNodes` are those of all anchors, in the order of the anchors.
3. The operator of each group joins its local nodes. What comes are `Pairs`; those that an operator
   fetches from cold pages come later, and `Batch.settle` waits for them.
4. What is left of match parts is done in Python, on `Pairs`.
5. `Batch.matches` decides on which lines all crossings hold, and gives columns in the order of the
   messages.

A message has a handful of anchors: there an array that numpy looks at costs more than what is done
to it. So one call does the work of a batch, whatever its size.

A batch belongs to one thread. Others add pairs to it only through `Joins`, with its lock held.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.object cimport PyObject, PyObject_GenericSetAttr, PyTypeObject
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memcpy, memset

from fmware.cmatch.feed cimport Batch as Rows
from fmware.cmatch.feed cimport Feeder, Sink, drop_sink
from fmware.index.probe cimport Finder, Keyed, Labeller, Text
from fmware.labeling._kernel cimport OPEN, Columns

import numpy as np

from fmware.cmatch.errors import MatchError, OperatorClosed
from fmware.cmatch.inputs import Inputs, Matches
from fmware.filtering.errors import ForeignTable
from fmware.index.errors import StoreError

cdef extern from *:
    """
    #include <time.h>
    static int64_t clocked(clockid_t clock) {
        struct timespec now;
        clock_gettime(clock, &now);
        return (int64_t) now.tv_sec * 1000000000 + now.tv_nsec;
    }
    /* What this thread has worked: a system call. */
    static int64_t worked(void) { return clocked(CLOCK_THREAD_CPUTIME_ID); }
    /* What a clock on the wall says: none. */
    static int64_t nanoseconds(void) { return clocked(CLOCK_MONOTONIC); }
    """
    int64_t worked() noexcept nogil
    int64_t nanoseconds() noexcept nogil

INT64 = np.dtype(np.int64)
INT32 = np.dtype(np.int32)
INT16 = np.dtype(np.int16)
cdef object empty = np.empty
cdef object nothing = ()
cdef object contiguous = np.ascontiguousarray

cdef enum:
    ELEMENT = 0
    ATTRIBUTE = 1
    TEXT = 2
    DIGITS = 18          # of a label: more may not fit into 63 bits


# --- columns ----------------------------------------------------------------------------------


@cython.final
cdef class Column:
    """The memory of a contiguous array of one type, for as long as this lives."""

    cdef Py_buffer view
    cdef bint held
    cdef Py_ssize_t rows

    def __cinit__(self):
        self.held = False

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


cdef Column column(object array, object dtype, Py_ssize_t width):
    """An array as a column; copied only if it is of another type, or not contiguous."""
    cdef Column made = Column.__new__(Column)
    if array.dtype is not dtype:
        array = contiguous(array, dtype)
    try:
        PyObject_GetBuffer(array, &made.view, PyBUF_SIMPLE)
    except (BufferError, ValueError):
        PyObject_GetBuffer(contiguous(array), &made.view, PyBUF_SIMPLE)
    made.held = True
    made.rows = made.view.len // width
    return made


cdef Column column_of(bytes data, Py_ssize_t width):
    """Bytes as a column."""
    cdef Column made = Column.__new__(Column)
    PyObject_GetBuffer(data, &made.view, PyBUF_SIMPLE)
    made.held = True
    made.rows = made.view.len // width
    return made


cdef inline int64_t* int64s(Column of) noexcept:
    return <int64_t*> of.view.buf


cdef inline int32_t* int32s(Column of) noexcept:
    return <int32_t*> of.view.buf


cdef inline int16_t* int16s(Column of) noexcept:
    return <int16_t*> of.view.buf


cdef inline void* allocated(Py_ssize_t count, Py_ssize_t width) except NULL:
    cdef void* found = malloc((count + 1) * width)
    if found == NULL:
        raise MemoryError
    return found


# --- pairs of numbers that were seen ------------------------------------------------------------


ctypedef struct Seat:
    int64_t major
    int64_t minor
    int32_t number       # 0: free


ctypedef struct Seen:
    # A hash table of pairs, each with a number from 1 on.
    Seat* seats
    Py_ssize_t mask
    int32_t count


cdef int begin_seen(Seen* seen, Py_ssize_t most) except -1:
    """Room for that many pairs."""
    cdef Py_ssize_t size = 16
    while size < 2 * most:
        size <<= 1
    seen.seats = <Seat*> calloc(size, sizeof(Seat))
    if seen.seats == NULL:
        raise MemoryError
    seen.mask = size - 1
    seen.count = 0
    return 0


cdef inline int32_t number_of(Seen* seen, int64_t major, int64_t minor) noexcept nogil:
    """The number of a pair; that of one that was not seen is one more than there were."""
    cdef uint64_t hash = (
        <uint64_t> major * 0x9E3779B97F4A7C15ULL ^ <uint64_t> minor * 0xC2B2AE3D27D4EB4FULL
    )
    cdef Py_ssize_t at = <Py_ssize_t> ((hash ^ (hash >> 29)) & <uint64_t> seen.mask)
    cdef Seat* seat
    while True:
        seat = &seen.seats[at]
        if seat.number == 0:
            seen.count += 1
            seat.major = major
            seat.minor = minor
            seat.number = seen.count
            return seen.count
        if seat.major == major and seat.minor == minor:
            return seat.number
        at = (at + 1) & seen.mask


# --- what an anchor is known by -----------------------------------------------------------------


cdef inline bint blank(char letter) noexcept nogil:
    return letter == c" " or letter == c"\t" or letter == c"\r" or letter == c"\n"


cdef inline Text trimmed(const char* text, Py_ssize_t size) noexcept nogil:
    """Bytes without the white space around them."""
    cdef Text found
    while size and blank(text[0]):
        text += 1
        size -= 1
    while size and blank(text[size - 1]):
        size -= 1
    found.data = text
    found.size = size
    return found


cdef int64_t label_of(const char* text, Py_ssize_t size) noexcept nogil:
    """The label that an attribute carries; -1 if it is none."""
    cdef int64_t found = 0
    cdef Py_ssize_t at
    while size and blank(text[0]):
        text += 1
        size -= 1
    while size and blank(text[size - 1]):
        size -= 1
    if not 0 < size <= DIGITS:
        return -1
    for at in range(size):
        if not c"0" <= text[at] <= c"9":
            return -1
        found = 10 * found + text[at] - c"0"
    return found


cdef inline Py_ssize_t attribute_at(Columns table, Py_ssize_t row, int32_t tag) noexcept nogil:
    """The row of an attribute of an element; -1 if it has none of that tag."""
    cdef Py_ssize_t at = row + 1
    while at < table.rows and table.kinds[at] == ATTRIBUTE:
        if table.tags[at] == tag:
            return at
        at += 1
    return -1


cdef Text text_of(Columns table, Py_ssize_t row, list owners) except *:
    """The trimmed string-value of an element: nearly always that of the one text in it.

    Else it is put together, in memory that `owners` then keeps.
    """
    cdef Py_ssize_t at = row + 1, size = 0, texts = 0, only = 0
    cdef bytes whole
    cdef char* target
    while at < table.rows and table.levels[at] > table.levels[row]:
        if table.kinds[at] == TEXT:
            texts += 1
            only = at
            size += table.offsets[at + 1] - table.offsets[at]
        at += 1
    if texts <= 1:
        return trimmed(table.text + table.offsets[only], size)
    whole = PyBytes_FromStringAndSize(NULL, size)
    owners.append(whole)
    target = PyBytes_AS_STRING(whole)
    for at in range(row + 1, at):
        if table.kinds[at] == TEXT:
            size = table.offsets[at + 1] - table.offsets[at]
            memcpy(target, table.text + table.offsets[at], size)
            target += size
    return trimmed(PyBytes_AS_STRING(whole), len(whole))


ctypedef struct Key:
    Text text
    int32_t node         # whose key it is
    int32_t element      # the number of its tag in the corpus


@cython.final
cdef class KeyList:
    """Keys of nodes; those that lie in a table are valid as long as the table is."""

    cdef Key* rows
    cdef Py_ssize_t count, room
    cdef list owners

    def __cinit__(self):
        self.rows = NULL
        self.count = self.room = 0
        self.owners = []

    def __dealloc__(self):
        free(self.rows)

    cdef int add(self, Text text, int32_t node, int32_t element) except -1:
        cdef Key* moved
        if not text.size:
            return 0
        if self.count == self.room:
            self.room = max(16, 2 * self.room)
            moved = <Key*> realloc(self.rows, self.room * sizeof(Key))
            if moved == NULL:
                raise MemoryError
            self.rows = moved
        self.rows[self.count].text = text
        self.rows[self.count].node = node
        self.rows[self.count].element = element
        self.count += 1
        return 0

    cdef int below(
        self, Columns table, Py_ssize_t row, tuple steps, Py_ssize_t done, int32_t attribute,
        int32_t node, int32_t element,
    ) except -1:
        """The keys of an element by one rule: down its steps, then an attribute or the text."""
        cdef Py_ssize_t at
        cdef int32_t step
        if done < len(steps):
            step = steps[done]
            at = row + 1
            # Behind a child with all that is in it comes the next one, or what is not below the row.
            while at < table.rows and table.parents[at] >= row:
                if (
                    table.parents[at] == row and table.kinds[at] == ELEMENT
                    and table.tags[at] == step
                ):
                    self.below(table, at, steps, done + 1, attribute, node, element)
                at += 1 if table.ends[at] == OPEN else (table.ends[at] - table.starts[at] + 1) >> 1
            return 0
        if attribute < 0:
            return self.add(text_of(table, row, self.owners), node, element)
        at = attribute_at(table, row, attribute)
        if at < 0:
            return 0
        return self.add(
            trimmed(table.text + table.offsets[at], table.offsets[at + 1] - table.offsets[at]),
            node, element,
        )

    cdef bytes at(self, Py_ssize_t place):
        return self.rows[place].text.data[:self.rows[place].text.size]


def keys_at(Columns table not None, Py_ssize_t row, ways):
    """The keys of an element, by rules whose names are tags of the table's vocabulary."""
    cdef KeyList keys = KeyList()
    cdef Py_ssize_t at
    for steps, attribute in ways:
        keys.below(table, row, steps, 0, attribute, 0, 0)
    return [keys.at(at) for at in range(keys.count)]


# --- statements ---------------------------------------------------------------------------------


@cython.final
cdef class Seek:
    """What the first step of a crossing seeks in the corpus, and from where.

    `anchor` is the Clark name that the anchors have, or None for any. Crossings with equal ones
    are a group. Every batch looks them up, so the hash is kept.
    """

    cdef readonly object anchor
    cdef readonly object sought
    cdef Py_hash_t known

    def __init__(self, anchor, sought):
        self.anchor = anchor
        self.sought = sought
        self.known = hash((anchor, sought))

    def __hash__(self):
        return self.known

    def __eq__(self, other):
        cdef Seek own
        if self is other:
            return True
        if not isinstance(other, Seek):
            return NotImplemented
        own = other
        return self.known == own.known and self.anchor == own.anchor and self.sought == own.sought


@cython.final
cdef class Crossing:
    """A crossing of a statement: where its anchors are, what it asks of the corpus, whether that is
    what the statement selects, and what its first step seeks.
    """

    cdef readonly object anchor
    cdef readonly object part
    cdef readonly Seek seek
    cdef readonly bint selects
    cdef bint direct
    cdef bint done
    cdef Py_ssize_t step

    def __init__(self, anchor, part, bint selects, Seek seek not None):
        self.anchor = anchor
        self.part = part
        self.seek = seek
        self.selects = selects
        self.direct = anchor.direct
        self.step = anchor.step
        self.done = part.done


@cython.final
cdef class Tally:
    """What one statement that asks the corpus has done; `Batch.end` counts."""

    cdef public int64_t matches
    cdef public int64_t failed
    cdef public double seconds
    cdef readonly dict shares

    def __cinit__(self):
        self.shares = {}

    @property
    def joins(self):
        """What it had of each join."""
        return {state.join: share for state, share in self.shares.items()}


cdef class Prepared:
    """What a batch needs of a statement; see `Plan`."""

    cdef readonly list crossings
    cdef readonly int apart
    cdef readonly Tally tally

    def __init__(self, list crossings not None, int apart):
        self.crossings = crossings
        self.apart = apart
        self.tally = Tally()


# --- the anchors of a batch ---------------------------------------------------------------------


@cython.final
cdef class Asked:
    """A crossing of a statement in a batch: its anchors are those from `first` to before `last`.

    `seconds` were spent on what is left of its match part; `failure` says why it has no answer.
    """

    cdef Crossing crossing
    cdef readonly Py_ssize_t statement
    cdef readonly Py_ssize_t first
    cdef readonly Py_ssize_t last
    cdef public double seconds
    cdef public object failure

    @property
    def part(self):
        """What it asks of the corpus."""
        return self.crossing.part


ctypedef struct Local:
    # A local node of an anchor, which has a number among those that differ.
    int64_t start
    int64_t end
    int64_t row
    int32_t anchor
    int32_t tag
    int32_t segment
    int16_t level


cdef int by_anchor(const void* one, const void* other) noexcept nogil:
    cdef const Local* a = <const Local*> one
    cdef const Local* b = <const Local*> other
    if a.anchor != b.anchor:
        return -1 if a.anchor < b.anchor else 1
    return (a.start > b.start) - (a.start < b.start)


@cython.final
cdef class Anchors:
    """The anchors of all crossings of a batch, numbered in the order they are added.

    A node of a message may be the anchor of many; `read` and `spread` do its work once.
    """

    cdef Py_ssize_t count, room
    cdef int64_t* lines       # of each anchor, the line that it is on
    cdef int64_t* rows        # its row in its message
    cdef int32_t* places      # the place of its message
    cdef int32_t* of          # which of the nodes that differ it is
    cdef int32_t* firsts      # of each of these, the first anchor
    cdef Py_ssize_t different
    cdef KeyList keys
    cdef Local* nodes         # local nodes that were found; `anchor` is one of those that differ
    cdef Py_ssize_t size, space

    def __cinit__(self):
        self.count = self.room = self.different = self.size = self.space = 0
        self.nodes = NULL
        self.lines = self.rows = NULL
        self.places = self.of = self.firsts = NULL

    def __dealloc__(self):
        free(self.lines)
        free(self.rows)
        free(self.places)
        free(self.of)
        free(self.firsts)
        free(self.nodes)

    def __len__(self):
        return self.count

    cdef int grow(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t room = max(self.count + more, 2 * self.room, 64)
        cdef void* moved
        if self.count + more <= self.room:
            return 0
        moved = realloc(self.lines, room * sizeof(int64_t))
        if moved == NULL:
            raise MemoryError
        self.lines = <int64_t*> moved
        moved = realloc(self.rows, room * sizeof(int64_t))
        if moved == NULL:
            raise MemoryError
        self.rows = <int64_t*> moved
        moved = realloc(self.places, room * sizeof(int32_t))
        if moved == NULL:
            raise MemoryError
        self.places = <int32_t*> moved
        self.room = room
        return 0

    cdef inline void put(self, int64_t line, int32_t place, int64_t row) noexcept:
        """Add an anchor; REQUIRES: `grow` has made room."""
        self.lines[self.count] = line
        self.places[self.count] = place
        self.rows[self.count] = row
        self.count += 1

    def add_rows(self, line, place, row):
        """Anchors by their lines, the places of their messages, and their rows there."""
        cdef Column of_line = column(line, INT64, 8)
        cdef Column of_place = column(place, INT64, 8)
        cdef Column of_row = column(row, INT64, 8)
        cdef Py_ssize_t count = of_line.rows, at
        if of_place.rows != count or of_row.rows != count:
            raise ValueError("columns of one length")
        self.grow(count)
        for at in range(count):
            self.put(int64s(of_line)[at], <int32_t> int64s(of_place)[at], int64s(of_row)[at])
        return self.count

    def at(self, Py_ssize_t number):
        """The place and the row of an anchor."""
        if not 0 <= number < self.count:
            raise IndexError(number)
        return self.places[number], self.rows[number]

    cdef int tell_apart(self) except -1:
        """Number the nodes that differ."""
        cdef Seen seen
        cdef Py_ssize_t at
        free(self.of)
        free(self.firsts)
        self.of = self.firsts = NULL
        self.of = <int32_t*> allocated(self.count, sizeof(int32_t))
        self.firsts = <int32_t*> allocated(self.count, sizeof(int32_t))
        begin_seen(&seen, self.count)
        for at in range(self.count):
            self.of[at] = number_of(&seen, self.places[at], self.rows[at]) - 1
            # A pair that is new has the highest number so far.
            if self.of[at] == self.different:
                self.firsts[self.different] = <int32_t> at
                self.different += 1
        free(seen.seats)
        return 0

    def read(self, list tables not None, resolver):
        """What the nodes are known by: their keys, which are kept for `identify`, or labels.

        `tables` are the messages, by place; `resolver.ways(vocabulary)` gives the ways to keys, by
        tags of that vocabulary. Answers with ([nodes], [labels]), where nodes are numbers that
        `locate` understands.
        """
        cdef Columns table = None
        cdef Py_ssize_t node, place = -1, row, at
        cdef int32_t carries = -1
        cdef list labelled = [], labels = []
        cdef int64_t label
        cdef object ways = None, way
        cdef dict by_tag = None
        self.different = self.size = 0
        self.keys = KeyList()
        self.tell_apart()
        for node in range(self.different):
            row = self.rows[self.firsts[node]]
            if self.places[self.firsts[node]] != place:
                place = self.places[self.firsts[node]]
                if table is None or table.vocabulary is not (<Columns?> tables[place]).vocabulary:
                    ways = resolver.ways((<Columns?> tables[place]).vocabulary)
                    carries = ways.label
                    by_tag = ways.by_tag
                table = tables[place]
            if not 0 <= row < table.rows:
                raise IndexError(f"no row {row} in a table of {table.rows}")
            if table.offsets == NULL:
                raise ForeignTable("the table was read without values, and keys are values")
            at = -1 if carries < 0 else attribute_at(table, row, carries)
            if at >= 0:
                label = label_of(
                    table.text + table.offsets[at], table.offsets[at + 1] - table.offsets[at]
                )
                if label >= 0:
                    labelled.append(node)
                    labels.append(label)
                continue
            way = by_tag.get(table.tags[row])
            if way is None:
                way = ways.find(table.tags[row])
            for steps, attribute in way[1]:
                self.keys.below(table, row, steps, 0, attribute, <int32_t> node, way[0])
        return labelled, labels

    def identify(self, dict known not None, finders, identify):
        """Find the local nodes that have the keys which were read.

        `known` has capsules, by element and segment: see `Segment.finder`; `finders(element)` gives
        those that are not there. What one of them cannot do, `identify(segment, element, keys)`
        does; it answers with (left, row, start, end, level), where `left` are places among the
        keys.
        """
        cdef Py_ssize_t at, count, done = 0, place
        cdef int32_t element
        cdef Text* texts
        cdef int32_t* whose
        cdef list capsules
        if not self.keys.count:
            return
        texts = <Text*> allocated(self.keys.count, sizeof(Text) + sizeof(int32_t))
        whose = <int32_t*> (texts + self.keys.count)
        try:
            # An element at a time: there are few.
            while done < self.keys.count:
                element = -1
                count = 0
                for at in range(self.keys.count):
                    if element < 0 and self.keys.rows[at].element >= 0:
                        element = self.keys.rows[at].element
                    if element >= 0 and self.keys.rows[at].element == element:
                        texts[count] = self.keys.rows[at].text
                        whose[count] = self.keys.rows[at].node
                        self.keys.rows[at].element = -1
                        count += 1
                capsules = known.get(element)
                if capsules is None:
                    capsules = finders(element)
                for place in range(len(capsules)):
                    if capsules[place] is None or self.find(
                        capsules[place], texts, whose, count, element, place
                    ):
                        continue
                    keys = [texts[at].data[:texts[at].size] for at in range(count)]
                    nodes = [whose[at] for at in range(count)]
                    self.locate(nodes, element, place, *identify(place, element, keys))
                done += count
        finally:
            free(texts)

    cdef bint find(
        self, capsule, const Text* texts, const int32_t* whose, Py_ssize_t count, int32_t element,
        Py_ssize_t place,
    ) except -1:
        """The nodes of a segment that have some keys; whether that was possible."""
        cdef const Finder* finder = <const Finder*> PyCapsule_GetPointer(capsule, "fmware.index.finder")
        cdef Py_ssize_t room = 2 * count + 16, found, at
        cdef Keyed* rows = <Keyed*> allocated(room, sizeof(Keyed))
        cdef Local* own
        try:
            with nogil:
                found = finder.find(
                    finder.keys, finder.nodes, finder.removed, texts, count, rows, room
                )
            if found < 0:
                return False
            self.make_room(found)
            for at in range(found):
                own = &self.nodes[self.size + at]
                own.anchor = whose[rows[at].key]
                own.tag = element
                own.segment = <int32_t> place
                own.row = rows[at].row
                own.start = rows[at].start
                own.end = rows[at].end
                own.level = rows[at].level
            self.size += found
            return True
        finally:
            free(rows)

    cdef int make_room(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t space = max(self.size + more, 2 * self.space, 16)
        cdef Local* moved
        if self.size + more <= self.space:
            return 0
        moved = <Local*> realloc(self.nodes, space * sizeof(Local))
        if moved == NULL:
            raise MemoryError
        self.nodes = moved
        self.space = space
        return 0

    def locate(
        self, list nodes not None, int32_t tag, int32_t segment, lefts, rows, starts, ends, levels
    ):
        """Local nodes of one tag in one segment that were found: `lefts` are places in `nodes`."""
        cdef Column left = column(lefts, INT64, 8), row = column(rows, INT64, 8)
        cdef Column start = column(starts, INT64, 8), end = column(ends, INT64, 8)
        cdef Column level = column(levels, INT16, 2)
        cdef Py_ssize_t at
        cdef Local* own
        if not left.rows == row.rows == start.rows == end.rows == level.rows:
            raise ValueError("columns of one length")
        self.make_room(left.rows)
        for at in range(left.rows):
            if not 0 <= int64s(left)[at] < len(nodes):
                raise IndexError("a local node of an anchor that was not asked for")
            own = &self.nodes[self.size]
            own.anchor = nodes[int64s(left)[at]]
            own.tag = tag
            own.segment = segment
            own.row = int64s(row)[at]
            own.start = int64s(start)[at]
            own.end = int64s(end)[at]
            own.level = int16s(level)[at]
            if not 0 <= own.anchor < self.different or tag < 0:
                raise IndexError("a local node of an anchor that was not read")
            self.size += 1

    def spread(self):
        """The local nodes of all anchors, in the order of the anchors.

        A node that an anchor has by several keys comes once.
        """
        cdef Py_ssize_t at, kept = 0, node, total = 0, anchor
        cdef Local* nodes = self.nodes
        cdef Local* target
        cdef int32_t* starts = NULL
        cdef LocalNodes found = LocalNodes.__new__(LocalNodes)
        cdef bint in_order = True
        found.missing = []
        try:
            for at in range(1, self.size):
                if by_anchor(&nodes[at - 1], &nodes[at]) > 0:
                    in_order = False
                    break
            if not in_order:
                qsort(nodes, self.size, sizeof(Local), by_anchor)
            for at in range(self.size):
                if kept == 0 or by_anchor(&nodes[kept - 1], &nodes[at]) != 0:
                    nodes[kept] = nodes[at]
                    kept += 1
            self.size = kept
            # Where the local nodes of each node begin.
            starts = <int32_t*> allocated(self.different + 1, sizeof(int32_t))
            at = 0
            for node in range(self.different):
                starts[node] = <int32_t> at
                while at < kept and nodes[at].anchor == node:
                    at += 1
                if at == starts[node]:
                    found.missing.append(self.firsts[node])
            starts[self.different] = <int32_t> at
            for anchor in range(self.count):
                total += starts[self.of[anchor] + 1] - starts[self.of[anchor]]
            found.rows = <Local*> allocated(total, sizeof(Local))
            found.count = total
            target = found.rows
            for anchor in range(self.count):
                for at in range(starts[self.of[anchor]], starts[self.of[anchor] + 1]):
                    target[0] = nodes[at]
                    target.anchor = <int32_t> anchor
                    target += 1
            return found
        finally:
            free(starts)


cdef object made_inputs(tuple columns, object rank, object last, object scheme):
    """`Inputs`, filled as its own constructor fills it, because it is frozen, but natively."""
    cdef object made = (<PyTypeObject*> Inputs).tp_new(Inputs, <PyObject*> nothing, NULL)
    PyObject_GenericSetAttr(made, "id", columns[0])
    PyObject_GenericSetAttr(made, "segment", columns[1])
    PyObject_GenericSetAttr(made, "start", columns[2])
    PyObject_GenericSetAttr(made, "end", columns[3])
    PyObject_GenericSetAttr(made, "level", columns[4])
    PyObject_GenericSetAttr(made, "rank", rank)
    PyObject_GenericSetAttr(made, "last", last)
    PyObject_GenericSetAttr(made, "scheme", scheme)
    return made


@cython.final
cdef class LocalNodes:
    """The local nodes of anchors, in their order; `missing` are anchors that have none.

    Of anchors that are the same node of a message, `missing` has the first.
    """

    cdef Local* rows
    cdef Py_ssize_t count
    cdef readonly list missing

    def __cinit__(self):
        self.rows = NULL
        self.count = 0

    def __dealloc__(self):
        free(self.rows)

    def __len__(self):
        return self.count

    cdef Py_ssize_t from_anchor(self, int64_t anchor) noexcept nogil:
        """Where the local nodes begin whose anchor is not below one."""
        cdef Py_ssize_t low = 0, high = self.count, middle
        while low < high:
            middle = (low + high) >> 1
            if self.rows[middle].anchor < anchor:
                low = middle + 1
            else:
                high = middle
        return low

    def inputs(self, int64_t first, int64_t last):
        """Those of the anchors from `first` to before `last`, as inputs without SES labels.

        The ids are anchors.
        """
        cdef Py_ssize_t low = self.from_anchor(first), high = self.from_anchor(last), at
        cdef Py_ssize_t count = max(high - low, 0)
        cdef const Local* own = self.rows + low
        found = (
            empty(count, INT64), empty(count, INT32), empty(count, INT64), empty(count, INT64),
            empty(count, INT16),
        )
        cdef Column anchor = column(found[0], INT64, 8), segment = column(found[1], INT32, 4)
        cdef Column start = column(found[2], INT64, 8), end = column(found[3], INT64, 8)
        cdef Column level = column(found[4], INT16, 2)
        for at in range(count):
            int64s(anchor)[at] = own[at].anchor
            int32s(segment)[at] = own[at].segment
            int64s(start)[at] = own[at].start
            int64s(end)[at] = own[at].end
            int16s(level)[at] = own[at].level
        return made_inputs(found, None, None, None)

    def nodes(self):
        """Of each its anchor, its tag, and its row in the list of that tag."""
        cdef Py_ssize_t at
        found = empty(self.count, INT64), empty(self.count, INT64), empty(self.count, INT64)
        cdef Column anchor = column(found[0], INT64, 8), tag = column(found[1], INT64, 8)
        cdef Column row = column(found[2], INT64, 8)
        for at in range(self.count):
            int64s(anchor)[at] = self.rows[at].anchor
            int64s(tag)[at] = self.rows[at].tag
            int64s(row)[at] = self.rows[at].row
        return found


# --- pairs --------------------------------------------------------------------------------------


ctypedef struct Pair:
    int64_t id
    int64_t start
    int64_t end
    int32_t segment
    int16_t level


cdef int by_id(const void* one, const void* other) noexcept nogil:
    cdef const Pair* a = <const Pair*> one
    cdef const Pair* b = <const Pair*> other
    if a.id != b.id:
        return -1 if a.id < b.id else 1
    return (a.start > b.start) - (a.start < b.start)


@cython.final
cdef class Answer:
    """`Matches` as a sink, whose columns it holds."""

    cdef Sink sink
    cdef Column id, segment, start, end, level

    def __cinit__(self, matches):
        self.id, self.segment = column(matches.id, INT64, 8), column(matches.segment, INT32, 4)
        self.start, self.end = column(matches.start, INT64, 8), column(matches.end, INT64, 8)
        self.level = column(matches.level, INT16, 2)
        if not (
            self.id.rows == self.segment.rows == self.start.rows == self.end.rows == self.level.rows
        ):
            raise ValueError("columns of one length")
        self.sink.id, self.sink.start, self.sink.end = (
            int64s(self.id), int64s(self.start), int64s(self.end)
        )
        self.sink.segment, self.sink.level = int32s(self.segment), int16s(self.level)
        self.sink.size = self.id.rows


cdef inline void put_pair(Pair* own, int64_t id, const Sink* sink, Py_ssize_t at) noexcept:
    own.id = id
    own.segment = sink.segment[at]
    own.start = sink.start[at]
    own.end = sink.end[at]
    own.level = sink.level[at]


@cython.final
cdef class Pairs:
    """The pairs of several answers as one, by id and then in document order, each once."""

    cdef Pair* rows
    cdef Py_ssize_t count, room

    def __cinit__(self):
        self.rows = NULL
        self.count = self.room = 0

    def __dealloc__(self):
        free(self.rows)

    def __init__(self, list parts not None):
        for part in parts:
            self.add(part)
        self.sort()

    cdef int grow(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t room = max(self.count + more, 2 * self.room, 32)
        cdef Pair* moved
        if self.count + more <= self.room:
            return 0
        moved = <Pair*> realloc(self.rows, room * sizeof(Pair))
        if moved == NULL:
            raise MemoryError
        self.rows = moved
        self.room = room
        return 0

    cdef int add(self, part) except -1:
        """Pairs of an answer, in no order."""
        cdef Answer answer = Answer(part)
        cdef Py_ssize_t at
        self.grow(answer.sink.size)
        for at in range(answer.sink.size):
            put_pair(&self.rows[self.count + at], answer.sink.id[at], &answer.sink, at)
        self.count += answer.sink.size
        return 0

    cdef int join(self, Pairs other) except -1:
        """Those of another one too."""
        self.grow(other.count)
        if other.count:
            memcpy(self.rows + self.count, other.rows, other.count * sizeof(Pair))
        self.count += other.count
        return 0

    cdef void sort(self) noexcept:
        """Into order, each once."""
        cdef Py_ssize_t at, kept = 0
        for at in range(1, self.count):
            if by_id(&self.rows[at - 1], &self.rows[at]) >= 0:
                break
        else:
            return
        with nogil:
            qsort(self.rows, self.count, sizeof(Pair), by_id)
            for at in range(self.count):
                if kept == 0 or by_id(&self.rows[kept - 1], &self.rows[at]) != 0:
                    self.rows[kept] = self.rows[at]
                    kept += 1
        self.count = kept

    def __len__(self):
        return self.count

    cdef Py_ssize_t from_id(self, int64_t id) noexcept nogil:
        """Where the pairs begin whose id is not below one."""
        cdef Py_ssize_t low = 0, high = self.count, middle
        while low < high:
            middle = (low + high) >> 1
            if self.rows[middle].id < id:
                low = middle + 1
            else:
                high = middle
        return low

    def between(self, int64_t first, int64_t last):
        """Those whose ids are in [first, last)."""
        cdef Py_ssize_t low = self.from_id(first), at
        cdef Py_ssize_t count = max(self.from_id(last) - low, 0)
        cdef const Pair* own = self.rows + low
        found = (
            empty(count, INT64), empty(count, INT32), empty(count, INT64), empty(count, INT64),
            empty(count, INT16),
        )
        cdef Column id = column(found[0], INT64, 8), segment = column(found[1], INT32, 4)
        cdef Column start = column(found[2], INT64, 8), end = column(found[3], INT64, 8)
        cdef Column level = column(found[4], INT16, 2)
        for at in range(count):
            int64s(id)[at] = own[at].id
            int32s(segment)[at] = own[at].segment
            int64s(start)[at] = own[at].start
            int64s(end)[at] = own[at].end
            int16s(level)[at] = own[at].level
        return Matches(*found)


# --- joins --------------------------------------------------------------------------------------


@cython.final
cdef class JoinState:
    """A join, its operator, and what was recorded of it.

    `operator` is None until it is needed, and after an error. `room` is how many inputs are still
    to be recorded. Guarded by the lock of `Joins`; `operator` may be read without.
    """

    cdef readonly object join
    cdef object runs             # the operator: Cython knows that word from C++
    cdef public object recording
    cdef public Py_ssize_t room

    def __init__(self, join):
        self.join = join

    @property
    def operator(self):
        return self.runs

    @operator.setter
    def operator(self, made):
        self.runs = made


@cython.final
cdef class Share:
    """What one statement had of one join.

    Of a batch that several statements share, each has its part by the inputs it put in.
    """

    cdef public double batches
    cdef public int64_t inputs
    cdef public int64_t pairs
    cdef public double seconds


@cython.final
cdef class LabelLists:
    """The SES labels of one tag under one scheme: capsules by segment (`Segment.labeller`)."""

    cdef readonly str scheme
    cdef Py_ssize_t tag
    cdef list capsules
    cdef const Labeller** at
    cdef Py_ssize_t count

    def __cinit__(self, str scheme not None, Py_ssize_t tag, list capsules not None):
        cdef Py_ssize_t place
        self.scheme = scheme
        self.tag = tag
        self.capsules = capsules
        self.count = len(capsules)
        self.at = <const Labeller**> allocated(self.count, sizeof(Labeller*))
        for place in range(self.count):
            self.at[place] = NULL
            if capsules[place] is not None:
                self.at[place] = <const Labeller*> PyCapsule_GetPointer(
                    capsules[place], "fmware.index.labeller"
                )

    def __dealloc__(self):
        free(self.at)


ctypedef struct Part:
    # What one crossing had of one join.
    int64_t inputs
    int64_t pairs
    double part
    int64_t spent        # on all of the join, in nanoseconds by the wall


# --- a batch ------------------------------------------------------------------------------------


ctypedef struct Line:
    # A path tuple of a statement: where its rows begin, and the place of its message.
    int64_t at
    int32_t place


cdef class Hits  # below


ctypedef struct Hit:
    int64_t at
    int64_t start
    int64_t end
    int32_t statement
    int32_t place
    int32_t segment
    int16_t level


cdef enum:
    CROSSED = 4          # numbers in a line of `FilterBatch.crossed`
    PAGE_SHIFT = 10      # of a `Registry`
    PAGE_SIZE = 1 << PAGE_SHIFT
    BY_NODE = 0          # see `Plan.apart`
    BY_TUPLE = 1
    BY_ROW = 2


@cython.final
cdef class Clock:
    """The clock of a batch: `seconds` of stages that follow each other."""

    cdef readonly dict seconds
    cdef int64_t last

    def __cinit__(self):
        self.seconds = {}
        self.last = nanoseconds()

    def lap(self, str stage not None):
        """A stage has ended."""
        cdef int64_t now = nanoseconds()
        self.seconds[stage] = (now - self.last) / 1e9
        self.last = now


@cython.final
cdef class Ids:
    """Gives out ids of anchors that no other batch has."""

    cdef int64_t next

    cdef int64_t take(self, Py_ssize_t count) noexcept:
        """The first of that many; the GIL keeps threads apart."""
        cdef int64_t first = self.next
        self.next += count
        return first


@cython.boundscheck(True)
cdef list plans_at(list pages, list numbers):
    """Plans by the number of their statement; `pages` as a `Registry` has them."""
    cdef Py_ssize_t number
    return [(<list> pages[number >> PAGE_SHIFT])[number & (PAGE_SIZE - 1)] for number in numbers]


@cython.final
cdef class Batch:
    """The way of a batch from the path tuples of its messages to local nodes and back.

    Args:
        passed: the `FilterBatch`: `crossed` says which statements let messages pass, `rows` has
            their path tuples.
        registry: the plans of the statements.
        most: pairs that a message may have of all joins. What would be more is left out, and the
            statements are in `truncated`.

    - `tables`: the messages, by place; None where nothing passed.
    - `plans`: the statements that let messages pass. Of each, `numbers` has its number, and
      `widths` how many rows a path tuple has. `asked`: their crossings, by anchors.
    - `done`: whether all crossings ask for no more than their first step.
    - `waiting`: whether pairs are still to come, for which `settle` waits.

    When it has ended:

    - `hits`: the matches, in the order of messages.
    - `failures`: statements that could not be answered, why, and the places of their messages.
    - `truncated`: (number of the plan, place) of what was left out.
    - `troubled`: whether there is anything to say beside `hits`.
    """

    cdef readonly Anchors anchors
    cdef readonly LocalNodes found
    cdef readonly Pairs pairs
    cdef readonly list tables
    cdef readonly list plans
    cdef readonly list numbers
    cdef readonly list asked
    cdef readonly list groups        # crossings that seek the same, from anchors of the same name
    cdef readonly bint done
    cdef readonly set truncated
    cdef readonly Hits hits
    cdef readonly list failures
    cdef int64_t base                # the id of the first anchor: ids are unique among batches
    cdef list by_statement           # of each plan its crossings
    cdef list later                  # joins whose operators still fetch: (state, operator, mark, group)
    cdef Pairs late                  # pairs that other threads were given; guarded by `Joins.lock`
    cdef list owners                 # of each part, the plan and the state of the join
    cdef Line* lines                 # of all statements, one after the other
    cdef int64_t* begins             # where the lines of each statement begin; last, their number
    cdef int64_t* wide               # how many rows a tuple of each statement has
    cdef const int32_t* rows
    cdef Column held_rows
    cdef Py_ssize_t messages
    cdef int64_t most
    cdef int64_t* pairs_of           # of each message, how many it has of all joins
    cdef int64_t* matches_of         # of each statement, how many matches
    cdef Part* parts
    cdef Py_ssize_t count, room
    cdef int64_t began, spent
    # The inputs of an operator in columns.
    cdef void* memory
    cdef Py_ssize_t space
    cdef Rows inputs
    cdef int64_t* listed
    cdef int32_t* tags
    cdef Sink sink                   # the pairs of the inputs that were fed last

    def __cinit__(self):
        memset(&self.sink, 0, sizeof(Sink))
        self.lines = NULL
        self.begins = self.wide = self.pairs_of = self.matches_of = NULL
        self.parts = NULL
        self.memory = NULL
        self.count = self.room = self.space = 0

    def __dealloc__(self):
        free(self.lines)
        free(self.begins)
        free(self.wide)
        free(self.pairs_of)
        free(self.matches_of)
        free(self.parts)
        free(self.memory)
        drop_sink(&self.sink)

    def __init__(self, passed, registry, int64_t most):
        cdef Column crossed = column_of(passed.raw("crossed"), 8)
        self.held_rows = column_of(passed.raw("rows"), 4)
        self.rows = int32s(self.held_rows)
        self.tables = passed.crossed_tables()
        self.messages = len(self.tables)
        self.most = most
        self.pairs = Pairs([])
        self.truncated = set()
        self.later = []
        self.late = None
        self.owners = []
        self.began = worked()
        self.spent = 0
        self.pairs_of = <int64_t*> calloc(self.messages + 1, sizeof(int64_t))
        if self.pairs_of == NULL:
            raise MemoryError
        self.number(crossed, passed.ends_of(2), registry)
        self.gather(passed)

    cdef int number(self, Column crossed, list ends, registry) except -1:
        """The statements, and their lines: message by message, as places ascend."""
        cdef const int64_t* line = int64s(crossed)
        cdef Py_ssize_t count = crossed.rows // CROSSED, at, place = 0, end = 0, number
        cdef int64_t tuple_
        cdef int32_t* whose = <int32_t*> allocated(count, sizeof(int32_t))
        cdef Line* target
        cdef dict known = {}
        cdef list numbers = []
        try:
            for at in range(count):
                found = known.get(line[at * CROSSED])
                if found is None:
                    found = known[line[at * CROSSED]] = len(numbers)
                    numbers.append(line[at * CROSSED])
                whose[at] = found
            self.plans = plans_at(registry.pages, numbers)
            self.numbers = numbers
            self.begins = <int64_t*> calloc(len(numbers) + 2, sizeof(int64_t))
            self.wide = <int64_t*> allocated(len(numbers), sizeof(int64_t))
            self.matches_of = <int64_t*> calloc(len(numbers) + 1, sizeof(int64_t))
            if self.begins == NULL or self.matches_of == NULL:
                raise MemoryError
            for at in range(count):
                self.begins[whose[at] + 2] += line[at * CROSSED + 2]
                self.wide[whose[at]] = line[at * CROSSED + 3]
            for number in range(len(numbers)):
                self.begins[number + 2] += self.begins[number + 1]
            # Each `begins[number + 1]` moves on to where the next statement's lines begin.
            self.lines = <Line*> allocated(self.begins[len(numbers) + 1], sizeof(Line))
            for at in range(count):
                while at >= end:
                    end = ends[place]
                    place += 1
                number = whose[at]
                target = self.lines + self.begins[number + 1]
                for tuple_ in range(line[at * CROSSED + 2]):
                    target[tuple_].at = line[at * CROSSED + 1] + tuple_ * line[at * CROSSED + 3]
                    target[tuple_].place = <int32_t> (place - 1)
                self.begins[number + 1] += line[at * CROSSED + 2]
        finally:
            free(whose)
        return 0

    cdef int gather(self, passed) except -1:
        """The crossings of all statements in groups, and their anchors."""
        cdef dict by_seek = {}
        cdef list own, members
        cdef Crossing crossing
        cdef Asked asked
        cdef Anchors anchors = Anchors()
        cdef Py_ssize_t number
        cdef int64_t at
        self.anchors = anchors
        self.by_statement = []
        self.asked = []
        self.groups = []
        self.done = True
        for number in range(len(self.plans)):
            own = []
            for crossing in (<Prepared?> self.plans[number]).crossings:
                asked = Asked.__new__(Asked)
                asked.crossing = crossing
                asked.statement = number
                own.append(asked)
                members = by_seek.get(crossing.seek)
                if members is None:
                    members = by_seek[crossing.seek] = []
                    self.groups.append((crossing.seek, members))
                members.append(asked)
            self.by_statement.append(own)
        for _, members in self.groups:
            for asked in members:
                crossing = asked.crossing
                number = asked.statement
                asked.first = anchors.count
                if crossing.direct:
                    if not 0 <= crossing.step < self.wide[number]:
                        raise IndexError("a step that path tuples do not have")
                    anchors.grow(self.begins[number + 1] - self.begins[number])
                    for at in range(self.begins[number], self.begins[number + 1]):
                        anchors.put(
                            at, self.lines[at].place, self.rows[self.lines[at].at + crossing.step]
                        )
                else:
                    self.branch(crossing.anchor, number, passed.rows)
                asked.last = anchors.count
                self.done = self.done and crossing.done
                self.asked.append(asked)
        return 0

    cdef int branch(self, anchor, Py_ssize_t number, rows) except -1:
        """The anchors that a branch leads to from the tuples of a statement."""
        cdef int64_t begin = self.begins[number], end, width = self.wide[number], at
        cdef int32_t place
        cdef Column lines, found
        while begin < self.begins[number + 1]:
            # The tuples of a statement in one message follow each other.
            place = self.lines[begin].place
            end = begin
            while end < self.begins[number + 1] and self.lines[end].place == place:
                end += 1
            at = self.lines[begin].at
            tuples = rows[at:at + (end - begin) * width].reshape(end - begin, width)
            of_line, of_row = anchor.rows(self.tables[place], tuples)
            lines, found = column(of_line, INT64, 8), column(of_row, INT64, 8)
            self.anchors.grow(lines.rows)
            for at in range(lines.rows):
                self.anchors.put(begin + int64s(lines)[at], place, int64s(found)[at])
            begin = end
        return 0

    # --- joins ------------------------------------------------------------------------------

    def resolve(self, crossings):
        """Find the local nodes of all anchors.

        Raises:
            ForeignTable: a table was read without values.
        """
        self.found = crossings.resolver.find(self.anchors, self.tables)
        self.base = (<Ids?> crossings.joins.ids).take(self.anchors.count)

    def unmatched(self):
        """By place, how many anchors have no local node, each node once."""
        cdef dict counts = {}
        cdef Py_ssize_t number
        for number in self.found.missing:
            place = self.anchors.places[number]
            counts[place] = counts.get(place, 0) + 1
        return counts

    def full(self):
        """The places of messages that have had all their pairs: if there was more is then chance."""
        cdef Py_ssize_t place
        return {place for place in range(self.messages) if self.pairs_of[place] >= self.most}

    cdef bint filled(self) noexcept:
        """Whether there are any."""
        cdef Py_ssize_t place
        for place in range(self.messages):
            if self.pairs_of[place] >= self.most:
                return True
        return False

    def unmatched_by(self, list owners not None):
        """The same by place and owner: `owners` has that of each plan.

        A node counts once for each owner that has a statement which it is an anchor of.
        """
        cdef dict counts = {}
        cdef set seen = set()
        cdef Asked asked
        cdef Py_ssize_t number
        cdef int32_t node
        cdef bytearray missing = bytearray(self.anchors.different)
        for number in self.found.missing:
            missing[self.anchors.of[number]] = 1
        for asked in self.asked:
            owner = owners[asked.statement]
            for number in range(asked.first, asked.last):
                node = self.anchors.of[number]
                if missing[node] and (owner, node) not in seen:
                    seen.add((owner, node))
                    key = self.anchors.places[number], owner
                    counts[key] = counts.get(key, 0) + 1
        return counts

    def ask(self, crossings):
        """Have the operators of all groups take their local nodes; `Crossings.ask` does the rest."""
        cdef dict states = crossings.states
        cdef list group
        for key, group in self.groups:
            state = states.get(key)
            if state is None or (<Asked> group[0]).crossing.part.itself:
                crossings.ask(self, key, group)
                continue
            try:
                self.feed(crossings, state, group)
            except (MatchError, StoreError):
                crossings.ask(self, key, group)

    def feed(self, crossings, JoinState state not None, list group not None):
        """Have the operator of a join take the local nodes of a group.

        `crossings` is the `Crossings` that the batch is asked of. If the operator fails, the group
        is joined by AD label, from other lists of the index, and the next batch gets another
        operator. If that fails, too, no pairs of the group are kept.
        """
        cdef Py_ssize_t low, high, before = self.pairs.count, at
        cdef int64_t began = nanoseconds()
        cdef Asked first = group[0], last = group[len(group) - 1]
        low, high = self.found.from_anchor(first.first), self.found.from_anchor(last.last)
        try:
            try:
                self.pass_on(crossings, state, group, low, high)
            except MatchError as error:
                self.pairs.count = before
                crossings.joins.failed(state.join, error)
                self.join_by_label(crossings, state, low, high)
        except BaseException:
            self.pairs.count = before
            raise
        began = nanoseconds() - began
        self.spent += began
        self.share(state, group, low, high, before, began)

    cdef int pass_on(
        self, crossings, JoinState state, list group, Py_ssize_t low, Py_ssize_t high
    ) except -1:
        """Pieces whose pairs are sure to fit, one after the other; mostly there is one."""
        cdef Py_ssize_t before
        cdef object runs
        while low < high:
            runs = state.runs
            if runs is None:
                runs = crossings.joins.operator(state.join)
            before = self.pairs.count
            low = self.fill(low, high)
            if not self.inputs.count:
                return 0
            self.counted(before, self.take(crossings, state, runs, group))
        return 0

    cdef int join_by_label(
        self, crossings, JoinState state, Py_ssize_t low, Py_ssize_t high
    ) except -1:
        """The same without the operator of the join."""
        cdef Py_ssize_t before
        cdef object matches
        while low < high:
            before = self.pairs.count
            low = self.fill(low, high)
            if not self.inputs.count:
                return 0
            matches = crossings.by_label(state.join, self.as_inputs(crossings, None, False))
            self.pour_all(crossings.joins, matches)
            self.counted(before, False)
        return 0

    cdef Py_ssize_t fill(self, Py_ssize_t low, Py_ssize_t high) except -1:
        """Columns of local nodes that have, together, not more pairs than one message may have.

        A node has at most as many pairs as there are nodes below it, or above it. Nodes of messages
        that have had all their pairs are left out. Gives where the next piece begins.
        """
        cdef const Local* own
        cdef Py_ssize_t count = 0, at = low
        cdef int64_t most, weight = 0
        cdef int32_t place
        cdef int64_t* ids
        cdef int64_t* starts
        cdef int64_t* ends
        self.reserve(high - low)
        ids, starts, ends = <int64_t*> self.inputs.id, <int64_t*> self.inputs.start, <int64_t*> self.inputs.end
        while at < high:
            own = &self.found.rows[at]
            most = max((own.end - own.start) >> 1, own.level + 1)
            if count and weight + most > self.most:
                break
            place = self.anchors.places[own.anchor]
            at += 1
            if self.pairs_of[place] >= self.most:
                self.leave_out(own.anchor, place)
                continue
            weight += most
            ids[count] = self.base + own.anchor
            starts[count] = own.start
            ends[count] = own.end
            self.listed[count] = own.row
            self.tags[count] = own.tag
            (<int32_t*> self.inputs.segment)[count] = own.segment
            (<int16_t*> self.inputs.level)[count] = own.level
            count += 1
        self.inputs.count = count
        return at

    cdef int leave_out(self, int64_t anchor, int32_t place) except -1:
        """An anchor is not joined: its statement is truncated for that message."""
        cdef Py_ssize_t low = 0, high = len(self.asked), middle
        while low + 1 < high:
            middle = (low + high) >> 1
            if (<Asked> self.asked[middle]).first <= anchor:
                low = middle
            else:
                high = middle
        self.truncated.add(((<Asked> self.asked[low]).statement, place))
        return 0

    cdef int reserve(self, Py_ssize_t count) except -1:
        """Room for the columns of that many inputs."""
        cdef int64_t* first
        if count <= self.space:
            return 0
        free(self.memory)
        self.memory = NULL
        self.space = 0
        self.memory = allocated(2 * count + 16, 6 * 8 + 2 * 4 + 2)
        self.space = 2 * count + 16
        first = <int64_t*> self.memory
        self.inputs.id = first
        self.inputs.start = first + self.space
        self.inputs.end = first + 2 * self.space
        self.inputs.rank = first + 3 * self.space
        self.inputs.last = first + 4 * self.space
        self.listed = first + 5 * self.space
        self.inputs.segment = <int32_t*> (first + 6 * self.space)
        self.tags = <int32_t*> (first + 6 * self.space) + self.space
        self.inputs.level = <int16_t*> (self.tags + self.space)
        return 0

    cdef bint label(self, crossings, scheme) except -1:
        """Look up the SES labels of the inputs; whether they could be had."""
        cdef LabelLists lists = None
        cdef const Labeller* labeller
        cdef Py_ssize_t at = 0, end
        cdef int32_t segment
        cdef dict known = crossings.resolver.label_lists
        while at < self.inputs.count:
            end = at + 1
            segment = self.inputs.segment[at]
            while (
                end < self.inputs.count and self.inputs.segment[end] == segment
                and self.tags[end] == self.tags[at]
            ):
                end += 1
            if lists is None or lists.tag != self.tags[at]:
                lists = known.get((self.tags[at], scheme))
                if lists is None:
                    lists = crossings.resolver.labels(self.tags[at], scheme)
                if lists is None:
                    return False
            labeller = lists.at[segment] if segment < lists.count else NULL
            if labeller == NULL or labeller.get(
                labeller.nodes, labeller.labels, labeller.removed, labeller.scheme,
                self.listed + at, end - at, <int64_t*> self.inputs.rank + at,
                <int64_t*> self.inputs.last + at,
            ):
                return False
            at = end
        return True

    cdef object as_inputs(self, crossings, scheme, bint labelled):
        """The columns as `Inputs`, with SES labels if a scheme is given."""
        cdef Py_ssize_t count = self.inputs.count
        cdef object rank = None, last = None
        found = (
            copied(self.inputs.id, count, 8, INT64), copied(self.inputs.segment, count, 4, INT32),
            copied(self.inputs.start, count, 8, INT64), copied(self.inputs.end, count, 8, INT64),
            copied(self.inputs.level, count, 2, INT16),
        )
        if scheme is not None:
            if labelled:
                rank = copied(self.inputs.rank, count, 8, INT64)
                last = copied(self.inputs.last, count, 8, INT64)
            else:
                rank, last = crossings.resolver.labelled(
                    copied(self.tags, count, 4, INT32), found[1],
                    copied(self.listed, count, 8, INT64), scheme,
                )
        return made_inputs(found, rank, last, scheme)

    cdef bint take(self, crossings, JoinState state, runs, list group) except -1:
        """Feed an operator; whether it still fetches something, so that more pairs may come."""
        cdef object joins = crossings.joins, scheme = runs.needs, capsule = runs.feeder
        cdef bint labelled = False, waits
        cdef int more
        cdef int64_t before
        cdef const Feeder* feeder = NULL
        if scheme is not None:
            if scheme in crossings.index.schemes:
                labelled = self.label(crossings, scheme)
            else:
                scheme = None    # Operators of a newer generation may need labels that this one lacks.
        if capsule is not None:
            feeder = <const Feeder*> PyCapsule_GetPointer(capsule, "fmware.cmatch.feeder")
            if feeder.shared and joins.index is crossings.index and runs.needs is None:
                try:
                    more = feeder.feed(feeder.taker, &self.inputs, &self.sink)
                except OperatorClosed:
                    more = 1    # Another thread has put an operator in its place, or it was closed.
                if not more:
                    self.pour(joins, &self.sink)
                    if state.room > 0:
                        with joins.lock:
                            self.record(joins, state, None)
                    return False
        with joins.lock:
            if joins.index is not crossings.index:
                own = self.as_inputs(crossings, None, False)
                self.pour_all(joins, crossings.by_label(state.join, own))
                return False
            runs = state.runs
            if runs is None:
                runs = joins.operator(state.join)
            capsule = runs.feeder
            if capsule is None or runs.needs != scheme or (scheme is not None and not labelled):
                stored = runs.stored
                self.pour_all(joins, joins.feed(state, self.as_inputs(crossings, scheme, labelled)))
                waits = runs.stored != stored
            else:
                feeder = <const Feeder*> PyCapsule_GetPointer(capsule, "fmware.cmatch.feeder")
                before = 0 if feeder.stored == NULL else feeder.stored[0]
                more = feeder.feed(feeder.taker, &self.inputs, &self.sink)
                self.pour(joins, &self.sink)
                if more:
                    own = self.as_inputs(crossings, scheme, labelled)
                    self.pour_all(joins, joins.resume(state, own))
                # Of another operator that has taken its place, inputs may be stored, too.
                waits = (feeder.stored != NULL and feeder.stored[0] != before) or (
                    more and runs.feeder is not capsule
                )
                if state.room > 0:
                    self.record(joins, state, scheme)
            if not waits:
                return False
            mark = runs.mark
            if runs.reached(mark):
                # Other threads were quick. What they have found comes when it is asked for.
                self.pour_all(joins, runs.poll())
                return False
            if not self.later:
                joins.waiting.append(self)
            self.later.append((state, runs, mark, group))
            return True

    cdef int record(self, joins, JoinState state, scheme) except -1:
        """Keep the inputs, so that other ways can be tried on them; REQUIRES: `Joins.lock`.

        If a scheme is given, they have its labels.
        """
        cdef Py_ssize_t count = self.inputs.count
        cdef tuple columns = (
            <bytes> (<const char*> self.inputs.id)[:8 * count],
            <bytes> (<const char*> self.inputs.segment)[:4 * count],
            <bytes> (<const char*> self.inputs.start)[:8 * count],
            <bytes> (<const char*> self.inputs.end)[:8 * count],
            <bytes> (<const char*> self.inputs.level)[:2 * count],
        )
        if scheme is not None:
            columns += (
                <bytes> (<const char*> self.inputs.rank)[:8 * count],
                <bytes> (<const char*> self.inputs.last)[:8 * count],
            )
        joins.record(state, columns, count, scheme)
        return 0

    cdef int pour(self, joins, const Sink* sink) except -1:
        """Pairs of an operator: those of this batch, and maybe of others that wait."""
        return deliver_sink(joins, sink, self)

    cdef int pour_all(self, joins, matches) except -1:
        """The same for `Matches`."""
        cdef Answer answer
        if not len(matches.id):
            return 0
        answer = Answer(matches)
        return self.pour(joins, &answer.sink)

    cdef int counted(self, Py_ssize_t before, bint more) except -1:
        """Count the pairs of each message from `before` on, and if more come, how many at most."""
        cdef Py_ssize_t at
        for at in range(before, self.pairs.count):
            self.pairs_of[self.anchors.places[self.pairs.rows[at].id]] += 1
        if more:
            for at in range(self.inputs.count):
                self.pairs_of[self.anchors.places[self.inputs.id[at] - self.base]] += max(
                    (self.inputs.end[at] - self.inputs.start[at]) >> 1, self.inputs.level[at] + 1
                )
        return 0

    @property
    def waiting(self):
        return bool(self.later)

    @property
    def ready(self):
        """Whether `settle` would not have to wait."""
        return all([runs.reached(mark) for _, runs, mark, _ in self.later])

    def settle(self, crossings):
        """Wait for what operators still fetch, and take its pairs.

        Of a join whose operator has failed meanwhile, all pairs are found by AD label. Gives the
        crossings for which that failed, too, with their errors.
        """
        cdef object joins = crossings.joins
        cdef list failed = []
        cdef Asked first, last
        cdef Py_ssize_t low, high
        if not self.later:
            self.joined()
            return failed
        try:
            for state, runs, mark, group in self.later:
                try:
                    runs.wait(mark)
                    with joins.lock:
                        self.pour_all(joins, runs.poll())
                        whole = (<JoinState> state).runs is runs
                    if whole:
                        continue
                except MatchError as error:
                    joins.failed(state.join, error)
                first, last = group[0], group[len(group) - 1]
                low, high = self.found.from_anchor(first.first), self.found.from_anchor(last.last)
                try:
                    self.join_by_label(crossings, state, low, high)
                except (MatchError, StoreError) as error:
                    failed.append((group, error))
        finally:
            with joins.lock:
                joins.waiting.remove(self)
                self.later = []
                if self.late is not None:
                    self.pairs.join(self.late)
                    self.late = None
        self.joined()
        return failed

    def give_up(self, joins):
        """Forget what operators still fetch: the batch will not be answered."""
        with joins.lock:
            if self.later:
                joins.waiting.remove(self)
                self.later = []

    def add(self, matches):
        """Pairs of anchors, by their number, that were found in another way."""
        self.pairs.add(matches)

    cdef int share(
        self, JoinState state, list group, Py_ssize_t low, Py_ssize_t high, Py_ssize_t before,
        int64_t spent,
    ) except -1:
        """What each crossing of a group had of a join, whose pairs are those from `before` on."""
        cdef Py_ssize_t count = len(group), at, crossing = 0, base = self.count
        cdef Part* part
        cdef void* moved
        if base + count > self.room:
            moved = realloc(self.parts, 2 * (base + count) * sizeof(Part))
            if moved == NULL:
                raise MemoryError
            self.parts = <Part*> moved
            self.room = 2 * (base + count)
        memset(self.parts + base, 0, count * sizeof(Part))
        for at in range(low, high):
            crossing = crossing_of(group, crossing, self.found.rows[at].anchor)
            if crossing >= 0:
                self.parts[base + crossing].inputs += 1
        for at in range(before, self.pairs.count):
            crossing = crossing_of(group, crossing, self.pairs.rows[at].id)
            if crossing >= 0:
                self.parts[base + crossing].pairs += 1
        for at in range(count):
            part = &self.parts[self.count]
            part[0] = self.parts[base + at]
            if part.inputs:
                part.part = <double> part.inputs / (high - low)
                part.spent = spent
                self.owners.append((self.plans[(<Asked> group[at]).statement], state))
                self.count += 1
        return 0

    cdef int joined(self) except -1:
        """All is joined: take the time, and put the pairs into order."""
        self.began = worked() - self.began
        self.pairs.sort()
        return 0

    def replace(self, Pairs pairs not None):
        """Go on with other pairs: those that are left of these, taken further."""
        self.pairs = pairs

    # --- matches ----------------------------------------------------------------------------

    def end(self):
        """Decide which lines are matches, and count them; REQUIRES: `settle`."""
        self.hits = self.matches()
        self.failures = self.failed() if any_failed(self.asked) else []
        self.tally()

    @property
    def troubled(self):
        return bool(self.truncated or self.failures or self.found.missing) or self.filled()

    @property
    def widths(self):
        """By plan, how many rows a tuple has."""
        cdef Py_ssize_t number
        return [self.wide[number] for number in range(len(self.plans))]

    cdef Hits matches(self):
        """The lines on which all crossings of a statement hold, and what they select, as `Hits`.

        A statement of which a crossing failed has no matches.
        """
        cdef Py_ssize_t number, size = 0, room = 0, at
        cdef Hit* hits = NULL
        cdef int32_t* held = NULL
        cdef Py_ssize_t wide = 0
        try:
            for number in range(len(self.plans)):
                wide = max(wide, self.begins[number + 1] - self.begins[number])
            held = <int32_t*> allocated(wide, sizeof(int32_t))
            for number in range(len(self.plans)):
                at = size
                if not any_failed(self.by_statement[number]):
                    self.decide(number, held, &hits, &size, &room)
                self.matches_of[number] = size - at
            return hits_of(hits, size, self.messages)
        finally:
            free(held)
            free(hits)

    cdef int decide(
        self, Py_ssize_t number, int32_t* held, Hit** hits, Py_ssize_t* size, Py_ssize_t* room
    ) except -1:
        """The matches of a statement."""
        cdef int64_t begin = self.begins[number], lines = self.begins[number + 1] - begin, line
        cdef Py_ssize_t low, high, at, select_low = 0, select_high = 0
        cdef const Pair* pair
        cdef Asked asked
        cdef int32_t needed = 0, last
        cdef bint selecting = False
        cdef int apart = (<Prepared> self.plans[number]).apart
        cdef int64_t width = self.wide[number], own
        cdef Seen seen
        memset(held, 0, lines * sizeof(int32_t))
        memset(&seen, 0, sizeof(Seen))
        for asked in <list> self.by_statement[number]:
            low, high = self.pairs.from_id(asked.first), self.pairs.from_id(asked.last)
            if asked.crossing.selects:
                selecting = True
                select_low, select_high = low, high
                continue
            for at in range(low, high):
                line = self.anchors.lines[self.pairs.rows[at].id] - begin
                if held[line] == needed:
                    held[line] = needed + 1
            needed += 1
        try:
            if apart != BY_TUPLE:
                begin_seen(&seen, select_high - select_low if selecting else lines)
            if not selecting:
                for line in range(lines):
                    if held[line] != needed:
                        continue
                    if apart != BY_TUPLE:
                        last = seen.count
                        own = self.rows[self.lines[begin + line].at + width - 1] if apart == BY_ROW else 0
                        if number_of(&seen, self.lines[begin + line].place, own) <= last:
                            continue
                    hit(hits, size, room, number, &self.lines[begin + line], NULL)
                return 0
            for at in range(select_low, select_high):
                pair = &self.pairs.rows[at]
                line = self.anchors.lines[pair.id] - begin
                if held[line] != needed:
                    continue
                if apart != BY_TUPLE:
                    last = seen.count
                    if number_of(&seen, self.lines[begin + line].place, pair.start) <= last:
                        continue
                hit(hits, size, room, number, &self.lines[begin + line], pair)
        finally:
            free(seen.seats)
        return 0

    def places_of(self, Py_ssize_t number):
        """The places of the messages that a statement let pass."""
        cdef int64_t at
        return sorted({self.lines[at].place for at in range(self.begins[number], self.begins[number + 1])})

    cdef list failed(self):
        """Statements that have no answer, and why: of several errors, that of a condition."""
        cdef list found = [], places
        cdef Asked asked
        for number, crossings in enumerate(self.by_statement):
            failure = None
            for asked in crossings:
                if asked.failure is not None and (failure is None or not asked.crossing.selects):
                    failure = asked.failure
            if failure is not None:
                places = self.places_of(number)
                found.append((number, failure, places))
                (<Prepared> self.plans[number]).tally.failed += len(places)
        return found

    cdef int tally(self) except -1:
        """Count for each statement its matches, what it had of joins, and what the rest took.

        The time of the thread is taken once a batch, because that is a system call. Joins share it
        by what they took by the wall, and their crossings by inputs. Nothing here lets another
        thread run, so that no lock is needed.
        """
        cdef Py_ssize_t at
        cdef double scale = self.began / 1e9 / max(self.spent, 1)
        cdef const Part* part
        cdef Share share
        cdef Asked asked
        cdef Tally tally
        cdef double seconds
        for at in range(self.count):
            plan, state = <tuple> self.owners[at]
            tally = (<Prepared> plan).tally
            share = tally.shares.get(state)
            if share is None:
                share = tally.shares[state] = Share()
            part = &self.parts[at]
            seconds = part.part * scale * part.spent
            share.batches += part.part
            share.inputs += part.inputs
            share.pairs += part.pairs
            share.seconds += seconds
            tally.seconds += seconds
        for at in range(len(self.plans)):
            (<Prepared> self.plans[at]).tally.matches += self.matches_of[at]
        for asked in self.asked:
            (<Prepared> self.plans[asked.statement]).tally.seconds += asked.seconds
        return 0


def deliver(joins, matches):
    """Give pairs of an operator to the batches that wait for them; REQUIRES: `Joins.lock`."""
    cdef Answer answer
    if len(matches.id):
        answer = Answer(matches)
        deliver_sink(joins, &answer.sink, None)


cdef int deliver_sink(joins, const Sink* sink, Batch own) except -1:
    """Give pairs to the batches that have their ids, of which `own` need not wait.

    What is of another batch is kept apart there: the thread that has it may be at work with its
    pairs. Pairs of a batch that was given up are dropped.
    """
    cdef Py_ssize_t at
    cdef Batch whose = own
    cdef Pairs pairs = None if own is None else own.pairs
    cdef int64_t id
    if own is not None:
        pairs.grow(sink.size)
    for at in range(sink.size):
        id = sink.id[at]
        if whose is None or not whose.base <= id < whose.base + whose.anchors.count:
            whose = owner_of(joins, id, own)
            if whose is None:
                continue
            if whose is own:
                pairs = own.pairs
            else:
                if whose.late is None:
                    whose.late = Pairs([])
                pairs = whose.late
            pairs.grow(sink.size - at)
        put_pair(&pairs.rows[pairs.count], id - whose.base, sink, at)
        pairs.count += 1
    return 0


cdef Batch owner_of(joins, int64_t id, Batch own):
    """The batch that has an id; None if there is none any more."""
    cdef Batch other
    if own is not None and own.base <= id < own.base + own.anchors.count:
        return own
    for other in <list> joins.waiting:
        if other.base <= id < other.base + other.anchors.count:
            return other
    return None


cdef inline Py_ssize_t crossing_of(list group, Py_ssize_t near, int64_t anchor) noexcept:
    """The place in a group of the crossing that has an anchor, or -1; mostly, it is `near`.

    The anchors of a group follow each other, and so do those of its crossings.
    """
    cdef Py_ssize_t low = 0, high = len(group), middle
    if near >= 0 and (<Asked> group[near]).first <= anchor < (<Asked> group[near]).last:
        return near
    while low < high:
        middle = (low + high) >> 1
        if (<Asked> group[middle]).first <= anchor:
            low = middle + 1
        else:
            high = middle
    return low - 1 if low and anchor < (<Asked> group[low - 1]).last else -1


cdef bint any_failed(list crossings) except -1:
    cdef Asked asked
    for asked in crossings:
        if asked.failure is not None:
            return True
    return False


cdef object copied(const void* data, Py_ssize_t count, Py_ssize_t width, object dtype):
    """An array with a copy of a column."""
    cdef object made = empty(count, dtype)
    if count:
        memcpy(column(made, dtype, width).view.buf, data, count * width)
    return made


cdef inline int hit(
    Hit** hits, Py_ssize_t* size, Py_ssize_t* room, Py_ssize_t statement, const Line* line,
    const Pair* pair,
) except -1:
    """Add a match; without a pair, one that selects nothing in the corpus."""
    cdef Hit* moved
    if size[0] == room[0]:
        room[0] = max(64, 2 * room[0])
        moved = <Hit*> realloc(hits[0], room[0] * sizeof(Hit))
        if moved == NULL:
            raise MemoryError
        hits[0] = moved
    moved = &hits[0][size[0]]
    moved.statement = <int32_t> statement
    moved.at = line.at
    moved.place = line.place
    if pair == NULL:
        moved.segment = moved.level = -1
        moved.start = moved.end = -1
    else:
        moved.segment, moved.level = pair.segment, pair.level
        moved.start, moved.end = pair.start, pair.end
    size[0] += 1
    return 0


@cython.final
cdef class Hits:
    """Matches in the order of messages, and within one in that of statements.

    - `ends`: by place, where the matches of a message end.
    - `plan`: of each match, the number of its plan; `at`: where the rows of its tuple begin.
    - `segment`, `start`, `end`, `level`: the local node; -1 where nothing is selected.

    Each of these columns is made when it is asked for: a caller that counts matches needs none.
    """

    cdef Hit* rows
    cdef Py_ssize_t count
    cdef readonly list ends

    def __cinit__(self):
        self.rows = NULL
        self.count = 0

    def __dealloc__(self):
        free(self.rows)

    def __init__(self, list ends not None, lines=()):
        """Lines are (plan, at, segment, start, end, level)."""
        cdef Hit* own
        self.ends = ends
        self.rows = <Hit*> allocated(len(lines), sizeof(Hit))
        for line in lines:
            own = &self.rows[self.count]
            own.statement, own.at, own.segment, own.start, own.end, own.level = line
            self.count += 1

    def __len__(self):
        return self.count

    def count_of(self, Py_ssize_t place):
        """How many matches a message has."""
        if not 0 <= place < len(self.ends):
            raise IndexError(place)
        return self.ends[place] - (self.ends[place - 1] if place else 0)

    def __getitem__(self, Py_ssize_t number):
        """Plan, where the rows begin, segment and start of a match."""
        if not 0 <= number < self.count:
            raise IndexError(number)
        cdef const Hit* own = &self.rows[number]
        return own.statement, own.at, own.segment, own.start

    cdef object column(self, Py_ssize_t offset, object dtype, Py_ssize_t width):
        """An array of one field of all matches, which begins at a byte of `Hit`."""
        cdef object made = empty(self.count, dtype)
        cdef Column held = column(made, dtype, width)
        cdef char* to = <char*> held.view.buf
        cdef Py_ssize_t at
        for at in range(self.count):
            memcpy(to + at * width, <const char*> &self.rows[at] + offset, width)
        return made

    @property
    def plan(self):
        return self.column(<Py_ssize_t> &(<Hit*> NULL).statement, INT32, 4)

    @property
    def at(self):
        return self.column(<Py_ssize_t> &(<Hit*> NULL).at, INT64, 8)

    @property
    def segment(self):
        return self.column(<Py_ssize_t> &(<Hit*> NULL).segment, INT32, 4)

    @property
    def start(self):
        return self.column(<Py_ssize_t> &(<Hit*> NULL).start, INT64, 8)

    @property
    def end(self):
        return self.column(<Py_ssize_t> &(<Hit*> NULL).end, INT64, 8)

    @property
    def level(self):
        return self.column(<Py_ssize_t> &(<Hit*> NULL).level, INT16, 2)


cdef Hits hits_of(const Hit* hits, Py_ssize_t size, Py_ssize_t messages):
    """Matches put into the order of messages."""
    cdef Hits made = Hits.__new__(Hits)
    cdef Py_ssize_t at, place
    cdef int64_t* next_ = <int64_t*> calloc(messages + 1, sizeof(int64_t))
    if next_ == NULL:
        raise MemoryError
    try:
        made.rows = <Hit*> allocated(size, sizeof(Hit))
        made.count = size
        for at in range(size):
            next_[hits[at].place + 1] += 1
        for place in range(messages):
            next_[place + 1] += next_[place]
        made.ends = [next_[place + 1] for place in range(messages)]
        for at in range(size):
            made.rows[next_[hits[at].place]] = hits[at]
            next_[hits[at].place] += 1
        return made
    finally:
        free(next_)
