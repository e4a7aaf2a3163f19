"""An XML Schema as a schema for routing.

Read are elements, types (with extension and restriction), groups, attribute groups, references,
substitution groups and wildcards, over several files by include and import from the same folder.
Values are not looked at. Each declaration of an element is a node of the graph, so that elements of
one name in different places keep their own content.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from lxml import etree

from fmware.routing.errors import SchemaError
from fmware.routing.schema import CHOICE, ELEMENT, SEQUENCE, Declaration, Particle, Schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lxml.etree import _Element

__all__ = ["read_xsd"]

_XS: Final = "{http://www.w3.org/2001/XMLSchema}"
_FILES: Final = 64
_DECLARATIONS: Final = 100_000
_NESTED: Final = 200
_GROUPS: Final = ("sequence", "choice", "all")
_EMPTY: Final = Particle(SEQUENCE)


def read_xsd(source: str | Path | bytes, *, root: str | None = None) -> Schema:
    """The schema of an XML Schema, given by its path or its bytes.

    `root` is the name of the global element that documents begin with; unless said, any that is
    not abstract. Raises `SchemaError` for what is no schema or names what is not declared.
    """
    reader = _Reader("schema" if isinstance(source, bytes) else str(source))
    if isinstance(source, bytes):
        reader.load(source, None)
    else:
        reader.load_file(Path(source))
    return reader.schema(root)


class _Reader:
    """Turns files of a schema into declarations."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.files: set[Path] = set()
        self.globals: dict[tuple[str, str], _Element] = {}
        self.targets: dict[_Element, _Element] = {}
        self.numbers: dict[_Element, int] = {}
        self.declarations: list[Declaration] = []
        self.todo: list[_Element] = []
        self.members: dict[str, list[_Element]] = {}
        self.any = -1

    # -- files --

    def load_file(self, path: Path) -> None:
        path = path.resolve()
        if path in self.files:
            return
        if len(self.files) >= _FILES:
            raise SchemaError(f"{self.name}: more than {_FILES} files")
        self.files.add(path)
        try:
            self.load(path.read_bytes(), path.parent)
        except OSError as error:
            raise SchemaError(f"{self.name}: cannot read {path.name}: {error.strerror}") from None

    def load(self, text: bytes, folder: Path | None) -> None:
        parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
        try:
            top = etree.fromstring(text, parser)
        except etree.XMLSyntaxError as error:
            raise SchemaError(f"{self.name}: {error}") from error
        if top.tag != f"{_XS}schema":
            raise SchemaError(f"{self.name}: the root is {top.tag!r}, not xs:schema")
        for child in top:
            kind = _kind(child)
            if kind in ("include", "import", "redefine"):
                self._more(child, folder)
            elif kind and child.get("name"):
                name = _clark(top.get("targetNamespace"), child.get("name", ""))
                self.globals.setdefault((kind, name), child)
                if kind == "element" and child.get("substitutionGroup"):
                    head = self._name(child, child.get("substitutionGroup", ""))
                    self.members.setdefault(head, []).append(child)

    def _more(self, child: _Element, folder: Path | None) -> None:
        place = child.get("schemaLocation")
        if place is None:
            return
        if folder is None or "://" in place or not (folder / place).is_file():
            raise SchemaError(f"{self.name}: {place} is not a file beside it; nothing is fetched")
        inside = (folder / place).resolve()
        if not inside.is_relative_to(folder.resolve()):
            raise SchemaError(f"{self.name}: {place} leads out of the folder")
        self.load_file(inside)

    # -- declarations --

    def schema(self, root: str | None) -> Schema:
        tops = {
            name: node
            for (kind, name), node in self.globals.items()
            if kind == "element" and node.get("abstract") != "true"
        }
        if root is not None:
            tops = {n: e for n, e in tops.items() if root in (n, n.rpartition("}")[2])}
        if not tops:
            wanted = f"element {root!r}" if root else "global element"
            raise SchemaError(f"{self.name}: no {wanted} is declared")
        roots = [self._number(node) for node in tops.values()]
        while self.todo:
            self._declare(self.todo.pop())
        return Schema(self.declarations, roots, self.name)

    def _number(self, node: _Element) -> int:
        if node not in self.numbers:
            if len(self.declarations) >= _DECLARATIONS:
                raise SchemaError(f"{self.name}: more than {_DECLARATIONS:,} declarations")
            self.numbers[node] = len(self.declarations)
            self.declarations.append(Declaration(self._own_name(node)))
            self.todo.append(node)
        return self.numbers[node]

    def _own_name(self, node: _Element) -> str:
        top = node.getroottree().getroot()
        name, target = node.get("name", ""), top.get("targetNamespace")
        kind = "attribute" if _kind(node) == "attribute" else "element"
        form = node.get("form", top.get(f"{kind}FormDefault", "unqualified"))
        if node.getparent() is top or form == "qualified":
            return _clark(target, name)
        return name

    def _declare(self, node: _Element) -> None:
        declared = self.declarations[self.numbers[node]]
        kind = self._type(node)
        if kind is None or _kind(kind) == "simpleType":
            # Without a type, anything may be in it.
            declared.text = True
            if kind is None and node.get("type") is None:
                declared.model, declared.attributes = self._anything(), {"*": False}
            return
        parts, declared.attributes, declared.text = self._content(kind, 0)
        declared.model = Particle(SEQUENCE, parts=tuple(parts)) if parts else None

    def _type(self, node: _Element) -> _Element | None:
        for child in node:
            if _kind(child) in ("complexType", "simpleType"):
                return child
        named = node.get("type")
        if named is None:
            head = node.get("substitutionGroup")
            return self._type(self._global("element", node, head)) if head else None
        return self._named_type(node, named)

    def _named_type(self, node: _Element, named: str) -> _Element | None:
        name = self._name(node, named)
        if name.startswith(_XS):
            return None
        complex_ = self.globals.get(("complexType", name))
        found = self.globals.get(("simpleType", name)) if complex_ is None else complex_
        if found is None:
            raise SchemaError(f"{self.name}:{node.sourceline}: no type {named} is declared")
        return found

    def _content(self, node: _Element, depth: int) -> tuple[list[Particle], dict[str, bool], bool]:
        """The parts, attributes and text of a complex type, or of an extension within one."""
        self._check(node, depth)
        parts: list[Particle] = []
        attributes: dict[str, bool] = {}
        # White space may stand between children.
        text = True
        for child in node:
            kind = _kind(child)
            if kind in ("complexContent", "simpleContent"):
                for derived in child:
                    if _kind(derived) in ("extension", "restriction"):
                        parts, attributes, text = self._derived(derived, depth + 1)
            elif kind in (*_GROUPS, "group"):
                parts.append(self._part(child, depth + 1))
            else:
                attributes |= self._attributes(child, depth + 1)
        return parts, attributes, text

    def _derived(self, node: _Element, depth: int) -> tuple[list[Particle], dict[str, bool], bool]:
        base = self._named_type(node, node.get("base", ""))
        own, attributes, text = self._content(node, depth + 1)
        if base is None or _kind(base) == "simpleType":
            return own, attributes, True
        parts, inherited, _ = self._content(base, depth + 1)
        if _kind(node) == "restriction":
            return own, inherited | attributes, text
        return parts + own, inherited | attributes, text

    def _check(self, node: _Element, depth: int) -> None:
        if depth > _NESTED:
            raise SchemaError(
                f"{self.name}:{node.sourceline}: nested more than {_NESTED} deep, or without end"
            )

    # -- content models --

    def _part(self, node: _Element, depth: int) -> Particle:
        self._check(node, depth)
        kind = _kind(node)
        optional = node.get("minOccurs", "1") == "0"
        if node.get("maxOccurs") == "0":
            return _EMPTY
        if kind == "element":
            return self._element(node, optional=optional)
        if kind == "any":
            return Particle(ELEMENT, optional, self._wildcard())
        if kind == "group" and node.get("ref"):
            group = self._global("group", node, node.get("ref"))
            parts = [self._part(c, depth + 1) for c in group if _kind(c) in _GROUPS]
            return Particle(SEQUENCE, optional, parts=tuple(parts))
        parts = [self._part(c, depth + 1) for c in node if _is_part(c)]
        return Particle(CHOICE if kind == "choice" else SEQUENCE, optional, parts=tuple(parts))

    def _element(self, node: _Element, *, optional: bool) -> Particle:
        if node.get("ref") is None:
            return Particle(ELEMENT, optional, self._number(node))
        named = self._global("element", node, node.get("ref"))
        chosen = [e for e in self._substitutes(named) if e.get("abstract") != "true"]
        parts = tuple(Particle(ELEMENT, number=self._number(e)) for e in chosen)
        return Particle(CHOICE, optional, parts=parts)

    def _substitutes(self, head: _Element) -> Iterator[_Element]:
        seen, todo = {head}, [head]
        while todo:
            each = todo.pop()
            yield each
            for member in self.members.get(self._own_name(each), ()):
                if member not in seen:
                    seen.add(member)
                    todo.append(member)

    def _wildcard(self) -> int:
        """The declaration of an element of any name with anything in it."""
        if self.any < 0:
            self.any = len(self.declarations)
            self.declarations.append(Declaration("*", None, {"*": False}, text=True))
            self.declarations[self.any].model = self._anything()
        return self.any

    def _anything(self) -> Particle:
        return Particle(CHOICE, optional=True, parts=(Particle(ELEMENT, number=self._wildcard()),))

    # -- attributes and names --

    def _attributes(self, node: _Element, depth: int) -> dict[str, bool]:
        self._check(node, depth)
        kind = _kind(node)
        if kind == "anyAttribute":
            return {"*": False}
        if kind == "attributeGroup" and node.get("ref"):
            group = self._global("attributeGroup", node, node.get("ref"))
            found: dict[str, bool] = {}
            for child in group:
                found |= self._attributes(child, depth + 1)
            return found
        if kind != "attribute" or node.get("use") == "prohibited":
            return {}
        ref = node.get("ref")
        name = self._name(node, ref) if ref else self._own_name(node)
        return {name: node.get("use") == "required"}

    def _global(self, kind: str, node: _Element, named: str | None) -> _Element:
        found = self.globals.get((kind, self._name(node, named or "")))
        if found is None:
            raise SchemaError(f"{self.name}:{node.sourceline}: no {kind} {named} is declared")
        return found

    def _name(self, node: _Element, named: str) -> str:
        prefix, colon, local = named.rpartition(":")
        if prefix == "xml":
            return _clark("http://www.w3.org/XML/1998/namespace", local)
        spaces: dict[str | None, str] = dict(node.nsmap)
        if colon and prefix not in spaces:
            raise SchemaError(f"{self.name}:{node.sourceline}: no namespace for {named}")
        return _clark(spaces.get(prefix if colon else None), local)


def _kind(node: _Element) -> str | None:
    tag = node.tag
    return tag.removeprefix(_XS) if isinstance(tag, str) and tag.startswith(_XS) else None


def _is_part(node: _Element) -> bool:
    return _kind(node) in (*_GROUPS, "element", "group", "any")


def _clark(uri: str | None, name: str) -> str:
    return f"{{{uri}}}{name}" if uri else name
