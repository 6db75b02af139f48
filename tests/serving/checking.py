"""Small limits, and a helper that returns refusals under them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from swerve.serving.messages import Refused


@dataclass(frozen=True)
class Small:
    candidates: int = 4
    query_chars: int = 10
    id_chars: int = 5
    session_chars: int = 6
    batch: int = 3


LIMITS = Small()


def refused(act: Callable[..., Any], *arguments: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        act(*arguments)
    return caught.value
