# What there is: rows, partitions, lists, labels, and the join that holds them all.

ctypedef struct Entry:
    # A row of a partition, in memory and on disk. Candidates have no id.
    int64_t id
    int64_t start
    int64_t end
    int64_t stamp        # when it was inserted
    int64_t level

ctypedef struct Unit:
    # What may become a victim: a partition, or a list. They are chained by when they were used, as
    # far as that is known: one that was used since it got its place is moved when it is met.
    Unit* older
    Unit* newer
    uint64_t used        # the tick at which it was last used
    uint64_t placed      # the tick at which it got its place among the others
    int64_t bytes        # what it counts against the budget
    int64_t fill         # rows in it
    uint32_t label
    int kind             # LEFT, RIGHT: a partition of that side; LIST; LEAF

ctypedef struct Partition:
    Unit unit
    Entry* rows
    Py_ssize_t place     # its piece among those of its side
    bint ordered         # rows by start

ctypedef struct Piece:
    # Some rows of one side of a label: a partition in memory, or an extent on disk.
    Partition* part      # of a piece in memory; NULL once it is no longer there
    int64_t offset       # of one on disk
    int64_t rows
    int64_t low          # the first and the last start, the last end
    int64_t high
    int64_t reach
    int64_t far          # the last end of this piece and all before it

ctypedef struct Pieces:
    Piece* at
    Py_ssize_t count
    Py_ssize_t room
    Py_ssize_t gone      # pieces in memory that are no longer there

ctypedef struct Levels:
    # How many rows each level has, from `low` on; only kept where a query asks for one level.
    uint32_t* counts
    Py_ssize_t span
    int64_t low

ctypedef struct Side:
    Pieces parts
    Pieces extents
    Levels levels
    Partition* open      # the partition that takes the next row; NULL if it is not in memory
    int64_t rows
    int64_t tail         # the start of the row that came last
    bint ordered         # rows came by start, none twice

ctypedef struct Pending:
    # The two sides of a label whose candidates have not all come, or are too many to be ordered.
    Side sides[2]
    int64_t querying     # rows that were inserted and have not queried yet
    bint ended           # the last candidate has come
    bint complete        # there is no left side any more

ctypedef struct View:
    # Candidates in AD order. With `begin`, by level and then by start: level low + i begins at
    # begin[i]. Otherwise `up`, where ancestors are asked for: the nearest candidate around each.
    const int64_t* start
    const int64_t* end
    const int16_t* level
    const uint32_t* up
    const uint32_t* begin
    const int64_t* sample     # of a long list, every SAMPLE-th start; NULL if it has none
    Py_ssize_t count
    Py_ssize_t span
    int64_t low

ctypedef struct List:
    # The candidates of a complete label in memory, all in one allocation.
    Unit unit
    View view
    Py_ssize_t cursor    # where the last query ended up: sorted inputs go on from there

ctypedef struct Leaf:
    # A page of a run that was read and has found room in memory; its rows come behind.
    Unit unit
    Run* run
    int64_t page

ctypedef struct Run:
    # The candidates of a complete label on disk: pages in AD order, the first start of each here.
    Leaf** leaves        # its pages in memory; NULL if there were never any
    int64_t held         # the bytes of these
    int64_t offset
    int64_t rows
    int64_t* first
    Levels levels
    int64_t heat         # pages that were read since it was spilled
    Py_ssize_t pages

ctypedef struct Label:
    uint64_t key
    Pending* pending     # NULL once the label is complete: then `list` or `run`, or no candidates
    List* list
    Run* run

ctypedef struct Slot:
    uint64_t key
    uint32_t label       # its number; or EMPTY and more, RENTED, or NO_LABEL if the slot is free
    uint32_t rent        # of a rented one: inputs that are deferred before it is fetched

ctypedef struct Event:
    # A step, for debugging.
    int64_t kind
    int64_t side
    uint64_t key
    int64_t id
    int64_t start
    int64_t stamp
    int64_t rows

ctypedef struct Tally:
    int64_t inputs
    int64_t stored       # inputs that waited for candidates of their label
    int64_t deferred
    int64_t unique
    int64_t candidates
    int64_t false_hits
    int64_t pairs
    int64_t spills
    int64_t spilled_bytes
    int64_t overflow_reads
    int64_t scans        # labels that were scanned for natively
    int64_t probe_time
    int64_t insert_time
    int64_t query_time

ctypedef struct Join:
    pthread_mutex_t mutex
    bint shut
    int axis
    Py_ssize_t rows      # of a partition
    double rent_label    # a new label with n candidates is rented for so many inputs,
    double rent_each     # and n times so many
    unsigned jitter      # microseconds between insertion and query, for tests
    int64_t clock        # insertion time-stamps
    uint64_t tick        # uses: what was used at one tick was used at the same time
    # memory
    int64_t budget
    int64_t held
    int64_t peak
    int64_t table        # bytes of the table of labels, and of where they lie on disk
    Unit* oldest
    Unit* newest
    # labels
    Label* labels
    uint32_t count
    uint32_t room
    Slot* slots
    uint64_t mask
    uint64_t used        # slots that are not free
    uint32_t bare        # labels that were new to a batch so far, see Ask
    uint64_t* spilled[2] # a bit a label: whether that side has rows on disk
    # disk
    const char* place
    int file
    int error
    int64_t reached      # where the file ends
    int64_t living       # extents and runs in it
    int64_t* empty       # places of extents that are free
    Py_ssize_t empties
    Py_ssize_t empties_room
    Entry* scratch       # an extent: a partition and one row more
    char* page           # a page of a run, and where it came from
    int64_t page_at
    char* rows_at        # the page that was asked for last, that one or a leaf
    # what comes out
    Sink out
    Tally tally
    bint tracing
    Event* events
    Py_ssize_t noted
    Py_ssize_t notes_room


cdef enum:
    # Kinds of events, in the order of cmatch.trace.
    NEW_LABEL = 0
    INSERTED = 1
    CASE_1 = 2
    CASE_2 = 3
    VICTIM = 4
    SPILLED = 5
    QUERY_MEMORY = 6
    QUERY_DISK = 7
    PAIR = 8
    LAST = 9
    LEFT_DROPPED = 10
    ORDERED = 11
    RELOADED = 12
    DEFERRED = 13


cdef void note(
    Join* join, int kind, int side, uint64_t key, int64_t id, int64_t start, int64_t stamp,
    int64_t rows,
) noexcept nogil:
    """Record a step; called only if somebody wants to know."""
    cdef Event* moved
    cdef Event* event
    if join.noted == join.notes_room:
        moved = <Event*> realloc(join.events, (2 * join.notes_room + 64) * sizeof(Event))
        if moved == NULL:
            return
        join.events = moved
        join.notes_room = 2 * join.notes_room + 64
    event = &join.events[join.noted]
    join.noted += 1
    event.kind = kind
    event.side = side
    event.key = key
    event.id = id
    event.start = start
    event.stamp = stamp
    event.rows = rows


cdef inline Py_ssize_t above(const int64_t* values, Py_ssize_t count, int64_t key) noexcept nogil:
    """The first place whose value is above key; no branch hangs on what is compared."""
    cdef const int64_t* low = values
    cdef Py_ssize_t half
    while count > 1:
        half = count >> 1
        low += half if low[half - 1] <= key else 0
        count -= half
    if count and low[0] <= key:
        low += 1
    return low - values


ctypedef struct Search:
    # For the first value above key: it is one of the next `count`, or the one behind them.
    const int64_t* low
    Py_ssize_t count
    int64_t key


cdef inline void above_each(Search* searches, Py_ssize_t number) noexcept nogil:
    """`above` for several keys, a step of each in turn: they wait for memory together."""
    cdef Py_ssize_t at, half, most = 0
    for at in range(number):
        most = max(most, searches[at].count)
    while most > 1:
        for at in range(number):
            half = searches[at].count >> 1
            if half:
                searches[at].low += half * (searches[at].low[half - 1] <= searches[at].key)
                searches[at].count -= half
        most -= most >> 1
    for at in range(number):
        if searches[at].count and searches[at].low[0] <= searches[at].key:
            searches[at].low += 1


cdef inline Py_ssize_t above_from(
    const int64_t* values, Py_ssize_t at, Py_ssize_t count, int64_t key
) noexcept nogil:
    """The same for a place that is `at` or, most likely, soon after it."""
    cdef Py_ssize_t step = 4
    while at < count and values[at] <= key:
        if at + step >= count or values[at + step] > key:
            return at + 1 + above(values + at + 1, min(step - 1, count - at - 1), key)
        at += step + 1
        step <<= 1
    return at


cdef enum:
    SAMPLE = 16
    LONG = 4096          # lists of so many rows have a sample


cdef inline bint has_windows(const View* view, Py_ssize_t low, Py_ssize_t high) noexcept nogil:
    """Whether so many rows are looked for in the sample first."""
    return view.sample != NULL and high - low > 4 * SAMPLE


cdef inline Py_ssize_t window(
    const View* view, Py_ssize_t low, Py_ssize_t high, int64_t key
) noexcept nogil:
    """Where, of rows that lie by start, at most SAMPLE rows begin among which the first above key is.

    Only the sample is looked at. It is the first row above key itself, or the first of them.
    """
    cdef Py_ssize_t first = low // SAMPLE + 1, last = (high - 1) // SAMPLE
    cdef Py_ssize_t found
    if first > last:
        return low
    found = above(view.sample + first, last - first + 1, key)
    return low if found == 0 else (first + found - 1) * SAMPLE


cdef inline Py_ssize_t above_in(
    const View* view, Py_ssize_t low, Py_ssize_t high, int64_t key
) noexcept nogil:
    """The first row above key among rows that lie by start, `high` if there is none."""
    cdef Py_ssize_t begin
    if not has_windows(view, low, high):
        return low + above(view.start + low, high - low, key)
    begin = window(view, low, high, key)
    return begin + above(view.start + begin, min(high - begin, <Py_ssize_t> SAMPLE), key)


cdef inline Py_ssize_t above_near(
    const View* view, Py_ssize_t near, Py_ssize_t low, Py_ssize_t high, int64_t key
) noexcept nogil:
    """The same for a row that may be `near`, or a little after it, or anywhere."""
    cdef const int64_t* start = view.start
    if not low <= near < high:
        return above_in(view, low, high, key)
    if start[near] <= key:
        if near + 32 >= high or start[near + 32] > key:
            return above_from(start, near + 1, high, key)
        return above_in(view, near + 33, high, key)
    if near == low or start[near - 1] <= key:
        return near
    return above_in(view, low, near, key)
