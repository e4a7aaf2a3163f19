"""A statement as routing sees it: a tree of tests, its spine, and the words its documents have.

`Pattern` is made of a parsed statement once. Statements with a kind of node that this module does
not know, or with steps into the corpus, are `opaque`: they are covered by equal ones only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fmware.routing.values import Atom, atom, contradict
from fmware.xpath import (
    And,
    Axis,
    Compare,
    Contains,
    Exists,
    Kind,
    Not,
    Or,
    Path,
    Position,
    StartsWith,
    Step,
    canonical,
    clark,
    parse,
    to_text,
)
from fmware.xpath.printer import expr_text
from fmware.xpath.tree import positional

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fmware.routing._paths import Symbols
    from fmware.xpath import Expr

__all__ = ["Linear", "Pattern", "Tests", "TreeNode"]

Linear = tuple[tuple[int, int, str], ...]
"""A path without predicates: of each step 1 for `//` or 0, its kind, its Clark name."""

_AXES: Final = (Axis.CHILD, Axis.DESCENDANT)
_KINDS: Final[tuple[object, ...]] = (Kind.ELEMENT, Kind.ATTRIBUTE, Kind.TEXT)
_PATHS: Final = (Exists, Compare, Contains, StartsWith)


@dataclass(slots=True)
class Tests:
    """What is asked of one node, apart from its name; all of it must hold.

    `firsts` are tests of the first node of a path only; `fixed` are texts of tests that only an
    equal one implies; an entry of `eithers` holds if one of its members does.
    """

    atoms: list[Atom] = field(default_factory=list)
    firsts: list[tuple[str, Atom]] = field(default_factory=list)
    fixed: set[str] = field(default_factory=set)
    eithers: list[list[Tests]] = field(default_factory=list)
    nots: list[Tests] = field(default_factory=list)
    children: list[TreeNode] = field(default_factory=list)

    def plus(self, other: Tests) -> Tests:
        """Both together, without the alternatives that have been looked at."""
        return Tests(
            self.atoms + other.atoms,
            self.firsts + other.firsts,
            self.fixed | other.fixed,
            self.eithers[1:] + other.eithers,
            self.nots + other.nots,
            self.children + other.children,
        )

    @property
    def empty(self) -> bool:
        """Whether nothing is asked."""
        return not (
            self.atoms or self.firsts or self.fixed or self.eithers or self.nots or self.children
        )


@dataclass(slots=True)
class TreeNode:
    """A step: how far below the node above it, what it is called, what is asked of it."""

    down: int
    kind: int
    name: str
    tests: Tests = field(default_factory=Tests)


class Pattern:
    """A statement, made ready for questions about covering."""

    __slots__ = ("_branches", "_root", "key", "namespaces", "opaque", "path", "plain", "spine")

    def __init__(self, path: Path | str, namespaces: Mapping[str, str] | None = None) -> None:
        self.path = canonical(parse(path) if isinstance(path, str) else path)
        self.namespaces = dict(namespaces or {})
        self.opaque = not _known(self.path)
        self.plain = not self.opaque and not any(step.predicates for step in self.path.steps)
        self.spine: Linear = () if self.opaque else tuple(map(self._linear, self.path.steps))
        self.key = _linear_text(self.spine) if self.plain else self._spelled(self.path)
        self._root: Tests | None = None
        self._branches: tuple[Linear, ...] | None = None

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"

    @property
    def text(self) -> str:
        """The statement in its canonical spelling."""
        return to_text(self.path)

    @property
    def root(self) -> Tests:
        """The tree, as what is asked of the document node."""
        if self._root is None:
            self._root = Tests()
            self._grow(self._root, self.path)
        return self._root

    @property
    def branches(self) -> tuple[Linear, ...]:
        """Words that each document of the statement has: the spine and, of predicates, paths."""
        if self._branches is None:
            found = [self.spine] if self.plain else _words(self.root, ())
            self._branches = tuple(dict.fromkeys(found))
        return self._branches

    @property
    def never(self) -> bool:
        """Whether it is certain, without a schema, that no document matches."""
        if self.opaque:
            return False
        down, kind, _ = self.spine[0]
        if kind != Kind.ELEMENT and not down:
            return True
        return not self.plain and _impossible(self.root)

    def codes(self, symbols: Symbols, linear: Linear | None = None) -> list[int]:
        """A path, the spine unless said, as the numbers that native code takes."""
        steps = self.spine if linear is None else linear
        return [symbols.add(kind, name) << 1 | axis for axis, kind, name in steps]

    # -- from the parsed statement --

    def _spelled(self, path: Path) -> str:
        """A text that is the same for paths that mean the same, whatever prefixes stand for."""
        text = to_text(path)
        used = sorted(self.namespaces.items()) if ":" in text else ()
        return "\0".join((text, *(f"{prefix}={uri}" for prefix, uri in used)))

    def _linear(self, step: Step) -> tuple[int, int, str]:
        name = step.name
        if step.prefix is not None:
            name = clark(step.prefix, name, self.namespaces, at=step.at, expression=name)
        return int(step.axis), int(step.kind), name

    def _grow(self, at: Tests, path: Path) -> Tests:
        """Add a path below a node; what comes back is asked of the node at its end."""
        for step in path.steps:
            down, kind, name = self._linear(step)
            node = _same_attribute(at, down, kind, name)
            if node is None:
                node = TreeNode(down, kind, name)
                at.children.append(node)
            at = node.tests
            self._predicates(at, step)
        return at

    def _predicates(self, at: Tests, step: Step) -> None:
        for place, test in enumerate(step.predicates):
            if positional(test):
                # A position counts among siblings that pass the name and the tests before it.
                seen = Path(
                    (
                        Step(
                            Axis.CHILD,
                            step.kind,
                            step.prefix,
                            step.name,
                            step.predicates[: place + 1],
                        ),
                    )
                )
                at.fixed.add(self._spelled(seen))
            else:
                self._ask(at, test)

    def _ask(self, at: Tests, test: Expr) -> None:
        match test:
            case And(terms):
                for term in terms:
                    self._ask(at, term)
            case Or(terms):
                at.eithers.append([self._alone(term) for term in terms])
            case Not(term):
                at.nots.append(self._alone(term))
            case Exists(path):
                self._grow(at, path)
            case Compare(path, op, value):
                self._grow(at, path).atoms.append(atom(op, value))
            case Contains(path, text):
                self._first(at, path, Atom("contains", text))
            case StartsWith(path, text):
                self._first(at, path, Atom("starts", text))
            case _:
                at.fixed.add(expr_text(test))

    def _alone(self, test: Expr) -> Tests:
        alone = Tests()
        self._ask(alone, test)
        return alone

    def _first(self, at: Tests, path: Path, asked: Atom) -> None:
        """A test of the first node of a path; of no node, the empty string is tested."""
        if not asked.value:
            return
        end = self._grow(at, path)
        if not path.steps or _single(path):
            end.atoms.append(asked)
        else:
            at.firsts.append((self._spelled(path), asked))


def _linear_text(linear: Linear) -> str:
    """A path without predicates as a text, with Clark names: its prefixes do not matter."""
    return "".join(
        f"{'//' if down else '/'}{'@' if kind == Kind.ATTRIBUTE else ''}{name or 'text()'}"
        for down, kind, name in linear
    )


def _single(path: Path) -> bool:
    """Whether a path leads to one node at most: an attribute of the node itself."""
    step = path.steps[0]
    return (
        len(path.steps) == 1
        and step.kind is Kind.ATTRIBUTE
        and step.axis is Axis.CHILD
        and step.name != "*"
        and not step.predicates
    )


def _same_attribute(at: Tests, down: int, kind: int, name: str) -> TreeNode | None:
    """The attribute of a node that has been asked for already: it has one of a name."""
    if kind != Kind.ATTRIBUTE or down or name.endswith("*"):
        return None
    found = (node for node in at.children if (node.down, node.kind, node.name) == (0, kind, name))
    return next(found, None)


def _words(tests: Tests, above: Linear) -> list[Linear]:
    found: list[Linear] = []
    for node in tests.children:
        here = (*above, (node.down, node.kind, node.name))
        found += _words(node.tests, here) or [here]
    return found


def _impossible(tests: Tests) -> bool:
    """Whether no node can pass."""
    for place, one in enumerate(tests.atoms):
        if one.test == "never" or any(contradict(one, o) for o in tests.atoms[:place]):
            return True
    return any(_impossible(node.tests) for node in tests.children) or any(
        all(map(_impossible, members)) for members in tests.eithers
    )


def _known(path: object) -> bool:
    """Whether a tree has only kinds of nodes whose meaning is known here."""
    return type(path) is Path and path.absolute and _known_steps(path)


def _known_steps(path: Path) -> bool:
    steps: tuple[object, ...] = path.steps
    return all(map(_known_step, steps))


def _known_step(step: object) -> bool:
    if type(step) is not Step or step.axis not in _AXES or step.local:
        return False
    kind: object = step.kind
    return kind in _KINDS and all(map(_known_test, step.predicates))


def _known_test(test: object) -> bool:
    if type(test) is And or type(test) is Or:
        return all(map(_known_test, test.terms))
    if type(test) is Not:
        return _known_test(test.term)
    if type(test) in _PATHS:
        path: object = getattr(test, "path", None)
        return type(path) is Path and not path.absolute and _known_steps(path)
    return type(test) is Position


def each_node(tests: Tests) -> Iterator[TreeNode]:
    """All nodes below, alternatives and negations left out."""
    for node in tests.children:
        yield node
        yield from each_node(node.tests)
