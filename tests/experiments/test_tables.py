"""The paper's experiments as data: printed figures, and our choices where nothing is printed."""

from __future__ import annotations

import dataclasses

import pytest

from swerve.experiments import EXPERIMENTS
from swerve.experiments.tables import BASE, FEATURE_TABLE, FIGURE_A, FRACTION_TABLE, POLICIES, interleaved

# typed in from the paper independently, column by column, in thousands
TABLE_B = """
        ORA   BWC   UCB1  EXP3.S
0       17.2  17.8  17.2    78.4
1/8     22.8  24.6  34.1   123.7
1/4     30.4  39.9  114.9  180.2
3/8     33.8  46.7  84.2   197.6
1/2     39.5  99.4  140.0  243.1
"""
TABLE_C = """
        ORA   BWC   UCB1  EXP3.S
10      21.9  23.1  32.3   111.6
20      23.2  24.4  33.5   109.4
30      21.9  22.9  31.1   112.5
40      22.8  23.7  37.4   121.3
"""
CATALOG = {"ORA": "ora", "BWC": "bwc", "UCB1": "ucb1", "EXP3.S": "exp3s"}


def read(text):
    head, *lines = [line.split() for line in text.strip().splitlines()]
    out = {}
    for value, *entries in lines:
        above, _, below = value.partition("/")
        setting = float(above) / float(below or 1)
        out |= {(setting, CATALOG[name]): 1000 * float(entry) for name, entry in zip(head, entries, strict=True)}
    return out


@pytest.mark.parametrize(("experiment", "printed"), [(FRACTION_TABLE, TABLE_B), (FEATURE_TABLE, TABLE_C)])
def test_the_printed_figures(experiment, printed):
    assert experiment.paper == pytest.approx(read(printed))


def test_there_are_these_experiments():
    assert list(EXPERIMENTS) == ["figure-a", "figure-a-interleaved", "fractions", "fractions-interleaved", "features"]
    assert all(name == experiment.name for name, experiment in EXPERIMENTS.items())
    assert all("paper" in experiment.tags for experiment in EXPERIMENTS.values())


def test_the_size_is_the_papers():
    for experiment in EXPERIMENTS.values():
        assert experiment.runs == 10
        for setting in experiment.settings:
            traffic = setting.environment
            assert (traffic.queries, traffic.impressions, traffic.results) == (100, 3_000_000, 5)
            assert traffic.events_high == 10
            assert traffic.oracle == "rectangle"


def test_columns_differ_in_nothing_but_what_stands_above_them():
    for setting, value in zip(FRACTION_TABLE.settings, (0.0, 0.125, 0.25, 0.375, 0.5), strict=True):
        assert setting.value == value
        assert setting.environment == dataclasses.replace(BASE, shifting_share=value)
    for setting, value in zip(FEATURE_TABLE.settings, (10, 20, 30, 40), strict=True):
        assert setting.value == value
        assert setting.environment == dataclasses.replace(BASE, features=value, shifting_share=0.1)
    assert [s.environment for s in FIGURE_A.settings] == [dataclasses.replace(BASE, shifting_share=0.1)]


def test_policies_are_the_same_everywhere_and_figure_a_leaves_exp3s_out():
    assert FRACTION_TABLE.policies == FEATURE_TABLE.policies == POLICIES
    assert list(POLICIES) == list(CATALOG.values())
    assert FIGURE_A.policies.items() < POLICIES.items()
    assert list(FIGURE_A.policies) == ["ora", "bwc", "ucb1"]
    assert FIGURE_A.paper == {}  # the curve is not in the source, only the tables are


def test_bwc_is_the_papers_with_the_chosen_length_in_every_column():
    for experiment in EXPERIMENTS.values():
        specs = {str(spec) for _, name, spec in experiment.cells() if name == "bwc"}
        assert specs == {"BWC(bandit=Testable(bandit=UCB1(), length=20), classifier=Rectangle())"}


def test_the_second_order_changes_the_order_alone():
    for experiment in (FIGURE_A, FRACTION_TABLE):
        other = interleaved(experiment)
        assert other.name == f"{experiment.name}-interleaved"
        assert other.title != experiment.title
        assert (other.paper, other.policies, other.runs) == (experiment.paper, experiment.policies, experiment.runs)
        for before, after in zip(experiment.settings, other.settings, strict=True):
            assert before.environment.order == "sequential"
            assert after.environment == dataclasses.replace(before.environment, order="uniform")
