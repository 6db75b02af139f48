"""What holds for every detector."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.conformance.checking import Subject, check, need, reads_back
from swerve.core.contract import evict, layout, restart
from swerve.core.errors import SwerveError
from swerve.core.spec import pack
from swerve.detectors.watcher import Watcher, watch_many

ARMS = 3
MANY = 20_000  # plays, after which no window or baseline fills any more


def plays(count: int, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return plays of several arms, with clicks and other rewards, whose click probabilities change halfway."""
    dice = random.Random(seed)
    chances = [dice.random() for _ in range(ARMS)]
    out: list[tuple[int, float]] = []
    for t in range(count):
        if t == count // 2:
            chances = [1.0 - chance for chance in chances]
        arm = dice.randrange(ARMS)
        out.append((arm, dice.random() * chances[arm] if t % 7 == 0 else float(dice.random() < chances[arm])))
    return np.array([arm for arm, _ in out]), np.array([value for _, value in out])


def keeps(subject: Subject) -> bool:
    """Return whether the detector has a state; without one it can raise no alarm."""
    return bool(layout(subject.spec, 8, 0))


@check("detector")
def compiled_equals_interpreted(subject: Subject) -> None:
    """compiled and interpreted give the same bytes, and alarms where clicks change."""
    fast, slow = Watcher(subject.spec, arms=ARMS), Watcher(subject.spec, arms=ARMS)
    arms, values = plays(900)
    alarms: Any = np.zeros((2, len(values)), np.bool_)
    watch_many.bind(subject.spec)(fast.params, fast.table, arms, values, alarms[0])
    watch_many.plain(slow.params, slow.table, arms, values, alarms[1])
    need((alarms[0] == alarms[1]).all(), "compiled and interpreted raise different alarms")
    need(fast.table.tobytes() == slow.table.tobytes(), "the compiled and the interpreted row differ")
    if keeps(subject):
        need(alarms[0].any(), "click probabilities are turned upside down after 450 of 900 plays, and there is no alarm")


@check("detector")
def arms_are_watched_one_by_one(subject: Subject) -> None:
    """an arm alone has its alarms at the same plays as among others."""
    arms, values = plays(600, seed=1)
    alarms = Watcher(subject.spec, arms=ARMS)._take(arms, values)
    for arm in range(ARMS):
        alone = Watcher(subject.spec, arms=ARMS).run(values[arms == arm], arm)
        among = (np.flatnonzero(alarms[arms == arm]) + 1).tolist()
        need(alone == among, f"arm {arm} alone has alarms at {alone}, among others at {among}")


@check("detector")
def nothing_is_left(subject: Subject) -> None:
    """after a restart and an eviction nothing is left."""
    watcher, fresh = Watcher(subject.spec, arms=ARMS), Watcher(subject.spec, arms=ARMS)
    arms, values = plays(101, seed=2)
    watcher._take(arms, values)
    need((watcher.table.tobytes() != fresh.table.tobytes()) == keeps(subject), "101 plays have changed nothing")
    again = watcher.table.copy()
    restart(pack(subject.spec)[0], again[0])
    need(again.tobytes() == fresh.table.tobytes(), "something is left after a restart")
    for arm in range(ARMS):
        evict(pack(subject.spec)[0], watcher.table[0], arm)
    need(watcher.table.tobytes() == fresh.table.tobytes(), "something is left after every arm was evicted")


@check("detector")
def constant_rewards_raise_no_alarm(subject: Subject) -> None:
    """constant rewards raise no alarm."""
    watcher = Watcher(subject.spec)
    watcher.run(np.ones(MANY))
    found = watcher.run(np.ones(1000))
    need(found == [], f"constant rewards raise alarms, at {found[:3]}")


@check("detector")
def wrong_rewards_are_refused(subject: Subject) -> None:
    """a reward outside of [0, 1] and an arm that is not there are refused."""
    watcher = Watcher(subject.spec, arms=2)
    for wrong, arm in ((1.5, 0), (-0.1, 0), (float("nan"), 0), (0.5, 2)):
        try:
            watcher.watch(wrong, arm=arm)
        except SwerveError:
            continue
        need(False, f"the reward {wrong} of arm {arm} is taken")


@check("detector")
def its_text_reads_back(subject: Subject) -> None:
    """its text reads back."""
    reads_back(subject.spec, "detector")
