"""Labelling and indexing a corpus with Spark, against lxml parsing the same bytes."""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from lxml import etree

from fmware.datasets.bibliography import TAGS, bibliography
from fmware.index import Index
from fmware.index.format import VALUES
from fmware.labeling.records import Batch, cut_stream

SIZE = 200_000_000
WHOLE = 400_000_000
"""A larger file is not parsed whole: its tree takes ten times as much memory."""
WORKERS = 2
RIVAL = (
    "lxml, the fastest of: parse of the whole file, with its default parser or a bare one, and "
    "fromstring of about a megabyte of records at a time, whose cutting is not counted; in two "
    "processes at once, as Spark's workers are"
)


def run(argv: list[str]) -> dict[str, object]:
    """Ratios of CPU time, lxml over ours, and sizes; the driver runs in a process of its own."""
    options = _options(argv)
    if options.measure:
        print(json.dumps(_measured(options)), flush=True)
        sys.exit(0)
    with tempfile.TemporaryDirectory(prefix="fmware-bench-", dir=options.dir) as scratch:
        corpus = options.corpus or _corpus(Path(scratch) / "corpus.xml", options)
        rivals, builds = [], []
        for number in range(options.rounds):
            rivals += _children(options, corpus, Path(scratch), "lxml", WORKERS)
            builds += _children(options, corpus, Path(scratch) / str(number), "index", 1)
    rival = min(rivals, key=lambda each: float(each["cpu_seconds"]))
    ours = min(builds, key=lambda each: float(each["cpu_seconds"]))
    megabytes = corpus.stat().st_size / 1e6 if options.corpus else options.size / 1e6
    return {
        "label_ratio": rival["cpu_seconds"] / ours["label_cpu_seconds"],
        "end_to_end_ratio": rival["cpu_seconds"] / ours["cpu_seconds"],
        "bytes_per_node": ours["bytes_per_node"],
        "value_bytes_per_node": ours["value_bytes_per_node"],
        "driver_peak_mb": ours["driver_peak_mb"],
        "corpus_mb": megabytes,
        "lxml_mb_per_cpu_second": megabytes / rival["cpu_seconds"],
        "label_mb_per_cpu_second": megabytes / ours["label_cpu_seconds"],
        "end_to_end_mb_per_cpu_second": megabytes / ours["cpu_seconds"],
        "cold_ratio": rival["cpu_seconds"] / ours["cold_cpu_seconds"],
        "schemes": options.schemes,
        "partitions": ours["partitions"],
        **{
            key: ours[key]
            for key in (
                "cpu_seconds_of",
                "wall_seconds",
                "records",
                "nodes",
                "rejects",
                "index_mb",
                "record_store_mb",
                "labels",
            )
        },
        "rival": RIVAL,
        "counted": "CPU of driver, Java and workers from the call to the published index, in a "
        "session that has run one small job before; cold_ratio has the session's start in it",
    }


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("bench indexing", description=__doc__)
    parser.add_argument("--size", type=int, default=SIZE, help="bytes of the corpus to make")
    parser.add_argument("--corpus", type=Path, help="a file of one's own instead")
    parser.add_argument("--record", action="append", help="record tags of one's own file")
    parser.add_argument("--schemes", default="path", help="comma separated")
    parser.add_argument("--partitions", type=int)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=2, help="the best of so many counts")
    parser.add_argument("--dir", type=Path, help="where to put the corpus and the index")
    parser.add_argument("--measure", choices=["lxml", "index"], help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def _corpus(path: Path, options: argparse.Namespace) -> Path:
    with path.open("wb") as file:
        for chunk in bibliography(size=options.size, seed=options.seed):
            file.write(chunk)
    options.size = path.stat().st_size
    return path


def _children(
    options: argparse.Namespace, corpus: Path, scratch: Path, what: str, count: int
) -> list[dict[str, Any]]:
    """Measure in fresh processes, so that a peak of memory is one's own."""
    command = [sys.executable, "-m", "bench", "indexing", "--measure", what]
    command += ["--corpus", str(corpus), "--out", str(scratch / "index")]
    command += ["--schemes", options.schemes, "--master", options.master]
    command += [part for tag in options.record or TAGS for part in ("--record", tag)]
    if options.partitions:
        command += ["--partitions", str(options.partitions)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(count)]
    found = []
    for process in running:
        said, _ = process.communicate()
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        found.append(json.loads(said.splitlines()[-1]))
    return found


def _measured(options: argparse.Namespace) -> dict[str, object]:
    return _lxml(options) if options.measure == "lxml" else _index(options)


def _lxml(options: argparse.Namespace) -> dict[str, object]:
    bare = etree.XMLParser(no_network=True, collect_ids=False, huge_tree=True)
    times = [_pieces_time(options, parser) for parser in (None, bare)]
    for parser in (None, bare) if options.corpus.stat().st_size < WHOLE else ():
        began = time.process_time()
        parsed = etree.parse(options.corpus, parser)
        times.append(time.process_time() - began)
        del parsed
    return {"cpu_seconds": min(times)}


def _pieces_time(options: argparse.Namespace, parser: Any) -> float:
    """CPU seconds of lxml for the records alone, joined as the labelling job joins them."""
    taken = 0.0
    with options.corpus.open("rb") as file:
        for batch in cut_stream(iter(lambda: file.read(1 << 20), b""), options.record):
            if not isinstance(batch, Batch):
                continue
            around = batch.context
            head = around.declaration + around.doctype + b"<all " + around.namespaces + b">"
            document = head + batch.data + b"</all>"
            began = time.process_time()
            etree.fromstring(document, parser)
            taken += time.process_time() - began
    return taken


def _index(options: argparse.Namespace) -> dict[str, object]:
    from fmware.corpus import build_index
    from fmware.session import spark_session

    with spark_session(options.master) as spark:
        spark.range(0, 2, 1, 2).mapInArrow(_nothing, "id long").collect()
        before = _cpu_of_all()
        began = time.perf_counter()
        built = build_index(
            options.corpus,
            options.out,
            spark=spark,
            record=options.record,
            identity=[f"{tag}=@key" for tag in options.record] if TAGS[0] in options.record else [],
            schemes=options.schemes.split(","),
            partitions=options.partitions,
            calibrate=False,
        )
        seconds = time.perf_counter() - began
        after = _cpu_of_all()
    spent = {name: after[name] - before[name] for name in after}
    with Index.open(options.out) as index:
        values = index.statistics.stores[VALUES]
    others = built.index_bytes - built.record_store_bytes - values
    return {
        "cpu_seconds": sum(spent.values()),
        "cold_cpu_seconds": sum(after.values()),
        "cpu_seconds_of": {name: round(value, 2) for name, value in spent.items()},
        "label_cpu_seconds": built.label_cpu_seconds,
        "wall_seconds": seconds,
        "bytes_per_node": others / built.nodes,
        "value_bytes_per_node": values / built.nodes,
        "driver_peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "partitions": built.tasks,
        "records": built.records,
        "nodes": built.nodes,
        "rejects": built.rejected,
        "index_mb": built.index_bytes / 1e6,
        "record_store_mb": built.record_store_bytes / 1e6,
        "labels": built.labels,
    }


def _nothing(batches: Any) -> Any:
    yield from batches


def _cpu_of_all() -> dict[str, float]:
    """CPU seconds so far of this process (`driver`), of Java, and of the workers below it."""
    tick = os.sysconf("SC_CLK_TCK")
    spent = {"driver": 0.0, "java": 0.0, "workers": 0.0}
    for pid, name, parent, ticks in _processes():
        kind = "driver" if pid == os.getpid() else "java" if name == "java" else "workers"
        if kind == "driver" or _descends(parent):
            spent[kind] += ticks / tick
    return spent


def _processes() -> list[tuple[int, str, int, int]]:
    found = []
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        try:
            text = (place / "stat").read_text()
        except OSError:
            continue  # it has ended
        name = text[text.index("(") + 1 : text.rindex(")")]
        rest = text[text.rindex(")") + 2 :].split()
        # utime, stime, and those of children that have ended and been waited for.
        spent = sum(map(int, rest[11:15]))
        found.append((int(place.name), name, int(rest[1]), spent))
    return found


def _descends(parent: int) -> bool:
    while parent > 1:
        if parent == os.getpid():
            return True
        try:
            text = (Path("/proc") / str(parent) / "stat").read_text()
        except OSError:
            return False
        parent = int(text[text.rindex(")") + 2 :].split()[1])
    return False
