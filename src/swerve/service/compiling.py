"""Compilation in the background of a service: futures of its first capacity, and of all."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from swerve.service.warm import Warming
from swerve.serving.rows import Shelf

log = logging.getLogger("swerve.service")


def compiled(
    warming: Warming, shelves: Sequence[Shelf], behind: Callable[[], int]
) -> tuple[asyncio.Future[None], asyncio.Future[None]]:
    """Begin to compile, in a thread; return futures that resolve when the first capacity is ready, and when all are. `behind`
    returns how many entries of the log a start would play."""
    loop = asyncio.get_running_loop()
    first: asyncio.Future[None] = loop.create_future()
    every: asyncio.Future[None] = loop.create_future()

    def ready(arms: int) -> None:
        for shelf in shelves:
            shelf.ready |= shelf.arms == arms
        if not first.done():
            first.set_result(None)
        left = sorted({shelf.arms for shelf in shelves if not shelf.ready})
        if not left:
            every.set_result(None)
        log.info("compiled", extra={"capacity": arms, "still_compiling": left})

    def failed(error: Exception) -> None:
        if not first.done():
            first.set_exception(error)
        else:
            log.error("compilation failed; queries that need larger capacities get the given order: %s", error)
            every.set_exception(error)
            every.exception()  # marks it as retrieved: nobody may await it

    def tell(what: Callable[..., None], *args: Any) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(what, *args)

    def compile_all() -> None:
        try:
            warming.run(lambda arms: tell(ready, arms))
            warming.learn_to_play(behind)
        except Exception as error:
            tell(failed, error)

    for shelf in shelves:
        shelf.ready = False
    # Daemon, so shutdown need not wait for compilation.
    threading.Thread(target=compile_all, name="swerve-compiler", daemon=True).start()
    return first, every
