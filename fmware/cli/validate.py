"""`fmware statements check`: are the statements of a file good, and what will be asked of whom."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fmware.cli.output import (
    STDIN,
    USAGE,
    binary_stdin,
    complain,
    declared,
    emit_json,
    examples,
    fail,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fmware.statements import BadStatement, Statement, Statements
    from fmware.xpath import Crossing

__all__ = ["EPILOG", "GROUP", "check"]

GROUP = examples(
    ("fmware statements check statements.toml", "all statements of a file"),
    ('fmware statements explain "//sale[units > 3]" message.xml', "why it matches, or not"),
    (
        'fmware statements parse "//sale/item/local:city"',
        "what runs on messages, what on the corpus",
    ),
)
EPILOG = examples(
    ("fmware statements check statements.toml", "each statement, taken apart"),
    (
        "fmware statements check statements.txt --index dblp",
        "... and what the index cannot answer of it",
    ),
    ("fmware statements check -n p=urn:p --json - < statements.txt", "one JSON line a statement"),
    after="The exit code is 2 if a statement, or a file, is refused. Warnings change nothing.",
)


def check(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...", help="Statements, one a line or TOML (.toml); - is stdin."
        ),
    ],
    index: Annotated[
        Path | None,
        typer.Option("--index", "-x", metavar="INDEX", help="Warn of what this index lacks."),
    ] = None,
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
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Only what is refused, and warnings.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a statement.")] = False,
) -> None:
    """[bold]Check[/bold] statements: what they ask of messages, and of the corpus.

    Of each statement: its filter part, and for each crossing the anchor, the axis and the match
    part, with a warning of conditions that can never hold. With an index also the names that it
    does not have, and anchors that have no key there.
    """
    spaces = declared(namespace or [])
    loaded = [(file, _load(file, spaces)) for file in files]
    warned = 0
    with ExitStack() as stack:
        advise = _adviser(index, stack)
        for file, statements in loaded:
            for statement in statements:
                warnings = [*_weakness(statement), *advise(statement)]
                warned += len(warnings)
                if as_json:
                    emit_json({"file": file, **_record(statement, warnings)})
                elif warnings or not quiet:
                    _show(statement, warnings, brief=quiet)
            for bad in statements.bad:
                _refuse(file, bad, as_json=as_json)
    good = sum(len(statements) for _, statements in loaded)
    refused = sum(len(statements.bad) for _, statements in loaded)
    _summarise(good, refused, warned)
    if refused:
        raise typer.Exit(USAGE)


def _load(file: str, namespaces: Mapping[str, str]) -> Statements:
    from fmware.statements import StatementFileError, parse_statements

    try:
        data = binary_stdin().read() if file == STDIN else Path(file).read_bytes()
        return parse_statements(data, file, namespaces=namespaces)
    except (OSError, StatementFileError) as error:
        reason = f"{file}: {error.strerror or error}" if isinstance(error, OSError) else error
        raise fail(reason, USAGE) from None


def _adviser(path: Path | None, stack: ExitStack) -> Callable[[Statement], list[str]]:
    if path is None:
        from fmware.statements import lint

        return lint
    from fmware.index import Index
    from fmware.matching import Resolver, advice

    resolver = Resolver(stack.enter_context(Index.open(path)))
    return lambda statement: advice(statement, resolver)


def _weakness(statement: Statement) -> list[str]:
    """A warning, if nearly every message has the whole expression evaluated."""
    if statement.planned is None or not statement.planned.weak:
        return []
    return ["the guard is weak: every message is evaluated; name an element that it must have"]


# -- for people --------------------------------------------------------------------------------


def _show(statement: Statement, warnings: list[str], *, brief: bool) -> None:
    own = "" if statement.name == statement.text else f"  {statement.text}"
    typer.echo(typer.style(statement.name, bold=True) + own)
    for label, value in () if brief else _lines(statement):
        typer.echo(f"  {typer.style(label.ljust(14), fg='cyan')}{value}")
    for warning in warnings:
        typer.echo(f"  {typer.style('warning'.ljust(14), fg='yellow')}{warning}")


def _lines(statement: Statement) -> list[tuple[str, str]]:
    from fmware.statements import anchor_text, match_text

    rows = [("filter part", _guard(statement))]
    if statement.planned is not None:
        rows.append(("decided by", _decided(statement)))
    for crossing in statement.crossings:
        rows += [
            ("anchor", anchor_text(crossing.anchor, statement.filter)),
            ("crossing axis", crossing.axis.name.lower()),
            ("match part" if crossing.selects else "must match", match_text(crossing.match)),
        ]
    if statement.plain:
        rows.append(("match part", "none: a plain filter"))
    return [*rows, ("returns", ", ".join(_returns(statement)))]


def _decided(statement: Statement) -> str:
    residual = statement.planned is not None and statement.planned.residual
    return "the expression, behind the filter part" if residual else "the filter alone"


def _guard(statement: Statement) -> str:
    from fmware.xpath import guard_text

    planned = statement.planned
    return guard_text(statement.filter if planned is None else planned.guard)


def _returns(statement: Statement) -> list[str]:
    return sorted(each.value for each in statement.returns)


def _refuse(file: str, bad: BadStatement, *, as_json: bool) -> None:
    from fmware.statements import refusal

    complain(refusal(file, bad))
    if as_json:
        about = {"file": file, "name": bad.name, "ok": False, "line": bad.line}
        emit_json({**about, "error": _error_record(bad.error)})


def _summarise(good: int, refused: int, warned: int) -> None:
    parts = [f"{good:,} good"]
    parts += [f"{refused:,} refused"] if refused else []
    parts += [f"{warned:,} warning{'s' if warned > 1 else ''}"] if warned else []
    typer.echo(", ".join(parts), err=True)


# -- for programs ------------------------------------------------------------------------------


def _record(statement: Statement, warnings: list[str]) -> dict[str, Any]:
    planned = statement.planned
    return {
        "name": statement.name,
        "ok": True,
        "statement": statement.text,
        "decided": "residual" if planned is not None and planned.residual else "native",
        "filter": _guard(statement),
        "crossings": [_crossing_record(crossing, statement) for crossing in statement.crossings],
        "returns": _returns(statement),
        "warnings": warnings,
    }


def _crossing_record(crossing: Crossing, statement: Statement) -> dict[str, Any]:
    from fmware.statements import anchor_text, match_text

    anchor = crossing.anchor
    return {
        "anchor": anchor_text(anchor, statement.filter),
        "step": anchor.step + 1,
        "axis": crossing.axis.name.lower(),
        "match": match_text(crossing.match),
        "selects": crossing.selects,
    }


def _error_record(error: Exception) -> dict[str, Any]:
    from fmware.xpath import XPathError

    if not isinstance(error, XPathError):
        return {"message": str(error)}
    return {
        "code": error.code,
        "expression": error.expression,
        "at": error.at,
        "message": error.summary,
        "hint": error.hint,
    }
