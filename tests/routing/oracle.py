"""Covering held against the engine on random statements and documents.

`python -m tests.routing.oracle --triples 1000000 --seed 1` draws triples of two statements and a
document. A statement that is said to cover another must match each document that the other matches.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from random import Random

from fmware import FilterEngine, XPathError
from fmware.routing.covering import pattern_covers
from fmware.routing.pattern import Pattern
from tests.routing import drawn

_STATEMENTS = 40
_DOCUMENTS = 60


@dataclass
class Found:
    """What a run has seen."""

    triples: int = 0
    covers: int = 0
    told: int = 0
    violations: list[tuple[str, str, str]] | None = None


def check(triples: int, seed: int) -> Found:
    """Draw at least so many triples."""
    rng = Random(f"covering {seed}")
    found = Found(violations=[])
    while found.triples < triples:
        _round(rng, found)
    return found


def statements(rng: Random, count: int) -> list[str]:
    """Random statements, many of them alike."""
    texts: list[str] = []
    while len(texts) < count:
        if texts and rng.random() < 0.6:
            text = drawn.varied(rng, rng.choice(texts))
        else:
            text = drawn.linear(rng) if rng.random() < 0.4 else drawn.statement(rng)
        try:
            Pattern(text)
        except XPathError:
            continue
        texts.append(text)
    return texts


def matches(texts: list[str], documents: list[str]) -> list[int]:
    """Of each statement, the documents that it matches, as the bits of a number."""
    engine = FilterEngine()
    engine.subscribe_many(texts)
    bits = [0] * len(texts)
    for place, document in enumerate(documents):
        for number in engine.filter(document.encode()).ids:
            bits[number] |= 1 << place
    return bits


def _round(rng: Random, found: Found) -> None:
    texts = statements(rng, _STATEMENTS)
    documents = [drawn.document(rng) for _ in range(_DOCUMENTS)]
    bits = matches(texts, documents)
    patterns = [Pattern(text) for text in texts]
    for i, covering in enumerate(patterns):
        for j, covered in enumerate(patterns):
            found.triples += len(documents)
            if i == j or not pattern_covers(covering, covered):
                continue
            found.covers += 1
            found.told += bits[j].bit_count()
            wrong = bits[j] & ~bits[i]
            if wrong and found.violations is not None:
                shown = documents[wrong.bit_length() - 1]
                found.violations.append((texts[i], texts[j], shown))


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--triples", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    found = check(options.triples, options.seed)
    for violation in found.violations or ():
        print("VIOLATION", *violation, sep="\n  ")
    print(
        f"{found.triples:,} triples, {found.covers:,} covers, of whose covered statements "
        f"{found.told:,} matched a document: {len(found.violations or ())} violations"
    )
    return bool(found.violations)


if __name__ == "__main__":
    sys.exit(main())
