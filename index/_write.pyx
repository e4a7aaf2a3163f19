"""The native kernel of building an index: one pass each over columns of labels, without the GIL."""

from libc.stdint cimport int16_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

cdef enum:
    NO_ROW = 0xFFFFFFFF


def lengths(
    const int64_t[::1] start,
    const int64_t[::1] end,
    int64_t low,
    int64_t high,
    uint32_t[::1] length,
):
    """Fill `length`, and answer whether one node stands in another.

    ValueError where the labels are not those of a run's tag: ascending, within [low, high), none
    across another's border, none too long. For the borders, neighbours are looked at.
    """
    cdef Py_ssize_t row, rows = start.shape[0], bad = -1
    cdef int64_t before = low - 1, until = low - 1
    cdef bint nests = False
    if end.shape[0] != rows or length.shape[0] != rows:
        raise ValueError("columns of different lengths")
    with nogil:
        for row in range(rows):
            if start[row] <= before or end[row] < start[row] or end[row] >= high:
                bad = row
                break
            if end[row] - start[row] >= (<int64_t> 1 << 32) - 1:
                bad = row
                break
            if start[row] <= until:
                nests = True
                if end[row] >= until:
                    bad = row
                    break
            length[row] = <uint32_t> (end[row] - start[row])
            before = start[row]
            until = end[row]
    if bad >= 0:
        raise ValueError(
            f"row {bad} has the label ({start[bad]}, {end[bad]}): labels of a tag must ascend, lie in "
            f"[{low}, {high}), nest, and span less than 2^32"
        )
    return nests


def enclosing(const int64_t[::1] start, const int64_t[::1] end, uint32_t base, uint32_t[::1] up):
    """Fill `up` with the row, from `base` on, of the nearest interval around each.

    Intervals are nested and sorted. Answers how many stand in each other at most.
    """
    cdef Py_ssize_t row, depth = 0, deepest = 0, room = 64, rows = start.shape[0]
    cdef uint32_t* stack
    cdef uint32_t* grown
    if end.shape[0] != rows or up.shape[0] != rows:
        raise ValueError("columns of different lengths")
    stack = <uint32_t*> malloc(room * sizeof(uint32_t))
    if stack == NULL:
        raise MemoryError
    with nogil:
        for row in range(rows):
            while depth and end[stack[depth - 1]] < start[row]:
                depth -= 1
            up[row] = base + stack[depth - 1] if depth else NO_ROW
            if depth == room:
                room *= 2
                grown = <uint32_t*> realloc(stack, room * sizeof(uint32_t))
                if grown == NULL:
                    deepest = -1
                    break
                stack = grown
            stack[depth] = <uint32_t> row
            depth += 1
            if depth > deepest:
                deepest = depth
    free(stack)
    if deepest < 0:
        raise MemoryError
    return deepest


def translate(
    const uint32_t[::1] rank,
    const uint32_t[::1] table,
    uint32_t[::1] label,
    uint64_t[::1] count,
):
    """Fill `label` with table[rank], and count each in `count`; ValueError on a rank too high."""
    cdef Py_ssize_t row, rows = rank.shape[0], known = table.shape[0], labels = count.shape[0]
    cdef Py_ssize_t bad = -1
    cdef uint32_t found
    if label.shape[0] != rows:
        raise ValueError("columns of different lengths")
    with nogil:
        for row in range(rows):
            if rank[row] >= known:
                bad = row
                break
            found = table[rank[row]]
            if found >= labels:
                bad = row
                break
            label[row] = found
            count[found] += 1
    if bad >= 0:
        raise ValueError(f"row {bad} has rank {rank[bad]}, which is not one of its tag's")


def scatter(
    const uint32_t[::1] label,
    uint32_t low,
    uint32_t high,
    int64_t[::1] cursor,
    const int64_t[::1] start,
    const uint32_t[::1] length,
    const int16_t[::1] level,
    int64_t[::1] to_start,
    uint32_t[::1] to_length,
    uint16_t[::1] to_level,
):
    """Put the rows with a label in [low, high) where its cursor stands, and move that on.

    `cursor` is by label less `low`. Runs given one after the other are thereby sorted by (label,
    start), in one pass each.
    """
    cdef Py_ssize_t row, rows = label.shape[0], room = to_start.shape[0]
    cdef int64_t at
    cdef bint full = False
    if not (start.shape[0] == length.shape[0] == level.shape[0] == rows):
        raise ValueError("columns of different lengths")
    if not (to_length.shape[0] == to_level.shape[0] == room and cursor.shape[0] == high - low):
        raise ValueError("columns of different lengths")
    with nogil:
        for row in range(rows):
            if label[row] < low or label[row] >= high:
                continue
            at = cursor[label[row] - low]
            if at >= room:
                full = True
                break
            cursor[label[row] - low] = at + 1
            to_start[at] = start[row]
            to_length[at] = length[row]
            to_level[at] = <uint16_t> level[row]
    if full:
        raise ValueError("more rows with a label than were counted")


def gather_keys(
    const int64_t[::1] offsets,
    const uint8_t[::1] data,
    const int64_t[::1] order,
    int64_t[::1] to_offsets,
    uint8_t[::1] to_data,
):
    """Copy keys in another order; `to_offsets` has a place more than `order`."""
    cdef Py_ssize_t row, rows = order.shape[0]
    cdef int64_t at = 0, size, key
    cdef int64_t room = to_data.shape[0], last = offsets.shape[0] - 1
    cdef bint bad = to_offsets.shape[0] != rows + 1
    if not bad:
        with nogil:
            to_offsets[0] = 0
            for row in range(rows):
                key = order[row]
                if key < 0 or key >= last:
                    bad = True
                    break
                size = offsets[key + 1] - offsets[key]
                if size < 0 or at + size > room or offsets[key + 1] > data.shape[0]:
                    bad = True
                    break
                if size:
                    memcpy(&to_data[at], &data[offsets[key]], size)
                at += size
                to_offsets[row + 1] = at
    if bad:
        raise ValueError("keys that do not lie in their data")


def collides(
    const uint64_t[::1] hashes, const int64_t[::1] offsets, const uint8_t[::1] data
):
    """Whether neighbours of one hash have different keys."""
    cdef Py_ssize_t row, rows = hashes.shape[0]
    cdef int64_t size
    cdef bint found = False
    with nogil:
        for row in range(1, rows):
            if hashes[row] != hashes[row - 1]:
                continue
            size = offsets[row + 1] - offsets[row]
            if size != offsets[row] - offsets[row - 1] or (
                size and memcmp(&data[offsets[row]], &data[offsets[row - 1]], size)
            ):
                found = True
                break
    return found
