"""A search for statements and messages that cost more than they are charged.

A `Case` is a set of statements and a message, both written as small recipes, so that a change of a
recipe is a case that is alike. `search` climbs: it changes the cases that cost most for what they
were charged, and keeps what costs more.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, TypeAlias

from fmware import FilterEngine
from fmware.filtering import FilterLimits
from fmware.labeling import Limits
from fmware.xpath import XPathLimitExceeded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fmware.filtering import FilterResult

LARGEST = 60_000
"""Bytes of a message."""
DEEPEST = 1_000
MOST = 600
"""Statements of a case: more than a state may have before it keeps groups of its own."""
KEPT = 12
"""Cases that are changed further."""

Family: TypeAlias = tuple[str, int]
"""A statement with `%` for a number and `?` for any name, and how many of it there are."""
Piece: TypeAlias = tuple[str, str, int]
"""A part of a message, around the parts after it: what it is, of which names, and how often."""


@dataclass(frozen=True)
class Case:
    """Statements and a message."""

    families: tuple[Family, ...]
    pieces: tuple[Piece, ...]
    tuples: bool = False
    cache: int = 2**28

    def statements(self, most: int = MOST) -> list[str]:
        """What is asked; of each family about as many if these are too many."""
        of_each = most // len(self.families) if self.families else 0
        return [
            _filled(text, number)
            for text, count in self.families
            for number in range(min(count, max(1, of_each)))
        ]

    def message(self) -> bytes:
        return f"<r>{_written(self.pieces, LARGEST, DEEPEST)}</r>".encode()

    def engine(self, work: int, most: int = MOST) -> FilterEngine:
        engine = FilterEngine(
            limits=FilterLimits(work=work, cache=self.cache, tuples=10_000),
            read_limits=Limits(depth=DEEPEST + 1),
        )
        for text in self.statements(most):
            with suppress(XPathLimitExceeded):
                engine.subscribe(text, tuples=self.tuples)
        return engine


def _filled(text: str, number: int) -> str:
    """One statement of a family: the same for the same number."""
    names = Random(number)
    parts = text.replace("%", str(number)).split("?")
    return parts[0] + "".join(names.choice("ab*") + part for part in parts[1:])


def _written(pieces: tuple[Piece, ...], room: int, levels: int) -> str:
    """What the pieces say, cut where it would get longer or deeper than it may."""
    if not pieces or room < 16 or levels < 2:
        return ""
    (kind, names, times), after = pieces[0], pieces[1:]
    times = max(1, times)
    if kind == "deep":
        times = min(times, levels - 1, room // 14)
        tags = [names[at % len(names)] for at in range(times)]
        inside = _written(after, room - 7 * times, levels - times)
        opened, closed = (
            "".join(f"<{tag}>" for tag in tags),
            "".join(f"</{tag}>" for tag in reversed(tags)),
        )
        return opened + inside + closed
    if kind == "wide":
        inside = _written(after, room // 2, levels - 1)
        times = min(times, room // (len(inside) + 8))
        return "".join(
            f"<{names[at % len(names)]}>{inside}</{names[at % len(names)]}>" for at in range(times)
        )
    if kind == "numbered":
        inside = _written(after, room // 2, levels - 1)
        times = min(times, room // (len(inside) + 16))
        return "".join(f"<{names[0]}>{at}{inside}</{names[0]}>" for at in range(times))
    if kind == "attributes":
        inside = _written(after, room // 2, levels - 1)
        times = min(times, 500, room // 24)
        given = "".join(f' x{at}="{at % 7}"' for at in range(times))
        return f"<{names[0]}{given}>{inside}</{names[0]}>"
    text = (names * min(times, room // 2))[: room // 2]
    return text + _written(after, room - len(text), levels)


NAMES = "aabc"
TEXTS = ("1", "x", "ab", " ", "aaaaaaab", "7.5")
LITERALS = ("x", "a", "1", "aab", "%", "a%", "x" * 40, "a" * 120 + "b", "1" * 300)


def first_case(random: Random) -> Case:
    families = tuple(_family(random) for _ in range(random.choice((1, 1, 2, 3))))
    pieces = tuple(_piece(random) for _ in range(random.choice((1, 2, 3))))
    cache = 2**28 if random.random() < 0.8 else random.choice((1, 2**16, 2**20))
    return Case(families, pieces, random.random() < 0.25, cache)


def _family(random: Random) -> Family:
    text = "".join(_step(random) for _ in range(random.choice((1, 2, 3, 4, 8, 40))))
    return text, random.choice((1, 2, 20, 300, 600))


def _step(random: Random) -> str:
    axis = random.choice(("//", "//", "/"))
    test = random.choice((*NAMES, "*", "*", "r", "a%", "?", "?", "?"))
    wanted = random.random() < 0.25
    return f"{axis}{test}" + (f"[{condition(random, 2)}]" if wanted else "")


def condition(random: Random, depth: int) -> str:
    """What stands in a predicate."""
    path = _path(random, depth)
    literal = random.choice(LITERALS)
    forms = [
        path,
        f"{path} = '{literal}'",
        f"{path} != '{literal}'",
        f"{path} {random.choice(('<', '>=', '=', '!='))} {random.choice(('5', '%', '0.5'))}",
        f"contains({path}, '{literal}')",
        f"starts-with({path}, '{literal}')",
        f"position() {random.choice(('=', '>', '!='))} {random.choice(('1', '%', '500'))}",
    ]
    if depth:
        forms += [f"not({condition(random, depth - 1)})"] * 2
        forms += [
            f"{condition(random, depth - 1)} {word} {condition(random, depth - 1)}"
            for word in ("and", "or")
        ]
    return random.choice(forms)


def _path(random: Random, depth: int) -> str:
    draw = random.random()
    if draw < 0.2:
        return "."
    if draw < 0.35:
        return random.choice(("@x%", "@x1", "@*", "text()"))
    tests = (*NAMES, "*", "*", "a%")
    steps = [random.choice(tests) for _ in range(random.choice((1, 1, 2, 3, 6)))]
    if depth and random.random() < 0.3:
        steps[-1] += f"[{condition(random, depth - 1)}]"
    end = random.choice(("", "", "", "/text()", "/@x1"))
    return random.choice(("", ".//")) + random.choice(("/", "//")).join(steps) + end


def _piece(random: Random) -> Piece:
    kind = random.choice(("deep", "deep", "wide", "numbered", "attributes", "text"))
    if kind == "text":
        return kind, random.choice(TEXTS), random.choice((1, 100, 5_000, 40_000))
    names = "".join(random.choices(NAMES, k=random.choice((1, 1, 2, 3, 7, 300))))
    return kind, names, random.choice((2, 10, 60, 240, 900, 4_000))


def changed(case: Case, random: Random) -> Case:
    """A case that is alike."""
    families, pieces = list(case.families), list(case.pieces)
    at = random.randrange(len(families))
    text, count = families[at]
    draw = random.randrange(11)
    if draw == 0:
        families[at] = (text, min(MOST, max(1, int(count * random.choice((0.5, 2, 3))))))
    elif draw == 1 and len(families) < 6:
        families.append(_family(random))
    elif draw == 2 and len(families) > 1:
        del families[at]
    elif draw == 3 and len(text) < 2_000:
        families[at] = (text + _step(random), count)
    elif draw == 4 and len(text) < 1_000:
        families[at] = (text * 2, count)
    elif draw == 5 and len(text) < 2_000:
        families[at] = (f"{text}[{condition(random, 2)}]", count)
    elif draw == 6:
        pieces.insert(random.randrange(len(pieces) + 1), _piece(random))
    elif draw == 7 and len(pieces) > 1:
        del pieces[random.randrange(len(pieces))]
    elif draw == 8:
        place = random.randrange(len(pieces))
        kind, names, times = pieces[place]
        pieces[place] = (kind, names, max(1, int(times * random.choice((0.3, 0.7, 1.5, 3)))))
    elif draw == 9:
        pieces[random.randrange(len(pieces))] = _piece(random)
    else:
        case = replace(case, tuples=not case.tuples)
    return replace(case, families=tuple(families), pieces=tuple(pieces[:5]))


@dataclass(frozen=True)
class Cost:
    """What a message took, and what it may take for what it was charged."""

    seconds: float
    units: int
    reading: float

    @property
    def per_unit(self) -> float:
        """Seconds of a unit."""
        return self.seconds / self.units

    def ratio(self, unit: float) -> float:
        """How many times as long as allowed for, if a unit takes so many seconds."""
        return self.seconds / (self.units * unit + self.reading + NOISE)


def cpu(call: Callable[[], object], times: int = 1) -> float:
    """Seconds of CPU, at best."""
    best = float("inf")
    for _ in range(times):
        begin = time.thread_time()
        call()
        best = min(best, time.thread_time() - begin)
    return best


NOISE = 0.0003
"""Seconds that are too few to tell what they were spent on."""
FIRST = 100
"""Units of a statement when a message is the first to need it: groups of many entries are made."""


def costs(case: Case, work: int, times: int = 1) -> Iterator[Cost]:
    """What the message costs when it comes first, and when it comes again.

    A message is read once, which its bytes account for; naming a statement is a unit.
    """
    message = case.message()
    empty = Case((), ()).engine(work)
    reading = cpu(lambda: empty.filter(message), 2)
    engine = case.engine(work)
    statements = len(engine)
    found: list[FilterResult] = []
    for first in (True, False):
        seconds = float("inf")
        for _ in range(times):
            if first:
                engine.forget()
            seconds = min(seconds, cpu(lambda: found.append(engine.filter(message))))
        units = found[-1].work + statements * (FIRST if first else 1)
        yield Cost(seconds, units, reading)


def worst(case: Case, work: int, unit: float, times: int = 1) -> float:
    """The larger ratio of the two that a message has."""
    return max(cost.ratio(unit) for cost in costs(case, work, times))


def crossed(one: Case, other: Case) -> Case:
    """The statements of a case with the message of another."""
    return replace(one, pieces=other.pieces)


def search(
    random: Random, known: Sequence[Case], seconds: float, work: int, unit: float
) -> list[tuple[float, Case]]:
    """The cases that cost most for what they were charged, the worst first.

    It begins with cases that are known, and cases of its own.
    """
    found: list[tuple[float, Case]] = []
    end = time.process_time() + seconds
    while time.process_time() < end:
        pool = [*known, *(case for _, case in found)]
        draw = random.random()
        if draw < 0.2:
            case = first_case(random)
        elif draw < 0.4:
            case = crossed(random.choice(pool), random.choice(pool))
        else:
            case = changed(random.choice(pool), random)
        ratio = worst(case, work, unit)
        if len(found) < KEPT or ratio > found[-1][0]:
            ratio = worst(case, work, unit, times=3)
        found = sorted([*found, (ratio, case)], key=lambda each: -each[0])[:KEPT]
    return found
