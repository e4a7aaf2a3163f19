"""What can go wrong between bytes and labelled nodes.

LabelingError
├── EventsUnavailable (RuntimeError)  the build does not fit the lxml that is installed
├── RunError (ValueError)       a stored run is not whole
├── RuleError (ValueError)      an identity rule that cannot be read
├── SchemeError (ValueError)    a SES scheme that nobody has registered, or that is none
├── SourceError (OSError)       a source of the corpus that is not there or cannot be opened
└── ReadError (ValueError)      one document cannot be read; says where
    ├── MalformedXML            not well-formed, or a prefix without a namespace
    ├── EncodingError           bytes that are not in the declared encoding
    ├── DoctypeRefused          a DOCTYPE where none is allowed, or more in it than characters
    ├── EntityRefused           an entity that nobody declared
    └── LimitExceeded           over one of the `Limits`
"""

from __future__ import annotations

__all__ = [
    "DoctypeRefused",
    "EncodingError",
    "EntityRefused",
    "EventsUnavailable",
    "LabelingError",
    "LimitExceeded",
    "MalformedXML",
    "ReadError",
    "RuleError",
    "RunError",
    "SchemeError",
    "SourceError",
]

LONGEST = 300
"""Characters of a reason."""


class LabelingError(Exception):
    """Everything that `labeling` raises on purpose."""


class EventsUnavailable(LabelingError, RuntimeError):
    """Batches need the event parser of the libxml2 inside lxml, and this build cannot reach it."""


class RunError(LabelingError, ValueError):
    """A stored run is not whole: whoever wrote it did not come to its end."""


class RuleError(LabelingError, ValueError):
    """An identity rule that cannot be read; says how one looks."""


class SchemeError(LabelingError, ValueError):
    """A SES scheme that is not registered, or an object that does not do what a scheme must."""


class SourceError(LabelingError, OSError):
    """A source of the corpus that is not there, or that cannot be opened."""


class ReadError(LabelingError, ValueError):
    """One document cannot be read.

    `line` and `column` count from 1; `source` names the document, if it has a name; `reason` is
    the message without its place.
    """

    def __init__(
        self, reason: str, *, line: int = 1, column: int = 1, source: str | None = None
    ) -> None:
        # Parsers repeat names as they came, of any length, and logs must not.
        reason = reason if len(reason) <= LONGEST else f"{reason[:LONGEST]}..."
        self.reason = reason
        self.line = line
        self.column = column
        self.source = source
        super().__init__(reason)

    def __str__(self) -> str:
        place = f"line {self.line}, column {self.column}"
        return f"{self.source or 'document'}: {place}: {self.reason}"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), dict(self.__dict__))


def _rebuild(kind: type[ReadError], state: dict[str, object]) -> ReadError:
    # Errors cross process borders inside Spark, where pickle would lose the keyword arguments.
    error = kind.__new__(kind)
    ValueError.__init__(error, state["reason"])
    error.__dict__.update(state)
    return error


class MalformedXML(ReadError):
    """Not well-formed XML, or not well-formed with its namespaces."""


class EncodingError(ReadError):
    """Bytes that are not in the document's encoding, or an encoding that is not known."""


class DoctypeRefused(ReadError):
    """A DOCTYPE that may not be there, or that declares more than character entities."""


class EntityRefused(ReadError):
    """A reference to an entity that nobody declared; dropping it would lose a character."""


class LimitExceeded(ReadError):
    """Over a limit; `limit` is the name of the setting, `allowed` its value.

    For a vocabulary that is full, `limit` is "vocabulary" or "vocabulary_size".
    """

    def __init__(
        self,
        limit: str,
        allowed: int,
        *,
        line: int = 1,
        column: int = 1,
        source: str | None = None,
    ) -> None:
        self.limit = limit
        self.allowed = allowed
        option = _VOCABULARY_OPTIONS.get(limit, f"Limits.{limit}")
        reason = f"over the limit of {allowed:,} {LIMIT_NOUNS[limit]}; raise {option} to read it"
        super().__init__(reason, line=line, column=column, source=source)


LIMIT_NOUNS = {
    "bytes": "bytes a document",
    "depth": "levels of nesting",
    "nodes": "nodes a document",
    "attribute": "bytes in an attribute's value",
    "text": "bytes in a text node",
    "names": "different names a document",
    "name_bytes": "bytes in the names of a document",
    "vocabulary": "names in the vocabulary",
    "vocabulary_size": "bytes in the vocabulary",
}

_VOCABULARY_OPTIONS = {
    "vocabulary": "Vocabulary(limit=...)",
    "vocabulary_size": "Vocabulary(size=...)",
}
