"""`fmware statements parse`: show how a statement is understood, before it is registered."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fmware.cli.output import STDIN, USAGE, console, declared, emit_json
from fmware.xpath import (
    And,
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
    canonical,
    check_expression,
    check_prefixes,
    guard_text,
    plan,
    split,
    to_text,
)
from fmware.xpath.printer import expr_text
from fmware.xpath.program import pack

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.tree import Tree

    from fmware.xpath import Plan
    from fmware.xpath.expression import Expression

__all__ = ["EPILOG", "xpath"]

EPILOG = r"""
[bold]Examples[/bold]

[cyan]fmware statements parse "/nitf//block/p\[@id = 4]"[/cyan]  a plain filter, on messages only

[cyan]fmware statements parse "//sale/product\[.//units > 3]//local:shop\[@open = 'yes']"[/cyan]
  filter sales, then ask the corpus for open shops

[cyan]fmware statements parse "//product\[.//local:stock]"[/cyan]  a condition on the corpus

[cyan]fmware statements parse -n atom=http://www.w3.org/2005/Atom "//atom:entry"[/cyan]
  names in a namespace

[cyan]fmware statements parse --json - < statements.txt[/cyan]  many at once, for a program

A statement that is refused is reported on stderr with a caret under the character, and the rest
goes on; the exit code is then 2.
"""


def xpath(
    expressions: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="EXPRESSION...",
            help="Statements; none, or -, reads them from standard input, one a line.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object a statement.")
    ] = False,
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="PREFIX=URI",
            help="Declare a prefix; may be repeated.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Explain XPath statements: their tree, canonical form, and what runs where.

    A statement is any XPath 1.0 expression; its context is the document. Steps with the prefix
    local: cross from the message into the corpus; what stands before them filters messages.
    """
    namespaces = declared(namespace or [])
    failed = False
    for expression in _expressions(expressions or [STDIN]):
        try:
            planned = plan(expression)
            if planned.native is None:
                _tell_planned(planned, namespaces, as_json=as_json)
                continue
            path = planned.native
            check_prefixes(path, namespaces, expression)
            parts = split(path, expression)
        except XPathError as error:
            failed = True
            _refuse(expression, error, as_json=as_json)
            continue
        if as_json:
            emit_json(_record(expression, path, parts))
        else:
            _show(expression, path, parts)
    if failed:
        raise typer.Exit(USAGE)


def _expressions(arguments: list[str]) -> Iterator[str]:
    for argument in arguments:
        if argument == STDIN:
            yield from (text for line in sys.stdin if (text := line.strip()))
        else:
            yield argument


def _refuse(expression: str, error: XPathError, *, as_json: bool) -> None:
    typer.echo(str(error), err=True)
    if as_json:
        about = {
            "code": error.code,
            "at": error.at,
            "message": error.summary,
            "hint": error.hint,
        }
        emit_json({"expression": expression, "error": about})


def _tell_planned(planned: Plan, namespaces: Mapping[str, str], *, as_json: bool) -> None:
    """An expression that is more than a native path: its guard, and whether that decides."""
    assert planned.expression is not None
    check_expression(planned.expression, namespaces, planned.text)
    record = {
        "expression": planned.text,
        "decided": "residual" if planned.residual else "native",
        "guard": guard_text(planned.guard),
        "weak": planned.weak,
        "reads": _reads(planned.expression),
    }
    if as_json:
        emit_json(record)
        return
    from rich.text import Text

    screen = console()
    screen.print(Text(planned.text, style="bold"), soft_wrap=True)
    rows = [("guard", record["guard"]), ("decided by", "the guard alone")]
    if planned.residual:
        cost = "every message" if planned.weak else "messages that pass the guard"
        rows[1:] = [("residual", f"the whole expression, on {cost}"), ("reads", record["reads"])]
    for label, value in rows:
        screen.print(Text(f"{label:14}", style="cyan") + Text(str(value)), soft_wrap=True)


def _reads(expression: Expression) -> str:
    """What an expression is evaluated on."""
    _, needs = pack(expression, lambda *_: 0)
    return "the message, parsed once more" if needs else "the columns of the message"


# -- for people --------------------------------------------------------------------------------


def _show(expression: str, path: Path, parts: Split) -> None:
    from rich.text import Text
    from rich.tree import Tree

    # Brackets of a predicate must not be taken for markup, nor a long path be folded.
    screen = console()
    tree = Tree(Text(expression, style="bold", no_wrap=True, overflow="ignore"))
    _add_path(tree, path)
    screen.print(tree, soft_wrap=True, markup=False)
    rows = [("canonical", to_text(canonical(path))), ("filter part", to_text(parts.filter))]
    for crossing in parts.crossings:
        rows += [
            ("anchor", _anchor_text(crossing, parts.filter)),
            ("crossing axis", crossing.axis.name.lower()),
            ("match part" if crossing.selects else "must match", to_text(crossing.match)),
        ]
    if not parts.crossings:
        rows.append(("match part", "none: a plain filter"))
    for label, value in rows:
        screen.print(Text(f"{label:14}", style="cyan") + Text(value), soft_wrap=True)


def _anchor_text(crossing: Crossing, message: Path) -> str:
    anchor = crossing.anchor
    to_step = Path(message.steps[: anchor.step + 1], message.absolute)
    if not anchor.branch.steps:
        return to_text(to_step)
    return f"{to_text(anchor.branch)}, from {to_text(to_step)}"


def _add_path(tree: Tree, path: Path) -> None:
    from rich.markup import escape

    if not path.steps:
        tree.add("the context node")
    for step in path.steps:
        node = tree.add(escape(_step_label(step)))
        for test in step.predicates:
            _add_expr(node.add("where"), test)


def _step_label(step: Step) -> str:
    name = f"{step.prefix}:{step.name}" if step.prefix else step.name
    kind = "text()" if step.kind is Kind.TEXT else f"{step.kind.name.lower()} {name}"
    return f"{step.axis.name.lower()} {kind}{'  (local)' if step.local else ''}"


def _add_expr(tree: Tree, expr: Expr) -> None:
    from rich.markup import escape

    match expr:
        case And(terms) | Or(terms):
            node = tree.add("all of" if isinstance(expr, And) else "any of")
            for term in terms:
                _add_expr(node, term)
        case Not(term):
            _add_expr(tree.add("not"), term)
        case Position():
            tree.add(escape(expr_text(expr)))
        case Exists(path):
            _add_path(tree.add("exists"), path)
        case Compare(path) | Contains(path) | StartsWith(path):
            _add_path(tree.add(escape(expr_text(expr))), path)


# -- for programs ------------------------------------------------------------------------------


def _record(expression: str, path: Path, parts: Split) -> dict[str, Any]:
    return {
        "expression": expression,
        "decided": "native",
        "canonical": to_text(canonical(path)),
        "steps": [_step_record(step) for step in path.steps],
        "filter": to_text(parts.filter),
        "crossings": [_crossing_record(crossing, parts.filter) for crossing in parts.crossings],
    }


def _step_record(step: Step) -> dict[str, Any]:
    return {
        "axis": step.axis.name.lower(),
        "kind": step.kind.name.lower(),
        "prefix": step.prefix,
        "name": step.name,
        "local": step.local,
        "at": step.at,
        "predicates": [expr_text(test, inside=step.local) for test in step.predicates],
    }


def _crossing_record(crossing: Crossing, message: Path) -> dict[str, Any]:
    *_, last = message.steps[crossing.anchor.step], *crossing.anchor.branch.steps
    return {
        "anchor": {
            "step": crossing.anchor.step,
            "name": last.name,
            "branch": to_text(crossing.anchor.branch),
        },
        "axis": crossing.axis.name.lower(),
        "match": to_text(crossing.match),
        "selects": crossing.selects,
    }
