"""The report is self-contained, and states its runs and the command that reproduces it."""

from __future__ import annotations

import html
import re

import pytest

import swerve
from swerve.experiments import EXPERIMENTS, lower_bounds, run
from swerve.experiments.analysis import agreements
from swerve.experiments.report import prose, table, thousands, write


@pytest.fixture(scope="module")
def cells():
    """All experiments of the paper, with 100 impressions per query."""
    return [cell for experiment in EXPERIMENTS.values() for cell in run(experiment.scaled(10_000), runs=2)]


@pytest.fixture(scope="module")
def growths():
    return lower_bounds.run(runs=1, horizons=(2000, 8000))


@pytest.fixture(scope="module")
def folder(cells, growths, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    write(folder, cells, growths, command="swerve reproduce --seed 7 'a<b'", seed=7, runs=2, seconds=1.0)
    return folder


@pytest.fixture(scope="module")
def page(folder):
    return (folder / "index.html").read_text(encoding="utf-8")


def test_every_plot_is_there_as_png_and_svg_and_in_the_page(folder, page):
    names = {
        "figure-a", "figure-a-interleaved", "fractions", "fractions-causes", "fractions-interleaved",
        "fractions-interleaved-causes", "features", "features-causes", "lower-bounds",
    }  # fmt: skip
    for kind, start in (("png", b"\x89PNG"), ("svg", b"<?xml")):
        files = {path.stem: path for path in folder.glob(f"*.{kind}")}
        assert set(files) == names
        assert all(path.read_bytes().startswith(start) for path in files.values())
    assert page.count("<img ") == len(names)


def test_the_page_needs_nothing_else(page):
    sources = re.findall(r"""(?:src|href)=['"]([^'"]{0,30})""", page)
    assert sources
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    assert "://" not in re.sub(r"base64,[^']*", "", page)
    assert "<script" not in page


def test_the_page_says_how_it_was_made(page):
    assert "<pre>swerve reproduce --seed 7 &#x27;a&lt;b&#x27;</pre>" in page
    assert "<td>2, 7</td>" in page
    assert f"Swerve {swerve.__version__}, Python " in page
    assert "bwc(length=20, epsilon=0.3, margin=0.1)" in page


def test_the_page_shows_what_was_played_and_not_what_the_paper_has(page):
    assert "<tr><td><code>impressions</code></td><td>10,000</td></tr>" in page
    assert "<tr><td><code>shifting_share</code></td><td>0.0; 0.1; 0.125; 0.25; 0.375; 0.5</td></tr>" in page
    assert "<tr><td><code>features</code></td><td>10; 20; 25; 30; 40</td></tr>" in page
    assert "<tr><td><code>order</code></td><td>sequential; uniform</td></tr>" in page


def test_means_and_causes_stand_in_the_tables(cells, page):
    for cell in cells:
        assert (
            f"<td>{thousands(cell.mean)} <small>± {thousands(cell.sd)}</small><br><small>se {cell.error / 1e3:.2f}</small>" in page
        )
    assert page.count("learning a fresh segment</th>") == 3
    assert "paper " not in re.search(r"<h2 id='fractions'>.*?</table>", page, re.S).group()  # the paper has no such size


def test_exponents_stand_in_the_tables(growths, page):
    for growth in growths:
        assert f"<td>{growth.exponent:.2f}</td>" in page
    assert "<th>2,000</th><th>8,000</th><th>exponent</th>" in page


def test_printed_figures_ratios_and_verdicts(tmp_path, made_up):
    experiment = EXPERIMENTS["fractions"]
    counts = {f"regret_{cause}": 1.0 for cause in ("learning", "testing", "false_alarm", "unseen", "missed")}
    counts |= dict.fromkeys(("events", "true_alarms", "false_alarms", "misses", "unseen", "wrong_false_labels"), 7.0)
    cells = [
        made_up("fractions", setting, policy, [2.0 * printed] if (setting, policy) == (0.5, "ora") else [printed], printed, counts)
        for (setting, policy), printed in experiment.paper.items()
    ]
    page = write(tmp_path, cells, [], command="swerve", seed=0, runs=1, seconds=1.0).read_text(encoding="utf-8")
    assert "79.0 <small>± 0.0</small><br><small>se 0.00</small><br><small>paper 39.5 · 2.00 ×</small>" in page
    claims = agreements(cells)
    assert [claim.holds for claim in claims].count(False) == page.count("does not hold</span>") == 1
    for claim in claims:
        assert html.escape(claim.claim) in page
    assert "lower-bounds" not in page
    assert "Our UCB1 is a straight line in the fraction (R² = " in page


def test_a_page_of_lower_bounds_alone(tmp_path, growths):
    page = write(tmp_path, [], growths, command="swerve", seed=0, runs=1, seconds=1.0).read_text(encoding="utf-8")
    assert page.count("<img ") == 1
    assert "id='agreement'" not in page
    assert "id='settings'" not in page


def test_small_parts():
    assert [thousands(value) for value in (None, 0.0, 17_250.0)] == ["–", "0.0", "17.2"]
    assert prose("a `false` <label>") == "a <code>false</code> &lt;label&gt;"
    assert table(["a"], [["<b>1</b>"]], "words").startswith("<table class='words'><thead><tr><th>a</th></tr></thead>")
