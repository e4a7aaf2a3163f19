"""The native kernel of matching: the columns between the filter and the results.

In the order the data goes:

- `Anchors` gathers the anchors of all crossings of a batch, and reads from the messages what they
  are known by: labels and keys.
- `Anchors.spread` gives the local nodes that were found to the anchors, group by group, tag by tag.
- `fed` has an operator join them, and counts what each crossing had of it.
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
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memcpy, memset

from labeling._kernel cimport OPEN, Columns

from time import thread_time

import numpy as np

from cmatch.inputs import Inputs, Matches
from fmware.filtering.errors import ForeignTable

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


cdef bytes trimmed(const char* text, Py_ssize_t size):
    """Bytes without the white space around them; None if nothing is left."""
    while size and blank(text[0]):
        text += 1
        size -= 1
    while size and blank(text[size - 1]):
        size -= 1
    return PyBytes_FromStringAndSize(text, size) if size else None


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


cdef bytes text_of(Columns table, Py_ssize_t row):
    """The trimmed string-value of an element: nearly always that of the one text in it."""
    cdef Py_ssize_t at = row + 1, size = 0, texts = 0, only = -1
    cdef bytes whole
    cdef char* target
    while at < table.rows and table.levels[at] > table.levels[row]:
        if table.kinds[at] == TEXT:
            texts += 1
            only = at
            size += table.offsets[at + 1] - table.offsets[at]
        at += 1
    if texts == 0:
        return None
    if texts == 1:
        return trimmed(table.text + table.offsets[only], size)
    whole = PyBytes_FromStringAndSize(NULL, size)
    target = PyBytes_AS_STRING(whole)
    for at in range(row + 1, at):
        if table.kinds[at] == TEXT:
            size = table.offsets[at + 1] - table.offsets[at]
            memcpy(target, table.text + table.offsets[at], size)
            target += size
    return trimmed(PyBytes_AS_STRING(whole), len(whole))


cdef int keys_below(
    Columns table, Py_ssize_t row, tuple steps, Py_ssize_t done, int32_t attribute, list keys
) except -1:
    """The keys of an element by one rule: down its steps, then an attribute or the text."""
    cdef Py_ssize_t at
    cdef int32_t step
    cdef bytes key
    if done < len(steps):
        step = steps[done]
        at = row + 1
        # Behind a child with all that is in it comes the next one, or what is not below the row.
        while at < table.rows and table.parents[at] >= row:
            if table.parents[at] == row and table.kinds[at] == ELEMENT and table.tags[at] == step:
                keys_below(table, at, steps, done + 1, attribute, keys)
            at += 1 if table.ends[at] == OPEN else (table.ends[at] - table.starts[at] + 1) >> 1
        return 0
    if attribute < 0:
        key = text_of(table, row)
    else:
        at = attribute_at(table, row, attribute)
        if at < 0:
            return 0
        key = trimmed(table.text + table.offsets[at], table.offsets[at + 1] - table.offsets[at])
    if key is not None:
        keys.append(key)
    return 0


def keys_at(Columns table not None, Py_ssize_t row, ways):
    """The keys of an element, by rules whose names are tags of the table's vocabulary."""
    cdef list keys = []
    for steps, attribute in ways:
        keys_below(table, row, steps, 0, attribute, keys)
    return keys


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

    def __cinit__(self):
        self.count = self.room = self.different = 0
        self.lines = self.places = self.rows = NULL
        self.of = self.firsts = NULL

    def __dealloc__(self):
        free(self.lines)
        free(self.places)
        free(self.rows)
        free(self.of)
        free(self.firsts)

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
        cdef Column of_place = column(place, INT64, 8)
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
        """What the nodes are known by: labels, and keys by the number of their element.

        `tables` are the messages, by place; `ways_of(vocabulary)` gives the ways to keys, by tags
        of that vocabulary. Answers with ([nodes], [labels]) and {element: ([nodes], [keys])}, where
        nodes are numbers that `spread` understands.
        """
        cdef Columns table = None
        cdef Py_ssize_t node, place = -1, row, at
        cdef int32_t carries = -1
        cdef list labelled = [], labels = [], keys
        cdef dict found = {}
        cdef int64_t label
        cdef object ways = None, way
        cdef tuple kept
        cdef dict by_tag = None
        self.different = 0
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
            number, rules = way
            for steps, attribute in rules:
                kept = found.get(number)
                if kept is None:
                    kept = found[number] = ([], [])
                keys = <list> kept[1]
                keys_below(table, row, steps, 0, attribute, keys)
                while len(<list> kept[0]) < len(keys):
                    (<list> kept[0]).append(node)
        return (labelled, labels), found

    def spread(self, parts, list bounds not None, Py_ssize_t tags, bint by_tag):
        """The local nodes of all anchors, group by group, and there tag by tag if that is wanted.

        A part is (nodes, tag, segment, left, row, start, end, level): `left` are places among the
        nodes that were asked for, the rest is what was found. `bounds` are the numbers of the
        anchors at which groups begin, and where the last one ends. A node that an anchor has by
        several keys comes once.
        """
        cdef Py_ssize_t count = 0, size = 0, at, kept = 0, node, group, low, high, total = 0
        cdef Py_ssize_t begin = 0, target, touched, anchor
        cdef Local* nodes = NULL
        cdef Local* own
        cdef int32_t* starts = NULL
        cdef Py_ssize_t* offsets = NULL
        cdef int32_t* there = NULL
        cdef Column left, row, start, end, level
        cdef LocalNodes found = LocalNodes.__new__(LocalNodes)
        cdef bint in_order = True
        found.cuts = []
        found.missing = []
        for part in parts:
            count += len(part[3])
        try:
            nodes = <Local*> allocated(count, sizeof(Local))
            for asked, tag, segment, lefts, rows, of_start, of_end, of_level in parts:
                left, row = column(lefts, INT64, 8), column(rows, INT64, 8)
                start, end = column(of_start, INT64, 8), column(of_end, INT64, 8)
                level = column(of_level, INT16, 2)
                if not left.rows == row.rows == start.rows == end.rows == level.rows:
                    raise ValueError("columns of one length")
                for at in range(left.rows):
                    own = &nodes[size]
                    own.anchor = (<list?> asked)[int64s(left)[at]]
                    own.tag = tag
                    own.segment = segment
                    own.row = int64s(row)[at]
                    own.start = int64s(start)[at]
                    own.end = int64s(end)[at]
                    own.level = int16s(level)[at]
                    if not 0 <= own.anchor < self.different or not 0 <= own.tag < tags:
                        raise IndexError("a local node of an anchor that was not read")
                    if size and by_anchor(own - 1, own) > 0:
                        in_order = False
                    size += 1
            if not in_order:
                qsort(nodes, size, sizeof(Local), by_anchor)
            for at in range(size):
                if kept == 0 or by_anchor(&nodes[kept - 1], &nodes[at]) != 0:
                    nodes[kept] = nodes[at]
                    kept += 1
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
                for at in range(touched):
                    size = offsets[there[at]]
                    found.cuts.append((group, there[at] if by_tag else -1, target, target + size))
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
            free(nodes)
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
                place = column(places, INT64, 8)
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

    `cuts` are (group, tag, low, high): where those of a group lie, of each tag apart, or with -1 of
    all tags. Anchors ascend from `low` to before `high`. `missing` are anchors that have no local
    node: of those that are the same node of a message, the first.
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
        for group, tag, low, high in cuts:
            self.check(low, high)
            while low < high and self.rows[low].anchor < first:
                low += 1
            while low < high and self.rows[high - 1].anchor >= last:
                high -= 1
            if low < high:
                found.append((group, tag, low, high))
        return found


cdef bint any_failed(crossings) except -1:
    cdef Asked asked
    for asked in crossings:
        if asked.failure is not None:
            return True
    return False


cdef inline Py_ssize_t lower(const int64_t* values, Py_ssize_t count, int64_t wanted) noexcept nogil:
    """The first place whose value is not below the one wanted."""
    cdef Py_ssize_t low = 0, middle
    while low < count:
        middle = (low + count) >> 1
        if values[middle] < wanted:
            low = middle + 1
        else:
            count = middle
    return low


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


# --- pairs --------------------------------------------------------------------------------------


def fed(joins, index, join, inputs, list group not None, otherwise):
    """The pairs of one operator; each statement of a group has its share, by what it put in.

    `otherwise(join, inputs)` answers if the operators are of another generation of the index.
    """
    cdef Asked asked
    cdef Py_ssize_t count = len(group), at
    cdef int64_t* bounds = <int64_t*> allocated(3 * count + 1, sizeof(int64_t))
    cdef int64_t* given = bounds + count + 1
    cdef int64_t* found = given + count
    cdef double began, seconds, inputs_of_all
    try:
        memset(given, 0, 2 * count * sizeof(int64_t))
        for at in range(count):
            asked = group[at]
            bounds[at] = asked.first
            bounds[at + 1] = asked.last
        ids = inputs.id
        inputs_of_all = len(ids)
        counted(column(ids, INT64, 8), bounds, count, given)
        with joins.lock:
            began = thread_time()
            answer = joins.feed(join, inputs) if joins.index is index else otherwise(join, inputs)
            seconds = <double> thread_time() - began
            counted(column(answer.id, INT64, 8), bounds, count, found)
            for at in range(count):
                if given[at]:
                    asked = group[at]
                    asked.plan.tally.add(
                        join, given[at], found[at], given[at] / inputs_of_all, seconds
                    )
        return answer
    finally:
        free(bounds)


cdef void counted(Column ids, const int64_t* bounds, Py_ssize_t count, int64_t* found) noexcept:
    cdef Py_ssize_t at, crossing = 0
    cdef int64_t id
    for at in range(ids.rows):
        id = int64s(ids)[at]
        # Mostly of the crossing that had the one before.
        if not bounds[crossing] <= id < bounds[crossing + 1]:
            crossing = lower(bounds, count + 1, id + 1) - 1
            if not 0 <= crossing < count:
                crossing = 0
                continue
        found[crossing] += 1


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
    cdef Py_ssize_t count

    def __cinit__(self):
        self.rows = NULL
        self.count = 0

    def __dealloc__(self):
        free(self.rows)

    def __init__(self, list parts not None):
        cdef Py_ssize_t total = 0, size = 0, at, kept = 0
        cdef Pair* own
        cdef Column id, segment, start, end, level
        cdef bint in_order = True
        for part in parts:
            total += len(part.id)
        free(self.rows)
        self.rows = NULL
        self.rows = <Pair*> allocated(total, sizeof(Pair))
        for part in parts:
            id, segment = column(part.id, INT64, 8), column(part.segment, INT32, 4)
            start, end = column(part.start, INT64, 8), column(part.end, INT64, 8)
            level = column(part.level, INT16, 2)
            if not id.rows == segment.rows == start.rows == end.rows == level.rows:
                raise ValueError("columns of one length")
            for at in range(id.rows):
                own = &self.rows[size]
                own.id = int64s(id)[at]
                own.segment = int32s(segment)[at]
                own.start = int64s(start)[at]
                own.end = int64s(end)[at]
                own.level = int16s(level)[at]
                if size and by_id(own - 1, own) >= 0:
                    in_order = False
                size += 1
        self.count = size
        if in_order:
            return
        with nogil:
            qsort(self.rows, size, sizeof(Pair), by_id)
            for at in range(size):
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
