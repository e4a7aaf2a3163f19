"""Which records an upsert replaces: those whose root has the key of a new record's root."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fmware.errors import FMwareError
from fmware.labeling.identity import IdentityRule, keys_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fmware.index import Index
    from fmware.labeling.job import Corpus
    from fmware.labeling.runs import MemoryRun
    from fmware.labeling.table import NodeTable

    Ranges = np.ndarray[Any, np.dtype[np.int64]]
    Key = tuple[str, bytes]

__all__ = ["UpsertError", "replaced_by", "rule_for"]


class UpsertError(FMwareError, ValueError):
    """Records that cannot be put in the place of others: without a key, or with the same one."""


def rule_for(
    corpus: Corpus, rules: Sequence[IdentityRule], by: str | None
) -> tuple[IdentityRule, bool]:
    """The rule that tells the records of a corpus apart, and whether it is the only one for them.

    Raises an `UpsertError` if there is none, or several and `by` names none of them.
    """
    roots = {tag for run in corpus.held for tag, _ in _roots(run)}
    return _rule(rules, roots, by), len(_fitting(rules, roots)) == 1


def replaced_by(reader: Index, corpus: Corpus, rule: IdentityRule) -> Ranges:
    """(start, end) of the records of an index that those of a corpus replace.

    Args:
        reader: the index, as it is now.
        corpus: new records, in memory, labelled with no other rule for their roots.
        rule: what tells them apart.

    Raises:
        UpsertError: a record has no key, or two have the same.
    """
    found: dict[int, int] = {}
    for name, key in _keys(corpus, rule):
        for start in reader.identify(name, [key]).right.start.tolist():
            record = reader.record(start)
            if start == record.start and key in _root_keys(reader.table(start), rule):
                found[record.start] = record.end
    return np.array(sorted(found.items()), np.int64).reshape(-1, 2)


def _fitting(rules: Sequence[IdentityRule], roots: set[str]) -> list[IdentityRule]:
    return [rule for rule in rules if rule.element in roots or rule.element == "*"]


def _rule(rules: Sequence[IdentityRule], roots: set[str], by: str | None) -> IdentityRule:
    fitting = _fitting(rules, roots)
    if by is not None:
        wanted = IdentityRule.parse(by)
        if wanted not in fitting:
            there = ", ".join(map(str, fitting)) or "none"
            raise UpsertError(f"no identity rule {wanted} is for these records; there are: {there}")
        return wanted
    if not fitting:
        said = ", ".join(sorted(roots)) or "these records"
        raise UpsertError(f"the index has no identity rule for {said}: nothing tells them apart")
    if len(fitting) > 1:
        there = ", ".join(map(str, fitting))
        raise UpsertError(f"several identity rules are for these records, name one: {there}")
    return fitting[0]


def _keys(corpus: Corpus, rule: IdentityRule) -> Iterator[Key]:
    """The element and keys of each new record; each has one, and no two the same."""
    seen: set[Key] = set()
    for run in corpus.held:
        for name, found in _roots(run):
            if not found:
                raise UpsertError(f"a record <{name}> has no key by {rule}; nothing was changed")
            for key in found:
                if (name, key) in seen:
                    said = f"two records <{name}> have the key {key.decode()!r}"
                    raise UpsertError(f"{said}; nothing was changed")
                seen.add((name, key))
                yield name, key


def _starts(run: MemoryRun) -> Ranges:
    parts = [block.starts for block in run.records()]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _roots(run: MemoryRun) -> Iterator[tuple[str, list[bytes]]]:
    """The name and keys of the root of each record of a run, from its columns."""
    starts = _starts(run)
    for number, tag in enumerate(run.tags):
        if tag.kind:
            continue
        own = run.nodes(number).start
        keys = _by_row(run, number)
        for row in np.flatnonzero(np.isin(own, starts)).tolist():
            yield tag.name, keys.get(row, [])


def _by_row(run: MemoryRun, tag: int) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    keys = run.keys(tag)
    if keys is not None:
        data = keys.data.tobytes()
        for at, row in enumerate(keys.row.tolist()):
            found.setdefault(row, []).append(data[keys.offsets[at] : keys.offsets[at + 1]])
    return found


def _root_keys(table: NodeTable, rule: IdentityRule) -> set[bytes]:
    """The keys that a rule gives the root of a record."""
    return {
        key.encode()
        for rows, keys in keys_of(table, [rule])
        for row, key in zip(rows.tolist(), keys.to_pylist(), strict=True)
        if row == 0
    }
