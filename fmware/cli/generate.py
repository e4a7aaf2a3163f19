"""`fmware generate`: workloads from the command line.

Data goes to standard output unless `--out` names a place; the summary goes to standard output if
the data does not, else to standard error. A parameter out of range ends with exit code 2.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import time
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, cast

import typer

from fmware.cli.groups import renaming
from fmware.cli.output import USAGE, examples, fail, progress

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fmware.datasets import Bibliography

__all__ = ["generate"]

generate = typer.Typer(
    help="Make documents, queries, corpora and messages to try the middleware on.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    epilog=examples(
        ("fmware generate documents -N 500 --size 4KB --out news/", "messages to filter"),
        ("fmware generate queries -N 100000 --out queries.txt", "statements to filter them with"),
        ("fmware generate bibliography --size 200MB --out corpus.xml", "a corpus to match with"),
    ),
)

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}

Seed = Annotated[int, typer.Option(help="Same seed, same bytes.")]
Out = Annotated[
    str, typer.Option("--out", "-o", help="File, packed if it ends in .gz; - is stdout.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")]
DtdName = Annotated[str, typer.Option("--dtd", help="news, auction, ... or the path of a DTD.")]
Root = Annotated[
    str | None, typer.Option(help="Root element; by default the one that none contains.")
]
Values = Annotated[int, typer.Option(help="Most values of an attribute or a text.")]


class Doctype(StrEnum):
    """What stands before the root of a bibliography."""

    internal = "internal"
    system = "system"
    none = "none"


class Encoding(StrEnum):
    """Of a bibliography."""

    utf8 = "utf-8"
    latin1 = "iso-8859-1"


@generate.command(
    cls=renaming({"-n": "-N"}),
    epilog=examples(
        ("fmware generate documents -N 500 --size 4KB --out news/", "a file each, of about 4 KB"),
        (
            "fmware generate documents --dtd my.dtd -N 10 -D 6 -R 2",
            "one a line, from a DTD of yours",
        ),
    ),
)
def documents(
    dtd: DtdName = "news",
    count: Annotated[int, typer.Option("--count", "-N", help="How many.")] = 500,
    out: Annotated[
        str,
        typer.Option(
            "--out", "-o", help="Directory, or a file (with suffix) of one a line; - is stdout."
        ),
    ] = "-",
    seed: Seed = 0,
    root: Root = None,
    depth: Annotated[int, typer.Option("--depth", "-D", help="Most levels.")] = 8,
    repeats: Annotated[
        int, typer.Option("--repeats", "-R", help="Most repeats under a parent.")
    ] = 3,
    attributes: Annotated[float, typer.Option(help="Chance of an optional attribute.")] = 0.5,
    values: Values = 20,
    skew: Annotated[float, typer.Option(help="Zipf exponent of the choice of values.")] = 0.0,
    size: Annotated[
        str | None, typer.Option(help="Bytes to aim at, as 4KB; repeats no longer bound it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Valid documents from a DTD."""
    from fmware import datasets

    with _refusing():
        made = datasets.documents(
            dtd,
            count,
            seed=seed,
            root=root,
            depth=depth,
            repeats=repeats,
            attribute_probability=attributes,
            values=values,
            skew=skew,
            size=None if size is None else parse_size(size),
        )
        if out == "-" or Path(out).suffix:
            _write(map(_line, made), out, "documents", as_json)
        else:
            _write_files(made, Path(out), as_json)


@generate.command(
    cls=renaming({"-n": "-N"}),
    epilog=examples(
        ("fmware generate queries -N 100000 -D 6 -W 0.2 --DS 0.2 --out queries.txt", "mere paths"),
        ("fmware generate queries -N 1000 -P 2 --np 1", "with predicates and nested paths"),
    ),
)
def queries(
    dtd: DtdName = "news",
    count: Annotated[int, typer.Option("--count", "-N", help="Q: how many.")] = 1000,
    out: Out = "-",
    seed: Seed = 0,
    root: Root = None,
    depth: Annotated[int, typer.Option("--depth", "-D", help="D: deepest level reached.")] = 6,
    wildcard: Annotated[float, typer.Option("--wildcard", "-W", help="W: chance of `*`.")] = 0.2,
    descendant: Annotated[
        float, typer.Option("--descendant", "--DS", "-S", help="DS: chance of `//`.")
    ] = 0.2,
    predicates: Annotated[
        int, typer.Option("--predicates", "-P", help="P: value predicates in each.")
    ] = 0,
    nested: Annotated[int, typer.Option("--nested", "--np", help="NP: nested paths in each.")] = 0,
    values: Values = 20,
    skew: Annotated[float, typer.Option(help="Zipf exponent of the choice of steps.")] = 0.0,
    distinct: Annotated[bool, typer.Option(help="No expression twice.")] = True,
    as_json: Json = False,
) -> None:
    """XPath queries that documents of a DTD can satisfy, one a line."""
    from fmware import datasets

    with _refusing():
        made = datasets.queries(
            dtd,
            count,
            seed=seed,
            root=root,
            depth=depth,
            wildcard=wildcard,
            descendant=descendant,
            predicates=predicates,
            nested=nested,
            values=values,
            skew=skew,
            distinct=distinct,
        )
        _write((f"{query}\n".encode() for query in made), out, "queries", as_json)


@generate.command(
    cls=renaming({"-n": "-N"}),
    epilog=examples(
        ("fmware generate bibliography --size 200MB --out corpus.xml", "as dblp comes"),
        ("fmware generate bibliography --records 1000 --no-entities --doctype none", "no DOCTYPE"),
    ),
)
def bibliography(
    size: Annotated[str | None, typer.Option(help="About so many bytes, as 200MB.")] = None,
    records: Annotated[int | None, typer.Option(help="Or so many records.")] = None,
    out: Out = "-",
    seed: Seed = 0,
    doctype: Annotated[
        Doctype, typer.Option(help="Where entities are declared.")
    ] = Doctype.internal,
    entities: Annotated[bool, typer.Option(help="Accented letters as entities.")] = True,
    encoding: Annotated[Encoding, typer.Option(help="Of the file.")] = Encoding.latin1,
    as_json: Json = False,
) -> None:
    """A bibliography of any size, as one document."""
    from fmware import datasets

    with _refusing():
        limit = None if size is None else parse_size(size)
        made = datasets.bibliography(
            size=parse_size("1MB") if limit is None and records is None else limit,
            records=records,
            seed=seed,
            doctype=doctype.value,
            entities=entities,
            encoding=encoding.value,
        )
        _write(made, out, "records", as_json, total=limit, corpus=made)


@generate.command(
    cls=renaming({"-n": "-N"}),
    epilog=examples(
        (
            "fmware generate messages --records 100000 --corpus-seed 7 -N 5000 -o messages.xml.gz",
            "for a corpus made with --records 100000 --seed 7",
        ),
    ),
)
def messages(
    records: Annotated[int, typer.Option(help="Records in the corpus that is cited.")],
    count: Annotated[int, typer.Option("--count", "-N", help="How many.")] = 1000,
    out: Out = "-",
    seed: Seed = 0,
    corpus_seed: Annotated[int, typer.Option(help="The seed of the corpus that is cited.")] = 0,
    unknown: Annotated[float, typer.Option(help="Fraction of keys that it does not hold.")] = 0.05,
    skew: Annotated[float, typer.Option(help="Zipf exponent of popularity.")] = 0.8,
    as_json: Json = False,
) -> None:
    """Messages that cite the records of a bibliography by key, one a line."""
    from fmware import datasets

    with _refusing():
        made = datasets.citations(
            count, seed=seed, corpus_seed=corpus_seed, records=records, unknown=unknown, skew=skew
        )
        _write((m + b"\n" for m in made), out, "messages", as_json)


@generate.command(
    cls=renaming({"-n": "-N", "--records": "--count"}),
    epilog=examples(
        (
            "fmware generate recursive -N 5000 -D 30 --tags 50 --out deep.xml",
            "deeper than by default",
        ),
    ),
)
def recursive(
    count: Annotated[int, typer.Option("--count", "-N", help="Records.")] = 1000,
    out: Out = "-",
    seed: Seed = 0,
    depth: Annotated[int, typer.Option("--depth", "-D", help="Levels below a record.")] = 20,
    fanout: Annotated[int, typer.Option(help="Most children of a node.")] = 3,
    tags: Annotated[int, typer.Option(help="Number of tags.")] = 30,
    nodes: Annotated[int, typer.Option(help="Elements in a record.")] = 200,
    as_json: Json = False,
) -> None:
    """A deep corpus of random tags, on which path summaries do not help."""
    from fmware import datasets

    with _refusing():
        made = datasets.recursive(
            count, seed=seed, depth=depth, fanout=fanout, tags=tags, nodes=nodes
        )
        _write(made, out, "chunks", as_json)


@generate.command(
    cls=renaming({"-n": "-N"}),
    epilog=examples(
        ("fmware generate dtd news > news.dtd", "to read, or to validate with"),
    ),
)
def dtd(
    name: Annotated[str, typer.Argument(help="news, bibliography, auction or notices.")],
) -> None:
    """Print a DTD that the project carries."""
    from fmware import datasets

    with _refusing():
        sys.stdout.buffer.write(datasets.dtd_text(name))


def parse_size(text: str) -> int:
    """Bytes from `4096`, `4KB`, `1.5GB` (powers of ten) or `4KiB` (powers of two)."""
    from fmware.datasets import ParameterError

    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]I?)?B?", text.strip().upper())
    if match is None:
        raise ParameterError(f"size is {text!r}; write it as 4096, 4KB, 200MB or 1GiB")
    return int(float(match[1]) * _UNITS[match[2] or ""])


@contextmanager
def _refusing() -> Iterator[None]:
    """Exit code 2 and one clear line, for what the user can put right."""
    from fmware.datasets import DatasetError

    try:
        yield
    except (DatasetError, FileNotFoundError, PermissionError, IsADirectoryError) as error:
        raise fail(error, USAGE) from error


def _line(document: bytes) -> bytes:
    from fmware.datasets.documents import DECLARATION

    # Without its declaration, which only says what holds anyhow, a document is one line.
    return document.removeprefix(DECLARATION.encode()) + b"\n"


def _open(out: str) -> IO[bytes]:
    if out.endswith(".gz"):
        # No time stamp: the same seed gives the same file.
        return cast("IO[bytes]", gzip.GzipFile(out, "wb", compresslevel=6, mtime=0))
    return Path(out).open("wb")


def _write(
    parts: Iterable[bytes],
    out: str,
    what: str,
    as_json: bool,
    *,
    total: int | None = None,
    corpus: Bibliography | None = None,
) -> None:
    """Write the parts to one place and tell what was written; `total` is bytes, if known."""
    begun, count, size = time.perf_counter(), 0, 0
    target = nullcontext(sys.stdout.buffer) if out == "-" else _open(out)
    with target as file, progress(what, total) as advance:
        for part in parts:
            file.write(part)
            count += 1
            size += len(part)
            advance(len(part))
    _summarise(what, count if corpus is None else corpus.records, size, begun, out, as_json)


def _write_files(made: Iterable[bytes], directory: Path, as_json: bool) -> None:
    """Write each document to a file of its own, numbered so that names sort in order."""
    begun, count, size = time.perf_counter(), 0, 0
    directory.mkdir(parents=True, exist_ok=True)
    with progress("documents", None) as advance:
        for count, document in enumerate(made, 1):
            (directory / f"{count:07}.xml").write_bytes(document)
            size += len(document)
            advance(len(document))
    _summarise("documents", count, size, begun, str(directory), as_json)


def _summarise(what: str, count: int, size: int, begun: float, out: str, as_json: bool) -> None:
    seconds = time.perf_counter() - begun
    to_stderr = out == "-"
    if as_json:
        summary = {what: count, "bytes": size, "seconds": round(seconds, 3), "out": out}
        typer.echo(json.dumps(summary), err=to_stderr)
    elif not to_stderr:
        typer.echo(f"{count:,} {what}, {size:,} bytes in {seconds:.1f} s: {out}")
