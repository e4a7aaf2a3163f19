"""The documentation: every block runs, and the site builds."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import DOCS, PAGES, ROOT, run_page

NOTEBOOK = DOCS / "notebook.ipynb"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    assert run_page(page, tmp_path, Path(sys.executable).parent) >= 2


def test_the_notebook_runs(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    shown = []
    cells = [
        "".join(cell["source"])
        for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == "code"
    ]
    with chdir(tmp_path):
        for text in cells:
            *before, last = ast.parse(text).body
            exec(compile(ast.Module(before, []), "cell", "exec"), names)
            if isinstance(last, ast.Expr):
                shown.append(eval(compile(ast.Expression(last.value), "cell", "eval"), names))
            else:
                exec(compile(ast.Module([last], []), "cell", "exec"), names)
    assert len(cells) >= 4
    assert ["Ulm"] in shown


@pytest.mark.slow
def test_the_site_builds_offline_and_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("furo", reason="pip install 'fmware[docs]'")
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", str(DOCS), str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    page = (tmp_path / "reference" / "cli.html").read_text()
    assert "fmware index upsert" in page
    assert "fmware.build_index" in (tmp_path / "reference" / "api.html").read_text()
