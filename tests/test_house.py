"""How the house is built: what is exported, which way imports go, what every module has."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import fmware

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
LAYERS = ("labeling", "index", "cmatch", "fmware")
"""Each may import those before it, none of those after it."""
TOOLS = ("datasets", "bench", "tests")
"""These may import all layers; of them, the layers know only `datasets`, in the command line."""
LINKED = ("labeling", "index", "cmatch", "datasets")
"""Folders that stand beside `fmware` and are imported as parts of it, through links."""

PUBLIC = [
    "ATTRIBUTE",
    "CHARACTER_ENTITIES",
    "ELEMENT",
    "TEXT",
    "Advertisement",
    "AdvertisementError",
    "BadRule",
    "BadRun",
    "CorruptIndex",
    "DoctypeRefused",
    "DocumentTooActive",
    "DuplicateName",
    "EncodingError",
    "EntityRefused",
    "EventsUnavailable",
    "Explanation",
    "FMwareError",
    "FileChanged",
    "FilterEngine",
    "FilterError",
    "FilterLimits",
    "FilterResult",
    "ForeignTable",
    "ForkedIndex",
    "FormatMismatch",
    "Index",
    "IndexClosed",
    "IndexExists",
    "IndexLocked",
    "IndexMissing",
    "IndexSummary",
    "LabelingError",
    "LimitExceeded",
    "Limits",
    "LocalNode",
    "MalformedXML",
    "Match",
    "MatchError",
    "MatchLimits",
    "MessageUnreadable",
    "Middleware",
    "MiddlewareClosed",
    "MissingLabels",
    "NoSuchNode",
    "NodeTable",
    "NotFound",
    "NotIndexed",
    "NothingIndexed",
    "OperatorClosed",
    "ProbeFailed",
    "ReadError",
    "Reader",
    "Reject",
    "Report",
    "ReportError",
    "Result",
    "ResultStream",
    "Results",
    "Returns",
    "RoutingError",
    "RuleError",
    "RunError",
    "SchemaError",
    "SchemeError",
    "ServiceError",
    "SourceError",
    "SparkUnavailable",
    "SpillFailed",
    "Statement",
    "StatementError",
    "StatementFailed",
    "StatementFileError",
    "StatementRefused",
    "StoreError",
    "Stream",
    "Subscription",
    "SubscriptionTree",
    "UndeclaredPrefix",
    "UnknownMessage",
    "UnknownScheme",
    "UnknownSource",
    "UnknownStatement",
    "UnknownTag",
    "UnsupportedXPath",
    "UpsertError",
    "Vocabulary",
    "WriteFailed",
    "XPathError",
    "XPathLimitExceeded",
    "XPathLimits",
    "XPathSyntaxError",
    "__version__",
    "add",
    "build_index",
    "compact",
    "covers",
    "describe",
    "equivalent",
    "explain",
    "lint",
    "parse_xpath",
    "read",
    "read_dtd",
    "read_sample",
    "read_statements",
    "read_stream",
    "read_xsd",
    "reduce_statements",
    "remove",
    "upsert",
]

SOURCES = sorted(
    path
    for package in (*LAYERS, *TOOLS)
    for pattern in ("*.py", "*.pyi", "*.pyx", "*.pxd", "*.pxi")
    for path in (ROOT / package).rglob(pattern)
)
MODULES = [path for path in SOURCES if path.suffix == ".py" and path.name != "__main__.py"]
NATIVE_IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+c?import\b|c?import\s+([\w., ]+))", re.M)


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[0] in LINKED:
        parts = ("fmware", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(module: str) -> str:
    """The layer or tool that a module belongs to; of others, their top-level package."""
    top, _, rest = module.partition(".")
    below = rest.partition(".")[0]
    return below if top == "fmware" and below in LINKED else top


def imports_of(path: Path) -> Iterator[str]:
    """Every module that a file imports or cimports, at its top or inside its functions."""
    text = path.read_text(encoding="utf-8")
    if path.suffix in {".pyx", ".pxd", ".pxi"}:
        for source, names in NATIVE_IMPORT.findall(text):
            yield from [source] if source else [name.split()[0] for name in names.split(",")]
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute here"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def id_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


# --- what is exported -----------------------------------------------------------------------


def test_fmware_exports_what_is_meant() -> None:
    assert sorted(fmware.__all__) == sorted(PUBLIC)


def test_every_exported_name_is_there() -> None:
    for name in fmware.__all__:
        assert getattr(fmware, name) is not None
        assert name in dir(fmware)


def test_no_other_name_is_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = fmware.nothing  # type: ignore[attr-defined]


def test_exported_names_are_those_of_their_packages() -> None:
    import fmware.xpath
    from fmware import labeling

    for name in fmware.__all__:
        for package in (labeling, fmware.xpath):
            if name in package.__all__:
                assert getattr(fmware, name) is getattr(package, name)
    assert fmware.parse_xpath is fmware.xpath.parse


def test_importing_fmware_alone_is_cheap() -> None:
    code = "import sys, fmware; sys.exit('numpy' in sys.modules or 'pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize("path", MODULES, ids=id_of)
def test_every_name_in_all_exists(path: Path) -> None:
    module = importlib.import_module(name_of(path))
    for name in getattr(module, "__all__", ()):
        assert hasattr(module, name), f"{name_of(path)}.__all__ names {name}, which is not there"


# --- which way imports go -------------------------------------------------------------------


@pytest.mark.parametrize("path", SOURCES, ids=id_of)
def test_imports_go_one_way(path: Path) -> None:
    importer = name_of(path)
    package = package_of(importer)
    for imported in imports_of(path):
        top = package_of(imported)
        assert imported.split(".")[0] not in LINKED, f"{importer} imports {imported}, not of fmware"
        if imported == "fmware":
            continue
        if package in LAYERS:
            later = LAYERS[LAYERS.index(package) + 1 :]
            assert top not in later, f"{importer} imports {imported}, which stands on it"
            if top in TOOLS:
                allowed = importer.startswith("fmware.cli") and top == "datasets"
                assert allowed, f"{importer} imports {imported}, which only uses the layers"
        elif package == "datasets":
            assert top not in {"bench", "tests"}, f"{importer} imports {imported}"


ROUTING = ("fmware.routing", "fmware.xpath", "fmware.errors")


def test_routing_knows_xpath_only() -> None:
    for path in SOURCES:
        if name_of(path).startswith("fmware.routing"):
            for imported in imports_of(path):
                outside = package_of(imported) not in {*LAYERS, *TOOLS}
                allowed = outside or imported.startswith(ROUTING)
                assert allowed, f"{id_of(path)} imports {imported}"


def test_the_check_sees_every_way_to_import(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("import a.b\ndef f():\n    from c import d\n    import e as g\n")
    (tmp_path / "m.pyx").write_text(
        "cimport a\nfrom b.c cimport d\nimport e, f as g\ndef h():\n    from i import j\n"
    )
    assert set(imports_of(tmp_path / "m.py")) == {"a.b", "c", "c.d", "e"}
    assert set(imports_of(tmp_path / "m.pyx")) == {"a", "b.c", "e", "f", "i"}


def test_the_command_line_alone_knows_how_results_look() -> None:
    for path in SOURCES:
        if not name_of(path).startswith(("fmware.cli", "fmware.__main__", "tests", "bench")):
            shown = {imported.split(".")[0] for imported in imports_of(path)} & {"typer", "rich"}
            assert not shown, f"{id_of(path)} imports {shown}"


# --- what every module has ------------------------------------------------------------------


def test_every_module_says_what_it_is() -> None:
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".py" and text and not name_of(path).startswith("tests"):
            assert ast.get_docstring(ast.parse(text)), f"{id_of(path)} has no docstring"


def test_there_is_one_package_and_links_lead_to_its_parts() -> None:
    assert (ROOT / "fmware" / "py.typed").exists()
    for name in LINKED:
        assert (ROOT / "fmware" / name).resolve() == (ROOT / name).resolve()


def test_no_file_leads_out_of_the_project() -> None:
    outside = ("/wo" + "rk/", "../sha" + "red", "/ro" + "ot/", "/ho" + "me/")
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if tracked.returncode:
        pytest.skip("not a clone")
    for name in filter(None, tracked.stdout.decode().split("\0")):
        path = ROOT / name
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        for place in outside:
            assert place not in text, f"{name} mentions {place}"


def test_the_examples_of_the_readme_are_true() -> None:
    ran = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert ran.attempted > 0
    assert ran.failed == 0


def test_every_dependency_is_pinned() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    pinned = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if not line.startswith("#")
    }
    wanted = re.findall(r'"([A-Za-z][\w-]*)>=[\d.]+(?:,<[\d.]+)?"', project)
    assert {name.lower() for name in wanted} <= pinned
