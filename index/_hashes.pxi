# The hash of identity keys: 64-bit FNV-1a, then the finaliser of SplitMix64, because FNV leaves the
# high bits of short keys alike and blocks are found by them.

cdef inline uint64_t hash_of(const uint8_t* key, Py_ssize_t size) noexcept nogil:
    cdef uint64_t value = 0xCBF29CE484222325ULL
    cdef Py_ssize_t at
    for at in range(size):
        value = (value ^ key[at]) * 0x100000001B3ULL
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL
    return value ^ (value >> 31)


def hash_key(const uint8_t[::1] key):
    """The hash of one key."""
    return hash_of(&key[0] if key.shape[0] else NULL, key.shape[0])


def hash_keys(offsets, data):
    """The hashes of many keys; key i is data[offsets[i]:offsets[i + 1]]."""
    offsets = np.ascontiguousarray(offsets, np.int64)
    data = np.ascontiguousarray(data, np.uint8)
    cdef Py_ssize_t count = max(len(offsets) - 1, 0)
    if count and (offsets[0] < 0 or offsets[count] > len(data) or (np.diff(offsets) < 0).any()):
        raise ValueError("the offsets do not lie in the data")
    hashes = np.empty(count, np.uint64)
    cdef Column places = Column(offsets, 8)
    cdef Column source = Column(data, 1)
    cdef Column target = Column(hashes, 8)
    cdef const int64_t* offset = <const int64_t*> places.view.buf
    cdef const uint8_t* keys = <const uint8_t*> source.view.buf
    cdef uint64_t* out = <uint64_t*> target.view.buf
    cdef Py_ssize_t row
    with nogil:
        for row in range(count):
            out[row] = hash_of(keys + offset[row], offset[row + 1] - offset[row])
    return hashes
