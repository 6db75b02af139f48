"""A service with an API key, which takes beacons; the folder of the client for JavaScript."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from swerve.service.secrets import new_key

JS = Path(__file__).parents[2] / "clients" / "js"
KEY = new_key("shop")
CONFIG: dict[str, dict[str, Any]] = {
    "feedback": {"beacon": True},
    "security": {"api_keys": [{"name": KEY.entry.name, "hash": KEY.entry.hash}]},
}
