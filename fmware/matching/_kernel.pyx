"""The native kernel of matching: the columns between the filter and the results.

In the order the data goes:

- `Batch` numbers the anchors of all crossings of a batch, in groups.
- `Anchors` reads from the messages what these are known by, labels and keys, and finds the local
  nodes that have these keys.
- `Anchors.spread` gives the local nodes to the anchors, group by group, tag by tag.
- `Joining` has operators join them, and counts what each crossing had of it.
- `Pairs` puts the pairs of all joins into order, each once.
- `Anchors.matches` decides which lines of statements hold, and gives what they select.

A message has a handful of anchors: there an array that numpy looks at costs more than what is done
to it. So one call does the work of a batch, whatever its size.

What is here belongs to one batch, and so to one thread.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_STRIDES, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.object cimport PyObject, PyObject_GenericSetAttr, PyTypeObject
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memcpy, memset

from cmatch.feed cimport Batch as Rows
from cmatch.feed cimport Feeder, Sink
from index.probe cimport Finder, Keyed, Labeller, Text
from labeling._kernel cimport OPEN, Columns

import numpy as np

from cmatch.inputs import Inputs, Matches
from fmware.filtering.errors import ForeignTable

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


# --- the anchors of a batch ---------------------------------------------------------------------


@cython.final
cdef class Asked:
    """A crossing of a statement in a batch: its anchors are those from `first` to before `last`.

    `seconds` were spent on what is left of its match part; `failure` says why it has no answer.
    """

    cdef readonly object plan
    cdef readonly object part
    cdef readonly bint selects
    cdef public Py_ssize_t first
    cdef public Py_ssize_t last
    cdef public double seconds
    cdef public object failure

    def __init__(self, plan, part, bint selects):
        self.plan = plan
        self.part = part
        self.selects = selects


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


cdef int by_number(const void* one, const void* other) noexcept nogil:
    return (<const int32_t*> one)[0] - (<const int32_t*> other)[0]


@cython.final
cdef class Anchors:
    """The anchors of all crossings of a batch, numbered in the order they are added.

    A node of a message may be the anchor of many; `read` and `spread` do its work once.
    """

    cdef Py_ssize_t count, room
    cdef int64_t* lines
    cdef int64_t* places
    cdef int64_t* rows
    cdef int32_t* of          # of each anchor, which of the nodes that differ it is
    cdef int32_t* firsts      # of each of these, the first anchor
    cdef Py_ssize_t different
    cdef KeyList keys
    cdef Local* nodes         # local nodes that were found; `anchor` is one of those that differ
    cdef Py_ssize_t size, space

    def __cinit__(self):
        self.count = self.room = self.different = self.size = self.space = 0
        self.nodes = NULL
        self.lines = self.places = self.rows = NULL
        self.of = self.firsts = NULL

    def __dealloc__(self):
        free(self.lines)
        free(self.places)
        free(self.rows)
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
        moved = realloc(self.places, room * sizeof(int64_t))
        if moved == NULL:
            raise MemoryError
        self.places = <int64_t*> moved
        moved = realloc(self.rows, room * sizeof(int64_t))
        if moved == NULL:
            raise MemoryError
        self.rows = <int64_t*> moved
        self.room = room
        return 0

    def add(self, tuples, place, Py_ssize_t step):
        """The nodes that path tuples have at a step: one anchor a line. How many there are now."""
        return self.add_column(tuples, column(place, INT64, 8), step)

    cdef Py_ssize_t add_column(self, tuples, Column of_place, Py_ssize_t step) except -1:
        cdef Py_buffer view
        cdef Py_ssize_t line, count
        cdef const char* at
        if tuples.dtype is not INT32:
            tuples = contiguous(tuples, INT32)
        PyObject_GetBuffer(tuples, &view, PyBUF_STRIDES)
        try:
            count = view.shape[0]
            if view.ndim != 2 or not 0 <= step < view.shape[1] or of_place.rows != count:
                raise ValueError("a column of places, and as many tuples with that step")
            self.grow(count)
            at = <const char*> view.buf + step * view.strides[1]
            for line in range(count):
                self.lines[self.count + line] = line
                self.places[self.count + line] = int64s(of_place)[line]
                self.rows[self.count + line] = (<const int32_t*> (at + line * view.strides[0]))[0]
            self.count += count
        finally:
            PyBuffer_Release(&view)
        return self.count

    def add_rows(self, line, place, row):
        """Anchors by their lines, the places of their messages, and their rows there."""
        cdef Column of_line = column(line, INT64, 8)
        cdef Column of_place = column(place, INT64, 8)
        cdef Column of_row = column(row, INT64, 8)
        cdef Py_ssize_t count = of_line.rows
        if of_place.rows != count or of_row.rows != count:
            raise ValueError("columns of one length")
        self.grow(count)
        if count:
            memcpy(self.lines + self.count, of_line.view.buf, count * sizeof(int64_t))
            memcpy(self.places + self.count, of_place.view.buf, count * sizeof(int64_t))
            memcpy(self.rows + self.count, of_row.view.buf, count * sizeof(int64_t))
        self.count += count
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

    def read(self, tables, ways_of):
        """What the nodes are known by: their keys, which are kept for `identify`, or labels.

        `tables` are the messages, by place; `ways_of(vocabulary)` gives the ways to keys, by tags
        of that vocabulary. Answers with ([nodes], [labels]), where nodes are numbers that `locate`
        understands.
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
                    ways = ways_of((<Columns?> tables[place]).vocabulary)
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
        cdef const Finder* finder = <const Finder*> PyCapsule_GetPointer(capsule, "index.finder")
        cdef Py_ssize_t room = 2 * count + 16, found, at
        cdef Keyed* rows = <Keyed*> allocated(room, sizeof(Keyed))
        cdef Local* own
        try:
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

    def spread(self, list bounds not None, Py_ssize_t tags, bint by_tag):
        """The local nodes of all anchors, group by group, and there tag by tag if that is wanted.

        `bounds` are the numbers of the anchors at which groups begin, and where the last one ends;
        `tags` is the number of tags that there are. A node that an anchor has by several keys comes
        once.
        """
        cdef Py_ssize_t size, at, kept = 0, node, group, low, high, total = 0
        cdef Py_ssize_t begin = 0, target, touched, anchor
        cdef Local* nodes = self.nodes
        cdef int32_t* starts = NULL
        cdef Py_ssize_t* offsets = NULL
        cdef int32_t* there = NULL
        cdef LocalNodes found = LocalNodes.__new__(LocalNodes)
        cdef bint in_order = True
        cdef list cuts
        found.cuts = []
        found.missing = []
        try:
            for at in range(self.size):
                if nodes[at].tag >= tags:
                    raise IndexError("a local node of a tag that is not there")
                if at and by_anchor(&nodes[at - 1], &nodes[at]) > 0:
                    in_order = False
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
            offsets = <Py_ssize_t*> calloc(tags + 1, sizeof(Py_ssize_t))
            there = <int32_t*> allocated(tags, sizeof(int32_t))
            if offsets == NULL:
                raise MemoryError
            for group in range(len(bounds) - 1):
                low, high = bounds[group], bounds[group + 1]
                if not 0 <= low <= high <= self.count:
                    raise IndexError("a group of anchors that are not there")
                touched = 0
                for anchor in range(low, high):
                    for at in range(starts[self.of[anchor]], starts[self.of[anchor] + 1]):
                        node = nodes[at].tag if by_tag else 0
                        if offsets[node] == 0:
                            there[touched] = <int32_t> node
                            touched += 1
                        offsets[node] += 1
                if touched > 1:
                    qsort(there, touched, sizeof(int32_t), by_number)
                target = begin
                cuts = []
                found.cuts.append(cuts)
                for at in range(touched):
                    size = offsets[there[at]]
                    cuts.append((there[at] if by_tag else -1, target, target + size))
                    offsets[there[at]] = target
                    target += size
                begin = target
                for anchor in range(low, high):
                    for at in range(starts[self.of[anchor]], starts[self.of[anchor] + 1]):
                        node = nodes[at].tag if by_tag else 0
                        target = offsets[node]
                        offsets[node] = target + 1
                        found.rows[target] = nodes[at]
                        found.rows[target].anchor = <int32_t> anchor
                for at in range(touched):
                    offsets[there[at]] = 0
            return found
        finally:
            free(starts)
            free(offsets)
            free(there)

    def matches(self, Pairs pairs not None, statements):
        """The lines of statements that hold, and what they select.

        `pairs` are those of all crossings, by the number of their anchor. A statement is (place,
        told, crossings): the places of its lines; whether each of them is wanted, or of a message
        each node once; and what it asked. One of which a crossing failed has no matches.

        Answers with columns (statement, line, place, segment, start), and how many lines of them
        each statement has. Where a statement selects nothing, segment and start are -1.
        """
        cdef const Pair* pair
        cdef Asked asked
        cdef Column place
        cdef Py_ssize_t number = 0, lines, at, low, high, select_low, select_high, before
        cdef int32_t needed
        cdef int32_t* held = NULL
        cdef Py_ssize_t room = 0
        cdef int64_t line, last
        cdef bint told, selecting
        cdef Seen seen
        cdef Hits hits
        cdef list counts = []
        memset(&hits, 0, sizeof(Hits))
        memset(&seen, 0, sizeof(Seen))
        try:
            for places, told, crossings in statements:
                place = places if type(places) is Column else column(places, INT64, 8)
                lines = 0 if any_failed(crossings) else place.rows
                before = hits.size
                needed = 0
                selecting = False
                select_low = select_high = 0
                if lines > room or held == NULL:
                    free(held)
                    held = NULL
                    room = 0
                    held = <int32_t*> allocated(lines, sizeof(int32_t))
                    room = lines
                memset(held, 0, lines * sizeof(int32_t))
                for asked in crossings if lines else ():
                    if not 0 <= asked.first <= asked.last <= self.count:
                        raise IndexError("anchors that are not there")
                    low = pairs.from_id(asked.first)
                    high = pairs.from_id(asked.last)
                    if asked.selects:
                        selecting = True
                        select_low, select_high = low, high
                        continue
                    for at in range(low, high):
                        line = self.lines[pairs.rows[at].id]
                        if line >= lines:
                            raise IndexError("a line that is not there")
                        if held[line] == needed:
                            held[line] = needed + 1
                    needed += 1
                if selecting:
                    if not told:
                        begin_seen(&seen, select_high - select_low)
                    for at in range(select_low, select_high):
                        pair = &pairs.rows[at]
                        line = self.lines[pair.id]
                        if line >= lines:
                            raise IndexError("a line that is not there")
                        if held[line] != needed:
                            continue
                        if not told:
                            last = seen.count
                            if number_of(&seen, int64s(place)[line], pair.start) <= last:
                                continue
                        hit(&hits, number, line, int64s(place)[line], pair.segment, pair.start)
                    free(seen.seats)
                    seen.seats = NULL
                else:
                    last = -1
                    for line in range(lines):
                        if held[line] == needed and (told or int64s(place)[line] != last):
                            last = int64s(place)[line]
                            hit(&hits, number, line, last, -1, -1)
                counts.append(hits.size - before)
                number += 1
            return columns_of(&hits), counts
        finally:
            free(held)
            free(seen.seats)
            free(hits.rows)


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
    """The local nodes of the anchors of a batch.

    `cuts` has a list for each group, of (tag, low, high): where its local nodes lie, of each tag
    apart, or with -1 of all tags. Anchors ascend from `low` to before `high`. `missing` are anchors
    that have no local node: of those that are the same node of a message, the first.
    """

    cdef Local* rows
    cdef Py_ssize_t count
    cdef readonly list cuts
    cdef readonly list missing

    def __cinit__(self):
        self.rows = NULL
        self.count = 0

    def __dealloc__(self):
        free(self.rows)

    def __len__(self):
        return self.count

    cdef int check(self, Py_ssize_t low, Py_ssize_t high) except -1:
        if not 0 <= low <= high <= self.count:
            raise IndexError(f"no {low} to {high} of {self.count} local nodes")
        return 0

    def inputs(self, Py_ssize_t low, Py_ssize_t high, rank=None, last=None, scheme=None):
        """The inputs of an operator, whose ids are anchors, with SES labels that were looked up."""
        cdef Py_ssize_t count = high - low, at
        cdef const Local* own
        self.check(low, high)
        own = self.rows + low
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
        return made_inputs(found, rank, last, scheme)

    def listed(self, Py_ssize_t low, Py_ssize_t high):
        """Their rows in the lists of their tags."""
        cdef Py_ssize_t at
        self.check(low, high)
        found = empty(high - low, INT64)
        cdef Column row = column(found, INT64, 8)
        for at in range(high - low):
            int64s(row)[at] = self.rows[low + at].row
        return found

    def tags(self, Py_ssize_t low, Py_ssize_t high):
        """The numbers of their tags."""
        cdef Py_ssize_t at
        self.check(low, high)
        found = empty(high - low, INT64)
        cdef Column tag = column(found, INT64, 8)
        for at in range(high - low):
            int64s(tag)[at] = self.rows[low + at].tag
        return found

    def narrowed(self, cuts, int64_t first, int64_t last):
        """Of some cuts, what is of the anchors from `first` to before `last`."""
        cdef Py_ssize_t low, high
        cdef list found = []
        for tag, low, high in cuts:
            self.check(low, high)
            while low < high and self.rows[low].anchor < first:
                low += 1
            while low < high and self.rows[high - 1].anchor >= last:
                high -= 1
            if low < high:
                found.append((tag, low, high))
        return found


cdef bint any_failed(crossings) except -1:
    cdef Asked asked
    for asked in crossings:
        if asked.failure is not None:
            return True
    return False


ctypedef struct Hit:
    int64_t statement
    int64_t line
    int64_t place
    int64_t start
    int32_t segment


ctypedef struct Hits:
    Hit* rows
    Py_ssize_t size
    Py_ssize_t room


cdef inline int hit(
    Hits* hits, int64_t statement, int64_t line, int64_t place, int32_t segment, int64_t start
) except -1:
    cdef Hit* moved
    if hits.size == hits.room:
        hits.room = max(64, 2 * hits.room)
        moved = <Hit*> realloc(hits.rows, hits.room * sizeof(Hit))
        if moved == NULL:
            raise MemoryError
        hits.rows = moved
    moved = &hits.rows[hits.size]
    moved.statement = statement
    moved.line = line
    moved.place = place
    moved.segment = segment
    moved.start = start
    hits.size += 1
    return 0


cdef tuple columns_of(Hits* hits):
    cdef Py_ssize_t at, size = hits.size
    found = empty(size, INT64), empty(size, INT64), empty(size, INT64), empty(size, INT32), empty(size, INT64)
    cdef Column statement = column(found[0], INT64, 8), line = column(found[1], INT64, 8)
    cdef Column place = column(found[2], INT64, 8), segment = column(found[3], INT32, 4)
    cdef Column start = column(found[4], INT64, 8)
    for at in range(size):
        int64s(statement)[at] = hits.rows[at].statement
        int64s(line)[at] = hits.rows[at].line
        int64s(place)[at] = hits.rows[at].place
        int32s(segment)[at] = hits.rows[at].segment
        int64s(start)[at] = hits.rows[at].start
    return found


# --- the crossings of a batch -------------------------------------------------------------------


@cython.final
cdef class Batch:
    """The crossings of a batch, in groups that seek the same, and their anchors.

    `passed` are the statements that let messages pass; `branched(anchor, passed)` gives the lines,
    places and rows of anchors that a branch leads to. `asked` are the crossings by their anchors,
    and `bounds` where the anchors of groups begin. `done` says that none of them asks for more than
    its first step.
    """

    cdef readonly Anchors anchors
    cdef readonly list asked
    cdef readonly list groups
    cdef readonly list bounds
    cdef readonly bint done
    cdef object passed
    cdef list statements         # as `Anchors.matches` takes them
    cdef list counts             # of matches, by statement

    def __init__(self, passed, branched):
        cdef dict by_sought = {}
        cdef list crossings, members
        cdef Asked asked
        cdef Anchors anchors = Anchors()
        cdef Column place
        cdef Py_ssize_t count = 0
        self.anchors = anchors
        self.passed = passed
        self.statements = []
        self.asked = []
        self.groups = []
        self.bounds = []
        self.done = True
        for each in passed:
            plan = each.plan
            crossings = []
            place = column(each.place, INT64, 8)
            for anchor, part, selects in plan.crossings:
                asked = Asked(plan, part, selects)
                crossings.append(asked)
                members = by_sought.get(part.sought)
                if members is None:
                    members = by_sought[part.sought] = []
                members.append((asked, anchor, each, place))
            self.statements.append((place, plan.told, crossings))
        for members in by_sought.values():
            self.bounds.append(count)
            crossings = []
            for asked, anchor, each, place in members:
                asked.first = count
                if anchor.direct:
                    count = anchors.add_column(each.tuples, place, anchor.step)
                else:
                    count = anchors.add_rows(*branched(anchor, each))
                asked.last = count
                self.done = self.done and asked.part.done
                self.asked.append(asked)
                crossings.append(asked)
            self.groups.append(crossings)
        self.bounds.append(count)

    def matches(self, Pairs pairs not None):
        """`Anchors.matches`: the columns of the lines on which all crossings hold."""
        columns, self.counts = self.anchors.matches(pairs, self.statements)
        return columns

    def tally(self):
        """Count the matches of each statement, and what was spent on the rest of match parts."""
        cdef Py_ssize_t at
        cdef Asked asked
        for at in range(len(self.counts)):
            if self.counts[at]:
                self.passed[at].plan.tally.matches += self.counts[at]
        for asked in self.asked:
            if asked.seconds:
                asked.plan.tally.seconds += asked.seconds

    def failures(self):
        """Statements that have no answer, and why: of several errors, that of a condition."""
        cdef list found = []
        cdef Asked asked
        if not any_failed(self.asked):
            return found
        for number, (_, _, crossings) in enumerate(self.statements):
            for asked in sorted(crossings, key=lambda each: each.selects):
                if asked.failure is not None:
                    found.append((number, asked.failure))
                    break
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
        cdef Column id, segment, start, end, level
        cdef Sink sink
        id = column(part.id, INT64, 8)
        if not id.rows:
            return 0
        segment = column(part.segment, INT32, 4)
        start, end = column(part.start, INT64, 8), column(part.end, INT64, 8)
        level = column(part.level, INT16, 2)
        if not id.rows == segment.rows == start.rows == end.rows == level.rows:
            raise ValueError("columns of one length")
        sink.id, sink.start, sink.end = int64s(id), int64s(start), int64s(end)
        sink.segment, sink.level = int32s(segment), int16s(level)
        sink.size = id.rows
        return self.pour(&sink)

    cdef int pour(self, const Sink* sink) except -1:
        cdef Py_ssize_t at
        cdef Pair* own
        self.grow(sink.size)
        for at in range(sink.size):
            own = &self.rows[self.count + at]
            own.id = sink.id[at]
            own.segment = sink.segment[at]
            own.start = sink.start[at]
            own.end = sink.end[at]
            own.level = sink.level[at]
        self.count += sink.size
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
    cdef list capsules
    cdef const Labeller** at
    cdef Py_ssize_t count

    def __cinit__(self, str scheme not None, list capsules not None):
        cdef Py_ssize_t place
        self.scheme = scheme
        self.capsules = capsules
        self.count = len(capsules)
        self.at = <const Labeller**> allocated(self.count, sizeof(Labeller*))
        for place in range(self.count):
            self.at[place] = NULL
            if capsules[place] is not None:
                self.at[place] = <const Labeller*> PyCapsule_GetPointer(
                    capsules[place], "index.labeller"
                )

    def __dealloc__(self):
        free(self.at)


@cython.final
cdef class Route:
    """A join as `Joining` asks for it, from anchors with the number of a tag, or -1 for any."""

    cdef readonly JoinState state
    cdef readonly Py_ssize_t tag
    cdef LabelLists lists        # those that were needed last

    def __init__(self, JoinState state not None, Py_ssize_t tag):
        self.state = state
        self.tag = tag


ctypedef struct Part:
    # What one crossing had of one join.
    int64_t inputs
    int64_t pairs
    double part
    int64_t spent        # on all of the join, in nanoseconds by the wall


@cython.final
cdef class Joining:
    """The joins of a batch: feeds operators with local nodes, and gathers `pairs`.

    `index` is the generation that the local nodes are of. `known` has the joins of first steps, by
    what they seek and the tag of anchors; `routes(part, tag)` gives those that are not there.
    `otherwise(join, inputs)` answers if operators are of another generation.
    """

    cdef object joins, index, resolver, routes, otherwise, lock
    cdef dict known
    cdef LocalNodes found
    cdef readonly Pairs pairs
    cdef list owners             # of each part, the plan and the state of the join
    cdef Part* parts
    cdef Py_ssize_t count, room
    cdef int64_t began, spent
    # A batch of an operator in columns.
    cdef void* memory
    cdef Py_ssize_t space
    cdef Rows batch
    cdef int64_t* listed

    def __cinit__(self):
        self.parts = NULL
        self.memory = NULL
        self.count = self.room = self.space = 0

    def __dealloc__(self):
        free(self.parts)
        free(self.memory)

    def __init__(
        self, joins, index, resolver, LocalNodes found not None, dict known not None, routes,
        otherwise,
    ):
        self.joins = joins
        self.lock = joins.lock
        self.index = index
        self.resolver = resolver
        self.found = found
        self.known = known
        self.routes = routes
        self.otherwise = otherwise
        self.pairs = Pairs([])
        self.owners = []
        self.spent = 0
        self.began = worked()

    def feed(self, list group not None, list cuts not None):
        """Join the local nodes of crossings that seek the same.

        If that fails, no pairs of it are kept.
        """
        cdef Py_ssize_t before = self.pairs.count
        cdef Asked first = group[0]
        cdef Route route
        try:
            for cut in cuts:
                if first.part.itself:
                    inputs = self.resolver.inputs(self.found, cut, None)
                    self.pairs.add(first.part.probe(self.index, inputs))
                    continue
                routes = self.known.get((first.part.sought, cut[0]))
                if routes is None:
                    routes = self.routes(first.part, cut[0])
                for route in <list?> routes:
                    self.join(route, cut, group)
        except BaseException:
            self.pairs.count = before
            raise

    cdef int join(self, Route route, tuple cut, list group) except -1:
        cdef Py_ssize_t low = cut[1], high = cut[2], before = self.pairs.count
        cdef int64_t began
        cdef object inputs = None, runs = route.state.runs, scheme
        cdef LabelLists lists = None
        self.found.check(low, high)
        if runs is None:
            runs = self.joins.operator(route.state.join)
        scheme = runs.needs
        if scheme is not None:
            lists = self.lists_of(route, scheme)
        if lists is None or not self.label(lists, low, high):
            # Operators of a newer generation may need labels that this one lacks.
            lists = None
            known = scheme if scheme in self.index.schemes else None
            inputs = self.resolver.inputs(self.found, cut, known)
        with self.lock:
            began = nanoseconds()
            if self.joins.index is not self.index:
                if inputs is None:
                    inputs = self.inputs(low, high, lists)
                self.pairs.add(self.otherwise(route.state.join, inputs))
            else:
                self.take(route.state, lists, low, high, inputs)
            began = nanoseconds() - began
        self.spent += began
        return self.share(route.state, group, low, high, before, began)

    cdef LabelLists lists_of(self, Route route, scheme):
        cdef LabelLists lists = route.lists
        if lists is None or (lists.scheme is not scheme and lists.scheme != scheme):
            lists = self.resolver.labels(route.tag, scheme)
            route.lists = lists
        return lists

    cdef bint label(self, LabelLists lists, Py_ssize_t low, Py_ssize_t high) except -1:
        """Make columns of local nodes, with SES labels; whether these could be had."""
        cdef const Local* own = self.found.rows + low
        cdef const Labeller* labeller
        cdef Py_ssize_t count = high - low, at, end
        cdef int64_t* ids
        cdef int64_t* starts
        cdef int64_t* ends
        cdef int64_t* ranks
        cdef int64_t* lasts
        cdef int32_t* segments
        cdef int16_t* levels
        if count > self.space:
            free(self.memory)
            self.memory = NULL
            self.space = 0
            self.memory = allocated(2 * count + 16, 6 * 8 + 4 + 2)
            self.space = 2 * count + 16
        ids = <int64_t*> self.memory
        starts = ids + self.space
        ends = starts + self.space
        ranks = ends + self.space
        lasts = ranks + self.space
        self.listed = lasts + self.space
        segments = <int32_t*> (self.listed + self.space)
        levels = <int16_t*> (segments + self.space)
        for at in range(count):
            ids[at] = own[at].anchor
            starts[at] = own[at].start
            ends[at] = own[at].end
            self.listed[at] = own[at].row
            segments[at] = own[at].segment
            levels[at] = own[at].level
        at = 0
        while at < count:
            end = at + 1
            while end < count and segments[end] == segments[at]:
                end += 1
            labeller = lists.at[segments[at]] if segments[at] < lists.count else NULL
            if labeller == NULL or labeller.get(
                labeller.nodes, labeller.labels, labeller.removed, labeller.scheme,
                self.listed + at, end - at, ranks + at, lasts + at,
            ):
                return False
            at = end
        self.batch.id, self.batch.start, self.batch.end = ids, starts, ends
        self.batch.rank, self.batch.last = ranks, lasts
        self.batch.segment, self.batch.level = segments, levels
        self.batch.count = count
        return True

    cdef object inputs(self, Py_ssize_t low, Py_ssize_t high, LabelLists lists):
        """The columns as `Inputs`."""
        cdef object rank = empty(high - low, INT64), last = empty(high - low, INT64)
        memcpy(int64s(column(rank, INT64, 8)), self.batch.rank, (high - low) * sizeof(int64_t))
        memcpy(int64s(column(last, INT64, 8)), self.batch.last, (high - low) * sizeof(int64_t))
        return self.found.inputs(low, high, rank, last, lists.scheme)

    cdef int take(
        self, JoinState state, LabelLists lists, Py_ssize_t low, Py_ssize_t high, inputs
    ) except -1:
        """Feed the operator, with the lock held: natively if there is a way, and it needs these."""
        cdef object runs = state.runs, capsule = None
        cdef const Feeder* feeder
        cdef const Sink* sink
        if runs is not None and lists is not None:
            scheme = runs.needs
            if scheme is lists.scheme or scheme == lists.scheme:
                capsule = runs.feeder
        if capsule is None:
            if inputs is None:
                inputs = self.inputs(low, high, lists)
            return self.pairs.add(self.joins.feed(state.join, inputs))
        feeder = <const Feeder*> PyCapsule_GetPointer(capsule, "cmatch.feeder")
        if feeder.feed(feeder.cleaner, &self.batch, &sink):
            self.pairs.pour(sink)
            self.pairs.add(self.joins.resume(state, self.inputs(low, high, lists)))
        else:
            self.pairs.pour(sink)
        if state.room > 0:
            self.joins.record(state, self.bytes_of(), high - low, lists.scheme)
        return 0

    cdef tuple bytes_of(self):
        """The columns as bytes, in the order `Inputs` has them."""
        cdef Py_ssize_t count = self.batch.count
        return (
            (<const char*> self.batch.id)[:8 * count],
            (<const char*> self.batch.segment)[:4 * count],
            (<const char*> self.batch.start)[:8 * count],
            (<const char*> self.batch.end)[:8 * count],
            (<const char*> self.batch.level)[:2 * count],
            (<const char*> self.batch.rank)[:8 * count],
            (<const char*> self.batch.last)[:8 * count],
        )

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
                self.owners.append(((<Asked> group[at]).plan, state))
                self.count += 1
        return 0

    def end(self):
        """All is joined: take the time, and put the pairs into order."""
        self.began = worked() - self.began
        self.pairs.sort()

    def tally(self):
        """Give each statement its part, with the lock held.

        The time of the thread is taken once a batch, because that is a system call. Joins share it
        by what they took by the wall, and their crossings by inputs.
        """
        cdef Py_ssize_t at
        cdef double scale = self.began / 1e9 / max(self.spent, 1)
        cdef const Part* part
        cdef Share share
        cdef double seconds
        for at in range(self.count):
            plan, state = <tuple> self.owners[at]
            tally = plan.tally
            share = (<dict?> tally.shares).get(state)
            if share is None:
                share = tally.shares[state] = Share()
            part = &self.parts[at]
            seconds = part.part * scale * part.spent
            share.batches += part.part
            share.inputs += part.inputs
            share.pairs += part.pairs
            share.seconds += seconds
            tally.seconds += seconds


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
