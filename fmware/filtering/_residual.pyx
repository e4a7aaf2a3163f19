"""Statements that the automaton alone does not decide.

Such a statement is a `Rule`: a guard over paths of the automaton, its atoms, and mostly a residual, the
expression itself. When a document has been run, `Settler.settle` takes the atoms out of what matched,
evaluates the guards that one of them may have made true, and then the residuals of those that hold, on
the columns of the document. Only an expression that asks for what is not in the columns (names as they
are spelled, comments, processing instructions, namespaces) has the document parsed, once.

Truth has three values: an atom that is undecided makes its statement undecided, unless the others
decide it. All work is charged to the budget of the document; over it, a statement is undecided.

Rules change under the write lock of the automaton and are read under its read lock.
"""

from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset, strlen

from lxml.includes cimport tree

from fmware.labeling._kernel cimport PAGE, drop_tree, raw_tree

cdef extern from "xpath_eval.h" nogil:
    ctypedef struct XEval:
        XView* view
        const XProgram* program
        XArena* arena
    ctypedef struct XContext:
        int32_t node
        int32_t position
        int32_t size
    ctypedef struct XMark:
        pass
    XMark x_mark(XArena*)
    void x_release(XArena*, XMark)
    XValue x_eval(XEval*, int32_t, XContext)
    int x_to_boolean(const XValue*)
    int x_load(XProgram*, const uint8_t*, int64_t)
    int XT_NODES
    int X_UNSPELLED
    ctypedef struct XCases:
        const int32_t* letters
        int32_t count
    XCases x_lower_cases, x_upper_cases

cdef enum:
    AND = -1            # operations of guards; the number of terms stands before them
    OR = -2
    NOT = -3
    NO = 0
    MAYBE = 1
    YES = 2
    MEMORY = 64 << 20   # bytes that the evaluation of one residual may hold
    DOCUMENT = 1
    NAMESPACES = 2
    FOR_TUPLE = 8       # units of work for a tuple
    FOR_PARSE = 2       # bytes that are parsed for one unit of work, as a shift
    UNKNOWN = 1
    ELEMENT = 0
    ATTRIBUTE = 1
    TEXT = 2
    COMMENT = 3
    INSTRUCTION = 4
    NAMESPACE = 5


cdef inline bint append(Column* column, int32_t item) noexcept nogil:
    cdef int64_t room
    cdef void* grown
    if column.count == column.room:
        room = column.room * 2 + 64
        grown = realloc(column.items, room * sizeof(int32_t))
        if grown == NULL:
            return False
        column.items = <int32_t*>grown
        column.room = room
    column.items[column.count] = item
    column.count += 1
    return True


_kept = []


def set_cases(bytes lower not None, bytes upper not None):
    """Give the letters that have another case: four numbers each, in order; once, for good."""
    _kept.extend((lower, upper))
    x_lower_cases.letters = <const int32_t*><const char*>lower
    x_lower_cases.count = <int32_t>(len(lower) // 16)
    x_upper_cases.letters = <const int32_t*><const char*>upper
    x_upper_cases.count = <int32_t>(len(upper) // 16)


# -- rules --


cdef class Rules:
    """The rules of an automaton."""

    def __cinit__(self):
        self.free = []
        self.places = {}

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self.high):
            free_rule(&self.rules[i])
        free(self.rules)
        free(self.rule_of)
        free(self.triggers)

    cdef int put(self, int32_t number, uint8_t wants, list atoms, list code, set triggers,
                 bytes program, bint exact) except -1:
        """Add the rule of a statement; nothing has changed if it raises."""
        cdef Rule rule
        cdef int32_t place
        self._room_for(max(number, max(atoms)) + 1)
        memset(&rule, 0, sizeof(Rule))
        try:
            fill_rule(&rule, number, atoms, code, program)
            place = self._place()
        except BaseException:
            free_rule(&rule)
            raise
        rule.wants = wants
        rule.exact = exact
        rule.positive = NOT not in code
        self.rules[place] = rule
        self.places[number] = place
        for atom in atoms:
            self.rule_of[<int32_t>atom] = place
            self.triggers[<int32_t>atom] = atom in triggers
        self.count += 1
        self.residuals += rule.program != NULL
        return 0

    cdef void drop(self, int32_t number):
        """Take the rule of a statement out, if it has one."""
        cdef int32_t i
        cdef Rule* rule
        place = self.places.pop(number, None)
        if place is None:
            return
        rule = &self.rules[<int32_t>place]
        for i in range(rule.atom_count):
            self.rule_of[rule.atoms[i]] = -1
        self.residuals -= rule.program != NULL
        self.count -= 1
        free_rule(rule)
        self.free.append(place)

    cdef int32_t _place(self) except -1:
        cdef int32_t room
        cdef void* grown
        if self.free:
            return self.free.pop()
        if self.high == self.room:
            room = self.room * 2 + 16
            grown = realloc(self.rules, room * sizeof(Rule))
            if grown == NULL:
                raise MemoryError
            self.rules = <Rule*>grown
            self.room = room
        self.high += 1
        return self.high - 1

    cdef int _room_for(self, int32_t count) except -1:
        cdef int32_t room = max(count, self.subscribers * 2, 64)
        cdef int32_t i
        cdef void* grown
        if count <= self.subscribers:
            return 0
        grown = realloc(self.rule_of, room * sizeof(int32_t))
        if grown == NULL:
            raise MemoryError
        self.rule_of = <int32_t*>grown
        grown = realloc(self.triggers, room)
        if grown == NULL:
            raise MemoryError
        self.triggers = <uint8_t*>grown
        for i in range(self.subscribers, room):
            self.rule_of[i] = -1
        self.subscribers = room
        return 0


cdef int fill_rule(Rule* rule, int32_t number, list atoms, list code, bytes program) except -1:
    cdef int32_t i
    rule.number = number
    rule.atoms = <int32_t*>malloc((len(atoms) + 1) * sizeof(int32_t))
    rule.code = <int32_t*>malloc((len(code) + 1) * sizeof(int32_t))
    if rule.atoms == NULL or rule.code == NULL:
        raise MemoryError
    for i in range(<int32_t>len(atoms)):
        rule.atoms[i] = atoms[i]
    for i in range(<int32_t>len(code)):
        rule.code[i] = code[i]
    rule.atom_count = <int32_t>len(atoms)
    rule.code_count = <int32_t>len(code)
    if program is None:
        return 0
    rule.memory = <uint8_t*>malloc(len(program))
    rule.program = <XProgram*>calloc(1, sizeof(XProgram))
    if rule.memory == NULL or rule.program == NULL:
        raise MemoryError
    memcpy(rule.memory, <const char*>program, len(program))
    if not x_load(rule.program, rule.memory, len(program)):
        raise ValueError("not a program")
    return 0


cdef void free_rule(Rule* rule) noexcept nogil:
    free(rule.atoms)
    free(rule.code)
    free(rule.memory)
    free(rule.program)
    memset(rule, 0, sizeof(Rule))
    rule.number = -1


# -- views of a document --


cdef struct Wide:
    # The whole document as columns, and the row of the table that stands for each of its rows.
    XView view
    tree.xmlDoc* doc
    bint spaces
    bint failed
    int32_t room
    int32_t rows
    int64_t text_room
    int64_t text_size
    uint8_t* kinds
    int32_t* tags
    int32_t* parents
    int64_t* starts
    int64_t* ends
    int32_t* offsets
    char* text
    void** nodes
    int32_t* table_rows
    int32_t counted


cdef int in_space(void* names, int32_t tag, int32_t space) noexcept nogil:
    return space > 0 and (<Name**>names)[tag // PAGE][tag % PAGE].space == space


cdef int spell(void* names, void* spaces, int32_t tag, XText* local, XText* uri) noexcept nogil:
    cdef Name* name
    cdef Name* space
    if tag <= UNKNOWN:
        return 0
    name = &(<Name**>names)[tag // PAGE][tag % PAGE]
    if name.space > 0 and name.length == 1 and name.text[0] == 42:
        return 0  # `{uri}*`, for all names of a namespace that no statement uses
    local.data = name.text
    local.size = name.length
    uri.data = name.text
    uri.size = 0
    if name.space > 0:
        space = &(<Name**>spaces)[name.space // PAGE][name.space % PAGE]
        uri.data = space.text
        uri.size = space.length
    return 1


cdef void name_of(void* node, int kind, const char** prefix, const char** local,
                  const char** uri) noexcept nogil:
    cdef tree.xmlNode* own = <tree.xmlNode*>node
    prefix[0] = local[0] = uri[0] = NULL
    if kind == NAMESPACE:
        if node == NULL:
            local[0] = b"xml"
        else:
            local[0] = <const char*>(<tree.xmlNs*>node).prefix
    elif kind == INSTRUCTION:
        local[0] = <const char*>own.name
    elif kind == ELEMENT or kind == ATTRIBUTE:
        local[0] = <const char*>own.name
        if own.ns != NULL:
            prefix[0] = <const char*>own.ns.prefix
            uri[0] = <const char*>own.ns.href


cdef void clear_wide(Wide* wide) noexcept nogil:
    if wide.doc != NULL:
        drop_tree(wide.doc)
    free(wide.kinds)
    free(wide.tags)
    free(wide.parents)
    free(wide.starts)
    free(wide.ends)
    free(wide.offsets)
    free(wide.text)
    free(wide.nodes)
    free(wide.table_rows)
    memset(wide, 0, sizeof(Wide))


cdef bint more_rows(Wide* wide) noexcept nogil:
    cdef int32_t room = wide.room * 2 + 256
    cdef void* grown[8]
    grown[0] = realloc(wide.kinds, room)
    if grown[0] != NULL:
        wide.kinds = <uint8_t*>grown[0]
    grown[1] = realloc(wide.tags, room * sizeof(int32_t))
    if grown[1] != NULL:
        wide.tags = <int32_t*>grown[1]
    grown[2] = realloc(wide.parents, room * sizeof(int32_t))
    if grown[2] != NULL:
        wide.parents = <int32_t*>grown[2]
    grown[3] = realloc(wide.starts, room * sizeof(int64_t))
    if grown[3] != NULL:
        wide.starts = <int64_t*>grown[3]
    grown[4] = realloc(wide.ends, room * sizeof(int64_t))
    if grown[4] != NULL:
        wide.ends = <int64_t*>grown[4]
    grown[5] = realloc(wide.offsets, (room + 1) * sizeof(int32_t))
    if grown[5] != NULL:
        wide.offsets = <int32_t*>grown[5]
    grown[6] = realloc(wide.nodes, room * sizeof(void*))
    if grown[6] != NULL:
        wide.nodes = <void**>grown[6]
    grown[7] = realloc(wide.table_rows, room * sizeof(int32_t))
    if grown[7] != NULL:
        wide.table_rows = <int32_t*>grown[7]
    cdef int i
    for i in range(8):
        if grown[i] == NULL:
            return False
    wide.room = room
    return True


cdef int32_t add_row(Wide* wide, uint8_t kind, int32_t tag, int32_t parent,
                     void* node) noexcept nogil:
    # A row, its value to be added; -1: no memory.
    cdef int32_t row = wide.rows
    if row == wide.room and not more_rows(wide):
        wide.failed = True
        return -1
    wide.kinds[row] = kind
    wide.tags[row] = tag
    wide.parents[row] = parent
    wide.starts[row] = 0
    wide.ends[row] = 1
    wide.offsets[row] = <int32_t>wide.text_size
    wide.nodes[row] = node
    if kind <= TEXT:
        wide.table_rows[row] = wide.counted
        wide.counted += 1
    else:
        # What is no row of the table is told of by its parent, or by the root element.
        wide.table_rows[row] = wide.table_rows[parent] if parent >= 0 else 0
    wide.rows += 1
    return row


cdef void add_text(Wide* wide, const tree.xmlChar* text) noexcept nogil:
    cdef int64_t size = strlen(<const char*>text) if text != NULL else 0
    cdef void* grown
    if wide.text_size + size > wide.text_room:
        grown = realloc(wide.text, (wide.text_size + size) * 2)
        if grown == NULL:
            wide.failed = True
            return
        wide.text = <char*>grown
        wide.text_room = (wide.text_size + size) * 2
    if size:
        memcpy(wide.text + wide.text_size, text, size)
    wide.text_size += size


cdef int32_t tag_of(Vocabulary vocabulary, const tree.xmlChar* local,
                    const tree.xmlNs* ns) noexcept nogil:
    cdef int32_t space = 0
    cdef int32_t tag = -1
    if ns != NULL and ns.href != NULL:
        space = vocabulary.find_space(<const char*>ns.href, <uint32_t>strlen(<const char*>ns.href))
    if space >= 0:
        tag = vocabulary.find(space, <const char*>local, <uint32_t>strlen(<const char*>local))
    return tag if tag >= 0 else vocabulary.wildcard(space)


cdef void add_spaces(Wide* wide, Vocabulary vocabulary, tree.xmlNode* node,
                     int32_t row) noexcept nogil:
    # The namespaces in scope of an element: the nearest declaration of each prefix, and xml.
    cdef tree.xmlNode* up = node
    cdef tree.xmlNs* ns
    cdef int32_t i, first = wide.rows
    cdef bint known
    i = add_row(wide, NAMESPACE, tag_of(vocabulary, <const tree.xmlChar*>b"xml", NULL), row, NULL)
    if i < 0:
        return
    add_text(wide, <const tree.xmlChar*>b"http://www.w3.org/XML/1998/namespace")
    while up != NULL and up.type == tree.XML_ELEMENT_NODE and not wide.failed:
        ns = up.nsDef
        while ns != NULL and not wide.failed:
            known = False
            for i in range(first + 1, wide.rows):
                known = known or same_prefix(ns, <tree.xmlNs*>wide.nodes[i])
            if not known:
                i = add_row(wide, NAMESPACE, tag_of(
                    vocabulary, ns.prefix if ns.prefix != NULL else <const tree.xmlChar*>b"",
                    NULL), row, ns)
                if i >= 0:
                    add_text(wide, ns.href)
            ns = ns.next
        up = up.parent
    # A default namespace that is undeclared is none.
    for i in range(wide.rows - 1, first, -1):
        ns = <tree.xmlNs*>wide.nodes[i]
        if ns.prefix == NULL and (ns.href == NULL or ns.href[0] == 0):
            remove_row(wide, i)


cdef void remove_row(Wide* wide, int32_t row) noexcept nogil:
    # REQUIRES: its value is empty, and it is a namespace.
    cdef int32_t i
    for i in range(row, wide.rows - 1):
        wide.tags[i] = wide.tags[i + 1]
        wide.nodes[i] = wide.nodes[i + 1]
        wide.offsets[i] = wide.offsets[i + 1]
    wide.rows -= 1


cdef bint same_prefix(tree.xmlNs* left, tree.xmlNs* right) noexcept nogil:
    cdef const char* a = <const char*>left.prefix
    cdef const char* b = <const char*>right.prefix
    if a == NULL or b == NULL:
        return a == b
    while a[0] == b[0] and a[0] != 0:
        a += 1
        b += 1
    return a[0] == b[0]


cdef void add_element(Wide* wide, Vocabulary vocabulary, tree.xmlNode* node,
                      int32_t parent) noexcept nogil:
    cdef int32_t row = add_row(wide, ELEMENT, tag_of(vocabulary, node.name, node.ns), parent, node)
    cdef tree.xmlAttr* attribute = <tree.xmlAttr*>node.properties
    cdef tree.xmlNode* part
    if row >= 0 and wide.spaces:
        add_spaces(wide, vocabulary, node, row)
    while attribute != NULL and not wide.failed:
        if add_row(wide, ATTRIBUTE, tag_of(vocabulary, attribute.name, attribute.ns), row,
                   attribute) >= 0:
            part = attribute.children
            while part != NULL:
                add_text(wide, part.content)
                part = part.next
        attribute = attribute.next


cdef int32_t add_node(Wide* wide, Vocabulary vocabulary, tree.xmlNode* node,
                      int32_t parent) noexcept nogil:
    # The rows of a node, without what is below it; the first of them.
    cdef int32_t row = wide.rows
    if node.type == tree.XML_ELEMENT_NODE:
        add_element(wide, vocabulary, node, parent)
    elif node.type == tree.XML_TEXT_NODE or node.type == tree.XML_CDATA_SECTION_NODE:
        if add_row(wide, TEXT, 0, parent, node) >= 0:
            add_text(wide, node.content)
    elif node.type == tree.XML_COMMENT_NODE:
        if add_row(wide, COMMENT, 0, parent, node) >= 0:
            add_text(wide, node.content)
    elif node.type == tree.XML_PI_NODE:
        if add_row(wide, INSTRUCTION, 0, parent, node) >= 0:
            add_text(wide, node.content)
    return row


cdef bint read_wide(Wide* wide, Body* body, Vocabulary vocabulary, bint spaces) noexcept nogil:
    # Make the view of the whole document. False: it cannot be had.
    cdef tree.xmlNode* node
    cdef int32_t parent = -1
    cdef int32_t row
    if body.text == NULL or body.wrapped:
        return False
    wide.doc = raw_tree(body.text, body.size, body.huge, body.resolve)
    wide.spaces = spaces
    if wide.doc == NULL:
        return False
    node = wide.doc.children
    while node != NULL and not wide.failed:
        row = add_node(wide, vocabulary, node, parent)
        if node.type == tree.XML_ELEMENT_NODE and node.children != NULL:
            parent = row
            node = node.children
            continue
        if node.type == tree.XML_ELEMENT_NODE and not wide.failed:
            wide.ends[row] = 2 * <int64_t>(wide.rows - row) - 1
        while node.next == NULL and parent >= 0:
            node = node.parent
            wide.ends[parent] = 2 * <int64_t>(wide.rows - parent) - 1
            parent = wide.parents[parent]
        node = node.next
    if wide.failed or (wide.room == wide.rows and not more_rows(wide)):
        return False
    wide.offsets[wide.rows] = <int32_t>wide.text_size
    wide.view.kinds = wide.kinds
    wide.view.tags = wide.tags
    wide.view.parents = wide.parents
    wide.view.starts = wide.starts
    wide.view.ends = wide.ends
    wide.view.offsets = wide.offsets
    wide.view.text = b""
    if wide.text != NULL:
        wide.view.text = wide.text
    wide.view.rows = wide.rows
    wide.view.nodes = wide.nodes
    wide.view.name_of = name_of
    return True


# -- settling --


cdef bint more_stamps(int64_t** stamps, int32_t room, int32_t wanted) noexcept nogil:
    cdef void* grown = realloc(stamps[0], wanted * sizeof(int64_t))
    if grown == NULL:
        return False
    stamps[0] = <int64_t*>grown
    memset(stamps[0] + room, 0, (wanted - room) * sizeof(int64_t))
    return True


cdef int by_row(const void* left, const void* right) noexcept nogil:
    return (<int32_t*>left)[0] - (<int32_t*>right)[0]


cdef class Settler:
    """What settles the documents of one runner; its memory is used again for each."""

    def __cinit__(self):
        self.arena.most = MEMORY
        self.wide = calloc(1, sizeof(Wide))
        if self.wide == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef XMark none
        memset(&none, 0, sizeof(XMark))
        x_release(&self.arena, none)
        if self.wide != NULL:
            clear_wide(<Wide*>self.wide)
        free(self.wide)
        free(self.ids.items)
        free(self.open.items)
        free(self.tuples.items)
        free(self.candidates.items)
        free(self.truth)
        free(self.stamps)
        free(self.rule_stamps)

    cdef int settle(self, Rules rules, Raw* raw, Body* body, Vocabulary vocabulary,
                    const int32_t* out, int64_t count, const int32_t* undecided, int64_t doubts,
                    bint partial, int32_t most_tuples, int64_t* budget) noexcept nogil:
        # Decide the statements with rules from what the automaton found. 0: no memory.
        cdef int64_t i
        cdef XView view
        cdef int fine
        self.ids.count = self.open.count = self.tuples.count = self.candidates.count = 0
        if not self._begin(rules.subscribers, rules.room):
            return 0
        for i in range(count):
            if not self._sort_in(rules, out[i], YES, &self.ids):
                return 0
        for i in range(doubts):
            if not self._sort_in(rules, undecided[i], MAYBE, &self.open):
                return 0
        view.kinds = raw.kinds
        view.tags = raw.tags
        view.parents = raw.parents
        view.starts = raw.starts
        view.ends = raw.ends
        view.offsets = raw.offsets
        view.text = raw.text
        view.rows = raw.rows
        view.names = vocabulary._pages
        view.in_space = in_space
        view.spaces = vocabulary._spaces
        view.spell = spell
        view.nodes = NULL
        view.name_of = NULL
        self.arena.budget = budget[0]
        fine = 1
        for i in range(self.candidates.count):
            if not self._decide(&rules.rules[self.candidates.items[i]], &view, body, vocabulary,
                                partial, most_tuples):
                fine = 0
                break
        budget[0] = self.arena.budget
        if (<Wide*>self.wide).doc != NULL or (<Wide*>self.wide).room:
            clear_wide(<Wide*>self.wide)
        return fine

    cdef bint _begin(self, int32_t subscribers, int32_t rules) noexcept nogil:
        # Room for the truth of all atoms and for all rules; nothing is known yet.
        cdef void* grown
        self.stamp += 1
        if subscribers > self.room:
            grown = realloc(self.truth, subscribers)
            if grown == NULL:
                return False
            self.truth = <int8_t*>grown
            if not more_stamps(&self.stamps, self.room, subscribers):
                return False
            self.room = subscribers
        if rules > self.rule_room:
            if not more_stamps(&self.rule_stamps, self.rule_room, rules):
                return False
            self.rule_room = rules
        return True

    cdef bint _sort_in(self, Rules rules, int32_t subscriber, int8_t truth,
                       Column* others) noexcept nogil:
        # An atom has a truth; any other subscriber is a statement of its own.
        cdef int32_t place = -1
        if subscriber < rules.subscribers:
            place = rules.rule_of[subscriber]
        if place < 0:
            return append(others, subscriber)
        self.truth[subscriber] = truth
        self.stamps[subscriber] = self.stamp
        if rules.triggers[subscriber] and self.rule_stamps[place] != self.stamp:
            self.rule_stamps[place] = self.stamp
            return append(&self.candidates, place)
        return True

    cdef bint _decide(self, Rule* rule, XView* view, Body* body, Vocabulary vocabulary,
                      bint partial, int32_t most_tuples) noexcept nogil:
        # Decide one statement. False: no memory.
        cdef int truth = self._guard(rule)
        cdef Wide* wide = <Wide*>self.wide
        cdef bint fine
        if partial and not (truth == YES and rule.positive and rule.exact and rule.wants == 0):
            return append(&self.open, rule.number)
        if truth != YES:
            return truth == NO or append(&self.open, rule.number)
        if rule.program == NULL:
            return append(&self.ids, rule.number)
        if not rule.program.needs & DOCUMENT:
            fine = self._evaluate(rule, view, NULL, most_tuples)
            if self.arena.stop != X_UNSPELLED:
                return fine
        if not self._parsed(body, view, vocabulary, rule.program.needs & NAMESPACES != 0):
            return append(&self.open, rule.number)
        return self._evaluate(rule, &wide.view, wide.table_rows, most_tuples)

    cdef bint _parsed(self, Body* body, XView* view, Vocabulary vocabulary,
                      bint spaces) noexcept nogil:
        # Have the view of the whole document. False: it cannot be had.
        cdef Wide* wide = <Wide*>self.wide
        if spaces and wide.doc != NULL and not wide.spaces:
            clear_wide(wide)
        if wide.doc != NULL:
            return True
        self.trees += 1
        self.arena.budget -= body.size >> FOR_PARSE
        if not read_wide(wide, body, vocabulary, spaces):
            clear_wide(wide)
            return False
        wide.view.names = view.names
        wide.view.in_space = in_space
        return True

    cdef int _guard(self, Rule* rule) noexcept nogil:
        # The truth of the guard.
        cdef int8_t[512] stack
        cdef int32_t top = 0
        cdef int32_t i, j, terms, item
        cdef int8_t truth
        i = 0
        while i < rule.code_count:
            item = rule.code[i]
            if item >= 0:
                item = rule.atoms[item]
                stack[top] = self.truth[item] if self.stamps[item] == self.stamp else NO
                top += 1
            elif item == NOT:
                stack[top - 1] = 2 - stack[top - 1]
            else:
                i += 1
                terms = rule.code[i]
                truth = YES if item == AND else NO
                for j in range(terms):
                    top -= 1
                    truth = min(truth, stack[top]) if item == AND else max(truth, stack[top])
                stack[top] = truth
                top += 1
            i += 1
        return stack[0]

    cdef bint _evaluate(self, Rule* rule, XView* view, const int32_t* table_rows,
                        int32_t most_tuples) noexcept nogil:
        # Evaluate the residual of a statement whose guard holds. False: no memory.
        cdef XEval evaluation
        cdef XContext context
        cdef XMark mark = x_mark(&self.arena)
        cdef XValue value
        cdef bint fine = True
        # One statement must not use up what others need: it may take half of what is left.
        cdef int64_t kept = self.arena.budget // 2
        self.asked += 1
        self.arena.budget -= kept
        self.arena.stop = self.arena.budget <= 0
        evaluation.view = view
        evaluation.program = rule.program
        evaluation.arena = &self.arena
        context.node = -1
        context.position = context.size = 1
        value = x_eval(&evaluation, rule.program.root, context)
        if self.arena.stop == X_UNSPELLED:
            self.asked -= 1  # It is asked again, of the document.
        elif self.arena.stop:
            fine = append(&self.open, rule.number)
        elif x_to_boolean(&value):
            self.held += 1
            fine = append(&self.ids, rule.number)
            if fine and rule.wants:
                fine = self._tell(rule, &value, table_rows, most_tuples)
        x_release(&self.arena, mark)
        self.arena.budget += kept
        return fine

    cdef bint _tell(self, Rule* rule, XValue* value, const int32_t* table_rows,
                    int32_t most_tuples) noexcept nogil:
        # The nodes that a statement selects, each a tuple; a value is told of by the root element.
        cdef int32_t i, row, count
        cdef int32_t* rows
        if value.type != XT_NODES:
            row = 0
            return self._tuples(rule.number, &row, 1, most_tuples)
        rows = value.nodes
        count = 0
        for i in range(value.count):
            row = rows[i]
            rows[i] = 0 if row < 0 else row if table_rows == NULL else table_rows[row]
        # The document and its root element may be one row now, and so may a comment and its parent.
        qsort(rows, value.count, sizeof(int32_t), by_row)
        for i in range(value.count):
            if i == 0 or rows[i] != rows[count - 1]:
                rows[count] = rows[i]
                count += 1
        return self._tuples(rule.number, rows, count, most_tuples)

    cdef bint _tuples(self, int32_t number, const int32_t* rows, int32_t count,
                      int32_t most) noexcept nogil:
        cdef int32_t i
        cdef int32_t told = min(count, most)
        self.arena.budget -= FOR_TUPLE * <int64_t>told
        if not (append(&self.tuples, 1) and append(&self.tuples, 1) and append(&self.tuples, told)
                and append(&self.tuples, told < count) and append(&self.tuples, number)):
            return False
        for i in range(told):
            if not append(&self.tuples, rows[i]):
                return False
        return True
