"""Threads filter while others change the statements: no document sees half a change."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING

import pytest

from fmware.filtering import FilterEngine, FilterLimits, ForeignTable
from fmware.labeling import Reader
from tests.filtering.oracle import Document, Statement
from tests.filtering.workload import NAMESPACES, document, statement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECONDS = 1.0
P = {"p": "urn:p"}


class Crew:
    """Threads that do their work again and again until the time is over or one of them fails."""

    def __init__(self) -> None:
        self.failures: list[BaseException] = []
        self.stop = threading.Event()
        self.threads: list[threading.Thread] = []

    def hire(self, work: Callable[[], object], count: int = 1) -> None:
        self.threads += [threading.Thread(target=self._work, args=[work]) for _ in range(count)]

    def _work(self, work: Callable[[], object]) -> None:
        try:
            while not self.stop.is_set():
                work()
        except BaseException as failure:
            self.failures.append(failure)
            self.stop.set()


@contextmanager
def crew() -> Iterator[Crew]:
    hired = Crew()
    yield hired
    for thread in hired.threads:
        thread.start()
    hired.stop.wait(SECONDS)
    hired.stop.set()
    for thread in hired.threads:
        thread.join(30)
        assert not thread.is_alive()
    if hired.failures:
        raise hired.failures[0]


def churn(engine: FilterEngine, seed: int) -> Callable[[], None]:
    """Subscribes, replaces and unsubscribes statements of its own."""
    random = Random(seed)
    own: list[int] = []

    def change() -> None:
        draw = random.random()
        text, tuples = "".join(statement(random)), random.random() < 0.3
        if len(own) < 20 or draw < 0.3:
            own.append(engine.subscribe(text, namespaces=NAMESPACES, tuples=tuples))
        elif draw < 0.6:
            engine.replace(random.choice(own), text, namespaces=NAMESPACES, tuples=tuples)
        else:
            engine.unsubscribe(own.pop(random.randrange(len(own))))

    return change


@pytest.mark.parametrize("limits", [FilterLimits(), FilterLimits(cache=20_000)])
def test_statements_that_nobody_touches_are_always_answered_right(limits: FilterLimits) -> None:
    random = Random(5)
    engine = FilterEngine(limits=limits)
    kept: dict[int, Statement] = {}
    while len(kept) < 150:
        asked = Statement(statement(random))
        kept[engine.subscribe(asked.text, namespaces=NAMESPACES, tuples=len(kept) % 3 == 0)] = asked
    told = [Document(document(random)) for _ in range(30)]
    expected = [
        (
            {number for number, asked in kept.items() if asked.rows(one)},
            {n: asked.tuples(one) for n, asked in kept.items() if n % 3 == 0 and asked.rows(one)},
        )
        for one in told
    ]

    def look() -> None:
        index = threading.get_ident() % len(told)
        for step in range(len(told)):
            one = (index + step) % len(told)
            result = engine.filter(told[one].data)
            assert kept.keys() & set(result.ids.tolist()) == expected[one][0]
            assert len(set(result.ids.tolist())) == len(result.ids)
            found = {n: rows.tolist() for n, rows in result.tuples.items() if n in kept}
            assert found == expected[one][1]
            assert set(result.tuples) <= set(result.ids.tolist())

    with crew() as hired:
        hired.hire(look, 3)
        hired.hire(churn(engine, 1))
        hired.hire(churn(engine, 2))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["/a", "/b"], ["/a", "/c"]),
        (["//a[@x = 1]"], ["//c"]),
        (["//a[b//d]", "//d"], ["//a[not(b//z)]"]),
        (["/a[@x = 1]", "//*[1]"], ["/a[not(@x = 2)]", "/*[2]"]),
        (["//p:*"], ["/a[.//p:*]"]),
        (["//a[c = 7]", "//@x"], ["/a[@x]", "//text()"]),
    ],
)
def test_a_statement_that_is_replaced_is_there_once_at_every_moment(
    one: list[str], other: list[str]
) -> None:
    # Both match, by different nodes: one of them is there, whole, whenever a document comes.
    told = Document(b"<a x='1'><b><d/></b><c>7</c><p:e xmlns:p='urn:p'/></a>")
    first, second = Statement(one), Statement(other)
    expected = [first.tuples(told), second.tuples(told)]
    assert expected[0] != expected[1]
    engine = FilterEngine()
    number = engine.subscribe(first.text, namespaces=P)
    asking = engine.subscribe(first.text, namespaces=P, tuples=True)
    seen = set()

    random = Random(1)

    def swap() -> None:
        # At random, and with a pause: threads in step with each other would see one of the two.
        asked = random.choice((first, second))
        engine.replace(number, asked.text, namespaces=P)
        engine.replace(asking, asked.text, namespaces=P, tuples=True)
        time.sleep(random.random() / 1000)

    def look() -> None:
        result = engine.filter(told.data)
        assert sorted(result.ids.tolist()) == [number, asking]
        assert list(result.tuples) == [asking]
        assert result.tuples[asking].tolist() in expected
        seen.add(result.tuples[asking].tolist() == expected[0])

    with crew() as hired:
        hired.hire(look, 2)
        hired.hire(swap)
    assert seen == {True, False}


def test_a_statement_counts_from_the_return_of_subscribe_to_the_call_of_unsubscribe() -> None:
    engine = FilterEngine()
    engine.subscribe("/a")
    texts = [f"/a/n{index}[@x]" for index in range(40)] + [f"//n{index}" for index in range(40)]

    def come_and_go(seed: Random) -> None:
        text = seed.choice(texts)
        name = text.lstrip("/").removeprefix("a/").removesuffix("[@x]")
        data = f"<a><{name} x=''/></a>".encode()
        number = engine.subscribe(text)
        # New names all the time: what was read just before a subscription must be read again.
        assert number in engine.filter(data)
        engine.unsubscribe(number)

    with crew() as hired:
        for seed in range(3):
            random = Random(seed)
            hired.hire(lambda random=random: come_and_go(random))  # type: ignore[misc]


def test_a_table_without_values_is_refused_or_answered_while_predicates_come_and_go() -> None:
    engine = FilterEngine()
    plain = engine.subscribe("/a/b")
    table = Reader(engine.vocabulary, values=False).read(b"<a><b>1</b></a>")

    def come_and_go() -> None:
        engine.unsubscribe(engine.subscribe("/a[b = 1]/b[contains(., 'x')]"))

    def look() -> None:
        try:
            assert engine.filter(table).ids.tolist() == [plain]
        except ForeignTable:
            time.sleep(0)

    with crew() as hired:
        hired.hire(look, 2)
        hired.hire(come_and_go)


def test_all_is_gone_when_all_threads_have_taken_back_what_they_brought() -> None:
    engine = FilterEngine()

    def come_and_go(random: Random) -> None:
        own = [
            engine.subscribe("".join(statement(random)), namespaces=NAMESPACES) for _ in range(10)
        ]
        engine.filter(document(random))
        random.shuffle(own)
        for number in own:
            engine.unsubscribe(number)

    with crew() as hired:
        for seed in range(4):
            random = Random(seed)
            hired.hire(lambda random=random: come_and_go(random))  # type: ignore[misc]
    stats = engine.stats()
    assert len(engine) == 0
    assert (stats["states"], stats["edges"], stats["patterns"], stats["entries"]) == (1, 0, 0, 0)
    assert stats["conditions"] == stats["literals"] == 0
