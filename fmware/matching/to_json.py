"""Matches as JSON, one line each, encoded from the columns of `Results`.

    {"message": "7", "statement": "bulk", "nodes": [{"path": "/order[1]/book[2]"}],
     "local": {"tag": "publisher", "path": ..., "label": [start, end, level], "source": ...}}

`nodes` are those of the path tuple; the last one, which the statement selects, has its `value` and
its `fragment` where they are returned. Without the tuple it is the only one.
"""

from __future__ import annotations

import json
from json.encoder import encode_basestring as quoted
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from fmware.matching.plan import FRAGMENTS, PATHS, VALUES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fmware.labeling import NodeTable
    from fmware.matching.plan import Plan
    from fmware.matching.results import LocalNode, Result, Results

__all__ = ["Encoder", "MessageNodes", "encode", "local_text", "match_lines", "matches_of"]

encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def matches_of(result: Result) -> Iterator[dict[str, Any]]:
    """The matches of one message as plain values, without the name of the statement."""
    for _, _, _, body in Encoder(result.results).matches(result.place):
        yield json.loads(f"{{{body[1:]}}}")


def match_lines(results: Results) -> Iterator[bytes]:
    """All matches of a batch, a line each."""
    encoder = Encoder(results)
    for place in range(len(results)):
        head = f'{{"message":{encode(results.message(place))},"statement":'
        for plan, _, _, body in encoder.matches(place):
            line = f"{head}{encoder.name(plan)}{body}}}\n"
            yield line.encode(errors="backslashreplace")


class Encoder:
    """Encodes the matches of a batch; nodes and names that repeat are encoded once."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self._names: dict[Plan, str] = {}
        self._local: dict[int, tuple[LocalNode, str]] = {}

    def name(self, plan: Plan) -> str:
        """The name of a statement as JSON."""
        name = self._names.get(plan)
        if name is None:
            name = self._names[plan] = encode(plan.name)
        return name

    def matches(self, place: int) -> Iterator[tuple[Plan, tuple[int, ...], LocalNode | None, str]]:
        """The matches of a message: statement, rows that are returned, local node, and JSON.

        The JSON is what follows the statement's name: nothing, or a comma and more keys. If that
        of a message is more than its limit allows, the rest of its matches is left out.
        """
        room = self._results.limits.bytes
        for plan, rows, node, body in self._all(place):
            room -= len(body)
            if room < 0:
                self._results.troubles.cut(place, plan.name)
            else:
                yield plan, rows, node, body

    def nodes(self, place: int) -> MessageNodes:
        """The nodes of a message, with the paths of those that its matches have."""
        found, local = self._results.found, self._results.local
        nodes = MessageNodes(found.table(place))
        begin, end = found.span(place, 1)
        if begin < end:
            begin, end = found.span(place, 3)
            nodes.prepare(np.unique(found.rows[begin:end]).tolist())
        tuples = [local.rows_of(at, found.rows) for at in local.span(place)]
        if any(tuples):
            nodes.prepare(sorted({row for own in tuples for row in own}))
        return nodes

    def _all(self, place: int) -> Iterator[tuple[Plan, tuple[int, ...], LocalNode | None, str]]:
        results = self._results
        found, plans = results.found, results.registry.plans
        begin, end = found.span(place, 0)
        if begin < end:
            for plan in plans(found.ids[begin:end].tolist()):
                yield plan, (), None, ""
        begin, end = found.span(place, 1)
        told = found.told[begin:end].tolist() if begin < end else []
        span = results.local.span(place)
        if not told and not span:
            return
        nodes = self.nodes(place)
        rows = found.rows
        for plan, (_, at, width) in zip(plans([n for n, _, _ in told]), told, strict=True):
            own = tuple(rows[at : at + width].tolist())
            yield plan, own, None, nodes.encode(own, plan.nodes)
        local, texts = results.local, self._local
        for at in span:
            plan, own, node = local.plan_of(at), local.rows_of(at, rows), local.node(at)
            body = nodes.encode(own, plan.nodes) if plan.nodes else ""
            if node is not None:
                # With the node: while it is held here, no other can have its id.
                known = texts.get(id(node))
                if known is None:
                    known = texts[id(node)] = node, f',"local":{local_text(node)}'
                body += known[1]
            yield plan, own, node, body


class MessageNodes:
    """The nodes of a message as JSON, each path made once."""

    def __init__(self, table: NodeTable | None) -> None:
        self._table = table
        self._paths: dict[int, str] = {}

    def prepare(self, rows: list[int]) -> None:
        """Make the paths of many rows at once: one by one, siblings would be counted each time."""
        assert self._table is not None
        paths = map(encode, self._table.paths(rows))
        self._paths.update(zip(rows, paths, strict=True))

    def encode(self, rows: tuple[int, ...], wanted: int) -> str:
        """`,"nodes":[...]` for a path tuple."""
        paths = [f'{{"path":{self._path(row)}}}' for row in rows] if wanted & PATHS else []
        if wanted & (VALUES | FRAGMENTS):
            paths = [*paths[:-1], self._selected(rows[-1], wanted)]
        return f',"nodes":[{",".join(paths)}]'

    def _path(self, row: int) -> str:
        path = self._paths.get(row)
        if path is None:
            assert self._table is not None
            path = self._paths[row] = encode(self._table.path(row))
        return path

    def _selected(self, row: int, wanted: int) -> str:
        assert self._table is not None
        parts = [f'"path":{self._path(row)}'] if wanted & PATHS else []
        if wanted & VALUES:
            parts.append(f'"value":{encode(self._table.string_value(row))}')
        if wanted & FRAGMENTS:
            text = self._table.fragment(row).decode(errors="replace")
            parts.append(f'"fragment":{encode(text)}')
        return f"{{{','.join(parts)}}}"


def local_text(node: LocalNode) -> str:
    """A node of the corpus as JSON; what was not asked for is left out.

    Strings are quoted one by one: the encoder would need four times as long for each match.
    """
    source = "null" if node.source is None else quoted(node.source)
    text = (
        f'{{"tag":{quoted(node.tag)},"path":{quoted(node.path)}'
        f',"label":[{node.start},{node.end},{node.level}],"source":{source}'
    )
    if node.value is not None:
        text = f'{text},"value":{quoted(node.value)}'
    if node.fragment is not None:
        text = f'{text},"fragment":{quoted(node.fragment.decode(errors="replace"))}'
    return text + "}"
