"""The file operations that durability hangs on, in one place.

What an index promises after a crash follows from the order of these few calls. They go through
one object, so that tests can let any of them fail, or be the last that a process did.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    import lmdb
    import numpy.typing as npt

__all__ = ["FILES", "Files"]


class Files:
    """File operations; `step` is told of each before it is done."""

    def step(self, what: str, path: Path) -> None:
        """Nothing; tests raise here, or never come back."""

    def write(self, path: Path, data: bytes) -> None:
        """Write a file as a whole and make its bytes durable; its name is not yet."""
        self.step("write", path)
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            self.step("fsync", path)
            os.fsync(file.fileno())

    def save(self, path: Path, array: npt.NDArray[Any]) -> None:
        """Write an array for another process to read; it need not outlive a crash."""
        self.step("save", path)
        np.save(path, array, allow_pickle=False)

    def commit(self, transaction: lmdb.Transaction, path: Path) -> None:
        """Hand what was put to the operating system."""
        self.step("commit", path)
        transaction.commit()

    def sync(self, environment: lmdb.Environment, path: Path) -> None:
        """Make durable what was committed."""
        self.step("sync", path)
        environment.sync(force=True)

    def fsync_directory(self, path: Path) -> None:
        """Make durable which names a directory holds."""
        self.step("fsync", path)
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def rename(self, source: Path, target: Path) -> None:
        self.step("rename", target)
        source.rename(target)

    def mkdir(self, path: Path) -> None:
        """Make a directory, its parents too; one that is there is as good."""
        if not path.is_dir():
            self.step("mkdir", path)
            path.mkdir(parents=True)

    def remove(self, path: Path) -> None:
        """Remove a file; one that is not there is as good."""
        self.step("remove", path)
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        """Remove a directory with all it holds; one that is not there is as good."""
        if path.exists():
            self.step("remove", path)
            shutil.rmtree(path)


FILES = Files()
