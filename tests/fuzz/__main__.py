"""`python -m tests.fuzz --seconds N`: fuzz every target for so long, all of them together.

Each target runs in a process of its own, which is the one that `--only` names, and writes each
input into a file before it is tried. One that is wrong, or that ends the process, goes to the
corpus, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from tests.fuzz.coverage import Coverage
from tests.fuzz.mutation import mutated
from tests.fuzz.targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Sequence

CORPUS: Final = Path(__file__).parent / "corpus"
PATIENCE: Final = 60.0
"""Seconds after its time in which a process must have ended: a longer input is wrong."""


def main(argv: list[str]) -> int:
    """Fuzz; 1 if anything was found."""
    parser = argparse.ArgumentParser("tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for all targets together")
    parser.add_argument("--targets", default=",".join(TARGETS), help="as reader,filter")
    parser.add_argument("--seed", type=int, default=None, help="as it comes unless said")
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="where inputs are kept")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--last", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    options.seed = time.time_ns() % 10**6 if options.seed is None else options.seed
    if options.only:
        return _fuzz(options)
    chosen = options.targets.split(",")
    return max(_apart(name, options.seconds / len(chosen), options) for name in chosen)


def _apart(name: str, seconds: float, options: argparse.Namespace) -> int:
    """Fuzz one target in a process of its own; keep what ends it."""
    with tempfile.TemporaryDirectory(prefix="fmware-fuzz-") as folder:
        last = Path(folder) / "last"
        command = [sys.executable, "-m", "tests.fuzz", f"--only={name}", f"--seconds={seconds}"]
        command += [f"--seed={options.seed}", f"--last={last}", f"--corpus={options.corpus}"]
        try:
            code = subprocess.run(command, check=False, timeout=seconds + PATIENCE).returncode
        except subprocess.TimeoutExpired:
            code = -1
        if code and last.exists():
            place = keep(options.corpus / name, last.read_bytes())
            print(f"{name}: found {place} (seed {options.seed})", file=sys.stderr)
        return int(code != 0)


def keep(folder: Path, data: bytes) -> Path:
    """Have an input in the corpus, once."""
    place = folder / hashlib.sha256(data).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)
    return place


def _fuzz(options: argparse.Namespace) -> int:
    """Fuzz one target here, until the time is over or something is wrong."""
    target, random = TARGETS[options.only](), Random(options.seed)
    coverage = Coverage(target.package)
    known = sorted((options.corpus / target.name).glob("*"))
    waiting = [*(path.read_bytes() for path in known), *target.seeds]
    kept = list(waiting)
    tried, end = 0, time.monotonic() + options.seconds
    try:
        while waiting or time.monotonic() < end:
            data = waiting.pop() if waiting else _next(random, kept, target.tokens)
            options.last.write_bytes(data)
            tried += 1
            if coverage.new(lambda data=data: target.check(data)):  # type: ignore[misc]
                kept.append(data)
    except Exception:
        traceback.print_exc()
        return 1
    finally:
        target.close()
    native = "" if coverage.native else ", without those of native code"
    print(f"{target.name}: {tried} inputs, {len(kept)} kept, {len(coverage)} edges{native}")
    return 0


def _next(random: Random, kept: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    """One of those kept, changed; the last ones more often, since they are new."""
    at = max(random.randrange(len(kept)), random.randrange(len(kept)))
    return mutated(random, kept[at], kept, tokens)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
