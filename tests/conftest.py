"""What the tests of several packages share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


# Whoever runs tests side by side tells them the width of a terminal, which tables would fit into.
os.environ.pop("COLUMNS", None)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all tests: it takes longer to start than all of them to run."""
    pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'fmware[spark]'")
    from fmware.session import spark_session

    with spark_session("local[2]", options={"spark.sql.shuffle.partitions": "2"}) as session:
        yield session
