"""XML bytes to labelled nodes.

The way the data goes:

1. `read` (or a `Reader` with its options) parses one document with lxml and walks the tree in
   native code; `read_stream` first cuts a stream into documents or records by their tags.
2. What comes out is a `NodeTable`: columns of kind, tag, parent, level, AD label and value, in
   document order. Names are ids of a `Vocabulary`.
3. A NodeTable goes to Arrow and back without copying.

Bad input raises a `ReadError` that says where and why; `Limits` bound what a document may ask
for. A DOCTYPE is refused unless character `entities` are allowed.
"""

from labeling._kernel import Vocabulary
from labeling.entities import CHARACTER_ENTITIES
from labeling.errors import (
    DoctypeRefused,
    EncodingError,
    EntityRefused,
    EventsUnavailable,
    LabelingError,
    LimitExceeded,
    MalformedXML,
    ReadError,
)
from labeling.limits import Limits
from labeling.reader import Reader, read
from labeling.stream import Reject, Stream, read_stream
from labeling.table import ATTRIBUTE, ELEMENT, TEXT, NodeTable

__all__ = [
    "ATTRIBUTE",
    "CHARACTER_ENTITIES",
    "ELEMENT",
    "TEXT",
    "DoctypeRefused",
    "EncodingError",
    "EntityRefused",
    "EventsUnavailable",
    "LabelingError",
    "LimitExceeded",
    "Limits",
    "MalformedXML",
    "NodeTable",
    "ReadError",
    "Reader",
    "Reject",
    "Stream",
    "Vocabulary",
    "read",
    "read_stream",
]
