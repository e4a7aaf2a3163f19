"""What one of each thing costs on this machine; `fmware.cmatch.calibration` measures it."""

from __future__ import annotations

import json
import platform
import zlib
from dataclasses import asdict, dataclass, fields
from functools import cache, lru_cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fmware.cmatch import _kernel
from fmware.index import _kernel as _index_kernel

if TYPE_CHECKING:
    from fmware.index import Index

__all__ = [
    "DEFAULT_UNITS",
    "FILE",
    "MEANINGS",
    "UnitCosts",
    "fingerprint",
    "load_units",
    "units_of",
]

FILE = "units.json"
"""Where an index keeps them: beside its manifest, which does not name it."""
_VERSION = 6


MEANINGS = {
    "ad_call": "a call of ADMatch",
    "ad_input": "an input of ADMatch",
    "ad_step": "a step of its search, one for each doubling of the number of matches",
    "call": "a call of CMatch",
    "input": "an input of CMatch whose label is known",
    "step": "a step of its search, one for each doubling of the label's candidates",
    "label": "a new label: it is entered, and its candidates are counted",
    "list": "a new label that has candidates: their list is made",
    "candidate": "a candidate that is fetched",
    "pair": "a pair that holds, of either operator",
    "deferral": "what a call of CMatch takes more if ADMatch takes some of its inputs",
    "spilled": "what an input takes more if the candidates of its label are on disk",
}
"""What each unit cost is the time for."""


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """Seconds for one of each, measured with the operators themselves; `MEANINGS` says of what."""

    ad_call: float
    ad_input: float
    ad_step: float
    call: float
    input: float
    step: float
    label: float
    list: float
    candidate: float
    pair: float
    deferral: float
    spilled: float
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


DEFAULT_UNITS = UnitCosts(
    ad_call=1e-6,
    ad_input=2e-9,
    ad_step=3.6e-9,
    call=1e-6,
    input=4e-9,
    step=7e-9,
    label=70e-9,
    list=0.3e-6,
    candidate=18e-9,
    pair=3e-9,
    deferral=5.5e-6,
    spilled=0.9e-6,
)
"""For an index that was never calibrated: those of a machine of 2024, rounded."""


@cache
def fingerprint() -> str:
    """What unit costs depend on: the processor, Python, this version and its kernels."""
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
        changed = (folder / FILE).stat().st_mtime_ns
    except OSError:
        return None
    return _loaded(folder / FILE, changed)


@lru_cache(maxsize=16)
def _loaded(file: Path, changed: int) -> UnitCosts | None:  # noqa: ARG001
    """The content of a file as it was when it was last changed: every operator asks for it."""
    try:
        units = UnitCosts.from_json(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, AttributeError):
        return None
    return units if units.machine == fingerprint() else None


def units_of(index: Index) -> UnitCosts:
    """Those of an index; the default ones if it was not calibrated on this machine."""
    return load_units(index.path) or DEFAULT_UNITS
