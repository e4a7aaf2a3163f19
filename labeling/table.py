"""The NodeTable: the nodes of a document or a record, as columns in document order."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa
from lxml import etree

from fmware.labeling import _kernel
from fmware.labeling._kernel import ATTRIBUTE, ELEMENT, OPEN_END, TEXT
from fmware.labeling.arrow import column
from fmware.labeling.html import html_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Self

    import numpy.typing as npt

Table = TypeVar("Table", bound="NodeTable")

__all__ = ["ATTRIBUTE", "ELEMENT", "KINDS", "TEXT", "NodeTable"]

KINDS = ("element", "attribute", "text")

_COLUMNS = (
    ("kind", pa.uint8()),
    ("parent", pa.int32()),
    ("level", pa.int16()),
    ("start", pa.int64()),
    ("end", pa.int64()),
)
_TAG_TYPE = pa.dictionary(pa.int32(), pa.utf8())
_RESERVED = {"#text": _kernel.TEXT_TAG, "#unknown": _kernel.UNKNOWN_TAG}


class NodeTable(_kernel.Columns):
    """Nodes in document order: `kind`, `tag`, `parent`, `level`, `start`, `end` and a value each.

    Elements, attributes and text nodes are rows; comments, processing instructions and namespace
    declarations are not. (start, end, level) is the AD label: u is an ancestor of v exactly when
    start(u) < start(v) and end(v) < end(u). A row's descendants follow it, so a subtree is a
    slice. The columns are numpy arrays that cannot be written to.

    A table that was read knows its document, from which `root`, elements and fragments come; one
    that came from Arrow builds them anew, without comments and with prefixes of its own. lxml
    keeps the names of every document it parses for as long as the thread lives, so only `root` and
    `element` give one to lxml; all else reads documents by itself.
    """

    __slots__ = ()

    def name(self, row: int) -> str:
        """The Clark name of an element or attribute, `#text` for text.

        A closed reader gives names that it does not know one id; their names are then taken from
        the document, which is read once more. `#unknown` if the table has none.
        """
        return self.name_at(row)

    def value(self, row: int) -> str:
        """The value of an attribute or a text node; the empty string for an element."""
        return self.value_at(row).decode()

    def string_value(self, row: int) -> str:
        """XPath's string-value: of an element, all the text below it."""
        if self.kind[row] != ELEMENT:
            return self.value(row)
        last = row + self.size(row)
        texts = np.flatnonzero(self.kind[row:last] == TEXT) + row
        return b"".join(self.value_at(int(text)) for text in texts).decode()

    def size(self, row: int) -> int:
        """How many rows the subtree of a row has, itself included."""
        if self.end[row] == OPEN_END:
            # It may have ended before the batch does.
            behind = self.level[row + 1 :] <= self.level[row]
            return 1 + int(behind.argmax()) if behind.any() else self.rows - row
        return int(self.end[row] - self.start[row] + 1) // 2

    def is_ancestor(self, upper: int, lower: int) -> bool:
        """Whether one row is a proper ancestor of another, by their AD labels alone."""
        return bool(self.start[upper] < self.start[lower] and self.end[lower] < self.end[upper])

    def children(self, row: int) -> npt.NDArray[np.intp]:
        """The rows of a node's attributes and children."""
        return np.flatnonzero(self.parent[row + 1 : row + self.size(row)] == row) + row + 1

    def path(self, row: int) -> str:
        """An XPath of Clark names that selects this row alone: `/a[1]/b[2]/@c`."""
        return self.paths((row,))[0]

    def paths(self, rows: Iterable[int]) -> list[str]:
        """The paths of many rows, in the order in which they are given.

        Positions count siblings of the same name. A row whose name the table does not know (one
        without a document, see `name`) has `*` in its place, and counts among all elements.
        """
        found: list[str] = _kernel.paths_of(self, rows)
        return found

    def renamed(self) -> Self | None:
        """The same rows with their names looked up in the vocabulary as it is now.

        For a table that a closed reader read before names were added. None if the table does not
        know the names: it has ids that stand for several, and no document.
        """
        if not self.known:
            return self
        found = self.looked_up()
        if found is None:
            return None
        tags, known = found
        table = _adopted(
            type(self), self.vocabulary, {**self._arrays_of(0, self.rows), "tag": tags}
        )
        table.source = self.source
        table.derive(self, 0, known)
        return table

    def spelled(self) -> Self:
        """The same rows in a vocabulary of their own, in which each name of the document has an id.

        For programs that compare names of a table that a closed reader read.
        """
        if not self.known:
            return self
        vocabulary = _kernel.Vocabulary()
        tags = self.tag.copy()
        for row in np.flatnonzero(self.kind != TEXT).tolist():
            tags[row] = vocabulary.add(self.name(row))
        table = _adopted(type(self), vocabulary, {**self._arrays_of(0, self.rows), "tag": tags})
        table.source = self.source
        table.derive(self, 0, 0)
        return table

    def _arrays_of(self, first: int, last: int) -> dict[str, npt.NDArray[np.generic]]:
        """The columns of some rows, with parents as they are here."""
        arrays = {
            name: getattr(self, name)[first:last]
            for name in ("kind", "tag", "level", "start", "end", "parent")
        }
        if self.has_values:
            arrays["offsets"] = self.value_offsets[first : last + 1]
            arrays["values"] = self.value_bytes
        return arrays

    def subtree(self, row: int) -> NodeTable:
        """The rows of one subtree as a table of its own, with the labels they have here.

        Only the parent column is copied: rows count from the subtree's root.
        """
        last = row + self.size(row)
        parent = self.parent[row:last] - np.int32(row)
        parent[0] = -1
        arrays = self._arrays_of(row, last) | {"parent": parent}
        table = _adopted(type(self), self.vocabulary, arrays)
        table.source = self.source
        table.derive(self, row, self.known)
        return table

    def element(self, row: int) -> etree._Element:
        """The lxml element of a row; for an attribute or a text node, that of its parent."""
        if not 0 <= row < self.rows:
            raise IndexError(f"no row {row} in a table of {self.rows}")
        if self.has_root:
            element: etree._Element = self.element_at(row)
            return element
        return self._build(row if self.kind[row] == ELEMENT else int(self.parent[row]))

    def fragment(self, row: int) -> bytes:
        """The XML of an element, or the value of an attribute or a text node, in UTF-8."""
        if self.kind[row] != ELEMENT:
            return self.value_at(row)
        found = self.serialise(row)
        if found is not None:
            return found
        return etree.tostring(self.element(row), encoding="utf-8", with_tail=False)

    def _build(self, root: int) -> etree._Element:
        elements: dict[int, etree._Element] = {}
        for row in range(root, root + self.size(root)):
            parent = elements.get(int(self.parent[row]))
            kind = self.kind[row]
            if kind == ELEMENT:
                name = self.name(row)
                made = etree.Element(name) if parent is None else etree.SubElement(parent, name)
                elements[row] = made
            elif parent is not None and kind == ATTRIBUTE:
                parent.set(self.name(row), self.value(row))
            elif parent is not None:
                _append_text(parent, self.value(row))
        return elements[root]

    def to_arrow(self) -> pa.RecordBatch:
        """The table as an Arrow RecordBatch that shares its memory.

        `tag` is dictionary-encoded with the names of the vocabulary; `value` is there if the
        values were read.
        """
        names = ["tag"]
        tags = column(self.tag)
        columns = [pa.DictionaryArray.from_arrays(tags, self.vocabulary.dictionary(), safe=False)]
        for name, kind in _COLUMNS:
            names.append(name)
            columns.append(pa.Array.from_buffers(kind, self.rows, [None, _buffer(self, name)]))
        if self.has_values:
            buffers = [None, _buffer(self, "value_offsets"), _buffer(self, "value_bytes")]
            names.append("value")
            columns.append(pa.Array.from_buffers(pa.utf8(), self.rows, buffers))
        return pa.RecordBatch.from_arrays(columns, names)

    @classmethod
    def from_arrow(
        cls, batch: pa.RecordBatch, vocabulary: _kernel.Vocabulary | None = None
    ) -> Self:
        """A table over an Arrow RecordBatch, sharing its memory.

        The tag column is copied only where `vocabulary` numbers the names otherwise.
        """
        _check_schema(batch.schema)
        tags = batch.column("tag")
        if vocabulary is None:
            names = tags.dictionary.to_pylist()
            vocabulary = _kernel.Vocabulary(name for name in names if name not in _RESERVED)
        arrays = {name: batch.column(name).to_numpy(zero_copy_only=True) for name, _ in _COLUMNS}
        arrays["tag"] = _renumbered(tags, vocabulary)
        if "value" in batch.schema.names:
            arrays |= _value_arrays(batch.column("value"))
        return _adopted(cls, vocabulary, arrays)

    @classmethod
    def joined(cls, tables: Sequence[NodeTable]) -> Self:
        """Several tables with one vocabulary as one: their rows follow each other, copied.

        Every root keeps -1 as its parent. What is behind the tables (`root`, names that a closed
        reader did not know) is not kept.
        """
        rows = np.cumsum([0, *map(len, tables)])
        arrays: dict[str, npt.NDArray[np.generic]] = {
            name: np.concatenate([getattr(table, name) for table in tables])
            for name in ("kind", "tag", "level", "start", "end")
        }
        arrays["parent"] = np.concatenate(
            [
                np.where(table.parent < 0, np.int32(-1), table.parent + np.int32(first))
                for table, first in zip(tables, rows[:-1], strict=True)
            ]
        )
        if all(table.has_values for table in tables):
            ends = np.cumsum([0, *(len(table.value_bytes) for table in tables)])
            spans = [t.value_offsets[:-1] + np.int32(e) for t, e in zip(tables, ends, strict=False)]
            arrays["offsets"] = np.concatenate([*spans, ends[-1:].astype(np.int32)])
            arrays["values"] = np.concatenate([table.value_bytes for table in tables])
        joined = _adopted(cls, tables[0].vocabulary, arrays)
        joined.derive(None, 0, min((table.known for table in tables if table.known), default=0))
        return joined

    def rows_of(self, name: str, kind: int = ELEMENT) -> npt.NDArray[np.intp]:
        """The rows of the elements (or attributes) with a Clark name."""
        tag = self.vocabulary.get(name)
        if tag is None:
            return np.empty(0, np.intp)
        return np.flatnonzero((self.tag == tag) & (self.kind == kind))

    def records(self) -> Iterator[dict[str, object]]:
        """The rows as dictionaries, for printing."""
        for row in range(self.rows):
            yield {
                "row": row,
                "kind": KINDS[self.kind[row]],
                "tag": self.name(row),
                "parent": int(self.parent[row]),
                "level": int(self.level[row]),
                "start": int(self.start[row]),
                "end": int(self.end[row]),
                "value": self.value(row) if self.has_values and self.kind[row] else None,
            }

    def __repr__(self) -> str:
        root = self.name(0) if self.rows else "nothing"
        return f"<NodeTable of {root}: {self.rows} nodes>"

    def _repr_html_(self) -> str:
        """The first rows, as a notebook shows them."""
        header = ("row", "kind", "name", "parent", "level", "start", "end", "value")
        rows = map(self._cells, range(self.rows))
        return html_table(repr(self)[1:-1], header, rows, self.rows)

    def _cells(self, row: int) -> tuple[object, ...]:
        numbers = (int(column[row]) for column in (self.parent, self.level, self.start, self.end))
        return (row, KINDS[self.kind[row]], self.name(row), *numbers, self.value(row))


def _append_text(parent: etree._Element, text: str) -> None:
    if len(parent):
        parent[-1].tail = (parent[-1].tail or "") + text
    else:
        parent.text = (parent.text or "") + text


def _buffer(table: NodeTable, column: str) -> pa.Buffer:
    return pa.py_buffer(getattr(table, column))


def _adopted(
    kind: type[Table], vocabulary: _kernel.Vocabulary, arrays: dict[str, npt.NDArray[np.generic]]
) -> Table:
    table = kind.__new__(kind)
    table.adopt(vocabulary, arrays)
    return table


def _check_schema(schema: pa.Schema) -> None:
    wanted = dict(_COLUMNS)
    if "value" in schema.names:
        wanted["value"] = pa.utf8()
    for name, kind in wanted.items():
        if name not in schema.names or schema.field(name).type != kind:
            raise TypeError(f"a NodeTable needs a column {name!r} of type {kind}")
    tag = schema.field("tag").type if "tag" in schema.names else None
    if tag != _TAG_TYPE:
        raise TypeError("a NodeTable needs a column 'tag', a dictionary of names by int32")


def _renumbered(tags: pa.DictionaryArray, vocabulary: _kernel.Vocabulary) -> npt.NDArray[np.int32]:
    ids: npt.NDArray[np.int32] = tags.indices.to_numpy(zero_copy_only=True)
    names = tags.dictionary
    known = vocabulary.dictionary()
    if names is known or known.slice(0, len(names)).equals(names):
        return ids
    own = [
        _RESERVED[name] if name in _RESERVED else vocabulary.add(name) for name in names.to_pylist()
    ]
    return np.array(own, np.int32)[ids]


def _value_arrays(values: pa.StringArray) -> dict[str, npt.NDArray[np.generic]]:
    _, offsets, data = values.buffers()
    first = values.offset
    span = np.frombuffer(offsets, np.int32)[first : first + len(values) + 1]
    return {"offsets": span, "values": np.frombuffer(data or b"", np.uint8)}
