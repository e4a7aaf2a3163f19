"""The settings in force: `fmware.toml`, the environment and `--set`, one over the other.

Nobody else reads the environment: what is in force is in `Settings`, and `load` is the only way to
it. What can be said is in `tables`, who said it in `layers`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from fmware.service.envelope import ALL, DEFAULT
from fmware.service.errors import ServiceError
from fmware.service.layers import Layers, Problem, nearest, read_layers
from fmware.service.tables import (
    AmqpSink,
    AmqpSource,
    EngineSettings,
    Expected,
    FilesSink,
    FilesSource,
    LogSettings,
    MessageLimits,
    NatsSink,
    NatsSource,
    PythonSink,
    PythonSource,
    Quota,
    Server,
    Settings,
    SinkSettings,
    SourceSettings,
    StatementSettings,
    StdioSink,
    StdioSource,
    Table,
    Target,
    Tenant,
    Test,
    WebhookSettings,
)
from fmware.xpath import XPathError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pydantic_core import ErrorDetails

    from fmware.service.layers import Place

__all__ = [
    "AmqpSink",
    "AmqpSource",
    "EngineSettings",
    "Expected",
    "FilesSink",
    "FilesSource",
    "LogSettings",
    "MessageLimits",
    "NatsSink",
    "NatsSource",
    "PythonSink",
    "PythonSource",
    "Quota",
    "Server",
    "Settings",
    "SettingsError",
    "SinkSettings",
    "SourceSettings",
    "StatementSettings",
    "StdioSink",
    "StdioSource",
    "Target",
    "Tenant",
    "Test",
    "WebhookSettings",
    "default_file",
    "load",
    "schema",
]

FILE = "fmware.toml"
KINDS = "files, stdio, nats, amqp or python"
LOOPBACK = ("127.0.0.1", "::1", "localhost")
LOG = "log"
"""What the match log is called among the sinks: two of one name would be held to be one."""
DRAFT = "https://json-schema.org/draft/2020-12/schema"


class SettingsError(ServiceError):
    """A configuration that cannot be used; `problems` are all that is wrong with it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(map(str, problems)))


def default_file(environ: Mapping[str, str]) -> Path | None:
    """The file that is read where none is named: `FMWARE_CONFIG`, else `fmware.toml` if there."""
    if named := environ.get("FMWARE_CONFIG"):
        return Path(named)
    return Path(FILE) if Path(FILE).is_file() else None


def load(
    path: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Iterable[str] = (),
) -> Settings:
    """The settings in force: `overrides` over `environ` over the file over defaults.

    Relative paths in the file start at its directory, others where the process runs. Raises a
    `SettingsError` with all that is wrong, or an `OSError` if the file cannot be read.
    """
    layers = read_layers(path, environ or {}, overrides, known=frozenset(Settings.model_fields))
    problems = list(layers.problems)
    problems += _strictly(layers)
    settings, more = _merged(layers, {problem.key for problem in problems})
    problems += more
    if settings is not None and not problems:
        settings = Settings.model_validate(_placed(settings, layers, ()))
        problems += [layers.problem(key, what) for key, what in _contradictions(settings)]
    if settings is None or problems:
        raise SettingsError(problems)
    return settings


def schema() -> dict[str, Any]:
    """The JSON schema of `fmware.toml`, for editors and for those who write one by program."""
    made = Settings.model_json_schema()
    about = {"$schema": DRAFT, "title": "fmware.toml", "description": made.pop("description")}
    made.pop("title", None)
    return {**about, **made}


def _strictly(layers: Layers) -> list[Problem]:
    """What is wrong with the file itself; what it leaves to the environment may be missing."""
    try:
        Settings.model_validate_json(layers.file_json(), strict=True)
    except ValidationError as error:
        found = [each for each in error.errors() if each["type"] != "missing"]
        return [_problem(each, layers) for each in found]
    return []


def _merged(layers: Layers, told: set[str]) -> tuple[Settings | None, list[Problem]]:
    """All layers together; numbers and booleans of the environment come as strings."""
    try:
        return Settings.model_validate_json(layers.merged_json()), []
    except ValidationError as error:
        found = [_problem(each, layers) for each in error.errors()]
        return None, [each for each in found if each.key not in told]


def _problem(error: ErrorDetails, layers: Layers) -> Problem:
    place = tuple(part for part in error["loc"] if not _is_choice(part, error["loc"]))
    match error["type"]:
        case "extra_forbidden":
            names = _names_beside(place, layers)
            near = nearest(str(place[-1]), names)
            hint = f"did you mean {near}?" if near else f"there are {', '.join(sorted(names))}"
            return layers.problem(place, f"unknown key; {hint}")
        case "missing":
            return layers.problem(place, "must be given, and is not")
        case "union_tag_not_found":
            return layers.problem((*place, "kind"), f"must be given: {KINDS}")
        case "union_tag_invalid":
            said = error["ctx"]["tag"]
            return layers.problem((*place, "kind"), f"{said!r} is not {KINDS}")
        case _:
            what = error["msg"].removeprefix("Value error, ")
            given = error["input"]
            shown = f", not {given!r}" if isinstance(given, str | int | float) else ""
            return layers.problem(place, f"{what[:1].lower()}{what[1:]}{shown}")


def _is_choice(part: int | str, place: Place) -> bool:
    """Whether a part of a place is the tag of a union, which is not written in the file."""
    at = place.index(part)
    return at == 2 and place[0] in {"sources", "sinks"} and isinstance(part, str)


def _names_beside(place: Place, layers: Layers) -> list[str]:
    """The keys that the table has in which an unknown one was found."""
    table: Any = Settings
    for at, part in enumerate(place[:-1]):
        if isinstance(part, int):
            continue
        found = _models(table.model_fields[part].annotation)
        kind = layers.value((*place[: at + 2], "kind"))
        fitting = [model for model in found if _kind_of(model) in {None, kind}]
        table = (fitting or found)[0]
    return list(table.model_fields)


def _kind_of(model: type[Table]) -> str | None:
    field = model.model_fields.get("kind")
    return None if field is None else field.annotation.__args__[0]  # type: ignore[union-attr]


def _models(annotation: Any) -> list[type[Table]]:
    """The tables within a type."""
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return [annotation]
    return [each for part in getattr(annotation, "__args__", ()) for each in _models(part)]


def _placed(value: Any, layers: Layers, place: Place) -> Any:
    """The settings with absolute paths, each from where it was written."""
    if isinstance(value, Path):
        return layers.base(place) / value.expanduser()
    if isinstance(value, Table):
        return {
            key: _placed(getattr(value, key), layers, (*place, key))
            for key in type(value).model_fields
        }
    if isinstance(value, tuple):
        return tuple(_placed(each, layers, (*place, at)) for at, each in enumerate(value))
    return value


# --- what does not go together ------------------------------------------------------------------


def _contradictions(settings: Settings) -> Iterator[tuple[Place, str]]:
    yield from _doubles(settings)
    yield from _refused(settings)
    yield from _strangers(settings)
    server = settings.server
    naked = [tenant.name for tenant in settings.everyone() if not tenant.guarded]
    if server.host not in LOOPBACK and naked and not server.open:
        said = (
            f"{server.host} can be reached from other machines, and tenant {naked[0]} has no "
            "token: give it token_sha256 or token_env, listen on 127.0.0.1, or say "
            "server.open = true"
        )
        yield ("server", "host"), said
    if settings.log.segment_bytes > settings.log.bytes:
        yield ("log", "segment_bytes"), "more than log.bytes: make it smaller"


def _refused(settings: Settings) -> Iterator[tuple[Place, str]]:
    """Statements that cannot be registered."""
    for at, each in enumerate(settings.statements):
        try:
            each.statement()
        except XPathError as error:
            key = "expression" if each.expression else "filter"
            yield ("statements", at, key), f"statement {each.name}: {error}"


def _doubles(settings: Settings) -> Iterator[tuple[Place, str]]:
    """Names that are there twice."""
    named: list[tuple[str, list[Any]]] = [
        ("tenants", [each.name for each in settings.tenants]),
        ("statements", [(each.tenant, each.name) for each in settings.statements]),
        ("sources", [each.name for each in settings.sources]),
        ("sinks", [each.name for each in settings.sinks]),
        ("tests", [each.name for each in settings.tests]),
    ]
    for at, sink in enumerate(settings.sinks):
        if sink.name == LOG:
            yield ("sinks", at, "name"), f"{LOG!r} is the match log: name the sink otherwise"
    for key, names in named:
        for at, name in enumerate(names):
            if name in names[:at]:
                said = name if isinstance(name, str) else name[1]
                yield (key, at, "name"), f"there is a {said!r} already: name one of them otherwise"
    targets = [each.name for each in settings.webhooks.targets]
    for at, name in enumerate(targets):
        if name in targets[:at]:
            place = ("webhooks", "targets", at, "name")
            yield place, f"there is a {name!r} already: name one of them otherwise"


def _strangers(settings: Settings) -> Iterator[tuple[Place, str]]:
    """Tenants that are named somewhere, but are not there."""
    names = [tenant.name for tenant in settings.everyone()]
    users: list[tuple[Place, Sequence[Any]]] = [
        (("statements",), settings.statements),
        (("sources",), settings.sources),
        (("tests",), settings.tests),
        (("webhooks", "targets"), settings.webhooks.targets),
    ]
    for place, tables in users:
        for at, table in enumerate(tables):
            if table.tenant not in (*names, ALL):
                there = ", ".join(names)
                yield (*place, at, "tenant"), f"no tenant {table.tenant!r}; there are {there}"
    if settings.statements_files and DEFAULT not in names:
        yield ("statements_files",), f"they belong to tenant {DEFAULT!r}, which is not there"
