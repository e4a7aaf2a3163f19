"""The layers of a configuration: a TOML file, the environment, `--set`; and who said what.

A place is a tuple of keys and of positions in lists, `("sources", 0, "url")`, written
`sources.0.url` in `--set` and `FMWARE_SOURCES__0__URL` in the environment. Values of both may be
plain text, or a list or a table in TOML.
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["Layers", "Place", "Problem", "nearest", "read_layers"]

Place: TypeAlias = tuple[int | str, ...]

PREFIX: Final = "FMWARE_"
RESERVED: Final = {"FMWARE_CONFIG", "FMWARE_DEBUG", "FMWARE_KERNELS_LATER"}
"""Variables that are no settings."""
_HEADER: Final = re.compile(r"\s*(\[\[?)\s*([A-Za-z0-9_.\"' -]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY: Final = re.compile(r"\s*([A-Za-z0-9_.-]+)\s*=")
_LINE: Final = re.compile(r"\(at line (\d+), column (\d+)\)")


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong: where it was said, the key, what to do."""

    where: str
    key: str
    what: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.where, self.key, self.what) if part)


@dataclass(slots=True)
class Layers:
    """What was said, by whom, and what could not be understood of it."""

    file: Path | None = None
    data: dict[str, Any] = field(default_factory=dict)
    lines: dict[Place, int] = field(default_factory=dict)
    said: dict[Place, tuple[str, Any]] = field(default_factory=dict)
    """Places in the environment and in `--set`, in the order in which they count."""
    problems: list[Problem] = field(default_factory=list)
    merged: dict[str, Any] = field(default_factory=dict)

    def file_json(self) -> str:
        """What the file says."""
        return json.dumps(self.data, default=str)

    def merge(self) -> None:
        """Put all layers together, the later over the earlier."""
        self.merged = json.loads(self.file_json())
        for place, (where, value) in self.said.items():
            if not _put(self.merged, place, value):
                what = "entries of a list are numbered from 0, without gaps"
                self.problems.append(Problem(where, _dotted(place), what))

    def merged_json(self) -> str:
        """What all layers say together."""
        return json.dumps(self.merged, default=str)

    def value(self, place: Place) -> Any:
        """What a place has, or None."""
        found: Any = self.merged
        for part in place:
            try:
                found = found[part]
            except (KeyError, IndexError, TypeError):
                return None
        return found

    def base(self, place: Place) -> Path:
        """Where a relative path starts that was written at a place."""
        spoken = any(place[: len(said)] == said for said in self.said)
        return Path.cwd() if spoken or self.file is None else self.file.parent.absolute()

    def problem(self, place: Place, what: str) -> Problem:
        """A problem at a place, with who said it."""
        return Problem(self._where(place), _dotted(place), what)

    def _where(self, place: Place) -> str:
        for end in range(len(place), 0, -1):
            if place[:end] in self.said:
                return self.said[place[:end]][0]
        for said, (where, _) in self.said.items():
            if said[: len(place)] == place:
                return where
        if self.file is None:
            return ""
        for end in range(len(place), 0, -1):
            if line := self.lines.get(place[:end]):
                return f"{self.file}, line {line}"
        return str(self.file)


def read_layers(
    path: str | Path | None,
    environ: Mapping[str, str],
    overrides: Iterable[str],
    *,
    known: frozenset[str],
) -> Layers:
    """The layers; `known` are the keys at the top, by which variables of others are told apart."""
    layers = Layers()
    if path is not None:
        _read_file(Path(path), layers)
    for name, value in environ.items():
        if (place := _variable(name, known)) is not None:
            _say(layers, place, name, value)
    for each in overrides:
        key, equals, value = each.partition("=")
        if not (key.strip() and equals):
            layers.problems.append(Problem(f"--set {each}", "", "write it as a.b=value"))
            continue
        _say(layers, _place(key.strip().split(".")), f"--set {each}", value)
    layers.merge()
    return layers


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that was meant, if one is near."""
    return next(iter(get_close_matches(name, list(names), 1, 0.6)), None)


# --- the file -----------------------------------------------------------------------------------


def _read_file(path: Path, layers: Layers) -> None:
    layers.file = path
    data = path.read_bytes()
    try:
        text = data.decode("utf-8")
        layers.data = tomllib.loads(text)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        layers.problems.append(Problem(f"{path}, line {line}", "", "not UTF-8: save it as such"))
    except tomllib.TOMLDecodeError as error:
        said = _LINE.search(str(error))
        where = f"{path}, line {said[1]}, column {said[2]}" if said else str(path)
        what = _LINE.sub("", str(error)).strip()
        layers.problems.append(Problem(where, "", f"not TOML: {what}"))
    else:
        layers.lines = dict(_lines(text))


def _lines(text: str) -> Iterator[tuple[Place, int]]:
    """The line of each table and key; only of what stands at the beginning of a line."""
    counts: dict[Place, int] = {}
    table: Place = ()
    quotes = ""
    for number, line in enumerate(text.splitlines(), 1):
        if not quotes:
            if header := _HEADER.match(line):
                table = _table(header[2], counts, many=header[1] == "[[")
                yield table, number
            elif key := _KEY.match(line):
                yield (*table, *key[1].split(".")), number
        quotes = _open_quotes(line, quotes)


def _table(name: str, counts: dict[Place, int], *, many: bool) -> Place:
    """The place of a header; in a list of tables, it is the newest one that is meant."""
    place: Place = ()
    parts = [part.strip().strip("\"'") for part in name.split(".")]
    for at, part in enumerate(parts, 1):
        place = (*place, part)
        if many and at == len(parts):
            counts[place] = counts.get(place, -1) + 1
        if place in counts:
            place = (*place, counts[place])
    return place


def _open_quotes(line: str, quotes: str) -> str:
    """The quotes of a text over several lines that is open at the end of a line."""
    for each in re.findall(r'"""|\'\'\'', line):
        if not quotes:
            quotes = each
        elif quotes == each:
            quotes = ""
    return quotes


# --- the environment and --set ------------------------------------------------------------------


def _variable(name: str, known: frozenset[str]) -> Place | None:
    """The place that a variable names; None if it is not meant for the settings.

    Others use the prefix, too: Kubernetes sets `FMWARE_SERVICE_HOST` for a service of that name.
    What is nested, or nearly a known key, is meant, and an unknown key is then an error.
    """
    if not name.startswith(PREFIX) or name in RESERVED:
        return None
    parts = name.removeprefix(PREFIX).lower().split("__")
    near = get_close_matches(parts[0], known, 1, 0.75)
    return _place(parts) if len(parts) > 1 or near else None


def _say(layers: Layers, place: Place, where: str, text: str) -> None:
    value: Any = text
    if text.lstrip()[:1] in {"[", "{", '"', "'"}:
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError as error:
            what = _LINE.sub("", str(error)).strip()
            layers.problems.append(Problem(where, _dotted(place), f"not a TOML value: {what}"))
            return
    for earlier in [each for each in layers.said if each[: len(place)] == place]:
        del layers.said[earlier]
    layers.said[place] = (where, value)


def _place(parts: Iterable[str]) -> Place:
    return tuple(int(part) if part.isdecimal() else part for part in parts)


def _dotted(place: Place) -> str:
    return ".".join(map(str, place))


def _put(tree: Any, place: Place, value: Any) -> bool:
    """Set one value; tables and lists on the way are made. Whether there was a place for it."""
    *way, last = place
    for part, after in zip(way, place[1:], strict=False):
        held = _get(tree, part)
        if not isinstance(held, dict | list):
            held = [] if isinstance(after, int) else {}
            if not _assign(tree, part, held):
                return False
        tree = held
    return _assign(tree, last, value)


def _get(tree: Any, part: int | str) -> Any:
    if isinstance(tree, list):
        return tree[part] if isinstance(part, int) and part < len(tree) else None
    return tree.get(str(part))


def _assign(tree: Any, part: int | str, value: Any) -> bool:
    if isinstance(tree, dict):
        tree[str(part)] = value
        return True
    if not isinstance(part, int) or part > len(tree):
        return False
    tree[part : part + 1] = [value]
    return True
