"""What the middleware says of messages: columns of a batch, with objects on top.

A batch of messages gives `Results`. Its matches lie in columns, in three kinds: statements that
return their name, path tuples of statements that messages alone decide, and matches that the corpus
has decided. `Match` objects are made when a caller iterates over `Result.matches`; `to_arrow` gives
all of it at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, overload

from fmware.labeling.html import html_table
from fmware.matching._kernel import Hits
from fmware.matching.plan import FRAGMENTS, PATHS, VALUES

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    import numpy as np
    import numpy.typing as npt
    import pandas as pd
    import pyarrow as pa

    from fmware.filtering import FilterBatch
    from fmware.index import Segment
    from fmware.labeling import NodeTable
    from fmware.matching.anchors import Missing
    from fmware.matching.described import Descriptions
    from fmware.matching.limits import MatchLimits
    from fmware.matching.plan import Plan
    from fmware.matching.registry import Registry

__all__ = ["LocalMatches", "LocalNode", "Match", "Matches", "Result", "Results"]

UNDECIDED: Final = "not decided within the limit of work"
TRUNCATED: Final = "more matches than the limits allow; the rest is left out"


class LocalNode:
    """A node of the corpus that a statement selected.

    `tag` has an `@` before it if the node is an attribute, and is `#text` for text; `start`, `end`
    and `level` are its AD label. `value` and `fragment`, its XML, are there if the statement
    returns them.

    `path` and `source` are read from the record when one of them is first asked for, which may
    raise a `StoreError`; until then the node keeps the files of its index open. Nodes are equal if
    all of this is.
    """

    __slots__ = (
        "_path",
        "_segment",
        "_source",
        "end",
        "fragment",
        "level",
        "start",
        "tag",
        "value",
    )

    def __init__(
        self,
        tag: str,
        start: int,
        end: int,
        level: int,
        path: str,
        source: str | None,
        value: str | None = None,
        fragment: bytes | None = None,
    ) -> None:
        self.tag = tag
        self.start = start
        self.end = end
        self.level = level
        self.value = value
        self.fragment = fragment
        self._path = path
        self._source = source
        self._segment: Segment | None = None

    @classmethod
    def later(
        cls,
        segment: Segment,
        tag: str,
        label: tuple[int, int, int],
        value: str | None,
        fragment: bytes | None,
    ) -> Self:
        """A node of which path and source are to be read when they are asked for."""
        node = cls(tag, *label, "", None, value, fragment)
        node._segment = segment
        return node

    def _read(self) -> None:
        segment = self._segment
        if segment is not None:
            table = segment.table(self.start)
            self._path = table.path(int(table.start.searchsorted(self.start)))
            self._source = table.source
            segment.check()
            # Last: another thread that reads at the same time comes to the same.
            self._segment = None

    @property
    def path(self) -> str:
        """An XPath that leads to it from its record's root."""
        self._read()
        return self._path

    @property
    def source(self) -> str | None:
        """The file that its record is from, if it is known."""
        self._read()
        return self._source

    def _known(self) -> tuple[str, int, int, int, str | None, bytes | None]:
        return self.tag, self.start, self.end, self.level, self.value, self.fragment

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LocalNode):
            return NotImplemented
        if self is other:
            return True
        same = self._known() == other._known()
        return same and (self.path, self.source) == (other.path, other.source)

    def __hash__(self) -> int:
        return hash(self._known())

    def __repr__(self) -> str:
        label = f"start={self.start}, end={self.end}, level={self.level}"
        value = "" if self.value is None else f", value={self.value!r}"
        return f"LocalNode(tag={self.tag!r}, {label}{value})"


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


class LocalMatches:
    """The matches of statements that ask the corpus.

    - `hits`: columns, a line a match, in the order of messages.
    - `plans`: the statements. Of each, `numbers` has its number, and `widths` how many rows its
      path tuples have.
    - `descriptions`: they say what a local node is, and keep its generation of the index open.
    """

    __slots__ = ("descriptions", "hits", "numbers", "plans", "widths")

    def __init__(
        self,
        hits: Hits,
        plans: list[Plan],
        numbers: list[int],
        widths: list[int],
        descriptions: Descriptions | None,
    ) -> None:
        self.hits = hits
        self.plans = plans
        self.numbers = numbers
        self.widths = widths
        self.descriptions = descriptions

    @classmethod
    def none(cls, count: int) -> Self:
        """The matches of `count` messages that have none; the index is not needed."""
        return cls(Hits([0] * count), [], [], [], None)

    def __len__(self) -> int:
        return len(self.hits)

    def plan_of(self, at: int) -> Plan:
        """The statement of a match."""
        return self.plans[self.hits[at][0]]

    def rows_of(self, at: int, rows: npt.NDArray[np.int32]) -> tuple[int, ...]:
        """The path tuple of a match, if any node of the message is returned."""
        plan, begin, _, _ = self.hits[at]
        if not self.plans[plan].nodes:
            return ()
        return tuple(rows[begin : begin + self.widths[plan]].tolist())

    def node(self, at: int) -> LocalNode | None:
        """The local node of a match, as an object."""
        plan, _, segment, start = self.hits[at]
        if segment < 0:
            return None
        assert self.descriptions is not None
        return self.descriptions.of(segment, start, self.plans[plan])

    def span(self, place: int) -> range:
        """Which of the matches are those of a message."""
        ends = self.hits.ends
        return range(ends[place - 1] if place else 0, ends[place])


class Troubles:
    """What was said of single messages of a batch, by place."""

    __slots__ = ("errors", "full", "missing", "truncated", "unmatched", "unmatched_by")

    def __init__(self) -> None:
        self.errors: dict[int, list[Exception]] = {}
        self.full: set[int] = set()
        self.unmatched: dict[int, int] = {}
        self.unmatched_by: dict[tuple[int, str], int] = {}
        self.missing: dict[int, list[Missing]] = {}
        self.truncated: dict[int, dict[str, None]] = {}

    def add(self, place: int, error: Exception) -> None:
        """Note an error of a message."""
        self.errors.setdefault(place, []).append(error)

    def cut(self, place: int, statement: str) -> None:
        """Note that a statement has more matches, or longer ones, than are given."""
        self.truncated.setdefault(place, {})[statement] = None


class Results(Sequence["Result"]):
    """What was found for a batch of messages, one `Result` each.

        results = middleware.publish_batch(messages)
        results[0].matches          # objects, made as they are asked for
        results.to_arrow()          # all matches as columns
        pa.table(results)           # any library that takes Arrow's PyCapsule interface

    `seconds` are those of the batch, by stage. Values and fragments of a message are bounded by
    `limits` in each of these forms; what does not fit is left out, and `truncated` says of which
    statements, once the form is made. Results stay valid when statements change, when the
    index moves on and when the middleware is closed: they hold the messages' bytes, and keep the
    files of the index open that their local nodes are in until they are dropped.
    """

    __slots__ = ("_names", "found", "limits", "local", "registry", "seconds", "troubles")

    def __init__(
        self,
        names: Sequence[str] | int,
        found: FilterBatch,
        registry: Registry,
        local: LocalMatches,
        troubles: Troubles,
        seconds: dict[str, float],
        limits: MatchLimits,
    ) -> None:
        self.limits = limits
        self._names = names
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
        names = self._names
        return str(names + place) if isinstance(names, int) else names[place]

    @property
    def messages(self) -> list[str]:
        """The names of all messages."""
        return [self.message(place) for place in range(len(self))]

    @property
    def match_count(self) -> int:
        """How many matches there are, of all messages."""
        return sum(self.match_counts())

    @property
    def incomplete(self) -> list[Result]:
        """The messages whose answer is not whole; their `problems` say why."""
        found = self.found
        places = {*self.troubles.errors, *self.troubles.truncated}
        for column in (4, 5):
            ends = found.ends_of(column)
            if ends and ends[-1]:
                places |= {at for at, (a, b) in enumerate(pairwise([0, *ends])) if a < b}
        return [Result(self, place) for place in sorted(places)]

    def match_counts(self) -> list[int]:
        """How many matches each message has."""
        return self.found.match_counts(self.local.hits.ends)

    def to_arrow(self, columns: Iterable[str] | None = None) -> pa.Table:
        """All matches as an Arrow table, a row each, message by message.

        `columns` are those to be made, in their order; all of them if nothing is said.
        `local_path`, `source` and fragments of local nodes are read from records, `nodes` from
        messages; the others cost little.

        Columns: `message`, `statement`, `rows` and `nodes` (the path tuple, as rows of the
        message's NodeTable and as paths), `local_tag`, `local_path`, `start`, `end`, `level` and
        `source` of the node of the corpus, `value` and `fragment` of the node that the statement
        selects. What a statement does not return is null.

        Raises:
            ValueError: there is no such column.
        """
        from fmware.matching.arrow import table_of

        return table_of(self, columns)

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

    def _repr_html_(self) -> str:
        """The first messages with what matched them, as a notebook shows them."""
        header = ("message", "matches", "statements", "problems")
        rows = (
            (each.message, len(each.matches), ", ".join(each.statements), "; ".join(each.problems))
            for each in self
        )
        return html_table(repr(self)[1:-1], header, rows, len(self))


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
        return [*self._named(5), *self.results.troubles.truncated.get(self.place, ())]

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
        return sorted(names | {results.local.plan_of(at).name for at in results.local.span(place)})

    def __eq__(self, other: object) -> bool:
        """Whether both are the same message of the same batch."""
        if not isinstance(other, Result):
            return NotImplemented
        return self.results is other.results and self.place == other.place

    def __hash__(self) -> int:
        return hash((id(self.results), self.place))

    def __repr__(self) -> str:
        return f"<Result of {self.message}: {len(self.matches)} matches>"

    def _repr_html_(self) -> str:
        """The first matches, as a notebook shows them."""
        matches, local = self.matches, self.table
        paths = (
            local.path(match.nodes[-1]) if local is not None and match.nodes else None
            for match in matches
        )
        rows = (
            (match.statement, path, match.local and match.local.tag, _value(match))
            for match, path in zip(matches, paths, strict=True)
        )
        header = ("statement", "message node", "local node", "value")
        return html_table(repr(self)[1:-1], header, rows, len(matches))


def _value(match: Match) -> str | None:
    return match.value if match.local is None else match.local.value


class Matches(Sequence[Match]):
    """The matches of one message; a `Match` is made when it is looked at."""

    __slots__ = ("_made", "_place", "_results")

    def __init__(self, results: Results, place: int) -> None:
        self._results = results
        self._place = place
        self._made: list[Match] | None = None

    def __len__(self) -> int:
        results, place = self._results, self._place
        return results.found.count_of(place) + results.local.hits.count_of(place)

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
            local = self._results.local.span(self._place)
            self._made = [self._of_local(at) for at in local] if local else []
            if len(self._made) < len(self):
                self._made = [*self._named(), *self._told(), *self._made]
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

    def _of_local(self, at: int) -> Match:
        local, rows = self._results.local, self._results.found.rows
        return self._match(local.plan_of(at), local.rows_of(at, rows), local.node(at))

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
