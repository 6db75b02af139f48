"""The chart: it lints, and what it makes of several values is a service that the configuration, the routes and the image know."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from deploy.image import steps
from deploy.settings import known_variables

from swerve.cli import COMMANDS
from swerve.service.config.callers import SCOPES, ApiKey
from swerve.service.config.load import Config, load, may_bind
from swerve.service.config.proxying import ADDRESS, Proxy
from swerve.service.http.routes import ROUTES
from swerve.version import __version__

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "swerve"
VALUES = sorted(path.name for path in (CHART / "ci").glob("*.yaml"))
HELM = shutil.which("helm", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
RULES = (ROOT / "deploy" / "prometheus" / "rules.yml").read_text()
IMAGE = dict(steps((ROOT / "Dockerfile").read_text()))
pytestmark = pytest.mark.skipif(HELM is None, reason="helm (helm-binary) is not installed")


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(HELM), *words], capture_output=True, text=True, check=False, timeout=60)


def made(values: str, *sets: str) -> dict[str, dict[str, Any]]:
    """Return the objects of the chart by kind and component, for the release `try` in the namespace `shop`."""
    changes = [word for one in sets for word in ("--set", one)]
    done = helm("template", "try", str(CHART), "--namespace", "shop", "--values", str(CHART / "ci" / values), *changes)
    assert done.returncode == 0, done.stderr
    out: dict[str, dict[str, Any]] = {}
    for one in yaml.safe_load_all(done.stdout):
        name = one["kind"] + ("/proxy" if one["metadata"]["name"].endswith("-proxy") else "")
        assert name not in out
        out[name] = one
    return out


def configured(objects: dict[str, dict[str, Any]], file: str, tmp_path: Path) -> Config:
    """Load a file of the ConfigMap, as `swerve config check` does."""
    (tmp_path / file).write_text(objects["ConfigMap"]["data"][file])
    config = load(tmp_path / file)
    if file == "swerve.toml":
        may_bind(config.server.host, config)
    return config


def pod_of(owner: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    pod = owner["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return pod, container


@pytest.mark.parametrize("values", VALUES)
def test_it_lints(values):
    done = helm("lint", "--strict", str(CHART), "--values", str(CHART / "ci" / values))
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout and "[ERROR]" not in done.stdout


@pytest.mark.parametrize("values", VALUES)
def test_one_replica_without_root_on_a_volume_with_probes_that_exist(values, tmp_path):
    objects = made(values)
    owner = objects["StatefulSet"]
    assert owner["spec"]["replicas"] == 1
    pod, container = pod_of(owner)
    assert container["args"][0] in COMMANDS
    user = pod["securityContext"]
    assert f"{user['runAsUser']}:{user['runAsGroup']}" == IMAGE["USER"] and user["runAsNonRoot"]
    locked = container["securityContext"]
    assert (
        locked["readOnlyRootFilesystem"] and locked["capabilities"] == {"drop": ["ALL"]} and not locked["allowPrivilegeEscalation"]
    )
    unguarded = {route.path for route in ROUTES if route.method == "get" and not route.guarded and route.scope is None}
    probes = {name: container[name]["httpGet"] for name in ("livenessProbe", "readinessProbe", "startupProbe")}
    assert {probe["path"] for probe in probes.values()} == {"/healthz", "/readyz"} <= unguarded
    assert probes["readinessProbe"]["path"] == "/readyz"  # a liveness probe of /readyz would restart a service whose store is away
    config = configured(objects, "swerve.toml", tmp_path)
    assert container["ports"] == [{"name": "http", "containerPort": config.server.port}]
    assert str(config.server.port) in IMAGE["EXPOSE"].split()
    mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    assert config.store.url == f"sqlite:///{IMAGE['VOLUME']}/swerve.db" and mounts[IMAGE["VOLUME"]] == "store"
    claims = {claim["metadata"]["name"] for claim in owner["spec"]["volumeClaimTemplates"]}
    assert set(mounts.values()) == claims | {volume["name"] for volume in pod["volumes"]}
    assert pod["terminationGracePeriodSeconds"] > config.server.drain_seconds
    known_variables(" ".join(one["name"] for one in container["env"]))


@pytest.mark.parametrize("values", VALUES)
def test_services_find_their_pods_and_their_names_are_answered(values, tmp_path):
    objects = made(values)
    for owner, service, file in (("StatefulSet", "Service", "swerve.toml"), ("Deployment/proxy", "Service/proxy", "proxy.toml")):
        if service in objects:
            labels = objects[owner]["spec"]["template"]["metadata"]["labels"]
            assert objects[service]["spec"]["selector"].items() <= labels.items()
            assert objects[owner]["spec"]["selector"]["matchLabels"].items() <= labels.items()
            config = configured(objects, file, tmp_path)
            name = objects[service]["metadata"]["name"]
            hosts = config.server.hosts if service == "Service" else config.proxy.hosts
            assert {name, f"{name}.shop", f"{name}.shop.svc", f"{name}.shop.svc.cluster.local"} <= set(hosts)


def test_values_become_a_configuration(tmp_path):
    config = configured(made("full-values.yaml"), "swerve.toml", tmp_path)
    assert (config.policy.arms, config.server.deadline_ms, config.signals.numbers) == (32, 12.5, {"articles": "count"})
    assert "search.example.com" in config.server.hosts
    assert config.namespaces["*"].new_queries_per_minute == 1000
    assert config.feedback.events["cart"].weight == 0.5
    (key,) = config.security.api_keys
    assert (key.name, key.rate, key.burst) == ("shop", 500.0, 2000)


def test_awkward_texts_and_missing_values_stay_valid_toml(tmp_path):
    odd = tmp_path / "odd.yaml"
    odd.write_text(
        yaml.safe_dump({"config": {"store": {"max_mb": 16777216, "idle_days": None}, "experiment": {"salt": 'a "b" <c> & \\ ü'}}})
    )
    done = helm(
        "template", "try", str(CHART), "--values", str(CHART / "ci" / "least-values.yaml"), "--values", str(odd),
        "--show-only", "templates/configmap.yaml",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    config = configured({"ConfigMap": yaml.safe_load(done.stdout)}, "swerve.toml", tmp_path)
    assert (config.store.max_mb, config.store.idle_days, config.experiment.salt) == (16777216, 90.0, 'a "b" <c> & \\ ü')


def test_the_proxy_is_not_inside_the_service_too_and_reads_its_secrets(tmp_path):
    objects = made("proxy-values.yaml")
    assert configured(objects, "swerve.toml", tmp_path).proxy.upstream == ""
    config = configured(objects, "proxy.toml", tmp_path)
    assert config.proxy.upstream == "http://opensearch:9200"
    assert (
        config.proxy.service == f"http://{objects['Service']['metadata']['name']}:{objects['Service']['spec']['ports'][0]['port']}"
    )
    assert config.proxy.rules[0].where == {"ext.list": "main"}
    pod, container = pod_of(objects["Deployment/proxy"])
    assert container["args"] == ["proxy"]
    assert config.proxy.listen.endswith(f":{container['ports'][0]['containerPort']}")
    (secrets,) = [volume["projected"] for volume in pod["volumes"] if "projected" in volume]
    paths = {f"/etc/swerve/secrets/{item['path']}" for source in secrets["sources"] for item in source["secret"]["items"]}
    assert paths == {config.proxy.api_key_file, config.proxy.authorization_file}


def test_the_proxy_has_the_sections_that_it_reads_of_the_configuration(tmp_path):
    """Its window depends on policy.arms, and its spans belong to the traces of the service."""
    sets = (
        "config.policy.arms=48",
        "config.tracing.endpoint=http://collector:4318",
        "config.limits.query_chars=99",
        "config.log.level=debug",
    )
    objects = made("proxy-values.yaml", *sets)
    service, proxy = (configured(objects, file, tmp_path) for file in ("swerve.toml", "proxy.toml"))
    assert (proxy.policy.arms, proxy.tracing.endpoint, proxy.log.level) == (48, "http://collector:4318", "debug")
    assert (proxy.policy, proxy.tracing, proxy.limits, proxy.log) == (service.policy, service.tracing, service.limits, service.log)


def jobs_of(endpoint: dict[str, Any]) -> set[str]:
    return {one["replacement"] for one in endpoint["relabelings"] if one["targetLabel"] == "job"}


def test_prometheus_scrapes_by_a_name_that_is_answered(tmp_path):
    objects = made("full-values.yaml", "nameOverride=other")
    assert "ServiceMonitor/proxy" not in objects
    (endpoint,) = objects["ServiceMonitor"]["spec"]["endpoints"]
    assert endpoint["path"] in {route.path for route in ROUTES}
    (address,) = [one["replacement"] for one in endpoint["relabelings"] if one["targetLabel"] == "__address__"]
    host, port = address.split(":")
    assert host in configured(objects, "swerve.toml", tmp_path).server.hosts
    assert int(port) == objects["Service"]["spec"]["ports"][0]["port"]
    assert objects["ServiceMonitor"]["spec"]["selector"]["matchLabels"].items() <= objects["Service"]["metadata"]["labels"].items()
    assert jobs_of(endpoint) == {"swerve"} and 'up{job="swerve"}' in RULES


def test_prometheus_scrapes_every_proxy_at_the_port_of_its_metrics(tmp_path):
    sets = (
        "serviceMonitor.enabled=true",
        "serviceMonitor.keySecret.name=swerve-metrics",
        "serviceMonitor.labels.release=prometheus",
    )
    objects = made("proxy-values.yaml", *sets)
    monitor, service = objects["ServiceMonitor/proxy"], objects["Service/proxy"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert not monitor["spec"]["selector"]["matchLabels"].items() <= objects["Service"]["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["endpoints"]
    (port,) = [one for one in service["spec"]["ports"] if one["name"] == endpoint["port"]]
    _, container = pod_of(objects["Deployment/proxy"])
    (opened,) = [one["containerPort"] for one in container["ports"] if one["name"] == port["targetPort"]]
    assert configured(objects, "proxy.toml", tmp_path).proxy.metrics.endswith(f":{opened}")
    assert "__address__" not in {one["targetLabel"] for one in endpoint["relabelings"]}  # a name would reach one replica of several
    assert jobs_of(endpoint) == {"swerve-proxy"} and 'up{job="swerve-proxy"}' in RULES


def test_keys_of_decisions_come_from_a_secret():
    objects = made("least-values.yaml", "secrets.tokenKey=t", "secrets.queryKey=q")
    assert known_variables(" ".join(objects["Secret"]["stringData"])) == {"SWERVE_TOKEN_KEY", "SWERVE_QUERY_KEY"}
    _, container = pod_of(objects["StatefulSet"])
    assert container["envFrom"] == [{"secretRef": {"name": objects["Secret"]["metadata"]["name"]}}]
    theirs = made("full-values.yaml")
    assert "Secret" not in theirs
    assert pod_of(theirs["StatefulSet"])[1]["envFrom"] == [{"secretRef": {"name": "swerve-keys"}}]


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["apiKeys=null"], "apiKeys is empty"),
        (["proxy.enabled=true"], "proxy.upstream names the engine"),
        (["proxy.enabled=true", "proxy.upstream=http://e:9200"], "proxy.keySecret.name names a Secret"),
        (["serviceMonitor.enabled=true"], "serviceMonitor.keySecret.name names a Secret"),
        (["secrets.tokenKey=t"], "secrets.queryKey is needed"),
    ],
)
def test_values_that_cannot_work_are_refused_with_the_reason(sets, said):
    changes = [word for one in sets for word in ("--set", one)]
    done = helm("template", "try", str(CHART), "--values", str(CHART / "ci" / "least-values.yaml"), *changes)
    assert done.returncode != 0
    assert said in done.stderr


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("proxy.enable=true", "enable"),
        ("replicas=3", "replicas"),
        ("replicaCount=3", "replicaCount"),
        ("image.repo=registry.example.com/swerve", "repo"),
        ("config.polcy.arms=8", "polcy"),
        ("config.server.port=80", "port"),  # the chart sets it: it would be overwritten silently
        ("config.security.api_keys[0].name=a", "api_keys"),
        ("config.proxy.upstream=http://e:9200", "proxy"),  # a proxy inside the service would have no port
        ("proxy.config.upstream=http://e:9200", "upstream"),
        ("apiKeys[0].hash=sha256:…", "hash"),
        ("apiKeys[0].hash=null", "hash"),
        ("apiKeys[0].scope={rank}", "scope"),
        ("apiKeys[0].scopes={write}", "scopes"),
        ("apiKeys[0].rate=-1", "rate"),
        ("service.port=70000", "port"),
        ("service.type=clusterip", "type"),
        ("proxy.port=9281", "port"),  # that of its metrics
        ("proxy.upstream=opensearch:9200", "upstream"),
        ("proxy.upstream=http://me:secret@opensearch:9200", "upstream"),
        ("persistence.size=20GB", "size"),
        ("serviceMonitor.interval=15", "interval"),
        ("serviceMonitor.enabled=yes", "enabled"),
        ("env.a-b=1", "a-b"),
        ("terminationGracePeriodSeconds=0", "terminationGracePeriodSeconds"),
    ],
)
def test_misspelt_values_and_values_out_of_range_are_refused(change, named):
    done = helm("template", "try", str(CHART), "--values", str(CHART / "ci" / "least-values.yaml"), "--set", change)
    assert done.returncode != 0
    assert "values don't meet the specifications of the schema" in done.stderr
    assert named in done.stderr.split("schema", 1)[1]


def keys_of(value: Any, schema: dict[str, Any], where: str = "") -> None:
    """Fail where the values of the chart and its schema do not have the same keys."""
    if "properties" in schema and schema.get("additionalProperties") is False and where != "config":
        assert set(value) == set(schema["properties"]) - {"global", "claims"}, where
        for name, inner in value.items():
            keys_of(inner, schema["properties"][name], f"{where}.{name}".lstrip("."))


def test_the_schema_has_every_value_and_the_forms_of_the_configuration():
    schema = json.loads((CHART / "values.schema.json").read_text())
    keys_of(yaml.safe_load((CHART / "values.yaml").read_text()), schema)
    values = schema["properties"]
    assert set(values["config"]["properties"]) == set(Config.__struct_fields__) - {"proxy"}
    set_by_the_chart = {"upstream", "listen", "metrics", "service", "api_key_file", "authorization_file"}
    assert set(values["proxy"]["properties"]["config"]["propertyNames"]["enum"]) == set(Proxy.__struct_fields__) - set_by_the_chart
    assert values["proxy"]["properties"]["upstream"]["pattern"] == ADDRESS.replace(r"\Z", "$")
    key = values["apiKeys"]["items"]
    assert set(key["properties"]) == set(ApiKey.__struct_fields__)
    assert tuple(key["properties"]["scopes"]["items"]["enum"]) == SCOPES
    about = msgspec.json.schema(ApiKey)["$defs"]["ApiKey"]["properties"]
    assert (key["properties"]["hash"]["pattern"], key["properties"]["name"]["pattern"]) == (
        about["hash"]["pattern"].replace(r"\Z", "$"), about["name"]["pattern"].replace(r"\Z", "$"),
    )  # fmt: skip
    for name in ("rate", "burst"):
        assert {key["properties"][name][one] == about[name][one] for one in ("minimum", "maximum")} == {True}


@pytest.mark.skipif(not (shutil.which("kubectl") and shutil.which("jq")), reason="kubectl or jq is not installed")
def test_the_steps_of_the_page_make_secrets_and_a_configuration_that_is_right(tmp_path):
    """The commands of docs/deploy.md as they stand there, except that kubectl only prints what it would create."""
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    keys, check = re.findall(r"^```bash\n(.*?)^```", page, re.S | re.M)
    (values,) = re.findall(r"^```yaml\n(.*?)^```", page, re.S | re.M)
    tools = tmp_path / "tools"
    tools.mkdir()
    says = {
        "kubectl": f'exec {shutil.which("kubectl")} "$@" --dry-run=client -o json',
        "swerve": f'exec {sys.executable} -m swerve "$@"',
        "helm": f'exec {HELM} "$@"',
    }
    for name, line in says.items():
        (tools / name).write_text(f"#!/bin/sh\n{line}\n")
        (tools / name).chmod(0o755)
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    around = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "KUBECONFIG": os.devnull}

    def bash(script: str) -> str:
        command = ["bash", "-euo", "pipefail", "-c", script]
        done = subprocess.run(command, cwd=tmp_path, env=around, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    printed = bash(keys)
    made_keys = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in ("shop", "proxy", "metrics")}
    given = yaml.safe_load(values)
    lines = [json.loads(line) for line in printed.splitlines() if line.startswith('{"name"')]
    assert [(one["name"], one["scopes"]) for one in lines] == [(one["name"], one["scopes"]) for one in given["apiKeys"]]
    for name, named in (("proxy", given["proxy"]["keySecret"]["name"]), ("metrics", given["serviceMonitor"]["keySecret"]["name"])):
        (secret,) = [one for one in re.findall(r"^\{\n.*?^\}", printed, re.S | re.M) if f'"name": "{named}"' in one]
        kept = {at: base64.b64decode(value).decode() for at, value in json.loads(secret)["data"].items()}
        assert kept == {"key": made_keys[name]["key"]}
    (tmp_path / "values.yaml").write_text(values)
    refused = helm("template", "search", str(CHART), "--values", str(tmp_path / "values.yaml"))
    assert "hash" in refused.stderr  # a placeholder that was left is no key
    (tmp_path / "values.yaml").write_text(yaml.safe_dump({**given, "apiKeys": lines}))
    assert bash(check).count(": right.") == 2
    service, proxy = load(tmp_path / "swerve.toml"), load(tmp_path / "proxy.toml")
    assert (service.policy.arms, proxy.policy.arms, proxy.proxy.rules[0].window) == (32, 32, 32)


def test_a_changed_configuration_restarts_the_pod():
    before, after = made("least-values.yaml"), made("least-values.yaml", "config.policy.arms=16")
    assert before["StatefulSet"]["spec"]["template"]["metadata"] != after["StatefulSet"]["spec"]["template"]["metadata"]


def test_the_chart_is_of_this_version():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__
    assert chart["version"] == re.sub(r"\.dev\d+$", "-dev", __version__)  # Helm wants semantic versions
