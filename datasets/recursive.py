"""A deeply recursive corpus with random tags, where path summaries do not help.

Nearly every node has a tag path of its own, so there are almost as many clusters as nodes: the
opposite of a bibliography. A cost model must see the difference.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from fmware.datasets.chance import check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

INFINITE = float("inf")
_CHUNK = 1 << 17


def recursive(
    records: int,
    *,
    seed: int = 0,
    depth: int = 20,
    fanout: int = 3,
    tags: int = 30,
    nodes: int = 200,
) -> Iterator[bytes]:
    """Yield the chunks of one document: a root `corpus` with `record` children that have keys.

    depth: levels below a record; a walk goes down more often than up, so most nodes lie deep.
    fanout: the most children of a node. tags: how many different tags there are.
    nodes: elements in a record, fewer only where depth and fanout leave no room for them.
    """
    check("records", records, 0, INFINITE)
    check("depth", depth, 1, INFINITE)
    check("fanout", fanout, 1, INFINITE)
    check("tags", tags, 1, INFINITE)
    check("nodes", nodes, 1, INFINITE)
    rng = Random(f"recursive {seed}")
    opens = [f"<t{i}>" for i in range(tags)]
    closes = [f"</t{i}>" for i in range(tags)]
    return _chunks(records, lambda: _tree(rng, opens, closes, depth, fanout, nodes))


def _chunks(records: int, tree: Callable[[], list[str]]) -> Iterator[bytes]:
    parts, held = ['<?xml version="1.0" encoding="UTF-8"?>\n<corpus>\n'], 0
    for index in range(records):
        inner = "".join(tree())
        parts.append(f'<record key="r{index}">{inner}</record>\n')
        held += len(inner)
        if held >= _CHUNK:
            yield "".join(parts).encode()
            parts, held = [], 0
    yield "".join([*parts, "</corpus>\n"]).encode()


def _tree(
    rng: Random, opens: list[str], closes: list[str], depth: int, fanout: int, nodes: int
) -> list[str]:
    """A random walk that opens and closes elements: the inside of one record."""
    random, tags = rng.random, len(opens)
    out: list[str] = []
    stack: list[int] = []
    room = [fanout]
    left = nodes
    while left:
        if room[-1] and len(stack) < depth and (not stack or random() < 0.7):
            tag = int(random() * tags)
            out.append(opens[tag])
            stack.append(tag)
            room[-1] -= 1
            room.append(fanout)
            left -= 1
        elif stack:
            # A leaf holds a number, so that there is something to compare.
            if room[-1] == fanout:
                out.append(str(int(random() * 100)))
            out.append(closes[stack.pop()])
            room.pop()
        else:
            break
    out.extend(closes[tag] for tag in reversed(stack))
    return out
