"""Webhooks: make, list, show, replace, delete, hold up, give another secret, and try one out."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi import Path as InPath

from fmware.service.answers import listed
from fmware.service.problems import Problem
from fmware.service.routes.common import Asked, Owner, ScreenedRoute, json_answer, problems
from fmware.service.webhook_models import (
    HOOK,
    Delivery,
    WebhookBody,
    WebhookDead,
    WebhookIn,
    WebhookList,
    WebhookMade,
    WebhookOut,
    WebhookRotation,
    WebhookTested,
)

if TYPE_CHECKING:
    from fmware.service.sender import Sender
    from fmware.service.service import Service
    from fmware.service.webhooks import Webhooks

__all__ = ["router"]

Named = Annotated[str, InPath(pattern=HOOK, max_length=64, description="A webhook's name.")]

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"], route_class=ScreenedRoute)


@router.get("", response_model_exclude_none=True, responses=problems())
async def list_webhooks(service: Asked, owner: Owner) -> WebhookList:
    """The tenant's webhooks and how they do; those of the configuration are among them."""
    found = [WebhookOut(**_about(each)) for each in _webhooks(service).of(owner.name)]
    return WebhookList(webhooks=found, limit=owner.webhooks)


@router.post("", status_code=201, response_model_exclude_none=True, responses=problems(409, 429))
async def create_webhook(
    webhook: WebhookIn, service: Asked, owner: Owner, response: Response
) -> WebhookMade:
    """Make a webhook, which is told of matches from now on; its secret is shown this once."""
    return await _put(service, owner, webhook.name, webhook, response, replaces=False)


@router.get("/{name}", response_model_exclude_none=True, responses=problems(404))
async def get_webhook(name: Named, service: Asked, owner: Owner) -> WebhookOut:
    """One webhook and how it does."""
    return WebhookOut(**_about(_webhooks(service).get(owner.name, name)))


@router.put(
    "/{name}",
    response_model_exclude_none=True,
    responses=problems(409, 429) | {201: {"model": WebhookMade, "description": "Made."}},
)
async def put_webhook(
    name: Named, webhook: WebhookBody, service: Asked, owner: Owner, response: Response
) -> WebhookMade:
    """Make a webhook, or replace one: it keeps its position, and its secret unless one is given.

    What waits for its next try is sent again at once, as is what is under way if the URL or the
    statements are others; that is bounded as tests are.
    """
    return await _put(service, owner, name, webhook, response, replaces=True)


@router.delete("/{name}", status_code=204, responses=problems(404, 409))
async def delete_webhook(name: Named, service: Asked, owner: Owner) -> None:
    """Take a webhook away, with its secret, its position and what it did not take."""
    await _webhooks(service).delete(owner.name, name)


@router.get("/{name}/dead", response_model=WebhookDead, responses=problems(404))
async def get_dead(
    name: Named,
    service: Asked,
    owner: Owner,
    after: Annotated[int, Query(ge=0, le=2**62, description="Behind this number.")] = 0,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> Response:
    """Requests that were given up: when, why, and their bodies; some of the last ones.

    There are fewer than `limit` where they are large: go on after the last `number`.
    """
    found = await _webhooks(service).dead(owner.name, name, after, limit)
    shown = [{key: each[key] for key in Delivery.model_fields} for each in found]
    return json_answer(await asyncio.to_thread(listed, {}, "deliveries", shown))


@router.post("/{name}/test", response_model_exclude_none=True, responses=problems(404, 409, 429))
async def test_webhook(name: Named, service: Asked, owner: Owner) -> WebhookTested:
    """Send a signed request without matches, once, and say what status came back."""
    answer = await _webhooks(service).test(owner, name)
    taken = not answer.reason
    return WebhookTested(taken=taken, status=answer.status, reason=answer.reason or None)


@router.post("/{name}/pause", response_model_exclude_none=True, responses=problems(404, 409))
async def pause_webhook(name: Named, service: Asked, owner: Owner) -> WebhookOut:
    """Hold a webhook up: matches wait in the log, as long as it keeps them."""
    return WebhookOut(**_about(await _webhooks(service).pause(owner, name, paused=True)))


@router.post("/{name}/resume", response_model_exclude_none=True, responses=problems(404, 409, 429))
async def resume_webhook(name: Named, service: Asked, owner: Owner) -> WebhookOut:
    """Have a webhook go on where it is; one that waits for its next try makes it now.

    What it sends at once is bounded as tests are.
    """
    return WebhookOut(**_about(await _webhooks(service).pause(owner, name, paused=False)))


@router.post("/{name}/rotate", response_model_exclude_none=True, responses=problems(404, 409))
async def rotate_webhook(
    name: Named, rotation: WebhookRotation, service: Asked, owner: Owner, response: Response
) -> WebhookMade:
    """Give a webhook another secret; until the overlap ends, requests have both signatures."""
    sender, secret = await _webhooks(service).rotate(
        owner.name, name, rotation.secret, rotation.overlap_seconds
    )
    response.headers["cache-control"] = "no-store"
    return WebhookMade(**_about(sender), secret=secret)


async def _put(
    service: Service,
    owner: Owner,
    name: str,
    webhook: WebhookBody,
    response: Response,
    *,
    replaces: bool,
) -> WebhookMade:
    if unknown := await service.unknown(owner.name, webhook.statements):
        said = f"there is no statement {unknown[0]!r}, so the webhook would never be called"
        raise Problem(422, "no-statement", said, hint="register the statement first")
    sender, secret = await _webhooks(service).put(
        owner,
        name,
        url=webhook.url,
        statements=webhook.statements,
        secret=webhook.secret,
        paused=webhook.paused,
        replaces=replaces,
    )
    if sender.hook.created == sender.hook.updated:
        response.status_code = 201
        response.headers["location"] = f"/v1/webhooks/{name}"
    response.headers["cache-control"] = "no-store"
    return WebhookMade(**_about(sender), secret=secret)


def _webhooks(service: Service) -> Webhooks:
    if service.webhooks is None:
        raise Problem(503, "starting", "the service starts", headers={"Retry-After": "1"})
    return service.webhooks


def _about(sender: Sender) -> dict[str, Any]:
    hook = sender.hook
    now = time.time()
    old = [each.until for each in hook.secrets[1:] if each.until and each.good(now)]
    return {
        "name": hook.name,
        "url": None if hook.fixed else hook.url,
        "statements": list(hook.statements),
        "paused": hook.paused,
        "fixed": hook.fixed,
        "created": hook.created or None,
        "updated": hook.updated or None,
        "old_secret_until": old[0] if old else None,
        "state": sender.snapshot(),
    }
