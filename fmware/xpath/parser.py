"""XPath text to tree: a recursive-descent parser for the subset that can be filtered.

Statements arrive by the hundred thousand, so the common step (a name, perhaps with ``@`` or a
prefix) is eaten whole by one regular expression, and so is the common predicate (a name or
attribute, an operator, a literal). What these do not match takes the long way, which knows all
of the grammar and every error; the short way never decides that something is wrong.

Names have no reserved words in XPath 1.0: whether ``and`` or ``*`` is an operator follows from
where it stands, which is how the grammar here is cut: an operand first, then an operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

from fmware.xpath import hints
from fmware.xpath.errors import error
from fmware.xpath.lexer import SPACES, exponent, illegal, lexer_for, number
from fmware.xpath.limits import XPathLimits
from fmware.xpath.tree import (
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
    paths_of,
    positional,
)

if TYPE_CHECKING:
    import re

    from fmware.xpath.errors import XPathError

LOCAL: Final = "local"
"""The prefix that crosses from the message into the corpus."""

_DEFAULTS: Final = XPathLimits()

# Enum members cost a descriptor call at each use; the hot path reads globals.
_CHILD, _DESCENDANT = Axis.CHILD, Axis.DESCENDANT
_ELEMENT, _ATTRIBUTE, _TEXT = Kind.ELEMENT, Kind.ATTRIBUTE, Kind.TEXT

_OPS: Final = {"=": Op.EQ, "!=": Op.NE, "<": Op.LT, "<=": Op.LE, ">": Op.GT, ">=": Op.GE}
_FLIP: Final = {
    Op.EQ: Op.EQ,
    Op.NE: Op.NE,
    Op.LT: Op.GT,
    Op.LE: Op.GE,
    Op.GT: Op.LT,
    Op.GE: Op.LE,
}
_AXES: Final = {
    "child": Axis.CHILD,
    "attribute": Axis.CHILD,
    "descendant": Axis.DESCENDANT,
    "self": Axis.SELF,
    "parent": Axis.PARENT,
    "ancestor": Axis.ANCESTOR,
}
_CROSSING_ONLY: Final = (Axis.SELF, Axis.PARENT, Axis.ANCESTOR)
_NODE_TESTS: Final = ("text", "node", "comment", "processing-instruction")

_Operand: TypeAlias = Expr | Path | float | str | None
"""What stands beside an operator; ``None`` is ``position()``."""


def parse(text: str, *, limits: XPathLimits = _DEFAULTS) -> Path:
    """Parse one statement; raise an :class:`~fmware.xpath.errors.XPathError` that points at
    the character where it leaves the subset."""
    return _Parser(text, limits).statement()


class _Parser:
    """One parse: the text, how far it is read, and what is left of the limits.

    ``inside`` says that a predicate of a local step is being read: every step in it is of the
    corpus. Methods begin to read at ``pos``, which is never white space, and leave it behind
    what they have read; ``token`` is the operator that was found at ``seen``.
    """

    __slots__ = (
        "depth",
        "inside",
        "lexer",
        "limits",
        "operator_end",
        "pos",
        "seen",
        "steps",
        "terms",
        "text",
        "token",
    )

    def __init__(self, text: str, limits: XPathLimits) -> None:
        self.text = text
        self.limits = limits
        self.lexer = lexer_for(text)
        self.pos = 0
        self.steps = limits.steps
        self.depth = limits.depth
        self.terms = limits.terms
        self.inside = False
        self.token = ""
        self.seen = self.operator_end = -1

    # -- paths ---------------------------------------------------------------------------------

    def statement(self) -> Path:
        """The whole text."""
        text = self.text
        if len(text) > self.limits.length:
            found = f"{len(text)} characters, {self.limits.length} allowed"
            raise self.error("FMX201", self.limits.length, found)
        if (bad := illegal(text)) is not None:
            raise self.error("FMX005", bad, f"U+{ord(text[bad]):04X}")
        if not text.startswith("/"):
            self.skip()
            if not text.startswith("/", self.pos):
                self.refuse_beginning()
        at = self.pos
        path = self.path(self.plain(), at, absolute=True)
        if self.pos < len(text):
            self.refuse_rest()
        if path.steps[0].local:
            raise self.error("FMX120", path.steps[0].at, hint=hints.LOCAL_FIRST)
        return path

    def path(self, steps: list[Step], at: int, *, absolute: bool) -> Path:
        """The steps from here on, each behind a slash, added to those already read."""
        text, inside = self.text, self.inside
        while text.startswith("/", self.pos):
            match = self.lexer.next(text, self.pos)
            if match is None:
                slash = "//" if text.startswith("//", self.pos) else "/"
                self.skip(len(slash))
                self.rare_step(steps, slash)
                continue
            slash, attribute, name, second, bracket = match.groups()
            self.pos = match.end()
            start = match.start(2 if attribute else 3)
            axis = _CHILD if slash == "/" else _DESCENDANT
            kind = _ATTRIBUTE if attribute else _ELEMENT
            if second or bracket or inside or (steps and (steps[-1].local or steps[-1].kind)):
                self.step(steps, axis, kind, name, second, bracket, start)
            else:
                steps.append(Step(axis, kind, None, name, (), False, start))  # noqa: FBT003
                self.count_steps(steps, 1)
        return Path(tuple(steps), absolute, at)

    def plain(self) -> list[Step]:
        """The steps up to the first that is more than a slash and a name, all at once."""
        steps: list[Step] = []
        run = self.lexer.run(self.text, self.pos)
        if run is None:
            return steps
        at, end = run.span()
        for slash, name in self.lexer.plain(self.text, at, end):
            at += len(slash)
            axis = _CHILD if slash == "/" else _DESCENDANT
            steps.append(Step(axis, _ELEMENT, None, name, (), False, at))  # noqa: FBT003
            at += len(name)
        self.pos = end
        self.count_steps(steps, len(steps))
        return steps

    def relative(self, first: re.Match[str] | None) -> Path:
        """A path in a predicate; its first step, which has no slash before it, has perhaps
        been matched."""
        at = self.pos
        steps: list[Step] = []
        if first:
            attribute, name, second, bracket = first.groups()
            self.pos = first.end()
            kind = _ATTRIBUTE if attribute else _ELEMENT
            self.step(steps, _CHILD, kind, name, second, bracket, at)
        elif self.text.startswith(".", at) and not self.text.startswith("..", at):
            self.skip(1)
            if self.text.startswith("[", self.pos):
                self.expected("no predicate: '.' cannot have one")
        else:
            self.rare_step(steps, "")
        return self.path(steps, at, absolute=False)

    def step(
        self,
        steps: list[Step],
        axis: Axis,
        kind: Kind,
        name: str,
        second: str | None,
        bracket: str | None,
        at: int,
    ) -> None:
        """Add a step whose name (``name:second`` when there are two parts) has been read, and
        read its predicates, if a bracket was opened."""
        self.steps -= 1
        if self.steps < 0:
            self.refuse_size("FMX202", at)
        crossed = False
        if steps:
            if steps[-1].kind is not _ELEMENT:
                raise self.error("FMX110", at, hint="make it the last step")
            crossed = steps[-1].local
        prefix = None
        if second is not None:
            if name == "*":
                raise self.error("FMX001", at, "'*:'", "write prefix:* or prefix:name")
            prefix, name = name, second
        local = self.inside or crossed
        if prefix == LOCAL:
            if kind is _ATTRIBUTE and not local:
                raise self.error("FMX122", at, hint=f"write self::local:*/@{name}")
            prefix, local = None, True
        elif crossed and kind is _ELEMENT and not self.inside:
            raise self.error("FMX121", at, repr(name), f"write local:{name}")
        tests = self.predicates(kind, local) if bracket else ()
        steps.append(Step(axis, kind, prefix, name, tests, local, at))

    def rare_step(self, steps: list[Step], slash: str) -> None:
        """A step with an axis or a node test spelled out, or one that must be refused."""
        text, at = self.text, self.pos
        axis = _DESCENDANT if slash == "//" else _CHILD
        named = self.lexer.axis(text, at)
        if named:
            axis = self.axis(named[1], slash)
            self.pos = named.end()
        kind = _ATTRIBUTE if named and named[1] == "attribute" else _ELEMENT
        bracket: str | None
        if kind is _ELEMENT and (call := self.lexer.call(text, self.pos)):
            self.node_test(call[1], call.end())
            kind, name, second = _TEXT, "", None
            bracket = "[" if text.startswith("[", self.pos) else None
            self.skip(1 if bracket else 0)
        elif named and (match := self.lexer.first(text, self.pos)) and not match[1]:
            name, second, bracket = match.group(2, 3, 4)
            self.pos = match.end()
        else:
            self.refuse_step(steps, slash)
        if axis in _CROSSING_ONLY and (
            second is None or name != LOCAL or self.inside or (steps and steps[-1].local)
        ):
            raise self.error("FMX104", at, f"{named[1]}::" if named else "", hints.CROSSING)
        self.step(steps, axis, kind, name, second, bracket, at)
        if named and axis is _DESCENDANT and named[1] == "descendant":
            self.check_descendant(steps[-1])

    def axis(self, name: str, slash: str) -> Axis:
        """What an axis behind a slash amounts to."""
        axis = _AXES.get(name)
        if axis is None:
            raise self.error("FMX104", self.pos, f"{name}::", hints.AXES)
        if slash != "//":
            return axis
        if axis in _CROSSING_ONLY:
            raise self.error("FMX104", self.pos, f"{name}:: after //", f"write /{name}::")
        return _DESCENDANT

    def node_test(self, name: str, end: int) -> None:
        """``text()``, or the refusal of any other name before a parenthesis."""
        if name in _NODE_TESTS and name != "text":
            hint = "write * for any element" if name == "node" else hints.STEP
            raise self.error("FMX109", self.pos, f"{name}()", hint)
        if name != "text":
            raise self.error("FMX103", self.pos, f"{name}() as a step", hints.FUNCTIONS)
        self.pos = end
        self.expect(")")

    def check_descendant(self, step: Step) -> None:
        """``descendant::x[2]`` is the second of all, ``//x[2]`` the second below each parent;
        the tree has no way to say the first."""
        for test in step.predicates:
            if positional(test):
                hint = f"//{step.name}[2] counts among siblings, which is supported"
                raise self.error("FMX111", step.at, hint=hint)

    # -- predicates ----------------------------------------------------------------------------

    def predicates(self, kind: Kind, local: bool) -> tuple[Expr, ...]:
        """The predicates of a step, from behind the first bracket."""
        tests: list[Expr] = []
        self.enter(self.pos - 1)
        outer, self.inside = self.inside, local
        more = True
        while more:
            self.count_term()
            if brief := self.lexer.brief(self.text, self.pos):
                tests.append(self.brief(brief))
                more = brief[8] is not None
            else:
                tests.append(self.predicate())
                more = self.text.startswith("[", self.pos)
                self.pos += more
            if kind is not _ELEMENT:
                self.check_value_test(tests[-1])
        self.inside = outer
        self.depth += 1
        return tuple(tests)

    def brief(self, match: re.Match[str]) -> Expr:
        """``[n]``, ``[name]`` or ``[name op literal]``, the name with or without ``@``."""
        position, attribute, name, op, number, double, single, _ = match.groups()
        self.pos = match.end()
        if position:
            return Position(Op.EQ, float(position), match.start(1))
        at = match.start(2 if attribute else 3)
        self.steps -= 1
        if self.steps < 0:
            self.refuse_size("FMX202", at)
        kind = _ATTRIBUTE if attribute else _ELEMENT
        path = Path((Step(_CHILD, kind, None, name, (), self.inside, at),), False, at)  # noqa: FBT003
        if not op:
            return Exists(path, at)
        value = float(number) if number else single if double is None else double
        return Compare(path, _OPS[op], value, at)

    def predicate(self) -> Expr:
        """One predicate, to behind its closing bracket."""
        self.skip()
        at = self.pos
        operand = self.either()
        self.expect("]")
        if isinstance(operand, float):
            return Position(Op.EQ, operand, at)
        return self.condition(operand, at)

    def either(self) -> _Operand:
        """``or`` of terms, or a lone operand."""
        at = self.pos
        operand = self.both()
        if self.operator() != "or":
            return operand
        terms = [self.condition(operand, at)]
        while self.operator() == "or":
            start = self.take_operator()
            terms.append(self.condition(self.both(), start))
        return Or(tuple(terms), at)

    def both(self) -> _Operand:
        """``and`` of terms, or a lone operand."""
        at = self.pos
        operand = self.comparison()
        if self.operator() != "and":
            return operand
        terms = [self.condition(operand, at)]
        while self.operator() == "and":
            start = self.take_operator()
            terms.append(self.condition(self.comparison(), start))
        return And(tuple(terms), at)

    def comparison(self) -> _Operand:
        """An operand, perhaps compared with another."""
        at = self.pos
        left = self.operand()
        op = _OPS.get(self.operator())
        if op is None:
            return left
        self.pos = self.operator_end
        self.skip()
        start = self.pos
        right = self.operand()
        if self.operator() in _OPS:
            hint = "join comparisons with and"
            raise self.error("FMX114", self.pos, "a second comparison", hint)
        return self.compare(left, at, op, right, start)

    def compare(self, left: _Operand, at: int, op: Op, right: _Operand, start: int) -> Expr:
        """The comparison of two operands, the literal brought to the right."""
        if isinstance(left, Path):
            if isinstance(right, (float, str)):
                return Compare(left, op, right, at)
        elif isinstance(right, Path):
            if isinstance(left, (float, str)):
                return Compare(right, _FLIP[op], left, at)
        elif left is None and isinstance(right, float):
            return Position(op, right, at)
        elif right is None and isinstance(left, float):
            return Position(_FLIP[op], left, at)
        raise self.comparison_error(left, at, right, start)

    def operand(self) -> _Operand:
        """A path, a literal, a function call or an expression in parentheses."""
        text, at = self.text, self.pos
        if match := self.lexer.first(text, at):
            return self.relative(match)
        char = text[at : at + 1]
        if char in ("'", '"'):
            return self.string()
        if match := number(text, at):
            return self.number(match)
        if (call := self.lexer.call(text, at)) and call[1] not in _NODE_TESTS:
            return self.call(call)
        if char == "(":
            return self.parentheses()
        if char == "-":
            return self.negative()
        if char == "/":
            hint = "write .//b to search below the context node"
            raise self.error("FMX107", at, hint=hint)
        if char == "$":
            raise self.error("FMX106", at, hint="write the value as a literal")
        return self.relative(None)

    def parentheses(self) -> _Operand:
        """An expression in parentheses is what it would be without them."""
        self.enter(self.pos)
        self.skip(1)
        inner = self.either()
        self.expect(")")
        self.depth += 1
        return inner

    def string(self) -> str:
        """A string literal."""
        at = self.pos
        end = self.text.find(self.text[at], at + 1)
        if end < 0:
            raise self.error("FMX003", at)
        self.pos = end + 1
        return self.text[at + 1 : end]

    def number(self, match: re.Match[str]) -> float:
        """A number literal that has been matched."""
        self.pos = match.end()
        if exponent(self.text, self.pos):
            raise self.error("FMX006", self.pos, "an exponent", "write all of its digits")
        return float(match[0])

    def negative(self) -> float:
        """A number behind one or more signs."""
        at, sign = self.pos, 1.0
        while self.text.startswith("-", self.pos):
            sign = -sign
            self.skip(1)
        match = number(self.text, self.pos)
        if match is None:
            raise self.error("FMX105", at, "'-' before something else than a number")
        # No negative zero: it equals zero, so it must not print in another way.
        return sign * self.number(match) or 0.0

    def call(self, match: re.Match[str]) -> _Operand:
        """A function call, read up to its first argument."""
        at, name = self.pos, match[1]
        if name not in ("not", "position", "contains", "starts-with"):
            raise self.error(
                "FMX103", at, f"{name}()", hints.FOR_FUNCTION.get(name, hints.FUNCTIONS)
            )
        self.enter(at)
        self.pos = match.end()
        result: _Operand = None
        if name == "not":
            start = self.pos
            result = Not(self.condition(self.either(), start), at)
        elif name != "position":
            result = self.text_test(Contains if name == "contains" else StartsWith, at)
        self.expect(")")
        self.depth += 1
        return result

    def text_test(self, test: type[Contains | StartsWith], at: int) -> Contains | StartsWith:
        """The two arguments of ``contains`` or ``starts-with``."""
        start = self.pos
        path = self.either()
        if not isinstance(path, Path):
            raise self.error("FMX103", start, "the first argument is not a path", hints.FUNCTIONS)
        self.expect(",")
        start = self.pos
        text = self.either()
        if not isinstance(text, str):
            raise self.error(
                "FMX103", start, "the second argument is not a string", hints.FUNCTIONS
            )
        return test(path, text, at)

    def condition(self, operand: _Operand, at: int) -> Expr:
        """An operand as true or false."""
        if isinstance(operand, Path):
            return Exists(operand, operand.at)
        if operand is None:
            raise self.error("FMX113", at, "position()", hints.POSITION)
        if isinstance(operand, (float, str)):
            found = "a string" if isinstance(operand, str) else "a number"
            raise self.error("FMX113", at, found, hints.CONSTANT)
        return operand

    def check_value_test(self, test: Expr) -> None:
        """A predicate of an attribute or text step reads nothing but the step itself."""
        for path in paths_of(test):
            if path.steps:
                raise self.error("FMX112", path.at, hint=hints.SELF_TEXT)
        if positional(test):
            raise self.error("FMX112", test.at, "a position", hints.SELF_TEXT)

    # -- tokens --------------------------------------------------------------------------------

    def skip(self, ahead: int = 0) -> None:
        """Move on, and over white space."""
        pos = self.pos + ahead
        while self.text[pos : pos + 1] in SPACES:
            pos += 1
        self.pos = pos

    def expect(self, char: str) -> None:
        """Read one character that must come now."""
        self.skip()
        if not self.text.startswith(char, self.pos):
            self.expected(repr(char))
        self.skip(1)

    def operator(self) -> str:
        """The operator behind an operand, not yet read; empty when there is none.

        Each level of the grammar asks again, so the answer is kept.
        """
        if self.seen != self.pos:
            match = self.lexer.operator(self.text, self.pos)
            assert match is not None
            self.token = match[1]
            self.seen = self.pos = match.start(1)
            self.operator_end = match.end()
            if self.token in hints.FOR_OPERATOR:
                code, hint = hints.FOR_OPERATOR[self.token]
                raise self.error(code, self.pos, repr(self.token), hint)
        return self.token

    def take_operator(self) -> int:
        """Read the operator last seen, which adds a term; say where the term begins."""
        self.pos = self.operator_end
        self.skip()
        self.count_term()
        return self.pos

    def enter(self, at: int) -> None:
        """One level deeper; the caller adds the level back on leaving."""
        self.depth -= 1
        if self.depth < 0:
            self.refuse_size("FMX203", at)

    def count_steps(self, steps: list[Step], more: int) -> None:
        """The last steps of a path count against the limit."""
        self.steps -= more
        if self.steps < 0:
            self.refuse_size("FMX202", steps[self.steps].at)

    def count_term(self) -> None:
        """One more predicate or term."""
        self.terms -= 1
        if self.terms < 0:
            self.refuse_size("FMX204", self.pos)

    # -- refusals ------------------------------------------------------------------------------

    def error(self, code: str, at: int, found: str = "", hint: str = "") -> XPathError:
        return error(code, self.text, at, found, hint)

    def expected(self, what: str) -> NoReturn:
        """Something else stands here, or nothing."""
        at = self.pos
        if at >= len(self.text):
            raise self.error("FMX002", at, f"expected {what}")
        name = self.lexer.ncname(self.text, at)
        found = name[0] if name else self.text[at]
        raise self.error("FMX001", at, f"{found!r}, expected {what}")

    def refuse_size(self, code: str, at: int) -> NoReturn:
        limits = self.limits
        allowed = {"FMX202": limits.steps, "FMX203": limits.depth, "FMX204": limits.terms}[code]
        raise self.error(code, at, f"{allowed} allowed")

    def refuse_beginning(self) -> NoReturn:
        """A statement that does not begin with a slash."""
        at = self.pos
        if at == len(self.text):
            raise self.error("FMX004", at, hint=hints.ABSOLUTE)
        if self.text[at] == "$":
            raise self.error("FMX106", at, hint=hints.ABSOLUTE)
        if (call := self.lexer.call(self.text, at)) and call[1] not in _NODE_TESTS:
            raise self.error("FMX103", at, f"{call[1]}()", "a statement is one path")
        name = self.lexer.ncname(self.text, at)
        raise self.error("FMX101", at, repr(name[0] if name else self.text[at]), hints.ABSOLUTE)

    def refuse_rest(self) -> NoReturn:
        """Something behind the path of a statement."""
        if self.operator():
            found = self.text[self.pos : self.operator_end]
            hint = "put conditions into a predicate, as in //a[@b = 3]"
            raise self.error("FMX101", self.pos, f"{found!r} after the path", hint)
        self.expected("/, // or [")

    def refuse_step(self, steps: list[Step], slash: str) -> NoReturn:
        """No step can be read here; say why."""
        text, at = self.text, self.pos
        if text.startswith("..", at):
            raise self.error("FMX117", at, "'..'", hints.DOTS)
        if text.startswith(".", at):
            raise self.error("FMX117", at, "'.'", hints.DOT)
        if text.startswith("@", at):
            self.skip(1)
            self.expected("an attribute name")
        if text[at:].strip() == "" and slash == "/" and not steps:
            raise self.error("FMX116", at - 1, hint="write /* for the root element")
        if name := self.lexer.name(text, at):
            self.pos = name.end()
            if not name[1] and text.startswith(":", self.pos):
                self.pos += 1
                self.expected("the other half of the name")
            self.skip()
            self.expected("/, // or [")
        self.expected("a step" if slash else "a path or a literal")

    def comparison_error(self, left: _Operand, at: int, right: _Operand, start: int) -> XPathError:
        """Two operands that cannot be compared."""
        for operand, where in ((left, at), (right, start)):
            if not (operand is None or isinstance(operand, (Path, float, str))):
                hint = "compare a path with a literal; join conditions with and, or"
                return self.error("FMX114", where, "a condition", hint)
        if left is None or right is None:
            return self.error("FMX114", at, "position()", hints.POSITION)
        if isinstance(left, Path):
            hint = "write one side as a number or a string"
            return self.error("FMX108", start, hint=hint)
        return self.error("FMX113", at, "both sides are literals", hints.CONSTANT)
