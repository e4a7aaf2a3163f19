"""Statements and messages by chance, cheap and dear, and a corpus with many pairs for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fmware.corpus import build_index

if TYPE_CHECKING:
    import random
    from pathlib import Path

ITEMS, LEAVES = 6, 8
NAMES = ("a", "b", "c", "d", "item")


def corpus(folder: Path) -> Path:
    """The index of items, each with many leaves."""
    leaves = "".join(f"<leaf n='{n}'><x>{n % 3}</x></leaf>" for n in range(LEAVES))
    items = (f"<item sku='p{n}'><box>{leaves}</box></item>" for n in range(ITEMS))
    (folder / "stock.xml").write_text(f"<stock>{''.join(items)}</stock>")
    build_index(
        folder / "stock.xml",
        folder / "index",
        record="item",
        identity=["item=@sku"],
        calibrate=False,
    )
    return folder / "index"


def element(draw: random.Random, depth: int) -> str:
    name = draw.choice(NAMES)
    key = f" sku='p{draw.randrange(ITEMS + 2)}'" if name == "item" else ""
    count = draw.randrange(4) if depth else 0
    inside = "".join(element(draw, depth - 1) for _ in range(count))
    text = "x" * draw.randrange(6) + draw.choice(("y", ""))
    return f"<{name}{key}>{text}{inside}</{name}>"


def message(draw: random.Random) -> bytes:
    inside = "".join(element(draw, draw.randrange(1, 6)) for _ in range(draw.randrange(1, 5)))
    deep = draw.choice((0, 0, 12))
    return f"<m>{'<a>' * deep}{inside}{'</a>' * deep}</m>".encode()


def predicate(draw: random.Random, depth: int = 2) -> str:
    inner = f"[{predicate(draw, depth - 1)}]" if depth and draw.random() < 0.5 else ""
    path = draw.choice((".//", "", ".//")) + draw.choice((*NAMES, "*")) + inner
    return draw.choice(
        (
            path,
            f"not({path})",
            f"contains({path}, 'xxy')",
            f"contains(., '{'x' * draw.randrange(1, 5)}')",
            f"{path} = 'xx'",
            f"{path} or not(.//{draw.choice(NAMES)})",
        )
    )


def expression(draw: random.Random, cost: int) -> str:
    """A statement; the more it may cost, the longer its chains and predicates."""
    kind = draw.randrange(5)
    if kind == 0:
        return "".join(f"//{draw.choice((*NAMES, '*'))}" for _ in range(1 + draw.randrange(cost)))
    if kind == 1:
        return f"//item{draw.choice(('/', '//'))}local:{draw.choice(('leaf', 'box', '*', 'x'))}"
    if kind == 2:
        return f"//item[{predicate(draw, 1)}]//local:{draw.choice(('leaf', '*'))}"
    steps = 1 + draw.randrange(max(cost // 2, 1))
    return "".join(
        f"//{draw.choice((*NAMES, '*'))}[{predicate(draw, min(cost, 4) - 1)}]" for _ in range(steps)
    )


def statements(draw: random.Random, tenant: str, count: int, cost: int) -> list[Any]:
    found = []
    for number in range(count):
        text = expression(draw, cost)
        returns = ["name"] if draw.random() < 0.5 else ["message"]
        if "local:" in text:
            returns = draw.choice((["local"], ["local", "message"], ["name"]))
        about = {"name": f"{tenant}{number}", "expression": text, "returns": returns}
        found.append((tenant, about))
    return found
