"""A bibliography of any size, as one large document in the shape of dblp's.

Records of eight kinds, each with a unique `key`; authors by Zipf's law; titles with markup inside;
accented names, as characters or as the entities of ISO 8859-1; fields that vary in number and
order; citations of earlier records. It comes in chunks, and nothing grows with its length.

Which tag and which key the i-th record has depends on the seed and i alone (`record`), so that a
message stream can cite records of a corpus it has never seen.
"""

from __future__ import annotations

from collections import deque
from html.entities import codepoint2name
from random import Random
from typing import TYPE_CHECKING, Literal, NamedTuple

from fmware.datasets.chance import check, ranks, weighted
from fmware.datasets.errors import ParameterError
from fmware.datasets.names import FAMILY, GIVEN, LINKS, MARKED, THINGS, TOPICS
from fmware.datasets.values import word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Doctype = Literal["internal", "system", "none"]
Encoding = Literal["utf-8", "iso-8859-1"]

INFINITE = float("inf")
ROOT = "dblp"
_CHUNK = 1 << 17
_POOL = 1 << 17
_MASK = (1 << 64) - 1

# Tag, share in the corpus, first part of the key.
_KINDS = (
    ("inproceedings", 45, "conf"),
    ("article", 38, "journals"),
    ("www", 6, "homepages"),
    ("incollection", 3, "books"),
    ("phdthesis", 3, "phd"),
    ("proceedings", 2, "conf"),
    ("book", 2, "books"),
    ("mastersthesis", 1, "ms"),
)
TAGS = tuple(tag for tag, _, _ in _KINDS)
_DRAWN = weighted([(t, p) for t, _, p in _KINDS], [share for _, share, _ in _KINDS])


class Record(NamedTuple):
    """What identifies a record: the tag of its element and its key."""

    tag: str
    key: str


def _plain(number: int) -> str:
    return word(number).translate(str.maketrans("éü", "eu"))


_VENUES = [_plain(1530 + 17 * i) for i in range(256)]
_SURNAMES = [_plain(2000 + 13 * i).capitalize() for i in range(512)]


def record(seed: int, index: int) -> Record:
    """Tag and key of the index-th record of the corpus with this seed."""
    return Record(*_identity(_mix(seed, index), index))


def keys(seed: int, start: int, stop: int) -> Iterator[str]:
    """The keys of records start..stop-1."""
    return (record(seed, index).key for index in range(start, stop))


def _mix(seed: int, index: int) -> int:
    """Sixty-four bits that look random, after the finaliser of SplitMix64."""
    x = (index * 0x9E3779B97F4A7C15 + seed * 0xD1B54A32D192ED03 + 0x632BE59BD9B4E019) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def _identity(bits: int, index: int) -> tuple[str, str]:
    tag, prefix = _DRAWN[(bits & 0xFFFFFF) % len(_DRAWN)]
    venue, surname = _VENUES[(bits >> 24) & 0xFF], _SURNAMES[(bits >> 32) & 0x1FF]
    # Letters, then the index in digits: no two records share a key.
    return tag, f"{prefix}/{venue}/{surname}{index}"


class Bibliography:
    """The stream of chunks. `records` and `bytes` say how much has been yielded so far."""

    def __init__(self, chunks: Callable[[Bibliography], Iterator[bytes]]) -> None:
        self.records = 0
        self.bytes = 0
        self._chunks = chunks(self)

    def __iter__(self) -> Bibliography:
        return self

    def __next__(self) -> bytes:
        chunk = next(self._chunks)
        self.bytes += len(chunk)
        return chunk


def bibliography(
    *,
    size: int | None = None,
    records: int | None = None,
    seed: int = 0,
    doctype: Doctype = "internal",
    entities: bool = True,
    encoding: Encoding = "iso-8859-1",
    authors: int = 20_000,
    skew: float = 0.8,
) -> Bibliography:
    """One document of about `size` bytes, or of so many `records`, in chunks of about 128 KB.

    doctype: `internal` declares the entities, `system` refers to bibliography.dtd, or `none`.
    entities: accented letters as `&uuml;` and the like, else as characters of the encoding.
    authors, skew: how many names there are, and how unevenly they publish.
    """
    if (size is None) == (records is None):
        raise ParameterError("give either size or records")
    check("size", size or 0, 0, INFINITE)
    check("records", records or 0, 0, INFINITE)
    check("authors", authors, 1, 10_000_000)
    check("skew", skew, 0, INFINITE)
    if doctype not in ("internal", "system", "none"):
        raise ParameterError(f"doctype is {doctype!r}; it may be internal, system or none")
    if encoding not in ("utf-8", "iso-8859-1"):
        raise ParameterError(f"encoding is {encoding!r}; it may be utf-8 or iso-8859-1")
    if entities and doctype == "none":
        raise ParameterError("entities must be declared: give a doctype, or entities=False")
    maker = _Records(seed, authors, skew, entities=entities)
    head = _head(doctype, encoding)
    most = INFINITE if records is None else records
    limit = INFINITE if size is None else size
    return Bibliography(lambda counts: _chunks(maker, counts, head, most, limit, encoding))


def _chunks(
    maker: _Records, counts: Bibliography, head: str, most: float, limit: float, encoding: str
) -> Iterator[bytes]:
    end = f"</{ROOT}>\n"
    parts, held, total, index = [head], 0, len(head) + len(end), 0
    while index < most and total < limit:
        text = maker.text(index)
        index += 1
        parts.append(text)
        held += len(text)
        total += len(text)
        if held >= _CHUNK:
            counts.records = index
            yield _bytes(parts, encoding)
            parts, held = [], 0
    counts.records = index
    yield _bytes([*parts, end], encoding)


def _bytes(parts: list[str], encoding: str) -> bytes:
    # A letter that ISO 8859-1 lacks becomes a character reference.
    return "".join(parts).encode(encoding, "xmlcharrefreplace")


def _head(doctype: Doctype, encoding: Encoding) -> str:
    declaration = f'<?xml version="1.0" encoding="{encoding.upper()}"?>\n'
    declared = "".join(f'<!ENTITY {name} "&#{code};">\n' for code, name in _latin())
    doctypes = {
        "internal": f"<!DOCTYPE {ROOT} [\n{declared}]>\n",
        "system": f'<!DOCTYPE {ROOT} SYSTEM "bibliography.dtd">\n',
        "none": "",
    }
    return f"{declaration}{doctypes[doctype]}<{ROOT}>\n"


def _latin() -> list[tuple[int, str]]:
    return [(code, codepoint2name[code]) for code in range(160, 256)]


class _Records:
    """Writes records. All text is rendered into pools beforehand; a record only draws from them."""

    def __init__(self, seed: int, authors: int, skew: float, *, entities: bool) -> None:
        rng = Random(f"bibliography {seed}")
        self.seed = seed
        self.rng = rng
        self.random = rng.random
        self.table = str.maketrans({chr(c): f"&{n};" for c, n in _latin()} if entities else {})
        names = [self._name(number) for number in range(authors)]
        written = [f"<author>{name}</author>\n" for name in names]
        # Drawn by Zipf's law beforehand: a uniform draw from these is a third of the cost.
        rank = ranks(rng, authors, skew)
        self.authors = [written[rank()] for _ in range(_POOL)]
        self.editors = [f"<editor>{name}</editor>\n" for name in names[:500]]
        self.phrases = [self._phrase() for _ in range(6000)]
        self.venues = [self._field("", v.upper()) for v in _VENUES]
        self.years = [f"<year>{year}</year>\n" for year in range(1970, 2026)]
        self.dates = [
            f"20{y:02}-{m:02}-{d:02}" for y in range(10, 26) for m in (1, 4, 9) for d in (3, 21)
        ]
        self.publishers = [self._field("publisher", f"{n} & Söhne") for n in FAMILY]
        self.schools = [self._field("school", f"Universität {n}") for n in FAMILY]
        self.notes = [self._field("note", f"{t} version") for t in TOPICS]
        self.volumes: deque[str] = deque(maxlen=256)

    def text(self, index: int) -> str:
        """The index-th record, which must follow the one before it."""
        bits = _mix(self.seed, index)
        tag, key = _identity(bits, index)
        fields = self._people(tag)
        fields.append(self._title())
        fields += self._facts(tag, key, (bits >> 24) & 0xFF)
        if index and self.random() < 0.2:
            fields += self._cites(index)
        if self.random() < 0.1:
            self.rng.shuffle(fields)
        if tag == "proceedings":
            self.volumes.append(key)
        date = self.dates[bits % len(self.dates)]
        kind = ' publtype="informal"' if bits >> 58 == 0 else ""
        return f'<{tag} mdate="{date}" key="{key}"{kind}>\n{"".join(fields)}</{tag}>\n'

    # -- what a record draws

    def _people(self, tag: str) -> list[str]:
        random = self.random
        if tag == "proceedings":
            return [self.editors[int(random() * 500)] for _ in range(1 + int(random() * 4))]
        many = 1 if tag in ("phdthesis", "mastersthesis", "www") else 1 + int(6 * random() ** 2)
        authors = self.authors
        # Drawn twice, a name would stand twice in one record.
        return list(dict.fromkeys([authors[int(random() * _POOL)] for _ in range(many)]))

    def _title(self) -> str:
        random, phrases = self.random, self.phrases
        first = phrases[int(random() * 6000)]
        if random() < 0.3:
            return f"<title>{first}.</title>\n"
        link = LINKS[int(random() * 10)]
        return f"<title>{first} {link} {phrases[int(random() * 6000)]}.</title>\n"

    def _facts(self, tag: str, key: str, venue: int) -> list[str]:
        random = self.random
        year = self.years[int(56 * (1 - random() ** 2))]
        if tag == "www":
            return [f"<url>https://people.example/{key}</url>\n"]
        if tag in ("phdthesis", "mastersthesis"):
            return [self.schools[int(random() * len(self.schools))], year]
        name = self.venues[venue]
        fields = [year, f"<url>db/{key}.html</url>\n"]
        if tag == "article":
            fields.append(f"<journal>{name}</journal>\n<volume>{1 + int(random() * 60)}</volume>\n")
            if random() < 0.6:
                fields.append(f"<number>{1 + int(random() * 12)}</number>\n")
        elif tag in ("inproceedings", "incollection"):
            fields.append(f"<booktitle>{name}</booktitle>\n")
            if self.volumes and random() < 0.7:
                fields.append(
                    f"<crossref>{self.volumes[-1 - int(random() * len(self.volumes))]}</crossref>\n"
                )
        else:
            fields.append(self.publishers[int(random() * len(self.publishers))])
            fields.append(f"<isbn>978-{int(random() * 1e9):09}</isbn>\n")
            return fields
        first = 1 + int(random() * 900)
        fields.append(f"<pages>{first}-{first + int(random() * 30)}</pages>\n")
        if random() < 0.7:
            fields.append(f"<ee>https://doi.example/10.{1000 + venue}/{int(random() * 1e8)}</ee>\n")
        if random() < 0.04:
            fields.append(self.notes[int(random() * len(self.notes))])
        return fields

    def _cites(self, index: int) -> list[str]:
        random, seed = self.random, self.seed
        cited = [int(index * random() ** 2) for _ in range(1 + int(6 * random()))]
        return [f"<cite>{_identity(_mix(seed, i), i)[1]}</cite>\n" for i in cited]

    # -- pools

    def _field(self, tag: str, text: str) -> str:
        escaped = text.replace("&", "&amp;").translate(self.table)
        return f"<{tag}>{escaped}</{tag}>\n" if tag else escaped

    def _name(self, number: int) -> str:
        rng = self.rng
        family = rng.choice(FAMILY) if rng.random() < 0.3 else word(number).capitalize()
        middle = f" {chr(65 + number % 26)}." if rng.random() < 0.3 else ""
        return f"{rng.choice(GIVEN)}{middle} {family}".translate(self.table)

    def _phrase(self) -> str:
        rng = self.rng
        first = rng.choice(MARKED) if rng.random() < 0.08 else rng.choice(TOPICS).capitalize()
        second = f" {rng.choice(TOPICS)}" if rng.random() < 0.4 else ""
        return f"{first}{second} {rng.choice(THINGS)}".translate(self.table)
