"""What can go wrong while a workload is made.

```
DatasetError
├── DtdError (ValueError)         the DTD cannot be used
│   ├── DtdSyntaxError            it does not parse
│   ├── UnknownElementError       the wanted root is not declared
│   ├── UndeclaredElementError    a content model names an element nobody declared
│   ├── AnyContentError           ANY says nothing to generate from
│   ├── EndlessElementError       mandatory recursion: no finite document exists
│   └── UnfillableAttributeError  a required attribute has no possible value
├── ParameterError (ValueError)   a parameter out of its range
└── ExhaustedError                fewer distinct queries exist than were asked for
```
"""

from __future__ import annotations


class DatasetError(Exception):
    """Root of the tree."""


class DtdError(DatasetError, ValueError):
    """The DTD cannot be used to generate."""


class DtdSyntaxError(DtdError):
    """The text is not a DTD."""


class UnknownElementError(DtdError):
    """The element asked for as the root is not declared."""


class UndeclaredElementError(DtdError):
    """A content model refers to an element that has no declaration."""


class AnyContentError(DtdError):
    """An element of content ANY can be reached."""


class EndlessElementError(DtdError):
    """Every document under this root would be infinite."""


class UnfillableAttributeError(DtdError):
    """A required attribute has no value it could take, such as an IDREF without any ID."""


class ParameterError(DatasetError, ValueError):
    """A parameter is out of its range; the message says which and what it may be."""


class ExhaustedError(DatasetError):
    """There are not as many distinct queries as were asked for.

    `found` is how many there are; `exact` is false when value predicates or nested paths make the
    number too large to count, and `found` is then only what was drawn before new ones ceased.
    """

    def __init__(self, wanted: int, found: int, *, exact: bool) -> None:
        there = f"only {found} exist" if exact else f"no new one came after {found}"
        super().__init__(
            f"{wanted} distinct queries were asked for and {there}: "
            "raise the depth, allow wildcards, descendants or predicates, or pass distinct=False"
        )
        self.wanted = wanted
        self.found = found
        self.exact = exact
