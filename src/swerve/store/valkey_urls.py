"""Addresses of stores in a Valkey server: `valkey://user:password@host:6379/0?prefix=swerve`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from swerve.core.errors import SwerveError
from swerve.store.shares import Share

#: Schemes, and whether the connection is encrypted.
SCHEMES = {"valkey": False, "valkeys": True}
PORT = 6379
PREFIX = "swerve"
#: What a prefix may be: it is a part of every key.
NAMES = re.compile(r"[A-Za-z0-9_.-]{1,64}")
#: Shown in place of a password.
HIDDEN = "***"
FORMS = "valkey://[USER:PASSWORD@]HOST[:PORT][/NUMBER][?prefix=NAME], or valkeys:// with TLS"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a store is. Its text leaves out user and password."""

    host: str
    port: int = PORT
    database: int = 0
    prefix: str = PREFIX
    user: str = ""
    password: str = field(default="", repr=False)
    tls: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        rest = f"?prefix={self.prefix}" if self.prefix != PREFIX else ""
        return f"valkey{'s' if self.tls else ''}://{host}:{self.port}/{self.database}{rest}"

    @property
    def keys(self) -> str:
        """What every key of the store begins with."""
        return f"{self.prefix}:"


def address_of(url: str) -> Address:
    """Return the parts of an address; raises `SwerveError` without its password.

    >>> print(address_of("valkey://me:secret@db.example:7000/3?prefix=shop"))
    valkey://db.example:7000/3?prefix=shop
    >>> print(address_of("valkeys://[::1]"))
    valkeys://[::1]:6379/0
    >>> address_of("valkey://localhost/zero")
    Traceback (most recent call last):
    swerve.core.errors.SwerveError: a store in Valkey must be valkey://[USER:PASSWORD@]HOST... the database must be a number
    """
    if "#" in url:
        raise _refused("it has a #; write %23 in a password")
    try:
        parts = urlsplit(url)
        port = parts.port if parts.port is not None else PORT
    except ValueError:
        raise _refused("the port must be a number") from None
    if parts.scheme not in SCHEMES:
        raise _refused("the scheme must be valkey or valkeys")
    if not parts.hostname:
        raise _refused("the host is missing")
    number = parts.path.removeprefix("/") or "0"
    if not (number.isascii() and number.isdigit()):
        raise _refused("the database must be a number")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    prefix = options.pop("prefix", PREFIX)
    if options:
        raise _refused(f"there is no option {sorted(options)[0]!r}, only prefix")
    if not NAMES.fullmatch(prefix):
        raise _refused("the prefix must have letters, digits, - _ and . only")
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return Address(parts.hostname, port, int(number), prefix, user, password, SCHEMES[parts.scheme])


def share_url(url: str, share: Share) -> str:
    """Return the address of a share of the store at an address; raises `SwerveError`.

    >>> share_url("valkey://db?prefix=shop", Share(1, 4)), share_url("valkey://db", Share(0, 4))
    ('valkey://db?prefix=shop.1-of-4', 'valkey://db')
    """
    if share.number == 0:
        return url
    prefix = f"{address_of(url).prefix}.{share.number}-of-{share.of}"
    if not NAMES.fullmatch(prefix):
        raise _refused(f"the prefix of a share would be {prefix}, which is too long")
    return f"{url.partition('?')[0]}?prefix={prefix}"


def _refused(why: str) -> SwerveError:
    return SwerveError(f"a store in Valkey must be {FORMS}: {why}")


def shown(url: str) -> str:
    """Return an address without its password.

    >>> shown("valkey://me:secret@db.example/3")
    'valkey://me:***@db.example/3'
    """
    return re.sub(r"(?<=://)([^/?#@:]*):[^/?#]*@", rf"\1:{HIDDEN}@", url)
