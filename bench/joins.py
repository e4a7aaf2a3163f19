"""Joins with the corpus beside what a Python user would write in twenty lines.

The rival (`Lxml`) has all records of the corpus in memory, parsed by lxml, in a dict by tag and
key. It parses a message, runs compiled XPath on it for each statement, looks up the record of each
node that comes, and takes values from the record, by compiled XPath or by plain Python, whichever
is faster. `bench.pipeline` runs what is here.

Messages cite records of a bibliography. Those of one block cite no record that another block cites:
a block that was never published asks for records that were never asked for.
"""

from __future__ import annotations

import re
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from lxml import etree

from bench.clock import compare
from fmware.cli.demo import STATEMENTS
from fmware.corpus import add, build_index
from fmware.datasets.messages import citations
from fmware.middleware import Middleware
from fmware.statements import Statement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.pipeline import Work

    Take = Callable[[etree._Element], list[str]]

__all__ = ["demo", "five", "thousand", "wildcard"]

BATCH: Final = 64
BLOCK: Final = 128
"""Messages of a block."""
BLOCKS: Final = 8
"""Blocks that are published for the first time while the clock runs."""
MANY: Final = 1000
KEY: Final = re.compile(rb' key="([^"]*)"')
COLUMNS: Final = ("message", "statement", "value")


# --- the rival --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A statement, the rival's path in messages, and its path in records."""

    text: str
    message: str
    record: str
    take: Take | None = None
    """The same in plain Python."""


class Lxml:
    """The solution in twenty lines: a dict from key to element, and compiled XPath."""

    def __init__(self, corpus: Path, asked: Sequence[Asked], *, plain: bool) -> None:
        self.records: dict[tuple[str, str], etree._Element] = {}
        for _, record in etree.iterparse(corpus, tag="{*}*"):
            if record.get("key") is not None:
                self.records[str(record.tag), record.get("key", "")] = record
        self.asked = [
            (
                each.text,
                etree.XPath(each.message),
                each.take if plain and each.take else self._xpath(each.record),
            )
            for each in asked
        ]

    @staticmethod
    def _xpath(path: str) -> Take:
        found = etree.XPath(path, smart_strings=False)
        return lambda record: [
            each if isinstance(each, str) else text(each) for each in found(record)
        ]

    def match(self, message: bytes) -> list[tuple[str, str]]:
        """The statements that match, each with a value."""
        root, records = etree.fromstring(message), self.records
        found = []
        for name, path, take in self.asked:
            for node in path(root):
                record = records.get((node.tag, node.get("key")))
                if record is not None:
                    found += [(name, value) for value in take(record)]
        return found


def text(element: etree._Element | str) -> str:
    """The string-value of what XPath gives."""
    if isinstance(element, str):
        return element
    return "".join(element.itertext()) if len(element) else element.text or ""


def texts(record: etree._Element, tag: str) -> list[str]:
    """The string-values of children."""
    return [text(each) for each in record.iterfind(tag)]


def _recent(record: etree._Element) -> list[str]:
    years = (float(year) for year in texts(record, "year"))
    return texts(record, "title") if any(year > 2015 for year in years) else []


def _pages(record: etree._Element) -> list[str]:
    return texts(record, "pages") if record.find("crossref") is not None else []


def _date(record: etree._Element) -> list[str]:
    date = record.get("mdate")
    return [] if date is None else [date]


FIVE: Final = (
    Asked(
        "//review[verdict = 'accept']/article/local:author",
        "//review[verdict = 'accept']/article",
        "author",
        lambda record: texts(record, "author"),
    ),
    Asked(
        "//order/book[quantity > 5]/local:publisher",
        "//order/book[quantity > 5]",
        "publisher",
        lambda record: texts(record, "publisher"),
    ),
    Asked(
        "//cited/article[local:year > 2015]/local:title",
        "//cited/article",
        "self::*[year > 2015]/title",
        _recent,
    ),
    Asked(
        "//citing/inproceedings[local:crossref]/local:pages",
        "//citing/inproceedings",
        "self::*[crossref]/pages",
        _pages,
    ),
    Asked(
        "//review[@round = 3]/*/self::local:*/@mdate",
        "//review[@round = 3]/*",
        "@mdate",
        _date,
    ),
)
"""Statements in the manner of the demo's."""


def drawn(count: int, seed: int) -> list[Asked]:
    """Different statements that go from a publication in a message to its record."""
    random = Random(f"joins {seed}")
    found: dict[str, Asked] = {}
    while len(found) < count:
        place = random.choice(("order", "review", "citation/cited", "citation/citing", "*"))
        tag = random.choice(("article", "inproceedings", "book", "incollection", "phdthesis"))
        low = random.randrange(400)
        test = random.choice(
            (f"quantity > {low % 40}", f"rating > {low % 5}", f"passage/@page > {low}")
        )
        name = random.choice(("author", "year", "title", "pages", "journal", "ee", "publisher"))
        path = f"/notice/{place}/{tag}[{test}]"
        found[path + name] = Asked(f"{path}/local:{name}", path, name)
    return [*found.values()]


# --- messages ---------------------------------------------------------------------------------


def blocks(work: Work, count: int) -> list[list[bytes]]:
    """Blocks of messages; a record is cited in one of them alone."""
    found: list[list[bytes]] = [[]]
    before: set[bytes] = set()
    own: set[bytes] = set()
    for message in citations(1 << 30, seed=work.seed, records=work.records, skew=0, unknown=0.02):
        keys = {*KEY.findall(message)}
        if keys & before:
            continue
        if len(found[-1]) == BLOCK:
            if len(found) == count:
                break
            found.append([])
            before, own = before | own, set()
            if keys & before:
                continue
        found[-1].append(message)
        own |= keys
    return found


def _batches(messages: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    return (messages[at : at + BATCH] for at in range(0, len(messages), BATCH))


def _subscribed(work: Work, asked: Sequence[str], returns: Any = "value") -> Middleware:
    middleware = Middleware(work.index)
    for each in asked:
        selects = Statement.parse(each).selects is not None
        middleware.subscribe(each, name=each, returns=returns if selects else None)
    return middleware


def _read(middleware: Middleware, messages: Sequence[bytes]) -> int:
    """Publish messages, and read what was found as columns."""
    results = (middleware.publish_batch(some) for some in _batches(messages))
    return sum(each.to_arrow(columns=COLUMNS).num_rows for each in results)


def _matched(rival: Lxml, messages: Sequence[bytes]) -> None:
    for each in messages:
        rival.match(each)


def _parsed(messages: Sequence[bytes]) -> None:
    for each in messages:
        etree.fromstring(each)


def _check(middleware: Middleware, rival: Lxml, messages: Sequence[bytes]) -> int:
    """Both must give the same; how many values that is."""
    count = 0
    for message in messages:
        table = middleware.publish_batch([message]).to_arrow(columns=COLUMNS).to_pydict()
        ours = {*zip(table["statement"], table["value"], strict=True)}
        theirs = {*rival.match(message)}
        if ours != theirs:
            raise AssertionError(f"answers differ: {sorted(ours ^ theirs)[:4]}")
        count += len(ours)
    return count


# --- parts of the benchmark -------------------------------------------------------------------


def five(work: Work) -> dict[str, float]:
    """Five statements, values returned: messages that were seen before, and unseen records."""
    *unseen, warm = blocks(work, BLOCKS + 1)
    rivals = {plain: Lxml(work.corpus, FIVE, plain=plain) for plain in (False, True)}
    with _subscribed(work, [each.text for each in FIVE]) as middleware:
        count = _check(middleware, rivals[True], warm)
        times = compare(
            {
                "ours": lambda: _read(middleware, warm),
                "xpath": lambda: _matched(rivals[False], warm),
                "plain": lambda: _matched(rivals[True], warm),
            },
            rounds=work.rounds,
        )
        best = min(("xpath", "plain"), key=lambda name: times[name])
        rival = rivals[best == "plain"]
        ours = theirs = 0.0
        for block in unseen:
            theirs += _seconds(partial(_matched, rival, block))
            ours += _seconds(partial(_read, middleware, block))
        for block in unseen:
            _check(middleware, rival, block[:8])
    number = len(warm)
    return {
        "lxml_ratio_warm": times["ours"] / times[best],
        "lxml_ratio_unseen": ours / theirs,
        "five_values": count / number,
        "five_us": times["ours"] / number * 1e6,
        "five_unseen_us": ours / number / BLOCKS * 1e6,
        "five_lxml_us": times[best] / number * 1e6,
    }


def thousand(work: Work) -> dict[str, float]:
    """A thousand statements, values returned."""
    [messages] = blocks(work, 1)
    asked = drawn(MANY, work.seed)
    rival = Lxml(work.corpus, asked, plain=False)
    with _subscribed(work, [each.text for each in asked]) as middleware:
        count = _check(middleware, rival, messages[:32])
        times = compare(
            {
                "ours": lambda: _read(middleware, messages),
                "rival": lambda: _matched(rival, messages),
            },
            rounds=max(3, work.rounds // 4),
        )
    return {
        "lxml_ratio_1000": times["ours"] / times["rival"],
        "thousand_values": count / 32,
        "thousand_us": times["ours"] / len(messages) * 1e6,
    }


def demo(work: Work) -> dict[str, float]:
    """The demo's ten statements over a bare parse of the same messages."""
    *unseen, warm = blocks(work, BLOCKS + 1)
    with _subscribed(work, STATEMENTS) as middleware:
        times = compare(
            {
                "ours": lambda: _read(middleware, warm),
                "parse": lambda: _parsed(warm),
            },
            rounds=work.rounds,
        )
        ours = parsed = 0.0
        for block in unseen:
            parsed += _seconds(partial(_parsed, block))
            ours += _seconds(partial(_read, middleware, block))
    return {
        "joins_over_parse": times["ours"] / times["parse"],
        "joins_unseen_over_parse": ours / parsed,
        "demo_us": times["ours"] / len(warm) * 1e6,
        "demo_bytes": sum(map(len, chain(warm))) / len(warm),
    }


def _seconds(call: Callable[[], object]) -> float:
    began = time.process_time_ns()
    call()
    return (time.process_time_ns() - began) / 1e9


# --- wildcards --------------------------------------------------------------------------------


TAGS: Final = (40, 100)
TIMES: Final = 7
"""Middlewares that are made for each figure, of which the best counts."""


def wildcard(work: Work) -> dict[str, float]:
    """The first message of `//m/*/local:*`, and the first after an `add`, over AD-only match."""
    found: dict[str, float] = {}
    for tags in TAGS:
        for after in (False, True):
            times: dict[str, list[float]] = {"auto": [], "admatch": []}
            for turn in range(TIMES):
                with tempfile.TemporaryDirectory(dir=work.corpus.parent) as folder:
                    index = _tagged(Path(folder), tags, work.seed + turn)
                    for operator, taken in times.items():
                        taken.append(_first(index, operator, tags, work.seed + turn, after=after))
            name = f"wildcard_{tags}{'_after_add' if after else ''}"
            found[f"{name}_ms"] = min(times["auto"]) * 1e3
            found[f"{name}_over_admatch"] = min(times["auto"]) / min(times["admatch"])
    ratios = [value for key, value in found.items() if key.endswith("_over_admatch")]
    return {"wildcard_over_admatch": max(ratios), **found}


def _tagged(folder: Path, tags: int, seed: int) -> Path:
    """An index of records of many tags, with children of many tags."""
    random = Random(f"tags {seed}")
    _written(folder / "tagged.xml", tags, 20 * tags, random)
    build_index(
        folder / "tagged.xml",
        folder / "index",
        record=[f"t{number}" for number in range(tags)],
        identity=["*=@k"],
        schemes=("path", "vist"),
        calibrate=True,
    )
    return folder / "index"


def _written(file: Path, tags: int, records: int, random: Random) -> None:
    lines = ["<all>"]
    for number in range(records):
        names = [f"t{random.randrange(tags)}" for _ in range(6)]
        children = "".join(f"<{name}>x</{name}>" for name in names)
        tag = f"t{number % tags}"
        lines.append(f"<{tag} k='{number}'>{children}</{tag}>")
    file.write_text("\n".join([*lines, "</all>"]), encoding="utf-8")


def _first(index: Path, operator: Any, tags: int, seed: int, *, after: bool) -> float:
    """CPU seconds of the first message, or of the first after documents were added."""
    random = Random(f"first {seed}")
    numbers = [random.randrange(20 * tags) for _ in range(tags)]
    body = "".join(f"<t{number % tags} k='{number}'/>" for number in numbers)
    message = f"<m>{body}</m>".encode()
    with Middleware(index, operator=operator) as middleware:
        middleware.subscribe("//m/*/local:*", returns="name")
        if after:
            middleware.publish(message)
            more = index.parent / "more.xml"
            _written(more, tags, tags, random)
            add(index, more)
        return _seconds(lambda: middleware.publish(message).matches)
