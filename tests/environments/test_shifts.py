"""Traffic beyond the paper's: shifts of all kinds, independence of the policy, and refusals."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from environments.shifted import EVERYTHING, SMALL, Rounds, rounds_of
from scipy import stats

from swerve import UCB1, Shifts, SpecError, SwerveError, Thompson
from swerve.environments import world
from swerve.environments.histories import CEILING, INTENTS, RISE, STEP
from swerve.simulate import Session


def phases(rounds):
    """Return the click probabilities from the start and from each event on."""
    return [rounds.chances[0], *rounds.chances[rounds.told == 1]]


# ------------------------------------------------------------------------------------------------------------------ events


@pytest.mark.parametrize("moves", ["all", "one", "return"])
def test_events_are_as_many_as_asked_at_uniform_rounds(moves):
    spec = Shifts(queries=400, impressions=400_000, shifting_share=0.5, events_low=1, events_high=10, moves=moves, features=0)
    instance = world(spec, 5)
    shifting = instance.events[instance.events > 0]
    assert len(shifting) == 200
    assert stats.chisquare(np.bincount(shifting, minlength=11)[1:]).pvalue > 0.001
    starts = instance.segments["since"][instance.segments["event"] == 1]
    assert starts.min() >= 2
    assert starts.max() <= 1000
    assert stats.kstest((starts - 1.5) / 999, "uniform").pvalue > 0.001


def test_a_query_that_does_not_shift_has_one_line_and_no_signal():
    drawn, instance = rounds_of(dataclasses.replace(SMALL, shifting_share=0.25))
    still = [rounds for rounds in drawn if not rounds.told.any()]
    assert len(still) == 15
    assert len(instance.segments) == 20 + instance.k
    for rounds in still:
        assert not rounds.signal.any()
        assert (rounds.chances == rounds.chances[0]).all()


def test_all_redraws_every_result_and_another_is_best():
    drawn, instance = rounds_of(dataclasses.replace(SMALL, minimum_gap=0.3, minimum_event_distance=50))
    assert instance.distance >= 50
    for rounds in drawn:
        for before, after in itertools.pairwise(phases(rounds)):
            assert before.argmax() != after.argmax()
            assert (before != after).all()
        for chances in phases(rounds):
            ordered = np.sort(chances)
            assert 0.6 <= ordered[-1] <= 0.9
            assert 0.05 <= ordered[0] <= ordered[-2] <= 0.4
            assert ordered[-1] - ordered[-2] >= 0.3
        assert (np.diff(rounds.chances, axis=0)[rounds.told[1:] == 0] == 0).all()


def test_one_moves_a_riser_and_then_a_faller():
    drawn, _ = rounds_of(dataclasses.replace(SMALL, moves="one", events_low=5, events_high=10))
    extra = []
    for rounds in drawn:
        for turn, (before, after) in enumerate(itertools.pairwise(phases(rounds))):
            best, new = before.argmax(), after.argmax()
            moved = set(np.flatnonzero(before != after).tolist())
            if turn % 2 == 0:
                assert after[best] == before[best]  # the old best does not move, so no click shows that it was overtaken
                assert after[best] + RISE <= after[new] <= CEILING
                moved.remove(new)
            else:
                assert 0.05 <= after[best] <= 0.4
                assert after[new] == before[new] >= 0.6  # the former second leads again
                moved.remove(best)
            assert new != best
            assert len(moved) <= 1
            assert all(0.05 <= after[arm] <= 0.4 for arm in moved)
            extra.append(len(moved))
    assert 0.35 < np.mean(extra) < 0.65


def test_return_goes_back_to_the_very_same_probabilities():
    drawn, _ = rounds_of(dataclasses.replace(SMALL, moves="return", events_low=10, events_high=10))
    for rounds in drawn:
        met = phases(rounds)
        known = {chances.tobytes() for chances in met}
        assert 2 <= len(known) <= INTENTS
        assert len({int(chances.argmax()) for chances in met}) == len(known)  # no two meanings have the same best result
        assert all(before.tobytes() != after.tobytes() for before, after in itertools.pairwise(met))
    assert max(len({chances.tobytes() for chances in phases(rounds)}) for rounds in drawn) == INTENTS
    back = [
        one.tobytes() == two.tobytes() for rounds in drawn for one, two in zip(phases(rounds), phases(rounds)[2:], strict=False)
    ]
    assert stats.binomtest(sum(back), len(back), 0.5).pvalue > 0.001  # either of the other two can follow


@pytest.mark.parametrize("moves", ["all", "one", "return"])
def test_a_glide_is_a_staircase_from_one_intent_to_the_next(moves):
    """The same streams without a glide give its target, its beginning and its signal."""
    spec = dataclasses.replace(SMALL, glide_rounds=62, moves=moves, minimum_event_distance=100)
    stairs = -(-62 // STEP)
    gliding, glided = rounds_of(spec)
    crisp, _ = rounds_of(dataclasses.replace(spec, glide_rounds=0))
    late = 0
    for slow, fast in zip(gliding, crisp, strict=True):
        starts = Rounds.at(fast.told)
        assert Rounds.at(slow.signal) == starts  # the signal comes with the onset
        events = Rounds.at(slow.told)
        for start, end in itertools.pairwise([*starts, len(slow.told) + 1]):
            former, target = fast.chances[start - 2], fast.chances[start - 1]
            stair = np.minimum(np.arange(end - start) // STEP + 1, stairs)[:, None]
            np.testing.assert_allclose(slow.chances[start - 1 : end - 1], former + (target - former) * stair / stairs, atol=1e-12)
            path = slow.chances[start - 2 : end - 1]
            assert (np.diff(path, axis=0) * (target - former) >= 0.0).all()
            crossings = [start + i for i, p in enumerate(path[1:]) if p.argmax() != former.argmax()]
            assert [t for t in events if start <= t < end] == crossings[:1]  # none if the query ends before
            late += crossings[:1] > [start]
    assert late > 20
    assert glided.k == sum(len(Rounds.at(slow.told)) for slow in gliding)


def test_a_glide_that_outlasts_its_query_has_no_event_after_the_end():
    spec = Shifts(queries=1, impressions=600, shifting_share=1.0, events_low=1, events_high=1, glide_rounds=500)
    unfinished = 0
    for seed in range(20):
        (rounds,), instance = rounds_of(spec, seed)
        assert instance.segments["since"].max() <= 600
        assert instance.k == rounds.told.sum()
        unfinished += instance.k == 0
    assert unfinished > 0


# ------------------------------------------------------------------------------------------------------------------ pairing


def test_whoever_plays_meets_the_same_rounds():
    spec = Shifts(queries=3, impressions=900, features=9, **{**EVERYTHING, "shifting_share": 0.3, "bursting_share": 0.3})
    one, two = (Session(bandit, world(spec, 7)) for bandit in (UCB1(), Thompson()))
    told = 0
    for until in range(1, 901):
        for session in (one, two):
            session.see = True
            session.play(until)
        assert one.cursors.tobytes() == two.cursors.tobytes()  # rounds, segments, signals
        assert one.x.tobytes() == two.x.tobytes()
        assert one.counts["events"] == two.counts["events"] >= told
        told = one.counts["events"]
    assert told > 0
    assert one.fleet.table.tobytes() != two.fleet.table.tobytes()


@pytest.mark.parametrize("fields", [{}, {"order": "zipf"}, {"order": "sequential"}, {"features": 0}])
def test_a_seed_names_an_instance(fields):
    def everything(seed):
        w = world(dataclasses.replace(SMALL, **fields), seed)
        return b"".join(part.tobytes() for part in (w.schedule, w.rounds, w.cursors, w.segments, w.scene, w.owner))

    assert everything(1) == everything(1) != everything(2)
    assert world(dataclasses.replace(SMALL, **fields), 1).rounds.max() == dataclasses.replace(SMALL, **fields).rounds_per_query


# ------------------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"events_low": 5, "events_high": 2}, "events_low = 5 is not allowed; events_low must be ≤ events_high = 2"),
        ({"best_low": 0.95}, "best_low = 0.95 .* ≤ best_high = 0.9"),
        ({"other_low": 0.5}, "other_low = 0.5 .* ≤ other_high = 0.4"),
        ({"edge_low": 0.7}, "edge_low = 0.7 .* ≤ edge_high = 0.6"),
        ({"edge_high": 0.95}, "edge_high = 0.95 .* ≤ 1 − margin − edge_drift = 0.9"),
        ({"edge_drift": 0.35}, "edge_high = 0.6 .* ≤ 1 − margin − edge_drift = 0.55"),
        ({"edge_drift": 0.3, "edge_low": 0.1}, "edge_drift = 0.3 .* ≤ edge_low = 0.1"),
        ({"best_low": 0.1, "best_high": 0.2, "other_low": 0.2}, "best_high = 0.2 .* > other_low = 0.2"),
        ({"moves": "one", "best_low": 0.3}, "moves = 'one' .* unless other_high < best_low"),
        ({"moves": "one", "best_high": 0.95}, "moves = 'one' .* best_high ≤ 0.93"),
        ({"moves": "one", "minimum_gap": 0.1}, "minimum_gap = 0.1 .* ≤ 0.05, by which a new best result may lead"),
        ({"moves": "two"}, "moves = 'two' .* one of all, one, return"),
        ({"impressions": 50}, "impressions = 50 .* ≥ queries = 100"),
        ({"features": 3, "signal_features": 4}, "features = 3 .* ≥ 4, the features that signals and poison use"),
        ({"features": 3, "poisoned_features": 4}, "features = 3 .* ≥ 4"),
        ({"shifting_share": 0.95, "bursting_share": 0.1}, "bursting_share = 0.1 .* ≤ 1 − shifting_share = 0.05"),
        ({"results": 2}, r"results = 2 .* in \[3, 64\]"),
    ],
)
def test_bad_fields_are_refused_in_one_line(fields, message):
    with pytest.raises(SpecError, match=message) as error:
        Shifts(**fields)
    assert str(error.value).startswith("Shifts: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"events_low": 10, "minimum_event_distance": 200}, "10 events at least 200 rounds apart do not fit into the 1000 rounds"),
        (
            {"events_low": 10, "glide_rounds": 500},
            "10 events at least 500 rounds apart .* lower events_high, glide_rounds or minimum_event_distance",
        ),
        ({"minimum_gap": 0.9}, "gave no best result that leads by 0.9; lower minimum_gap or widen the ranges"),
    ],
)
def test_what_cannot_be_drawn_is_refused(fields, words, monkeypatch):
    monkeypatch.setattr("swerve.environments.shifts.TRIES", 100)
    with pytest.raises(SwerveError, match=words):
        world(Shifts(queries=2, impressions=2000, shifting_share=1.0, **fields), 0)


def test_the_defaults_are_the_workload_clear():
    spec = Shifts()
    assert (spec.queries, spec.impressions, spec.results, spec.features) == (100, 3_000_000, 5, 10)
    assert spec.rounds_per_query == 30_000
