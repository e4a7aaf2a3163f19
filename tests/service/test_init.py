"""`fmware init` and `fmware test`: the file that is written, and the tests that one may hold."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from fmware.cli import app
from fmware.corpus import build_index
from fmware.service.brokers import sink_of, source_of
from fmware.service.settings import load, schema
from fmware.service.tables import Settings
from fmware.service.template import reference, template

if TYPE_CHECKING:
    from pathlib import Path

CORPUS = (
    "<stock>"
    "<book key='b1'><publisher>Weber</publisher><publisher>Zwei</publisher></book>"
    "<book key='b2'><publisher>Springer</publisher></book>"
    "</stock>"
)
KINDS = {"files", "stdio", "nats", "amqp", "python"}
ORDER = "<order><book key='b1'><quantity>7</quantity></book></order>"


def fmware(*arguments: object) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    ran = CliRunner().invoke(app, [str(each) for each in arguments])
    assert ran.exception is None or isinstance(ran.exception, SystemExit), ran.exception
    return ran.exit_code, ran.stdout, ran.stderr


# --- init -----------------------------------------------------------------------------------


def test_the_written_file_says_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert fmware("init")[0] == 0
    written = load("fmware.toml")
    assert written.model_copy(update={"statements": (), "tests": ()}) == load()


def test_every_option_is_in_it_with_a_sentence() -> None:
    text = template()
    for table, rows in reference():
        for key, _, sentence in rows:
            assert re.search(rf"^(# ?)?{key} = ", text, re.M), f"{table} {key} is not in the file"
            words = re.sub(r"\n# ", " ", text)
            assert sentence in words, f"{table} {key} has no sentence"
    tables = [table for table, _ in reference()]
    assert len(tables) == len(set(tables))
    wanted = {"[server]", "[[webhooks.targets]]", "[tenants.limits]", "[[tests.matches]]"}
    assert {f"`{each}`" for each in wanted} <= set(tables)


def test_what_is_commented_out_has_only_to_be_uncommented(tmp_path: Path) -> None:
    text = re.sub(r"^#(?=[a-z\[])", "", template(), flags=re.M)
    path = tmp_path / "fmware.toml"
    path.write_text(text, encoding="utf-8")
    settings = load(path)
    assert {each.kind for each in settings.sources} == KINDS
    assert {each.kind for each in settings.sinks} == KINDS
    # What they are made with is what they take.
    for each in settings.sources:
        assert each.kind == "python" or source_of(each.model_dump()).name == each.name
    for sink in settings.sinks:
        assert sink.kind == "python" or sink_of(sink.model_dump()).name == sink.name
    assert settings.tests[-1].matches[0].statement == settings.statements[-1].name
    assert settings.statements[-1].statement().selects is not None
    empty = [key for key in Settings.model_fields if getattr(settings, key) in ((), None)]
    assert empty == ["statements_files"]


def test_a_file_that_is_there_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("index = 'mine'")
    code, _, said = fmware("init", path)
    assert code == 2
    assert "--force" in said
    assert path.read_text() == "index = 'mine'"
    assert fmware("init", path, "--force", "--index", "dblp")[0] == 0
    assert load(path).index == tmp_path / "dblp"


def test_it_can_be_shown_alone() -> None:
    assert fmware("init", "-")[1] == template()
    assert json.loads(fmware("init", "--schema")[1]) == schema()


def test_where_it_cannot_be_written_one_line_says_so(tmp_path: Path) -> None:
    code, _, said = fmware("init", tmp_path / "nowhere" / "fmware.toml")
    assert code == 1
    assert said.count("\n") == 1
    assert "No such file" in said


# --- test -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("stock")
    (place / "stock.xml").write_text(CORPUS)
    build_index(place / "stock.xml", place / "index", record="book", identity=["book=@key"])
    return place / "index"


def configured(index: Path, place: Path, tests: str, more: str = "") -> Path:
    path = place / "fmware.toml"
    path.write_text(
        f"index = {json.dumps(str(index))}\n{more}\n[[statements]]\nname = 'bulk'\n"
        f"expression = '//order/book[quantity > 5]/local:publisher'\n{tests}"
    )
    return path


def one_test(name: str, *matches: str, message: str = ORDER) -> str:
    return (
        f"[[tests]]\nname = {name!r}\nmessage = {json.dumps(message)}\n"
        f"matches = [{', '.join(matches)}]\n"
    )


def test_tests_that_hold_pass(index: Path, tmp_path: Path) -> None:
    (tmp_path / "order.xml").write_text(ORDER)
    tests = (
        # One that says little comes first, and leaves the right match to one that says more.
        one_test("both", "{statement='bulk'}", "{statement='bulk', path='/book[1]/publisher[1]'}")
        + one_test("none", message="<order><book key='b1'><quantity>2</quantity></book></order>")
        + "[[tests]]\nname='file'\nfile='order.xml'\nmatches=[{statement='bulk', value='Weber', "
        "tag='publisher', fragment='<publisher>Weber</publisher>', "
        "nodes=['/order[1]', '/order[1]/book[1]']}, {statement='bulk', value='Zwei'}]\n"
        "[[tests]]\nname='refused'\nmessage='<!DOCTYPE a><a/>'\nerror='DOCTYPE'\n"
    )
    code, shown, said = fmware("test", "-c", configured(index, tmp_path, tests))
    assert (code, said) == (0, "4 tests, 0 failed\n")
    assert shown.splitlines() == ["ok    both", "ok    none", "ok    file", "ok    refused"]


def test_a_failure_shows_what_was_expected_and_what_came(index: Path, tmp_path: Path) -> None:
    tests = one_test("wrong", "{statement='bulk', value='Weber'}", "{statement='bulk', value='X'}")
    code, shown, said = fmware("test", "-c", configured(index, tmp_path, tests))
    assert (code, said) == (1, "1 test, 1 failed\n")
    assert shown.splitlines()[0] == "FAIL  wrong"
    assert "      - bulk  value 'X'" in shown
    assert "      + bulk" in shown
    assert "value 'Zwei'" in shown
    assert "'Weber'" not in shown


def test_programs_get_one_object_a_test(index: Path, tmp_path: Path) -> None:
    tests = one_test("good", "{statement='bulk'}", "{statement='bulk'}") + one_test("bad")
    code, shown, _ = fmware("test", "-c", configured(index, tmp_path, tests), "--json")
    good, bad = map(json.loads, shown.splitlines())
    assert code == 1
    assert (good["passed"], good["matched"]) == (True, 2)
    assert (bad["passed"], bad["missing"], len(bad["surplus"])) == (False, [], 2)
    assert bad["surplus"][0]["statement"] == "bulk"


def test_limits_of_the_configuration_hold_for_tests_too(index: Path, tmp_path: Path) -> None:
    tests = "[[tests]]\nname='large'\nmessage='<a><b/></a>'\nerror='nodes'\n"
    path = configured(index, tmp_path, tests)
    assert fmware("test", "-c", path)[0] == 1
    assert fmware("test", "-c", path, "--set", "limits.nodes=1")[0] == 0


def test_a_test_of_a_statement_that_is_not_there_says_which_there_are(
    index: Path, tmp_path: Path
) -> None:
    tests = one_test("odd", "{statement='bluk'}")
    code, shown, _ = fmware("test", "-c", configured(index, tmp_path, tests))
    assert code == 1
    assert "no statement 'bluk'; there are: bulk" in shown


def test_a_file_of_statements_is_used(index: Path, tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("//order\n//nothing\n")
    tests = one_test("more", "{statement='1'}", "{statement='bulk'}", "{statement='bulk'}")
    path = configured(index, tmp_path, tests, "statements_files = ['more.txt']")
    assert fmware("test", "-c", path)[0] == 0
    (tmp_path / "more.txt").write_text("//order[\n")
    code, _, said = fmware("test", "-c", path)
    assert code == 2
    assert "more.txt, line 1: " in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "there are no [[tests]]"),
        ("[server]\nprot=1\n", "did you mean port?"),
        ("index = ", "not TOML"),
        (
            "[[statements]]\nname='x'\nexpression='//a['\n[[tests]]\nname='t'\nmessage='<a/>'\n",
            "statement x: ",
        ),
    ],
)
def test_a_configuration_that_is_wrong_is_a_usage_error(
    index: Path, tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "fmware.toml"
    path.write_text(text)
    code, _, said = fmware("test", "-c", path, "--set", f"index={index}")
    assert code == 2
    assert words in said


def test_without_a_file_it_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, said = fmware("test")
    assert code == 2
    assert "fmware init" in said
    code, _, said = fmware("test", "-c", "other.toml")
    assert code == 2
    assert "other.toml: No such file" in said
