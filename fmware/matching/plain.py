"""A match as plain values, the way it is written as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fmware.matching.results import LocalNode, Match
    from labeling import NodeTable

__all__ = ["plain_local", "plain_match"]


def plain_match(found: Match, table: NodeTable | None, *, values: bool = False) -> dict[str, Any]:
    """The nodes of the message, with their values if wanted, and the local node, where there."""
    about: dict[str, Any] = {}
    if found.nodes and table is not None:
        about["nodes"] = [
            {"path": table.path(row), "value": table.string_value(row)}
            if values
            else {"path": table.path(row)}
            for row in found.nodes
        ]
    if found.local is not None:
        about["local"] = plain_local(found.local)
    return about


def plain_local(node: LocalNode) -> dict[str, Any]:
    """A node of the corpus; what was not asked for is left out."""
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
