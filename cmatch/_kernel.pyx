"""The native kernel of CClean: a symmetric, non-blocking hash join of inputs and candidates.

Its parts, a file each, each standing on those before it:

- `_arrays.pxi`: numpy columns as C memory.
- `_shapes.pxi`: what there is: rows, partitions, lists, labels, the join that holds them.
- `_order.pxi`: rows by where they start.
- `_results.pxi`: the columns in which pairs gather, and how they become `Matches`.
- `_disk.pxi`: the temporary file: extents of spilled partitions, runs of spilled lists.
- `_lists.pxi`: the candidates of a complete label in AD order, and the queries on them.
- `_memory.pxi`: the budget: which partition or list is the victim, and how it is pushed out.
- `_tables.pxi`: the table of labels and the two sides of each: insertion (Step 1).
- `_queries.pxi`: the queries of either side (Step 2), and what happens when a label is complete.
- `_join.pxi`: batches on the left, vectors on the right, and the end of it all.
- `_learning.pxi`: new labels that are asked for natively, in the same call.
- `_cleaner.pxi`: the join as Python sees it.
- `_probes.pxi`: AD-only match, which needs none of these but the columns.

The words are those of the paper. Left are inputs, right are candidates; both are hashed by their
key, (segment, rank of the SES label). Rows of a key lie in partitions of a fixed size, as many as
the budget allows; what it does not allow lies on disk. Every row has an insertion time-stamp. A row
that has been inserted queries the other side, memory first and then, if the bitmap of spilled
labels says so, the disk. A left query takes pairs with ts_left > ts_right, a right query those with
ts_right >= ts_left: whichever of the two was inserted later finds the pair, and only that one.
Candidates come in vectors that share a time-stamp.

When the last candidate of a label has come, its inputs have met all of them. The left side is
dropped, and the candidates are put into AD order: in memory as a list of columns, or on disk as a
run of pages. Inputs that come later only query that.

Locking: one mutex an operator guards the whole `Join`. It is only waited for without the GIL, and
nobody who holds it asks for the GIL. It is let go between insertion and query, which is what the
time-stamps are for. A label with queries to come (`querying`) is not completed before they are done.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.object cimport PyObject, PyObject_GenericSetAttr, PyTypeObject
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.math cimport ceil
from libc.stdint cimport INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memcpy, memset, strerror

from fmware.cmatch.feed cimport Batch, FeedBatch, Feeder, Sink, drop_sink
from fmware.index.probe cimport Probe, Related, RelatedProbe

import numpy as np

from fmware.cmatch.errors import MissingLabels, OperatorClosed, SpillFailed
from fmware.cmatch.inputs import Inputs, Matches

cdef extern from *:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <pthread.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <sys/mman.h>
    #include <time.h>
    #include <unistd.h>

    /* Memory of many pages is asked for in large ones: touching a page for the first time costs
       more than filling it. */
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

    /* Memory that is needed for a moment, again and again: the system would take it back each time,
       and to touch it anew costs more than what is done in it. A few stretches are kept for the
       whole process; who finds none, or needs more than they may have, gets memory of his own. */
    #define DESKS 4
    #define DESK_BYTES (1u << 22)
    static struct { char* data; size_t size; char taken; } desks[DESKS];

    static void* lent(size_t size) {
        int at;
        for (at = 0; size <= DESK_BYTES && at < DESKS; at++) {
            if (__atomic_test_and_set(&desks[at].taken, __ATOMIC_ACQUIRE)) continue;
            if (desks[at].size < size) {
                size_t room = 2 * size < DESK_BYTES ? 2 * size : DESK_BYTES;
                char* made = malloc(room);
                if (made == NULL) {
                    __atomic_clear(&desks[at].taken, __ATOMIC_RELEASE);
                    return NULL;
                }
                char* old = desks[at].data;
                __atomic_store_n(&desks[at].data, made, __ATOMIC_RELAXED);
                desks[at].size = room;
                free(old);
            }
            return desks[at].data;
        }
        return resized(NULL, size);
    }

    static void returned(void* data) {
        int at;
        for (at = 0; data != NULL && at < DESKS; at++) {
            if (__atomic_load_n(&desks[at].data, __ATOMIC_RELAXED) == data) {
                __atomic_clear(&desks[at].taken, __ATOMIC_RELEASE);
                return;
            }
        }
        free(data);
    }

    /* A file without a name: whatever happens, nothing is left of it. */
    static int nameless_file(const char* place) {
        char name[4096];
        int file;
    #ifdef O_TMPFILE
        file = open(place, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
            return file;
    #endif
        if (snprintf(name, sizeof name, "%s/fmware-XXXXXX", place) >= (int) sizeof name) {
            errno = ENAMETOOLONG;
            return -1;
        }
        file = mkostemp(name, O_CLOEXEC);
        if (file >= 0)
            unlink(name);
        return file;
    }

    /* 0, or the number of the error. */
    static int write_all(int file, const char* data, size_t size, off_t at) {
        while (size) {
            ssize_t done = pwrite(file, data, size, at);
            if (done < 0) {
                if (errno == EINTR) continue;
                return errno;
            }
            data += done; at += done; size -= done;
        }
        return 0;
    }

    static int read_all(int file, char* data, size_t size, off_t at) {
        while (size) {
            ssize_t done = pread(file, data, size, at);
            if (done < 0 && errno == EINTR) continue;
            if (done <= 0) return done < 0 ? errno : EIO;
            data += done; at += done; size -= done;
        }
        return 0;
    }

    /* Gives a stretch of the file back to the disk; where that cannot be, it stays until the end. */
    static void give_back(int file, off_t at, off_t size) {
    #ifdef FALLOC_FL_PUNCH_HOLE
        if (fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, size)) {}
    #endif
    }

    static int emptied(int file) { return ftruncate(file, 0); }

    static int64_t nanoseconds(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t) now.tv_sec * 1000000000 + now.tv_nsec;
    }

    static void nap(unsigned microseconds) {
        struct timespec time = {0, 1000L * microseconds};
        nanosleep(&time, NULL);
    }
    #define last_error() errno
    #define prefetch(p) __builtin_prefetch(p)
    #define load_ready(p) __atomic_load_n(&(p), __ATOMIC_ACQUIRE)
    #define store_ready(p, v) __atomic_store_n(&(p), (v), __ATOMIC_RELEASE)
    """
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_init(pthread_mutex_t*, void*) nogil
    int pthread_mutex_destroy(pthread_mutex_t*) nogil
    int pthread_mutex_lock(pthread_mutex_t*) noexcept nogil
    int pthread_mutex_unlock(pthread_mutex_t*) noexcept nogil
    int close_file "close"(int) noexcept nogil
    void* resized(void*, size_t) noexcept nogil
    void* lent(size_t) noexcept nogil
    void returned(void*) noexcept nogil
    int nameless_file(const char*) noexcept nogil
    int write_all(int, const char*, size_t, int64_t) noexcept nogil
    int read_all(int, char*, size_t, int64_t) noexcept nogil
    void give_back(int, int64_t, int64_t) noexcept nogil
    int emptied(int) noexcept nogil
    int64_t nanoseconds() noexcept nogil
    void nap(unsigned) noexcept nogil
    int last_error() noexcept nogil
    void prefetch(const void*) noexcept nogil
    const void* load_ready(const void*) noexcept nogil
    void store_ready(const void*, const void*) noexcept nogil

cdef extern from "Python.h":
    Py_ssize_t PyTuple_GET_SIZE(object) noexcept nogil

cdef enum:
    FINE = 0
    NO_MEMORY = 1
    NO_DISK = 2          # what the system said is in the join's `error`
    SHUT = 3             # closed, or dead after an error
    FINISHED = 4         # candidates for a label that is complete
    LATER = 5            # nothing was done: whoever knows more is to do it

cdef enum:
    CHILD = 0
    DESCENDANT = 1
    SELF = 2
    PARENT = 3
    ANCESTOR = 4

cdef enum:
    LEFT = 0             # inputs
    RIGHT = 1            # candidates
    LIST = 2             # candidates of a complete label
    LEAF = 3             # a page of such candidates that are on disk

cdef enum:
    NO_ROW = 0xFFFFFFFF
    NO_LABEL = 0xFFFFFFFF
    RENTED = 0xFFFFFFFE  # its inputs are deferred: ADMatch takes them
    EMPTY = 0x80000000   # and above: a label without candidates, which needs no more than its slot
    DUE = 0x80000001     # as EMPTY, of a label whose rent is paid: it is fetched now
    NEVER = 0x7FFFFFFF   # the rent of a label that is never fetched
    CHUNK = 1024         # inputs that are inserted, then queried for, under one hold of the mutex

include "_arrays.pxi"
include "_shapes.pxi"
include "_order.pxi"
include "_results.pxi"
include "_disk.pxi"
include "_lists.pxi"
include "_memory.pxi"
include "_tables.pxi"
include "_queries.pxi"
include "_join.pxi"
include "_learning.pxi"
include "_cleaner.pxi"
include "_probes.pxi"
