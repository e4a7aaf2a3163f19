# Rows by where they start. A digit at a time, because starts are numbers of few digits: a pass over
# neighbouring memory for each costs less than comparing a row a dozen times.

ctypedef struct Place:
    uint64_t key         # the start, counted from the first
    uint32_t row

cdef enum:
    DIGIT = 11
    DIGITS = 2048        # of so many values
    SHORT = 48           # rows that are as well put into order one by one


cdef Place* by_place(
    const int64_t* start, const int64_t* end, Py_ssize_t count, Place* memory
) noexcept nogil:
    """The rows in AD order, in one half of `memory`, which has room for twice as many."""
    cdef Place* found = memory
    cdef int64_t low = start[0], high = start[0]
    cdef Py_ssize_t row
    cdef uint64_t range_
    cdef int shift = 0
    for row in range(1, count):
        low = min(low, start[row])
        high = max(high, start[row])
    for row in range(count):
        found[row].key = <uint64_t> start[row] - <uint64_t> low
        found[row].row = <uint32_t> row
    if count > SHORT:
        range_ = <uint64_t> high - <uint64_t> low
        while range_ >> shift:
            sort_digit(found, memory if found != memory else memory + count, count, shift)
            found = memory if found != memory else memory + count
            shift += DIGIT
            if shift >= 64:
                break
    settle_order(found, end, count)
    return found


cdef void sort_digit(Place* rows, Place* into, Py_ssize_t count, int shift) noexcept nogil:
    """Put rows where the digit says; those with the same one stay in their order."""
    cdef Py_ssize_t counts[DIGITS]
    cdef Py_ssize_t row, at = 0, number
    cdef int digit
    memset(counts, 0, sizeof(counts))
    for row in range(count):
        counts[(rows[row].key >> shift) & (DIGITS - 1)] += 1
    for digit in range(DIGITS):
        number = counts[digit]
        counts[digit] = at
        at += number
    for row in range(count):
        digit = <int> ((rows[row].key >> shift) & (DIGITS - 1))
        into[counts[digit]] = rows[row]
        counts[digit] += 1


cdef void settle_order(Place* rows, const int64_t* end, Py_ssize_t count) noexcept nogil:
    """One by one; where most is in order already, or little is to be put into it."""
    cdef Py_ssize_t row, at
    cdef Place moved
    for row in range(1, count):
        moved = rows[row]
        at = row
        while at and (
            rows[at - 1].key > moved.key
            or (rows[at - 1].key == moved.key and end[rows[at - 1].row] > end[moved.row])
        ):
            rows[at] = rows[at - 1]
            at -= 1
        rows[at] = moved
