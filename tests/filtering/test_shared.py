"""Statements that share their parts in many ways are answered as lxml answers them one by one.

Statements are put together from a small stock of conditions, by `and`, `or`, `not()`, brackets,
nested paths and further steps, so that every condition stands in many of them. Hundreds of them end
at the same state, where they come and go between documents. The test counts its pairs and fails if
there are fewer than 300,000.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lxml import etree

from fmware.filtering import FilterEngine
from tests.filtering.workload import NAMESPACES, condition, document

PAIRS = 300_000
DOCUMENTS = 20
STATEMENTS = 600
EXAMPLES = -(-PAIRS // (DOCUMENTS * STATEMENTS))
HEADS = ("//a", "//a", "//*", "/*", "//b/a", "/a//b", "/*/*", "//a//*", "//p:a")
TAILS = ("", "", "", "", "/b", "//a", "/*", "/@x", "/text()")
NESTED = ("b", "*", ".//a", "a/b", "*//b", "p:*")

unhurried = settings(deadline=None, suppress_health_check=list(HealthCheck))


def combined(random: Random, stock: list[str], depth: int) -> str:
    """A predicate made of conditions of the stock."""
    draw = random.random()
    if depth == 0 or draw < 0.35:
        return random.choice(stock)
    if draw < 0.5:
        return f"not({combined(random, stock, depth - 1)})"
    if draw < 0.65:
        # What looks at positions would count other nodes there, which is right as well.
        return f"{random.choice(NESTED)}[{combined(random, stock, depth - 1)}]"
    word = random.choice((" and ", " or ", " or "))
    terms = [combined(random, stock, depth - 1) for _ in range(random.choice((2, 2, 3)))]
    return f"({word.join(terms)})"


def sharing(random: Random, stock: list[str]) -> str:
    """A statement whose predicates are made of conditions of the stock."""
    brackets = [f"[{combined(random, stock, 2)}]" for _ in range(random.choice((1, 1, 2, 3)))]
    tail = random.choice(TAILS)
    if tail in ("/b", "//a", "/*") and random.random() < 0.5:
        tail += f"[{combined(random, stock, 1)}]"
    return random.choice(HEADS) + "".join(brackets) + tail


def expected(statements: dict[int, etree.XPath], tree: etree._ElementTree) -> list[int]:
    return sorted(number for number, xpath in statements.items() if xpath(tree))


def test_statements_that_share_parts_on_many_pairs() -> None:
    pairs = 0
    matched = 0

    @settings(unhurried, max_examples=EXAMPLES)
    @given(st.integers(0, 2**64))
    def check_all(seed: int) -> None:
        nonlocal pairs, matched
        random = Random(seed)
        stock = [condition(random, 1) for _ in range(random.choice((3, 8, 20)))]
        engine = FilterEngine()
        statements: dict[int, etree.XPath] = {}

        def subscribe(count: int) -> None:
            for _ in range(count):
                text = sharing(random, stock)
                number = engine.subscribe(text, namespaces=NAMESPACES)
                statements[number] = etree.XPath(text, namespaces=NAMESPACES)

        subscribe(STATEMENTS)
        for turn in range(DOCUMENTS):
            data = document(random, depth=4)
            tree = etree.fromstring(data).getroottree()
            answer = expected(statements, tree)
            result = engine.filter(data)
            assert sorted(result.ids.tolist()) == answer, data
            assert not result.undecided
            pairs += len(statements)
            matched += len(answer)
            if turn % 3 == 2:
                gone = random.sample(sorted(statements), random.choice((1, 30, 300)))
                for number in gone:
                    engine.unsubscribe(number)
                    del statements[number]
                subscribe(len(gone))

    check_all()
    assert pairs >= PAIRS
    assert matched > pairs / 20


def test_nothing_is_left_of_statements_that_went() -> None:
    engine = FilterEngine()
    random = Random(1)
    before = engine.stats()
    stock = [condition(random, 2) for _ in range(10)]
    for _ in range(3):
        numbers = [
            engine.subscribe(sharing(random, stock), namespaces=NAMESPACES) for _ in range(500)
        ]
        engine.filter(document(random))
        random.shuffle(numbers)
        for number in numbers:
            engine.unsubscribe(number)
    after = engine.stats()
    for count in ("states", "edges", "patterns", "entries", "conditions", "aims", "literals"):
        assert after[count] == before[count], count


def test_equal_parts_of_different_statements_are_one() -> None:
    engine = FilterEngine()
    engine.subscribe("/sale[@shop = 'n' and product[units > 3]]")
    alone = engine.stats()["conditions"]
    for name in "abcdefgh":
        engine.subscribe(f"/sale[product[units > 3]][@shop = 'n']/{name}")
        engine.subscribe(f"//{name}[product[3 < units]]")
    assert engine.stats()["conditions"] == alone


@pytest.mark.parametrize(
    "form",
    [
        "/a[@k = '{}']",
        "/*[@k = '{}']",
        "/a[c = '{}']",
        "/a[c/@k = '{}']",
        "/a[c[@k = '{}']]",
        "/a[c[@k = '{}'][b]]/c",
        "//c[. = '{}']",
        "//c[text() = '{}']",
        "/a[@k = '{}' or c = '{}x']",
        "/a[b][@k = '{}' and not(d)]",
        "/a/c[@k = '{}'][2]",
        "/a[starts-with(c, '{}')]",
        "/a[contains(@k, '{}')]",
        "//c[contains(., '{}')]",
    ],
)
def test_what_is_tried_does_not_grow_with_keys_that_do_not_match(form: str) -> None:
    """A key is looked up, wherever it stands."""
    document = b"<a k='key7'><b/><c k='key7'>key7<b/></c><c k='key9'>key9</c></a>"
    tried = []
    for count in (40, 4_000):
        engine = FilterEngine()
        for number in range(count):
            engine.subscribe(form.replace("{}", f"key{number}"))
        engine.filter(document)
        before = engine.stats()
        engine.filter(document)
        after = engine.stats()
        tried.append([after[key] - before[key] for key in ("asked", "fired")])
    # Layers of groups are asked one by one, and there are as many as the logarithm of the entries.
    assert tried[1][1] <= tried[0][1], form
    assert tried[1][0] <= 4 * tried[0][0], form


def test_the_first_of_several_texts_is_scanned_whatever_fires_on_the_way() -> None:
    """What a literal lets through is evaluated on texts of its own."""
    engine = FilterEngine()
    texts = ["x", "y", "yz"]
    for text in texts:
        engine.subscribe(f"/a[contains(b, '{text}')][c = 'many words']")
    found = engine.filter(b"<a><b>x<i/>y</b><c>many<i/> words</c></a>")
    assert sorted(found.ids.tolist()) == [0, 1]
