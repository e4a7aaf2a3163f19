"""What the service counts and times: for Prometheus, and of the last minute for the page.

Every message is counted, so counts are plain numbers; they become metrics when they are read.
States of the filter, labels, candidates and spills are asked of the engine then.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter as Tally
from collections import defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from fmware.service.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from fmware.service.envelope import Outcome

__all__ = ["MEDIA_TYPE", "Metrics"]

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
BUCKETS: Final = tuple(2.0**power / 1e4 for power in range(18))
"""From a tenth of a millisecond to thirteen seconds."""
BOUNDS: Final = [*map(floatToGoString, BUCKETS), "+Inf"]

Reading = tuple[str, str, float, dict[str, str]]
"""A value that is asked for: its kind and name, what it is, its labels."""


class Count:
    """A counter: how often, by labels."""

    def __init__(self, name: str, about: str, *labels: str) -> None:
        self.name = name
        self.about = about
        self.labels = labels
        self.times: Tally[tuple[str, ...]] = Tally()

    def collect(self) -> Iterator[Metric]:
        """As Prometheus has it."""
        family = CounterMetricFamily(self.name, self.about, labels=self.labels)
        for labels, times in self.times.copy().items():
            family.add_metric(labels, times)
        yield family


class Stages:
    """The times of stages, in classes."""

    def __init__(self) -> None:
        self._times: defaultdict[str, list[int]] = defaultdict(lambda: [0] * len(BOUNDS))
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def took(self, stage: str, seconds: float) -> None:
        """A stage took so long."""
        self._times[stage][bisect_left(BUCKETS, seconds)] += 1
        self._seconds[stage] += seconds

    def collect(self) -> Iterator[Metric]:
        """As Prometheus has it."""
        family = HistogramMetricFamily(
            "fmware_stage_seconds", "Time of each stage.", labels=["stage"]
        )
        for stage, times in list(self._times.items()):
            buckets = list(zip(BOUNDS, accumulate(times), strict=True))
            family.add_metric([stage], buckets, self._seconds[stage])
        yield family


class Metrics(Collector):
    """All that is counted, from one place."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._windows: defaultdict[str | None, Window] = defaultdict(Window)
        self._totals: defaultdict[str | None, Tally[str]] = defaultdict(Tally)
        self.matches: Tally[tuple[str, str]] = Tally()
        self.began = time.time()
        self._messages = Count(
            "fmware_messages", "Messages, by what became of them.", "tenant", "outcome"
        )
        self._bytes = Count("fmware_message_bytes", "Bytes of messages.", "tenant")
        self._hits = Count("fmware_matches", "Matches.", "tenant")
        self._failures = Count(
            "fmware_statement_failures", "Statements without a full answer.", "tenant"
        )
        self._unmatched = Count("fmware_unmatched", "Anchors without a local node.", "tenant")
        self._rejects = Count("fmware_rejects", "Requests refused, by code.", "code")
        self._refused = Count(
            "fmware_tenant_rejects", "Requests of tenants refused, by code.", "tenant", "code"
        )
        self._requests = Count("fmware_requests", "Requests.", "method", "route", "status")
        self._dropped = Count("fmware_streams_dropped", "Readers that were dropped.")
        self._dropped.times[()] = 0
        self._stages = Stages()
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """What was counted and timed, as Prometheus has it."""
        for each in (
            *(self._messages, self._bytes, self._hits, self._failures, self._unmatched),
            *(self._rejects, self._refused, self._requests, self._stages, self._dropped),
        ):
            yield from each.collect()
        yield GaugeMetricFamily(
            "fmware_started_seconds", "When the service began.", value=self.began
        )

    def window(self, tenant: str | None = None) -> Window:
        """The last minute of a tenant, or of all."""
        return self._windows[tenant]

    def totals(self, tenant: str | None = None) -> Tally[str]:
        """What was counted since the start, of a tenant or of all."""
        return self._totals[tenant]

    def _count(self, tenant: str | None, times: Mapping[str, int]) -> None:
        totals = self._totals[tenant]
        for what, more in times.items():
            totals[what] += more
        self._windows[tenant].count(times)

    def took(self, stage: str, seconds: float) -> None:
        """A stage took so long."""
        self._stages.took(stage, seconds)
        self._windows[None].took(stage, seconds)

    def matched(self, tenant: str, outcomes: Sequence[Outcome], size: int) -> None:
        """What was said of some messages of a tenant, of so many bytes together."""
        kinds: defaultdict[str, int] = defaultdict(int)
        names: list[tuple[str, str]] = []
        failures = unmatched = 0
        for outcome in outcomes:
            kinds[_kind(outcome)] += 1
            failures += len(outcome.errors)
            unmatched += outcome.unmatched
            if outcome.hits:
                names += outcome.hits.names
        hits = len(names)
        self.matches.update(names)
        for kind, times in kinds.items():
            self._messages.times[tenant, kind] += times
        self._bytes.times[tenant,] += size
        self._hits.times[tenant,] += hits
        self._failures.times[tenant,] += failures
        self._unmatched.times[tenant,] += unmatched
        counted = {
            "messages": len(outcomes),
            "bytes": size,
            "matches": hits,
            "rejected": kinds["rejected"],
            "duplicates": kinds["duplicate"],
            "failures": failures,
            "unmatched": unmatched,
        }
        self._count(tenant, {what: times for what, times in counted.items() if times})

    def answered(self, method: str, route: str, status: int, seconds: float | None) -> None:
        """A request was answered; one that has no end of its own has no seconds.

        What is no method of HTTP is not worth a name of its own.
        """
        method = method if method in METHODS else "other"
        self._requests.times[method, route, str(status)] += 1
        self._count(None, {"requests": 1})
        if seconds is not None:
            self.took("request", seconds)

    def rejected(self, code: str, tenant: str | None = None) -> None:
        """A request was refused; `tenant` is who sent it, if that is known."""
        self._rejects.times[code,] += 1
        self._count(None, {"rejects": 1})
        if tenant is not None:
            self._refused.times[tenant, code] += 1

    def dropped(self) -> None:
        """A reader of matches was dropped: it was too slow."""
        self._dropped.times[()] += 1
        self._count(None, {"dropped": 1})

    def ask(self, readings: Callable[[], Iterable[Reading]]) -> None:
        """Have values asked for whenever somebody looks."""
        self.registry.register(_Asked(readings))

    def text(self, tenant: str | None = None) -> bytes:
        """All of it, or what has a tenant's name on it, as Prometheus reads it."""
        return generate_latest(self.registry if tenant is None else _Own(self.registry, tenant))

    def statements(self, tenant: str) -> Mapping[str, int]:
        """Matches by statement of a tenant, since the start."""
        return {name: count for (whose, name), count in self.matches.items() if whose == tenant}

    def forget(self, tenant: str, statement: str) -> None:
        """A statement is gone."""
        self.matches.pop((tenant, statement), None)


def _kind(outcome: Outcome) -> str:
    if outcome.failed:
        return "failed"
    if outcome.poison is not None:
        return "rejected"
    if outcome.duplicate:
        return "duplicate"
    return "matched" if outcome.hits else "passed"


class _Own(Collector):
    """What of some metrics is a tenant's own; what nobody's name is on is the operator's."""

    def __init__(self, metrics: Collector, tenant: str) -> None:
        self._metrics = metrics
        self._tenant = tenant

    def collect(self) -> Iterable[Metric]:
        for family in self._metrics.collect():
            own = [each for each in family.samples if each.labels.get("tenant") == self._tenant]
            if own:
                shown = Metric(family.name, family.documentation, family.type)
                shown.samples = own
                yield shown


class _Asked(Collector):
    """Values that somebody else has."""

    def __init__(self, readings: Callable[[], Iterable[Reading]]) -> None:
        self._readings = readings

    def collect(self) -> Iterable[Metric]:
        found: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
        for name, about, value, labels in self._readings():
            family = found.get(name)
            if family is None:
                make = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
                family = found[name] = make(
                    name.removesuffix("_total"), about, labels=sorted(labels)
                )
            family.add_metric([labels[key] for key in sorted(labels)], value)
        return found.values()

    def describe(self) -> Iterable[Metric]:
        return ()
