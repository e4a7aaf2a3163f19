"""The matches of a batch in the order of messages, and texts gathered into Arrow arrays.

A batch of a few messages has few matches: there each call of numpy or pyarrow costs more than the
work it does. So the columns that every table has are made here, in one call each.
"""

from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

import numpy as np
import pyarrow as pa

cdef object allocated = np.empty
cdef object buffer = pa.py_buffer
cdef object string_array = pa.StringArray.from_buffers
cdef object INT32 = np.dtype(np.int32)
cdef object INT64 = np.dtype(np.int64)
cdef object UINT8 = np.dtype(np.uint8)

cdef int64_t MOST = 0x7fffffff    # bytes of an Arrow string array: its offsets are int32


def in_order(
    const int64_t[:, :] ends, const int32_t[::1] ids, const int64_t[:, :] told,
    const int64_t[::1] local_ends, const int32_t[::1] plan, const int64_t[::1] at,
    const int64_t[::1] numbers, const int64_t[::1] widths,
):
    """All matches, message by message: named ones, then tuples, then local ones.

    Args:
        ends, ids, told: the columns of a `FilterBatch`.
        local_ends: by message, where its local matches end.
        plan, at: of each local match its plan, and where the rows of its path tuple begin.
        numbers, widths: of each plan the number of its statement, and how many rows it returns.

    Returns:
        Of each match the place of its message, the number of its statement, where its rows begin,
        how many they are, and which of the local matches it is, or -1.
    """
    cdef Py_ssize_t messages = ends.shape[0], place, to = 0, of
    cdef Py_ssize_t named = 0, tuples = 0, local = 0
    cdef Py_ssize_t count = ids.shape[0] + told.shape[0] + plan.shape[0]
    made = tuple([allocated(count, INT64) for _ in range(5)])
    cdef int64_t[::1] places = made[0], number = made[1], begin = made[2], width = made[3]
    cdef int64_t[::1] which = made[4]
    with nogil:
        for place in range(messages):
            while named < ends[place, 0]:
                places[to], number[to], begin[to], width[to] = place, ids[named], 0, 0
                which[to] = -1
                named += 1
                to += 1
            while tuples < ends[place, 1]:
                places[to], number[to] = place, told[tuples, 0]
                begin[to], width[to], which[to] = told[tuples, 1], told[tuples, 2], -1
                tuples += 1
                to += 1
            while local < local_ends[place]:
                of = plan[local]
                places[to], number[to] = place, numbers[of]
                begin[to], width[to], which[to] = at[local], widths[of], local
                local += 1
                to += 1
    if to != count:
        raise ValueError("columns that do not belong together")
    return made


cdef class Texts:
    """Texts by number, in UTF-8, to be gathered into Arrow arrays.

    A character that UTF-8 does not have, as in the names of some files, is written as its escape.
    A text may be None; it is as good as an empty one, and not to be asked for.
    """

    cdef object held_offsets, held_data    # the arrays below belong to these
    cdef const int64_t* offsets
    cdef const uint8_t* data
    cdef readonly Py_ssize_t count

    def __init__(self, list texts not None):
        cdef Py_ssize_t count = len(texts), at, size
        cdef list encoded = None
        cdef const char* text
        cdef int64_t total = 0
        offsets = allocated(count + 1, INT64)
        cdef int64_t[::1] ends = offsets
        cdef uint8_t[::1] to
        ends[0] = 0
        for at in range(count):
            if texts[at] is not None:
                try:
                    PyUnicode_AsUTF8AndSize(texts[at], &size)
                except UnicodeEncodeError:
                    if encoded is None:
                        encoded = texts = list(texts)
                    texts[at] = (<str> texts[at]).encode(errors="backslashreplace").decode()
                    PyUnicode_AsUTF8AndSize(texts[at], &size)
                total += size
            ends[at + 1] = total
        data = allocated(total + 1, UINT8)
        to = data
        for at in range(count):
            if texts[at] is not None:
                text = PyUnicode_AsUTF8AndSize(texts[at], &size)
                memcpy(&to[ends[at]], text, size)
        self.hold(offsets, data)

    @staticmethod
    def of(offsets, data):
        """Texts that lie in arrays: the i-th is `data[offsets[i]:offsets[i + 1]]`."""
        cdef Texts made = Texts.__new__(Texts)
        made.hold(offsets, data)
        return made

    @staticmethod
    def joined(list parts not None):
        """Those of several, one after the other."""
        cdef Py_ssize_t count = 0, at, base = 0
        cdef int64_t total = 0, size
        cdef Texts part
        for part in parts:
            count += part.count
            total += part.offsets[part.count] - part.offsets[0]
        offsets, data = allocated(count + 1, INT64), allocated(total + 1, UINT8)
        cdef int64_t[::1] ends = offsets
        cdef uint8_t[::1] to = data
        total = 0
        ends[0] = 0
        for part in parts:
            for at in range(part.count):
                ends[base + at + 1] = total + part.offsets[at + 1] - part.offsets[0]
            size = part.offsets[part.count] - part.offsets[0]
            if size:
                memcpy(&to[total], part.data + part.offsets[0], size)
            total += size
            base += part.count
        return Texts.of(offsets, data)

    cdef int hold(self, offsets, data) except -1:
        cdef const int64_t[::1] ends = offsets
        cdef const uint8_t[::1] bytes_ = data
        self.held_offsets, self.held_data = offsets, data
        self.count = ends.shape[0] - 1
        self.offsets = &ends[0]
        self.data = &bytes_[0] if bytes_.shape[0] else NULL
        return 0

    def __len__(self):
        return self.count

    def sizes(self, const int64_t[::1] numbers):
        """The bytes of some texts; 0 for -1."""
        cdef Py_ssize_t at
        made = allocated(numbers.shape[0], INT64)
        cdef int64_t[::1] size = made
        for at in range(numbers.shape[0]):
            self.check(numbers[at])
            size[at] = 0 if numbers[at] < 0 else self.size(numbers[at])
        return made

    cdef inline int64_t size(self, int64_t number) noexcept nogil:
        return self.offsets[number + 1] - self.offsets[number]

    cdef inline int check(self, int64_t number) except -1:
        if not -1 <= number < self.count:
            raise IndexError(f"no text {number} among {self.count}")
        return 0

    def take(self, const int64_t[::1] numbers):
        """The texts with these numbers as an Arrow array; null for -1.

        Raises:
            OverflowError: they are more than an array can hold.
        """
        cdef Py_ssize_t at, count = numbers.shape[0], missing = 0
        cdef int64_t total = 0, number, size
        cdef int32_t[::1] ends
        cdef uint8_t[::1] to, bits
        for at in range(count):
            self.check(numbers[at])
            if numbers[at] < 0:
                missing += 1
            else:
                total += self.size(numbers[at])
        if total > MOST:
            raise OverflowError("more text than an Arrow array can hold; publish smaller batches")
        offsets, data = allocated(count + 1, INT32), allocated(total + 1, UINT8)
        ends, to = offsets, data
        total = 0
        with nogil:
            for at in range(count):
                ends[at] = <int32_t> total
                number = numbers[at]
                if number >= 0:
                    size = self.size(number)
                    if size:
                        memcpy(&to[total], self.data + self.offsets[number], size)
                        total += size
            ends[count] = <int32_t> total
        valid = None
        if missing:
            valid = np.zeros((count + 7) >> 3, UINT8)
            bits = valid
            for at in range(count):
                if numbers[at] >= 0:
                    bits[at >> 3] |= <uint8_t> (1 << (at & 7))
            valid = buffer(valid)
        return string_array(count, buffer(offsets), buffer(data), valid, missing)
