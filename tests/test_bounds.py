"""What one message may have of the corpus is bounded while it is made."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from fmware import FMwareError, MatchLimits, Middleware
from fmware.corpus import build_index

if TYPE_CHECKING:
    from pathlib import Path

AUTHORS = 40
TEXT = "x" * 5000


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bounds")
    authors = "".join(f"<author>{number}</author>" for number in range(AUTHORS))
    books = "".join(
        f"<book k='{number}'>{authors}<text>{TEXT}</text></book>" for number in range(3)
    )
    (folder / "books.xml").write_text(f"<books>{books}</books>")
    build_index(
        folder / "books.xml", folder / "index", record="book", identity=["book=@k"], calibrate=False
    )
    return folder / "index"


def order(*keys: int, times: int = 1) -> bytes:
    books = "".join(f"<book k='{key}'/>" for key in keys) * times
    return f"<order>{books}</order>".encode()


@pytest.mark.parametrize("operator", ["auto", "cmatch", "admatch"])
def test_a_message_with_very_many_anchors_on_one_record(index: Path, operator: str) -> None:
    with Middleware(index, operator=operator, match_limits=MatchLimits(pairs=10_000)) as middleware:  # type: ignore[arg-type]
        middleware.subscribe("//book/local:author", name="authors", returns=["message", "local"])
        middleware.subscribe("//order", name="plain")
        many, few = middleware.publish_batch([order(0, times=100_000), order(1)])
        assert many.truncated == ["authors"]
        assert "more matches than the limits allow" in many.problems[0]
        assert many.results.incomplete == [many]
        found = Counter(match.statement for match in many.matches)
        # Pieces of anchors whose pairs are sure to fit are joined, until enough were found.
        assert 10_000 <= found["authors"] <= 20_000
        assert found["plain"] == 1
        assert not few.truncated
        assert Counter(match.statement for match in few.matches)["authors"] == AUTHORS
        # Nothing is left of it: the next message has all it asks for.
        again = middleware.publish(order(0, 1, 2))
        assert not again.truncated
        assert len(again.matches) == 3 * AUTHORS + 1


def test_values_and_fragments_are_bounded_in_what_is_written(index: Path) -> None:
    limits = MatchLimits(bytes=20 * len(TEXT))
    returns = ["message", "value", "fragment"]
    for form in ("value", "fragment", "json"):
        with Middleware(index, match_limits=limits) as middleware:
            middleware.subscribe("//book/local:text", name="texts", returns=returns)
            results = middleware.publish_batch([order(0), order(1, times=500), order(2)])
            assert results.match_count == 502
            if form == "json":
                lines = [json.loads(line) for line in results.to_json_lines().splitlines()]
                given = Counter(line["message"] for line in lines)
            else:
                table = results.to_arrow(columns=["message", form]).to_pydict()
                pairs = zip(table["message"], table[form], strict=True)
                given = Counter(message for message, value in pairs if value is not None)
            assert given["1"] == given["3"] == 1
            assert 5 <= given["2"] <= 20
            assert [result.truncated for result in results] == [[], ["texts"], []]


def test_memory_stays_bounded(index: Path) -> None:
    """Ten million pairs of 32 bytes, and 500 GB of fragments, in a process with a gigabyte."""
    script = f"""
import resource
from fmware import Middleware
body = b"<order>" + b"<book k='0'/>" * 100_000 + b"</order>"
with Middleware({str(index)!r}) as middleware:
    middleware.subscribe("//book/local:author", returns=["message", "local"])
    middleware.subscribe("//book/self::local:*", returns=["message", "fragment"], name="all")
    middleware.subscribe("//book//local:*", returns=["message", "fragment"], name="below")
    middleware.publish(b"<order><book k='0'/></order>").matches
    resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
    result = middleware.publish(body)
    rows = result.results.to_arrow(columns=["statement", "fragment"]).num_rows
    lines = result.results.to_json_lines()
    print(rows, len(lines), sorted(result.truncated))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows, size, *named = done.stdout.split(maxsplit=2)
    assert 0 < int(rows) < 1_000_000
    assert int(size) < 300 << 20
    assert "all" in named[0]


def test_limits_are_checked() -> None:
    for limits in ({"pairs": 0}, {"bytes": 0}):
        with pytest.raises(FMwareError, match="at least 1"):
            MatchLimits(**limits)
