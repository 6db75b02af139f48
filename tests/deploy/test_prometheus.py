"""Rules and dashboard: promtool checks the rules, and a real Prometheus that scrapes a real service answers every query of both."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from service.running import Running, running, until

from swerve.proxy.server import OUTCOMES
from swerve.service.metrics import Metrics, ProxyMetrics

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "swerve.json").read_text())
PROMTOOL, PROMETHEUS = shutil.which("promtool"), shutil.which("prometheus")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool (the package prometheus) is not installed")
#: Counters that only trouble or other ways of use bring about: Prometheus must understand a query of them, and may find nothing.
RARE = {
    "swerve_alarms_total", "swerve:alarms:rate1h", "swerve_store_errors_total", "swerve_throttled_total",
    "swerve_ubi_forwarded_total", "swerve_proxy_requests_total",
}  # fmt: skip


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def queries() -> list[str]:
    """Every query of the dashboard, with its variables filled in as Grafana does."""
    out = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [expr.replace("$__rate_interval", "1m").replace("$instance", ".*") for expr in out]


def metrics_of(expr: str) -> set[str]:
    return set(re.findall(r"\bswerve[_:][a-z0-9_:]+", expr))


@needs_promtool
def test_promtool_accepts_the_rules():
    done = subprocess.run(
        [str(PROMTOOL), "check", "rules", "--lint-fatal", str(RULES)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_the_rules_fire_when_they_should_and_only_then():
    tested = RULES.with_name("rules_test.yml")
    done = subprocess.run([str(PROMTOOL), "test", "rules", str(tested)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_unit_test_a_severity_a_summary_and_a_page_that_exists():
    tests = yaml.safe_load(RULES.with_name("rules_test.yml").read_text())["tests"]
    raised = {case["alertname"] for test in tests for case in test.get("alert_rule_test", ()) if case["exp_alerts"]}
    alerts = [rule for rule in rules() if "alert" in rule]
    assert {rule["alert"] for rule in alerts} == raised
    for rule in alerts:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        page, _, heading = rule["annotations"]["runbook"].partition("#")
        titles = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), re.M)
        assert heading in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}, rule["alert"]


def test_rules_and_dashboard_name_metrics_that_exist():
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    families = Metrics().families
    parts = {
        f"{name}_{part}" for name, (kind, _, _) in families.items() if kind == "histogram" for part in ("bucket", "sum", "count")
    }
    asked = set().union(*(metrics_of(expr) for expr in [*queries(), *(rule["expr"] for rule in rules())]))
    assert asked <= set(families) | parts | recorded
    shown = set().union(*(metrics_of(expr) for expr in queries()))
    assert len(shown) > 30


def test_the_dashboard_is_one_that_grafana_can_place_and_query():
    identities = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(identities) == len(set(identities))
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24 and not cells & taken
        taken |= cells
    for panel in panels():
        assert panel["description"] and panel["datasource"]["uid"] == "${datasource}"
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    variables = {one["name"] for one in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]+)", json.dumps(DASHBOARD["panels"])))
    assert used == variables


def test_an_instance_can_be_chosen_also_if_it_is_a_proxy_of_its_own():
    (instance,) = [one for one in DASHBOARD["templating"]["list"] if one["name"] == "instance"]
    assert metrics_of(instance["query"]) <= set(ProxyMetrics().families)
    assert instance["definition"] == instance["query"]
    asked = set().union(*(metrics_of(rule["expr"]) for rule in rules() if rule.get("alert", "").startswith("SwerveProxy")))
    assert asked <= set(ProxyMetrics().families)
    outcomes = {one for rule in rules() for one in re.findall(r'proxy_requests_total\{outcome=~?"([^"]+)"', rule["expr"])}
    assert set("|".join(outcomes).split("|")) <= set(OUTCOMES)


class Prometheus:
    """A real Prometheus over a folder, on a free port of the loopback."""

    def __init__(self, folder: Path, target: int) -> None:
        folder.mkdir()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        shutil.copy(RULES, folder / "rules.yml")
        text = (ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text()
        made = yaml.safe_load(text)
        made["global"].update(scrape_interval="1s", evaluation_interval="1s")
        made["rule_files"] = ["rules.yml"]
        (job,) = made["scrape_configs"] = [one for one in made["scrape_configs"] if one["job_name"] == "swerve"]
        job["static_configs"] = [{"targets": [f"127.0.0.1:{target}"]}]
        del job["authorization"]  # the service of this test has no keys
        (folder / "prometheus.yml").write_text(yaml.safe_dump(made))
        command = [str(PROMETHEUS), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        with (folder / "log.txt").open("w") as log:
            self.child = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{self.port}"], stdout=log, stderr=log)

    def ask(self, expr: str) -> list[Any]:
        """Return the result of a query; raises `urllib.error.HTTPError` when Prometheus refuses it."""
        where = f"http://127.0.0.1:{self.port}/api/v1/query?{urllib.parse.urlencode({'query': expr})}"
        with urllib.request.urlopen(where, timeout=10) as answer:
            said = json.load(answer)
        assert said["status"] == "success", said
        return said["data"]["result"]

    def up(self) -> bool:
        try:
            return bool(self.ask("swerve_ready == 1"))
        except OSError:
            return False

    def close(self) -> None:
        self.child.terminate()
        self.child.wait(20)


def play(service: Running, rounds: int) -> None:
    """A little traffic with all that the dashboard shows: clicks, repeats, refusals, rules, beacons, numbers, two arms."""
    client = service.client()
    for number in range(rounds):
        body = {"session": f"s-{number}", "unit": f"u-{number}"}
        ranked = client.rank(f"query {number % 7}", ["a", "b", "c", "d"], **body).json
        client.rank(f"query {number % 7}", ["a", "b", "c", "d"], **body)
        if number % 3:
            client.feedback(ranked["decision"], ranked["ranking"][number % 2])
        else:
            beacon = json.dumps({"decision": ranked["decision"], "events": [{"kind": "click", "result": ranked["ranking"][0]}]})
            client.call("POST", "/v1/beacon", beacon.encode(), {"Content-Type": "text/plain"})
        assert client.rank(f"new {time.time_ns()}", ["a", "b"], session="one").status == 200  # more of them than may have a row
    client.feedback("forged", "a")
    assert client.call("POST", "/v1/signals", {"name": "news", "value": 3}).status == 200
    client.call("GET", "/metrics", headers={"Host": "elsewhere.example"})


@pytest.mark.slow
@pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed")
def test_a_real_prometheus_answers_every_query_of_the_dashboard_and_every_rule(tmp_path):
    changes = {"experiment": {"name": "try", "treated": 0.5}, "feedback": {"beacon": True}}
    changes |= {"limits": {"beacon_rate": 1000.0, "new_queries_per_minute": 30}}
    with running(tmp_path / "service", changes) as service:
        prometheus = Prometheus(tmp_path / "prometheus", service.port)
        try:
            operator = service.client()
            pinned = operator.call("POST", "/v1/rules", {"kind": "pin", "result": "d", "position": 1, "query": "query 1"})
            assert pinned.status < 300, pinned
            play(service, 20)  # counters that appear now have a value to rise from
            until(prometheus.up, 30)
            for _ in range(4):
                time.sleep(1.5)
                play(service, 20)
            until(lambda: bool(prometheus.ask("swerve:lift:ratio1h")), 30)
            empty = [expr for expr in queries() if not prometheus.ask(expr)]
            assert [expr for expr in empty if not metrics_of(expr) & RARE] == []
            for rule in rules():
                found = prometheus.ask(rule["expr"])
                if "record" in rule:
                    assert found or metrics_of(rule["expr"]) & RARE, rule
                    assert prometheus.ask(rule["record"]) or rule["record"] in RARE, rule
            loaded = json.load(urllib.request.urlopen(f"http://127.0.0.1:{prometheus.port}/api/v1/rules", timeout=10))
            states = {rule["name"]: rule["health"] for group in loaded["data"]["groups"] for rule in group["rules"]}
            assert set(states.values()) == {"ok"}
            assert len(states) == len(rules())
            with pytest.raises(urllib.error.HTTPError):
                prometheus.ask("rate(swerve_decisions_total)")  # what Prometheus does not understand is not a success
        finally:
            prometheus.close()
