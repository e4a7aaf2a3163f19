"""Descriptions of local nodes say what the record's own table says, whatever is kept of them."""

from __future__ import annotations

import gc
import threading
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fmware.corpus import build_index
from fmware.index import Index
from fmware.index.environment import open_files
from fmware.index.records import Records
from fmware.labeling import ATTRIBUTE, TEXT
from fmware.matching import Evaluators
from fmware.matching.described import Descriptions
from fmware.matching.plan import Plan
from fmware.matching.results import LocalNode
from fmware.middleware import Middleware
from fmware.statements import Returns, Statement

if TYPE_CHECKING:
    from pathlib import Path

    from fmware.index import Segment
    from tests.matching.corpora import Corpus

READS: list[list[str]] = [["local"], ["value"], ["value", "fragment"]]


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


def nodes_of(index: Index) -> list[tuple[int, int, int, str]]:
    """All nodes, texts included: segment, start, kind and name."""
    return [
        (place, start, kind, table.name(row))
        for place, segment in enumerate(index.segments)
        for root, _ in segment.records_between(0, 1 << 62).tolist()
        for table in [segment.table(root)]
        for row, (start, kind) in enumerate(
            zip(table.start.tolist(), table.kind.tolist(), strict=True)
        )
    ]


def selecting(kind: int, name: str, returns: list[str]) -> Plan:
    """A statement that selects local nodes of a kind with a name."""
    name = "*" if "}" in name else name
    step = {ATTRIBUTE: f"@{name}", TEXT: "text()"}.get(kind, f"local:{name}")
    return Plan(Statement.parse(f"//a/local:*//{step}", name="s", returns=returns), Evaluators())


@pytest.mark.parametrize("room", [1 << 20, 6000, 0])
def test_nodes_are_described_as_their_table_has_them(corpora: list[Corpus], room: int) -> None:
    random = Random(room)
    for corpus in corpora[::5]:
        nodes = nodes_of(corpus.index)
        lease = corpus.index.lease()
        descriptions = Descriptions(lease, room)
        chosen = []
        for _ in range(200):
            place, start, kind, name = random.choice(nodes)
            plan = selecting(kind, random.choice((name, "*")), random.choice(READS))
            found = descriptions.of(place, start, plan)
            assert found == told(corpus.index.segments[place], start, plan.read)
            chosen.append((place, start, plan))
        segment = np.array([place for place, _, _ in chosen], np.int32)
        starts = np.array([start for _, start, _ in chosen])
        plans = [plan for *_, plan in chosen]
        which, wanted = np.arange(len(plans), dtype=np.int32), np.ones(len(plans), np.bool_)
        columns = descriptions.columns(plans, which, segment, starts, wanted)
        for at, (place, start, plan) in enumerate(chosen):
            node = told(corpus.index.segments[place], start, plan.read)
            assert columns.tag[at] == node.tag
            if Returns.VALUE in plan.read:
                assert columns.values.text(at) == node.value


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    items = "".join(f"<item k='{i}'><name>{'n' * 200}{i}</name></item>" for i in range(400))
    (tmp_path / "shelf.xml").write_text(f"<shelf>{items}</shelf>")
    build_index(tmp_path / "shelf.xml", tmp_path / "index", record="item", identity=["item=@k"])
    return tmp_path / "index"


def test_what_is_used_again_is_kept_and_the_rest_goes(shelf: Path) -> None:
    plan = selecting(0, "name", ["value"])
    with Index.open(shelf) as index:
        [segment] = index.segments
        names = segment.at("name", np.arange(400)).start.tolist()
        descriptions = Descriptions(index.lease(), 40_000)
        favourite = descriptions.of(0, names[0], plan)
        others = []
        for start in names[1:]:
            others.append(descriptions.of(0, start, plan))
            assert descriptions.of(0, names[0], plan) is favourite
        assert descriptions.of(0, names[1], plan) is not others[0]
        assert descriptions.held < 100


def test_values_are_returned_without_a_record(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("a record was read")

    with Middleware(shelf) as middleware:
        middleware.subscribe("//item/local:name", name="name", returns="value")
        middleware.subscribe("//item/self::local:*/@k", name="key", returns=["value", "local"])
        results = middleware.publish_batch([b"<m><item k='7'/><item k='399'/></m>"])
        monkeypatch.setattr(Records, "record", refused)
        found = [(match.statement, match.local) for match in results[0].matches]
        values = {(name, node.tag, node.value) for name, node in found if node is not None}
        assert values == {
            ("name", "name", "n" * 200 + "7"),
            ("name", "name", "n" * 200 + "399"),
            ("key", "@k", "7"),
            ("key", "@k", "399"),
        }
        columns = ["statement", "value", "local_tag", "start", "end", "level"]
        rows = middleware.publish_batch([b"<m><item k='7'/></m>"]).to_arrow(columns).to_pylist()
        assert {(row["statement"], row["value"]) for row in rows} == {
            ("name", "n" * 200 + "7"),
            ("key", "7"),
        }
        monkeypatch.undo()
        node = found[0][1]
        assert node is not None
        assert node.path.startswith("/item[1]/")
        assert (node.source or "").endswith("shelf.xml")
        assert node.fragment is None


def test_results_keep_the_files_open_until_they_are_dropped(shelf: Path) -> None:
    def own_files() -> list[str]:
        """Those of this index alone: what other tests have left may be closed meanwhile."""
        return [each for each in open_files() if str(shelf) in each]

    assert own_files() == []
    with Middleware(shelf) as middleware:
        middleware.subscribe("//item/local:name", name="name", returns=["value", "fragment"])
        none = middleware.publish_batch([b"<m/>"])
        results = middleware.publish_batch([b"<m><item k='7'/></m>"])
    assert own_files()
    [match] = results[0].matches
    assert match.local is not None
    assert match.local.fragment == b"<name>" + b"n" * 200 + b"7</name>"
    del match, results
    gc.collect()
    assert own_files() == []
    assert not none[0].matches


def test_nodes_are_values(shelf: Path) -> None:
    with Index.open(shelf) as index:
        start = int(index.segments[0].at("name", [3]).start[0])
        plan = selecting(0, "name", ["value", "fragment"])
        one, other = (Descriptions(index.lease()).of(0, start, plan) for _ in range(2))
        named = Descriptions(index.lease()).of(0, start, selecting(0, "name", ["value"]))
    assert one is not other
    assert one == other
    assert hash(one) == hash(other)
    assert (
        repr(one)
        == f"LocalNode(tag='name', start={start}, end={one.end}, level=2, value={one.value!r})"
    )
    assert one != named
    assert named.fragment is None
    assert one != one.value


def test_threads_may_read_one_node(shelf: Path) -> None:
    with Index.open(shelf) as index:
        descriptions = Descriptions(index.lease())
    nodes = []
    plan = selecting(0, "name", ["value", "fragment"])
    with Index.open(shelf) as index:
        starts = index.segments[0].at("name", np.arange(400)).start.tolist()
    nodes = [descriptions.of(0, start, plan) for start in starts]
    said: list[list[tuple[str, bytes | None]]] = []

    def read() -> None:
        said.append([(node.path, node.fragment) for node in nodes])

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == [said[0]] * 4
    assert all(path and fragment for path, fragment in said[0])
