"""Reading XML into NodeTables, against lxml parsing the same bytes and doing nothing with them.

`ns_per_byte` has, for four kinds of documents, what a byte takes by fmware's reader with AVX2 and
without it, by libxml2's events into the same table, by pyexpat without handlers and by lxml.
"""

from __future__ import annotations

import argparse
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.parsers.expat import ParserCreate

from lxml import etree

from bench.clock import compare
from fmware import datasets, labeling
from fmware.labeling._kernel import Walker, use_avx2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

LARGE = 20_000_000
LIMITS = labeling.Limits(bytes=2**30, nodes=2**28)


def run(argv: list[str]) -> dict[str, object]:
    """Ratios of CPU time, reading over parsing, on small documents and on a large one."""
    options = _options(argv)
    use_avx2(options.avx2)
    small = _documents(options)
    large = [_large(options.large)]
    few = _times(small, options.rounds)
    many = _times(large, max(5, options.rounds // 4))
    tree = _tree_time(small, options.rounds)
    nodes = sum(len(labeling.read(document)) for document in small)
    kinds = _kinds(small, large, options.seed)
    return {
        "avx2": options.avx2,
        "small_ratio": few["with values"] / few["lxml"],
        "small_ratio_without_values": few["without values"] / few["lxml"],
        "large_ratio": many["with values"] / many["lxml"],
        "tree_ns_per_node": tree / nodes * 1e9,
        "docs": len(small),
        "mean_bytes": sum(map(len, small)) / len(small),
        "mean_nodes": nodes / len(small),
        "large_bytes": len(large[0]),
        "lxml_us_per_doc": few["lxml"] / len(small) * 1e6,
        "ns_per_byte": {name: _ns_per_byte(kind, options) for name, kind in kinds.items()},
        "read_us_per_doc": few["with values"] / len(small) * 1e6,
        "rival": "lxml.etree.fromstring, the faster of its default parser and the reader's own",
    }


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("bench nodes", description=__doc__)
    parser.add_argument("--docs", type=Path, help="a directory of XML documents to use as small")
    parser.add_argument("--count", type=int, default=500, help="how many small documents to make")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--large", type=int, default=LARGE, help="bytes of the large document")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument(
        "--avx2",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="use AVX2 where the processor has it",
    )
    return parser.parse_args(argv)


def _documents(options: argparse.Namespace) -> list[bytes]:
    if options.docs is not None:
        return [_without_doctype(path.read_bytes()) for path in sorted(options.docs.glob("*.xml"))]
    return list(datasets.news_documents(options.count, seed=options.seed))


def _without_doctype(document: bytes) -> bytes:
    # The reader would refuse it, and lxml would spend time on it that is not compared here.
    span = labeling._kernel.doctype_span(document)
    return document if span is None else document[: span[0]] + document[span[1] :]


def _large(size: int) -> bytes:
    """News documents under one root, about as many bytes as asked for."""
    parts: list[bytes] = []
    taken = 0
    for document in _bodies():
        parts.append(document)
        taken += len(document)
        if taken >= size:
            break
    return b"<all>\n" + b"\n".join(parts) + b"\n</all>"


def _bodies() -> Iterator[bytes]:
    block = [
        document.partition(b"?>")[2] if document.startswith(b"<?xml") else document
        for document in islice(datasets.news_documents(1000, seed=11), 1000)
    ]
    while True:
        yield from block


def _times(documents: Sequence[bytes], rounds: int) -> dict[str, float]:
    """CPU seconds for all documents, and under `lxml` the better of its two forms."""
    own = etree.XMLParser(resolve_entities=False, no_network=True, collect_ids=False)
    full = labeling.Reader(limits=LIMITS)
    bare = labeling.Reader(limits=LIMITS, values=False)

    def parse(parser: etree.XMLParser[Any] | None) -> None:
        for document in documents:
            etree.fromstring(document, parser)

    def read(reader: labeling.Reader) -> None:
        for document in documents:
            reader.read(document)

    rivals: dict[str, Callable[[], object]] = {
        "default parser": lambda: parse(None),
        "own parser": lambda: parse(own),
        "with values": lambda: read(full),
        "without values": lambda: read(bare),
    }
    times = compare(rivals, rounds=rounds)
    times["lxml"] = min(times["default parser"], times["own parser"])
    return times


def _kinds(small: list[bytes], large: list[bytes], seed: int) -> dict[str, list[bytes]]:
    """Documents of four kinds: small ones, messages, a bibliography and a large mixed one."""
    return {
        "news": small,
        "citations": list(datasets.citations(200, records=1000, seed=seed)),
        "bibliography": [_bibliography(seed)],
        "large news": large,
    }


def _bibliography(seed: int) -> bytes:
    made = datasets.bibliography(
        records=20_000, seed=seed, doctype="none", entities=False, encoding="utf-8"
    )
    return b"".join(made)


def _ns_per_byte(documents: Sequence[bytes], options: argparse.Namespace) -> dict[str, float]:
    size = sum(map(len, documents))
    vocabulary = labeling.Vocabulary()
    own = labeling.Reader(vocabulary, limits=LIMITS)
    events = labeling.Reader(vocabulary, limits=LIMITS, fast=False)

    def each(call: Callable[[bytes], object]) -> None:
        for document in documents:
            call(document)

    def read(*, avx2: bool) -> None:
        before = use_avx2(avx2)
        each(own.read)
        use_avx2(before)

    times = compare(
        {
            "avx2": lambda: read(avx2=options.avx2),
            "portable": lambda: read(avx2=False),
            "libxml2": lambda: each(events.read),
            "pyexpat": lambda: each(lambda it: ParserCreate(None, " ").Parse(it, True)),  # noqa: FBT003
            "lxml": lambda: each(etree.fromstring),
        },
        rounds=max(5, options.rounds // 4),
    )
    return {name: seconds / size * 1e9 for name, seconds in times.items()}


def _tree_time(documents: Sequence[bytes], rounds: int) -> float:
    """CPU seconds to read by way of a tree, as documents with entities are."""
    bounds = (
        LIMITS.nodes,
        LIMITS.depth,
        LIMITS.attribute,
        LIMITS.text,
        LIMITS.names,
        LIMITS.name_bytes,
    )
    walker = Walker(
        labeling.NodeTable,
        labeling.Vocabulary(),
        bounds,
        values=True,
        blanks=True,
        grow=True,
        huge=LIMITS.huge,
    )

    def read() -> None:
        for document in documents:
            walker.read_tree(document)

    return compare({"tree": read}, rounds=rounds)["tree"]
