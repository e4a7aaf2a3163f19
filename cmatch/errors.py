"""What can go wrong while matching.

MatchError
├── MissingLabels (ValueError)    inputs without the SES labels that an operator needs
├── OperatorClosed (ValueError)   used after it was closed
├── SpillFailed (OSError)         the disk did not take what memory has no room for
└── ProbeFailed                   the index could not be asked; `__cause__` says why
    └── GenerationGone            the index was closed under the operator

After `SpillFailed` and `ProbeFailed` an operator is dead: its threads and its files are gone, and
it answers every call with the same error until it is closed. Other operators are not touched.
"""

from __future__ import annotations

__all__ = [
    "GenerationGone",
    "MatchError",
    "MissingLabels",
    "OperatorClosed",
    "ProbeFailed",
    "SpillFailed",
]


class MatchError(Exception):
    """Everything that `cmatch` raises on purpose."""


class MissingLabels(MatchError, ValueError):
    """Inputs came without SES labels to an operator that clusters by them."""

    def __init__(self, scheme: str) -> None:
        super().__init__(scheme)
        self.scheme = scheme

    def __str__(self) -> str:
        return (
            f"these inputs have no SES labels, and CMatch clusters by those of scheme "
            f"{self.scheme!r}; make them with Inputs.of(index, tag, {self.scheme!r}, ids, starts)"
        )


class OperatorClosed(MatchError, ValueError):
    """An operator was used after it was closed."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what}: closed; make another one"


class SpillFailed(MatchError, OSError):
    """The disk did not take, or did not give back, what memory has no room for.

    `place` is the directory of the temporary file, `cause` what the system said.
    """

    def __init__(self, place: str, cause: str, number: int = 0) -> None:
        super().__init__(place, cause, number)
        self.place = place
        self.cause = cause
        self.errno = number

    def __str__(self) -> str:
        return (
            f"{self.place}: candidates could not be spilled: {self.cause}; make room there, name "
            f"another `place`, or raise the memory budget"
        )


class ProbeFailed(MatchError):
    """A probe of the index failed; `what` says which, `__cause__` why."""

    def __init__(self, what: str, cause: str) -> None:
        super().__init__(what, cause)
        self.what = what
        self.cause = cause

    def __str__(self) -> str:
        return f"{self.what}: the index could not be asked: {self.cause}"


class GenerationGone(ProbeFailed):
    """The index was closed while an operator stood on it."""

    def __str__(self) -> str:
        return f"{self.what}: {self.cause}; move the operator to a generation that is open"
