"""Addresses of stores in PostgreSQL, and what needs no server: passwords stay hidden, the client library is imported late."""

from __future__ import annotations

import subprocess
import sys

import pytest

from swerve.core.errors import SwerveError
from swerve.store.postgresql_address import Address, address_of
from swerve.store.postgresql_owner import Holder, lock_key
from swerve.store.urls import check_url, open_store, refuse_server, server_of, shown_url, store_exists, store_path, store_url


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("postgresql://", "must be postgresql://user@host:port/database"),
        ("postgresql://localhost", "must be postgresql://user@host:port/database"),
        ("postgresql://localhost/", "must be postgresql://user@host:port/database"),
        ("postgresql://localhost/a/b", "must be postgresql://"),
        ("postgresql://localhost/a#b", "must be postgresql://"),
        ("postgresql://localhost/a?schema=Shop", "schema must be one name of at most 63 lower-case letters"),
        ("postgresql://localhost/a?schema=a;b", "schema must be one name"),
        (f"postgresql://localhost/a?schema={'a' * 64}", "schema must be one name"),
        ("postgresql://localhost/a?schema=a&schema=b", "schema must be one name"),
        ("postgresql://me:secret@localhost/a/b", r"me:\*\*\*@localhost"),
        ("postgres://localhost/a", r"there is no engine 'postgres'; did you mean 'postgresql'\?"),
    ],
)
def test_an_address_that_names_no_store_is_refused(address, said):
    for call in (check_url, open_store):
        with pytest.raises(SwerveError, match=said) as caught:
            call(address)
        assert "secret" not in str(caught.value)


def test_the_rest_of_an_address_is_for_libpq():
    several = "postgresql://me@one:5432,two:5433/search?target_session_attrs=read-write&schema=shop&options=-c%20jit%3Doff"
    found = address_of(several)
    assert found.schema == "shop" and found.shown == several
    assert found.libpq == "postgresql://me@one:5432,two:5433/search?target_session_attrs=read-write&options=-c%20jit%3Doff"
    assert address_of("postgresql:///search?host=/run/pg").schema == "swerve"


@pytest.mark.parametrize(
    ("last", "ports", "order"),
    [
        (None, ["1", "2"], {}),
        (("two", "2"), ["1", "2"], {"host": "two,one", "port": "2,1"}),
        (("two", "9"), ["1", "2"], {"host": "one,two", "port": "1,2"}),
        (("two", "5432"), [""], {"host": "two,one", "port": ","}),
        (("two", "7"), ["7"], {"host": "two,one", "port": "7,7"}),
        (("two", "7"), ["7", "7", "7"], {}),  # libpq says what is wrong
    ],
)
def test_of_several_servers_the_one_that_answered_last_is_asked_first(last, ports, order):
    address = Address("", "shop", "", last=last)
    assert address.asked(["one", "two"], ports) == order


@pytest.mark.parametrize("hidden", ["me:sec@ret@db", "me:secret@db", ":secret@db"])
def test_a_password_is_hidden(hidden):
    assert "ret" not in shown_url(f"postgresql://{hidden}/search?password=secret&sslmode=require")
    assert shown_url("sqlite:///a:b@c.db") == "sqlite:///a:b@c.db"


def test_each_store_has_a_lock_of_its_own():
    keys = {lock_key(Address("", name, "")) for name in ("swerve", "shop", "shop2")}
    assert len(keys) == 3 and all(-(1 << 63) <= key < 1 << 63 for key in keys)
    assert str(Holder(1, "swerve owner 77@db1", "now", None)) == "process 77 on db1 since now"
    assert str(Holder(1, "", "now", None)) == "process ? on another machine since now"


def test_what_is_for_files_says_so():
    url = "postgresql://me:secret@db/search"
    assert store_url(url) == url and server_of(url) is not None and server_of("state/swerve.db") is None
    with pytest.raises(SwerveError, match="it is no file") as caught:
        store_path(url)
    assert "secret" not in str(caught.value)
    with pytest.raises(SwerveError, match=r"`swerve backup` is for stores in files; .* use pg_dump or pg_basebackup"):
        refuse_server(url, "backup")
    refuse_server("swerve.db", "backup")


def test_a_file_that_is_not_there_is_not_begun_where_its_secrets_are(tmp_path):
    url = f"sqlite:///{tmp_path}/swerve.db"
    assert not store_exists(url)
    with pytest.raises(SwerveError, match="is missing, but its secrets are there"):
        open_store(url, begin=False)
    open_store(url).close()
    assert store_exists(url)
    open_store(url, begin=False).close()


def alone(source: str, *absent: str) -> subprocess.CompletedProcess[str]:
    """Run a script for which these modules do not exist."""
    blocked = f"import sys; sys.modules.update(dict.fromkeys({absent!r}))\n"
    return subprocess.run([sys.executable, "-c", blocked + source], capture_output=True, text=True, timeout=60, check=False)


def test_the_client_library_is_imported_for_such_an_address_only(tmp_path):
    source = f"""
from swerve.core.errors import SwerveError
from swerve.store import open_store
open_store("sqlite:///{tmp_path}/swerve.db").close()
assert sys.modules.get("psycopg") is None
try:
    open_store("postgresql://localhost/search")
except SwerveError as error:
    print(error)
"""
    done = alone(source, "psycopg")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "a store in PostgreSQL needs the package psycopg; install Swerve with its extra `postgresql`\n"


def test_errors_have_the_kinds_of_the_protocol():
    errors = pytest.importorskip("psycopg").errors
    from swerve.store.postgresql_link import translated

    address = address_of("postgresql://me:secret@db/search")
    kinds = {
        "full": ["DiskFull"], "slow": ["QueryCanceled"], "locked": ["LockNotAvailable", "DeadlockDetected"],
        "corrupt": ["DataCorrupted", "IndexCorrupted"],
        "gone": [
            "UndefinedTable", "AdminShutdown", "CannotConnectNow", "ConnectionFailure", "ReadOnlySqlTransaction",
            "IdleInTransactionSessionTimeout", "OperationalError",
        ],
        "io": ["InsufficientPrivilege", "InternalError_", "IoError", "TooManyConnections"],
    }  # fmt: skip
    for error, kind in ((getattr(errors, name), kind) for kind, names in kinds.items() for name in names):
        found = translated(error("what\nit says"), address, uncertain=True)
        assert (found.kind, found.uncertain) == (kind, True), error
        assert "me:***@db/search: what it says" in str(found)
