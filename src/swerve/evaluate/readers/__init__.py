"""Logs as streams of `Shown`, in constant memory: five formats, told apart by their first lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from swerve.core.errors import SwerveError, nearest
from swerve.evaluate.lists import Shown
from swerve.evaluate.readers import dsjson, open_bandit, plain, recording, ubi
from swerve.evaluate.readers.fields import mapping
from swerve.evaluate.readers.source import Source
from swerve.evaluate.tally import Tally

Reader = Callable[[Sequence[Source], dict[str, str]], Iterator[Shown]]
FORMATS: dict[str, Reader] = {
    "swerve": recording.read,
    "ubi": ubi.read,
    "dsjson": dsjson.read,
    "open-bandit": open_bandit.read,
    "plain": plain.read,
}
#: Lines that are looked at to tell the format.
LOOKED_AT = 20


def format_of(path: Path) -> str:
    """Return the name of a log's format: a recording is a folder, others are told by their first lines; `plain` if none fits."""
    if path.is_dir():
        return "swerve"
    for record in islice(Source(path, Tally()).records(), LOOKED_AT):
        names = record.get("_source", record)
        keys = names.keys() if isinstance(names, dict) else set()
        if keys >= set(open_bandit.NEEDED):
            return "open-bandit"
        if keys & {"_label_cost", "_outcomes"}:
            return "dsjson"
        if "action_name" in keys or ("query_id" in keys and keys & {"user_query", "query_response_id", "query_response_hit_ids"}):
            return "ubi"
    return "plain"


def common_format(paths: Sequence[Path]) -> str:
    """Return the format of all files; refuse files of different formats."""
    found = {path: format_of(path) for path in paths}
    if len(set(found.values())) > 1:
        each = ", ".join(f"{path} is {name}" for path, name in found.items())
        raise SwerveError(f"logs of one run must have one format: {each}; choose with --format")
    return next(iter(found.values()))


def read(
    paths: Sequence[Path],
    format: str | None = None,
    map: Sequence[str] = (),
    *,
    tally: Tally | None = None,
    progress: Callable[[int], None] = lambda read: None,
) -> Iterator[Shown]:
    """Yield the lists of logs, in the order of the files (UBI: of time); `progress` is called with the bytes read of all files."""
    if format is not None and format not in FORMATS:
        raise SwerveError(f"--format {format} is not allowed; it must be one of {', '.join(FORMATS)}{nearest(format, FORMATS)}")
    counted = Tally() if tally is None else tally
    columns = mapping(tuple(map), plain.FIELDS)
    done = [0] * len(paths)

    def note(index: int) -> Callable[[int], None]:
        def at(read: int) -> None:
            done[index] = read
            progress(sum(done))

        return at

    sources = [Source(path, counted, note(index)) for index, path in enumerate(paths)]
    for entry in FORMATS[format or common_format(paths)](sources, columns):
        counted.count(entry)
        yield entry
