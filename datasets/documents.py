"""Documents from a DTD: always valid, deterministic by seed, as many as wanted.

The parameters are those that the YFilter studies vary: `depth` (D), `repeats` (RP), the chance of
an attribute, the number of values. Beyond them, `size` asks for documents of about so many bytes.

Every element is compiled, once for each number of levels still allowed below it, into a function
that writes it. `budget` is the number of bytes that its caller grants. Where no level is left, or
no budget, the plan for zero levels takes over: nothing optional, and of the alternatives one that
ends soonest. That plan strictly descends in least depth, so every document ends and is valid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import sqrt
from random import Random
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from fmware.datasets.chance import check, slots
from fmware.datasets.dtd import Dtd, Particle, load_dtd, shallowest
from fmware.datasets.errors import ParameterError, UnfillableAttributeError
from fmware.datasets.values import attribute_domain, domain, prose, vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fmware.datasets.dtd import Attribute, Element

#: Writes something within a budget of bytes and returns the bytes it took.
Emit = Callable[[float], float]

INFINITE = float("inf")
DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>\n'
#: Each level takes up to five Python frames, and Python allows a thousand.
DEEPEST = 120
_PROSE = 1024
_TEXT = 36.0
_LARGEST = 1e7
_ATTEMPTS = 20
_WIDENINGS = 5


def documents(
    dtd: Dtd | str | Path,
    count: int,
    *,
    seed: int = 0,
    root: str | None = None,
    depth: int = 8,
    repeats: int = 3,
    optional: float = 0.5,
    attribute_probability: float = 0.5,
    values: int = 20,
    words: int = 2000,
    skew: float = 0.0,
    size: int | None = None,
) -> Iterator[bytes]:
    """Yield `count` valid documents as UTF-8 bytes.

    depth: levels of nesting; exceeded only where the DTD makes it impossible to stay within.
    repeats: the most times that a repeatable part stands under one parent.
    optional: the chance that an optional part is there; attribute_probability likewise.
    values: the most values that an attribute or a text-only element takes.
    words: the vocabulary of running text.
    skew: Zipf exponent of the choice among values, 0 for uniform.
    size: bytes to aim at. Repetition then goes on until they are spent, whatever `repeats` says.
    """
    check("count", count, 0, INFINITE)
    check("depth", depth, 1, DEEPEST)
    check("repeats", repeats, 0, INFINITE)
    check("optional", optional, 0, 1)
    check("attribute_probability", attribute_probability, 0, 1)
    check("values", values, 1, INFINITE)
    check("words", words, 1, INFINITE)
    check("skew", skew, 0, INFINITE)
    check("size", 1 if size is None else size, 1, INFINITE)
    settings = _Settings(depth, repeats, optional, attribute_probability, values, words, skew, size)
    writer = _Writer(load_dtd(dtd), root, settings, Random(f"documents {seed}"))
    return (writer.document() for _ in range(count))


def news_documents(
    count: int, seed: int = 0, *, size: int = 4096, depth: int = 8
) -> Iterator[bytes]:
    """The benchmark stream: news items of about 4 KB each."""
    return documents(
        "news", count, seed=seed, size=size, depth=depth, attribute_probability=0.25, skew=0.5
    )


@dataclass(frozen=True, slots=True)
class _Settings:
    depth: int
    repeats: int
    optional: float
    attributes: float
    values: int
    words: int
    skew: float
    size: int | None


@dataclass(slots=True)
class _Reference:
    """An IDREF written before all IDs are known: the place to fill, and with what."""

    place: int
    attribute: str
    several: bool
    required: bool


class _Writer:
    """Writes one document after another. Its state is that of the document under way."""

    def __init__(
        self, dtd: Dtd, root: str | None, settings: _Settings, rng: Random, widened: int = 0
    ) -> None:
        self.dtd = dtd
        self.widened = widened
        self.root = dtd.root(root)
        if dtd.depths[self.root] > DEEPEST:
            raise ParameterError(f"{self.root!r} needs over {DEEPEST} levels, too deep to write")
        self.settings = settings
        self.rng = rng
        self.random = rng.random
        self.sized = settings.size is not None
        self.index = {name: i for i, name in enumerate(dtd.elements)}
        self.out: list[str] = []
        self.ids: dict[str, list[str]] = {}
        self.references: list[_Reference] = []
        self.id_chance = settings.attributes
        self.prose = prose(rng, vocabulary(settings.words), _PROSE)
        self.starts = {name: self._start(element) for name, element in dtd.elements.items()}
        self.sizes = _Sizes(dtd, settings)
        # rows[left][i] writes element i with `left` levels allowed below it.
        self.rows: list[list[Emit]] = [
            [self._stub(name, left) for name in dtd.elements] for left in range(settings.depth)
        ]

    def document(self) -> bytes:
        """One document. Tried again where a required IDREF finds no ID to refer to."""
        # A spread of a quarter to either side: equal lengths would be a workload of their own.
        budget = (self.settings.size or INFINITE) * (0.75 + 0.5 * self.random())
        for attempt in range(_ATTEMPTS):
            self._reset(attempt)
            self.rows[-1][self.index[self.root]](budget)
            if self._refer():
                return "".join(self.out).encode()
            budget *= 1.5 if attempt > _ATTEMPTS // 2 else 1
        return self.deeper.document()

    @cached_property
    def deeper(self) -> _Writer:
        """A writer for the document that this one cannot make: the IDs lie below its depth."""
        reachable = self.dtd.below[self.root] | {self.root}
        kinds = {a.kind for name in reachable for a in self.dtd.elements[name].attributes}
        if "id" not in kinds or self.widened > _WIDENINGS:
            raise UnfillableAttributeError(
                f"{self.dtd.name}: a required IDREF has no ID to refer to below {self.root!r}; "
                "declare an ID attribute on something that can stand there"
            )
        now = self.settings
        wider = replace(
            now,
            depth=min(now.depth + 2, DEEPEST),
            repeats=max(now.repeats, 1),
            optional=max(now.optional, 0.5),
        )
        return _Writer(self.dtd, self.root, wider, self.rng, self.widened + 1)

    def _reset(self, attempt: int) -> None:
        self.out.clear()
        self.out.append(DECLARATION)
        self.ids.clear()
        self.references.clear()
        self.id_chance = 1.0 if attempt else self.settings.attributes

    # -- elements

    def _stub(self, name: str, left: int) -> Emit:
        """Compiles the element when it is first written, since most combinations never are."""

        def emit(budget: float) -> float:
            compiled = self._element(self.dtd.elements[name], left)
            self.rows[left][self.index[name]] = compiled
            return compiled(budget)

        return emit

    def _element(self, element: Element, left: int) -> Emit:
        start, write = self.starts[element.name], self.out.append
        if element.content == "empty":

            def empty(_budget: float) -> float:
                size = start()
                write("/>")
                return size + 2

            return empty
        if element.content == "text":
            return self._text(element)
        content = (
            self._mixed(element, left) if element.model is None else self._part(element.model, left)
        )
        close = f"</{element.name}>"
        ends = len(close) + 1
        last, shallow = self.rows[0], self.index[element.name]

        def emit(budget: float) -> float:
            if budget <= 0 and left:
                return last[shallow](0.0)
            own = start() + ends
            write(">")
            used = content(budget - own)
            write(close)
            return own + used

        return emit

    def _text(self, element: Element) -> Emit:
        start, write, random = self.starts[element.name], self.out.append, self.random
        values = domain(element.name, None, self.settings.values).values
        tails = slots([f">{value}</{element.name}>" for value in values], self.settings.skew)
        count = len(tails)

        def emit(_budget: float) -> float:
            size = start()
            tail = tails[int(random() * count)]
            write(tail)
            return size + len(tail)

        return emit

    def _mixed(self, element: Element, left: int) -> Emit:
        fitting = [n for n in element.children if self.dtd.depths[n] <= left]
        inner = self._choice([self._clipped(name, left) for name in fitting])
        write, random, texts = self.out.append, self.random, self.prose
        repeats = self.settings.repeats if fitting else 0
        # Mean number of inline elements is then half the repeats, with a budget or without.
        inline = repeats / (repeats + 2)

        def text() -> int:
            chosen = texts[int(random() * _PROSE)]
            write(chosen)
            return len(chosen)

        def sized(budget: float) -> float:
            used: float = text()
            while used < budget:
                if random() < inline:
                    used += inner(budget - used)
                used += text()
            return used

        def bounded(_budget: float) -> float:
            used: float = text()
            for _ in range(int(random() * (repeats + 1))):
                used += inner(INFINITE) + text()
            return used

        return sized if self.sized else bounded

    # -- content models

    def _part(self, particle: Particle, left: int, *, repeated: bool = False) -> Emit:
        """A particle with its occurrence."""
        needed = self._depth(particle)
        fits = left > 0 and needed <= left
        if particle.optional and not fits:
            return _nothing
        emit = self._once(particle, left, repeated=repeated or (particle.repeats and fits))
        if particle.occurs == "once" or not fits:
            return emit
        if particle.occurs == "opt":
            return self._maybe(emit, self.sizes.floor(particle))
        least = 0 if particle.optional else 1
        if self.sized:
            return self._filling(emit, self.sizes.floor(particle), least)
        return self._repeating(emit, least)

    def _depth(self, particle: Particle) -> float:
        return shallowest(
            Particle(particle.kind, "once", particle.name, particle.parts), self.dtd.depths
        )

    def _once(self, particle: Particle, left: int, *, repeated: bool) -> Emit:
        if particle.kind == "element":
            return (
                self._clipped(particle.name, left) if repeated else self._plain(particle.name, left)
            )
        if particle.kind == "seq":
            return self._sequence(particle.parts, left, repeated=repeated)
        depths = [shallowest(part, self.dtd.depths) for part in particle.parts]
        allowed = max(left, min(depths)) if left else min(depths)
        pairs = zip(particle.parts, depths, strict=True)
        return self._choice(
            [self._part(part, left, repeated=repeated) for part, depth in pairs if depth <= allowed]
        )

    def _plain(self, name: str, left: int) -> Emit:
        """An element that may use all it is given if it can grow, else about its natural size."""
        row, i = self.rows[max(left - 1, 0)], self.index[name]
        if not self.sized or name in self.sizes.growing:
            return lambda budget: row[i](budget)
        most = 1.5 * self.sizes.natural(name, left - 1)
        return lambda budget: row[i](budget if budget < most else most)

    def _clipped(self, name: str, left: int) -> Emit:
        """An element among repeated ones: about its natural size, so that others find room."""
        row, i, random = self.rows[max(left - 1, 0)], self.index[name], self.random
        if not self.sized:
            return lambda budget: row[i](budget)
        natural = self.sizes.natural(name, left - 1)
        return lambda budget: row[i](
            budget * random() if budget < natural else natural * (0.5 + random())
        )

    def _choice(self, emits: list[Emit]) -> Emit:
        if len(emits) == 1:
            return emits[0]
        random, count = self.random, len(emits)
        return lambda budget: emits[int(random() * count)](budget)

    def _sequence(self, particles: tuple[Particle, ...], left: int, *, repeated: bool) -> Emit:
        weights = [self.sizes.weight(particle, left) for particle in particles]
        # A part takes its share of what is left over; what it does not use goes to those after it.
        shares = [weight / sum(weights[i:]) for i, weight in enumerate(weights)]
        emits = [self._part(particle, left, repeated=repeated) for particle in particles]
        pairs = tuple(zip(emits, shares, strict=True))

        def emit(budget: float) -> float:
            used = 0.0
            for part, share in pairs:
                used += part((budget - used) * share)
            return used

        return emit

    def _maybe(self, emit: Emit, floor: float) -> Emit:
        random, chance = self.random, self.settings.optional
        return lambda budget: emit(budget) if budget >= floor and random() < chance else 0.0

    def _repeating(self, emit: Emit, least: int) -> Emit:
        random, spread = self.random, max(self.settings.repeats, least) - least + 1

        def bounded(budget: float) -> float:
            used = 0.0
            for _ in range(least + int(random() * spread)):
                used += emit(budget)
            return used

        return bounded

    def _filling(self, emit: Emit, floor: float, least: int) -> Emit:
        def filling(budget: float) -> float:
            used = emit(budget) if least else 0.0
            while budget - used > floor:
                # A part may turn out empty; a byte keeps the loop finite.
                used += emit(budget - used) or 1.0
            return used

        return filling

    # -- attributes

    def _start(self, element: Element) -> Callable[[], int]:
        """Writes a start tag but for its end, and returns the length."""
        drawn = self._drawn(element)
        named = [a for a in element.attributes if a.kind == "id"]
        refers = [a for a in element.attributes if a.kind in ("idref", "idrefs")]
        write, random, begin = self.out.append, self.random, f"<{element.name}"

        def plain() -> int:
            tag = begin
            for chance, rendered, count in drawn:
                if random() < chance:
                    tag += rendered[int(random() * count)]
            write(tag)
            return len(tag)

        def full() -> int:
            size = plain()
            for attribute in named:
                size += self._identify(element.name, attribute)
            for attribute in refers:
                size += self._reserve(attribute)
            return size

        return full if named or refers else plain

    def _drawn(self, element: Element) -> list[tuple[float, tuple[str, ...], int]]:
        """For each attribute of plain values: its chance, and the attribute written out."""
        drawn = []
        for attribute in element.attributes:
            if attribute.kind in ("id", "idref", "idrefs"):
                continue
            if attribute.kind in ("entity", "entities"):
                self._refuse_entity(element, attribute)
                continue
            if attribute.presence == "fixed" and "&" in (attribute.default or ""):
                # libxml2 compares with the text as declared, entities and all: nothing written
                # could be equal to it. Left out, the attribute has its value all the same.
                continue
            values = self._values(element, attribute)
            quoted = [f' {attribute.name}="{escape(v, {chr(34): "&quot;"})}"' for v in values]
            rendered = slots(quoted, self.settings.skew)
            drawn.append((self._chance(attribute), rendered, len(rendered)))
        return drawn

    def _values(self, element: Element, attribute: Attribute) -> list[str]:
        values = attribute_domain(element.name, attribute, self.settings.values).values
        if attribute.kind != "nmtokens" or attribute.presence == "fixed":
            return list(values)
        # Every second draw has one token, so that equality predicates on it can hold.
        pairs = [f"{value} {other}" for value, other in pairwise(values)]
        return [*values, *pairs]

    def _chance(self, attribute: Attribute) -> float:
        # Without its declaration a prefix is unbound, and the document not namespace-well-formed.
        declares = attribute.name == "xmlns" or attribute.name.startswith("xmlns:")
        return 1.0 if declares or attribute.presence == "required" else self.settings.attributes

    def _refuse_entity(self, element: Element, attribute: Attribute) -> None:
        if attribute.presence == "required":
            raise UnfillableAttributeError(
                f"{self.dtd.name}: @{attribute.name} of {element.name} must name an unparsed "
                "entity, which is not supported; make it optional"
            )

    def _identify(self, element: str, attribute: Attribute) -> int:
        if attribute.presence != "required" and self.random() >= self.id_chance:
            return 0
        known = self.ids.setdefault(element, [])
        # The separator keeps `a1` + 2 and `a` + 12 apart.
        known.append(f"{element.replace(':', '.')}-{len(known)}")
        written = f' {attribute.name}="{known[-1]}"'
        self.out.append(written)
        return len(written)

    def _reserve(self, attribute: Attribute) -> int:
        required = attribute.presence == "required"
        if not required and self.random() >= self.settings.attributes:
            return 0
        several = attribute.kind == "idrefs"
        self.references.append(_Reference(len(self.out), attribute.name, several, required))
        self.out.append("")
        return len(attribute.name) + 10

    def _refer(self) -> bool:
        """Fill the references; false if one is required and there is nothing to refer to."""
        every = [known for ids in self.ids.values() for known in ids]
        for reference in self.references:
            if every:
                # @item refers to an item if there is one: references as people mean them.
                pool = self.ids.get(reference.attribute) or every
                count = 1 + int(self.random() * 3) if reference.several else 1
                chosen = " ".join(pool[int(self.random() * len(pool))] for _ in range(count))
                self.out[reference.place] = f' {reference.attribute}="{chosen}"'
            elif reference.required:
                return False
        return True


def _nothing(_budget: float) -> float:
    return 0.0


class _Sizes:
    """How many bytes things take: at the least, and by nature if nothing limits them."""

    def __init__(self, dtd: Dtd, settings: _Settings) -> None:
        self.dtd = dtd
        self.settings = settings
        self.tags = {name: self._tags(element) for name, element in dtd.elements.items()}
        self.rows = [self._row(None)]
        for _ in range(1, settings.depth):
            self.rows.append(self._row(self.rows[-1]))
        self.growing = self._growing()

    def natural(self, name: str, left: int) -> float:
        """Bytes of the element with `left` levels below it, if no size were asked for."""
        return self.rows[max(left, 0)][name]

    def floor(self, particle: Particle) -> float:
        """Bytes without which a particle should not be started."""
        return self._expected(particle, self.rows[0], least=True)

    def weight(self, particle: Particle, left: int) -> float:
        """Its claim on a budget. The root keeps a deep body from starving a flat head."""
        return sqrt(max(self._expected(particle, self.rows[max(left - 1, 0)], least=False), 1.0))

    def _tags(self, element: Element) -> float:
        chance = self.settings.attributes
        attributes = sum(
            (1.0 if a.presence == "required" else chance) * (len(a.name) + 10)
            for a in element.attributes
        )
        return 2 * len(element.name) + 5 + attributes

    def _row(self, below: dict[str, float] | None) -> dict[str, float]:
        return {
            name: min(self.tags[name] + self._content(element, below), _LARGEST)
            for name, element in self.dtd.elements.items()
        }

    def _content(self, element: Element, below: dict[str, float] | None) -> float:
        if element.content == "empty":
            return 0.0
        if element.content == "text":
            return 12.0
        if element.model is not None:
            row = self.tags if below is None else below
            return self._expected(element.model, row, least=below is None)
        if below is None:
            return _TEXT
        inner = sum(below.get(name, 0.0) for name in element.children) / len(element.children)
        return _TEXT + self.settings.repeats / 2 * (inner + _TEXT)

    def _expected(self, particle: Particle, row: dict[str, float], *, least: bool) -> float:
        if particle.kind == "element":
            once = row.get(particle.name, 0.0)
        else:
            sizes = [self._expected(part, row, least=least) for part in particle.parts]
            choose = min(sizes) if least else sum(sizes) / len(sizes)
            once = sum(sizes) if particle.kind == "seq" else choose
        return once if least else once * self._times(particle)

    def _times(self, particle: Particle) -> float:
        if particle.repeats:
            return (self.settings.repeats + (not particle.optional)) / 2
        return self.settings.optional if particle.optional else 1.0

    def _growing(self) -> frozenset[str]:
        """Elements that can take up any budget, for something in or below them repeats."""
        models = {n: e.model for n, e in self.dtd.elements.items() if e.model is not None}
        direct = {name for name, model in models.items() if _repeats(model)}
        return frozenset(
            name for name in models if name in direct or not direct.isdisjoint(self.dtd.below[name])
        )


def _repeats(particle: Particle) -> bool:
    return particle.repeats or any(map(_repeats, particle.parts))
