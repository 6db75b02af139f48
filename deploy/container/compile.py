"""Compile the default policy for every capacity into SWERVE_CACHE_DIR: a step of the image's build."""

from __future__ import annotations

import time

from swerve.core.cache import cache_root
from swerve.service.config.load import load
from swerve.service.config.settings import settings_of
from swerve.service.warm import NO_KEY, Warming
from swerve.serving.ranker import Ranker


def main() -> None:
    """Compile, and say how long each capacity took."""
    if cache_root() is None:
        raise SystemExit("SWERVE_CACHE_DIR cannot be written")
    config, since = load(), time.perf_counter()

    def done(arms: int) -> None:
        print(f"compiled for {arms} candidates after {time.perf_counter() - since:.0f} s", flush=True)

    Warming(config, Ranker(settings_of(config), NO_KEY)).run(done)


if __name__ == "__main__":
    main()
