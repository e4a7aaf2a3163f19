"""Names and their ids."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmware import labeling
from fmware.labeling import Vocabulary
from fmware.labeling._kernel import UNKNOWN_TAG, split_clark


def test_ids_are_dense_and_stay() -> None:
    vocabulary = Vocabulary(["a", "b"])
    assert [vocabulary.add(name) for name in ("b", "c", "a", "{u}a")] == [3, 4, 2, 5]
    assert vocabulary.names == ("#text", "#unknown", "a", "b", "c", "{u}a")
    assert len(vocabulary) == 6
    assert vocabulary.get("c") == 4
    assert vocabulary.get("d") is None
    assert vocabulary.get("d", -7) == -7
    assert "c" in vocabulary
    assert "d" not in vocabulary
    assert 4 not in vocabulary
    assert repr(vocabulary) == "<Vocabulary of 6 names>"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text("ab{}:.ü", min_size=1, max_size=12), unique=True, max_size=30))
def test_any_names(texts: list[str]) -> None:
    names = [text for text in texts if not text.startswith("{")]
    names += [f"{{{text}}}x" for text in texts]
    names = list(dict.fromkeys(names))
    vocabulary = Vocabulary(names)
    assert vocabulary.names[2:] == tuple(names)
    assert [vocabulary.get(name) for name in names] == list(range(2, 2 + len(names)))
    assert [vocabulary.name(tag) for tag in range(2, 2 + len(names))] == names


@pytest.mark.parametrize("name", ["", "{u}", "{u", "{}"])
def test_what_is_no_clark_name(name: str) -> None:
    with pytest.raises(ValueError, match="Clark"):
        Vocabulary().add(name)


def test_clark_names_are_split_at_the_last_brace() -> None:
    assert split_clark("{a}b") == ("a", "b")
    assert split_clark("{{a}}b") == ("{a}", "b")
    assert split_clark("b") == ("", "b")


def test_uri_and_local_part_are_not_confused() -> None:
    vocabulary = Vocabulary()
    assert len({vocabulary.add(name) for name in ("{ab}c", "{a}bc", "abc", "{abc}a")}) == 4


@pytest.mark.parametrize("tag", [-1, 3, 2**40])
def test_ids_that_are_not_there(tag: int) -> None:
    with pytest.raises(IndexError):
        Vocabulary(["a"]).name(tag)


def test_growth_over_many_pages() -> None:
    names = [f"name{i}" for i in range(20_000)]
    vocabulary = Vocabulary(names)
    assert vocabulary.names[2:] == tuple(names)
    assert all(vocabulary.add(name) == i + 2 for i, name in enumerate(names))


def test_the_limit() -> None:
    vocabulary = Vocabulary(["a", "b"], limit=4)
    assert vocabulary.add("a") == 2
    with pytest.raises(OverflowError, match=r"full.*Vocabulary\(limit=...\)"):
        vocabulary.add("c")
    with pytest.raises(labeling.LimitExceeded, match=r"raise Vocabulary\(limit=...\)") as caught:
        labeling.read(b"<a>\n<b/><c/></a>", vocabulary=vocabulary)
    assert (caught.value.limit, caught.value.allowed) == ("vocabulary", 4)
    assert (caught.value.line, caught.value.column) == (2, 5)
    assert len(labeling.read(b"<a><b/></a>", vocabulary=vocabulary)) == 2


def test_the_bytes_are_bounded() -> None:
    vocabulary = Vocabulary(["a"], size=1000)
    with pytest.raises(OverflowError, match=r"1,000 bytes.*Vocabulary\(size=...\)"):
        vocabulary.add("b" * 1000)
    with pytest.raises(labeling.LimitExceeded, match=r"raise Vocabulary\(size=...\)") as caught:
        labeling.read(b"<a>\n<" + b"b" * 1000 + b"/></a>", vocabulary=vocabulary)
    assert (caught.value.limit, caught.value.allowed) == ("vocabulary_size", 1000)
    assert (caught.value.line, caught.value.column) == (2, 1)
    with pytest.raises(ValueError, match="size"):
        Vocabulary(size=0)


def test_a_namespace_is_held_once() -> None:
    uri = "u" * 100_000
    vocabulary = Vocabulary((f"{{{uri}}}n{i}" for i in range(1000)), size=300_000)
    assert vocabulary.get(f"{{{uri}}}n7") == 9
    assert vocabulary.name(9) == f"{{{uri}}}n7"
    assert f"{{{uri}x}}n7" not in vocabulary


@pytest.mark.parametrize("limit", [0, 1, -5, 2**31 - 1])
def test_limits_that_make_no_sense(limit: int) -> None:
    with pytest.raises(ValueError, match="limit"):
        Vocabulary(limit=limit)


def test_a_closed_reader_adds_nothing() -> None:
    vocabulary = Vocabulary(["a"])
    table = labeling.read(b'<a><b c="1"/></a>', vocabulary=vocabulary, grow=False)
    assert table.tag.tolist() == [2, UNKNOWN_TAG, UNKNOWN_TAG]
    assert len(vocabulary) == 3
    assert table.name(1) == "b"  # as the document has it
    assert len(vocabulary) == 3


def test_threads_adding_at_once() -> None:
    vocabulary = Vocabulary()
    names = [f"n{i}" for i in range(5000)]
    barrier = Barrier(4)

    def add(shift: int) -> list[int]:
        barrier.wait()
        turned = names[shift:] + names[:shift]
        ids = {name: vocabulary.add(name) for name in turned}
        return [ids[name] for name in names]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(add, (0, 1000, 2000, 3000)))
    assert all(ids == found[0] for ids in found)
    assert sorted(found[0]) == list(range(2, 5002))
    assert sorted(vocabulary.names[2:]) == sorted(names)


def test_threads_reading_new_names_at_once() -> None:
    # The reader interns names without the GIL, so here the lock is really needed.
    vocabulary = Vocabulary()
    documents = [
        b"<r>" + b"".join(b"<n%d/>" % ((i * step) % 9973) for i in range(9973)) + b"</r>"
        for step in (1, 2, 3, 5)
    ]
    barrier = Barrier(4)
    reader = labeling.Reader(vocabulary)

    def read(document: bytes) -> set[str]:
        barrier.wait()
        table = reader.read(document)
        return {table.name(row) for row in range(len(table))}

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(read, documents))
    expected = {"r", *(f"n{i}" for i in range(9973))}
    assert all(names == expected for names in found)
    assert len(vocabulary) == 2 + len(expected)
    assert set(vocabulary.names[2:]) == expected


def test_the_dictionary_is_kept_until_a_name_comes() -> None:
    vocabulary = Vocabulary(["a"])
    before = vocabulary.dictionary()
    assert vocabulary.dictionary() is before
    vocabulary.add("b")
    assert vocabulary.dictionary().to_pylist() == ["#text", "#unknown", "a", "b"]


def test_pickling() -> None:
    vocabulary = Vocabulary(["a", "{u}b"], limit=99)
    copy = pickle.loads(pickle.dumps(vocabulary))
    assert copy.names == vocabulary.names
    assert copy.limit == 99
