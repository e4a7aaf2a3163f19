"""Groups of commands, and the old forms of commands and options, which still work with a hint."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from typer.main import get_command

from fmware.cli import MOVED, app

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.conftest import Fmware

STOCK = "<stock><item sku='p7'><city>Ulm</city></item><item sku='p8'/></stock>"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from fmware import build_index

    made = tmp_path_factory.mktemp("groups")
    (made / "stock.xml").write_text(STOCK)
    (made / "statements.txt").write_text("//sale/item/local:city\n")
    (made / "sale.xml").write_text("<sale><item sku='p7'/></sale>")
    build_index(
        made / "stock.xml", made / "stock", record="item", identity=["item=@sku"], calibrate=False
    )
    return made


def words_of(place: Path) -> dict[str, tuple[object, ...]]:
    return {
        "add": (place / "none",),
        "calibrate": (place / "none",),
        "compact": (place / "stock",),
        "remove": (place / "stock", "item=p9"),
        "show": (place / "stock", "item=p7"),
        "stats": (place / "stock", "--json"),
        "verify": (place / "stock",),
        "validate": (place / "statements.txt",),
        "explain": ("//sale/item", place / "sale.xml"),
        "xpath": ("//sale[units | pieces]",),
    }


@pytest.mark.parametrize("old", MOVED)
def test_an_old_command_is_the_new_one_and_says_so(fmware: Fmware, place: Path, old: str) -> None:
    arguments = words_of(place)[old]
    was, now = fmware(old, *arguments), fmware(*MOVED[old], *arguments)
    hint, _, rest = was.stderr.partition("\n")
    assert hint.startswith(f"fmware: hint: `fmware {old}` is now `fmware {' '.join(MOVED[old])}`")
    assert was.exit_code == now.exit_code
    if old != "compact":  # It makes a generation each time.
        assert (was.stdout, rest) == (now.stdout, now.stderr)


def test_index_without_a_command_builds(fmware: Fmware, place: Path, tmp_path: Path) -> None:
    options = ("--in-process", "--no-calibrate", "-r", "item")
    for number, arguments in enumerate(
        [(place / "stock.xml", *options), (*options, place / "stock.xml")]
    ):
        result = fmware("index", *arguments, "-o", tmp_path / str(number))
        assert result.exit_code == 0
        assert "`fmware index build SOURCE`" in result.stderr


def test_a_misspelt_command_is_not_taken_for_a_file(fmware: Fmware) -> None:
    result = fmware("index", "biuld")
    assert result.exit_code == 2
    assert "Did you mean 'build'?" in result.stderr
    assert "hint" not in result.stderr


def test_old_options_are_the_new_ones_and_say_so(fmware: Fmware, place: Path) -> None:
    result = fmware("index", "show", place / "stock", "item=p7", "--record")
    assert result.exit_code == 0
    assert "`fmware index show --record` is now `fmware index show --whole`" in result.stderr
    result = fmware("statements", "check", place / "statements.txt", "-i", place / "stock")
    assert result.exit_code == 0
    assert "is now `fmware statements check -x`" in result.stderr
    result = fmware("generate", "documents", "-n", 2)
    assert len(result.stdout.splitlines()) == 2
    assert "is now `fmware generate documents -N`" in result.stderr


def test_what_follows_two_dashes_is_no_old_option(fmware: Fmware, place: Path) -> None:
    result = fmware("statements", "check", "--", place / "statements.txt", "-i")
    assert "is now" not in result.stderr


def test_help_has_no_old_form(fmware: Fmware) -> None:
    listed = {line.split()[1] for line in fmware("--help").stdout.splitlines() if "│ " in line}
    assert {"index", "statements", "filter", "match"} <= listed
    assert not listed & set(MOVED)


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_as_an_option(fmware: Fmware, option: str) -> None:
    from fmware import __version__

    result = fmware(option)
    assert (result.exit_code, result.stdout) == (0, f"fmware {__version__}\n")


def options() -> Iterator[tuple[str, Any]]:
    """All options, with the command that has them."""
    waiting: list[tuple[str, Any]] = [("fmware", get_command(app))]
    while waiting:
        path, command = waiting.pop()
        yield from ((path, each) for each in command.params if each.param_type_name == "option")
        waiting += [
            (f"{path} {name}", each) for name, each in getattr(command, "commands", {}).items()
        ]


def test_a_short_option_means_the_same_everywhere() -> None:
    meanings = defaultdict(set)
    shorts = defaultdict(set)
    for path, option in options():
        longs = [each for each in option.opts if each.startswith("--")]
        short = [each for each in option.opts if not each.startswith("--")]
        shorts[longs[0]].add((tuple(short), path))
        for each in short:
            meanings[each].add(longs[0])
    assert {short: each for short, each in meanings.items() if len(each) > 1} == {}
    uneven = {long: each for long, each in shorts.items() if len({few for few, _ in each}) > 1}
    assert uneven == {}
