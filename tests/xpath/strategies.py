"""Random statements and documents over a small alphabet, so that they often meet."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from lxml import etree

from fmware.xpath import (
    And,
    Axis,
    Compare,
    Contains,
    Exists,
    Expr,
    Kind,
    Not,
    Op,
    Or,
    Path,
    Position,
    StartsWith,
    Step,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

NAMES = ("a", "b", "c", "and", "or", "div")
ATTRIBUTES = ("x", "y")
VALUES = ("", "1", "2", "3", "10", "1.5", "-2", "ab", "b", " 2 ")
NAMESPACES = {"p": "urn:p", "q": "urn:q"}

unhurried = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
"""For tests that draw statements: on a busy machine, slowness to draw is no finding."""

_CROSSINGS = (Axis.CHILD, Axis.DESCENDANT, Axis.SELF, Axis.PARENT, Axis.ANCESTOR)
_OPS = st.sampled_from(Op)
_NUMBERS = st.sampled_from((0.0, 1.0, 2.0, 3.0, 10.0, 1.5, -2.0))
_LITERALS: st.SearchStrategy[str | float] = st.one_of(_NUMBERS, st.sampled_from(VALUES))


@dataclass(frozen=True)
class _Alphabet:
    names: tuple[str, ...]
    attributes: tuple[str, ...]
    prefixes: tuple[str, ...]
    with_local: bool

    def prefix(self) -> st.SearchStrategy[str | None]:
        if not self.prefixes:
            return st.none()
        return st.one_of(st.none(), st.sampled_from(self.prefixes))


def paths(
    names: Sequence[str] = NAMES,
    attributes: Sequence[str] = ATTRIBUTES,
    depth: int = 2,
    *,
    with_local: bool = False,
    with_namespaces: bool | Sequence[str] = False,
) -> st.SearchStrategy[Path]:
    """Statements that the parser accepts when printed, with predicates nested to ``depth``.

    ``with_namespaces`` is either the prefixes to use or ``True`` for those of ``NAMESPACES``.
    ``with_local`` lets paths cross into the corpus; not all of these can be split.
    """
    if with_namespaces is True:
        prefixes: Sequence[str] = tuple(NAMESPACES)
    else:
        prefixes = with_namespaces or ()
    return _statements(
        _Alphabet(tuple(names), tuple(attributes), tuple(prefixes), with_local), depth
    )


@st.composite
def _statements(draw: st.DrawFn, alphabet: _Alphabet, depth: int) -> Path:
    steps = draw(_steps(alphabet, depth, inside=False, least=1, most=4, message_first=True))
    return Path(steps, absolute=True)


@st.composite
def _steps(
    draw: st.DrawFn,
    alphabet: _Alphabet,
    depth: int,
    *,
    inside: bool,
    least: int,
    most: int,
    message_first: bool = False,
) -> tuple[Step, ...]:
    steps: list[Step] = []
    count = draw(st.integers(least, most))
    local = inside
    for index in range(count):
        axis = draw(st.sampled_from((Axis.CHILD, Axis.DESCENDANT)))
        kind = Kind.ELEMENT
        first_message = index == 0 and message_first
        if alphabet.with_local and not local and not first_message and draw(st.booleans()):
            axis, local = draw(st.sampled_from(_CROSSINGS)), True
        elif index == count - 1:
            kind = draw(st.sampled_from((Kind.ELEMENT, Kind.ELEMENT, Kind.ATTRIBUTE, Kind.TEXT)))
        steps.append(draw(_step(alphabet, depth, axis, kind, local=local, inside=inside)))
    return tuple(steps)


@st.composite
def _step(
    draw: st.DrawFn,
    alphabet: _Alphabet,
    depth: int,
    axis: Axis,
    kind: Kind,
    *,
    local: bool,
    inside: bool,
) -> Step:
    # On the way through the corpus the one prefix of an element is taken by "local:".
    free = kind is not Kind.TEXT and (inside or not local or kind is Kind.ATTRIBUTE)
    prefix = draw(alphabet.prefix()) if free else None
    name = ""
    if kind is not Kind.TEXT:
        known = alphabet.names if kind is Kind.ELEMENT else alphabet.attributes
        name = draw(st.sampled_from((*known, "*")))
    if kind is Kind.ELEMENT:
        test = _conditions(alphabet, depth, inside=local) if depth else st.nothing()
    else:
        test = _value_tests()
    count = draw(st.sampled_from((0, 0, 1, 2))) if depth or kind is not Kind.ELEMENT else 0
    tests = tuple(draw(test) for _ in range(count))
    return Step(axis, kind, prefix, name, tests, local)


@st.composite
def _relative(draw: st.DrawFn, alphabet: _Alphabet, depth: int, *, inside: bool) -> Path:
    return Path(draw(_steps(alphabet, depth - 1, inside=inside, least=0, most=2)))


# Kept: Hypothesis checks each new strategy, which costs more than drawing from it.
@cache
def _conditions(alphabet: _Alphabet, depth: int, *, inside: bool) -> st.SearchStrategy[Expr]:
    tests = _tests(st.deferred(lambda: _relative(alphabet, depth, inside=inside)))
    return _combined(st.one_of(tests, st.builds(Position, _OPS, _NUMBERS)))


@cache
def _value_tests() -> st.SearchStrategy[Expr]:
    """What may be asked of an attribute or of text: conditions on the context node."""
    return _combined(_tests(st.just(Path(()))))


def _tests(path: st.SearchStrategy[Path]) -> st.SearchStrategy[Expr]:
    texts = st.sampled_from(VALUES)
    return st.one_of(
        st.builds(Exists, path),
        st.builds(Compare, path, _OPS, _LITERALS),
        st.builds(Contains, path, texts),
        st.builds(StartsWith, path, texts),
    )


def _combined(leaf: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    def wider(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        terms = st.lists(inner, min_size=2, max_size=3).map(tuple)
        return st.one_of(st.builds(And, terms), st.builds(Or, terms), st.builds(Not, inner))

    return st.recursive(leaf, wider, max_leaves=4)


@st.composite
def documents(
    draw: st.DrawFn,
    names: Sequence[str] = NAMES,
    attributes: Sequence[str] = ATTRIBUTES,
    *,
    with_namespaces: bool = False,
) -> etree._Element:
    """Small trees over the same alphabet."""
    uris = ("", *(f"{{{uri}}}" for uri in NAMESPACES.values())) if with_namespaces else ("",)
    tags = st.tuples(st.sampled_from(uris), st.sampled_from(names)).map("".join)
    keys = st.tuples(st.sampled_from(uris), st.sampled_from(attributes)).map("".join)
    texts = st.one_of(st.none(), st.sampled_from(VALUES))
    root = etree.Element(draw(tags), draw(st.dictionaries(keys, st.sampled_from(VALUES))))
    nodes = [root]
    for _ in range(draw(st.integers(0, 12))):
        parent = nodes[draw(st.integers(0, len(nodes) - 1))]
        node = etree.SubElement(
            parent, draw(tags), draw(st.dictionaries(keys, st.sampled_from(VALUES), max_size=2))
        )
        node.text, node.tail = draw(texts), draw(texts)
        nodes.append(node)
    return root


def places(nodes: object) -> list[object]:
    """Selected nodes as comparable values: an element, or where a string comes from."""
    assert isinstance(nodes, list)
    return [
        node
        if isinstance(node, etree._Element)
        else (node.getparent(), node.attrname, node.is_tail, str(node))
        for node in nodes
    ]
