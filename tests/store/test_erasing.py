"""`Store.erase`: one transaction, no trace in the files, and a test that would see one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from swerve.store import Batch, Row, open_store
from swerve.store.protocol import Damaged, StoreError


def filled(folder: Path, seed: int):
    """A store after many commits in which rows grow, shrink and move."""
    rnd, store, version = random.Random(seed), open_store(f"sqlite:///{folder}/x.db"), dict[int, int]()
    size = {number: rnd.choice([888, 1500, 2792, 4672]) for number in range(200)}
    for _ in range(120):
        rows = []
        for number in rnd.sample(range(200), rnd.randint(1, 40)):
            if rnd.random() < 0.1:
                size[number] = rnd.choice([888, 2792, 4672, 8432])
            version[number] = version.get(number, 0) + 1
            names = b"|".join(b"needle-%05d-%02d" % (number, arm) for arm in range(rnd.randint(1, 30)))
            day, level = 20_000 + version[number], rnd.randint(0, 9)
            rows.append(Row(key(number), version[number], 1, day, level, 0.0, rnd.randbytes(size[number]), names))
        store.checkpoint(Batch(rows=rows))
    return store, sorted(version)


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def traces(folder: Path, numbers: list[int]) -> list[int]:
    raw = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    return [number for number in numbers if b"needle-%05d" % number in raw]


@pytest.mark.parametrize("seed", range(6))
def test_no_trace_is_left(tmp_path, seed):
    store, numbers = filled(tmp_path, seed)
    gone = numbers[::3]
    assert traces(tmp_path, gone) == gone
    removed, versions = store.erase([key(number) for number in gone], [], lambda row: None, {"audit": b"[]"})
    assert removed == len(gone) and versions == {}
    assert traces(tmp_path, gone) == []
    assert (tmp_path / "x.db-wal").stat().st_size == 0
    kept = [number for number in numbers if number not in gone]
    assert traces(tmp_path, kept) == kept and store.count() == len(kept)
    assert all(isinstance(row, Row) for row in store.load([key(number) for number in kept]))
    assert store.groups()["audit", "0"] == b"[]"
    store.close()


def test_without_secure_delete_the_bytes_stay(tmp_path):
    """The test above can fail: SQLite alone leaves deleted content in the file."""
    store, numbers = filled(tmp_path, 1)
    store._writer.execute("PRAGMA secure_delete = OFF")
    gone = numbers[::3]
    store.erase([key(number) for number in gone], [], lambda row: None, {})
    assert traces(tmp_path, gone) != []
    store.close()


@pytest.mark.parametrize("seed", range(3))
def test_changed_rows_leave_no_trace_of_what_they_were(tmp_path, seed):
    store, numbers = filled(tmp_path, seed)
    found: list[bytes] = []
    after: int | None = 0
    while after is not None:
        keys, after = store.naming(b"-00", after)
        found += keys
    some = [number for number in numbers if key(number) in found][::2]
    assert len(found) == len(set(found)) == len(numbers)

    def without(row: Row) -> Row:
        return Row(row.key, row.version + 1, row.layout, row.day, row.level, row.shifted, bytes(len(row.record)), b"changed")

    removed, versions = store.erase([], [key(number) for number in some], without, {})
    assert removed == 0 and sorted(versions) == [key(number) for number in some]
    assert traces(tmp_path, some) == []
    for row in store.load([key(number) for number in some]):
        assert isinstance(row, Row) and row.names == b"changed" and row.version == versions[row.key]
    store.close()


def test_a_damaged_row_stops_the_whole(tmp_path):
    store, numbers = filled(tmp_path, 2)
    store._writer.execute("UPDATE rows SET names = x'00' WHERE key = ?", (key(numbers[0]),))
    with pytest.raises(Damaged):
        store.erase([key(numbers[1])], [key(numbers[0])], lambda row: None, {"audit": b"x"})
    assert store.count() == len(numbers) and store.groups() == {}
    store.close()


def test_a_failing_change_leaves_everything(tmp_path):
    store, numbers = filled(tmp_path, 3)

    def fails(row: Row) -> Row:
        raise StoreError("io", "no")

    with pytest.raises(StoreError):
        store.erase([key(numbers[1])], [key(numbers[0])], fails, {})
    assert isinstance(store.load([key(numbers[1])])[0], Row)
    store.close()
