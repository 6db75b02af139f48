"""A journal of everything that a ranker does is played to the same bytes: records, what queries share, pages."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from serving.scripted import KEY, Script

from swerve.core.errors import SwerveError
from swerve.service.config.settings import settings_in
from swerve.serving import entries as written, entry_kernels as playing
from swerve.serving.bulk import Bulk
from swerve.serving.entries import Started
from swerve.serving.erasing import forget, target_of
from swerve.serving.messages import Candidate, Event, encode, read_asked
from swerve.serving.migration import restore
from swerve.serving.notes import Notes, write_again, write_down
from swerve.serving.outcomes import Outcome
from swerve.serving.playing import MOST_STEPS, Player
from swerve.serving.ranker import Ranker
from swerve.serving.recording import Reading
from swerve.serving.replay import ticket_of
from swerve.serving.requests import Prepared
from swerve.serving.ruling import Ruling
from swerve.serving.tokens import Tokens
from swerve.store.blocks import Block
from swerve_client.naming import key_text

TABLES: dict[str, Any] = {
    "policy": {"spec": "swerve", "arms": 16, "slots": 4, "propensity_draws": 3},
    "signals": {"numbers": {"news": "count"}},
    "evaluation": {"swaps": 0.2},
    "store": {"cache_mb": 16},
    "feedback": {"events": {"click": {"weight": 1.0}, "save": {"weight": 0.4}}},
}


def made(tables: dict[str, Any] | None = None, key: bytes = KEY) -> Ranker:
    return Ranker(settings_in("test", tables or TABLES), key)


def state(ranker: Ranker) -> dict[Any, bytes]:
    """Everything that a journal must rebuild."""
    found: dict[Any, bytes] = {place.key: place.record.tobytes() + place.names() for place in ranker.rows}
    for commons in (ranker.commons, ranker.rivals):
        if commons is not None:
            found |= {("shared", name): record for name, record in commons.records().items()}
    return found


class Traffic(Script):
    """Random requests of all kinds to a ranker whose doings are written down."""

    def __init__(self, ranker: Ranker, seed: int) -> None:
        super().__init__(ranker)
        self.rng, self.notes = random.Random(seed), write_down(ranker, {}, self.now)
        self.open: list[Any] = []
        self.blocks: list[Block] = []
        self.end = 0

    def take(self) -> None:
        """End a block."""
        content, count = self.notes.take()
        self.blocks.append(Block(self.end, count, 1, self.now, content))
        self.end += count

    def prepared(self) -> tuple[Any, Prepared]:
        rng = self.rng
        namespace = rng.choice([None, None, "de"])
        name = key_text(f"q{rng.randrange(4)}", namespace=namespace)
        size = rng.choice([2, 3, 5, 8, 11])
        offer: list[Any] = [f"r{number}" for number in rng.sample(range(24), size)]
        if rng.random() < 0.2:
            offer = [Candidate(one, score=float(rng.randrange(3))) for one in offer]
        elif rng.random() < 0.2:
            offer[0] = Candidate(offer[0], published_at=self.now - rng.randrange(99))
        more: dict[str, Any] = {"session": f"s{rng.randrange(3)}"} if rng.random() < 0.7 else {}
        if rng.random() < 0.5:
            more["signals"] = {"news": float(rng.randrange(5))}
        if rng.random() < 0.1:
            more["as_given"] = True
        elif rng.random() < 0.1:
            more |= {"control": True, "arm": 2}
        elif rng.random() < 0.15:
            more |= {"ruling": Ruling(4, pins=(("pinned", 2, 1),)), "slots": 3}
        place, asked = self.asking(name, offer, **more)
        asked.namespace = namespace
        return place, asked

    def step(self) -> None:
        rng = self.rng
        self.now += rng.choice([0.0, 0.5, 3.0, 40.0, 4000.0])
        many = 1 if rng.random() < 0.8 else 4
        self.open += [one for one in self.ranker.rank([self.prepared() for _ in range(many)], self.now) if one is not None]
        while len(self.open) > rng.randrange(8):
            self.answer(self.open.pop(rng.randrange(len(self.open))))
        if rng.random() < 0.03 and len(self.ranker.rows):
            place = rng.choice(list(self.ranker.rows))
            self.ranker.shift(place, self.now)
        if rng.random() < 0.02:
            forget(self.ranker, target_of(self.ranker, None, self.ranker.rows.short(f"r{rng.randrange(24)}"), None), self.now)
        if rng.random() < 0.02 and len(self.ranker.rows):
            key = rng.choice(list(self.ranker.rows)).key
            forget(self.ranker, target_of(self.ranker, key, None, None), self.now)
        if rng.random() < 0.2:
            self.take()

    def answer(self, decided: Any) -> None:
        rng, number = self.rng, decided.signed.number
        place = self.ranker.rows.get(decided.signed.key)
        if place is None:
            return
        ticket = ticket_of(decided, self.ranker.life)
        before = self.outcomes.get(number) or Outcome(0, ticket.seen)
        result = rng.choice(decided.ranking[: len(decided.chances)])
        events = [Event(rng.choice(["click", "click", "save"]), result)] if rng.random() < 0.8 else []
        shown = rng.sample(decided.ranking, len(decided.ranking))[:4] if rng.random() < 0.1 else None
        if shown is not None and result not in shown:
            events = []
        self.outcomes[number] = self.ranker.feedback(place, ticket, number, before, events, shown, self.now)
        if rng.random() < 0.2:
            self.open.append(decided)


def play(blocks: list[Block], tables: dict[str, Any] | None = None, key: bytes = KEY, steps: int = MOST_STEPS) -> Player:
    player = Player(lambda started: made(tables, key), steps=steps)
    for block in blocks:
        player.play(block)
    return player


@pytest.mark.parametrize("steps", [0, 50, MOST_STEPS], ids=["many", "few-then-many", "one-by-one"])
@pytest.mark.parametrize("seed", range(2))
def test_random_traffic_is_played_to_the_same_bytes(seed, steps):
    tables = {**TABLES, "namespaces": {"de": {}}} if seed else TABLES
    traffic = Traffic(made(tables), seed)
    for _ in range(80):
        traffic.step()
    traffic.take()
    player = play(traffic.blocks, tables, steps=steps)
    assert player.ranker is not None
    assert state(player.ranker) == state(traffic.ranker)
    counts = player.counts
    assert counts[playing.DECISIONS] > 80
    assert counts[playing.OTHERS] == 0
    assert counts[playing.ANSWERS] > 40


def kinds_of(blocks: list[Block]) -> dict[int, int]:
    """Count the entries of each kind, by walking over them."""
    found: dict[int, int] = {}
    for block in blocks:
        words, at, count = np.frombuffer(block.content, np.int64), 0, 0
        while at < len(words):
            kind = int(words[at]) & 255
            found[kind] = found.get(kind, 0) + 1
            at += int(words[at]) >> written.SIZE_AT
            count += 1
        assert at == len(words)
        assert count == block.entries
    return found


def test_every_kind_of_entry_occurs_in_random_traffic_and_a_missing_one_is_noticed():
    traffic = Traffic(made(), 0)
    for _ in range(120):
        traffic.step()
    traffic.take()
    found = kinds_of(traffic.blocks)
    assert set(found) == set(range(written.STARTED + 1)) - {written.LOADED}
    wanted = state(traffic.ranker)
    for dropped in (written.GONE_ON, written.CLICKED, written.VACATED):
        try:
            player = play([without(block, dropped) for block in traffic.blocks])
        except (SwerveError, IndexError):
            continue
        assert player.ranker is not None
        assert state(player.ranker) != wanted, dropped


def without(block: Block, kind: int) -> Block:
    """A block without the entries of a kind."""
    words, at, kept, count = np.frombuffer(block.content, np.int64), 0, [], 0
    while at < len(words):
        size = int(words[at]) >> written.SIZE_AT
        if int(words[at]) & 255 != kind:
            kept.append(words[at : at + size].tobytes())
            count += 1
        at += size
    return block._replace(content=b"".join(kept), entries=count)


def test_the_secrets_are_not_needed_and_other_kernels_are_noticed():
    """Keys and random streams are in the entries. Where the code decides otherwise than it did, that is counted."""
    traffic = Traffic(made(), 4)
    for _ in range(40):
        traffic.step()
    traffic.take()
    player = play(traffic.blocks, key=b"x" * 32)
    assert player.ranker is not None
    assert player.counts[playing.OTHERS] == 0
    assert {key: place.record.tobytes() for key, place in player.ranker.rows.places.items()} == {
        key: place.record.tobytes() for key, place in traffic.ranker.rows.places.items()
    }
    changed = play(traffic.blocks, {**TABLES, "policy": {**TABLES["policy"], "spec": "cascade-ts"}})
    assert changed.counts[playing.OTHERS] > 0
    assert 1 <= changed.counts[playing.FIRST_OTHER] <= changed.counts[playing.DECISIONS]


def test_a_start_with_a_store_goes_on_from_loaded_rows():
    """The second life knows nothing but what the store has, which is older than memory was: the entries say so."""
    first = Traffic(made(), 5)
    for _ in range(30):
        first.step()
    first.take()
    stored = {place.key: (place.record.tobytes(), place.names(), place.shelf.arms) for place in first.ranker.rows}
    shared = first.ranker.shared(first.now)
    for _ in range(20):  # lost in a crash, but in the journal
        first.step()
    first.take()

    ranker = made()
    ranker.share(shared)
    second = Traffic(ranker, 6)
    second.now = first.now
    for key, (record, names, arms) in stored.items():
        assert ranker.restore(key, record, names, 1, ranker.rows.shelf_for(arms)) is not None
    for _ in range(30):
        second.step()
    second.take()
    player = play([*first.blocks, *second.blocks])
    assert player.ranker is not None
    played = state(player.ranker)
    assert {key: played[key] for key in state(ranker)} == state(ranker)
    assert player.counts[playing.OTHERS] == 0


@pytest.mark.parametrize(
    "policy",
    [{"propensity_draws": 5}, {"spec": "swerve", "arms": 8}, {"spec": "ts"}],
    ids=["another number", "fewer arms", "another policy"],
)
def test_queries_that_are_not_asked_under_another_configuration_stay(policy):
    first = Traffic(made(), 5)
    for _ in range(40):
        first.step()
    first.take()
    tables = {**TABLES, "policy": {**TABLES["policy"], **policy}}
    second = made(tables)
    rows = {place.key: (place.record.tobytes(), place.names(), place.shelf) for place in first.ranker.rows}
    for key, (record, names, shelf) in rows.items():
        assert restore(second, key, record, names, 0, shelf.description, second.rows.shelf_for(shelf.arms)) is not None
    second.share(first.ranker.shared(first.now))
    notes = write_down(second, {"changed": True}, first.now)  # a start, and nothing else
    content, count = notes.take()
    player = Player(lambda started: made(tables if started.config else None))
    for block in (*first.blocks, Block(first.end, count, 2, first.now, content)):
        player.play(block)
    assert player.ranker is not None
    assert len(player.ranker.rows) == len(rows) > 4
    assert state(player.ranker) == state(second)


def test_entries_can_be_played_from_the_begin_of_any_generation():
    tables = {**TABLES, "namespaces": {"de": {}}}
    traffic = Traffic(made(tables), 9)
    begins = [0]
    for step in range(45):
        traffic.step()
        if step % 15 == 14:
            traffic.take()
            begins.append(len(traffic.blocks))
            write_again(traffic.ranker, {}, traffic.now)
    for _ in range(15):
        traffic.step()
    traffic.take()
    wanted = state(traffic.ranker)
    for begin in begins:
        player = play(traffic.blocks[begin:], tables)
        assert player.ranker is not None
        assert player.counts[playing.OTHERS] == 0
        found = state(player.ranker)  # of queries that were not asked since nothing is known
        assert found == {key: record for key, record in wanted.items() if key in found}
        assert len(found) == len(wanted) if begin == 0 else len(found) > 2


class Workers:
    """Random traffic to rankers that exchange what they learn, and which sessions have asked."""

    def __init__(self, seeds: tuple[int, ...], tables: dict[str, Any] = TABLES) -> None:
        self.rng = random.Random(seeds[0])
        self.rankers = [made(tables) for _ in seeds]
        for ranker in self.rankers:
            ranker.exchange.begin(1_000_000.0)
        self.traffic = [Traffic(ranker, seed) for ranker, seed in zip(self.rankers, seeds, strict=True)]
        self.lost: list[tuple[int, bytes]] = []  # messages that come late, or never

    def step(self) -> None:
        """Let each worker have traffic, and tell others, at random: some messages are lost, some are late, some come twice."""
        for traffic in self.traffic:
            traffic.now = max(other.now for other in self.traffic)
            traffic.step()
        for number, ranker in enumerate(self.rankers):
            learning, sessions = ranker.exchange.learning(), ranker.exchange.sessions()
            for other, traffic in enumerate(self.traffic):
                if other == number or self.rng.random() < 0.3:
                    continue
                traffic.ranker.exchange.take_up(number, learning, traffic.now)
                traffic.ranker.exchange.told(sessions, traffic.now)
                if self.rng.random() < 0.3:
                    self.lost.append((number, learning))
        if self.lost and self.rng.random() < 0.5:
            number, learning = self.lost.pop(self.rng.randrange(len(self.lost)))
            for other, traffic in enumerate(self.traffic):
                if other != number:
                    traffic.ranker.exchange.take_up(number, learning, traffic.now)


@pytest.mark.parametrize("spec", ["swerve", "bwc-ts"])
def test_what_was_taken_up_of_others_is_played_to_the_same_bytes(spec):
    tables = {**TABLES, "policy": {**TABLES["policy"], "spec": spec}, "namespaces": {"de": {}}}
    workers = Workers((3, 4, 5), tables)
    for step in range(25):
        workers.step()
        if step == 12:
            workers.traffic[0].take()
            begin = len(workers.traffic[0].blocks)
            write_again(workers.rankers[0], {}, workers.traffic[0].now)
    for traffic in workers.traffic:
        traffic.take()
        player = play(traffic.blocks, tables)
        assert player.ranker is not None
        assert player.counts[playing.OTHERS] == 0
        assert state(player.ranker) == state(traffic.ranker)
        assert player.ranker.exchange.learning() == traffic.ranker.exchange.learning()
    traffic = workers.traffic[0]
    kinds = kinds_of(traffic.blocks)
    assert kinds[written.TAKEN_UP] > 10
    player = play(traffic.blocks[begin:], tables)  # from the begin of the second generation
    assert player.ranker is not None
    found = state(player.ranker)
    assert found == {key: record for key, record in state(traffic.ranker).items() if key in found}


def test_batches_in_columns_are_written_down_as_single_requests_are():
    ranker = made({**TABLES, "evaluation": {"swaps": 0.0}})
    notes = write_down(ranker, {}, 1e6)
    tokens = Tokens((KEY,), ranker.life)
    bulk, now = Bulk(ranker, tokens, 64), 1e6
    body = [{"query": f"q{n % 3}", "candidates": ["a", "b", "c"], "session": f"s{n % 5}"} for n in range(40)]
    in_columns = 0
    for start in range(0, 40, 8):
        read = bulk.read(encode(body[start : start + 8]), 100)
        assert read is not None
        now, at = now + 200.0, 0
        while at < len(read):
            bulk.locate(read, at, len(read))
            told = bulk.decide(read, at, len(read), now)
            if told is not None:
                at += told.decided
                in_columns += told.decided
                continue
            asked = read_asked(read.part(at))
            key = ranker.key_of(key_text(asked.query))
            place = ranker.rows.get(key) or ranker.fresh(key, asked.query, 3, now)
            request = Prepared(key, asked.query, None, asked.candidates, session=asked.session, slots=4)
            ranker.rank([(place, request)], now)
            bulk.note(asked.query, place)
            at += 1
    assert in_columns > 20
    content, count = notes.take()
    player = play([Block(0, count, 1, now, content)], {**TABLES, "evaluation": {"swaps": 0.0}})
    assert player.ranker is not None
    assert state(player.ranker) == state(ranker)
    assert player.counts[playing.DECISIONS] == 40
    assert player.counts[playing.OTHERS] == 0


def test_what_is_no_journal_of_the_service_is_refused():
    with pytest.raises(SwerveError, match="no entries of the service"):
        play([Block(0, 1, 1, 0.0, b"nonsense")])
    notes = Notes(0)
    notes.shifted(bytes(16), 1.0)
    with pytest.raises(SwerveError, match="does not begin with a start"):
        play([Block(0, 1, 1, 0.0, notes.take()[0])])
    notes.started(Started({}, (0, 0, 1), 0, {}, b"", (), 8), 1.0)
    notes.shifted(bytes(16), 1.0)
    with pytest.raises(SwerveError, match="has no begin of query 0000"):
        play([Block(0, 2, 1, 0.0, notes.take()[0])])


def test_entries_that_are_none_are_refused_before_they_are_played(tmp_path):
    """Bits are flipped before the checksum is made: whatever that says, it is refused or played, and never beyond a row."""
    traffic, rng = Traffic(made(), 8), random.Random(8)
    for _ in range(25):
        traffic.step()
    traffic.take()
    content = b"".join(block.content for block in traffic.blocks)
    refused = 0
    for _ in range(25):
        words = np.frombuffer(content, np.int64).copy()
        words[rng.randrange(len(words))] ^= np.int64(1 << rng.randrange(62))
        block = Block(0, traffic.end, 1, 1.0, words.tobytes())
        for use in (lambda block: play([block]), lambda block: list(Reading().lines(block))):
            try:
                use(block)
            except SwerveError:
                refused += 1
    assert refused > 5


@pytest.mark.compiled
@pytest.mark.slow
@pytest.mark.parametrize("steps", [0, MOST_STEPS], ids=["many", "one-by-one"])
def test_compiled_code_plays_to_the_same_bytes(steps):
    traffic = Traffic(made(), 7)
    for _ in range(1500):
        traffic.step()
    traffic.take()
    player = play(traffic.blocks, steps=steps)
    assert player.ranker is not None
    assert state(player.ranker) == state(traffic.ranker)
    assert player.counts[playing.OTHERS] == 0
