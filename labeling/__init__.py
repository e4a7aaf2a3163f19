"""XML bytes to labelled nodes.

The way the data goes:

1. `read` (or a `Reader` with its options) reads one document in native code: plain ones with
   fmware's own reader, all others with the libxml2 inside lxml; `reading_counts` says how many.
   `read_stream` first cuts a stream into documents or records by their tags.
2. What comes out is a `NodeTable`: columns of kind, tag, parent, level, AD label and value, in
   document order. Names are ids of a `Vocabulary`.
3. A NodeTable goes to Arrow and back without copying.
4. A corpus is labelled in tasks: `sources` finds its files, `records` cuts records out of their
   byte ranges, `labeller` gives the nodes SES labels (`ses`, `trie`) and keys (`identity`), and
   `runs` holds what comes out. `label_corpus` spreads the tasks over Spark, `label_here` does
   them in this process.

Bad input raises a `ReadError` that says where and why; `Limits` bound what a document may ask
for. A DOCTYPE is refused unless character `entities` are allowed.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from fmware.labeling._kernel import Vocabulary, reading_counts
from fmware.labeling.entities import CHARACTER_ENTITIES
from fmware.labeling.errors import (
    DoctypeRefused,
    EncodingError,
    EntityRefused,
    EventsUnavailable,
    LabelingError,
    LimitExceeded,
    MalformedXML,
    ReadError,
    RuleError,
    RunError,
    SchemeError,
    SourceError,
)
from fmware.labeling.limits import Limits
from fmware.labeling.reader import Reader, read
from fmware.labeling.stream import Reject, Stream, read_stream
from fmware.labeling.table import ATTRIBUTE, ELEMENT, TEXT, NodeTable

if TYPE_CHECKING:
    from fmware.labeling.identity import IdentityRule
    from fmware.labeling.job import Corpus, label_corpus, label_here
    from fmware.labeling.runs import MemoryRun, Run, Tag, open_run
    from fmware.labeling.ses import PATH, PRIX, VIST, Direction, Scheme, register, scheme, schemes

__all__ = [
    "ATTRIBUTE",
    "CHARACTER_ENTITIES",
    "ELEMENT",
    "PATH",
    "PRIX",
    "TEXT",
    "VIST",
    "Corpus",
    "Direction",
    "DoctypeRefused",
    "EncodingError",
    "EntityRefused",
    "EventsUnavailable",
    "IdentityRule",
    "LabelingError",
    "LimitExceeded",
    "Limits",
    "MalformedXML",
    "MemoryRun",
    "NodeTable",
    "ReadError",
    "Reader",
    "Reject",
    "RuleError",
    "Run",
    "RunError",
    "Scheme",
    "SchemeError",
    "SourceError",
    "Stream",
    "Tag",
    "Vocabulary",
    "label_corpus",
    "label_here",
    "open_run",
    "read",
    "read_stream",
    "reading_counts",
    "register",
    "scheme",
    "schemes",
]

# What labelling a corpus needs is fetched when it is asked for: a program that reads messages does
# not wait for it.
_HOMES = {
    "identity": ("IdentityRule",),
    "job": ("Corpus", "label_corpus", "label_here"),
    "runs": ("MemoryRun", "Run", "Tag", "open_run"),
    "ses": ("PATH", "PRIX", "VIST", "Direction", "Scheme", "register", "scheme", "schemes"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        home = _HOME_OF.get(name)
        if home is None:
            raise AttributeError(f"module 'labeling' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"labeling.{home}"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
