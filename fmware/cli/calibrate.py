"""`fmware calibrate`: what matching costs on this machine, measured and kept beside an index."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer looks at it
from typing import TYPE_CHECKING, Annotated

import typer

from fmware.cli.output import complain, console, emit_json, examples, note

if TYPE_CHECKING:
    from cmatch.units import UnitCosts

__all__ = ["EPILOG", "calibrate", "recalibrate"]

EPILOG = examples(
    ("fmware calibrate dblp", "after an index was moved to another machine, or another disk"),
    after="""
An index is calibrated when it is built, and again when it is used on another machine than it was
calibrated on. What was measured is in INDEX/units.json.
""",
)


def calibrate(
    index: Annotated[Path, typer.Argument(metavar="INDEX", help="The index.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """[bold]Calibrate[/bold] the cost model: measure what probes and candidates cost here."""
    from cmatch.calibration import calibrated
    from index import Index

    Index.open(index).close()
    found = calibrated(index, again=True)
    if as_json:
        emit_json(found.to_json())
    else:
        _show(found)


def recalibrate(index: Path) -> None:
    """Measure anew if an index was calibrated on another machine; it is used in any case."""
    from cmatch.units import FILE, load_units

    if not (index / FILE).exists() or load_units(index) is not None:
        return
    note(f"{index} was calibrated on another machine; measuring what matching costs on this one")
    from cmatch.calibration import calibrated

    try:
        calibrated(index)
    except OSError as error:
        complain(f"{index} was not calibrated, and a usual machine is assumed: {error}")


def _show(units: UnitCosts) -> None:
    from rich import box
    from rich.table import Table

    from cmatch.units import MEANINGS

    grid = Table(box=box.SIMPLE_HEAD)
    grid.add_column("unit cost", style="bold")
    grid.add_column("time", justify="right")
    grid.add_column("of what")
    for name, meaning in MEANINGS.items():
        grid.add_row(name.replace("_", " "), f"{getattr(units, name) * 1e9:,.1f} ns", meaning)
    console().print(grid)
    note(f"of {units.machine}")
