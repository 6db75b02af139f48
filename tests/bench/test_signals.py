"""The figures of docs/signals.md, the quick ones always and the others in slow tests; and series from files."""

import datetime
import json
import statistics

import numpy as np
import pytest
from click.testing import CliRunner

from swerve import Never, Swerve, SwerveError, policy
from swerve.bench import signals
from swerve.bench.requests import START, WEEK, arrivals
from swerve.signals import VOLUME, Senses


def test_requests_come_in_order_and_at_their_rates():
    rates = np.array([[2.0, 20.0], [200.0, 0.0]])
    times, whose = arrivals(np.random.default_rng(0), np.repeat(rates, 50, axis=1), START)
    assert (np.diff(times) >= 0.0).all()
    early = times < START + 50 * 3600.0
    counts = [int((early[whose == 0]).sum()), int((~early[whose == 0]).sum()), int((whose == 1).sum())]
    assert counts == pytest.approx([100, 1000, 10_000], rel=0.25)
    assert not (~early[whose == 1]).any()


@pytest.mark.parametrize("rate", [1, 10, 100])
def test_noise_raises_hardly_an_alarm_and_ramps_raise_one(rate):
    assert max(signals.on_noise(Senses(), rate, 10, 4)) <= 0.025
    found, delay, alarms = signals.on_ramps(Senses(), rate, 20)
    assert found >= 0.9
    assert delay < (15.0 if rate == 1 else 9.0)
    assert alarms <= 1.1


def test_news_that_change_by_the_hour_are_quiet_and_a_jump_is_heard_once():
    false, found, alarms = signals.on_news(Senses(), 10, 20)
    assert false <= 0.02
    assert found == 1.0
    assert alarms <= 1.1


def test_without_the_dispersion_term_wild_noise_raises_alarms():
    """Because of this term, one threshold also serves busy queries."""
    wild = [signals.on_noise(Senses(overdispersion=spread), 100, 5, 4, signals.WILD_DEVIATION)[0] for spread in (0.0, 0.1)]
    assert wild[0] > 1.0
    assert wild[1] <= 0.1


def write_series(folder, bursts):
    """Write five weeks of 100 mentions per five minutes, and ten times as many during the bursts (in hours)."""
    place = folder / signals.SERIES_FOLDER
    place.mkdir()
    begin = datetime.datetime(2026, 1, 5)
    windows = {}
    for name, hours in bursts.items():
        lines = ["timestamp,value"]
        for step in range(5 * WEEK * 12):
            loud = any(hour <= step / 12 < hour + 20 for hour in hours)
            lines.append(f"{begin + datetime.timedelta(minutes=5 * step)},{1000 if loud else 100}")
        file = f"Twitter_volume_{name}.csv"
        (place / file).write_text("\n".join(lines), encoding="utf-8")
        labelled = [[begin + datetime.timedelta(hours=hour + shift) for shift in (-4, 26)] for hour in hours]
        windows[f"realTweets/{file}"] = [[f"{first}.000000", f"{last}.000000"] for first, last in labelled]
    (place / "combined_windows.json").write_text(json.dumps(windows), encoding="utf-8")
    return folder


def test_series_from_files(tmp_path):
    folder = write_series(tmp_path, {"A": [400.0, 700.0], "B": [500.0]})
    series = signals.recorded(folder / signals.SERIES_FOLDER)
    assert [len(one.bursts) for one in series] == [2, 1]
    assert series[0].counts.max() == 1000.0
    found, alarms, elsewhere = signals.on_records(Senses(), series, 20.0, 0)
    assert found == 1.0
    assert alarms == 1.0
    assert elsewhere == 0.0
    (folder / signals.SERIES_FOLDER / "Twitter_volume_B.csv").write_text(
        "timestamp,value\n2026-01-05 00:00:00,many", encoding="utf-8"
    )
    with pytest.raises(SwerveError, match="not series of times and counts"):
        signals.recorded(folder / signals.SERIES_FOLDER)


def test_what_is_wrong_with_a_folder_is_said_in_one_line(tmp_path):
    with pytest.raises(SwerveError, match=r"combined_windows\.json cannot be read .*--data or SWERVE_DATA must name"):
        signals.recorded(tmp_path)
    (tmp_path / "combined_windows.json").write_text("{}", encoding="utf-8")
    with pytest.raises(SwerveError, match="has no files"):
        signals.recorded(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [1, 10, 100, 1000])
def test_the_figures_of_the_page(rate):
    count = signals.QUERIES[rate]
    assert max(signals.on_noise(Senses(), rate, count, 12)) <= 0.01
    assert signals.on_noise(Senses(), rate, count, 12, signals.WILD_DEVIATION)[0] <= 0.05
    found, delay, alarms = signals.on_ramps(Senses(), rate, count)
    assert found >= 0.97
    assert delay <= {1: 12.0, 10: 8.0, 100: 7.5, 1000: 7.5}[rate]
    assert alarms <= 1.05
    for found, _, alarms in signals.on_rates(Senses(), rate, count):
        assert found >= 0.98 or rate == 1
        assert alarms is None or alarms <= 1.2


@pytest.mark.slow
@pytest.mark.parametrize("abrupt", [False, True])
def test_a_burst_is_one_alarm_for_a_policy(abrupt):
    """For quiet features that are noise, and for features that are 0, the value of all their quantiles."""
    for senses in (Senses(), Senses(noise_ceiling=0.0)):
        loop = signals.in_the_loop(senses, Swerve(), signals.PLAN, abrupt, meant=False)
        assert loop.found == 1.0
        assert loop.per_burst <= 1.1
        assert loop.elsewhere <= 0.01
    # BWC shares one rectangle: a single wrong label "false" on a rare query hides half of the later bursts. Whether a run has
    # one is random, so the test asserts the typical run.
    safe = [signals.in_the_loop(Senses(), policy("bwc"), signals.PLAN, abrupt, meant=True, seed=seed) for seed in range(5, 14)]
    assert statistics.median(loop.found for loop in safe) >= 0.95
    assert max(loop.per_burst or 0.0 for loop in safe) <= 1.1
    assert max(loop.elsewhere for loop in safe) <= 0.01


@pytest.mark.slow
def test_volume_is_worth_something_where_bursts_mean_something():
    """Over four paired seeds, Swerve with the volume signal has less regret than without any signal."""
    deaf = Swerve(classifier=Never())
    gain = 0.0
    for seed in (5, 6, 7, 8):
        hearing, without = (signals.in_the_loop(Senses(), tried, [VOLUME], True, True, seed) for tried in (Swerve(), deaf))
        gain += without.regret - hearing.regret
    assert gain > 0.0


@pytest.mark.slow
def test_the_command_prints_the_table_and_writes_json(tmp_path):
    from swerve.cli import app

    folder = write_series(tmp_path, {"A": [400.0, 700.0], "B": [500.0]})
    done = CliRunner().invoke(app, ["bench", "signals", "--quick", "--data", str(folder), "--json"])
    assert done.exit_code == 0, done.output
    lines = {line["name"]: line for line in json.loads(done.output)}
    assert lines["state of a query"]["values"] == {"": 232.0}
    assert list(lines["volume: ramps found"]["values"]) == ["1/h", "10/h", "100/h", "1,000/h"]
    assert lines["real series: bursts found"]["values"]["1,000/h"] == 100.0
    assert lines["swerve: alarms per burst"]["values"]["jumps"] <= 1.1
    shown = CliRunner(env={"COLUMNS": "140"}).invoke(app, ["bench", "signals", "--quick"], env={"SWERVE_DATA": ""})
    assert shown.exit_code == 0, shown.output
    assert "volume: ramps found" in shown.output
    assert "real series" not in shown.output
