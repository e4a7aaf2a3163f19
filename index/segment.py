"""A segment, opened for reading: probes by AD label, by SES label, by key, and its records."""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fmware.index import format as form
from fmware.index._kernel import Removed, no_probe, no_related
from fmware.index._stamp import changed
from fmware.index.environment import Environment, ForkedIndex, process
from fmware.index.errors import CorruptIndex, FileChanged, IndexClosed, NoSuchNode, UnknownScheme
from fmware.index.labels import Labels, Pairs
from fmware.index.lists import (
    nodes_in_memory,
    open_keys,
    open_lines,
    open_nodes,
    open_postings,
    open_values,
    postings_in_memory,
)
from fmware.index.manifest import load_segment
from fmware.index.records import Records
from fmware.labeling.ses import Direction
from fmware.labeling.values import Values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from fmware.index._kernel import Found, Keys, LabelRows, Nodes, Postings
    from fmware.index._kernel import Values as ValueList
    from fmware.index.cache import Cache
    from fmware.index.labels import Node
    from fmware.index.manifest import TagEntry
    from fmware.index.records import StoredRecord
    from fmware.labeling import NodeTable
    from fmware.labeling.runs import Source, Tag

    Int64s = npt.NDArray[np.int64]

__all__ = ["Axis", "Segment", "SegmentFiles"]

Axis = Literal["descendant", "ancestor", "self"]
"""Where the nodes that are asked for stand, seen from those whose label is given."""

# Sides of a label, as the kernel has them.
_WITHIN, _AROUND, _EXACT = range(3)
_SIDES: dict[tuple[Direction, str], int] = {
    (Direction.ANCESTOR, "descendant"): _WITHIN,
    (Direction.ANCESTOR, "ancestor"): _AROUND,
    (Direction.DESCENDANT, "descendant"): _AROUND,
    (Direction.DESCENDANT, "ancestor"): _WITHIN,
    (Direction.ANCESTOR, "self"): _EXACT,
    (Direction.DESCENDANT, "self"): _EXACT,
}


class TagLists:
    """The lists of one tag, each opened when it is first asked for.

    Two threads that ask at once may open one twice, and one of the two is kept: that harms nobody.
    """

    def __init__(
        self, number: int, entry: TagEntry, environment: Environment, schemes: tuple[str, ...]
    ) -> None:
        self.entry = entry
        self._number = number
        self._environment = environment
        self._schemes = schemes
        self._postings: dict[str, Postings] = {}
        self._ranks: dict[str, tuple[int, LabelRows]] = {}

    @cached_property
    def nodes(self) -> Nodes:
        """The nodes by AD label."""
        return open_nodes(self._environment, self._number, len(self._schemes))

    @cached_property
    def values(self) -> ValueList:
        """The values of the nodes."""
        return open_values(self._environment, self._number)

    @cached_property
    def keys(self) -> Keys | None:
        """The identity keys; None if there are none."""
        return open_keys(self._environment, self._number) if self.entry.keys else None

    def postings(self, scheme: str) -> Postings:
        """The nodes by SES label."""
        found = self._postings.get(scheme)
        if found is None:
            found = open_postings(self._environment, self._number, scheme)
            found = self._postings.setdefault(scheme, found)
        return found

    def opened(self, scheme: str) -> Postings | None:
        """The same, if somebody has asked for them before."""
        return self._postings.get(scheme)

    def in_memory(self, scheme: str) -> bool:
        """Whether they are open, or can be opened without waiting for the disk."""
        if scheme in self._postings:
            return True
        return postings_in_memory(self._environment, self._number, scheme)

    def nodes_in_memory(self) -> bool:
        """Whether the nodes by AD label are: their directory, and some of their blocks."""
        return nodes_in_memory(self._environment, self._number, self.entry.nodes)

    def labels(self, rows: Int64s, scheme: str) -> tuple[Int64s, Int64s]:
        """The SES labels of rows."""
        found = self._ranks.get(scheme)
        if found is None:
            found = self._schemes.index(scheme), self.postings(scheme).labels
            self._ranks[scheme] = found
        number, labels = found
        return labels.at(self.nodes.label_rows(rows, number))

    def labeller(self, scheme: str, removed: Removed) -> object:
        """The same for other kernels."""
        number = self._schemes.index(scheme)
        return self.postings(scheme).labels.labeller(self.nodes, number, removed)


class SegmentFiles:
    """The files of a segment, all open, and the lists in them that were asked for.

    They never change, so all generations that hold the segment share one of these.
    """

    def __init__(
        self, folder: Path, sha256: str, entities: Mapping[str, str], cache: Cache
    ) -> None:
        self.folder = folder
        self._cache = cache
        self.sha256 = sha256
        self.entities = entities
        self.about = load_segment(folder, sha256)
        self.process = process()
        # All of them now: when a compaction has published, their names may be gone.
        self.environments = {name: self._environment(name) for name in sorted(self.about.files)}
        self.stamps = tuple(each.stamp for each in self.environments.values())
        self.lists: dict[Tag | str, TagLists] = {}
        for number, entry in enumerate(self.about.tags):
            environment = self.environments[form.nodes_file(entry.file)]
            held = TagLists(number, entry, environment, self.about.schemes)
            self.lists[entry.tag] = held
            if entry.tag.kind == 0:
                self.lists[entry.tag.name] = held

    def _environment(self, name: str) -> Environment:
        try:
            return Environment(self.folder / name, self.about.files[name])
        except FileNotFoundError:
            raise CorruptIndex(str(self.folder / name), "is missing") from None

    @cached_property
    def sources(self) -> list[Source]:
        return form.unpack_sources(open_lines(self.environments[form.META], form.SOURCES))

    @cached_property
    def statistics(self) -> dict[str, Any]:
        lines = open_lines(self.environments[form.META], form.STATISTICS)
        found: dict[str, Any] = json.loads("\n".join(lines))
        return found

    @cached_property
    def records(self) -> Records:
        lines = open_lines(self.environments[form.META], form.CONTEXTS)
        files = [self.environments[form.records_file(part.file)] for part in self.about.parts]
        contexts = form.unpack_contexts(lines)
        return Records(
            self.about.parts,
            files,
            contexts,
            self.sources,
            self.entities,
            name=self.sha256,
            cache=self._cache,
        )


class Segment:
    """The nodes of some records, less those that were removed.

    Tags are given as `Tag`, or as a Clark name, which means an element. A tag that the segment
    does not hold has no nodes, which is no error. AD labels come as columns of numbers; sorted
    ones are looked up faster. Safe to share between threads.
    """

    def __init__(
        self,
        name: str,
        files: SegmentFiles,
        schemes: Mapping[str, Direction],
        removed: Int64s,
    ) -> None:
        self.name = name
        self.low = files.about.low
        self.high = files.about.high
        self.schemes = {each: schemes[each] for each in files.about.schemes}
        self.tags: tuple[Tag, ...] = tuple(entry.tag for entry in files.about.tags)
        self.removed = Removed(removed[:, 0], removed[:, 1])
        self._folder = files.folder
        self._files: SegmentFiles | None = files

    # --- what it holds ----------------------------------------------------------------------

    @property
    def files(self) -> SegmentFiles:
        files = self._files
        if files is None:
            raise IndexClosed(str(self._folder))
        if files.process is not process():
            raise ForkedIndex(str(self._folder))
        return files

    def close(self) -> None:
        """Let go of the files; arrays that were given out stay valid."""
        self._files = None
        self.removed.close()

    def check(self) -> None:
        """FileChanged if a file was written to since it was opened, see `Index.check`."""
        found = changed(self.files.stamps)
        if found is not None:
            raise FileChanged(found.path)

    def again(self) -> Segment:
        """The same segment on the same files, to be closed apart."""
        removed = np.stack((self.removed.starts, self.removed.ends), axis=1)
        return Segment(self.name, self.files, self.schemes, removed)

    @property
    def nodes(self) -> int:
        """How many nodes it holds, removed ones included."""
        return self.files.about.nodes

    @property
    def statistics(self) -> dict[str, Any]:
        """What was counted when it was built; tags are numbers, their places in `tags`."""
        return self.files.statistics

    @property
    def sources(self) -> list[Source]:
        """The files its records came from."""
        return self.files.sources

    def count(self, tag: Tag | str) -> int:
        """How many nodes of a tag it holds, removed ones included."""
        held = self.files.lists.get(tag)
        return 0 if held is None else held.entry.nodes

    # --- by AD label ------------------------------------------------------------------------

    def descendants(
        self,
        tag: Tag | str,
        starts: npt.ArrayLike,
        ends: npt.ArrayLike,
        levels: npt.ArrayLike | None = None,
    ) -> Pairs:
        """The nodes of a tag below each given one, in document order.

        If the `levels` of the given nodes are there too, only their children.
        """
        held = self.files.lists.get(tag)
        if held is None:
            return Pairs.empty()
        found = held.nodes.descendants(
            _int64s(starts), _int64s(ends), _int16s(levels), self.removed
        )
        return _pairs(found)

    def ancestors(
        self,
        tag: Tag | str,
        starts: npt.ArrayLike,
        ends: npt.ArrayLike,
        levels: npt.ArrayLike | None = None,
    ) -> Pairs:
        """The nodes of a tag around each given one, the outermost first.

        If the `levels` of the given nodes are there too, only their parents.
        """
        held = self.files.lists.get(tag)
        if held is None:
            return Pairs.empty()
        found = held.nodes.ancestors(_int64s(starts), _int64s(ends), _int16s(levels), self.removed)
        return _pairs(found)

    def related(self, tag: Tag | str) -> object:
        """`descendants`, `ancestors` and `locate` for another kernel, in a capsule.

        See `index/probe.pxd`.
        """
        held = self.files.lists.get(tag)
        return no_related(self.removed) if held is None else held.nodes.related(self.removed)

    def locate(self, tag: Tag | str, starts: npt.ArrayLike) -> Int64s:
        """The rows of the nodes of a tag that begin at `starts`; -1 where none does."""
        held = self.files.lists.get(tag)
        starts = _int64s(starts)
        if held is None:
            return np.full(len(starts), -1, np.int64)
        rows = held.nodes.locate(starts)
        if len(self.removed):
            rows[self.removed.holds(starts)] = -1
        return rows

    def at(self, tag: Tag | str, rows: npt.ArrayLike) -> Labels:
        """The AD labels of rows of a tag."""
        held = self.files.lists.get(tag)
        if held is None:
            raise IndexError(f"no rows of {tag} in this segment")
        return Labels(*held.nodes.labels_of(_int64s(rows)))

    def values(self, tag: Tag | str, rows: npt.ArrayLike) -> Values:
        """The values of rows of a tag, as far as they are not in records; -1 has none.

        Attributes and elements without elements have values here, unless they are long.
        """
        held = self.files.lists.get(tag)
        rows = _int64s(rows)
        if held is not None:
            return Values(*held.values.get(rows))
        if (rows != -1).any():
            raise IndexError(f"no rows of {tag} in this segment")
        return Values.none(len(rows))

    def values_at(self, tag: Tag | str, starts: npt.ArrayLike) -> Values:
        """The same of the nodes of a tag that begin at `starts`; nothing where none does."""
        held = self.files.lists.get(tag)
        starts = _int64s(starts)
        if held is None:
            return Values.none(len(starts))
        return Values(*held.values.get(self.locate(tag, starts)))

    def labels(self, tag: Tag | str, rows: npt.ArrayLike, scheme: str) -> tuple[Int64s, Int64s]:
        """The SES labels, (rank, last), of rows of a tag; -1 for row -1."""
        held = self.files.lists.get(tag)
        rows = _int64s(rows)
        if held is not None and scheme in self.schemes:
            return held.labels(rows, scheme)
        self._direction(scheme)
        if (rows != -1).any():
            raise IndexError(f"no rows of {tag} in this segment")
        return rows.copy(), rows.copy()

    def labeller(self, tag: Tag | str, scheme: str) -> object | None:
        """`labels` for another kernel, in a capsule (`index/probe.pxd`); None if it has no rows."""
        held = self.files.lists.get(tag)
        if held is None or scheme not in self.schemes:
            return None
        return held.labeller(scheme, self.removed)

    # --- by SES label -----------------------------------------------------------------------

    def scan(self, scheme: str, tag: Tag | str, rank: int, last: int, axis: Axis) -> Labels:
        """The nodes of a tag that may stand on an axis of the nodes with a label.

        All that do are there, and others with them: AD labels decide. By label, then by start.
        What lies in one block is not copied.
        """
        held = self.files.lists.get(tag)
        side = self._side(scheme, axis)
        if held is None:
            return Labels.empty()
        _, start, end, level = held.postings(scheme).scan(rank, last, side, self.removed)
        return Labels(start, end, level)

    def scans(
        self,
        scheme: str,
        tag: Tag | str,
        ranks: npt.ArrayLike,
        lasts: npt.ArrayLike,
        axis: Axis,
    ) -> Pairs:
        """Many scans at once."""
        held = self.files.lists.get(tag)
        side = self._side(scheme, axis)
        if held is None:
            return Pairs.empty()
        postings = held.postings(scheme)
        return _pairs(postings.scans(_int64s(ranks), _int64s(lasts), side, self.removed))

    def counts(
        self,
        scheme: str,
        tag: Tag | str,
        ranks: npt.ArrayLike,
        lasts: npt.ArrayLike,
        axis: Axis,
    ) -> Int64s:
        """How many nodes each scan would give, removed ones included; none of them is touched."""
        return self.sizes(scheme, tag, ranks, lasts, axis)[0]

    def sizes(
        self,
        scheme: str,
        tag: Tag | str,
        ranks: npt.ArrayLike,
        lasts: npt.ArrayLike,
        axis: Axis,
    ) -> tuple[Int64s, Int64s]:
        """`counts`, and how many labels each scan would take one by one, on its way up.

        None where it takes one run of nodes; that hangs on the direction of the scheme.
        """
        held = self.files.lists.get(tag)
        side = self._side(scheme, axis)
        ranks = _int64s(ranks)
        if held is None:
            return np.zeros(len(ranks), np.int64), np.zeros(len(ranks), np.int64)
        return held.postings(scheme).sizes(ranks, _int64s(lasts), side)

    def cold(
        self,
        scheme: str,
        tag: Tag | str,
        ranks: npt.ArrayLike,
        lasts: npt.ArrayLike,
        axis: Axis,
    ) -> npt.NDArray[np.bool_]:
        """Of which labels a scan would wait for pages that are not in memory: it touches none."""
        held = self.files.lists.get(tag)
        side = self._side(scheme, axis)
        ranks = _int64s(ranks)
        if held is None:
            return np.zeros(len(ranks), np.bool_)
        if not held.in_memory(scheme):
            return np.ones(len(ranks), np.bool_)
        return held.postings(scheme).cold(ranks, _int64s(lasts), side).view(np.bool_)

    def in_memory(self, tag: Tag | str) -> bool:
        """Whether the nodes of a tag can be asked for by AD label without waiting for the disk.

        It touches none of their pages, and looks at some of the blocks.
        """
        held = self.files.lists.get(tag)
        return held is None or held.nodes_in_memory()

    def prepare(
        self,
        scheme: str,
        tag: Tag | str,
        ranks: npt.ArrayLike,
        lasts: npt.ArrayLike,
        axis: Axis,
    ) -> None:
        """Open and check what scans for labels will read, so that a `probe` can do them.

        Pages that are not in memory are read at once, not one by one when they are touched.
        """
        held = self.files.lists.get(tag)
        side = self._side(scheme, axis)
        if held is not None:
            held.postings(scheme).prepare(_int64s(ranks), _int64s(lasts), side)

    def probe(self, scheme: str, tag: Tag | str, axis: Axis) -> object | None:
        """`counts` and `scans` for another kernel, in a capsule (`index/probe.pxd`).

        None as long as nobody has asked for the list: whoever is the first gets what goes wrong.
        """
        side = self._side(scheme, axis)
        held = self.files.lists.get(tag)
        if held is None:
            return no_probe(self.removed)
        found = held.opened(scheme)
        return None if found is None else found.probe(side, self.removed)

    def _direction(self, scheme: str) -> Direction:
        try:
            return self.schemes[scheme]
        except KeyError:
            raise UnknownScheme(scheme, self.schemes) from None

    def _side(self, scheme: str, axis: Axis) -> int:
        try:
            return _SIDES[self._direction(scheme), axis]
        except KeyError:
            raise ValueError(f"no axis {axis!r}; there are descendant, ancestor, self") from None

    # --- by key -----------------------------------------------------------------------------

    def identify(self, tag: Tag | str, keys: Sequence[bytes]) -> Pairs:
        """The nodes of a tag that have each key; several may have one. Gives their rows, too."""
        held = self.files.lists.get(tag)
        if held is None or held.keys is None:
            nothing = Pairs.empty()
            return Pairs(nothing.left, nothing.right, nothing.left)
        left, start, end, level, rows = held.keys.find(keys, held.nodes)
        pairs = Pairs(left, Labels(start, end, level), rows)
        if len(self.removed) and len(pairs):
            return pairs.take(~self.removed.holds(start))
        return pairs

    def finder(self, tag: Tag | str) -> object | None:
        """`identify` for another kernel, in a capsule (`index/probe.pxd`); None without keys."""
        held = self.files.lists.get(tag)
        if held is None or held.keys is None:
            return None
        return held.keys.finder(held.nodes, self.removed)

    # --- records ----------------------------------------------------------------------------

    def record(self, start: int) -> StoredRecord:
        """The record that holds the node which begins at `start`."""
        return self._records(start, "record").record(start)

    def table(self, start: int) -> NodeTable:
        """All nodes of that record."""
        return self._records(start).table(start)

    def fragment(self, start: int) -> bytes:
        """The XML of a node, or the value of an attribute, in UTF-8."""
        return self._records(start).fragment(start)

    def value(self, start: int) -> str:
        """XPath's string-value of a node."""
        return self._records(start).value(start)

    def path(self, start: int) -> str:
        """An XPath, from the record's root, that selects a node alone."""
        return self._records(start).path(start)

    def node(self, start: int) -> Node:
        """The node that begins at `start`."""
        return self._records(start).node(start)

    def ancestors_of(self, start: int) -> list[Node]:
        """The ancestors of a node, of any tag, the record's root first."""
        return self._records(start).ancestors_of(start)

    def records_between(self, low: int, high: int) -> Int64s:
        """(start, end) of the records whose labels begin in [low, high), as rows."""
        parts = [np.empty((0, 2), np.int64), *self.files.records.between(low, high)]
        found: Int64s = np.concatenate(parts)
        if len(self.removed):
            found = found[~self.removed.holds(np.ascontiguousarray(found[:, 0]))]
        return found

    def _records(self, start: int, what: str = "node") -> Records:
        files = self.files
        if len(self.removed) and self.removed.holds([start])[0]:
            raise NoSuchNode(start, what)
        return files.records

    def __repr__(self) -> str:
        return f"<Segment {self.name}: {len(self.tags)} tags, labels {self.low} to {self.high}>"


def _int64s(values: npt.ArrayLike) -> Int64s:
    return np.ascontiguousarray(values, np.int64)


def _int16s(values: npt.ArrayLike | None) -> npt.NDArray[np.int16] | None:
    return None if values is None else np.ascontiguousarray(values, np.int16)


def _pairs(found: Found) -> Pairs:
    left, start, end, level = found
    return Pairs(left, Labels(start, end, level))
