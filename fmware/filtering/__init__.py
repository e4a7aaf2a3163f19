"""Filtering: which statements does a message match.

The way the data goes:

1. `FilterEngine.subscribe` parses a statement, strips it of its predicates and inserts what is
   left, a path of names, into one automaton that all statements share.
2. `FilterEngine.filter` reads a message into a NodeTable and runs it through the automaton once.
   Sets of active states are remembered as a lazy DFA.
3. Where the structure has matched, predicates are looked up: all that ask the same thing of a
   node are grouped, and found by the node's value rather than tried one by one. Equal parts of
   different statements are one, whose truth at a node is found out once.
4. The `FilterResult` holds the statements that match and, for those that asked, path tuples.
   `FilterEngine.filter_many` gives the same for a batch of messages, as columns.
"""

from fmware.filtering._kernel import FilterBatch, Want
from fmware.filtering.engine import FilterEngine
from fmware.filtering.errors import (
    DocumentTooActive,
    DuplicateName,
    FilterError,
    ForeignTable,
    StatementRefused,
    UnknownStatement,
)
from fmware.filtering.limits import FilterLimits
from fmware.filtering.result import FilterResult
from fmware.filtering.subscription import Subscription

__all__ = [
    "DocumentTooActive",
    "DuplicateName",
    "FilterBatch",
    "FilterEngine",
    "FilterError",
    "FilterLimits",
    "FilterResult",
    "ForeignTable",
    "StatementRefused",
    "Subscription",
    "UnknownStatement",
    "Want",
]
