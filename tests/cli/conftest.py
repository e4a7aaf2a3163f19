"""How tests run the command line: in this process, or in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest
from typer.testing import CliRunner

from fmware.cli import app

if TYPE_CHECKING:
    from typer.testing import Result

ROOT = Path(__file__).parents[2]


class Fmware(Protocol):
    """`fmware ARGUMENTS`."""

    def __call__(self, *arguments: object, stdin: bytes | str = b"") -> Result: ...


class Process(Protocol):
    """`fmware ARGUMENTS`, in a process of its own."""

    def __call__(
        self, *arguments: object, stdin: bytes = b"", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]: ...


@pytest.fixture
def fmware() -> Fmware:
    def run(*arguments: object, stdin: bytes | str = b"") -> Result:
        return CliRunner().invoke(app, [str(a) for a in arguments], input=stdin)

    return run


@pytest.fixture
def process() -> Process:
    def run(
        *arguments: object, stdin: bytes = b"", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-m", "fmware", *map(str, arguments)],
            input=stdin,
            capture_output=True,
            env=environment() | (env or {}),
            check=False,
        )

    return run


def environment() -> dict[str, str]:
    """This process's, with the project on the path and without what changes the output."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("FMWARE_", "COV_"))}
    return kept | {"PYTHONPATH": str(ROOT)}
