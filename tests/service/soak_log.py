"""What the service's own log gives away: defects that it caught, and a store that it took for another one."""

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
        """What is new in it and must not be there; `restores` is how many restores under a running service there were."""
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
            except ValueError:  # a kill in the middle of it, or a line of the interpreter's
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
