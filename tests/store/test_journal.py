"""The journal: durable groups, epochs, unfinished writes that are cut, damage that is refused, compression, dropping."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from swerve.core.errors import SwerveError
from swerve.store import journal as journals
from swerve.store.blocks import HEAD, segments_in
from swerve.store.journal import Fenced, Journal, tail
from swerve.store.lock import lock_path
from swerve.store.protocol import InUse, StoreError
from swerve.store.verify import verify_journal


def entries(folder: Path, start: int = 0) -> list[tuple[int, bytes]]:
    """Return the entries of a journal whose entries have eight bytes each, with their numbers."""
    found = []
    for block in tail(folder, start):
        assert len(block.content) == 8 * block.entries
        for k in range(block.entries):
            found.append((block.first + k, block.content[8 * k : 8 * k + 8]))
    return [one for one in found if one[0] >= start]


def entry(number: int) -> bytes:
    return number.to_bytes(8, "little")


def filled(folder: Path, groups: list[int], segment: int = 1 << 20) -> int:
    """Make a journal with groups of so many entries, the content of each its number; return their count."""
    journal, number = Journal(folder, segment=segment), 0
    for group in groups:
        for _ in range(group):
            journal.put(entry(number))
            number += 1
        assert journal.sync(float(number)) == number
    journal.close()
    return number


def test_what_was_synced_is_there_for_the_next_owner(tmp_path):
    folder = tmp_path / "journal"
    count = filled(folder, [3, 1, 40])
    assert entries(folder) == [(number, entry(number)) for number in range(count)]
    again = Journal(folder)
    assert (again.epoch, again.end, again.cut_off) == (2, count, 0)
    assert again.put(entry(count)) == count + 1
    assert again.end == count  # it is not durable yet
    assert again.sync(99.0) == count + 1
    assert again.sync(99.0) == count + 1  # nothing to do
    assert entries(folder, count - 1) == [(count - 1, entry(count - 1)), (count, entry(count))]
    again.close()
    assert [block.epoch for block in tail(folder)] == [1, 1, 1, 2]


def test_only_what_was_put_before_is_in_a_group(tmp_path):
    journal = Journal(tmp_path / "journal")
    journal.put(entry(0) + entry(1), 2)
    journal.sync(1.0)
    journal.put(entry(2))
    journal.close()
    assert [content for _, content in entries(tmp_path / "journal")] == [entry(0), entry(1)]
    with pytest.raises(StoreError, match="closed"):
        journal.sync(2.0)


def test_a_cut_begins_a_segment(tmp_path):
    folder = tmp_path / "journal"
    journal = Journal(folder)
    journal.cut()  # nothing is there yet
    for number in range(6):
        journal.put(entry(number))
        if number in (1, 4):
            journal.cut()
            if number == 4:
                assert journal.sync(1.0) == 5
    assert journal.sync(2.0) == 6
    assert [each.first for each in segments_in(folder)] == [0, 2, 5]
    assert entries(folder) == [(number, entry(number)) for number in range(6)]
    journal.close()


def test_one_process_owns_a_journal(tmp_path):
    journal = Journal(tmp_path / "journal")
    with pytest.raises(InUse, match="in use by process"):
        Journal(tmp_path / "journal")
    with pytest.raises(InUse):
        verify_journal(tmp_path / "journal")
    journal.close()
    journal.close()
    Journal(tmp_path / "journal").close()


def test_an_owner_that_comes_back_is_refused_and_what_it_wrote_is_not_read(tmp_path):
    """The lock is moved away, as on a disk that another machine has taken over: the epoch alone refuses."""
    folder = tmp_path / "journal"
    old = Journal(folder)
    old.put(entry(0))
    old.sync(1.0)
    lock_path(folder).rename(tmp_path / "moved")
    new = Journal(folder)
    new.put(entry(1))
    old.put(b"stale!!!")
    with pytest.raises(Fenced, match="epoch 2") as refused:
        old.sync(2.0)
    assert refused.value.kind == "conflict"
    assert new.sync(2.0) == 2
    with pytest.raises(Fenced):
        old.sync(3.0)
    assert entries(folder) == [(0, entry(0)), (1, entry(1))]
    new.seal(3.0)
    assert new.compress(9) == 2  # what the old owner wrote is left out
    assert entries(folder) == [(0, entry(0)), (1, entry(1))]
    for one in (old, new):
        one.close()


def test_an_append_that_crossed_a_takeover_is_not_acknowledged(tmp_path, monkeypatch):
    """The old owner is stopped between its check and its write; a new one takes over; the old one goes on."""
    folder = tmp_path / "journal"
    old = Journal(folder)
    new: list[Journal] = []
    sync = os.fdatasync

    def stopped(file: int) -> None:
        sync(file)
        if not new:
            lock_path(folder).rename(tmp_path / "moved")
            new.append(Journal(folder))

    old.put(entry(7))
    monkeypatch.setattr(journals.os, "fdatasync", stopped)
    with pytest.raises(Fenced):
        old.sync(1.0)
    # its write was on the disk before the takeover: it is in the journal, though it was not acknowledged
    assert new[0].end == 1
    assert entries(folder) == [(0, entry(7))]
    old.close()
    new[0].close()


def test_a_failed_write_stays_pending_and_leaves_nothing(tmp_path, monkeypatch):
    folder = tmp_path / "journal"
    journal = Journal(folder)
    journal.put(entry(0))
    journal.sync(1.0)
    journal.put(entry(1))
    write = os.pwrite

    def torn(file: int, content: memoryview, at: int) -> int:
        write(file, bytes(content)[:20], at)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(journals.os, "pwrite", torn)
        for _ in range(2):
            with pytest.raises(StoreError, match="make room") as failed:
                journal.sync(2.0)
            assert failed.value.kind == "full"
    journal.put(entry(2))
    assert journal.sync(3.0) == 3
    assert entries(folder) == [(number, entry(number)) for number in range(3)]
    journal.close()
    assert entries(folder) == [(number, entry(number)) for number in range(3)]


def test_a_moved_folder_is_noticed(tmp_path):
    journal = Journal(tmp_path / "journal")
    journal.put(entry(0))
    (tmp_path / "journal").rename(tmp_path / "elsewhere")
    with pytest.raises(StoreError) as gone:
        journal.sync(1.0)
    assert gone.value.kind == "gone"
    journal.close()
    with pytest.raises(SwerveError, match="is no journal"):
        entries(tmp_path)


def test_segments_are_begun_compressed_rewritten_and_dropped(tmp_path):
    folder = tmp_path / "journal"
    count = filled(folder, [30] * 40, segment=1500)
    journal = Journal(folder, segment=1500)
    before, whole = journal.extent(), entries(folder)
    assert before.segments > 5
    assert before.end == count
    assert journal.compress(2) == 2
    while journal.compress(3):
        pass
    assert journal.extent().bytes < before.bytes / 2
    assert entries(folder) == whole
    assert entries(folder, 700) == whole[700:]

    assert journal.rewrite(lambda content: content.replace(entry(5), entry(0))) == 1
    assert entries(folder)[5] == (5, entry(0))
    assert not any(entry(5) in block.content for block in tail(folder))
    assert len(entries(folder)) == count

    assert journal.drop(before=1e9, upto=200) == 1  # only one segment ends below that number
    first = journal.extent().first
    assert entries(folder)[0][0] == first > 0
    assert journal.drop(before=0.0, upto=count) == 0
    with pytest.raises(StoreError, match="no longer there"):
        entries(folder, 3)
    assert journal.drop(before=1e9, upto=count) > 3
    journal.close()
    again = Journal(folder)
    assert again.end == count  # numbers go on
    again.close()


def test_segments_of_owners_that_wrote_nothing_go_with_those_that_are_dropped(tmp_path):
    folder = tmp_path / "journal"
    Journal(folder).close()
    for owner in range(3):
        journal = Journal(folder)
        journal.put(entry(owner))
        journal.sync(float(owner))
        journal.close()
        Journal(folder).close()
    journal = Journal(folder)
    while journal.drop(before=1e9, upto=2):
        pass
    journal.seal(4.0)
    assert [number for number, _ in entries(folder)] == [2]
    assert journal.extent().first == 2
    assert not [path for path in folder.glob("*.journal") if int(path.name.partition(".")[0]) < 2]
    journal.close()


def test_a_copy_that_was_made_while_it_is_written_is_a_journal(tmp_path):
    folder, copy = tmp_path / "journal", tmp_path / "copy"
    filled(folder, [30] * 10, segment=1500)
    journal = Journal(folder)
    journal.put(entry(300))
    journal.sync(1.0)
    shutil.copytree(folder, copy)
    journal.put(entry(301))
    journal.sync(2.0)
    last = segments_in(folder)[-1].path
    (copy / last.name).write_bytes(last.read_bytes()[:-3])  # shipped in the middle of a write
    assert entries(copy) == entries(folder)[:-1] == [(number, entry(number)) for number in range(301)]
    journal.close()
    taken_over = Journal(copy, at_least=301)
    assert (taken_over.end, taken_over.epoch) == (301, 3)
    taken_over.close()


def test_entries_that_a_caller_knows_of_must_be_there(tmp_path):
    folder = tmp_path / "journal"
    count = filled(folder, [3, 3])
    Journal(folder, at_least=count).close()
    last = segments_in(folder)[0].path
    for each in segments_in(folder)[1:]:
        each.path.unlink()
    os.truncate(last, last.stat().st_size - 8)
    with pytest.raises(StoreError, match=f"ends with entry 3, but had reached {count}"):
        Journal(folder, at_least=count)


def test_missing_and_foreign_files_are_refused(tmp_path):
    folder = tmp_path / "journal"
    filled(folder, [30] * 20, segment=1500)
    kept = tmp_path / "kept"
    shutil.copytree(folder, kept)
    segments = segments_in(folder)
    segments[2].path.unlink()
    with pytest.raises(StoreError, match="the next segment begins with"):
        entries(folder)
    shutil.copy(kept / segments[1].path.name, segments[2].path)
    with pytest.raises(StoreError, match="its head"):
        entries(folder)
    filled(tmp_path / "other", [1])
    shutil.copy(kept / segments[2].path.name, segments[2].path)
    shutil.copy(segments_in(tmp_path / "other")[0].path, folder / f"{9999:020}.0000000009.journal")
    with pytest.raises(StoreError, match="its head"):
        Journal(folder)
    (folder / f"{9999:020}.0000000009.journal").unlink()
    (folder / "owner").write_bytes(b"nonsense")
    with pytest.raises(StoreError, match="put back a copy"):
        Journal(folder)
    (folder / "owner").unlink()
    with pytest.raises(StoreError, match="is missing"):
        Journal(folder)
    shutil.copy(kept / "owner", folder / "owner")
    Journal(folder).close()


GROUPS = st.lists(st.integers(1, 12), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(groups=GROUPS, cut=st.floats(0.0, 1.0), junk=st.sampled_from(["none", "zeros", "random", "stale"]), seed=st.integers(0, 99))
def test_an_unfinished_write_is_cut_and_every_group_before_it_is_there(tmp_path, groups, cut, junk, seed):
    """The last block ends anywhere, or has any bytes from there on: a crash during its write."""
    folder = tmp_path / f"journal-{len(os.listdir(tmp_path))}"
    filled(folder, groups)
    *_, last = segments_in(folder)
    whole = last.path.read_bytes()
    size = HEAD + 8 * groups[-1]
    at = len(whole) - size + int(cut * (size - 1))
    rest = {
        "none": b"", "zeros": bytes(len(whole) - at), "random": random.Random(seed).randbytes(len(whole) - at), "stale": whole[:at]
    }[junk]  # fmt: skip
    if junk == "stale":  # bytes of an earlier block, where the file system has used its room again
        rest = whole[at - HEAD // 2 : at][: len(whole) - at]
    damaged = whole[:at] + rest
    last.path.write_bytes(damaged)
    kept = sum(groups) if damaged == whole else sum(groups[:-1])
    before = last.path.read_bytes()
    if damaged != whole:
        assert [one.warning for one in verify_journal(folder).findings] == [True] * (len(damaged) > len(whole) - size)
    assert len(entries(folder)) == kept  # a reader ends there, and changes nothing
    assert last.path.read_bytes() == before
    journal = Journal(folder)
    assert journal.end == kept
    journal.put(entry(kept))
    assert journal.sync(1.0) == kept + 1
    journal.close()
    assert entries(folder) == [(number, entry(number)) for number in range(kept + 1)]


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(groups=st.lists(st.integers(1, 12), min_size=2, max_size=30), where=st.floats(0.0, 1.0), bit=st.integers(0, 7),
       sealed=st.booleans())  # fmt: skip
def test_a_flipped_bit_before_the_last_block_is_refused_and_nothing_is_changed(tmp_path, groups, where, bit, sealed):
    folder = tmp_path / f"journal-{len(os.listdir(tmp_path))}"
    filled(folder, groups, segment=900)
    if sealed:
        journal = Journal(folder)
        journal.compress(99)
        journal.close()
    segments = segments_in(folder)
    last_block = HEAD + 8 * groups[-1] if segments[-1].path.stat().st_size > HEAD else 0
    files = [(each.path, each.path.stat().st_size) for each in segments]
    files[-1] = files[-1][0], files[-1][1] - last_block
    at = int(where * (sum(size for _, size in files) - 1))
    while at >= files[0][1]:
        at -= files.pop(0)[1]
    path = files[0][0]
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)
    listing = {each.path: each.path.read_bytes() for each in segments_in(folder)}
    findings = verify_journal(folder).findings
    if findings:
        assert [one.warning for one in findings] == [False]
        with pytest.raises(StoreError, match="put back a copy") as refused:
            entries(folder)
        assert refused.value.kind == "corrupt"
        assert {each.path: each.path.read_bytes() for each in segments_in(folder)} == listing
    else:  # bytes that no block uses: what fills it up
        assert entries(folder) == [(number, entry(number)) for number in range(sum(groups))]


def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path):
    code = """
        import sys
        from pathlib import Path
        from swerve.store.journal import Journal
        journal, number = Journal(Path(sys.argv[1]), segment=4000), 0
        while True:
            for _ in range(number % 7 + 1):
                journal.put(number.to_bytes(8, "little"))
                number += 1
            print(journal.sync(0.0), flush=True)
    """
    folder, acknowledged = tmp_path / "journal", 0
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), str(folder)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for _ in range(200):
            acknowledged = int(writer.stdout.readline())
        writer.kill()
    found = entries(folder)
    assert len(found) >= acknowledged
    assert found == [(number, entry(number)) for number in range(len(found))]
    Journal(folder, at_least=acknowledged).close()
