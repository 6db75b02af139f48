"""Checks of a store that need the meaning of its records: their owners, their counts, their names, the store's secrets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from swerve.core.examination import SLOTS
from swerve.service.secrets import SecretsError, load_secrets
from swerve.serving.keys import owner_of
from swerve.serving.place import UNPACK
from swerve.serving.tokens import NUMBER_BITS
from swerve.store.layouts import layout_of
from swerve.store.protocol import DAY, Row
from swerve.store.verify import Meaning, Problem, Report

OWNER = Problem("owner", "they belong to another query than their key names")
FIELDS = Problem("fields", "their layout lacks a required field")
NEGATIVE = Problem("negative", "a count is negative")
CLICKS = Problem("clicks", "a candidate has more clicks than shows")
PHASE = Problem("phase", "the current phase has larger counts than all phases together, or more shows than its requests have slots")
TIMES = Problem("times", "times are not finite, or a query was last seen before it was first seen")
HEAD = Problem("head", "day, level or time of the last shift differ from the record")
NAMES = Problem("names", "the names of the candidates cannot be read, exceed the capacity, or repeat")

COUNTS = ("requests", "phase_requests", "alarms", "named", "phase_named", "phase_anonymous")
ARM_COUNTS = ("plays", "clicks", "phase_plays", "phase_clicks")
NEEDED = {"created", "seen", "requests", "phase", "shifted", "phase_requests", "alarms", *ARM_COUNTS}


def records(description: str, rows: list[Row]) -> Iterator[tuple[Problem | None, Row]]:
    """Yield the problems of records of one layout. None stands for a record that has no owner, as old layouts have none.

    Only invariants that hold after every call and every crash are checked. All candidates together may have more shows than there
    were requests: a click whose show was lost in a crash counts as a show too.
    """
    layout = layout_of(description)[0]
    book_type = dict(layout.fields or {})["ledger"][0] if "ledger" in (layout.names or ()) else np.dtype([])
    names = set(book_type.names or ())
    if not names >= NEEDED:
        yield from ((FIELDS, row) for row in rows)
        return
    book = np.frombuffer(b"".join(row.record for row in rows), layout)["ledger"]
    plays, clicks, phase_plays, phase_clicks = (book[name].astype(np.int64) for name in ARM_COUNTS)
    requests, phase_requests = book["requests"], book["phase_requests"]
    negative = (book["phase"] < 1) | (np.minimum(plays, np.minimum(clicks, np.minimum(phase_plays, phase_clicks))) < 0).any(axis=1)
    for name in names.intersection(COUNTS):
        negative |= book[name] < 0
    found = {
        NEGATIVE: negative,
        CLICKS: (clicks > plays).any(axis=1) | (phase_clicks > phase_plays).any(axis=1),
        PHASE: (phase_plays > plays).any(axis=1)
        | (phase_clicks > clicks).any(axis=1)
        | (phase_requests > requests)
        | (phase_plays > phase_requests[:, None]).any(axis=1)
        | (phase_plays.sum(axis=1) > SLOTS * phase_requests),
        TIMES: ~(np.isfinite(book["created"]) & np.isfinite(book["seen"]) & (book["created"] <= book["seen"])),
    }
    for problem, bad in found.items():
        for index in np.flatnonzero(bad if problem is NEGATIVE else bad & ~negative):
            yield problem, rows[index]
    for at, row in enumerate(rows):
        if "owner" not in names:
            yield None, row
        elif int(book["owner"][at]) != owner_of(row.key):
            yield OWNER, row
        if not named(row, plays.shape[1]):
            yield NAMES, row
        seen, shifted, asked = float(book["seen"][at]), float(book["shifted"][at]), int(requests[at])
        if np.isfinite(seen) and (row.day, row.level, row.shifted) != (
            int(seen // DAY),
            (max(asked, 0) + 1).bit_length() - 1,
            shifted,
        ):
            yield HEAD, row


def named(row: Row, arms: int) -> bool:
    """Return whether the names of a row can be read, fit into its capacity, and are all different."""
    try:
        ids = UNPACK.decode(row.names).ids
    except msgspec.DecodeError:
        return False
    given = [one for one in ids if one is not None]
    return len(ids) <= arms and len(set(given)) == len(given)


#: The checks of this module, for `swerve.store.verify`.
MEANING = Meaning(records, NUMBER_BITS)


def check_secrets(report: Report, path: Path | None, remedy: str = "") -> None:
    """Report secrets that are missing, unsafe or of another store; the environment counts. `remedy` says what to do when they are
    missing, in terms of the calling command."""
    if not report.rows and not report.owner:
        return
    try:
        fingerprint = load_secrets(path, make=False).fingerprint()
    except SecretsError as error:
        if path is None or path.exists():
            return report.wrong("secrets", str(error))
        words = f"the secrets {path} are not there: no query can be found without them"
        words += f"; {remedy}" if remedy else ""
        return report.wrong("secrets", words)
    if not report.owner:
        words = "the store does not name its secrets yet: the next start adds their fingerprint"
        return report.wrong("secrets", words, warning=True)
    if fingerprint != report.owner:
        words = (
            f"the store was written with other secrets than {path or 'those of the environment'}: no query can be found with these"
        )
        report.wrong("secrets", words)
    return None
