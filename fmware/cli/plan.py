"""How a plan looks: the second form of `fmware statements explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fmware.cli.calibrate import recalibrate
from fmware.cli.output import FAILED, USAGE, console, emit_json, fail

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text
    from rich.tree import Tree

    from fmware.plan import CrossingPlan, JoinPlan, Plan, Way
    from fmware.report.report import Alternative
    from fmware.statements import Statement

__all__ = ["explain_plan"]

MESSAGES = 64
"""Messages that are matched together."""
PARTS = ("calls", "index_access", "cleaning", "spills")


def explain_plan(
    path: Path,
    text: str,
    *,
    namespaces: Mapping[str, str],
    others: Path | None,
    messages: Sequence[str] | None,
    entities: bool,
    inputs: int | None,
    batch: int,
    as_json: bool,
) -> None:
    """Show how a statement would be answered with an index; with messages, how it was."""
    from fmware.cmatch import Workload
    from fmware.index import Index
    from fmware.plan import plan_of
    from fmware.statements import Statement

    # Before the index is looked at: what is wrong with the command line comes first.
    statement = Statement.parse(text, namespaces=namespaces)
    beside = [] if others is None else _beside(others, namespaces)
    with Index.open(path) as index:
        recalibrate(path)
        workload = None if inputs is None else Workload(inputs, batch)
        found = plan_of(index, statement, others=beside, workload=workload)
    failed = 0
    if messages is not None:
        failed = _run(found, path, statement, messages, entities=entities)
    if as_json:
        emit_json(found.to_json())
    else:
        _show(found)
    if failed:
        raise fail(f"{failed:,} messages could not be read or matched", FAILED)


def _beside(path: Path, namespaces: Mapping[str, str]) -> list[Statement]:
    """The statements that share the automaton; those that are refused are none of them."""
    from fmware.statements import StatementFileError, read_statements

    try:
        return list(read_statements(path, namespaces=namespaces))
    except StatementFileError as error:
        raise fail(error, USAGE) from None


def _run(
    found: Plan, path: Path, statement: Statement, messages: Sequence[str], *, entities: bool
) -> int:
    """Match messages with the statement alone; how many had errors."""
    from fmware.cli.match import results_of
    from fmware.cli.messages import inputs_of
    from fmware.labeling import CHARACTER_ENTITIES
    from fmware.middleware import Middleware

    names = list(inputs_of(messages))
    if not names:
        raise fail("no *.xml file in what was named", FAILED)
    with Middleware(path, entities=CHARACTER_ENTITIES if entities else None) as middleware:
        middleware.subscribe(statement)
        ran = results_of(middleware, names, (), MESSAGES)
        failed = sum(len(results.troubles.errors) for results in ran)
        found.take(middleware.report())
    return failed


# -- for people --------------------------------------------------------------------------------


def _show(plan: Plan) -> None:
    from rich.text import Text

    screen = console()
    screen.print(Text(plan.statement, style="bold"), soft_wrap=True)
    _line(screen, "filter part", plan.filter)
    screen.print(_automaton(plan))
    for crossing in plan.crossings:
        _show_crossing(screen, crossing)
    if not plan.crossings:
        _line(screen, "match part", "none: a plain filter, so there is nothing to match")
    for said in plan.advice:
        _line(screen, "warning", said, style="yellow")
    if plan.ran is not None:
        ran = plan.ran
        _line(
            screen,
            "run",
            f"{ran.messages:,} messages, {ran.passed:,} passed the filter part, "
            f"{ran.matches:,} matches, {ran.unmatched:,} anchors without a local node",
        )


def _line(screen: Console, label: str, value: str, style: str = "cyan") -> None:
    from rich.text import Text

    screen.print(Text(f"{label:14}", style=style) + Text(value), soft_wrap=True)


def _automaton(plan: Plan) -> Tree:
    """The way of the filter part, state by state."""
    from rich.text import Text
    from rich.tree import Tree

    beside = f", of {plan.statements:,} statements" if plan.statements > 1 else ""
    tree = Tree(Text.assemble((f"automaton{beside}", "cyan"), "  state 0"), guide_style="dim")
    at = tree
    for step in plan.way:
        at = at.add(_state(step))
    if not plan.way:
        tree.add(Text("no document can match", style="red"))
    return tree


def _state(step: Way) -> Text:
    from rich.text import Text

    waits = f"waits in state {step.loop}, then " if step.loop else ""
    shared = ("  shared", "green") if step.shared else ""
    asks = (f"  asks {' '.join(step.asks)}", "dim") if step.asks else ""
    return Text.assemble((step.step, "bold"), f"  {waits}state {step.state}", shared, asks)


def _show_crossing(screen: Console, crossing: CrossingPlan) -> None:
    _line(screen, "anchor", crossing.anchor)
    _line(screen, "crossing axis", crossing.axis)
    _line(screen, "match part" if crossing.selects else "must match", crossing.match)
    if crossing.note:
        _line(screen, "", crossing.note)
    for join in crossing.joins:
        _show_join(screen, join)


def _show_join(screen: Console, join: JoinPlan) -> None:
    from rich.text import Text

    anchors = "1 anchor" if join.anchors == 1 else f"{join.anchors:,} anchors"
    matches = "1 node" if join.matches == 1 else f"{join.matches:,} nodes"
    about = f"  {anchors} and {matches} of that name in the corpus"
    screen.print(Text.assemble((f"\n{join.name}", "bold"), about), soft_wrap=True)
    done = join.report
    choice = join.choice if done is None else done.choice
    ways = join.alternatives if done is None else done.alternatives
    if not ways:
        screen.print(Text("  there is nothing to choose: ADMatch"))
        return
    screen.print(_ways(ways, choice))
    screen.print(Text(f"  {choice}: {join.why if done is None else done.why}"), soft_wrap=True)
    if done is None:
        return
    if done.per_input is not None:
        screen.print(
            Text(
                f"  {done.inputs:,} inputs in {done.batches:,} batches took {time(done.per_input)} "
                f"each; {done.sample:,} of them were replayed"
            ),
            soft_wrap=True,
        )
    rented = int(done.counters.get("deferred", 0))
    if rented:
        screen.print(Text(f"  {rented:,} inputs went to ADMatch while their labels were rented"))
    for each in done.looks:
        kept = f"{each.after} stays" if each.before == each.after else f"now {each.after}"
        screen.print(
            Text(f"  looked at after {each.inputs:,} inputs: {kept}: {each.why}"), soft_wrap=True
        )


def _ways(ways: Sequence[Alternative], choice: str) -> Table:
    from rich import box
    from rich.table import Table

    measured = any(each.measured is not None for each in ways)
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    grid.add_column("")
    grid.add_column("way", no_wrap=True)
    for name in ("estimated", *(part.replace("_", " ") for part in PARTS)):
        grid.add_column(name, justify="right")
    if measured:
        grid.add_column("measured", justify="right")
    for each in ways:
        cells = [time(each.estimate), *(time(each.parts.get(part)) for part in PARTS)]
        cells += [time(each.measured)] if measured else []
        chosen = each.choice == choice
        grid.add_row("→" if chosen else "", each.choice, *cells, style="bold" if chosen else None)
    return grid


def time(seconds: float | None) -> str:
    """A time an input takes."""
    if seconds is None:
        return "-"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:,.2f} {unit}"
    return f"{seconds * 1e9:,.0f} ns" if seconds else "0"
