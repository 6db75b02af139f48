"""A small disk in memory, which a test fills and empties."""

from __future__ import annotations

import contextlib
import errno
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

BLOCK = 4096


def can_mount() -> bool:
    """Return whether this process may mount disks."""
    status = Path("/proc/self/status").read_text()
    granted = int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), 16)
    return bool(granted >> 21 & 1)  # CAP_SYS_ADMIN


class Disk:
    """A file system in memory at a folder."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.ballast = folder, folder / "ballast"
        command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0700", "none", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"a small disk needs the right to mount one: {done.stderr.strip()}")

    def fill(self) -> int:
        """Take all the room that is left; return its bytes."""
        taken = 0
        with self.ballast.open("ab", buffering=0) as file:
            for size in (256 * BLOCK, BLOCK):
                while True:
                    try:
                        taken += file.write(b"\0" * size)
                    except OSError as error:
                        if error.errno != errno.ENOSPC:
                            raise
                        break
        return taken

    def empty(self) -> None:
        """Give the room back."""
        self.ballast.unlink(missing_ok=True)

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """Leave no room while this lasts."""
        self.fill()
        try:
            yield
        finally:
            self.empty()

    def remove(self) -> None:
        subprocess.run(["umount", "-l", str(self.folder)], check=True)
