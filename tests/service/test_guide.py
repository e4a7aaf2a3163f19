"""The operators' guide: what it says is so."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from typer.testing import CliRunner

from fmware.cli import app
from fmware.corpus import build_index
from fmware.service.settings import load
from fmware.service.signature import sign
from fmware.service.template import guide
from tests.service.running import CITY, Threaded, make_index, sale

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/service.md").read_text(encoding="utf-8")

HOOKS = "webhooks={https_only=false, ports=[9], allow_tenants=['127.0.0.0/8']}"
"""Nobody listens there."""


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("stock"))


@pytest.fixture(scope="module")
def served(index: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Threaded]:
    state = tmp_path_factory.mktemp("state")
    kept = f"sinks=[{{name='kept', kind='files', path='{state}/kept'}}]"
    taken = f"sources=[{{name='taken', kind='files', path='{state}/taken'}}]"
    (state / "taken").mkdir()
    quota = "tenants=[{name='default', limits={rate=1000000}}]"
    with Threaded(f"index={index}", f"state={state}", kept, taken, quota, HOOKS) as service:
        yield service


def section(title: str) -> str:
    return GUIDE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


def until(holds: Callable[[], bool]) -> None:
    """Wait for what comes within seconds, however slow the machine is."""
    for _ in range(1200):
        if holds():
            return
        time.sleep(0.05)
    pytest.fail("it never came true")


def test_it_lists_every_option() -> None:
    made = "from fmware.service.template import guide; print(guide())"
    assert GUIDE.endswith(guide()), f'put at its end what is printed by: python -c "{made}"'


def test_its_toml_is_good(index: Path, tmp_path: Path) -> None:
    path = tmp_path / "fmware.toml"
    for text in blocks("toml"):
        path.write_text(text)
        assert tomllib.loads(text)
        load(path, {}, [f"index={index}"])


def test_every_route_that_it_names_is_there(served: Threaded) -> None:
    with served.client() as client:
        paths = client.get("/openapi.json").json()["paths"]
    known = {
        (method.upper(), re.sub(r"{\w+}", "X", path))
        for path, about in paths.items()
        for method in about
    }
    for row in re.findall(r"^\| (`.*?) \|", section("Over HTTP"), re.M):
        methods = re.findall(r"(PUT|GET|DELETE|POST)", row)
        for path in re.findall(r"/[a-z][\w/.-]*", row):
            place = re.sub(r"/[A-Z]+", "/X", path)
            if place != "/v1/matches/ws":
                assert {(method, place) for method in methods} & known, path


def test_it_names_every_metric_that_is_there_and_no_other(served: Threaded) -> None:
    with served.client() as client:
        client.put("/v1/statements/city", json=CITY).raise_for_status()
        client.put("/v1/webhooks/crm", json={"url": "http://127.0.0.1:9/"}).raise_for_status()
        client.post("/v1/messages", content=sale()).raise_for_status()
        client.post("/v1/messages", content=b"<bad")
        # Workers are asked once a second.
        until(lambda: "fmware_operator_" in client.get("/metrics").text)
        text = client.get("/metrics").text
    there = set(re.findall(r"^(fmware_\w+?)(?:_bucket|_sum|_count)?(?:{| )", text, re.M))
    named = set(re.findall(r"`(fmware_[a-z_]+\*?)", section("Monitor")))
    assert len(named) > 20
    for name in named:
        fits = [each for each in there if re.fullmatch(name.replace("*", ".*"), each)]
        assert fits, f"{name} is not there"
    told = "|".join(each.replace("*", ".*") for each in named)
    assert {each for each in there if not re.fullmatch(told, each)} == set()


def test_its_receiver_knows_what_is_ours() -> None:
    (sample,) = [each for each in blocks("python") if "def is_ours" in each]
    names: dict[str, Any] = {}
    exec(sample, names)
    is_ours: Callable[[bytes, str, bytes], bool] = names["is_ours"]
    now = int(time.time())
    header = sign([b"new", b"old"], b"body", now)
    assert is_ours(b"new", header, b"body")
    assert is_ours(b"old", header, b"body")
    assert not is_ours(b"other", header, b"body")
    assert not is_ours(b"new", header, b"body!")
    assert not is_ours(b"new", header.replace(f"t={now}", f"t={now - 1}"), b"body")
    assert not is_ours(b"new", sign([b"new"], b"body", now - 301), b"body")
    for odd in ("", "t=", "v1=00", "t=x,v1=00", f"t={now},t={now},v1=00", f"t={now}", "\u00e9"):
        assert not is_ours(b"new", odd, b"body")
    for digits in (13, 400, 5000):
        assert not is_ours(b"new", f"t={'9' * digits},v1=00", b"body")


def commands(text: str) -> list[str]:
    """What is typed in the first block of a text."""
    block = re.search(r"```\n(\$ fmware index.*?)```", text, re.DOTALL)
    assert block is not None
    return re.findall(r"^\$ ((?:.*\\\n)*.*)$", block[1], re.M)


def test_its_three_commands_find_what_they_say(tmp_path: Path) -> None:
    index, serve, curl = commands(section("In three commands"))
    told = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n### The service\n")[2]
    assert commands(told) == [index, serve, curl]
    (corpus,) = re.findall(r"`(<stock>.*</stock>)`", section("In three commands"))
    (tmp_path / "stock.xml").write_text(corpus)
    environ = {key: value for key, value in os.environ.items() if "FMWARE" not in key}
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"

    def typed(command: str) -> list[str]:
        return [*(shlex.split(command.replace("\\\n", " ").rstrip("& ")))]

    subprocess.run(typed(index), cwd=tmp_path, env=environ, check=True, capture_output=True)
    said = [*typed(serve), "--set", "server.port=0", "--set", "engine.workers=1"]
    asked = typed(curl)
    (where,) = [each for each in asked if each.startswith("localhost:8400/")]
    key, value = asked[asked.index("-H") + 1].split(": ")
    with subprocess.Popen(said, cwd=tmp_path, env=environ, stderr=subprocess.PIPE) as serving:
        try:
            assert serving.stderr is not None
            url = json.loads(serving.stderr.readline())["url"]
            where = where.replace("localhost:8400", url)
            body = asked[asked.index("-d") + 1]
            posted = httpx.post(where, content=body, headers={key: value}, timeout=60)
        finally:
            serving.terminate()
            serving.communicate(timeout=60)
    assert serving.returncode == 0
    (match,) = posted.json()["matches"]
    assert (match["statement"], match["local"]["value"]) == ("city", "Ulm")


def test_its_file_is_tested_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (corpus,) = re.findall(r"`(<stock>.*</stock>)`", section("In three commands"))
    (tmp_path / "stock.xml").write_text(corpus)
    build_index("stock.xml", "corpus.fm", record="item", identity=["item=@sku"], calibrate=False)
    run = CliRunner()
    assert run.invoke(app, ["init", "--index", "corpus.fm"]).exit_code == 0
    (added,) = re.findall(r"```toml\n(.*?)```", section("With a file"), re.DOTALL)
    with (tmp_path / "fmware.toml").open("a") as file:
        file.write(added)
    tested = run.invoke(app, ["test"])
    assert tested.exit_code == 0
    assert f"$ fmware test\n{tested.stdout}{tested.stderr}" in section("With a file")


def test_its_webhook_is_made_as_it_says(index: Path, tmp_path: Path) -> None:
    (said,) = re.findall(r"--json '(\{.*?\})'", section("Webhooks"))
    about = json.loads(said) | {"url": "http://127.0.0.1:9/"}
    with (
        Threaded(f"index={index}", f"state={tmp_path}", HOOKS) as service,
        service.client() as client,
    ):
        city = {"expression": "//sale/item/local:city"}
        assert client.put("/v1/statements/city", json=city).is_success
        made = client.post("/v1/webhooks", json=about)
        assert made.status_code == 201
        told = client.get("/v1/webhooks/crm").json()
        row = next(line for line in GUIDE.splitlines() if line.startswith("| see how it does"))
        for key in set(re.findall(r"`(\w+)`", row)) - {"retry_at"}:
            assert key in told["state"], key
        assert client.post("/v1/webhooks/crm/rotate", json={}).json()["secret"]


def test_an_index_that_is_away_is_told_and_forgotten_when_it_is_back(
    index: Path, tmp_path: Path
) -> None:
    place = tmp_path / "index"
    shutil.copytree(index, place)
    with (
        Threaded(f"index={place}", f"state={tmp_path}/state") as service,
        service.client() as client,
    ):
        client.put("/v1/statements/city", json=CITY).raise_for_status()
        place.rename(tmp_path / "away")
        until(lambda: client.get("/readyz").json()["status"] == "degraded")
        assert "no index here" in client.get("/readyz").json()["trouble"][0]
        # Workers go on with what they have open.
        assert client.post("/v1/messages", content=sale(8)).json()["matches"]
        (tmp_path / "away").rename(place)
        until(lambda: client.get("/readyz").json()["status"] == "ok")


def test_its_source_and_its_sink_work(index: Path, tmp_path: Path) -> None:
    (source,) = [each for each in blocks("python") if "class Journal" in each]
    (sink,) = [each for each in blocks("python") if "class Ledger" in each]
    assert len([line for line in source.splitlines() if line]) <= 30
    (tmp_path / "ours.py").write_text(source + sink)
    good = sale().decode()
    (tmp_path / "journal.xml").write_text(f"{good}\n<broken\n{good}\n")
    used = (
        f"index = {json.dumps(str(index))}\n[engine]\nworkers = 1\n"
        f"[[statements]]\nname = 'city'\nexpression = {json.dumps(CITY['expression'])}\n"
        "[[sources]]\nname='j'\nkind='python'\nuse='ours:Journal'\n"
        "options={path='journal.xml'}\n"
        "[[sinks]]\nname='l'\nkind='python'\nuse='ours:Ledger'\noptions={path='ledger'}\n"
    )
    (tmp_path / "fmware.toml").write_text(used)
    command = [sys.executable, "-m", "fmware.service.run", "fmware.toml"]
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    subprocess.run(command, cwd=tmp_path, env=environ, check=True, capture_output=True)
    found = [json.loads(line) for line in (tmp_path / "ledger").read_text().splitlines()]
    assert sorted(each.get("message", "dead") for each in found) == [
        *("dead", "journal.xml:0", "journal.xml:2")
    ]
    # What was acknowledged does not come again.
    assert len((tmp_path / "journal.xml.done").read_text().splitlines()) == 3
