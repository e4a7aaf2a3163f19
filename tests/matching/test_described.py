"""Descriptions of local nodes say what the record's own table says, whatever is kept of them."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from fmware.corpus import build_index
from fmware.matching import described
from fmware.matching.described import Descriptions
from fmware.matching.results import LocalNode
from fmware.statements import Returns
from index import Index
from labeling import ATTRIBUTE

if TYPE_CHECKING:
    from pathlib import Path

    from index import Segment
    from tests.matching.corpora import Corpus

READS = [
    frozenset({Returns.VALUE, Returns.FRAGMENT}),
    frozenset({Returns.VALUE}),
    frozenset[Returns](),
]


def told(segment: Segment, start: int, wanted: frozenset[Returns]) -> LocalNode:
    """A description, straight from the table."""
    table = segment.table(start)
    row = table.start.tolist().index(start)
    return LocalNode(
        ("@" if table.kind[row] == ATTRIBUTE else "") + table.name(row),
        start,
        int(table.end[row]),
        int(table.level[row]),
        table.path(row),
        table.source,
        table.string_value(row) if Returns.VALUE in wanted else None,
        segment.fragment(start) if Returns.FRAGMENT in wanted else None,
    )


def nodes_of(index: Index) -> list[tuple[int, int]]:
    """All nodes, texts included, by segment and start."""
    return [
        (place, start)
        for place, segment in enumerate(index.segments)
        for root, _ in segment.records_between(0, 1 << 62).tolist()
        for start in segment.table(root).start.tolist()
    ]


@pytest.mark.parametrize("room", [1 << 20, 6000, 0])
@pytest.mark.parametrize("small", [512, 3])
def test_nodes_are_described_as_their_table_has_them(
    corpora: list[Corpus], monkeypatch: pytest.MonkeyPatch, room: int, small: int
) -> None:
    monkeypatch.setattr(described, "SMALL", small)
    monkeypatch.setattr(described, "PAGES", 3)
    random = Random(room + small)
    for corpus in corpora[::5]:
        nodes = nodes_of(corpus.index)
        descriptions = Descriptions(corpus.index, room)
        batch = descriptions.reader()
        for number in range(400):
            place, start = random.choice(nodes)
            wanted = random.choice(READS)
            found = batch.of(place, start, wanted)
            assert found == told(corpus.index.segments[place], start, wanted)
            if number % 17 == 0:
                batch = descriptions.reader()


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    items = "".join(f"<item k='{i}'><name>{'n' * 200}{i}</name></item>" for i in range(400))
    (tmp_path / "shelf.xml").write_text(f"<shelf>{items}</shelf>")
    build_index(tmp_path / "shelf.xml", tmp_path / "index", record="item", identity=["item=@k"])
    return tmp_path / "index"


def test_what_is_used_again_is_kept_and_the_rest_goes(shelf: Path) -> None:
    wanted = READS[1]
    with Index.open(shelf) as index:
        roots = [start for start, _ in index.segments[0].records_between(0, 1 << 62).tolist()]
        descriptions = Descriptions(index, 40_000)
        batch = descriptions.reader()
        favourite = batch.of(0, roots[0], wanted)
        others = []
        for start in roots[1:]:
            others.append(batch.of(0, start, wanted))
            assert batch.of(0, roots[0], wanted) is favourite
        assert batch.of(0, roots[1], wanted) is not others[0]
        assert descriptions.held < 100
