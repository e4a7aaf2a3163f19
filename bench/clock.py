"""CPU time of rivals, measured side by side."""

from __future__ import annotations

import gc
import statistics
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["compare"]


def compare(
    rivals: Mapping[str, Callable[[], object]], *, rounds: int = 20, best: bool = True
) -> dict[str, float]:
    """CPU seconds of one call of each rival: the best of the rounds, or their median.

    The rivals take turns (A B C, C B A, A B C, ...), so that other work of the machine disturbs all
    of them alike, and none always runs behind the same one: memory that a rival has given back to
    the system costs the next one page faults. Each runs once before the clock starts; the garbage
    collector runs between the turns and not in them.
    """
    for call in rivals.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in rivals}
    collecting = gc.isenabled()
    gc.disable()
    try:
        order = list(rivals.items())
        for _ in range(rounds):
            for name, call in order:
                gc.collect()
                begin = time.process_time_ns()
                call()
                times[name].append((time.process_time_ns() - begin) / 1e9)
            order.reverse()
    finally:
        if collecting:
            gc.enable()
    return {name: min(taken) if best else statistics.median(taken) for name, taken in times.items()}
