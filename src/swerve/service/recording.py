"""The recording of a service, where `log.record` asks for one: written before the store, with each of its groups."""

from __future__ import annotations

import asyncio
import logging
import math
from pathlib import Path
from typing import Any

from swerve.serving.erasing import Target
from swerve.serving.ranker import Ranker
from swerve.serving.recording import Recorder
from swerve.serving.unrecording import Scrub
from swerve.store.protocol import DAY, StoreError

log = logging.getLogger("swerve.service")

#: Seconds between two looks for what is too old: each reads segments.
DROP_SECONDS = 3600.0


class Recording:
    """A recording that never stands in the way of the service: trouble with it is told in the log, and the store goes on."""

    def __init__(self) -> None:
        self.recorder: Recorder | None = None
        self.keep, self._drop_at = math.inf, math.inf  # seconds; when to drop what is older next

    def open(self, folder: Path, config: dict[str, Any], ranker: Ranker, now: float, days: float = 0.0) -> None:
        """Begin to record into a folder, and keep it for so many days (0: for ever). Raises `StoreError`, or `InUse`."""
        self.recorder = Recorder(folder, config, ranker, now)
        if days > 0.0:
            self.keep, self._drop_at = days * DAY, now

    def begin(self, now: float) -> None:
        """Note that another store has taken the place of the one before."""
        if self.recorder is not None:
            self.recorder.begin(now)

    def collect(self, now: float) -> None:
        """Take what was done since the last group, on the event loop. A recording that could not be written for long is ended."""
        if self.recorder is not None and not self.recorder.collect(now):
            log.error("the recording ends here: too much of it could not be written")
            self.recorder.journal.close()
            self.recorder = None

    def sync(self, now: float) -> None:
        """Write what was collected, in the writer's thread. What cannot be written waits for the next group."""
        if (recorder := self.recorder) is not None:
            try:
                recorder.sync(now)
            except StoreError as error:
                log.warning("the recording cannot be written (%s): %s", error.kind, error)

    async def tidy(self, now: float) -> None:
        """Compress a segment that is finished, if there is one, and drop what is too old."""
        if (recorder := self.recorder) is not None:
            try:
                await asyncio.to_thread(recorder.journal.compress)
                if now >= self._drop_at:
                    self._drop_at = now + DROP_SECONDS
                    await asyncio.to_thread(recorder.drop, now - self.keep)
            except StoreError as error:
                log.warning("the recording cannot be compressed (%s): %s", error.kind, error)

    async def erase(self, target: Target, result: str | None, now: float) -> None:
        """Delete from the recording; nothing of it is in its files on return. Raises `StoreError`."""
        if (recorder := self.recorder) is None:
            return
        recorder.collect(now)
        scrub = Scrub(target.keys, result, target.result_name or "", target.concerns)
        await asyncio.to_thread(recorder.erase, scrub, now)

    def close(self, now: float) -> None:
        """Write the rest, and end."""
        if self.recorder is not None:
            try:
                self.recorder.close(now)
            except StoreError as error:
                log.error("the end of the recording could not be written: %s", error)
