"""Makers of workloads: documents, queries, corpora and message streams.

Everything is deterministic: the same seed gives the same bytes, on every machine. Everything
streams: makers are iterators, and none holds what it has made.

- `load_dtd` reads a DTD, one that the project carries (`dtd_names`) or any other, as a `Dtd`.
- `documents` makes valid documents from it; `news_documents` is the stream the benchmarks use.
- `queries` makes XPath statements that those documents can satisfy.
- `bibliography` makes one large corpus of records with keys; `record` and `keys` say which.
- `citations` makes messages that cite the records of such a corpus.
- `recursive` makes the opposite corpus: deep, with almost one tag path for each node.

What can go wrong is in `fmware.datasets.errors`; every error is a `DatasetError`.
"""

from fmware.datasets.bibliography import Bibliography, Record, bibliography, keys, record
from fmware.datasets.documents import documents, news_documents
from fmware.datasets.dtd import Dtd, dtd_names, dtd_text, load_dtd
from fmware.datasets.errors import DatasetError, DtdError, ExhaustedError, ParameterError
from fmware.datasets.messages import citations
from fmware.datasets.queries import queries
from fmware.datasets.recursive import recursive

__all__ = [
    "Bibliography",
    "DatasetError",
    "Dtd",
    "DtdError",
    "ExhaustedError",
    "ParameterError",
    "Record",
    "bibliography",
    "citations",
    "documents",
    "dtd_names",
    "dtd_text",
    "keys",
    "load_dtd",
    "news_documents",
    "queries",
    "record",
    "recursive",
]
