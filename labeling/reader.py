"""One document: bytes to NodeTable."""

from __future__ import annotations

import codecs
import re
import threading
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from lxml import etree

from fmware.labeling import _kernel, entities
from fmware.labeling.errors import (
    DoctypeRefused,
    EncodingError,
    EntityRefused,
    EventsUnavailable,
    LimitExceeded,
    MalformedXML,
    ReadError,
)
from fmware.labeling.limits import DEFAULT_LIMITS, Limits
from fmware.labeling.table import NodeTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import numpy as np
    import numpy.typing as npt

__all__ = ["VOCABULARY", "Reader", "read"]

VOCABULARY = _kernel.Vocabulary()
"""The vocabulary of readers that are given none."""

_DECLARATION = re.compile(rb"(?:\xef\xbb\xbf)?<\?xml\s[^>]*?\?>")
_ENCODING = re.compile(
    rb"""(?:\xef\xbb\xbf)?<\?xml\s[^>]*?\sencoding\s*=\s*["']([A-Za-z0-9._-]+)["']"""
)
_NAMED = re.compile(r"""^(<\?xml\s[^>]*?\sencoding\s*=\s*)(["'])[A-Za-z][A-Za-z0-9._-]*\2""")
_WIDE = (
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
    (b"<\0", "utf-16-le"),
    (b"\0<", "utf-16-be"),
)

# Error numbers of libxml2.
_ENCODING_CODES = frozenset({31, 32, 81, 1544, 6000, 6001, 6003})
_ENTITY_CODES = frozenset({26, 27, 28})
# What it says when it meets a bound of its own, and the setting that moves that bound.
_LIMIT_WORDS = (
    ("xcessive depth", "depth"),
    ("AttValue length", "attribute"),
    ("Resource limit exceeded", "text"),
    ("too long", "text"),
)


# What keeps a document from being read. lxml's error comes only where lxml's own parser has to
# stand in: see labeling/_trees.pxi.
_FAILURES = (_kernel.ParseFailed, _kernel.WalkStopped, etree.XMLSyntaxError, ReadError)

# Bytes of a message that may be the key of a cache.
_LONGEST_KEY = 1 << 14


class _Shift(NamedTuple):
    """On one line, how far the columns of the parser lie from those of the document."""

    line: int
    columns: int


_UNMOVED = _Shift(1, 0)

# Encodings in which a byte below 128 is always that character, whatever stands before it, so that
# records cut by their bytes can be joined. Others are read record by record.
_JOINABLE = ("utf-8", "ascii", "iso8859-", "cp125", "koi8-")


class _Parsers(threading.local):
    """A parser serves one document at a time, so each thread has its own."""

    def __init__(self) -> None:
        self.native = _kernel.ThreadParser()
        self.joined = _kernel.RecordParser()


class Reader:
    """Reads documents with one set of options; safe to share between threads.

    - `vocabulary`: where the names get their ids; the process-wide one if none is given.
    - `grow`: whether names not in the vocabulary are added; if not, they all get one id.
    - `values`: whether the values of attributes and text are kept.
    - `blanks`: whether text of white space only is a node, as XPath has it.
    - `entities`: characters by entity name. If given, a DOCTYPE that declares nothing but
      characters is allowed; otherwise any DOCTYPE is refused.
    - `fast`: whether plain documents are read by fmware's own reader and only the others by
      libxml2; without it libxml2 reads all. The tables are the same.
    """

    __slots__ = (
        "_max_bytes",
        "_parsers",
        "_references",
        "_walker",
        "blanks",
        "entities",
        "fast",
        "grow",
        "limits",
        "values",
        "vocabulary",
    )

    def __init__(
        self,
        vocabulary: _kernel.Vocabulary | None = None,
        *,
        limits: Limits = DEFAULT_LIMITS,
        grow: bool = True,
        values: bool = True,
        blanks: bool = True,
        entities: Mapping[str, str] | None = None,
        fast: bool = True,
    ) -> None:
        self.vocabulary = VOCABULARY if vocabulary is None else vocabulary
        self.limits = limits
        self.grow = grow
        self.values = values
        self.blanks = blanks
        self.entities = entities
        self.fast = fast
        self._max_bytes = limits.bytes
        bounds = (
            limits.nodes,
            limits.depth,
            limits.attribute,
            limits.text,
            limits.names,
            limits.name_bytes,
        )
        self._walker = _kernel.Walker(
            NodeTable,
            self.vocabulary,
            bounds,
            values,
            blanks,
            grow,
            limits.huge,
            fast,
            entities is not None,
        )
        self._parsers = _Parsers()
        self._references: dict[tuple[bytes, str, bool], _kernel.References | None] = {}

    def __reduce__(self) -> tuple[object, ...]:
        options = {
            "limits": self.limits,
            "grow": self.grow,
            "values": self.values,
            "blanks": self.blanks,
            "entities": self.entities,
            "fast": self.fast,
        }
        return _rebuild, (type(self), self.vocabulary, options)

    def read(
        self,
        document: bytes,
        *,
        base: int = 0,
        source: str | None = None,
        consumer: _kernel.Consumer | None = None,
    ) -> NodeTable:
        """The nodes of one document; its AD labels count from `base`.

        A native `consumer` may get the columns as soon as they are there; it says itself whether
        it has.
        """
        if len(document) > self._max_bytes:
            raise LimitExceeded("bytes", self._max_bytes, source=source)
        try:
            table: NodeTable | None
            # A document that the fast reader reads has no DOCTYPE and refers to no entities.
            read = self._walker.read if self.entities is None else self._walker.read_plain
            table = read(document, self._parsers.native, base, consumer)
            if table is None:
                document = _narrow(document)
                table = self._read_carefully(document, base)
        except _FAILURES as error:
            raise self._explain(error, document, source, _UNMOVED) from None
        if source is not None:
            table.source = source
        return table

    def native(self) -> tuple[_kernel.Walker, _kernel.ThreadParser]:
        """What native code reads documents with, for the calling thread alone.

        A document that it does not take must go through `read`. Where entities are given, these are
        all that the fast reader gives up on.
        """
        return self._walker, self._parsers.native

    def read_record(
        self,
        record: bytes,
        *,
        declaration: bytes = b"",
        doctype: bytes = b"",
        namespaces: bytes = b"",
        base: int = 0,
        level: int = 0,
        source: str | None = None,
    ) -> NodeTable:
        """The nodes of a record that was cut out of a document.

        `declaration` and `doctype` are the document's, `namespaces` the declarations in force
        around the record, as they stand in a tag. Places in errors count from the record's start.
        """
        if len(record) > self._max_bytes:
            raise LimitExceeded("bytes", self._max_bytes, source=source)
        # On one line, so that only columns of the record's first line have to be set right.
        head = b" ".join(declaration.splitlines())
        shift = _UNMOVED
        try:
            subset = b""
            if self.entities is not None and b"&" in record:
                subset = self._subset(record, doctype, _encoding(declaration))
                head += subset
            head += b"<fm" + (b" " + namespaces if namespaces else b"") + b">"
            shift = _Shift(1, -len(head))
            table: NodeTable | None = self._walker.read_tree(
                head + record + b"</fm>", base, level, resolve=bool(subset), wrapped=True
            )
            if table is None:
                raise DoctypeRefused(_NO_DOCTYPE)
        except _FAILURES as error:
            raise self._explain(error, record, source, shift) from None
        table.source = source
        return table

    def read_records(
        self,
        data: bytes,
        sizes: npt.NDArray[np.int64],
        offsets: npt.NDArray[np.int64],
        levels: npt.NDArray[np.int16],
        *,
        declaration: bytes = b"",
        doctype: bytes = b"",
        namespaces: bytes = b"",
        source: str | None = None,
    ) -> tuple[NodeTable, npt.NDArray[np.int64]] | None:
        """The nodes of many records in one table, and the first row of each; a single parse.

        `data` is the records' bytes, one after the other, of these sizes; the rest is as for
        `read_record`, with `offsets` as bases. The rows of each record are those `read_record`
        gives it, except that parents count in the whole table. None if it does not go so
        smoothly: something is bad, over a limit of a record, or in an encoding that cannot be
        joined. Then read them one by one; `read_record` says what is wrong with which.
        """
        if len(sizes) == 0 or int(sizes.max()) > self._max_bytes:
            return None
        document = self._joined(data, declaration, doctype, namespaces)
        if document is None:
            return None
        found: tuple[NodeTable, npt.NDArray[np.int64]] | None
        found = self._parsers.joined.read(self._walker, document, offsets, levels)
        if found is not None:
            found[0].source = source
        return found

    def _joined(
        self, data: bytes, declaration: bytes, doctype: bytes, namespaces: bytes
    ) -> bytes | None:
        """Records as one document without entities, in UTF-8 if that is easy to have."""
        try:
            encoding = _encoding(declaration)
        except EncodingError:
            return None
        head = b" ".join(declaration.splitlines())
        if not encoding.startswith(_JOINABLE) or not _is_sound(head):
            return None
        narrow = encoding == "utf-8" or (data.isascii() and namespaces.isascii())
        if not narrow and encoding == "iso8859-1":
            data = data.decode("latin-1").encode()
            namespaces = namespaces.decode("latin-1").encode()
            narrow = True
        if self.entities is not None and b"&" in data:
            references = self._references_of(doctype, encoding, narrow=narrow)
            replaced = None if references is None else references.replace(data)
            if replaced is None:
                return None
            data = replaced
        space = b" " + namespaces if namespaces else b""
        return b"".join((b"" if narrow else head, b"<fm", space, b">", data, b"</fm>"))

    def _references_of(
        self, doctype: bytes, encoding: str, *, narrow: bool
    ) -> _kernel.References | None:
        """What to write for names of characters; None if the DOCTYPE is refused."""
        key = (doctype, encoding, narrow)
        if key in self._references:
            return self._references[key]
        declared = _declared(doctype, encoding) if doctype else {}
        found = None
        if not isinstance(declared, tuple):
            known = {**(self.entities or {}), **declared}
            written = entities.written(known, "utf-8" if narrow else encoding, raw=narrow)
            found = _kernel.References(written)
        # One for each file at work: there is no need for more, and none is ever taken away, as
        # another thread may be about to use it.
        if len(self._references) < 64 and len(doctype) <= _LONGEST_KEY:
            self._references[key] = found
        return found

    def read_batches(
        self, chunks: Iterable[bytes], *, nodes: int = 65_536, source: str | None = None
    ) -> Iterator[NodeTable]:
        """One document of any length, as tables of about `nodes` rows each.

        Elements that are open where a batch ends begin the next one again, with their attributes
        but without what went before. The right end of the AD label of an element that is not
        whole in a batch is `OPEN_END`; all other labels are those that `read` gives. Text is
        never cut, nor is an element that fits into half a batch. The limits of bytes and nodes do
        not apply; a DOCTYPE is refused. A document that breaks off raises when it comes to that,
        with the batches before it already given.
        """
        if not _kernel.reads_events():
            raise EventsUnavailable(
                "batches are read from the events of the libxml2 inside lxml, and fmware was built "
                "against another one; build it again with the lxml that is installed"
            )
        batcher = _kernel.Batcher(self._walker, nodes)
        try:
            for piece in _pieces(chunks, min(max(nodes, 64), 1 << 16)):
                batcher.feed(piece)
                while (table := batcher.cut()) is not None:
                    table.source = source
                    yield table
            batcher.feed(b"", last=True)
            if (table := batcher.cut(last=True)) is not None:
                table.source = source
                yield table
        except _kernel.ParseFailed as error:
            raise self._malformed(error, source, _UNMOVED) from None
        except _kernel.WalkStopped as stop:
            line, column = stop.position
            if stop.reason == "entity":
                raise DoctypeRefused(_NO_DOCTYPE, line=line, column=column, source=source) from None
            raise self._over(stop, line, column, source) from None

    def _subset(self, content: bytes, doctype: bytes, encoding: str) -> bytes:
        """The internal subset that the parser is shown in place of the document's own."""
        declared = _declared(doctype, encoding) if doctype else {}
        if isinstance(declared, tuple):
            kind, reason = declared
            raise kind(reason)
        used = entities.referenced(content, encoding)
        given = self.entities or {}
        known = {
            name: declared[name] if name in declared else given[name]
            for name in used
            if name in declared or name in given
        }
        return entities.subset(used, known, encoding) if known else b""

    def _read_carefully(self, document: bytes, base: int) -> NodeTable:
        """A document with a DOCTYPE, or one that may have entities."""
        if self.entities is None:
            return self._read_plain(document, base)
        begin, end = _doctype(document)
        try:
            if end < 0:
                raise MalformedXML("the DOCTYPE does not end")
            subset = self._subset(document[end:], document[begin:end], _encoding(document))
        except ReadError as error:
            error.line, error.column = _line_and_column(document, begin)
            raise
        # Line ends of the DOCTYPE stay, so that places in errors are those of the document.
        head = document[:begin] + subset + b"\n" * document.count(b"\n", begin, end)
        line, column = _line_and_column(document, end)
        shift = _Shift(line, column - _line_and_column(head, len(head))[1])
        try:
            if not subset:
                return self._read_plain(head + document[end:], base)
            table: NodeTable = self._walker.read_tree(head + document[end:], base, resolve=True)
        except _FAILURES as error:
            raise self._explain(error, document, None, shift) from None
        return table

    def _read_plain(self, document: bytes, base: int) -> NodeTable:
        if _kernel.doctype_span(document) is None:
            # An odd encoding may have hidden it from the look at the bytes: then there is no table.
            table: NodeTable | None = self._walker.read_tree(document, base)
            if table is not None:
                return table
        line, column = _line_and_column(document, _doctype(document)[0])
        raise DoctypeRefused(_NO_DOCTYPE, line=line, column=column)

    def _explain(
        self, error: Exception, document: bytes, source: str | None, shift: _Shift
    ) -> ReadError:
        if isinstance(error, ReadError):
            error.source = source
            return error
        if isinstance(error, _kernel.WalkStopped):
            return self._stopped(error, document, source)
        assert isinstance(error, (_kernel.ParseFailed, etree.XMLSyntaxError))
        return self._malformed(error, source, shift)

    def _malformed(
        self,
        error: _kernel.ParseFailed | etree.XMLSyntaxError,
        source: str | None,
        shift: _Shift,
    ) -> ReadError:
        line, column = error.position
        line = max(line, 1)
        column = max(1, column + shift.columns if line == shift.line else column)
        reason = str(error.msg or "not well-formed")
        if isinstance(error, etree.XMLSyntaxError):
            reason = reason.split(", line ")[0]
        limit = next((name for words, name in _LIMIT_WORDS if words in reason), None)
        if limit is not None:
            allowed = getattr(self.limits, limit)
            return LimitExceeded(limit, allowed, line=line, column=column, source=source)
        if error.code in _ENTITY_CODES:
            reason += "; give its character with entities={...}"
            return EntityRefused(reason, line=line, column=column, source=source)
        kind = EncodingError if error.code in _ENCODING_CODES else MalformedXML
        return kind(reason, line=line, column=column, source=source)

    def _stopped(self, stop: _kernel.WalkStopped, document: bytes, source: str | None) -> ReadError:
        line, column = _place(document, stop.element)
        if stop.reason == "entity":
            return EntityRefused(
                "a reference to an entity; give its character with entities={...}",
                line=line,
                column=column,
                source=source,
            )
        return self._over(stop, line, column, source)

    def _over(
        self, stop: _kernel.WalkStopped, line: int, column: int, source: str | None
    ) -> LimitExceeded:
        if stop.reason == "vocabulary":
            allowed = self.vocabulary.limit
        elif stop.reason == "vocabulary_size":
            allowed = self.vocabulary.size
        else:
            allowed = getattr(self.limits, stop.reason)
        return LimitExceeded(stop.reason, allowed, line=line, column=column, source=source)


_NO_DOCTYPE = "a DOCTYPE is refused; allow its character entities with entities={...}"


def _pieces(chunks: Iterable[bytes], size: int) -> Iterator[bytes]:
    """The same bytes, no more than `size` at a time: no batch is much longer than it should be."""
    for chunk in chunks:
        if len(chunk) <= size:
            yield chunk
            continue
        for at in range(0, len(chunk), size):
            yield chunk[at : at + size]


def _rebuild(
    kind: type[Reader], vocabulary: _kernel.Vocabulary, options: dict[str, object]
) -> Reader:
    return kind(vocabulary, **options)  # type: ignore[arg-type]


def _narrow(document: bytes) -> bytes:
    """The document in an encoding whose markup is ASCII, so that it can be looked at as bytes."""
    for mark, encoding in _WIDE:
        if document.startswith(mark):
            try:
                text = document.decode(encoding)
            except UnicodeDecodeError as error:
                raise EncodingError(str(error)) from None
            if text.startswith("\ufeff"):
                # A second byte order mark is an error: one is for the parser to drop.
                text = "\ufeff" + text
            # Nothing else of the declaration: whether it is one is for the parser to say.
            return _NAMED.sub(r"\1\2UTF-8\2", text, count=1).encode()
    return document


def _place(document: bytes, element: int) -> tuple[int, int]:
    """Line and column of the start tag of the element with this ordinal."""
    return _line_and_column(document, max(0, _kernel.start_tag_at(document, element)))


def _line_and_column(document: bytes, at: int) -> tuple[int, int]:
    return document.count(b"\n", 0, at) + 1, at - document.rfind(b"\n", 0, at)


def _doctype(document: bytes) -> tuple[int, int]:
    """Where the DOCTYPE lies, or could be put; the end is -1 if it never ends."""
    span = _kernel.doctype_span(document)
    if span is not None:
        return span
    match = _DECLARATION.match(document)
    at = match.end() if match else 3 if document.startswith(b"\xef\xbb\xbf") else 0
    return at, at


def _encoding(document: bytes) -> str:
    """The encoding that an XML declaration names."""
    match = _ENCODING.match(document)
    if match is None:
        return "utf-8"
    try:
        return codecs.lookup(match[1].decode()).name
    except LookupError:
        raise EncodingError(f"unknown encoding {match[1].decode()!r}") from None


def _declared(doctype: bytes, encoding: str) -> dict[str, str] | tuple[type[ReadError], str]:
    """What a DOCTYPE declares, or why it is refused; the records of a document all ask for it."""
    read = _declares if len(doctype) <= _LONGEST_KEY else _declares.__wrapped__
    return read(doctype, encoding)


@lru_cache(maxsize=16)
def _declares(doctype: bytes, encoding: str) -> dict[str, str] | tuple[type[ReadError], str]:
    try:
        return entities.declared(_decoded(doctype, encoding))
    except ReadError as error:
        return type(error), error.reason


def _is_sound(declaration: bytes) -> bool:
    """Whether the parser takes this XML declaration, so that another may stand in for it."""
    return len(declaration) <= _LONGEST_KEY and _is_taken(declaration)


@lru_cache(maxsize=16)
def _is_taken(declaration: bytes) -> bool:
    try:
        etree.fromstring(declaration + b"<fm/>", _kernel.tree_parser(huge=False))
    except etree.XMLSyntaxError:
        return False
    return True


def _decoded(text: bytes, encoding: str) -> str:
    try:
        return text.decode(encoding)
    except UnicodeDecodeError as error:
        raise EncodingError(str(error)) from None


_PLAIN = {values: Reader(values=values) for values in (False, True)}


def read(
    document: bytes,
    *,
    vocabulary: _kernel.Vocabulary | None = None,
    limits: Limits = DEFAULT_LIMITS,
    values: bool = True,
    blanks: bool = True,
    grow: bool = True,
    entities: Mapping[str, str] | None = None,
    base: int = 0,
    source: str | None = None,
) -> NodeTable:
    """The nodes of one XML document, labelled; the options are those of `Reader`.

    For many documents with the same options, make one `Reader` and keep it.
    """
    if vocabulary is None and limits is DEFAULT_LIMITS and blanks and grow and entities is None:
        reader = _PLAIN[values]
    else:
        reader = Reader(
            vocabulary, limits=limits, values=values, blanks=blanks, grow=grow, entities=entities
        )
    return reader.read(document, base=base, source=source)
