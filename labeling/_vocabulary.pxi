# The vocabulary. Part of _kernel.pyx, which includes it.

# Of this process alone, so that nobody can make up names that fall into one slot.
cdef uint64_t SEED = int.from_bytes(os.urandom(8), "little")


cdef inline uint64_t mix(uint64_t value, const char* text, uint32_t length) noexcept nogil:
    # Eight bytes at a time; the length tells a short rest from one with zeros behind it.
    cdef uint64_t word
    value ^= length
    while length >= 8:
        memcpy(&word, text, 8)
        value = (value ^ word) * 0x9E3779B97F4A7C15ULL
        value ^= value >> 32
        text += 8
        length -= 8
    word = 0
    while length > 0:
        length -= 1
        word = word << 8 | <uint8_t>text[length]
    value = (value ^ word) * 0xD6E8FEB86659FD93ULL
    return value ^ (value >> 32)


cdef inline uint64_t hash_name(const char* uri, uint32_t uri_length,
                               const char* local, uint32_t local_length) noexcept nogil:
    return mix(mix(SEED, uri, uri_length) if uri_length else SEED, local, local_length)


cdef Names* new_names(uint32_t size) noexcept nogil:
    cdef Names* names = <Names*>malloc(sizeof(Names))
    if names == NULL:
        return NULL
    names.mask = size - 1
    names.slots = <int32_t*>calloc(size, sizeof(int32_t))
    names.older = NULL
    if names.slots == NULL:
        free(names)
        return NULL
    return names


cdef class Vocabulary:
    """Names of elements and attributes, as Clark names, and their ids.

    Ids are dense and never change; id 0 stands for text nodes and id 1 for names that a closed
    reader did not know. Safe for any number of threads: look-ups take no lock. `limit` bounds
    how many names may be held, so that a hostile stream cannot fill the memory.
    """

    def __cinit__(self, names=(), int32_t limit=1 << 20):
        cdef Py_ssize_t i
        if not 2 <= limit <= PAGE * PAGES:
            raise ValueError(f"the limit of a vocabulary lies between 2 and {PAGE * PAGES}")
        self.limit = limit
        self._clark_ids = {}
        self._clark_names = ["#text", "#unknown"]
        self._dictionary = None
        self._count = 2
        self._pages = <Name**>calloc(PAGES, sizeof(Name*))
        self._names = new_names(1024)
        self._mutex = malloc(sizeof(pthread_mutex_t))
        if self._pages == NULL or self._names == NULL or self._mutex == NULL:
            raise MemoryError
        pthread_mutex_init(<pthread_mutex_t*>self._mutex, NULL)
        for name in names:
            self.add(name)

    def __dealloc__(self):
        cdef int32_t i
        cdef Names* older
        if self._pages != NULL:
            for i in range(2, self._count):
                free(self._pages[i // PAGE][i % PAGE].text)
            for i in range(PAGES):
                free(self._pages[i])
            free(self._pages)
        while self._names != NULL:
            older = self._names.older
            free(self._names.slots)
            free(self._names)
            self._names = older
        if self._mutex != NULL:
            pthread_mutex_destroy(<pthread_mutex_t*>self._mutex)
            free(self._mutex)

    cdef int32_t find(self, const char* uri, uint32_t uri_length,
                      const char* local, uint32_t local_length) noexcept nogil:
        """The id of a name, or -1."""
        cdef uint64_t value = hash_name(uri, uri_length, local, local_length)
        cdef Names* names = load_pointer(self._names)
        cdef uint32_t slot = <uint32_t>value & names.mask
        cdef int32_t tag
        cdef Name* name
        while True:
            tag = load_int(names.slots[slot])
            if tag == 0:
                return -1
            name = &self._pages[tag // PAGE][tag % PAGE]
            if (name.hash == value and name.uri_length == uri_length
                    and name.local_length == local_length
                    and memcmp(name.text, uri, uri_length) == 0
                    and memcmp(name.text + uri_length, local, local_length) == 0):
                return tag
            slot = (slot + 1) & names.mask

    cdef int32_t intern(self, const char* uri, uint32_t uri_length,
                        const char* local, uint32_t local_length) noexcept nogil:
        """The id of a name, which is added if it is new; FULL or NO_MEMORY if it cannot be."""
        cdef int32_t tag = self.find(uri, uri_length, local, local_length)
        if tag >= 0:
            return tag
        pthread_mutex_lock(<pthread_mutex_t*>self._mutex)
        tag = self.find(uri, uri_length, local, local_length)
        if tag < 0:
            tag = self._append(uri, uri_length, local, local_length)
        pthread_mutex_unlock(<pthread_mutex_t*>self._mutex)
        return tag

    cdef int32_t _append(self, const char* uri, uint32_t uri_length,
                         const char* local, uint32_t local_length) noexcept nogil:
        cdef int32_t tag = self._count
        cdef Name* name
        if tag >= self.limit:
            return FULL
        if self._pages[tag // PAGE] == NULL:
            self._pages[tag // PAGE] = <Name*>calloc(PAGE, sizeof(Name))
            if self._pages[tag // PAGE] == NULL:
                return NO_MEMORY
        name = &self._pages[tag // PAGE][tag % PAGE]
        name.text = <char*>malloc(uri_length + local_length + 1)
        if name.text == NULL:
            return NO_MEMORY
        memcpy(name.text, uri, uri_length)
        memcpy(name.text + uri_length, local, local_length)
        name.uri_length = uri_length
        name.local_length = local_length
        name.hash = hash_name(uri, uri_length, local, local_length)
        if <uint32_t>tag * 2 > self._names.mask and not self._grow():
            free(name.text)
            return NO_MEMORY
        # The name is whole before any slot shows it: readers come without a lock.
        self._place(self._names, tag)
        store_int(self._count, tag + 1)
        return tag

    cdef void _place(self, Names* names, int32_t tag) noexcept nogil:
        cdef uint32_t slot = <uint32_t>self._pages[tag // PAGE][tag % PAGE].hash & names.mask
        while names.slots[slot] != 0:
            slot = (slot + 1) & names.mask
        store_int(names.slots[slot], tag)

    cdef bint _grow(self) noexcept nogil:
        cdef Names* grown = new_names((self._names.mask + 1) * 4)
        cdef int32_t tag
        if grown == NULL:
            return False
        for tag in range(2, self._count):
            self._place(grown, tag)
        grown.older = self._names
        store_pointer(self._names, grown)
        return True

    def add(self, str name not None):
        """The id of a Clark name; a name seen for the first time gets the next one."""
        uri, local = split_clark(name)
        cdef bytes raw_uri = uri.encode()
        cdef bytes raw_local = local.encode()
        cdef int32_t tag = self.intern(raw_uri, <uint32_t>len(raw_uri),
                                       raw_local, <uint32_t>len(raw_local))
        if tag == NO_MEMORY:
            raise MemoryError
        if tag == FULL:
            raise OverflowError(f"the vocabulary is full: it may hold {self.limit} names")
        return tag

    def get(self, str name not None, default=None):
        """The id of a Clark name, or `default`."""
        tag = self._clark_ids.get(name)
        if tag is None:
            self._catch_up()
            tag = self._clark_ids.get(name, default)
        return tag

    def name(self, tag):
        """The Clark name of an id."""
        if not 0 <= tag < len(self._clark_names):
            self._catch_up()
        if tag < 0:
            raise IndexError(tag)
        return self._clark_names[tag]

    @property
    def names(self):
        """All names in the order of their ids, the two reserved ones first."""
        self._catch_up()
        return tuple(self._clark_names)

    def _catch_up(self):
        # Names that threads interned without the GIL get their Python strings here.
        cdef int32_t tag
        cdef int32_t count = load_int(self._count)
        cdef Name* name
        for tag in range(<int32_t>len(self._clark_names), count):
            name = &self._pages[tag // PAGE][tag % PAGE]
            uri = name.text[:name.uri_length].decode()
            local = name.text[name.uri_length:name.uri_length + name.local_length].decode()
            clark = f"{{{uri}}}{local}" if uri else local
            self._clark_ids[clark] = tag
            # Another thread may have been here while a string was made.
            if tag == <int32_t>len(self._clark_names):
                self._clark_names.append(clark)

    def dictionary(self):
        """The names as an Arrow array; the same object until a name is added."""
        import pyarrow as pa
        self._catch_up()
        if self._dictionary is None or len(self._dictionary) != len(self._clark_names):
            self._dictionary = pa.array(self._clark_names, pa.utf8())
        return self._dictionary

    def __len__(self):
        return load_int(self._count)

    def __contains__(self, name):
        return isinstance(name, str) and self.get(name) is not None

    def __reduce__(self):
        return Vocabulary, (self.names[2:], self.limit)

    def __repr__(self):
        return f"<Vocabulary of {len(self)} names>"


def split_clark(str name not None):
    """`{uri}local` as its two parts."""
    if name.startswith("{"):
        uri, closed, local = name[1:].rpartition("}")
        if closed and local:
            return uri, local
    elif name:
        return "", name
    raise ValueError(f"not a Clark name: {name!r}")
