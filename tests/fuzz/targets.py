"""What is fuzzed: each target takes bytes, and raises what is wrong with how they were treated.

- `reader`: a document is read as lxml reads it, to the same nodes; or refused, as lxml refuses it
  or for one of the reasons that are our own: DOCTYPE, entities, limits.
- `xpath`: an expression is refused with an `XPathError`, or matches the documents that lxml says.
- `filter`: a message matches the statements that lxml says, by the same path tuples.
- `index`: an index with changed bytes is refused with a `StoreError`, or answers.
"""

from __future__ import annotations

import re
import shutil
import struct
import tempfile
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from lxml import etree

from fmware.errors import FMwareError
from fmware.filtering import FilterEngine
from fmware.index import Index, StoreError
from fmware.index.writer import Writer
from fmware.labeling import (
    DoctypeRefused,
    EntityRefused,
    LimitExceeded,
    NodeTable,
    Reader,
    ReadError,
)
from fmware.xpath import XPathError, parse
from tests.filtering import workload
from tests.filtering.oracle import Document, Statement
from tests.index.samples import RULES, SCHEMES, sample
from tests.labeling import oracle

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["TARGETS", "Target"]

OUR_OWN: Final = (DoctypeRefused, EntityRefused, LimitExceeded)
"""Refusals of documents that lxml may read."""
BEYOND: Final = re.compile(rb"[0-9.]e|\\+|<!\\[CDATA\\[\\]\\]>", re.IGNORECASE)
"""What libxml2 reads otherwise than XPath 1.0 says: 1e5 and +1 are no numbers, and an empty CDATA
section is no text."""
XML: Final = (
    *b"< > </ /> <a> </a> <b/> xmlns= xmlns:p='' xml:id='x' <!-- --> <![CDATA[ ]]> <?x ?>".split(),
    *b"&lt; &#10; &#x41; &a; \xef\xbb\xbf \xff\xfe \xfe\xff \xc3\xa9 \xed\xa0\x80 ' \" =".split(),
    b"<p:a xmlns:p='u'>",
    b"<?xml version='1.0' encoding='utf-16'?>",
    b" encoding='latin-1'",
    b"<!DOCTYPE a>",
    b"\x00",
    b" ",
    b"\r\n",
)
XPATH: Final = (
    *b"/ // //* * @ @x [ ] ( ) | . .. a b c p:a text() node() self:: child:: descendant::".split(),
    *b"parent:: attribute:: = != < <= > >= and or not( contains( starts-with( position()".split(),
    *b"last() count( 1 2.5 .5 -1 'a' \"b\" '' , + - local: local:a body.content".split(),
    b" ",
)


class Target:
    """Something to be fuzzed."""

    name: str
    seeds: Sequence[bytes]
    """Inputs to begin with."""
    tokens: Sequence[bytes]
    """Pieces of the language."""
    package = ""
    """Python modules whose lines are counted, beside native code; none if it is empty."""

    def check(self, data: bytes) -> None:
        """Have an input treated; an error says what was wrong."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave nothing behind."""


class ReaderTarget(Target):
    """The reader, beside lxml's parser."""

    name = "reader"
    tokens = XML

    def __init__(self) -> None:
        random = Random(1)
        self.seeds = [
            b"<a/>",
            b"<?xml version='1.0' encoding='utf-8'?><a b='1'>x<b/>y</a>",
            "<?xml version='1.0' encoding='utf-16'?><a>é</a>".encode("utf-16"),
            b"<?xml version='1.0' encoding='latin-1'?><a>\xe9</a>",
            b"<a xmlns='u' xmlns:p='v'><p:b p:c='1'/><![CDATA[<]]><?x y?><!-- z --></a>",
            b"<!DOCTYPE a><a>&lt;</a>",
            *(workload.document(random) for _ in range(8)),
        ]

    def check(self, data: bytes) -> None:
        table, refused = self._read(data)
        if isinstance(refused, OUR_OWN):
            return
        right, reason = self._right(data)
        assert (table is None) == (right is None), f"lxml says {reason}, the reader {refused}"
        assert table is None or oracle.rows(table) == right

    def _read(self, data: bytes) -> tuple[NodeTable | None, ReadError | None]:
        try:
            return Reader().read(data), None
        except ReadError as error:
            return None, error

    def _right(self, data: bytes) -> tuple[list[oracle.Node] | None, Exception | None]:
        try:
            return oracle.nodes(data), None
        except (etree.XMLSyntaxError, ValueError) as error:
            return None, error


class XPathTarget(Target):
    """The parser of expressions, and what an accepted one matches."""

    name = "xpath"
    tokens = XPATH
    package = "fmware/xpath/"

    def __init__(self) -> None:
        random = Random(2)
        self.seeds = ["".join(workload.statement(random)).encode() for _ in range(30)]
        self._documents = [workload.document(random) for _ in range(4)]
        self._trees = [etree.ElementTree(etree.fromstring(each)) for each in self._documents]

    def check(self, data: bytes) -> None:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return
        try:
            parse(text)
        except XPathError as error:
            str(error)
            return
        engine = FilterEngine()
        try:
            engine.subscribe(text, namespaces=workload.NAMESPACES)
        except FMwareError:
            return  # A `local:` step, say, which only a middleware has a use for.
        if text.isprintable():  # lxml takes no control characters, which a literal may have.
            self._compare(engine, etree.XPath(text, namespaces=workload.NAMESPACES))

    def _compare(self, engine: FilterEngine, right: etree.XPath) -> None:
        for document, tree in zip(self._documents, self._trees, strict=True):
            result = engine.filter(document)
            if not result.undecided:
                assert (0 in result) == bool(right(tree)), f"on {document!r}"


class FilterTarget(Target):
    """A set of statements on a message that changes."""

    name = "filter"
    tokens = (*XML, *(name.encode() for name in (*workload.NAMES, *workload.VALUES)))

    def __init__(self) -> None:
        random = Random(3)
        self._statements = [Statement(workload.statement(random)) for _ in range(40)]
        self._engine = FilterEngine()
        for each in self._statements:
            self._engine.subscribe(each.text, namespaces=workload.NAMESPACES, tuples=True)
        self.seeds = [workload.document(random) for _ in range(20)]

    def check(self, data: bytes) -> None:
        try:
            result = self._engine.filter(data)
        except ReadError:
            return
        if BEYOND.search(data):
            return
        told = Document(data)
        for number, each in enumerate(self._statements):
            if number in result.undecided or number in result.truncated:
                continue
            right = each.tuples(told)
            found = result.tuples[number].tolist() if number in result.tuples else []
            assert found == right, each.text


class IndexTarget(Target):
    """An index whose files were changed before it is opened.

    An input is a list of changes, of eight bytes each: the file, the place, and what to do there.
    """

    name = "index"
    tokens = tuple(
        struct.pack("<BBHI", number, kind, 0, 0) for number in range(8) for kind in range(4)
    )
    _CHANGE: Final = struct.Struct("<BBHI")

    def __init__(self) -> None:
        self._stack = ExitStack()
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="fmware-fuzz-")))
        made = sample(1, 6, runs=2, schemes=SCHEMES)
        self._whole, self._place = folder / "whole", folder / "place"
        with Writer.create(self._whole, schemes=SCHEMES, identity=RULES) as writer:
            writer.append(made.runs, high=made.high)
            writer.remove([made.records[0]])
        self._files = sorted(
            path.relative_to(self._whole)
            for path in self._whole.rglob("*")
            if path.is_file() and path.stat().st_size
        )
        self._starts = [node.start for node in made.nodes]
        self.seeds = [
            self._CHANGE.pack(number, kind, kind, 4096 * kind)
            for number in range(len(self._files))
            for kind in range(4)
        ]

    def check(self, data: bytes) -> None:
        shutil.rmtree(self._place, ignore_errors=True)
        shutil.copytree(self._whole, self._place)
        for change in self._CHANGE.iter_unpack(data[: len(data) // 8 * 8]):
            self._change(*change)
        try:
            self._read()
        except StoreError as error:
            str(error)

    def _change(self, number: int, kind: int, value: int, at: int) -> None:
        path = self._place / self._files[number % len(self._files)]
        held = bytearray(path.read_bytes())
        at %= max(len(held), 1)
        if kind % 4 == 0:
            held[at : at + 1] = bytes([value & 255])
        elif kind % 4 == 1:
            held[at : at + 8] = struct.pack("<q", value - 32768)[: len(held) - at]
        elif kind % 4 == 2:
            held[at : at + 16] = bytes([value & 255]) * min(16, len(held) - at)
        else:
            del held[at:]
        path.write_bytes(held)

    def _read(self) -> None:
        with Index.open(self._place) as index:
            for tag in index.tags:
                index.identify(tag, [b"1", b"x"])
                index.values([tag], self._starts[:5])
                index.locate(tag, self._starts[:5])
            for start in self._starts[:40]:
                try:
                    index.node(start)
                    index.path_of(start)
                    index.fragment(start)
                    index.value(start)
                except StoreError:
                    continue

    def close(self) -> None:
        self._stack.close()


TARGETS: Final[dict[str, type[Target]]] = {
    each.name: each for each in (ReaderTarget, XPathTarget, FilterTarget, IndexTarget)
}
