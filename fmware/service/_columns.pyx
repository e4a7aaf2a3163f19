"""Hits as columns of bytes, natively: written by a worker, and cut and placed by the server.

For a message, a statement and a local node, their parts of ids and lines are made once and copied
for each hit. Strings are copied as they are where JSON has them as they are, which is nearly
always; the others go through `json`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport int64_t
from libc.string cimport memchr, memcpy

from json.encoder import encode_basestring as quoted

from fmware.service.envelope import ALL, DEFAULT, LONGEST, UNSAFE, bounded, escaped
from fmware.service.hits import SEPARATOR, label_of

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object)
    void* PyUnicode_DATA(object)
    Py_ssize_t PyUnicode_GET_LENGTH(object)

cdef Py_ssize_t MOST = LONGEST
cdef char END = b"\n"
cdef const char* HEX = b"0123456789ABCDEF"
cdef bint[256] SAFE
for _each in range(256):
    SAFE[_each] = UNSAFE.match(bytes([_each])) is None


cdef class Buffer:
    """Bytes that grow at their end."""

    cdef char* data
    cdef Py_ssize_t size
    cdef Py_ssize_t room

    def __dealloc__(self):
        PyMem_Free(self.data)

    cdef char* more(self, Py_ssize_t size) except NULL:
        """Where `size` more bytes are to be written."""
        cdef Py_ssize_t room
        cdef char* data
        if self.size + size > self.room or self.data == NULL:
            room = 2 * (self.size + size) + 256
            data = <char*> PyMem_Realloc(self.data, room)
            if data == NULL:
                raise MemoryError
            self.data, self.room = data, room
        self.size += size
        return self.data + self.size - size

    cdef int put(self, const char* data, Py_ssize_t size) except -1:
        memcpy(self.more(size), data, size)
        return 0

    cdef int copy(self, bytes data) except -1:
        return self.put(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))

    cdef int append(self, Buffer other) except -1:
        return self.put(other.data, other.size) if other.size else 0

    cdef int byte(self, char each) except -1:
        self.more(1)[0] = each
        return 0

    cdef int number(self, int64_t value) except -1:
        cdef char digits[20]
        cdef int at = 20
        if value < 0:
            return self.copy(b"%d" % value)
        while True:
            at -= 1
            digits[at] = <char> (48 + value % 10)
            value //= 10
            if not value:
                break
        return self.put(&digits[at], 20 - at)

    cdef int text(self, str text) except -1:
        """A string as JSON, in quotes."""
        cdef Py_ssize_t at, size
        cdef const unsigned char* data
        cdef char* to
        if not PyUnicode_IS_COMPACT_ASCII(text):
            return self.copy(utf8(quoted(text)))
        size = PyUnicode_GET_LENGTH(text)
        data = <const unsigned char*> PyUnicode_DATA(text)
        for at in range(size):
            if data[at] < 32 or data[at] == 34 or data[at] == 92:
                return self.copy(utf8(quoted(text)))
        to = self.more(size + 2)
        to[0] = to[size + 1] = 34
        memcpy(to + 1, data, size)
        return 0

    cdef bytes whole(self):
        return PyBytes_FromStringAndSize(self.data, self.size)


cdef bytes utf8(str text):
    """UTF-8; half a character, which JSON can write and UTF-8 cannot, is escaped."""
    return text.encode("utf-8", "backslashreplace")


cdef bytes percent(str name):
    """A part of an id, as `escaped` makes it."""
    cdef Buffer to = Buffer()
    cdef unsigned char each
    for each in <bytes> name.encode():
        if SAFE[each]:
            to.byte(each)
        else:
            to.byte(b"%")
            to.byte(HEX[each >> 4])
            to.byte(HEX[each & 15])
    return to.whole()


cdef class Writing:
    """A statement as it is written into hits: the parts of ids and lines that stay the same.

    `name` is that of a tenant and that of its statement, with the separator between them.
    """

    cdef readonly str owner
    cdef bytes label, before, after, head, tail

    def __init__(self, str name):
        self.owner, _, statement = name.partition(SEPARATOR)
        self.label = utf8(label_of(self.owner, statement))
        self.before = b"" if self.owner == DEFAULT else utf8(f"{escaped(self.owner)}:")
        self.after = utf8(f":{escaped(statement)}:")
        self.head = utf8(f'","tenant":{quoted(self.owner)},"message":')
        self.tail = utf8(f',"statement":{quoted(statement)}')


cdef class HitWriter:
    """Writes the hits of messages, one message after the other, each for its tenant.

    `begin` a message, `add` what matches, `end` it. `text()` is that of all messages: of each its
    ids, the names of statements and its lines. A message has at most `hits`; `full` says that it
    has more. `cut` are statements whose hits did not fit into the bytes of a message. `encoder` is
    the `fmware.matching.to_json.Encoder` of the batch, for nodes of messages.
    """

    cdef Buffer all, ids, names, lines, body
    cdef bytes called, about
    cdef str tenant
    cdef dict writings
    cdef object encoder, nodes
    cdef Py_ssize_t place, count, hits
    cdef int64_t room
    cdef readonly bint full
    cdef readonly dict cut

    def __init__(self, encoder, dict writings, Py_ssize_t hits):
        self.encoder = encoder
        self.writings = writings
        self.hits = hits
        self.all, self.body = Buffer(), Buffer()
        self.ids, self.names, self.lines = Buffer(), Buffer(), Buffer()

    def begin(self, Py_ssize_t place, str tenant, str name, str time, int64_t room):
        """The next message: its place, tenant, id and time, and how many bytes its hits may hold."""
        self.tenant = None if tenant == ALL else tenant
        self.called = percent(name)
        self.about = utf8(f'{quoted(name)},"time":{quoted(time)}')
        self.ids.size = self.names.size = self.lines.size = self.count = 0
        self.room = room
        self.place = place
        self.nodes = None
        self.full = False
        self.cut = {}

    def add(self, list plans, list rows, local=None, Py_ssize_t first=0):
        """Matches of the message: statements, the rows of each, and where their local nodes are.

        What is not the tenant's is passed over before anything is made of it.
        """
        cdef Py_ssize_t place
        cdef Writing writing
        cdef tuple own
        for place in range(len(plans)):
            plan = plans[place]
            writing = self.writings[plan.name]
            if self.tenant is not None and self.tenant != writing.owner:
                continue
            if self.count == self.hits:
                self.full = True
                return
            own = rows[place]
            self.body.size = 0
            if plan.nodes:
                if self.nodes is None:
                    self.nodes = self.encoder.nodes(self.place)
                self.body.copy(utf8(self.nodes.encode(own, plan.nodes)))
            node = None if local is None else local.node(first + place)
            if node is not None:
                write_local(self.body, node)
            self.room -= self.body.size
            if self.room < 0:
                self.cut[plan.name] = None
            else:
                self._write(writing, own, node)

    cdef int _write(self, Writing writing, tuple rows, node) except -1:
        cdef Buffer ids = self.ids, lines = self.lines
        cdef Py_ssize_t begin
        if self.count:
            ids.byte(END)
            lines.byte(END)
            self.names.byte(END)
        self.count += 1
        begin = ids.size
        self._name(writing, rows, node)
        self.names.copy(writing.label)
        lines.put(b'{"id":"', 7)
        lines.put(ids.data + begin, ids.size - begin)
        lines.copy(writing.head)
        lines.copy(self.about)
        lines.copy(writing.tail)
        lines.append(self.body)
        return lines.byte(b"}")

    cdef int _name(self, Writing writing, tuple rows, node) except -1:
        """The id of a hit, as `hit_id` makes it."""
        cdef Buffer ids = self.ids
        cdef Py_ssize_t begin = ids.size, place
        ids.copy(writing.before)
        ids.copy(self.called)
        ids.copy(writing.after)
        for place in range(len(rows)):
            if place:
                ids.byte(b".")
            ids.number(rows[place])
        if node is not None:
            ids.byte(b"@")
            ids.number(node.start)
        if ids.size - begin > MOST:
            short = bounded(ids.data[begin : ids.size].decode())
            ids.size = begin
            ids.copy(utf8(short))
        return 0

    def end(self):
        """The bytes of the message's ids, of names and of lines."""
        self.all.append(self.ids)
        self.all.append(self.names)
        self.all.append(self.lines)
        return self.ids.size, self.names.size, self.lines.size

    def text(self):
        """The columns of all messages."""
        return self.all.whole()


cdef int write_local(Buffer to, node) except -1:
    """A node of the corpus, as `fmware.matching.to_json.local_text` has it."""
    if node._segment is not None:
        node.path  # Reads the record: what is below is there then.
    to.put(b',"local":{"tag":', 16)
    to.text(node.tag)
    to.put(b',"path":', 8)
    to.text(node._path)
    to.put(b',"label":[', 10)
    to.number(node.start)
    to.byte(b",")
    to.number(node.end)
    to.byte(b",")
    to.number(node.level)
    to.put(b'],"source":', 11)
    source = node._source
    if source is None:
        to.put(b"null", 4)
    else:
        to.text(source)
    value = node.value
    if value is not None:
        to.put(b',"value":', 9)
        to.text(value)
    fragment = node.fragment
    if fragment is not None:
        to.put(b',"fragment":', 12)
        to.text(fragment.decode("utf-8", "replace"))
    return to.byte(b"}")


def placed(bytes body, Py_ssize_t cut, int64_t position):
    """The lines behind the first `cut` bytes with their positions, as items of a JSON array.

    The first has a position, and each of the others the next one.
    """
    cdef const char* at = PyBytes_AS_STRING(body) + cut
    cdef const char* end = PyBytes_AS_STRING(body) + PyBytes_GET_SIZE(body)
    cdef const char* line
    cdef Buffer to = Buffer()
    if not 0 <= cut <= PyBytes_GET_SIZE(body):
        raise ValueError("more names than bytes")
    to.more(2 * (end - at))
    to.size = 0
    while True:
        line = <const char*> memchr(at, END, end - at)
        if line == NULL:
            line = end
        to.put(b'{"position":', 12)
        to.number(position)
        to.byte(b",")
        if line > at:
            to.put(at + 1, line - at - 1)
        if line == end:
            return to.whole()
        to.byte(b",")
        position += 1
        at = line + 1
