"""A network of brokers in one process: links, messages on them, and what was counted.

Brokers form a tree. A message is handled before the next one that was sent after it, so tables
are settled when a call returns. `Network.received` counts what all brokers received, by kind.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Generic, TypeVar

from fmware.routing._paths import PathIndex, Symbols
from fmware.routing.broker import Broker, Matcher, Message, Strategy
from fmware.routing.pattern import Pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from fmware.routing.advertisement import Advertisement

__all__ = ["Network", "WordMatcher", "binary_tree"]

D = TypeVar("D")


def binary_tree(levels: int) -> list[tuple[int, int]]:
    """The links of a tree in which each broker has two below it: 3 levels are 7 brokers."""
    return [((child - 1) // 2, child) for child in range(1, 2**levels - 1)]


class WordMatcher:
    """Matches linear paths with publications that are one word: the names from root to leaf."""

    def __init__(self) -> None:
        self._symbols = Symbols()
        self._index = PathIndex(self._symbols)
        self._entries: dict[str, tuple[int, int]] = {}
        self._keys: list[str] = []
        self._free: list[int] = []

    def add(self, pattern: Pattern) -> None:
        """Take a linear path."""
        if not pattern.plain:
            raise ValueError(f"{pattern.text}: only linear paths are matched with words")
        owner = self._free.pop() if self._free else len(self._keys)
        if owner == len(self._keys):
            self._keys.append("")
        self._keys[owner] = pattern.key
        codes = pattern.codes(self._symbols)
        entry = self._index.add(owner, codes, spine=True, plain=True)
        self._entries[pattern.key] = (entry, owner)

    def remove(self, pattern: Pattern) -> None:
        """Take a path away."""
        entry, owner = self._entries.pop(pattern.key)
        self._index.remove(entry)
        self._free.append(owner)

    def match(self, document: Sequence[str]) -> Iterable[str]:
        """The keys of the paths that a word has a prefix in."""
        letters = [self._symbols.add(0, name) for name in document]
        return [self._keys[owner] for owner in self._index.matching(letters)]


class Network(Generic[D]):
    """Brokers 0 to n - 1, joined by links, with clients at any of them."""

    def __init__(
        self,
        links: Iterable[tuple[int, int]],
        matcher: Callable[[], Matcher[D]],
        strategy: Strategy,
    ) -> None:
        self.brokers: dict[int, Broker[D]] = {}
        self.received: Counter[str] = Counter()
        self.delivered: list[tuple[Hashable, D]] = []
        self._homes: dict[Hashable, int] = {}
        for pair in links:
            for broker, other in (pair, pair[::-1]):
                self.brokers.setdefault(broker, Broker(matcher, strategy)).connect(other)

    @property
    def traffic(self) -> int:
        """All messages that brokers received."""
        return self.received.total()

    def client(self, name: Hashable, broker: int) -> None:
        """Connect a client; its name must be no broker's number."""
        self._homes[name] = broker
        self.brokers[broker].connect(name, client=True)

    def advertise(self, client: Hashable, key: Hashable, advertisement: Advertisement) -> None:
        """A publisher announces what it will publish."""
        home = self._homes[client]
        self._arrive("advertise")
        self._carry(home, self.brokers[home].advertise(client, key, advertisement))

    def unadvertise(self, client: Hashable, key: Hashable) -> None:
        """A publisher takes an announcement back."""
        home = self._homes[client]
        self._arrive("unadvertise")
        self._carry(home, self.brokers[home].unadvertise(client, key))

    def subscribe(self, client: Hashable, statement: str | Pattern) -> None:
        """A client subscribes."""
        home, pattern = self._homes[client], _ready(statement)
        self._arrive("subscribe")
        self._carry(home, self.brokers[home].subscribe(client, pattern))

    def unsubscribe(self, client: Hashable, statement: str | Pattern) -> None:
        """A client's subscription ends."""
        home, pattern = self._homes[client], _ready(statement)
        self._arrive("unsubscribe")
        self._carry(home, self.brokers[home].unsubscribe(client, pattern))

    def merge(self) -> None:
        """Let all brokers merge what they forward, those furthest from the first broker first."""
        for number in sorted(self.brokers, reverse=True):
            self._carry(number, self.brokers[number].merge())

    def publish(self, client: Hashable, document: D) -> set[Hashable]:
        """Publish, and get the clients that it was delivered to."""
        todo: deque[tuple[int, Hashable]] = deque([(self._homes[client], client)])
        found: set[Hashable] = set()
        while todo:
            number, origin = todo.popleft()
            self._arrive("publish")
            for link in self.brokers[number].publish(origin, document):
                if link in self._homes:
                    found.add(link)
                elif isinstance(link, int):
                    todo.append((link, number))
        return found

    def _arrive(self, kind: str) -> None:
        self.received[kind] += 1

    def _carry(self, origin: int, messages: list[Message]) -> None:
        todo = deque((origin, message) for message in messages)
        while todo:
            sender, message = todo.popleft()
            receiver = message.link
            if not isinstance(receiver, int) or receiver in self._homes:
                continue
            self._arrive(message.kind)
            answers = self._handle(self.brokers[receiver], sender, message)
            todo += ((receiver, answer) for answer in answers)

    def _handle(self, broker: Broker[D], sender: int, message: Message) -> list[Message]:
        if message.kind == "advertise" and message.advertisement is not None:
            return broker.advertise(sender, message.key, message.advertisement)
        if message.kind == "unadvertise":
            return broker.unadvertise(sender, message.key)
        if message.pattern is None:
            return []
        if message.kind == "subscribe":
            return broker.subscribe(sender, message.pattern)
        return broker.unsubscribe(sender, message.pattern)


def _ready(statement: str | Pattern) -> Pattern:
    return statement if isinstance(statement, Pattern) else Pattern(statement)
