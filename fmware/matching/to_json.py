"""Matches as JSON, one line each, encoded from the columns of `Results`.

    {"message": "7", "statement": "bulk", "nodes": [{"path": "/order[1]/book[2]"}],
     "local": {"tag": "publisher", "path": ..., "label": [start, end, level], "source": ...}}

`nodes` are those of the path tuple; the last one, which the statement selects, has its `value` and
its `fragment` where they are returned. Without the tuple it is the only one.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from fmware.matching.plan import FRAGMENTS, PATHS, VALUES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fmware.matching.plan import Plan
    from fmware.matching.results import LocalNode, Result, Results
    from labeling import NodeTable

__all__ = ["Encoder", "encode", "local_record", "match_lines", "matches_of"]

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
    """Encodes the matches of a batch; nodes and names that repeat are encoded once.

    `local` encodes nodes of the corpus, where a caller keeps what it has encoded before.
    """

    def __init__(self, results: Results, local: Callable[[LocalNode], str] | None = None) -> None:
        self._results = results
        self._names: dict[Plan, str] = {}
        self._local: dict[int, str] = {}
        self._local_text = local or self._of

    def name(self, plan: Plan) -> str:
        """The name of a statement as JSON."""
        name = self._names.get(plan)
        if name is None:
            name = self._names[plan] = encode(plan.name)
        return name

    def matches(self, place: int) -> Iterator[tuple[Plan, tuple[int, ...], LocalNode | None, str]]:
        """The matches of a message: statement, rows that are returned, local node, and JSON.

        The JSON is what follows the statement's name: nothing, or a comma and more keys.
        """
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
        nodes = _Nodes(found.table(place))
        rows = found.rows
        if told:
            begin, end = found.span(place, 3)
            nodes.prepare(np.unique(rows[begin:end]).tolist())
        for plan, (_, at, width) in zip(plans([n for n, _, _ in told]), told, strict=True):
            own = tuple(rows[at : at + width].tolist())
            yield plan, own, None, nodes.encode(own, plan.nodes)
        local = results.local
        for at in span:
            plan, own, node = local.plans[at], local.rows[at], local.nodes[at]
            body = nodes.encode(own, plan.nodes) if plan.nodes else ""
            if node is not None:
                body = f'{body},"local":{self._local_text(node)}'
            yield plan, own, node, body

    def _of(self, node: LocalNode) -> str:
        # A description is one object for as long as the batch holds it.
        text = self._local.get(id(node))
        if text is None:
            text = self._local[id(node)] = encode(local_record(node))
        return text


class _Nodes:
    """The nodes of a message as JSON, each path made once."""

    def __init__(self, table: NodeTable | None) -> None:
        self._table = table
        self._paths: dict[int, str] = {}

    def prepare(self, rows: list[int]) -> None:
        """Make the paths of many rows at once."""
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


def local_record(node: LocalNode) -> dict[str, Any]:
    """A node of the corpus as plain values; what was not asked for is left out."""
    about: dict[str, Any] = {
        "tag": node.tag,
        "path": node.path,
        "label": [node.start, node.end, node.level],
        "source": node.source,
    }
    if node.value is not None:
        about["value"] = node.value
    if node.fragment is not None:
        about["fragment"] = node.fragment.decode(errors="replace")
    return about
