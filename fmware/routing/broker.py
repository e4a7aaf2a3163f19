"""A broker's routing tables: where subscriptions go, and where publications go.

The subscription routing table (SRT) holds advertisements by the link they came from; a subscription
goes to links whose advertisements it intersects. The publication routing table (PRT) holds
subscriptions by the link they came from; a publication goes to links with one that it matches. For
each neighbour, a tree of the statements of all other links says which have to be forwarded there.
A client is a link whose own statements are in the PRT as they are, so what reaches it is what it
asked for, however widely its statements were merged on the way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeVar

from fmware.routing.errors import UnknownSubscription
from fmware.routing.merging import Measure, MergingTree
from fmware.routing.tree import Change, SubscriptionTree

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

    from fmware.routing.advertisement import Advertisement
    from fmware.routing.pattern import Pattern

__all__ = ["Broker", "Matcher", "Message", "Strategy"]

Document = TypeVar("Document", contravariant=True)
D = TypeVar("D")


class Matcher(Protocol[Document]):
    """Matches publications; a module that knows the engine supplies it."""

    def add(self, pattern: Pattern) -> None:
        """Take a statement that is not there yet."""

    def remove(self, pattern: Pattern) -> None:
        """Take a statement away."""

    def match(self, document: Document) -> Iterable[str]:
        """The keys of the statements that a publication matches."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """What a broker does to keep its neighbours' tables small; the paper's six are combinations."""

    advertise: bool = True
    cover: bool = True
    measure: Measure | None = None
    bound: float = 0.0


@dataclass(frozen=True, slots=True)
class Message:
    """What goes over a link."""

    link: Hashable
    kind: Literal["advertise", "unadvertise", "subscribe", "unsubscribe"]
    key: Hashable = None
    advertisement: Advertisement | None = None
    pattern: Pattern | None = None


class _All:
    """Forwards everything: the tree of a broker that does not cover."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._patterns: dict[str, Pattern] = {}

    def insert(self, pattern: Pattern) -> Change:
        self._counts[pattern.key] = self._counts.get(pattern.key, 0) + 1
        self._patterns[pattern.key] = pattern
        return Change([pattern] if self._counts[pattern.key] == 1 else [])

    def remove(self, pattern: Pattern) -> Change:
        self._counts[pattern.key] -= 1
        if self._counts[pattern.key]:
            return Change()
        del self._counts[pattern.key], self._patterns[pattern.key]
        return Change([], [pattern])

    def maximal(self) -> Iterator[Pattern]:
        return iter(self._patterns.values())


@dataclass(slots=True)
class _Link:
    """One neighbour or client: what it announced, what it wants, what it has been sent."""

    client: bool
    advertisements: dict[Hashable, Advertisement] = field(default_factory=dict)
    wants: dict[str, tuple[Pattern, int]] = field(default_factory=dict)
    forwarded: SubscriptionTree | MergingTree | _All = field(default_factory=_All)


class Broker(Generic[D]):
    """Routing tables and what changes them; messages to be sent are what methods give back."""

    def __init__(self, matcher: Callable[[], Matcher[D]], strategy: Strategy | None = None) -> None:
        self.strategy = strategy or Strategy()
        self._links: dict[Hashable, _Link] = {}
        self._matcher = matcher()
        self._wanted: dict[str, set[Hashable]] = {}

    def __len__(self) -> int:
        """The size of the PRT: its different statements."""
        return len(self._wanted)

    def connect(self, link: Hashable, *, client: bool = False) -> None:
        """Add a link to a neighbour or to a client; before anything is sent over it."""
        self._links[link] = _Link(client, forwarded=self._tree())

    def _tree(self) -> SubscriptionTree | MergingTree | _All:
        if not self.strategy.cover:
            return _All()
        if self.strategy.measure is None:
            return SubscriptionTree()
        return MergingTree(self.strategy.measure, self.strategy.bound)

    # -- advertisements --

    def advertise(
        self, link: Hashable, key: Hashable, advertisement: Advertisement
    ) -> list[Message]:
        """Take an advertisement that came over a link, under a key of its publisher's."""
        own = self._links[link]
        own.advertisements[key] = advertisement
        if not self.strategy.advertise:
            return []
        sent = [
            Message(other, "advertise", key, advertisement)
            for other, each in self._links.items()
            if other != link and not each.client
        ]
        if own.client:
            return sent
        for pattern in self._wanted_elsewhere(link):
            earlier = (a for k, a in own.advertisements.items() if k != key)
            if advertisement.intersects(pattern) and not any(
                a.intersects(pattern) for a in earlier
            ):
                sent += _messages(link, own.forwarded.insert(pattern))
        return sent

    def unadvertise(self, link: Hashable, key: Hashable) -> list[Message]:
        """Take an advertisement back; subscriptions that went there for it alone are withdrawn."""
        own = self._links[link]
        gone = own.advertisements.pop(key, None)
        if gone is None or not self.strategy.advertise:
            return []
        sent = [
            Message(other, "unadvertise", key)
            for other, each in self._links.items()
            if other != link and not each.client
        ]
        if own.client:
            return sent
        for pattern in self._wanted_elsewhere(link):
            if gone.intersects(pattern) and not self._leads(own, pattern):
                sent += _messages(link, own.forwarded.remove(pattern))
        return sent

    def _wanted_elsewhere(self, link: Hashable) -> list[Pattern]:
        """The statements of all other links, each as often as there are links that want it."""
        return [
            pattern
            for other, each in self._links.items()
            if other != link
            for pattern, _ in each.wants.values()
        ]

    def _leads(self, link: _Link, pattern: Pattern) -> bool:
        """Whether publications for a statement may come over a link."""
        if link.client:
            return False
        if not self.strategy.advertise:
            return True
        return any(a.intersects(pattern) for a in link.advertisements.values())

    # -- subscriptions --

    def subscribe(self, link: Hashable, pattern: Pattern) -> list[Message]:
        """Take a subscription that came over a link."""
        own = self._links[link]
        _, count = own.wants.get(pattern.key, (pattern, 0))
        own.wants[pattern.key] = (pattern, count + 1)
        if count:
            return []
        links = self._wanted.get(pattern.key)
        if links is None:
            links = self._wanted[pattern.key] = set()
            self._matcher.add(pattern)
        links.add(link)
        sent: list[Message] = []
        for other, each in self._links.items():
            if other != link and self._leads(each, pattern):
                sent += _messages(other, each.forwarded.insert(pattern))
        return sent

    def unsubscribe(self, link: Hashable, pattern: Pattern) -> list[Message]:
        """Take a subscription away. Raises `UnknownSubscription` if the link has none such."""
        own = self._links[link]
        if pattern.key not in own.wants:
            raise UnknownSubscription(f"link {link} has no subscription {pattern.text}")
        known, count = own.wants.pop(pattern.key)
        if count > 1:
            own.wants[pattern.key] = (known, count - 1)
            return []
        links = self._wanted[pattern.key]
        links.discard(link)
        if not links:
            del self._wanted[pattern.key]
            self._matcher.remove(known)
        sent: list[Message] = []
        for other, each in self._links.items():
            if other != link and self._leads(each, known):
                sent += _messages(other, each.forwarded.remove(known))
        return sent

    def merge(self) -> list[Message]:
        """Merge what is forwarded to each neighbour; to be called now and then."""
        sent: list[Message] = []
        for other, each in self._links.items():
            if isinstance(each.forwarded, MergingTree) and not each.client:
                sent += _messages(other, each.forwarded.merge())
        return sent

    # -- publications --

    def publish(self, link: Hashable, document: D) -> set[Hashable]:
        """The links that a publication which came over a link goes to."""
        found: set[Hashable] = set()
        for key in self._matcher.match(document):
            found |= self._wanted[key]
        found.discard(link)
        return found


def _messages(link: Hashable, change: Change) -> list[Message]:
    """New subscriptions before old ones are taken back, so that none is missing in between."""
    return [Message(link, "subscribe", pattern=p) for p in change.added] + [
        Message(link, "unsubscribe", pattern=p) for p in change.removed
    ]
