"""Sees to it that no answer comes from an index whose files are damaged.

What is looked at, in threads of the server, which never maps a file:

- Every second, whether a file of the generation was replaced or written to. Workers look at the
  files they have open before they answer a batch, so that this is for a service that has no work.
- All bytes, again and again, `rate` of them a second, against their checksums: for what changes
  without leaving a trace in the file system.

Whatever is found is a **doubt**: nothing is handed out, answers that come meanwhile are not used,
and the whole generation is verified, as fast as the disk allows. If it holds, workers are replaced,
since they may have read what was there for a moment, and all goes on. If not, the generation is
**damaged**: messages are refused with the reason, until all of it is as it was written, be it put
back, repaired, or replaced by a new generation. That is noticed within seconds.

A message that workers died of is called bad only if the index holds: see `sound`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from fmware.index import StoreError
from fmware.index.manifest import load_manifest
from fmware.index.scrub import Scrub, files_of
from fmware.service.errors import IndexDamaged

if TYPE_CHECKING:
    from collections.abc import Mapping

    Stamp = tuple[int, int, int, int]

__all__ = ["Matching", "Scrubber"]

BEAT: Final = 1.0
"""Seconds between two looks at the files."""
AGAIN: Final = 60.0
"""Seconds after which a damaged index is verified again though its files look the same: what was
wrong may have been the disk."""
SHARE: Final = 9.0
"""Seconds for each that a verification took before the next one that a message is the reason of."""
OWED: Final = 0.2
"""Seconds that reading is ahead of its rate before it waits."""
REST: Final = 10.0
"""Seconds between two passes over all files."""
TOLD: Final = 3
"""Problems that are named in a reason."""

log = logging.getLogger("fmware.service")


class Matching(Protocol):
    """What is held up while there is a doubt: the worker processes."""

    def hold(self) -> None:
        """Hand out nothing, and use no answer that comes from now on."""

    def refuse(self, error: IndexDamaged) -> None:
        """Fail what waits and what comes, until `go_on`."""

    def go_on(self) -> None:
        """Replace all workers, and hand out again."""


class Scrubber:
    """Verifies the index of a service; all methods are for the thread of the loop.

    `rate` is in bytes a second; with 0, bytes are verified only if there is a doubt.
    """

    def __init__(self, index: str | Path, rate: int) -> None:
        self._path = Path(index)
        self._rate = rate
        self._scrub = Scrub(self._path)
        self._matching: Matching | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stirred = asyncio.Event()
        self._over = threading.Event()
        self._doubt = ""
        self._holding = False
        self._asked: list[asyncio.Future[bool]] = []
        self._seen: dict[Path, Stamp] = {}
        self._manifest: Stamp | None = None
        self._verified: tuple[float, Mapping[Path, Stamp]] = (0.0, {})
        self._not_before = 0.0
        self._sound = asyncio.Event()
        self._sound.set()
        self.damage: IndexDamaged | None = None
        """Why nothing is matched; None if it is."""
        self.checks = 0
        """How often the whole generation was verified because of a doubt."""
        self.damages = 0
        """How often it was found to be damaged."""

    # --- life -----------------------------------------------------------------------------------

    def start(self, matching: Matching) -> None:
        """Begin to look; `matching` is held up when there is a doubt."""
        self._matching = matching
        self._over.clear()
        self._tasks = [asyncio.create_task(self._watch(), name="index")]
        if self._rate:
            self._tasks.append(asyncio.create_task(self._go_round(), name="scrub"))

    async def stop(self) -> None:
        """Look no more; a verification under way is given up."""
        self._over.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        self._answer(self._asked, sound=False)

    # --- what others say and ask ----------------------------------------------------------------

    @property
    def state(self) -> str:
        """`sound`, `checking` while a doubt is looked into, or `damaged`."""
        if self.damage is not None:
            return "damaged"
        return "checking" if self._holding else "sound"

    @property
    def reason(self) -> str:
        """Why it is not `sound`."""
        return self._doubt if self.damage is None else str(self.damage)

    @property
    def read(self) -> int:
        """Bytes that were verified in the background."""
        return self._scrub.read

    @property
    def passes(self) -> int:
        """How often all files were."""
        return self._scrub.passes

    def doubt(self, reason: str) -> None:
        """Something speaks against the index: match nothing until it was verified."""
        if not self._doubt and self.damage is None:
            log.warning("the index is verified: %s", reason)
        self._doubt = self._doubt or reason
        if self.damage is None and not self._holding and self._matching is not None:
            self._holding = True
            self._matching.hold()
        self._stirred.set()

    async def sound(self) -> bool:
        """Whether the index is what was written, verified from now on; matching goes on meanwhile.

        False also if that cannot be known because the service stops.
        """
        if not self._tasks:
            return not self._over.is_set()
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._asked.append(future)
        self._stirred.set()
        return await future

    async def back(self) -> None:
        """Wait until the index is not known to be damaged."""
        await self._sound.wait()

    # --- looking --------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stirred.wait(), BEAT)
            self._stirred.clear()
            if self.damage is None and not self._doubt:
                found = await asyncio.to_thread(self._look)
                if found:
                    self.doubt(found)
            if self._doubt or self._is_due() or await self._may_be_back():
                await self._verify()

    def _is_due(self) -> bool:
        """Whether to verify because of what was asked: messages must not keep the disk busy."""
        return bool(self._asked) and asyncio.get_running_loop().time() >= self._not_before

    async def _may_be_back(self) -> bool:
        if self.damage is None:
            return False
        at, seen = self._verified
        if asyncio.get_running_loop().time() - at > AGAIN:
            return True
        return await asyncio.to_thread(self._stamps) != seen

    async def _verify(self) -> None:
        self._doubt, reason = "", self._doubt
        asked = [*self._asked]
        began = asyncio.get_running_loop().time()
        seen = await asyncio.to_thread(self._stamps)
        problems = await asyncio.to_thread(self._problems)
        if self._over.is_set():
            return
        self.checks += 1
        ended = asyncio.get_running_loop().time()
        self._verified = (ended, seen)
        self._not_before = ended + SHARE * (ended - began)
        if problems:
            self._found(problems)
        elif self.damage is not None or self._holding:
            if self._doubt:
                return  # Something new was said meanwhile: it is verified once more.
            log.warning("the index is as it was written%s", f" ({reason})" if reason else "")
            self._recover()
        self._answer(asked, sound=not problems)

    def _found(self, problems: Mapping[str, str]) -> None:
        named = [f"{name}: {said}" for name, said in problems.items()]
        more = f", and {len(named) - TOLD} files more" if len(named) > TOLD else ""
        said = f"the index is damaged: {'; '.join(named[:TOLD])}{more}"
        if self.damage is None:
            self.damages += 1
            log.error("%s; nothing is matched until it is repaired", said)
        self.damage = IndexDamaged(said)
        self._doubt = ""
        self._holding = False
        self._sound.clear()
        assert self._matching is not None
        self._matching.refuse(self.damage)

    def _recover(self) -> None:
        self.damage = None
        self._holding = False
        # What the pass under way has found may be good again.
        self._scrub = self._fresh()
        self._seen, self._manifest = {}, None
        self._sound.set()
        assert self._matching is not None
        self._matching.go_on()

    def _fresh(self) -> Scrub:
        scrub = Scrub(self._path)
        scrub.read, scrub.passes = self._scrub.read, self._scrub.passes
        return scrub

    def _answer(self, asked: list[asyncio.Future[bool]], *, sound: bool) -> None:
        self._asked = [future for future in self._asked if future not in asked]
        for future in asked:
            if not future.done():
                future.set_result(sound)

    async def _go_round(self) -> None:
        """Verify bytes at the set rate."""
        owed = 0.0
        while True:
            scrub = self._scrub
            before, began = scrub.read, asyncio.get_running_loop().time()
            ended = await asyncio.to_thread(scrub.step)
            taken = asyncio.get_running_loop().time() - began
            owed = max(owed + (scrub.read - before) / self._rate - taken, 0.0)
            # What is not there is no damage to what workers have open: they say that it is gone.
            wrong = [name for name in scrub.problems if (self._path / name).exists()]
            if wrong and scrub is self._scrub and self.state == "sound":
                self.doubt(f"{wrong[0]}: {scrub.problems[wrong[0]]}")
            if ended or owed > OWED:
                await asyncio.sleep(max(owed, REST) if ended else owed)
                owed = 0.0

    # --- in threads -----------------------------------------------------------------------------

    def _problems(self) -> dict[str, str]:
        """What is wrong with the bytes of the generation, all of them read."""
        scrub = Scrub(self._path)
        while not self._over.is_set() and not scrub.step():
            pass
        return scrub.problems

    def _stamps(self) -> dict[Path, Stamp]:
        """What identifies the files of the generation, and tells when they were last written to."""
        paths = [self._path / "manifest.json"]
        with suppress(StoreError, OSError):
            paths += files_of(self._path, load_manifest(self._path))
        found = {}
        for path in paths:
            with suppress(OSError):
                found[path] = _stamp(path)
        return found

    def _look(self) -> str:
        """A file that was replaced or written to since the last look; none of a new generation."""
        try:
            manifest = _stamp(self._path / "manifest.json")
        except OSError:
            return ""  # Workers say that it is gone, and go on with what they have open.
        if manifest != self._manifest:
            self._manifest, self._seen = manifest, self._stamps()
            return ""
        for path, before in self._seen.items():
            with suppress(OSError):
                if _stamp(path) != before:
                    return f"{path} was replaced or written to"
        return ""


def _stamp(path: Path) -> Stamp:
    """Which file has a name, and when it was last written to."""
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
