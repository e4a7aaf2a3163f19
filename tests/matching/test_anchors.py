"""Anchors: which nodes of a message they are, and which local nodes are theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from fmware import FilterEngine
from fmware.corpus import add, build_index, remove
from fmware.filtering import ForeignTable
from fmware.index import Index
from fmware.index.labels import Node
from fmware.labeling import ELEMENT, NodeTable, Reader, Vocabulary, read
from fmware.labeling.runs import Tag
from fmware.matching import MI, AnchorPart, Evaluators, Resolver
from fmware.matching._kernel import Anchors
from fmware.statements import Statement
from fmware.xpath import XPathError, split, to_text
from tests.matching.corpora import KEYS, Corpus
from tests.matching.test_local import hurried
from tests.xpath.strategies import documents, paths

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from fmware.xpath import Path as XPath

# --- from tuples to anchors -----------------------------------------------------------------

SALES = b"""<sales>
  <sale id="1"><product sku="p1"><units>7</units></product><product sku="p2"/></sale>
  <sale id="2"><product sku="p3"><units>1</units></product></sale>
</sales>"""


def anchors_of(statement: str, message: bytes = SALES) -> list[list[tuple[list[str], str]]]:
    """For each crossing the anchors: the tuple, and the anchor by its id, sku or name."""
    parsed = Statement.parse(statement)
    engine = FilterEngine()
    number = engine.subscribe(parsed.filter, tuples=True)
    result = engine.filter(message)
    tuples = result.tuples.get(number, np.empty((0, len(parsed.filter.steps)), np.int32))

    def called(row: int) -> str:
        element = result.table.element(row)
        return str(element.get("id") or element.get("sku") or element.tag)

    found = []
    for crossing in parsed.crossings:
        part = AnchorPart(crossing.anchor, parsed.namespaces)
        lines, rows = part.rows(result.table, tuples)
        found.append(
            [
                ([called(at) for at in tuples[line].tolist()], called(row))
                for line, row in zip(lines.tolist(), rows.tolist(), strict=True)
            ]
        )
    return found


def test_the_anchor_is_the_last_message_step() -> None:
    assert anchors_of("//sale/product//local:warehouse") == [
        [(["1", "p1"], "p1"), (["1", "p2"], "p2"), (["2", "p3"], "p3")]
    ]


def test_the_anchor_of_a_predicate_is_the_step_that_has_it() -> None:
    assert anchors_of("//sale[local:shop]/product") == [
        [(["1", "p1"], "1"), (["1", "p2"], "1"), (["2", "p3"], "2")]
    ]


def test_a_branch_leads_to_any_number_of_anchors() -> None:
    assert anchors_of("//sale[product/local:stock]") == [
        [(["1"], "p1"), (["1"], "p2"), (["2"], "p3")]
    ]


def test_what_is_asked_of_the_anchor_is_asked_of_the_very_node() -> None:
    assert anchors_of("//sale[product[units > 3]/local:stock]") == [[(["1"], "p1")]]
    assert anchors_of("//sale[product[local:stock]/units > 3]") == [[(["1"], "p1")]]
    assert anchors_of("//sale[product[2]/local:stock]/product") == [
        [(["1", "p1"], "p2"), (["1", "p2"], "p2")]
    ]


def test_each_crossing_has_its_own_anchors() -> None:
    first, second = anchors_of("//sale[local:shop]/product[@sku = 'p3']/local:stock")
    assert first == [(["2", "p3"], "2")]
    assert second == [(["2", "p3"], "p3")]


def test_no_tuples_no_anchors() -> None:
    assert anchors_of("//sale[refund/local:stock]") == [[]]


@given(documents(), paths(with_local=True))
@settings(hurried, max_examples=200)
def test_branches_lead_where_lxml_goes(document: etree._Element, path: XPath) -> None:
    try:
        parts = split(path)
    except XPathError:
        return
    table = read(etree.tostring(document), vocabulary=Vocabulary())
    roots = np.flatnonzero(table.kind == ELEMENT).astype(np.int32)
    for crossing in parts.crossings:
        anchor = crossing.anchor
        tuples = np.repeat(roots[:, None], anchor.step + 1, axis=1)
        lines, rows = AnchorPart(anchor).rows(table, tuples)
        found = [*zip(roots[lines].tolist(), rows.tolist(), strict=True)]
        elements = {table.element(row): row for row in roots.tolist()}
        wanted = [
            (row, elements[each])
            for element, row in elements.items()
            for each in element.xpath(to_text(anchor.branch))
        ]
        assert found == wanted


# --- from anchors to local nodes ------------------------------------------------------------


class Locals:
    """The local nodes of anchors, as columns."""

    def __init__(
        self,
        resolver: Resolver,
        tables: Sequence[NodeTable],
        message: npt.ArrayLike,
        row: npt.ArrayLike,
    ) -> None:
        anchors = Anchors()
        places, rows = np.asarray(message, np.int64), np.asarray(row, np.int64)
        anchors.add_rows(np.arange(len(rows)), places, rows)
        found = resolver.find(anchors, [*tables])
        self.tags = resolver.elements
        self.anchor, self.tag, self.row = found.nodes()
        inputs = found.inputs(0, len(rows))
        assert inputs.id.tolist() == self.anchor.tolist()
        assert inputs.rank is None
        self.segment, self.start = inputs.segment, inputs.start
        self.end, self.level = inputs.end, inputs.level
        self.missing = [*found.missing]
        self.told = [
            resolver.described(tables[place], place, at)
            for place, at in map(anchors.at, found.missing)
        ]

    def __len__(self) -> int:
        return len(self.anchor)


def asked(resolver: Resolver, *messages: bytes) -> tuple[list[NodeTable], Locals]:
    """The local nodes of all elements of some messages."""
    vocabulary = Vocabulary()
    resolver.prepare(vocabulary)
    reader = Reader(vocabulary, grow=False)
    tables = [reader.read(message) for message in messages]
    return tables, Locals(resolver, tables, *places(tables))


def places(tables: Sequence[NodeTable]) -> tuple[list[int], list[int]]:
    """All elements of some tables."""
    found = [
        (number, row)
        for number, table in enumerate(tables)
        for row in np.flatnonzero(table.kind == ELEMENT).tolist()
    ]
    return [number for number, _ in found], [row for _, row in found]


def nodes(found: Locals, anchor: int) -> list[int]:
    own: list[int] = found.start[found.anchor == anchor].tolist()
    return own


def everywhere(corpus: Corpus) -> Iterator[tuple[str, str, int]]:
    """Name, key and label of the elements of a corpus that have a key."""
    for element, label in corpus.elements:
        name = str(element.tag)
        keys = {str(element.get("k", ""))}
        if name == "a":
            keys |= {str(child.xpath("string(.)")).strip() for child in element.iterchildren("b")}
        for key in keys - {""}:
            yield name, key, label.start


def test_a_key_leads_to_all_nodes_of_the_name_that_have_it(corpora: list[Corpus]) -> None:
    several = 0
    for corpus in corpora:
        resolver = Resolver(corpus.index)
        held: dict[tuple[str, str], set[int]] = {}
        for name, key, start in everywhere(corpus):
            held.setdefault((name, key), set()).add(start)
        keys = [
            (name, f"k{number}")
            for number in range(KEYS)
            for name in ("a", "b", "{urn:p}a", "rec", "nobody")
        ]
        messages = [etree.tostring(etree.Element(name, k=f" {key}\n")) for name, key in keys]
        _, found = asked(resolver, *messages)
        for number, (name, key) in enumerate(keys):
            assert nodes(found, number) == sorted(held.get((name, key), ()))
            several += len(held.get((name, key), ())) > 1
        missing = [n for n, key in enumerate(keys) if key not in held]
        assert found.missing == missing
    assert several


def test_labels_of_local_nodes_are_those_of_the_index(corpora: list[Corpus]) -> None:
    for corpus in corpora:
        index = corpus.index
        messages = [
            etree.tostring(etree.Element(str(element.tag), k=str(element.get("k"))))
            for element, _ in corpus.elements
            if element.get("k")
        ]
        _, found = asked(Resolver(index), *messages)
        assert len(found)
        assert not len(found.missing)
        for at in range(len(found)):
            start, tag = int(found.start[at]), found.tags[found.tag[at]]
            label = (start, int(found.end[at]), int(found.level[at]))
            assert index.node(start) == Node(tag, *label)
            segment = index.segments[found.segment[at]]
            assert segment.locate(tag, [start]).tolist() == [found.row[at]]
        ranks, lasts = Resolver(index).labelled(
            found.tag.astype(np.int32), found.segment, found.row, "path"
        )
        for at in range(len(found)):
            segment, tag = index.segments[found.segment[at]], found.tags[found.tag[at]]
            rank, last = segment.labels(tag, found.row[at : at + 1], "path")
            assert (ranks[at], lasts[at]) == (rank[0], last[0])


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Index]:
    """Two segments, in which a key is that of two products, and a name is a key, too."""
    (tmp_path / "1.xml").write_text(
        "<shop><product sku='p1'><name>Pen</name></product>"
        "<product sku='p2'><name>Ink</name><name>p1</name></product><box sku='p1'/></shop>"
    )
    (tmp_path / "2.xml").write_text("<shop><product sku='p1'/><product sku='p9'/></shop>")
    rules = ["product=@sku", "product=name"]
    path = tmp_path / "index"
    build_index(tmp_path / "1.xml", path, identity=rules)
    add(path, tmp_path / "2.xml")
    with Index.open(path) as index:
        yield index


def starts(index: Index, tag: str = "product") -> list[int]:
    return [
        start
        for segment in index.segments
        for start in segment.descendants(tag, [-1], [1 << 62]).right.start.tolist()
    ]


def test_nodes_are_found_in_all_segments_and_each_once(shop: Index) -> None:
    pen, ink, other, _ = starts(shop)
    message = b"<m><product sku='p1'><name>p1</name><name>Pen</name></product></m>"
    _, found = asked(Resolver(shop), message)
    # By the rules of the index a key is a key, whatever it was taken from.
    assert nodes(found, 1) == [pen, ink, other]
    assert found.missing == [0, 2, 3]


def test_only_elements_of_the_name_of_a_rule_have_keys(shop: Index) -> None:
    _, found = asked(Resolver(shop), b"<m><box sku='p1'/><p:product xmlns:p='u' sku='p1'/></m>")
    assert len(found) == 0
    assert found.missing == [0, 1, 2]


def test_a_label_wins_over_a_key(shop: Index) -> None:
    _, ink, _, last = starts(shop)
    [box] = starts(shop, "box")
    message = f"""<m xmlns:fm="urn:fmware">
        <product fm:mi="{ink}" sku="p1"/><product fm:mi=" {last} "/><anything fm:mi="{box}"/>
        <product mi="{ink}" sku="p9"/></m>"""
    _, found = asked(Resolver(shop), message.encode())
    assert [nodes(found, at) for at in range(5)] == [[], [ink], [last], [box], [last]]
    assert [found.tags[tag] for tag in found.tag] == [
        Tag(0, "product"),
        Tag(0, "product"),
        Tag(0, "box"),
        Tag(0, "product"),
    ]


@pytest.mark.parametrize("label", ["", "x", "-1", "1.5", "1_0", "9" * 18, "9" * 40, "2"])
def test_a_label_that_nothing_has_leads_nowhere(shop: Index, label: str) -> None:
    assert label != "2" or 2 not in starts(shop)
    message = f"<product xmlns:fm='urn:fmware' fm:mi='{label}' sku='p1'/>"
    _, found = asked(Resolver(shop), message.encode())
    assert found.missing == [0]
    [missing] = found.told
    assert missing.key == label


def test_removed_nodes_are_nobodys(shop: Index) -> None:
    _, _, other, last = starts(shop)
    remove(shop.path, labels=[last])
    message = (
        f"<m xmlns:fm='urn:fmware'><product sku='p1'/><product sku='p9'/>"
        f"<product fm:mi='{last}'/></m>"
    )
    with shop.refresh() as index:
        _, found = asked(Resolver(index), message.encode())
    assert other not in nodes(found, 1)
    assert len(nodes(found, 1)) == 2
    assert found.missing == [0, 2, 3]


def test_who_is_missing_can_be_told(shop: Index) -> None:
    messages = (
        b"<m><product sku='p7'/></m>",
        b"<product sku='p1'><product><name>Nib</name></product></product>",
        b"<m xmlns:fm='urn:fmware'><product fm:mi='5' sku='p1'/></m>",
    )
    resolver = Resolver(shop)
    _, found = asked(resolver, *messages)
    told = found.told
    assert [(each.message, each.row, each.tag, each.key) for each in told] == [
        (0, 0, "m", None),
        (0, 1, "product", "p7"),
        (1, 2, "product", "Nib"),
        (1, 3, "name", None),
        (2, 0, "m", None),
        (2, 1, "product", "5"),
    ]
    assert told[2].path == "/product[1]/product[1]"


def test_an_anchor_may_be_asked_for_often_and_in_any_order(shop: Index) -> None:
    pen, ink, other, last = starts(shop)
    resolver = Resolver(shop)
    vocabulary = Vocabulary()
    texts = (b"<product sku='p9'/>", b"<m><product sku='p1'/></m>", b"<product sku='none'/>")
    tables = [read(text, vocabulary=vocabulary) for text in texts]
    found = Locals(resolver, tables, [1, 0, 2, 1, 1, 0], [1, 0, 0, 0, 1, 0])
    both = [pen, ink, other]
    assert [nodes(found, at) for at in range(6)] == [both, [last], [], [], both, [last]]
    assert found.anchor.tolist() == sorted(found.anchor.tolist())
    assert found.missing == [2, 3]


def test_messages_need_not_share_a_vocabulary(shop: Index) -> None:
    *_, last = starts(shop)
    tables = [
        read(b"<product sku='p9'/>", vocabulary=Vocabulary(["x"] * number)) for number in range(3)
    ]
    found = Locals(Resolver(shop), tables, [0, 1, 2], [0, 0, 0])
    assert found.start.tolist() == [last] * 3


def test_no_anchors_no_nodes(shop: Index) -> None:
    found = Locals(Resolver(shop), [], [], [])
    assert (len(found), len(found.missing)) == (0, 0)
    found = Locals(Resolver(shop), [read(b"<product sku='p1'/>")], [], [])
    assert len(found) == 0


def test_keys_are_values(shop: Index) -> None:
    table = Reader(Vocabulary(), values=False).read(b"<product sku='p1'/>")
    with pytest.raises(ForeignTable, match="without values"):
        Locals(Resolver(shop), [table], [0], [0])


def test_what_a_reader_must_keep(shop: Index, corpora: list[Corpus]) -> None:
    resolver = Resolver(shop)
    assert resolver.names == {MI, "product", "sku", "name"}
    assert resolver.has_key("product")
    assert not resolver.has_key("box")
    wild = Resolver(corpora[-1].index)
    assert {"a", "b", "{urn:p}a", "k", "rec"} <= wild.names
    assert wild.has_key("anything")


def test_the_filter_and_the_resolver_share_a_reader(shop: Index) -> None:
    engine = FilterEngine()
    resolver = Resolver(shop)
    resolver.prepare(engine.vocabulary)
    parsed = Statement.parse("//m/*/local:name")
    number = engine.subscribe(parsed.filter, tuples=True)
    result = engine.filter(b"<m><product sku='p1'/><nothing sku='p1'/></m>")
    part = AnchorPart(parsed.crossings[0].anchor, evaluators=Evaluators())
    _, rows = part.rows(result.table, result.tuples[number])
    found = Locals(resolver, [result.table], np.zeros(len(rows), np.int64), rows)
    assert (len(found), found.missing) == (3, [1])


@given(st.lists(st.sampled_from(["p1", "p2", "Pen", "none"]), max_size=6))
@settings(hurried, max_examples=50)
def test_a_batch_is_as_good_as_one_by_one(shop: Index, keys: list[str]) -> None:
    resolver = Resolver(shop)
    messages = [f"<m><product sku='{key}'/></m>".encode() for key in keys]
    _, found = asked(resolver, *messages)
    for number, message in enumerate(messages):
        _, alone = asked(resolver, message)
        assert nodes(found, 2 * number + 1) == nodes(alone, 1)


def test_a_key_of_many_nodes(tmp_path: Path) -> None:
    """More than the kernel has room for at once."""
    (tmp_path / "all.xml").write_text("<all>" + "<a k='x'/>" * 90 + "<a k=' y '/></all>")
    build_index(tmp_path / "all.xml", tmp_path / "index", record="a", identity=["a=@k"])
    with Index.open(tmp_path / "index") as index:
        _, found = asked(Resolver(index), b"<s><a k='x'/><a k='y'/><a k=' '/><a k='z'/></s>")
        assert np.bincount(found.anchor).tolist() == [0, 90, 1]
        assert len({*found.start.tolist()}) == 91
        assert found.missing == [0, 3, 4]
