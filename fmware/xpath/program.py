"""An expression as the packed tree that native code evaluates.

`pack` gives bytes: a header, nodes of eight numbers, their children, numbers and strings. The
layout and the codes are those of ``fmware/filtering/xpath_eval.h``.
"""

from __future__ import annotations

from array import array
from struct import pack as pack_numbers
from typing import TYPE_CHECKING, Final

from fmware.xpath.expression import (
    AXES,
    FUNCTIONS,
    AxisStep,
    Binary,
    Call,
    Expression,
    Filtered,
    If,
    Location,
    Negate,
    Number,
    String,
    children,
    type_of,
)
from fmware.xpath.regex import compile_regex

if TYPE_CHECKING:
    from collections.abc import Callable

    TagOf = Callable[[str | None, str, int], int]

__all__ = ["CASES", "DOCUMENT", "NAMESPACES", "is_positional", "pack"]

DOCUMENT, NAMESPACES, CASES = 1, 2, 4
"""What an expression needs beside elements, attributes and text: comments and processing
instructions; the namespaces in scope; the cases of letters."""

_NUMBER, _STRING, _OR, _AND, _COMPARE, _ARITHMETIC, _NEGATE, _UNION = range(8)
_CALL, _PATH, _STEP, _FILTER, _IF = range(8, 13)
_AXES: Final = {axis: code for code, axis in enumerate(AXES)}
_TESTS: Final = {"name": 0, "node": 1, "text": 2, "comment": 3, "processing-instruction": 4}
_CALLS: Final = {name: code for code, name in enumerate(FUNCTIONS)}
_COMPARES: Final = {"=": 0, "!=": 1, "<": 2, "<=": 3, ">": 4, ">=": 5}
_ARITHMETICS: Final = {"+": 0, "-": 1, "*": 2, "div": 3, "mod": 4}
_UPWARDS: Final = frozenset({"self", "parent", "ancestor", "ancestor-or-self"})
"""Axes that lead to no comment and no processing instruction, unless they begin at one."""


def pack(expr: Expression, tag_of: TagOf) -> tuple[bytes, int]:
    """The packed tree, and what it needs: bits of ``DOCUMENT`` and ``NAMESPACES``.

    ``tag_of(prefix, name, at)`` numbers a name test.
    """
    packer = _Packer(tag_of)
    root = packer.expression(expr)
    return packer.packed(root), packer.needs


def is_positional(expr: Expression) -> bool:
    """Whether the truth of a predicate depends on the position of its own context node."""
    return type_of(expr) == "number" or _asks_position(expr)


def _asks_position(expr: Expression) -> bool:
    match expr:
        case Call("position" | "last"):
            return True
        case Location():
            return False
        case Filtered(primary):
            return _asks_position(primary)
        case _:
            return any(map(_asks_position, children(expr)))


class _Packer:
    __slots__ = ("_tag_of", "kids", "needs", "nodes", "numbers", "strings")

    def __init__(self, tag_of: TagOf) -> None:
        self._tag_of = tag_of
        self.nodes: list[tuple[int, ...]] = []
        self.kids = array("i")
        self.numbers = array("d")
        self.strings: list[bytes] = []
        self.needs = 0

    def packed(self, root: int) -> bytes:
        flat = array("i", [number for node in self.nodes for number in node])
        ends, total = array("i"), 0
        for string in self.strings:
            total += len(string)
            ends.append(total)
        counts = len(self.nodes), len(self.kids), len(self.numbers), len(self.strings)
        head = pack_numbers("6i", root, *counts, self.needs)
        numbers = flat.tobytes() + self.kids.tobytes() + ends.tobytes()
        padding = bytes(-(len(head) + len(numbers)) % 8)
        return b"".join((head, numbers, padding, self.numbers.tobytes(), *self.strings))

    def node(
        self, op: int, kids: list[int], a: int = 0, b: int = 0, c: int = 0, flags: int = 0
    ) -> int:
        begin = len(self.kids)
        self.kids.extend(kids)
        self.nodes.append((op, a, b, c, begin, len(kids), flags, 0))
        return len(self.nodes) - 1

    def string(self, text: str) -> int:
        # No document has what a surrogate becomes.
        self.strings.append(text.encode(errors="surrogatepass"))
        return len(self.strings) - 1

    def expression(self, expr: Expression) -> int:
        match expr:
            case Number(value):
                self.numbers.append(value)
                return self.node(_NUMBER, [], len(self.numbers) - 1)
            case String(value):
                return self.node(_STRING, [], self.string(value))
            case Negate(operand):
                return self.node(_NEGATE, [self.expression(operand)])
            case Binary():
                return self.binary(expr)
            case Call():
                return self.call(expr)
            case If(test, yes, no):
                return self.node(_IF, [self.expression(each) for each in (test, yes, no)])
            case Location(steps, absolute):
                return self.node(_PATH, self.steps(steps), int(absolute))
            case Filtered(primary, predicates, steps):
                return self.filtered(primary, predicates, steps)
        raise AssertionError(expr)

    def binary(self, expr: Binary) -> int:
        op = expr.op
        if op in ("or", "and", "|"):
            kids = [self.expression(each) for each in _chain(expr)]
            return self.node(_UNION if op == "|" else _OR if op == "or" else _AND, kids)
        kids = [self.expression(expr.left), self.expression(expr.right)]
        if op in _COMPARES:
            return self.node(_COMPARE, kids, _COMPARES[op])
        return self.node(_ARITHMETIC, kids, _ARITHMETICS[op])

    def call(self, expr: Call) -> int:
        name = expr.name
        if name in ("lower-case", "upper-case"):
            self.needs |= CASES
        if name == "matches":
            return self.matching(expr)
        tag = 0
        if name in ("lang", "id"):
            tag = self._tag_of("xml", name, expr.at)
        return self.node(_CALL, [self.expression(each) for each in expr.args], _CALLS[name], 0, tag)

    def matching(self, expr: Call) -> int:
        """``matches``, with the machine of its pattern in place of it."""
        text, *rest = expr.args
        pattern, flags = (*(each.value for each in rest if isinstance(each, String)), "")[:2]
        self.strings.append(compile_regex(pattern, flags))
        machine = self.node(_STRING, [], len(self.strings) - 1)
        return self.node(_CALL, [self.expression(text), machine], _CALLS["matches"])

    def filtered(
        self,
        primary: Expression,
        predicates: tuple[Expression, ...],
        steps: tuple[AxisStep, ...],
    ) -> int:
        first = self.expression(primary)
        if predicates:
            first = self.node(_FILTER, [first, *map(self.expression, predicates)])
        return self.node(_PATH, [first, *self.steps(steps)], 2) if steps else first

    def steps(self, steps: tuple[AxisStep, ...]) -> list[int]:
        packed: list[int] = []
        joined = _joined(steps)
        for index, step in enumerate(joined):
            after = joined[index + 1] if index + 1 < len(joined) else None
            self.look(step, after)
            packed.append(self.step(step))
        return packed

    def look(self, step: AxisStep, after: AxisStep | None) -> None:
        """What a step needs of the document."""
        kind = step.test.kind
        if step.axis == "namespace":
            self.needs |= DOCUMENT | NAMESPACES
        if kind in ("comment", "processing-instruction"):
            self.needs |= DOCUMENT
        if kind != "node" or step.axis in _UPWARDS or step.axis == "attribute":
            return
        # Comments have nothing below them, so it does not matter whether `//` goes through them.
        passes = not step.predicates and after is not None
        if not (
            passes and after is not None and after.axis in ("child", "attribute", "descendant")
        ):
            self.needs |= DOCUMENT

    def step(self, step: AxisStep) -> int:
        test = step.test
        tag = -1
        if test.kind == "name" and not (test.prefix is None and test.name == "*"):
            tag = self._tag_of(test.prefix, test.name, step.at)
        elif test.kind == "processing-instruction" and test.name:
            tag = self.string(test.name)
        kids = [self.expression(each) for each in step.predicates]
        flags = int(any(map(is_positional, step.predicates)))
        return self.node(_STEP, kids, _AXES[step.axis], _TESTS[test.kind], tag, flags)


def _chain(expr: Binary) -> list[Expression]:
    """The operands of one operator in a row."""
    found: list[Expression] = [expr.right]
    left = expr.left
    while isinstance(left, Binary) and left.op == expr.op:
        found.append(left.right)
        left = left.left
    found.append(left)
    return found[::-1]


def _joined(steps: tuple[AxisStep, ...]) -> list[AxisStep]:
    """The steps with `//x` as one, where no predicate counts among siblings."""
    found: list[AxisStep] = []
    for step in steps:
        before = found[-1] if found else None
        if (
            before is not None
            and step.axis == "child"
            and before.axis == "descendant-or-self"
            and before.test.kind == "node"
            and not before.predicates
            and not any(map(is_positional, step.predicates))
        ):
            found[-1] = AxisStep("descendant", step.test, step.predicates, step.at)
        else:
            found.append(step)
    return found
