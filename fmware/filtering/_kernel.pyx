"""The native kernel of filtering.

Its parts, a file each, in the order the data goes:

- `_conditions.pxi`: predicates as small trees, evaluated on the columns of a NodeTable.
- `_automaton.pxi`: the shared NFA in packed arrays. Statements are stripped of their predicates on the
  way in, so that structure is shared as far as it goes. What was stripped comes back as
  *entries*: a statement is cut at its `//` into segments of child steps, so that within a segment
  every step lies a known number of levels above the node that ends it. An entry hangs on the
  state that ends its segment and says which conditions must hold how many levels up, and which
  earlier segment must have ended above.
- `_groups.pxi`: the entries of a set of states, put together by what they look at, so that a node
  is looked at once however many ask.
- `_scanner.pyx`, a module of its own: many literals looked for in one pass over a text.
- `_residual.pyx`, a module of its own: statements that several paths decide, or an expression that
  is evaluated where a guard holds.
- `_tuples.pxi`: the path tuples of statements that asked for them.
- `_found.pxi`: the columns in which a batch of messages collects what was found.
- `_runner.pxi`: one run at a time over one document. A `Runner` memoises sets of active states as
  a lazy DFA of its own, and fires the entries of the states it enters.
- `_batch.pxi`: many messages, read and run one after the other in one stretch without the GIL.

Locking: the automaton has one readers-writer lock. A run holds it for reading, without the GIL,
for the length of one document; a change of statements holds it for writing. So a document is
answered by exactly the statements that were there when its run began. The lock is only ever
waited for without the GIL, and a run never asks for the GIL while it holds the lock.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.math cimport NAN, isnan
from libc.stdint cimport (
    int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t)
from libc.stdlib cimport calloc, free, malloc, qsort, realloc, strtod
from libc.string cimport memcmp, memcpy, memmove, memset

from fmware.filtering._residual cimport Body, Rules, Settler
from fmware.filtering._scanner cimport (
    Scanner, add_literal, begin, free_scanner, link_scanner, new_scanner, scan, scanner_bytes)
from fmware.labeling._kernel cimport (
    OPEN, PAGE, Columns, Consumer, Name, Raw, ThreadParser, Vocabulary, Walker, pack_raw,
    table_of_packed)

import numpy as np

from fmware.filtering.lookups import bare, eagerness, lookups
from fmware.xpath.printer import expr_text
from fmware.xpath.tree import (
    And,
    Axis,
    Compare,
    Contains,
    Exists,
    Kind,
    Not,
    Or,
    Position,
    StartsWith,
    positional,
)

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <pthread.h>
    static int lock_init(pthread_rwlock_t* lock) {
        /* Readers come in an endless stream: a writer must not wait for a gap in it. */
        pthread_rwlockattr_t attributes;
        pthread_rwlockattr_init(&attributes);
    #ifdef PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP
        pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    #endif
        return pthread_rwlock_init(lock, &attributes);
    }
    """
    int popcount "__builtin_popcountll"(uint64_t) noexcept nogil
    void prefetch "__builtin_prefetch"(const void*) noexcept nogil
    void* memmem(const void*, size_t, const void*, size_t) noexcept nogil
    ctypedef struct pthread_rwlock_t:
        pass
    int lock_init(pthread_rwlock_t*) nogil
    int pthread_rwlock_destroy(pthread_rwlock_t*) nogil
    int pthread_rwlock_rdlock(pthread_rwlock_t*) nogil
    int pthread_rwlock_wrlock(pthread_rwlock_t*) nogil
    int pthread_rwlock_trywrlock(pthread_rwlock_t*) nogil
    int pthread_rwlock_unlock(pthread_rwlock_t*) nogil

cdef enum:
    ELEMENT = 0
    ATTRIBUTE = 1
    TEXT = 2
    CHILD = 0
    DESCENDANT = 1
    ANY = -1             # the test `*`; -2 and below are `prefix:*`, one number a namespace
    NOWHERE = 0x7fff     # the armed depth of a slot that is not armed
    UNKNOWN_TAG = 1
    PATIENCE = 20        # times that a writer lets documents go first, some tens of us each
    CLEARED = -2         # a literal's slot after it went
    PLACES = 256

include "_conditions.pxi"
include "_automaton.pxi"
include "_groups.pxi"
include "_tuples.pxi"
include "_found.pxi"
include "_runner.pxi"
include "_batch.pxi"
