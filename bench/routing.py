"""Routing: how many statements covering makes redundant, what that costs, and what it saves.

The statements are those of the YFilter studies' generator with at most ten steps, filtered to a
selectivity of at most 0.1: without that a few statements such as `//p` cover all others. Set A has
W = DO = 0.2, set B 0.05 each. `--dtd FILE` takes another DTD than the project's news; `--quick`
takes a tenth of the statements; `--parts reduce,traffic,tables` runs some parts.

The rivals: the paper's own covering algorithm (`bench.paper_covering`); registering the same
statements in a `FilterEngine`; flooding of subscriptions. Networks are simulated in one process:
trees of 7 and 127 brokers, one publisher, a subscriber at each leaf. A publication is a path from
the root of a document to a leaf, as in the paper. Every delivery is held against one flat index.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import time
from collections import Counter
from itertools import islice, product
from random import Random
from typing import TYPE_CHECKING, Any

from lxml import etree

from bench.paper_covering import paper_covers
from fmware import FilterEngine
from fmware.datasets import ExhaustedError, documents, load_dtd, queries
from fmware.routing import (
    Advertisement,
    MergingTree,
    Network,
    Pattern,
    Schema,
    SchemaMeasure,
    Strategy,
    SubscriptionTree,
    covers,
    reduce,
)
from fmware.routing.dtd import schema_of_dtd
from fmware.routing.network import WordMatcher, binary_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["run"]

SELECTIVITY = 0.1
DOCUMENTS = 500
SETS = {"A": 0.2, "B": 0.05}
PAIRS = 1500
"""Statements of which all pairs are looked at, for what the paper's algorithm claims wrongly."""
DEGREES = (0.0, 0.05, 0.1, 0.2, 0.4)
MERGED = 5000
"""Statements of the runs with merging; estimating imperfection takes most of their time."""


def run(argv: list[str]) -> dict[str, object]:
    """All keys of the benchmark, or those of some parts."""
    options = _options(argv)
    every: dict[str, Callable[..., dict[str, object]]] = {
        "reduce": _reduce,
        "tables": _tables,
        "merging": _merging,
        "traffic": _traffic,
    }
    wanted = options.parts.split(",") if options.parts else list(every)
    result: dict[str, object] = {"dtd": options.dtd, "selectivity": SELECTIVITY}
    for part in wanted:
        result |= _apart(every[part], options.dtd, options.seed, options.quick)
    return result


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench routing")
    parser.add_argument("--dtd", default="news", help="a DTD of the project by name, or a file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a tenth of the statements")
    parser.add_argument("--parts", help="some of reduce,tables,merging,traffic")
    return parser.parse_args(argv)


def _apart(part: Callable[..., dict[str, object]], *arguments: object) -> dict[str, object]:
    """Run a part in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(part, arguments)


def _cpu(call: Callable[[], Any]) -> tuple[Any, float]:
    gc.collect()
    begin = time.process_time_ns()
    found = call()
    return found, (time.process_time_ns() - begin) / 1e9


# -- the workload --


def _documents(dtd: str, seed: int, count: int = DOCUMENTS) -> list[bytes]:
    return list(documents(load_dtd(dtd), count, seed=seed, depth=10, size=4096))


def _statements(dtd: str, seed: int, count: int, chance: float = 0.2) -> list[str]:
    """Different statements, each of which matches at most a tenth of 500 documents."""
    sample = _documents(dtd, seed + 1)
    drawn = _drawn(dtd, seed + 2, chance)
    found: list[str] = []
    while len(found) < count:
        batch = list(islice(drawn, 20_000))
        if not batch:
            break
        found += _selective(batch, sample)
    return found[:count]


def _drawn(dtd: str, seed: int, chance: float) -> Iterator[str]:
    try:
        yield from queries(
            load_dtd(dtd), 10**7, seed=seed, depth=10, wildcard=chance, descendant=chance
        )
    except ExhaustedError:
        return


def _selective(batch: list[str], sample: list[bytes]) -> list[str]:
    engine = FilterEngine()
    engine.subscribe_many(batch)
    hits: Counter[int] = Counter()
    for document in sample:
        hits.update(engine.filter(document).ids)
    return [text for n, text in enumerate(batch) if hits[n] <= SELECTIVITY * len(sample)]


def _schema(dtd: str) -> Schema:
    read = load_dtd(dtd)
    return schema_of_dtd(read.elements, read.name, root=read.root())


# -- reduction --


def _reduce(dtd: str, seed: int, quick: bool) -> dict[str, object]:
    texts = _statements(dtd, seed, 10_000 if quick else 100_000)
    named = [(text, text) for text in texts]
    engine = FilterEngine()
    _, register = _cpu(lambda: engine.subscribe_many(texts))
    plain, taken = _cpu(lambda: reduce(named))
    tree, inserting = _cpu(lambda: _inserted(texts))
    schema = _schema(dtd)
    whole, with_dtd = _cpu(lambda: reduce(named, schema=schema))
    return {
        "statements": len(texts),
        "removed_exact": plain.removed,
        "removed_with_dtd": whole.removed,
        "removed_paper": _removed_by_paper(tree, texts),
        "reduce_100k_seconds_over_register": taken / register,
        "reduce_with_dtd_over_register": with_dtd / register,
        "reduce_seconds": taken,
        "insert_us": inserting / len(texts) * 1e6,
        "register_us": register / len(texts) * 1e6,
        "figure_1_16": _table_sizes(texts, dtd, seed, quick=quick),
        **_paper_pairs(texts, seed),
    }


def _inserted(texts: list[str]) -> SubscriptionTree:
    tree = SubscriptionTree()
    for text in texts:
        tree.insert(text)
    return tree


def _removed_by_paper(tree: SubscriptionTree, texts: list[str]) -> float:
    """The share that the paper's algorithm would remove, wrong claims left out.

    Of equal statements one stays: the later one in the order of their texts.
    """
    gone = 0
    for text in texts:
        pattern = Pattern(text)
        gone += any(
            paper_covers(other.text, text)
            and (other.text > text or not paper_covers(text, other.text))
            for other in tree.covering(pattern)
        )
    return gone / len(texts)


def _paper_pairs(texts: list[str], seed: int) -> dict[str, object]:
    """All pairs of some statements: what the paper's algorithm misses, and claims wrongly."""
    some = [Pattern(t) for t in Random(seed).sample(texts, min(PAIRS, len(texts)))]
    tree = SubscriptionTree()
    for pattern in some:
        tree.insert(pattern)
    true = {(above.key, p.key) for p in some for above in tree.covering(p)}
    said = {
        (one.key, two.key)
        for one, two in product(some, some)
        if one is not two and paper_covers(one.key, two.key)
    }
    wrong = said - true
    assert not any(covers(one, two) for one, two in wrong)
    return {
        "paper_covers_missed": 1 - len(said & true) / len(true) if true else 0.0,
        "paper_covers_wrong": len(wrong),
        "paper_pairs": {"statements": len(some), "covers": len(true)},
    }


def _table_sizes(texts: list[str], dtd: str, seed: int, *, quick: bool) -> dict[str, object]:
    """Figure 1.16: the size of the table as statements come."""
    sets = {"A": texts, "B": _statements(dtd, seed, 10_000 if quick else 100_000, SETS["B"])}
    sizes: dict[str, object] = {}
    for name, each in sets.items():
        tree = SubscriptionTree()
        for number, text in enumerate(each, 1):
            tree.insert(text)
            if number % (len(each) // 5) == 0:
                sizes[f"{name} {number}"] = tree.tops
    return sizes


# -- one broker: tables 1.1, figure 1.18 --


def _tables(dtd: str, seed: int, quick: bool) -> dict[str, object]:
    """CPU microseconds to parse and route a document, by what the table holds."""
    routed = _documents(dtd, seed + 5, 200)
    schema = _schema(dtd)
    found: dict[str, object] = {}
    for name, chance in SETS.items():
        texts = _statements(dtd, seed, 10_000 if quick else 100_000, chance)
        tops = [pattern.text for pattern in _inserted(texts).maximal()]
        found[f"{name} no covering"] = _routing(texts, routed)
        found[f"{name} covering"] = _routing(tops, routed)
        for kind, bound in (("perfect", 0.0), ("imperfect", 0.1)):
            tree = _merged(texts[:MERGED], schema, bound)
            merged = [pattern.text for pattern in tree.maximal()]
            found[f"{name} {kind} merging of {MERGED}"] = _routing(merged, routed)
        found[f"{name} covering of {MERGED}"] = _routing(
            [p.text for p in _inserted(texts[:MERGED]).maximal()], routed
        )
    return {"routing_us_per_document": found, "figure_1_18_us": _processing(dtd, seed, schema)}


def _routing(texts: list[str], routed: list[bytes]) -> float:
    engine = FilterEngine()
    engine.subscribe_many(texts)
    for document in routed:
        engine.filter(document)
    best = min(_cpu(lambda: [engine.filter(d) for d in routed])[1] for _ in range(3))
    return best / len(routed) * 1e6


def _processing(dtd: str, seed: int, schema: Schema) -> dict[str, float]:
    """Figure 1.18: the time of a statement at a broker, matched with advertisements or covered.

    The advertisements are the lines of the notation, each matched by itself as in the paper, and
    beside that the automaton that stands for all of them.
    """
    patterns = [Pattern(text) for text in _statements(dtd, seed, 2000)]
    whole = Advertisement(schema)
    lines = [Advertisement.parse(line) for line in whole.expressions(300)]
    tree = SubscriptionTree()

    def covered_first() -> None:
        for pattern in patterns:
            if tree.insert(pattern).added:
                whole.intersects(pattern)

    each = len(patterns) / 1e6
    few = patterns[:200]
    return {
        "advertisements one by one": _cpu(
            lambda: [[line.intersects(p) for line in lines] for p in few]
        )[1]
        / len(few)
        * 1e6,
        "one automaton": _cpu(lambda: [whole.intersects(p) for p in patterns])[1] / each,
        "covering, then the automaton": _cpu(covered_first)[1] / each,
    }


# -- merging: figures 1.17 and 1.19 --


def _merged(texts: list[str], schema: Schema, bound: float) -> MergingTree:
    tree = MergingTree(SchemaMeasure(schema), bound)
    for text in texts:
        tree.insert(Pattern(text))
    tree.merge()
    return tree


def _merging(dtd: str, seed: int, quick: bool) -> dict[str, object]:
    texts = _statements(dtd, seed, MERGED // 5 if quick else MERGED)
    schema = _schema(dtd)
    publications = [word for words in _words(_documents(dtd, seed + 6, 100)) for word in words]
    wanted = _matching(texts, publications)
    sizes: dict[str, float] = {}
    wrong: dict[str, float] = {}
    covered = _inserted(texts).tops
    for bound in DEGREES:
        tree = _merged(texts, schema, bound)
        sizes[f"D {bound}"] = tree.tops / covered
        passed = _matching([p.text for p in tree.maximal()], publications)
        assert wanted <= passed
        wrong[f"D {bound}"] = len(passed - wanted) / len(passed) if passed else 0.0
    return {"figure_1_17": sizes, "figure_1_19": wrong, "merged_statements": len(texts)}


def _matching(texts: list[str], publications: list[tuple[str, ...]]) -> set[int]:
    """The publications, by number, that some statement matches."""
    matcher = WordMatcher()
    for text in texts:
        matcher.add(Pattern(text))
    return {n for n, word in enumerate(publications) if any(matcher.match(word))}


def _words(sources: list[bytes]) -> Iterator[list[tuple[str, ...]]]:
    """The paths from the root to each leaf of each document."""
    for source in sources:
        root = etree.fromstring(source)
        yield [
            tuple(str(e.tag) for e in (*reversed(list(leaf.iterancestors())), leaf))
            for leaf in root.iter()
            if not len(leaf)
        ]


# -- networks: tables 1.2 and 1.3 --


def _traffic(dtd: str, seed: int, quick: bool) -> dict[str, object]:
    schema = _schema(dtd)
    found: dict[str, object] = {}
    for levels, each in ((3, 1000), (7, 100)):
        count = 2**levels - 1
        traffic = _strategies(dtd, seed, schema, levels, each // 5 if quick else each)
        found[f"table_{count}"] = traffic
        flooding = traffic["no-Adv-no-Cov"]["messages"]
        found[f"traffic_{count}"] = traffic["with-Adv-with-CovPM"]["messages"] / flooding
    return found


def _strategies(
    dtd: str, seed: int, schema: Schema, levels: int, each: int
) -> dict[str, dict[str, float]]:
    """Messages that all brokers received, by strategy; deliveries must be those of a flat table."""
    measure = SchemaMeasure(schema)
    strategies = {
        "no-Adv-no-Cov": Strategy(advertise=False, cover=False),
        "no-Adv-with-Cov": Strategy(advertise=False),
        "with-Adv-no-Cov": Strategy(cover=False),
        "with-Adv-with-Cov": Strategy(),
        "with-Adv-with-CovPM": Strategy(measure=measure),
        "with-Adv-with-CovIPM": Strategy(measure=measure, bound=0.1),
    }
    leaves = list(range(2 ** (levels - 1) - 1, 2**levels - 1))
    rng = Random(seed)
    pool = _statements(dtd, seed, min(each * len(leaves), 20_000))
    wanted = {
        f"s{leaf}": [Pattern(t) for t in rng.sample(pool, min(each, len(pool)))] for leaf in leaves
    }
    words = [word for words in _words(_documents(dtd, seed + 7, 50)) for word in words]
    home = rng.randrange(2**levels - 1)
    flat = _flat(wanted, words)
    return {
        name: _simulated(strategy, levels, wanted, words, home, schema, flat)
        for name, strategy in strategies.items()
    }


def _flat(
    wanted: dict[str, list[Pattern]], words: list[tuple[str, ...]]
) -> dict[tuple[str, ...], set[object]]:
    """Which clients want which publication, by one engine that knows all statements."""
    engine = FilterEngine()
    clients: dict[int, str] = {}
    for client, patterns in wanted.items():
        for pattern in patterns:
            clients[engine.subscribe(pattern.path)] = client
    return {word: {clients[n] for n in engine.filter(_document(word)).ids} for word in set(words)}


def _document(word: tuple[str, ...]) -> bytes:
    opened = "".join(f"<{name}>" for name in word)
    return (opened + "".join(f"</{name}>" for name in reversed(word))).encode()


def _simulated(
    strategy: Strategy,
    levels: int,
    wanted: dict[str, list[Pattern]],
    words: list[tuple[str, ...]],
    home: int,
    schema: Schema,
    flat: dict[tuple[str, ...], set[object]],
) -> dict[str, float]:
    network: Network[Any] = Network(binary_tree(levels), WordMatcher, strategy)
    for client in wanted:
        network.client(client, int(client[1:]))
    network.client("publisher", home)
    network.advertise("publisher", "dtd", Advertisement(schema))
    for client, patterns in wanted.items():
        for pattern in patterns:
            network.subscribe(client, pattern)
    network.merge()
    lost = unwanted = 0

    def publish() -> None:
        nonlocal lost, unwanted
        for word in words:
            found = network.publish("publisher", word)
            lost += len(flat[word] - found)
            unwanted += len(found - flat[word])

    before = network.received["publish"]
    _, taken = _cpu(publish)
    hops = network.received["publish"] - before
    tables = [len(broker) for broker in network.brokers.values()]
    return {
        "messages": network.traffic,
        "subscriptions": network.received["subscribe"] + network.received["unsubscribe"],
        "publications": hops,
        "advertisements": network.received["advertise"],
        "lost": lost,
        "unwanted": unwanted,
        "routing_us_per_hop": taken / hops * 1e6 if hops else 0.0,
        "largest_table": max(tables),
    }
