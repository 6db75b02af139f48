"""Every setting by environment variable: names, values, what wins, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from swerve.cli.config import effective, toml
from swerve.service.config.environment import RENAMED, variable_of, variables
from swerve.service.config.load import ConfigError, all_fields, load, load_traced, resolve, senses_of
from swerve.service.config.sections import Config, sections
from swerve.service.config.toml import parse

HASH = "sha256:" + "0" * 64
KEY = f'[{{name = "a", hash = "{HASH}"}}]'
#: Values of settings whose form no rule derives, and those that must fit another setting.
SPECIAL = {
    "server.host": "localhost",
    "server.crew_address": "10.0.0.1:8351",
    "server.hosts": '["search.example.com", "*"]',
    "server.origins": '["https://shop.example.com"]',
    "store.url": "sqlite:///other.db",
    "policy.spec": "bwc(epsilon=0.2)",
    "policy.test_length": "0",  # the default policy has no test
    "policy.seed": "7",
    "policy.load": f'["{Path(__file__).with_name("own_policy.py")}"]',
    "signals.use": '["age", "new"]',
    "signals.baseline_rate_retention": "0.999",
    "signals.crossing_level": "0.6",
    "signals.numbers": '{news = "count"}',
    "feedback.events": "{cart = {weight = 0.5, window_seconds = 60}}",
    "ubi.clicks": '["buy"]',
    "ubi.forward": "http://127.0.0.1:9200",
    "ubi.first_position": "0",
    "experiment.name": "spring",
    "experiment.salt": "pepper",
    "security.api_keys": KEY,
    "security.secrets": "/run/secrets/swerve",
    "experiment.control": "ts",
    "proxy.listen": "127.0.0.1:0",
    "proxy.metrics": "127.0.0.1:9281",
    "proxy.upstream": "http://127.0.0.1:9200",
    "proxy.service": "http://127.0.0.1:1234",
    "proxy.api_key_file": "/run/secrets/key",
    "proxy.authorization_file": "/run/secrets/engine",
    "proxy.ca_file": "/etc/ca.pem",
    "proxy.host_header": "search",
    "proxy.hosts": '["search"]',
    "proxy.rules": '[{name = "shop", indices = ["products-*"], where = {"a.b" = "c"}}]',
    "tracing.endpoint": "http://127.0.0.1:4318",
}


pytestmark = pytest.mark.usefixtures("no_variables")


def wrong(path: str | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(path)
    return str(caught.value).split("\n")


def another(field) -> str:
    """Return an allowed value of a setting that is not its default, as text."""
    name = f"{field.section}.{field.name}"
    if name in SPECIAL:
        return SPECIAL[name]
    if isinstance(field.default, bool):
        return toml(not field.default)
    if field.allowed.startswith("one of "):
        return next(word for word in field.allowed.removeprefix("one of ").split(", ") if word != field.default)
    assert isinstance(field.default, int | float), f"{name}: the test needs a value in SPECIAL"
    bounds = re.search(r"[\[(]([\d.]+), ([\d.]+)[\])]$", field.allowed)
    if bounds is None:  # > 0, ≥ 1 and the like
        return toml(field.default * 1.25) if isinstance(field.default, float) else toml(field.default + 1)
    low, high = (type(field.default)(float(bound)) for bound in bounds.groups())
    between = (field.default + low) / 2 if field.default > low else low + (high - low) / 4
    return toml(int(between) if isinstance(field.default, int) else between)


FIELDS = [field for field in all_fields() if field.section in sections()]


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: f"{field.section}.{field.name}")
def test_every_setting_of_every_section_can_be_set(field, monkeypatch, write):
    text, variable = another(field), variable_of(field.section, field.name)
    monkeypatch.setenv(variable, text)
    if field.name == "burst":  # refused without a rate
        monkeypatch.setenv("SWERVE__LIMITS__RATE", "5.0")
    config, sources = load_traced()
    set_, default = effective(config)[field.section][field.name], effective(Config())[field.section][field.name]
    if field.name == "test_length":
        monkeypatch.setenv("SWERVE__POLICY__SPEC", "bwc")
        monkeypatch.setenv(variable, "500")
        set_ = load().policy.test_length
    assert set_ != default
    assert sources.of((field.section, field.name)) == variable
    monkeypatch.delenv(variable)
    by_file = write(f"[{field.section}]\n{field.name} = {toml(text) if isinstance(set_, str) else text}\n")
    if field.name != "test_length":
        assert effective(load(by_file)) == effective(config)
    assert variable in set(variables())


def test_all_settings_at_once_and_the_list_of_variables_is_complete(monkeypatch):
    for field in FIELDS:
        monkeypatch.setenv(variable_of(field.section, field.name), another(field))
    monkeypatch.setenv("SWERVE__NAMESPACES", "{shop = {rate = 5.0}}")
    assert load().namespaces["shop"].rate == 5.0
    assert set(variables()) == {variable_of(field.section, field.name) for field in FIELDS} | {"SWERVE__NAMESPACES"}


def test_tables_with_names_of_ones_own(monkeypatch, write):
    path = write(
        '[signals.numbers]\nnews = "raw"\n[namespaces.shop]\nrate = 1.0\nburst = 3\n[feedback.events.cart]\nweight = 0.5\n'
    )
    for variable, text in {
        "SWERVE__FEEDBACK__EVENTS__cart__WINDOW_SECONDS": "60",
        "SWERVE__FEEDBACK__EVENTS__buy": "{weight = 1.0}",
        "SWERVE__FEEDBACK__EVENTS__buy__WINDOW_SECONDS": "90.5",
        "SWERVE__SIGNALS__NUMBERS__Stock": "count",
        "SWERVE__NAMESPACES__shop__RATE": "9",
        "SWERVE__NAMESPACES__shop-b__NUMBERS": '["news"]',
    }.items():
        monkeypatch.setenv(variable, text)
    config = load(path)
    assert msgspec.to_builtins(config.feedback.events) == {
        "cart": {"weight": 0.5, "window_seconds": 60.0},
        "buy": {"weight": 1.0, "window_seconds": 90.5},
    }
    assert config.signals.numbers == {"news": "raw", "Stock": "count"}
    assert (config.namespaces["shop"].rate, config.namespaces["shop"].burst) == (9.0, 3)
    assert config.namespaces["shop-b"].numbers == ("news",)
    monkeypatch.setenv("SWERVE__NAMESPACES", '{"*" = {}}')  # the table as a whole: that of the file is gone
    assert set(load(path).namespaces) == {"*", "shop", "shop-b"} and load(path).namespaces["shop"].burst == 0


def test_names_of_sections_and_fields_in_any_case_and_texts_as_they_are(monkeypatch):
    monkeypatch.setenv("SWERVE__store__url", "sqlite:///a b.db")
    monkeypatch.setenv("SWERVE__EXPERIMENT__SALT", '"quoted" # and more')
    monkeypatch.setenv("SWERVE__Log__Format", "text")
    assert load().store.url == "sqlite:///a b.db"
    assert load().experiment.salt == '"quoted" # and more'
    monkeypatch.setenv("SWERVE__STORE__URL", "sqlite:///b.db")
    assert wrong() == ["SWERVE__STORE__URL and SWERVE__store__url set the same: store.url"]


@pytest.mark.parametrize("variable", ["SWERVE_POLICY__ARMS", "swerve__policy__arms", "swerve_policy__arms"])
def test_a_slip_of_the_prefix_is_told(variable, monkeypatch):
    monkeypatch.setenv(variable, "8")
    assert wrong() == [f"{variable} sets nothing; SWERVE__POLICY__ARMS does"]


@pytest.mark.parametrize(
    ("variable", "told"),
    [
        ("SWERVE__STORE__ULR", "; did you mean 'SWERVE__STORE__URL'?"),
        ("SWERVE__STOER__URL", "; did you mean 'SWERVE__STORE__URL'?"),
        ("SWERVE__SERVER_PORT", "; did you mean 'SWERVE__SERVER__PORT'?"),
        ("SWERVE__", ""),
        ("SWERVE__SIGNALS__TUNING", ""),
        ("SWERVE__NAMESPACES__SHOP__RATES", "; did you mean 'SWERVE__NAMESPACES__SHOP__RATE'?"),
        ("SWERVE__SERVER__PORT__X", "; SWERVE__SERVER__PORT sets server.port as a whole, as TOML"),
        (
            "SWERVE__SECURITY__API_KEYS__0__NAME",
            "; SWERVE__SECURITY__API_KEYS sets security.api_keys as a whole, as TOML",
        ),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(variable, told, monkeypatch):
    monkeypatch.setenv(variable, "1")
    assert len(wrong()) == 1
    assert wrong()[0].startswith(f"unknown variable {variable}{told}")


@pytest.mark.parametrize(
    ("variable", "text", "told"),
    [
        ("SWERVE__POLICY__ARMS", "-3", "policy.arms = -3 is not allowed; it must be a whole number in [2, 64] (from "),
        (
            "SWERVE__SERVER__CREW_ADDRESS",
            "10.0.0.1",
            "server.crew_address = '10.0.0.1' is not allowed; it must be empty, or an address",
        ),
        (
            "SWERVE__SERVER__CREW_ADDRESS",
            "a:65500",
            "server.crew_address = 'a:65500' is not allowed; it must be an address with a port",
        ),
        ("SWERVE__SERVER__DOCS", "yes", "server.docs = 'yes' is not allowed; it must be true or false (from "),
        ("SWERVE__SERVER__DOCS", "", "server.docs = '' is not allowed; it must be true or false (from "),
        ("SWERVE__SERVER__PORT", "1\nx = 2", "server.port = '1\\nx = 2' is not allowed"),
        ("SWERVE__LOG__LEVEL", "warn", "log.level = 'warn' is not allowed; it must be one of debug, info, warning, error; did you"),
        ("SWERVE__SERVER__HOSTS", "a,b", "server.hosts = 'a,b' is not allowed; it must be a list in which"),
        ("SWERVE__SERVER__HOSTS", '["a b"]', "server.hosts[0] = 'a b' is not allowed; it must be a name or an address"),
        ("SWERVE__SIGNALS__LATCH_HOURS", "-1", "signals.latch_hours = -1 is not allowed; it must be > 0 (from "),
        ("SWERVE__SECURITY__API_KEYS", '[{name = "a"}]', "security.api_keys[0]: hash is missing"),
        ("SWERVE__NAMESPACES__a b__RATE", "1", "the name 'a b' in namespaces must be a name"),
        ("SWERVE__SERVER", "{ports = 1}", "unknown key server.ports; did you mean 'port'?"),
        ("SWERVE__STORE__URL", "mysql://u:p@x/y", "store 'mysql://"),
        ("SWERVE__POLICY__SPEC", "bwcc", "policy.spec = 'bwcc' is not allowed; unknown policy 'bwcc'; did you mean 'bwc'?"),
    ],
)
def test_a_wrong_value_names_its_variable_and_not_a_line(variable, text, told, monkeypatch, write):
    monkeypatch.setenv(variable, text)
    lines = wrong(write("[server]\ndeadline_ms = 30.0\n"))
    assert len(lines) == 1
    assert lines[0].startswith(told)
    assert f"(from {variable}" in lines[0]


def test_mistakes_of_the_file_keep_their_lines_beside_those_of_variables(monkeypatch, write):
    monkeypatch.setenv("SWERVE__SERVER__PORT", "70000")
    assert wrong(write("[server]\nports = 1\nport = -1\ndeadline_ms = 0\n")) == [
        "swerve.toml:2: unknown key server.ports; did you mean 'port'? "
        "(known: host, port, hosts, origins, deadline_ms, drain_seconds, docs, workers, worker_ports, crew_address)",
        "swerve.toml:4: server.deadline_ms = 0 is not allowed; it must be a number in (0, 10000]",
        "server.port = 70000 is not allowed; it must be a whole number in [0, 65535] (from SWERVE__SERVER__PORT)",
    ]
    assert wrong(write("server = 3\n")) == ["swerve.toml:1: server = 3 is not allowed; it must be a table: [server]"]


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_the_names_of_version_0_1_are_refused_with_the_new_ones(old, new, monkeypatch):
    monkeypatch.setenv(old, "1")
    assert wrong() == [f"{old} is not used any more; set {new}"]


def test_what_kubernetes_sets_beside_a_service_named_swerve_is_left_alone(monkeypatch):
    for name, text in {
        "SWERVE_PORT": "tcp://10.0.0.1:8350",
        "SWERVE_SERVICE_HOST": "10.0.0.1",
        "SWERVE_PORT_8350_TCP": "tcp://x",
    }.items():
        monkeypatch.setenv(name, text)
    assert load() == Config()


def test_a_recording_and_the_demo_have_their_own_settings_whatever_the_environment_says(monkeypatch):
    monkeypatch.setenv("SWERVE__SIGNALS__LATCH_HOURS", "3")
    monkeypatch.setenv("SWERVE__UNKNOWN", "3")
    assert senses_of(resolve(parse("[signals]\nlatch_hours = 6", "recorded"))).latch_hours == 6
