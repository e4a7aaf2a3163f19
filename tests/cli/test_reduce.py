"""`fmware statements reduce` and `fmware advertise`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Fmware

DTD = """<!ELEMENT a (b, c?)> <!ELEMENT b (d | e)*> <!ELEMENT c EMPTY> <!ELEMENT d (b?)>
<!ELEMENT e EMPTY>"""


def test_reduce_names_what_is_not_needed_and_why(fmware: Fmware, tmp_path: Path) -> None:
    file = tmp_path / "s.txt"
    file.write_text("//b\n/a/b/d\n//b\n//zzz\n/a/c\n")
    ran = fmware("statements", "reduce", file)
    assert ran.exit_code == 0
    assert "//b matches every document that /a/b/d matches" in ran.stdout
    assert "3 of 5 statements are needed, 1 redundant, 1 equal" in ran.stderr


def test_reduce_with_a_dtd(fmware: Fmware, tmp_path: Path) -> None:
    (tmp_path / "s.txt").write_text("//b\n/a/c\n//zzz\n")
    (tmp_path / "a.dtd").write_text(DTD)
    ran = fmware("statements", "reduce", tmp_path / "s.txt", "--dtd", tmp_path / "a.dtd", "--json")
    found = {each["name"]: each for each in map(json.loads, ran.stdout.splitlines())}
    assert found["2"]["by"] == "1"
    assert found["2"]["where"] == "schema"
    assert found["3"]["reason"] == "unsatisfiable"


def test_reduce_with_a_sample_shows_what_could_be_one(fmware: Fmware, tmp_path: Path) -> None:
    (tmp_path / "s.txt").write_text("/a/b\n/a/c\n/a/q\n")
    (tmp_path / "m.xml").write_text("<a><b/></a>")
    (tmp_path / "n.xml").write_text("<a><c/></a>")
    ran = fmware(
        "statements", "reduce", tmp_path / "s.txt", "--sample", tmp_path / "m.xml",
        "--sample", tmp_path / "n.xml", "--json",
    )  # fmt: skip
    found = [json.loads(line) for line in ran.stdout.splitlines()]
    assert found[0]["reason"] == "unsatisfiable"
    assert found[1] == {
        "reason": "mergeable",
        "by_statement": "/a/*",
        "members": ["1", "2"],
        "imperfect": 0.0,
    }


def test_what_cannot_be_read_is_said(fmware: Fmware, tmp_path: Path) -> None:
    (tmp_path / "s.txt").write_text("/a\n/a[\n")
    assert fmware("statements", "reduce", tmp_path / "s.txt").exit_code == 2
    assert fmware("statements", "reduce", tmp_path / "none.txt").exit_code == 2
    (tmp_path / "bad.dtd").write_text("nonsense")
    (tmp_path / "s.txt").write_text("/a\n")
    ran = fmware("statements", "reduce", tmp_path / "s.txt", "--dtd", tmp_path / "bad.dtd")
    assert ran.exit_code == 2
    assert "bad.dtd" in ran.stderr


def test_advertise_prints_the_papers_notation(fmware: Fmware, tmp_path: Path) -> None:
    (tmp_path / "a.dtd").write_text(DTD)
    ran = fmware("advertise", tmp_path / "a.dtd")
    assert ran.stdout.splitlines() == [
        "/a/b", "/a/b(/d/b)+", "/a(/b/d)+", "/a/b/e", "/a/b(/d/b)+/e", "/a/c",
    ]  # fmt: skip
    assert "3 non-recursive, 3 simple" in ran.stderr
    ran = fmware("advertise", tmp_path / "a.dtd", "--most", 1, "--json")
    assert json.loads(ran.stdout) == {"advertisement": "/a/b", "kind": "non-recursive"}
    assert "there are more" in ran.stderr


def test_advertise_learns_from_messages(fmware: Fmware, tmp_path: Path) -> None:
    (tmp_path / "m.xml").write_text("<a><b><a/></b></a>")
    ran = fmware("advertise", tmp_path / "m.xml")
    assert "(/a/b)+" in ran.stdout
