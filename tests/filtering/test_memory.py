"""Messages leave nothing behind: what a process holds does not depend on what came through."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fmware.labeling import _kernel

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(
    not _kernel.reads_events(), reason="this lxml does not export its libxml2"
)

_MEASURED = """
import gc, json, resource, sys
from fmware.filtering import FilterEngine
from fmware.labeling import CHARACTER_ENTITIES, Limits, Reader, ReadError, Vocabulary, _kernel

resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))


def held():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


def names(count, start):
    return "".join(f"<p:n{start + i} a{start + i}=''/>" for i in range(count))


def long_uri(start, end):
    return f"<r xmlns:p='urn:{'u' * 100_000}{start}'>{names(40_000, start)}{end}".encode()


def large(engine, start):
    for end in ("</r>", "</q>", "<x:y/></r>", "<p:n></r>"):
        try:
            result = engine.filter(long_uri(start, end))
            row = len(result.table) - 1
            assert result.table.path(row).endswith(f"/@a{start + 39_999}")
            result.table.fragment(row - 1)
        except ReadError:
            assert end != "</r>"


def small(engine, start):
    for number in range(10_000):
        at = start + number * 10
        data = f"<r xmlns:p='urn:{at if number % 2 else 'p'}'>{names(8, at)}</r>".encode()
        result = engine.filter(data)
        if number % 100 == 0:
            result.table.paths(range(len(result.table)))
            result.table.fragment(0)
            list(engine.filter_batches([data], nodes=4))
            try:
                engine.filter(data[:-1])
            except ReadError:
                pass


def run(act):
    wide = Limits(bytes=8 << 20)
    found = {}
    for careful in (False, True):
        engine = FilterEngine(
            read_limits=wide, entities=CHARACTER_ENTITIES if careful else None
        )
        for text in ("//p:*", "//p:n1[@a1]", "/r/*[@p:*]"):
            engine.subscribe(text, namespaces={"p": "urn:p"})
        # Numbers of six digits throughout: documents of one size need buffers of one size.
        for turn in (1, 2):
            act(engine, turn * 100_000)
        names_before, before = len(engine.vocabulary), held()
        for turn in (3, 4, 5):
            act(engine, turn * 100_000)
        found[str(careful)] = held() - before
        assert len(engine.vocabulary) == names_before
    print(json.dumps(found))


run({"large": large, "small": small}[sys.argv[1]])
"""


@pytest.mark.parametrize("sort", ["large", "small"])
def test_messages_leave_nothing_behind(sort: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, sort],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for careful, megabytes in json.loads(done.stdout).items():
        assert megabytes < 4, careful
