"""What the service counts and times: for Prometheus, and of the last minute for the page.

States of the filter, labels, candidates and spills are asked of the engine when somebody looks.
"""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fmware.service.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from fmware.service.envelope import Outcome

__all__ = ["MEDIA_TYPE", "Metrics"]

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
BUCKETS: Final = tuple(2.0**power / 1e4 for power in range(18))
"""From a tenth of a millisecond to thirteen seconds."""

Reading = tuple[str, str, float, dict[str, str]]
"""A value that is asked for: its kind and name, what it is, its labels."""


class Metrics:
    """All that is counted, from one place."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._windows: defaultdict[str | None, Window] = defaultdict(Window)
        self._totals: defaultdict[str | None, Tally[str]] = defaultdict(Tally)
        self.matches: Tally[tuple[str, str]] = Tally()
        self.began = time.time()
        of: dict[str, Any] = {"registry": self.registry}
        self._messages = Counter(
            "fmware_messages", "Messages, by what became of them.", ["tenant", "outcome"], **of
        )
        self._bytes = Counter("fmware_message_bytes", "Bytes of messages.", ["tenant"], **of)
        self._hits = Counter("fmware_matches", "Matches.", ["tenant"], **of)
        self._failures = Counter(
            "fmware_statement_failures", "Statements without a full answer.", ["tenant"], **of
        )
        self._unmatched = Counter(
            "fmware_unmatched", "Anchors without a local node.", ["tenant"], **of
        )
        self._rejects = Counter("fmware_rejects", "Requests refused, by code.", ["code"], **of)
        self._refused = Counter(
            "fmware_tenant_rejects",
            "Requests of tenants refused, by code.",
            ["tenant", "code"],
            **of,
        )
        self._requests = Counter(
            "fmware_requests", "Requests.", ["method", "route", "status"], **of
        )
        self._stages = Histogram(
            "fmware_stage_seconds", "Time of each stage.", ["stage"], buckets=BUCKETS, **of
        )
        self._dropped = Counter("fmware_streams_dropped", "Readers that were dropped.", **of)
        self._up = Gauge("fmware_started_seconds", "When the service began.", **of)
        self._up.set(self.began)
        self._children: dict[tuple[Any, ...], Any] = {}

    def window(self, tenant: str | None = None) -> Window:
        """The last minute of a tenant, or of all."""
        return self._windows[tenant]

    def totals(self, tenant: str | None = None) -> Tally[str]:
        """What was counted since the start, of a tenant or of all."""
        return self._totals[tenant]

    def _count(self, tenant: str | None, what: str, times: int = 1) -> None:
        if times:
            self._totals[tenant][what] += times
            self._windows[tenant].count(what, times)

    def _child(self, metric: Any, *labels: str) -> Any:
        """What counts for some labels: to look it up in the metric itself takes a lock."""
        key = (metric, *labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = metric.labels(*labels)
        return child

    def took(self, stage: str, seconds: float) -> None:
        """A stage took so long."""
        self._child(self._stages, stage).observe(seconds)
        self._windows[None].took(stage, seconds)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Time what is done inside."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.took(stage, time.perf_counter() - began)

    def matched(self, tenant: str, outcomes: Sequence[Outcome], size: int) -> None:
        """What was said of some messages of a tenant, of so many bytes together."""
        kinds: Tally[str] = Tally()
        hits = failures = unmatched = 0
        for outcome in outcomes:
            kinds[_kind(outcome)] += 1
            hits += len(outcome.hits)
            failures += len(outcome.errors)
            unmatched += outcome.unmatched
        self.matches.update(
            [(hit.tenant, hit.statement) for outcome in outcomes for hit in outcome.hits]
        )
        for kind, count in kinds.items():
            self._child(self._messages, tenant, kind).inc(count)
        self._child(self._bytes, tenant).inc(size)
        for counter, count in (
            (self._hits, hits),
            (self._failures, failures),
            (self._unmatched, unmatched),
        ):
            child = self._child(counter, tenant)
            if count:
                child.inc(count)
        counted = {"messages": len(outcomes), "bytes": size, "matches": hits}
        counted |= {"rejected": kinds["rejected"], "duplicates": kinds["duplicate"]}
        counted |= {"failures": failures, "unmatched": unmatched}
        for what, count in counted.items():
            self._count(tenant, what, count)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request was answered; what is no method of HTTP is not worth a name of its own."""
        method = method if method in METHODS else "other"
        self._child(self._requests, method, route, str(status)).inc()
        self._count(None, "requests")
        self.took("request", seconds)

    def rejected(self, code: str, tenant: str | None = None) -> None:
        """A request was refused; `tenant` is who sent it, if that is known."""
        self._rejects.labels(code).inc()
        self._count(None, "rejects")
        if tenant is not None:
            self._refused.labels(tenant, code).inc()

    def dropped(self) -> None:
        """A reader of matches was dropped: it was too slow."""
        self._dropped.inc()
        self._count(None, "dropped")

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
