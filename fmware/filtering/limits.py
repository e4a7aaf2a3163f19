"""How much the statements, and one document, may ask of the filter."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FilterLimits"]


@dataclass(frozen=True, slots=True)
class FilterLimits:
    """Caps of a `FilterEngine`.

    - `statements`, `states`: what the engine holds; a statement that would go over is refused.
    - `active`: states active at one element; a document that goes over is an error of its own.
    - `work`: units that one document may be charged, for all that does not simply grow with its
      bytes: states and entries of sets that the automaton meets for the first time, nodes visited
      and bytes compared by predicates, conditions tried, entries fired, tuples listed. A unit is 2
      to 5 ns of CPU, at worst 20. When it is used up, statements whose predicates are still open
      are reported as undecided, and those whose tuples are not all listed as truncated. The
      automaton goes on for a quarter as much; if that is used up as well, all statements that have
      not matched are undecided.
    - `tuples`: path tuples a statement may have in one document; there are no more than these
      in the result, and the statement is named in `truncated`.
    - `cache`: bytes of the lazy DFA of each thread; over it, the DFA is dropped and grows anew.
      The predicates of states that more than 256 statements share are kept beside it.
    """

    statements: int = 10_000_000
    states: int = 50_000_000
    active: int = 1_000_000
    work: int = 50_000_000
    tuples: int = 100_000
    cache: int = 256 * 2**20
