"""`swerve keys`: its output fits into a configuration; secrets stay in their file."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib

import pytest
from click.testing import CliRunner

from swerve.cli import app
from swerve.core.errors import SwerveError
from swerve.service.config.load import load
from swerve.service.secrets import ApiKeys, load_secrets
from swerve.store import open_store


def invoke(*args: str) -> str:
    done = CliRunner().invoke(app, ["keys", *args], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_new_prints_a_key_and_the_table_that_accepts_it(tmp_path):
    text = invoke("new", "shop", "--scopes", "rank,feedback")
    (key,) = [line.strip() for line in text.splitlines() if line.strip().startswith("swerve_")]
    table = text[text.index("[[security.api_keys]]") :]
    assert key not in table
    (tmp_path / "swerve.toml").write_text(f'[server]\nhost = "0.0.0.0"\n{table}', encoding="utf-8")
    keys = ApiKeys(load(tmp_path / "swerve.toml").security.api_keys)
    assert keys.check(key, "feedback") == "shop"
    assert tomllib.loads(table)["security"]["api_keys"][0]["scopes"] == ["rank", "feedback"]


def test_new_as_json():
    made = json.loads(invoke("new", "a", "--json"))
    assert set(made) == {"key", "name", "hash", "scopes"}
    assert made["scopes"] == ["rank", "feedback", "read", "operate", "signals"]
    assert json.loads(invoke("new", "a", "--json"))["key"] != made["key"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("a b",), "NAME = 'a b' is not allowed; it must be a name"),
        (('a"\nscopes = []',), "is not allowed; it must be a name"),
        (("a\n",), "is not allowed; it must be a name"),
        (("a", "--scopes", "rank,feedbak"), "unknown scope 'feedbak'; did you mean 'feedback'?"),
        (("a", "--scopes", ""), "unknown scope ''"),
    ],
)
def test_new_refuses_what_the_configuration_would_refuse(args, words):
    with pytest.raises(SwerveError, match=words.replace("(", "\\(").replace("?", "\\?")):
        invoke("new", *args)


def test_rotate_by_store_or_by_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "swerve.db.secrets"
    first = load_secrets(path, {})
    text = invoke("rotate", "sqlite:///swerve.db")
    second = load_secrets(path, {})
    assert second.token_keys[1:] == first.token_keys
    text += invoke("rotate", str(path))
    third = load_secrets(path, {})
    assert third.token_keys[1] == second.token_keys[0]
    assert third.query_key == first.query_key
    assert "restart the service" in text
    for key in (*third.token_keys, *first.token_keys, third.query_key):
        assert key.hex() not in text
    with pytest.raises(SwerveError, match="there are no secrets"):
        invoke("rotate", "sqlite:///other.db")


def test_rotate_by_the_path_of_a_store(tmp_path):
    store = tmp_path / "swerve.db"
    open_store(f"sqlite:///{store}").close()
    path = tmp_path / "swerve.db.secrets"
    first = load_secrets(path, {})
    invoke("rotate", str(store))
    second = load_secrets(path, {})
    assert second.token_keys[1:] == first.token_keys
    store.unlink()  # secrets can be rotated without a store
    invoke("rotate", str(store))
    assert load_secrets(path, {}).token_keys[1] == second.token_keys[0]


@pytest.mark.parametrize("form", ["sqlite:///{}", "{}", "{}.secrets"])
def test_rotate_says_what_to_do_where_the_secrets_of_a_store_are_lost(tmp_path, form):
    store = tmp_path / "swerve.db"
    open_store(f"sqlite:///{store}").close()
    with pytest.raises(SwerveError) as caught:
        invoke("rotate", form.format(store))
    said = str(caught.value)
    assert f"there are no secrets {store}.secrets to rotate, but the store {store} is there" in said
    for words in ("from a backup", "start the service with --new-store", "SWERVE_TOKEN_KEY_OLD"):
        assert words in said
    assert not (tmp_path / "swerve.db.secrets").exists()


def test_without_the_packages_of_the_service_one_line_says_what_is_missing():
    code = (
        "import sys; sys.modules['msgspec'] = None; sys.argv = ['swerve', 'keys', 'new', 'a']; from swerve.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert done.stderr.strip() == "swerve: `swerve keys` needs the package msgspec; install Swerve with its extra `service`"


def test_a_key_with_a_rate_that_is_bound_to_namespaces(tmp_path):
    options = ["keys", "new", "toys", "--namespace", "toys", "--namespace", "", "--rate", "2.5", "--burst", "9"]
    printed = CliRunner().invoke(app, options, catch_exceptions=False).output
    table = "\n".join(line.strip() for line in printed.partition("starts:")[2].splitlines())
    (tmp_path / "swerve.toml").write_text(f"{table}\n[namespaces.toys]\n")
    (entry,) = load(tmp_path / "swerve.toml").security.api_keys
    assert (entry.namespaces, entry.rate, entry.burst) == (("toys", ""), 2.5, 9)
    with pytest.raises(SwerveError, match="--namespace 'a b'"):
        CliRunner().invoke(app, ["keys", "new", "toys", "--namespace", "a b"], catch_exceptions=False)
