"""The wheel, as a user installs it: one package, in a fresh environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import DOCS, ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

PAGES = ROOT / "tests" / "docs" / "pages.py"
TAKEN = ("index", "datasets", "labeling", "cmatch", "bench")
"""Names that a user's own modules may have."""

USE = """
import pyarrow as pa
from fmware import FilterEngine, Middleware, NodeTable, Results, Subscription, build_index, read

table: NodeTable = read(b"<a/>")
build_index(b"<stock><item sku='1'/></stock>", "stock", record="item", identity="item=@sku")
with Middleware("stock") as middleware:
    subscription: Subscription = middleware.subscribe("//item", name="items")
    results: Results = middleware.publish_batch([b"<order><item sku='1'/></order>"])
    found: pa.Table = results.to_arrow()
    assert found.num_rows == 1
reveal_type(table.name(0))
reveal_type(results[0].statements)
reveal_type(FilterEngine().filter(b"<a/>").names)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, with the kernels that are compiled already."""
    place = tmp_path_factory.mktemp("wheel")
    for kernel in _kernels():
        copy = place / "lib" / kernel.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(kernel, copy)
    setup = [sys.executable, "setup.py", "--quiet", "egg_info", "--egg-base", str(place)]
    build = ["build", "--build-base", str(place / "base"), "--build-lib", str(place / "lib")]
    wheel = ["bdist_wheel", "--bdist-dir", str(place / "bdist"), "--dist-dir", str(place / "dist")]
    _run([*setup, *build, *wheel], cwd=ROOT)
    (built,) = (place / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a fresh environment that the wheel was installed into."""
    place = tmp_path_factory.mktemp("fresh") / "venv"
    venv.create(place, with_pip=True)
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    limits = ["--constraint", str(ROOT / "constraints.txt"), "--disable-pip-version-check"]
    _run([*pip, *limits, f"{wheel}[service]"], cwd=place)
    return place / "bin"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A user's directory, with modules that are called as our folders are."""
    for name in TAKEN:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a module of the user')\n")
    return tmp_path


def test_one_package_is_installed(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"fmware"}
    assert "fmware/labeling/table.py" in names
    assert "fmware/datasets/dtds/news.dtd" in names
    assert "fmware/py.typed" in names


def test_the_tutorial_runs_beside_modules_of_the_same_names(installed: Path, own: Path) -> None:
    shutil.copyfile(PAGES, own / "pages.py")
    (own / "here").mkdir()
    script = (
        "from pathlib import Path; import fmware, pages, sys; "
        f"assert Path(fmware.__file__).is_relative_to({str(installed.parent)!r}); "
        f"pages.run_page(Path({str(DOCS / 'tutorial.md')!r}), Path('here'), "
        f"Path({str(installed)!r}), path={str(own)!r})"
    )
    _run([str(installed / "python"), "-c", script], cwd=own)


def test_types_resolve_for_a_user(installed: Path, own: Path) -> None:
    (own / "use.py").write_text(USE)
    _run([str(installed / "python"), "-c", _without_reveals(USE)], cwd=own)
    mypy = [sys.executable, "-m", "mypy", "--strict", "--disable-error-code", "import-untyped"]
    said = _run([*mypy, "--python-executable", str(installed / "python"), "use.py"], cwd=own)
    revealed = re.findall('Revealed type is "(.*)"', said.replace("builtins.", ""))
    assert revealed == ["str", "list[str]", "list[str]"]
    assert "error:" not in said


def _kernels() -> list[Path]:
    """Compiled kernels, by the names under which they are imported."""
    folders = [path for path in (ROOT / "fmware").iterdir() if path.is_dir()]
    return [kernel for folder in folders for kernel in folder.rglob("*.so")]


def _without_reveals(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if "reveal_type" not in line)


def _run(command: list[str], cwd: Path) -> str:
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PIP_CONSTRAINT")}
    ran = subprocess.run(command, cwd=cwd, env=kept, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
    return ran.stdout
