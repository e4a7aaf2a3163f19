"""Results: objects, columns and lines say the same, and say what lxml says."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from lxml import etree

from fmware import FilterLimits, FMwareError, Middleware, Results
from fmware.corpus import add, build_index
from fmware.labeling import ReadError
from fmware.matching.arrow import SCHEMA
from fmware.matching.results import TRUNCATED, UNDECIDED, Match
from tests.filtering.oracle import Document, Statement, places
from tests.filtering.workload import NAMESPACES, document, statement

if TYPE_CHECKING:
    from pathlib import Path

    from fmware.matching.results import LocalNode

Record = dict[str, Any]

PLAIN: tuple[tuple[str, ...], ...] = (
    ("name",),
    ("message",),
    ("value",),
    ("fragment",),
    ("value", "fragment"),
    ("message", "value"),
    ("message", "fragment", "name"),
)
PARTS = ("/local:b", "//local:c", "//local:*", "/local:*/local:c")
CONDITIONS = ("[local:b]", "[.//local:c]", "[.//local:*]", "[local:*/local:c]")
SELECTING = (*PLAIN, ("local",), ("local", "value"), ("message", "local", "value", "fragment"))


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small corpus whose keys are values that messages have."""
    place = tmp_path_factory.mktemp("corpus")
    (place / "one.xml").write_text(
        "<x xmlns:p='urn:p'><a x='1'><b y='7'>one</b><c/></a>"
        "<a x='2'><b>two &lt; 3<c x='3'/></b></a>"
        "<b x='1'><p:a>é</p:a><c>x</c></b><c x='3'><a/><b x='10'><c/>&amp;</b></c></x>"
    )
    build_index(
        place / "one.xml",
        place / "index",
        record=("a", "b", "c"),
        identity=("a=@x", "b=@x", "c=@x"),
    )
    return place / "index"


class Asked:
    """A statement, and what of it lxml can answer: the part on messages."""

    def __init__(self, random: Random, name: str) -> None:
        self.name = name
        steps = statement(random)
        self.crosses = random.random() < 0.4
        self.selects = self.crosses and random.random() < 0.6
        while self.crosses and is_leaf(steps[-1]):
            steps = statement(random)
        self.plain = Statement(steps)
        self.text = self.plain.text
        self.returns: tuple[str, ...] | None = random.choice(SELECTING if self.selects else PLAIN)
        if random.random() < 0.2:
            self.returns = None
        if self.crosses:
            self.text += random.choice(PARTS if self.selects else CONDITIONS)

    def wants(self, what: str) -> bool:
        if self.returns is None:
            return what == "message" and self.crosses
        return what in self.returns

    def expected(self, told: Document) -> Counter[Match]:
        """The matches of a statement that messages alone decide."""
        assert not self.crosses
        if self.wants("message"):
            return Counter(self._match(told, tuple(rows)) for rows in self.plain.tuples(told))
        rows = self.plain.rows(told)
        if self.wants("value") or self.wants("fragment"):
            return Counter(self._match(told, (row,)) for row in rows)
        return Counter([Match(self.name)] if rows else [])

    def _match(self, told: Document, rows: tuple[int, ...]) -> Match:
        value = string(told, rows[-1]) if self.wants("value") else None
        fragment = xml(told, rows[-1]) if self.wants("fragment") else None
        return Match(self.name, rows if self.wants("message") else (), None, value, fragment)


def is_leaf(step: str) -> bool:
    return step.lstrip("/").startswith(("@", "text()"))


def place_of(told: Document, row: int) -> tuple[etree._Element, str]:
    return next(place for place, number in told.rows.items() if number == row)


def string(told: Document, row: int) -> str:
    """XPath's string-value, by lxml."""
    element, part = place_of(told, row)
    if part in ("#text", "#tail"):
        return (element.text if part == "#text" else element.tail) or ""
    return str(element.get(part)) if part else str(element.xpath("string()"))


def xml(told: Document, row: int) -> bytes:
    element, part = place_of(told, row)
    if part:
        return string(told, row).encode()
    return etree.tostring(element, encoding="utf-8", with_tail=False)


def drawn(random: Random, count: int) -> tuple[list[bytes], dict[int, Document]]:
    """Messages, some of which are not well-formed, and the others as lxml has them."""
    messages = [document(random) for _ in range(count)]
    good = {}
    for place, data in enumerate(messages):
        if random.random() < 0.15:
            messages[place] = data[: random.randrange(len(data))]
        else:
            good[place] = Document(data)
    return messages, good


def subscribed(middleware: Middleware, random: Random, count: int) -> dict[str, Asked]:
    asked = {}
    for number in range(count):
        one = Asked(random, f"s{number}")
        middleware.subscribe(one.text, name=one.name, namespaces=NAMESPACES, returns=one.returns)
        asked[one.name] = one
    return asked


# --- the same in every form -----------------------------------------------------------------


def records(results: Results) -> list[Record]:
    """The matches as `to_arrow` should have them, made of the objects."""
    return [
        {
            "message": result.message,
            "statement": match.statement,
            "rows": list(match.nodes) or None,
            "nodes": paths(result.table, match) or None,
            **local_record(match.local),
            "value": match.value if match.local is None else match.local.value,
            "fragment": decoded(match.fragment if match.local is None else match.local.fragment),
        }
        for result in results
        for match in result.matches
    ]


def paths(table: Any, match: Match) -> list[str]:
    return [table.path(row) for row in match.nodes]


def decoded(fragment: bytes | None) -> str | None:
    return None if fragment is None else fragment.decode()


def local_record(node: LocalNode | None) -> Record:
    names = {"local_tag": "tag", "local_path": "path"}
    columns = ("local_tag", "local_path", "start", "end", "level", "source")
    return {name: node and getattr(node, names.get(name, name)) for name in columns}


def lines(results: Results) -> list[Record]:
    """The matches as lines of JSON should have them, made of the objects."""
    made = []
    for result in results:
        for match in result.matches:
            line: Record = {"message": result.message, "statement": match.statement}
            nodes: list[Record] = [{"path": path} for path in paths(result.table, match)]
            selected = said(match.value, match.fragment)
            if selected:
                nodes = [*nodes[:-1], {**(nodes[-1] if nodes else {}), **selected}]
            if nodes:
                line["nodes"] = nodes
            node = match.local
            if node is not None:
                line["local"] = {
                    "tag": node.tag,
                    "path": node.path,
                    "label": [node.start, node.end, node.level],
                    "source": node.source,
                    **said(node.value, node.fragment),
                }
            made.append(line)
    return made


def said(value: str | None, fragment: bytes | None) -> Record:
    both = {"value": value, "fragment": decoded(fragment)}
    return {name: each for name, each in both.items() if each is not None}


@pytest.mark.parametrize("seed", range(8))
def test_all_forms_say_the_same(index: Path, seed: int) -> None:
    random = Random(f"forms {seed}")
    with Middleware(index) as middleware:
        subscribed(middleware, random, 60)
        messages, good = drawn(random, random.choice((1, 5, 40)))
        results = middleware.publish_batch(messages)
        # Each form is made of its own results: none sees what another has made.
        arrow, frame, written = (middleware.publish_batch(messages) for _ in range(3))
        renamed = [str(int(each["message"]) + len(messages)) for each in records(results)]
        assert renamed == arrow.to_arrow()["message"].to_pylist()
        wanted = [dict(each, message="") for each in records(results)]
        assert [dict(each, message="") for each in arrow.to_arrow().to_pylist()] == wanted
        table = pa.Table.from_pandas(frame.to_pandas(), schema=SCHEMA, preserve_index=False)
        assert [dict(each, message="") for each in table.to_pylist()] == wanted
        told = [json.loads(line) for line in written.to_json_lines().splitlines()]
        assert told == lines(written)
        assert results.match_count == len(wanted) == sum(results.match_counts())
        assert results.match_counts() == [len(result.matches) for result in results]
        assert {place for place, result in enumerate(results) if not result.errors} == {*good}
        assert all(isinstance(error, ReadError) for each in results for error in each.errors)
        assert seed == 0 or len(messages) == 1 or len(wanted) > 10


@pytest.mark.parametrize("seed", range(8))
def test_a_message_of_a_batch_has_the_matches_it_has_alone(index: Path, seed: int) -> None:
    random = Random(f"alone {seed}")
    with Middleware(index) as middleware:
        subscribed(middleware, random, 40)
        messages, _ = drawn(random, 30)
        for message, result in zip(messages, middleware.publish_batch(messages), strict=True):
            alone = middleware.publish(message)
            assert Counter(alone.matches) == Counter(result.matches)
            assert alone.statements == result.statements
            assert [*map(type, alone.errors)] == [*map(type, result.errors)]
        streamed = [*middleware.stream(messages, batch=7)]
        assert [Counter(each.matches) for each in streamed] == [
            Counter(each.matches) for each in middleware.publish_batch(messages)
        ]


@pytest.mark.parametrize("seed", range(8))
def test_message_nodes_are_those_of_lxml(index: Path, seed: int) -> None:
    """Tuples, values and fragments of plain statements; of crossings, those of their nodes."""
    random = Random(f"nodes {seed}")
    with Middleware(index) as middleware:
        asked = subscribed(middleware, random, 60)
        messages, good = drawn(random, 25)
        results = middleware.publish_batch(messages)
    seen = 0
    for place, told in good.items():
        wanted: Counter[Match] = Counter()
        for one in asked.values():
            if not one.crosses:
                wanted += one.expected(told)
        crossing = [each for each in results[place].matches if asked[each.statement].crosses]
        assert Counter(results[place].matches) - Counter(crossing) == wanted
        for match in crossing:
            one = asked[match.statement]
            assert (match.local is not None) == one.selects
            assert bool(match.nodes) == one.wants("message")
            assert (match.value is not None) == (one.wants("value") and not one.selects)
            if match.nodes:
                assert [*match.nodes] in one.plain.tuples(told)
            for got, said_ in ((match.value, string), (match.fragment, xml)):
                if got is not None:
                    rows = match.nodes[-1:] or one.plain.rows(told)
                    assert got in [said_(told, row) for row in rows]
        seen += len(wanted) + len(crossing)
    assert seen > 50


def test_a_path_selects_its_row_and_no_other(index: Path) -> None:
    random = Random("paths")
    with Middleware(index) as middleware:
        for text in ("//*", "//@*", "//text()"):
            middleware.subscribe(text, returns="message")
        messages = [document(random) for _ in range(30)]
        table = middleware.publish_batch(messages).to_arrow()
    told = [Document(message) for message in messages]
    assert table.num_rows == sum(len(each.rows) for each in told)
    for record in table.select(["message", "rows", "nodes"]).to_pylist():
        one = told[int(record["message"]) - 1]
        (row,), (path,) = record["rows"], record["nodes"]
        assert [*places(etree.ETXPath(path)(one.tree))] == [place_of(one, row)]


# --- Arrow's interface ----------------------------------------------------------------------


SALE = b"<sale><a x='1'><n>7</n></a><a x='2'/></sale>"


@pytest.fixture
def middleware(index: Path) -> Any:
    with Middleware(index) as made:
        made.subscribe("//a/local:b", name="b", returns=["message", "value"])
        made.subscribe("//n", name="n", returns="fragment")
        made.subscribe("//sale", name="sale")
        yield made


def test_libraries_take_results_as_columns(middleware: Middleware) -> None:
    results = middleware.publish_batch([SALE, b"<n/>"])
    taken = pa.table(results)
    assert taken == results.to_arrow()
    assert taken.schema == SCHEMA == pa.schema(results)
    assert pd.DataFrame(results.to_pandas()).statement.tolist() == ["sale", "n", "b", "b", "n"]
    counted = duckdb.execute("select statement, count(*) from taken group by 1 order by 1")
    assert counted.fetchall() == [("b", 2), ("n", 2), ("sale", 1)]
    direct = duckdb.execute("select nodes[1], value from results where statement = 'b' order by 2")
    assert direct.fetchall() == [("/sale[1]/a[1]", "one"), ("/sale[1]/a[2]", "two < 3")]


def test_a_stream_is_read_as_columns_batch_by_batch(middleware: Middleware) -> None:
    given = 0

    def source() -> Any:
        nonlocal given
        for _ in range(5):
            given += 1
            yield SALE
        yield b"<bad"

    stream = middleware.stream(source(), batch=2)
    assert given == 0
    reader = pa.RecordBatchReader.from_stream(stream)
    assert reader.schema == SCHEMA == pa.schema(stream)
    assert reader.read_next_batch().num_rows == 8
    assert given < 6
    assert sum(batch.num_rows for batch in reader) == 12
    assert stream.errors == 1
    for form in (stream.to_arrow(), stream.to_pandas(), stream.to_json_lines()):
        assert len(form) == 0


def test_a_stream_says_what_its_batches_say(middleware: Middleware) -> None:
    messages = [SALE] * 5
    table = middleware.publish_batch(messages).to_arrow().drop_columns("message")
    lines = middleware.publish_batch(messages, names=["1"] * 5).to_json_lines()
    assert middleware.stream(messages, batch=2).to_arrow().drop_columns("message") == table
    frame = middleware.stream(messages, batch=2).to_pandas().drop(columns="message")
    assert frame.equals(table.to_pandas())
    streamed = middleware.stream(messages, batch=2).to_json_lines().splitlines()
    assert [json.loads(line) | {"message": "1"} for line in streamed] == [
        json.loads(line) for line in lines.splitlines()
    ]


@pytest.mark.parametrize("batch", [0, -1])
def test_a_batch_has_a_message_at_least(middleware: Middleware, batch: int) -> None:
    with pytest.raises(ValueError, match="at least one message"):
        middleware.stream([SALE], batch=batch)


def test_names_that_are_not_utf8_are_escaped(middleware: Middleware) -> None:
    middleware.subscribe("//sale", name="s\udc80")
    results = middleware.publish_batch([SALE], names=["f\udcff"])
    table = results.to_arrow()
    assert {*table["message"].to_pylist()} == {"f\\udcff"}
    assert "s\\udc80" in table["statement"].to_pylist()
    assert [json.loads(line)["message"] for line in results.to_json_lines().splitlines()] == [
        "f\udcff"
    ] * 5


# --- results outlive what made them ---------------------------------------------------------


def forms(results: Results) -> list[Any]:
    return [
        [[*result.matches] for result in results],
        [result.statements for result in results],
        [None if result.table is None else [*result.table.records()] for result in results],
        results.to_arrow(),
        results.to_json_lines(),
        results.match_counts(),
    ]


@pytest.mark.parametrize("seed", range(4))
def test_results_stay_true_whatever_comes_after(index: Path, tmp_path: Path, seed: int) -> None:
    """Numbers of their statements are others', the index has moved on, all is closed."""
    random = Random(f"later {seed}")
    moving = shutil.copytree(index, tmp_path / "index")
    with Middleware(moving) as middleware:
        asked = subscribed(middleware, random, 40)
        messages, _ = drawn(random, 20)
        names = [f"m{number}" for number in range(20)]
        wanted = forms(middleware.publish_batch(messages, names=names))
        late = [middleware.publish_batch(messages, names=names) for _ in range(3)]
        for name in asked:
            middleware.unsubscribe(name)
        for number in range(40):
            one = Asked(random, f"other{number}")
            middleware.subscribe(one.text, name=one.name, namespaces=NAMESPACES)
        assert forms(late.pop()) == wanted
        (tmp_path / "more.xml").write_text("<x><a x='1'><b>more</b></a></x>")
        add(moving, tmp_path / "more.xml")
        assert middleware.refresh()
        middleware.publish_batch(messages)
        assert forms(late.pop()) == wanted
    assert forms(late.pop()) == wanted


def test_names_are_those_that_were_given(middleware: Middleware) -> None:
    names = ["one", "two"]
    results = middleware.publish_batch([SALE, b"<n/>"], names=names)
    names[0] = "other"
    assert results.messages == ["one", "two"]
    with pytest.raises(ValueError, match="2 messages cannot have 1 names"):
        middleware.publish_batch([SALE, SALE], names=["one"])
    with pytest.raises(ValueError, match="0 messages cannot have 1 names"):
        middleware.publish_batch([], names=["one"])


# --- results as a sequence ------------------------------------------------------------------


def test_results_are_a_sequence(middleware: Middleware) -> None:
    results = middleware.publish_batch([SALE, b"<n/>", b"<bad"], names=["a", "b", "c"])
    assert len(results) == 3
    assert [each.message for each in results] == ["a", "b", "c"]
    assert [each.message for each in results[1:]] == ["b", "c"]
    assert [each.message for each in results[::-2]] == ["c", "a"]
    assert results[-3].message == "a"
    assert results[-1].errors
    for place in (3, -4):
        with pytest.raises(IndexError, match="batch of 3"):
            _ = results[place]
    assert repr(results) == "<Results of 3 messages: 5 matches>"
    assert repr(results[0]) == "<Result of a: 4 matches>"
    assert repr(results[1].matches) == "<1 matches of b>"


def test_a_result_is_equal_to_itself_alone(middleware: Middleware) -> None:
    results = middleware.publish_batch([SALE, SALE])
    assert results[0] == results[-2]
    assert results[0] != results[1]
    assert results[1] in results
    assert results.index(results[1]) == 1
    assert len({*results, *results}) == 2
    assert results[0] != middleware.publish_batch([SALE, SALE])[0]
    assert results[0] != "a"


def test_matches_are_a_sequence(middleware: Middleware) -> None:
    first, second = middleware.publish_batch([SALE, SALE])
    matches = first.matches
    assert (len(matches), matches[0], matches[-4]) == (4, Match("sale"), Match("sale"))
    assert matches == second.matches
    assert matches == [*matches]
    assert matches == tuple(matches)
    assert matches[1:] == [*matches][1:]
    assert matches != matches[1:]
    assert Match("n", fragment=b"<n>7</n>") in matches
    with pytest.raises(IndexError):
        _ = matches[4]
    with pytest.raises(TypeError):
        hash(matches)


def test_a_batch_of_nothing(middleware: Middleware) -> None:
    results = middleware.publish_batch([])
    assert ([*results], results.messages, results.match_counts()) == ([], [], [])
    assert (results.match_count, results.to_json_lines()) == (0, b"")
    assert results.to_arrow() == SCHEMA.empty_table()
    assert results.to_pandas().columns.tolist() == SCHEMA.names
    assert middleware.stream([]).to_arrow() == SCHEMA.empty_table()


def test_without_statements_nothing_matches(index: Path) -> None:
    with Middleware(index) as middleware:
        results = middleware.publish_batch([SALE, b"<bad"])
        assert results.match_counts() == [0, 0]
        assert results.to_arrow() == SCHEMA.empty_table()
        assert [len(each.errors) for each in results] == [0, 1]


def test_a_message_is_filtered_once_while_statements_rest(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also before there is one, after one was refused, and if no message can be read."""
    with Middleware(index) as middleware:
        passes = []
        filter_many = middleware._engine.filter_many

        def counted(bodies: Any) -> Any:
            passes.append(len(bodies))
            return filter_many(bodies)

        monkeypatch.setattr(middleware._engine, "filter_many", counted)
        middleware.publish(SALE)
        middleware.subscribe("//sale")
        middleware.publish(b"<bad")
        middleware.publish_batch([b"<bad", SALE])
        with pytest.raises(FMwareError):
            middleware.subscribe("//p:q")
        middleware.unsubscribe("//sale")
        middleware.publish_batch([b"<bad", SALE])
        assert passes == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("limits", "text", "problem"),
    [
        (FilterLimits(tuples=2), "//b", TRUNCATED),
        (FilterLimits(work=150), "/a[not(.//b[x])]", UNDECIDED),
    ],
)
def test_an_answer_that_is_not_whole_is_said_so(
    index: Path, limits: FilterLimits, text: str, problem: str
) -> None:
    many = b"<a>" + b"<b/>" * 40 + b"</a>"
    with Middleware(index, limits=limits) as middleware:
        middleware.subscribe(text, name="one", returns="message")
        results = middleware.publish_batch([b"<a/>", many, b"<b>", b"<a/>"])
    assert [result.place for result in results.incomplete] == [1, 2]
    whole, cut, bad, _ = results
    assert whole.problems == []
    assert cut.problems == [f"statement one: {problem}"]
    assert bad.problems == [str(error) for error in bad.errors]
