"""Columns of local nodes, natively: which are distinct, their order, and comparisons of their values.

Batches of a message or two have few rows, for which a call of numpy costs more than the work.
"""

cdef extern from "Python.h":
    double PyOS_string_to_double(const char*, char**, object) except? -1.0

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.math cimport NAN
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport qsort
from libc.string cimport memchr, memcmp, memcpy

import numpy as np

ctypedef struct Entry:
    int64_t major
    int64_t minor
    Py_ssize_t at


cdef int by_both(const void* left, const void* right) noexcept nogil:
    cdef const Entry* a = <const Entry*> left
    cdef const Entry* b = <const Entry*> right
    if a.major != b.major:
        return 1 if a.major > b.major else -1
    if a.minor != b.minor:
        return 1 if a.minor > b.minor else -1
    return (a.at > b.at) - (a.at < b.at)


def distinct(const int64_t[::1] keys):
    """The places of the distinct keys, in their order, and for each key its place among them."""
    cdef Py_ssize_t at, count = keys.shape[0], kept = 0
    firsts = np.empty(count, np.int64)
    owners = np.empty(count, np.int64)
    cdef int64_t[::1] first = firsts, of = owners
    cdef Entry* entries = <Entry*> PyMem_Malloc((count + 1) * sizeof(Entry))
    if entries == NULL:
        raise MemoryError
    with nogil:
        for at in range(count):
            entries[at].major = keys[at]
            entries[at].minor = 0
            entries[at].at = at
        qsort(entries, count, sizeof(Entry), by_both)
        for at in range(count):
            if not at or entries[at].major != entries[at - 1].major:
                first[kept] = entries[at].at
                kept += 1
            of[entries[at].at] = kept - 1
    PyMem_Free(entries)
    return firsts[:kept], owners


def first_of_each(const int64_t[::1] major, const int64_t[::1] minor):
    """The rows in the order of two columns, and of those that are alike, the first.

    None if that is all of them as they stand.
    """
    cdef Py_ssize_t at, count = major.shape[0], kept = 0
    cdef int64_t[::1] out
    cdef Entry* entries
    if minor.shape[0] != count:
        raise ValueError("columns of different lengths")
    for at in range(1, count):
        if major[at - 1] > major[at] or (major[at - 1] == major[at] and minor[at - 1] >= minor[at]):
            break
    else:
        return None
    rows = np.empty(count, np.int64)
    out = rows
    entries = <Entry*> PyMem_Malloc((count + 1) * sizeof(Entry))
    if entries == NULL:
        raise MemoryError
    with nogil:
        for at in range(count):
            entries[at].major = major[at]
            entries[at].minor = minor[at]
            entries[at].at = at
        qsort(entries, count, sizeof(Entry), by_both)
        for at in range(count):
            if (
                not at
                or entries[at].major != entries[at - 1].major
                or entries[at].minor != entries[at - 1].minor
            ):
                out[kept] = entries[at].at
                kept += 1
    PyMem_Free(entries)
    return rows[:kept]


def expand(const int64_t[::1] keys, const int64_t[::1] of, Py_ssize_t count):
    """All pairs of a left place and a right one with the same key, by left place.

    `of` are the keys on the left, `keys` those on the right, sorted; keys are below `count`.
    """
    cdef Py_ssize_t at, place, total = 0
    cdef int64_t key
    begins = np.zeros(count + 2, np.int64)
    cdef int64_t[::1] begin = begins
    cdef int64_t[::1] lefts, rights
    for at in range(keys.shape[0]):
        if not 0 <= keys[at] < count or (at and keys[at - 1] > keys[at]):
            raise ValueError("keys that are not sorted, or too large")
        begin[keys[at] + 1] += 1
    for at in range(count):
        begin[at + 1] += begin[at]
    for at in range(of.shape[0]):
        if not 0 <= of[at] < count:
            raise ValueError("a key that is too large")
        total += begin[of[at] + 1] - begin[of[at]]
    left = np.empty(total, np.int64)
    right = np.empty(total, np.int64)
    lefts, rights = left, right
    total = 0
    for at in range(of.shape[0]):
        key = of[at]
        for place in range(begin[key], begin[key + 1]):
            lefts[total] = at
            rights[total] = place
            total += 1
    return left, right


# --- comparisons by the rules of XPath 1.0, which are those of `evaluate.compares` ---

cdef enum:
    EXACT = 15           # decimal digits that a double holds exactly, whatever they are

cdef enum:
    EQ, NE, LT, LE, GT, GE


cdef inline bint is_blank(uint8_t byte) noexcept nogil:
    return byte == 32 or byte == 9 or byte == 10 or byte == 13


cdef double number(const uint8_t* text, Py_ssize_t size) except? -1.0:
    """XPath 1.0's number of a string: blanks, a minus, digits and one point; NaN if it is none."""
    cdef Py_ssize_t begin, at, whole, fraction = 0
    cdef int64_t value = 0
    cdef bint minus
    while size and is_blank(text[size - 1]):
        size -= 1
    at = 0
    while at < size and is_blank(text[at]):
        at += 1
    begin = at
    minus = at < size and text[at] == c"-"
    at += minus
    whole = at
    while at < size and c"0" <= text[at] <= c"9":
        if at - whole < EXACT:
            value = 10 * value + text[at] - c"0"
        at += 1
    whole = at - whole
    if at < size and text[at] == c".":
        at += 1
        while at + fraction < size and c"0" <= text[at + fraction] <= c"9":
            fraction += 1
        at += fraction
    if at < size or whole + fraction == 0:
        return NAN
    if fraction == 0 and whole <= EXACT:
        return -<double> value if minus else <double> value
    return converted(text + begin, size - begin)


cdef double converted(const uint8_t* text, Py_ssize_t size) except? -1.0:
    cdef char* copy = <char*> PyMem_Malloc(size + 1)
    if copy == NULL:
        raise MemoryError
    try:
        memcpy(copy, text, size)
        copy[size] = 0
        return PyOS_string_to_double(copy, NULL, OverflowError)
    except OverflowError:
        return float(copy[:size])
    finally:
        PyMem_Free(copy)


cdef inline bint holds(double left, int op, double right) noexcept nogil:
    if op == EQ:
        return left == right
    if op == NE:
        return left != right
    if op == LT:
        return left < right
    if op == LE:
        return left <= right
    if op == GT:
        return left > right
    return left >= right


def compared(const int64_t[::1] offsets, const uint8_t[::1] data, int op, wanted):
    """Which values compare with `wanted`: bytes, or a number. `op` is one of `fmware.xpath.Op`."""
    cdef Py_ssize_t at, count = offsets.shape[0] - 1, size
    cdef const uint8_t* text = &data[0] if data.shape[0] else NULL
    cdef const uint8_t[::1] literal
    cdef const uint8_t* other = NULL
    cdef Py_ssize_t length = 0
    cdef double right = 0
    cdef bint as_text = isinstance(wanted, bytes)
    found = np.empty(count, np.uint8)
    cdef uint8_t[::1] out = found
    if as_text:
        literal = wanted
        length = literal.shape[0]
        other = &literal[0] if length else NULL
        if op > NE:
            right = number(other, length)
            as_text = False
    else:
        right = wanted
    for at in range(count):
        size = offsets[at + 1] - offsets[at]
        if as_text:
            out[at] = (
                size == length and (not size or memcmp(text + offsets[at], other, size) == 0)
            ) == (op == EQ)
        else:
            out[at] = holds(number(text + offsets[at], size), op, right)
    return found.view(np.bool_)


def containing(
    const int64_t[::1] offsets, const uint8_t[::1] data, const uint8_t[::1] wanted, bint begin
):
    """Which values have `wanted` in them, or begin with it."""
    cdef Py_ssize_t at, count = offsets.shape[0] - 1, size, length = wanted.shape[0]
    cdef const uint8_t* text
    cdef const uint8_t* end
    found = np.zeros(count, np.uint8)
    cdef uint8_t[::1] out = found
    for at in range(count):
        size = offsets[at + 1] - offsets[at]
        if not length:
            out[at] = True
            continue
        if size < length:
            continue
        text = &data[offsets[at]]
        if begin:
            out[at] = memcmp(text, &wanted[0], length) == 0
            continue
        end = text + size - length + 1
        while text < end:
            text = <const uint8_t*> memchr(text, wanted[0], end - text)
            if text == NULL:
                break
            if memcmp(text, &wanted[0], length) == 0:
                out[at] = True
                break
            text += 1
    return found.view(np.bool_)
