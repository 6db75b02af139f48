"""Times as logs write them: unix seconds, milliseconds or microseconds, and RFC 3339 or close to it."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

#: Above these numbers a time cannot be in seconds (the year 5138) or in milliseconds, but in the next smaller unit.
MILLI, MICRO, NANO = 1e11, 1e14, 1e17
#: Forms besides ISO 8601 that logs were found to have.
FORMS = ("%Y/%m/%d %H:%M:%S", "%d/%b/%Y:%H:%M:%S %z", "%m/%d/%Y %H:%M:%S", "%a, %d %b %Y %H:%M:%S %z", "%m/%d/%Y, %I:%M:%S %p")


def seconds(value: Any) -> float:
    """Return a time in unix seconds, or NaN if it cannot be read. A time without an offset is taken as UTC.

    >>> seconds(1500000000), seconds("1500000000000"), seconds("2017-07-14T02:40:00Z"), seconds("soon")
    (1500000000.0, 1500000000.0, 1500000000.0, nan)
    """
    if value is None or isinstance(value, bool):
        return math.nan
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return text_seconds(value) if isinstance(value, str) else math.nan
    if number >= NANO:
        number /= 1e9
    elif number >= MICRO:
        number /= 1e6
    elif number >= MILLI:
        number /= 1e3
    return number if 0.0 <= number < MILLI else math.nan


def text_seconds(text: str) -> float:
    """Return a written time in unix seconds, or NaN."""
    text = text.strip()
    if len(text) > 27 and text[19:20] == "." and text[20:27].isdigit():  # more than microseconds, as .NET writes them
        tail = text[26:].lstrip("0123456789")
        text = text[:26] + tail
    if text.endswith(" UTC"):
        text = text[:-4] + "+00:00"
    try:
        return seconds(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        pass
    for form in FORMS:
        try:
            return seconds(datetime.strptime(text, form))
        except (ValueError, OverflowError):
            continue
    return math.nan
