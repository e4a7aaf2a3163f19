"""`fmware statements explain`: why a message matches a statement, and how an index answers one."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from fmware.cli.output import (
    STDIN,
    USAGE,
    binary_stdin,
    console,
    declared,
    emit_json,
    examples,
    fail,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rich.text import Text
    from rich.tree import Tree

    from fmware.filtering.explain import (
        Explanation,
        NamespaceHint,
        Node,
        PathTrace,
        Reason,
        StepTrace,
        Stop,
    )

__all__ = ["EPILOG", "explain"]

EPILOG = examples(
    ('fmware statements explain "//sale[units > 3]/product" message.xml', "step by step"),
    (
        'fmware statements explain -n a=http://www.w3.org/2005/Atom "//a:entry" feed.xml',
        "names in a namespace",
    ),
    ('curl -s URL | fmware statements explain "//entry" - --json', "for a program"),
    (
        'fmware statements explain dblp "//order/book/local:publisher"',
        "the plan, with what each way costs",
    ),
    (
        'fmware statements explain dblp "//order/book/local:publisher" --run inbox/',
        "... and what each did cost, on the same inputs",
    ),
    after="The exit code is 0 whether it matches or not, 1 if the message cannot be read and 2 if "
    "the statement is refused.",
)
PLAN = "With an index"
WIDTH = 60
"""Characters of a value on the screen."""


def explain(
    subject: Annotated[
        str, typer.Argument(metavar="STATEMENT|INDEX", help="An XPath statement, or an index.")
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="MESSAGE|STATEMENT",
            help="An XML file (.gz too), or - for stdin; after an index, a statement.",
        ),
    ],
    messages: Annotated[
        list[str] | None,
        typer.Argument(metavar="MESSAGES", help="With --run: XML files, directories, or -."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
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
    entities: Annotated[
        bool,
        typer.Option(
            "--entities",
            help="Allow a DOCTYPE of character entities, and those of HTML 4 (&uuml;) without one.",
        ),
    ] = False,
    run: Annotated[
        bool,
        typer.Option(
            "--run", help="Match messages, and tell what each way did cost.", rich_help_panel=PLAN
        ),
    ] = False,
    beside: Annotated[
        Path | None,
        typer.Option(
            "--with",
            metavar="FILE",
            help="Statements that share the automaton.",
            rich_help_panel=PLAN,
        ),
    ] = None,
    inputs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="How many anchors to expect; by default each of the corpus once.",
            rich_help_panel=PLAN,
        ),
    ] = None,
    batch: Annotated[
        int, typer.Option(min=1, help="... and how many at a time.", rich_help_panel=PLAN)
    ] = 16,
) -> None:
    """Explain why a message [bold]matches[/bold] a statement, or where it stopped.

    For each step: how many nodes have its name, how many each predicate lets pass, and if none is
    left, what is there instead.

    With an index instead, explain how a statement is [bold]answered[/bold]: its parts, the way
    through the automaton, and the joins with what every way to do them costs.
    """
    if is_index(subject, target):
        if bool(messages) != run:
            hint = "name messages after --run" if run else "add --run to match messages"
            raise fail(f"explain INDEX STATEMENT --run MESSAGES...: {hint}", USAGE)
        from fmware.cli.plan import explain_plan

        explain_plan(
            Path(subject),
            target,
            namespaces=declared(namespace or []),
            others=beside,
            messages=messages if run else None,
            entities=entities,
            inputs=inputs,
            batch=batch,
            as_json=as_json,
        )
    elif messages or run or beside or inputs:
        raise fail("only explain INDEX STATEMENT takes several messages or its options", USAGE)
    else:
        _explain_message(subject, target, declared(namespace or []), entities, as_json)


def is_index(subject: str, target: str) -> bool:
    """Whether the first argument is meant to be an index.

    A folder is. A name of nothing is, too, if the second argument is a statement, not a file: then
    it is the index that is missing.
    """
    if Path(subject).is_dir():
        return True
    if target == STDIN or Path(target).exists():
        return False
    crosses = "local:" in target or target.lstrip().startswith("//")
    return crosses or not subject.lstrip().startswith("/")


def _explain_message(
    statement: str, message: str, spaces: Mapping[str, str], entities: bool, as_json: bool
) -> None:
    from fmware.filtering.explain import explain as explained
    from fmware.labeling import CHARACTER_ENTITIES, ReadError, Vocabulary, read
    from fmware.xpath import check_expression, check_prefixes, plan

    # Before the message is read: what is wrong with the command line comes first.
    planned = plan(statement)
    if planned.native is not None:
        check_prefixes(planned.native, spaces, statement)
    elif planned.expression is not None:
        check_expression(planned.expression, spaces, statement)
    known = CHARACTER_ENTITIES if entities else None
    source = "<stdin>" if message == STDIN else message
    try:
        table = read(_bytes(message), vocabulary=Vocabulary(), entities=known, source=source)
    except ReadError as error:
        raise fail(str(error).replace("entities={...}", "--entities")) from None
    found = explained(table, statement, namespaces=spaces)
    if as_json:
        emit_json(found.to_dict())
    else:
        _show(found)


def _bytes(message: str) -> bytes:
    if message == STDIN:
        return binary_stdin().read()
    if not message.endswith(".gz"):
        return Path(message).read_bytes()
    import gzip
    import zlib

    try:
        return gzip.decompress(Path(message).read_bytes())
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise fail(f"{message}: {error}") from None


# -- for people --------------------------------------------------------------------------------


def _show(found: Explanation) -> None:
    from rich.text import Text
    from rich.tree import Tree

    screen = console()
    verdict = ("matches", "green") if found.matched else ("does not match", "red")
    tree = Tree(Text.assemble((found.expression, "bold"), "  ", verdict))
    _add_trace(tree, found.trace)
    for rows in found.tuples:
        tree.add(Text.assemble(("matched  ", "green"), _last(rows)))
    # Folded, not soft-wrapped: rich cuts what does not fit beside the branches of a tree.
    screen.print(tree, markup=False)
    for line in _closing(found):
        screen.print(line, soft_wrap=True)


def _last(rows: list[Node]) -> str:
    """A path tuple on one line: the node at its end, which the others stand above."""
    above = f"  (by way of {', '.join(node.path for node in rows[:-1])})" if rows[1:] else ""
    return f"{_node(rows[-1])}{above}"


def _add_trace(tree: Tree, trace: PathTrace) -> None:
    branches = [_add_step(tree, step) for step in trace.steps]
    if trace.stop is not None and trace.stop.predicate is None:
        _add_around(branches[-1], trace.stop)


def _add_step(tree: Tree, step: StepTrace) -> Tree:
    from rich.text import Text

    branch = tree.add(
        Text.assemble((step.expression, "cyan"), f"  {_nodes(step.found)}", _samples(step))
    )
    for test in step.predicates:
        style = "green" if test.passed else "red"
        count = f"{test.passed:,} of {test.tried:,} passed"
        inner = branch.add(Text.assemble((f"[{test.expression}]", "cyan"), "  ", (count, style)))
        for reason in test.reasons:
            _add_reason(inner, reason, f"{reason.node.path}: ")
    return branch


def _samples(step: StepTrace) -> str:
    if not step.samples or step.predicates:
        return ""
    more = " ..." if step.passed > len(step.samples) else ""
    return ": " + ", ".join(node.path for node in step.samples) + more


def _add_reason(tree: Tree, reason: Reason, head: str = "") -> None:
    from rich.text import Text

    mark = ("yes  ", "green") if reason.holds else ("no   ", "red")
    if not reason.terms:
        _add_inner(tree.add(Text.assemble(mark, head, _one_line(reason.text))), reason)
        return
    branch = tree.add(Text.assemble(mark, head, (reason.expression, "cyan")))
    for term in reason.terms:
        _add_reason(branch, term)


def _add_inner(tree: Tree, reason: Reason) -> None:
    """The way of a condition's path, where it says more than the reason alone."""
    trace = reason.trace
    if trace is not None and trace.stop is not None:
        if len(trace.steps) > 1 or trace.stop.predicate is not None:
            _add_trace(tree, trace)
        else:
            _add_around(tree, trace.stop)


def _add_around(tree: Tree, stop: Stop) -> None:
    from rich.text import Text

    if stop.there:
        names = ", ".join(
            each.name + (f" ({each.count:,})" if each.count > 1 else "") for each in stop.there
        )
        tree.add(Text.assemble(("there    ", "dim"), names))
    if stop.did_you_mean:
        tree.add(Text.assemble(("nearest  ", "yellow"), ", ".join(stop.did_you_mean)))
    for hint in stop.hints:
        tree.add(Text.assemble(("hint     ", "yellow"), hint))


def _closing(found: Explanation) -> Iterator[Text]:
    from rich.text import Text

    if found.guard is not None:
        yield Text.assemble(("guard ", "dim"), _one_line(found.guard))
        if found.stop is None and not found.matched:
            yield Text("the path above is there, but the whole expression is false", "red")
    if found.stop is not None:
        place = f"step {found.stop.step}" + (
            f", predicate {found.stop.predicate}" if found.stop.predicate else ""
        )
        reason = _one_line(found.stop.reason)
        yield Text.assemble(("stopped at ", "red"), (f"{place}: ", "red"), reason)
    if len(found.order) > 1:
        tried = (
            f"{each.condition} (look-up)" if each.looked_up else each.condition
            for each in found.order
        )
        yield Text.assemble(
            ("conditions in the order of the engine: ", "dim"), ", then ".join(tried)
        )
    if found.ignoring_namespaces is not None:
        yield from _namespace_lines(found.ignoring_namespaces)


def _namespace_lines(hint: NamespaceHint) -> Iterable[Text]:
    from rich.text import Text

    yield Text.assemble(
        ("would match if namespaces were ignored: ", "yellow"),
        f"its names are in {', '.join(hint.uris)}" if hint.uris else "its names are in none",
    )
    if hint.expression is not None:
        pairs = (quote(f"{prefix}={uri}") for prefix, uri in hint.namespaces.items())
        options = "".join(f" --namespace {pair}" for pair in pairs)
        yield Text(f"  fmware statements explain{options} {_argument(hint.expression)}")


def _argument(expression: str) -> str:
    """An expression for the shell, in double quotes where they do: it has single ones itself."""
    return quote(expression) if set(expression) & set('"$`\\!') else f'"{expression}"'


def _node(node: Node) -> str:
    value = _one_line(node.value)
    if len(value) > WIDTH:
        value = value[: WIDTH - 1] + "…"
    return f'{node.path} "{value}"'


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count:,} nodes"


def _one_line(text: str) -> str:
    return " ".join(text.split())
