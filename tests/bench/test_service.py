"""The service's benchmark runs the real servers and returns the rows that docs/bench.md names."""

import json
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="the service's packages are not installed")

from swerve.bench import service, service_traffic
from swerve.bench.load import Connection, Turn
from swerve.bench.servers import Server, echo
from swerve.core.errors import SwerveError
from swerve.serving.tokens import LENGTHS

TINY = service.Effort(rounds=1, seconds=0.3, queries=300, stored=1200, restarts=1)
PAGE = Path(__file__).parents[2] / "docs" / "bench.md"


def turn(rate, p99=0.001):
    return Turn(int(rate), 1.0, p99 / 2, p99, 0.1, 0)


@pytest.fixture(params=["starlette", "bare"])
def yardstick(request, tmp_path):
    with echo(request.param, tmp_path) as server:
        yield server


def test_the_echo_answers_in_the_service_s_shape(yardstick):
    line = Connection(yardstick.port)
    source = service_traffic.Traffic(5)
    request = next(source.requests())
    answer = json.loads(line.call(request))
    assert set(answer) == {"decision", "ranking", "propensities", "explored", "phase", "degraded"}
    assert answer["ranking"] == json.loads(request.partition(b"\r\n\r\n")[2])["candidates"]
    assert len(answer["decision"]) == LENGTHS[10] and not answer["degraded"]
    assert len(json.loads(line.call(next(source.batches())))) == 100
    sent = service_traffic.post(service_traffic.FEEDBACK, b'{"decision":"x","events":[]}')
    assert json.loads(line.call(sent)) == {"status": "learned"}
    line.socket.close()


def test_the_load_drives_an_echo(tmp_path):
    with echo("bare", tmp_path) as server, service.Load(100, candidates=10) as load:
        closed = load.run(service_traffic.rank_turn, server.port, 8, 0.3)
        paced = load.run(service_traffic.rank_turn, server.port, 8, 0.3, 100.0)
    assert closed.answers > 50 and closed.degraded == 0 and 0.0 < closed.cpu <= 1.1
    assert 29 <= paced.answers <= 31


def test_ratios_are_of_turns_side_by_side():
    duel = service.Duel([turn(10), turn(100), turn(50)], [turn(5), turn(90), turn(10)])
    assert duel.ratio(service.rate) == pytest.approx(0.5)
    assert duel.median(service.rate) == pytest.approx(10)


def test_a_server_that_does_not_start_is_said_in_its_own_words(tmp_path):
    command = [sys.executable, "-c", "import sys; sys.exit('no luck today')"]
    with pytest.raises(SwerveError, match="ended before it served: no luck today"), Server(command, tmp_path / "log"):
        pass


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(NotADirectoryError, match="no such folder"):
        service.run_service(store=tmp_path / "nowhere")


def test_every_bar_is_on_the_page():
    page = PAGE.read_text(encoding="utf-8").split("## The service", 1)[1]
    for name, bar in service.SERVICE_BARS.items():
        (line,) = re.findall(rf"^\| `{name}` \|.*$", page, re.MULTILINE)
        assert f"{bar.sense} {bar.limit:,g}" in line


@pytest.mark.slow
def test_a_whole_run(tmp_path):
    """Slow: without a cache, the service compiles its policy for four capacities."""
    rows = {row.name: row for row in service.run_service(store=tmp_path, effort=TINY)}
    assert set(service.SERVICE_BARS) <= set(rows)
    page = PAGE.read_text(encoding="utf-8").split("## The service", 1)[1]
    for row in rows.values():
        assert f"`{row.name}`" in page
        assert row.value is not None and row.value > 0
        assert (row.ok is None) == (row.name not in service.SERVICE_BARS)
    assert rows["rank"].ratio == pytest.approx(rows["rank"].value / rows["echo-rank"].value, rel=0.01)
    assert rows["rank-batch"].value > rows["rank"].value
    assert 0.3 < rows["disk"].ratio < 1.0  # records are stored packed
    assert list(tmp_path.iterdir()) == []  # temporary stores are removed
    json.dumps([row.as_dict() for row in rows.values()])
