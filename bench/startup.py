"""What the command line adds to a small job: `fmware index build` on a file of some bytes.

The rival is the least that does the same: a Python that imports fmware and builds the index. Both
run in processes of their own, in turns, and all their CPU counts, with that of their children.
`index_over_bare` is the ratio of the medians. `help_over_python` is `fmware --help` beside a Python
that does nothing, which tells how lazy imports are.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[1]
BARE = """
import sys, fmware
fmware.build_index(sys.argv[1], sys.argv[2], record="item", identity=["item=@sku"])
"""


def run(argv: Sequence[str]) -> dict[str, object]:
    """Measure, and give the medians and their ratios."""
    parser = argparse.ArgumentParser(prog="bench startup", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="turns of each")
    parser.add_argument("--items", type=int, default=1, help="records of the file")
    parser.add_argument("--seed", type=int, default=0, help="of what is in the file")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        _write(place / "stock.xml", options.items, Random(options.seed))
        return _measured(place, options.rounds)


def _write(file: Path, items: int, random: Random) -> None:
    each = "".join(f"<item sku='p{n}'><c>{random.randrange(999)}</c></item>" for n in range(items))
    file.write_text(f"<s>{each}</s>", encoding="utf-8")


def _measured(place: Path, rounds: int) -> dict[str, object]:
    seconds: dict[str, list[float]] = {"index": [], "bare": [], "help": [], "python": []}
    for turn in range(rounds + 1):
        for name, arguments in _commands(place, turn).items():
            taken = _cpu(arguments)
            if turn:  # The first turn finds cold files.
                seconds[name].append(taken)
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    return {
        "file_bytes": (place / "stock.xml").stat().st_size,
        "index_over_bare": medians["index"] / medians["bare"],
        "help_over_python": medians["help"] / medians["python"],
        "cpu_seconds": medians,
    }


def _commands(place: Path, turn: int) -> dict[str, list[str]]:
    file = str(place / "stock.xml")
    options = ["--record", "item", "--identity", "item=@sku", "--in-process", "--out"]
    cli = [sys.executable, "-m", "fmware"]
    return {
        "index": [*cli, "index", "build", file, *options, str(place / f"index {turn}")],
        "bare": [sys.executable, "-c", BARE, file, str(place / f"bare {turn}")],
        "help": [*cli, "--help"],
        "python": [sys.executable, "-c", ""],
    }


def _cpu(arguments: Sequence[str]) -> float:
    """CPU seconds of a command and of all processes that it waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(arguments, stdout=subprocess.DEVNULL, check=True, env=env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
