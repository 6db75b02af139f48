"""Addresses of stores in PostgreSQL: `postgresql://user@host:port/database?schema=NAME&…`; all other parameters go to libpq."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from swerve.core.errors import SwerveError
from swerve.store.shares import Share

SCHEME = "postgresql"
FORM = "postgresql://user@host:port/database?schema=NAME"
#: The schema of a store whose address names none.
SCHEMA = "swerve"
#: Allowed names of schemas: they need no quotes, and PostgreSQL would truncate longer ones.
NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
#: Shown in place of a password.
HIDDEN = "***"


@dataclass(slots=True)
class Address:
    """An address: as libpq takes it, the schema, and as it is shown, without a password.

    Of several servers the one that answered last is asked first: one that hangs would take its time-out from each connection.
    """

    libpq: str
    schema: str
    shown: str
    last: tuple[str, str] | None = field(default=None, repr=False)  # host and port of the server that answered last

    def asked(self, hosts: Sequence[str], ports: Sequence[str]) -> dict[str, str]:
        """Return hosts and ports of several servers in the order in which they are asked, as libpq takes them; nothing where no
        server has answered yet. Without ports there is one that is empty.

        >>> address = Address("postgresql://one,two/search", "shop", "", last=("two", "5432"))
        >>> address.asked(["one", "two"], [""])
        {'host': 'two,one', 'port': ','}
        """
        ports = [*ports] * len(hosts) if len(ports) == 1 else [*ports]
        if self.last is None or len(ports) != len(hosts):
            return {}
        host, port = self.last
        order = sorted(zip(hosts, ports, strict=True), key=lambda one: one[0] != host or one[1] not in ("", port))
        return {"host": ",".join(host for host, _ in order), "port": ",".join(port for _, port in order)}


def address_of(url: str) -> Address:
    """Return the parts of an address; raises `SwerveError`.

    >>> address_of("postgresql://swerve:secret@db:5432/search?schema=shop&sslmode=require")
    Address(libpq='postgresql://swerve:secret@db:5432/search?sslmode=require', schema='shop',
            shown='postgresql://swerve:***@db:5432/search?schema=shop&sslmode=require')
    """
    parts = urlsplit(url)
    asked = parse_qsl(parts.query, keep_blank_values=True)
    schemas = [value for name, value in asked if name == "schema"] or [SCHEMA]
    if parts.scheme != SCHEME or len(parts.path) < len("/d") or "/" in parts.path[1:] or parts.fragment:
        raise SwerveError(f"store {shown(url)!r} is not allowed; a store in PostgreSQL must be {FORM}")
    if len(schemas) > 1 or NAME.fullmatch(schemas[0]) is None:
        words = "at most 63 lower-case letters, digits and _, without a digit at the start"
        raise SwerveError(f"store {shown(url)!r} is not allowed: schema must be one name of {words}")
    rest = urlencode([(name, value) for name, value in asked if name != "schema"], quote_via=quote)
    return Address(urlunsplit((*parts[:3], rest, "")), schemas[0], shown(url))


def share_url(url: str, share: Share) -> str:
    """Return the address of a share of the store at an address; raises `SwerveError`.

    >>> share_url("postgresql://db/search?schema=shop&sslmode=require", Share(1, 4))
    'postgresql://db/search?schema=shop_1_of_4&sslmode=require'
    """
    if share.number == 0:
        return url
    parts = urlsplit(url)
    name = f"{address_of(url).schema}_{share.number}_of_{share.of}"
    rest = [(key, value) for key, value in parse_qsl(parts.query, keep_blank_values=True) if key != "schema"]
    made = urlunsplit((*parts[:3], urlencode([("schema", name), *rest], quote_via=quote), ""))
    if NAME.fullmatch(name) is None:
        raise SwerveError(f"store {shown(url)!r} is not allowed: the schema of a share would be {name}, which is too long")
    return made


def shown(url: str) -> str:
    """Return an address without its password.

    >>> shown("postgresql://swerve:secret@db/search?password=secret")
    'postgresql://swerve:***@db/search?password=***'
    """
    url = re.sub(r"(?<=://)([^/?#@:]*):[^/?#]*@", rf"\1:{HIDDEN}@", url)
    return re.sub(r"([?&]password=)[^&#]*", rf"\1{HIDDEN}", url)
