"""Draw the plots of docs/how-it-works.md from runs with fixed seeds: shift, rectangle, test, alarm, live.

`plot_whole_page.py` draws the page.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np

import swerve
from swerve.core.fleet import Decisions

matplotlib.use("Agg")
import matplotlib.pyplot as plt

FOLDER = Path(__file__).parent.parent / "docs" / "images"
COLOURS = ("#2563b0", "#e08e0b", "#2a9d5c", "#8e44ad")
RED, INK, GREY = "#c0392b", "#1a1a1a", "#8a8f98"
NAMES = ("encyclopedia", "cocktail", "hockey team", "storm track")
#: Click probabilities of one query's results, each with the round from which it holds.
STORY = ((0, (0.45, 0.20, 0.30, 0.03)), (8_000, (0.10, 0.03, 0.06, 0.60)), (13_000, (0.40, 0.10, 0.70, 0.05)))
ROUNDS, LENGTH, EDGE, MARGIN = 18_000, 200, 0.8, 0.1  # L; quiet contexts end at the edge, and events lie a margin beyond
ARMS = len(NAMES)
BLOCK = 200  # rounds per step of a plot
RESOLUTION = 130  # dots per inch
#: What earlier alarms have taught: of 100 trials each, 30 falls and 30 rises, so three alarms in five are true.
TRUST = {"falls": 30.0, "fall_trials": 100.0, "rises": 30.0, "rise_trials": 100.0}
#: The live plot: requests per hour of the shifting query and of a quiet one, the number of quiet ones, the growth of traffic in a
#: storm, and stories per hour usually and in a storm.
BUSY, CALM, QUIET, BURST, USUAL_STORIES, STORM_STORIES = 15.0, 4.0, 24, 5.0, 1.0, 12.0
DAY, HOUR = 86_400, 3600.0
SUNDAY = 1_794_700_800.0  # unix time, 0:00 UTC
THINK = 5.0  # seconds from a ranking to its click
LOUD = 0.5  # a signal from here on is an alarm
BWC = swerve.BWC(swerve.Testable(swerve.UCB1(), length=LENGTH), swerve.Rectangle(margin=MARGIN))


class Lived(NamedTuple):
    """One query's history, by round."""

    x: np.ndarray
    arms: np.ndarray
    clicks: np.ndarray
    phases: np.ndarray
    boxes: list[tuple[int, np.ndarray, np.ndarray]]  # the rectangle: its first round, low and high


def chances(t: int) -> tuple[float, ...]:
    """Return the click probabilities of a round."""
    return next(after for start, after in reversed(STORY) if start <= t)


def contexts(dice: np.random.Generator) -> np.ndarray:
    """Draw two signals: inside an unknown box, and outside it in the round of an event."""
    x = dice.uniform(0.0, EDGE, (ROUNDS, 2))
    for start, _ in STORY[1:]:
        x[start, dice.integers(2)] = dice.uniform(EDGE + MARGIN, 1.0)
    return x


def live(policy: swerve.Spec, seed: int = 3) -> Lived:
    """Play the story."""
    x = contexts(np.random.default_rng(seed))
    luck = np.random.default_rng(seed + 1).random(ROUNDS)
    fleet = swerve.Fleet(policy, queries=1, arms=ARMS, features=2, seed=seed)
    arms, clicks, phases = np.zeros(ROUNDS, int), np.zeros(ROUNDS), np.zeros(ROUNDS, int)
    boxes: list[tuple[int, np.ndarray, np.ndarray]] = []
    paper = isinstance(policy, swerve.BWC)
    for t in range(ROUNDS):
        decision = fleet.select(0, x=x[t], now=float(t))
        if luck[t] < chances(t)[decision.arm]:
            clicks[t] = 1.0
            fleet.reward(0, decision, now=float(t))
        arms[t], phases[t] = decision.arm, decision.start
        box = fleet.pools[0]["classifier"] if paper else None
        if box is not None and box["known"]:
            low, high = box["low"][:2].copy(), box["high"][:2].copy()
            if not boxes or (low != boxes[-1][1]).any() or (high != boxes[-1][2]).any():
                boxes.append((t, low, high))
    return Lived(x, arms, clicks, phases, boxes)


def tidy(axes: Any, **words: Any) -> None:
    """Set labels and remove needless lines."""
    axes.set(**words)
    axes.spines[["top", "right"]].set_visible(False)


def save(figure: Any, name: str, **room: Any) -> None:
    """Write a plot and print its path."""
    figure.tight_layout(**room)
    figure.savefig(FOLDER / f"how_{name}.png", dpi=RESOLUTION, facecolor="white")
    plt.close(figure)
    print(f"docs/images/how_{name}.png")


def mark_events(axes: Any, words: bool = False) -> None:
    """Draw a line at each event."""
    for start, _ in STORY[1:]:
        axes.axvline(start, color=RED, linewidth=1.2)
        if words:
            axes.text(start + 100, 0.97, "shift", color=RED, fontsize=9, va="top", transform=axes.get_xaxis_transform())


def draw_shift(lives: dict[str, Lived]) -> None:
    """Draw the click probabilities, and the results that each policy puts on top."""
    figure, rows = plt.subplots(1 + len(lives), 1, figsize=(9, 7.2), sharex=True, height_ratios=[1.2] + [1] * len(lives))
    at = [start for start, _ in STORY] + [ROUNDS]
    for arm, name in enumerate(NAMES):
        rows[0].step(
            at, [after[arm] for _, after in STORY] + [STORY[-1][1][arm]], where="post", color=COLOURS[arm], label=name, lw=2
        )
    tidy(rows[0], ylabel="click probability", ylim=(0, 0.8), xlim=(0, ROUNDS))
    rows[0].set_title("“hurricane”: how often each result is clicked when it is on top", fontsize=10, loc="left")
    figure.legend(*rows[0].get_legend_handles_labels(), ncols=4, frameon=False, fontsize=9.5, loc="upper center")
    mark_events(rows[0], words=True)
    for axes, (name, lived) in zip(rows[1:], lives.items(), strict=True):
        shares = np.array([(lived.arms.reshape(-1, BLOCK) == arm).mean(axis=1) for arm in range(ARMS)])
        shares = np.concatenate([shares, shares[:, -1:]], axis=1)  # a step needs its end
        axes.stackplot(np.arange(0, ROUNDS + 1, BLOCK), shares, colors=COLOURS, step="post", alpha=0.85, lw=0)
        best = np.array([max(chances(t)) - chances(t)[arm] for t, arm in enumerate(lived.arms)])
        tidy(axes, ylabel="share on top", ylim=(0, 1), xlim=(0, ROUNDS))
        axes.set_title(f"{name}: {best.sum():,.0f} clicks lost", fontsize=10, loc="left")
        mark_events(axes)
    rows[-1].set_xlabel("impressions of the query")
    save(figure, "shift", rect=(0, 0, 1, 0.96))


def alarms(lived: Lived) -> list[int]:
    """Return the rounds in which an alarm began a test: every odd phase but the first."""
    starts = np.flatnonzero(np.diff(lived.phases)) + 1
    return [int(t) for t in starts if lived.phases[t] % 2 == 1]


def learnt(lived: Lived, at: int) -> bool:
    """Return whether the rectangle contains the context of an alarm."""
    _, low, high = lived.boxes[-1]
    return bool(((lived.x[at] >= low) & (lived.x[at] <= high)).all())


def draw_rectangle(lived: Lived) -> None:
    """Draw the safe rectangle, grown by the contexts of false alarms."""
    shown = [0, 2, 5, len(lived.boxes) - 1]
    figure, panels = plt.subplots(1, 4, figsize=(12, 3.7), sharex=True, sharey=True)
    shifts = [start for start, _ in STORY[1:]]
    for axes, which in zip(panels, shown, strict=True):
        since, low, high = lived.boxes[which]
        axes.scatter(*lived.x[since - 400 : since].T, s=5, color=GREY, alpha=0.6, lw=0, label="contexts of the last 400 rounds")
        size = high - low
        axes.add_patch(plt.Rectangle(low, *np.maximum(size, 0.004), fc=COLOURS[0], alpha=0.35, lw=0, label="the rectangle"))
        around = plt.Rectangle(low - MARGIN, *(size + 2 * MARGIN), fill=False, ls="--", lw=1.3, ec=COLOURS[0])
        around.set_label("its margin: outside is an alarm")
        axes.add_patch(around)
        called = [t for t in alarms(lived) if t < since and t not in shifts]
        for words, colour, which_ones in (
            ("false alarms, learnt", COLOURS[1], [t for t in called if learnt(lived, t)]),
            ("false alarm whose test was wrong", "white", [t for t in called if not learnt(lived, t)]),
        ):
            axes.scatter(*lived.x[which_ones].T, s=34, color=colour, ec=INK, lw=0.8, zorder=3, label=words)
        if which == shown[-1]:
            axes.scatter(*lived.x[shifts].T, marker="*", s=140, color=RED, ec=INK, lw=0.6, zorder=4, label="the two shifts, later")
        tidy(axes, xlim=(-0.12, 1.02), ylim=(-0.12, 1.02), aspect="equal", xlabel="signal 1")
        axes.set_title(f"round {since:,}: {len(called)} false alarm{'s' if len(called) > 1 else ''}", fontsize=10)
    panels[0].set_ylabel("signal 2")
    figure.legend(*panels[-1].get_legend_handles_labels(), ncols=6, frameon=False, fontsize=8.5, loc="lower center")
    save(figure, "rectangle", rect=(0, 0.06, 1, 1))


def guess(lived: Lived, phase: int) -> Any:
    """Return the guess of the paper's test from a phase's first L plays: averages, and the sets G⁺ and G⁻."""
    rounds = np.flatnonzero(lived.phases == phase)[:LENGTH]
    arms, clicks = lived.arms[rounds], lived.clicks[rounds]
    means = [clicks[arms == arm].mean() for arm in range(ARMS)]
    return means, swerve.guesses(arms, clicks, n=ARMS, epsilon=BWC.bandit.epsilon)[-1]


def draw_test(lived: Lived) -> None:
    """Draw the phases of one query, and the guesses that two of its tests compare."""
    figure = plt.figure(figsize=(10, 5.6))
    grid = figure.add_gridspec(2, 2, height_ratios=[0.6, 2])
    line = figure.add_subplot(grid[0, :])
    starts = [0, *(np.flatnonzero(np.diff(lived.phases)) + 1), ROUNDS]
    for begin, end in itertools.pairwise(starts):
        testing = lived.phases[begin] % 2 == 1
        line.axvspan(begin, end, color=COLOURS[1] if testing else COLOURS[0], alpha=0.75 if testing else 0.3, lw=0)
        line.axvline(begin, color="white", lw=0.8)
    tidy(line, xlim=(0, ROUNDS), yticks=[], xlabel="impressions of the query")
    line.set_title(
        "orange: a test of L = 200 plays, with a fresh bandit; blue: a fresh bandit until the next alarm", fontsize=10, loc="left"
    )
    mark_events(line, words=True)
    first = STORY[1][0]
    chosen = {"a false alarm": max(t for t in alarms(lived) if t < first), "the alarm of the first shift": first}
    for column, (name, at) in enumerate(chosen.items()):
        axes = figure.add_subplot(grid[1, column])
        phase = int(lived.phases[at])
        full = max(one for one in range(1, phase) if (lived.phases == one).sum() >= LENGTH)
        before, after = guess(lived, full), guess(lived, phase)
        for offset, (means, sets), colour, words in (
            (-0.2, before, COLOURS[0], "the last full phase"),
            (0.2, after, COLOURS[1], "the test"),
        ):
            axes.bar(np.arange(ARMS) + offset, means, 0.36, color=colour, alpha=0.8, label=f"{words}, its first 200 plays")
            for arm in range(ARMS):
                sign = "G⁺" if arm in sets.plus else "G⁻" if arm in sets.minus else ""
                axes.text(arm + offset, means[arm] + 0.015, sign, ha="center", fontsize=10)
        both = before[1].plus & after[1].minus
        verdict = (
            f"{NAMES[min(both)]} was among the best, and is now bad: a shift"
            if both
            else "nothing that was best is now bad: no shift"
        )
        tidy(axes, ylim=(0, 0.85), ylabel="clicks per play", xticks=range(ARMS), xticklabels=NAMES)
        axes.set_title(f"{name}, round {at:,}\n{verdict}", fontsize=10, loc="left")
        axes.legend(frameon=False, fontsize=8.5, loc="upper left")
    save(figure, "test")


def draw_alarm() -> None:
    """Draw the effect of a false and of a true alarm on BWC and on Swerve."""
    learning, after, runs = 2_000, 600, 200
    policies = {
        "BWC: starts over, tests, starts over again": (swerve.BWC(BWC.bandit, swerve.Told()), COLOURS[0]),
        "Swerve: keeps what it knows, weighs the clicks": (swerve.Swerve(classifier=swerve.Told()), INK),
        "Thompson sampling: hears nothing": (swerve.Thompson(), COLOURS[1]),
    }
    stories = {"a false alarm": STORY[0][1], "a shift": STORY[1][1]}
    figure, panels = plt.subplots(1, 2, figsize=(11, 4), sharey=True)
    rows = np.arange(runs)
    for axes, (name, then) in zip(panels, stories.items(), strict=True):
        for words, (policy, colour) in policies.items():
            fleet = swerve.Fleet(policy, queries=runs, arms=ARMS, features=1, pooling="query", seed=5)
            if "trust" in (fleet.pools.dtype.names or ()):
                for field, value in TRUST.items():
                    fleet.pools["trust"][field] = value
            dice = np.random.default_rng(6)
            best = np.zeros(after)
            for t in range(learning + after):
                now = np.array(STORY[0][1] if t < learning else then)
                told = np.full(runs, t in (0, learning))
                decisions = fleet.select_many(rows, np.zeros((runs, 1)), told=told, now=float(t))
                values = (dice.random(runs) < now[decisions.arms]).astype(float)
                fleet.update_many(rows, Decisions(*decisions), values, now=float(t))
                if t >= learning:
                    best[t - learning] = (decisions.arms == now.argmax()).mean()
            smooth = best.reshape(-1, 5).mean(axis=1)
            axes.plot(np.arange(0, after, 5) + 2.5, smooth, color=colour, lw=2, label=words)
        tidy(axes, xlim=(0, after), ylim=(0, 1.02), xlabel="impressions since the alarm")
        axes.set_title(name, fontsize=11, loc="left")
    panels[0].set_ylabel("share of queries with the best result on top")
    panels[0].legend(frameon=False, fontsize=9, loc="lower right")
    save(figure, "alarm")


class Asked(NamedTuple):
    """One request for the shifting query: the time in days, its signals, and the result on top."""

    day: float
    signals: tuple[float, ...]
    top: str


def live_service(days: float, shift: float) -> tuple[list[Asked], list[Any]]:
    """Run the service's ranker in simulated time, with 24 quiet queries and one whose intent shifts; return requests and alarms."""
    from swerve.service.config.load import resolve
    from swerve.service.config.settings import settings_of
    from swerve.service.config.toml import Document
    from swerve.serving.explain import alarms_of
    from swerve.serving.messages import Event
    from swerve.serving.outcomes import Outcome
    from swerve.serving.ranker import Prepared, Ranker
    from swerve.serving.replay import ticket_of

    tables = {"policy": {"arms": 8, "seed": 0}, "signals": {"use": list(SIGNALS[:2]), "numbers": {SIGNALS[2]: "count"}}}
    ranker = Ranker(settings_of(resolve(Document("the picture", tables, {}))), b"k" * 32)
    dice = np.random.default_rng(0)
    coming: list[tuple[float, str, int]] = []  # seconds, query, stories of the hour
    for hour in range(int(days * 24)):
        rhythm = 1.0 + 0.6 * np.sin((hour % 24 - 9) / 24 * 2 * np.pi)
        since = hour / 24 - shift
        for query in (STORMY, *(f"quiet-{number}" for number in range(QUIET))):
            storm = query == STORMY and since >= 0
            rate = rhythm * (BUSY * (1.0 + BURST * np.exp(-since)) if storm else BUSY if query == STORMY else CALM)
            stories = int(dice.poisson(USUAL_STORIES + (STORM_STORIES * np.exp(-since) if storm else 0.0)))
            coming += [((hour + float(dice.random())) * HOUR, query, stories) for _ in range(dice.poisson(rate))]
    seen: list[Asked] = []
    for at, query, stories in sorted(coming):
        now, key = SUNDAY + at, ranker.key_of(query)
        place = ranker.rows.get(key) or ranker.fresh(key, query, ARMS, now)
        decided = ranker.rank([(place, Prepared(key, query, list(NAMES), signals={SIGNALS[2]: float(stories)}))], now)[0]
        wanted = STORY[1 if query == STORMY and at >= shift * DAY else 0][1]
        events = [Event("click", result=name) for name in read(decided.ranking, wanted, dice)]
        if events:
            ticket = ticket_of(decided, ranker.life)
            ranker.feedback(place, ticket, decided.signed.number, Outcome(0, ticket.seen), events, None, now + THINK)
        if query == STORMY:
            signals = tuple(float(value) for value in place.record.ledger.surprise[: len(SIGNALS)])
            seen.append(Asked(at / DAY, signals, decided.ranking[0]))
    heard = alarms_of(ranker.rows.get(ranker.key_of(STORMY)).record.ledger, SIGNALS)
    return seen, [((alarm.at - SUNDAY) / DAY, alarm) for alarm in reversed(heard)]


def read(ranking: list[str], wanted: tuple[float, ...], dice: np.random.Generator) -> list[str]:
    """Return the clicks of a person who looks at each further result with probability `READ_ON`."""
    clicked = []
    for name in ranking:
        if dice.random() < wanted[NAMES.index(name)]:
            clicked.append(name)
        if dice.random() > READ_ON:
            break
    return clicked


READ_ON = 0.7
SIGNALS, STORMY = ("volume", "abandonment", "news"), "hurricane"


def draw_tops(axes: Any, at: np.ndarray, tops: np.ndarray, edges: np.ndarray) -> None:
    """Draw the results on top, as shares of each interval."""
    counts = np.array([np.histogram(at[tops == name], bins=edges)[0] for name in NAMES], float)
    shares = counts / np.maximum(counts.sum(axis=0), 1.0)
    shares = np.concatenate([shares, shares[:, -1:]], axis=1)
    axes.stackplot(edges, shares, colors=COLOURS, step="post", alpha=0.85, lw=0, labels=NAMES)
    tidy(axes, ylabel="share on top", ylim=(0, 1), xlim=(edges[0], edges[-1]))


def draw_live() -> None:
    """Draw eight days of a query in the service, and the hours around its shift: traffic, signals, alarms, and results on top."""
    days, shift, before, after = 8.0, 5.5, -1.0, 3.0
    seen, heard = live_service(days, shift)
    figure, ((traffic, signals), (tops, close)) = plt.subplots(2, 2, figsize=(13, 6))
    at = np.array([one.day for one in seen])
    hours = (at - shift) * 24
    names = np.array([one.top for one in seen])
    traffic.hist(at, bins=np.arange(0, days + 1e-9, 1 / 24), color=GREY)
    tidy(traffic, ylabel="requests an hour", xlim=(0, days))
    traffic.set_title("“hurricane” in the service, eight days", fontsize=11, loc="left")
    traffic.text(shift - 0.1, 0.95, "the intent shifts", color=RED, va="top", ha="right", transform=traffic.get_xaxis_transform())
    draw_tops(tops, at, names, np.arange(0, days + 1e-9, 1 / 8))
    tops.set_xlabel("days")
    tops.legend(fontsize=9, loc="lower left", ncols=2)
    near = (hours >= before) & (hours <= after)
    for j, name in enumerate(SIGNALS):
        values = np.array([one.signals[j] for one in seen])[near]
        signals.scatter(hours[near], values, s=np.where(values >= LOUD, 70, 9), color=COLOURS[j], lw=0, zorder=3)
        signals.scatter([], [], s=40, color=COLOURS[j], label=name)
    tidy(signals, ylabel="signal", ylim=(0, 1.1), xlim=(before, after))
    signals.set_title("the hours around the shift: what the policy sees, and its alarms", fontsize=11, loc="left")
    signals.legend(frameon=False, fontsize=9, loc="center right")
    draw_tops(close, hours, names, np.arange(before, after + 1e-9, 1 / 6))
    close.set_xlabel("hours since the shift")
    for axes, where in ((traffic, shift), (tops, shift), (signals, 0.0), (close, 0.0)):
        axes.axvline(where, color=RED, lw=1.5)
    for number, (day, alarm) in enumerate(heard):
        hour = (day - shift) * 24
        for axes in (signals, close):
            axes.axvline(hour, color=INK, lw=1.2, ls="--")
        words = f"{alarm.signal}: {alarm.verdict}"
        style = {"va": "top", "transform": signals.get_xaxis_transform(), "zorder": 4}
        signals.text(hour + 0.05, 0.95 - 0.14 * number, words, **style, bbox={"fc": "white", "ec": "none", "pad": 1.5})
        first = int((hours[(hours >= 0) & (hours <= hour)]).size)
        print(f"  {hour * 60:.0f} minutes and {first} requests after the shift: {words}, phase {alarm.phase}")
    save(figure, "live")


def main(only: list[str]) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    lives = {
        "UCB1, which notices nothing": swerve.UCB1(),
        "BWC, the paper's (at first every context is an alarm)": BWC,
        "Swerve": swerve.Swerve(),
    }
    played = (
        {} if only and not {"shift", "rectangle", "test"} & set(only) else {name: live(policy) for name, policy in lives.items()}
    )
    paper = next((lived for lived in played.values() if lived.boxes), None)
    if not only or "shift" in only:
        draw_shift(played)
    if paper is not None and (not only or "rectangle" in only):
        draw_rectangle(paper)
    if paper is not None and (not only or "test" in only):
        draw_test(paper)
    if not only or "alarm" in only:
        draw_alarm()
    if not only or "live" in only:
        draw_live()


if __name__ == "__main__":
    main(sys.argv[1:])
