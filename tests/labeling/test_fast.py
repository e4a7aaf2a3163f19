"""The fast reader gives the tables that libxml2 gives, and leaves to libxml2 what it is not for."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path
from random import Random

import numpy as np
import pytest

from fmware import labeling
from fmware.labeling import Reader, ReadError, Vocabulary, _kernel
from tests.labeling.differential import Comparison, Different, drawn, mutated

pytestmark = pytest.mark.skipif(
    not _kernel.reads_events(), reason="this lxml does not export its libxml2"
)

DRAWN = int(os.environ.get("FMWARE_FUZZ_DOCUMENTS", "5000"))


def test_drawn_and_mutated_documents_give_the_same_tables() -> None:
    rng, comparison = Random(20261118), Comparison()
    for _ in range(DRAWN):
        document = drawn(rng)
        comparison.check(document)
        for _ in range(3):
            comparison.check(mutated(rng, document))
    # Else the comparison would say nothing.
    assert comparison.accepted > comparison.compared // 6


def test_the_comparison_notices_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = Comparison()
    fast, _ = comparison._pairs[0]
    real = Reader.read

    def read(self: Reader, document: bytes) -> labeling.NodeTable:
        return real(self, document.replace(b"x", b"y") if self is fast else document)

    monkeypatch.setattr(Reader, "read", read)
    with pytest.raises(Different):
        comparison.check(b"<a>x</a>")


@pytest.mark.parametrize("grow", [True, False])
def test_joined_records_give_the_same_table(*, grow: bool) -> None:
    rng = Random(7)
    vocabulary = Vocabulary() if grow else Vocabulary(["a", "{urn:a}item", "p"])
    readers = [Reader(vocabulary, grow=grow, fast=fast) for fast in (True, False)]
    read = 0
    for turn in range(400):
        records = [_record(rng) for _ in range(rng.choice((1, 2, 5)))]
        if turn % 10 == 0:
            records[0] = mutated(rng, records[0])
        sizes = np.array([len(each) for each in records], np.int64)
        offsets = np.cumsum(sizes) * 3
        levels = np.array([rng.choice((0, 1, 4)) for _ in records], np.int16)
        joined = b"".join(records)
        found = [
            each.read_records(joined, sizes, offsets, levels, namespaces=b'xmlns:p="urn:a"')
            for each in readers
        ]
        ours, theirs = found
        assert (ours is None) == (theirs is None), joined
        if ours is None or theirs is None:
            continue
        read += 1
        assert ours[1].tolist() == theirs[1].tolist()
        for name in ("kind", "tag", "parent", "level", "start", "end", "value_bytes"):
            left, right = (getattr(each[0], name) for each in (ours, theirs))
            assert left.tobytes() == right.tobytes(), (name, joined)
        rows = range(len(ours[0]))
        assert [ours[0].name(row) for row in rows] == [theirs[0].name(row) for row in rows]
    assert read > 100


def _record(rng: Random) -> bytes:
    while True:
        document = drawn(rng)
        try:
            Reader(Vocabulary()).read(document)
        except ReadError:
            continue
        if document.startswith(b"<") and document[1:2].isalpha() and document.endswith(b">"):
            return document


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b"<a>", "markup"),
        (b"<!-- --><!DOCTYPE a><a/>", "doctype"),
        (b"<?xml version='1.0' encoding='latin-1'?><a>\xe4</a>", "encoding"),
        (b"<a>\x01</a>", "character"),
        ("<\u00b7a/>".encode(), "name"),
        (b"<" + b"n" * 201 + b"/>", "name"),
        (b"<a b='1' b='2'/>", "attributes"),
        (b"<a xmlns='relative'/>", "namespace"),
        (b"<a>&other;</a>", "reference"),
        (b"<a>" + b"x" * 1_000_001 + b"</a>", "size"),
    ],
)
def test_what_is_rare_or_wrong_is_left_to_libxml2(document: bytes, reason: str) -> None:
    # Where the DOCTYPE is seen before, no reader is asked.
    before = _kernel.reading_counts()
    outcome = [_said(Reader(fast=fast), document) for fast in (True, False)]
    after = _kernel.reading_counts()
    assert outcome[0] == outcome[1]
    assert after["read"] == before["read"]
    if reason != "doctype":
        assert after[reason] == before[reason] + 1


def _said(reader: Reader, document: bytes) -> str:
    try:
        return str(len(reader.read(document)))
    except ReadError as error:
        return str(error)


def test_libxml2_alone_if_that_is_asked_for() -> None:
    before = _kernel.reading_counts()
    assert len(Reader(fast=False).read(b"<a>b</a>")) == 2
    assert _kernel.reading_counts() == before
    assert len(Reader().read(b"<a>b</a>")) == 2
    assert _kernel.reading_counts()["read"] == before["read"] + 1


def test_a_refused_document_leaves_nothing_behind() -> None:
    vocabulary = Vocabulary()
    reader = Reader(vocabulary)
    good = b"<p:a xmlns:p='urn:a' x='1'><b/></p:a>"
    wanted = reader.read(good).tag.tolist()
    names = len(vocabulary)
    for bad in (
        b"<fresh xmlns:p='urn:other' xmlns='urn:b'><other>",
        b"<a xmlns:p='urn:other' q:x='1'/>",
        b"<a xmlns:p='urn:other' xmlns:p='urn:more'/>",
        b"<p:a/>",
    ):
        with pytest.raises(ReadError):
            reader.read(bad)
        assert len(vocabulary) == names
        assert reader.read(good).tag.tolist() == wanted


def test_names_of_many_documents_take_no_more_and_more_memory() -> None:
    reader = Reader(Vocabulary(), grow=False)
    for turn in range(3000):
        fresh = "".join(f"<n{turn}-{each}/>" for each in range(20))
        reader.read(f"<a>{fresh}</a>".encode())
    before = _resident()
    for turn in range(3000, 30_000):
        fresh = "".join(f"<n{turn}-{each}/>" for each in range(20))
        reader.read(f"<a>{fresh}</a>".encode())
    assert _resident() - before < 16 << 20


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


# --- planted faults: would the documents that are drawn show them? ------------------------------

HARNESS = """
#include "fast_reader.h"
static int32_t resolve(void* owner, const char* local, const char* uri) {
    (void)owner;
    return (int32_t)(fm_hash(1, local, strlen(local)) * 3
                     + (uri ? fm_hash(2, uri, strlen(uri)) : 0)) & 0xffffff;
}
static int grow(void* owner, fm_reader* r) { (void)owner; (void)r; return 0; }
/* Why a document is not read, or a hash of its columns. */
uint64_t run(const char* text, size_t size, int avx2) {
    static fm_reader r;
    static int begun;
    size_t n = size + 16;
    uint64_t hash = 0;
    int reason;
    if (!begun++) fm_begin();
    if (!fm_prepare(&r, 12345, 1)) return 0;
    r.resolve = resolve;
    r.grow = grow;
    r.kinds = malloc(n); r.tags = malloc(n * 4); r.parents = malloc(n * 4);
    r.levels = malloc(n * 2); r.starts = malloc(n * 8); r.ends = malloc(n * 8);
    r.offsets = malloc((n + 1) * 4); r.text = malloc(size + 64);
    r.rows = r.length = 0; r.capacity = (int32_t)n;
    r.depth = 256; r.attribute_bytes = r.text_bytes = 1000000;
    r.values = r.blanks = 1; r.tick = 0;
    reason = fm_read(&r, text, size, avx2 && fm_has_avx2());
    if (reason == FM_READ) {
        hash = fm_hash(3, (char*)r.kinds, r.rows) ^ fm_hash(4, (char*)r.tags, r.rows * 4)
            ^ fm_hash(5, (char*)r.parents, r.rows * 4) ^ fm_hash(6, (char*)r.levels, r.rows * 2)
            ^ fm_hash(7, (char*)r.starts, r.rows * 8) ^ fm_hash(8, (char*)r.ends, r.rows * 8)
            ^ fm_hash(9, (char*)r.offsets, r.rows * 4 + 4) ^ fm_hash(10, r.text, r.length);
        hash |= 1 << 8;
    }
    free(r.kinds); free(r.tags); free(r.parents); free(r.levels); free(r.starts); free(r.ends);
    free(r.offsets); free(r.text);
    return reason == FM_READ ? hash : 1;
}
int valid(const char* text, size_t size, int avx2) {
    if (!fm_class[' ']) fm_begin();
#ifdef FM_X86
    if (avx2 && fm_has_avx2()) return fm_valid_avx2(text, text + size);
#endif
    return fm_valid_portable(text, text + size);
}
"""

FAULTS = {
    "a section's end in text": ("p[-1] == ']' && p[-2] == ']') fm_give_up", "0) fm_give_up"),
    "line ends of two bytes": ("p += p[1] == '\\n' ? 2 : 1;", "p += 1;"),
    "blanks in attributes": ("r->text[s->length++] = ' ';", "r->text[s->length++] = p[-1];"),
    "surrogates": ("if (c == 0xed && p[1] > 0x9f) return 0;", ""),
    "the last two characters": ("if (c == 0xef && p[1] == 0xbf && p[2] > 0xbd) return 0;", ""),
    "surrogates with AVX2": ("FM_SURROGATE = 16", "FM_SURROGATE = 0"),
    "the last two characters with AVX2": (
        "_mm256_xor_si256(pairs, due), last)",
        "_mm256_xor_si256(pairs, due), pairs)",
    ),
    "characters that break off with AVX2": ("_mm256_subs_epu8(before, whole)", "wrong"),
    "characters that go on too long with AVX2": ("FM_LONG = 2,", "FM_LONG = 0,"),
    "attributes equal by namespace": ("&& one->prefix->bound == other->prefix->bound)", "&& 0)"),
    "an attribute twice": ("|| attribute->seen == r->start_tags", ""),
    "names that are not ASCII": ("if (!fm_is_wide_name(c, bits == FM_START)) return NULL;", ""),
    "long names": ("!memcmp(slot->name->text + 16, text + 16, length - 16)", "1"),
    "declarations that end": ("if (r->declared != open->declared) fm_und", "if (0) fm_und"),
    "prefixes that are not declared": ("(space == NULL && name->prefix != r->empty)", "0"),
    "end tags": ("return words[0] == name->first && words[1]", "return words[1]"),
    "end tags that are longer": (
        "p += name->length;",
        "p += name->length; while (fm_is(*p, FM_IN_NAME | FM_BLANK)) p++;",
    ),
    "two hyphens": ("if (p[2] != '>') fm_give_up(FM_MARKUP);", "while (p[2] == '-') p++;"),
    "what follows the root": ("if (p != end) return FM_MARKUP;", ""),
    "control characters": ("if (_mm_movemask_epi8(_mm_andnot_si128(blank, low))) return 0;", ""),
    "control characters with AVX2": (
        "_mm256_cmpeq_epi8(_mm256_min_epu8(block, low), block)",
        "before",
    ),
    "a name in another namespace": ("&& name->element_space == space)", ")"),
    "reserved instructions": ("(p[0] | 32) == 'x'", "0"),
    "nothing": ("s->joined = -1;\n}", "s->joined = -1;\n    s->joined = -1;\n}"),
}
"""What to plant: a piece of the source, and what it is replaced by."""


@pytest.fixture(scope="module")
def source() -> dict[str, str]:
    folder = Path(labeling.__file__).parent
    return {
        name: (folder / name).read_text("utf-8") for name in ("fast_reader.h", "fast_reader_body.h")
    }


def _built(folder: Path, source: dict[str, str]) -> ctypes.CDLL:
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        pytest.skip("no C compiler")
    folder.mkdir()
    for name, text in {**source, "harness.c": HARNESS}.items():
        (folder / name).write_text(text, "utf-8")
    subprocess.run(
        [compiler, "-O0", "-w", "-shared", "-fPIC", "-o", "harness.so", "harness.c"],
        cwd=folder,
        check=True,
    )
    library = ctypes.CDLL(str(folder / "harness.so"))
    library.run.restype = ctypes.c_uint64
    library.run.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
    return library


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory, source: dict[str, str]) -> ctypes.CDLL:
    return _built(tmp_path_factory.mktemp("sound") / "build", source)


def test_characters_are_those_of_utf8_and_xml(sound: ctypes.CDLL) -> None:
    sound.valid.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
    edges = [0x00, 0x09, 0x1F, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBE, 0xBF, 0xC1, 0xC2, 0xDF]
    edges += [0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF]
    rng = Random(3)
    for size in (1, 2, 3, 4):
        for _ in range(4000):
            piece = bytes(rng.choice(edges) for _ in range(size))
            before = rng.choice((0, 1, 12, 13, 14, 15, 28, 29, 30, 31, 32, 60, 61, 62, 63))
            after = rng.choice((0, 0, 1, 31, 40))
            text = b"a" * before + piece + rng.choice((b"a", b"\xc3\xa4")) * after
            for avx2 in (0, 1):
                assert sound.valid(text, len(text), avx2) == _is_sound(text), text


def _is_sound(text: bytes) -> bool:
    try:
        characters = text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return not any((c < " " and c not in "\t\n\r") or c in "\ufffe\uffff" for c in characters)


@pytest.mark.parametrize("fault", FAULTS)
def test_drawn_documents_show_a_planted_fault(
    fault: str, sound: ctypes.CDLL, source: dict[str, str], tmp_path: Path
) -> None:
    before, after = FAULTS[fault]
    planted = {name: text.replace(before, after) for name, text in source.items()}
    assert planted != source
    faulty = _built(tmp_path / "build", planted)
    rng = Random(5)
    for _ in range(3000):
        document = drawn(rng)
        for each in (document, mutated(rng, document)):
            for avx2 in (0, 1):
                if sound.run(each, len(each), avx2) != faulty.run(each, len(each), avx2):
                    assert fault != "nothing"
                    return
    assert fault == "nothing"
