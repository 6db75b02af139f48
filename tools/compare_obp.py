"""Compare Swerve's off-policy estimators with those of the package obp (Open Bandit Pipeline), on samples of its dataset.

python tools/compare_obp.py SAMPLES [--campaign men] prints the table of docs/evaluate.md, and ends with status 1 if a figure that
both define alike differs by more than 1e-9. SAMPLES has POLICY/CAMPAIGN/CAMPAIGN.csv with item_context.csv beside it, for the
policies `random` and `bts`: the Open Bandit Dataset, or the samples of 10,000 rows that obp brings along (its folder dataset/obd).
Needs obp 0.5.7 in the environment of Swerve; nothing is downloaded.

From the log of `random` it estimates `bts` (obp's `BernoulliTS` with its production prior) and the results that `bts` shows most
often, one for each position, because obp's replay takes deterministic policies alone; from the log of `bts`, the uniform policy.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from swerve.core.examination import SLOTS
from swerve.evaluate.estimators import ESTIMATORS, Estimation
from swerve.evaluate.history import CURVE
from swerve.evaluate.judging import Least, judge
from swerve.evaluate.lists import Shown
from swerve.evaluate.rates import Rates
from swerve.evaluate.readers import read
from swerve.evaluate.readers.open_bandit import ALL
from swerve.evaluate.targets import Asked, Target, Uniform

TOLERANCE = 1e-9
CAMPAIGNS = ("all", "men", "women")
SEED = 12345
Array = NDArray[Any]


class Log(NamedTuple):
    """Rounds, as obp reads them: one result at one position each, from 0."""

    action: Array
    position: Array
    reward: Array
    pscore: Array

    def part(self, rows: Array) -> Log:
        """Return some of the rounds."""
        return Log(*(values[rows] for values in self))


class Row(NamedTuple):
    """A line of the table. `swerve` has obp's definition, all positions together; `by_position` that of `swerve evaluate`."""

    sample: str
    target: str
    estimator: str
    obp: float
    swerve: float
    by_position: float
    alike: bool  # whether both define the estimator alike for this log and target
    given: bool  # whether `swerve evaluate` would give the figure


class Fixed:
    """One result at each position."""

    name = "first choice"

    def __init__(self, items: Sequence[int]) -> None:
        self.order = [str(item) for item in items]

    def orders(self, lists: Sequence[Asked]) -> list[list[str] | None]:
        """Return the same order for each list."""
        return [self.order] * len(lists)


def obp_values(log: Log, dist: Array, q_hat: Array) -> dict[str, float]:
    """Return obp's figures."""
    from obp import ope  # type: ignore[import-not-found,unused-ignore]

    given = {**log._asdict(), "action_dist": dist, "estimated_rewards_by_reg_model": q_hat}
    estimators = {
        "replay": ope.ReplayMethod(),
        "ips": ope.InverseProbabilityWeighting(),
        "snips": ope.SelfNormalizedInverseProbabilityWeighting(),
        "dr": ope.DoublyRobust(),
        "dm": ope.DirectMethod(),
    }
    return {name: float(each.estimate_policy_value(**given)) for name, each in estimators.items()}


def swerve_values(log: Log, dist: Array, q_hat: Array, slots: int) -> tuple[dict[str, float], set[str]]:
    """Return Swerve's figures of the same arrays, and the names of those that it would not refuse to give.

    With one slot all positions are taken together, as obp does; otherwise each position is a slot.
    """
    rounds = np.arange(len(log.action))
    at = log.position if slots > 1 else np.zeros_like(log.position)

    def placed(values: Array, fill: float = 0.0) -> Array:
        out = np.full((len(rounds), slots), fill)
        out[rounds, at] = values
        return out

    policy, model = dist[rounds, :, log.position], q_hat[rounds, :, log.position]
    propensities = placed(log.pscore, np.nan)
    found = Estimation("target", np.nanmin(propensities, axis=0))
    worth = (policy * model).sum(axis=1)
    found.add(
        placed(log.reward),
        propensities,
        placed(policy[rounds, log.action]),
        placed(model[rounds, log.action]),
        placed(worth),
    )
    values = {
        "replay": found.accepted.normalised().value,
        "ips": found.weighted.plain().value,
        "snips": found.weighted.normalised().value,
        "dr": float(found.robust.means[0]),
        "dm": float(worth.mean()),
    }
    return values, set(found.judge().estimates)


def by_position(log: Log, dist: Array, q_hat: Array) -> dict[str, float]:
    """Return obp's figures of each position, weighted by the share of the rounds that are there."""
    out: dict[str, float] = {}
    for at in range(dist.shape[2]):
        rows = log.position == at
        for name, value in obp_values(log.part(rows), dist[rows], q_hat[rows]).items():
            out[name] = out.get(name, 0.0) + float(rows.mean()) * value
    return out


def from_csv(path: Path, target: Target, items: int, positions: int) -> tuple[dict[str, float], Array, Log]:
    """Return Swerve's figures from the file on, its reward model before each row as obp takes it, and the rows in their order.

    Swerve learns from the log what is on offer, obp knows it: here all items come first, at a position that is not judged.
    """
    names = [str(item) for item in range(items)]
    entries = [Shown(0.0, ALL, [name], [], [1.0 / items], top=SLOTS + 1) for name in names]
    least, rates = Least(), Rates()
    for entry in entries:
        rates.learn(entry)
    model, rows = [], []
    for entry in read([path]):
        least.add(entry)
        assert entry.propensities is not None
        rows.append((int(entry.shown[0]), entry.top - 1, len(entry.clicks), entry.propensities[0]))
        model.append(np.outer(rates.attractive(ALL, names), CURVE[:positions]))
        rates.learn(entry)
    action, position, reward, pscore = (np.array(column) for column in zip(*rows, strict=True))
    log = Log(action, position, reward, pscore)
    (found,) = judge(chain(entries, read([path])), [target], least.by_slot)
    return {name: each.value for name, each in found.estimates.items()}, np.stack(model), log


def twin() -> ModuleType:
    """Return the twin of obp that the tests compare with."""
    path = Path(__file__).parents[1] / "tests" / "twins" / "open_bandit.py"
    spec = importlib.util.spec_from_file_location("open_bandit_twin", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def twin_values(log: Log, dist: Array, q_hat: Array) -> dict[str, float]:
    """Return the figures of the twin."""
    module = twin()
    action, position, reward, pscore = log
    return {
        "replay": module.replay(reward, action, position, dist),
        "ips": module.ipw(reward, action, position, pscore, dist),
        "snips": module.snipw(reward, action, position, pscore, dist),
        "dr": module.dr(reward, action, position, pscore, dist, q_hat),
    }


class Comparison:
    """The rows of the table, the differences of each kind of figure, and the files that Swerve reads otherwise than obp."""

    def __init__(self, samples: Path) -> None:
        self.samples = samples
        self.rows: list[Row] = []
        self.differences: dict[str, list[float]] = {}
        self.unread: list[str] = []

    def same(self, what: str, one: float, other: float) -> None:
        """Note two figures that should be the same."""
        self.differences.setdefault(what, []).append(abs(one - other))

    def campaign(self, name: str) -> None:
        """Add the rows of a campaign."""
        from obp.dataset import OpenBanditDataset  # type: ignore[import-not-found,unused-ignore]
        from obp.policy import BernoulliTS  # type: ignore[import-not-found,unused-ignore]

        data = OpenBanditDataset("random", name, self.samples)
        rounds, items, positions = data.n_rounds, data.n_actions, data.len_list
        policy = BernoulliTS(items, positions, random_state=SEED, is_zozotown_prior=True, campaign=name)
        bts = policy.compute_batch_action_dist(n_rounds=rounds)
        choice = bts[0].argmax(axis=0)
        first = np.zeros_like(bts)
        first[:, choice, np.arange(positions)] = 1.0
        self.add(data, "bts", bts, ESTIMATORS)
        self.add(data, "bts, first choice", first, ("replay",), Fixed(choice.tolist()))

        data = OpenBanditDataset("bts", name, self.samples)
        even = np.full((data.n_rounds, data.n_actions, data.len_list), 1.0 / data.n_actions)
        self.add(data, "uniform", even, ESTIMATORS, Uniform())

    def add(self, data: Any, target: str, dist: Array, shown: tuple[str, ...], ours: Target | None = None) -> None:
        """Compare the estimates of a target from a log; `shown` are the estimators that have a line in the table."""
        sample = f"{data.behavior_policy}/{data.campaign}"
        log = Log(data.action, data.position, data.reward, data.pscore)
        q_hat = fitted(data)
        theirs = obp_values(log, dist, q_hat)
        together, _ = swerve_values(log, dist, q_hat, 1)
        apart, given = swerve_values(log, dist, q_hat, data.len_list)
        weighted = by_position(log, dist, q_hat)
        uniform, fixed = data.behavior_policy == "random", set(np.unique(dist)) <= {0.0, 1.0}
        alike = ["ips", "snips", "dr", "dm", *(["replay"] if uniform and fixed else [])]
        for name in alike:
            self.same("the same arrays", together[name], theirs[name])
            self.same("the same arrays by position, with obp's figures of each position", apart[name], weighted[name])
        for name, value in twin_values(log, dist, q_hat).items():
            self.same("obp and its twin in the tests", value, theirs[name])
        self.rows += [
            Row(sample, target, name, theirs[name], together[name], apart[name], name in alike, name in given) for name in shown
        ]
        if ours is not None:
            self.csv(self.samples / sample / f"{data.campaign}.csv", log, ours, dist, alike)

    def csv(self, path: Path, theirs: Log, target: Target, dist: Array, alike: list[str]) -> None:
        """Compare from the file on, with Swerve's own reward model in obp's DoublyRobust. A refused target has no figures."""
        found, model, log = from_csv(path, target, *dist.shape[1:])
        # obp sorts the rows by their times, and pandas does not read every number to its last digit
        one, other = (np.array(sorted(zip(*rows, strict=True))) for rows in (log, theirs))
        if one.shape != other.shape or (one[:, :3] != other[:, :3]).any():
            self.unread.append(str(path))
        else:
            self.same("the propensity of a row, relative", float(np.abs(one[:, 3] / other[:, 3] - 1.0).max()), 0.0)
        weighted = by_position(log, dist, model)
        for name in set(found) & set(alike):
            self.same("from the CSV on", found[name], weighted[name])


def fitted(data: Any) -> Array:
    """Return obp's own reward model: a logistic regression for each position."""
    from obp.ope import RegressionModel  # type: ignore[import-not-found,unused-ignore]
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped,unused-ignore]

    base = LogisticRegression(max_iter=2000)
    model = RegressionModel(base_model=base, n_actions=data.n_actions, len_list=data.len_list, action_context=data.action_context)
    found: Array = model.fit_predict(data.context.astype(float), data.action, data.reward, position=data.position)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", type=Path, help="folder with random/ and bts/")
    parser.add_argument("--campaign", choices=CAMPAIGNS, action="append", help="repeatable; all three by default")
    options = parser.parse_args()
    if importlib.util.find_spec("obp") is None:
        parser.error("the package obp is not installed")
    comparison = Comparison(options.samples)
    for name in options.campaign or CAMPAIGNS:
        comparison.campaign(name)
    print("| log | target | estimator | obp | Swerve, all positions together | difference | Swerve, by position |")
    print("|---|---|---|---|---|---|---|")
    for row in comparison.rows:
        apart = f"{row.by_position:.6f}" if row.given else f"({row.by_position:.6f})"
        differs = f"{abs(row.swerve - row.obp):.0e}" if row.alike else "other definition"
        print(f"| {row.sample} | {row.target} | `{row.estimator}` | {row.obp:.6f} | {row.swerve:.6f} | {differs} | {apart} |")
    print("\nIn brackets: `swerve evaluate` does not give this figure.\n\nLargest differences:")
    for what, found in comparison.differences.items():
        print(f"- {what}: {max(found):.1e} in {len(found)} figures")
    if comparison.unread:
        sys.exit(f"Swerve and obp read other rows from {', '.join(comparison.unread)}")
    if any(not each <= TOLERANCE for found in comparison.differences.values() for each in found):
        sys.exit(f"some differ by more than {TOLERANCE:g}")


if __name__ == "__main__":
    main()
