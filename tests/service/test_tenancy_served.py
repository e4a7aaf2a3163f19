"""Budgets and quotas by tenant, over HTTP: what one tenant does changes nothing for another."""

from __future__ import annotations

import random
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest

from tests.service.drawn import corpus, message, statements
from tests.service.running import Threaded

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

XML = {"content-type": "application/xml"}
QUOTA = 3000
TENANTS = "tenants=[{}]".format(
    ", ".join(
        f'{{name="{name}", token_sha256="{sha256(name.encode()).hexdigest()}", limits={limits}}}'
        for name, limits in {
            "a": "{}",
            "b": "{}",
            "small": f"{{statement_bytes={QUOTA}}}",
        }.items()
    )
)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corpus(tmp_path_factory.mktemp("corpus"))


def registered(client: httpx.Client, many: list[Any]) -> None:
    body = {"statements": [about for _, about in many]}
    told = client.post("/v1/statements/bulk", json=body).raise_for_status().json()
    assert told["refused"] == []


def answer(client: httpx.Client, name: str, body: bytes) -> Any:
    """What is said of a message, but for what is of the moment."""
    told = client.post("/v1/messages", content=body, headers={"message-id": name, **XML})
    about = told.json()
    about.pop("request", None)
    for each in about.get("matches", ()):
        del each["time"], each["position"]
    about["matches"] = sorted(about.get("matches", ()), key=lambda each: str(each["id"]))
    return told.status_code, about


@pytest.mark.parametrize("seed", [1, 2])
def test_a_tenant_is_answered_as_if_it_were_alone(index: Path, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    cheap, dear = statements(draw, "b", 8, 2), statements(draw, "a", 60, 8)
    for number in range(200):
        text = f"//m[not(.//*[.//*[contains(., 'never{number}')]])]"
        dear.append(("a", {"name": f"dear{number}", "expression": text}))
    said = (f"index={index}", TENANTS, "limits.work=20000", "limits.tuples=50")
    with (
        Threaded(*said, f"state={tmp_path / 'both'}") as both,
        Threaded(*said, f"state={tmp_path / 'only'}") as only,
        both.client("a") as attacker,
        both.client("b") as among,
        only.client("b") as alone,
    ):
        registered(attacker, dear)
        for client in (among, alone):
            registered(client, cheap)
        exhausted = 0
        for number in range(30):
            body = message(draw)
            exhausted += answer(attacker, f"a{number}", body)[0] == 422
            assert answer(among, f"m{number}", body) == answer(alone, f"m{number}", body)
            if number == 15:
                registered(attacker, statements(draw, "a", 60, 8))
        assert exhausted > 5, "the other one did use up its budget"
        assert both.service.engine.snapshot()["counts"]["faults"] == 0


def test_statements_are_bounded_by_bytes(index: Path, tmp_path: Path) -> None:
    """Also over a restart, in bulk, and when one replaces another; a shorter one always fits."""
    said = (f"index={index}", TENANTS, f"state={tmp_path}")
    long = {"expression": f"//a[b = '{'x' * 1200}']"}
    with Threaded(*said) as served, served.client("small") as client:
        client.put("/v1/statements/one", json=long).raise_for_status()
        client.put("/v1/statements/one", json=long).raise_for_status()
        client.put("/v1/statements/two", json=long).raise_for_status()
    with Threaded(*said) as served, served.client("small") as client, served.client("b") as other:
        refused = client.put("/v1/statements/three", json=long)
        assert (refused.status_code, refused.json()["code"]) == (429, "too-many-statement-bytes")
        assert f"of {QUOTA:,} bytes" in refused.json()["detail"]
        many = {"statements": [{"name": f"s{n}", **long} for n in range(3)]}
        told = client.post("/v1/statements/bulk", json=many).json()
        assert (told["registered"], len(told["refused"])) == (0, 3)
        other.put("/v1/statements/three", json=long).raise_for_status()
        client.put("/v1/statements/one", json={"expression": "//a"}).raise_for_status()
        client.put("/v1/statements/three", json=long).raise_for_status()
        assert client.put("/v1/statements/four", json=long).status_code == 429
        client.delete("/v1/statements/two").raise_for_status()
        client.put("/v1/statements/four", json=long).raise_for_status()


def test_fresh_names_over_and_over_leave_room_for_others(index: Path, tmp_path: Path) -> None:
    """Forty times all statements of a quota, each with names that were never there."""
    said = (f"index={index}", TENANTS, f"state={tmp_path}")
    with Threaded(*said) as served, served.client("a") as busy, served.client("b") as other:
        for turn in range(40):
            path = [
                f"//t{turn}_{n}" + "".join(f"/s{turn}_{n}_{m}" for m in range(20))
                for n in range(50)
            ]
            registered(
                busy, [("a", {"name": f"s{n}", "expression": each}) for n, each in enumerate(path)]
            )
        other.put("/v1/statements/late", json={"expression": "//late"}).raise_for_status()
        status, about = answer(other, "m", b"<late/>")
        assert (status, len(about["matches"])) == (200, 1)
        body = "<t39_7>" + "".join(f"<s39_7_{m}>" for m in range(20))
        body += "".join(f"</s39_7_{m}>" for m in reversed(range(20))) + "</t39_7>"
        assert [each["statement"] for each in answer(busy, "m", body.encode())[1]["matches"]] == [
            "s7"
        ]
