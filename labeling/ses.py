"""SES labels: the schemes that make them, and how well they cluster.

An SES label clusters nodes that stand alike. Every scheme is a trie: a node's symbol is its tag and
an `extra`, and its place is below that of one other node of its record. Nodes that come to the same
trie node share a label, the interval of the trie node's preorder. The AD label decides who is whose
ancestor; of an SES label it is only known that, in the scheme's `Direction`,

    ancestor(u, v) implies that one of ses(u), ses(v) contains the other.

1. A `Forest` holds the indexed nodes (elements and attributes) of whole records, as columns.
2. A `Scheme` makes a `Chain` of it: of each row, whom it follows and its `extra`.
3. A `fmware.labeling.trie.Trie` turns chains into labels.

A scheme of one's own is an object with the members of `Scheme`. It can be given wherever a scheme
is asked for; `register` makes its name known too.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from fmware.labeling._kernel import OPEN_END
from fmware.labeling._ses import forest_of
from fmware.labeling.errors import SchemeError

if TYPE_CHECKING:
    import numpy.typing as npt

    from fmware.labeling.table import NodeTable
    from fmware.labeling.trie import TrieColumns

__all__ = [
    "PATH",
    "PRIX",
    "VIST",
    "Chain",
    "Clustering",
    "Direction",
    "Forest",
    "Scheme",
    "clustering_power_of_labels",
    "clustering_power_of_tags",
    "register",
    "scheme",
    "schemes",
]


class Direction(enum.Enum):
    """Whose label contains the other's."""

    ANCESTOR = "ancestor"
    DESCENDANT = "descendant"


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """The indexed nodes of whole records, in preorder, one record after the other.

    `tag` is any numbering that all forests of one trie share; `parent` a row of this forest, -1 at
    a record's root; `depth` counts from the record's root; `size` is that of the subtree, itself
    included. `rows` says, of a forest made `of` a table, which rows of the table these are.
    """

    tag: npt.NDArray[np.int32]
    parent: npt.NDArray[np.int32]
    depth: npt.NDArray[np.int32]
    size: npt.NDArray[np.int32]
    rows: npt.NDArray[np.intp] | None = None

    def __len__(self) -> int:
        return len(self.tag)

    @classmethod
    def of(cls, table: NodeTable) -> Forest:
        """The elements and attributes of a document or a record; text is left out.

        Elements and attributes of one name differ: a tag's number is twice its id in the
        vocabulary, and one more for an attribute.
        """
        if (table.end == OPEN_END).any():
            raise ValueError("SES labels are those of whole records; this batch has open elements")
        return cls(
            *forest_of(table.kind, table.tag, table.parent, table.level, table.start, table.end)
        )


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """How the rows of a forest hang in a trie.

    `before` is the row whose trie node is the parent, -1 for none. `order` lists the rows such that
    `before` comes first; None: as they stand.
    """

    before: npt.NDArray[np.int32]
    extra: npt.NDArray[np.uint32]
    order: npt.NDArray[np.int32] | None = None


class Scheme(Protocol):
    """A way of making SES labels.

    `extra_is_tag`: `extra` is a tag's number plus one, or 0, and follows when tags are renumbered.
    """

    @property
    def name(self) -> str: ...
    @property
    def direction(self) -> Direction: ...
    @property
    def extra_is_tag(self) -> bool: ...
    def chain(self, forest: Forest) -> Chain: ...


@dataclass(frozen=True, slots=True)
class Path:
    """Nodes share a label if the tags from the record's root down to them are the same."""

    name: ClassVar[str] = "path"
    direction: ClassVar[Direction] = Direction.ANCESTOR
    extra_is_tag: ClassVar[bool] = False

    def chain(self, forest: Forest) -> Chain:
        return Chain(forest.parent, np.zeros(len(forest), np.uint32))


@dataclass(frozen=True, slots=True)
class Vist:
    """Nodes share a label if their records are the same up to them, in preorder.

    Given what came before, tag and depth say the same as tag and path of the parent.
    """

    name: ClassVar[str] = "vist"
    direction: ClassVar[Direction] = Direction.ANCESTOR
    extra_is_tag: ClassVar[bool] = False

    def chain(self, forest: Forest) -> Chain:
        before = np.arange(-1, len(forest) - 1, dtype=np.int32)
        before[forest.parent < 0] = -1
        return Chain(before, forest.depth.astype(np.uint32))


@dataclass(frozen=True, slots=True)
class Prix:
    """Nodes share a label if their records are the same up to them, in postorder.

    A symbol is a tag and that of the parent, as in a Prüfer sequence. Descendants come first, so it
    is their labels that contain those of their ancestors.
    """

    name: ClassVar[str] = "prix"
    direction: ClassVar[Direction] = Direction.DESCENDANT
    extra_is_tag: ClassVar[bool] = True

    def chain(self, forest: Forest) -> Chain:
        rows = np.arange(len(forest), dtype=np.int32)
        # All that stands before a row in preorder ends before it, but for its ancestors; and its
        # descendants do. Records follow each other, so this counts through all of them.
        postorder = rows + forest.size - np.int32(1) - forest.depth
        order = np.empty_like(rows)
        order[postorder] = rows
        before = np.empty_like(rows)
        before[order[1:]] = order[:-1]
        # A record's rows take the same places in both orders.
        roots = forest.parent < 0
        before[order[roots]] = -1
        extra = np.where(roots, np.int32(0), forest.tag[forest.parent] + np.int32(1))
        return Chain(before, extra.astype(np.uint32), order)


PATH = Path()
VIST = Vist()
PRIX = Prix()

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
_known: dict[str, Scheme] = {known.name: known for known in (PATH, VIST, PRIX)}


def schemes() -> tuple[str, ...]:
    """The names of the registered schemes."""
    return tuple(_known)


def scheme(wanted: str | Scheme) -> Scheme:
    """A scheme by its name; a scheme itself is handed back."""
    if not isinstance(wanted, str):
        return wanted
    if wanted not in _known:
        names = ", ".join(_known)
        raise SchemeError(
            f"no SES scheme {wanted!r}; there are {names}; others: labeling.ses.register"
        )
    return _known[wanted]


def register(new: Scheme) -> Scheme:
    """Make the name of a scheme known; it stays taken, because indexes are written under it."""
    if not _NAME.fullmatch(new.name):
        raise SchemeError(
            f"{new.name!r} cannot name a scheme; up to 32 of a-z, 0-9 and _, a letter first"
        )
    if _known.setdefault(new.name, new) is not new and _known[new.name] != new:
        raise SchemeError(f"there is another SES scheme {new.name!r}; choose another name")
    return new


# --- clustering power -----------------------------------------------------------------------


def clustering_power_of_labels(
    ranks: npt.NDArray[np.uint32],
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """The labels that nodes have, ascending, and `cps` of each: how many nodes share it."""
    if len(ranks) == 0:
        return np.empty(0, np.uint32), np.empty(0, np.int64)
    if int(ranks.max()) > 8 * len(ranks):
        # A few nodes of a large trie: sorting them is cheaper than counting through all of it.
        labels, counts = np.unique(ranks, return_counts=True)
        return labels, counts.astype(np.int64)
    counts = np.bincount(ranks)
    labels = np.flatnonzero(counts).astype(np.uint32)
    return labels, counts[labels].astype(np.int64)


def clustering_power_of_tags(trie: TrieColumns, ranks: npt.NDArray[np.uint32]) -> dict[int, float]:
    """`cpt` of each tag that nodes have: the mean `cps` over its labels."""
    labels, cps = clustering_power_of_labels(ranks)
    tags = trie.tag[labels]
    nodes = np.bincount(tags, weights=cps)
    shared = np.bincount(tags)
    present = np.flatnonzero(shared)
    return dict(zip(present.tolist(), (nodes[present] / shared[present]).tolist(), strict=True))


_QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)


@dataclass(frozen=True, slots=True)
class Clustering:
    """How the clustering power of labels is spread.

    quantiles: of `cps` over the labels, at 0, 25, 50, 75, 90, 99 and 100 per cent.
    histogram: for each i, how many labels have 2**i to 2**(i + 1) - 1 nodes, and how many nodes
    those are. squares: the sum of cps squared, so that summaries can be added up.
    """

    nodes: int
    labels: int
    squares: int
    quantiles: tuple[int, ...]
    histogram: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, cps: npt.NDArray[np.int64]) -> Clustering:
        """Sum up the clustering powers of some labels."""
        if len(cps) == 0:
            return cls(0, 0, 0, (), ())
        nodes = int(cps.sum())
        squares = float(np.square(cps, dtype=np.float64).sum())
        quantiles = np.quantile(cps, _QUANTILES, method="lower")
        return cls(nodes, len(cps), round(squares), tuple(quantiles.tolist()), _histogram(cps))

    @property
    def mean(self) -> float:
        """The mean over labels: `cpt`, if the labels are those of one tag."""
        return self.nodes / self.labels if self.labels else 0.0

    @property
    def mean_of_nodes(self) -> float:
        """The mean over nodes: how many share the label of a node that is drawn by chance."""
        return self.squares / self.nodes if self.nodes else 0.0


def _histogram(cps: npt.NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    # frexp is exact where a logarithm would round: 2**i is i + 1 doublings of a half.
    power = np.frexp(cps.astype(np.float64))[1] - 1
    labels = np.bincount(power)
    nodes = np.bincount(power, weights=cps)
    return tuple(zip(labels.tolist(), nodes.astype(np.int64).tolist(), strict=True))
