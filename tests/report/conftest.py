"""A run like the demo's, small and in this process, and what it reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from fmware.cli.demo import STATEMENTS
from fmware.corpus import build_index
from fmware.datasets.bibliography import TAGS, bibliography
from fmware.datasets.messages import citations
from fmware.datasets.queries import queries
from fmware.middleware import Middleware

if TYPE_CHECKING:
    from pathlib import Path

    from fmware.matching.results import Result
    from fmware.report import Report

HOSTILE = "//notice[. != '</script><script>document.title = 1</script><!--']/order"
"""A statement that would be markup, if it were let."""
CROWD = 60


@dataclass(frozen=True)
class Run:
    """What was run, where, and what came of it."""

    index: Path
    messages: list[bytes]
    results: list[Result]
    report: Report
    page: Path
    twin: Path


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    place = tmp_path_factory.mktemp("run")
    made = bibliography(size=200_000, seed=7)
    (place / "corpus.xml").write_bytes(b"".join(made))
    build_index(
        place / "corpus.xml",
        place / "index",
        record=TAGS,
        identity=[f"{tag}=@key" for tag in TAGS],
        schemes=("path", "vist", "prix"),
    )
    messages = list(citations(300, seed=7, corpus_seed=7, records=made.records))
    with Middleware(place / "index") as middleware:
        for line, text in enumerate((*STATEMENTS, HOSTILE), 1):
            middleware.subscribe(text, name=str(line))
        for number, text in enumerate(queries("notices", CROWD, seed=7, distinct=False)):
            middleware.subscribe(text, name=f"crowd {number}", returns="name")
        results = list(middleware.stream(messages))
        report = middleware.report()
    page = place / "report.html"
    return Run(place / "index", messages, results, report, page, report.write(page))
