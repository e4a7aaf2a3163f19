"""Documents that try the two readers against each other, and the comparison itself.

`drawn` makes documents by a grammar: long and short runs, nested and shadowed prefixes, attributes
that are equal by namespace, references, sections, comments, line ends of all sorts. `mutated`
changes bytes of one. `python -m tests.labeling.differential SECONDS SEED` compares for as long as
one likes.
"""

from __future__ import annotations

import sys
import time
from random import Random
from typing import TYPE_CHECKING, Any

from fmware.labeling import Limits, Reader, ReadError, Vocabulary, _kernel

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Comparison", "Different", "drawn", "mutated"]

NAMES = (
    "a", "b", "item", "long-name.with_all", "x" * 7, "y" * 8, "z" * 9, "w" * 15, "v" * 16, "q" * 17,
    "q" * 18, "n" * 33, "n" * 20 + "m" + "n" * 12, "\u00e9t\u00e9", "s" * 14 + "\u00df",
    "s" * 15 + "\u540d", "\U00010000b", "a\u00b7b",
)  # fmt: skip
ODD_NAMES = (
    "\u00b7a", "1a", "a:b", "-a", "a b", "", "n" * 300, "xmlns", "a\u00d7", "a\u2190", "\u0300a",
    "\u203fa", "a\U000f0000", "a\u00a0", "a:\u00e9", "a:\u00b7",
)  # fmt: skip
PREFIXES = ("p", "q", "long", "xml")
SPACES = (
    "urn:a",
    "urn:b:c",
    "http://example.org/ns",
    "http://example.org/ns#x",
    "http://example.org/" + "d/" * 40,
    "",
    "relative",
    "not a uri",
    "http://www.w3.org/2000/xmlns/",
    "http://www.w3.org/XML/1998/namespace",
    "urn:" + "e" * 600,
)
USUAL = 5
"""Of these namespaces, how many are usual; the others are drawn seldom."""
PIECES = (
    "a", "word", " ", "\n", "\t", "\r\n", "\r", "]", "]]", ">", "-", "--", "?", "'", '"', "/", "=",
    "&lt;", "&gt;", "&amp;", "&quot;", "&apos;", "&#65;", "&#x41;", "&#x1F600;", "&#13;", "&#10;",
    "\u00e4", "\u20ac", "\U0001f600", "\ufffd", "\x7f", "\x85", "\u07ff", "\u0800", "\ud7ff",
    "\ue000", "\U00010000", "\U0010ffff",
)  # fmt: skip
RARE = (
    "]]>", "&#0;", "&#xD800;", "&#x110000;", "&#1114111;", "&none;", "&", "&#;", "&#x;", "<",
    "\x00", "\x01", "\x1f", "\ufffe", "\uffff", "&#000000065;", "&#xFFFE;", "&lt", "\ufeff",
)  # fmt: skip
HEADS = (
    '<?xml version="1.0"?>',
    "<?xml version='1.0' encoding='UTF-8'?>\n",
    '<?xml version="1.0" encoding="utf-8" standalone="yes" ?>',
)
ODD_HEADS = (
    '<?xml version="1.1"?>',
    '<?xml encoding="utf-8"?>',
    "<?xml?>",
    " <?xml version='1.0'?>",
    '<?xml version="1.0" encoding="latin-1"?>',
    '<?xml version="1.0"encoding="utf-8"?>',
    '<?xml version="1.0" standalone="maybe"?>',
    '<?xml version="1.0" encoding="UTF8"?>',
    "<?xml-model a?>",
    "<?XML a?>",
    "<!DOCTYPE a>",
    "x",
    "\ufeff\ufeff",
)
BYTES = (b"<", b">", b"/", b"&", b";", b'"', b"'", b"=", b" ", b"\n", b"\r", b"]", b"-", b"!", b"?",
         b":", b"\x00", b"\x1f", b"\x7f", b"\x80", b"\xc0", b"\xe0\xa0", b"\xed\xa0\x80",
         b"\xef\xbf\xbe", b"\xef\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf0\x8f\xbf\xbf",
         b"\xe0\x9f\xbf", b"\xc1\xbf", b"\xc3\xa4", b"\xe2\x82\xac", b"\xf0\x9f\x98\x80",
         b"\xf5\x80\x80\x80", b"\xff", b"xmlns", b"xml:", b"<![CDATA[", b"]]>",
         b"<!--", b"-->", b"<?", b"?>", b"&#", b"<!DOCTYPE a>", b"xmlns:p=''")  # fmt: skip


def drawn(rng: Random) -> bytes:
    """A document; about half of them are well-formed."""
    odd = rng.choice((0.0, 0.0, 0.003, 0.03))
    maker = _Maker(rng, odd)
    return maker.document()


class _Maker:
    def __init__(self, rng: Random, odd: float) -> None:
        self.rng = rng
        self.odd = odd
        self.left = rng.choice((1, 3, 10, 40, 120))

    def rarely(self) -> bool:
        return self.rng.random() < self.odd

    def document(self) -> bytes:
        rng = self.rng
        head = rng.choice(("", *HEADS)) if rng.random() < 0.5 else ""
        if self.rarely():
            head = rng.choice(ODD_HEADS)
        elif rng.random() < 0.1:
            head = "\ufeff" + head
        text = head + self.around() + self.element({}, 0) + self.around()
        if self.rarely():
            text += rng.choice(("x", "<a/>", "&lt;", "<![CDATA[]]>", "</a>"))
        return text.encode("utf-8", "surrogatepass")

    def around(self) -> str:
        rng = self.rng
        return "".join(
            rng.choice(("\n", " ", "\r\n", self.comment(), self.instruction()))
            for _ in range(rng.choice((0, 0, 0, 1, 2)))
        )

    def element(self, scope: dict[str, str], depth: int) -> str:
        rng = self.rng
        self.left -= 1
        scope = dict(scope)
        attributes = self.attributes(scope)
        name = self.name(scope, 0.3)
        tag = "".join(self.blank() + each for each in attributes)
        if rng.random() < 0.2:
            return f"<{name}{tag}{self.space()}/>"
        parts = []
        for _ in range(rng.choice((0, 1, 1, 2, 4, 9))):
            sort = rng.random()
            if sort < 0.45 and self.left > 0 and depth < 300:
                parts.append(self.element(scope, depth + 1))
            elif sort < 0.9:
                parts.append(self.text())
            else:
                parts.append(rng.choice((self.comment, self.instruction, self.section))())
        end = rng.choice(NAMES) if self.rarely() else name
        return f"<{name}{tag}{self.space()}>{''.join(parts)}</{end}{self.space()}>"

    def name(self, scope: dict[str, str], prefixed: float) -> str:
        rng = self.rng
        local = rng.choice(NAMES)
        if self.rarely():
            local = rng.choice(ODD_NAMES)
        known = [each for each in scope if each]
        if rng.random() < prefixed and (known or self.rarely()):
            prefix = rng.choice(known) if known and not self.rarely() else rng.choice(PREFIXES)
            return f"{prefix}:{local}"
        return local

    def attributes(self, scope: dict[str, str]) -> list[str]:
        rng = self.rng
        found = {}
        for _ in range(rng.choice((0, 0, 0, 1, 2))):
            prefix = rng.choice(("", *PREFIXES[:3]))
            space = SPACES[rng.randrange(USUAL)]
            if self.rarely():
                prefix, space = rng.choice(("", *PREFIXES, "xmlns")), rng.choice(SPACES)
            if not prefix and rng.random() < 0.2:
                space = ""
            scope[prefix] = space
            found["xmlns" + (f":{prefix}" if prefix else "")] = space
        written = [self.attribute(name, space) for name, space in found.items()]
        names = set()
        for _ in range(rng.choice((0, 0, 1, 2, 3, 5, 40 if self.rarely() else 1))):
            name = self.name(scope, 0.3)
            if rng.random() < 0.05:
                name = rng.choice(("xml:lang", "xml:id", "xml:base"))
            if self.rarely():
                name = "xml:space"
            # The same local name under two prefixes may be the same attribute.
            key = name if ":" not in name or self.rarely() else name.partition(":")[2]
            if key not in names or self.rarely():
                names.add(key)
                written.append(self.attribute(name, self.value()))
        bound = [each for each in scope if each]
        if len(bound) > 1 and rng.random() < 0.03:
            # Two prefixes that may stand for the same namespace.
            local = rng.choice(NAMES)
            written += [self.attribute(f"{each}:{local}", "") for each in rng.sample(bound, 2)]
        rng.shuffle(written)
        return written

    def attribute(self, name: str, value: str) -> str:
        rng = self.rng
        quote = rng.choice("'\"")
        if not self.rarely():
            value = value.replace(quote, "")
        space = self.space() if rng.random() < 0.1 else ""
        return f"{name}{space}={space}{quote}{value}{quote}"

    def blank(self) -> str:
        if self.rarely():
            return ""
        return self.rng.choice((" ", " ", " ", "\n", "\t", "\r\n", "  "))

    def space(self) -> str:
        return self.rng.choice(("", "", "", "", " ", "\n"))

    def text(self) -> str:
        return self.run().replace("<", "").replace("]]>", "]]") if not self.rarely() else self.run()

    def value(self) -> str:
        return self.run().replace("<", "") if not self.rarely() else self.run()

    def run(self) -> str:
        rng = self.rng
        kind = rng.random()
        if kind < 0.3:
            return rng.choice("ab \n") * rng.choice((1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 300))
        count = rng.choice((0, 1, 2, 3, 8, 40))
        return "".join(rng.choice(RARE if self.rarely() else PIECES) for _ in range(count))

    def comment(self) -> str:
        inside = self.run()
        if self.rng.random() < 0.95:
            inside = inside.replace("-", "")
        return f"<!--{inside}-->"

    def instruction(self) -> str:
        inside = self.run()
        if not self.rarely():
            inside = inside.replace("?", "")
        name = self.rng.choice(("a", "php", "x-y"))
        if self.rarely():
            name = self.rng.choice(("xml", "xml-stylesheet", "a:b", "1", "", "XmL", "xmla"))
        return f"<?{name} {inside}?>" if self.rng.random() < 0.8 else f"<?{name}?>"

    def section(self) -> str:
        inside = self.run() if self.rng.random() < 0.8 else ""
        return f"<![CDATA[{inside.replace(']]>', '')}]]>"


def mutated(rng: Random, document: bytes) -> bytes:
    """The document with a few bytes changed, added, taken out, moved or doubled."""
    data = bytearray(document)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(data) + 1)
        sort = rng.randrange(5)
        if sort == 0:
            data[at:at] = rng.choice(BYTES)
        elif sort == 1:
            del data[at : at + rng.choice((1, 1, 2, 8))]
        elif sort == 2 and at < len(data):
            data[at] = rng.randrange(256)
        elif sort == 3:
            del data[at:]
        else:
            other = rng.randrange(len(data) + 1)
            data[at:at] = data[other : other + rng.choice((1, 4, 16, 64))]
    return bytes(data)


class Different(AssertionError):
    """The two readers disagree on a document."""


class Comparison:
    """Reads documents with both readers, with several options in turn, and compares the tables.

    `accepted` are the documents that the fast reader has read itself.
    """

    def __init__(self) -> None:
        self.compared = self.accepted = 0
        self._pairs = [
            (Reader(vocabulary, fast=True, **options), Reader(vocabulary, fast=False, **options))
            for vocabulary, options in (
                (Vocabulary(), {}),
                (Vocabulary(["a", "{urn:a}item", "{urn:b:c}*"]), {"grow": False}),
                (Vocabulary(), {"blanks": False}),
                (Vocabulary(), {"values": False}),
                (Vocabulary(), {"entities": {"none": "0", "uuml": "\u00fc"}}),
                (Vocabulary(), {"limits": Limits(depth=4, nodes=30, attribute=40, text=50)}),
                (Vocabulary(), {"limits": Limits(names=4, name_bytes=60, depth=300)}),
            )
        ]

    def check(self, document: bytes) -> None:
        """Raises Different if the readers differ."""
        fast, other = self._pairs[self.compared % len(self._pairs)]
        self.compared += 1
        avx2 = _kernel.use_avx2(self.compared // len(self._pairs) % 2 == 0)
        before = _kernel.reading_counts()["read"]
        try:
            ours = _outcome(fast, document)
        finally:
            _kernel.use_avx2(avx2)
        self.accepted += _kernel.reading_counts()["read"] - before
        theirs = _outcome(other, document)
        if ours != theirs:
            raise Different(f"{document!r}: {ours} and {theirs}")


def _outcome(reader: Reader, document: bytes) -> list[object]:
    try:
        table = reader.read(document)
    except ReadError as error:
        return [type(error), str(error)]
    columns: list[npt.NDArray[Any]] = [
        table.kind,
        table.tag,
        table.parent,
        table.level,
        table.start,
        table.end,
    ]
    if table.has_values:
        columns += [table.value_offsets, table.value_bytes]
    return [each.tobytes() for each in columns]


def main(seconds: float, seed: int) -> None:
    rng, comparison = Random(seed), Comparison()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for _ in range(100):
            document = drawn(rng)
            comparison.check(document)
            for _ in range(3):
                comparison.check(mutated(rng, document))
    print(f"{comparison.compared:,} documents, {comparison.accepted:,} by the fast reader: same")


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
