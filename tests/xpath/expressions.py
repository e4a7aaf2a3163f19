"""Random expressions over the whole grammar, and documents that they often hold for.

Drawn with `random.Random`: a run has hundreds of thousands of pairs. What is left out is where
libxml2 is known to depart from XPath 1.0: the `following` axis of attributes, what precedes a
comment behind the root element, numbers with an exponent, and the spelling of numbers that are not
integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

NAMESPACES = {"p": "urn:p", "q": "urn:q"}
_NAMES = ("a", "b", "c", "d", "p:a", "q:b", "*", "p:*")
_ATTRIBUTES = ("x", "y", "p:x", "*")
_VALUES = (
    "",
    "1",
    "2",
    "3",
    "10",
    "1.5",
    "-2",
    "ab",
    "b",
    " 2 ",
    "a b",
    "0",
    "-0",
    "x1",
    "007",
    ".5",
    "3.",
)
_NUMBERS = ("0", "1", "2", "3", "10", "1.5", "-2", ".5", "4")
_AXES = (
    "child", "descendant", "descendant-or-self", "self", "parent", "ancestor", "ancestor-or-self",
    "following-sibling", "preceding-sibling", "following", "preceding",
)  # fmt: skip
_COMPARES = ("=", "!=", "<", "<=", ">", ">=")
_LANGUAGES = ("en", "en-US", "de")


class Writer:
    """Writes expressions; `depth` bounds how far they nest."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._attribute = False

    def statement(self) -> str:
        """Any expression, most often a path."""
        roll = self._random.random()
        if roll < 0.55:
            return self.path(3, absolute=self._random.random() < 0.8)
        if roll < 0.8:
            return self.boolean(2)
        if roll < 0.9:
            return self.nodes(2)
        return self._random.choice((self.number, self.string))(2)

    def selection(self) -> str:
        """A node-set that does not depend on the context node."""
        choose = self._random
        first = self.path(2, absolute=True)
        roll = choose.random()
        if roll < 0.5:
            return first
        if roll < 0.75:
            return f"{first} | {self.path(1, absolute=True)}"
        return f"({first})[{self.predicate(1, value=False)}]/{choose.choice(_NAMES)}"

    def path(self, depth: int, *, absolute: bool = False) -> str:
        choose = self._random
        text = (
            choose.choice(("/", "//"))
            if absolute
            else choose.choice(("", "", "", ".//", "./", "../"))
        )
        steps = []
        for index in range(choose.randint(1, 3)):
            last, slash = index == 0, "" if index == 0 else choose.choice(("/", "/", "//"))
            del last
            steps.append(slash + self.step(depth))
            if self._attribute:
                self._attribute = False
                if choose.random() < 0.3:
                    steps.append("/..")
                break
        return text + "".join(steps)

    def step(self, depth: int) -> str:
        choose = self._random
        roll = choose.random()
        if roll < 0.5:
            text = choose.choice(_NAMES)
        elif roll < 0.62:
            self._attribute = True
            text = choose.choice(("@", "attribute::")) + choose.choice(_ATTRIBUTES)
        elif roll < 0.66:
            return choose.choice((".", ".."))
        elif roll < 0.92:
            text = f"{choose.choice(_AXES)}::{self.test()}"
        else:
            text = self.test()
        attribute, self._attribute = self._attribute, False
        for _ in range(choose.choice((0, 0, 0, 1, 1, 2)) if depth > 0 else 0):
            text += f"[{self.predicate(depth - 1, value=attribute)}]"
        self._attribute = attribute
        return text

    def test(self) -> str:
        choose = self._random
        if choose.random() < 0.7:
            return choose.choice(_NAMES)
        return choose.choice(
            (
                "node()",
                "text()",
                "comment()",
                "processing-instruction()",
                "processing-instruction('t')",
            )
        )

    def predicate(self, depth: int, *, value: bool) -> str:
        choose = self._random
        roll = choose.random()
        if value:
            return choose.choice(
                (f". {self.compare()} {self.literal()}", "contains(., 'a')", "1", ". > 1")
            )
        if roll < 0.15:
            return choose.choice(
                ("1", "2", "last()", "position() = 2", "position() < 3", "last() > 1")
            )
        if roll < 0.25:
            return self.number(depth)
        return self.boolean(depth)

    def compare(self) -> str:
        return self._random.choice(_COMPARES)

    def literal(self) -> str:
        choose = self._random
        return repr(choose.choice(_VALUES)) if choose.random() < 0.5 else choose.choice(_NUMBERS)

    def nodes(self, depth: int) -> str:
        choose = self._random
        if depth <= 0 or choose.random() < 0.7:
            return self.path(depth - 1, absolute=choose.random() < 0.2)
        if choose.random() < 0.5:
            return f"{self.nodes(depth - 1)} | {self.nodes(depth - 1)}"
        inner = f"({self.nodes(depth - 1)})[{self.predicate(depth - 1, value=False)}]"
        return inner + choose.choice(
            ("", f"/{choose.choice(_NAMES)}", f"//{choose.choice(_NAMES)}")
        )

    def boolean(self, depth: int) -> str:
        choose = self._random
        roll = choose.random()
        if depth <= 0 or roll < 0.25:
            return self.path(depth - 1)
        if roll < 0.5:
            sides = [self.operand(depth - 1), self.operand(depth - 1)]
            return f"{sides[0]} {self.compare()} {sides[1]}"
        if roll < 0.62:
            word = choose.choice(("and", "or"))
            return f"{self.boolean(depth - 1)} {word} {self.boolean(depth - 1)}"
        if roll < 0.7:
            return f"not({self.boolean(depth - 1)})"
        if roll < 0.82:
            name = choose.choice(("contains", "starts-with"))
            return f"{name}({self.string(depth - 1)}, {self.string(0)})"
        if roll < 0.86:
            return f"lang('{choose.choice(_LANGUAGES)}')"
        if roll < 0.9:
            return choose.choice(("true()", "false()", f"boolean({self.number(depth - 1)})"))
        return f"count({self.nodes(depth - 1)}) {self.compare()} {choose.choice(_NUMBERS)}"

    def operand(self, depth: int) -> str:
        choose = self._random
        roll = choose.random()
        if roll < 0.4:
            return self.path(depth - 1)
        if roll < 0.65:
            return self.literal()
        if roll < 0.8:
            return self.string(depth)
        return self.number(depth) if roll < 0.95 else self._random.choice(("true()", "false()"))

    def number(self, depth: int) -> str:
        choose = self._random
        if depth <= 0:
            return choose.choice((*_NUMBERS, "position()", "last()"))
        roll = choose.random()
        if roll < 0.25:
            return f"count({self.nodes(depth - 1)})"
        if roll < 0.35:
            return f"sum({self.path(0)})"
        if roll < 0.5:
            return f"string-length({self.string(depth - 1)})"
        if roll < 0.65:
            return f"number({self.path(depth - 1)})"
        if roll < 0.75:
            return f"{choose.choice(('floor', 'ceiling', 'round'))}({self.number(depth - 1)})"
        if roll < 0.8:
            return f"-{self.number(0)}"
        sign = choose.choice((" + ", " - ", " * ", " div ", " mod "))
        return f"({self.number(depth - 1)}{sign}{self.number(depth - 1)})"

    def string(self, depth: int) -> str:
        choose = self._random
        if depth <= 0:
            return repr(choose.choice(_VALUES))
        inner = self.path(depth - 1)
        roll = choose.random()
        if roll < 0.2:
            return inner
        if roll < 0.3:
            return f"string({inner})"
        if roll < 0.45:
            return f"normalize-space({inner})"
        if roll < 0.55:
            return f"concat({inner}, {self.string(0)}, {inner})"
        if roll < 0.65:
            return f"substring({inner}, {self.number(0)}, {self.number(0)})"
        if roll < 0.72:
            return f"translate({inner}, 'ab1', 'A2')"
        if roll < 0.82:
            name = choose.choice(("substring-before", "substring-after"))
            return f"{name}({inner}, {self.string(0)})"
        if roll < 0.97:
            return f"{choose.choice(('name', 'local-name', 'namespace-uri'))}({inner})"
        return "name()"


def document(random: Random, most: int = 14) -> bytes:
    """A small document with namespaces, mixed content, comments and instructions."""
    parts: list[str] = []
    left = random.randint(1, most)

    def text() -> str:
        value = random.choice(_VALUES) if random.random() < 0.4 else ""
        if random.random() < 0.07:
            value += random.choice(("<!--a-->", "<?t b?>", "<?u?>", "<![CDATA[1]]>"))
        return value

    def element(depth: int) -> None:
        nonlocal left
        left -= 1
        name = random.choice(("a", "b", "c", "d", "p:a", "q:b", "p:c"))
        spaces = ' xmlns:p="urn:p" xmlns:q="urn:q"' if depth == 0 else ""
        if depth and random.random() < 0.05:
            spaces = ' xmlns="urn:p"' if random.random() < 0.5 else ' xmlns:p="urn:q"'
        keys = [key for key in ("x", "y", "q:x", "z") if random.random() < 0.25]
        if random.random() < 0.05:
            keys.append("xml:lang")
        values = [random.choice(_LANGUAGES if key == "xml:lang" else _VALUES) for key in keys]
        given = "".join(f' {key}="{value}"' for key, value in zip(keys, values, strict=True))
        parts.append(f"<{name}{spaces}{given}>{text()}")
        while left > 0 and random.random() < (0.75 if depth < 6 else 0.1):
            element(depth + 1)
            parts.append(text())
        parts.append(f"</{name}>")

    parts.append(random.choice(("", "", "<!--before-->", "<?t x?>")))
    element(0)
    return "".join(parts).encode()
