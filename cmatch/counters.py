"""What an operator has done, in numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

__all__ = ["Counters"]


@dataclass(slots=True)
class Counters:
    """The counts of one operator, or, added up, of several.

    - `inputs`: anchors that were fed.
    - `deferred`: those of them that CMatch left to ADMatch because their label was rented.
    - `unique_labels`: SES labels (of a segment) among them; each is scanned for at most once.
    - `index_scans`: scans of the index by SES label; AD-only match makes none.
    - `ad_probes`: probes by AD label, one an input, of either operator.
    - `candidates`: nodes that scans gave.
    - `false_hits`: pairs with the same SES label that were looked at and that AD labels refused.
    - `pairs`: pairs that hold.
    - `spills`: partitions, or whole lists of candidates, that were pushed to disk.
    - `spilled_bytes`: how much that was; `overflow_reads`: reads to get at it again.
    - `bytes_held`: memory of inputs and candidates now, which the budget bounds; `peak_bytes`: at
      most. `table_bytes`: beside that, the table of labels, and where they lie on disk.
    - `probe_seconds`, `insert_seconds`, `query_seconds`: time in each step, over all threads.
    """

    inputs: int = 0
    deferred: int = 0
    unique_labels: int = 0
    index_scans: int = 0
    ad_probes: int = 0
    candidates: int = 0
    false_hits: int = 0
    pairs: int = 0
    spills: int = 0
    spilled_bytes: int = 0
    overflow_reads: int = 0
    bytes_held: int = 0
    peak_bytes: int = 0
    table_bytes: int = 0
    probe_seconds: float = 0.0
    insert_seconds: float = 0.0
    query_seconds: float = 0.0

    def __add__(self, other: Counters) -> Counters:
        return Counters(
            **{
                each.name: getattr(self, each.name) + getattr(other, each.name)
                for each in fields(self)
            }
        )

    def to_json(self) -> dict[str, int | float]:
        """All of them as plain numbers."""
        return asdict(self)
