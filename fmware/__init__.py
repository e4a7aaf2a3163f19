"""FMware: filter streams of XML messages and match what passes against a local XML store.

The way the data goes:

1. `read` turns the bytes of a message into a `NodeTable`: its nodes as columns, each with its AD
   label. `read_stream` does it for many documents, or for the records of one endless one; a
   `Reader` keeps the options, `Limits` bound what a document may ask for.
2. `parse_xpath` turns a statement into a small typed tree; `fmware.xpath` prints it, brings it to
   its canonical form and splits it into what runs on messages and what runs in the store.
3. A `FilterEngine` runs all statements over a NodeTable at once; its `FilterResult` says which
   match, `FilterLimits` bound what they may ask for, and `explain` says of one why, or why not.
4. `build_index` labels the local corpus, with Spark or here, and an `Index` answers by label and by
   key; `add`, `upsert`, `remove` and `compact` change it.
5. A `Middleware` does all of it: a `Statement` filters messages and is matched against the index.
   A batch of messages gives `Results`, which are columns; a `Result` holds the `Match`es of one
   message, with the nodes found in the corpus. A `ResultStream` is the same for any number.

This is the one package to import. Errors derive from `FMwareError`, or from `LabelingError` where
bytes are read, `StoreError` where an index is, and `MatchError` where operators match; the command
line is `fmware.cli`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from fmware.errors import FMwareError

if TYPE_CHECKING:
    from fmware.cmatch import MatchError, MissingLabels, OperatorClosed, ProbeFailed, SpillFailed
    from fmware.corpus import (
        IndexSummary,
        NothingIndexed,
        NotIndexed,
        add,
        build_index,
        compact,
        describe,
        remove,
        upsert,
    )
    from fmware.filtering import (
        DocumentTooActive,
        DuplicateName,
        FilterEngine,
        FilterError,
        FilterLimits,
        FilterResult,
        ForeignTable,
        StatementRefused,
        Subscription,
        UnknownStatement,
    )
    from fmware.filtering.explain import Explanation, explain
    from fmware.index import (
        BadRule,
        BadRun,
        CorruptIndex,
        FileChanged,
        ForkedIndex,
        FormatMismatch,
        Index,
        IndexClosed,
        IndexExists,
        IndexLocked,
        IndexMissing,
        NoSuchNode,
        NotFound,
        StoreError,
        UnknownScheme,
        UnknownTag,
        WriteFailed,
    )
    from fmware.labeling import (
        ATTRIBUTE,
        CHARACTER_ENTITIES,
        ELEMENT,
        TEXT,
        DoctypeRefused,
        EncodingError,
        EntityRefused,
        EventsUnavailable,
        LabelingError,
        LimitExceeded,
        Limits,
        MalformedXML,
        NodeTable,
        Reader,
        ReadError,
        Reject,
        RuleError,
        RunError,
        SchemeError,
        SourceError,
        Stream,
        Vocabulary,
        read,
        read_stream,
    )
    from fmware.matching.limits import MatchLimits
    from fmware.matching.results import LocalNode, Match, Result, Results
    from fmware.messages import MessageUnreadable, UnknownMessage
    from fmware.middleware import Middleware, MiddlewareClosed, ResultStream, StatementFailed
    from fmware.report import Report, ReportError
    from fmware.routing import (
        Advertisement,
        AdvertisementError,
        RoutingError,
        SchemaError,
        SubscriptionTree,
        covers,
        equivalent,
        read_dtd,
        read_xsd,
    )
    from fmware.routing import reduce as reduce_statements
    from fmware.samples import read_sample
    from fmware.service.errors import ServiceError
    from fmware.session import SparkUnavailable
    from fmware.sources import UnknownSource
    from fmware.statements import (
        Returns,
        Statement,
        StatementError,
        StatementFileError,
        lint,
        read_statements,
    )
    from fmware.upserts import UpsertError
    from fmware.xpath import (
        UndeclaredPrefix,
        UnsupportedXPath,
        XPathError,
        XPathLimitExceeded,
        XPathLimits,
        XPathSyntaxError,
    )
    from fmware.xpath import parse as parse_xpath

__version__ = "0.1.0"

__all__ = [
    "ATTRIBUTE",
    "CHARACTER_ENTITIES",
    "ELEMENT",
    "TEXT",
    "Advertisement",
    "AdvertisementError",
    "BadRule",
    "BadRun",
    "CorruptIndex",
    "DoctypeRefused",
    "DocumentTooActive",
    "DuplicateName",
    "EncodingError",
    "EntityRefused",
    "EventsUnavailable",
    "Explanation",
    "FMwareError",
    "FileChanged",
    "FilterEngine",
    "FilterError",
    "FilterLimits",
    "FilterResult",
    "ForeignTable",
    "ForkedIndex",
    "FormatMismatch",
    "Index",
    "IndexClosed",
    "IndexExists",
    "IndexLocked",
    "IndexMissing",
    "IndexSummary",
    "LabelingError",
    "LimitExceeded",
    "Limits",
    "LocalNode",
    "MalformedXML",
    "Match",
    "MatchError",
    "MatchLimits",
    "MessageUnreadable",
    "Middleware",
    "MiddlewareClosed",
    "MissingLabels",
    "NoSuchNode",
    "NodeTable",
    "NotFound",
    "NotIndexed",
    "NothingIndexed",
    "OperatorClosed",
    "ProbeFailed",
    "ReadError",
    "Reader",
    "Reject",
    "Report",
    "ReportError",
    "Result",
    "ResultStream",
    "Results",
    "Returns",
    "RoutingError",
    "RuleError",
    "RunError",
    "SchemaError",
    "SchemeError",
    "ServiceError",
    "SourceError",
    "SparkUnavailable",
    "SpillFailed",
    "Statement",
    "StatementError",
    "StatementFailed",
    "StatementFileError",
    "StatementRefused",
    "StoreError",
    "Stream",
    "Subscription",
    "SubscriptionTree",
    "UndeclaredPrefix",
    "UnknownMessage",
    "UnknownScheme",
    "UnknownSource",
    "UnknownStatement",
    "UnknownTag",
    "UnsupportedXPath",
    "UpsertError",
    "Vocabulary",
    "WriteFailed",
    "XPathError",
    "XPathLimitExceeded",
    "XPathLimits",
    "XPathSyntaxError",
    "__version__",
    "add",
    "build_index",
    "compact",
    "covers",
    "describe",
    "equivalent",
    "explain",
    "lint",
    "parse_xpath",
    "read",
    "read_dtd",
    "read_sample",
    "read_statements",
    "read_stream",
    "read_xsd",
    "reduce_statements",
    "remove",
    "upsert",
]

# Where names come from: numpy and pyarrow take a third of a second to import, which
# `fmware --help` should not pay, so names are fetched when they are first asked for.
_MODULES = {
    "fmware.cmatch": "MatchError MissingLabels OperatorClosed ProbeFailed SpillFailed",
    "fmware.corpus": """
        IndexSummary NotIndexed NothingIndexed add build_index compact describe remove
        upsert
    """,
    "fmware.filtering": """
        DocumentTooActive DuplicateName FilterEngine FilterError FilterLimits FilterResult
        ForeignTable StatementRefused Subscription UnknownStatement
    """,
    "fmware.filtering.explain": "Explanation explain",
    "fmware.matching.limits": "MatchLimits",
    "fmware.matching.results": "LocalNode Match Result Results",
    "fmware.messages": "MessageUnreadable UnknownMessage",
    "fmware.middleware": "Middleware MiddlewareClosed ResultStream StatementFailed",
    "fmware.report": "Report ReportError",
    "fmware.routing": """
        Advertisement AdvertisementError RoutingError SchemaError SubscriptionTree covers
        equivalent read_dtd read_xsd
    """,
    "fmware.samples": "read_sample",
    "fmware.service.errors": "ServiceError",
    "fmware.session": "SparkUnavailable",
    "fmware.sources": "UnknownSource",
    "fmware.statements": "Returns Statement StatementError StatementFileError lint read_statements",
    "fmware.upserts": "UpsertError",
    "fmware.xpath": """
        UndeclaredPrefix UnsupportedXPath XPathError XPathLimitExceeded XPathLimits
        XPathSyntaxError
    """,
    "fmware.index": """
        BadRule BadRun CorruptIndex FileChanged ForkedIndex FormatMismatch Index IndexClosed
        IndexExists IndexLocked IndexMissing NoSuchNode NotFound StoreError UnknownScheme
        UnknownTag WriteFailed
    """,
    "fmware.labeling": """
        ATTRIBUTE CHARACTER_ENTITIES ELEMENT TEXT DoctypeRefused EncodingError EntityRefused
        EventsUnavailable LabelingError LimitExceeded Limits MalformedXML NodeTable
        ReadError Reader Reject RuleError RunError SchemeError SourceError Stream Vocabulary
        read read_stream
    """,
}
_HOMES = {name: (home, name) for home, names in _MODULES.items() for name in names.split()}
_HOMES["parse_xpath"] = ("fmware.xpath", "parse")
_HOMES["reduce_statements"] = ("fmware.routing", "reduce")

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'fmware' has no attribute {name!r}")
        home, original = _HOMES[name]
        value = globals()[name] = getattr(import_module(home), original)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
