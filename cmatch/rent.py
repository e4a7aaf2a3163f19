"""When CMatch fetches a label: after its inputs have cost ADMatch as much as fetching would have.

Without knowing how often a label will come, rent first: send its inputs to ADMatch, and fetch its
candidates when that has cost as much as fetching them. Whatever comes, this costs at most twice
what would have been best.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["FETCH_ALL", "Rent"]


class Rent(NamedTuple):
    """How many inputs of a new label are deferred, that is, go to ADMatch, before it is fetched.

    A label with n candidates is fetched once `label + candidate * n` of its inputs were deferred.
    It is fetched at once if it has no candidates, or if the batch in which it is new has that many
    inputs of it.
    """

    label: float
    candidate: float


FETCH_ALL = Rent(0.0, 0.0)
"""Every label is fetched when it is new."""
