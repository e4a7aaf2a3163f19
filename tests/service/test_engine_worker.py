"""A worker by itself: what strangers send must not change what it says of others."""

from __future__ import annotations

import json
import os
import struct
import threading
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from fmware.filtering import engine as filtering
from fmware.middleware import Middleware
from fmware.service.wire import question
from fmware.service.worker import Worker, serve
from labeling import Vocabulary
from tests.service.shop import CITY, SALE, message, shop

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shop(tmp_path_factory.mktemp("shop"))


def strange(first: int, count: int) -> bytes:
    """A message with so many names that nobody has heard of."""
    return b"<sale>%b</sale>" % b"".join(b"<t%d/>" % i for i in range(first, first + count))


def told(outcomes: list[Any]) -> list[tuple[list[str], bool]]:
    return [(sorted(hit[2] for hit in hits), bool(poison)) for hits, _, poison, *_ in outcomes]


def test_a_replacement_that_is_refused_leaves_the_old_statement(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker({"index": str(index)})
    assert worker.subscribe([("default", CITY)]) == []
    before, _ = worker.match([("default", "1", message(1))])
    real = Middleware.subscribe
    refused: list[Any] = []

    def subscribe(self: Middleware, statement: Any) -> Any:
        if not refused:
            refused.append(statement)
            raise OverflowError("over the limit of states")
        return real(self, statement)

    monkeypatch.setattr(Middleware, "subscribe", subscribe)
    assert [each[2] for each in worker.subscribe([("default", CITY)])] == [
        str(OverflowError("over the limit of states"))
    ]
    after, _ = worker.match([("default", "2", message(1))])
    assert told(after) == told(before) == [(["city"], False)]


@pytest.mark.parametrize("seed", range(3))
def test_names_that_fill_the_vocabulary_hurt_only_who_sends_them(
    index: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(filtering, "Vocabulary", partial(Vocabulary, limit=100))
    random = Random(seed)
    worker = Worker({"index": str(index)})
    assert worker.subscribe([("default", CITY), ("default", SALE)]) == []
    fresh = 0
    for _ in range(30):
        batch, wanted = [], []
        for _ in range(random.randrange(1, 9)):
            count = random.choice([0, 3, 20, 40, 200])
            fresh += count
            body = strange(fresh, count) if count else message(1)
            batch.append(("default", f"m{fresh}", body))
            wanted.append((["sale"] if count else ["city", "sale"], False))
            if count == 200:
                wanted[-1] = ([], True)
        outcomes, _ = worker.match(batch)
        assert told(outcomes) == wanted
    assert worker.stats()["renewals"] > 0
    assert worker.stats()["statements"] == 2
    worker.unsubscribe([("default", "city"), ("default", "gone")])
    assert told(worker.match([("default", "m", message(1))])[0]) == [(["sale"], False)]
    worker.close()


def test_statements_that_fill_the_vocabulary_are_refused(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filtering, "Vocabulary", partial(Vocabulary, limit=100))
    worker = Worker({"index": str(index)})
    many = [("default", {"name": f"s{i}", "expression": f"//x{i}"}) for i in range(200)]
    refused = worker.subscribe([("default", SALE), *many])
    assert 50 < len(refused) < 200
    assert "full" in refused[0][2]
    assert told(worker.match([("default", "m", b"<sale/>")])[0]) == [(["sale"], False)]
    worker.close()


def test_a_few_names_are_no_reason_to_begin_anew(index: Path) -> None:
    worker = Worker({"index": str(index)})
    worker.subscribe([("default", SALE)])
    for number in range(20):
        worker.match([("default", f"m{number}", strange(10 * number, 10))])
    assert worker.stats()["renewals"] == 0
    worker.close()


def test_what_goes_wrong_with_one_message_is_said_of_that_one(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker({"index": str(index)})
    worker.subscribe([("default", SALE)])
    publish = worker._middleware.publish_batch

    def fail(messages: Any, **options: Any) -> Any:
        if message(2) in messages:
            raise ZeroDivisionError("of all things")
        if message(3) in messages:
            raise OSError(5, "Input/output error")
        return publish(messages, **options)

    monkeypatch.setattr(worker._middleware, "publish_batch", fail)
    outcomes, _ = worker.match([("default", f"m{i}", message(i)) for i in range(5)])
    assert told(outcomes) == [(["sale"], False)] * 2 + [([], True), ([], False), (["sale"], False)]
    said = "matching it failed unexpectedly: ZeroDivisionError at test_engine_worker.py:"
    assert outcomes[2][2].startswith(said)
    assert outcomes[2][2].endswith(": of all things")
    assert [fault for *_, fault in outcomes] == [False, False, True, False, False]
    assert outcomes[3][1] == ["the index could not be asked: Input/output error"]
    worker.close()


def test_a_middleware_that_cannot_be_renewed_serves_on(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filtering, "Vocabulary", partial(Vocabulary, limit=100))
    worker = Worker({"index": str(index)})
    worker.subscribe([("default", SALE)])

    def refuse() -> Any:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as broken:
        broken.setattr(worker, "_opened", refuse)
        outcomes, _ = worker.match(
            [("default", "m1", strange(0, 60)), ("default", "m2", message(1))]
        )
        assert told(outcomes) == [(["sale"], False)] * 2
        assert worker._trouble == "Too many open files"
    assert told(worker.match([("default", "m3", message(1))])[0]) == [(["sale"], False)]
    assert worker.stats()["renewals"] == 1
    worker.close()


def test_messages_do_not_wait_for_a_report(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report is asked for first, and waits until a message behind it is answered."""
    matched = threading.Event()
    report = Middleware.report

    def slow(self: Middleware, **options: Any) -> Any:
        assert matched.wait(30)
        return report(self, **options)

    monkeypatch.setattr(Middleware, "report", slow)
    asked, questions = os.pipe()
    answers, said = os.pipe()
    inbox, outbox = os.fdopen(asked, "rb"), os.fdopen(said, "wb")
    serving = threading.Thread(target=serve, args=(inbox, outbox), daemon=True)
    serving.start()
    with os.fdopen(questions, "wb") as to, os.fdopen(answers, "rb") as back:
        for ticket, (kind, about) in enumerate(
            [
                ("open", {"index": str(index)}),
                ("subscribe", [("default", SALE)]),
                ("report", None),
                ("match", [("default", "m", message(1))]),
            ]
        ):
            to.write(question(kind, ticket, about))
        to.flush()
        assert [read(back)[0] for _ in range(3)] == [0, 1, 3]
        matched.set()
        ticket, told_ = read(back)
        assert (ticket, told_["summary"]["statements"]) == (2, 1)
    serving.join(30)
    assert not serving.is_alive()
    inbox.close()
    outbox.close()


def read(file: Any) -> tuple[int, Any]:
    (length,) = struct.unpack("<Q", file.read(8))
    ticket, about = json.loads(file.read(length))
    return ticket, about


def test_a_report_that_fails_says_why(index: Path) -> None:
    worker = Worker({"index": str(index)})
    worker.close()
    assert worker.report()["error"].startswith("MiddlewareClosed: ")
