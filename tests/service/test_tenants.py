"""Tenants: quotas of messages and bytes, and whose metrics a token reads."""

from __future__ import annotations

import gzip
from contextlib import ExitStack
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from fmware.service.problems import Problem
from fmware.service.settings import Quota, SettingsError, Tenant, load
from fmware.service.tenants import Account, Bucket, Tenants
from tests.service.running import CITY, Threaded, make_index, sale

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

METRICS = "metrics-token"
TENANTS = (
    f'tenants=[{{name="ann", token_sha256="{sha256(b"ann-token").hexdigest()}", '
    "limits={byte_rate=0.001, byte_burst=2000, streams=2}}, "
    '{name="bob", token_env="BOB"}]'
)


class Clock:
    """A time that goes on when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@given(
    st.integers(1, 50),
    st.integers(0, 200),
    st.lists(st.tuples(st.floats(0, 20), st.integers(1, 400)), max_size=40),
)
def test_no_more_is_taken_than_rate_and_burst_allow(
    rate: int, burst: int, asked: list[tuple[float, int]]
) -> None:
    clock = Clock()
    bucket = Bucket(rate, burst, clock)
    taken = largest = 0
    for pause, count in asked:
        clock.now += pause
        wait = bucket.take(count)
        if not wait:
            taken, largest = taken + count, max(largest, count)
            continue
        # What it says is true: not a moment earlier, and then it may.
        clock.now += wait * 1.000001 + 1e-9
        assert bucket.wait(count) == 0.0
    # What was owed at the end is at most one thing that did not fit at once.
    assert taken <= clock.now * rate + max(burst or rate, 1) + largest + 1e-6


def test_messages_and_bytes_are_taken_together_or_not_at_all() -> None:
    account = Account(
        Tenant(name="ann", limits=Quota(rate=0.001, burst=10, byte_rate=0.001, byte_burst=100)), 1
    )
    account.spend(1, 90)
    with pytest.raises(Problem) as caught:
        account.spend(2, 50)
    assert (caught.value.status, caught.value.code) == (429, "too-many-bytes")
    assert int(caught.value.headers["Retry-After"]) == pytest.approx(40_000, rel=0.01)
    # The messages of what was refused are still there.
    assert account.left() == pytest.approx({"messages": 9, "bytes": 10}, abs=0.1)
    account.spend(9, 10)
    with pytest.raises(Problem) as caught:
        account.admit()
    assert caught.value.code in {"too-many-messages", "too-many-bytes"}


def test_a_tenant_without_limits_has_none() -> None:
    account = Account(Tenant(name="ann"), 1)
    account.spend(10**9, 10**12)
    account.admit()
    assert account.left() == {}


def test_a_token_that_is_not_in_the_environment_is_told() -> None:
    settings = load(None, {}, ["server.metrics_token_env=M"])
    with pytest.raises(SettingsError, match=r"server\.metrics_token_env.*M has no value"):
        Tenants(settings, {})


def test_who_sends_no_token_reads_no_metrics() -> None:
    nothing = load(None, {}).server.model_copy(
        update={"metrics_token_sha256": (sha256(b"").hexdigest(),)}
    )
    tenants = Tenants(load(None, {}).model_copy(update={"server": nothing}), {})
    assert not tenants.measures(None)
    assert not tenants.measures(b"")


# --- over HTTP ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("stock"))


@pytest.fixture(scope="module")
def shared(index: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Threaded]:
    state = tmp_path_factory.mktemp("shared")
    environ = {"BOB": "bob-token", "M": METRICS}
    said = (TENANTS, "server.metrics_token_env=M")
    with Threaded(f"index={index}", f"state={state}", *said, environ=environ) as service:
        yield service


def test_bytes_are_bounded_for_one_tenant_and_no_other(shared: Threaded) -> None:
    body = b"<a>" + b" " * 1500 + b"</a>"
    packed = gzip.compress(body)
    assert len(packed) < 100
    with (
        shared.client("ann-token") as ann,
        shared.client("bob-token") as bob,
        shared.client(METRICS) as operator,
    ):
        ann.post("/v1/messages", content=body).raise_for_status()
        for each in (body, packed):
            refused = ann.post("/v1/messages", content=each)
            assert refused.status_code == 429
            assert refused.headers["content-type"] == "application/problem+json"
            assert refused.json()["code"] == "too-many-bytes"
            assert int(refused.headers["retry-after"]) > 500_000
        for _ in range(4):
            bob.post("/v1/messages", content=body).raise_for_status()
        text = operator.get("/metrics").text
        assert 'fmware_tenant_rejects_total{code="too-many-bytes",tenant="ann"} 2.0' in text
        assert 'fmware_quota_left{quota="bytes",tenant="ann"}' in text
        # When nothing is left, a body is refused unread.
        ann.post("/v1/messages", content=b"<a>" + b" " * 486 + b"</a>").raise_for_status()
        with ann.stream("POST", "/v1/messages", content=(b"<a>" for _ in range(1))) as answer:
            assert answer.status_code == 429


def test_a_tenant_reads_its_own_metrics_and_the_operator_all(shared: Threaded) -> None:
    with (
        shared.client("ann-token") as ann,
        shared.client("bob-token") as bob,
        shared.client(METRICS) as operator,
        shared.client("nobody") as nobody,
    ):
        bob.put("/v1/statements/city", json=CITY).raise_for_status()
        bob.post("/v1/messages", content=sale()).raise_for_status()
        own = bob.get("/metrics").text
        assert 'fmware_matches_total{tenant="bob"}' in own
        lines = [line for line in own.splitlines() if not line.startswith("#")]
        assert all('tenant="bob"' in line for line in lines)
        assert "bob" not in ann.get("/metrics").text
        whole = operator.get("/metrics").text
        assert set(lines[:3]) <= set(whole.splitlines())
        for word in ('tenant="ann"', 'tenant="bob"', "fmware_engine_workers", "fmware_stage_"):
            assert word in whole
        assert nobody.get("/metrics").status_code == 401
        # It is good for nothing else.
        for path in ("/v1/statements", "/v1/matches", "/v1/stats", "/v1/report"):
            assert operator.get(path).status_code == 401


def test_readers_are_bounded_for_one_tenant_and_no_other(shared: Threaded) -> None:
    with shared.client("ann-token") as ann, shared.client("bob-token") as bob, ExitStack() as stack:
        for client, wanted in ((ann, 200), (ann, 200), (ann, 429), (bob, 200), (bob, 200)):
            asked = stack.enter_context(client.stream("GET", "/v1/matches/stream"))
            assert asked.status_code == wanted
        place = shared.url.replace("http", "ws") + "/v1/matches/ws"
        token = [Subprotocol("fmware"), Subprotocol("bearer.ann-token")]
        with pytest.raises(InvalidStatus, match="429"), connect(place, subprotocols=token):
            pass


def test_with_a_token_of_their_own_metrics_are_not_the_only_tenants(
    index: Path, tmp_path: Path
) -> None:
    token = f"server.metrics_token_sha256={sha256(METRICS.encode()).hexdigest()}"
    with Threaded(f"index={index}", f"state={tmp_path}", token) as served:
        with served.client() as client:
            assert "fmware_engine_workers" not in client.get("/metrics").text
        with served.client(METRICS) as operator:
            assert "fmware_engine_workers" in operator.get("/metrics").text
