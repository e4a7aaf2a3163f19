"""What an adaptive operator did so far: what its choices took, and when it changed its mind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cmatch.model import Choice

__all__ = ["Spent", "Switch"]


@dataclass(frozen=True, slots=True)
class Switch:
    """A change of mind: after so many inputs and seconds, from one choice to another."""

    inputs: int
    seconds: float
    before: Choice
    after: Choice
    why: str

    def to_json(self) -> dict[str, Any]:
        return {
            "inputs": self.inputs,
            "seconds": self.seconds,
            "from": str(self.before),
            "to": str(self.after),
            "why": self.why,
        }


@dataclass(slots=True)
class Spent:
    """What was measured: inputs, batches, and seconds in `feed` and `drain`; the same by choice."""

    inputs: int = 0
    batches: int = 0
    seconds: float = 0.0
    choices: dict[Choice, Spent] = field(default_factory=dict)

    def plus(self, choice: Choice, more: Spent) -> Spent:
        """With what one choice has taken since."""
        before = self.choices.get(choice, Spent())
        own = Spent(
            before.inputs + more.inputs,
            before.batches + more.batches,
            before.seconds + more.seconds,
        )
        return Spent(
            self.inputs + more.inputs,
            self.batches + more.batches,
            self.seconds + more.seconds,
            {**self.choices, choice: own},
        )

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "inputs": self.inputs,
            "batches": self.batches,
            "seconds": self.seconds,
        }
        if self.choices:
            found["choices"] = {str(each): own.to_json() for each, own in self.choices.items()}
        return found
