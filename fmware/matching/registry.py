"""The statements of a middleware by number, as a value that results can keep.

Numbers of statements that went are given to new ones, while results of earlier messages still have
to say what they matched. So a change makes another `Registry`, which shares all but one page with
the one before, and results keep the one they were made with.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from fmware.matching._columns import Texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from fmware.matching.plan import Plan

__all__ = ["Registry"]

SHIFT: Final = 10
SIZE: Final = 1 << SHIFT
"""Statements of a page: a change copies a page and the list of pages, so that both are short.
`plans_at` in the kernel knows the size, too."""


class Page:
    """Some plans, by the lower part of their number; what is computed of them is kept."""

    def __init__(self, plans: list[Plan | None]) -> None:
        self.plans = plans

    @cached_property
    def names(self) -> Texts:
        return Texts([None if plan is None else plan.name for plan in self.plans])

    @cached_property
    def nodes(self) -> npt.NDArray[np.uint8]:
        return np.array([0 if plan is None else plan.nodes for plan in self.plans], np.uint8)


class Registry:
    """Plans by the number of their statement; `version` is the engine's, see `FilterBatch`."""

    def __init__(self, pages: list[Page] | None = None, version: int = -1) -> None:
        self._pages = pages or []
        self.pages = [page.plans for page in self._pages]
        """The plans alone, for kernels."""
        self.version = version

    def put(self, number: int, plan: Plan | None, version: int) -> Registry:
        """The registry with another plan, or none, in a place."""
        at, place = number >> SHIFT, number & (SIZE - 1)
        pages = self._pages.copy()
        while at >= len(pages):
            pages.append(Page([None] * SIZE))
        plans = pages[at].plans.copy()
        plans[place] = plan
        pages[at] = Page(plans)
        return Registry(pages, version)

    def __getitem__(self, number: int) -> Plan:
        plan = self._pages[number >> SHIFT].plans[number & (SIZE - 1)]
        assert plan is not None, f"no statement has the number {number}"
        return plan

    def items(self) -> Iterator[tuple[int, Plan]]:
        """The statements there are, by number."""
        for at, page in enumerate(self._pages):
            for place, plan in enumerate(page.plans):
                if plan is not None:
                    yield (at << SHIFT) + place, plan

    def plans(self, numbers: Iterable[int]) -> list[Plan]:
        """The plans of many numbers."""
        pages, mask = self.pages, SIZE - 1
        return [pages[n >> SHIFT][n & mask] for n in numbers]  # type: ignore[misc]

    @cached_property
    def names(self) -> Texts:
        """Names by number."""
        return Texts.joined([page.names for page in self._pages])

    @cached_property
    def nodes(self) -> npt.NDArray[np.uint8]:
        """What is returned of message nodes, by number, as in `Plan.nodes`."""
        pages = [page.nodes for page in self._pages]
        return np.concatenate(pages) if pages else np.empty(0, np.uint8)
