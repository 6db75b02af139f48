"""The contract of every detector."""

from __future__ import annotations

import random

import numpy as np
import pytest
from conformance.examples import detectors, label

from swerve import SwerveError, Watcher, policy
from swerve.core.contract import evict, layout, restart
from swerve.core.parse import parse
from swerve.core.spec import pack
from swerve.detectors.watcher import watch_many

EVERY = pytest.mark.parametrize("detector", detectors(), ids=label)


def plays(count, seed=0, arms=3):
    """Return plays of several arms, with clicks and other rewards, whose click probabilities change halfway."""
    dice = random.Random(seed)
    chances = [dice.random() for _ in range(arms)]
    out = []
    for t in range(count):
        if t == count // 2:
            chances = [1.0 - chance for chance in chances]
        arm = dice.randrange(arms)
        out.append((arm, dice.random() * chances[arm] if t % 7 == 0 else float(dice.random() < chances[arm])))
    return np.array([arm for arm, _ in out]), np.array([value for _, value in out])


def keeps(detector):
    """Return whether the detector has a state; without one it can raise no alarm."""
    return bool(layout(detector, 8, 0))


def test_something_is_registered():
    assert {type(detector).__name__ for detector in detectors()} >= {"CUSUM", "GLR", "MUCB", "BOCPD", "Split"}


@EVERY
def test_compiled_equals_interpreted_to_the_byte(detector):
    fast, slow = Watcher(detector, arms=3), Watcher(detector, arms=3)
    arms, values = plays(900)
    alarms = np.zeros((2, len(values)), np.bool_)
    watch_many.bind(detector)(fast.params, fast.table, arms, values, alarms[0])
    watch_many.plain(slow.params, slow.table, arms, values, alarms[1])
    assert (alarms[0] == alarms[1]).all()
    assert alarms[0].any() == keeps(detector)
    assert fast.table.tobytes() == slow.table.tobytes()


@EVERY
def test_arms_are_watched_one_by_one(detector):
    """An arm alone has its alarms at the same plays as among others."""
    arms, values = plays(600, seed=1)
    together = Watcher(detector, arms=3)
    alarms = together._take(arms, values)
    for arm in range(3):
        assert Watcher(detector, arms=3).run(values[arms == arm], arm) == (np.flatnonzero(alarms[arms == arm]) + 1).tolist()


@EVERY
def test_after_a_restart_and_an_eviction_nothing_is_left(detector):
    watcher, fresh = Watcher(detector, arms=3), Watcher(detector, arms=3)
    arms, values = plays(101, seed=2)
    watcher._take(arms, values)
    assert (watcher.table.tobytes() != fresh.table.tobytes()) == keeps(detector)
    again = watcher.table.copy()
    restart(pack(detector)[0], again[0])
    assert again.tobytes() == fresh.table.tobytes()
    for arm in range(3):
        evict(pack(detector)[0], watcher.table[0], arm)
    assert watcher.table.tobytes() == fresh.table.tobytes()


@EVERY
def test_the_state_does_not_grow(detector):
    watcher = Watcher(detector)
    size = watcher.table.nbytes
    watcher.run(np.ones(100_000))
    assert watcher.table.nbytes == size
    assert watcher.run(np.ones(1000)) == []  # a constant reward raises no alarm


@EVERY
def test_it_names_its_source_and_its_text_reads_back(detector):
    assert "Source:" in (type(detector).__doc__ or "")
    assert parse(repr(detector), {}, "detector") == detector


@EVERY
def test_a_reward_outside_its_range_and_an_arm_that_is_not_there_are_refused(detector):
    watcher = Watcher(detector, arms=2)
    for wrong in (1.5, -0.1, float("nan")):
        with pytest.raises(SwerveError, match="reward"):
            watcher.watch(wrong)
    with pytest.raises(SwerveError, match="arm"):
        watcher.watch(0.5, arm=2)


def test_only_a_detector_can_be_watched_with_and_it_chooses_no_arms():
    with pytest.raises(SwerveError, match="must be able to watch"):
        Watcher(policy("ucb1"))
    with pytest.raises(SwerveError, match="does not choose arms"):
        policy("GLR()")
