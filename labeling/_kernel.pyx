"""The native kernel of labeling.

Its parts, a file each:

- `_vocabulary.pxi`: names and their ids, looked up without a lock.
- `_columns.pxi`: the columns of a table.
- `_walk.pxi`: a tree of libxml2 into columns.
- `_names.pxi`: the names of the document that is being read, and their ids.
- `_fast.pxi`: columns from the fast reader, which is plain C (fast_reader.h).
- `_events.pxi`: columns straight from the events of the libxml2 inside lxml, without a tree.
- `_trees.pxi`: trees with a dictionary of their own, for documents that events do not do for.
- `_paths.pxi`: the names of rows as their document has them, and the paths of rows.
- `_batches.pxi`: one document of any length in batches.
- `_scanner.pxi`: a stream of bytes cut into documents or records by their tags.
- `_records.pxi`: many records read in one parse, each with labels of its own.

Parsing, walking and naming go without the GIL: what they work on is private to the caller.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memmove, memset, strcmp, strlen

from lxml.includes cimport etreepublic as cetree
from lxml.includes cimport tree

import os

import numpy as np
from lxml import etree
from lxml.etree import fromstring

cetree.import_lxml__etree()

cdef extern from *:
    """
    #include <pthread.h>
    #define load_pointer(p) __atomic_load_n(&(p), __ATOMIC_ACQUIRE)
    #define store_pointer(p, v) __atomic_store_n(&(p), (v), __ATOMIC_RELEASE)
    #define load_int(p) __atomic_load_n(&(p), __ATOMIC_ACQUIRE)
    #define store_int(p, v) __atomic_store_n(&(p), (v), __ATOMIC_RELEASE)
    """
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_init(pthread_mutex_t*, void*) nogil
    int pthread_mutex_destroy(pthread_mutex_t*) nogil
    int pthread_mutex_lock(pthread_mutex_t*) nogil
    int pthread_mutex_unlock(pthread_mutex_t*) nogil
    Names* load_pointer(Names*) noexcept nogil
    void store_pointer(Names*, Names*) noexcept nogil
    int32_t load_int(int32_t) noexcept nogil
    void store_int(int32_t, int32_t) noexcept nogil


ELEMENT = 0
ATTRIBUTE = 1
TEXT = 2

# Ids that no name has.
TEXT_TAG = 0
UNKNOWN_TAG = 1

# The right end of the AD label of an element that a batch leaves open.
OPEN_END = (1 << 63) - 1

cdef enum:
    kELEMENT = 0
    kATTRIBUTE = 1
    kTEXT = 2
    tTEXT = 0
    tUNKNOWN = 1
    FULL = -2
    NO_MEMORY = -3
    FULL_BYTES = -4
    PAGES = 1024
    # Bytes that a name takes beside its text: its entry, slots of the hash table, malloc's own.
    NAME_SIZE = 64

include "_vocabulary.pxi"
include "_columns.pxi"
include "_walk.pxi"
include "_names.pxi"
include "_fast.pxi"
include "_events.pxi"
include "_trees.pxi"
include "_paths.pxi"
include "_batches.pxi"
include "_scanner.pxi"
