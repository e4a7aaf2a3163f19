"""What of a statement cannot be answered: what never holds, names that an index does not have.

None of it is an error. What is missing may come with the next documents, and an anchor without a
key may carry its label; but more often than not it is a slip.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from fmware.labeling.runs import Tag
from fmware.statements.lint import lint
from fmware.xpath import Kind, Path, clark
from fmware.xpath.tree import paths_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fmware.matching.anchors import Resolver
    from fmware.statements import Statement
    from fmware.xpath import Anchor, Step

__all__ = ["advice"]


def advice(statement: Statement, resolver: Resolver) -> list[str]:
    """What a user may want to know of a statement before it is registered with an index."""
    spaces = statement.namespaces
    tags = set(resolver.index.tags)
    found: dict[str, None] = dict.fromkeys(lint(statement))
    for crossing in statement.crossings:
        found.update(dict.fromkeys(_anchor(crossing.anchor, statement, resolver)))
        for step in _steps(crossing.match):
            found.update(dict.fromkeys(_unknown(step, spaces, tags)))
    return list(found)


def _anchor(anchor: Anchor, statement: Statement, resolver: Resolver) -> Iterator[str]:
    """Whether there is a way from an anchor to a local node."""
    step = (statement.filter.steps[anchor.step], *anchor.branch.steps)[-1]
    name = clark(step.prefix, step.name, statement.namespaces)
    rules = ", ".join(map(str, resolver.rules))
    if not resolver.rules:
        yield f"the index has no identity rules: {name} is matched only by fm:mi"
    elif name.endswith("*"):
        return
    elif not resolver.has_key(name):
        yield f"no identity rule is for {name}, which is matched only by fm:mi; there are {rules}"
    elif name not in resolver.numbers:
        near = _nearest(name, resolver.numbers)
        yield f"the corpus has no {name}, so no key of one leads anywhere{near}"


def _unknown(step: Step, namespaces: Mapping[str, str], tags: set[Tag]) -> Iterator[str]:
    """A name that no node of the corpus has."""
    if step.kind is Kind.TEXT:
        return
    name = clark(step.prefix, step.name, namespaces)
    kind, mark = int(step.kind), "@" if step.kind is Kind.ATTRIBUTE else ""
    if name == "*" or Tag(kind, name) in tags:
        return
    alike = {tag.name: None for tag in sorted(tags) if tag.kind == kind}
    if name.endswith("*"):
        if not any(each.startswith(name[:-1]) for each in alike):
            yield f"the corpus has no {mark}{name}: nothing in this namespace"
        return
    other = Tag(1 - kind, name)
    hint = _nearest(name, alike)
    if other in tags:
        hint = f"; it has the {'element' if kind else 'attribute'} {'' if kind else '@'}{name}"
    yield f"the corpus has no {mark}{name}{hint}"


def _nearest(name: str, known: Mapping[str, object]) -> str:
    """Names that look alike; in another namespace, the same local name is nearest."""
    local = name.rpartition("}")[2]
    near = [each for each in known if each != name and each.rpartition("}")[2] == local]
    near = near or get_close_matches(name, known, n=3)
    return f"; nearest: {', '.join(near)}" if near else ""


def _steps(path: Path) -> Iterator[Step]:
    """All steps of a path, those inside its predicates too."""
    for step in path.steps:
        yield step
        for test in step.predicates:
            for inner in paths_of(test):
                yield from _steps(inner)
