"""`swerve compare` on one's own environments and workloads: `-e`, `--load`, and what is refused."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from swerve.cli import app
from swerve.core.errors import SwerveError
from swerve.environments.workloads import ADDED, WORKLOADS, add_workload, takes_fraction, workload
from swerve.experiments.compare import compare

pytestmark = pytest.mark.usefixtures("uncompiled")

SMALL = ("--runs", "2", "--threads", "1", "-p", "ts,ora")
TIDES = '''
"""Two results that alternate."""
import numpy as np
from swerve import Shifts, Spec
from swerve.core.rng import at, unit
from swerve.core.spec import Natural
from swerve.environments import add_workload, assemble, world
from swerve.environments.worlds import context


class {name}(Spec):
    """Two results that alternate."""

    horizon: Natural = 400
    period: Natural = 200

    @property
    def rounds_per_query(self):
        return self.horizon


@world.register({name})
def _(spec, seed):
    turns = range(0, spec.horizon, spec.period)
    history = [(1 + start, [0.2, 0.6] if number % 2 else [0.6, 0.2]) for number, start in enumerate(turns)]
    return assemble(spec, seed, arms=2, features=1, histories=[history], schedule=np.zeros(spec.horizon, np.int32))


@context.register({name})
def _(spec, scene, cursor, event, x):
    x[0] = 1.0 if event != 0 else 0.5 * unit(at(cursor.contexts, cursor.t))


add_workload("fast-{lower}", {name}, period=100)
add_workload("small-{lower}", Shifts, queries=2, impressions=600)
'''


@pytest.fixture(autouse=True)
def _tidy():
    """Remove the workloads that a test adds."""
    before = set(WORKLOADS)
    yield
    for table in (ADDED, WORKLOADS):
        for name in set(table) - before:
            del table[name]


def call(*args):
    return CliRunner().invoke(app, ["compare", *args])


def rows_of(*args):
    done = call(*args, *SMALL, "--json", "-")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def refused(*args):
    done = call(*args)
    assert isinstance(done.exception, SwerveError), done.output
    return str(done.exception)


def written(tmp_path, name):
    path = tmp_path / f"{name.lower()}.py"
    path.write_text(TIDES.format(name=name, lower=name.lower()))
    return str(path)


def test_an_environment_is_a_cell_without_a_fraction_and_alone_unless_workloads_are_named():
    text = "traffic(queries=2, impressions=400, shifting_share=0.5)"
    rows = rows_of("-e", text)
    assert {(row["workload"], row["fraction"]) for row in rows} == {(text, None)}
    own = compare(["ts", "ora"], [], environments=[text], runs=2, threads=1).rows
    assert [row["mean"] for row in rows] == [row.mean for row in own]
    both = rows_of("-e", text, "-w", "clear", "-f", "0.5", "--queries", "2", "--impressions", "400")
    assert {(row["workload"], row["fraction"]) for row in both} == {("clear", 0.5), (text, None)}


def test_pages_of_an_environment_have_the_figures_and_the_oracle_of_pages():
    rows = rows_of("-e", "pages(queries=2, impressions=200)", "-p", "given")
    assert {row["oracle"] for row in rows} == {"oracle-list"}
    assert all(row["harm"] is not None for row in rows)


def test_a_file_brings_environments_and_workloads(tmp_path):
    path = written(tmp_path, "TidesLoaded")
    rows = rows_of("-e", "tides-loaded(period=50)", "-w", "fast-tidesloaded,small-tidesloaded", "-f", "0,1", "--load", path)
    cells = {(row["workload"], row["fraction"]) for row in rows}
    assert cells == {
        ("tides-loaded(period=50)", None), ("fast-tidesloaded", None), ("small-tidesloaded", 0.0), ("small-tidesloaded", 1.0)
    }  # fmt: skip
    assert workload("fast-tidesloaded(horizon=100)").period == 100
    listed = json.loads(CliRunner().invoke(app, ["list", "--load", path, "--json", "-"]).stdout)
    assert {"fast-tidesloaded", "tides-loaded"} <= {row["name"] for row in listed}


def test_a_file_that_fails_leaves_no_workload_behind(tmp_path):
    path = tmp_path / "failing.py"
    path.write_text(TIDES.format(name="TidesFailing", lower="failing") + "\nraise ValueError('no')\n")
    assert "failing.py:37: ValueError: no" in refused("-e", "tides-failing", "--load", str(path))
    assert not {"fast-failing", "small-failing"} & set(WORKLOADS)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("-e", "nowhere"), "unknown environment 'nowhere'"),
        (("-e", "traffic(queries=0)"), "queries must be"),
        (("-e", "UCB1()"), "UCB1 is no environment"),
        (("-e", "traffic", "-f", "0.5"), "--fraction is not allowed without --workload"),
        (("-e", "hurricane"), "hurricane needs recorded signals; name their folder with --data"),
        (
            ("-e", "pages(slots=3)", "-p", "swerve,oracle-ts,ts", "--bars", "--against", "ts"),
            "--bars is not allowed with pages(slots=3)",
        ),
        (("-w", "fast-nobody"), "unknown workload 'fast-nobody'"),
    ],
)
def test_wrong_uses_are_refused_before_anything_is_played(args, message, monkeypatch):
    monkeypatch.delenv("SWERVE_DATA", raising=False)
    assert message in refused(*args, "-p", "ts")


def test_an_environment_with_the_name_of_a_workload_is_refused(tmp_path):
    path = tmp_path / "clashing.py"
    path.write_text("from swerve import Shifts\n\nclass Clear(Shifts):\n    pass\n")
    assert "a workload has that name" in refused("-e", "clear", "-p", "ts", "--load", str(path))


def test_a_workload_needs_a_name_an_environment_and_fields_that_exist():
    from swerve import UCB1, Shifts

    for name, cls, settings, message in (
        ("two words", Shifts, {}, "a name has letters"), ("clear", Shifts, {}, "there is one of that name already"),
        ("bandit", UCB1, {}, "UCB1 is no environment"), ("own", Shifts, {"querys": 3}, "unknown parameter 'querys'"),
    ):  # fmt: skip
        with pytest.raises(SwerveError, match=message):
            add_workload(name, cls, **settings)
    add_workload("fixed", Shifts, shifting_share=1.0)
    assert not takes_fraction("fixed")
