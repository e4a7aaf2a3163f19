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
    with Threaded(f"index={make_index(place)}", f"state={place / 'state'}") as service:
        yield service


@pytest.fixture(scope="module")
def described(served: Threaded) -> schemathesis.BaseSchema:
    with served.client() as client:
        client.put("/v1/statements/city", json={"expression": "//sale/item"}).raise_for_status()
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


def test_every_route_is_described_with_examples(served: Threaded) -> None:
    with served.client() as client:
        described = client.get("/openapi.json").json()
    assert {"/v1/statements", "/v1/messages", "/v1/matches/stream", "/v1/try", "/metrics"} <= set(
        described["paths"]
    )
    for path, methods in described["paths"].items():
        for method, about in methods.items():
            assert about["description"], (method, path)
            for kind, content in about.get("requestBody", {}).get("content", {}).items():
                assert "example" in str(content) or "$ref" in str(content) or "gzip" in kind, path
