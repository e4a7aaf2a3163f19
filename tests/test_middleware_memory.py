"""Messages that go through a middleware leave nothing behind, whatever names they have."""

from __future__ import annotations

import json
import subprocess
import sys
from ctypes import CDLL
from pathlib import Path

import pytest

from fmware.corpus import build_index
from fmware.labeling import _kernel

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(
    not _kernel.reads_events() or not hasattr(CDLL(None), "malloc_trim"),
    reason="this lxml does not export its libxml2, or this is not glibc",
)

_MEASURED = """
import ctypes, gc, json, resource, sys
import pyarrow as pa
from fmware import LabelingError, Middleware

resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))


def held():
    # Without what allocators keep for the next time, which differs from one time to the next.
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


def names(count, start):
    return "".join(f"<p:n{start + i} a{start + i}=''/>" for i in range(count))


def look(results, good):
    # Every form of a result is made, and of the rest nothing may stay, either.
    table = results.to_arrow()
    results.to_json_lines()
    for result, fine in zip(results, good, strict=True):
        if not fine:
            (error,) = result.errors
            assert isinstance(error, LabelingError), error
            continue
        assert not result.errors
        found = {match.statement: match for match in result.matches}
        assert found["root"].fragment.startswith(b"<r ")
        assert found["first"].nodes and found["space"].value == ""
        assert found["city"].local.value == "Ulm"
        assert result.table.path(len(result.table) - 1)


def long_uri(start, end):
    uri = "u" * 950_000
    return f"<r xmlns:p='urn:{uri}{start}'>{names(3_000, start)}{tail(start)}{end}".encode()


def tail(start):
    return f"<item k='1'/><q:x{start} xmlns:q='urn:p'/>"


def large(middleware, start):
    for end in ("</r>", "</q>", "<x:y/></r>", "<p:n></r>"):
        look(middleware.publish_batch([long_uri(start, end)]), [end == "</r>"])


def small(middleware, start):
    for first in range(0, 10_000, 50):
        messages, good = [], []
        for number in range(first, first + 50):
            at = start + number * 10
            space = f"urn:{at}" if number % 2 else "urn:other"
            text = f"<r xmlns:p='{space}'>{names(8, at)}{tail(at)}</r>".encode()
            good.append(number % 10 != 3)
            messages.append(text if good[-1] else text[:-1])
        results = middleware.publish_batch(messages)
        if first % 1_000 == 0:
            look(results, good)


def run(act, turns):
    with Middleware(sys.argv[2]) as middleware:
        prefixes = {"p": "urn:p"}
        for name, text, returns in (
            ("root", "/r", "fragment"),
            ("first", "/r/*[1]", "message"),
            ("space", "//p:*", ["message", "value", "fragment"]),
            ("all", "//@*", "name"),
            ("city", "//item/local:city", ["message", "local", "value"]),
        ):
            middleware.subscribe(text, name=name, namespaces=prefixes, returns=returns)
        for turn in range(2):
            act(middleware, turn * 100_000)
        known, before = len(middleware.reader.vocabulary), held()
        for turn in range(2, 2 + turns):
            act(middleware, turn * 100_000)
        assert len(middleware.reader.vocabulary) == known
        print(json.dumps(held() - before))


run({"large": large, "small": small}[sys.argv[1]], int(sys.argv[3]))
"""


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("corpus")
    (place / "stock.xml").write_text("<stock><item k='1'><city>Ulm</city></item></stock>")
    build_index(place / "stock.xml", place / "index", record="item", identity=["item=@k"])
    return place / "index"


@pytest.mark.parametrize(
    ("sort", "turns"),
    [("large", 3), ("small", 1), pytest.param("small", 8, marks=pytest.mark.slow)],
)
def test_messages_leave_nothing_behind(index: Path, sort: str, turns: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, sort, str(index), str(turns)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert json.loads(done.stdout) < 4
