cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from lxml.includes cimport tree

cdef struct Names:
    # One generation of the vocabulary's hash table. Slots are only ever filled, never changed,
    # so a reader needs no lock; a grown table replaces the old one, which lives on until the
    # vocabulary dies because a reader may still be in it.
    uint32_t mask
    int32_t* slots
    Names* older

cdef struct Name:
    # A name, or a namespace.
    uint64_t hash
    uint32_t length
    int32_t space             # of a name: the number of its namespace; of a namespace: the id of
    char* text                # `{uri}*`, 0 if there is none

cdef enum:
    PAGE = 4096

cdef class Vocabulary:
    cdef Names* _names
    cdef Names* _space_names
    cdef Name** _pages        # pages of names: a page never moves once readers know of it
    cdef Name** _spaces       # the same of namespaces
    cdef int32_t _count
    cdef int32_t _space_count
    cdef readonly int32_t limit
    cdef readonly int64_t size
    cdef int64_t _used        # bytes, of `size`
    cdef void* _mutex
    cdef dict _clark          # names that were asked for
    cdef object _dictionary

    cdef int32_t find_space(self, const char* uri, uint32_t length) noexcept nogil
    cdef int32_t find(self, int32_t space, const char* local, uint32_t length) noexcept nogil
    cdef int32_t wildcard(self, int32_t space) noexcept nogil
    cdef bint is_weak(self, int32_t tag) noexcept nogil
    cdef int32_t intern_space(self, const char* uri, uint32_t length) noexcept nogil
    cdef int32_t intern(self, int32_t space, const char* local, uint32_t length) noexcept nogil
    cdef int32_t _append(self, Name** pages, Names** names, int32_t* count, int32_t first,
                         uint64_t hash, int32_t space, const char* text,
                         uint32_t length) noexcept nogil
    cdef str _spelled(self, int32_t tag)

cdef enum:
    # The right end of the AD label of an element that a batch leaves open.
    OPEN = 0x7fffffffffffffff

@cython.final
cdef class Document:
    cdef tree.xmlDoc* doc

    cdef void* top(self, bint wrapped) except NULL
    cdef bytes fragment(self, tree.xmlNode* element)

@cython.final
cdef class RealNames:
    cdef Vocabulary vocabulary  # private to the table
    cdef int32_t* tags          # by row; only those of rows with such an id mean anything
    cdef int32_t* held          # that memory, if it is this object's own; else NULL
    cdef object owner           # keeps it alive if it is another's

cdef class Columns:
    cdef readonly Py_ssize_t rows
    cdef uint8_t* kinds
    cdef int32_t* tags
    cdef int32_t* parents
    cdef int16_t* levels
    cdef int64_t* starts
    cdef int64_t* ends
    cdef int32_t* offsets     # NULL when the values were not read
    cdef char* text
    cdef object _owner        # keeps the memory behind the pointers alive
    cdef dict _arrays         # numpy views, made on demand
    cdef readonly Vocabulary vocabulary
    cdef object _root         # the lxml element of row 0, if there is one yet
    cdef bytes _document      # what to parse for it
    cdef bint _huge
    cdef bint _resolve        # the document declares entities that stand for characters
    cdef bint _wrapped        # row 0 is not its root element but the child of that
    cdef bint _blanks         # blank text is among the rows
    cdef Document _tree       # the document once more, for fragments
    cdef RealNames _real      # names of rows whose ids stand for more than one
    cdef Columns _whole       # the table of which this is a subtree,
    cdef Py_ssize_t _first    # and which of its rows is row 0
    cdef public object source
    cdef readonly bint continued # a batch of a document of which batches came before
    cdef readonly int32_t known  # names the closed reader knew, the others being UNKNOWN; else 0

    cdef object _view(self, str name, void* data, str dtype, Py_ssize_t count)
    cdef RealNames _names_of_rows(self)

cdef struct Raw:
    # The columns of a document that is just being read, before they are a table.
    uint8_t* kinds
    int32_t* tags
    int32_t* parents
    int16_t* levels
    int64_t* starts
    int64_t* ends
    int32_t* offsets
    char* text
    int32_t rows
    int32_t known
    bint continued

cdef class Consumer:
    cdef void consume(self, Raw* raw) noexcept nogil


cdef struct Bounds:
    int32_t nodes
    int32_t depth
    int32_t attribute
    int32_t text
    int32_t names
    int64_t name_bytes

cdef struct Sax

@cython.final
cdef class ThreadParser:
    cdef Sax* sax             # NULL until it is needed, and where events are not to be had

    cdef Sax* events(self) noexcept nogil
    cdef void release(self) noexcept nogil

@cython.final
cdef class Walker:
    cdef Vocabulary vocabulary
    cdef type cls
    cdef Bounds bounds
    cdef bint values
    cdef bint blanks
    cdef bint grow
    cdef bint huge
    cdef bint fast            # the fast reader is asked first
    cdef bint entities        # others resolve entities: native code reads with the fast reader alone

    cdef bint read_raw(self, ThreadParser parser, const char* text, Py_ssize_t size,
                       Raw* raw) noexcept nogil
    cdef bint _parse(self, ThreadParser parser, const char* text, Py_ssize_t size, int64_t base,
                     Raw* raw) noexcept nogil
    cdef Sax* _begin(self, ThreadParser parser, const char* text, Py_ssize_t size) noexcept nogil
    cdef bint _fast(self, Sax* sax, const char* text, Py_ssize_t size, int64_t base, int32_t count,
                    Raw* raw) noexcept nogil
    cdef object _table(self, ThreadParser parser, Raw* raw, bytes document)
    cdef object _walk(self, void* root, bint is_own, Py_ssize_t size, int64_t base, int16_t level)

cdef char* pack_raw(Raw* raw, size_t* size) noexcept nogil
cdef object table_of_packed(Walker walker, char* block, size_t size, int32_t rows, int32_t known,
                            bytes document)
cdef tree.xmlDoc* raw_tree(const char* text, Py_ssize_t size, bint huge, bint resolve) noexcept nogil
cdef void drop_tree(tree.xmlDoc* doc) noexcept nogil
