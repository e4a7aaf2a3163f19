"""The HTTP side, end to end: a real server, real workers, a real index."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import time
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from socket import create_connection
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from tests.service.running import CITY, WAIT, Threaded, events_of, make_index, sale

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fmware.service.service import Service

XML = {"content-type": "application/xml"}
TENANTS = (
    f'tenants=[{{name="ann", token_sha256="{sha256(b"ann-token").hexdigest()}", '
    "limits={statements=3, rate=0.001, burst=20, body_bytes=4000}}, "
    '{name="bob", token_env="BOB"}]'
)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("stock"))


@pytest.fixture(scope="module")
def served(index: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Threaded]:
    state = tmp_path_factory.mktemp("state")
    fixed = 'statements=[{name="kept", expression="//never"}]'
    small = "server.body_bytes=100000", "server.batch_messages=50"
    with Threaded(f"index={index}", f"state={state}", fixed, *small) as service:
        yield service


@pytest.fixture
def client(served: Threaded) -> Iterator[httpx.Client]:
    """A client, and no statements before."""
    with served.client() as client:
        for each in client.get("/v1/statements").json()["statements"]:
            if not each["fixed"]:
                client.delete(f"/v1/statements/{each['name']}").raise_for_status()
        yield client


@pytest.fixture(scope="module")
def shared(index: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Threaded]:
    """A service with two tenants."""
    state = tmp_path_factory.mktemp("shared")
    with Threaded(
        f"index={index}", f"state={state}", TENANTS, environ={"BOB": "bob-token"}
    ) as service:
        yield service


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    about: dict[str, Any] = response.json()
    assert about["code"] == code, about
    assert about["request"] == response.headers["x-request-id"]
    return about


def cities(answer: dict[str, Any]) -> list[str]:
    return [each["local"]["value"] for each in answer["matches"]]


# --- statements -------------------------------------------------------------------------------


def test_a_statement_is_made_shown_replaced_and_deleted(client: httpx.Client) -> None:
    made = client.post("/v1/statements", json={"name": "city", **CITY})
    assert made.status_code == 201
    assert made.headers["location"] == "/v1/statements/city"
    assert client.get("/v1/statements/city").json()["expression"] == CITY["expression"]
    assert cities(client.post("/v1/messages", content=sale(), headers=XML).json()) == ["C0"]
    other = {"filter": "//sale/item", "match": "price", "returns": ["value"]}
    assert client.put("/v1/statements/city", json=other).status_code == 200
    assert cities(client.post("/v1/messages", content=sale(), headers=XML).json()) == ["7"]
    assert client.delete("/v1/statements/city").status_code == 204
    assert client.post("/v1/messages", content=sale(), headers=XML).json()["matches"] == []
    problem(client.delete("/v1/statements/city"), 404, "no-statement")


def test_a_name_is_taken_once(client: httpx.Client) -> None:
    client.post("/v1/statements", json={"name": "city", **CITY}).raise_for_status()
    problem(client.post("/v1/statements", json={"name": "city", **CITY}), 409, "statement-exists")


def test_statements_of_the_configuration_stay(client: httpx.Client) -> None:
    assert client.get("/v1/statements/kept").json()["fixed"]
    problem(client.delete("/v1/statements/kept"), 409, "statement-fixed")
    problem(client.put("/v1/statements/kept", json=CITY), 409, "statement-fixed")


def test_a_bad_statement_says_where_and_what_to_do(client: httpx.Client) -> None:
    refused = client.post("/v1/statements", json={"name": "x", "expression": "//sale[matching(b)]"})
    about = problem(refused, 422, "FMX103")
    assert about["at"] == 7
    assert "character 8" in about["where"]
    assert about["hint"]
    refused = client.post("/v1/statements", json={"name": "x", "expression": "//a", "match": "b"})
    assert "beside expression" in problem(refused, 422, "invalid")["detail"]
    refused = client.post("/v1/statements", json={"name": "a/b", "expression": "//a"})
    assert problem(refused, 422, "invalid")["where"] == "body.name"


def test_statements_are_listed_by_page(client: httpx.Client) -> None:
    lines = "".join(f"//sale[units = {n}]\n" for n in range(25))
    bulk = client.post("/v1/statements/bulk", content=lines, headers={"content-type": "text/plain"})
    assert bulk.json() == {"registered": 25, "refused": []}
    names: list[str] = []
    after = ""
    while True:
        page = client.get("/v1/statements", params={"after": after, "limit": 10}).json()
        names += [each["name"] for each in page["statements"]]
        if "next" not in page:
            break
        after = page["next"]
    assert names == sorted([*(str(n) for n in range(1, 26)), "kept"])
    assert page["count"] == 26


def test_bulk_takes_the_good_ones(client: httpx.Client) -> None:
    some = [{"name": "a", "expression": "//a"}, {"name": "b", "expression": "//["}, {"x": 1}]
    answer = client.post("/v1/statements/bulk", json={"statements": some}).json()
    assert answer["registered"] == 1
    assert [each["name"] for each in answer["refused"]] == ["?", "b"]
    toml = '[[statement]]\nname = "city"\nfilter = "//sale/item"\nmatch = "city"\n'
    answer = client.post(
        "/v1/statements/bulk", content=toml, headers={"content-type": "application/toml"}
    ).json()
    assert answer == {"registered": 1, "refused": []}
    found = client.post("/v1/messages", content=sale(), headers=XML).json()
    assert [each["statement"] for each in found["matches"]] == ["city"]


def test_validate_tells_what_the_index_lacks(client: httpx.Client) -> None:
    told = client.post(
        "/v1/statements/validate", json={"expression": "//sale/item/local:town"}
    ).json()
    assert told["filter"] == "//sale/item"
    assert told["crossings"][0]["match"] == "town"
    assert any("no town" in each for each in told["warnings"])
    assert client.get("/v1/statements").json()["count"] == 1


def test_redundant_statements_are_named(client: httpx.Client) -> None:
    for name, text in (("narrow", "//sale/item[units > 3]"), ("wide", "//sale"), ("no", "/@x")):
        client.put(f"/v1/statements/{name}", json={"expression": text}).raise_for_status()
    told = client.get("/v1/redundant").json()
    assert told["looked_at"] == client.get("/v1/statements").json()["count"]
    found = {each["name"]: (each["reason"], each.get("by")) for each in told["redundant"]}
    assert found["narrow"] == ("redundant", "wide")
    assert found["no"] == ("unsatisfiable", None)
    assert "wide" not in found


def test_explain_and_try_say_why(client: httpx.Client) -> None:
    client.post("/v1/statements", json={"name": "city", **CITY}).raise_for_status()
    told = client.post("/v1/statements/city/explain", content=sale(units=2), headers=XML).json()
    assert told["matched"] is False
    assert told["trace"]["stop"]["reason"].endswith('units was "2", needed > 3')
    tried = client.post("/v1/try", json={"statement": CITY, "message": sale(3).decode()}).json()
    assert cities(tried) == ["C3"]
    assert tried["explanation"]["matched"] is True
    refused = client.post("/v1/try", json={"statement": CITY, "message": "<a>"})
    assert problem(refused, 422, "unreadable-message")["where"].startswith("message, line 1")


# --- messages ---------------------------------------------------------------------------------


def test_messages_come_alone_together_and_packed(client: httpx.Client) -> None:
    client.post("/v1/statements", json={"name": "city", **CITY}).raise_for_status()
    one = client.post("/v1/messages", content=sale(1), headers=XML).json()
    assert cities(one) == ["C1"]
    three = b"\n".join([sale(1), b"<a>&what;</a>", sale(2)])
    answer = client.post("/v1/messages", content=three, headers=XML).json()
    assert [cities(each) for each in answer["messages"]] == [["C1"], [], ["C2"]]
    assert "rejected" in answer["messages"][1]
    packed = gzip.compress(sale(3)) + gzip.compress(sale(4))
    for headers in ({"content-encoding": "gzip", **XML}, {"content-type": "application/gzip"}):
        answer = client.post("/v1/messages", content=packed, headers=headers).json()
        assert [cities(each) for each in answer["messages"]] == [["C3"], ["C4"]]
    listed = {"messages": [{"id": "first", "xml": sale(5).decode()}]}
    answer = client.post("/v1/messages", json=listed).json()
    logged = client.get("/v1/matches", params={"after": answer["position"] - 1}).json()
    assert answer["messages"][0]["matches"] == logged["matches"]
    assert answer["messages"][0]["message"] == "first"
    assert cities(answer["messages"][0]) == ["C5"]


def test_a_match_has_the_id_and_the_time_of_its_message(client: httpx.Client) -> None:
    client.post("/v1/statements", json={"name": "city", **CITY}).raise_for_status()
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    two = client.post("/v1/messages", content=sale(1) + sale(2), headers=XML).json()["messages"]
    later = client.post("/v1/messages?wait=false", content=sale(3), headers=XML).headers["location"]
    after = datetime.now(UTC)
    while (receipt := client.get(later).json())["state"] == "waiting":
        time.sleep(0.02)
    for each in (*two, *receipt["answer"]["messages"]):
        (match,) = each["matches"]
        assert match["message"] == each["message"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", match["time"])
        assert before <= datetime.fromisoformat(match["time"]) <= after


def test_a_repeated_message_is_a_duplicate(client: httpx.Client) -> None:
    client.post("/v1/statements", json={"name": "city", **CITY}).raise_for_status()
    named = {"message-id": "order-1", **XML}
    first = client.post("/v1/messages", content=sale(), headers=named).json()
    second = client.post("/v1/messages", content=sale(), headers=named).json()
    assert (first["duplicate"], len(first["matches"])) == (False, 1)
    assert (second["duplicate"], second["matches"]) == (True, [])


def test_a_bad_message_is_refused_and_kept(client: httpx.Client) -> None:
    bad = b"<!DOCTYPE a [<!ENTITY x 'y'>]><a>&x;</a>"
    refused = client.post("/v1/messages", content=bad, headers={"message-id": "evil", **XML})
    about = problem(refused, 422, "unreadable-message")
    assert about["message"] == "evil"
    letters = client.get("/v1/dead-letters", params={"limit": 100}).json()["letters"]
    assert [each["body"] for each in letters if each["id"] == "evil"] == [bad.decode()]


def test_a_receipt_is_asked_for_later(client: httpx.Client) -> None:
    client.post("/v1/statements", json={"name": "city", **CITY}).raise_for_status()
    taken = client.post("/v1/messages?wait=false", content=sale() + sale(2), headers=XML)
    assert taken.status_code == 202
    place = taken.headers["location"]
    while (receipt := client.get(place).json())["state"] == "waiting":
        time.sleep(0.02)
    assert [cities(each) for each in receipt["answer"]["messages"]] == [["C0"], ["C2"]]
    problem(client.get("/v1/receipts/other"), 404, "no-receipt")
    wrong = client.post("/v1/messages?wait=perhaps", content=sale(), headers=XML)
    assert problem(wrong, 422, "invalid")["where"] == "query.wait"
    one = client.post("/v1/messages?batch=true&wait=yes", content=sale(2), headers=XML).json()
    assert [cities(each) for each in one["messages"]] == [["C2"]]


def test_bodies_are_bounded_also_when_unpacked(client: httpx.Client) -> None:
    large = b"<a>" + b" " * 200_000 + b"</a>"
    problem(client.post("/v1/messages", content=large, headers=XML), 413, "body-too-large")

    def chunks() -> Iterator[bytes]:
        yield from (large[at : at + 10_000] for at in range(0, len(large), 10_000))

    problem(client.post("/v1/messages", content=chunks(), headers=XML), 413, "body-too-large")
    bomb = gzip.compress(b"<a>" + b" " * 50_000_000 + b"</a>")
    assert len(bomb) < 100_000
    refused = client.post("/v1/messages", content=bomb, headers={"content-encoding": "gzip", **XML})
    problem(refused, 413, "body-too-large")
    short = gzip.compress(sale())[:-5]
    refused = client.post("/v1/messages", content=short, headers={"content-encoding": "gzip"})
    problem(refused, 400, "bad-gzip")
    problem(client.post("/v1/messages", content=b"<a/>" * 51), 413, "too-many-messages")
    problem(client.post("/v1/messages", content=b" "), 422, "no-message")
    assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/statements"),
        ("PUT", "/v1/statements/large"),
        ("POST", "/v1/statements/validate"),
        ("POST", "/v1/statements/bulk"),
        ("POST", "/v1/try"),
        ("POST", "/v1/webhooks"),
        ("PUT", "/v1/webhooks/large"),
        ("POST", "/v1/webhooks/large/rotate"),
    ],
)
def test_bodies_of_json_are_bounded_too(
    client: httpx.Client, method: str, path: str, *, told: bool
) -> None:
    large = b'{"expression": "' + b" " * 200_000 + b'"}'
    pieces = (large[at : at + 10_000] for at in range(0, len(large), 10_000))
    kind = {"content-type": "application/json"}
    refused = client.request(method, path, content=large if told else pieces, headers=kind)
    about = problem(refused, 413, "body-too-large")
    assert about["detail"] == "the body has more than 100,000 bytes"


def test_no_more_of_a_body_is_read_than_may_be(served: Threaded) -> None:
    """What is told to be too large is refused before it comes, what is not as soon as it is."""
    at = httpx.URL(served.url)
    head = f"POST /v1/statements HTTP/1.1\r\nhost: {at.host}\r\ncontent-type: application/json\r\n"
    chunk = b"186a1\r\n" + b" " * 100_001 + b"\r\n"
    for more, sent in (
        ("content-length: 60000000", b""),
        ("transfer-encoding: chunked", chunk),
    ):
        with create_connection((at.host, at.port), WAIT) as connection:
            connection.sendall(f"{head}{more}\r\n\r\n".encode() + sent)
            assert connection.recv(12) == b"HTTP/1.1 413"


def test_a_tenants_own_bound_of_bodies_holds_for_json(shared: Threaded) -> None:
    large = {"name": "large", "expression": "//a" + " " * 5000}
    with shared.client("ann-token") as ann, shared.client("bob-token") as bob:
        problem(ann.post("/v1/statements", json=large), 413, "body-too-large")
        assert bob.post("/v1/statements", json=large).status_code == 201
        bob.delete("/v1/statements/large").raise_for_status()
        assert 'code="body-too-large",tenant="ann"' in ann.get("/metrics").text


def test_other_media_are_refused(client: httpx.Client) -> None:
    picture = client.post("/v1/messages", content=b"x", headers={"content-type": "image/png"})
    problem(picture, 415, "unknown-media-type")
    packed = client.post("/v1/messages", content=b"x", headers={"content-encoding": "br"})
    problem(packed, 415, "unknown-encoding")
    problem(
        client.post("/v1/messages", content=b"{", headers={"content-type": "application/json"}),
        400,
        "bad-json",
    )


# --- matches ----------------------------------------------------------------------------------


def test_a_stream_resumes_with_exactly_what_was_missed(client: httpx.Client) -> None:
    client.post("/v1/statements", json={"name": "city", **CITY}).raise_for_status()
    client.put("/v1/statements/price", json={"expression": "//sale/item/local:price"})
    begin = client.get("/v1/matches", params={"limit": 1}).json()["last"]

    def post(*numbers: int) -> None:
        body = b"".join(map(sale, numbers))
        client.post("/v1/messages", content=body, headers=XML).raise_for_status()

    with client.stream("GET", "/v1/matches/stream") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        post(1, 2)
        live = events_of(stream, 4)
    post(3, 4, 5)
    post(6)
    last = live[-1]["position"]
    with client.stream("GET", "/v1/matches/stream", headers={"last-event-id": str(last)}) as stream:
        missed = events_of(stream, 8)
    logged = client.get("/v1/matches", params={"after": begin, "limit": 100}).json()
    assert live + missed == logged["matches"]
    assert len({each["id"] for each in logged["matches"]}) == 12
    only = {"after": begin, "statement": "city"}
    with client.stream("GET", "/v1/matches/stream", params=only) as stream:
        found = events_of(stream, 6)
    assert found == [each for each in logged["matches"] if each["statement"] == "city"]


@pytest.mark.parametrize("told", ["9" * 5000, "9" * 20, "9" * 19, "x", ""])
def test_an_event_that_never_was_is_not_resumed_from(client: httpx.Client, told: str) -> None:
    with client.stream("GET", "/v1/matches/stream", headers={"last-event-id": told}) as stream:
        assert stream.status_code == 200
        client.put("/v1/statements/city", json=CITY).raise_for_status()
        client.post("/v1/messages", content=sale(1), headers=XML).raise_for_status()
        assert [each["statement"] for each in events_of(stream, 1)] == ["city"]


def test_a_websocket_does_the_same(served: Threaded, client: httpx.Client) -> None:
    client.post("/v1/statements", json={"name": "city", **CITY}).raise_for_status()
    begin = client.get("/v1/matches", params={"limit": 1}).json()["last"]
    place = served.url.replace("http", "ws") + "/v1/matches/ws"
    with connect(place) as socket:
        client.post("/v1/messages", content=sale(1) + sale(2), headers=XML).raise_for_status()
        live = [json.loads(socket.recv()) for _ in range(2)]
    client.post("/v1/messages", content=sale(3), headers=XML).raise_for_status()
    with connect(f"{place}?after={live[-1]['position']}&statement=city") as socket:
        missed = [json.loads(socket.recv())]
    logged = client.get("/v1/matches", params={"after": begin}).json()["matches"]
    assert live + missed == logged


# --- tenants ----------------------------------------------------------------------------------


def test_tenants_have_their_own(shared: Threaded) -> None:
    with shared.client("ann-token") as ann, shared.client("bob-token") as bob:
        ann.put("/v1/statements/city", json=CITY).raise_for_status()
        bob.put("/v1/statements/all", json={"expression": "//sale"}).raise_for_status()
        problem(bob.get("/v1/statements/city"), 404, "no-statement")
        found = bob.post("/v1/messages", content=sale(), headers=XML).json()
        assert [each["statement"] for each in found["matches"]] == ["all"]
        found = ann.post("/v1/messages", content=sale(), headers=XML).json()
        assert [each["statement"] for each in found["matches"]] == ["city"]
        assert {each["tenant"] for each in bob.get("/v1/matches").json()["matches"]} == {"bob"}
        taken = ann.post("/v1/messages?wait=false", content=sale(), headers=XML)
        problem(bob.get(taken.headers["location"]), 404, "no-receipt")
        stats = bob.get("/v1/stats").json()
        assert [each["name"] for each in stats["statements"]] == ["all"]
        assert "city" not in bob.get("/v1/report").text
        assert "operators" not in stats["engine"]


def test_a_token_is_needed_and_must_be_right(shared: Threaded) -> None:
    with shared.client() as nobody, shared.client("ann-token2") as stranger:
        about = problem(nobody.get("/v1/statements"), 401, "unauthorized")
        assert "Bearer" in about["hint"]
        problem(stranger.post("/v1/messages", content=sale()), 401, "unauthorized")
        problem(nobody.get("/metrics"), 401, "unauthorized")
        assert nobody.get("/healthz").status_code == 200
    place = shared.url.replace("http", "ws") + "/v1/matches/ws"
    with pytest.raises(InvalidStatus, match="401"), connect(place):
        pass
    with connect(
        place, subprotocols=[Subprotocol("fmware"), Subprotocol("bearer.bob-token")]
    ) as socket:
        assert socket.subprotocol == "fmware"


def test_quotas_hold_one_tenant_and_no_other(shared: Threaded) -> None:
    with shared.client("ann-token") as ann, shared.client("bob-token") as bob:
        lines = "//a\n//b\n//c\n//d\n"
        text = {"content-type": "text/plain"}
        told = ann.post("/v1/statements/bulk", content=lines, headers=text).json()
        assert told["registered"] < 4
        assert {each["problem"]["code"] for each in told["refused"]} == {"too-many-statements"}
        problem(
            ann.post("/v1/messages", content=b"<a>" + b" " * 4000 + b"</a>"), 413, "body-too-large"
        )
        refused = ann.post("/v1/messages", content=b"<a/>" * 20, headers=XML)
        assert int(refused.headers["retry-after"]) > 0
        problem(refused, 429, "too-many-messages")
        for _ in range(3):
            bob.post("/v1/messages", content=b"<a/>" * 20, headers=XML).raise_for_status()


# --- who may ask ------------------------------------------------------------------------------


def test_pages_of_others_are_refused_without_tokens(served: Threaded, client: httpx.Client) -> None:
    refused = client.post("/v1/messages", content=sale(), headers={"origin": "http://evil.example"})
    problem(refused, 403, "wrong-origin")
    refused = client.get("/v1/matches", headers={"host": "rebound.example"})
    problem(refused, 421, "wrong-host")
    own = client.post("/v1/messages", content=sale(), headers={"origin": served.url, **XML})
    assert own.status_code == 200
    place = served.url.replace("http", "ws") + "/v1/matches/ws"
    with (
        pytest.raises(InvalidStatus, match="403"),
        connect(place, origin=Origin("http://evil.example")),
    ):
        pass


def test_answers_say_what_browsers_may_do(client: httpx.Client) -> None:
    headers = client.get("/healthz").headers
    assert headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert (
        client.get("/healthz", headers={"x-request-id": "mine-7"}).headers["x-request-id"]
        == "mine-7"
    )
    problem(client.get("/nothing/here"), 404, "not-found")
    problem(client.patch("/v1/statements"), 405, "method-not-allowed")
    problem(client.request("BREW", "/v1/statements"), 405, "method-not-allowed")
    assert "BREW" not in client.get("/metrics").text


# --- operators --------------------------------------------------------------------------------


def test_metrics_and_stats_count_what_happened(client: httpx.Client) -> None:
    client.post("/v1/statements", json={"name": "city", **CITY}).raise_for_status()
    before = client.get("/v1/stats").json()["totals"].get("matches", 0)
    client.post(
        "/v1/messages", content=sale(1) + sale(2) + b"<a>&x;</a>", headers=XML
    ).raise_for_status()
    stats = client.get("/v1/stats").json()
    assert stats["totals"]["matches"] == before + 2
    assert stats["latency"]["filter"]["p99"] > 0
    found = {each["name"]: each["matches"] for each in stats["statements"]}
    assert found["city"] == 2
    report = client.get("/v1/report").json()
    assert "city" in {each["name"] for each in report["workers"][0]["statements"]}
    stats = client.get("/v1/stats").json()
    costs = {each["name"]: each["costs"] for each in stats["statements"]}
    assert costs["city"]["seconds"] > 0
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        text = client.get("/metrics").text
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        if float(values["fmware_filter_states"]) > 0:
            break
        time.sleep(0.1)
    assert float(values['fmware_messages_total{outcome="rejected",tenant="default"}']) >= 1
    assert float(values['fmware_stage_seconds_count{stage="match"}']) >= 1
    assert float(values["fmware_engine_workers"]) == 1
    assert any(name.startswith("fmware_operator_candidates") for name in values)
    assert any(name.startswith("fmware_operator_unique_labels") for name in values)
    assert any(name.startswith("fmware_operator_spills") for name in values)
    assert "fmware_stream_lag" in values


def test_a_new_generation_is_taken_up(
    served: Threaded, client: httpx.Client, index: Path, tmp_path: Path
) -> None:
    from fmware.corpus import add

    client.post("/v1/statements", json={"name": "city", **CITY}).raise_for_status()
    body = sale(1000)
    assert cities(client.post("/v1/messages", content=body, headers=XML).json()) == []
    (tmp_path / "more.xml").write_text("<stock><item sku='p1000'><city>New</city></item></stock>")
    add(index, [tmp_path / "more.xml"])
    assert cities(client.post("/v1/messages", content=body, headers=XML).json()) == ["New"]


def test_ready_tells_of_workers(client: httpx.Client) -> None:
    told = client.get("/readyz")
    assert told.status_code == 200
    assert told.json()["workers"] == 1


def test_a_change_is_seen_through_when_nobody_waits(index: Path, tmp_path: Path) -> None:
    some = [{"name": f"s{n}", "expression": f"//sale[units = {n}]"} for n in range(900)]

    async def hasty(service: Service) -> None:
        asked = asyncio.create_task(
            service.register(service.tenants["default"], some, replace=False)
        )
        await asyncio.sleep(0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked

    with Threaded(f"index={index}", f"state={tmp_path}") as served:
        served.do(hasty(served.service))
        deadline = time.monotonic() + 60
        while served.service.count("default") < 900 and time.monotonic() < deadline:
            time.sleep(0.02)
        known = {each["name"] for each in served.service.engine.statements("default")}
        assert known == {each["name"] for each in served.service.store.all("default")}
        assert len(known) == 900
