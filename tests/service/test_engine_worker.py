"""A worker by itself: what strangers send must not change what it says of others."""

from __future__ import annotations

import json
import os
import struct
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from fmware.filtering import engine as filtering
from fmware.labeling import Vocabulary
from fmware.middleware import Middleware
from fmware.service.envelope import Envelope, now
from fmware.service.found import outcomes_of
from fmware.service.trial import Trial
from fmware.service.wire import question
from fmware.service.worker import Worker, serve
from tests.service.shop import CITY, SALE, message, shop

if TYPE_CHECKING:
    from pathlib import Path

    from fmware.service.envelope import Outcome
    from fmware.service.found import Found, Told


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shop(tmp_path_factory.mktemp("shop"))


def asked(name: str, body: bytes) -> Told:
    return "default", name, now(), body


def outcomes(found: Found) -> list[Outcome]:
    """What the engine makes of it."""
    envelopes = [Envelope(str(place), b"") for place in range(len(found))]
    return outcomes_of(envelopes, json.loads(json.dumps(found.numbers())), found.text)[0]


def told(found: Found) -> list[tuple[list[str], bool]]:
    """By message the statements that match, and whether it is poison."""
    return [
        (sorted(hit.statement for hit in each.hits), each.poison is not None)
        for each in outcomes(found)
    ]


def test_a_replacement_that_is_refused_leaves_the_old_statement(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker({"index": str(index)})
    assert worker.subscribe([("default", CITY)]) == []
    before = worker.match([asked("1", message(1))])
    real = Middleware.subscribe

    def subscribe(self: Middleware, statement: Any) -> Any:
        if "price" in statement.text:
            raise OverflowError("over the limit of states")
        return real(self, statement)

    monkeypatch.setattr(Middleware, "subscribe", subscribe)
    other = CITY | {"expression": "//sale/item/local:price"}
    assert [each[2] for each in worker.subscribe([("default", other)])] == [
        str(OverflowError("over the limit of states"))
    ]
    after = worker.match([asked("2", message(1))])
    assert told(after) == told(before) == [(["city"], False)]


def test_statements_that_fill_the_vocabulary_are_refused(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filtering, "Vocabulary", partial(Vocabulary, limit=100))
    worker = Worker({"index": str(index)})
    many = [("default", {"name": f"s{i}", "expression": f"//x{i}"}) for i in range(200)]
    refused = worker.subscribe([("default", SALE), *many])
    assert 50 < len(refused) < 200
    assert "full" in refused[0][2]
    assert told(worker.match([asked("m", b"<sale/>")])) == [(["sale"], False)]
    worker.close()


def test_what_goes_wrong_with_one_message_is_said_of_that_one(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker({"index": str(index)})
    worker.subscribe([("default", SALE)])
    publish = worker._tenancy.shared.middleware.publish_batch

    def fail(messages: Any, **options: Any) -> Any:
        if message(2) in messages:
            raise ZeroDivisionError("of all things")
        if message(3) in messages:
            raise OSError(5, "Input/output error")
        return publish(messages, **options)

    monkeypatch.setattr(worker._tenancy.shared.middleware, "publish_batch", fail)
    found = worker.match([asked(f"m{i}", message(i)) for i in range(5)])
    assert told(found) == [(["sale"], False)] * 2 + [([], True), ([], False), (["sale"], False)]
    said = "matching it failed unexpectedly: ZeroDivisionError at test_engine_worker.py:"
    each = outcomes(found)
    assert (each[2].poison or "").startswith(said)
    assert (each[2].poison or "").endswith(": of all things")
    assert [one.fault for one in each] == [False, False, True, True, False]
    assert [one.failed for one in each] == [False, False, False, True, False]
    assert each[3].errors == ["the index could not be asked: Input/output error"]
    worker.close()


def test_messages_do_not_wait_for_a_report(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report is asked for first, and waits until a message behind it is answered."""
    matched = threading.Event()
    report = Middleware.report

    def slow(self: Middleware, **options: Any) -> Any:
        assert matched.wait(30)
        return report(self, **options)

    monkeypatch.setattr(Middleware, "report", slow)
    taken, questions = os.pipe()
    answers, said = os.pipe()
    inbox, outbox = os.fdopen(taken, "rb"), os.fdopen(said, "wb")
    serving = threading.Thread(target=serve, args=(inbox, outbox), daemon=True)
    serving.start()
    with os.fdopen(questions, "wb") as to, os.fdopen(answers, "rb") as back:
        for ticket, (kind, about) in enumerate(
            [
                ("open", {"index": str(index)}),
                ("subscribe", [("default", SALE)]),
                ("report", None),
                ("match", [["default"], ["m"], [now()]]),
            ]
        ):
            bodies = [message(1)] if kind == "match" else []
            to.write(question(kind, ticket, about, bodies))
        to.flush()
        assert [read(back)[0] for _ in range(3)] == [0, 1, 3]
        matched.set()
        ticket, (told_,) = read(back)
        assert (ticket, told_["summary"]["statements"]) == (2, 1)
    serving.join(30)
    assert not serving.is_alive()
    inbox.close()
    outbox.close()


def read(file: Any) -> tuple[int, Any]:
    head, rest = struct.unpack("<QQ", file.read(16))
    ticket, about = json.loads(file.read(head + rest)[:head])
    return ticket, about


def test_a_report_that_fails_says_why(index: Path) -> None:
    worker = Worker({"index": str(index)})
    worker.close()
    assert worker.report()[0]["error"].startswith("MiddlewareClosed: ")


def test_what_is_tried_out_leaves_no_names(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The room for names is not used up, however often strangers try what."""
    monkeypatch.setattr(filtering, "Vocabulary", partial(Vocabulary, limit=100))

    trial = Trial(str(index), {})
    for turn in range(5):
        inside = "".join(f"<t{turn}_{number}/>" for number in range(60))
        body = f"<s{turn}>{inside}</s{turn}>".encode()
        told = trial.run({"expression": f"/s{turn}/t{turn}_7"}, body)
        assert len(told["matches"]) == 1
        assert trial.explain({"expression": f"/s{turn}/x"}, body)["matched"] is False
    trial.close()


def test_fresh_names_of_messages_change_nothing_for_others(index: Path) -> None:
    """Names that come once are neither kept nor counted together; one message may have too many."""
    worker = Worker({"index": str(index), "limits": {"names": 40}})
    assert worker.subscribe([("default", CITY), ("default", SALE)]) == []
    expected = told(worker.match([asked("0", message(1))]))
    size = worker.stats()["filter"]["bytes"]
    for turn in range(50):
        fresh = "".join(f"<n{turn * 30 + number}/>" for number in range(30)).encode()
        greedy = "".join(f"<n{number}/>" for number in range(41)).encode()
        found = worker.match(
            [
                asked(f"{turn}-fresh", b"<sale>" + fresh + b"</sale>"),
                asked(f"{turn}-greedy", b"<sale>" + greedy + b"</sale>"),
                asked(f"{turn}-other", message(1)),
            ]
        )
        assert told(found) == [(["sale"], False), ([], True), *expected]
        assert "raise Limits.names" in str(outcomes(found)[1].poison)
    assert worker.stats()["filter"]["bytes"] == size
    worker.close()
