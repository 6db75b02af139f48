"""Draw the plot of a whole page for docs/how-it-works.md, from a run with fixed seeds."""

from __future__ import annotations

import numpy as np
from plot_how_it_works import COLOURS, GREY, RED, plt, save, tidy

import swerve

#: The page plot: queries, results of each, impressions of each, and the query whose page is drawn.
PAGE_QUERIES, PAGE_RESULTS, PAGE_ROUNDS, DRAWN_QUERY = 60, 12, 150, 2


def draw_page() -> None:
    """Draw what all queries have learnt of given positions and of slots, and the page of one query with its explored result."""
    from swerve.core.examination import EXAMINATION, PBM, SLOTS, UBM
    from swerve.policies.swerve.examination import looks_at, rank_mean

    dice = np.random.default_rng(5)
    rates = dice.uniform(0.02, 0.25, (PAGE_QUERIES, PAGE_RESULTS))
    rates[np.arange(PAGE_QUERIES), dice.integers(PAGE_RESULTS, size=PAGE_QUERIES)] = dice.uniform(0.4, 0.7, PAGE_QUERIES)
    given = np.argsort(-(rates + dice.normal(0.0, 0.12, rates.shape)), axis=1)  # the engine knows them with an error
    policy = swerve.Listed()
    fleet = swerve.PageFleet(policy, queries=PAGE_QUERIES, arms=PAGE_RESULTS, features=1, seed=4)
    before = [rank_mean(policy.order_results, fleet.pools[0].pages, rank) for rank in range(PAGE_RESULTS)]
    explored: tuple[list[int], list[int]] = [], []
    for t in range(PAGE_ROUNDS):
        for query in range(PAGE_QUERIES):
            test = fleet.table[query]["bandit"]["test"]
            means = (1.0 + test["old_total"] + test["new_total"]) / (2.0 + test["old_plays"] + test["new_plays"])
            page = fleet.order(query, given[query].tolist(), [dice.uniform(0.0, 0.3)], now=float(t))
            by_mean = sorted(given[query].tolist(), key=lambda arm: -float(means[arm]))
            looked = dice.random(len(page.arms)) < EXAMINATION[PBM, : len(page.arms), 0]
            clicks = [slot for slot, arm in enumerate(page.arms) if looked[slot] and dice.random() < rates[query, arm]]
            fleet.respond(query, page, clicks)
            rose = [by_mean.index(arm) - slot for slot, arm in enumerate(page.arms)]
            if query == DRAWN_QUERY and t >= PAGE_ROUNDS // 3 and max(rose) >= 3 and not explored[0]:
                explored, chances = (page.arms, by_mean), [float(mean) for mean in means]
    pages = fleet.pools[0].pages
    figure, (prior, looks, one) = plt.subplots(1, 3, figsize=(13, 4.2))
    positions = np.arange(1, PAGE_RESULTS + 1)
    after = [rank_mean(policy.order_results, pages, rank) for rank in range(PAGE_RESULTS)]
    truth = np.take_along_axis(rates, given, axis=1).mean(axis=0)
    for values, colour, words in ((before, GREY, "first guess"), (after, COLOURS[0], "learnt"), (truth, RED, "true")):
        prior.plot(positions, values, color=colour, marker="o", ms=4, label=words)
    tidy(prior, xlabel="position in the given order", ylabel="click probability", ylim=(0, None))
    prior.set_title("the prior: what a given position is worth", fontsize=11, loc="left")
    slots = np.arange(1, SLOTS + 1)
    found = [looks_at(policy.examination_plays, pages, slot, -1) for slot in range(SLOTS)]
    for values, colour, words in (
        (EXAMINATION[UBM, :, 0], GREY, "first guess"),
        (found, COLOURS[0], "learnt"),
        (EXAMINATION[PBM, :, 0], RED, "true"),
    ):
        looks.plot(slots, values, color=colour, marker="o", ms=4, label=words)
    tidy(looks, xlabel="slot", ylabel="share of people who look", ylim=(0, 1.05))
    looks.set_title("the examination: who looks at which slot", fontsize=11, loc="left")
    for axes in (prior, looks):
        axes.legend(frameon=False, fontsize=9)
    shown, by_mean = explored
    moved = max(shown, key=lambda arm: by_mean.index(arm) - shown.index(arm))
    colours = [COLOURS[1] if arm == moved else COLOURS[0] for arm in shown]
    one.barh(slots[: len(shown)], [chances[arm] for arm in shown], color=colours)
    one.invert_yaxis()
    tidy(one, xlabel="posterior mean of the click probability", ylabel="slot")
    one.set_title("one page: sorted, with one result explored", fontsize=11, loc="left")
    save(figure, "page")
    print(f"  the explored result is at position {shown.index(moved) + 1}; by its mean it would be {by_mean.index(moved) + 1}")


if __name__ == "__main__":
    draw_page()
