"""Random statements and documents over small alphabets, on which many statements are related."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

NAMES = ("a", "b", "c")
ATTRIBUTES = ("x", "y")
VALUES = ("1", "01", "2", "3.5", "-1", "x", "xy", "", " 2 ")


def linear(rng: Random, most: int = 4, *, leaves: bool = True) -> str:
    """A path over `/`, `//` and `*`, which may end in an attribute or text()."""
    text = ""
    for _ in range(rng.randint(1, most)):
        text += rng.choice(("/", "/", "//")) + rng.choice((*NAMES[:2], "*"))
    if leaves and rng.random() < 0.25:
        text += rng.choice(("/", "//")) + rng.choice(("@x", "@*", "text()"))
    return text


def statement(rng: Random) -> str:
    """A path with predicates of all kinds that routing knows."""
    text = ""
    for _ in range(rng.randint(1, 3)):
        text += rng.choice(("/", "/", "//")) + rng.choice((*NAMES, "*"))
        while rng.random() < 0.4:
            text += f"[{predicate(rng)}]"
    if rng.random() < 0.1:
        text += rng.choice(("/@x", "/@*", "//text()", "/text()[. = 'x']"))
    return text


def predicate(rng: Random, depth: int = 2) -> str:
    """One predicate."""
    draw = rng.random()
    if depth and draw < 0.12:
        return f"{predicate(rng, depth - 1)} or {predicate(rng, depth - 1)}"
    if depth and draw < 0.22:
        return f"not({predicate(rng, depth - 1)})"
    if depth and draw < 0.3:
        return f"{relative(rng)}[{predicate(rng, depth - 1)}]"
    if draw < 0.5:
        return relative(rng)
    if draw < 0.56:
        return f"position() {rng.choice(('=', '<', '>'))} {rng.randint(1, 2)}"
    if draw < 0.66:
        kind = rng.choice(("contains", "starts-with"))
        return f"{kind}({rng.choice(('.', '@x', relative(rng)))}, '{rng.choice(('x', 'xy', '1'))}')"
    subject = rng.choice((".", "@x", "@x", "@y", relative(rng), "text()"))
    value = rng.choice(VALUES)
    literal = f"'{value}'" if rng.random() < 0.5 else str(rng.choice((1, 2, 3, 3.5, -1)))
    return f"{subject} {rng.choice(('=', '=', '!=', '<', '<=', '>', '>='))} {literal}"


def relative(rng: Random) -> str:
    """A path from a node."""
    text = rng.choice(("", ".//")) + rng.choice((*NAMES, "*"))
    while rng.random() < 0.35:
        text += rng.choice(("/", "//")) + rng.choice((*NAMES, "*"))
    return text


def varied(rng: Random, text: str) -> str:
    """A statement like another one: often one of the two covers the other."""
    for _ in range(rng.randint(1, 2)):
        draw = rng.random()
        if draw < 0.25:
            text = text.replace("/" + rng.choice(NAMES), "/*", 1)
        elif draw < 0.45:
            text = text.replace("/", "//", 1) if not text.startswith("//") else text[1:]
        elif draw < 0.6:
            text += "/" + rng.choice((*NAMES, "*"))
        elif draw < 0.8 and text[-1] not in ")]" and "@" not in text.rsplit("/", 1)[-1]:
            text += f"[{predicate(rng)}]"
        elif "[" in text and text.endswith("]"):
            text = text[: _opening(text)]
    return text


def _opening(text: str) -> int:
    """Where the last predicate begins."""
    open_ = 0
    for place in range(len(text) - 1, -1, -1):
        open_ += {"]": 1, "[": -1}.get(text[place], 0)
        if not open_:
            return place
    return len(text)


def document(rng: Random, depth: int = 4) -> str:
    """A document of few names and values."""
    name = rng.choice(NAMES)
    attributes = "".join(
        f' {each}="{rng.choice(VALUES)}"' for each in ATTRIBUTES if rng.random() < 0.4
    )
    content = ""
    while depth and rng.random() < 0.6:
        content += rng.choice(VALUES) if rng.random() < 0.25 else document(rng, depth - 1)
    return f"<{name}{attributes}>{content}</{name}>"
