# The temporary file. It is made when the first partition is pushed out, and has no name.
#
# Extents hold spilled partitions: `Entry` rows in AD order, all in places of one size, so that a
# place is used again. Runs hold the candidates of complete labels: pages of PAGE rows, a column
# after the other; a run of fewer rows is one page of just these. When nothing in the file is alive,
# it begins anew.

cdef enum:
    PAGE = 128
    ROW_BYTES = 22                 # start, end: 8 bytes; up: 4; level: 2
    PAGE_BYTES = 128 * 22


cdef int open_file(Join* join) noexcept nogil:
    if join.file >= 0:
        return FINE
    join.file = nameless_file(join.place)
    if join.file < 0:
        join.error = last_error()
        return NO_DISK
    return FINE


cdef void let_go(Join* join) noexcept nogil:
    """Something in the file has died."""
    join.living -= 1
    if join.living == 0 and join.file >= 0 and emptied(join.file) == 0:
        join.reached = 0
        join.empties = 0
    join.page_at = -1


# --- extents ----------------------------------------------------------------------------------


cdef int by_start(const void* left, const void* right) noexcept nogil:
    cdef const Entry* one = <const Entry*> left
    cdef const Entry* other = <const Entry*> right
    if one.start != other.start:
        return 1 if one.start > other.start else -1
    return (one.end > other.end) - (one.end < other.end)


cdef inline int64_t extent_bytes(Join* join) noexcept nogil:
    return (join.rows + 1) * sizeof(Entry)


cdef int64_t take_place(Join* join) noexcept nogil:
    """A place for an extent."""
    cdef int64_t offset
    if join.empties:
        join.empties -= 1
        offset = join.empty[join.empties]
    else:
        offset = join.reached
        join.reached += extent_bytes(join)
    join.living += 1
    return offset


cdef int free_place(Join* join, int64_t offset) noexcept nogil:
    cdef int64_t* moved
    if join.empties == join.empties_room:
        moved = <int64_t*> realloc(join.empty, (2 * join.empties_room + 16) * sizeof(int64_t))
        if moved == NULL:
            return NO_MEMORY
        join.table += (join.empties_room + 16) * <int64_t> sizeof(int64_t)
        join.empty = moved
        join.empties_room = 2 * join.empties_room + 16
    join.empty[join.empties] = offset
    join.empties += 1
    let_go(join)
    return FINE


cdef int write_extent(Join* join, Entry* rows, Py_ssize_t count, int64_t* offset) noexcept nogil:
    """Put at most a partition and a row, which are in AD order, on disk."""
    cdef int status = open_file(join)
    if status:
        return status
    offset[0] = take_place(join)
    join.error = write_all(join.file, <const char*> rows, count * sizeof(Entry), offset[0])
    if join.error:
        return NO_DISK
    join.tally.spilled_bytes += count * <int64_t> sizeof(Entry)
    return FINE


cdef int read_extent(Join* join, const Piece* piece) noexcept nogil:
    """The rows of an extent, into `scratch`."""
    join.error = read_all(
        join.file, <char*> join.scratch, piece.rows * sizeof(Entry), piece.offset
    )
    join.tally.overflow_reads += 1
    return NO_DISK if join.error else FINE


# --- runs -------------------------------------------------------------------------------------


ctypedef struct Page:
    # The columns of a page.
    int64_t* start
    int64_t* end
    uint32_t* up
    int16_t* level


cdef inline Page page_of(char* data, const Run* run) noexcept nogil:
    cdef int64_t room = room_of(run)
    cdef Page page
    page.start = <int64_t*> data
    page.end = <int64_t*> (data + 8 * room)
    page.up = <uint32_t*> (data + 16 * room)
    page.level = <int16_t*> (data + 20 * room)
    return page


cdef inline int64_t room_of(const Run* run) noexcept nogil:
    """How many rows a page of a run has room for."""
    return min(<int64_t> PAGE, run.rows)


cdef inline int64_t run_bytes(const Run* run) noexcept nogil:
    return run.pages * room_of(run) * ROW_BYTES


ctypedef struct RunWriter:
    # Takes candidates in AD order and writes pages; keeps those that are open, for `up`.
    Run* run
    char* data
    Py_ssize_t filled
    int64_t row
    int64_t* open_ends
    uint32_t* open_rows
    Py_ssize_t depth
    Py_ssize_t room


cdef void free_levels(Levels* levels) noexcept nogil:
    free(levels.counts)
    memset(levels, 0, sizeof(Levels))


cdef int count_level(Levels* levels, int64_t level, int64_t rows) noexcept nogil:
    """Count rows of a level; 0 if there is no memory."""
    cdef uint32_t* moved
    cdef Py_ssize_t more
    if levels.span == 0:
        levels.counts = <uint32_t*> calloc(1, sizeof(uint32_t))
        if levels.counts == NULL:
            return 0
        levels.low = level
        levels.span = 1
    elif level < levels.low:
        more = <Py_ssize_t> (levels.low - level)
        moved = <uint32_t*> calloc(levels.span + more, sizeof(uint32_t))
        if moved == NULL:
            return 0
        memcpy(moved + more, levels.counts, levels.span * sizeof(uint32_t))
        free(levels.counts)
        levels.counts = moved
        levels.low = level
        levels.span += more
    elif level >= levels.low + levels.span:
        more = <Py_ssize_t> (level - levels.low - levels.span + 1)
        moved = <uint32_t*> realloc(levels.counts, (levels.span + more) * sizeof(uint32_t))
        if moved == NULL:
            return 0
        memset(moved + levels.span, 0, more * sizeof(uint32_t))
        levels.counts = moved
        levels.span += more
    levels.counts[level - levels.low] += <uint32_t> rows
    return 1


cdef inline int64_t run_table_bytes(const Run* run) noexcept nogil:
    return sizeof(Run) + run.pages * (8 if run.leaves == NULL else 16) + run.levels.span * 4


cdef void free_run(Join* join, Run* run) noexcept nogil:
    if run == NULL:
        return
    if join.file >= 0:
        give_back(join.file, run.offset, run_bytes(run))
        let_go(join)
    drop_leaves(join, run)
    join.table -= run_table_bytes(run)
    free(run.leaves)
    free(run.first)
    free_levels(&run.levels)
    free(run)


cdef int begin_run(Join* join, RunWriter* writer, int64_t rows) noexcept nogil:
    cdef int status = open_file(join)
    cdef Run* run
    memset(writer, 0, sizeof(RunWriter))
    if status:
        return status
    run = <Run*> calloc(1, sizeof(Run))
    writer.data = <char*> calloc(min(<int64_t> PAGE, rows), ROW_BYTES)
    if run == NULL or writer.data == NULL:
        free(run)
        return NO_MEMORY
    run.pages = <Py_ssize_t> ((rows + PAGE - 1) // PAGE)
    run.rows = rows
    run.first = <int64_t*> malloc(run.pages * 8 + 8)
    if run.first == NULL:
        free(run)
        return NO_MEMORY
    run.offset = join.reached
    join.reached += run_bytes(run)
    join.living += 1
    join.table += run_table_bytes(run)
    writer.run = run
    return FINE


cdef int flush_page(Join* join, RunWriter* writer) noexcept nogil:
    cdef int64_t page = (writer.row - 1) // PAGE
    writer.run.first[page] = (<int64_t*> writer.data)[0]
    join.error = write_all(
        join.file, writer.data, room_of(writer.run) * ROW_BYTES,
        writer.run.offset + page * PAGE_BYTES,
    )
    writer.filled = 0
    join.tally.spilled_bytes += room_of(writer.run) * ROW_BYTES
    return NO_DISK if join.error else FINE


cdef int put_in_run(
    Join* join, RunWriter* writer, int64_t start, int64_t end, int64_t level
) noexcept nogil:
    cdef Page page = page_of(writer.data, writer.run)
    cdef Py_ssize_t at = writer.filled
    cdef void* moved
    cdef int64_t before = join.table
    page.start[at] = start
    page.end[at] = end
    page.level[at] = <int16_t> level
    if join.axis == PARENT or join.axis == ANCESTOR:
        while writer.depth and writer.open_ends[writer.depth - 1] < start:
            writer.depth -= 1
        page.up[at] = writer.open_rows[writer.depth - 1] if writer.depth else NO_ROW
        if writer.depth == writer.room:
            moved = realloc(writer.open_ends, (2 * writer.room + 16) * sizeof(int64_t))
            if moved == NULL:
                return NO_MEMORY
            writer.open_ends = <int64_t*> moved
            moved = realloc(writer.open_rows, (2 * writer.room + 16) * sizeof(uint32_t))
            if moved == NULL:
                return NO_MEMORY
            writer.open_rows = <uint32_t*> moved
            writer.room = 2 * writer.room + 16
        writer.open_ends[writer.depth] = end
        writer.open_rows[writer.depth] = <uint32_t> writer.row
        writer.depth += 1
    if join.axis == CHILD or join.axis == PARENT:
        # What it will take to put them by level again, when they come back into memory.
        before = run_table_bytes(writer.run)
        if not count_level(&writer.run.levels, level, 1):
            return NO_MEMORY
        join.table += run_table_bytes(writer.run) - before
    writer.filled = at + 1
    writer.row += 1
    return flush_page(join, writer) if writer.filled == PAGE else FINE


cdef int end_run(Join* join, RunWriter* writer, int status, Run** run) noexcept nogil:
    """The run, if all went well so far; nothing is left of it otherwise."""
    if status == FINE and writer.filled:
        status = flush_page(join, writer)
    free(writer.data)
    free(writer.open_ends)
    free(writer.open_rows)
    if status:
        free_run(join, writer.run)
        writer.run = NULL
    run[0] = writer.run
    return status
