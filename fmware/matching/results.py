"""What the middleware says of messages: columns of a batch, with objects on top.

A batch of messages gives `Results`. Its matches lie in columns, in three kinds: statements that
return their name, path tuples of statements that messages alone decide, and matches that the corpus
has decided. `Match` objects are made when a caller iterates over `Result.matches`; `to_arrow` gives
all of it at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, overload

from fmware.matching.plan import FRAGMENTS, PATHS, VALUES

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from fmware.filtering import FilterBatch
    from fmware.matching.anchors import Missing
    from fmware.matching.plan import Plan
    from fmware.matching.registry import Registry
    from labeling import NodeTable

__all__ = ["LocalMatches", "LocalNode", "Match", "Matches", "Result", "Results"]

UNDECIDED: Final = "not decided within the limit of work"
TRUNCATED: Final = "more path tuples than the limit allows; the rest is left out"


@dataclass(frozen=True, slots=True)
class LocalNode:
    """A node of the corpus that a statement selected.

    `path` leads to it from its record's root. Value and fragment are there if they are wanted.
    """

    tag: str
    start: int
    end: int
    level: int
    path: str
    source: str | None
    value: str | None = None
    fragment: bytes | None = None


@dataclass(frozen=True, slots=True)
class Match:
    """A statement that holds: the message's nodes, by row, and what was selected in the corpus.

    `nodes` are the rows of the path tuple, if the statement returns `message`. `value` and
    `fragment` are those of the message node that the statement selects, if it returns them; where
    it selects a node of the corpus, that node has them.
    """

    statement: str
    nodes: tuple[int, ...] = ()
    local: LocalNode | None = None
    value: str | None = None
    fragment: bytes | None = None


@dataclass(slots=True)
class LocalMatches:
    """The matches of statements that ask the corpus, in the order of messages.

    `ends` says by place where the matches of a message end. `rows` are those of the path tuple
    where the statement returns any node of the message.
    """

    ends: list[int]
    plans: list[Plan] = field(default_factory=list)
    rows: list[tuple[int, ...]] = field(default_factory=list)
    nodes: list[LocalNode | None] = field(default_factory=list)

    def span(self, place: int) -> range:
        """Which of the matches are those of a message."""
        return range(self.ends[place - 1] if place else 0, self.ends[place])


class Troubles:
    """What was said of single messages of a batch, by place."""

    __slots__ = ("errors", "missing", "unmatched")

    def __init__(self) -> None:
        self.errors: dict[int, list[Exception]] = {}
        self.unmatched: dict[int, int] = {}
        self.missing: dict[int, list[Missing]] = {}

    def add(self, place: int, error: Exception) -> None:
        """Note an error of a message."""
        self.errors.setdefault(place, []).append(error)


class Results(Sequence["Result"]):
    """What was found for a batch of messages, one `Result` each.

        results = middleware.publish_batch(messages)
        results[0].matches          # objects, made as they are asked for
        results.to_arrow()          # all matches as columns
        pa.table(results)           # any library that takes Arrow's PyCapsule interface

    `seconds` are those of the batch, by stage. Results stay valid when statements change, when the
    index moves on and when the middleware is closed. They hold the messages' bytes.
    """

    __slots__ = ("_first", "_names", "found", "local", "registry", "seconds", "troubles")

    def __init__(
        self,
        names: Sequence[str] | int,
        found: FilterBatch,
        registry: Registry,
        local: LocalMatches,
        troubles: Troubles,
        seconds: dict[str, float],
    ) -> None:
        self._first = names if isinstance(names, int) else 0
        self._names = None if isinstance(names, int) else names
        self.found = found
        self.registry = registry
        self.local = local
        self.troubles = troubles
        self.seconds = seconds

    def __len__(self) -> int:
        return len(self.found)

    @overload
    def __getitem__(self, place: int) -> Result: ...
    @overload
    def __getitem__(self, place: slice) -> list[Result]: ...
    def __getitem__(self, place: int | slice) -> Result | list[Result]:
        if isinstance(place, slice):
            return [Result(self, at) for at in range(*place.indices(len(self)))]
        at = place + len(self) if place < 0 else place
        if not 0 <= at < len(self):
            raise IndexError(f"no message {place} in a batch of {len(self)}")
        return Result(self, at)

    def __iter__(self) -> Iterator[Result]:
        return (Result(self, place) for place in range(len(self)))

    def message(self, place: int) -> str:
        """The name of a message: the one it was given, or its number."""
        return str(self._first + place) if self._names is None else self._names[place]

    @property
    def messages(self) -> list[str]:
        """The names of all messages."""
        return [self.message(place) for place in range(len(self))]

    @property
    def match_count(self) -> int:
        """How many matches there are, of all messages."""
        return len(self.found.ids) + len(self.found.told) + len(self.local.plans)

    @property
    def incomplete(self) -> list[Result]:
        """The messages whose answer is not whole; their `problems` say why."""
        found = self.found
        places = {*self.troubles.errors}
        for column in (4, 5):
            ends = found.ends_of(column)
            if ends and ends[-1]:
                places |= {at for at, (a, b) in enumerate(pairwise([0, *ends])) if a < b}
        return [Result(self, place) for place in sorted(places)]

    def match_counts(self) -> list[int]:
        """How many matches each message has."""
        found = self.found
        counts, before = [], 0
        for ends in zip(found.ends_of(0), found.ends_of(1), self.local.ends, strict=True):
            after = sum(ends)
            counts.append(after - before)
            before = after
        return counts

    def to_arrow(self) -> pa.Table:
        """All matches as an Arrow table, a row each, message by message.

        Columns: `message`, `statement`, `rows` and `nodes` (the path tuple, as rows of the
        message's NodeTable and as paths), `local_tag`, `local_path`, `start`, `end`, `level` and
        `source` of the node of the corpus, `value` and `fragment` of the node that the statement
        selects. What a statement does not return is null.
        """
        from fmware.matching.arrow import table_of

        return table_of(self)

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """The same as a pandas DataFrame; options are those of `pyarrow.Table.to_pandas`."""
        return self.to_arrow().to_pandas(**options)

    def to_json_lines(self) -> bytes:
        """All matches as lines of JSON, as `fmware match` writes them."""
        from fmware.matching.to_json import match_lines

        return b"".join(match_lines(self))

    def __arrow_c_schema__(self) -> object:
        from fmware.matching.arrow import SCHEMA

        return SCHEMA.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"<Results of {len(self)} messages: {self.match_count} matches>"


class Result:
    """What was found for one message.

    `missing` are anchors without a local counterpart, if they were asked for; `unmatched` is how
    many there were. `undecided` are statements that ran out of work, `truncated` those that have
    more tuples than are given. `seconds` are those of the batch the message was in, by stage.
    """

    __slots__ = ("place", "results")

    def __init__(self, results: Results, place: int) -> None:
        self.results = results
        """Those of its batch."""
        self.place = place
        """Its place among them."""

    @property
    def message(self) -> str:
        """The name of the message: the one it was given, or its number."""
        return self.results.message(self.place)

    @property
    def table(self) -> NodeTable | None:
        """The nodes of the message; None if it could not be read."""
        return self.results.found.table(self.place)

    @property
    def answered(self) -> bool:
        """Whether the message was read and filtered; `errors` has why it was not."""
        return self.results.found.answered(self.place)

    @property
    def matches(self) -> Matches:
        """The matches, made into objects when they are looked at."""
        return Matches(self.results, self.place)

    @property
    def errors(self) -> list[Exception]:
        """Why the message, or some of its statements, could not be answered."""
        return self.results.troubles.errors.get(self.place, [])

    @property
    def unmatched(self) -> int:
        return self.results.troubles.unmatched.get(self.place, 0)

    @property
    def missing(self) -> list[Missing]:
        return self.results.troubles.missing.get(self.place, [])

    @property
    def problems(self) -> list[str]:
        """Why the answer is not whole, in words: errors, and statements that ran into limits."""
        said = [getattr(error, "strerror", None) or str(error) for error in self.errors]
        said += [f"statement {name}: {UNDECIDED}" for name in self.undecided]
        return said + [f"statement {name}: {TRUNCATED}" for name in self.truncated]

    @property
    def undecided(self) -> list[str]:
        return self._named(4)

    @property
    def truncated(self) -> list[str]:
        return self._named(5)

    def _named(self, column: int) -> list[str]:
        found = self.results.found
        begin, end = found.span(self.place, column)
        numbers = (found.undecided if column == 4 else found.truncated)[begin:end]
        return [plan.name for plan in self.results.registry.plans(numbers.tolist())]

    @property
    def seconds(self) -> dict[str, float]:
        return self.results.seconds

    @property
    def statements(self) -> list[str]:
        """The statements that match, each once, in order."""
        results, place = self.results, self.place
        found, plans = results.found, results.registry.plans
        (a, b), (c, d) = found.span(place, 0), found.span(place, 1)
        names = {plan.name for plan in plans(found.ids[a:b].tolist())}
        names |= {plan.name for plan in plans(found.told[c:d, 0].tolist())}
        return sorted(names | {results.local.plans[at].name for at in results.local.span(place)})

    def __eq__(self, other: object) -> bool:
        """Whether both are the same message of the same batch."""
        if not isinstance(other, Result):
            return NotImplemented
        return self.results is other.results and self.place == other.place

    def __hash__(self) -> int:
        return hash((id(self.results), self.place))

    def __repr__(self) -> str:
        return f"<Result of {self.message}: {len(self.matches)} matches>"


class Matches(Sequence[Match]):
    """The matches of one message; a `Match` is made when it is looked at."""

    __slots__ = ("_made", "_place", "_results")

    def __init__(self, results: Results, place: int) -> None:
        self._results = results
        self._place = place
        self._made: list[Match] | None = None

    def __len__(self) -> int:
        results, place = self._results, self._place
        (a, b), (c, d) = results.found.span(place, 0), results.found.span(place, 1)
        return b - a + d - c + len(results.local.span(place))

    @overload
    def __getitem__(self, place: int) -> Match: ...
    @overload
    def __getitem__(self, place: slice) -> list[Match]: ...
    def __getitem__(self, place: int | slice) -> Match | list[Match]:
        return self._all()[place]

    def __iter__(self) -> Iterator[Match]:
        return iter(self._all())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._all() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def _all(self) -> list[Match]:
        if self._made is None:
            self._made = [*self._named(), *self._told(), *self._local()]
        return self._made

    def _named(self) -> Iterator[Match]:
        found = self._results.found
        begin, end = found.span(self._place, 0)
        for plan in self._results.registry.plans(found.ids[begin:end].tolist()):
            yield Match(plan.name)

    def _told(self) -> Iterator[Match]:
        found = self._results.found
        begin, end = found.span(self._place, 1)
        told = found.told[begin:end].tolist()
        if not told:
            return
        rows = found.rows
        plans = self._results.registry.plans([number for number, _, _ in told])
        for plan, (_, at, width) in zip(plans, told, strict=True):
            yield self._match(plan, tuple(rows[at : at + width].tolist()), None)

    def _local(self) -> Iterator[Match]:
        local = self._results.local
        for at in local.span(self._place):
            yield self._match(local.plans[at], local.rows[at], local.nodes[at])

    def _match(self, plan: Plan, rows: tuple[int, ...], local: LocalNode | None) -> Match:
        wanted = plan.nodes
        value = fragment = None
        if wanted & (VALUES | FRAGMENTS):
            table = self._results.found.table(self._place)
            assert table is not None
            value = table.string_value(rows[-1]) if wanted & VALUES else None
            fragment = table.fragment(rows[-1]) if wanted & FRAGMENTS else None
        return Match(plan.name, rows if wanted & PATHS else (), local, value, fragment)

    def __repr__(self) -> str:
        return f"<{len(self)} matches of {self._results.message(self._place)}>"
