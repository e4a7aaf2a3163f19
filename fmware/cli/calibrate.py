"""`fmware index calibrate`: what matching costs on this machine, measured and kept in an index."""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 - typer looks at it
from signal import SIGINT
from subprocess import DEVNULL, Popen
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from fmware.cli.output import complain, console, emit_json, examples, note

if TYPE_CHECKING:
    from fmware.cmatch.units import UnitCosts

__all__ = ["EPILOG", "Beside", "calibrate", "recalibrate"]

PATIENCE = 5.0
"""Seconds of a run after which measuring, which takes about as long, is worth it."""

EPILOG = examples(
    ("fmware index calibrate dblp", "after an index was moved to another machine, or another disk"),
    after="""
An index is calibrated when that is first needed: before a plan or a report is made, and beside a
run that lasts; and again on another machine. What was measured is in INDEX/units.json.
""",
)


def calibrate(
    index: Annotated[Path, typer.Argument(metavar="INDEX", help="The index.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """[bold]Calibrate[/bold] the cost model: measure what probes and candidates cost here."""
    from fmware.cmatch.calibration import calibrated
    from fmware.index import Index

    Index.open(index).close()
    found = calibrated(index, again=True)
    if as_json:
        emit_json(found.to_json())
    else:
        _show(found)


def recalibrate(index: Path) -> None:
    """Measure what matching costs here, if an index does not know it, and say so; it takes seconds.

    Only for commands that show estimates: an index is matched against in any case.
    """
    from fmware.cmatch.units import load_units
    from fmware.index import Index

    if load_units(index) is not None:
        return
    Index.open(index).close()
    note(f"measuring what matching costs on this machine, once for {index}")
    from fmware.cmatch.calibration import calibrated

    try:
        calibrated(index)
    except OSError as error:
        complain(f"{index} was not calibrated, and a usual machine is assumed: {error}")


class Beside:
    """Measures beside a run that lasts, in a process of its own, if the index does not know yet.

    Unit costs only choose among operators: a run that is over in a moment gains nothing by them,
    and does not pay for them. What is not done when the run ends is given up.
    """

    def __init__(self, index: Path) -> None:
        self._index = index
        self._began = perf_counter()
        self._child: Popen[bytes] | None = None
        self._known = False

    def look(self) -> None:
        """Begin, if the run has lasted long enough and the costs are not known."""
        if self._known or perf_counter() - self._began < PATIENCE:
            return
        self._known = True
        from fmware.cmatch.units import load_units

        if load_units(self._index) is None:
            note(f"measuring what matching costs on this machine, beside this run: {self._index}")
            arguments = [sys.executable, "-m", "fmware", "index", "calibrate", str(self._index)]
            self._child = Popen(arguments, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)

    def close(self) -> None:
        """End; a child that is told by SIGINT takes its files with it."""
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(SIGINT)
            self._child.wait()


def _show(units: UnitCosts) -> None:
    from rich import box
    from rich.table import Table

    from fmware.cmatch.units import MEANINGS

    grid = Table(box=box.SIMPLE_HEAD)
    grid.add_column("unit cost", style="bold")
    grid.add_column("time", justify="right")
    grid.add_column("of what")
    for name, meaning in MEANINGS.items():
        grid.add_row(name.replace("_", " "), f"{getattr(units, name) * 1e9:,.1f} ns", meaning)
    console().print(grid)
    note(f"of {units.machine}")
