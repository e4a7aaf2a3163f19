"""Changes of statements on their way into the automaton.

The automaton stands still while a document is filtered. A change that waited for the document
would take as long as that does, so a change that finds documents in the automaton is queued
instead. Every document begins by settling what is queued: it is answered by the statements that
were subscribed when it was handed in, and perhaps by some that came since.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from fmware.filtering._kernel import Automaton, Segment, Want
    from fmware.filtering.plan import Resolver
    from fmware.filtering.rules import Compiled
    from fmware.xpath import Path

__all__ = [
    "Change",
    "Changes",
    "Insert",
    "InsertPlain",
    "InsertRule",
    "Remove",
    "RemoveRule",
]

MOST_QUEUED: Final = 1_000
"""Changes. A few MB of statements; with more, the next one waits for the documents after all."""


class InsertPlain(NamedTuple):
    """A statement without conditions; None as axes and tags: one that no document can match."""

    number: int
    axes: list[int] | None
    tags: list[int]

    def apply(self, changes: Changes) -> None:
        """Put it into the automaton."""
        if self.axes is None:
            changes.automaton.add_dead(self.number)
        else:
            changes.automaton.add_plain(self.number, self.axes, self.tags)


class Insert(NamedTuple):
    """A statement with conditions, or of which tuples are asked for."""

    number: int
    key: object
    segments: list[Segment]
    plan: Path | None
    resolve: Resolver
    wants: Want

    def apply(self, changes: Changes) -> None:
        """Put it into the automaton, where equal statements are one pattern."""
        automaton = changes.automaton
        pattern = changes.patterns.get(self.key)
        if pattern is None:
            pattern = automaton.add_pattern(self.segments, self.plan, self.resolve)
            changes.patterns[self.key] = pattern
        elif self.plan is not None:
            automaton.add_plan(pattern, self.plan, self.resolve)
        automaton.add_to_pattern(self.number, pattern, self.wants)
        changes.keys[self.number] = self.key


class InsertRule(NamedTuple):
    """A statement that a rule decides from its atoms, the paths that the automaton looks for."""

    number: int
    wants: Want
    atoms: list[int]
    insertions: list[Change]
    rule: Compiled
    exact: bool

    def apply(self, changes: Changes) -> None:
        """Put its atoms and the rule into the automaton; on failure, none of them."""
        done = 0
        try:
            for each in self.insertions:
                each.apply(changes)
                done += 1
            rule, atoms = self.rule, self.atoms
            triggers = {atoms[place] for place in rule.triggers}
            changes.automaton.add_rule(
                self.number,
                self.wants,
                atoms,
                rule.code,
                triggers,
                rule.program,
                self.exact,
                rule.tags,
            )
        except BaseException:
            for atom in self.atoms[:done]:
                Remove(atom).apply(changes)
            raise


class Remove(NamedTuple):
    """A statement goes."""

    number: int

    def apply(self, changes: Changes) -> None:
        """Take it out of the automaton."""
        key = changes.keys.pop(self.number, None)
        if changes.automaton.remove(self.number) >= 0:
            del changes.patterns[key]


class RemoveRule(NamedTuple):
    """A statement with a rule goes, and its atoms with it."""

    number: int
    atoms: list[int]

    def apply(self, changes: Changes) -> None:
        """Take all of it out of the automaton."""
        changes.automaton.remove(self.number)
        for atom in self.atoms:
            Remove(atom).apply(changes)


class Change(Protocol):
    """What is done to the automaton as a whole, or not at all before a document."""

    def apply(self, changes: Changes) -> None:
        """Do it. REQUIRES: the automaton is held."""


class Changes:
    """The queue, and the order in which its changes become visible to documents.

    Threads may call `put` and `settle` at any time. `put` does not wait for documents unless the
    queue is full.
    """

    def __init__(self, automaton: Automaton) -> None:
        self.automaton = automaton
        self.patterns: dict[object, int] = {}
        self.keys: dict[int, object] = {}
        self.version = automaton.version
        """Counts changes, those that are queued included."""
        self._queue: deque[Change] = deque()
        self._order = threading.Lock()  # of the queue and the version
        self._turn = threading.Lock()  # of the thread that applies changes

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, *changes: Change) -> None:
        """Make changes, at once or before the next document; one document sees all or none.

        Raises MemoryError if they cannot be made; the queue does not hold them then.
        """
        with self._order:
            self._queue.extend(changes)
            self.version += 1
            self.automaton.waiting = True
        try:
            if len(self._queue) > MOST_QUEUED:
                self.settle()
            elif self._turn.acquire(blocking=False):
                try:
                    if self.automaton.try_change():
                        self._apply()
                finally:
                    self._turn.release()
        except BaseException:
            self._withdraw(changes)
            raise

    def settle(self) -> None:
        """Make all changes that are queued, waiting for documents in the automaton if need be.

        Raises MemoryError if one cannot be made. It stays in the queue, so that no document is
        answered without it.
        """
        if self._queue:
            with self._turn:
                self.automaton.begin_change()
                self._apply()

    def _apply(self) -> None:
        """Make what is queued, and let documents in. REQUIRES: `_turn`, the automaton is held."""
        try:
            with self._order:
                count = len(self._queue)
                self.automaton.begin_version(self.version)
                self.automaton.waiting = False
            for _ in range(count):
                self._queue[0].apply(self)
                self._queue.popleft()
        except BaseException:
            with self._order:
                self.version += 1  # what is left is of another version than what was made
                self.automaton.waiting = True
            raise
        finally:
            self.automaton.end_change()

    def _withdraw(self, changes: tuple[Change, ...]) -> None:
        with self._turn, self._order:
            left = [each for each in self._queue if not any(each is own for own in changes)]
            self._queue.clear()
            self._queue.extend(left)
