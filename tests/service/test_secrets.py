"""Secrets: made once, readable by their owner only, rotated without loss; API keys are stored as hashes."""

from __future__ import annotations

import base64
import json
import os
import stat
import threading

import pytest
from hypothesis import given, strategies as st

from swerve.service import secrets as module
from swerve.service.config.callers import Security
from swerve.service.config.fields import FieldsError
from swerve.service.config.load import loopback, may_bind
from swerve.service.config.sections import Config, Store
from swerve.service.secrets import (
    ApiKeys,
    Denied,
    Secrets,
    SecretsError,
    beside,
    create_file,
    decode_key,
    load_secrets,
    new_key,
    read_file,
    rotate,
    secrets_path,
)

A, B, C = bytes(range(32)), bytes(range(1, 33)), bytes(range(2, 66))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "swerve.db.secrets"


def test_the_first_start_makes_them_and_the_next_finds_them(path):
    made = load_secrets(path, {})
    assert load_secrets(path, {}) == made
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(made.token_keys) == 1
    assert len({*made.token_keys, made.query_key}) == 2
    assert all(len(key) == 32 for key in (*made.token_keys, made.query_key))
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert load_secrets(path.with_name("other"), {}) != made


def test_the_mode_does_not_depend_on_the_umask(path):
    before = os.umask(0)
    try:
        create_file(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_of_several_first_starts_one_makes_them_for_all(path):
    start, found = threading.Barrier(8), []

    def first():
        start.wait()
        found.append(create_file(path))

    threads = [threading.Thread(target=first) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert {one.query_key for one in found} == {read_file(path).query_key}
    assert len(list(path.parent.iterdir())) == 1


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_file_that_others_can_read_is_refused_with_the_command_that_helps(path, mode):
    load_secrets(path, {})
    path.chmod(mode)
    with pytest.raises(SecretsError, match=f"can be read by others .mode 0{mode:o}.; run: chmod 600 {path}"):
        load_secrets(path, {})
    path.chmod(0o400)
    load_secrets(path, {})


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", "{}", '{"token_keys": [], "query_key": "00"}', '{"token_keys": "00", "query_key": "00"}', "\xff"]
)
def test_a_damaged_file_is_refused_and_not_made_anew(path, text):
    path.write_text(text, encoding="latin-1")
    path.chmod(0o600)
    with pytest.raises(SecretsError, match="are not in the form in which Swerve writes them"):
        load_secrets(path, {})
    assert path.read_text(encoding="latin-1") == text


def test_a_short_key_in_the_file_is_refused_without_showing_it(path):
    path.write_text(json.dumps({"token_keys": ["abcdef"], "query_key": A.hex()}), encoding="utf-8")
    path.chmod(0o600)
    with pytest.raises(SecretsError, match=r"a token key in .* has 3 bytes; it must have 32 to 64") as caught:
        load_secrets(path, {})
    assert "abcdef" not in str(caught.value)


def test_a_folder_that_is_not_there_is_told(path):
    with pytest.raises(SecretsError, match="cannot be read or made: No such file"):
        load_secrets(path.parent / "nowhere" / "x", {})


def test_rotation_keeps_one_old_key_and_the_query_key(path):
    first = load_secrets(path, {})
    second = rotate(path)
    assert second.token_keys[1:] == first.token_keys
    assert second.query_key == first.query_key
    third = rotate(path)
    assert third.token_keys[1] == second.token_keys[0]
    assert first.token_keys[0] not in third.token_keys
    assert load_secrets(path, {}) == third
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(list(path.parent.iterdir())) == 1
    with pytest.raises(SecretsError, match=r"there are no secrets .* to rotate"):
        rotate(path.with_name("other"))


def test_the_environment_takes_the_place_of_the_file(path):
    names = {"SWERVE_TOKEN_KEY": A.hex(), "SWERVE_TOKEN_KEY_OLD": base64.b64encode(B).decode(), "SWERVE_QUERY_KEY": C.hex()}
    assert load_secrets(path, names) == Secrets((A, B), C)
    assert load_secrets(None, names) == Secrets((A, B), C)
    assert not path.exists()
    kept = load_secrets(path, {})
    assert load_secrets(path, {"SWERVE_QUERY_KEY": C.hex()}) == Secrets(kept.token_keys, C)
    assert load_secrets(path, {"SWERVE_TOKEN_KEY": A.hex()}) == Secrets((A,), kept.query_key)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ({"SWERVE_TOKEN_KEY_OLD": A.hex()}, "SWERVE_TOKEN_KEY_OLD is set without SWERVE_TOKEN_KEY"),
        ({"SWERVE_TOKEN_KEY": "secret!"}, "SWERVE_TOKEN_KEY cannot be read; it must be 32 to 64 random bytes"),
        ({"SWERVE_QUERY_KEY": A[:31].hex()}, "SWERVE_QUERY_KEY has 31 bytes; it must have 32 to 64"),
        ({"SWERVE_QUERY_KEY": bytes(65).hex()}, "SWERVE_QUERY_KEY has 65 bytes"),
        ({"SWERVE_QUERY_KEY": A.hex()}, "there is no file of secrets"),
    ],
)
def test_bad_variables_are_named_and_their_values_are_not(names, words):
    with pytest.raises(SecretsError, match=words) as caught:
        load_secrets(None, names)
    assert not any(text in str(caught.value) for text in names.values())


@given(st.binary(min_size=32, max_size=64))
def test_keys_are_read_as_hexadecimal_and_as_both_base64(key):
    for text in (key.hex(), key.hex().upper(), f" {key.hex()}\n"):
        assert decode_key("k", text) == key
    for text in (base64.b64encode(key).decode(), base64.urlsafe_b64encode(key).decode().rstrip("=")):
        if not set(text.lower()) <= set("0123456789abcdef"):
            assert decode_key("k", text) == key


def test_secrets_are_not_printed(path):
    made = load_secrets(path, {})
    for text in (repr(made), str(made), f"{made}", repr([made])):
        assert made.query_key.hex() not in text
        assert repr(made.query_key) not in text
        assert "1 token keys, a query key" in text


def test_where_they_lie():
    assert beside("sqlite:////var/x/swerve.db").as_posix() == "/var/x/swerve.db.secrets"
    assert secrets_path(Config()).as_posix() == "swerve.db.secrets"
    assert secrets_path(Config(store=Store(url="sqlite:///d/e.db"))).as_posix() == "d/e.db.secrets"
    assert secrets_path(Config(security=Security(secrets="/run/k"))).as_posix() == "/run/k"


# API keys


def test_a_key_is_good_for_its_scopes():
    shop, boss = new_key("shop", ("rank", "feedback")), new_key("boss")
    keys = ApiKeys([shop.entry, boss.entry])
    for _ in range(2):  # the second time the key is cached
        assert keys.check(shop.text, "rank") == "shop"
        assert keys.check(boss.text, "read") == "boss"
        with pytest.raises(Denied, match="'shop' has no scope 'read'; it has rank, feedback") as caught:
            keys.check(shop.text, "read")
        assert (caught.value.status, caught.value.code) == (403, "scope")


@pytest.mark.parametrize("change", [None, "", "x", "swerve_", "cut", "more", "case", "é", "\ud800", "hash"])
def test_anything_else_is_unknown(change):
    key = new_key("shop")
    made = {"cut": key.text[:-1], "more": key.text + "A", "case": key.text.swapcase(), "hash": key.entry.hash}
    keys = ApiKeys([key.entry])
    for _ in range(2):
        with pytest.raises(Denied) as caught:
            keys.check(made.get(change, change), "rank")
        assert caught.value.status == 401
        assert key.text not in str(caught.value)
    assert keys.known == {}


def test_every_hash_is_compared_in_constant_time_and_once(monkeypatch):
    calls = []
    real = module.hmac.compare_digest
    monkeypatch.setattr(module.hmac, "compare_digest", lambda a, b: calls.append(1) or real(a, b))
    made = [new_key(f"k{i}") for i in range(5)]
    keys = ApiKeys([one.entry for one in made])
    keys.check(made[0].text, "rank")
    assert len(calls) == 5
    keys.check(made[0].text, "rank")
    assert len(calls) == 5


def test_without_keys_nobody_is_asked():
    assert ApiKeys([]).check(None, "rank") == ""


def test_keys_are_random_and_only_their_hash_is_kept():
    keys = {new_key("a").text for _ in range(100)}
    assert len(keys) == 100
    key = new_key("a")
    assert key.text not in repr(key.entry)
    assert len(base64.urlsafe_b64decode(key.text.removeprefix("swerve_") + "=")) == 32


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("[::1]", True), ("localhost", True),
        ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("example.org", False),
        ("localhost.example.org", False), ("", False),
    ],
)  # fmt: skip
def test_elsewhere_only_with_a_key(host, local):
    assert loopback(host) is local
    if local:
        may_bind(host, Config())
    else:
        with pytest.raises(FieldsError, match=r"swerve keys new NAME.*swerve serve --host 127\.0\.0\.1"):
            may_bind(host, Config())
    may_bind(host, Config(security=Security(api_keys=(new_key("a").entry,))))
