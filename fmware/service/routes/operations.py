"""For operators: is it alive, is it ready, how does it do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter, Request, Response

from fmware.service.metrics import MEDIA_TYPE
from fmware.service.models import Health, StatementStats, Stats
from fmware.service.routes.common import Asked, Owner, problems

if TYPE_CHECKING:
    from fmware.service.service import Service
    from fmware.service.tenants import Account

__all__ = ["router"]

MOST: Final = 1000
"""Statements that are told of."""
METRICS: Final = 'fmware_messages_total{outcome="matched",tenant="default"} 42.0'

router = APIRouter(tags=["operations"])


@router.get("/healthz", response_model_exclude_none=True)
async def health() -> Health:
    """Whether the process answers."""
    return Health(status="ok")


@router.get(
    "/readyz",
    response_model_exclude_none=True,
    responses={503: {"model": Health, "description": "Not now."}},
)
async def ready(service: Asked, response: Response) -> Health:
    """Whether messages can be matched now."""
    snapshot = service.engine.snapshot()
    state: dict[str, Any] = {
        "workers": snapshot["workers"],
        "generation": snapshot["generation"],
        "trouble": [*snapshot["trouble"], *service.trouble()],
    }
    index = snapshot["index"]
    if service.ready and index["state"] != "sound":
        response.status_code = 503
        state["trouble"] = [index["reason"], *state["trouble"]]
        return Health(status=index["state"], **state)
    if service.ready and (stuck := _stuck(service)):
        response.status_code = 503
        told = [f"sink {name} has taken nothing for {stuck[name]:.0f} seconds" for name in stuck]
        state["trouble"] = [*state["trouble"], *told]
        return Health(status="stuck", sinks=stuck, **state)
    if service.ready and snapshot["workers"]:
        whole = snapshot["workers"] >= snapshot["workers_wanted"] and not state["trouble"]
        return Health(status="ok" if whole else "degraded", **state)
    response.status_code = 503
    return Health(status="stopping" if service.readers.closing else "starting", **state)


def _stuck(service: Service) -> dict[str, float]:
    """Sinks that have taken nothing for too long, and for how many seconds."""
    most = service.settings.server.sink_stuck_seconds
    return {name: taken for name, taken in service.outlet.stuck().items() if taken > most}


@router.get(
    "/metrics",
    response_class=Response,
    responses=problems()
    | {
        200: {
            "content": {"text/plain": {"example": METRICS}},
            "description": "For Prometheus.",
        }
    },
)
async def metrics(request: Request, service: Asked) -> Response:
    """Counts and times, as Prometheus reads them.

    All of them for the token of `server.metrics_token_sha256` or `server.metrics_token_env`, or if
    there is one tenant and no such token; else those that have the tenant's name on them.
    """
    account: Account | None = request.scope["account"]
    whose = None if account is None or service.tenants.alone() else account.name
    return Response(service.metrics.text(whose), media_type=MEDIA_TYPE)


@router.get("/v1/stats", responses=problems())
async def stats(service: Asked, owner: Owner) -> Stats:
    """Rates and latencies of the last minute, totals, and what each statement has found."""
    metrics = service.metrics
    most = sorted(metrics.statements(owner.name).items(), key=lambda pair: -pair[1])[:MOST]
    costs = service.costs(owner.name)
    lags = service.readers.lags()
    return Stats(
        tenant=owner.name,
        uptime=time.time() - metrics.began,
        rates=metrics.window(owner.name).rates(),
        latency=metrics.window().latency(),
        totals=dict(metrics.totals(owner.name)),
        statements=[
            StatementStats(name=name, matches=count, costs=costs.get(name, {}))
            for name, count in most
        ],
        engine=service.state(),
        log={"first": service.log.first, "last": service.log.last, "bytes": service.log.size},
        streams={"readers": len(lags), "lag": max(lags, default=0)},
        webhooks=service.hooks(owner.name),
    )


@router.get("/v1/report", responses=problems())
async def report(service: Asked, owner: Owner) -> dict[str, Any]:
    """What each worker has learnt of the costs of operators; empty until there is something."""
    return await service.report(owner.name)
