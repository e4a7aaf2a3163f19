# The vocabulary. Part of _kernel.pyx, which includes it.

# Of this process alone, so that a sender cannot make up names that fall into one slot.
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


cdef inline uint64_t hash_local(int32_t space, const char* local, uint32_t length) noexcept nogil:
    return mix(SEED + <uint64_t>space * 0x9E3779B97F4A7C15ULL, local, length)


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


cdef void free_names(Names* names) noexcept nogil:
    cdef Names* older
    while names != NULL:
        older = names.older
        free(names.slots)
        free(names)
        names = older


cdef void place(Names* names, Name** pages, int32_t number) noexcept nogil:
    cdef uint32_t slot = <uint32_t>pages[number // PAGE][number % PAGE].hash & names.mask
    while names.slots[slot] != 0:
        slot = (slot + 1) & names.mask
    store_int(names.slots[slot], number)


cdef Names* grown(Names* names, Name** pages, int32_t first, int32_t count) noexcept nogil:
    cdef Names* more = new_names((names.mask + 1) * 4)
    cdef int32_t number
    if more != NULL:
        for number in range(first, count):
            place(more, pages, number)
        more.older = names
    return more


cdef void free_pages(Name** pages, int32_t count) noexcept nogil:
    cdef int32_t i
    if pages != NULL:
        for i in range(count):
            if pages[i // PAGE] != NULL:
                free(pages[i // PAGE][i % PAGE].text)
        for i in range(PAGES):
            free(pages[i])
        free(pages)


cdef class Vocabulary:
    """Names of elements and attributes, as Clark names, and their ids.

    Ids are dense and never change; id 0 stands for text nodes and id 1 for names that a closed
    reader did not know. A name `{uri}*` stands for all names of that namespace that are not in
    the vocabulary: a closed reader gives them its id. Safe for any number of threads: look-ups
    take no lock.

    `limit` bounds how many names may be held and `size` their bytes, so that a hostile stream
    cannot fill the memory of an open reader. A namespace is held, and counted, once.
    """

    def __cinit__(self, names=(), int32_t limit=1 << 20, int64_t size=1 << 28):
        if not 2 <= limit <= PAGE * PAGES:
            raise ValueError(f"the limit of a vocabulary lies between 2 and {PAGE * PAGES}")
        if size < 1:
            raise ValueError("the size of a vocabulary is a number of bytes, at least 1")
        self.limit = limit
        self.size = size
        self._clark = {0: "#text", 1: "#unknown"}
        self._dictionary = None
        self._count = 2
        self._space_count = 1  # number 0 is no namespace
        self._pages = <Name**>calloc(PAGES, sizeof(Name*))
        self._spaces = <Name**>calloc(PAGES, sizeof(Name*))
        self._names = new_names(1024)
        self._space_names = new_names(64)
        self._mutex = malloc(sizeof(pthread_mutex_t))
        if (self._pages == NULL or self._spaces == NULL or self._names == NULL
                or self._space_names == NULL or self._mutex == NULL):
            raise MemoryError
        pthread_mutex_init(<pthread_mutex_t*>self._mutex, NULL)
        for name in names:
            self.add(name)

    def __dealloc__(self):
        free_pages(self._pages, self._count)
        free_pages(self._spaces, self._space_count)
        free_names(self._names)
        free_names(self._space_names)
        if self._mutex != NULL:
            pthread_mutex_destroy(<pthread_mutex_t*>self._mutex)
            free(self._mutex)

    cdef int32_t find_space(self, const char* uri, uint32_t length) noexcept nogil:
        """The number of a namespace, 0 for none, or -1 if no name has it."""
        if length == 0:
            return 0
        return find_in(load_pointer(self._space_names), self._spaces,
                       mix(SEED, uri, length), -1, uri, length)

    cdef int32_t find(self, int32_t space, const char* local, uint32_t length) noexcept nogil:
        """The id of a name in a namespace, or -1."""
        return find_in(load_pointer(self._names), self._pages, hash_local(space, local, length),
                       space, local, length)

    cdef int32_t wildcard(self, int32_t space) noexcept nogil:
        """The id of `{uri}*` if it is in the vocabulary, else that of unknown names."""
        cdef int32_t tag
        if space <= 0:
            return tUNKNOWN
        tag = load_int(self._spaces[space // PAGE][space % PAGE].space)
        return tag if tag > 0 else tUNKNOWN

    cdef bint is_weak(self, int32_t tag) noexcept nogil:
        """Whether an id stands for more than one name: unknown ones, or `{uri}*`."""
        cdef Name* name
        if tag <= tUNKNOWN:
            return tag == tUNKNOWN
        name = &self._pages[tag // PAGE][tag % PAGE]
        return name.space > 0 and name.length == 1 and name.text[0] == 42

    cdef int32_t intern_space(self, const char* uri, uint32_t length) noexcept nogil:
        """The number of a namespace, which is added if it is new; or why it cannot be."""
        cdef int32_t space = self.find_space(uri, length)
        if space >= 0:
            return space
        pthread_mutex_lock(<pthread_mutex_t*>self._mutex)
        space = self.find_space(uri, length)
        if space < 0:
            space = self._append(self._spaces, &self._space_names, &self._space_count, 1,
                                 mix(SEED, uri, length), 0, uri, length)
        pthread_mutex_unlock(<pthread_mutex_t*>self._mutex)
        return space

    cdef int32_t intern(self, int32_t space, const char* local, uint32_t length) noexcept nogil:
        """The id of a name, which is added if it is new; or why it cannot be.

        That is FULL, FULL_BYTES or NO_MEMORY.
        """
        cdef int32_t tag = self.find(space, local, length)
        if tag >= 0:
            return tag
        pthread_mutex_lock(<pthread_mutex_t*>self._mutex)
        tag = self.find(space, local, length)
        if tag < 0:
            tag = self._append(self._pages, &self._names, &self._count, 2,
                               hash_local(space, local, length), space, local, length)
            if tag > 0 and self.is_weak(tag):
                store_int(self._spaces[space // PAGE][space % PAGE].space, tag)
        pthread_mutex_unlock(<pthread_mutex_t*>self._mutex)
        return tag

    cdef int32_t _append(self, Name** pages, Names** names, int32_t* count, int32_t first,
                         uint64_t hash, int32_t space, const char* text,
                         uint32_t length) noexcept nogil:
        cdef int32_t number = count[0]
        cdef int64_t size = <int64_t>length + NAME_SIZE
        cdef Name* name
        cdef Names* more
        if number >= self.limit:
            return FULL
        if size > self.size - self._used:
            return FULL_BYTES
        if not room_for(pages, number):
            return NO_MEMORY
        name = &pages[number // PAGE][number % PAGE]
        name.text = <char*>malloc(<size_t>length + 1)
        if name.text == NULL:
            return NO_MEMORY
        memcpy(name.text, text, length)
        name.length = length
        name.space = space
        name.hash = hash
        if <uint32_t>number * 2 > names[0].mask:
            more = grown(names[0], pages, first, number)
            if more == NULL:
                free(name.text)
                name.text = NULL
                return NO_MEMORY
            store_pointer(names[0], more)
        # The name is whole before any slot shows it: readers come without a lock.
        place(names[0], pages, number)
        store_int(count[0], number + 1)
        self._used += size
        return number

    def add(self, str name not None):
        """The id of a Clark name; a name seen for the first time gets the next one."""
        uri, local = split_clark(name)
        cdef bytes raw_uri = uri.encode()
        cdef bytes raw_local = local.encode()
        cdef int32_t tag = self.intern_space(raw_uri, <uint32_t>len(raw_uri))
        if tag >= 0:
            tag = self.intern(tag, raw_local, <uint32_t>len(raw_local))
        if tag == NO_MEMORY:
            raise MemoryError
        if tag == FULL:
            raise OverflowError(f"the vocabulary is full: it may hold {self.limit:,} names; "
                                "give it more with Vocabulary(limit=...)")
        if tag == FULL_BYTES:
            raise OverflowError(f"the vocabulary is full: it may hold {self.size:,} bytes; "
                                "give it more with Vocabulary(size=...)")
        return tag

    def get(self, str name not None, default=None):
        """The id of a Clark name, or `default`."""
        cdef bytes raw_uri, raw_local
        cdef int32_t tag
        try:
            uri, local = split_clark(name)
        except ValueError:
            return default
        raw_uri = uri.encode()
        raw_local = local.encode()
        tag = self.find_space(raw_uri, <uint32_t>len(raw_uri))
        if tag >= 0:
            tag = self.find(tag, raw_local, <uint32_t>len(raw_local))
        return tag if tag >= 0 else default

    def name(self, tag):
        """The Clark name of an id."""
        found = self._clark.get(tag)
        if found is None:
            if not 0 <= tag < load_int(self._count):
                raise IndexError(tag)
            found = self._spelled(tag)
            # Long names are mostly their namespace, and would hold it many times over.
            if len(found) <= 256:
                self._clark[tag] = found
        return found

    cdef str _spelled(self, int32_t tag):
        cdef Name* name = &self._pages[tag // PAGE][tag % PAGE]
        cdef Name* space
        local = name.text[:name.length].decode()
        if name.space == 0:
            return local
        space = &self._spaces[name.space // PAGE][name.space % PAGE]
        return f"{{{space.text[:space.length].decode()}}}{local}"

    @property
    def used(self):
        """Bytes that its names take, of `size`."""
        return self._used

    @property
    def names(self):
        """All names in the order of their ids, the two reserved ones first."""
        cdef int32_t tag
        return tuple([self.name(tag) for tag in range(load_int(self._count))])

    def dictionary(self):
        """The names as an Arrow array; the same object until a name is added."""
        import pyarrow as pa
        names = self._dictionary
        if names is None or len(names) != load_int(self._count):
            names = self._dictionary = pa.array(self.names, pa.utf8())
        return names

    def __len__(self):
        return load_int(self._count)

    def __contains__(self, name):
        return isinstance(name, str) and self.get(name) is not None

    def __reduce__(self):
        return Vocabulary, (self.names[2:], self.limit, self.size)

    def __repr__(self):
        return f"<Vocabulary of {len(self)} names>"


cdef inline bint room_for(Name** pages, int32_t number) noexcept nogil:
    if pages[number // PAGE] == NULL:
        pages[number // PAGE] = <Name*>calloc(PAGE, sizeof(Name))
    return pages[number // PAGE] != NULL


cdef inline int32_t find_in(Names* names, Name** pages, uint64_t hash, int32_t space,
                            const char* text, uint32_t length) noexcept nogil:
    cdef uint32_t slot = <uint32_t>hash & names.mask
    cdef int32_t number
    cdef Name* name
    while True:
        number = load_int(names.slots[slot])
        if number == 0:
            return -1
        name = &pages[number // PAGE][number % PAGE]
        # Namespaces are looked for with -1: their field `space` is something else.
        if (name.hash == hash and name.length == length and (space < 0 or name.space == space)
                and memcmp(name.text, text, length) == 0):
            return number
        slot = (slot + 1) & names.mask


def split_clark(str name not None):
    """`{uri}local` as its two parts."""
    if name.startswith("{"):
        uri, closed, local = name[1:].rpartition("}")
        if closed and local:
            return uri, local
    elif name:
        return "", name
    raise ValueError(f"not a Clark name: {name!r}")
