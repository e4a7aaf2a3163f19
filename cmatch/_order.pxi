# Rows by where they start. A digit at a time, because starts are numbers of few digits: a pass over
# neighbouring memory for each costs less than comparing a row a dozen times.
#
# A place is a start, counted from the first, and below it, in the lowest bits, a row. Where both do
# not fit into one number, starts lose their last digits; rows that are then alike stand next to
# each other, and are put right one by one.

cdef enum:
    DIGIT = 11
    DIGITS = 2048        # of so many values
    SHORT = 48           # rows that are as well put into order one by one


cdef const uint64_t* by_place(
    const int64_t* start, const int64_t* end, Py_ssize_t count, uint64_t* memory, uint64_t* mask
) noexcept nogil:
    """The rows in AD order, in one half of `memory`, which has room for twice as many.

    Under `mask` a place is its row.
    """
    cdef uint64_t* found = memory
    cdef int64_t low = start[0], high = start[0]
    cdef int below = length_of(<uint64_t> count), bits, lost, shift
    cdef Py_ssize_t row
    for row in range(1, count):
        low = min(low, start[row])
        high = max(high, start[row])
    bits = length_of(<uint64_t> high - <uint64_t> low)
    lost = max(bits + below - 64, 0)
    for row in range(count):
        found[row] = (((<uint64_t> start[row] - <uint64_t> low) >> lost) << below) | <uint64_t> row
    if count > SHORT:
        shift = below
        while shift < below + bits - lost:
            sort_digit(found, memory if found != memory else memory + count, count, shift)
            found = memory if found != memory else memory + count
            shift += DIGIT
    mask[0] = ((<uint64_t> 1) << below) - 1
    settle_order(found, start, end, count, mask[0])
    return found


cdef inline int length_of(uint64_t value) noexcept nogil:
    """The bits of a number, the last of which is set."""
    cdef int bits = 0
    while value:
        value >>= 1
        bits += 1
    return bits


cdef void sort_digit(uint64_t* places, uint64_t* into, Py_ssize_t count, int shift) noexcept nogil:
    """Put places where the digit says; those with the same one stay in their order."""
    cdef Py_ssize_t counts[DIGITS]
    cdef Py_ssize_t row, at = 0, number
    cdef int digit
    memset(counts, 0, sizeof(counts))
    for row in range(count):
        counts[(places[row] >> shift) & (DIGITS - 1)] += 1
    for digit in range(DIGITS):
        number = counts[digit]
        counts[digit] = at
        at += number
    for row in range(count):
        digit = <int> ((places[row] >> shift) & (DIGITS - 1))
        into[counts[digit]] = places[row]
        counts[digit] += 1


cdef void settle_order(
    uint64_t* places, const int64_t* start, const int64_t* end, Py_ssize_t count, uint64_t mask
) noexcept nogil:
    """One by one; where most is in order already, or little is to be put into it."""
    cdef Py_ssize_t row, at
    cdef uint64_t moved
    for row in range(1, count):
        moved = places[row]
        at = row
        while at and is_behind(places[at - 1], moved, start, end, mask):
            places[at] = places[at - 1]
            at -= 1
        places[at] = moved


cdef inline bint is_behind(
    uint64_t one, uint64_t other, const int64_t* start, const int64_t* end, uint64_t mask
) noexcept nogil:
    """Whether the row of one place is to stand behind that of the other."""
    if (one ^ other) > mask:
        return one > other
    one &= mask
    other &= mask
    return start[one] > start[other] or (start[one] == start[other] and end[one] > end[other])
