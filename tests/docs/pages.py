"""Runs the blocks of a page of documentation, in their order, as a reader would paste them.

A block in `sh` is run by a shell, and the `text` behind it is what it prints; a block in `python`
is a session whose answers are compared. In both, `...` stands for anything.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
from contextlib import chdir
from pathlib import Path
from typing import Any

__all__ = ["DOCS", "PAGES", "run_page"]

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [DOCS / "tutorial.md", *sorted((DOCS / "how-to").glob("*.md"))]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_BLOCK = re.compile(r"^```(sh|python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_page(page: Path, place: Path, programs: Path, path: str = str(ROOT)) -> int:
    """Run a page in a directory, with the programs of another; how many blocks there were.

    `path` is the PYTHONPATH of shell blocks. Python blocks run in this process.
    """
    blocks = _BLOCK.findall(page.read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    for number, (kind, text) in enumerate(blocks):
        if kind == "sh":
            behind = blocks[number + 1] if number + 1 < len(blocks) else ("", "")
            wanted = behind[1] if behind[0] == "text" else ""
            _shell(text, wanted, place, programs, path)
        elif kind == "python":
            _session(page, text, place, names)
    return len(blocks)


def _shell(text: str, wanted: str, place: Path, programs: Path, path: str) -> None:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("FMWARE_", "COV_"))}
    env = {**kept, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": path}
    ran = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", text],
        cwd=place,
        env=env | {"COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, f"{text}\n{ran.stdout}\n{ran.stderr}"
    got = ran.stdout if wanted else ""
    assert doctest.OutputChecker().check_output(wanted, got, FLAGS), (
        f"{text}\nprinted\n{got}\nand not\n{wanted}"
    )


def _session(page: Path, text: str, place: Path, names: dict[str, Any]) -> None:
    test = doctest.DocTestParser().get_doctest(text, names, page.name, str(page), 0)
    said: list[str] = []
    with chdir(place):
        ran = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.append, clear_globs=False)
    names.update(test.globs)
    assert ran.attempted
    assert not ran.failed, "".join(said)
