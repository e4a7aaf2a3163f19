"""The evaluator of tables against lxml, and how evaluators are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from lxml import etree

from fmware.labeling import Vocabulary, read
from fmware.matching.evaluate import DOCUMENT, TESTS, Evaluator, Evaluators, resolved
from fmware.xpath import Path, parse, to_text
from tests.xpath.strategies import NAMESPACES, documents, paths, places, unhurried

if TYPE_CHECKING:
    from tests.matching.corpora import Corpus


@given(document=documents(with_namespaces=True), path=paths(with_namespaces=True))
@unhurried
@pytest.mark.parametrize("many", [0, 512])
def test_paths_lead_where_lxml_goes(document: etree._Element, path: Path, many: int) -> None:
    table = read(etree.tostring(document), vocabulary=Vocabulary())
    assert table.root is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fmware.matching.evaluate.MANY", many)
        bound = Evaluator(table, NAMESPACES).select(path, [DOCUMENT])
        free = Evaluator(table, {}).select(resolved(path, NAMESPACES), [DOCUMENT])
    assert bound == free
    wanted = table.root.xpath(to_text(path), namespaces=NAMESPACES)
    assert isinstance(wanted, list)
    assert len(bound) == len(wanted)
    elements = [table.element(row) for row in bound if table.kind[row] == 0]
    assert elements == [node for node in places(wanted) if isinstance(node, etree._Element)]
    values = [table.value(row) for row in bound if table.kind[row] != 0]
    assert values == [str(node) for node in wanted if not isinstance(node, etree._Element)]


def test_answers_are_not_mixed_up_when_predicates_come_and_go() -> None:
    table = read(b"<a><b x='1'/><b x='2'/></a>", vocabulary=Vocabulary())
    evaluator = Evaluator(table, {})
    for number in range(3 * TESTS):
        # Each predicate is gone when the next one comes, perhaps to the same place in memory.
        found = evaluator.select(parse(f"//b[@x = {number % 4}]"), [DOCUMENT])
        assert [table.value(row + 1) for row in found] == [
            value for value in ("1", "2") if value == str(number % 4)
        ]


def test_the_evaluator_of_a_record_is_found_by_any_of_its_nodes(corpora: list[Corpus]) -> None:
    kept = Evaluators()
    for corpus in corpora:
        for tree in corpus.trees:
            root = tree.labels[tree.root, ""]
            segment = corpus.index.segment_of(root.start)
            evaluator = kept.at(segment, root.start)
            assert evaluator.start[0] == root.start
            for label in tree.labels.values():
                assert kept.at(segment, label.start) is evaluator


def test_no_more_rows_are_kept_than_there_is_room_for(corpora: list[Corpus]) -> None:
    kept = Evaluators(rows=50)
    for _ in range(2):
        for corpus in corpora:
            for tree in corpus.trees:
                root = tree.labels[tree.root, ""]
                found = kept.at(corpus.index.segment_of(root.start), root.start)
                assert found.start[0] == root.start
                held = [len(each.table) for each in kept._held.values()]
                assert sum(held) <= 50 or len(held) == 1
                assert sum(map(len, kept._roots.values())) == len(held)


def test_the_evaluator_of_a_message_is_that_of_its_table() -> None:
    kept = Evaluators()
    tables = [read(b"<a/>"), read(b"<a/>")]
    first, second = map(kept.of, tables)
    assert first is not second
    assert (kept.of(tables[0]), kept.of(tables[1])) == (first, second)
