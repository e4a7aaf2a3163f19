"""Readers: shared by threads, sent to other processes."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest

from fmware import labeling
from fmware.labeling import Limits, Reader, Vocabulary
from tests.labeling.oracle import nodes, rows


def document(seed: int) -> bytes:
    inner = b"".join(
        b"<n%d a%d='%d'>t%d<m/>&#252;</n%d>" % (i % seed, i % 7, i, i * seed, i % seed)
        for i in range(300)
    )
    return b"<r xmlns:p='u%d'>" % seed + inner + b"<p:x/></r>"


def test_threads_share_a_reader() -> None:
    reader = Reader(Vocabulary())
    documents = [document(seed) for seed in range(1, 9)]
    expected = [nodes(one) for one in documents]

    def work(turn: int) -> bool:
        order = documents[turn:] + documents[:turn]
        wanted = expected[turn:] + expected[:turn]
        return all(
            rows(reader.read(one)) == want
            for _ in range(5)
            for one, want in zip(order, wanted, strict=True)
        )

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def test_threads_share_a_reader_of_entities() -> None:
    reader = Reader(entities=labeling.CHARACTER_ENTITIES)

    def work(turn: int) -> bool:
        text = f"<!DOCTYPE a [<!ENTITY x '{turn}'>]><a>&x;&uuml;</a>".encode()
        return all(reader.read(text).value(1) == f"{turn}ü" for _ in range(200))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def test_pickling() -> None:
    reader = Reader(
        Vocabulary(["a"]),
        limits=Limits(depth=3),
        grow=False,
        values=False,
        blanks=False,
        entities={"x": "y"},
    )
    copy = pickle.loads(pickle.dumps(reader))
    assert copy.limits == reader.limits
    assert (copy.grow, copy.values, copy.blanks, copy.entities) == (False, False, False, {"x": "y"})
    table = copy.read(b"<a> <b/>&x;</a>")
    assert table.tag.tolist() == [2, 1, 0]
    with pytest.raises(labeling.LimitExceeded):
        copy.read(b"<a><a><a><a/></a></a></a>")


def test_readers_without_a_vocabulary_share_one() -> None:
    assert Reader().vocabulary is Reader().vocabulary
    assert labeling.read(b"<a/>").vocabulary is Reader().vocabulary


@pytest.mark.parametrize("wrong", ["<a/>", None, 3])
def test_only_bytes_are_read(wrong: object) -> None:
    with pytest.raises(TypeError):
        labeling.read(wrong)  # type: ignore[arg-type]


def test_exported_names() -> None:
    assert set(labeling.__all__) <= set(dir(labeling))
