"""What changes when a file is replaced, asked for in one system call.

A middleware asks for every message: the object that `os.stat` makes costs more than the call.
"""

from posix.stat cimport stat, struct_stat


def stamp_of(bytes path not None):
    """(inode, time of the last change in nanoseconds, size) of a file; None if there is none."""
    cdef struct_stat found
    cdef const char* name = path
    cdef int failed
    with nogil:
        failed = stat(name, &found)
    if failed:
        return None
    return found.st_ino, found.st_mtim.tv_sec * 1000000000 + found.st_mtim.tv_nsec, found.st_size
