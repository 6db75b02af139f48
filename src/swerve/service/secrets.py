"""Secrets: the keys that sign tokens and hide queries, and the API keys of callers.

Token keys and the query key come from a file of mode 0600, made at the first start, or from the environment. They are never
printed. The configuration holds hashes of API keys only.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
import secrets as randomness
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from swerve.core.errors import SwerveError
from swerve.service.config.callers import SCOPES, ApiKey, Scope
from swerve.service.config.sections import Config
from swerve.store.urls import server_of, store_path

#: Bytes of a new key, and of the longest key that BLAKE2b takes.
KEY, LONGEST = 32, 64
#: Prefix of every API key, so that people and secret scanners recognise one.
PREFIX = "swerve_"


#: Bytes of the query key's fingerprint: enough to tell keys apart, too few to help anybody guess one.
FINGERPRINT = 8
#: Random bytes in the name of a temporary file, so that two processes never share one.
PART_NAME = 8
#: Bytes that are read of a secrets file: a valid one is far smaller.
MOST_FILE = 65_536


class SecretsError(SwerveError):
    """Secrets that are missing, unreadable, or readable by others."""


class Denied(SwerveError):  # noqa: N818 - it names what happened to the caller
    """The caller's API key is missing or unknown (401), or lacks the scope (403)."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


@dataclass(frozen=True, slots=True, repr=False)
class Secrets:
    """Token keys, the newest first, and the query key. Changing the query key loses all state: rows are found by its hashes."""

    token_keys: tuple[bytes, ...]
    query_key: bytes

    def fingerprint(self) -> bytes:
        """Return the hash by which a store recognises its query key. It does not reveal the key."""
        return hashlib.blake2b(b"", key=self.query_key, digest_size=FINGERPRINT, person=b"swerve owner").digest()

    def __repr__(self) -> str:
        return f"Secrets({len(self.token_keys)} token keys, a query key)"


def decode_key(name: str, text: str) -> bytes:
    """Decode a key from hexadecimal or base64. Errors have the name of the key and never its value."""
    text = text.strip()
    try:
        if len(text) % 2 == 0 and set(text.lower()) <= set("0123456789abcdef"):
            key = bytes.fromhex(text)
        else:
            plain = text.rstrip("=").translate(str.maketrans("-_", "+/"))
            key = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise SecretsError(f"{name} cannot be read; it must be {KEY} to {LONGEST} random bytes, as hexadecimal or base64") from None
    if not KEY <= len(key) <= LONGEST:
        raise SecretsError(f"{name} has {len(key)} bytes; it must have {KEY} to {LONGEST}, as hexadecimal or base64")
    return key


def secrets_path(config: Config) -> Path | None:
    """Return the path of the secrets: the configured one, else beside the database; None where there is neither."""
    return Path(config.security.secrets) if config.security.secrets else beside(config.store.url)


def beside(store_url: str) -> Path | None:
    """Return the path of the secrets file beside a store; None for one on a server.

    >>> str(beside("sqlite:///state/swerve.db")), beside("postgresql://db/search")
    ('state/swerve.db.secrets', None)
    """
    if server_of(store_url) is not None:
        return None
    database = store_path(store_url)
    path = database.with_name(f"{database.name}.secrets")
    if database.is_symlink() and not path.exists():  # like log and lock, it may be beside the link's target
        path = database.resolve().with_name(f"{database.resolve().name}.secrets")
    return path


def are_there(path: Path | None, store_url: str) -> bool:
    """Return whether the secrets of a store are there: those of a store that was there before, or an operator has prepared them."""
    lying = beside(store_url)
    if lying is not None:
        return lying.exists()
    return bool(os.environ.get("SWERVE_QUERY_KEY")) or (path is not None and path.exists())


def load_secrets(path: Path | None, environ: Mapping[str, str] | None = None, *, make: bool = True) -> Secrets:
    """Return the secrets of the environment and, for keys that are missing there, of the file. Makes the file if `make` allows."""
    environ = os.environ if environ is None else environ
    new, old, query = (environ.get(name, "") for name in ("SWERVE_TOKEN_KEY", "SWERVE_TOKEN_KEY_OLD", "SWERVE_QUERY_KEY"))
    if old and not new:
        raise SecretsError("SWERVE_TOKEN_KEY_OLD is set without SWERVE_TOKEN_KEY; set both, or neither")
    tokens = [(name, text) for name, text in (("SWERVE_TOKEN_KEY", new), ("SWERVE_TOKEN_KEY_OLD", old)) if text]
    token_keys = tuple(decode_key(name, text) for name, text in tokens)
    query_key = decode_key("SWERVE_QUERY_KEY", query) if query else b""
    if token_keys and query_key:
        return Secrets(token_keys, query_key)
    if path is None:
        raise SecretsError(
            "there is no file of secrets beside a store on a server: name one (security.secrets, or --secrets), or set "
            "SWERVE_TOKEN_KEY and SWERVE_QUERY_KEY"
        )
    if not make and not path.exists():
        raise SecretsError(
            f"the store has queries, but their secrets {path} are not there: with new secrets no query could be found; restore the "
            "file from a backup, set SWERVE_TOKEN_KEY and SWERVE_QUERY_KEY, or move the store away to start a new one"
        )
    try:
        kept = read_file(path) if path.exists() else create_file(path)
    except OSError as error:
        raise SecretsError(f"the secrets {path} cannot be read or made: {error.strerror or error}") from None
    return Secrets(token_keys or kept.token_keys, query_key or kept.query_key)


def read_file(path: Path) -> Secrets:
    """Read a secrets file; refuses one that other users can read."""
    with path.open("rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            raise SecretsError(f"the secrets {path} are not a plain file")
        if mode & 0o077:
            raise SecretsError(f"the secrets {path} can be read by others (mode {stat.S_IMODE(mode):04o}); run: chmod 600 {path}")
        data = file.read(MOST_FILE)
    try:
        kept = json.loads(data)
        tokens, query = kept["token_keys"], kept["query_key"]
        if not isinstance(tokens, list) or not 1 <= len(tokens) <= 2 or not isinstance(query, str):
            raise ValueError
        token_keys = tuple(decode_key(f"a token key in {path}", str(text)) for text in tokens)
        return Secrets(token_keys, decode_key(f"the query key in {path}", query))
    except SecretsError:
        raise
    except (ValueError, KeyError, TypeError):
        raise SecretsError(
            f"the secrets {path} are not in the form in which Swerve writes them; restore the file from a backup "
            "(without the file new keys are made, and a new query key loses the state)"
        ) from None


def create_file(path: Path) -> Secrets:
    """Make a secrets file. If another process has made it meanwhile, read that one."""
    made = Secrets((randomness.token_bytes(KEY),), randomness.token_bytes(KEY))
    part = write_part(path, made)
    try:
        os.link(part, path)  # atomic, and never replaces an existing file
    except FileExistsError:
        return read_file(path)
    finally:
        part.unlink()
    sync_folder(path.parent)
    return made


def put_back(path: Path, kept: Secrets) -> None:
    """Write the secrets file again if it has been removed: without it the next start could read no query."""
    if not path.exists():
        part = write_part(path, kept)
        part.replace(path)
        sync_folder(path.parent)


def rotate(path: Path) -> Secrets:
    """Add a new token key and keep the newest of the old ones. The query key stays."""
    if not path.exists():
        raise SecretsError(f"there are no secrets {path} to rotate; the first start of the service makes them")
    kept = read_file(path)
    made = Secrets((randomness.token_bytes(KEY), kept.token_keys[0]), kept.query_key)
    part = write_part(path, made)
    part.replace(path)
    sync_folder(path.parent)
    return made


def write_part(path: Path, made: Secrets) -> Path:
    """Write secrets to a temporary file beside `path`, durably, and return its path."""
    part = path.with_name(f"{path.name}.{randomness.token_hex(PART_NAME)}")
    data = {"token_keys": [key.hex() for key in made.token_keys], "query_key": made.query_key.hex()}
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        json.dump(data, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    return part


def sync_folder(folder: Path) -> None:
    """Make new names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# API keys ------------------------------------------------------------------------------------------------------------------------


class NewKey(NamedTuple):
    """An API key, shown once, and its entry for the configuration."""

    text: str
    entry: ApiKey


def digest_of(text: str) -> bytes:
    """Return the hash of an API key.

    Plain SHA-256: slow hashes protect passwords that people choose, and a key of 256 random bits cannot be guessed.
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def new_key(name: str, scopes: Sequence[Scope] = SCOPES) -> NewKey:
    """Make a random API key."""
    text = PREFIX + randomness.token_urlsafe(KEY)
    return NewKey(text, ApiKey(name, f"sha256:{digest_of(text).hex()}", tuple(scopes)))


class ApiKeys:
    """Checks the keys of callers. Without a configured key every caller has all scopes."""

    def __init__(self, entries: Sequence[ApiKey]) -> None:
        self.entries = [(bytes.fromhex(entry.hash.removeprefix("sha256:")), entry) for entry in entries]
        #: Name → the namespaces of a key that is bound to some; "" stands for requests without a namespace.
        self.within = {entry.name: frozenset(entry.namespaces) for entry in entries if entry.namespaces}
        self.known: dict[bytes, ApiKey] = {}  # digest → entry of keys that were accepted before: at most one per entry

    def check(self, presented: str | None, scope: Scope) -> str:
        """Return the name of the presented key if it has the scope; raises `Denied`."""
        if not self.entries:
            return ""
        if not presented:
            raise Denied(401, "no_key", "an API key is needed; send it as `Authorization: Bearer KEY`")
        digest = digest_of(presented)
        entry = self.known.get(digest) or self.find(digest)
        if entry is None:
            raise Denied(401, "unknown_key", "this API key is not known here")
        if scope not in entry.scopes:
            raise Denied(403, "scope", f"the API key {entry.name!r} has no scope {scope!r}; it has {', '.join(entry.scopes)}")
        return entry.name

    def find(self, digest: bytes) -> ApiKey | None:
        """Return the entry of a digest, or None, in constant time."""
        found = None
        for kept, entry in self.entries:
            if hmac.compare_digest(kept, digest):
                found = entry
        if found is not None:
            self.known[digest] = found
        return found
