"""The covering algorithms of the paper, figures 1.12 to 1.14, as they are printed: the rival.

An expression is absolute or relative (it begins with `//`), and is cut at each `//` into parts
without one. Where a figure and the example beside it disagree about a length, the example counts.
"""

from __future__ import annotations

__all__ = ["paper_covers"]

Parts = tuple[bool, list[list[str]]]


def paper_covers(covering: str, covered: str) -> bool:
    """Whether the paper's algorithm says that one path covers another."""
    return _descendant(_parts(covering), _parts(covered))


def _parts(path: str) -> Parts:
    relative = path.startswith("//")
    pieces = path.lstrip("/").split("//")
    return not relative, [piece.split("/") for piece in pieces]


def _absolute(one: list[str], two: list[str]) -> bool:
    """Figure 1.12."""
    if len(two) < len(one):
        return False
    return all(a in ("*", b) for a, b in zip(one, two, strict=False))


def _relative(one: list[str], two: list[str]) -> int:
    """Figure 1.13: the place of the first match, from 1, or 0."""
    for place in range(len(two) - len(one) + 1):
        if _absolute(one, two[place:]):
            return place + 1
    return 0


def _over_gap(one: list[str], two: list[str], *, skipped: int, more: bool) -> int:
    """The special case: a part that ends in `*` may reach over the next `//`."""
    if one[-1] != "*" or not more or len(two) < len(one) + skipped:
        return 0
    return _relative(one[:-1], two[len(two) - len(one) + 1 :])


def _descendant(covering: Parts, covered: Parts) -> bool:
    """Figure 1.14."""
    (first_absolute, s1), (second_absolute, s2) = covering, covered
    q, p = len(s1), len(s2)
    if sum(map(len, s1)) > sum(map(len, s2)):
        return False
    flag = 0
    if first_absolute and second_absolute:
        found = int(_absolute(s1[0], s2[0]))
        if not found and len(s1[0]) == len(s2[0]) + 1 and s1[0][-1] == "*" and p >= 2:
            found, flag = int(_absolute(s1[0][:-1], s2[0])), 1
        if not found:
            return False
    elif not first_absolute:
        found = _relative(s1[0], s2[0])
        if not found:
            found = _over_gap(s1[0], s2[0], skipped=0, more=p >= 2)
            flag = int(bool(found))
    else:
        return False
    i = j = 1
    reached = skip = 0
    while i <= q and j <= p:
        if not found:
            j, reached = j + 1, 0
            if j == p + 1:
                return False
            one, two = s1[i - 1], s2[j - 1]
            found, flag = _relative(one, two[skip:]), 0
            if not found:
                found = _over_gap(one, two, skipped=skip, more=p >= j)
                flag = int(bool(found))
            skip = 0
            continue
        reached += found + len(s1[i - 1]) - 1
        i += 1
        if i == q + 1:
            return True
        if flag:
            found, skip = 0, 1
            continue
        one, two = s1[i - 1], s2[j - 1]
        found = _relative(one, two[reached:])
        if not found:
            found = _over_gap(one, two, skipped=reached, more=p >= j)
            flag = int(bool(found))
    return False
