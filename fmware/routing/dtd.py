"""A DTD as it is declared, and as a schema for routing.

lxml reads the declarations. `read_elements` keeps content models as small trees of `Particle`, and
attributes; `schema_of_dtd` makes a `Schema` of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Literal, cast

from lxml import etree

from fmware.routing import schema
from fmware.routing.errors import SchemaError
from fmware.routing.schema import Declaration, Schema
from fmware.xpath import clark

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from lxml.etree._dtd import _DTDAttributeDecl, _DTDElementContentDecl, _DTDElementDecl

__all__ = ["Attribute", "Element", "Particle", "read_dtd", "read_elements", "schema_of_dtd"]

Content = Literal["empty", "text", "mixed", "children", "any"]
Occurs = Literal["once", "opt", "mult", "plus"]
Kind = Literal["element", "seq", "or"]
Presence = Literal["required", "implied", "fixed", "none"]


@dataclass(frozen=True, slots=True)
class Particle:
    """A node of a content model: an element name, or a sequence or choice of particles."""

    kind: Kind
    occurs: Occurs
    name: str = ""
    parts: tuple[Particle, ...] = ()

    @property
    def optional(self) -> bool:
        """Whether it may be left out, whatever is inside."""
        return self.occurs in ("opt", "mult")

    @property
    def repeats(self) -> bool:
        """Whether it may stand more than once."""
        return self.occurs in ("mult", "plus")

    def names(self) -> Iterator[str]:
        """The element names in it, in the order written, with repetitions."""
        if self.kind == "element":
            yield self.name
        for part in self.parts:
            yield from part.names()


@dataclass(frozen=True, slots=True)
class Attribute:
    """One declared attribute; `kind` is lxml's: cdata, id, idref, nmtoken, enumeration, ..."""

    name: str
    kind: str
    presence: Presence
    default: str | None
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Element:
    """One declared element. `model` is set for children; `children` names what may stand below."""

    name: str
    content: Content
    model: Particle | None
    children: tuple[str, ...]
    attributes: tuple[Attribute, ...]


def read_elements(source: etree.DTD, name: str) -> dict[str, Element]:
    """The declared elements, in the order written; raises `SchemaError` if there is none."""
    # An ATTLIST without its ELEMENT shows up as an element of type "undefined".
    declared = [e for e in source.iterelements() if e.type != "undefined"]
    if not declared:
        raise SchemaError(f"{name}: no element is declared")
    reader = _Reader(declared, name)
    return {element.name: element for element in map(reader.element, declared)}


def read_dtd(
    source: str | Path | bytes,
    *,
    root: str | None = None,
    namespaces: Mapping[str, str] | None = None,
) -> Schema:
    """The schema of a DTD, given by its path or its bytes.

    `root` is the element that documents begin with; unless said, those that no other one contains.
    A prefix in a name stands for its namespace in `namespaces`. Raises `SchemaError`.
    """
    name = "dtd" if isinstance(source, bytes) else str(source)
    try:
        read = etree.DTD(BytesIO(source) if isinstance(source, bytes) else str(source))
    except (etree.DTDParseError, OSError) as error:
        raise SchemaError(f"{name}: {error}") from error
    return schema_of_dtd(read_elements(read, name), name, root=root, namespaces=namespaces)


def schema_of_dtd(
    elements: dict[str, Element],
    name: str,
    *,
    root: str | None = None,
    namespaces: Mapping[str, str] | None = None,
) -> Schema:
    """The schema of declared elements; see `read_dtd`."""
    if root is not None and root not in elements:
        raise SchemaError(f"{name}: no element {root!r} is declared; name one that is")
    numbers = {each: number for number, each in enumerate(elements)}
    maker = _Maker(numbers, namespaces or {})
    inner = {c for e in elements.values() for c in e.children if c != e.name}
    roots = [root] if root else [n for n in elements if n not in inner] or list(elements)
    return Schema(
        [maker.declaration(e) for e in elements.values()], [numbers[r] for r in roots], name
    )


class _Maker:
    """Turns elements of a DTD into declarations, by number."""

    def __init__(self, numbers: dict[str, int], namespaces: Mapping[str, str]) -> None:
        self.numbers = numbers
        self.namespaces = namespaces

    def declaration(self, element: Element) -> Declaration:
        attributes = {
            self._name(a.name): a.presence == "required"
            for a in element.attributes
            if not a.name.startswith("xmlns")
        }
        # White space may stand between children, so only an empty element has no text.
        text = element.content != "empty"
        return Declaration(self._name(element.name), self._model(element), attributes, text)

    def _name(self, name: str) -> str:
        prefix, colon, local = name.partition(":")
        if colon and (prefix == "xml" or prefix in self.namespaces):
            return clark(prefix, local, self.namespaces)
        return name

    def _model(self, element: Element) -> schema.Particle | None:
        if element.model is not None:
            return self._part(element.model)
        names = list(self.numbers) if element.content == "any" else element.children
        parts = [self._element(n) for n in names]
        known = tuple(part for part in parts if part.kind == schema.ELEMENT)
        return schema.Particle(schema.CHOICE, optional=True, parts=known) if known else None

    def _element(self, name: str) -> schema.Particle:
        if name not in self.numbers:
            return _IMPOSSIBLE
        return schema.Particle(schema.ELEMENT, number=self.numbers[name])

    def _part(self, particle: Particle) -> schema.Particle:
        if particle.kind == "element":
            inner = self._element(particle.name)
            return _optional(inner) if particle.optional else inner
        kind: Literal[1, 2] = 1 if particle.kind == "seq" else 2
        parts = tuple(map(self._part, particle.parts))
        return schema.Particle(kind, particle.optional, parts=parts)


def _optional(part: schema.Particle) -> schema.Particle:
    return schema.Particle(part.kind, optional=True, number=part.number, parts=part.parts)


_IMPOSSIBLE = schema.Particle(schema.CHOICE)
"""What is not declared cannot stand in a valid document: a choice among nothing."""


def _qualified(prefix: str | None, name: str | None) -> str:
    return f"{prefix}:{name}" if prefix else str(name)


class _Reader:
    """Turns lxml's declarations into the model."""

    def __init__(self, declared: list[_DTDElementDecl], name: str) -> None:
        self.name = name
        self.spelled: dict[str, set[str]] = {}
        for element in declared:
            full = _qualified(element.prefix, element.name)
            self.spelled.setdefault(str(element.name), set()).add(full)

    def element(self, source: _DTDElementDecl) -> Element:
        # libxml2 keeps attributes in an order of its own; by name is one that cannot change.
        found = map(_attribute, source.iterattributes())
        attributes = tuple(sorted(found, key=lambda attribute: attribute.name))
        name = _qualified(source.prefix, source.name)
        content, model = source.type, source.content
        if content == "any":
            return Element(name, "any", None, (), attributes)
        if content == "empty" or model is None:
            return Element(name, "empty", None, (), attributes)
        if content == "mixed":
            children = tuple(dict.fromkeys(self._mixed(model)))
            return Element(name, "mixed" if children else "text", None, children, attributes)
        particle = self._particle(model)
        children = tuple(dict.fromkeys(particle.names()))
        return Element(name, "children", particle, children, attributes)

    def _mixed(self, content: _DTDElementContentDecl) -> Iterator[str]:
        for leaf in _flat(content):
            if leaf.type == "element":
                yield self._full(leaf.name)

    def _particle(self, content: _DTDElementContentDecl) -> Particle:
        occurs = cast("Occurs", content.occur)
        if content.type == "element":
            return Particle("element", occurs, self._full(content.name))
        kind = cast("Kind", content.type)
        return Particle(kind, occurs, parts=tuple(map(self._particle, _flat(content))))

    def _full(self, local: str | None) -> str:
        # lxml does not tell the prefix of a name in a content model, only of a declaration.
        spelled = self.spelled.get(str(local), {str(local)})
        if len(spelled) > 1:
            both = " and ".join(sorted(spelled))
            raise SchemaError(f"{self.name}: cannot tell {both} apart in content models")
        return next(iter(spelled))


def _attribute(source: _DTDAttributeDecl) -> Attribute:
    return Attribute(
        _qualified(source.prefix, source.name),
        str(source.type),
        source.default or "implied",
        source.default_value,
        tuple(source.values()),
    )


def _flat(content: _DTDElementContentDecl) -> Iterator[_DTDElementContentDecl]:
    """The parts of a group: libxml2 keeps `(a, b, c)` as pairs within pairs."""
    if content.type not in ("seq", "or"):
        yield content
        return
    todo = [content.right, content.left]
    while todo:
        part = todo.pop()
        if part is None:
            continue
        if part.type == content.type and part.occur == "once":
            todo += [part.right, part.left]
        else:
            yield part
