"""Networks of brokers: what is delivered is what one engine would deliver, for every strategy."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from fmware import FilterEngine
from fmware.datasets import documents, queries
from fmware.datasets.dtd import Dtd
from fmware.filtering.matcher import EngineMatcher
from fmware.routing import (
    Advertisement,
    Network,
    Pattern,
    SchemaMeasure,
    Strategy,
    UnknownSubscription,
    read_dtd,
)
from fmware.routing.network import binary_tree

if TYPE_CHECKING:
    from collections.abc import Hashable

DTD = """<!ELEMENT r (a | b | m)*> <!ELEMENT a (b?, c*, d*)> <!ELEMENT b (a?, c?, e?)>
<!ELEMENT m (c | n | d)*> <!ELEMENT c (#PCDATA)> <!ELEMENT d (#PCDATA)> <!ELEMENT e EMPTY>
<!ELEMENT n (m?, d)> <!ATTLIST c k CDATA #IMPLIED>"""
OTHER = b"<!ELEMENT r (q*)> <!ELEMENT q (c?)> <!ELEMENT c (#PCDATA)>"
MEASURE = SchemaMeasure(read_dtd(DTD.encode()))
STRATEGIES = {
    "no-Adv-no-Cov": Strategy(advertise=False, cover=False),
    "no-Adv-with-Cov": Strategy(advertise=False),
    "with-Adv-no-Cov": Strategy(cover=False),
    "with-Adv-with-Cov": Strategy(),
    "with-Adv-with-CovPM": Strategy(measure=MEASURE),
    "with-Adv-with-CovIPM": Strategy(measure=MEASURE, bound=0.6),
}


class Flat:
    """The clients' statements in one engine."""

    def __init__(self) -> None:
        self.engine = FilterEngine()
        self.numbers: dict[tuple[Hashable, str], int] = {}
        self.clients: dict[int, Hashable] = {}

    def subscribe(self, client: Hashable, text: str) -> None:
        number = self.numbers[client, text] = self.engine.subscribe(text)
        self.clients[number] = client

    def unsubscribe(self, client: Hashable, text: str) -> None:
        number = self.numbers.pop((client, text))
        del self.clients[number]
        self.engine.unsubscribe(number)

    def publish(self, document: bytes) -> set[Hashable]:
        return {self.clients[number] for number in self.engine.filter(document).ids}


def statements(seed: int) -> list[str]:
    dtd = Dtd.parse(DTD)
    texts = list(queries(dtd, 120, seed=seed, depth=5, wildcard=0.15, descendant=0.25))
    return texts + list(queries(dtd, 30, seed=seed, depth=4, predicates=1, nested=1))


@pytest.mark.parametrize("name", STRATEGIES)
def test_deliveries_equal_those_of_one_engine(name: str) -> None:
    rng = Random(f"network {name}")
    network: Network[bytes] = Network(binary_tree(3), EngineMatcher, STRATEGIES[name])
    flat = Flat()
    texts = statements(3)
    messages = list(documents(Dtd.parse(DTD), 60, seed=2, repeats=2, depth=6))
    for leaf in range(3, 7):
        network.client(f"s{leaf}", leaf)
    network.client("p", 4)
    network.client("other", 1)
    network.advertise("p", "news", Advertisement.from_dtd(DTD.encode()))
    network.advertise("other", "else", Advertisement.from_dtd(OTHER))
    here: list[tuple[str, str]] = []
    delivered = 0
    for turn, message in enumerate(messages):
        for text in rng.sample(texts, 5):
            client = f"s{rng.randrange(3, 7)}"
            if (client, text) not in here:
                here.append((client, text))
                network.subscribe(client, text)
                flat.subscribe(client, text)
        while len(here) > 60 or (here and rng.random() < 0.5):
            client, text = here.pop(rng.randrange(len(here)))
            network.unsubscribe(client, text)
            flat.unsubscribe(client, text)
        if turn % 7 == 3:
            network.merge()
        if turn == 30:
            network.unadvertise("p", "news")
            network.advertise("p", "again", Advertisement.from_dtd(DTD.encode()))
        # A publisher's own statements are its own affair: clients are not its neighbours' links.
        found = network.publish("p", message)
        assert found == flat.publish(message), (turn, name)
        delivered += len(found)
    assert delivered > 20


def test_covering_and_advertisements_save_messages() -> None:
    counts = {}
    for name, strategy in STRATEGIES.items():
        network: Network[bytes] = Network(binary_tree(3), EngineMatcher, strategy)
        network.client("p", 3)
        network.client("s", 6)
        network.advertise("p", "news", Advertisement.from_dtd(DTD.encode()))
        for text in statements(5):
            network.subscribe("s", text)
        network.merge()
        counts[name] = (network.traffic, len(network.brokers[3]))
    flooding, covering = counts["no-Adv-no-Cov"], counts["no-Adv-with-Cov"]
    assert covering[0] < flooding[0]
    assert covering[1] < flooding[1]
    assert counts["with-Adv-with-Cov"][0] < counts["with-Adv-no-Cov"][0] < flooding[0]
    assert counts["with-Adv-with-CovIPM"][1] <= counts["with-Adv-with-Cov"][1]


def test_a_subscription_goes_only_where_messages_for_it_come_from() -> None:
    network: Network[bytes] = Network(binary_tree(3), EngineMatcher, Strategy())
    network.client("p", 3)
    network.client("s", 6)
    network.subscribe("s", "//m/n")
    assert network.received["subscribe"] == 1
    network.advertise("p", "news", Advertisement.from_dtd(DTD.encode()))
    # It follows the announcement back: 6 knew it, then 2, 0, 1 and 3 learn it.
    assert network.received["subscribe"] == 5
    assert len(network.brokers[5]) == len(network.brokers[4]) == 0
    network.subscribe("s", "//zzz")
    assert network.received["subscribe"] == 6
    network.unadvertise("p", "news")
    assert [len(network.brokers[n]) for n in (3, 1, 0, 2)] == [0, 0, 0, 0]


def test_an_unknown_subscription_cannot_be_ended() -> None:
    network: Network[bytes] = Network(binary_tree(2), EngineMatcher, Strategy())
    network.client("s", 1)
    with pytest.raises(UnknownSubscription):
        network.unsubscribe("s", Pattern("/a"))
