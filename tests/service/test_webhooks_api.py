"""Webhooks that tenants make over HTTP: a real service, real receivers, restarts and kills."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import sqlite3
import threading
import time
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from fmware.service.database import Database
from fmware.service.hooks import SCHEMA as HOOKS
from fmware.service.hooks import Hook, Hooks, Secret
from fmware.service.log import MatchLog
from fmware.service.positions import SCHEMA as POSITIONS
from fmware.service.problems import Problem
from fmware.service.settings import Quota, Target, Tenant, WebhookSettings
from fmware.service.signature import SIGNATURE, verify
from fmware.service.tenants import Account
from fmware.service.webhooks import Webhooks
from tests.service.receivers import answered, hit, receiver, until
from tests.service.running import CITY, WAIT, Served, Threaded, make_index, sale
from tests.service.test_addresses import HOSTILE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence
    from pathlib import Path

GIVEN = "a-secret-of-my-own-choice"
TENANTS = "tenants=[{}]".format(
    ", ".join(
        f'{{name="{name}", token_sha256="{sha256(name.encode()).hexdigest()}", '
        "limits={webhooks=3}}"
        for name in ("ann", "bob", "cat")
    )
)


@dataclass
class Listener:
    """A receiver in a thread; `status` is what it answers, with something that must not leak."""

    status: int = 204
    port: int = 0
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    away: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def messages(self) -> list[str]:
        return [each["message"] for _, body in self.got for each in json.loads(body)["matches"]]

    def signed(self, secret: str, at: int = -1) -> bool:
        headers, body = self.got[at]
        return verify(secret.encode(), headers[SIGNATURE], body)


@contextmanager
def listening(status: int = 204) -> Iterator[Listener]:
    made = Listener(status)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            made.got.append((dict(self.headers), body))
            self.send_response(made.status, "LEAK-REASON")
            said = b"" if made.status == 204 else b"LEAK-BODY"
            self.send_header("Content-Length", str(len(said)))
            if made.away:
                self.send_header("Location", made.away)
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made.port = server.server_port
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield made
        finally:
            server.shutdown()


def hooks_to(*ports: int, more: str = "", allow: str = "allow_tenants") -> str:
    listed = ", ".join(map(str, ports))
    return (
        f"webhooks={{https_only=false, ports=[{listed}], {allow}=['127.0.0.0/8'], "
        f"first_seconds=0.05, longest_seconds=0.2{more}}}"
    )


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("stock"))


@pytest.fixture(scope="module")
def listener() -> Iterator[Listener]:
    with listening() as made:
        yield made


@pytest.fixture(scope="module")
def served(
    index: Path, listener: Listener, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Threaded]:
    state = tmp_path_factory.mktemp("state")
    said = (f"index={index}", f"state={state}", TENANTS, hooks_to(listener.port))
    with Threaded(*said) as service:
        for name in ("ann", "bob", "cat"):
            with service.client(name) as client:
                client.put("/v1/statements/city", json=CITY).raise_for_status()
                about = {"expression": "//sale/item/local:price"}
                client.put("/v1/statements/price", json=about).raise_for_status()
        yield service


@pytest.fixture
def ann(served: Threaded, listener: Listener) -> Iterator[httpx.Client]:
    """A tenant without webhooks, and a receiver that got nothing."""
    with served.client("ann") as client:
        yield client
        for each in client.get("/v1/webhooks").json()["webhooks"]:
            client.delete(f"/v1/webhooks/{each['name']}").raise_for_status()
    listener.got.clear()
    listener.status, listener.away = 204, ""


def eventually(holds: Callable[[], Any]) -> None:
    for _ in range(600):
        if holds():
            return
        time.sleep(0.05)
    pytest.fail("it never came true")


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    about: dict[str, Any] = response.json()
    assert about["code"] == code, about
    return about


def state_of(client: httpx.Client, name: str = "crm") -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/v1/webhooks/{name}").json()["state"]
    return found


def post(client: httpx.Client, *numbers: int) -> None:
    for each in numbers:
        named = {"message-id": f"m{each}"}
        client.post("/v1/messages", content=sale(each % 50), headers=named).raise_for_status()


# --- from making one to a request ---------------------------------------------------------------


def test_a_webhook_is_made_and_told_of_matches(ann: httpx.Client, listener: Listener) -> None:
    post(ann, 100)
    made = ann.post("/v1/webhooks", json={"name": "crm", "url": listener.url})
    assert made.status_code == 201
    assert made.headers["location"] == "/v1/webhooks/crm"
    assert made.headers["cache-control"] == "no-store"
    secret = made.json()["secret"]
    assert len(secret) >= 40
    post(ann, 101, 102)
    eventually(lambda: state_of(ann)["delivered"] == 4)
    # What was before it was made is not sent; what came after is, once and signed.
    assert listener.messages() == ["m101"] * 2 + ["m102"] * 2
    assert listener.signed(secret)
    shown = ann.get("/v1/webhooks/crm")
    assert shown.json()["url"] == listener.url
    assert (shown.json()["state"]["status"], shown.json()["state"]["behind"]) == ("ok", 0)
    listed = ann.get("/v1/webhooks")
    assert [each["name"] for each in listed.json()["webhooks"]] == ["crm"]
    assert secret not in shown.text + listed.text + ann.get("/v1/stats").text
    assert 'fmware_webhook_delivered{target="crm",tenant="ann"} 4.0' in ann.get("/metrics").text
    assert ann.get("/v1/stats").json()["webhooks"]["crm"]["delivered"] == 4


def test_a_webhook_may_be_of_some_statements(ann: httpx.Client, listener: Listener) -> None:
    about = {"url": listener.url, "statements": ["price"], "secret": GIVEN}
    made = ann.put("/v1/webhooks/crm", json=about)
    assert made.status_code == 201
    assert "secret" not in made.json()
    post(ann, 111, 112)
    eventually(lambda: state_of(ann)["delivered"] == 2)
    told = [each for _, body in listener.got for each in json.loads(body)["matches"]]
    assert {each["statement"] for each in told} == {"price"}
    assert listener.signed(GIVEN)


def test_a_webhook_is_replaced_and_keeps_its_place_and_secret(
    ann: httpx.Client, listener: Listener
) -> None:
    about = {"url": listener.url, "secret": GIVEN}
    ann.put("/v1/webhooks/crm", json={**about, "paused": True}).raise_for_status()
    post(ann, 121)
    before = ann.get("/v1/webhooks/crm").json()
    assert (before["state"]["status"], before["state"]["requests"]) == ("paused", 0)
    again = ann.put("/v1/webhooks/crm", json={"url": listener.url + "/new", "statements": ["city"]})
    assert again.status_code == 200
    assert "secret" not in again.json()
    assert again.json()["created"] == before["created"]
    eventually(lambda: state_of(ann)["delivered"] == 1)
    assert listener.messages() == ["m121"]
    assert listener.signed(GIVEN)
    # The same secret again changes nothing; another one is a rotation.
    assert "old_secret_until" not in ann.put("/v1/webhooks/crm", json=about).json()
    other = ann.put("/v1/webhooks/crm", json={**about, "secret": GIVEN + "2"}).json()
    assert other["old_secret_until"] > time.time()
    problem(ann.post("/v1/webhooks", json={"name": "crm", **about}), 409, "webhook-exists")


def test_while_a_secret_is_replaced_both_sign(ann: httpx.Client, listener: Listener) -> None:
    about = {"name": "crm", "url": listener.url, "secret": GIVEN}
    ann.post("/v1/webhooks", json=about).raise_for_status()
    turned = ann.post("/v1/webhooks/crm/rotate", json={"overlap_seconds": 600})
    assert turned.headers["cache-control"] == "no-store"
    new = turned.json()["secret"]
    assert 500 < turned.json()["old_secret_until"] - time.time() < 600
    ann.post("/v1/webhooks/crm/test").raise_for_status()
    assert listener.signed(new)
    assert listener.signed(GIVEN)
    # A secret that others know is dropped at once; never do three sign.
    given = ann.post("/v1/webhooks/crm/rotate", json={"secret": GIVEN + "3", "overlap_seconds": 0})
    assert "old_secret_until" not in given.json()
    ann.post("/v1/webhooks/crm/test").raise_for_status()
    assert listener.signed(GIVEN + "3")
    assert not listener.signed(new)
    assert not listener.signed(GIVEN)
    for number in range(3):
        ann.post("/v1/webhooks/crm/rotate", json={"secret": f"{GIVEN}-{number}"}).raise_for_status()
    ann.post("/v1/webhooks/crm/test").raise_for_status()
    assert [listener.signed(f"{GIVEN}-{number}") for number in range(3)] == [False, True, True]


def test_the_old_secret_ends_with_the_overlap(ann: httpx.Client, listener: Listener) -> None:
    about = {"name": "crm", "url": listener.url, "secret": GIVEN}
    ann.post("/v1/webhooks", json=about).raise_for_status()
    new = ann.post("/v1/webhooks/crm/rotate", json={"overlap_seconds": 0.5}).json()["secret"]
    eventually(lambda: "old_secret_until" not in ann.get("/v1/webhooks/crm").json())
    ann.post("/v1/webhooks/crm/test").raise_for_status()
    assert listener.signed(new)
    assert not listener.signed(GIVEN)


def test_one_that_is_paused_waits_and_goes_on(ann: httpx.Client, listener: Listener) -> None:
    ann.put("/v1/webhooks/crm", json={"url": listener.url, "statements": ["city"]})
    assert ann.post("/v1/webhooks/crm/pause").json()["state"]["status"] == "paused"
    post(ann, 131, 132)
    assert state_of(ann)["behind"] >= 2
    assert listener.got == []
    assert ann.post("/v1/webhooks/crm/resume").json()["paused"] is False
    eventually(lambda: state_of(ann)["delivered"] == 2)
    assert listener.messages() == ["m131", "m132"]


def test_one_that_fails_says_why_and_when_it_is_tried_again(
    ann: httpx.Client, listener: Listener
) -> None:
    listener.status = 503
    ann.put("/v1/webhooks/crm", json={"url": listener.url, "statements": ["city"]})
    post(ann, 141)
    eventually(lambda: state_of(ann)["failures"] >= 2 and "retry_at" in state_of(ann))
    state = state_of(ann)
    assert (state["status"], state["trouble"]) == ("failing", "answered 503")
    assert state["tries"] >= 2
    assert state["behind"] >= 1
    listener.status = 204
    eventually(lambda: state_of(ann)["delivered"] == 1)
    assert (state_of(ann)["status"], state_of(ann)["trouble"]) == ("ok", "")


def test_nothing_is_left_of_one_that_is_deleted(
    served: Threaded, ann: httpx.Client, listener: Listener
) -> None:
    ann.put("/v1/webhooks/crm", json={"url": listener.url}).raise_for_status()
    post(ann, 151)
    eventually(lambda: state_of(ann)["delivered"] == 2)
    assert ann.delete("/v1/webhooks/crm").status_code == 204
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/test"), ("POST", "/pause")):
        problem(ann.request(method, f"/v1/webhooks/crm{path}"), 404, "no-webhook")
    listener.got.clear()
    post(ann, 152)
    made = ann.put("/v1/webhooks/crm", json={"url": listener.url})
    assert made.json()["state"]["delivered"] == 0
    post(ann, 153)
    eventually(lambda: state_of(ann)["delivered"] == 2)
    assert listener.messages() == ["m153"] * 2


def test_what_was_given_up_can_be_read(
    served: Threaded, ann: httpx.Client, listener: Listener
) -> None:
    listener.status = 410
    ann.put("/v1/webhooks/crm", json={"url": listener.url, "statements": ["city"]})
    post(ann, 145)
    eventually(lambda: state_of(ann)["dead"] == 1)
    (dead,) = ann.get("/v1/webhooks/crm/dead").json()["deliveries"]
    assert (dead["tries"], dead["reason"]) == (1, "answered 410")
    assert json.loads(dead["body"])["matches"][0]["message"] == "m145"
    after = {"after": dead["number"]}
    assert ann.get("/v1/webhooks/crm/dead", params=after).json() == {"deliveries": []}
    with served.client("bob") as bob:
        problem(bob.get("/v1/webhooks/crm/dead"), 404, "no-webhook")
    ann.delete("/v1/webhooks/crm").raise_for_status()
    listener.status = 204
    ann.put("/v1/webhooks/crm", json={"url": listener.url}).raise_for_status()
    assert ann.get("/v1/webhooks/crm/dead").json() == {"deliveries": []}


# --- what a test says ---------------------------------------------------------------------------


def test_a_test_says_what_status_came_and_nothing_else(
    served: Threaded, listener: Listener
) -> None:
    with served.client("cat") as cat:
        cat.put("/v1/webhooks/crm", json={"url": listener.url, "secret": GIVEN, "paused": True})
        assert cat.post("/v1/webhooks/crm/test").json() == {"taken": True, "status": 204}
        body = json.loads(listener.got[-1][1])
        assert body == {"target": "crm", "tenant": "cat", "test": True, "matches": []}
        assert listener.signed(GIVEN)
        for status in (200, 401, 500):
            listener.status = status
            told = cat.post("/v1/webhooks/crm/test")
            assert told.json()["status"] == status
            assert told.json()["taken"] is (status == 200)
            assert "LEAK" not in told.text
        assert "LEAK" not in cat.get("/v1/webhooks/crm").text
    listener.status = 204
    listener.got.clear()


def test_a_test_follows_no_redirect(served: Threaded, listener: Listener) -> None:
    with served.client("cat") as cat:
        cat.put("/v1/webhooks/crm", json={"url": listener.url}).raise_for_status()
        listener.status = 307
        for away in (listener.url + "/inside", "file:///etc/passwd", "http://169.254.169.254/"):
            listener.away = away
            told = cat.post("/v1/webhooks/crm/test").json()
            assert (told["taken"], told["status"]) == (False, 307)
            assert "not followed" in told["reason"]
            assert away not in told["reason"]
        assert len(listener.got) == 3
        listener.status, listener.away = 204, ""
        listener.got.clear()


def test_tests_are_bounded(served: Threaded, listener: Listener) -> None:
    with served.client("bob") as bob:
        bob.put("/v1/webhooks/crm", json={"url": listener.url}).raise_for_status()
        answers = [bob.post("/v1/webhooks/crm/test") for _ in range(15)]
        refused = [each for each in answers if each.status_code == 429]
        assert refused
        problem(refused[0], 429, "too-many-tests")
        assert int(refused[0].headers["retry-after"]) > 0
        bob.delete("/v1/webhooks/crm").raise_for_status()
    listener.got.clear()


# --- whose they are, and how many ---------------------------------------------------------------


def test_tenants_have_their_own_and_no_more_than_they_may(
    served: Threaded, ann: httpx.Client, listener: Listener
) -> None:
    with served.client("bob") as bob:
        for name in ("a", "b", "crm"):
            ann.put(f"/v1/webhooks/{name}", json={"url": listener.url}).raise_for_status()
        refused = ann.put("/v1/webhooks/d", json={"url": listener.url})
        problem(refused, 429, "too-many-webhooks")
        ann.put("/v1/webhooks/crm", json={"url": listener.url}).raise_for_status()
        assert ann.get("/v1/webhooks").json()["limit"] == 3
        for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/test"), ("POST", "/resume")):
            problem(bob.request(method, f"/v1/webhooks/crm{path}"), 404, "no-webhook")
        assert bob.get("/v1/webhooks").json()["webhooks"] == []
        # The same name is another webhook for another tenant.
        bob.put("/v1/webhooks/crm", json={"url": listener.url}).raise_for_status()
        post(bob, 161)
        eventually(lambda: state_of(bob)["delivered"] == 2)
        assert state_of(ann)["delivered"] == 0
        bob.delete("/v1/webhooks/crm").raise_for_status()
        assert state_of(ann)["status"] == "ok"
    with served.client() as nobody:
        assert nobody.get("/v1/webhooks").status_code == 401


def test_webhooks_of_the_configuration_are_the_operators(index: Path, tmp_path: Path) -> None:
    with listening() as inner:
        target = f", targets=[{{name='crm', url='{inner.url}', secret_env='S'}}]"
        said = (
            f"index={index}",
            f"state={tmp_path}",
            hooks_to(inner.port, more=target, allow="allow"),
        )
        with Threaded(*said, environ={"S": GIVEN}) as service, service.client() as client:
            (shown,) = client.get("/v1/webhooks").json()["webhooks"]
            assert (shown["name"], shown["fixed"], "url" in shown) == ("crm", True, False)
            for method, path in (("DELETE", ""), ("POST", "/test"), ("POST", "/pause")):
                asked = client.request(method, f"/v1/webhooks/crm{path}")
                problem(asked, 409, "webhook-fixed")
            asked = client.put("/v1/webhooks/crm", json={"url": "https://example.com/"})
            problem(asked, 409, "webhook-fixed")
            problem(client.post("/v1/webhooks/crm/rotate", json={}), 409, "webhook-fixed")
            # What the operator's own webhooks may reach is closed to those of tenants.
            refused = client.put("/v1/webhooks/mine", json={"url": inner.url})
            about = problem(refused, 422, "webhook-refused")
            assert about["detail"] == "127.0.0.1 has no public address"
            for more in ({"allow": ["127.0.0.0/8"]}, {"fixed": True}):
                asked = client.put("/v1/webhooks/mine", json={"url": inner.url, **more})
                problem(asked, 422, "invalid")
        assert inner.got == []


# --- addresses ----------------------------------------------------------------------------------

ODD = [
    "https://169.254.169.254/latest/meta-data/",
    "https://[::ffff:10.0.0.1]/",
    "https://[64:ff9b::a00:1]/",
    "https://[64:ff9b:1::a00:1]/",
    "https://[2002:a00:1::]/",
    "https://[2001:0:53aa:64c:0:0:f5ff:fffe]/",
    "https://[::10.0.0.1]/",
    "https://167772161/",
    "https://0xa000001/",
    "https://012.0.0.1/",
    "https://10.1/",
    "https://localhost:8443/",
    "https://me@example.com/",
    "https://example.com:22/",
    "https://example.com:0/",
    "https://example.com:99999/",
    "HTTPS://127.0.0.1/",
    " https://127.0.0.1/",
    "https:127.0.0.1",
    "javascript:alert(1)",
    "https://\u0000/",
    "https://" + "a" * 1900 + ".example/",
    "https://xn--/",
]


@pytest.mark.parametrize("url", [*HOSTILE, *ODD])
def test_hostile_addresses_are_refused_when_they_are_named(url: str, closed: httpx.Client) -> None:
    refused = closed.put("/v1/webhooks/crm", json={"url": url})
    assert refused.status_code == 422, refused.text
    about = refused.json()
    assert about["code"] in {"webhook-refused", "invalid"}
    # Of names and addresses inside nothing is said that was not asked.
    said = re.findall(r"\d+\.\d+\.\d+\.\d+", about["detail"].replace("192.0.2.1", ""))
    assert all(each in url for each in said)


@pytest.fixture(scope="module")
def closed(index: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    state = tmp_path_factory.mktemp("closed")
    ports = "webhooks={https_only=false}"
    said = (f"index={index}", f"state={state}", ports)
    with Threaded(*said) as service, service.client() as client:
        yield client
        assert client.get("/v1/webhooks").json()["webhooks"] == []


ANN = Account(Tenant(name="ann", limits=Quota(webhooks=5)), 1)
PUBLIC = "93.184.215.14"


def test_a_name_that_moves_inside_is_refused_at_the_call(tmp_path: Path) -> None:
    """Public when it was named, private when it is called: rebinding."""
    addresses = {"moves.example": [PUBLIC]}

    async def names(host: str, port: int) -> Sequence[str]:
        if host not in addresses:
            raise OSError("no such name")
        return addresses[host]

    async def check() -> None:
        told: list[tuple[str, dict[str, Any]]] = []
        async with receiver(answered()) as server:
            settings = WebhookSettings(
                https_only=False, ports=(server.port,), allow=("127.0.0.0/8",), tries=1
            )
            log = MatchLog(tmp_path / "log", sync=False)
            await log.open()
            hooks = Webhooks(
                settings,
                log,
                tmp_path / "w.db",
                {},
                look_up=names,
                told=lambda event, about: told.append((event, about)),
            )
            await hooks.start()
            url = f"http://moves.example:{server.port}/"
            sender, _ = await hooks.put(ANN, "crm", url=url)
            for inside in ("127.0.0.1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"):
                # One address that is closed closes them all, in any order.
                for found in ([inside], [PUBLIC, inside], [inside, PUBLIC]):
                    addresses["moves.example"] = found
                    answer = await sender.test()
                    assert answer.status is None
                    assert answer.reason == "no public address"
                    assert inside in answer.detail
            await log.write([hit(1, tenant="ann")])
            await until(lambda: sender.state.dead == 1)
            assert sender.state.trouble == "no public address"
            # To name a private one, or none at all, is answered alike.
            for host in ("moves.example", "absent.example"):
                with pytest.raises(Problem, match=f"^{host} has no public address$"):
                    await hooks.put(ANN, "other", url=f"http://{host}:{server.port}/")
            assert server.seen == []
            await hooks.stop()
            await log.close()
        assert any("2002:7f00:1::" in about["reason"] for _, about in told)

    asyncio.run(check())


def test_what_a_tenant_may_reach_is_said_apart(tmp_path: Path) -> None:
    async def check() -> None:
        async with receiver(answered()) as server:
            url = f"http://127.0.0.1:{server.port}/"
            own = Target(name="own", url=url, tenant="ann", secret_env="S")
            for networks, reached in (((), False), (("127.0.0.1/32",), True)):
                settings = WebhookSettings(
                    https_only=False,
                    ports=(server.port,),
                    allow=("127.0.0.0/8",),
                    allow_tenants=networks,
                    targets=(own,),
                )
                log = MatchLog(tmp_path / f"log{reached}", sync=False)
                await log.open()
                hooks = Webhooks(settings, log, tmp_path / f"{reached}.db", {"S": GIVEN})
                await hooks.start()
                if reached:
                    await hooks.put(ANN, "theirs", url=url)
                else:
                    with pytest.raises(Problem, match="has no public address"):
                        await hooks.put(ANN, "theirs", url=url)
                await log.write([hit(1, tenant="ann")])
                state = hooks.states["own"]
                while not state.delivered:
                    await asyncio.sleep(0.01)
                await hooks.stop()
                await log.close()

    asyncio.run(check())


def test_one_that_was_just_made_begins_where_it_was_made(tmp_path: Path) -> None:
    """The machine may stop when it is on disk and nobody has begun to send."""

    async def check() -> None:
        async with receiver(answered()) as server:
            settings = WebhookSettings(
                https_only=False, ports=(server.port,), allow_tenants=("127.0.0.0/8",)
            )
            log = MatchLog(tmp_path / "log", sync=False)
            await log.open()
            await log.write([hit(number, tenant="ann") for number in range(3)])
            database = Database(tmp_path / "w.db", POSITIONS + HOOKS)
            url = f"http://127.0.0.1:{server.port}/"
            Hooks(database).put(Hook("ann", "crm", url, (Secret(GIVEN),)), log.last)
            database.close()
            await log.write([hit(number, tenant="ann") for number in range(3, 6)])
            hooks = Webhooks(settings, log, tmp_path / "w.db", {})
            await hooks.start()
            await until(lambda: hooks.states["ann/crm"].delivered == 3)
            assert [each for seen in server.seen for each in seen.messages] == ["3", "4", "5"]
            await hooks.stop()
            await log.close()

    asyncio.run(check())


@asynccontextmanager
async def calling(
    place: Path, *ports: int, targets: tuple[Target, ...] = (), **more: Any
) -> AsyncIterator[tuple[MatchLog, Webhooks]]:
    """Webhooks of tenants, which may call this machine."""
    settings = WebhookSettings(
        https_only=False,
        ports=ports,
        allow=("127.0.0.0/8",),
        allow_tenants=("127.0.0.0/8",),
        targets=targets,
        **more,
    )
    log = MatchLog(place / "log", sync=False)
    await log.open()
    hooks = Webhooks(settings, log, place / "w.db", {"S": GIVEN})
    await hooks.start()
    try:
        yield log, hooks
    finally:
        await hooks.stop()
        await log.close()


def account(name: str = "ann") -> Account:
    return Account(Tenant(name=name, limits=Quota(webhooks=5)), 1)


def test_slow_names_of_a_tenant_hold_up_its_own_webhooks_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = threading.Event()
    slow = 0

    def names(host: str, port: int, **_: Any) -> list[Any]:
        nonlocal slow
        if host.startswith("slow"):
            slow += 1
            held.wait(60)
        return [(2, 1, 6, "", ("127.0.0.1", port))]

    async def check() -> None:
        async with receiver(answered()) as server:
            place = f"quick.example:{server.port}/"
            own = Target(name="own", url=f"http://{place}", tenant="bob", secret_env="S")
            async with calling(tmp_path, server.port, targets=(own,)) as (log, hooks):
                asked = [
                    asyncio.ensure_future(
                        hooks.put(ANN, "crm", url=f"http://slow{number}.example:{server.port}/")
                    )
                    for number in range(40)
                ]
                await until(lambda: slow >= 2)
                sender, _ = await hooks.put(account("bob"), "crm", url=f"http://{place}")
                await log.write([hit(1, tenant="bob")])
                await until(lambda: sender.state.delivered + hooks.states["own"].delivered == 2)
                assert slow == 2
                held.set()
                await asyncio.gather(*asked, return_exceptions=True)

    monkeypatch.setattr(socket, "getaddrinfo", names)
    try:
        asyncio.run(check())
    finally:
        held.set()


@pytest.mark.parametrize("how", ["resume", "replace", "pause"])
def test_tries_cannot_be_had_at_will(tmp_path: Path, how: str) -> None:
    """To have one go on, or to replace it, is a request to anybody's server, as a test is."""

    async def again(hooks: Webhooks, ours: Account, url: str) -> None:
        if how == "replace":
            await hooks.put(ours, "crm", url=url)
            return
        if how == "pause":
            await hooks.pause(ours, "crm", paused=True)
        await hooks.pause(ours, "crm", paused=False)

    async def check() -> None:
        async with (
            receiver(answered(503)) as server,
            calling(tmp_path, server.port, first_seconds=60.0) as (log, hooks),
        ):
            ours, url = account(), f"http://127.0.0.1:{server.port}/"
            sender, _ = await hooks.put(ours, "crm", url=url)
            await log.write([hit(1, tenant="ann")])
            codes = []
            for number in range(40):
                await until(lambda: sender.hook.paused or sender.state.retry_at is not None)
                try:
                    await again(hooks, ours, f"{url}{number}")
                except Problem as refused:
                    codes.append(refused.code)
            assert len(server.seen) < 30
            assert len(codes) > 10
            assert set(codes) == {"too-many-tests"}

    asyncio.run(check())


def test_what_is_under_way_is_not_sent_again_for_nothing(tmp_path: Path) -> None:
    async def check() -> None:
        seen = 0
        done = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal seen
            await reader.readuntil(b"]}")
            seen += 1
            await done.wait()
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with calling(tmp_path, port) as (log, hooks):
            ours, url = account(), f"http://127.0.0.1:{port}/"
            sender, _ = await hooks.put(ours, "crm", url=url)
            await log.write([hit(1, tenant="ann")])
            await until(lambda: seen == 1)
            for _ in range(20):
                await hooks.pause(ours, "crm", paused=False)
                await hooks.put(ours, "crm", url=url)
            # What is said of it holds all the same.
            await hooks.put(ours, "crm", url=url, secret=GIVEN)
            assert sender.hook.secrets[0].value == GIVEN
            done.set()
            await until(lambda: sender.state.delivered == 1)
            assert seen == 1
        server.close()

    asyncio.run(check())


def test_one_that_the_disk_would_not_change_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check() -> None:
        async with (
            receiver(answered()) as server,
            calling(tmp_path, server.port) as (log, hooks),
        ):
            ours, url = account(), f"http://127.0.0.1:{server.port}/"
            sender, _ = await hooks.put(ours, "crm", url=url)
            other = sqlite3.connect(tmp_path / "w.db")
            full = "BEGIN SELECT RAISE(ABORT, 'disk full'); END"
            other.execute(f"CREATE TRIGGER kept BEFORE DELETE ON hooks {full}")
            with pytest.raises(sqlite3.Error, match="disk full"):
                await hooks.delete("ann", "crm")
            other.execute("DROP TRIGGER kept")
            other.close()
            await log.write([hit(1, tenant="ann")])
            await until(lambda: sender.state.delivered == 1)

            def unread(_: str) -> int:
                raise sqlite3.OperationalError("disk I/O error")

            with monkeypatch.context() as broken:
                broken.setattr(hooks.positions, "get", unread)
                with pytest.raises(sqlite3.Error, match="I/O"):
                    await hooks.put(ours, "crm", url=f"{url}other")
                with pytest.raises(sqlite3.Error, match="I/O"):
                    await hooks.put(ours, "more", url=url)
            await log.write([hit(2, tenant="ann")])
            await until(lambda: sender.state.delivered == 2)
            assert server.seen[-1].path == "/other"
            # One that could not begin is not there, and can be made again.
            assert hooks.of("ann") == [sender]
            more, _ = await hooks.put(ours, "more", url=url)
            await log.write([hit(3, tenant="ann")])
            await until(lambda: more.state.delivered == 1)

    asyncio.run(check())


# --- restarts and kills -------------------------------------------------------------------------


def test_webhooks_outlive_a_kill_and_lose_nothing(index: Path, tmp_path: Path) -> None:
    with listening(503) as outer:
        said = hooks_to(outer.port)
        with Served(index, tmp_path / "state", said) as first, _client(first) as client:
            client.put("/v1/statements/city", json=CITY).raise_for_status()
            made = client.put("/v1/webhooks/crm", json={"url": outer.url})
            secret = made.json()["secret"]
            asleep = {"url": outer.url, "paused": True}
            client.put("/v1/webhooks/asleep", json=asleep).raise_for_status()
            client.put("/v1/webhooks/gone", json=asleep).raise_for_status()
            client.delete("/v1/webhooks/gone").raise_for_status()
            new = client.post("/v1/webhooks/crm/rotate", json={}).json()["secret"]
            post(client, *range(1, 8))
            eventually(lambda: state_of(client)["failures"] > 1)
            assert first.end(signal.SIGKILL) == -signal.SIGKILL
        assert "hook" not in str([line for line in first.lines if secret in str(line)])
        outer.got.clear()
        outer.status = 204
        with Served(index, tmp_path / "state", said) as second, _client(second) as client:
            eventually(lambda: state_of(client)["delivered"] == 7)
            kept = {each["name"]: each for each in client.get("/v1/webhooks").json()["webhooks"]}
            assert sorted(kept) == ["asleep", "crm"]
            assert kept["asleep"]["state"]["status"] == "paused"
            post(client, 8)
            eventually(lambda: state_of(client)["delivered"] == 8)
            assert second.end() == 0
        assert outer.messages() == [f"m{number}" for number in range(1, 9)]
        assert outer.signed(secret)
        assert outer.signed(new)
        # After an orderly end nothing comes twice.
        outer.got.clear()
        with Served(index, tmp_path / "state", said) as third, _client(third) as client:
            post(client, 9)
            eventually(lambda: state_of(client)["delivered"] == 1)
            assert third.end() == 0
        assert outer.messages() == ["m9"]
    for path in (tmp_path / "state").glob("webhooks.db*"):
        assert path.stat().st_mode & 0o077 == 0
    logged = str([line for each in (first, second, third) for line in each.lines])
    assert "webhook made" in logged
    assert secret not in logged
    assert new not in logged


@contextmanager
def _client(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=WAIT) as client:
        yield client


def test_those_of_a_tenant_that_is_gone_are_left_alone(index: Path, tmp_path: Path) -> None:
    with listening() as outer:
        said = (f"index={index}", f"state={tmp_path}", hooks_to(outer.port))
        with Threaded(*said, TENANTS) as service, service.client("ann") as ann:
            ann.put("/v1/webhooks/crm", json={"url": outer.url, "secret": GIVEN})
        with Threaded(*said) as service:
            assert service.service.webhooks is not None
            assert service.service.webhooks.senders == []
        with Threaded(*said, TENANTS) as service, service.client("ann") as ann:
            assert ann.post("/v1/webhooks/crm/test").json()["taken"]
        assert outer.signed(GIVEN)


def test_a_webhook_for_a_statement_that_is_not_there_is_refused(
    ann: httpx.Client, listener: Listener
) -> None:
    about = {"url": listener.url, "statements": ["price", "later"], "secret": GIVEN}
    refused = ann.put("/v1/webhooks/late", json=about)
    assert refused.status_code == 422
    assert refused.json()["code"] == "no-statement"
    assert "'later'" in refused.text
    assert ann.get("/v1/webhooks/late").status_code == 404
