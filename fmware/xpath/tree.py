"""The tree an XPath statement is parsed into.

A :class:`Path` is a tuple of :class:`Step`; a step carries predicates, and a predicate is an
:data:`Expr` over relative paths. Every node knows the character it began at (``at``), which
takes no part in equality or hashing: two spellings of one query compare equal.

Nodes are built once per registered statement, by the million, so they are plain slotted
dataclasses: a frozen one would pay for ``object.__setattr__`` on every field. Nothing may
assign to a node after it was built; hashes are relied upon.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator


class Axis(IntEnum):
    """How a step is reached from the one before it.

    ``DESCENDANT`` is what ``//`` means. On elements and text that is the descendant axis; an
    attribute reached by ``//`` may also belong to the context node itself. Positions of a
    ``//x`` step count among siblings, as XPath 1.0 has it, not among all descendants.

    ``SELF``, ``PARENT`` and ``ANCESTOR`` occur only where a path crosses into the corpus.
    """

    CHILD = 0
    DESCENDANT = 1
    SELF = 2
    PARENT = 3
    ANCESTOR = 4


class Kind(IntEnum):
    """What a step selects."""

    ELEMENT = 0
    ATTRIBUTE = 1
    TEXT = 2


class Op(IntEnum):
    """A comparison; the literal always stands on the right."""

    EQ = 0
    NE = 1
    LT = 2
    LE = 3
    GT = 4
    GE = 5


@dataclass(slots=True, unsafe_hash=True)
class Step:
    """One location step.

    ``name`` is ``*`` for any name and empty for ``text()``. ``local`` marks a step of the
    corpus, whose ``local:`` prefix has been taken off.
    """

    axis: Axis
    kind: Kind
    prefix: str | None
    name: str
    predicates: tuple[Expr, ...] = ()
    local: bool = False
    at: int = field(default=0, compare=False)


@dataclass(slots=True, unsafe_hash=True)
class Path:
    """Steps from the document root (``absolute``) or from the context node.

    A relative path of no steps is ``.``, the context node.
    """

    steps: tuple[Step, ...]
    absolute: bool = False
    at: int = field(default=0, compare=False)


@dataclass(slots=True, unsafe_hash=True)
class And:
    """All of two or more terms."""

    terms: tuple[Expr, ...]
    at: int = field(default=0, compare=False)


@dataclass(slots=True, unsafe_hash=True)
class Or:
    """Any of two or more terms."""

    terms: tuple[Expr, ...]
    at: int = field(default=0, compare=False)


@dataclass(slots=True, unsafe_hash=True)
class Not:
    """``not(term)``."""

    term: Expr
    at: int = field(default=0, compare=False)


@dataclass(slots=True, unsafe_hash=True)
class Exists:
    """A path used as a condition: it selects something."""

    path: Path
    at: int = field(default=0, compare=False)


@dataclass(slots=True, unsafe_hash=True)
class Compare:
    """Some node of ``path`` compares with ``value``: as a number or as a string.

    A string takes part in ``<`` and its like as a number, as XPath 1.0 has it.
    """

    path: Path
    op: Op
    value: str | float
    at: int = field(default=0, compare=False)


@dataclass(slots=True, unsafe_hash=True)
class Position:
    """``[n]`` or ``position() op n``."""

    op: Op
    value: float
    at: int = field(default=0, compare=False)


@dataclass(slots=True, unsafe_hash=True)
class Contains:
    """``contains(path, 'text')``: looks at the first node of ``path`` only, as XPath 1.0 has it."""

    path: Path
    text: str
    at: int = field(default=0, compare=False)


@dataclass(slots=True, unsafe_hash=True)
class StartsWith:
    """``starts-with(path, 'text')``: looks at the first node of ``path`` only."""

    path: Path
    text: str
    at: int = field(default=0, compare=False)


Expr: TypeAlias = And | Or | Not | Exists | Compare | Position | Contains | StartsWith


def positional(expr: Expr) -> bool:
    """Whether the truth of a predicate depends on the position of its own context node."""
    match expr:
        case Position():
            return True
        case And(terms) | Or(terms):
            return any(map(positional, terms))
        case Not(term):
            return positional(term)
        case _:
            return False


def paths_of(expr: Expr) -> Iterator[Path]:
    """The paths a predicate reads, left to right, without those inside their own predicates."""
    match expr:
        case And(terms) | Or(terms):
            for term in terms:
                yield from paths_of(term)
        case Not(term):
            yield from paths_of(term)
        case Exists(path) | Compare(path) | Contains(path) | StartsWith(path):
            yield path
        case Position():
            pass
