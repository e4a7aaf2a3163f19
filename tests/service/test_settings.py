"""Settings: who wins, what is refused, and that errors say where and what to do."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmware.service.settings import (
    FilesSource,
    NatsSource,
    Settings,
    SettingsError,
    StatementSettings,
    default_file,
    load,
    schema,
)

ROOT = Path(__file__).parents[2]
NOTHING = sha256(b"").hexdigest()

NATS = "name='n', kind='nats'"


def written(place: Path, text: str) -> Path:
    path = place / "fmware.toml"
    path.write_text(text, encoding="utf-8")
    return path


def wrong(path: Path | None, *sets: str, **environ: str) -> list[str]:
    """What is said of a configuration that is wrong."""
    with pytest.raises(SettingsError) as caught:
        load(path, environ, sets)
    return [str(problem) for problem in caught.value.problems]


# --- who wins -------------------------------------------------------------------------------


def test_nothing_said_gives_the_defaults() -> None:
    settings = load()
    assert (settings.server.host, settings.server.port) == ("127.0.0.1", 8400)
    assert settings.index == Path.cwd() / "corpus.fm"
    assert [tenant.name for tenant in settings.everyone()] == ["default"]


def test_set_goes_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "[server]\nport = 1\nstreams = 1\nbatch_messages = 1\n")
    environ = {"FMWARE_SERVER__STREAMS": "2", "FMWARE_SERVER__BATCH_MESSAGES": "2"}
    server = load(path, environ, ["server.batch_messages=3"]).server
    assert (server.port, server.streams, server.batch_messages) == (1, 2, 3)
    assert server.stop_seconds == 30.0


def test_the_last_set_wins_also_over_parts_of_an_earlier_one() -> None:
    assert load(None, {}, ["server.port=1", "server.port=2"]).server.port == 2
    whole = load(None, {}, ["server.port=1", "server={ host = '::1' }"]).server
    assert (whole.host, whole.port) == ("::1", 8400)


def test_values_of_the_environment_are_text_or_toml() -> None:
    environ = {
        "FMWARE_SERVER__PAGE": "false",
        "FMWARE_ENGINE__DEDUPE_SECONDS": "1.5",
        "FMWARE_WEBHOOKS__PORTS": "[443, 8443]",
        "FMWARE_INDEX": "12",
    }
    settings = load(None, environ)
    assert settings.server.page is False
    assert settings.engine.dedupe_seconds == 1.5
    assert settings.webhooks.ports == (443, 8443)
    assert settings.index == Path.cwd() / "12"


def test_one_entry_of_a_list_can_be_changed_or_added(tmp_path: Path) -> None:
    path = written(tmp_path, "[[sources]]\nkind='nats'\nname='a'\nstream='S'\nsubject='s'\n")
    environ = {"FMWARE_SOURCES__0__URL": "nats://secret@broker:4222"}
    added = ["sources.1={kind='files', name='b', path='in'}"]
    first, second = load(path, environ, added).sources
    assert isinstance(first, NatsSource)
    assert first.url == "nats://secret@broker:4222"
    assert isinstance(second, FilesSource)
    assert second.path == Path.cwd() / "in"


def test_what_the_file_leaves_out_the_environment_may_give(tmp_path: Path) -> None:
    path = written(tmp_path, "[[sources]]\nkind='nats'\nname='a'\nstream='S'\n")
    assert wrong(path) == [f"{path}, line 1: sources.0.subject: must be given, and is not"]
    (source,) = load(path, {"FMWARE_SOURCES__0__SUBJECT": "s"}).sources
    assert isinstance(source, NatsSource)
    assert source.subject == "s"


def test_paths_start_where_they_were_written(tmp_path: Path) -> None:
    path = written(tmp_path, "index = 'here'\nstate = '/var/lib/fmware'\n")
    assert load(path).index == tmp_path / "here"
    assert load(path).state == Path("/var/lib/fmware")
    assert load(path, {"FMWARE_INDEX": "there"}).index == Path.cwd() / "there"
    assert load(path, {}, ["index=~/x"]).index == Path("~/x").expanduser()


def test_the_file_is_found_by_name_or_by_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert default_file({}) is None
    written(tmp_path, "")
    assert default_file({}) == Path("fmware.toml")
    assert default_file({"FMWARE_CONFIG": "other.toml"}) == Path("other.toml")


@pytest.mark.parametrize(
    "name", ["FMWARE_DEBUG", "FMWARE_CONFIG", "FMWARE_SERVICE_HOST", "FMWARE_PORT", "OTHER__PORT"]
)
def test_variables_that_others_set_are_left_alone(name: str) -> None:
    assert load(None, {name: "tcp://10.0.0.1:80"}) == load()


# --- what is refused ------------------------------------------------------------------------


def test_an_unknown_key_is_an_error_with_the_nearest_name(tmp_path: Path) -> None:
    path = written(tmp_path, "\n[server]\nprot = 1\n")
    assert wrong(path) == [f"{path}, line 3: server.prot: unknown key; did you mean port?"]
    assert wrong(None, "srever.port=1") == [
        "--set srever.port=1: srever: unknown key; did you mean server?"
    ]
    assert wrong(None, FMWARE_SERVER__HSOT="x") == [
        "FMWARE_SERVER__HSOT: server.hsot: unknown key; did you mean host?"
    ]
    assert "did you mean index?" in wrong(None, FMWARE_INDX="x")[0]


def test_an_unknown_key_of_a_source_is_compared_with_those_of_its_kind(tmp_path: Path) -> None:
    path = written(tmp_path, "[[sources]]\nkind='amqp'\nname='a'\nqueue='q'\nprefech=1\n")
    assert wrong(path) == [
        f"{path}, line 5: sources.0.prefech: unknown key; did you mean prefetch?"
    ]


def test_every_problem_is_told_at_once_each_with_its_line(tmp_path: Path) -> None:
    text = """\
[server]
port = 70000
page = "yes"

[[tenants]]
name = "a b"

[[tenants]]
name = "b"
token_sha256 = "abc"

[[sources]]
name = "x"
kind = "kafka"
"""
    path = written(tmp_path, text)
    told = wrong(path)
    for line, key in ((2, "server.port"), (3, "server.page"), (6, "tenants.0.name")):
        assert any(each.startswith(f"{path}, line {line}: {key}: ") for each in told), told
    assert f"{path}, line 10: tenants.1.token_sha256: not 64 hex digits: " in "\n".join(told)
    assert (
        f"{path}, line 14: sources.0.kind: 'kafka' is not files, stdio, nats, amqp or python"
        in told
    )


def test_text_over_several_lines_does_not_confuse_the_count(tmp_path: Path) -> None:
    text = '[[tests]]\nname = "x"\nmessage = """\n[server]\nport = 1\n"""\nprot = 1\n'
    path = written(tmp_path, text)
    assert wrong(path)[0].startswith(f"{path}, line 7: tests.0.prot: unknown key")


def test_a_file_that_is_not_toml_is_told_with_line_and_column(tmp_path: Path) -> None:
    path = written(tmp_path, "[server]\nport = \n")
    assert wrong(path) == [f"{path}, line 2, column 8: not TOML: Invalid value"]
    path.write_bytes(b"index = 'a'\nstate = '\xff'\n")
    assert wrong(path)[0].startswith(f"{path}, line 2: not UTF-8")


def test_the_file_is_strict_where_the_environment_cannot_be(tmp_path: Path) -> None:
    path = written(tmp_path, "[server]\nport = '8400'\n")
    assert wrong(path) == [
        f"{path}, line 2: server.port: input should be a valid integer, not '8400'"
    ]
    assert load(None, {"FMWARE_SERVER__PORT": "8401"}).server.port == 8401


@pytest.mark.parametrize("said", ["x", "=3", "server.port", "webhooks.ports=[1,"])
def test_a_set_that_cannot_be_read_is_an_error(said: str) -> None:
    (told,) = wrong(None, said)
    assert told.startswith(f"--set {said}: ")


@pytest.mark.parametrize("key", ["webhooks.ports.5", "webhooks.ports.first", "webhooks.ports."])
def test_entries_of_lists_are_numbered_without_gaps(key: str) -> None:
    (told,) = wrong(None, "webhooks.ports=[443]", f"{key}=80")
    assert told == f"--set {key}=80: {key}: entries of a list are numbered from 0, without gaps"
    assert load(None, {}, ["webhooks.ports=[443]", "webhooks.ports.1=80"]).webhooks.ports[1] == 80


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.5", "fmware.example.com"])
def test_other_machines_need_a_token(host: str) -> None:
    (told,) = wrong(None, f"server.host={host}")
    assert "token_sha256" in told
    assert "server.open" in told
    assert load(None, {}, [f"server.host={host}", "server.open=true"]).server.host == host
    tenants = "tenants=[{name='default', token_env='TOKEN'}]"
    assert load(None, {}, [f"server.host={host}", tenants]).server.host == host


@pytest.mark.parametrize(
    "said",
    [
        "connections=0",
        "header_seconds=0",
        "header_bytes=100",
        "header_bytes=10000000",
        "body_pause_seconds=-1",
        "stall_seconds=0",
        "keep_alive_seconds=0.5",
        "sink_stuck_seconds=0",
    ],
)
def test_no_bound_of_connections_can_be_taken_away(said: str) -> None:
    (told,) = wrong(None, f"server.{said}")
    assert f"server.{said.partition('=')[0]}: " in told


def test_one_tenant_without_a_token_is_one_too_many() -> None:
    tenants = "tenants=[{name='a', token_env='T'}, {name='b'}]"
    assert "tenant b has no token" in wrong(None, "server.host=0.0.0.0", tenants)[0]


@pytest.mark.parametrize(
    ("said", "key"),
    [
        ("tenants=[{name='a'}, {name='a'}]", "tenants.1.name"),
        ("statements=[{name='s', expression='//a'}, {name='s', expression='//b'}]", "statements.1"),
        ("sinks=[{name='s', kind='stdio'}, {name='s', kind='stdio'}]", "sinks.1.name"),
        ("sinks=[{name='log', kind='stdio'}]", "sinks.0.name"),
        (f"server.metrics_token_sha256={NOTHING}", "server.metrics_token_sha256"),
        (f"tenants=[{{name='a', token_sha256='{NOTHING.upper()}'}}]", "tenants.0.token_sha256"),
        ("statements=[{name='s', expression='//a', tenant='who'}]", "statements.0.tenant"),
        ("sources=[{name='s', kind='stdio', tenant='who'}]", "sources.0.tenant"),
        (
            "webhooks.targets=[{name='t', url='u', secret_env='S', tenant='who'}]",
            "webhooks.targets.0",
        ),
        ("statements=[{name='s', expression='//a', filter='//b'}]", "statements.0"),
        ("statements=[{name='s', filter='//a'}]", "statements.0"),
        ("tests=[{name='t'}]", "tests.0"),
        ("tests=[{name='t', message='<a/>', file='x'}]", "tests.0"),
        ("webhooks.allow=['10.0.0.1/8']", "webhooks.allow"),
        ("log={bytes=1048576, segment_bytes=2097152}", "log.segment_bytes"),
        ("log.letter_bytes=1000", "log.letter_bytes"),
        ("webhooks.dead_bytes=1000", "webhooks.dead_bytes"),
        (f"sources=[{{{NATS}, stream='S', subject='s', durable='a.b'}}]", "sources.0.durable"),
        (f"sources=[{{{NATS}, stream='S', subject='s', durable=''}}]", "sources.0.durable"),
        (f"sources=[{{{NATS}, stream='a b', subject='s'}}]", "sources.0.stream"),
        (f"sinks=[{{{NATS}, stream='a.*'}}]", "sinks.0.stream"),
        (f"sinks=[{{{NATS}, stream='S', duplicate_seconds=0.05}}]", "sinks.0.duplicate_seconds"),
        ("server.stop_seconds=0", "server.stop_seconds"),
        ("server.log_format=xml", "server.log_format"),
        ("engine.message_seconds=0", "engine.message_seconds"),
    ],
)
def test_what_does_not_go_together_is_refused(said: str, key: str) -> None:
    (told,) = wrong(None, said)
    assert f": {key}" in told


def test_everybody_is_a_tenant_that_sources_may_name() -> None:
    (source,) = load(None, {}, ["sources=[{name='s', kind='stdio', tenant='*'}]"]).sources
    assert source.tenant == "*"


def test_a_statement_is_the_same_in_one_expression_and_in_two_parts() -> None:
    one = StatementSettings(name="s", expression="//a[b > 1]/local:c", returns=("value",))
    two = StatementSettings(name="s", filter="//a[b > 1]", match="c", returns=("value",))
    assert one.statement().split == two.statement().split
    assert one.statement(name="t\x1fs").name == "t\x1fs"


def test_settings_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load().server.port = 1


names = st.text("abcdefghij_.-0123456789[]{}='\"\x00é ", min_size=0, max_size=12)


@given(st.lists(st.tuples(names, names), max_size=4))
def test_nothing_that_is_said_breaks_it(sets: list[tuple[str, str]]) -> None:
    environ = {f"FMWARE_{key.upper()}": value for key, value in sets}
    try:
        load(None, environ, [f"{key}={value}" for key, value in sets])
    except SettingsError as error:
        told = error.problems
        assert told
        assert all(problem.what for problem in told)


# --- the schema -----------------------------------------------------------------------------


def test_the_published_schema_is_the_one_of_the_code() -> None:
    published = json.loads((ROOT / "docs/fmware.schema.json").read_text(encoding="utf-8"))
    assert published == schema(), "run: fmware init --schema > docs/fmware.schema.json"


def test_every_option_has_a_sentence() -> None:
    made = schema()
    for name, table in [("", made), *made["$defs"].items()]:
        for key, about in table.get("properties", {}).items():
            table_of = made["$defs"].get(about.get("$ref", "").rpartition("/")[2], {})
            said = about.get("description") or table_of.get("description", "")
            assert said.endswith("."), f"{name}.{key} has no sentence"


def test_the_schema_takes_what_load_takes_and_no_more() -> None:
    rules = pytest.importorskip("jsonschema_rs", reason="comes with schemathesis")
    validator = rules.Draft202012Validator(schema())
    good: dict[str, Any] = json.loads(Settings().model_dump_json(exclude_none=True))
    validator.validate(good)
    good["server"]["prot"] = 1
    assert not validator.is_valid(good)
