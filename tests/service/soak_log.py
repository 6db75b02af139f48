"""Checks of the service's own log: caught defects, and false detections of a replaced store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ANOTHER = "another file has replaced the store"


class Log:
    """Reads the log as it grows."""

    def __init__(self, path: Path) -> None:
        self.path, self.read, self.restores = path, 0, 0

    def wrong(self) -> list[str]:
        """Return new lines that must not be there; `restores` is the number of restores under a running service."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self.read)
            lines = file.read()
        lines = lines[: lines.rfind(b"\n") + 1]
        self.read += len(lines)
        out = []
        for line in lines.splitlines():
            try:
                said = json.loads(line)
            except ValueError:  # a line that a kill cut short, or a line of the interpreter
                if b"Traceback" in line:
                    out.append("the log has a traceback")
                continue
            out += self._judged(said)
        return out

    def _judged(self, said: Any) -> list[str]:
        message = said.get("message", "")
        if "error" in said and said.get("level") == "error":
            return [f"the log tells of a defect: {message}: {str(said['error'])[-600:]}"]
        if message.startswith(ANOTHER):
            self.restores -= 1
            if self.restores < 0:
                self.restores = 0
                return [f"memory was given up though no other store was put there: {message!r}"]
        return []
