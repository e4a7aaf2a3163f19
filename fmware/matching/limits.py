"""What matching may spend on one message."""

from __future__ import annotations

from dataclasses import dataclass

from fmware.errors import FMwareError

__all__ = ["MatchLimits"]


@dataclass(frozen=True, slots=True)
class MatchLimits:
    """Bounds of one message, kept while its matches are made.

    A message that would need more is answered with what fits. The statements that are cut short
    are in `Result.truncated`.

    - `pairs`: pairs of an anchor and a node of the corpus, of all its statements together. A pair
      takes 32 bytes.
    - `bytes`: values and fragments in one output: an Arrow table, or lines of JSON.
    """

    pairs: int = 250_000
    bytes: int = 64 << 20

    def __post_init__(self) -> None:
        for name in ("pairs", "bytes"):
            if getattr(self, name) < 1:
                raise FMwareError(f"{name} of MatchLimits must be at least 1")
