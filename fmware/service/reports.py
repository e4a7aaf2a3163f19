"""The workers' reports, as one tenant may see them: its own statements, by the names it gave."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from fmware.service.worker import SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["costs_of", "seen_by"]

SHARED: Final = ("format", "made", "version", "error")
SUMMED: Final = ("passed", "matches", "inputs", "pairs", "seconds", "measured", "estimate")


def seen_by(tenant: str, report: Mapping[str, Any], *, alone: bool) -> dict[str, Any]:
    """The report without what belongs to others; `alone`: there are no others."""
    told = [_seen(tenant, each, alone=alone) for each in report.get("workers", ())]
    own = [each for each in told if alone or each["statements"] or "error" in each]
    return {"workers": own} if own else {}


def _seen(tenant: str, report: Mapping[str, Any], *, alone: bool) -> dict[str, Any]:
    own = [
        {**each, "name": each["name"].partition(SEPARATOR)[2]}
        for each in report.get("statements", ())
        if each["name"].partition(SEPARATOR)[0] == tenant
    ]
    used = {join["join"] for each in own for join in each.get("joins", ())}
    joins = [each for each in report.get("joins", ()) if each["name"] in used]
    # What is of all statements together, and where the index lies, is not for one of several.
    rest = {key: each for key, each in report.items() if alone or key in SHARED}
    return {**rest, "statements": own, "joins": joins}


def costs_of(report: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What each statement cost, over all workers: counts and seconds, and how it is joined."""
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for worker in report.get("workers", ()):
        for each in worker["statements"]:
            costs = found[each["name"]]
            for key in SUMMED:
                if each.get(key) is not None:
                    costs[key] = costs.get(key, 0) + each[key]
            if each.get("choice") is not None:
                costs["choice"] = each["choice"]
    return dict(found)
