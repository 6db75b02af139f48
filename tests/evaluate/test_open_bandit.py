"""The whole way from Open Bandit CSV to estimates agrees with obp's definitions, from a uniform log to another policy and back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from twins import open_bandit

from swerve.core.examination import PBM_CURVE
from swerve.evaluate.judging import Least, judge
from swerve.evaluate.rates import PRIOR, UNKNOWN
from swerve.evaluate.readers import read
from swerve.evaluate.targets import Uniform

ITEMS, ROUNDS = 8, 6000
RATES = np.linspace(0.05, 0.5, ITEMS)
FIXED = [5, 2, 7]  # the item of the other policy at each position


class Fixed:
    """One item at each position."""

    name = "fixed"

    def orders(self, lists):
        return [[str(item) for item in FIXED]] * len(lists)


def sample(rng, positions, uniform):
    """Rounds of a log: action, position, reward, propensity. Not uniform: as far as a policy that has learnt goes."""
    chances = np.full((ITEMS, positions), 1 / ITEMS)
    if not uniform:
        chances = rng.dirichlet(np.full(ITEMS, 2.0), positions).T * 0.7 + 0.3 / ITEMS
    position = rng.integers(positions, size=ROUNDS)
    action = np.array([rng.choice(ITEMS, p=chances[:, at]) for at in position])
    reward = (rng.random(ROUNDS) < RATES[action] * np.array(PBM_CURVE)[position]).astype(float)
    return action, position, reward, chances[action, position]


def write(path: Path, action, position, reward, pscore) -> Path:
    """The columns of the dataset. All items come first, at a position that is not judged: so all are known from the start."""
    lines = ["timestamp,item_id,position,click,propensity_score,user_feature_0"]
    lines += [f"2019-11-24 00:00:00+00:00,{item},11,0,{1 / ITEMS!r},x" for item in range(ITEMS)]
    for number in range(len(action)):
        at = f"2019-11-24 00:{number // 3600:02d}:{number % 60:02d}+00:00"
        lines.append(f"{at},{action[number]},{position[number] + 1},{int(reward[number])},{float(pscore[number])!r},x")
    path.write_text("\n".join(lines) + "\n")
    return path


def model_of(action, position, reward, positions):
    """The reward model before each round: clicks per examination of each item so far, drawn to the mean rate, by position."""
    curve = np.array(PBM_CURVE)
    clicks, examined = np.zeros(ITEMS), np.full(ITEMS, curve[-1])
    all_clicks, all_examined = UNKNOWN, 1.0 + ITEMS * curve[-1]
    out = np.zeros((len(action), ITEMS, positions))
    for number, (item, at, earned) in enumerate(zip(action, position, reward, strict=True)):
        rate = (clicks + PRIOR * all_clicks / all_examined) / (examined + PRIOR)
        out[number] = rate[:, None] * curve[:positions]
        clicks[item] += earned
        examined[item] += curve[at]
        all_clicks += earned
        all_examined += curve[at]
    return out


@pytest.mark.parametrize("positions", [1, 3])
@pytest.mark.parametrize("uniform", [True, False])
def test_figures_are_those_of_obps_definitions(tmp_path: Path, positions: int, uniform: bool):
    action, position, reward, pscore = sample(np.random.default_rng(positions + 7 * uniform), positions, uniform)
    path = write(tmp_path / "men.csv", action, position, reward, pscore)
    fixed, even = np.zeros((ROUNDS, ITEMS, positions)), np.full((ROUNDS, ITEMS, positions), 1 / ITEMS)
    for at in range(positions):
        fixed[:, FIXED[at], at] = 1.0
    least = Least()
    for entry in read([path]):
        least.add(entry)
    q_hat = model_of(action, position, reward, positions)
    for found, dist in zip(judge(read([path]), [Fixed(), Uniform()], least.by_slot), (fixed, even), strict=True):
        assert found.refused is None
        assert found.lists == ROUNDS
        ours = {name: each.value for name, each in found.estimates.items()}
        assert ours["ips"] == pytest.approx(open_bandit.ipw(reward, action, position, pscore, dist), abs=1e-9)
        assert ours["dr"] == pytest.approx(open_bandit.dr(reward, action, position, pscore, dist, q_hat), abs=1e-9)
        # Swerve normalises by position: that is obp's figure for each position, weighted by how often the position is there.
        # With one position it is obp's figure.
        masks = [(position == at, np.mean(position == at)) for at in range(positions)]
        by_position = sum(
            share * open_bandit.snipw(reward[mask], action[mask], position[mask], pscore[mask], dist[mask]) for mask, share in masks
        )
        assert ours["snips"] == pytest.approx(by_position, abs=1e-9)
        if uniform and dist is fixed:  # obp's replay is for uniform logs, and deterministic policies
            by_position = sum(
                share * open_bandit.replay(reward[mask], action[mask], position[mask], dist[mask]) for mask, share in masks
            )
            assert ours["replay"] == pytest.approx(by_position, abs=1e-9)
        truth = np.mean([(dist[0, :, at] @ RATES) * PBM_CURVE[at] for at in position])
        assert all(each.low - 0.05 < truth < each.high + 0.05 for each in found.estimates.values())
