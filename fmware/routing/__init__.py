"""Routing: which statements matter, and where messages for them can come from.

The way a statement goes:

1. A `Pattern` is made of a parsed statement: a tree of tests, its spine, and the words that its
   documents have.
2. `covers` decides whether one statement matches all documents of another: exactly for linear
   paths, safely for others.
3. A `SubscriptionTree` keeps many statements by who covers whom; its maximal set is all that a
   neighbour has to know. A `MergingTree` merges that further, within a bound of imperfection.
4. A `Schema`, from a DTD, an XML Schema or a `Sample` of messages, says what documents there are:
   statements that cannot match, and covers that hold on its documents only. An `Advertisement` is
   a schema that a publisher announces, in the paper's notation.
5. `reduce` finds the statements that are not needed, and why.
6. A `Broker` keeps routing tables, and a `Network` runs many of them in one process.

This package knows `fmware.xpath` and nothing else of the project; what matches publications is
given to a broker as a `Matcher`.
"""

from __future__ import annotations

from fmware.routing.advertisement import Advertisement
from fmware.routing.broker import Broker, Matcher, Strategy
from fmware.routing.covering import covers, equivalent
from fmware.routing.dtd import read_dtd
from fmware.routing.errors import (
    AdvertisementError,
    RoutingError,
    SchemaError,
    UnknownSubscription,
)
from fmware.routing.merging import MergingTree, SampleMeasure, SchemaMeasure, mergers
from fmware.routing.network import Network
from fmware.routing.pattern import Pattern
from fmware.routing.reduce import Finding, Reduction, reduce
from fmware.routing.sample import Sample
from fmware.routing.schema import Schema
from fmware.routing.tree import Change, SubscriptionTree
from fmware.routing.xsd import read_xsd

__all__ = [
    "Advertisement",
    "AdvertisementError",
    "Broker",
    "Change",
    "Finding",
    "Matcher",
    "MergingTree",
    "Network",
    "Pattern",
    "Reduction",
    "RoutingError",
    "Sample",
    "SampleMeasure",
    "Schema",
    "SchemaError",
    "SchemaMeasure",
    "Strategy",
    "SubscriptionTree",
    "UnknownSubscription",
    "covers",
    "equivalent",
    "mergers",
    "read_dtd",
    "read_xsd",
    "reduce",
]
