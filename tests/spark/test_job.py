"""The job on Spark gives what the same work gives in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from fmware.corpus import build_index
from fmware.index.reader import Index
from fmware.index.verify import verify
from fmware.labeling.errors import SourceError
from fmware.labeling.job import label_corpus, label_here
from tests.labeling.corpora import Layout, expected, found, runs_of
from tests.labeling.test_job import ADVERSARIAL, COMMENT, check_runs

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "layout",
    [
        Layout("one", between=[COMMENT, ""], groups=True),
        Layout("one", ".zst", encoding="iso-8859-1"),
        Layout("many", ".gz"),
        Layout("tar"),
    ],
    ids=lambda layout: layout.kind + layout.packed,
)
def test_every_node_is_found_once(spark: SparkSession, layout: Layout, tmp_path: Path) -> None:
    place = tmp_path / "corpus"
    place.mkdir()
    layout.write(ADVERSARIAL, place)
    corpus = label_corpus(
        spark,
        place,
        work=tmp_path / "work",
        record=layout.record,
        schemes=("path", "vist", "prix"),
        partitions=7,
    )
    runs = runs_of(corpus)
    check_runs(runs)
    assert corpus.rejected == 0
    assert found(runs) == expected(ADVERSARIAL)


def test_spark_and_this_process_give_the_same_labels(spark: SparkSession, tmp_path: Path) -> None:
    Layout("one", between=[COMMENT]).write(ADVERSARIAL, tmp_path)
    file = tmp_path / "all.xml"
    here = label_here(file, record=("r", "s"), base=1000)
    there = label_corpus(
        spark, file, work=tmp_path / "work", record=("r", "s"), base=1000, partitions=5
    )
    assert there.recut == [str(file)]

    def labels(corpus: object) -> set[tuple[object, ...]]:
        return {
            (tag, start, end)
            for run in runs_of(corpus)  # type: ignore[arg-type]
            for number, tag in enumerate(run.tags)
            for start, end in zip(
                run.nodes(number).start.tolist(), run.nodes(number).end.tolist(), strict=True
            )
        }

    assert labels(here) == labels(there)


def test_an_index_built_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    text = b"<all>" + b"".join(b'<r k="%d"><a>%d</a></r>' % (i, i) for i in range(500))
    (tmp_path / "x.xml").write_bytes(text + b"<r><broken></r></all>")
    told: list[tuple[int, int]] = []
    made = build_index(
        tmp_path / "x.xml",
        tmp_path / "index",
        spark=spark,
        record="r",
        identity=["r=@k"],
        schemes=("path", "vist", "prix"),
        partitions=4,
        progress=lambda done, total: told.append((done, total)),
    )
    assert (made.records, made.rejected, made.tasks) == (500, 1, 4)
    assert told[-1][0] == told[-1][1]
    assert verify(made.path).ok
    with Index.open(made.path) as index:
        keys = [b"%d" % i for i in range(0, 500, 7)]
        pairs = index.identify("r", keys)
        assert pairs.left.tolist() == list(range(len(keys)))
        for i, start in zip(range(0, 500, 7), pairs.right.start.tolist(), strict=True):
            assert index.fragment(start) == b'<r k="%d"><a>%d</a></r>' % (i, i)
    assert not list((tmp_path / "index" / "building").iterdir())
    (rejects,) = made.rejects
    assert pq.read_table(rejects).column("data").to_pylist() == [b"<r><broken></r>"]


def test_a_data_frame_with_a_column_of_xml(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(f'<a k="{i}"><b>{i}</b></a>', f"n{i}") for i in range(60)]
    rows += [("<a>", "bad"), ("", "empty"), (None, "none")]  # type: ignore[list-item]
    frame = spark.createDataFrame(rows, "xml string, called string").repartition(3)
    made = build_index(frame, tmp_path / "index", spark=spark, identity=["a=@k"], name="called")
    assert (made.records, made.rejected) == (60, 1)
    assert pq.read_table(made.rejects[0]).column("file").to_pylist() == ["bad"]
    with Index.open(made.path) as index:
        for i in range(60):
            (start,) = index.identify("a", [b"%d" % i]).right.start.tolist()
            assert index.fragment(start).decode() == rows[i][0]


def test_binary_columns_and_record_tags_in_a_data_frame(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [(b"<all><r>1</r><r>2</r></all>",), (b"<all><r>3</r></all>",)]
    frame = spark.createDataFrame(rows, "body binary")
    corpus = label_corpus(spark, frame, work=tmp_path / "work", record="r", column="body")
    assert corpus.records == 3
    check_runs(runs_of(corpus))


def test_a_column_that_is_not_there(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([("<a/>",)], "text string")
    with pytest.raises(SourceError, match="no column 'xml'"):
        label_corpus(spark, frame, work=tmp_path)
