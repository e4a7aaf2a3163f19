"""Files that are overwritten under an open middleware: every answer is right, or says it is not.

A damaged page may crash the process that has it mapped, so the middleware runs in one of its own.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest

from fmware.corpus import build_index
from tests.damage import OVERWRITING, damage

ITEMS = 3000
STATEMENTS = {
    "city": "//item/local:city",
    "box": "//item//local:box",
    "value": "//item[local:city = 'C8']/local:shelf",
    "plain": "//s",
}
CHILD = f"""
import json, sys
from fmware.middleware import Middleware
STATEMENTS = {STATEMENTS!r}
middleware = Middleware(sys.argv[1], **json.loads(sys.argv[2]))
for name, text in STATEMENTS.items():
    returns = ["name"] if name == "plain" else ["local", "value", "fragment"]
    middleware.subscribe(text, name=name, returns=returns)
for line in sys.stdin:
    failed, lines = [], []
    try:
        results = middleware.publish_batch([line.encode()])
        lines = results.to_json_lines().decode().splitlines()
        failed = [getattr(error, "statement", "*") for error in results[0].errors]
    except Exception as error:
        failed = ["*"]
    print(json.dumps([failed, sorted(lines)]), flush=True)
"""


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("stock")
    items = "".join(
        f"<item k='{i}'><city>C{i % 50}</city><shelf><box>{i % 7}</box></shelf></item>"
        for i in range(ITEMS)
    )
    (place / "stock.xml").write_text(f"<stock>{items}</stock>")
    build_index(
        place / "stock.xml",
        place / "index",
        record="item",
        identity=["item=@k"],
        schemes=("path", "vist"),
        calibrate=False,
    )
    return place / "index"


def messages(randomly: random.Random, count: int) -> list[str]:
    made = []
    for _ in range(count):
        items = (f'<item k="{randomly.randrange(ITEMS)}"/>' for _ in range(20))
        made.append(f"<s>{''.join(items)}</s>")
    return made


class Child:
    """A middleware in a process of its own."""

    def __init__(self, index: Path, options: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(index), json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=Path(__file__).parents[1],
        )
        self._asked = 0

    def ask(self, message: str) -> tuple[list[str], list[dict[str, Any]]] | None:
        """Statements that failed, and matches; None if it has died."""
        into: IO[str] | None = self._process.stdin
        out: IO[str] | None = self._process.stdout
        assert into is not None
        assert out is not None
        try:
            into.write(message + "\n")
            into.flush()
        except BrokenPipeError:
            return None
        line = out.readline()
        if not line:
            return None
        failed, matches = json.loads(line)
        found = [json.loads(each) for each in matches]
        # Messages are numbered by the process.
        return failed, [{key: one[key] for key in one if key != "message"} for one in found]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.mark.parametrize("seed", range(8))
def test_no_answer_is_silently_wrong(stock: Path, tmp_path: Path, seed: int) -> None:
    randomly = random.Random(seed)
    index = shutil.copytree(stock, tmp_path / "index")
    asked = messages(randomly, 30)
    options: list[dict[str, Any]]
    options = [{}, {"operator": "admatch"}, {"scheme": "path", "threads": 1}, {"scheme": "vist"}]
    child = Child(index, options[seed % len(options)])
    try:
        # All that it will touch is open, checked and in memory: the worst case.
        before = [child.ask(each) for each in asked]
        assert all(each is not None and each[0] == [] and each[1] for each in before)
        file = sorted(index.glob("segments/*/*.mdb"))[seed % 3]
        damage(file, OVERWRITING[seed // 3 % len(OVERWRITING)], randomly, pages=4)
        silent = failures = 0
        for each, good in zip(asked, before, strict=True):
            now = child.ask(each)
            if now is None:
                break
            failed, matches = now
            assert good is not None
            failures += bool(failed)
            if "*" not in failed:
                kept = [one for one in good[1] if one["statement"] not in failed]
                silent += sorted(map(str, matches)) != sorted(map(str, kept))
        assert silent == 0
        # It says so at once, unless it has died.
        assert failures == len(asked) or now is None
    finally:
        child.close()
