"""Matching: from the anchors of a message to nodes of the local corpus.

The way the data goes, for each crossing of a statement:

1. `AnchorPart` takes the anchors out of the path tuples that the filter has found.
2. A `Resolver` finds their local nodes: by the label they carry, or by the index's identity rules.
3. An operator of `cmatch` joins these with the tags that the `LocalPart` of the crossing names, on
   its axis: the first step of the match part. Crossings that begin with the same step are joined
   together (`fmware.matching.crossings`).
4. `LocalPart.finish` does what is left of the match part: predicates and further steps, by joins on
   the index where structure decides, and on the record's NodeTable where values do.
5. `Descriptions` say what results tell of the nodes that were selected.

`advice` says beforehand what of a statement an index cannot answer. The XPath evaluator of tables,
`fmware.matching.evaluate`, serves explanations, too.
"""

from fmware.matching.advice import advice
from fmware.matching.anchors import MI, AnchorPart, Locals, Missing, Resolver
from fmware.matching.evaluate import Evaluator, Evaluators
from fmware.matching.local import LocalPart

__all__ = [
    "MI",
    "AnchorPart",
    "Evaluator",
    "Evaluators",
    "LocalPart",
    "Locals",
    "Missing",
    "Resolver",
    "advice",
]
