"""The middleware against brute force: lxml on messages and corpus, every pair counted."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from lxml import etree

from fmware.cmatch import Adaptive, Choice, measure
from fmware.corpus import add, build_index, compact, remove
from fmware.errors import FMwareError
from fmware.index import IndexClosed
from fmware.middleware import Middleware, MiddlewareClosed
from fmware.statements import Returns, Statement

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fmware.index import Index
    from fmware.matching.joins import Chosen
    from fmware.matching.results import Result
    from fmware.report import Report

SCHEMES = ("path", "vist", "prix")
NAMES = "abc"
RULES = ("a=@k", "b=@k", "c=@k")
PREDICATES = (
    "@v",
    "@v > 2",
    "@v = 1",
    "b",
    "c/@v",
    ".//a",
    "@v < 4 and not(b)",
    "contains(., '1')",
)
LOCAL_PREDICATES = ("@v", "@v > 2", "2", "@k or @v = 1", "not(@v)")

Pair = tuple[str, tuple[str, ...], str | None]


def tree(random: Random, depth: int, keys: int) -> etree._Element:
    """A small random element; keys are few, so that several nodes share one."""
    element = etree.Element(random.choice(NAMES))
    if random.random() < 0.7:
        element.set("k", str(random.randrange(keys)))
    if random.random() < 0.5:
        element.set("v", str(random.randrange(6)))
    if random.random() < 0.4:
        element.text = str(random.randrange(6))
    if depth:
        for _ in range(random.randrange(4)):
            element.append(tree(random, depth - 1, keys))
    return element


@dataclass(frozen=True)
class Asked:
    """A statement in parts that lxml understands."""

    steps: tuple[tuple[str, str], ...]
    conditions: tuple[str, ...]
    local: str | None

    @property
    def text(self) -> str:
        path = "".join(axis + test for axis, test in self.steps)
        path += "".join(f"[{crossed(each)}]" for each in self.conditions)
        if self.local is None:
            return path
        joint = "" if self.local.startswith(".//") else "/"
        return path + joint + crossed(self.local).removeprefix(".")


def crossed(path: str) -> str:
    """A path in the corpus as a statement says it."""
    out = []
    for part in path.replace("//", "/\0").split("/"):
        deep, part = part.startswith("\0"), part.removeprefix("\0")
        axis, colons, test = part.rpartition("::")
        name = f"{axis}{colons}{'' if test.startswith(('@', 'text', '.')) else 'local:'}{test}"
        out.append(("\0" if deep else "") + (part if part == "." else name))
    return "/".join(out).replace("/\0", "//").replace("\0", "/")


def asked(random: Random) -> Asked:
    steps = []
    for number in range(random.randrange(1, 4)):
        axis = "//" if number == 0 or random.random() < 0.4 else "/"
        test = random.choice((*NAMES, *NAMES, "*"))
        if random.random() < 0.3:
            test += f"[{random.choice(PREDICATES)}]"
        steps.append((axis, test))
    conditions = tuple(local_path(random, simple=True) for _ in range(random.choice((0, 0, 1, 2))))
    local = local_path(random) if random.random() < 0.85 or not conditions else None
    return Asked(tuple(steps), conditions, local)


def local_path(random: Random, *, simple: bool = False) -> str:
    axes = ("", ".//") if simple else ("", ".//", "self::", "parent::", "ancestor::")
    axis = random.choice(axes)
    path = axis + local_test(random)
    for _ in range(random.choice((0, 0, 1))):
        path += random.choice(("/", "//")) + local_test(random)
    if not simple and random.random() < 0.15:
        path += random.choice(("/@v", "//@k", "/text()"))
    return path


def local_test(random: Random) -> str:
    test = random.choice((*NAMES, *NAMES, "*"))
    return f"{test}[{random.choice(LOCAL_PREDICATES)}]" if random.random() < 0.25 else test


Steps = tuple[tuple[str, str], ...]


def chains(message: etree._Element, steps: Steps) -> list[list[etree._Element]]:
    root = message.getroottree()
    found = [[node] for node in root.xpath("".join(steps[0]))]
    for axis, test in steps[1:]:
        found = [
            [*chain, node]
            for chain in found
            for node in chain[-1].xpath((".//" if axis == "//" else "./") + test)
        ]
    return found


class Corpus:
    """Records as lxml trees, and where each of their nodes is."""

    def __init__(self, records: list[etree._Element]) -> None:
        self.records = records
        self.keyed: dict[tuple[str, str], list[etree._Element]] = {}
        self.number = {record: number for number, record in enumerate(records)}
        for record in records:
            for node in record.iter():
                if node.get("k"):
                    self.keyed.setdefault((str(node.tag), str(node.get("k"))), []).append(node)

    def of(self, anchor: etree._Element) -> list[etree._Element]:
        return self.keyed.get((str(anchor.tag), anchor.get("k") or ""), [])

    def select(self, anchor: etree._Element, path: str) -> set[tuple[int, str]]:
        """(record, path in it) of what a match part selects, from all nodes with the key."""
        return {
            (self.number[node.getroottree().getroot()], place(found))
            for node in self.of(anchor)
            for found in node.xpath(path)
        }


def place(found: object) -> str:
    """Where a node stands, as `NodeTable.path` has it."""
    if isinstance(found, etree._Element):
        return own_path(found)
    parent = found.getparent()  # type: ignore[attr-defined]
    if found.is_attribute:  # type: ignore[attr-defined]
        return f"{own_path(parent)}/@{found.attrname}"  # type: ignore[attr-defined]
    if found.is_tail:  # type: ignore[attr-defined]
        raise AssertionError("corpora of these tests have no tails")
    return f"{own_path(parent)}/text()[1]"


def own_path(node: etree._Element) -> str:
    steps = []
    for each in (node, *node.iterancestors()):
        before = [one for one in each.itersiblings(preceding=True) if one.tag == each.tag]
        steps.append(f"{each.tag!s}[{1 + len(before)}]")
    return "/" + "/".join(reversed(steps))


def brute(corpus: Corpus, message: etree._Element, one: Asked) -> Counter[Pair]:
    found: Counter[Pair] = Counter()
    for chain in chains(message, one.steps):
        anchor = chain[-1]
        if not all(corpus.select(anchor, each) for each in one.conditions):
            continue
        nodes = tuple(own_path(node) for node in chain)
        if one.local is None:
            found[one.text, nodes, None] += 1
            continue
        for record, path in corpus.select(anchor, one.local):
            found[one.text, nodes, f"{record}{path}"] += 1
    return found


def got(result: Result, starts: dict[int, int], middleware: Middleware) -> Counter[Pair]:
    assert not result.errors, result.errors
    table = result.table
    assert table is not None
    return Counter(
        (
            match.statement,
            tuple(table.path(row) for row in match.nodes),
            None
            if match.local is None
            else f"{starts[middleware.index.record(match.local.start).start]}{match.local.path}",
        )
        for match in result.matches
    )


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Corpus, Path, dict[int, int]]]:
    """Some corpora, in indexes of one or several segments."""
    made = []
    for seed in range(6):
        random = Random(seed)
        records = [tree(random, 3, 8) for _ in range(25)]
        place_ = tmp_path_factory.mktemp("corpus")
        texts = [etree.tostring(record) for record in records]
        cut = len(texts) if seed % 2 else len(texts) // 2
        (place_ / "one.xml").write_bytes(b"<x>" + b"".join(texts[:cut]) + b"</x>")
        options = {"record": tuple(NAMES), "identity": RULES, "schemes": SCHEMES}
        build_index(place_ / "one.xml", place_ / "index", **options)  # type: ignore[arg-type]
        if cut < len(texts):
            (place_ / "two.xml").write_bytes(b"<x>" + b"".join(texts[cut:]) + b"</x>")
            add(place_ / "index", place_ / "two.xml")
        made.append((Corpus(records), place_ / "index", record_starts(place_ / "index")))
    return made


def record_starts(path: Path) -> dict[int, int]:
    from fmware.index import Index

    with Index.open(path) as index:
        roots = [int(s) for each in index.segments for s, _ in each.records_between(0, 1 << 62)]
        return {start: number for number, start in enumerate(sorted(roots))}


CASES: list[tuple[Chosen, str | None]] = [("auto", None)] * 6
CASES += [("cmatch", scheme) for scheme in SCHEMES] + [("admatch", scheme) for scheme in SCHEMES]
CHOICES = [
    Choice("admatch"),
    *(Choice("cmatch", scheme, split) for scheme in SCHEMES for split in (False, True)),
]


def shaken(
    middleware: Middleware, data: list[bytes], batch: int, random: Random
) -> Iterator[Result]:
    """Results, with operators that are made to change their minds between batches."""
    for begin in range(0, len(data), batch):
        yield from middleware.publish_batch(data[begin : begin + batch])
        for _, operator in middleware._joins:
            if isinstance(operator, Adaptive) and random.random() < 0.4:
                assert not len(operator.switch(random.choice(CHOICES)))


@pytest.mark.parametrize("seed", range(8))
def test_every_pair_and_no_other(
    corpora: list[tuple[Corpus, Path, dict[int, int]]], seed: int
) -> None:
    random = Random(seed)
    pairs = 0
    for corpus, path, starts in corpora:
        operator, scheme = random.choice(CASES)
        budget = random.choice((300, 2000, 1 << 20))
        with Middleware(
            path,
            operator=operator,
            scheme=scheme,
            budget=budget,
            threads=random.choice((0, 0, 1, 3)),
        ) as middleware:
            asks = {one.text: one for one in (asked(random) for _ in range(12))}
            for text in asks:
                middleware.subscribe(text)
            messages = [tree(random, 3, 10) for _ in range(12)]
            data = [etree.tostring(each) for each in messages]
            results = list(shaken(middleware, data, random.choice((1, 3, 64)), random))
            for message, result in zip(messages, results, strict=True):
                wanted: Counter[Pair] = Counter()
                for one in asks.values():
                    wanted += brute(corpus, message, one)
                assert got(result, starts, middleware) == wanted, (seed, operator, scheme)
                pairs += wanted.total()
    assert pairs > 100


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "stock.xml").write_text(
        "<stock><item k='1'><city>Ulm</city><city>Bonn</city></item>"
        "<item k='2'><city>Kiel</city></item></stock>"
    )
    build_index(tmp_path / "stock.xml", tmp_path / "index", record="item", identity=["item=@k"])
    return tmp_path / "index"


def cities(result: Result) -> list[str]:
    return sorted(match.local.value or "" for match in result.matches if match.local)


def test_what_a_statement_returns(small: Path) -> None:
    with Middleware(small) as middleware:
        middleware.subscribe("//item/local:city", name="all", returns=["value", "fragment"])
        result = middleware.publish(b"<sale><item k='1'/><item k='1'/></sale>", name="m7")
    assert (result.message, result.statements) == ("m7", ["all"])
    assert cities(result) == ["Bonn", "Ulm"]
    (one, _) = result.matches
    assert one.nodes == ()
    assert one.local is not None
    assert one.local.fragment == b"<city>Ulm</city>"
    assert (one.local.tag, one.local.path) == ("city", "/item[1]/city[1]")
    assert set(result.seconds) == {"filter", "identify", "match"}


def test_labels_that_messages_carry(small: Path) -> None:
    with Middleware(small) as middleware:
        middleware.subscribe("//thing/local:city", returns="value")
        (start,) = middleware.index.identify("item", [b"2"]).right.start.tolist()
        message = f"<m xmlns:fm='urn:fmware'><thing fm:mi='{start}'/></m>"
        assert cities(middleware.publish(message.encode())) == ["Kiel"]


def test_anchors_without_a_local_node_are_counted_and_listed(small: Path) -> None:
    with Middleware(small, missing=True) as middleware:
        middleware.subscribe("//item/local:city")
        result = middleware.publish(b"<s><item k='9'/><item/><item k='1'/></s>")
    assert (result.unmatched, len(result.matches), result.errors) == (2, 2, [])
    assert [(each.path, each.key) for each in result.missing] == [
        ("/s[1]/item[1]", "9"),
        ("/s[1]/item[2]", None),
    ]


def test_a_bad_message_stops_nothing(small: Path) -> None:
    with Middleware(small) as middleware:
        middleware.subscribe("//item/local:city", returns="value")
        good = b"<s><item k='2'/></s>"
        first, bad, last = middleware.stream([good, b"<s><item>", good])
    assert cities(first) == cities(last) == ["Kiel"]
    assert len(bad.errors) == 1
    assert not bad.matches


def test_statements_come_and_go(small: Path) -> None:
    with Middleware(small) as middleware:
        middleware.subscribe(Statement.two_part(filter="//item", match="city", name="a"))
        with pytest.raises(FMwareError, match="already"):
            middleware.subscribe("//item", name="a")
        middleware.subscribe("//item", name="b", returns={Returns.MESSAGE})
        assert [each.name for each in middleware.statements] == ["a", "b"]
        assert middleware.publish(b"<item k='2'/>").statements == ["a", "b"]
        middleware.unsubscribe("a")
        assert middleware.publish(b"<item k='2'/>").statements == ["b"]
        with pytest.raises(FMwareError, match="no statement"):
            middleware.unsubscribe("a")


@pytest.mark.parametrize("operator", ["auto", "cmatch", "admatch"])
def test_a_new_generation_is_followed(small: Path, tmp_path: Path, operator: Chosen) -> None:
    message = b"<s><item k='1'/><item k='3'/></s>"
    with Middleware(small, operator=operator) as middleware:
        middleware.subscribe("//item/local:city", returns="value")
        assert cities(middleware.publish(message)) == ["Bonn", "Ulm"]
        (tmp_path / "more.xml").write_text("<x><item k='3'><city>Jena</city></item></x>")
        add(small, tmp_path / "more.xml")
        assert cities(middleware.publish(message)) == ["Bonn", "Jena", "Ulm"]
        remove(small, keys=[("item", "1")])
        assert cities(middleware.publish(message)) == ["Jena"]
        compact(small)
        assert cities(middleware.publish(message)) == ["Jena"]


def test_a_middleware_that_does_not_follow_stays(small: Path) -> None:
    with Middleware(small, follow=False) as middleware:
        middleware.subscribe("//item/local:city", returns="value")
        remove(small, keys=[("item", "2")])
        assert cities(middleware.publish(b"<item k='2'/>")) == ["Kiel"]
        assert middleware.refresh()
        assert cities(middleware.publish(b"<item k='2'/>")) == []
        assert not middleware.refresh()


def test_messages_may_be_awaited(small: Path) -> None:
    async def source() -> object:
        for _ in range(5):
            yield b"<s><item k='2'/></s>"

    async def run() -> list[list[str]]:
        with Middleware(small) as middleware:
            middleware.subscribe("//item/local:city", returns="value")
            one = await middleware.publish_async(b"<s><item k='1'/></s>")
            more = [cities(each) async for each in middleware.stream_async(source(), batch=2)]  # type: ignore[arg-type]
        return [cities(one), *more]

    assert asyncio.run(run()) == [["Bonn", "Ulm"], *[["Kiel"]] * 5]


def test_after_closing_it_is_closed(small: Path) -> None:
    middleware = Middleware(small)
    middleware.close()
    middleware.close()
    with pytest.raises(MiddlewareClosed):
        middleware.publish(b"<a/>")


def test_a_scheme_the_index_does_not_have(small: Path) -> None:
    from fmware.index import UnknownScheme

    with pytest.raises(UnknownScheme, match="vist"):
        Middleware(small, scheme="vist")


def test_joins_are_shared_by_what_they_are_asked(small: Path) -> None:
    with Middleware(small) as middleware:
        for text in ("//item/local:city", "//item[n]/local:city", "//*/local:city"):
            middleware.subscribe(text)
        middleware.publish(b"<sale><item k='1'><n/></item><item k='2'/></sale>")
        names = {join.name for join, _ in middleware._joins}
        assert names == {"item/child::city", "*/child::city"}
        assert middleware.counters()["child::city"].inputs == 5


def test_statements_that_share_a_batch_have_their_part_of_it(small: Path) -> None:
    with Middleware(small) as middleware:
        for text in ("//item/local:city", "//item[n]/local:city", "//item[.//local:city]"):
            middleware.subscribe(text)
        message = b"<sale><item k='1'><n/></item><item k='2'/><item k='3'/></sale>"
        middleware.publish_batch([message, message])
        report = middleware.report()
        shares = {each.name: each.joins for each in report.statements}
        child = {name: (own[0].inputs, own[0].pairs) for name, own in shares.items()}
        assert child == {
            "//item/local:city": (4, 6),
            "//item[n]/local:city": (2, 4),
            "//item[.//local:city]": (4, 6),
        }
        assert {each.name: (each.inputs, each.batches) for each in report.joins} == {
            "item/child::city": (6, 1),
            "item/descendant::city": (4, 1),
        }


def test_who_names_a_scheme_has_chosen(small: Path) -> None:
    with Middleware(small, scheme="path") as middleware:
        middleware.subscribe("//item/local:city")
        middleware.publish(b"<item k='1'/>")
        assert middleware.report().joins[0].choice == "cmatch/path"


def test_what_is_recorded_is_bounded(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fmware.matching.joins.RECORDED", 10)
    with Middleware(small) as middleware:
        middleware.subscribe("//item/local:city")
        for _ in range(20):
            middleware.publish(b"<s><item k='1'/><item k='2'/><item k='1'/></s>")
        ((join, _),) = middleware._joins
        assert sum(map(len, middleware._joins.recording(join) or ())) == 12
        (made,) = middleware.report().joins
        assert (made.sample, made.inputs) == (12, 60)
        assert all(each.cost for each in made.alternatives)


def test_messages_go_on_while_a_report_is_made(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples are replayed on the generation they are of, which stays open for so long."""
    replaying, go_on = threading.Event(), threading.Event()

    def slow(index: Index, *about: Any, **options: Any) -> Any:
        replaying.set()
        assert go_on.wait(30)
        assert not index.closed
        return measure(index, *about, **options)

    monkeypatch.setattr("fmware.report.collect.measure", slow)
    message = b"<sale><item k='1'/><item k='2'/></sale>"
    middleware = Middleware(small)
    middleware.subscribe("//item/local:city", returns=["local", "value"])
    middleware.publish(message)
    made: list[Report] = []
    reporting = threading.Thread(target=lambda: made.append(middleware.report()))
    reporting.start()
    assert replaying.wait(30)
    old = middleware.index
    (tmp_path / "more.xml").write_text("<stock><item k='3'><city>Jena</city></item></stock>")
    add(small, tmp_path / "more.xml")
    assert cities(middleware.publish(b"<item k='3'/>")) == ["Jena"]
    assert middleware.index is not old
    middleware.close()
    go_on.set()
    reporting.join(30)
    with pytest.raises(IndexClosed):
        _ = old.segments
    (report,) = made
    assert (report.summary.messages, report.joins[0].inputs, report.joins[0].sample) == (1, 2, 2)
    assert report.index["generation"] == old.generation
    assert all(each.measured for each in report.joins[0].alternatives)
