from libc.stdint cimport int32_t, uint64_t

cdef class Symbols:
    cdef dict _ids
    cdef list _names
    cdef signed char *kind
    cdef int32_t *wild
    cdef int32_t count, room

    cdef int32_t _put(self, int kind, str name, int32_t wild) except -1
    cpdef int32_t add(self, int kind, str name) except -1
    cdef bint accepts(self, int32_t test, int32_t letter) noexcept nogil
    cdef uint64_t mask(self, const int32_t *codes, int length, int32_t letter) noexcept nogil
