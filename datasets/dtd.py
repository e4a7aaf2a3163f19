"""A compact model of a DTD: what may stand where, how deep, and with which attributes.

`fmware.routing.dtd` reads the declarations: content models as small trees of `Particle`, and
attributes. This module adds what the makers of documents and queries ask for: the child graph,
which elements are recursive, and the least depth at which an element can be completed. The last is
what lets a depth limit be honoured: where the limit presses, the shallowest alternative is taken,
and it always ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from io import BytesIO
from pathlib import Path

from lxml import etree

from fmware.datasets.errors import (
    AnyContentError,
    DtdError,
    DtdSyntaxError,
    EndlessElementError,
    UndeclaredElementError,
    UnknownElementError,
)
from fmware.routing.dtd import Attribute, Element, Particle, read_elements
from fmware.routing.errors import SchemaError

__all__ = [
    "Attribute",
    "Dtd",
    "Element",
    "Particle",
    "dtd_names",
    "dtd_text",
    "load_dtd",
    "shallowest",
]

INFINITE = float("inf")
_DTDS = resources.files("fmware.datasets") / "dtds"


@dataclass(frozen=True)
class Dtd:
    """The declarations of one DTD, in the order written. Immutable once read."""

    elements: dict[str, Element]
    entities: dict[str, str] = field(default_factory=dict)
    name: str = "dtd"

    @classmethod
    def read(cls, path: str | Path) -> Dtd:
        """Read a DTD file; external parameter entities are resolved beside it."""
        file = Path(path)
        if not file.is_file():
            raise DtdError(f"no DTD file at {file}")
        try:
            return cls._of(etree.DTD(str(file)), file.stem)
        except etree.DTDParseError as error:
            raise DtdSyntaxError(f"{file}: {error}") from error

    @classmethod
    def parse(cls, text: str | bytes, name: str = "dtd") -> Dtd:
        """Read a DTD from its text."""
        data = text.encode() if isinstance(text, str) else text
        try:
            return cls._of(etree.DTD(BytesIO(data)), name)
        except etree.DTDParseError as error:
            raise DtdSyntaxError(f"{name}: {error}") from error

    @classmethod
    def _of(cls, source: etree.DTD, name: str) -> Dtd:
        try:
            return cls(read_elements(source, name), _entities(source), name)
        except SchemaError as error:
            raise DtdSyntaxError(str(error)) from None

    @cached_property
    def depths(self) -> dict[str, float]:
        """Least number of levels of an element's subtree, itself included; infinite if endless."""
        depths = dict.fromkeys(self.elements, INFINITE)
        changed = True
        while changed:
            changed = False
            for name, element in self.elements.items():
                found = 1 + (shallowest(element.model, depths) if element.model else 0)
                if found < depths[name]:
                    depths[name] = found
                    changed = True
        return depths

    @cached_property
    def below(self) -> dict[str, frozenset[str]]:
        """For each element, those which may stand below it at any distance."""
        return {name: frozenset(self._reach(name)) for name in self.elements}

    def _reach(self, start: str) -> set[str]:
        seen: set[str] = set()
        todo = [start]
        while todo:
            element = self.elements.get(todo.pop())
            for child in element.children if element else ():
                if child not in seen:
                    seen.add(child)
                    todo.append(child)
        return seen

    @cached_property
    def recursive(self) -> frozenset[str]:
        """The elements which may stand below themselves."""
        return frozenset(name for name, below in self.below.items() if name in below)

    @cached_property
    def roots(self) -> tuple[str, ...]:
        """Elements that no other one contains, the one that reaches most first.

        Any declared element may be a root; where every one has a parent, the order is by reach.
        """
        inner = {c for e in self.elements.values() for c in e.children if c != e.name}
        outer = [name for name in self.elements if name not in inner] or list(self.elements)
        return tuple(sorted(outer, key=lambda name: -len(self.below[name])))

    def root(self, name: str | None = None) -> str:
        """The root to generate from, checked: a finite document can be made below it."""
        chosen = self.roots[0] if name is None else name
        if chosen not in self.elements:
            known = ", ".join(self.roots)
            raise UnknownElementError(f"{self.name} declares no element {chosen!r}; try {known}")
        self._check(chosen)
        return chosen

    def _check(self, root: str) -> None:
        for name in sorted(self.below[root] | {root}):
            if name not in self.elements:
                users = ", ".join(n for n, e in self.elements.items() if name in e.children)
                raise UndeclaredElementError(
                    f"{self.name}: element {name!r} is used in {users} but not declared"
                )
            if self.elements[name].content == "any":
                raise AnyContentError(
                    f"{self.name}: element {name!r} is declared ANY, which says nothing to "
                    "generate from; give it a content model"
                )
        if self.depths[root] == INFINITE:
            endless = ", ".join(sorted(n for n, d in self.depths.items() if d == INFINITE))
            raise EndlessElementError(
                f"{self.name}: no finite {root!r} exists, these always contain one another: "
                f"{endless}; make a part of the cycle optional"
            )


def shallowest(particle: Particle, depths: dict[str, float]) -> float:
    """Levels that a particle needs at the least, given those of the elements."""
    if particle.optional:
        return 0
    if particle.kind == "element":
        return depths.get(particle.name, INFINITE)
    choose = max if particle.kind == "seq" else min
    return choose(shallowest(part, depths) for part in particle.parts)


def load_dtd(name: str | Path | Dtd) -> Dtd:
    """A DTD by the name of one the project carries (`news`, `auction`, ...), or by its path."""
    if isinstance(name, Dtd):
        return name
    if str(name) in dtd_names():
        return Dtd.parse(dtd_text(str(name)), str(name))
    if not Path(name).exists():
        raise DtdError(f"no DTD {str(name)!r}: give a path or one of {', '.join(dtd_names())}")
    return Dtd.read(name)


def dtd_names() -> tuple[str, ...]:
    """The DTDs the project carries."""
    files = (entry.name for entry in _DTDS.iterdir())
    return tuple(sorted(name.removesuffix(".dtd") for name in files if name.endswith(".dtd")))


def dtd_text(name: str) -> bytes:
    """The source of a DTD the project carries."""
    if name not in dtd_names():
        raise DtdError(f"no DTD {name!r}: the project carries {', '.join(dtd_names())}")
    return (_DTDS / f"{name}.dtd").read_bytes()


def _entities(source: etree.DTD) -> dict[str, str]:
    return {str(entity.name): entity.content or "" for entity in source.iterentities()}
