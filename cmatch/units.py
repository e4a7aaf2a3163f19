"""What one of each thing costs on this machine; `cmatch.calibration` measures it."""

from __future__ import annotations

import json
import platform
import zlib
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cmatch import _kernel
from index import _kernel as _index_kernel

if TYPE_CHECKING:
    from index import Index

__all__ = ["DEFAULT_UNITS", "FILE", "UnitCosts", "fingerprint", "load_units", "units_of"]

FILE = "units.json"
"""Where an index keeps them: beside its manifest, which does not name it."""
_VERSION = 5


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """Seconds for one of each.

    Of ADMatch: a `call` of `feed`, what each further segment adds to it, an input, a `step` of the
    search for it (one for each doubling of the list), more for each doubling of the list beyond
    what caches hold (`far`), a `hit` (an input that has any pair), a pair.
    Of CMatch: its first labels (`start`), a call, an input whose label is known, a step of its
    search among the candidates of the label, a hit for each step of that search, a `visit` to that
    list, or to a row of one of the index, for each doubling beyond what caches hold, a pair, a call
    that gives any; then what labels that are new add: to the call, to one that scans because some
    have candidates, for each label, for each step of finding it among the labels of the matches,
    for each doubling of the labels beyond what caches hold, for each list of candidates, for each
    candidate, for each label that is taken on the way up to one (`climb`), and for each step of
    putting one into order.
    Where memory is short: a byte that is spilled, an input that must look there. Where pages are
    cold: a page that is waited for, a byte that is read behind it, a byte that is checked when it
    is first used. Where labels are left to ADMatch: to ask about new ones that have many candidates
    (`policy`), and what a call takes more if some of its rows go aside.
    """

    ad_call: float
    ad_segment: float
    ad_input: float
    ad_step: float
    ad_far: float
    ad_hit: float
    ad_pair: float
    start: float
    call: float
    input: float
    step: float
    hit: float
    visit: float
    pair: float
    answer: float
    fresh_call: float
    scan: float
    label: float
    label_step: float
    label_far: float
    list: float
    candidate: float
    climb: float
    candidate_step: float
    spilled_byte: float
    overflow_read: float
    fault: float
    read_byte: float
    checked_byte: float
    policy: float
    aside_call: float
    machine: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"version": _VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> UnitCosts:
        """The reverse of `to_json`; ValueError if that is not what it is."""
        if found.get("version") != _VERSION:
            raise ValueError(f"unit costs of version {found.get('version')}, not {_VERSION}")
        names = [each.name for each in fields(cls) if each.name != "machine"]
        try:
            values = {name: float(found[name]) for name in names}
        except (KeyError, TypeError) as error:
            raise ValueError(f"unit costs that lack some: {error}") from error
        return cls(**values, machine=str(found.get("machine", "")))

    def scaled(self, **factors: float) -> UnitCosts:
        """The same, with some of them times a factor."""
        return replace(self, **{name: getattr(self, name) * by for name, by in factors.items()})


DEFAULT_UNITS = UnitCosts(
    ad_call=4e-6,
    ad_segment=6e-6,
    ad_input=6e-9,
    ad_step=2e-9,
    ad_far=20e-9,
    ad_hit=5e-9,
    ad_pair=3e-9,
    start=3e-6,
    call=0.8e-6,
    input=3e-9,
    step=6e-9,
    hit=2e-9,
    visit=2e-9,
    pair=2e-9,
    answer=0.6e-6,
    fresh_call=0.4e-6,
    scan=1.4e-6,
    label=30e-9,
    label_step=9e-9,
    label_far=5e-9,
    list=0.2e-6,
    candidate=13e-9,
    climb=20e-9,
    candidate_step=1.4e-9,
    spilled_byte=1e-9,
    overflow_read=0.6e-6,
    fault=0.1e-3,
    read_byte=1e-9,
    checked_byte=1e-9,
    policy=11e-6,
    aside_call=8e-6,
)
"""For an index that was never calibrated: those of a machine of 2024, rounded."""


@cache
def fingerprint() -> str:
    """What unit costs hang on: the processor, Python, this version and its kernels."""
    kernels = 0
    for file in (_kernel.__file__, _index_kernel.__file__):
        kernels = zlib.crc32(Path(file).read_bytes(), kernels)
    return f"{_processor()}; Python {platform.python_version()}; {_version()}-{kernels:08x}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()


def _version() -> str:
    try:
        return metadata.version("fmware")
    except metadata.PackageNotFoundError:
        return "0"


def load_units(folder: Path) -> UnitCosts | None:
    """Those that an index keeps, if they are of this machine; None if it has none of use."""
    try:
        units = UnitCosts.from_json(json.loads((folder / FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None
    return units if units.machine == fingerprint() else None


def units_of(index: Index) -> UnitCosts:
    """Those of an index; the default ones if it was not calibrated on this machine."""
    return load_units(index.path) or DEFAULT_UNITS
