"""Rankers of several workers tell each other what they learn: messages may be lost, repeated or late."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings as hypothesis_settings, strategies as st
from serving.scripted import KEY, Script, ranker as made
from serving.test_playing import TABLES, Traffic, state

from swerve import policy
from swerve.core.errors import SwerveError
from swerve.service.config.settings import settings_in
from swerve.serving import people
from swerve.serving.common import EXCHANGED
from swerve.serving.exchange import ASKED, records_for
from swerve.serving.ranker import Ranker
from swerve.signals import REFORMULATION, VOLUME, Senses
from swerve.signals.senses import HOUR

WORKERS = 3
START = 1_000_000.0


def worker(spec: str = "swerve", **more: Any) -> Script:
    """A ranker that exchanges what it learns, and pages of four results."""
    script = quiet(spec, **more)
    script.ranker.exchange.begin(START)
    return script


def quiet(spec: str = "swerve", **more: Any) -> Script:
    """The same without others."""
    return Script(made(policy(spec, slots=4), plan=(VOLUME, VOLUME), arms=8, slots=4, **more))


def play(script: Script, seed: int, rounds: int) -> None:
    """Play requests with clicks."""
    rng = random.Random(seed)
    for _ in range(rounds):
        decided = script.rank(f"q{seed} {rng.randrange(2)}", ["a", "b", "c", "d", "e"], step=rng.choice([0.5, 3.0, 600.0]))
        if rng.random() < 0.7:
            script.click(decided, rng.choice(decided.ranking[:4]))


def shared(script: Script) -> bytes:
    """What the queries of a ranker share."""
    common = script.ranker.commons.of(None)
    return bytes(common.pools[:1].tobytes() + common.seasons.tobytes())


def pages_of(script: Script) -> Any:
    return script.ranker.pools[0].pages


# ---------------------------------------------------------------- what queries share
def test_what_one_learns_all_know():
    one, other, alone = worker("swerve"), worker("swerve"), worker("swerve")
    play(one, 1, 60)
    play(alone, 1, 60)
    assert other.ranker.exchange.take_up(0, one.ranker.exchange.learning(), one.now)
    assert pages_of(other).clicks.tolist() == pages_of(one).clicks.tolist() != [0.0] * len(pages_of(one).clicks)
    np.testing.assert_allclose(pages_of(other).expected, pages_of(one).expected)
    assert shared(one) == shared(alone), "who listens to nobody is not changed"
    assert not other.ranker.exchange.take_up(0, one.ranker.exchange.learning(), one.now), "there is nothing new"


def test_one_worker_alone_has_the_same_bytes():
    with_others, without = worker("swerve"), quiet("swerve")
    for script in (with_others, without):
        play(script, 5, 80)
    assert shared(with_others) == shared(without)
    assert [place.record.tobytes() for place in with_others.ranker.rows] == [p.record.tobytes() for p in without.ranker.rows]
    assert not any(name.startswith(EXCHANGED) for name in without.ranker.shared(1.0))


@pytest.mark.parametrize("spec", ["swerve", "bwc-ts", "ts"])
def test_repeated_and_older_messages_teach_nothing(spec):
    one, other, said = worker(spec), worker(spec), []
    play(other, 9, 20)
    for _ in range(4):
        play(one, 2, 15)
        said.append(one.ranker.exchange.learning())
        other.ranker.exchange.take_up(0, said[-1], one.now)
    before = shared(other), other.ranker.commons.records()
    for message in (*reversed(said), *said):
        other.ranker.exchange.take_up(0, message, one.now)
    assert (shared(other), other.ranker.commons.records()) == before


@hypothesis_settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_in_the_end_all_know_the_same(data):
    """Whatever is lost, late or repeated: after one message of each all have the same counts, each of them once."""
    scripts = [worker("swerve") for _ in range(WORKERS)]
    said: list[tuple[int, bytes]] = []
    for turn in range(data.draw(st.integers(1, 4))):
        for number, script in enumerate(scripts):
            script.now = max(other.now for other in scripts)
            play(script, 10 * number + turn, data.draw(st.integers(0, 12)))
            said.append((number, script.ranker.exchange.learning()))
        for _ in range(data.draw(st.integers(0, 8))):
            number, message = data.draw(st.sampled_from(said))
            to = data.draw(st.integers(0, WORKERS - 1))
            if to != number:
                scripts[to].ranker.exchange.take_up(number, message, scripts[to].now)
    now = max(script.now for script in scripts)
    last = [script.ranker.exchange.learning() for script in scripts]
    for to, script in enumerate(scripts):
        for number in data.draw(st.permutations(range(WORKERS))):
            if number != to:
                script.ranker.exchange.take_up(number, last[number], now)
    for script in scripts[1:]:
        for name in ("clicks", "expected", "results", "rates", "squares", "graded", "level_clicks", "level_expected"):
            np.testing.assert_allclose(getattr(pages_of(script), name), getattr(pages_of(scripts[0]), name), atol=1e-9)


def test_a_restart_folds_nothing_twice_and_goes_on_saying_all():
    one, other = worker("swerve"), worker("swerve")
    play(one, 3, 40)
    play(other, 4, 20)
    other.ranker.exchange.take_up(0, one.ranker.exchange.learning(), one.now)
    again = quiet("swerve")
    again.ranker.share(other.ranker.shared(other.now))
    assert again.ranker.exchange.on
    assert shared(again) == shared(other)
    assert again.ranker.exchange.learning() == other.ranker.exchange.learning()
    assert not again.ranker.exchange.take_up(0, one.ranker.exchange.learning(), one.now)
    assert shared(again) == shared(other)


def test_after_a_crash_what_others_know_already_is_not_counted_again():
    """The worker has forgotten its last second; others have not. What it learns next is not counted until it is more than that."""
    one, other = worker("swerve"), worker("swerve")
    play(one, 3, 40)
    stored = one.ranker.shared(one.now)
    play(one, 3, 10)
    other.ranker.exchange.take_up(0, one.ranker.exchange.learning(), one.now)
    clicks = pages_of(other).clicks.copy()
    again = quiet("swerve")
    again.ranker.share(stored)
    other.ranker.exchange.take_up(0, again.ranker.exchange.learning(), one.now)
    assert pages_of(other).clicks.tolist() == clicks.tolist()
    again.now = one.now
    play(again, 3, 60)
    other.ranker.exchange.take_up(0, again.ranker.exchange.learning(), again.now)
    np.testing.assert_allclose(pages_of(other).clicks, np.maximum(pages_of(again).clicks, clicks))


def test_a_worker_that_begins_anew_is_taken_up_from_its_begin():
    one, other = worker("swerve"), worker("swerve")
    play(one, 3, 40)
    other.ranker.exchange.take_up(0, old := one.ranker.exchange.learning(), one.now)
    before = pages_of(other).clicks.copy()
    anew = quiet("swerve")  # its store was lost
    anew.ranker.exchange.begin(START + 1e6)
    play(anew, 4, 10)
    other.ranker.exchange.take_up(0, anew.ranker.exchange.learning(), one.now)
    np.testing.assert_allclose(pages_of(other).clicks, before + pages_of(anew).clicks)
    assert not other.ranker.exchange.take_up(0, old, one.now)


def test_a_new_worker_begins_with_what_another_one_knows():
    """Nothing of that is counted twice, neither by the new worker nor by the others."""
    one, other = worker("swerve"), worker("swerve")
    play(one, 3, 40)
    play(other, 4, 20)
    other.ranker.exchange.take_up(0, one.ranker.exchange.learning(), one.now)
    records = {name: record for name, record in other.ranker.shared(other.now).items() if name != "clock"}
    newcomer = quiet("swerve")
    newcomer.ranker.share(records_for(2, records, 1, one.now))
    newcomer.now = max(one.now, other.now)
    assert newcomer.ranker.exchange.on
    assert pages_of(newcomer).clicks.tolist() == pages_of(other).clicks.tolist()
    for number, script in ((0, one), (1, other)):
        assert not newcomer.ranker.exchange.take_up(number, script.ranker.exchange.learning(), newcomer.now)
    before = pages_of(other).clicks.copy()
    play(newcomer, 5, 20)
    other.ranker.exchange.take_up(2, newcomer.ranker.exchange.learning(), newcomer.now)
    np.testing.assert_allclose(pages_of(other).clicks, pages_of(newcomer).clicks)
    assert pages_of(other).clicks.sum() > before.sum()


def test_namespaces_and_the_control_arm_are_exchanged_apart():
    tables = {**TABLES, "namespaces": {"de": {}}}
    rival = settings_in("test", tables)._replace(rival=policy("swerve"))
    one, other = (Ranker(rival, KEY) for _ in range(2))
    for each in (one, other):
        each.exchange.begin(START)
    traffic = Traffic(one, 5)
    for _ in range(60):
        traffic.step()
    assert other.exchange.take_up(0, one.exchange.learning(), traffic.now)
    for namespace in (None, "de"):
        ours, theirs = one.commons.of(namespace), other.commons.of(namespace)
        learnt, known = ours.pools[0].bandit.pages, theirs.pools[0].bandit.pages
        np.testing.assert_allclose(known.level_expected, learnt.level_expected)
        assert learnt.level_expected > 0.0
    assert {name for name in one.shared(1.0) if name.startswith(EXCHANGED)} >= {
        EXCHANGED + one.commons.names(namespace)[0] for namespace in (None, "de")
    }


def test_what_is_no_learning_is_refused_and_other_layouts_are_left_out():
    one, other = worker("swerve"), worker("ts")
    play(one, 1, 20)
    with pytest.raises(SwerveError, match="what worker 3 has learnt cannot be read"):
        other.ranker.exchange.take_up(3, b"nonsense", 1.0)
    assert not other.ranker.exchange.take_up(3, one.ranker.exchange.learning(), one.now), "another policy"
    message = msgspec.msgpack.decode(one.ranker.exchange.learning())
    for part in message.values():
        part[1] = b"not compressed"
    with pytest.raises(SwerveError, match="cannot be read"):
        worker("swerve").ranker.exchange.take_up(3, msgspec.msgpack.encode(message), 1.0)


# ---------------------------------------------------------------- the season
def test_the_season_counts_the_requests_of_all():
    one, other, whole = worker("ts"), worker("ts"), worker("ts")
    hours = 40
    for hour in range(hours):
        for minute in range(0, 60, 5):
            now = START + HOUR * hour + 60.0 * minute
            for script, query in ((one, "a"), (other, "b")):
                if (hour + (query == "a")) % 3:
                    script.now = whole.now = now
                    script.rank(query, ["x", "y"], step=0.0)
                    whole.rank(query, ["x", "y"], step=0.0)
            messages = one.ranker.exchange.learning(), other.ranker.exchange.learning()
            one.ranker.exchange.take_up(1, messages[1], now + 1.0)
            other.ranker.exchange.take_up(0, messages[0], now + 1.0)
    seasons = [script.ranker.commons.of(None).seasons[0] for script in (one, other, whole)]
    assert seasons[2].known > 30.0
    for season in seasons[:2]:
        assert season.known == seasons[2].known
        np.testing.assert_allclose(season.levels, seasons[2].levels, atol=1e-9)
        assert season.clock == pytest.approx(seasons[2].clock, abs=0.05)


# ---------------------------------------------------------------- sessions
def asking(**more: Any) -> Script:
    script = Script(made("ts", plan=(REFORMULATION,), senses=Senses(), reformulation=60.0, **more))
    script.ranker.exchange.begin(START)
    return script


def test_a_session_that_goes_on_to_a_query_of_another_worker_has_reformulated():
    one, other, whole = asking(), asking(), asking()
    one.rank("storm", ["x", "y"], session="s1")
    whole.rank("storm", ["x", "y"], session="s1")
    other.now = one.now + 5.0
    other.rank("hurricane", ["x", "y"], session="s1", step=0.0)
    whole.rank("hurricane", ["x", "y"], session="s1", step=5.0)
    assert one.ranker.exchange.told(other.ranker.exchange.sessions(), other.now) == 1
    assert other.ranker.exchange.told(one.ranker.exchange.sessions(), other.now) == 0, "it has asked that one later"
    for query, script in (("storm", one), ("hurricane", other)):
        ours, theirs = (each.ranker.rows.get(each.ranker.key_of(query)) for each in (script, whole))
        assert ours is not None and theirs is not None
        for name in ("bucket_requests", "bucket_answers", "opened", "recent", "recent_hits"):
            assert ours.record.senses[name].tolist() == theirs.record.senses[name].tolist()
    assert one.ranker.exchange.told(b"", 1.0) == 0
    with pytest.raises(SwerveError, match="no list of sessions"):
        one.ranker.exchange.told(b"123", 1.0)


def test_a_session_counts_once_however_often_it_is_told_and_comes_from_nowhere_then():
    one, other = asking(), asking()
    one.rank("storm", ["x", "y"], session="s1")
    other.now = one.now + 5.0
    other.rank("hurricane", ["x", "y"], session="s1", step=0.0)
    sessions = other.ranker.exchange.sessions()
    assert other.ranker.exchange.sessions() == b"", "nobody has asked since"
    assert [one.ranker.exchange.told(sessions, other.now) for _ in range(2)] == [1, 0]
    before = one.ranker.rows.get(one.ranker.key_of("storm")).record.senses.tobytes()
    one.now = other.now + 1.0
    one.rank("typhoon", ["x", "y"], session="s1")  # it comes from the other worker's query
    assert one.ranker.rows.get(one.ranker.key_of("storm")).record.senses.tobytes() == before


def test_sessions_that_were_away_too_long_or_are_others_do_not_count():
    one, other = asking(), asking()
    one.rank("storm", ["x", "y"], session="s1")
    other.now = one.now + 61.0
    other.rank("hurricane", ["x", "y"], session="s1", step=0.0)
    other.rank("hurricane", ["x", "y"], session="s2", step=0.0)
    sessions = other.ranker.exchange.sessions()
    assert len(sessions) == 2 * ASKED.itemsize
    assert one.ranker.exchange.told(sessions, other.now) == 0


def test_the_hash_of_a_session_is_the_same_for_all_workers_of_a_store():
    people.hash_sessions_by(b"one" * 11)
    first = people.SECRET.tobytes()
    people.hash_sessions_by(b"two" * 11)
    assert people.SECRET.tobytes() != first
    asking()
    other = people.SECRET.tobytes()
    people.hash_sessions_by(KEY)
    assert people.SECRET.tobytes() == other


def test_everything_of_a_ranker_that_has_taken_up_something_is_in_its_records():
    one, other = worker("swerve"), worker("swerve")
    play(one, 3, 30)
    other.ranker.exchange.take_up(0, one.ranker.exchange.learning(), one.now)
    again = Ranker(other.ranker.settings, KEY)
    again.share(other.ranker.shared(other.now))
    assert {**state(again)} == {name: record for name, record in state(other.ranker).items() if isinstance(name, tuple)}
