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
   key; `fmware.corpus` adds to it and removes.
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
    from cmatch import MatchError
    from fmware.corpus import IndexSummary, build_index
    from fmware.filtering import FilterEngine, FilterLimits, FilterResult
    from fmware.filtering.explain import explain
    from fmware.matching.limits import MatchLimits
    from fmware.matching.results import LocalNode, Match, Result, Results
    from fmware.messages import MessageUnreadable, UnknownMessage
    from fmware.middleware import Middleware, ResultStream
    from fmware.statements import Returns, Statement
    from fmware.xpath import (
        UndeclaredPrefix,
        UnsupportedXPath,
        XPathError,
        XPathLimitExceeded,
        XPathLimits,
        XPathSyntaxError,
    )
    from fmware.xpath import parse as parse_xpath
    from index import Index, StoreError
    from labeling import (
        ATTRIBUTE,
        CHARACTER_ENTITIES,
        ELEMENT,
        TEXT,
        DoctypeRefused,
        EncodingError,
        EntityRefused,
        LabelingError,
        LimitExceeded,
        Limits,
        MalformedXML,
        NodeTable,
        Reader,
        ReadError,
        Reject,
        Stream,
        Vocabulary,
        read,
        read_stream,
    )

__version__ = "0.1.0"

__all__ = [
    "ATTRIBUTE",
    "CHARACTER_ENTITIES",
    "ELEMENT",
    "TEXT",
    "DoctypeRefused",
    "EncodingError",
    "EntityRefused",
    "FMwareError",
    "FilterEngine",
    "FilterLimits",
    "FilterResult",
    "Index",
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
    "NodeTable",
    "ReadError",
    "Reader",
    "Reject",
    "Result",
    "ResultStream",
    "Results",
    "Returns",
    "Statement",
    "StoreError",
    "Stream",
    "UndeclaredPrefix",
    "UnknownMessage",
    "UnsupportedXPath",
    "Vocabulary",
    "XPathError",
    "XPathLimitExceeded",
    "XPathLimits",
    "XPathSyntaxError",
    "__version__",
    "build_index",
    "explain",
    "parse_xpath",
    "read",
    "read_stream",
]

# Where a name comes from when it is not `labeling`: numpy and pyarrow take a third of a second to
# import, which `fmware --help` should not pay, so names are fetched when they are first asked for.
_HOMES = {
    "FilterEngine": ("fmware.filtering", "FilterEngine"),
    "FilterLimits": ("fmware.filtering", "FilterLimits"),
    "FilterResult": ("fmware.filtering", "FilterResult"),
    "Index": ("index", "Index"),
    "IndexSummary": ("fmware.corpus", "IndexSummary"),
    "StoreError": ("index", "StoreError"),
    "LocalNode": ("fmware.matching.results", "LocalNode"),
    "Match": ("fmware.matching.results", "Match"),
    "MatchError": ("cmatch", "MatchError"),
    "MatchLimits": ("fmware.matching.limits", "MatchLimits"),
    "MessageUnreadable": ("fmware.messages", "MessageUnreadable"),
    "Middleware": ("fmware.middleware", "Middleware"),
    "Result": ("fmware.matching.results", "Result"),
    "ResultStream": ("fmware.middleware", "ResultStream"),
    "Results": ("fmware.matching.results", "Results"),
    "Returns": ("fmware.statements", "Returns"),
    "Statement": ("fmware.statements", "Statement"),
    "UnknownMessage": ("fmware.messages", "UnknownMessage"),
    "build_index": ("fmware.corpus", "build_index"),
    "explain": ("fmware.filtering.explain", "explain"),
    "parse_xpath": ("fmware.xpath", "parse"),
    **{
        name: ("fmware.xpath", name)
        for name in (
            "UndeclaredPrefix",
            "UnsupportedXPath",
            "XPathError",
            "XPathLimitExceeded",
            "XPathLimits",
            "XPathSyntaxError",
        )
    },
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'fmware' has no attribute {name!r}")
        home, original = _HOMES.get(name, ("labeling", name))
        value = globals()[name] = getattr(import_module(home), original)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
