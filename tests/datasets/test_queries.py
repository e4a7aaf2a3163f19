from __future__ import annotations

from itertools import pairwise
from statistics import mean
from typing import Any

import pytest
from lxml import etree

from fmware.datasets import Dtd, ExhaustedError, ParameterError, load_dtd, news_documents, queries

SMALL = "<!ELEMENT a (b, c?)><!ELEMENT b (c*)><!ELEMENT c (#PCDATA)>"


def drawn(count: int = 2000, **parameters: Any) -> list[str]:
    return list(queries("news", count, **parameters))


def steps(query: str) -> list[str]:
    """Name tests of a path without predicates."""
    return [step for step in query.split("/") if step]


@pytest.mark.parametrize(
    ("parameters", "share"), [({}, 0.2), ({"predicates": 1}, 0.05), ({"nested": 1}, 0.05)]
)
def test_a_good_share_of_the_queries_matches(parameters: dict[str, int], share: float) -> None:
    made = [etree.fromstring(document) for document in news_documents(60, 1)]
    found = [etree.XPath(query) for query in drawn(200, depth=5, **parameters)]
    assert mean(any(query(root) for root in made) for query in found) > share


def test_queries_with_everything_are_xpath() -> None:
    for query in drawn(500, predicates=3, nested=2):
        etree.XPath(query)


def test_a_path_follows_the_child_graph() -> None:
    news = load_dtd("news")
    for query in drawn(descendant=0, wildcard=0):
        names = steps(query)
        assert names[0] == "news"
        assert all(b in news.elements[a].children for a, b in pairwise(names))


def test_a_descendant_step_names_something_below() -> None:
    news = load_dtd("news")
    far = 0
    for query in drawn(descendant=0.5, wildcard=0):
        for above, below in pairwise(steps(query)):
            assert below in news.below[above]
            far += below not in news.elements[above].children
    assert far > 100


def test_depth_bounds_the_steps() -> None:
    for depth in (1, 3, 6, 10):
        longest = max(len(steps(query)) for query in drawn(300, depth=depth, distinct=False))
        assert longest == depth


def test_wildcard_and_descendant_have_the_effect_they_name() -> None:
    def share(token: str, **parameters: Any) -> float:
        made = drawn(distinct=False, **parameters)
        return sum(q.count(token) for q in made) / sum(len(steps(q)) for q in made)

    stars = [share("*", wildcard=w, descendant=0) for w in (0, 0.2, 0.5, 1)]
    assert stars == pytest.approx([0, 0.2, 0.5, 1], abs=0.03)
    deep = [share("//", descendant=d, wildcard=0) for d in (0, 0.2, 0.5, 1)]
    assert deep == pytest.approx([0, 0.2, 0.5, 1], abs=0.03)


def test_a_wildcard_never_follows_a_double_slash() -> None:
    assert not any("//*" in query for query in drawn(wildcard=0.5, descendant=0.5))


def test_predicates_and_nested_paths_are_as_many_as_asked_for() -> None:
    assert all(q.count("[") == 3 for q in drawn(300, predicates=3))
    assert all(q.count("[") == 2 for q in drawn(300, nested=2))
    assert all(q.count("[") >= 3 for q in drawn(300, nested=1, predicates=2))
    assert all(q.count(" = ") + q.count("<") + q.count(">") + q.count("!=") == 20
               for q in drawn(50, predicates=20))  # fmt: skip


def test_most_predicates_are_equalities_and_some_are_ranges() -> None:
    text = "\n".join(drawn(2000, predicates=1))
    assert text.count(" = ") > 1200
    assert min(text.count(f" {op} ") for op in ("<", "<=", ">", ">=", "!=")) > 20
    assert "[text() " in text


def test_a_predicate_is_on_something_the_element_has() -> None:
    dtd = Dtd.parse(SMALL + "<!ATTLIST b x (p | q) #IMPLIED>")
    for query in queries(dtd, 200, predicates=1, wildcard=0, distinct=False):
        assert "b[@x " in query or "c[text() " in query
    with pytest.raises(ParameterError, match="no path has room"):
        next(queries(Dtd.parse("<!ELEMENT a (b)><!ELEMENT b EMPTY>"), 1, predicates=1))


def test_distinct_queries_are_distinct_and_others_need_not_be() -> None:
    assert len(set(drawn(30_000))) == 30_000
    assert len(set(drawn(30_000, distinct=False))) < 30_000


def test_skew_prefers_some_children() -> None:
    def spread(skew: float) -> int:
        return len(set(drawn(3000, skew=skew, wildcard=0, descendant=0, distinct=False)))

    assert spread(2.0) < spread(0.0) * 0.6


def test_the_same_seed_gives_the_same_queries() -> None:
    assert drawn(500, seed=1, predicates=1) == drawn(500, seed=1, predicates=1)
    assert drawn(500, seed=1) != drawn(500, seed=2)


def test_when_they_run_out_all_are_yielded_and_the_error_counts_them() -> None:
    found: list[str] = []
    with pytest.raises(ExhaustedError, match="only 4 exist") as caught:
        found.extend(queries(Dtd.parse(SMALL), 100, wildcard=0, descendant=0))
    assert set(found) == {"/a", "/a/b", "/a/c", "/a/b/c"}
    assert (caught.value.wanted, caught.value.found, caught.value.exact) == (100, 4, True)


def test_enumeration_and_drawing_agree_on_what_exists() -> None:
    parameters: dict[str, Any] = {"depth": 4, "wildcard": 0.3, "descendant": 0.3}
    with pytest.raises(ExhaustedError) as caught:
        list(queries("notices", 10**9, **parameters))
    many = set(queries("notices", 50_000, distinct=False, **parameters))
    assert len(many) <= caught.value.found
    assert many <= set(queries("notices", caught.value.found, **parameters))


def test_running_out_of_predicates_is_told_without_a_count() -> None:
    with pytest.raises(ExhaustedError, match="no new one came after") as caught:
        list(queries(Dtd.parse(SMALL), 10_000, predicates=1, values=3))
    assert not caught.value.exact


@pytest.mark.parametrize(
    "wrong", [{"depth": 0}, {"wildcard": 2}, {"descendant": -0.1}, {"predicates": -1}, {"skew": -1}]
)
def test_parameters_out_of_range_are_refused_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        queries("news", 1, **wrong)


@pytest.mark.slow
def test_a_million_distinct_queries_exist() -> None:
    assert sum(1 for _ in queries("news", 1_000_000, depth=6)) == 1_000_000
