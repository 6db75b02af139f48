"""The configuration: defaults, errors with their lines, sources of values, and the policy that it names."""

from __future__ import annotations

import dataclasses

import pytest

from swerve import BWC, UCB1, Rectangle, Testable
from swerve.bandits import ExploreFirst
from swerve.detectors import GLR
from swerve.policies import Listed, Patient, Restarting, Swerve
from swerve.service.config.learning import KINDS, SENSES
from swerve.service.config.load import ConfigError, all_fields, load, plan_of, policy_of, senses_of, signal_names
from swerve.service.config.sections import Config, sections
from swerve.signals import ABANDONMENT, AGE, COUNT, NEW, RAW, REFORMULATION, VOLUME, Senses

HASH = "sha256:" + "0" * 64
KEY = f'[[security.api_keys]]\nname = "a"\nhash = "{HASH}"\n'


pytestmark = pytest.mark.usefixtures("no_variables")


def wrong(path: str | None, overrides: dict[str, object] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(path, overrides)
    return str(caught.value).split("\n")


def test_without_a_file_there_are_the_defaults(write):
    config = load()
    assert config == Config()
    assert load(write("")) == config
    assert (config.server.host, config.server.port, config.store.url) == ("127.0.0.1", 8350, "sqlite:///swerve.db")
    assert policy_of(config) == Patient(Listed(), click_wait=10.0)
    assert policy_of(load(write("[policy]\ngrace_seconds = 0"))) == Listed()
    assert policy_of(load(write("[policy]\nslots = 1"))) == Patient(Swerve(), click_wait=10.0)
    assert policy_of(load(write("[policy]\ngrace_seconds = 0\nslots = 1"))) == Swerve()
    assert senses_of(config) == Senses()
    assert config.feedback.window_seconds == 1800


def test_every_default_is_allowed_and_every_field_has_a_meaning(write):
    from swerve.cli.config import toml

    by_section: dict[str, list[str]] = {}
    for field in all_fields():
        assert field.meaning.endswith("."), field
        assert field.allowed, field
        if field.section in sections() and field.default is not None:
            by_section.setdefault(field.section, []).append(f"{field.name} = {toml(field.default)}")
    assert set(by_section) == set(sections())
    text = "\n".join(f"[{section}]\n" + "\n".join(lines) for section, lines in by_section.items())
    stated = load(write(text))
    assert dataclasses.asdict(senses_of(stated)) == dataclasses.asdict(Senses())
    assert stated.signals.tuning != {}
    assert Config(**{name: getattr(stated, name) for name in sections() if name != "signals"}) == Config()


def test_every_number_of_senses_is_explained_and_nothing_else():
    assert set(SENSES) == {field.name for field in dataclasses.fields(Senses)}


def test_all_mistakes_are_told_in_order_with_line_value_and_what_is_allowed(write):
    path = write(
        "[server]\nport = 70000\ndeadline_ms = 0\nports = 1\n"
        "[policy]\narms = -3\nseed = 1.5\nspec = 7\n"
        '[signals]\nuse = [\n "volume",\n "volumes",\n]\nlatch_hours = -1\nbaseline_hour = 3\ntuning = {}\n'
        '[signals.numbers]\n"news count" = "count"\nnews = "counts"\n'
        "[limits]\nbatch = nan\nquery_chars = true\n"
        f'[[security.api_keys]]\nname = "a"\nhash = "x"\n[[security.api_keys]]\nhash = "{HASH}"\n'
        '[log]\nlevel = "warn"\n[feedbacks]\nx = 1\n'
    )
    told = wrong(path)
    assert [line.split(": ")[0] for line in told] == [
        f"swerve.toml:{n}" for n in (2, 3, 4, 6, 7, 8, 12, 14, 15, 16, 18, 19, 21, 22, 25, 26, 29, 30)
    ]
    expected = [
        "swerve.toml:2: server.port = 70000 is not allowed; it must be a whole number in [0, 65535]",
        "swerve.toml:3: server.deadline_ms = 0 is not allowed; it must be a number in (0, 10000]",
        "swerve.toml:4: unknown key server.ports; did you mean 'port'? "
        "(known: host, port, hosts, origins, deadline_ms, drain_seconds, docs, workers, worker_ports, crew_address)",
        "swerve.toml:6: policy.arms = -3 is not allowed; it must be a whole number in [2, 64]",
        "swerve.toml:7: policy.seed = 1.5 is not allowed; it must be a whole number in [0, 9223372036854775807]",
        "swerve.toml:8: policy.spec = 7 is not allowed; it must be a text that is not empty",
        "swerve.toml:14: signals.latch_hours = -1 is not allowed; it must be > 0",
        "swerve.toml:21: limits.batch = nan is not allowed; it must be a whole number in [1, 100000]",
        "swerve.toml:22: limits.query_chars = True is not allowed; it must be a whole number in [1, 65536]",
        "swerve.toml:26: security.api_keys[1]: name is missing; it must be a name of up to 64 letters, digits, '_', '.' or '-'",
    ]
    assert [line for line in told if line in expected] == expected
    assert "did you mean 'volume'?" in told[6]
    assert "unknown key signals.baseline_hour; did you mean 'baseline_hours'?" in told[8]
    assert "unknown key signals.tuning" in told[9]
    assert "the name 'news count' in signals.numbers must be a name" in told[10]
    assert "did you mean 'count'?" in told[11]
    assert "`swerve keys new`" in told[14]
    assert "unknown key feedbacks; did you mean 'feedback'?" in told[17]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("server = 3", "1: server = 3 is not allowed; it must be a table: [server]"),
        ("limits = 3\n[policy]\narms = 8", "1: limits = 3 is not allowed; it must be a table: [limits]"),
        ("signals = []", "1: signals = [] is not allowed; it must be a table: [signals]"),
        ('[signals]\nuse = "volume"', "2: signals.use = 'volume' is not allowed; it must be a list in which each entry is one of"),
        ("[signals]\nnumbers = 3", "2: signals.numbers = 3 is not allowed; it must be a table [signals.numbers]"),
        ("[security]\napi_keys = [3]", "2: security.api_keys[0] = 3 is not allowed; it must be a table"),
        (
            "[signals]\nwindow_hours_low = 30",
            "2: signals.window_hours_low = 30.0 is not allowed; it must be ≤ window_hours_high = 24.0",
        ),
        ('[signals]\nuse = ["age",\n"age"]', "3: signals.use[1] = 'age' is there twice"),
        ('[signals.numbers]\nvolume = "raw"', "2: signals.numbers.volume needs another name: Swerve computes volume itself"),
        ("[limits]\ncandidates = 20\n[policy]\narms = 16", "2: limits.candidates = 20 is not allowed; it must be at most"),
        (KEY + KEY, "4: security.api_keys[1] repeats 'a'; each key must have its own name and hash"),
        (KEY + "scopes = []", "4: security.api_keys[0].scopes = [] is not allowed; it must be at least one of rank,"),
        ('[server]\nhost = "0.0.0.0"', "2: server.host = '0.0.0.0' is not allowed without an API key"),
        ('[store]\nurl = "mysql://x/y"', "2: store 'mysql://x/y' is not allowed: there is no engine 'mysql'"),
        ('[store]\nurl = "postgresql://me:secret@x"', "2: store 'postgresql://me:***@x' is not allowed; a store in"),
        ('[policy]\nspec = "bwcc"', "2: policy.spec = 'bwcc' is not allowed; unknown policy 'bwcc'; did you mean 'bwc'?"),
        ('[policy]\nspec = "bwc(length=0)"', "2: policy.spec = 'bwc(length=0)' is not allowed; Testable: length = 0 is"),
        ('[policy]\nspec = "Rectangle()"', "2: policy.spec = 'Rectangle()' is not allowed; Rectangle does not choose arms"),
        ('[policy]\nspec = "oracle-list"', "2: policy.spec = 'oracle-list' is not allowed; Oracle must be told of every event"),
        ("[policy]\ntest_length = 9", "2: policy.test_length = 9 is not allowed; 'swerve' has no testable bandit"),
        ("[signals]\nuse = []", "2: signals.use = [] is not allowed; the policy 'swerve' reads contexts"),
    ],
)  # fmt: skip
def test_what_no_single_range_excludes_is_told_with_its_line(write, text, line):
    told = [one for one in wrong(write(text)) if one.startswith(f"swerve.toml:{line}")]
    assert told, wrong(write(text))


@pytest.mark.parametrize("name", ["localhost:80", "http://a", "a b", "", "a/b", "-a"])
def test_a_host_is_a_name_without_a_port(write, name):
    told = wrong(write(f'[server]\nhosts = ["{name}"]\n'))
    assert told[0].endswith("it must be a name or an address without a port, or '*' for any")


@pytest.mark.parametrize("name", ["*", "a.example", "http://a.example/", "ftp://a", "null", "http://"])
def test_an_origin_is_a_scheme_and_a_name(write, name):
    assert "it must be an origin such as" in wrong(write(f'[server]\norigins = ["{name}"]\n'))[0]


def test_too_many_signals(write):
    names = "\n".join(f'n{i} = "raw"' for i in range(62))
    assert wrong(write(f"[signals.numbers]\n{names}")) == [
        "swerve.toml:1: signals.use and signals.numbers have 65 entries together; at most 64 are allowed"
    ]
    assert len(plan_of(load(write(f"[signals]\nuse = []\n[signals.numbers]\n{names}")))) == 62


def test_the_later_wins_default_file_environment_overrides(write, monkeypatch):
    path = write('[server]\nport = 1\nhost = "localhost"\n[store]\nurl = "sqlite:///a.db"')
    monkeypatch.setenv("SWERVE_CONFIG", path)
    assert load().server.port == 1
    monkeypatch.setenv("SWERVE__SERVER__PORT", "2")
    monkeypatch.setenv("SWERVE__STORE__URL", "sqlite:///b.db")
    assert (load().server.port, load().server.host, load().store.url) == (2, "localhost", "sqlite:///b.db")
    config = load(None, {"server.port": 3, "server.host": None, "log.level": "debug"})
    assert (config.server.port, config.server.host, config.log.level) == (3, "localhost", "debug")


def test_a_mistake_outside_the_file_has_no_line_but_a_source(write, monkeypatch):
    path = write("[server]\nport = 1")
    monkeypatch.setenv("SWERVE__SERVER__PORT", "abc")
    expected = (
        "server.port = 'abc' is not allowed; it must be a whole number in [0, 65535] (from SWERVE__SERVER__PORT, which is not TOML)"
    )
    assert wrong(path) == [expected]
    assert load(path, {"server.port": 5}).server.port == 5
    assert wrong(path, {"server.port": -5}) == ["server.port = -5 is not allowed; it must be a whole number in [0, 65535]"]


def test_fewer_arms_mean_fewer_candidates(write):
    assert load(write("[policy]\narms = 16")).limits.candidates == 16
    assert load(write("[policy]\narms = 16\n[limits]\ncandidates = 9")).limits.candidates == 9


def test_elsewhere_than_on_the_loopback_with_an_api_key(write):
    assert load(write(f'[server]\nhost = "0.0.0.0"\n{KEY}')).security.api_keys[0].scopes == (
        "rank",
        "feedback",
        "read",
        "operate",
        "signals",
    )


def test_signals_become_a_plan_in_the_order_of_the_file(write):
    path = write('[signals]\nuse = ["new", "volume"]\nlatch_hours = 6\n[signals.numbers]\nz = "count"\na = "raw"')
    config = load(path)
    assert signal_names(config) == ("new", "volume", "z", "a")
    assert plan_of(config) == (NEW, VOLUME, COUNT, RAW | 1 << 8)
    assert senses_of(config) == Senses(latch_hours=6)
    assert [KINDS.index(kind) for kind in KINDS] == [VOLUME, ABANDONMENT, REFORMULATION, AGE, NEW]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"spec": "bwc"}, BWC(Testable(UCB1()), Rectangle(), click_wait=10)),
        ({"spec": "bwc", "test_length": 50, "grace_seconds": 0}, BWC(Testable(UCB1(), length=50), Rectangle())),
        ({"spec": "bwc(length=70)"}, BWC(Testable(UCB1(), length=70), Rectangle(), click_wait=10)),
        (
            {"spec": "Restarting(BWC(ExploreFirst(UCB1()), Rectangle(), click_wait=3), GLR())", "test_length": 7},
            Restarting(BWC(ExploreFirst(UCB1(), length=7), Rectangle(), click_wait=3), GLR()),
        ),
        ({"spec": "ucb1", "grace_seconds": 5}, UCB1()),
    ],
)
def test_the_policy_with_its_test_length_and_grace(settings, expected):
    assert policy_of(load(None, {f"policy.{name}": value for name, value in settings.items()})) == expected


def test_a_policy_that_reads_no_contexts_needs_no_signals():
    assert plan_of(load(None, {"policy.spec": "ts", "signals.use": []})) == ()
