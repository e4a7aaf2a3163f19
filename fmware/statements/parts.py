"""The explicit form of a statement: a filter, the step that is the anchor, a match part.

The match part is a path in the corpus, from the anchor's local node. Its names may have the
prefix `local:` or not: everything in it is local. Without, they are free to have a prefix of
their own, for which one expression has no room.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fmware.statements.errors import StatementError
from fmware.xpath import (
    And,
    Axis,
    Compare,
    Contains,
    Crossing,
    Exists,
    Expr,
    Kind,
    Not,
    Or,
    Path,
    Position,
    Split,
    StartsWith,
    Step,
    XPathError,
    parse,
    split,
    to_text,
)
from fmware.xpath.printer import expr_text
from fmware.xpath.split import Anchor

if TYPE_CHECKING:
    from fmware.xpath import XPathLimits

__all__ = ["anchor_text", "join", "match_text", "parse_match"]

_S: Final = r"[ \t\r\n]*"
_LEAD: Final = re.compile(rf"{_S}(\.)?(//?)?{_S}(?:(self|parent|ancestor){_S}::{_S})?")
"""How a match part may begin, other than a path of the parser's."""
_AXIS: Final = re.compile(rf"[a-z]+{_S}::")
_ROOM: Final = "/*"
"""A step for the anchor: the parser reads nothing relative."""
_NAMES: Final = {axis.name.lower(): axis for axis in Axis}


def join(
    text: str, match: str, anchor: int | str | None, axis: str | None, limits: XPathLimits
) -> tuple[Path, Split]:
    """The filter as it is written, and the statement that the two parts make."""
    path = parse(text, limits=limits)
    crossed = next((step for step in path.steps if step.local), None)
    if crossed is not None:
        raise StatementError("FMS001", text, crossed.at, "", "move the local steps into match")
    parts = split(path, text)
    at = _anchor(path, anchor, text)
    local, said = parse_match(match, limits)
    if axis is not None:
        local = _with_axis(local, axis, match, said=said)
    crossing = Crossing(Anchor(at, Path(())), local.steps[0].axis, local, selects=True)
    return path, Split(parts.filter, (*parts.crossings, crossing))


def match_text(path: Path) -> str:
    """A match part without `local:`, which it is anyway."""
    return expr_text(Exists(path), inside=True)


def anchor_text(anchor: Anchor, message: Path) -> str:
    """An anchor by the way to it: steps of the filter, and a branch if there is one."""
    to_step = to_text(Path(message.steps[: anchor.step + 1], message.absolute))
    return f"{to_text(anchor.branch)}, from {to_step}" if anchor.branch.steps else to_step


# -- the anchor --


def _anchor(path: Path, wanted: int | str | None, text: str) -> int:
    """The place of the step that is the anchor."""
    count = len(path.steps)
    if wanted is None:
        at = count - 1
    elif isinstance(wanted, int):
        if not 1 <= wanted <= count:
            hint = f"steps count from 1, and there are {count}"
            raise StatementError("FMS002", text, 0, f"number {wanted}", hint)
        at = wanted - 1
    else:
        at = _named(path, wanted, text)
    if path.steps[at].kind is not Kind.ELEMENT:
        hint = "name another step with anchor=, by its number or its name"
        raise StatementError("FMS004", text, path.steps[at].at, "", hint)
    return at


def _named(path: Path, name: str, text: str) -> int:
    names = [_name(step) for step in path.steps]
    places = [at for at, each in enumerate(names) if each == name]
    if not places:
        hint = f"its steps are {', '.join(names)}"
        raise StatementError("FMS002", text, 0, repr(name), hint)
    if len(places) > 1:
        numbers = " or ".join(str(at + 1) for at in places)
        raise StatementError(
            "FMS003", text, path.steps[places[1]].at, repr(name), f"say which: anchor={numbers}"
        )
    return places[0]


def _name(step: Step) -> str:
    bare = Path((replace(step, predicates=(), axis=Axis.CHILD),))
    return to_text(bare)


# -- the match part --


def parse_match(text: str, limits: XPathLimits) -> tuple[Path, bool]:
    """A path from the anchor's local node, and whether it says by which axis it begins.

    `.` is that node itself.
    """
    if text.strip() == ".":
        return Path((Step(Axis.SELF, Kind.ELEMENT, None, "*", (), local=True),)), True
    slash, axis, at = _begin(text)
    begin = _ROOM + (slash or "/")
    shift = at - len(begin)
    try:
        steps = parse(begin + text[at:], limits=limits).steps[1:]
    except XPathError as error:
        where = min(max(error.at + shift, 0), len(text))
        raise type(error)(error.code, text, where, error.found, error.hint) from None
    local = [_local(step, shift) for step in steps]
    if axis:
        local[0] = replace(local[0], axis=_checked(_NAMES[axis], local[0], text))
    said = bool(slash or axis or _AXIS.match(text, at))
    return Path(tuple(local), at=local[0].at), said


def _begin(text: str) -> tuple[str | None, str | None, int]:
    """The slash and the axis that a match part begins with, and what the parser is to read on."""
    lead = _LEAD.match(text)
    assert lead is not None
    dot, slash, axis = lead.groups()
    # Not XPath, and the parser knows best why.
    if dot and not slash:
        return None, None, 0
    if axis and slash == "//":
        return slash, None, lead.start(3)
    return slash, axis, lead.end()


def _with_axis(path: Path, wanted: str, text: str, *, said: bool) -> Path:
    """The path with the axis that was named beside it, which it must not contradict."""
    axis = _NAMES.get(wanted)
    if axis is None:
        hint = f"there are {', '.join(_NAMES)}"
        raise StatementError("FMS006", wanted, 0, repr(wanted), hint)
    first = path.steps[0]
    if said and first.axis is not axis:
        hint = f"leave axis={wanted} out, or begin the match part with a name"
        raise StatementError("FMS005", text, 0, first.axis.name.lower(), hint)
    first = replace(first, axis=_checked(axis, first, text))
    return Path((first, *path.steps[1:]), at=path.at)


def _checked(axis: Axis, step: Step, text: str) -> Axis:
    if step.kind is not Kind.ELEMENT and axis not in (Axis.CHILD, Axis.DESCENDANT):
        at = step.at
        raise StatementError(
            "FMS007", text, at, f"{axis.name.lower()}::", "write @name or .//@name"
        )
    return axis


def _local(step: Step, shift: int) -> Step:
    """A step of the corpus, and all that its predicates read."""
    tests = tuple(_local_test(test, shift) for test in step.predicates)
    return replace(step, predicates=tests, local=True, at=step.at + shift)


def _local_test(test: Expr, shift: int) -> Expr:
    at = test.at + shift
    match test:
        case And(terms) | Or(terms):
            return replace(test, terms=tuple(_local_test(term, shift) for term in terms), at=at)
        case Not(term):
            return Not(_local_test(term, shift), at)
        case Exists(path) | Compare(path) | Contains(path) | StartsWith(path):
            steps = tuple(_local(step, shift) for step in path.steps)
            return replace(test, path=Path(steps, at=path.at + shift), at=at)
        case Position():
            return replace(test, at=at)
