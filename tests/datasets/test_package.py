from __future__ import annotations

import os
import subprocess
import sys

from fmware import datasets

EVERYTHING = """
import hashlib, itertools
import fmware.datasets as d
made = itertools.chain(
    d.news_documents(20, 3),
    d.documents("auction", 10, seed=3, skew=1),
    (q.encode() for q in d.queries("news", 3000, seed=3, predicates=1, nested=1, skew=0.5)),
    d.bibliography(records=500, seed=3),
    d.citations(50, records=500, seed=3),
    d.recursive(20, seed=3),
)
print(hashlib.sha256(b"".join(made)).hexdigest())
"""


def test_exported_names_are_the_intended_ones() -> None:
    assert set(datasets.__all__) == {
        *("Bibliography", "DatasetError", "Dtd", "DtdError", "ExhaustedError", "ParameterError"),
        *("Record", "bibliography", "citations", "documents", "dtd_names", "dtd_text", "keys"),
        *("load_dtd", "news_documents", "queries", "record", "recursive"),
    }
    assert all(hasattr(datasets, name) for name in datasets.__all__)


def test_the_seed_decides_every_byte_whatever_the_hash_seed_of_the_process() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", EVERYTHING],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for hash_seed in ("1", "4711")
    }
    assert len(digests) == 1
