"""Any XPath 1.0 expression to its tree: tokens first, then operators by their precedence.

:mod:`fmware.xpath.parser` reads the common subset faster and is asked first; this one knows the
whole grammar. Whether ``and`` or ``*`` is an operator follows from where it stands: behind an
operand it is one, anywhere else it is a name.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final, NoReturn

from fmware.xpath import hints
from fmware.xpath.errors import error
from fmware.xpath.expression import (
    AXES,
    FUNCTIONS,
    MANY,
    NODE_TESTS,
    NODES_ONLY,
    AxisStep,
    Binary,
    Call,
    Expression,
    Filtered,
    If,
    Literals,
    Location,
    Negate,
    NodeTest,
    Number,
    String,
    type_of,
)
from fmware.xpath.lexer import NAME_REST, NAME_START, exponent, illegal
from fmware.xpath.limits import XPathLimits
from fmware.xpath.regex import RegexError, compile_regex

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fmware.xpath.errors import XPathError

    Value = str | float | bool

__all__ = ["parse_expression"]

_DEFAULTS: Final = XPathLimits()
_BINDING: Final = {
    "or": 1,
    "and": 2,
    **dict.fromkeys(("=", "!="), 3),
    **dict.fromkeys(("<", "<=", ">", ">="), 4),
    **dict.fromkeys(("+", "-"), 5),
    **dict.fromkeys(("*", "div", "mod"), 6),
    "|": 8,
}
"""How tight an operator binds; a minus before an operand stands at 7."""
_NEGATION: Final = 7
_ANY_DESCENDANT: Final = NodeTest("node")


@cache
def _tokens(ascii_only: bool) -> re.Pattern[str]:
    start, rest = (NAME_START[0], NAME_REST[0]) if ascii_only else (NAME_START[1], NAME_REST[1])
    nc = f"[{start}][{rest}]*+"
    return re.compile(
        rf"[ \t\r\n]*+(?:({nc}(?::(?!:)(?:{nc}|\*))?+)|([0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)"
        rf"|(\"[^\"]*+\"|'[^']*+')|(//|::|\.\.|!=|<=|>=|[/@.()\[\],|+\-=<>*$])|(\Z)|(.))",
        re.DOTALL,
    )


_NAME, _NUMBER, _STRING, _SIGN, _END, _WRONG = 1, 2, 3, 4, 5, 6


def parse_expression(
    text: str,
    *,
    limits: XPathLimits = _DEFAULTS,
    variables: Mapping[str, Value] | None = None,
) -> Expression:
    """Parse any expression; ``variables`` are the values of its ``$names``.

    Raises an :class:`~fmware.xpath.errors.XPathError` that points at what is wrong.
    """
    return _Grammar(text, limits, variables or {}).whole()


class _Grammar:
    """One parse. ``kind``, ``token`` and ``at`` are the token at hand; ``next`` goes on."""

    __slots__ = (
        "at",
        "bound",
        "depth",
        "items",
        "kind",
        "limits",
        "place",
        "steps",
        "terms",
        "text",
        "token",
        "variables",
    )

    def __init__(self, text: str, limits: XPathLimits, variables: Mapping[str, Value]) -> None:
        self.text = text
        self.limits = limits
        self.variables = variables
        self.bound = ""
        self.steps, self.depth, self.terms = limits.steps, limits.depth, limits.terms
        self.check_text()
        self.items = [
            (
                match.lastindex or _END,
                match[match.lastindex or _END],
                match.start(match.lastindex or 0),
            )
            for match in _tokens(text.isascii()).finditer(text)
        ]
        self.place = -1
        self.next()

    def check_text(self) -> None:
        if len(self.text) > self.limits.length:
            found = f"{len(self.text)} characters, {self.limits.length} allowed"
            raise self.error("FMX201", self.limits.length, found)
        if (bad := illegal(self.text)) is not None:
            raise self.error("FMX005", bad, f"U+{ord(self.text[bad]):04X}")

    def next(self) -> None:
        self.place += 1
        self.kind, self.token, self.at = self.items[self.place]

    def ahead(self) -> str:
        """The token after the one at hand."""
        return self.items[self.place + 1][1]

    def takes(self, sign: str) -> bool:
        """Read a sign if it stands here."""
        if self.token == sign and self.kind == _SIGN:
            self.next()
            return True
        return False

    def expect(self, sign: str) -> None:
        if not self.takes(sign):
            self.unexpected(repr(sign))

    # -- expressions ---------------------------------------------------------------------------

    def whole(self) -> Expression:
        if self.kind == _END:
            raise self.error("FMX004", self.at, hint="write a path, as in //order[total > 100]")
        expr = self.expression()
        if self.kind != _END:
            self.unexpected("an operator or the end")
        if type_of(expr) in ("date", "time", "texts"):
            raise self.error("FMX132", expr.at, type_of(expr), hints.COMPARED)
        return expr

    def expression(self, least: int = 0) -> Expression:
        """Operands joined by operators that bind at least as tight."""
        left = self.operand()
        while True:
            op = self.token
            binding = _BINDING.get(op, 0) if self.kind in (_NAME, _SIGN) else 0
            if binding <= least:
                return left
            at = self.at
            self.next()
            if binding <= 2:
                self.terms -= 1
                if self.terms < 0:
                    raise self.error("FMX204", at, f"{self.limits.terms} allowed")
            right = self.expression(binding)
            left = self.joined(op, left, right, at)

    def joined(self, op: str, left: Expression, right: Expression, at: int) -> Expression:
        """Two operands; their types must fit."""
        kinds = type_of(left), type_of(right)
        for operand, kind in zip((left, right), kinds, strict=True):
            if op == "|" and kind != "nodes":
                raise self.error("FMX131", operand.at, "an operand of |", hints.NODES)
            if kind in ("date", "time", "texts") and op not in ("=", "!=", "<", "<=", ">", ">="):
                raise self.error("FMX132", operand.at, kind, hints.COMPARED)
        if ("date" in kinds or "time" in kinds) and kinds[0] != kinds[1]:
            raise self.error("FMX132", at, f"{kinds[0]} with {kinds[1]}", hints.DATES)
        if kinds == ("texts", "texts"):
            raise self.error("FMX132", at, "two sequences", hints.COMPARED)
        if op == "!=" and kinds[0] in ("date", "time"):
            # What is no date is not unequal to one.
            sides = (Binary(each, left, right, left.at) for each in ("<", ">"))
            return _any_of(list(sides))
        # A sequence compares if one of its items does.
        if isinstance(right, Literals):
            return _any_of([Binary(op, left, item, left.at) for item in right.items])
        if isinstance(left, Literals):
            return _any_of([Binary(op, item, right, left.at) for item in left.items])
        return Binary(op, left, right, left.at)

    def enter(self) -> None:
        self.depth -= 1
        if self.depth < 0:
            raise self.error("FMX203", self.at, f"{self.limits.depth} allowed")

    def operand(self) -> Expression:
        """A minus before an operand, or a path that may begin with a primary."""
        if self.token == "-" and self.kind == _SIGN:
            return self.negation()
        primary = self.primary()
        if primary is None:
            return self.location()
        predicates = self.predicates()
        if not predicates and self.token not in ("/", "//"):
            return primary
        if type_of(primary) != "nodes":
            raise self.error("FMX131", primary.at, "before [ or /", hints.NODES)
        steps = self.more_steps([])
        return Filtered(primary, predicates, tuple(steps), primary.at)

    def negation(self) -> Expression:
        at, odd = self.at, False
        while self.takes("-"):
            odd = not odd
        operand = self.expression(_NEGATION)
        if type_of(operand) in ("date", "time", "texts"):
            raise self.error("FMX132", operand.at, type_of(operand), hints.COMPARED)
        if isinstance(operand, Number):
            # No negative zero: it equals zero, so it must not print in another way.
            return Number(-operand.value or 0.0 if odd else operand.value, at)
        inner = Negate(operand, at)
        return inner if odd else Negate(inner, at)

    def primary(self) -> Expression | None:
        """What is no location path: a literal, a variable, a call, parentheses; else None."""
        kind, token, at = self.kind, self.token, self.at
        if kind == _NAME:
            if token in ("some", "every") and self.ahead() == "$":
                return self.quantified()
            if self.ahead() == "(" and token not in NODE_TESTS:
                return self.called()
            return None
        if kind == _NUMBER:
            return self.number()
        if kind == _STRING:
            self.next()
            return String(token[1:-1], at)
        if token == "(":
            return self.parentheses()
        if token == "$":
            return self.variable()
        return None

    def number(self) -> Number:
        value, at = float(self.token), self.at
        end = at + len(self.token)
        if exponent(self.text, end):
            raise self.error("FMX006", end, "an exponent", "write all of its digits")
        self.next()
        return Number(value, at)

    def variable(self) -> Expression:
        at = self.at
        self.next()
        if self.kind != _NAME:
            self.unexpected("the name of a variable")
        name = self.token
        if name == self.bound:
            self.next()
            return Location((), at=at)
        if name not in self.variables:
            known = ", ".join(f"${each}" for each in sorted(self.variables)) or "none"
            raise self.error("FMX106", at, f"${name}", hints.VARIABLE.format(name, known))
        self.next()
        value = self.variables[name]
        if isinstance(value, bool):
            return Call("true" if value else "false", (), at)
        return String(value, at) if isinstance(value, str) else Number(float(value), at)

    def parentheses(self) -> Expression:
        at = self.at
        self.enter()
        self.next()
        if self.token == ")" and self.kind == _SIGN:
            raise self.error("FMX133", at, "an empty sequence", hints.SEQUENCE)
        inner = self.expression()
        if self.token == "," and self.kind == _SIGN:
            inner = self.literals(inner, at)
        self.expect(")")
        self.depth += 1
        return inner

    def literals(self, first: Expression, at: int) -> Expression:
        """A sequence in parentheses, which has literals only."""
        items: list[Number | String] = []
        each = first
        while True:
            if not isinstance(each, (Number, String)):
                raise self.error("FMX133", each.at, "more than literals", hints.SEQUENCE)
            items.append(each)
            self.terms -= 1
            if self.terms < 0:
                raise self.error("FMX204", each.at, f"{self.limits.terms} allowed")
            if not self.takes(","):
                return Literals(tuple(items), at)
            each = self.expression()

    def called(self) -> Expression:
        name, at = self.token, self.at
        if name == "if":
            return self.choice()
        if name not in FUNCTIONS:
            hint = hints.OTHER_FUNCTIONS.get(name, hints.CORE)
            raise self.error("FMX103", at, f"{name}()", hint)
        self.enter()
        self.next()
        self.next()
        args: list[Expression] = []
        if not (self.token == ")" and self.kind == _SIGN):
            args.append(self.argument())
            while self.takes(","):
                args.append(self.argument())
        self.expect(")")
        self.depth += 1
        self.check_call(name, args, at)
        return Call(name, tuple(args), at)

    def argument(self) -> Expression:
        argument = self.expression()
        if type_of(argument) in ("date", "time", "texts"):
            raise self.error("FMX132", argument.at, type_of(argument), hints.COMPARED)
        return argument

    def check_call(self, name: str, args: list[Expression], at: int) -> None:
        least, most, _ = FUNCTIONS[name]
        if not least <= len(args) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            wanted = f"at least {least}" if most == MANY else wanted
            raise self.error("FMX130", at, f"{name}() has {len(args)}", f"it takes {wanted}")
        if name == "matches":
            self.check_pattern(args)
        if self.bound and not args and name not in ("true", "false"):
            raise self.error("FMX135", at, f"{name}()", hints.BOUND.format(self.bound))
        if name in NODES_ONLY and args and type_of(args[0]) != "nodes":
            raise self.error("FMX131", args[0].at, f"the argument of {name}()", hints.NODES)

    def check_pattern(self, args: list[Expression]) -> None:
        pattern, *flags = args[1:]
        for literal in (pattern, *flags):
            if not isinstance(literal, String):
                raise self.error("FMX134", literal.at, "not a literal", hints.PATTERN)
        assert isinstance(pattern, String)
        option = next((each.value for each in flags if isinstance(each, String)), "")
        try:
            compile_regex(pattern.value, option)
        except RegexError as wrong:
            raise self.error("FMX134", pattern.at + 1 + wrong.at, wrong.reason) from None

    def quantified(self) -> Expression:
        """``some $x in nodes satisfies condition``: a predicate on the nodes."""
        word, at = self.token, self.at
        self.enter()
        self.next()
        self.next()
        name = self.token
        self.next()
        self.word("in")
        nodes = self.expression(2)
        if type_of(nodes) != "nodes":
            raise self.error("FMX131", nodes.at, f"behind {word} ${name} in", hints.NODES)
        self.word("satisfies")
        outer, self.bound = self.bound, name
        condition = Call("boolean", (self.argument(),), self.at)
        self.bound = outer
        self.depth += 1
        if word == "some":
            return Call("boolean", (Filtered(nodes, (condition,), (), at),), at)
        without = Call("not", (condition,), at)
        return Call("not", (Filtered(nodes, (without,), (), at),), at)

    def choice(self) -> Expression:
        """``if (test) then yes else no``."""
        at = self.at
        self.enter()
        self.next()
        self.expect("(")
        test = self.argument()
        self.expect(")")
        self.word("then")
        yes = self.argument()
        self.word("else")
        no = self.argument()
        self.depth += 1
        if type_of(yes) != type_of(no):
            raise self.error("FMX132", no.at, f"{type_of(yes)} or {type_of(no)}", hints.CHOICE)
        return If(test, yes, no, at)

    def word(self, word: str) -> None:
        if self.kind != _NAME or self.token != word:
            self.unexpected(repr(word))
        self.next()

    # -- paths ---------------------------------------------------------------------------------

    def location(self) -> Location:
        at = self.at
        if self.token == "/" and self.kind == _SIGN:
            self.next()
            steps = [self.step()] if self.begins_step() else []
            return Location(tuple(self.more_steps(steps)), absolute=True, at=at)
        if self.token == "//" and self.kind == _SIGN:
            return Location(tuple(self.more_steps([])), absolute=True, at=at)
        if not self.begins_step():
            self.unexpected("a path or a literal")
        if self.bound:
            raise self.error("FMX135", at, "", hints.BOUND.format(self.bound))
        return Location(tuple(self.more_steps([self.step()])), absolute=False, at=at)

    def begins_step(self) -> bool:
        return self.kind == _NAME or (self.kind == _SIGN and self.token in ("@", ".", "..", "*"))

    def more_steps(self, steps: list[AxisStep]) -> list[AxisStep]:
        """The steps from here on, each behind a slash."""
        while self.kind == _SIGN and self.token in ("/", "//"):
            if self.token == "//":
                steps.append(AxisStep("descendant-or-self", _ANY_DESCENDANT, (), self.at))
            self.next()
            if not self.begins_step():
                self.unexpected("a step")
            steps.append(self.step())
        return [step for step in steps if not _is_self(step)]

    def step(self) -> AxisStep:
        at = self.at
        self.steps -= 1
        if self.steps < 0:
            raise self.error("FMX202", at, f"{self.limits.steps} allowed")
        if self.token in (".", "..") and self.kind == _SIGN:
            axis = "self" if self.token == "." else "parent"
            self.next()
            if self.token == "[" and self.kind == _SIGN:
                self.unexpected(f"no predicate; write {axis}::node()[...]")
            return AxisStep(axis, _ANY_DESCENDANT, (), at)
        axis = self.axis()
        return AxisStep(axis, self.node_test(), self.predicates(), at)

    def axis(self) -> str:
        if self.takes("@"):
            return "attribute"
        if self.kind != _NAME or self.ahead() != "::":
            return "child"
        axis = self.token
        if axis not in AXES:
            raise self.error("FMX104", self.at, f"{axis}::", hints.ALL_AXES)
        self.next()
        self.next()
        return axis

    def node_test(self) -> NodeTest:
        if self.takes("*"):
            return NodeTest("name", None, "*")
        if self.kind != _NAME:
            self.unexpected("a name, * or a node test")
        name, at = self.token, self.at
        if self.ahead() == "(":
            return self.kind_test(name, at)
        self.next()
        prefix, colon, local = name.partition(":")
        return NodeTest("name", prefix, local) if colon else NodeTest("name", None, name)

    def kind_test(self, name: str, at: int) -> NodeTest:
        if name not in NODE_TESTS:
            raise self.error("FMX103", at, f"{name}() as a step", hints.STEP)
        self.next()
        self.next()
        target = ""
        if name == "processing-instruction" and self.kind == _STRING:
            target = self.token[1:-1]
            self.next()
        self.expect(")")
        return NodeTest(name, None, target)

    def predicates(self) -> tuple[Expression, ...]:
        found: list[Expression] = []
        while self.token == "[" and self.kind == _SIGN:
            self.enter()
            self.terms -= 1
            if self.terms < 0:
                raise self.error("FMX204", self.at, f"{self.limits.terms} allowed")
            self.next()
            # A predicate has a context node of its own, which is not that of the variable.
            bound, self.bound = self.bound, ""
            found.append(self.argument())
            self.bound = bound
            self.expect("]")
            self.depth += 1
        return tuple(found)

    # -- refusals ------------------------------------------------------------------------------

    def error(self, code: str, at: int, found: str = "", hint: str = "") -> XPathError:
        return error(code, self.text, at, found, hint)

    def unexpected(self, wanted: str) -> NoReturn:
        at = self.at
        if self.kind == _END:
            raise self.error("FMX002", at, f"expected {wanted}")
        if self.kind == _WRONG and self.token in "'\"":
            raise self.error("FMX003", at)
        if self.token in ("return", "in", ":") or self.token == "$":
            raise self.error("FMX001", at, f"{self.token!r}, expected {wanted}", hints.LATER)
        hint = hints.FOR_SIGN.get(self.token, hints.FOR_SIGN.get(self.text[at : at + 2], ""))
        raise self.error("FMX001", at, f"{self.token!r}, expected {wanted}", hint)


def _any_of(terms: list[Binary]) -> Binary:
    found = terms[0]
    for term in terms[1:]:
        found = Binary("or", found, term, found.at)
    return found


def _is_self(step: AxisStep) -> bool:
    """Whether a step leads nowhere else, as ``.`` does."""
    return step.axis == "self" and step.test.kind == "node" and not step.predicates
