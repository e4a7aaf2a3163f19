"""A corpus, indexed: what is in the files is in the index, whatever the files look like."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lxml import etree

from fmware import Index, LabelingError, StoreError, build_index
from fmware.corpus import NothingIndexed, NotIndexed, add, compact, describe, remove
from fmware.index.verify import verify
from fmware.labeling.ses import Direction
from tests.labeling.corpora import Layout, expected, layouts, records, wrapped
from tests.labeling.test_job import ADVERSARIAL, COMMENT

if TYPE_CHECKING:
    from fmware.labeling.runs import Tag

SCHEMES = ("path", "vist", "prix")
RULES = ("r=@k", "s=@k", "a=@{urn:s}k", "r=a")
EVERYTHING = ([-1], [1 << 62])


def everything(index: Index, tag: Tag) -> list[tuple[int, int, int]]:
    """All nodes of a tag."""
    return [
        label
        for segment in index.segments
        for found in (segment.descendants(tag, *EVERYTHING).right,)
        for label in zip(
            found.start.tolist(), found.end.tolist(), found.level.tolist(), strict=True
        )
    ]


def shapes(index: Index) -> Counter[tuple[object, ...]]:
    """What the index holds, record by record, as `expected` has it."""
    roots = sorted(
        (int(start), int(end))
        for segment in index.segments
        for start, end in segment.records_between(-1, 1 << 62)
    )
    held: dict[int, list[tuple[object, ...]]] = {start: [] for start, _ in roots}
    starts = np.array([start for start, _ in roots])
    levels = {start: index.record(start).level for start, _ in roots}
    for tag in index.tags:
        for start, end, level in everything(index, tag):
            root, last = roots[int(np.searchsorted(starts, start, "right")) - 1]
            assert end <= last
            shape = (tag.kind, tag.name, start - root, end - root, level - levels[root])
            held[root].append(shape)
    return Counter(tuple(sorted(each)) for each in held.values())


def keyed(made: list[str]) -> Counter[tuple[str, str, str]]:
    """(tag, key, canonical XML) of every node that the rules give a key, by lxml."""
    found: Counter[tuple[str, str, str]] = Counter()
    for record in made:
        tree = etree.fromstring(wrapped(record))
        for tag, path in (("r", "@k"), ("s", "@k"), ("a", "@p:k"), ("r", "a")):
            for node in tree.iter(tag):
                for value in node.xpath(path, namespaces={"p": "urn:s"}):
                    text = value if isinstance(value, str) else value.xpath("string()")
                    if text.strip(" \t\r\n"):
                        found[tag, text.strip(" \t\r\n"), canonical(node)] += 1
    return found


def canonical(node: etree._Element) -> str:
    text = etree.tostring(node, with_tail=False, encoding="unicode")
    shown: str = etree.canonicalize(text)
    return shown


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(records(), layouts(), st.integers(1, 64))
def test_an_index_holds_exactly_the_corpus(
    made: list[str], layout: Layout, partitions: int
) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) / "corpus"
        place.mkdir()
        layout.write(made, place)
        files = sorted(place.iterdir())
        random.Random(partitions).shuffle(files)
        summary = build_index(
            files,
            Path(scratch) / "index",
            record=layout.record,
            identity=RULES,
            schemes=SCHEMES,
            partitions=partitions,
        )
        with Index.open(summary.path) as index:
            assert shapes(index) == expected(made)
            check_keys(index, made)
            check_schemes(index)


def check_keys(index: Index, made: list[str]) -> None:
    """Identity finds exactly the nodes with a key, and their fragments are those of the source."""
    wanted = keyed(made)
    for tag in ("r", "s", "a"):
        keys = sorted({key for name, key, _ in wanted if name == tag} | {"nobody's"})
        pairs = index.identify(tag, [key.encode() for key in keys])
        got = Counter(
            (tag, keys[left], etree.canonicalize(index.fragment(start).decode()))
            for left, start in zip(pairs.left.tolist(), pairs.right.start.tolist(), strict=True)
        )
        assert got == Counter({each: n for each, n in wanted.items() if each[0] == tag})


def check_schemes(index: Index) -> None:
    """A scan by SES label misses no descendant and no ancestor."""
    (segment,) = index.segments
    tags = index.tags[:6]
    for scheme, direction in index.schemes.items():
        for upper in tags:
            listed = segment.descendants(upper, *EVERYTHING).right
            rows = segment.locate(upper, listed.start)
            ranks, lasts = segment.labels(upper, rows, scheme)
            for place in range(0, len(listed), 5):
                rank, last = int(ranks[place]), int(lasts[place])
                node = [int(listed.start[place])], [int(listed.end[place])]
                for lower in tags:
                    below = segment.scan(scheme, lower, rank, last, "descendant")
                    true = segment.descendants(lower, *node).right.start
                    assert np.isin(true, below.start).all(), (scheme, direction)
                    above = segment.scan(scheme, lower, rank, last, "ancestor")
                    true = segment.ancestors(lower, *node).right.start
                    assert np.isin(true, above.start).all(), (scheme, direction)
    assert index.schemes["prix"] is Direction.DESCENDANT


@pytest.fixture
def built(tmp_path: Path) -> Path:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    Layout("one", between=[COMMENT], groups=True).write(ADVERSARIAL, corpus)
    build_index(
        corpus, tmp_path / "index", record=("r", "s"), identity=RULES, schemes=SCHEMES, partitions=5
    )
    return tmp_path / "index"


def test_adding_and_removing_leaves_what_a_fresh_build_has(built: Path, tmp_path: Path) -> None:
    more = [f'<r k="new{i}"><a>{i}</a></r>' for i in range(9)]
    for number, record in enumerate(more):
        (tmp_path / "more.xml").write_text(f'<x xmlns:p="urn:s">{record}</x>')
        made = add(built, tmp_path / "more.xml")
        assert (made.records, made.generation) == (1, 3 + number)
    remove(built, keys=[("r", "new3"), ("r", "new7")])
    left = [*ADVERSARIAL, *(record for i, record in enumerate(more) if i not in (3, 7))]
    for stage in ("before compaction", "after it"):
        with Index.open(built) as index:
            assert shapes(index) == expected(left), stage
        assert describe(built).total_records == len(left)
        compact(built)
    assert verify(built).ok
    assert describe(built).segments == 1


def test_labels_never_change(built: Path, tmp_path: Path) -> None:
    (tmp_path / "more.xml").write_text('<x><r k="new"><a>1</a></r></x>')
    add(built, tmp_path / "more.xml")
    with Index.open(built) as index:
        (label,) = index.identify("r", [b"new"]).right.start.tolist()
    remove(built, keys=[("s", "1")])
    compact(built)
    with Index.open(built) as index:
        assert index.fragment(label) == b'<r k="new"><a>1</a></r>'


def test_a_file_is_removed_by_its_name(built: Path, tmp_path: Path) -> None:
    (tmp_path / "more.xml").write_text("<x><r/><r/><s/></x>")
    add(built, tmp_path / "more.xml")
    assert remove(built, files=[str(tmp_path / "more.xml")]).removed == 3
    with Index.open(built) as index:
        assert shapes(index) == expected(ADVERSARIAL)


def test_what_cannot_be_removed_changes_nothing(built: Path) -> None:
    before = describe(built)
    with pytest.raises(NotIndexed, match="no r has the key 'none'"):
        remove(built, keys=[("s", "1"), ("r", "none")])
    with pytest.raises(NotIndexed, match="no file"):
        remove(built, keys=[("s", "1")], files=["none.xml"])
    with pytest.raises(StoreError):
        remove(built, labels=[1 << 50])
    assert describe(built) == before


def test_documents_are_added_as_the_index_was_built(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text("<a><r k='1'>&what;</r></a>")
    entities = {"what": "it"}
    build_index(
        tmp_path / "a.xml", tmp_path / "index", record="r", identity=["r=@k"], entities=entities
    )
    (tmp_path / "b.xml").write_text("<a><r k='2'>&what;</r><r k='3'>&uuml;</r></a>")
    made = add(tmp_path / "index", tmp_path / "b.xml")
    assert (made.records, made.rejected) == (1, 1)
    with Index.open(tmp_path / "index") as index:
        (start,) = index.identify("r", [b"2"]).right.start.tolist()
        assert index.value(start) == "it"


def test_a_corpus_without_records_is_no_corpus(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text("<a/>")
    with pytest.raises(NothingIndexed, match="right tag"):
        build_index(tmp_path / "a.xml", tmp_path / "index", record="r")


def test_bad_options_leave_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text("<a/>")
    with pytest.raises(LabelingError):
        build_index(tmp_path / "a.xml", tmp_path / "index", schemes=["nope"])
    with pytest.raises(LabelingError):
        build_index(tmp_path / "a.xml", tmp_path / "index", identity=["nope"])
    assert not (tmp_path / "index").exists()
