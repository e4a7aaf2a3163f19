"""Statements that the automaton alone does not decide: see `_residual.pyx`."""

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from fmware.labeling._kernel cimport Name, Raw, Vocabulary

cdef extern from "xpath_eval.h" nogil:
    ctypedef struct XText:
        const char* data
        int64_t size
    ctypedef struct XArena:
        int64_t budget
        int64_t most
        int stop
    ctypedef struct XProgram:
        int32_t root
        int32_t needs
    ctypedef struct XView:
        const uint8_t* kinds
        const int32_t* tags
        const int32_t* parents
        const int64_t* starts
        const int64_t* ends
        const int32_t* offsets
        const char* text
        int32_t rows
        void* names
        int (*in_space)(void*, int32_t, int32_t) noexcept nogil
        void* spaces
        int (*spell)(void*, void*, int32_t, XText*, XText*) noexcept nogil
        void** nodes
        void (*name_of)(void*, int, const char**, const char**, const char**) noexcept nogil
    ctypedef struct XValue:
        int type
        int32_t* nodes
        int32_t count

cdef struct Body:
    # The document as it came, for what is not in its columns; NULL: it is not at hand.
    const char* text
    Py_ssize_t size
    bint huge
    bint resolve
    bint wrapped         # its rows are not those of its root element

cdef struct Rule:
    # A statement that is decided from several paths of the automaton, its atoms.
    int32_t number       # of the statement; -1: free
    int32_t atom_count
    int32_t* atoms       # subscribers
    int32_t code_count
    int32_t* code        # the guard, in postfix: an atom by its place, or an operation below 0
    uint8_t wants
    bint exact           # the guard is the statement
    bint positive        # the guard has no negation
    XProgram* program    # the residual, or NULL
    uint8_t* memory      # of the program

cdef struct Column:
    int32_t* items
    int64_t count
    int64_t room

cdef class Rules:
    cdef Rule* rules
    cdef int32_t room
    cdef int32_t high            # rules from here on were never used
    cdef list free
    cdef dict places             # number of a statement -> its rule
    cdef int32_t* rule_of        # by subscriber: -1, or the rule it is an atom of
    cdef uint8_t* triggers       # by subscriber: it may make its rule hold
    cdef int32_t subscribers
    cdef readonly int32_t count
    cdef readonly int64_t residuals

    cdef int put(self, int32_t number, uint8_t wants, list atoms, list code, set triggers,
                 bytes program, bint exact) except -1
    cdef void drop(self, int32_t number)
    cdef int32_t _place(self) except -1
    cdef int _room_for(self, int32_t count) except -1

cdef class Settler:
    cdef Column ids              # what is settled: statements that hold, ...
    cdef Column open             # ... that are undecided, ...
    cdef Column tuples           # ... and tuples: askers, rows of one, how many, more, asker, rows
    cdef Column candidates
    cdef int8_t* truth           # by subscriber
    cdef int64_t* stamps         # the document of that truth
    cdef int64_t* rule_stamps    # by rule: the document for which it is a candidate
    cdef int32_t room
    cdef int32_t rule_room
    cdef int64_t stamp
    cdef XArena arena
    cdef void* wide              # the view of the whole document
    cdef readonly int64_t asked  # residuals that were evaluated
    cdef readonly int64_t held   # and held
    cdef readonly int64_t trees  # documents that were parsed for them

    cdef int settle(self, Rules rules, Raw* raw, Body* body, Vocabulary vocabulary,
                    const int32_t* out, int64_t count, const int32_t* undecided, int64_t doubts,
                    bint partial, int32_t most_tuples, int64_t* budget) noexcept nogil
    cdef bint _begin(self, int32_t subscribers, int32_t rules) noexcept nogil
    cdef bint _sort_in(self, Rules rules, int32_t subscriber, int8_t truth,
                       Column* others) noexcept nogil
    cdef bint _decide(self, Rule* rule, XView* view, Body* body, Vocabulary vocabulary,
                      bint partial, int32_t most_tuples) noexcept nogil
    cdef bint _parsed(self, Body* body, XView* view, Vocabulary vocabulary,
                      bint spaces) noexcept nogil
    cdef int _guard(self, Rule* rule) noexcept nogil
    cdef bint _evaluate(self, Rule* rule, XView* view, const int32_t* table_rows,
                        int32_t most_tuples) noexcept nogil
    cdef bint _tell(self, Rule* rule, XValue* value, const int32_t* table_rows,
                    int32_t most_tuples) noexcept nogil
    cdef bint _tuples(self, int32_t number, const int32_t* rows, int32_t count,
                      int32_t most) noexcept nogil
