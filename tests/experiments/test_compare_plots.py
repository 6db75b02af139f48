"""The plot of a comparison: it shows everything, inside the panels."""

from __future__ import annotations

import numpy as np
import pytest

from swerve.experiments.compare import rows_of
from swerve.experiments.compare_pages import ORACLE
from swerve.experiments.compare_plots import marks_within, plt, ratios, write
from swerve.experiments.comparison import Comparison


@pytest.fixture
def made_up():
    """Return three policies in four cells: one interval reaches below 0, and one cell has no ratio."""
    asked = ("a", "b(with=brackets)", "c")
    rows = []
    for name, fraction, level in (("clear", 0.0, 1.0), ("clear", 0.5, 30.0), ("mixed", 0.0, 0.0), ("mixed", 0.5, 2.0)):
        regrets = {"a": np.array([90.0, 110.0]), "b(with=brackets)": np.array([1.0, 399.0]), "c": np.array([80.0, 70.0])}
        regrets = {text: values * level for text, values in regrets.items()}
        rows += rows_of(name, fraction, asked, "a", 0, {**regrets, ORACLE: np.array([100.0, 100.0]) * (level > 0)}, {})
    return Comparison(asked, "a", 2, 0, rows, {})


def test_every_ratio_is_a_point_in_the_panel_of_its_fraction(made_up):
    figure = ratios(made_up)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["0 of the queries shift", "0.5 of the queries shift"]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["clear", "mixed"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b(with=brackets)", "c"]
    for axes, fraction, count in zip(figure.axes, (0.0, 0.5), (1, 2), strict=True):
        points = [part.lines[0].get_xydata() for part in axes.containers]
        assert [len(each) for each in points] == [count] * 3
        shown = {round(float(x), 6) for each in points for x, _ in each}
        assert shown == {round(row.ratio, 6) for row in made_up.rows if row.fraction == fraction and row.ratio is not None}
        low, high = axes.get_xlim()
        assert all(low < x < high for x in shown)
        assert low > 0.1  # the interval below 0 does not stretch the axis
    plt.close(figure)


def test_marks_are_few_and_keep_1():
    assert marks_within(0.9, 2.5) == [1, 1.5, 2]
    assert marks_within(3.5, 4.5) == []
    wide = marks_within(0.05, 2000)
    assert len(wide) <= 8
    assert 1 in wide


@pytest.mark.parametrize(("ending", "start"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_the_ending_says_which_kind(made_up, tmp_path, ending, start):
    path = tmp_path / f"picture.{ending}"
    write(made_up, path)
    assert path.read_bytes().startswith(start)
    assert not plt.get_fignums()
