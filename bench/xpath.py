"""Parsing statements: CPU time per expression, beside elementpath and lxml in the same run.

The mix is that of filtering studies: paths of up to six steps over news tags, a fifth of the
steps a wildcard, a fifth reached by ``//``, a third of the paths with one predicate.
"""

from __future__ import annotations

import argparse
import random
import time
from typing import TYPE_CHECKING

from elementpath.xpath1 import XPath1Parser
from lxml import etree

from fmware.xpath import canonical, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_TAGS = [
    "nitf",
    "head",
    "title",
    "body",
    "body.head",
    "body.content",
    "hedline",
    "hl1",
    "hl2",
    "byline",
    "person",
    "location",
    "dateline",
    "block",
    "p",
    "em",
    "media",
    "media-caption",
    "table",
    "tr",
    "td",
    "ol",
    "li",
    "note",
    "org",
    "chron",
    "abstract",
    "docdata",
]
_ATTRIBUTES = ("id", "class", "style", "type", "units", "value")


def expressions(count: int, seed: int) -> list[str]:
    """Distinct expressions, the same for the same seed."""
    random_ = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        found[_expression(random_)] = None
    return list(found)


def _expression(random_: random.Random) -> str:
    steps = [_step(random_) for _ in range(random_.randint(1, 6))]
    if random_.random() < 1 / 3:
        at = random_.randrange(len(steps))
        steps[at] += f"[{_condition(random_)}]"
    return "".join(steps)


def _step(random_: random.Random) -> str:
    slash = "//" if random_.random() < 0.2 else "/"
    return slash + ("*" if random_.random() < 0.2 else random_.choice(_TAGS))


def _condition(random_: random.Random) -> str:
    attribute, tag = random_.choice(_ATTRIBUTES), random_.choice(_TAGS)
    number = random_.randint(1, 100)
    return random_.choice(
        (
            f"@{attribute} = {number}",
            f"@{attribute} = 'v{number}'",
            f"@{attribute} >= {number}",
            f"{tag} = 'v{number}'",
            f"text() = 'v{number}'",
            f"{number}",
            f"{tag}",
            f".//{tag}/@{attribute} < {number}",
            f"@{attribute} = {number} and not({tag})",
            f"contains({tag}, 'v{number}')",
        )
    )


def _us(work: Callable[[str], object], texts: Sequence[str]) -> float:
    """Microseconds of CPU per expression."""
    started = time.process_time()
    for text in texts:
        work(text)
    return (time.process_time() - started) / len(texts) * 1e6


def _best(
    contenders: dict[str, tuple[Callable[[str], object], Sequence[str]]], rounds: int
) -> dict[str, float]:
    """The fastest round of each; all take part in every round, so that a busy moment of the
    machine falls on all of them."""
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(rounds):
        for name, (work, texts) in contenders.items():
            best[name] = min(best[name], _us(work, texts))
    return best


def run(argv: list[str]) -> dict[str, object]:
    """Measure; ``argv`` is what stands behind the name of the benchmark."""
    parser = argparse.ArgumentParser(prog="bench xpath", description=__doc__)
    parser.add_argument("--expressions", type=int, default=2000)
    parser.add_argument("--rival-expressions", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seed", type=int, default=7)
    options, _ = parser.parse_known_args(argv)
    texts = expressions(options.expressions, options.seed)
    some = texts[: options.rival_expressions]
    trees = {text: parse(text) for text in texts}
    contenders: dict[str, tuple[Callable[[str], object], Sequence[str]]] = {
        "all": (parse, texts),
        "some": (parse, some),
        # The rival's parser is meant to be made once and used again.
        "elementpath": (XPath1Parser().parse, some),
        "lxml": (etree.XPath, texts),
        "canonical": (lambda text: canonical(trees[text]), texts),
    }
    best = _best(contenders, options.rounds)
    return {
        "expressions": len(texts),
        "rival_expressions": len(some),
        "seed": options.seed,
        "us_per_expression": round(best["all"], 2),
        "elementpath_us_per_expression": round(best["elementpath"], 2),
        "ratio": round(best["elementpath"] / best["some"], 2),
        "lxml_us_per_expression": round(best["lxml"], 2),
        "canonical_us_per_expression": round(best["canonical"], 2),
    }
