"""What is kept is bounded by number and by bytes: at the bound, over it, and after a restart."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from fmware.service.database import Database
from fmware.service.envelope import DeadLetter
from fmware.service.hooks import SCHEMA as HOOKS
from fmware.service.hooks import Hook, Hooks
from fmware.service.letters import SCHEMA as OLD_LETTERS
from fmware.service.letters import Letters
from fmware.service.log import MatchLog
from fmware.service.positions import SCHEMA, Positions
from fmware.service.shelf import Bound, Held
from tests.service.receivers import answered, hit, receiver, run, running, until
from tests.service.running import Threaded, make_index

if TYPE_CHECKING:
    from pathlib import Path

MB = 1 << 20
NUMBER = 5
SIZE = 400

adds = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, SIZE)), max_size=40)


def letter(name: str, size: int = 0, tenant: str = "t") -> DeadLetter:
    return DeadLetter(name, b"<" * size, "bad", tenant, "here")


def kept(letters: Letters, *tenants: str) -> list[str]:
    return [each["id"] for tenant in tenants or "t" for each in letters.after(tenant, 0, 100)]


# --- the bound ----------------------------------------------------------------------------------


@given(adds)
@settings(deadline=None, max_examples=60)
def test_it_is_never_over_the_bound_and_what_goes_is_the_oldest(
    tmp_path_factory: pytest.TempPathFactory, adds: list[tuple[str, int]]
) -> None:
    place = tmp_path_factory.mktemp("shelf") / "letters.db"
    letters = Letters(place, Bound(NUMBER, SIZE))
    given: defaultdict[str, list[str]] = defaultdict(list)
    for number, (tenant, size) in enumerate(adds):
        letters.add(letter(str(number), size, tenant))
        given[tenant].append(str(number))
        found = {each: letters.after(each, 0, 100) for each in "abc"}
        assert found[tenant][-1]["id"] == str(number), "what comes is kept"
        held = {
            each: Held(
                len(rows), sum(len(row["id"] + "bad" + "here" + row["body"]) for row in rows)
            )
            for each, rows in found.items()
            if rows and all("more than is kept" not in row["reason"] for row in rows)
        }
        assert held.items() <= dict(letters.shelf.held).items()
        assert sum(each.number for each in letters.shelf.held.values()) <= NUMBER
        assert sum(each.size for each in letters.shelf.held.values()) <= SIZE
        for each, rows in found.items():
            names = [row["id"] for row in rows]
            assert names == given[each][len(given[each]) - len(names) :], "the oldest go first"
            assert letters.shelf.dropped[each] == len(given[each]) - len(names)
    before = dict(letters.shelf.held)
    letters.close()
    again = Letters(place, Bound(NUMBER, SIZE))
    assert again.shelf.held == before
    assert not again.shelf.dropped
    again.close()


def test_who_has_most_makes_room(tmp_path: Path) -> None:
    letters = Letters(tmp_path / "letters.db", Bound(100, 10_000))
    for number in range(3):
        letters.add(letter(f"quiet{number}", 1000, "quiet"))
    for number in range(30):
        letters.add(letter(f"loud{number}", 1500, "loud"))
    assert kept(letters, "quiet") == ["quiet0", "quiet1", "quiet2"]
    assert kept(letters, "loud") == [f"loud{number}" for number in range(26, 30)]
    assert letters.shelf.dropped == Counter(loud=26)
    letters.close()


def test_one_that_comes_again_takes_the_place_of_itself(tmp_path: Path) -> None:
    letters = Letters(tmp_path / "letters.db", Bound(2, 10_000))
    for name in ("a", "b", "b", "b"):
        letters.add(letter(name, 3000))
    assert kept(letters) == ["a", "b"]
    assert letters.shelf.held == {"t": Held(2, 2 * (3000 + 1 + 3 + 4))}
    assert not letters.shelf.dropped
    letters.close()


def test_one_that_is_larger_than_all_is_kept_without_its_bytes(tmp_path: Path) -> None:
    letters = Letters(tmp_path / "letters.db", Bound(100, 10_000))
    letters.add(letter("small", 100))
    letters.add(DeadLetter("large", b"<" * 10_001, "bad " * 10_000, "t", "here"))
    small, large = letters.after("t", 0, 10)
    assert (small["id"], len(small["body"])) == ("small", 100)
    assert large["body"] == ""
    assert large["reason"].startswith("bad bad")
    assert large["reason"].endswith("(its 10,001 bytes are more than is kept)")
    assert len(large["reason"]) < 2000
    assert not letters.shelf.dropped
    letters.close()


def test_the_file_stays_small_however_much_comes(tmp_path: Path) -> None:
    letters = Letters(tmp_path / "letters.db", Bound(10_000, 2 * MB))
    for number in range(60):
        letters.add(letter(str(number), 300_000))
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 10 * MB
    letters.close()
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 3 * MB


def test_what_could_not_be_written_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = Letters(tmp_path / "letters.db", Bound(2, 10_000))
    letters.add(letter("a"))
    letters.add(letter("b"))
    before = dict(letters.shelf.held)
    monkeypatch.setattr("fmware.service.letters.ADD", "INSERT INTO nothing VALUES (?,?,?,?,?,?)")
    with pytest.raises(sqlite3.OperationalError):
        letters.add(letter("c"))
    monkeypatch.undo()
    assert (dict(letters.shelf.held), letters.shelf.dropped) == (before, Counter())
    assert kept(letters) == ["a", "b"]
    letters.add(letter("d"))
    assert kept(letters) == ["b", "d"]
    letters.close()


# --- another start ------------------------------------------------------------------------------


def test_a_lower_bound_is_kept_at_the_next_start_and_the_disk_gets_its_room(tmp_path: Path) -> None:
    place = tmp_path / "letters.db"
    letters = Letters(place, Bound(100, 20 * MB))
    for number in range(20):
        letters.add(letter(str(number), MB // 2))
    letters.close()
    assert place.stat().st_size > 10 * MB
    with capture_logs() as told:
        again = Letters(place, Bound(100, 2 * MB))
    assert kept(again) == ["17", "18", "19"]
    assert [(each["event"], each["by"]) for each in told] == [("dropped over the bound", {"t": 17})]
    again.add(letter("20"))
    assert again.after("t", 0, 10)[-1]["position"] == 21
    again.close()
    assert place.stat().st_size < 3 * MB


def test_a_disk_without_room_to_shrink_stops_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = Letters(tmp_path / "letters.db", Bound(3, MB))
    for number in range(3):
        letters.add(letter(str(number)))
    letters.close()

    def full(_: Database) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Database, "shrink", full)
    with capture_logs() as told:
        again = Letters(tmp_path / "letters.db", Bound(1, MB))
    assert [each["event"] for each in told][-1] == "the file stays as large as it was"
    assert kept(again) == ["2"]
    again.close()


def test_files_of_before_are_counted_when_they_are_opened(tmp_path: Path) -> None:
    old = Database(tmp_path / "letters.db", OLD_LETTERS)
    with old.transaction() as rows:
        for name in ("ä", "b", "c"):
            about = ("t", name, "bad", "here", 0.0, b"x" * 1000)
            rows.execute(
                "INSERT INTO letters (tenant, id, reason, source, at, body) VALUES (?,?,?,?,?,?)",
                about,
            )
    old.close()
    letters = Letters(tmp_path / "letters.db", Bound(100, 2500))
    assert kept(letters) == ["b", "c"]
    assert letters.shelf.held == {"t": Held(2, 2 * 1008)}
    letters.close()


# --- in the service -----------------------------------------------------------------------------


def test_the_log_says_that_letters_went_and_not_for_each(tmp_path: Path) -> None:
    async def check() -> None:
        log = MatchLog(tmp_path, letters=Bound(3, MB))
        await log.open()
        for number in range(10):
            await log.dead(letter(str(number)))
        await log.close()

    with capture_logs() as told:
        asyncio.run(check())
    assert [(each["event"], each["letters"], each["log_level"]) for each in told] == [
        ("dead letters dropped", 1, "warning"),
        ("dead letters dropped", 6, "warning"),
    ]


def test_a_stream_of_large_bad_messages_fills_no_disk(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    state = tmp_path / "state"
    said = (f"index={index}", f"state={state}", f"log.letter_bytes={MB}")

    def bytes_of(text: str, name: str) -> float:
        (line,) = [each for each in text.splitlines() if each.startswith(f"{name}{{")]
        return float(line.rpartition(" ")[2])

    with Threaded(*said) as served, served.client() as client:
        for number in range(12):
            body = b"<sale>" + bytes([97 + number]) * 300_000
            client.post("/v1/messages", content=body, headers={"Message-Id": f"m{number}"})
        found = client.get("/v1/dead-letters").json()["letters"]
        assert [each["id"] for each in found] == ["m9", "m10", "m11"]
        text = client.get("/metrics").text
        assert bytes_of(text, "fmware_letters_dropped_total") == 9
        assert bytes_of(text, "fmware_letters") == 3
        assert 900_000 < bytes_of(text, "fmware_letter_bytes") <= MB
    files = (state / "log").glob("letters.db*")
    assert sum(file.stat().st_size for file in files) < 3 * MB
    with Threaded(*said) as served, served.client() as client:
        found = client.get("/v1/dead-letters").json()["letters"]
        assert [each["id"] for each in found] == ["m9", "m10", "m11"]
        client.post("/v1/messages", content=b"<sale>", headers={"Message-Id": "m12"})
        assert len(client.get("/v1/dead-letters").json()["letters"]) == 4


def test_what_webhooks_gave_up_is_bounded_by_bytes(tmp_path: Path) -> None:
    database = Database(tmp_path / "w.db", SCHEMA)
    positions = Positions(database, Bound(100, 10_000))
    positions.give_up("quiet", 1, "quiet:1", 1, "no", b"q" * 1000)
    for number in range(10):
        positions.give_up("crm", number, f"crm:{number}", 1, "no", b"c" * 2000)
    names = ["quiet:1", "crm:6", "crm:7", "crm:8", "crm:9"]
    assert [each["delivery"] for each in positions.dead()] == names
    gone = positions.give_up("crm", 11, "crm:11", 1, "no", b"c" * 20_000, b"{}")
    assert gone == Counter()
    last = positions.dead()[-1]
    assert (last["body"], last["reason"]) == ("{}", "no (its 20,000 bytes are more than is kept)")
    assert positions.get("crm") == 11
    database.close()


def test_a_webhook_tells_what_it_keeps_no_more(tmp_path: Path) -> None:
    told: list[tuple[str, dict[str, Any]]] = []

    async def check() -> None:
        async with (
            receiver(answered(410)) as server,
            running(tmp_path, server, batch=1, dead_bytes=MB, told=told) as (log, hooks),
        ):
            for number in range(4):
                large = hit(number)
                large.match["fragment"] = "x" * 400_000
                await log.write([large])
            huge = hit(4)
            huge.match["fragment"] = "x" * 2 * MB
            await log.write([huge])
            await until(lambda: hooks.states["crm"].dead == 5)
            dead = await hooks.dead("default", "crm", 0, 10)
            assert [each["delivery"] for each in dead] == ["crm:3-3", "crm:4-4", "crm:5-5"]
            assert json.loads(dead[-1]["body"]) == {"target": "crm", "tenant": "default"}
            sender = hooks.get("default", "crm")
            assert sender.snapshot()["dropped"] == 2
            assert 800_000 < sender.kept_dead.size <= MB

    run(check())
    gone = [about for event, about in told if event == "webhook_dead_dropped"]
    assert gone == [{"target": "crm", "tenant": "default", "deliveries": 1, "of": ["crm"]}] * 2


def test_a_webhook_that_is_deleted_leaves_its_room_to_others(tmp_path: Path) -> None:
    database = Database(tmp_path / "w.db", SCHEMA + HOOKS)
    positions = Positions(database, Bound(2, MB))
    hooks = Hooks(database)
    hook = Hook("ann", "crm", "https://example.com/", ())
    hooks.put(hook, 0)
    for number in range(3):
        positions.give_up(hook.key, number, f"crm:{number}", 1, "no", b"{}")
    hooks.delete(hook)
    positions.forget(hook.key)
    assert (positions.shelf.held, positions.shelf.dropped) == ({}, Counter())
    for number in range(2):
        assert not positions.give_up("other", number, f"other:{number}", 1, "no", b"{}")
    assert positions.shelf.held == {"other": Held(2, 2 * len("other:0" + "no" + "{}"))}
    database.close()
