"""The engine, counted: all that is matched, from any source, is timed and logged here."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from fmware.service.engine import Engine
from fmware.service.logging import logger
from fmware.service.run import engine_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fmware.service.engine import Give
    from fmware.service.envelope import Envelope, Outcome
    from fmware.service.metrics import Metrics
    from fmware.service.settings import Settings

__all__ = ["MeteredEngine"]

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
        with self._metrics.timed("match and hand over"):
            outcomes = await super().match(envelopes, give)
        pairs = zip(envelopes, outcomes, strict=True)
        for tenant, group in groupby(pairs, key=lambda pair: pair[0].tenant):
            some = list(group)
            size = sum(len(envelope.body) for envelope, _ in some)
            self._metrics.matched(tenant, [outcome for _, outcome in some], size)
        for envelope, outcome in zip(envelopes, outcomes, strict=True):
            if self._talks or outcome.errors or outcome.poison:
                _tell(envelope, outcome)
        return outcomes


def _tell(envelope: Envelope, outcome: Outcome) -> None:
    about = {"tenant": envelope.tenant, "message": envelope.id, "source": envelope.source}
    if outcome.poison is not None:
        log.warning("message rejected", reason=outcome.poison, **about)
    for error in outcome.errors:
        log.warning("statement failed", reason=error, **about)
    if outcome.hits:
        statements = sorted({hit.statement for hit in outcome.hits})
        log.debug("message matched", statements=statements, **about)
