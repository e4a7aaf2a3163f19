"""Matching: from the anchors of a message to nodes of the local corpus.

A `Batch` (`fmware.matching._kernel`) owns the way of a batch of messages, and `Crossings` leads it,
on one generation of an index. The way the data goes:

1. Anchors are taken out of the path tuples that the filter has found: a step of them, or what an
   `AnchorPart` leads to from there.
2. A `Resolver` finds their local nodes: by the label they carry, or by the index's identity rules.
3. An operator of `cmatch` joins these with the tags that the `LocalPart` of the crossing names, on
   its axis: the first step of the match part. Crossings that begin with the same step, from anchors
   of the same name, are joined together. `Joins` keeps the operators.
4. `LocalPart.finish` does what is left of the match part: predicates and further steps, by joins on
   the index where structure and values decide, and on the record's NodeTable where positions do.
5. Tuples for which all crossings hold are matches, given as columns; `Descriptions` say what
   results report of the nodes that were selected. `MatchLimits` bound what a message may have.

`advice` says beforehand what of a statement an index cannot answer. The XPath evaluator of tables,
`fmware.matching.evaluate`, serves explanations, too.
"""

from fmware.matching.advice import advice
from fmware.matching.anchors import MI, AnchorPart, Missing, Resolver
from fmware.matching.evaluate import Evaluator, Evaluators
from fmware.matching.local import LocalPart

__all__ = [
    "MI",
    "AnchorPart",
    "Evaluator",
    "Evaluators",
    "LocalPart",
    "Missing",
    "Resolver",
    "advice",
]
