"""Text to tree: what is accepted, and that it means what XPath 1.0 says."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
from hypothesis import given
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
    XPathError,
    XPathLimitExceeded,
    XPathLimits,
    parse,
    to_text,
)
from tests.xpath.strategies import NAMESPACES, paths, unhurried

DECLARED = {**NAMESPACES, "local": "urn:local"}
TOKENS = [
    "/",
    "//",
    "@",
    "a",
    "p:",
    "local:",
    "*",
    "[",
    "]",
    "(",
    ")",
    ".",
    "..",
    "text()",
    "=",
    "'x'",
    "3",
    "-",
    "and",
    "or",
    "not(",
    ",",
    "|",
]
NOISE = (*TOKENS, "", " ", "'", '"', "<", "!", ":", "::", "$", "self::", "position()", "1", "é")


def element(name: str, axis: Axis = Axis.CHILD, *tests: Expr, local: bool = False) -> Step:
    prefix, _, rest = name.rpartition(":")
    return Step(axis, Kind.ELEMENT, prefix or None, rest, tests, local)


def attribute(name: str, axis: Axis = Axis.CHILD, *tests: Expr, local: bool = False) -> Step:
    return Step(axis, Kind.ATTRIBUTE, None, name, tests, local)


def text(axis: Axis = Axis.CHILD, *tests: Expr) -> Step:
    return Step(axis, Kind.TEXT, None, "", tests)


def relative(*steps: Step) -> Path:
    return Path(steps)


def only_test(expression: str) -> Expr:
    """The one predicate of ``//a[...]``."""
    (test,) = parse(f"//a[{expression}]").steps[0].predicates
    return test


DOT = relative()
A, B = relative(element("a")), relative(element("b"))


@pytest.mark.parametrize(
    ("expression", "steps"),
    [
        ("/a", (element("a"),)),
        ("//a", (element("a", Axis.DESCENDANT),)),
        ("/child::a/descendant::b", (element("a"), element("b", Axis.DESCENDANT))),
        ("//descendant::a", (element("a", Axis.DESCENDANT),)),
        ("/nitf/body.content/*", (element("nitf"), element("body.content"), element("*"))),
        ("/é-1/ж·", (element("é-1"), element("ж·"))),
        ("/p:a/p:*", (element("p:a"), element("p:*"))),
        ("/a/@x", (element("a"), attribute("x"))),
        ("//@*", (attribute("*", Axis.DESCENDANT),)),
        ("/a/attribute::x", (element("a"), attribute("x"))),
        ("//attribute::x", (attribute("x", Axis.DESCENDANT),)),
        ("/a/text()", (element("a"), text())),
        ("/a/descendant::text()", (element("a"), text(Axis.DESCENDANT))),
        (" / a // @ x ", (element("a"), attribute("x", Axis.DESCENDANT))),
        ("/\ta\n/\rtext ( ) ", (element("a"), text())),
        ("//and/or/div/mod/not/text", (
            element("and", Axis.DESCENDANT), element("or"), element("div"), element("mod"),
            element("not"), element("text"),
        )),
        ("/child/self/attribute", (element("child"), element("self"), element("attribute"))),
    ],
)  # fmt: skip
def test_paths(expression: str, steps: tuple[Step, ...]) -> None:
    assert parse(expression) == Path(steps, absolute=True)


@pytest.mark.parametrize(
    ("expression", "test"),
    [
        ("b", Exists(B)),
        ("./b", Exists(B)),
        (".", Exists(DOT)),
        (".//b", Exists(relative(element("b", Axis.DESCENDANT)))),
        (".//@x", Exists(relative(attribute("x", Axis.DESCENDANT)))),
        ("descendant::b", Exists(relative(element("b", Axis.DESCENDANT)))),
        ("*", Exists(relative(element("*")))),
        ("(((b)))", Exists(B)),
        ("b = 3", Compare(B, Op.EQ, 3.0)),
        ("b='3'", Compare(B, Op.EQ, "3")),
        ('b != "it\'s"', Compare(B, Op.NE, "it's")),
        ("3 < b", Compare(B, Op.GT, 3.0)),
        ("3 >= b", Compare(B, Op.LE, 3.0)),
        ("'x' != b", Compare(B, Op.NE, "x")),
        ("(b) = (3)", Compare(B, Op.EQ, 3.0)),
        (". = .5", Compare(DOT, Op.EQ, 0.5)),
        ("b < -1", Compare(B, Op.LT, -1.0)),
        ("b = - - 2.", Compare(B, Op.EQ, 2.0)),
        ("b/a/@x > 1", Compare(relative(element("b"), element("a"), attribute("x")), Op.GT, 1.0)),
        ("text() = 'x'", Compare(relative(text()), Op.EQ, "x")),
        ("* = 3", Compare(relative(element("*")), Op.EQ, 3.0)),
        ("3", Position(Op.EQ, 3.0)),
        (" ( 3 ) ", Position(Op.EQ, 3.0)),
        ("-1", Position(Op.EQ, -1.0)),
        ("position() = 3", Position(Op.EQ, 3.0)),
        ("3 > position ( )", Position(Op.LT, 3.0)),
        ("contains(b, 'x')", Contains(B, "x")),
        ("starts-with ( . , 'x' )", StartsWith(DOT, "x")),
        ("not(b)", Not(Exists(B))),
        ("not (b = 3)", Not(Compare(B, Op.EQ, 3.0))),
        ("a and b", And((Exists(A), Exists(B)))),
        ("a or b", Or((Exists(A), Exists(B)))),
        ("a or b and a", Or((Exists(A), And((Exists(B), Exists(A)))))),
        ("(a or b) and a", And((Or((Exists(A), Exists(B))), Exists(A)))),
        ("a = 1and b", And((Compare(A, Op.EQ, 1.0), Exists(B)))),
        ("a and(b)", And((Exists(A), Exists(B)))),
        ("or", Exists(relative(element("or")))),
        ("and and or", And((Exists(relative(element("and"))), Exists(relative(element("or")))))),
        ("or or or", Or((Exists(relative(element("or"))),) * 2)),
        ("not", Exists(relative(element("not")))),
        ("not = 3", Compare(relative(element("not")), Op.EQ, 3.0)),
        ("div", Exists(relative(element("div")))),
        ("b[a[2]]", Exists(relative(element("b", Axis.CHILD, Exists(relative(
            element("a", Axis.CHILD, Position(Op.EQ, 2.0)))))))),
    ],
)  # fmt: skip
def test_predicates(expression: str, test: Expr) -> None:
    assert only_test(expression) == test


@pytest.mark.parametrize("step", ["@x", "text()", "attribute::x"])
def test_attributes_and_text_are_tested_by_value(step: str) -> None:
    last = parse(f"//a/{step}[. = 'x' or starts-with(., 'y')]").steps[-1]
    assert last.predicates == (Or((Compare(DOT, Op.EQ, "x"), StartsWith(DOT, "y"))),)


@pytest.mark.parametrize(
    ("short", "long"),
    [("[2]", "[ ( 2 ) ]"), ("[@x]", "[(@x)]"), ("[b]", "[(b)]"), ("[@x = 4]", "[(@x) = 4]")],
)
def test_the_short_way_reads_what_the_long_way_reads(short: str, long: str) -> None:
    assert parse(f"//a{short}/b{short}{short}") == parse(f"//a{long}/b{long}{long}")


def test_positions_in_the_source() -> None:
    path = parse(" //a[ @x = 4 ]/@y")
    (test,) = path.steps[0].predicates
    assert [path.at, path.steps[0].at, test.at, path.steps[1].at] == [1, 3, 6, 15]


def test_the_source_position_takes_no_part_in_equality() -> None:
    assert parse("//a[b]") == parse("  //a [ b ]")
    assert hash(parse("//a[b]")) == hash(parse("  //a [ b ]"))


class TestLocal:
    def test_a_path_crosses_once(self) -> None:
        path = parse("//a/local:b[c/@x = 1]/local:*/@y")
        assert [step.local for step in path.steps] == [False, True, True, True]
        assert all(step.prefix is None for step in path.steps)

    def test_predicates_of_local_steps_are_local_with_or_without_prefix(self) -> None:
        plain, spelled = parse("//a/local:b[c/@x]"), parse("//a/local:b[local:c/@local:x]")
        assert plain == spelled
        (test,) = plain.steps[1].predicates
        assert test == Exists(relative(element("c", local=True), attribute("x", local=True)))

    def test_other_prefixes_keep_their_meaning_inside_local_predicates(self) -> None:
        (test,) = parse("//a/local:b[p:c]").steps[1].predicates
        assert test == Exists(relative(element("p:c", local=True)))

    def test_a_branch_crosses_by_itself(self) -> None:
        (test,) = parse("//a[b//local:c]").steps[0].predicates
        crossing = element("c", Axis.DESCENDANT, local=True)
        assert test == Exists(relative(element("b"), crossing))

    @pytest.mark.parametrize("axis", list(Axis))
    def test_every_axis_crosses(self, axis: Axis) -> None:
        path = parse(f"//a/{axis.name.lower()}::local:b")
        assert path.steps[1] == element("b", axis, local=True)
        (test,) = parse(f"//a[{axis.name.lower()}::local:b]").steps[0].predicates
        assert test == Exists(relative(element("b", axis, local=True)))


class TestLimits:
    @pytest.mark.parametrize(
        ("expression", "limits", "code", "at"),
        [
            ("/abcdef", XPathLimits(length=4), "FMX201", 4),
            ("/a/b/c", XPathLimits(steps=2), "FMX202", 5),
            ("/a[@b = 1]", XPathLimits(steps=1), "FMX202", 3),
            ("/a[b/c]", XPathLimits(steps=2), "FMX202", 5),
            ("/a/b[@c]", XPathLimits(steps=1), "FMX202", 3),
            ("/a[b[c]]", XPathLimits(depth=1), "FMX203", 4),
            ("/a[(b)]", XPathLimits(depth=1), "FMX203", 3),
            ("/a[not(b)]", XPathLimits(depth=1), "FMX203", 3),
            ("/a[1]", XPathLimits(depth=0), "FMX203", 2),
            ("/a[1][2]", XPathLimits(terms=1), "FMX204", 6),
            ("/a[b or c or d]", XPathLimits(terms=2), "FMX204", 13),
        ],
    )
    def test_each_limit(self, expression: str, limits: XPathLimits, code: str, at: int) -> None:
        with pytest.raises(XPathLimitExceeded) as caught:
            parse(expression, limits=limits)
        assert (caught.value.code, caught.value.at) == (code, at)

    def test_a_limit_is_what_may_still_pass(self) -> None:
        exact = XPathLimits(length=12, steps=2, depth=2, terms=2)
        assert len(parse("/a[(b)][ 2 ]", limits=exact).steps) == 1

    @pytest.mark.parametrize("unit", ["(", "not(", "a[", "-", "/a", "[a]", "@", "//", "a or "])
    def test_endless_input_ends_in_a_typed_error(self, unit: str) -> None:
        roomy = XPathLimits(length=10**7, depth=64)
        for expression in (unit * 100_000, f"//a[{unit * 100_000}", f"//a {unit * 100_000}"):
            with pytest.raises(XPathError):
                parse(expression, limits=roomy)
            with pytest.raises(XPathLimitExceeded):
                parse(expression)

    def test_the_deepest_limit_can_be_reached(self) -> None:
        deep = "//a" + "[not(a" * 32 + ")]" * 32
        path = parse(deep, limits=XPathLimits(depth=64))
        assert parse(to_text(path), limits=XPathLimits(depth=64)) == path

    def test_a_limit_that_would_exhaust_the_stack_is_refused(self) -> None:
        with pytest.raises(ValueError, match="depth"):
            XPathLimits(depth=65)

    def test_reading_is_linear(self) -> None:
        """Possessive matching leaves nothing to backtrack into."""
        for head, unit in (("/", "a"), ("", "/a"), ("//a[", " ")):
            short, long = (head + unit * size for size in (20_000, 160_000))
            # Eight times as long; quadratic reading would take sixty-four times as long.
            assert cpu(long) < 32 * cpu(short) + 0.01


class TestProperties:
    @unhurried
    @given(paths(with_local=True, with_namespaces=True))
    def test_printing_and_parsing_are_inverse(self, path: Path) -> None:
        assert parse(to_text(path)) == path

    @unhurried
    @given(paths(with_local=True, with_namespaces=True))
    def test_what_is_accepted_is_xpath(self, path: Path) -> None:
        etree.XPath(to_text(path), namespaces=DECLARED)

    @unhurried
    @given(paths(with_local=True), st.data())
    def test_a_truncation_is_a_path_or_a_typed_error(self, path: Path, data: st.DataObject) -> None:
        expression = to_text(path)
        outcome(expression[: data.draw(st.integers(0, len(expression)))])

    @unhurried
    @given(paths(with_local=True, with_namespaces=True), st.data())
    def test_a_mutation_is_xpath_or_a_typed_error(self, path: Path, data: st.DataObject) -> None:
        expression = to_text(path)
        for _ in range(data.draw(st.integers(1, 3))):
            at = data.draw(st.integers(0, len(expression)))
            drop = data.draw(st.integers(0, 2))
            noise = data.draw(st.sampled_from(NOISE))
            expression = expression[:at] + noise + expression[at + drop :]
        if outcome(expression) is not None:
            etree.XPath(expression, namespaces=DECLARED)

    @unhurried
    @given(st.text())
    def test_any_text_is_a_path_or_a_typed_error(self, expression: str) -> None:
        outcome(expression)
        outcome(f"//a[{expression}]")

    @unhurried
    @given(st.lists(st.sampled_from(TOKENS)))
    def test_any_tokens_are_xpath_or_a_typed_error(self, tokens: list[str]) -> None:
        for expression in ("//a" + "".join(tokens), "//a[" + " ".join(tokens) + "]"):
            if outcome(expression) is not None:
                etree.XPath(expression, namespaces=DECLARED)


def cpu(expression: str) -> float:
    """CPU seconds that it takes to read or refuse an expression, the best of three."""
    roomy = XPathLimits(length=10**7, steps=10**7, terms=10**7)
    taken = []
    for _ in range(3):
        started = time.process_time()
        with suppress(XPathError):
            parse(expression, limits=roomy)
        taken.append(time.process_time() - started)
    return min(taken)


def outcome(expression: str) -> Path | None:
    """The path, or ``None`` for an error that is typed and points into the text."""
    failure: XPathError
    try:
        return parse(expression)
    except XPathError as caught:
        failure = caught
    assert 0 <= failure.at <= len(expression)
    assert failure.expression == expression
    assert str(failure)
    return None
