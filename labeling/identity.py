"""Identity rules: which value tells a node apart, so that a message can name it.

`article=@key` says that an article is known by its attribute `key`; `person=name/last` by the
text of a descendant reached over children; `isbn=.` by its own text; `*=@id` holds for every
element that has one. Names are Clark names. White space around a key is not part of it, and an
empty key is none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fmware.labeling._kernel import ATTRIBUTE, ELEMENT, TEXT
from fmware.labeling.arrow import column
from fmware.labeling.errors import RuleError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from fmware.labeling.table import NodeTable

__all__ = ["IdentityRule", "keys_of", "parse_rules"]

_NAME = r"(?:\{[^{}]*\})?[^\s{}/@=*\[\]().]+(?:\.[^\s{}/@=*\[\]().]+)*"
_RULE = re.compile(
    rf"\s*(?P<element>\*|{_NAME})\s*=\s*"
    rf"(?:(?P<self>\.)|(?P<steps>(?:{_NAME}/)*)(?:@(?P<attribute>{_NAME})|(?P<last>{_NAME})))\s*"
)
_STEP = re.compile(_NAME)


@dataclass(frozen=True, slots=True)
class IdentityRule:
    """Elements of a name (or `*`), the children to go down, and the attribute to take there."""

    element: str
    steps: tuple[str, ...] = ()
    attribute: str | None = None

    @classmethod
    def parse(cls, text: str) -> IdentityRule:
        match = _RULE.fullmatch(text)
        if match is None:
            raise RuleError(
                f"{text!r} is no identity rule; write ELEMENT=@ATTRIBUTE, ELEMENT=CHILD/CHILD or "
                "ELEMENT=CHILD/@ATTRIBUTE, for example article=@key"
            )
        steps = _STEP.findall(match["steps"] or "")
        if match["last"]:
            steps.append(match["last"])
        return cls(match["element"], tuple(steps), match["attribute"])

    def __str__(self) -> str:
        path = [*self.steps, *([f"@{self.attribute}"] if self.attribute else [])]
        return f"{self.element}={'/'.join(path) or '.'}"


def _matches(
    table: NodeTable, rule: IdentityRule, elements: set[str]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Rows of the nodes that hold a key, and of the elements they are keys of.

    `elements` are the names that the rule is for; the rule's own says nothing here.
    """
    if rule.attribute is not None:
        rows = table.rows_of(rule.attribute, ATTRIBUTE)
        owners = table.parent[rows].astype(np.intp)
    elif rule.steps:
        owners = rows = table.rows_of(rule.steps[-1])
    else:
        owners = rows = np.flatnonzero(table.kind == ELEMENT)
    for step in reversed(rule.steps):
        rows, owners = _named(table, {step}, rows, owners)
        # A root has no parent: row -1 would be the last one.
        inner = table.parent[owners] >= 0
        rows, owners = rows[inner], table.parent[owners[inner]].astype(np.intp)
    return _named(table, elements, rows, owners)


def _named(
    table: NodeTable, names: set[str], rows: npt.NDArray[np.intp], owners: npt.NDArray[np.intp]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    if "*" in names:
        return rows, owners
    tags = [tag for name in names if (tag := table.vocabulary.get(name)) is not None]
    # A look-up costs the same however many names there are.
    wanted = np.zeros(max(tags, default=0) + 1, np.bool_)
    wanted[tags] = True
    found = table.tag[owners]
    named = wanted[np.minimum(found, len(wanted) - 1)] & (found < len(wanted))
    return rows[named], owners[named]


def parse_rules(texts: Iterable[str | IdentityRule]) -> tuple[IdentityRule, ...]:
    """The rules, each once."""
    rules = (each if isinstance(each, IdentityRule) else IdentityRule.parse(each) for each in texts)
    return tuple(dict.fromkeys(rules))


def keys_of(
    table: NodeTable, rules: Iterable[IdentityRule], counts: dict[str, int] | None = None
) -> Iterator[tuple[npt.NDArray[np.intp], pa.StringArray]]:
    """The rows of elements that have keys, and the key of each, in some batches.

    The keys that each rule gave are added to `counts`, by the text of the rule.
    """
    alike: dict[tuple[tuple[str, ...], str | None], list[IdentityRule]] = {}
    for rule in rules:
        alike.setdefault((rule.steps, rule.attribute), []).append(rule)
    for same in alike.values():
        rows, owners = _matches(table, same[0], {rule.element for rule in same})
        if len(rows) == 0:
            continue
        keys = pc.ascii_trim(_values(table, rows), characters=" \t\r\n")
        there = pc.greater(pc.binary_length(keys), 0)
        if not pc.all(there).as_py():
            owners, keys = owners[there.to_numpy(zero_copy_only=False)], keys.filter(there)
        if counts is not None:
            _count(table, same, owners, counts)
        yield owners, keys


def _count(
    table: NodeTable,
    rules: Iterable[IdentityRule],
    owners: npt.NDArray[np.intp],
    counts: dict[str, int],
) -> None:
    """Add the keys of each of some rules that differ in their element alone."""
    tags = np.bincount(table.tag[owners], minlength=1)
    for rule in rules:
        tag = table.vocabulary.get(rule.element)
        of_tag = int(tags[tag]) if tag is not None and tag < len(tags) else 0
        found = len(owners) if rule.element == "*" else of_tag
        counts[str(rule)] = counts.get(str(rule), 0) + found


def _values(table: NodeTable, rows: npt.NDArray[np.intp]) -> pa.StringArray:
    """The values of attributes, or the string-values of elements."""
    if table.kind[rows[0]] == ATTRIBUTE:
        return _column(table).take(column(rows))
    sizes = (table.end[rows] - table.start[rows] + 1) >> 1
    # Nearly always an element with a key holds just that, in the row behind it.
    simple = (sizes == 2) & (table.kind[np.minimum(rows + 1, len(table) - 1)] == TEXT)
    if simple.all():
        return _column(table).take(column(rows + 1))
    return pa.array([table.string_value(row) for row in rows.tolist()], pa.utf8())


def _column(table: NodeTable) -> pa.StringArray:
    buffers = [None, pa.py_buffer(table.value_offsets), pa.py_buffer(table.value_bytes)]
    return pa.Array.from_buffers(pa.utf8(), len(table), buffers)
