"""The OpenAPI description against the real server: Schemathesis asks, the answers must fit it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any
from unittest import SkipTest

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode, checks
from schemathesis.core.result import Ok

from tests.service.running import Threaded, make_index, sale

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = 12
HOOK = {"url": "http://127.0.0.1:9/"}
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.response_headers_conformance,
    checks.unsupported_method,
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Threaded]:
    place = tmp_path_factory.mktemp("schema")
    # Nobody listens there: what is tried fails, and is answered all the same.
    hooks = "webhooks={https_only=false, ports=[9], allow_tenants=['127.0.0.0/8']}"
    with Threaded(f"index={make_index(place)}", f"state={place / 'state'}", hooks) as service:
        yield service


@pytest.fixture(scope="module")
def described(served: Threaded) -> schemathesis.BaseSchema:
    with served.client() as client:
        client.put("/v1/statements/city", json={"expression": "//sale/item"}).raise_for_status()
        client.put("/v1/webhooks/crm", json=HOOK).raise_for_status()
        client.post("/v1/messages", content=sale()).raise_for_status()
    found = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
    # It has no end: the others say how its matches look.
    return found.exclude(path="/v1/matches/stream")


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_answers_fit_the_description(
    described: schemathesis.BaseSchema, mode: GenerationMode
) -> None:
    asked = 0
    for found in described.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        )
        def check(case: schemathesis.Case[Any]) -> None:
            case.call_and_validate(checks=CHECKS, timeout=60)

        with suppress(Unsatisfiable, SkipTest):
            check()
            asked += 1
    assert asked >= (14 if mode is GenerationMode.POSITIVE else 8)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "", None, 200),
        ("POST", "", {"name": "new", **HOOK}, 201),
        ("POST", "", {"name": "new", **HOOK}, 409),
        ("POST", "", {"name": "other", "url": "https://127.0.0.1:22/"}, 422),
        ("GET", "/{name}", None, 200),
        ("PUT", "/{name}", {**HOOK, "statements": ["city"]}, 200),
        ("POST", "/{name}/rotate", {"overlap_seconds": 60}, 200),
        ("POST", "/{name}/test", None, 200),
        ("GET", "/{name}/dead", None, 200),
        ("POST", "/{name}/pause", None, 200),
        ("POST", "/{name}/resume", None, 200),
        ("DELETE", "/{name}", None, 204),
        ("GET", "/{name}", None, 404),
        ("PUT", "/{name}", HOOK, 201),
    ],
)
def test_a_webhook_goes_its_way_as_described(
    described: schemathesis.BaseSchema, method: str, path: str, body: Any, status: int
) -> None:
    """In this order; a name that nobody made up is not found by chance."""
    operation = described[f"/v1/webhooks{path}"][method]
    about: dict[str, Any] = {"path_parameters": {"name": "crm"}} if path else {}
    about |= {"body": body, "media_type": "application/json"} if body is not None else {}
    case = operation.Case(**about)
    answer = case.call_and_validate(checks=CHECKS, timeout=60)
    assert answer.status_code == status


def test_every_route_is_described_with_examples(served: Threaded) -> None:
    with served.client() as client:
        described = client.get("/openapi.json").json()
    assert {"/v1/statements", "/v1/messages", "/v1/matches/stream", "/v1/try", "/metrics"} <= set(
        described["paths"]
    )
    for path, methods in described["paths"].items():
        for method, about in methods.items():
            assert about["description"], (method, path)
            if "requestBody" in about:
                assert {"408", "413"} <= set(about["responses"]), (method, path)
            for kind, content in about.get("requestBody", {}).get("content", {}).items():
                assert "example" in str(content) or "$ref" in str(content) or "gzip" in kind, path
