"""What changes when a file is replaced or written to, asked for in one system call.

A middleware asks for every message: the object that `os.stat` makes costs more than the call.
"""

from posix.stat cimport fstat, stat, struct_stat


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


cdef class Stamp:
    """An open file as it was when this was made: its size, and when it last changed.

    The caller keeps the file open for as long as it has this. What it is about is the open file,
    whatever has its name by now.
    """

    cdef readonly object path
    cdef int handle
    cdef struct_stat taken

    def __init__(self, path, int handle):
        self.path = path
        self.handle = handle
        if fstat(handle, &self.taken):
            raise OSError(f"{path}: cannot be asked for its size")

    cdef bint holds(self) noexcept nogil:
        """Whether nothing was written to the file.

        To give it another name, or to take one away, changes its times, too, and none of its bytes:
        a writer removes files that readers still have.
        """
        cdef struct_stat now
        if fstat(self.handle, &now):
            return False
        if (
            now.st_size != self.taken.st_size
            or now.st_mtim.tv_sec != self.taken.st_mtim.tv_sec
            or now.st_mtim.tv_nsec != self.taken.st_mtim.tv_nsec
        ):
            return False
        if (
            now.st_ctim.tv_sec == self.taken.st_ctim.tv_sec
            and now.st_ctim.tv_nsec == self.taken.st_ctim.tv_nsec
        ):
            return True
        if now.st_nlink == self.taken.st_nlink:
            return False
        self.taken = now
        return True

    @property
    def unchanged(self):
        """Whether nothing was written to the file since this was made."""
        return self.holds()


def changed(tuple stamps not None):
    """The first of some files that was written to; None if none was."""
    cdef Stamp stamp
    for stamp in stamps:
        if not stamp.holds():
            return stamp
    return None
