# The path tuples of statements that asked for them. Part of _kernel.pyx, which includes it.
#
# Two ways lead to the tuples of a statement. Where its steps are elements without predicates, the
# run has already decided at which rows it ends: `climb` goes up from these rows, so that work grows
# with the tuples there are. Any other path is walked down from the root by `extend_tuple`.

cdef extern from "stdlib.h" nogil:
    void qsort_r(void*, size_t, size_t, int (*)(const void*, const void*, void*) noexcept nogil,
                 void*)


cdef bint is_structural(Route* route) noexcept nogil:
    # Whether all steps are elements, and none has a predicate.
    cdef int32_t i
    for i in range(route.count):
        if route.steps[i].kind != ELEMENT or route.steps[i].cond != NULL:
            return False
    return True


cdef bint climb(Doc* doc, Route* route, int32_t index, int32_t row, int32_t* rows,
                Ints* found, int32_t counter, int32_t limit) noexcept nogil:
    # All ways up from `row`, which fits step `index`. False once there are `limit` tuples, or the
    # work or the memory is used up.
    cdef int32_t up = doc.parents[row]
    cdef int32_t i
    doc.budget -= 1
    if doc.budget < 0:
        return False
    rows[index] = row
    if index == 0:
        if route.steps[0].axis == CHILD and up >= 0:
            return True
        if found.items[counter] >= limit:
            return False
        doc.budget -= FOR_TUPLE * (1 + route.count)
        for i in range(route.count):
            if not push(found, rows[i]):
                doc.failed = True
                return False
        found.items[counter] += 1
        return True
    while up >= 0:
        doc.budget -= 1
        if (fits(doc, route.steps[index - 1].tag, up)
                and not climb(doc, route, index - 1, up, rows, found, counter, limit)):
            return False
        if route.steps[index].axis == CHILD:
            return True
        up = doc.parents[up]
    return True


cdef int by_rows(const void* left, const void* right, void* width) noexcept nogil:
    cdef int32_t i
    for i in range((<int32_t*>width)[0]):
        if (<int32_t*>left)[i] != (<int32_t*>right)[i]:
            return -1 if (<int32_t*>left)[i] < (<int32_t*>right)[i] else 1
    return 0


cdef void sort_tuples(int32_t* rows, int32_t width, int32_t count) noexcept nogil:
    # In document order of their first nodes, then of their second ones, and so on.
    cdef int32_t i
    for i in range(1, count):
        if by_rows(rows + <int64_t>(i - 1) * width, rows + <int64_t>i * width, &width) > 0:
            qsort_r(rows, count, width * sizeof(int32_t), by_rows, &width)
            return


cdef bint extend_tuple(Doc* doc, Route* route, int32_t index, int32_t row, int32_t* rows,
                       Ints* found, int32_t counter, int32_t limit) noexcept nogil:
    # All ways to go on from `row` (-1: from above the root). False once there are enough, or the
    # work is used up.
    cdef Step* step
    cdef int32_t at, last, i
    cdef bint deep
    if index == route.count:
        if found.items[counter] >= limit:
            return False
        doc.budget -= FOR_TUPLE + route.count
        for i in range(route.count):
            if not push(found, rows[i]):
                doc.failed = True
                return False
        found.items[counter] += 1
        return True
    if row >= 0 and doc.kinds[row] != ELEMENT:
        return True
    step = &route.steps[index]
    deep = step.axis == DESCENDANT
    at = row + 1
    last = doc.rows if row < 0 else row + size_of(doc, row)
    while at < last:
        doc.budget -= 1
        if (doc.kinds[at] == step.kind and (step.kind == TEXT or fits(doc, step.tag, at))
                and (step.cond == NULL or is_known(doc, step.cond, at))):
            if doc.budget < 0:
                return False
            rows[index] = at
            if not extend_tuple(doc, route, index + 1, at, rows, found, counter, limit):
                return False
        if doc.budget < 0:
            return False
        at += 1 if deep else size_of(doc, at)
    return True
