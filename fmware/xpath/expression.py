"""The tree of any XPath 1.0 expression, and what types its parts have.

:mod:`fmware.xpath.tree` has the subset that the filter decides by itself. This tree has the whole
grammar: every axis, node test, function and operator, and the functions of XPath 2 that statements
may use. Every node knows the character it began at (``at``), which takes no part in equality.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

Type: TypeAlias = Literal["nodes", "number", "string", "boolean", "date", "time", "texts"]
"""What an expression gives. ``texts``, a sequence of literals, stands in comparisons only."""


@dataclass(slots=True, unsafe_hash=True)
class Number:
    """A number literal."""

    value: float
    at: int = field(default=0, compare=False)


@dataclass(slots=True, unsafe_hash=True)
class String:
    """A string literal."""

    value: str
    at: int = field(default=0, compare=False)


@dataclass(slots=True, unsafe_hash=True)
class Call:
    """A function call; its name and number of arguments have been checked."""

    name: str
    args: tuple[Expression, ...]
    at: int = field(default=0, compare=False)


@dataclass(slots=True, unsafe_hash=True)
class Binary:
    """Two operands: ``or and = != < <= > >= + - * div mod |``."""

    op: str
    left: Expression
    right: Expression
    at: int = field(default=0, compare=False)


@dataclass(slots=True, unsafe_hash=True)
class Negate:
    """A minus before an operand."""

    operand: Expression
    at: int = field(default=0, compare=False)


@dataclass(slots=True, unsafe_hash=True)
class If:
    """``if (test) then yes else no``, of XPath 2."""

    test: Expression
    yes: Expression
    no: Expression
    at: int = field(default=0, compare=False)


@dataclass(slots=True, unsafe_hash=True)
class Literals:
    """``('a', 'b')``, of XPath 2: literals that a general comparison goes through."""

    items: tuple[Number | String, ...]
    at: int = field(default=0, compare=False)


@dataclass(slots=True, unsafe_hash=True)
class NodeTest:
    """``kind`` is ``name`` or the name of a node test; ``name`` is ``*`` for any name, and the
    target of a ``processing-instruction('target')``."""

    kind: str
    prefix: str | None = None
    name: str = ""


@dataclass(slots=True, unsafe_hash=True)
class AxisStep:
    """One location step, its axis spelled out."""

    axis: str
    test: NodeTest
    predicates: tuple[Expression, ...] = ()
    at: int = field(default=0, compare=False)


@dataclass(slots=True, unsafe_hash=True)
class Location:
    """Steps from the document (``absolute``) or from the context node.

    ``.`` is a relative location of no steps, ``/`` an absolute one.
    """

    steps: tuple[AxisStep, ...]
    absolute: bool = False
    at: int = field(default=0, compare=False)


@dataclass(slots=True, unsafe_hash=True)
class Filtered:
    """An expression with predicates, ``(...)[n]``, and steps from what is left."""

    primary: Expression
    predicates: tuple[Expression, ...]
    steps: tuple[AxisStep, ...]
    at: int = field(default=0, compare=False)


Expression: TypeAlias = (
    Number | String | Call | Binary | Negate | If | Literals | Location | Filtered
)

AXES: Final = (
    "child",
    "descendant",
    "descendant-or-self",
    "attribute",
    "self",
    "parent",
    "ancestor",
    "ancestor-or-self",
    "following-sibling",
    "preceding-sibling",
    "following",
    "preceding",
    "namespace",
)
REVERSE: Final = frozenset({"ancestor", "ancestor-or-self", "preceding-sibling", "preceding"})
NODE_TESTS: Final = ("node", "text", "comment", "processing-instruction")
MANY: Final = 64
"""Arguments that ``concat`` may have."""

FUNCTIONS: Final[dict[str, tuple[int, int, Type]]] = {
    "last": (0, 0, "number"),
    "position": (0, 0, "number"),
    "count": (1, 1, "number"),
    "id": (1, 1, "nodes"),
    "local-name": (0, 1, "string"),
    "namespace-uri": (0, 1, "string"),
    "name": (0, 1, "string"),
    "string": (0, 1, "string"),
    "concat": (2, MANY, "string"),
    "starts-with": (2, 2, "boolean"),
    "contains": (2, 2, "boolean"),
    "substring-before": (2, 2, "string"),
    "substring-after": (2, 2, "string"),
    "substring": (2, 3, "string"),
    "string-length": (0, 1, "number"),
    "normalize-space": (0, 1, "string"),
    "translate": (3, 3, "string"),
    "boolean": (1, 1, "boolean"),
    "not": (1, 1, "boolean"),
    "true": (0, 0, "boolean"),
    "false": (0, 0, "boolean"),
    "lang": (1, 1, "boolean"),
    "number": (0, 1, "number"),
    "sum": (1, 1, "number"),
    "floor": (1, 1, "number"),
    "ceiling": (1, 1, "number"),
    "round": (1, 1, "number"),
    "lower-case": (1, 1, "string"),
    "upper-case": (1, 1, "string"),
    "ends-with": (2, 2, "boolean"),
    "matches": (2, 3, "boolean"),
    "string-join": (2, 2, "string"),
    "xs:date": (1, 1, "date"),
    "xs:dateTime": (1, 1, "time"),
}
"""The core library of XPath 1.0, and what there is of XPath 2: least and most arguments, and what a
function gives. Native code knows functions by their place here."""

NODES_ONLY: Final = frozenset(
    {"string-join", "count", "sum", "local-name", "namespace-uri", "name"}
)
"""Functions whose argument must be a node-set."""

_OPERATORS: Final[dict[str, Type]] = {
    **dict.fromkeys(("or", "and", "=", "!=", "<", "<=", ">", ">="), "boolean"),
    **dict.fromkeys(("+", "-", "*", "div", "mod"), "number"),
    "|": "nodes",
}


def type_of(expr: Expression) -> Type:
    """What an expression gives; known before any document is seen."""
    match expr:
        case Number() | Negate():
            return "number"
        case String():
            return "string"
        case Call(name):
            return FUNCTIONS[name][2]
        case Binary(op):
            return _OPERATORS[op]
        case If(_, yes):
            return type_of(yes)
        case Literals():
            return "texts"
        case _:
            return "nodes"


def children(expr: Expression) -> Iterator[Expression]:
    """The expressions directly inside another one, those in predicates included."""
    match expr:
        case Call(_, args):
            yield from args
        case Binary(_, left, right):
            yield from (left, right)
        case Negate(operand):
            yield operand
        case If(test, yes, no):
            yield from (test, yes, no)
        case Literals(items):
            yield from items
        case Location(steps):
            for step in steps:
                yield from step.predicates
        case Filtered(primary, predicates, steps):
            yield primary
            yield from predicates
            for step in steps:
                yield from step.predicates
        case _:
            pass


def steps_of(expr: Expression) -> Iterator[AxisStep]:
    """All steps of an expression, wherever they stand."""
    if isinstance(expr, (Location, Filtered)):
        yield from expr.steps
    for inner in children(expr):
        yield from steps_of(inner)
