"""Values of nodes, gathered and sorted natively."""

cimport cython
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

import numpy as np

cdef enum:
    ELEMENT, ATTRIBUTE, TEXT

# See `fmware.labeling.values`.
cdef enum:
    ELSEWHERE = 1
    INNER = 2
    SPLIT = 4


cdef struct Part:
    # Values as `fmware.labeling.values` has them; the first of them is the `first` of all parts.
    const uint8_t* mark
    const int64_t* offsets
    const uint8_t* data
    int64_t room            # bytes of the data
    int64_t first


def taken(list parts not None, const Py_ssize_t[::1] order):
    """(mark, offsets, data) of values of several parts, counted through all of them, in an order.

    A part is (mark, offsets, data). Parts are looked for forward, so an order in which most
    values follow others of their part costs least. Raises IndexError if a value is not there, or does
    not lie in the data of its part.
    """
    cdef Py_ssize_t count = order.shape[0], at, row, number = len(parts), k = 0
    cdef int64_t total = 0, size
    cdef Part* found = <Part*> PyMem_Calloc(number + 1, sizeof(Part))
    cdef Part* part
    cdef const uint8_t[::1] mark
    cdef const int64_t[::1] offsets
    cdef const uint8_t[::1] data
    cdef uint8_t[::1] marks, out
    cdef int64_t[::1] places
    cdef bint bad = False
    if found == NULL:
        raise MemoryError
    try:
        for at in range(number):
            mark, offsets, data = parts[at]
            row = mark.shape[0]
            if offsets.shape[0] != row + 1:
                raise ValueError("a value has two ends")
            found[at + 1].first = found[at].first + row
            if row:
                found[at].mark = &mark[0]
                found[at].offsets = &offsets[0]
            found[at].room = data.shape[0]
            if data.shape[0]:
                found[at].data = &data[0]
        new_marks = np.empty(count, np.uint8)
        new_places = np.empty(count + 1, np.int64)
        marks, places = new_marks, new_places
        places[0] = 0
        with nogil:
            for at in range(count):
                row = order[at]
                if row < 0 or row >= found[number].first:
                    bad = True
                    break
                if row < found[k].first:
                    k = 0
                while row >= found[k + 1].first:
                    k += 1
                part = &found[k]
                row -= part.first
                size = part.offsets[row + 1] - part.offsets[row]
                if size < 0 or part.offsets[row] < 0 or part.offsets[row + 1] > part.room:
                    bad = True
                    break
                marks[at] = part.mark[row]
                total += size
                places[at + 1] = total
        if bad:
            raise IndexError("an order of values that are not there")
        new_data = np.empty(total, np.uint8)
        if total:
            out = new_data
            k = 0
            with nogil:
                for at in range(count):
                    size = places[at + 1] - places[at]
                    if size == 0:
                        continue
                    row = order[at]
                    if row < found[k].first:
                        k = 0
                    while row >= found[k + 1].first:
                        k += 1
                    part = &found[k]
                    memcpy(&out[places[at]], part.data + part.offsets[row - part.first], size)
        return new_marks, new_places, new_data
    finally:
        PyMem_Free(found)


ctypedef fused Item:
    uint16_t
    uint32_t
    uint64_t


cdef Py_ssize_t scatter(const Item[::1] items, const int32_t* number, int64_t* places,
                        Item[::1] out) noexcept nogil:
    # Each item goes to the next place of its number.
    cdef Py_ssize_t at
    for at in range(items.shape[0]):
        out[places[number[at]]] = items[at]
        places[number[at]] += 1
    return items.shape[0]


@cython.final
cdef class Sorter:
    """Sorts columns of rows by a number that each row has; equal ones stay in their order.

    Columns come in parts, as they were collected. A part is read from its beginning to its end and
    written to as many places as there are numbers, which caches bear; to fetch rows one by one in
    their new order would wait for memory at each. `bounds` are where the rows of each number begin,
    and the end of all. Raises ValueError if a number is not below `count`.
    """

    cdef const int32_t[::1] _number
    cdef readonly object bounds

    def __cinit__(self, const int32_t[::1] number, Py_ssize_t count):
        cdef Py_ssize_t at
        cdef int64_t[::1] bounds
        cdef bint bad = False
        self._number = number
        self.bounds = np.zeros(count + 1, np.int64)
        bounds = self.bounds
        with nogil:
            for at in range(number.shape[0]):
                if number[at] < 0 or number[at] >= count:
                    bad = True
                    break
                bounds[number[at] + 1] += 1
        if bad:
            raise ValueError("a number that there is not")
        np.cumsum(self.bounds, out=self.bounds)
        self.bounds.flags.writeable = False

    def column(self, list parts not None, dtype):
        """The rows of a column, of two, four or eight bytes each."""
        cdef Py_ssize_t at = 0
        cdef const int32_t* number
        cdef int64_t[::1] places = np.array(self.bounds)
        cdef uint16_t[::1] out2
        cdef uint32_t[::1] out4
        cdef uint64_t[::1] out8
        found = np.empty(self._rows(parts), dtype)
        if not len(found):
            return found
        plain = f"u{found.itemsize}"
        for part in parts:
            if part.dtype != found.dtype:
                raise ValueError(f"a part of {part.dtype} in a column of {found.dtype}")
            if not len(part):
                continue
            number = &self._number[at]
            if found.itemsize == 2:
                out2 = found.view(plain)
                at += scatter[uint16_t](part.view(plain), number, &places[0], out2)
            elif found.itemsize == 4:
                out4 = found.view(plain)
                at += scatter[uint32_t](part.view(plain), number, &places[0], out4)
            else:
                out8 = found.view(plain)
                at += scatter[uint64_t](part.view(plain), number, &places[0], out8)
        return found

    cdef Py_ssize_t _rows(self, list parts) except -1:
        cdef Py_ssize_t rows = 0
        for part in parts:
            rows += len(part)
        if rows != self._number.shape[0]:
            raise ValueError(f"{rows:,} rows, and numbers of {self._number.shape[0]:,}")
        return rows

    def values(self, list parts not None):
        """(mark, offsets, data) of values; a part is (mark, offsets, data)."""
        cdef Py_ssize_t rows = self._rows([each[0] for each in parts])
        cdef Py_ssize_t count = len(self.bounds) - 1, at = 0, row
        cdef int64_t[::1] places = np.array(self.bounds)
        cdef int64_t[::1] sizes = np.zeros(count + 1, np.int64)
        cdef const uint8_t[::1] mark, data
        cdef const int64_t[::1] offsets
        cdef int64_t place, size
        cdef int32_t number
        cdef bint bad = False
        # The bytes of each number, and from them where those of each begin.
        for mark, offsets, data in parts:
            if offsets.shape[0] != mark.shape[0] + 1:
                raise ValueError("a value has two ends")
            with nogil:
                for row in range(mark.shape[0]):
                    size = offsets[row + 1] - offsets[row]
                    if size < 0 or offsets[row] < 0 or offsets[row + 1] > data.shape[0]:
                        bad = True
                        break
                    sizes[self._number[at] + 1] += size
                    at += 1
            if bad:
                raise ValueError("values that do not lie in their data")
        np.cumsum(sizes, out=np.asarray(sizes))
        marks = np.empty(rows, np.uint8)
        ends = np.empty(rows + 1, np.int64)
        found = np.empty(sizes[count], np.uint8)
        cdef uint8_t[::1] new_mark = marks, out = found
        cdef int64_t[::1] end = ends
        end[0] = at = 0
        for mark, offsets, data in parts:
            with nogil:
                for row in range(mark.shape[0]):
                    number = self._number[at]
                    place = places[number]
                    places[number] += 1
                    size = offsets[row + 1] - offsets[row]
                    new_mark[place] = mark[row]
                    if size:
                        memcpy(&out[sizes[number]], &data[offsets[row]], size)
                        sizes[number] += size
                    end[place + 1] = sizes[number]
                    at += 1
        return marks, ends, found


def values_of(
    const uint8_t[::1] kind,
    const int32_t[::1] parent,
    const int64_t[::1] start,
    const int64_t[::1] end,
    const int32_t[::1] offsets,
    const uint8_t[::1] data,
    int64_t longest,
):
    """(mark, offsets, data) of the elements and attributes of a table, by its columns.

    A value of more than `longest` bytes is left elsewhere.
    """
    cdef Py_ssize_t row, rows = kind.shape[0], kept = 0, behind
    cdef int64_t size, total = 0
    cdef uint8_t own
    # Of each row, its text nodes; -1 from when on it is known to hold an element.
    cdef int32_t* texts = <int32_t*> PyMem_Calloc(rows + 1, sizeof(int32_t))
    if texts == NULL:
        raise MemoryError
    marks = np.empty(rows, np.uint8)
    places = np.empty(rows + 1, np.int64)
    begins = np.empty(rows, np.int64)
    cdef uint8_t[::1] mark = marks
    cdef int64_t[::1] place = places, begin = begins
    cdef uint8_t[::1] out
    with nogil:
        for row in range(1, rows):
            if kind[row] == ELEMENT:
                if parent[row] >= 0:
                    texts[parent[row]] = -1
            elif kind[row] == TEXT and texts[parent[row]] >= 0:
                texts[parent[row]] += 1
        place[0] = 0
        for row in range(rows):
            if kind[row] == TEXT:
                continue
            own = 0
            if kind[row] == ATTRIBUTE:
                begin[kept] = offsets[row]
                size = offsets[row + 1] - offsets[row]
            elif texts[row] < 0:
                own = ELSEWHERE | INNER
                size = 0
            else:
                # The text of an element without elements is the last of its rows.
                behind = row + <Py_ssize_t> ((end[row] - start[row] + 1) >> 1)
                begin[kept] = offsets[behind - texts[row]]
                size = offsets[behind] - begin[kept]
                if texts[row] != (size > 0):
                    own = SPLIT
            if size > longest:
                own |= ELSEWHERE
                size = 0
            mark[kept] = own
            total += size
            kept += 1
            place[kept] = total
    PyMem_Free(texts)
    found = np.empty(total, np.uint8)
    if total:
        out = found
        with nogil:
            for row in range(kept):
                size = place[row + 1] - place[row]
                if size:
                    memcpy(&out[place[row]], &data[begin[row]], size)
    return marks[:kept], places[: kept + 1], found
