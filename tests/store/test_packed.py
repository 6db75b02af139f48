"""Packed records: the same bytes come back, damage is refused, rows of an older schema go on, and nothing is left of a deletion."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from pathlib import Path

import pytest
from store.rows import key, newer, row

from swerve.store import Batch, Row, open_store, schema
from swerve.store.backup import backup
from swerve.store.packed import pack, unpack
from swerve.store.protocol import Damaged
from swerve.store.snapshot import snapshot
from swerve.store.verify import verify


def sparse(number: int, version: int = 1, size: int = 2936) -> Row:
    """Return a row whose record is mostly zeros, as a query's is."""
    draw = random.Random(f"{number}/{version}")
    record = bytearray(size)
    for _ in range(size // 20):
        at, count = draw.randrange(size - 8), draw.choice((1, 2, 8))
        record[at : at + count] = draw.randbytes(count)
    return Row(key(number), version, 1, 20_000, 3, 0.0, bytes(record), f"names of {number}".encode())


def stored(path: Path) -> list[tuple[int, bytes, int]]:
    with contextlib.closing(sqlite3.connect(path)) as file:
        return file.execute("SELECT id, record, size FROM rows ORDER BY id").fetchall()


def test_records_come_back_byte_by_byte():
    draw = random.Random(1)
    records = [b"", b"abc", bytes(4), bytes(2936), b"\xff" * 2936, b"\x00\x00\x00\x80", bytes(3) + b"\x01" + bytes(29)]
    for _ in range(300):
        size = draw.choice((4, 8, 36, 1020, 1024, 1028, 1472, 2936, 4816, 4817))
        share = draw.random()
        record = bytearray(draw.randbytes(size) if share > 0.9 else size)
        for at in range(size):
            if draw.random() < share:
                record[at] = draw.randrange(256)
        records.append(bytes(record))
    draw.shuffle(records)
    made = pack(records)
    assert [unpack(*one) for one in made] == records
    assert made == [pack([record])[0] for record in records]  # the form does not depend on the records packed with it
    for record, (form, size) in zip(records, made, strict=True):
        assert (form, size) == (record, 0) or (len(form) < len(record) == size)
    assert pack([bytes(2936)])[0] == (bytes(734), 2936)


def test_bytes_that_are_no_packed_record_are_refused():
    ((form, size),) = pack([sparse(1).record])
    refused = pytest.raises(ValueError, match="a packed record of")
    for wrong in (form[:-1], form + b"\x00", form[4:], b"", form[:91], bytes([form[0] ^ 1]) + form[1:], form[:-1] + b"\x01"):
        with refused:
            unpack(wrong, size)
    for other in (size + 1, 2 * size, size // 2, -size, 1 << 40):  # a size that differs by a word is left to the checksum
        with refused:
            unpack(form, other)
    beyond = bytearray(pack([b"\x01" + bytes(1027)])[0][0])  # 257 words: the last byte of the bitmap has seven bits without a word
    beyond[32] |= 1
    with refused:
        unpack(bytes(beyond), 1028)


def test_a_store_keeps_packed_records_and_returns_whole_ones(tmp_path):
    store = open_store(f"sqlite:///{tmp_path}/swerve.db")
    rows = [sparse(number) for number in range(300)] + [row(number) for number in range(300, 310)]
    assert store.add_layout("a layout") == 1
    store.checkpoint(Batch(rows))
    rows[:200] = [newer(old, record=sparse(number, 2, 4816).record) for number, old in enumerate(rows[:200])]
    store.checkpoint(Batch(rows[:200]))
    assert store.load([one.key for one in rows]) == rows
    assert {one.key: one for one in store.scan("traffic", 400)} == {one.key: one for one in rows}
    store.close()
    found = stored(tmp_path / "swerve.db")
    assert [size for _, _, size in found] == [4816] * 200 + [2936] * 100 + [0] * 10
    assert all(len(record) <= size * 3 // 4 for _, record, size in found if size)
    assert verify(tmp_path / "swerve.db").ok
    with snapshot(tmp_path / "swerve.db") as opened:
        assert list(opened.rows()) == rows and opened.damaged == 0


@pytest.mark.parametrize("column", ["record", "size"])
def test_a_damaged_packed_record_is_refused(tmp_path, column):
    """Each bit of the stored form counts; none is decoded into another record."""
    path, good = tmp_path / "swerve.db", sparse(1, size=1472)
    store = open_store(f"sqlite:///{path}")
    store.checkpoint(Batch([good, sparse(2)]))
    ((_, form, size), _) = stored(path)
    wrong: list[bytes | int]
    if column == "record":
        wrong = [form[:at] + bytes([form[at] ^ 1 << bit]) + form[at + 1 :] for at in range(len(form)) for bit in (0, 7)][::3]
        wrong += [good.record, form + bytes(4), b""]
    else:
        wrong = [0, size + 4, size - 4, -1, 1 << 40]
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
        for value in wrong:
            file.execute(f"UPDATE rows SET {column} = ? WHERE id = 1", (value,))
            damaged, other = store.load([good.key, key(2)])
            assert isinstance(damaged, Damaged) and damaged.version == 1 and damaged.key == good.key
            assert other == sparse(2)
    assert store.scan("traffic", 5) == [sparse(2)]
    store.checkpoint(Batch([newer(good)]))  # a fresh record takes its place
    assert store.load([good.key]) == [newer(good)]
    store.close()


def test_a_store_of_an_older_schema_goes_on(tmp_path, monkeypatch):
    path, rows = tmp_path / "swerve.db", [sparse(number) for number in range(40)]
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("PRAGMA page_size = 8192")
        number = f"PRAGMA application_id = {schema.APPLICATION}; PRAGMA user_version = 2"
        file.executescript(f"{schema.MIGRATIONS[0]}; {schema.MIGRATIONS[1]}; {number}")
        names = "key, version, layout, day, level, shifted, record, names, crc"
        for one in rows:
            values = one.key, one.version, one.layout, one.day, one.level, one.shifted, one.record, one.names, one.checksum()
            file.execute("INSERT OR IGNORE INTO layouts VALUES (1, 'a layout')")
            file.execute(f"INSERT INTO rows({names}) VALUES ({', '.join('?' * len(values))})", values)
    report = verify(path)  # before it is migrated: nothing is changed
    assert report.ok and report.rows == 40 and [one.name for one in report.warnings] == ["schema"]
    with snapshot(path) as opened:
        assert list(opened.rows()) == rows
    assert backup(path, tmp_path / "copy.db").rows == 40
    for file in (path, tmp_path / "copy.db"):
        store = open_store(f"sqlite:///{file}")
        assert store.load([one.key for one in rows]) == rows
        changed = [newer(one) for one in rows[:10]]
        store.checkpoint(Batch(changed))
        assert store.load([one.key for one in rows]) == changed + rows[10:]
        store.close()
        assert [size for _, _, size in stored(file)] == [2936] * 10 + [0] * 30
        report = verify(file)
        assert report.ok and not report.warnings and report.schema == len(schema.MIGRATIONS)
    monkeypatch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:2])
    with pytest.raises(schema.SwerveError, match="schema 4, and this version of Swerve knows schemas up to 2"):
        open_store(f"sqlite:///{path}")  # an older Swerve would take packed bytes for records


def test_deleted_packed_records_leave_no_trace(tmp_path):
    store = open_store(f"sqlite:///{tmp_path}/x.db")
    rows = [sparse(number) for number in range(90)]
    for version in range(1, 6):
        rows = [sparse(number, version, (1472, 2936, 4816)[(number + version) % 3]) for number in range(90)]
        store.checkpoint(Batch(rows))

    def left() -> list[int]:
        raw = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        forms = [pack([one.record])[0][0] for one in rows]
        return [number for number, form in enumerate(forms) if form.rstrip(b"\0")[-200:] in raw]

    assert left() == list(range(90))
    store.erase([one.key for one in rows[::3]], [], lambda one: None, {})
    assert left() == [number for number in range(90) if number % 3]
    store.close()
