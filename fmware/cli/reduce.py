"""`fmware statements reduce`: which statements of a file are not needed, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fmware.cli.advertise import sample_of, schema_of
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
    from collections.abc import Mapping

    from fmware.routing import Pattern, Sample, Schema
    from fmware.routing.merging import Merger
    from fmware.routing.reduce import Finding
    from fmware.statements import Statements

__all__ = ["EPILOG", "reduce"]

EPILOG = examples(
    ("fmware statements reduce statements.txt", "what others cover, whatever the messages are"),
    ("fmware statements reduce statements.toml --dtd news.dtd", "... or on the DTD's documents"),
    ("fmware statements reduce s.txt --sample messages/ --merge 0.1", "... and what could be one"),
    after="""The exit code is 0 whatever is found, and 2 if a file or a statement is refused.
    Statements with local parts are left as they are.""",
)


def reduce(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Statements; - is stdin.")],
    dtd: Annotated[
        Path | None,
        typer.Option("--dtd", metavar="FILE", help="A DTD, or an XML Schema (.xsd)."),
    ] = None,
    sample: Annotated[
        list[str] | None,
        typer.Option(
            "--sample",
            metavar="MESSAGES",
            help="Messages to learn from, if there is no DTD, and to measure mergers on.",
            show_default=False,
        ),
    ] = None,
    merge: Annotated[
        float,
        typer.Option("--merge", min=0, max=1, help="How imperfect a merger may be."),
    ] = 0.0,
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
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a finding.")] = False,
) -> None:
    """[bold]Reduce[/bold] statements: find those that are equal, redundant or can never match.

    A statement is redundant if another one matches every message that it matches. With a DTD, an
    XML Schema or a sample, that is asked of such messages only, and statements are shown that one
    wider statement could stand for.
    """
    from fmware.routing import Pattern
    from fmware.routing import reduce as reduced

    statements = _load(file, declared(namespace or []))
    plain = [(s.name, Pattern(s.filter, s.namespaces)) for s in statements if s.plain]
    learnt = sample_of(sample) if sample else None
    schema = schema_of(dtd, namespaces=declared(namespace or [])) if dtd else None
    if schema is None and learnt is not None:
        schema = learnt.schema()
    result = reduced(plain, schema=schema)
    for finding in result.findings:
        _show(finding, as_json=as_json)
    needed = set(result.kept)
    kept = {name: pattern for name, pattern in plain if name in needed}
    for merger in _mergers(kept, schema, learnt, merge):
        _show_merger(merger, kept, as_json=as_json)
    _summarise(result.findings, len(plain), len(statements) - len(plain))
    for bad in statements.bad:
        complain(f"{file}: statement {bad.name}: {bad.error}")
    if statements.bad:
        raise typer.Exit(USAGE)


def _load(file: str, namespaces: Mapping[str, str]) -> Statements:
    from fmware.statements import StatementFileError, parse_statements

    try:
        data = binary_stdin().read() if file == STDIN else Path(file).read_bytes()
        return parse_statements(data, file, namespaces=namespaces)
    except (OSError, StatementFileError) as error:
        reason = f"{file}: {error.strerror or error}" if isinstance(error, OSError) else error
        raise fail(reason, USAGE) from None


def _mergers(
    kept: Mapping[str, Pattern], schema: Schema | None, learnt: Sample | None, bound: float
) -> list[Merger]:
    from fmware.routing import SampleMeasure, SchemaMeasure, mergers

    if learnt is not None:
        return list(mergers(kept.values(), SampleMeasure(learnt), bound))
    if schema is not None:
        return list(mergers(kept.values(), SchemaMeasure(schema), bound))
    return []


def _show(finding: Finding, *, as_json: bool) -> None:
    if as_json:
        emit_json(
            {
                "name": finding.name,
                "statement": finding.text,
                "reason": finding.reason,
                "by": finding.by,
                "by_statement": finding.by_text,
                "where": finding.where,
                "why": finding.why,
            }
        )
        return
    own = "" if finding.name == finding.text else f"  {finding.text}"
    typer.echo(f"{typer.style(finding.reason.ljust(14), fg='yellow')}{finding.name}{own}")
    by = f" ({finding.by})" if finding.by and finding.by != finding.by_text else ""
    typer.echo(f"{'':14}{finding.why}{by}")


def _show_merger(merger: Merger, kept: Mapping[str, Pattern], *, as_json: bool) -> None:
    members = {pattern.key for pattern in merger.members}
    names = [name for name, pattern in kept.items() if pattern.key in members]
    text = merger.pattern.text
    if as_json:
        about = {"reason": "mergeable", "by_statement": text, "members": names}
        emit_json({**about, "imperfect": round(merger.imperfect, 6)})
        return
    typer.echo(f"{typer.style('mergeable'.ljust(14), fg='cyan')}{', '.join(names)}")
    typer.echo(f"{'':14}{text} stands for them; {merger.imperfect:.0%} of what it matches is new")


def _summarise(findings: list[Finding], plain: int, others: int) -> None:
    counts = {
        reason: sum(finding.reason == reason for finding in findings)
        for reason in ("redundant", "equal", "unsatisfiable")
    }
    parts = [f"{plain - len(findings):,} of {plain:,} statements are needed"]
    parts += [f"{number:,} {reason}" for reason, number in counts.items() if number]
    parts += [f"{others:,} with local parts left as they are"] if others else []
    typer.echo(", ".join(parts), err=True)
