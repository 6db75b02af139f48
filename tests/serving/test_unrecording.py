"""What is deleted is in no block of a recording, which still replays to the same pages."""

from __future__ import annotations

from pathlib import Path

import pytest
from serving.test_playing import TABLES, Traffic, made, play

from swerve.core.errors import SwerveError
from swerve.serving import entry_kernels as playing
from swerve.serving.entries import Started
from swerve.serving.keys import owner_of
from swerve.serving.recording import Ranked, Reading
from swerve.serving.unrecording import DELETED, Scrub
from swerve.store.blocks import Block
from swerve.store.journal import Journal, tail
from swerve_client.naming import key_text

CONFIGURED = {**TABLES, "namespaces": {"de": {}}}


@pytest.fixture
def traffic() -> Traffic:
    made_of = Traffic(made(CONFIGURED), 11)
    for _ in range(60):
        made_of.step()
    made_of.take()
    return made_of


def scrubbed(traffic: Traffic, scrub: Scrub, folder: Path) -> list[Block]:
    """Write a journal, rewrite it, and read it again."""
    journal = Journal(folder, segment=5000)
    for block in traffic.blocks:
        if block.entries:
            journal.put(block.content, block.entries)
            journal.sync(block.time)
    journal.seal(traffic.now)
    assert journal.rewrite(scrub) > 0
    journal.close()
    blocks = list(tail(folder))
    assert sum(block.entries for block in blocks) == traffic.end
    return blocks


def test_a_query_is_gone_and_the_others_are_as_before(traffic, tmp_path):
    text = key_text("q1", namespace="de")
    key = traffic.ranker.key_of(text)
    assert traffic.ranker.rows.get(key) is not None
    blocks = scrubbed(traffic, Scrub([key]), tmp_path / "journal")
    content = b"".join(block.content for block in blocks)
    assert text.encode() not in content
    assert key[:8] not in content and key[8:] not in content
    assert key_text("q1").encode() in content

    player = play(blocks, CONFIGURED)
    assert player.ranker is not None
    assert player.counts[playing.OTHERS] == 0
    theirs, ours = player.ranker.rows.places, traffic.ranker.rows.places
    assert {one: theirs[one].record.tobytes() for one in ours if one != key} == {
        one: ours[one].record.tobytes() for one in ours if one != key
    }
    (other,) = set(theirs) - set(ours)  # what is left of it: numbers, under a key that nobody has
    left = theirs[other].record.copy()
    left["ledger"]["owner"] = owner_of(key)
    assert left.tobytes() == ours[key].record.tobytes()
    assert theirs[other].namespace == "de"
    assert all(name is None or name.startswith(DELETED) for name in theirs[other].ids)
    assert player.texts[other].startswith(DELETED)

    reading = Reading()
    lines = [line for block in blocks for _, line in reading.lines(block) if isinstance(line, Ranked)]
    before = Reading()
    told = [line for block in traffic.blocks for _, line in before.lines(block) if isinstance(line, Ranked)]
    assert len(lines) == len(told)
    for line, was in zip(lines, told, strict=True):
        assert (line.number, line.propensities, len(set(line.page))) == (was.number, was.propensities, len(was.page))
        if was.query != text:
            assert line == was


def test_a_result_is_gone_where_it_is_deleted(traffic, tmp_path):
    scrub = Scrub((), "r3", "hash:33", lambda key, namespace: namespace == "de")
    blocks = scrubbed(traffic, scrub, tmp_path / "journal")
    player = play(blocks, CONFIGURED)
    assert player.ranker is not None
    assert player.counts[playing.OTHERS] == 0
    held = {
        (place.namespace, name)
        for place in player.ranker.rows
        for name in place.ids
        if name is not None and name in ("r3", "hash:33")
    }
    assert ("de", "r3") not in held and (None, "hash:33") not in held
    reading = Reading()
    lines = [line for block in blocks for _, line in reading.lines(block)]
    ranked = [line for line in lines if isinstance(line, Ranked)]
    assert any("hash:33" in line.candidates for line in ranked)
    assert all(("r3" not in line.candidates) or "namespace" not in line.query for line in ranked)
    assert sum(isinstance(line, Started) for line in lines) == 1


def test_what_is_no_journal_of_the_service_is_refused():
    with pytest.raises(SwerveError, match="no entries of the service"):
        Scrub((), "r3", "x")(b"nonsense")
