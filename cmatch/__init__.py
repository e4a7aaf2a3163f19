"""The operators that match anchors of messages with the local corpus.

The way of the data:

1. `Inputs` are anchors that have a local node, as columns: an id of the caller's, the node's AD
   label, and its SES label under one scheme. `Matches` are the pairs that hold.
2. `ADMatch` asks the index for every input, by AD label.

All of them are an `Operator`: they take batches, never wait, and tell their `Counters`.
`cmatch.errors` draws the tree of errors.
"""

from cmatch.admatch import ADMatch
from cmatch.axes import Axis
from cmatch.counters import Counters
from cmatch.errors import (
    GenerationGone,
    MatchError,
    MissingLabels,
    OperatorClosed,
    ProbeFailed,
    SpillFailed,
)
from cmatch.inputs import Inputs, Matches
from cmatch.operator import Operator

__all__ = [
    "ADMatch",
    "Axis",
    "Counters",
    "GenerationGone",
    "Inputs",
    "MatchError",
    "Matches",
    "MissingLabels",
    "Operator",
    "OperatorClosed",
    "ProbeFailed",
    "SpillFailed",
]
