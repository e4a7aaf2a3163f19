"""The engine, counted: all that is matched, from any source, is timed and logged here."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from fmware.service.engine import Engine
from fmware.service.logging import logger
from fmware.service.run import engine_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fmware.service.engine import Give
    from fmware.service.envelope import Envelope, Outcome
    from fmware.service.metrics import Metrics
    from fmware.service.settings import Settings

__all__ = ["MeteredEngine"]

HITS: Final = 10_000
"""Hits that are counted before others have their turn."""

log = logger("engine")


class MeteredEngine(Engine):
    """An engine whose messages are counted, by tenant."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        super().__init__(**engine_options(settings))
        self._metrics = metrics
        self._talks = settings.server.log_level == "debug"

    def _lapped(self, seconds: Mapping[str, float]) -> None:
        super()._lapped(seconds)
        for stage, taken in seconds.items():
            self._metrics.took(stage, taken)

    async def match(self, envelopes: Sequence[Envelope], give: Give | None = None) -> list[Outcome]:
        """As the engine does."""
        began = time.perf_counter()
        try:
            outcomes = await super().match(envelopes, give)
        finally:
            self._metrics.took("match and hand over", time.perf_counter() - began)
        tenants: defaultdict[str, list[Outcome]] = defaultdict(list)
        sizes: defaultdict[str, int] = defaultdict(int)
        for envelope, outcome in zip(envelopes, outcomes, strict=True):
            tenants[envelope.tenant].append(outcome)
            sizes[envelope.tenant] += len(envelope.body)
            if self._talks or outcome.errors or outcome.poison:
                _tell(envelope, outcome)
        for tenant, some in tenants.items():
            for part in _parts(some):
                self._metrics.matched(tenant, part, sizes.pop(tenant, 0))
                if len(part) < len(some):
                    await asyncio.sleep(0)
        return outcomes


def _parts(outcomes: list[Outcome]) -> Iterator[list[Outcome]]:
    """Some outcomes at a time: no more than `HITS` hits, unless one has more."""
    begin = hits = 0
    for place, outcome in enumerate(outcomes):
        hits += len(outcome.hits)
        if hits > HITS and place > begin:
            yield outcomes[begin:place]
            begin, hits = place, len(outcome.hits)
    yield outcomes[begin:]


def _tell(envelope: Envelope, outcome: Outcome) -> None:
    about = {"tenant": envelope.tenant, "message": envelope.id, "source": envelope.source}
    if outcome.poison is not None:
        log.warning("message rejected", reason=outcome.poison, **about)
    for error in outcome.errors:
        log.warning("statement failed", reason=error, **about)
    if outcome.hits:
        statements = sorted({statement for _, statement in outcome.hits.names})
        log.debug("message matched", statements=statements, **about)
