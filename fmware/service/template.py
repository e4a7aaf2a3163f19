"""The commented `fmware.toml` of `fmware init`: every option, its default, and a sentence.

It is written from the tables themselves, so it cannot fall behind them. A sentence follows `# `;
what follows `#` at once is TOML that has only to be uncommented.
"""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pydantic_core import PydanticUndefined

from fmware.service.tables import (
    AmqpSink,
    AmqpSource,
    EngineSettings,
    Expected,
    FilesSink,
    FilesSource,
    NatsSink,
    NatsSource,
    PythonSink,
    PythonSource,
    Quota,
    Server,
    Settings,
    StatementSettings,
    StdioSink,
    StdioSource,
    Table,
    Target,
    Tenant,
    Test,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic.fields import FieldInfo

__all__ = ["guide", "reference", "template"]

Section: TypeAlias = tuple[str, list[tuple[str, str, str]]]

WIDTH: Final = 96
HEAD: Final = """\
# The configuration of `fmware serve` and `fmware test`. What stands here are the defaults.
#
# FMWARE_SERVER__PORT=9000 in the environment says the same as port in [server], and goes before
# it; `--set server.port=9000` goes before both. Relative paths start at this file's directory.
# `fmware init --schema` prints a JSON schema, with which editors complete and check this file.
"""
FIRST: Final[Mapping[str, str]] = {
    "statements": """\
# A first statement, which asks messages alone, and below a test of it: put yours in their place.
[[statements]]
name = "large orders"
expression = "//order[quantity > 5]"
""",
    "tests": """\
[[tests]]
name = "an order of seven is large"
message = "<order><quantity>7</quantity></order>"
matches = [{ statement = "large orders" }]
""",
}
"""What is there to begin with, so that `fmware test` has something to do."""
EXAMPLES: Final[Mapping[type[Table], Mapping[str, Any]]] = {
    EngineSettings: {"scheme": "path"},
    Server: {"metrics_token_env": "METRICS_TOKEN"},
    Tenant: {
        "name": "default",
        "token_sha256": ["0" * 64],
        "token_env": "DEFAULT_TOKEN",
    },
    StatementSettings: {
        "name": "bulk",
        "filter": "//order/book[quantity > 5]",
        "match": "publisher",
        "anchor": "book",
        "axis": "child",
        "returns": ["message", "local", "value"],
        "namespaces": {"o": "urn:orders"},
    },
    FilesSource: {"name": "inbox", "kind": "files", "path": "inbox", "done": "done"},
    StdioSource: {"name": "pipe", "kind": "stdio"},
    NatsSource: {"name": "orders", "kind": "nats", "stream": "ORDERS", "subject": "orders.>"},
    AmqpSource: {"name": "rabbit", "kind": "amqp", "queue": "orders"},
    PythonSource: {
        "name": "journal",
        "kind": "python",
        "use": "our.journal:Tail",
        "options": {"path": "journal.xml"},
    },
    FilesSink: {"name": "kept", "kind": "files", "path": "matches"},
    StdioSink: {"name": "shown", "kind": "stdio"},
    NatsSink: {"name": "out", "kind": "nats", "stream": "MATCHES"},
    AmqpSink: {"name": "rabbit", "kind": "amqp"},
    PythonSink: {
        "name": "ledger",
        "kind": "python",
        "use": "our.ledger:Ledger",
        "options": {"path": "ledger.db"},
    },
    Target: {
        "name": "crm",
        "url": "https://crm.example.com/fmware",
        "statements": ["bulk"],
        "secret_env": "CRM_SECRET",
        "old_secret_env": "CRM_OLD_SECRET",
    },
    Test: {
        "name": "bulk orders find their publisher",
        "message": "<order><book key='b1'><quantity>7</quantity></book></order>",
    },
    Expected: {"statement": "bulk", "value": "Weber", "tag": "publisher"},
}
"""What is written where there is no default."""
OTHER_WAYS: Final = {
    (StatementSettings, "expression"): "//order/book[quantity > 5]/local:publisher",
    (Test, "file"): "messages/bulk.xml",
    (Test, "error"): "DOCTYPE",
    (Expected, "path"): "/book[1]/publisher[1]",
    (Expected, "fragment"): "<publisher>Weber</publisher>",
    (Expected, "nodes"): ["/order[1]", "/order[1]/book[1]"],
}
"""Options that do not go together with those of the example: shown, but not to be uncommented."""


def template(said: Mapping[str, Any] | None = None) -> str:
    """The file; `said` are values for keys at the top, in place of their defaults."""
    lines = [HEAD]
    fields = Settings.model_fields
    plain = {key: each for key, each in fields.items() if not _tables(each.annotation)}
    for key, field in plain.items():
        value = (said or {}).get(key, field.get_default(call_default_factory=True))
        lines += [*_sentence(field.description), f"{key} = {_toml(value)}", ""]
    for key, field in fields.items():
        if key not in plain:
            lines += _table(key, field)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def reference() -> Iterator[Section]:
    """Every table by its name, with its options: key, default, sentence."""
    fields = Settings.model_fields
    plain = [key for key, each in fields.items() if not _tables(each.annotation)]
    yield "at the top", [_row(key, fields[key]) for key in plain]
    for key, field in fields.items():
        for model in _tables(field.annotation):
            yield from _sections(key, model, many=_many(field))


def guide() -> str:
    """The same in Markdown, as it stands at the end of the operators' guide."""
    parts = []
    for name, rows in reference():
        head = f"| {name} | default | |\n|---|---|---|\n"
        parts.append(head + "".join(f"| {' | '.join(_cell(each))} |\n" for each in rows))
    return "\n".join(parts)


def _cell(row: tuple[str, str, str]) -> tuple[str, str, str]:
    key, default, sentence = row
    shown = f"`{default}`" if default not in ("", "required") else default
    return f"`{key}`", shown, sentence.replace("|", "\\|")


def _sections(key: str, model: type[Table], *, many: bool) -> Iterator[Section]:
    fields = model.model_fields
    inner = {name: each for name, each in fields.items() if _tables(each.annotation)}
    title = f"`[[{key}]]`" if many else f"`[{key}]`"
    if "kind" in fields:
        title += f" of kind `{EXAMPLES[model]['kind']}`"
    yield title, [_row(name, each) for name, each in fields.items() if name not in inner]
    for name, field in inner.items():
        for each in _tables(field.annotation):
            yield from _sections(f"{key}.{name}", each, many=_many(field))


def _row(key: str, field: FieldInfo) -> tuple[str, str, str]:
    default = field.get_default(call_default_factory=True)
    if default is PydanticUndefined:
        return key, "required", field.description or ""
    return key, "" if default is None else _toml(default), field.description or ""


# --- tables -------------------------------------------------------------------------------------


def _table(key: str, field: FieldInfo) -> list[str]:
    lines = ["", *_sentence(field.description)]
    models = _tables(field.annotation)
    if _many(field):
        first = [FIRST[key]] if key in FIRST else []
        return lines + first + [line for each in models for line in _example(key, each)]
    lines.append(f"[{key}]")
    after: list[str] = []
    for name, inner in models[0].model_fields.items():
        if _tables(inner.annotation):
            after += ["", *_sentence(inner.description)]
            after += _example(f"{key}.{name}", _tables(inner.annotation)[0])
        else:
            lines += _option(name, inner, EXAMPLES.get(models[0], {}))
    return [*lines, *after, ""]


def _option(key: str, field: FieldInfo, examples: Mapping[str, Any]) -> list[str]:
    value = field.get_default(call_default_factory=True)
    said = f"#{key} = {_toml(examples[key])}" if value is None else f"{key} = {_toml(value)}"
    return [*_sentence(field.description), said]


def _example(key: str, model: type[Table]) -> list[str]:
    """A table of a list, to be uncommented."""
    shown = EXAMPLES[model]
    lines = [f"#[[{key}]]"]
    after: list[str] = []
    for name, field in model.model_fields.items():
        if (inner := _tables(field.annotation)) and inner[0] is Quota:
            after += _quota(f"{key}.{name}", inner[0])
        elif inner:
            after += _example(f"{key}.{name}", inner[0])
        elif (model, name) in OTHER_WAYS:
            lines += _sentence(field.description)
            lines.append(f"# {name} = {_toml(OTHER_WAYS[model, name])}")
        else:
            default = field.get_default(call_default_factory=True)
            lines += [*_sentence(field.description), f"#{name} = {_toml(shown.get(name, default))}"]
    return [*lines, *after, ""]


def _quota(key: str, model: type[Table]) -> list[str]:
    lines = [f"#[{key}]"]
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True)
        lines += [*_sentence(field.description), f"#{name} = {_toml(default)}"]
    return lines


def _sentence(text: str | None) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text or "", WIDTH)]


def _tables(annotation: Any) -> list[type[Table]]:
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return [annotation]
    return [each for part in getattr(annotation, "__args__", ()) for each in _tables(part)]


def _many(field: FieldInfo) -> bool:
    return getattr(field.annotation, "__origin__", None) is tuple


def _toml(value: Any) -> str:
    """A value as TOML; what JSON writes of texts, TOML reads."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"{value:_}" if value >= 10_000 else str(value)
        case Path():
            return json.dumps(str(value))
        case dict():
            inner = ", ".join(f"{key} = {_toml(each)}" for key, each in value.items())
            return f"{{ {inner} }}" if inner else "{}"
        case list() | tuple():
            return f"[{', '.join(map(_toml, value))}]"
        case _:
            return json.dumps(value, ensure_ascii=False)
