"""Threads share a middleware: every answer is that of one moment.

Statements and records have versions. A statement's name says what it finds, so that a number which
has become another statement's is seen; each generation of the index has one city more, so that an
answer says of which generation it is.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from bisect import bisect_left
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from fmware import Middleware
from fmware.corpus import add, build_index
from fmware.middleware import MiddlewareClosed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fmware import Result, Results

SECONDS = 2.5
GENERATIONS = 12
MARKS = 4
"""Marks that messages have or do not have, and that statements ask for."""

Answer = list[tuple[str, str | None]]
"""The names of matching statements, with the value that was found."""


@pytest.fixture
def index(tmp_path: Path) -> Path:
    (tmp_path / "0.xml").write_text("<stock><item k='1'><city>0</city></item></stock>")
    build_index(tmp_path / "0.xml", tmp_path / "index", record="item", identity=["item=@k"])
    return tmp_path / "index"


def grow(index: Path, generation: int) -> None:
    """Another item with the same key, whose city is the number of the generation."""
    more = index.parent / f"{generation}.xml"
    more.write_text(f"<stock><item k='1'><city>{generation}</city></item></stock>")
    add(index, more)


# --- statements that say what they find -----------------------------------------------------


def name_of(owner: str, number: int) -> str:
    kind, mark = ("name", "value", "city")[number % 3], number // 3 % MARKS
    return f"{owner} {number} {kind} {mark}"


def subscribe(middleware: Middleware, name: str) -> None:
    _, _, kind, mark = name.split()
    texts = {"name": "//m[t{}]", "value": "//m/t{}", "city": "//m[t{}]/item/local:city"}
    returns = "name" if kind == "name" else "value"
    middleware.subscribe(texts[kind].format(mark), name=name, returns=returns)


def message(marks: frozenset[int]) -> bytes:
    return f"<m>{''.join(f'<t{mark}>{mark}</t{mark}>' for mark in marks)}<item k='1'/></m>".encode()


def expected(names: frozenset[str], marks: frozenset[int], generation: int) -> Answer:
    found: Answer = []
    for name in names:
        _, _, kind, mark = name.split()
        if int(mark) in marks:
            cities = [str(number) for number in range(generation + 1)]
            values: dict[str, list[Any]] = {"name": [None], "value": [mark], "city": cities}
            found += [(name, value) for value in values[kind]]
    return sorted(found, key=str)


def answer(result: Result) -> Answer:
    assert not result.errors, result.errors
    return sorted(
        (
            (match.statement, match.local.value if match.local else match.value)
            for match in result.matches
        ),
        key=str,
    )


# --- what was in force when -----------------------------------------------------------------

clock = itertools.count().__next__
"""Ticks, in the order of what happens."""


@dataclass
class History:
    """The states of something, and the ticks between which each came into force."""

    called: list[int] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    states: list[Any] = field(default_factory=list)

    def change(self, state: Any, act: Callable[[], object]) -> None:
        self.states.append(state)
        self.called.append(clock())
        act()
        self.done.append(clock())

    def between(self, begin: int, end: int) -> list[Any]:
        """The states that may have been in force at some moment between two ticks."""
        first = bisect_left(self.done, begin) - 1
        return self.states[max(first, 0) : bisect_left(self.called, end)]


@dataclass
class Seen:
    """A batch that was published: when, of what, and what came back."""

    begin: int
    end: int
    marks: list[frozenset[int]]
    results: Results


class Crew:
    """Threads that work until the time is over, or until one of them fails."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.failures: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def hire(self, work: Callable[[], object]) -> None:
        self._threads.append(threading.Thread(target=self._repeat, args=[work]))

    def _repeat(self, work: Callable[[], object]) -> None:
        try:
            while not self.stop.is_set():
                work()
        except BaseException as failure:
            self.failures.append(failure)
            self.stop.set()

    def run(self, seconds: float) -> None:
        for thread in self._threads:
            thread.start()
        self.stop.wait(seconds)
        self.stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()
        if self.failures:
            raise self.failures[0]


def changer(middleware: Middleware, owner: str) -> tuple[History, Callable[[], None]]:
    """Subscribes and unsubscribes statements of its own; numbers go round between all owners."""
    random, numbers = Random(owner), itertools.count()
    history = History([-1], [-1], [frozenset()])

    def change() -> None:
        own = history.states[-1]
        if len(own) < 6 or (len(own) < 12 and random.random() < 0.5):
            name = name_of(owner, next(numbers))
            history.change(own | {name}, lambda: subscribe(middleware, name))
        else:
            name = random.choice(sorted(own))
            history.change(own - {name}, lambda: middleware.unsubscribe(name))
        time.sleep(random.choice((0, 0, 0.0005)))

    return history, change


def publisher(middleware: Middleware, seed: int) -> tuple[list[Seen], Callable[[], None]]:
    random = Random(seed)
    seen: list[Seen] = []

    def publish() -> None:
        count = random.choice((1, 1, 2, 8))
        marks = [
            frozenset(mark for mark in range(MARKS) if random.random() < 0.6) for _ in range(count)
        ]
        begin = clock()
        results = middleware.publish_batch([message(each) for each in marks])
        seen.append(Seen(begin, clock(), marks, results))

    return seen, publish


def grower(index: Path) -> tuple[History, Callable[[], None]]:
    history = History([-1], [-1], [0])

    def one_more() -> None:
        generation = history.states[-1] + 1
        if generation <= GENERATIONS:
            history.change(generation, lambda: grow(index, generation))
        time.sleep(SECONDS / GENERATIONS / 2)

    return history, one_more


def check(seen: Seen, generations: History, owners: dict[str, History]) -> None:
    """A batch is of one generation, and of one state of every owner's statements."""
    answers = [answer(result) for result in seen.results]
    found = {
        sum(1 for name, _ in each if name == "always 2 city 0")
        for each, marks in zip(answers, seen.marks, strict=True)
        if 0 in marks
    }
    allowed = generations.between(seen.begin, seen.end)
    assert len(found) <= 1
    assert {count - 1 for count in found} <= {*allowed}
    options = [count - 1 for count in found] or allowed
    for owner, history in owners.items():
        own = [[each for each in line if each[0].split()[0] == owner] for line in answers]
        states = history.between(seen.begin, seen.end)
        assert any(
            own == [expected(names, marks, generation) for marks in seen.marks]
            for names in states
            for generation in options
        ), (own, states, options)


def test_every_answer_is_that_of_one_moment(index: Path) -> None:
    crew = Crew()
    with Middleware(index, follow=True) as middleware:
        subscribe(middleware, "always 2 city 0")
        owners = {}
        for owner in ("ada", "bob"):
            owners[owner], change = changer(middleware, owner)
            crew.hire(change)
        generations, one_more = grower(index)
        crew.hire(one_more)
        published = []
        for seed in range(3):
            seen, publish = publisher(middleware, seed)
            published.append(seen)
            crew.hire(publish)
        crew.run(SECONDS)
    for seen_ in itertools.chain(*published):
        check(seen_, generations, owners)
    assert all(published)
    assert generations.states[-1] > 1
    assert all(len(history.states) > 20 for history in owners.values())


def test_the_check_sees_what_is_wrong(index: Path) -> None:
    """A name with another's value, a statement that had gone, a generation that was not there."""
    owners = {"ada": History([-1, 4], [-1, 5], [frozenset({"ada 1 value 0"}), frozenset()])}
    marks = [frozenset({0})]
    with Middleware(index) as middleware:
        subscribe(middleware, "always 2 city 0")
        middleware.subscribe("//m/t0", name="ada 1 value 0", returns="value")
        good = middleware.publish_batch([message(marks[0])])
        middleware.unsubscribe("ada 1 value 0")
        middleware.subscribe("//m/item", name="ada 1 value 0", returns="value")
        wrong = middleware.publish_batch([message(marks[0])])
    now = History([-1], [-1], [0])
    check(Seen(1, 2, marks, good), now, owners)
    check(Seen(1, 6, marks, good), now, owners)
    for seen, generations in (
        (Seen(1, 2, marks, wrong), now),
        (Seen(6, 7, marks, good), now),
        (Seen(1, 2, marks, good), History([-1], [-1], [1])),
    ):
        with pytest.raises(AssertionError):
            check(seen, generations, owners)


# --- closing, reporting, awaiting -----------------------------------------------------------


def publish_on(
    middleware: Middleware, ready: threading.Barrier, ended: list[BaseException]
) -> None:
    """Publish until that fails, and say how."""
    ready.wait()
    try:
        while True:
            for result in middleware.publish_batch([message(frozenset({0}))] * 4):
                assert answer(result)[0] == ("always 2 city 0", "0")
    except BaseException as error:
        ended.append(error)


@pytest.mark.parametrize("follow", [False, True])
def test_it_is_closed_while_others_publish(index: Path, follow: bool) -> None:
    """A batch is answered as a whole, or the middleware is closed: nothing between."""
    for turn in range(6):
        middleware = Middleware(index, follow=follow)
        subscribe(middleware, "always 2 city 0")
        ready = threading.Barrier(4)
        ended: list[BaseException] = []
        threads = [
            threading.Thread(target=publish_on, args=[middleware, ready, ended]) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        ready.wait()
        if follow:
            grow(index, turn + 1)
        time.sleep(turn * 0.002)
        middleware.close()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
        assert [type(each) for each in ended] == [MiddlewareClosed] * 3, ended
        with pytest.raises(MiddlewareClosed):
            middleware.subscribe("//a")
        with pytest.raises(MiddlewareClosed):
            middleware.refresh()
        with pytest.raises(MiddlewareClosed):
            middleware.report()


def test_a_thread_that_closes_during_a_refresh_is_noticed(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    middleware = Middleware(index)
    subscribe(middleware, "always 2 city 0")
    grow(index, 1)
    refresh = middleware.refresh

    def closed_after() -> bool:
        done = refresh()
        other = threading.Thread(target=middleware.close)
        other.start()
        other.join(30)
        return done

    monkeypatch.setattr(middleware, "refresh", closed_after)
    with pytest.raises(MiddlewareClosed):
        middleware.publish(message(frozenset({0})))


def test_reports_are_made_while_others_publish(index: Path) -> None:
    crew = Crew()
    counts: list[int] = []
    with Middleware(index) as middleware:
        subscribe(middleware, "always 2 city 0")
        _, change = changer(middleware, "ada")
        crew.hire(change)
        published = []
        for seed in range(2):
            seen, publish = publisher(middleware, seed)
            published.append(seen)
            crew.hire(publish)
        crew.hire(lambda: counts.append(middleware.report(seconds=0.05).summary.messages))
        crew.run(1.0)
        total = sum(len(each.marks) for seen in published for each in seen)
        summary = middleware.report(seconds=0.05).summary
        assert summary.messages == total
        matches = sum(each.results.match_count for seen in published for each in seen)
        assert summary.matches == matches
    assert counts == sorted(counts)
    assert counts


def test_counting_has_room_before_a_statement_can_match(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts are written without a check of bounds."""
    with Middleware(index) as middleware:
        known = []
        forget = middleware._totals.forget

        def noted(number: int) -> None:
            known.append(number in dict(middleware._registry.items()))
            forget(number)

        monkeypatch.setattr(middleware._totals, "forget", noted)
        for number in range(3):
            middleware.subscribe("//a", name=str(number))
        assert known == [False] * 3


def test_a_middleware_is_left_without_holding_up_the_loop(index: Path) -> None:
    """While it waits for a batch under way, other tasks go on."""
    marks = frozenset({0})

    async def run() -> list[Answer]:
        async with Middleware(index) as middleware:
            subscribe(middleware, "always 2 city 0")
            results = await asyncio.gather(
                *(middleware.publish_async(message(marks)) for _ in range(8))
            )
            middleware._gate.__enter__()  # A batch that takes its time.
            leaving = asyncio.create_task(middleware.__aexit__(None, None, None))
            await asyncio.sleep(0.05)
            assert not leaving.done()
            middleware._gate.__exit__()
            await leaving
        with pytest.raises(MiddlewareClosed):
            await middleware.publish_async(message(marks))
        return [answer(each) for each in results]

    assert asyncio.run(run()) == [[("always 2 city 0", "0")]] * 8


def test_a_batch_of_an_awaited_stream_has_a_message_at_least(index: Path) -> None:
    async def source() -> Any:
        yield b"<a/>"

    async def run() -> None:
        async with Middleware(index) as middleware:
            async for _ in middleware.stream_async(source(), batch=0):
                pass

    with pytest.raises(ValueError, match="at least one message"):
        asyncio.run(run())
