"""`fmware advertise`: what a publisher's messages look like, in the notation of advertisements."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fmware.cli.messages import inputs_of, messages_of
from fmware.cli.output import USAGE, declared, emit_json, examples, fail

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fmware.labeling import NodeTable
    from fmware.routing import Sample, Schema

__all__ = ["EPILOG", "advertise", "sample_of", "schema_of"]

EPILOG = examples(
    ("fmware advertise news.dtd", "all ways from the root to a leaf; what repeats is in ( )+"),
    ("fmware advertise order.xsd --root order", "of an XML Schema"),
    ("fmware advertise messages/ --json", "learnt from messages, one JSON object a line"),
    after="Advertisements are for reading: routing works with the schema itself, however long.",
)


def advertise(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="DTD|XSD|MESSAGES...", help="A .dtd, an .xsd, or messages."),
    ],
    root: Annotated[
        str | None, typer.Option("--root", help="The element that documents begin with.")
    ] = None,
    most: Annotated[int, typer.Option("--most", min=1, help="Lines to print at most.")] = 1000,
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="PREFIX=URI",
            help="What a prefix in a DTD stands for; may be repeated.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """[bold]Advertise[/bold] what will be published: the paths of a DTD, a schema or messages."""
    from fmware.routing import Advertisement
    from fmware.routing.advertisement import shape

    if len(sources) == 1 and Path(sources[0]).suffix.lower() in (".dtd", ".xsd"):
        spaces = declared(namespace or [])
        schema = schema_of(Path(sources[0]), root=root, namespaces=spaces)
    else:
        schema = sample_of(sources).schema()
    lines = Advertisement(schema).expressions(most + 1)
    shapes: Counter[str] = Counter()
    for line in islice(lines, most):
        kind = shape(line)
        shapes[kind] += 1
        if as_json:
            emit_json({"advertisement": line, "kind": kind})
        else:
            typer.echo(line)
    told = ", ".join(f"{number:,} {kind}" for kind, number in shapes.items())
    more = next(lines, None) is not None
    typer.echo(told + (f"; there are more, --most {2 * most} shows them" if more else ""), err=True)


def schema_of(
    path: Path, *, root: str | None = None, namespaces: Mapping[str, str] | None = None
) -> Schema:
    """The schema of a DTD or, by its suffix, of an XML Schema."""
    from fmware.routing import SchemaError, read_dtd, read_xsd

    try:
        if path.suffix.lower() == ".xsd":
            return read_xsd(path, root=root)
        return read_dtd(path, root=root, namespaces=namespaces)
    except SchemaError as error:
        raise fail(error, USAGE) from None


def sample_of(sources: list[str]) -> Sample:
    """The sample of messages in files, folders or stdin."""
    from fmware.samples import read_sample

    return read_sample(_tables(sources))


def _tables(sources: list[str]) -> Iterator[NodeTable]:
    from fmware.labeling import Reader

    reader = Reader()
    for name in inputs_of(sources):
        for _, found in messages_of(name, reader, ()):
            if isinstance(found, Exception):
                raise found
            yield found
