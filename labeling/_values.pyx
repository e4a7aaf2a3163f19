"""Values of nodes, gathered natively."""

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

import numpy as np

cdef enum:
    ELEMENT, ATTRIBUTE, TEXT

# See `labeling.values`.
cdef enum:
    ELSEWHERE = 1
    INNER = 2
    SPLIT = 4


def gathered(const uint8_t[::1] data, const int64_t[::1] begin, const int64_t[::1] size):
    """The stretches of `data` that begin at `begin` and have `size` bytes, one after the other."""
    cdef Py_ssize_t at, count = begin.shape[0]
    cdef int64_t total = 0, room = data.shape[0]
    cdef uint8_t[::1] out
    cdef bint bad = size.shape[0] != count
    if not bad:
        for at in range(count):
            if begin[at] < 0 or size[at] < 0 or begin[at] > room - size[at]:
                bad = True
                break
            total += size[at]
    if bad:
        raise ValueError("stretches that do not lie in their data")
    found = np.empty(total, np.uint8)
    if total:
        out = found
        total = 0
        with nogil:
            for at in range(count):
                if size[at]:
                    memcpy(&out[total], &data[begin[at]], size[at])
                    total += size[at]
    return found


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
