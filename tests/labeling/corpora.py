"""Random corpora: records, ways to lay them out in files, and what labelling must find in them."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import zstandard
from hypothesis import strategies as st

from fmware.labeling import ATTRIBUTE, ELEMENT
from tests.labeling.oracle import nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from fmware.labeling.job import Corpus
    from fmware.labeling.runs import Run

__all__ = ["Layout", "expected", "found", "layouts", "records", "runs_of"]

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}
SPACE = "urn:s"

# What stands in a record beside elements: all that could be taken for the tag of a record.
FILLINGS = (
    "",
    "text",
    "&lt;r>",
    "&#252;&amp;",
    "<!-- <r/> -->",
    "<!-- <r><s/></r> <r> -->",
    "<![CDATA[<r></r>]]>",
    "<![CDATA[</r>]]>",
    "<?pi <r> ?>",
    "\r\n \t",
    "ü €",
)


@st.composite
def elements(draw: st.DrawFn, names: tuple[str, ...], depth: int) -> str:
    name = draw(st.sampled_from(names))
    attributes = "".join(
        f' {each}="{draw(st.sampled_from(["", "1", "a b", "&lt;r>", "&lt;/r>"]))}"'
        for each in draw(st.lists(st.sampled_from(["k", "p:k", "r"]), unique=True, max_size=2))
    )
    inner = draw(st.sampled_from(FILLINGS))
    if depth:
        for child in draw(st.lists(elements(("a", "b", "p:a", "r", "s"), depth - 1), max_size=3)):
            inner += child + draw(st.sampled_from(FILLINGS))
    return f"<{name}{attributes}>{inner}</{name}>"


def records(depth: int = 3) -> st.SearchStrategy[list[str]]:
    """Records called `r` or `s`; they may hold records, which belong to them."""
    return st.lists(elements(("r", "s"), depth), min_size=1, max_size=12)


def wrapped(record: str) -> bytes:
    """A record as a document of its own; its root is the record's."""
    return f'{record[:2]} xmlns:p="{SPACE}"{record[2:]}'.encode()


def expected(made: Iterable[str]) -> Counter[tuple[object, ...]]:
    """What labelling must find: per record, its nodes with labels and levels from its root."""
    return Counter(_shape(wrapped(record)) for record in made)


def _shape(document: bytes) -> tuple[object, ...]:
    rows = nodes(document)
    sizes = [1] * len(rows)
    for row in range(len(rows) - 1, 0, -1):
        sizes[rows[row].parent] += sizes[row]
    shape = []
    begins = [0] * len(rows)
    tick = 0
    stack: list[int] = []
    for row, node in enumerate(rows):
        while stack and stack[-1] != node.parent:
            stack.pop()
            tick += 1
        begins[row] = tick
        tick += 1
        stack.append(row)
        if node.kind in (ELEMENT, ATTRIBUTE):
            end = begins[row] + 2 * sizes[row] - 1
            shape.append((node.kind, node.name, begins[row], end, node.level))
    return tuple(sorted(shape))


def runs_of(corpus: Corpus) -> list[Run]:
    from fmware.labeling.runs import open_run

    return [*corpus.held, *(open_run(path) for path in corpus.runs)]


def found(runs: Iterable[Run]) -> Counter[tuple[object, ...]]:
    """What runs hold, in the same form."""
    shapes: Counter[tuple[object, ...]] = Counter()
    for run in runs:
        roots = sorted(
            (int(start), int(end), int(level))
            for block in run.records()
            for start, end, level in zip(block.starts, block.ends, block.levels, strict=True)
        )
        held: dict[int, list[tuple[object, ...]]] = {start: [] for start, _, _ in roots}
        for number, tag in enumerate(run.tags):
            listed = run.nodes(number)
            for start, end, level in zip(
                listed.start.tolist(), listed.end.tolist(), listed.level.tolist(), strict=True
            ):
                root = max(each for each in roots if each[0] <= start)
                assert end <= root[1], "a node sticks out of its record"
                shape = (tag.kind, tag.name, start - root[0], end - root[0], level - root[2])
                held[root[0]].append(shape)
        shapes.update(tuple(sorted(each)) for each in held.values())
    return shapes


@dataclass
class Layout:
    """A way to lay records out in files."""

    kind: str
    packed: str = ""
    encoding: str = "utf-8"
    newline: str = "\n"
    mark: bytes = b""
    between: list[str] = field(default_factory=list)
    groups: bool = False

    @property
    def record(self) -> tuple[str, ...]:
        """The tags to cut at; none where every record is a document."""
        return ("r", "s") if self.kind == "one" else ()

    def write(self, made: list[str], place: Path) -> None:
        pack = PACKERS[self.packed]
        if self.kind == "one":
            (place / f"all.xml{self.packed}").write_bytes(pack(self._one(made)))
        elif self.kind == "many":
            for number, record in enumerate(made):
                (place / f"{number:03}.xml{self.packed}").write_bytes(pack(wrapped(record)))
        elif self.kind == "stream":
            joined = b"\n".join(map(wrapped, made))
            (place / f"all.xml{self.packed}").write_bytes(pack(joined))
        else:
            (place / f"all.tar{self.packed}").write_bytes(pack(_tar(map(wrapped, made))))

    def _one(self, made: list[str]) -> bytes:
        text = f'<?xml version="1.0" encoding="{self.encoding}"?>\n<all xmlns:p="{SPACE}">\n'
        for number, record in enumerate(made):
            if self.groups and number % 3 == 2:
                text += "</g>" if number % 2 else "<g>"
            text += record + self.newline
            if self.between:
                text += self.between[number % len(self.between)]
        opened = text.count("<g>") - text.count("</g>")
        text += "</g>" * max(opened, 0) + "</all>"
        if opened < 0:
            text = text.replace("</g>", "", -opened)
        return self.mark + text.encode(self.encoding, "xmlcharrefreplace")


def _tar(documents: Iterable[bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for number, data in enumerate(documents):
            about = tarfile.TarInfo(f"{number:03}.xml")
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
    return out.getvalue()


# What may stand between records: nothing that is a record, much that looks like one.
BETWEEN = (
    "",
    "<!-- <r><a/></r> -->",
    "<!--\n<r/>\n<s>x</s>\n<r k='1'>y</r>\n-->",
    "<x><![CDATA[<r></r><s></s>]]></x>",
    "<?pi <r></r> ?>",
    '<x k="&lt;r&gt;"/>',
    "stray text",
    "<y>inner</y>",
)


def layouts() -> st.SearchStrategy[Layout]:
    one = st.builds(
        Layout,
        st.just("one"),
        st.sampled_from(["", "", "", ".gz", ".zst"]),
        st.sampled_from(["utf-8", "iso-8859-1", "us-ascii"]),
        st.sampled_from(["\n", "\r\n", ""]),
        st.just(b""),
        st.lists(st.sampled_from(BETWEEN), max_size=4),
        st.booleans(),
    )
    marked = one.map(
        lambda each: Layout(
            "one", each.packed, "utf-8", each.newline, b"\xef\xbb\xbf", each.between, each.groups
        )
    )
    others = st.builds(
        Layout, st.sampled_from(["many", "stream", "tar"]), st.sampled_from(sorted(PACKERS))
    )
    return st.one_of(one, marked, others)
