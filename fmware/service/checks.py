"""The `[[tests]]` of a configuration: messages in, and the matches that they must have.

They run on the index and with the statements that the service has, through the same middleware.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from fmware.corpus import build_index
from fmware.filtering import FilterLimits
from fmware.labeling import CHARACTER_ENTITIES, Limits
from fmware.middleware import Middleware
from fmware.service.envelope import DEFAULT
from fmware.service.errors import ServiceError, StatementRefused
from fmware.statements import Returns, StatementFileError, read_statements, refusal
from fmware.xpath import XPathError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fmware.matching.results import Match, Result
    from fmware.service.settings import Expected, MessageLimits, Settings, Test
    from fmware.statements import Statement

__all__ = ["Verdict", "has_index", "run", "statements_of"]


@dataclass(slots=True)
class Verdict:
    """How a test went: matches that were expected and did not come, and others that came."""

    test: str
    tenant: str = DEFAULT
    missing: list[dict[str, Any]] = field(default_factory=list)
    surplus: list[dict[str, Any]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    matched: int = 0

    @property
    def passed(self) -> bool:
        """Whether all came as it was expected."""
        return not (self.missing or self.surplus or self.errors)

    def record(self) -> dict[str, Any]:
        """The verdict for programs."""
        return {
            "test": self.test,
            "tenant": self.tenant,
            "passed": self.passed,
            "matched": self.matched,
            "missing": self.missing,
            "surplus": self.surplus,
            "errors": self.errors,
        }


def run(settings: Settings) -> Iterator[Verdict]:
    """Run the tests, in their order; each tenant has a middleware of its own."""
    with ExitStack() as stack:
        running: dict[str, Middleware] = {}
        index = _index(settings, stack) if settings.tests else settings.index
        for test in settings.tests:
            if test.tenant not in running:
                made = _middleware(settings, index, test.tenant)
                running[test.tenant] = stack.enter_context(made)
            yield _judged(test, running[test.tenant])


def has_index(settings: Settings) -> bool:
    """Whether there is an index where the settings say."""
    return (settings.index / "manifest.json").exists()


def _index(settings: Settings, stack: ExitStack) -> Path:
    """The index; an empty one if there is none and no statement asks it anything."""
    if has_index(settings):
        return settings.index
    for tenant in settings.everyone():
        for statement in statements_of(settings, tenant.name):
            if not statement.plain:
                said = f"{settings.index}: no index here, and statement {statement.name} asks it"
                name = settings.index.name
                raise ServiceError(f"{said}; make one: fmware index build CORPUS --out {name}")
    place = Path(stack.enter_context(TemporaryDirectory(prefix="fmware-test-")))
    build_index(b"<nothing/>", place / "index")
    return place / "index"


def statements_of(settings: Settings, tenant: str) -> Iterator[Statement]:
    """The statements that the configuration gives a tenant; a bad one ends the tests."""
    for each in settings.statements:
        if each.tenant == tenant:
            try:
                yield each.statement()
            except XPathError as error:
                raise StatementRefused(f"statement {each.name}: {error}") from None
    for path in settings.statements_files if tenant == DEFAULT else ():
        try:
            found = read_statements(path)
        except StatementFileError as error:
            raise StatementRefused(str(error)) from None
        if found.bad:
            raise StatementRefused(refusal(path, found.bad[0]))
        yield from found


def _middleware(settings: Settings, index: Path, tenant: str) -> Middleware:
    limits, engine = settings.limits, settings.engine
    made = Middleware(
        index,
        operator=engine.operator,
        scheme=engine.scheme,
        budget=engine.budget,
        threads=engine.threads,
        read_limits=_read_limits(limits),
        limits=FilterLimits(work=limits.work, tuples=limits.tuples),
        entities=CHARACTER_ENTITIES if limits.entities else None,
    )
    expected = [each for test in settings.tests if test.tenant == tenant for each in test.matches]
    try:
        for statement in statements_of(settings, tenant):
            made.subscribe(_asking(statement, expected))
    except BaseException:
        made.close()
        raise
    return made


def _read_limits(limits: MessageLimits) -> Limits:
    return Limits(
        bytes=limits.bytes,
        depth=limits.depth,
        nodes=limits.nodes,
        attribute=limits.attribute,
        text=limits.text,
        names=limits.names,
        name_bytes=limits.name_bytes,
    )


def _asking(statement: Statement, expected: Sequence[Expected]) -> Statement:
    """The statement, returning all that a test wants to see of it."""
    about = [each for each in expected if each.statement == statement.name]
    more = {Returns.MESSAGE} if any(each.nodes is not None for each in about) else set()
    more |= {Returns.VALUE} if any(each.value is not None for each in about) else set()
    more |= {Returns.FRAGMENT} if any(each.fragment is not None for each in about) else set()
    if statement.selects:
        more |= {Returns.LOCAL} if any(each.tag or each.path for each in about) else set()
    return replace(statement, returns=statement.returns | more)


# --- judging ------------------------------------------------------------------------------------


def _judged(test: Test, middleware: Middleware) -> Verdict:
    verdict = Verdict(test.name, test.tenant)
    unknown = {each.statement for each in test.matches} - {
        each.name for each in middleware.statements
    }
    if unknown:
        there = ", ".join(each.name for each in middleware.statements) or "none"
        verdict.errors.append(f"no statement {min(unknown)!r}; there are: {there}")
        return verdict
    result = middleware.publish(_message(test), name=test.name)
    reasons = result.problems
    if test.error is not None:
        if not any(test.error in reason for reason in reasons):
            said = "; ".join(reasons) or "it was taken"
            verdict.errors.append(f"was to be refused with {test.error!r}: {said}")
        return verdict
    verdict.errors += reasons
    found = [_record(match, result) for match in result.matches]
    wanted = [each.model_dump(exclude_none=True, mode="json") for each in test.matches]
    paired = _paired(wanted, found)
    verdict.matched = len(paired)
    verdict.missing = [each for at, each in enumerate(wanted) if at not in paired]
    verdict.surplus = [each for at, each in enumerate(found) if at not in paired.values()]
    return verdict


def _message(test: Test) -> bytes:
    if test.file is None:
        return (test.message or "").encode()
    try:
        return test.file.read_bytes()
    except OSError as error:
        said = f"test {test.name}: {test.file}: {error.strerror}; name another file"
        raise ServiceError(said) from None


def _record(match: Match, result: Result) -> dict[str, Any]:
    """A match as a test would write it."""
    about: dict[str, Any] = {"statement": match.statement}
    if match.nodes and result.table is not None:
        about["nodes"] = [result.table.path(row) for row in match.nodes]
    if match.local is not None:
        about |= {"tag": match.local.tag, "path": match.local.path}
    node = match if match.local is None else match.local
    about |= {"value": node.value} if node.value is not None else {}
    about |= {"fragment": node.fragment.decode()} if node.fragment is not None else {}
    return about


def _paired(wanted: Sequence[dict[str, Any]], found: Sequence[dict[str, Any]]) -> dict[int, int]:
    """Which expected match is which found one, so that as many as possible have a partner.

    One that says little fits several; it gives way to one that has no other choice.
    """
    fits = [[at for at, each in enumerate(found) if _fits(want, each)] for want in wanted]
    partner: dict[int, int] = {}

    def place(want: int, seen: set[int]) -> bool:
        for at in fits[want]:
            if at in seen:
                continue
            seen.add(at)
            if at not in partner or place(partner[at], seen):
                partner[at] = want
                return True
        return False

    for want in range(len(wanted)):
        place(want, set())
    return {want: at for at, want in partner.items()}


def _fits(want: dict[str, Any], found: dict[str, Any]) -> bool:
    return all(found.get(key) == value for key, value in want.items())
