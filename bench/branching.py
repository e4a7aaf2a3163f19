"""Statements that branch and statements with keys, beside lxml's parse of the same messages.

Parts of `python -m bench pipeline`. Workloads are drawn from its `--seed`; the rival is
`lxml.etree.fromstring` alone, which filters nothing.

- `branching_growth`: the time for 100,000 distinct branching statements over that for 10,000, on
  news of about 28 KB. A statement has 7 or 8 nodes: a path, two nested paths and a comparison. The
  10,000 are drawn at random; the others are drawn among those that match none of the messages, so
  both have the same matches. `branching_100k_over_parse` is the larger of the two over the parse.
- `keyed_over_parse`: 100,000 statements with one key each, on notices of about 4 KB. A fifth each
  asks an attribute of the root, the text of a child of the root, an attribute at the end of a
  nested path, an element's own text, and a step below the root. `either_over_parse` has two keys
  each, combined by `or`.
- `substrings_over_parse`: 10,000 `contains` literals on the same text.
  `prefixes_over_parse`: as many `starts-with`.
"""

from __future__ import annotations

import re
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Final

from lxml import etree

from bench.clock import compare
from fmware.datasets import news_documents, queries
from fmware.datasets.messages import citations
from fmware.filtering import FilterEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.pipeline import Work

__all__ = ["branching", "keyed", "substrings"]

SMALL: Final = 10_000
LARGE: Final = 100_000
SUBSTRINGS: Final = 10_000
NODES: Final = (7, 8)
NEWS_BYTES: Final = 28_000
MESSAGES: Final = 48
"""Of a workload: each is filtered once a round, and these take milliseconds."""

_STRING = re.compile(r"'[^']*'|\"[^\"]*\"")
_NODE = re.compile(r"[@\w.:*]*[\w*]+")
_KEYS = (
    "/notice[@number = '{}']",
    "/notice[sent = '{}']",
    "/notice[.//article/@key = '{}']",
    "//title[. = '{}']",
    "/notice/sender[name = '{}']",
)


def _times(engine: FilterEngine, messages: Sequence[bytes], rounds: int) -> dict[str, float]:
    return compare(
        {
            "parse": lambda: [etree.fromstring(each) for each in messages],
            "filter": lambda: [engine.filter(each) for each in messages],
        },
        rounds=rounds,
    )


def _engine(statements: Sequence[str]) -> FilterEngine:
    engine = FilterEngine()
    engine.subscribe_many(statements)
    return engine


def _matches(engine: FilterEngine, messages: Sequence[bytes]) -> float:
    return sum(len(engine.filter(each).ids) for each in messages) / len(messages)


def _over_parse(
    statements: Sequence[str], messages: Sequence[bytes], name: str, rounds: int
) -> dict[str, float]:
    engine = _engine(statements)
    times = _times(engine, messages, rounds)
    return {
        f"{name}_over_parse": times["filter"] / times["parse"],
        f"{name}_us": times["filter"] / len(messages) * 1e6,
        f"{name}_matches": _matches(engine, messages),
    }


# --- branching ---------------------------------------------------------------------------------


def nodes_of(statement: str) -> int:
    """How many nodes a statement names: elements, attributes and texts."""
    bare = re.sub(r"[<>!=]+ *[\d.]+", "", _STRING.sub("", statement))
    return len(_NODE.findall(bare))


def branching_statements(seed: int) -> Iterator[str]:
    """Distinct statements of 7 or 8 nodes, without end for all purposes."""
    drawn = queries("news", 10**9, seed=seed, depth=4, nested=2, predicates=1)
    return (each for each in drawn if nodes_of(each) in NODES)


def branching(work: Work) -> dict[str, float]:
    """`branching_growth`, `branching_100k_over_parse`."""
    messages = list(news_documents(MESSAGES, seed=work.seed, size=NEWS_BYTES))
    drawn = branching_statements(work.seed + 3)
    statements = list(islice(drawn, SMALL))
    small = _engine(statements)
    before = _times(small, messages, work.rounds)
    matches = _matches(small, messages)
    while len(statements) < LARGE:
        statements += _unmatched(list(islice(drawn, LARGE)), messages)
    large = _engine(statements[:LARGE])
    after = _times(large, messages, work.rounds)
    if _matches(large, messages) != matches:
        raise AssertionError("the larger workload was to have the same matches")
    return {
        "branching_growth": (after["filter"] / after["parse"])
        / (before["filter"] / before["parse"]),
        "branching_100k_over_parse": after["filter"] / after["parse"],
        "branching_10k_over_parse": before["filter"] / before["parse"],
        "branching_matches": matches,
        "branching_bytes": sum(map(len, messages)) / len(messages),
        "branching_100k_us": after["filter"] / len(messages) * 1e6,
    }


def _unmatched(statements: list[str], messages: Sequence[bytes]) -> list[str]:
    engine = _engine(statements)
    matched = {number for body in messages for number in engine.filter(body).ids.tolist()}
    return [text for number, text in enumerate(statements) if number not in matched]


# --- keys --------------------------------------------------------------------------------------


def keyed(work: Work) -> dict[str, float]:
    """`keyed_over_parse`, `either_over_parse`."""
    random = Random(work.seed)
    messages = list(citations(MESSAGES, seed=work.seed, records=work.records, cited=20))
    values = [[str(each) for each in etree.fromstring(body).xpath(PATHS)] for body in messages]
    known = sorted({each for some in values for each in some if "'" not in each})

    def key(number: int) -> str:
        return random.choice(known) if number % 100 == 0 else f"k{random.getrandbits(40):x}"

    one = [_KEYS[at % len(_KEYS)].format(key(at)) for at in range(LARGE)]
    two = [f"/notice[sent = '{key(at)}' or .//@key = '{key(at)}']" for at in range(LARGE)]
    return _over_parse(one, messages, "keyed", work.rounds) | _over_parse(
        two, messages, "either", work.rounds
    )


PATHS = "/notice/@number | /notice/sent/text() | //article/@key | //title/text() | //name/text()"
"""Where the keys are; some statements ask for values that occur there."""


# --- substrings --------------------------------------------------------------------------------


def substrings(work: Work) -> dict[str, float]:
    """`substrings_over_parse`, `prefixes_over_parse`."""
    random = Random(work.seed)
    messages = list(news_documents(MESSAGES, seed=work.seed))
    words = sorted(
        {
            word
            for body in news_documents(500, seed=work.seed + 4)
            for word in " ".join(etree.fromstring(body).itertext()).split()
            if "'" not in word
        }
    )

    def literals(make: Callable[[], str]) -> list[str]:
        found: dict[str, None] = {}
        while len(found) < SUBSTRINGS:
            found[make()] = None
        return list(found)

    phrases = literals(lambda: " ".join(random.choices(words, k=random.choice((1, 2, 3)))))
    inside = [f"//news/head[contains(title, '{each}')]" for each in phrases]
    first = [f"//news/head[starts-with(title, '{each}')]" for each in phrases]
    return _over_parse(inside, messages, "substrings", work.rounds) | _over_parse(
        first, messages, "prefixes", work.rounds
    )
