"""The command `swerve demo`: its output, its end, and one clear line if it cannot start."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

import pytest
from demo.playing import playing, run

POLICIES = {"swerve", "oracle", "bwc", "ucb1", "fixed"}


def test_headless_ends_by_itself_with_a_summary(tmp_path: Path):
    done = run("--headless", "--seconds", "6", "--port", "0", "--json", "summary.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "summary.json").read_text())
    assert found["scenario"] == "hurricane"
    assert 5.5 < found["seconds"] < 10.0
    assert found["days"] > 1.0 and found["impressions"] > 1000
    assert found["degraded"] == 0
    for name in ("ctr", "ctr_top", "regret"):
        assert set(found[name]) == POLICIES, name
    assert found["ctr_gained"]["points"] == pytest.approx(100 * (found["ctr"]["swerve"] - found["ctr"]["fixed"]), abs=0.01)
    for name in POLICIES:
        assert len(found["slots"][name]) == 10
        assert sum(found["slots"][name]) == found["head"]["clicks"][name] + found["tail"]["clicks"][name]
    assert found["slots"]["swerve"][2] > 0  # clicks on slot 3
    assert found["tail"]["impressions"] > 100
    arms, reward = found["experiment"]["arms"], found["experiment"]["outcomes"]["reward"]
    assert 0.7 < found["impressions"] / (found["impressions"] + found["held_out"]) < 0.9  # 80 % are treated
    assert arms["control"]["searches"] >= found["held_out"] > 200  # who asks again is counted again
    assert reward["low"] < reward["difference"] < reward["high"] and reward["visits"] > 1000
    assert found["pinned"]["query"] == "hurricane" and found["pinned"]["searches"] > 50
    words = (
        "hold-out: ",
        "points",
        "an operator's pin: ",
        "famous queries",
        "young queries",
        "with the engine's order",
        "clicks by slot, fixed",
    )
    for word in ("CTR gained", "clicks lost to the best", "new phase", "Swerve, live", *words):
        assert word in done.stdout
    assert done.stderr == ""


def test_json_can_take_the_place_of_everything_else(tmp_path: Path):
    # long enough that a busy machine, which may stall a second at the start, keeps enough of the speed
    done = run("--headless", "--seconds", "5", "--scenario", "quiet", "--speed", "50", "--port", "0", "--json", "-", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["scenario"], found["events"]) == ("quiet", [])
    assert 20.0 < found["speed"] <= 55.0


def test_a_store_may_be_named_by_its_path(tmp_path: Path):
    done = run("--headless", "--seconds", "1", "--port", "0", "--store", "kept.db", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "kept.db").is_file()


def test_a_person_ends_it_in_order(tmp_path: Path):
    with playing(tmp_path, "--speed", "400") as demo:
        while (found := demo.report())["impressions"] < 1000:  # a busy machine starts slowly
            time.sleep(0.1)
        time.sleep(3.0)  # one line of output per second
        assert found["scenario"] == "hurricane"
        code, said = demo.end()
    assert code == 0, (tmp_path / "stderr.txt").read_text()
    assert "impressions; CTR swerve" in said
    assert "CTR gained" in said
    assert (tmp_path / "stderr.txt").read_text() == ""


def test_orders_are_followed(tmp_path: Path):
    with playing(tmp_path, "--speed", "50") as demo:
        demo.order("pause")
        first = demo.report()
        while not first["paused"]:
            first = demo.report()
        assert demo.report()["now"] == first["now"]
        demo.order("speed", 400)
        demo.order("resume")
        later = demo.report()
        while later["now"] < first["now"] + 7200.0:
            later = demo.report()
        assert (later["paused"], later["speed"]) == (False, 400.0)
        demo.order("scenario", "tomato")
        while (now := demo.report())["scenario"] != "tomato":
            pass
        assert now["began"] >= later["now"]  # time continues
        demo.order("shift", "tomato")
        while not any(event["query"] == "tomato" for event in demo.report()["events"]):
            pass
        for order in ({"do": "speed", "value": 5000}, {"do": "scenario", "value": "x"}, {"do": "shift", "value": "x"}, {"do": "x"}):
            answer = demo.http.call("POST", "/demo/control", order)
            assert answer.status == 422, answer
            assert "value" in answer.json["error"]["message"] or "do" in answer.json["error"]["message"]


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["--scenario", "hurricanes"], "there is no scenario 'hurricanes'"),
        (["--store", "nothing://here"], "nothing://here"),
        (["--speed", "5000"], "5000"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(tmp_path: Path, args: list[str], line: str):
    done = run(*args, "--headless", cwd=tmp_path)
    assert done.returncode != 0
    assert line in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_said_in_a_line(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("--port", str(port), "--headless", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"cannot listen on 127.0.0.1 port {port}" in done.stderr


def test_no_place_to_write_is_said_in_a_line(tmp_path: Path):
    done = run("--headless", "--store", "sqlite:////proc/demo.db", cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "no file can be made in /proc" in done.stderr
    if os.geteuid() != 0:  # root may write anywhere
        (tmp_path / "none").mkdir(mode=0o500)
        done = run("--headless", cwd=tmp_path, TMPDIR=str(tmp_path / "none"))
        assert done.returncode == 0 or "cannot make a folder" in done.stderr
