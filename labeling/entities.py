"""Character entities: the one thing of a DTD that data needs.

Real bibliographies write `&uuml;` and name a DTD that is not at hand. A parser that goes on
without it drops the character in silence. Here the document's own DOCTYPE is never shown to the
parser: what it declares is read, checked to be characters only, and given back as an internal
subset with just the entities that the document uses. An entity that nobody declared is an error.
"""

from __future__ import annotations

import re
from functools import lru_cache
from html.entities import name2codepoint
from typing import TYPE_CHECKING

from fmware.labeling.errors import DoctypeRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CHARACTER_ENTITIES", "declared", "referenced", "subset", "written"]

_PREDEFINED = frozenset({"lt", "gt", "amp", "quot", "apos"})

CHARACTER_ENTITIES: dict[str, str] = {
    name: chr(code) for name, code in name2codepoint.items() if name not in _PREDEFINED
}
"""The character entities of HTML 4, among them those of ISO Latin 1 that DBLP uses."""

MAX_LENGTH = 16
"""An entity stands for a few characters; a longer one would be a way to blow a document up."""

MAX_DOCTYPE = 1 << 20

_REFERENCE = re.compile(rb"&([^\s&;#<>'\"][^\s&;<>'\"]*);")
_DECLARATION = re.compile(
    r"""\s*(?:
        <!--(?P<comment>.*?)-->
      | <\?(?P<pi>.*?)\?>
      | <!ELEMENT\s[^<>]*>
      | <!ENTITY\s+(?P<name>[^\s%"'<>&;]+)\s+(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)')\s*>
    )""",
    re.VERBOSE | re.DOTALL,
)
_DOCTYPE = re.compile(
    r"""<!DOCTYPE\s+[^\s\[>]+
        (?:\s+(?:SYSTEM\s+(?:"[^"]*"|'[^']*')
                |PUBLIC\s+(?:"[^"]*"|'[^']*')\s+(?:"[^"]*"|'[^']*')))?
        \s*(?:\[(?P<subset>.*)\]\s*)?>""",
    re.VERBOSE | re.DOTALL,
)
_CHARACTER = re.compile(r"&#(?:x([0-9a-fA-F]+)|([0-9]+));")


def referenced(document: bytes, encoding: str = "utf-8") -> set[str]:
    """The names of the entities that a document may refer to, the predefined ones left out.

    Some may only look like references: in a comment or a CDATA section, `&uuml;` is text.
    """
    found = {match.decode(encoding, "replace") for match in set(_REFERENCE.findall(document))}
    return found - _PREDEFINED


def declared(doctype: str) -> dict[str, str]:
    """The character entities that a DOCTYPE declares; anything more in it is refused.

    The external subset that it may name is not read: its entities are the caller's to give.
    """
    if len(doctype) > MAX_DOCTYPE:
        raise DoctypeRefused(f"the DOCTYPE is longer than {MAX_DOCTYPE:,} characters")
    match = _DOCTYPE.fullmatch(doctype)
    if match is None:
        raise DoctypeRefused("the DOCTYPE cannot be read")
    entities: dict[str, str] = {}
    inner = (match["subset"] or "").rstrip()
    at = 0
    while at < len(inner):
        declaration = _DECLARATION.match(inner, at)
        if declaration is None:
            raise DoctypeRefused(
                "the DOCTYPE declares more than character entities: "
                f"{inner[at : at + 60].strip()[:40]!r}; take it out of the document"
            )
        name = declaration["name"]
        if name is not None and name not in _PREDEFINED:
            value = declaration["double"]
            value = declaration["single"] if value is None else value
            entities.setdefault(name, _characters(name, value))
        at = declaration.end()
    return entities


def _characters(name: str, value: str) -> str:
    if len(value) > MAX_LENGTH * 8:
        raise DoctypeRefused(f"the entity {name!r} stands for more than {MAX_LENGTH} characters")
    text = _CHARACTER.sub(_character, value)
    # A reference may be hidden once: "&#38;#252;" is the usual way to write it.
    text = _CHARACTER.sub(_character, text)
    if len(text) > MAX_LENGTH or "<" in text or "&" in text or "%" in text:
        raise DoctypeRefused(f"the entity {name!r} stands for more than a few plain characters")
    return text


def _character(match: re.Match[str]) -> str:
    code = int(match[1], 16) if match[1] else int(match[2])
    try:
        return chr(code)
    except (ValueError, OverflowError):
        raise DoctypeRefused(f"no character has the number {code}") from None


def subset(names: set[str], entities: Mapping[str, str], encoding: str = "utf-8") -> bytes:
    """An internal subset, on one line, that declares those of the names that are known.

    The others are left to the parser, which knows where a reference stands and what is text.
    """
    lines = "".join(_line(name, entities[name]) for name in sorted(names & entities.keys()))
    return f"<!DOCTYPE x [{lines}]>".encode(encoding) if lines else b""


@lru_cache(maxsize=1024)
def _line(name: str, value: str) -> str:
    return f'<!ENTITY {name} "{"".join(f"&#{ord(c)};" for c in value)}">'


# White space would be treated otherwise in an attribute than as part of an entity, and a '<' or
# '&' that comes out of an entity is markup: the parser has to see these as entities.
_MEANT_FOR_THE_PARSER = frozenset("\t\n\r<&")


def written(
    entities: Mapping[str, str], encoding: str = "utf-8", *, raw: bool = True
) -> dict[bytes, bytes]:
    """What may be written in the place of `&name;`, by name, without changing what is read.

    Names for which there is no such thing are left out. Letters stand for themselves if `raw`,
    all else is a number.
    """
    found: dict[bytes, bytes] = {}
    for name, value in entities.items():
        if len(value) > MAX_LENGTH or not _MEANT_FOR_THE_PARSER.isdisjoint(value):
            continue
        try:
            found[name.encode(encoding)] = b"".join(_plainly(c, raw) for c in value)
        except UnicodeEncodeError:
            continue  # a name that cannot occur
    return found


def _plainly(character: str, raw: bool) -> bytes:
    if raw and character.isalnum() and not "\ud800" <= character <= "\udfff":
        return character.encode()
    return b"&#%d;" % ord(character)
