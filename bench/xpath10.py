"""All of XPath 1.0 as statements: what residuals cost beside native ones, and lxml for all of them.

10,000 statements on news documents of about 4 KB. Nine tenths are native: paths with a predicate,
as in the filtering studies. A tenth are such paths with something added that the automaton cannot
decide: other axes, arithmetic, string functions, counts of a whole document, names, comparisons
of paths with paths, each kind as often as the others.

- `over_native`: CPU of filtering by all of them, over filtering by the native nine tenths.
- `lxml_speedup`: CPU of lxml's compiled XPath for all of them, one at a time on a tree that is
  parsed once, over ours, reading included on both sides.
- `guard_pass_rate`: of all pairs of a residual statement and a message, those evaluated.
- `residual_hold_rate`: of these, those that held.
- `parse_us`: CPU of reading one of the expressions; `plan_us`: of planning it as well;
  `register_us`: of subscribing it.

CPU times; rivals take turns, and the best round counts.
"""

from __future__ import annotations

import argparse
import time
from random import Random
from typing import TYPE_CHECKING

from lxml import etree

from bench.clock import compare
from fmware import FilterEngine
from fmware.datasets import load_dtd, news_documents, queries
from fmware.xpath import plan
from fmware.xpath.planner import read

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["run"]

RESIDUAL = (
    "{path}[string-length(.) > {number}]",
    "{path}[count(.//*) >= {number}]",
    "{path}/following-sibling::*",
    "{path}/ancestor::*[@id]",
    "{path}[normalize-space(.) = '{number}']",
    "count({path}) > 2",
    "sum({path}/@*) > {number}",
    "{path}[local-name() != 'p']",
    "{path}[. = preceding::*]",
    "contains({path}, '{number}')",
    "{path}[@id * 2 > {number}]",
    "{path}/preceding::*[last()]",
    "{path}[translate(., '0123456789', '') = '']",
)


def run(argv: list[str]) -> dict[str, object]:
    """All keys of the benchmark."""
    parser = argparse.ArgumentParser(prog="bench xpath10", description=__doc__)
    parser.add_argument("--statements", type=int, default=10_000)
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--rival-documents", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=7)
    options, _ = parser.parse_known_args(argv)
    native, residual = statements(options.statements, options.seed)
    documents = list(news_documents(options.documents, seed=options.seed))
    result: dict[str, object] = {
        "statements": len(native) + len(residual),
        "residual": len(residual),
        "mean_bytes": sum(map(len, documents)) // len(documents),
        "seed": options.seed,
    }
    return (
        result
        | _reading([*native, *residual])
        | _filtering(native, residual, documents, options.rounds)
        | _rival([*native, *residual], documents, options.rival_documents)
    )


def statements(count: int, seed: int) -> tuple[list[str], list[str]]:
    """Native statements, and a tenth as residual ones."""
    paths = list(queries(load_dtd("news"), count, seed=seed + 2, predicates=1))
    random = Random(f"xpath10 {seed}")
    random.shuffle(paths)
    tenth = count // 10
    residual = []
    for index, path in enumerate(paths[:tenth]):
        number = random.randint(1, 40)
        text = RESIDUAL[index % len(RESIDUAL)].format(path=path, number=number)
        # `contains` on a path that leads to one node only is native; a length never is.
        chosen = text if plan(text).residual else RESIDUAL[0].format(path=path, number=number)
        residual.append(chosen)
    return paths[tenth:], residual


def _us(work: Callable[[str], object], texts: Sequence[str]) -> float:
    begin = time.process_time()
    for text in texts:
        work(text)
    return (time.process_time() - begin) / len(texts) * 1e6


def _reading(texts: list[str]) -> dict[str, object]:
    parse_us = min(_us(read, texts) for _ in range(3))
    plan_us = min(_us(plan, texts) for _ in range(3))
    return {
        "parse_us": round(parse_us, 2),
        "plan_us": round(plan_us, 2),
        "register_us": round(_us(FilterEngine().subscribe, texts), 2),
    }


def _filtering(
    native: list[str], residual: list[str], documents: list[bytes], rounds: int
) -> dict[str, object]:
    alone, both = FilterEngine(), FilterEngine()
    alone.subscribe_many(native)
    both.subscribe_many([*native, *residual])
    times = compare(
        {
            "alone": lambda: alone.filter_many(documents),
            "both": lambda: both.filter_many(documents),
        },
        rounds=rounds,
    )
    stats = both.stats()
    pairs = stats["documents"] * len(residual)
    return {
        "native_us": round(times["alone"] / len(documents) * 1e6, 1),
        "all_us": round(times["both"] / len(documents) * 1e6, 1),
        "over_native": round(times["both"] / times["alone"], 2),
        "guard_pass_rate": round(stats["residuals_asked"] / pairs, 4),
        "residual_hold_rate": round(stats["residuals_held"] / max(stats["residuals_asked"], 1), 3),
        "parsed_again": round(stats["residual_trees"] / stats["documents"], 3),
        "undecided": len(both.filter_many(documents).undecided),
    }


def _rival(texts: list[str], documents: list[bytes], count: int) -> dict[str, object]:
    """lxml, one expression at a time, on some of the documents, which ours then filters, too."""
    expressions = [etree.XPath(text) for text in texts]
    some = documents[:count]
    engine = FilterEngine()
    engine.subscribe_many(texts)

    def one_by_one() -> None:
        for document in some:
            tree = etree.fromstring(document).getroottree()
            for expression in expressions:
                expression(tree)

    times = compare({"ours": lambda: engine.filter_many(some), "lxml": one_by_one}, rounds=3)
    return {
        "lxml_us": round(times["lxml"] / len(some) * 1e6, 1),
        "lxml_speedup": round(times["lxml"] / times["ours"], 1),
    }
