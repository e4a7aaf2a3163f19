"""The native kernel of reading an index.

Its parts, a file each:

- `_memory.pxi`: C memory as numpy arrays, and the columns in which pairs gather.
- `_hashes.pxi`: the hash of identity keys.
- `_blocks.pxi`: a list of blocks, each found, checked and made ready on first touch.
- `_nodes.pxi`: `ad` lists: descendants, ancestors, rows by label, labels by row.
- `_postings.pxi`: `labels.*` and `ses.*` lists: scans by SES label.
- `_keys.pxi`: `identity` lists: rows by key.
- `_values.pxi`: `values` lists: values by row.

Blocks lie in the memory map of LMDB. Every list holds a reference to what keeps that map open, and
every array that points into a block holds one to its list: nothing is unmapped under a reader.

Probes run without the GIL, over blocks that are ready. When a probe meets one that is not, it
stops and says which it needs; its caller, with the GIL, gets them and calls it again to go on.
Readiness is published by an atomic store of a block's first column, after all its other fields, and
never taken back: threads that probe need no lock.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE,
    PyBuffer_FillInfo,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from fmware.index.probe cimport (
    AD_ANCESTOR,
    AD_CHILD,
    AD_DESCENDANT,
    AD_PARENT,
    AD_SELF,
    FetchRelated,
    Finder,
    FindKeys,
    Keyed,
    Labeller,
    LabelsOf,
    Probe,
    ProbeCold,
    ProbeCounts,
    ProbeRows,
    Related,
    RelatedProbe,
    RelateNodes,
    Text,
)

import zlib

import numpy as np

cdef extern from *:
    """
    #include <stdlib.h>
    #include <sys/mman.h>
    #include <pthread.h>
    #include <time.h>
    #include <unistd.h>
    /* Memory of many pages is asked for in large ones, as numpy does: a page that is touched for
       the first time costs more than filling it. */
    static void* resized(void* data, size_t size) {
        char* moved = realloc(data, size);
    #ifdef MADV_HUGEPAGE
        if (moved != NULL && size >= (1u << 22)) {
            size_t skip = 4096 - (size_t) moved % 4096;
            madvise(moved + skip, size - skip, MADV_HUGEPAGE);
        }
    #endif
        return moved;
    }
    /* Whether this is the process that it was, without a system call. */
    static int forked;
    static void count_fork(void) { forked++; }
    static int forks(void) { return forked; }
    static int watch_forks(void) { return pthread_atfork(NULL, NULL, count_fork); }
    /* Whether all pages from one address to another are in memory. Nothing is read. A system that does
       not tell is taken to have them all. */
    #define SOME_PAGES 256
    static int in_memory(const void* data, size_t size) {
        const size_t page = sysconf(_SC_PAGESIZE);
        unsigned char there[SOME_PAGES];
        size_t low = (size_t) data / page * page, high = (size_t) data + size, at;
        while (low < high) {
            size_t pages = (high - low + page - 1) / page;
            if (pages > SOME_PAGES) pages = SOME_PAGES;
            if (mincore((void*) low, pages * page, (void*) there)) return 1;
            for (at = 0; at < pages; at++)
                if (!(there[at] & 1)) return 0;
            low += pages * page;
        }
        return 1;
    }
    /* Have pages brought into memory, without waiting for them. */
    static void announce(const void* data, size_t size) {
        const size_t page = sysconf(_SC_PAGESIZE);
        size_t low = (size_t) data / page * page;
        madvise((void*) low, (size_t) data + size - low, MADV_WILLNEED);
    }
    /* A moment's sleep, while another thread ends what it does. */
    static void nap(void) {
        struct timespec time = {0, 50000};
        nanosleep(&time, NULL);
    }
    #define add_to(p, v) __atomic_add_fetch(&(p), (v), __ATOMIC_SEQ_CST)
    #define load_int(p) __atomic_load_n(&(p), __ATOMIC_SEQ_CST)
    #define store_int(p, v) __atomic_store_n(&(p), (v), __ATOMIC_SEQ_CST)
    #define load_ready(p) __atomic_load_n(&(p), __ATOMIC_ACQUIRE)
    #define store_ready(p, v) __atomic_store_n(&(p), (v), __ATOMIC_RELEASE)
    #define prefetch(p) __builtin_prefetch(p)
    #define high_of_product(a, b) ((uint64_t)(((unsigned __int128)(a) * (b)) >> 64))
    """
    int forks() noexcept nogil
    int watch_forks() noexcept nogil
    void nap() noexcept nogil
    bint in_memory(const void*, size_t) noexcept nogil
    void announce(const void*, size_t) noexcept nogil
    int add_to(int, int) noexcept nogil
    int load_int(int) noexcept nogil
    void store_int(int, int) noexcept nogil
    void* resized(void*, size_t) noexcept nogil
    const void* load_ready(const void*) noexcept nogil
    void store_ready(const void*, const void*) noexcept nogil
    void prefetch(const void*) noexcept nogil
    uint64_t high_of_product(uint64_t, uint64_t) noexcept nogil

cdef enum:
    DONE = 0
    WANTING = 1          # stopped at blocks that are not ready
    NO_MEMORY = 2
    BROKEN = 3           # a row that refers to a row that cannot be

cdef enum:
    NO_ROW = 0xFFFFFFFF

if watch_forks():
    raise MemoryError

include "_memory.pxi"
include "_hashes.pxi"
include "_blocks.pxi"
include "_nodes.pxi"
include "_postings.pxi"
include "_keys.pxi"
include "_values.pxi"
