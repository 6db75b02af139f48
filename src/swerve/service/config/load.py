"""The configuration of the service: read from TOML, the environment and the command line, and checked as a whole."""

from __future__ import annotations

import dataclasses
import ipaddress
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from swerve.core.contract import needs_events, reads_context, test_length
from swerve.core.errors import SpecError, SwerveError, shown
from swerve.core.loading import load_file
from swerve.core.spec import Spec, base_of, coerced, field_types, walk
from swerve.policies import BWC, Listed, Patient, Swerve, policy
from swerve.service.config.callers import SCOPES, ApiKey, Limits, Namespace, Security
from swerve.service.config.environment import Given, given, put
from swerve.service.config.fields import Field, FieldsError, Reader, described, hints
from swerve.service.config.learning import GIVEN, KINDS, SENSES, EventKind, Feedback, Signals
from swerve.service.config.proxying import Rule
from swerve.service.config.sections import Config, Log, Policy, Server, Store, sections
from swerve.service.config.toml import ConfigError, Document, Trouble, Where, dotted, read
from swerve.signals import COUNT, RAW, Senses
from swerve.store.shares import MOST_SHARES
from swerve.store.urls import check_url, shown_url

__all__ = [
    "ApiKey", "Config", "ConfigError", "Feedback", "Limits", "Log", "Namespace", "Policy", "Security", "Server", "Signals", "Store",
    "all_fields", "load", "load_traced", "plan_of", "policy_of", "resolve", "senses_of", "signal_names",
]  # fmt: skip

#: Features of a context at most: the kernels' bound.
FEATURES = 64
#: The largest port of `server.crew_address`: the workers of all shares listen above it.
LARGEST_CREW_PORT = 65_535 - MOST_SHARES + 1


def senses_fields() -> list[Field]:
    """Return the hyper-parameters of `Senses` as fields of [signals]."""
    out = []
    for field in dataclasses.fields(Senses):
        base, allowed = base_of(field_types(Senses)[field.name])
        noun = "a whole number" if base is int else "a number"
        out.append(Field("signals", field.name, field.default, f"{noun} {allowed or ''}".strip(), SENSES.get(field.name, "")))
    return out


def all_fields() -> Iterator[Field]:
    """Yield every field of a configuration file, section by section."""
    for section, cls in sections().items():
        for field in described(section, cls):
            if field.name == "tuning":
                yield from senses_fields()
            else:
                yield field
    yield from described("feedback.events.KIND", EventKind)
    yield from described("security.api_keys", ApiKey)
    yield from described("proxy.rules", Rule)
    yield from described("namespaces.NAME", Namespace)


def load(path: str | Path | None = None, overrides: Mapping[str, object] | None = None) -> Config:
    """Load the configuration from a file, the environment and `overrides` ({"server.port": 80}); later sources win.

    Without a path SWERVE_CONFIG names the file; without both, the defaults apply. Raises `ConfigError` with all mistakes.
    """
    return load_traced(path, overrides)[0]


def load_traced(path: str | Path | None = None, overrides: Mapping[str, object] | None = None) -> tuple[Config, Sources]:
    """Return the configuration as `load` does, and where its values come from."""
    chosen = path or os.environ.get("SWERVE_CONFIG")
    sources = Sources(read(Path(chosen)) if chosen else Document("", {}, {}), given(os.environ), overrides or {})
    return sources.resolve(), sources


def resolve(document: Document, overrides: Mapping[str, object] | None = None) -> Config:
    """Return the configuration of a parsed document, whatever the environment says: a recording or the demo has its own."""
    return Sources(document, given({}), overrides or {}).resolve()


class Sources:
    """The sources of a configuration: a document, the environment, options; later ones win."""

    def __init__(self, document: Document, environment: Given, overrides: Mapping[str, object]) -> None:
        self.document, self.environment = document, environment
        self.options: dict[Where, object] = {
            tuple(name.split(".")): value for name, value in overrides.items() if value is not None
        }

    def resolve(self) -> Config:
        """Return the configuration. Raises `ConfigError` with all mistakes."""
        table = dict(self.document.table)
        for values in (self.environment.values, self.options):
            for where, value in values.items():
                put(table, where, value)
        reader = Reader()
        config = combined(sectioned(table, reader), table, reader)
        troubles = [self._trouble(where, message) for where, message in reader.wrong]
        troubles += [Trouble(message) for message in self.environment.wrong]
        if troubles:
            raise ConfigError(self.document.name, troubles)
        return config

    def of(self, where: Where) -> str:
        """Say where the value of a setting comes from: an option, a variable, a line of the file, or `default`."""
        own = self._set_by(where)
        if own is None and self._in_file(where):
            own = f"{self.document.name}:{self.document.line(where)}"
        return ", ".join([*([own] if own else []), *self._set_inside(where)]) or "default"

    def _in_file(self, where: Where) -> bool:
        inside: Any = self.document.table
        for part in where:
            inside = inside.get(part) if isinstance(inside, dict) else None
        return inside is not None

    def _set_inside(self, where: Where) -> list[str]:
        """Return the variables that set something inside a table."""
        return [name for at, name in self.environment.variables.items() if at[: len(where)] == where and at != where]

    def _set_by(self, where: Where) -> str | None:
        """Return the variable that sets a value, or a table around it; "option" for an option; None for neither."""
        for length in range(len(where), 0, -1):
            if where[:length] in self.options:
                return "option"
            if where[:length] in self.environment.variables:
                return self.environment.variables[where[:length]]
        return None

    def _trouble(self, where: Where, message: str) -> Trouble:
        source = self._set_by(where)
        if source is None and not self._in_file(where):  # a table that variables alone have made
            source = next(iter(self._set_inside(where)), None)
        if source is None:
            return Trouble(message, self.document.line(where), dotted(where))
        more = ", which is not TOML" if where in self.environment.unreadable else ""
        return Trouble(message if source == "option" else f"{message} (from {source}{more})", None, dotted(where))


def sectioned(table: dict[str, Any], reader: Reader) -> Config:
    """Read a table section by section. Wrong fields have their defaults; the mistakes are in the reader."""
    known = sections()
    parts: dict[str, Any] = {}
    for name, part in reader.only(table, [*known, "namespaces"], ()).items():
        if name == "namespaces":
            if isinstance(part, dict):
                parts[name] = reader.value(hints(Config)[name], part, (name,))
            else:
                reader.refuse((name,), part, "a table [namespaces.NAME] for each namespace")
        elif name == "signals" and isinstance(part, dict):
            parts[name] = signals(part, reader)
        else:
            parts[name] = reader.section(known[name], part, (name,))
    return Config(**parts)


def signals(part: dict[str, Any], reader: Reader) -> Signals:
    """Read [signals]: its own fields and those of `Senses`."""
    types = field_types(Senses)
    own = [field.name for field in described("signals", Signals) if field.name != "tuning"]
    part = reader.only(part, [*own, *types], ("signals",))
    tuning: dict[str, Any] = {}
    for name in [name for name in part if name in types]:
        value = part.pop(name)
        try:
            tuning[name] = coerced("signals", name, types[name], value)
        except SpecError as error:
            reader.refuse(("signals", name), value, error.allowed)
    try:
        Senses(**tuning)
    except SpecError as error:
        reader.refuse(("signals", error.field), error.value, error.allowed)
    made: Signals = reader.section(Signals, part, ("signals",))
    return msgspec.structs.replace(made, tuning=tuning)


def combined(config: Config, table: dict[str, Any], reader: Reader) -> Config:
    """Check fields that depend on each other. A field that is wrong by itself is not checked again."""
    bad = {where[:2] for where, _ in reader.wrong}
    arms, candidates = config.policy.arms, config.limits.candidates
    if candidates > arms and not bad & {("policy", "arms"), ("limits", "candidates")}:
        limits = table.get("limits")
        if isinstance(limits, dict) and "candidates" in limits:
            reader.refuse(("limits", "candidates"), candidates, f"at most policy.arms = {arms}")
        config = msgspec.structs.replace(config, limits=msgspec.structs.replace(config.limits, candidates=arms))

    crew = config.server.crew_address
    if crew and ("server", "crew_address") not in bad and int(crew.rpartition(":")[2]) > LARGEST_CREW_PORT:
        reader.refuse(("server", "crew_address"), crew, f"an address with a port up to {LARGEST_CREW_PORT}")

    listed: dict[object, int] = {}
    for index, kind in enumerate(config.signals.use):
        if listed.setdefault(kind, index) != index:
            reader.wrong.append((("signals", "use", index), f"signals.use[{index}] = {kind!r} is there twice"))
    for name in config.signals.numbers:
        if name in KINDS:
            reader.wrong.append(
                (("signals", "numbers", name), f"signals.numbers.{name} needs another name: Swerve computes {name} itself")
            )
    if len(signal_names(config)) > FEATURES:
        count = len(signal_names(config))
        reader.wrong.append(
            (
                ("signals", "numbers"),
                f"signals.use and signals.numbers have {count} entries together; at most {FEATURES} are allowed",
            )
        )

    seen: set[str] = set()
    for index, key in enumerate(config.security.api_keys):
        where: Where = ("security", "api_keys", index)
        for what in (key.name, key.hash):
            if what in seen:
                reader.wrong.append((where, f"{dotted(where)} repeats {shown(what)}; each key must have its own name and hash"))
            seen.add(what)
        if not key.scopes:
            reader.refuse((*where, "scopes"), [], f"at least one of {', '.join(SCOPES)}")
        for at, name in enumerate(key.namespaces):
            if name and not {name, "*"} & set(config.namespaces):
                known = [*config.namespaces, "the empty text for requests without a namespace"]
                reader.refuse((*where, "namespaces", at), name, f"one of {', '.join(known)}; add [namespaces.{name}]")

    bursts: list[tuple[Where, float, int]] = [(("limits", "burst"), config.limits.rate, config.limits.burst)]
    for index, key in enumerate(config.security.api_keys):
        bursts.append((("security", "api_keys", index, "burst"), key.rate or config.limits.rate, key.burst))
    bursts += [(("namespaces", name, "burst"), space.rate, space.burst) for name, space in config.namespaces.items()]
    for where, rate, burst in bursts:
        if burst and not rate and where[:2] not in bad:
            reader.refuse(where, burst, "0 without a rate, because it would bound nothing: set rate beside it")

    for name, space in config.namespaces.items():
        for at, number in enumerate(space.numbers or ()):
            if number not in config.signals.numbers:
                known = list(config.signals.numbers)
                listed_numbers = f"one of {', '.join(known)}" if known else "a name of [signals.numbers], which has none"
                reader.refuse(("namespaces", name, "numbers", at), number, listed_numbers)

    named: set[str] = set()
    for at, rule in enumerate(config.proxy.rules):
        if rule is not None and rule.name in named:
            reader.wrong.append((("proxy", "rules", at), f"proxy.rules[{at}] repeats the name {shown(rule.name)}"))
        named |= {rule.name} if rule is not None else set()

    try:
        if ("store", "url") not in bad:
            check_url(config.store.url)
    except SwerveError as error:
        reader.wrong.append((("store", "url"), str(error)))
    try:
        if not bad & {("server", "host"), ("security", "api_keys")}:
            may_bind(config.server.host, config)
    except FieldsError as error:
        reader.wrong.append((error.where, str(error)))
    for index, path in enumerate(config.policy.load if ("policy", "load") not in bad else ()):
        try:
            load_file(Path(path), "policy.load")
        except SwerveError as error:
            bad.add(("policy", "load"))
            reader.wrong.append((("policy", "load", index), str(error)))
    for made in (policy_of, rival_of):
        try:
            if not any(where[0] in ("policy", "signals", "experiment") for where in bad):
                made(config)
        except FieldsError as error:
            reader.wrong.append((error.where, str(error)))
    return config


def signal_names(config: Config) -> tuple[str, ...]:
    """Return the names of the context's features, in order."""
    return (*config.signals.use, *config.signals.numbers)


def plan_of(config: Config) -> tuple[int, ...]:
    """Return the context's features as `swerve.signals.sense` takes them: kind | index << 8."""
    numbers = [(RAW if kind == "raw" else COUNT) | index << 8 for index, kind in enumerate(config.signals.numbers.values())]
    return (*(KINDS.index(kind) for kind in config.signals.use), *numbers)


def senses_of(config: Config) -> Senses:
    """Return the hyper-parameters of the signals."""
    tuning: dict[str, Any] = config.signals.tuning
    return Senses(**tuning)


def policy_of(config: Config) -> Spec:
    """Return the configured policy, with its test length and grace filled in."""
    return served(config, config.policy.spec, ("policy", "spec"), config.policy.test_length)


def rival_of(config: Config) -> Spec | None:
    """Return the policy of an experiment's control arm, with its grace filled in; None where that arm has the given order."""
    text = config.experiment.control
    return None if text == GIVEN else served(config, text, ("experiment", "control"), 0)


def served(config: Config, text: str, where: Where, length: int) -> Spec:
    """Return a policy that the text at `where` of the configuration names, for serving."""
    try:
        spec = policy(text, arms=config.policy.arms, slots=config.policy.slots)
    except SwerveError as error:
        why = str(error).removeprefix(f"policy = {text!r} is not allowed; ")
        raise FieldsError(where, f"{dotted(where)} = {shown(text)} is not allowed; {why}") from None
    told = [type(part).__name__ for part in walk(spec) if needs_events(part)]  # the last one is not just around another
    if told:
        message = (
            f"{dotted(where)} = {shown(text)} is not allowed; {told[-1]} must be told of every event, which a service does not know"
        )
        raise FieldsError(where, message)
    if length:
        testable = [part for part in walk(spec) if test_length.knows(part) and "length" in field_types(type(part))]
        if not testable:
            message = (
                f"policy.test_length = {length} is not allowed; {shown(text)} has no testable bandit: leave it out, or take bwc"
            )
            raise FieldsError(("policy", "test_length"), message)
        spec = rebuilt(spec, lambda part: {"length": length} if part in testable else {})
    spec = rebuilt(
        spec, lambda part: {"click_wait": config.policy.grace_seconds} if isinstance(part, BWC) and not part.click_wait else {}
    )
    if isinstance(spec, Swerve | Listed) and config.policy.grace_seconds:
        spec = Patient(spec, config.policy.grace_seconds)
    if reads_context(spec) and not signal_names(config):
        message = f"signals.use = [] is not allowed; the policy {shown(text)} reads contexts: name a signal or a number"
        raise FieldsError(("signals", "use"), message)
    return spec


def rebuilt(spec: Spec, changes: Callable[[Spec], dict[str, Any]]) -> Spec:
    """Return a spec with `changes(part)` applied to each spec inside it, innermost first."""
    inner = {name: getattr(spec, name) for name in field_types(type(spec))}
    made = {name: rebuilt(value, changes) for name, value in inner.items() if isinstance(value, Spec)}
    wanted = {**made, **changes(spec)}
    same = all(inner[name] is value for name, value in wanted.items())
    return spec if same else dataclasses.replace(spec, **wanted)  # type: ignore[type-var]


def loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def may_bind(host: str, config: Config) -> None:
    """Refuse an address that other machines can reach while there is no API key."""
    if not loopback(host) and not config.security.api_keys:
        raise FieldsError(
            ("server", "host"),
            f"server.host = {host!r} is not allowed without an API key: any machine on the network could rank and send clicks; "
            "make a key with `swerve keys new NAME` and put its output into the configuration, "
            "or stay on this machine with `swerve serve --host 127.0.0.1`",
        )


def as_table(config: Config) -> dict[str, Any]:
    """Return the configuration as the tables of a file, without the API keys."""
    tables: dict[str, Any] = msgspec.to_builtins(config)
    tables["security"].pop("api_keys", None)
    tables["signals"] |= tables["signals"].pop("tuning")
    spaces = tables["namespaces"].items()
    tables["namespaces"] = {name: {key: value for key, value in space.items() if value is not None} for name, space in spaces}
    return {name: {key: value for key, value in table.items() if value is not None} for name, table in tables.items()}


def recorded(config: Config) -> dict[str, Any]:
    """Return the tables for a recording: it is data, so that it names no files of code, and no password."""
    tables = as_table(config)
    tables["store"]["url"] = shown_url(config.store.url)
    del tables["policy"]["load"]
    return tables
