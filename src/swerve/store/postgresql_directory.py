"""The directory of a store in PostgreSQL: three tables in the schema of share 0."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from swerve.store.directory import Closing, Machine, Owner, Seen, Shares
from swerve.store.postgresql_address import address_of
from swerve.store.postgresql_link import Bounded, Link, one
from swerve.store.postgresql_owner import lock_key

#: Seconds that a statement may take.
SECONDS = 2.0

TABLES = """
    CREATE TABLE IF NOT EXISTS directory(
        one boolean PRIMARY KEY DEFAULT true CHECK (one), shares integer NOT NULL, secrets bytea NOT NULL
    );
    CREATE TABLE IF NOT EXISTS machines(
        address text PRIMARY KEY, boot text NOT NULL, workers integer NOT NULL, beats bigint NOT NULL, name text NOT NULL
    ) WITH (fillfactor = 10);
    CREATE TABLE IF NOT EXISTS owners(
        share integer PRIMARY KEY, machine text NOT NULL, epoch bigint NOT NULL, present boolean NOT NULL
    ) WITH (fillfactor = 10);
"""
BEAT = """
    INSERT INTO machines(address, boot, workers, beats, name) VALUES (%s, %s, %s, %s, %s)
    ON CONFLICT (address) DO UPDATE SET boot = excluded.boot, workers = excluded.workers, beats = excluded.beats,
        name = excluded.name
"""
OWN = """
    INSERT INTO owners(share, machine, epoch, present) VALUES (%s, %s, %s, %s)
    ON CONFLICT (share) DO UPDATE SET machine = excluded.machine, epoch = excluded.epoch, present = excluded.present
        WHERE owners.epoch <= excluded.epoch
"""


class PostgreSQLDirectory(Closing):
    """A `Directory` in PostgreSQL."""

    def __init__(self, url: str) -> None:
        self.address = address_of(url)
        self._link = Link(self.address, "directory", SECONDS)

    @contextmanager
    def _using(self) -> Iterator[Bounded]:
        """Use the connection, which is opened where it is not."""
        if not self._link.is_open:
            self._link.open()
        with self._link.using() as connection:
            yield connection

    @contextmanager
    def _fleetingly(self) -> Iterator[Bounded]:
        """A transaction that waits for no disk and no standby: what it enters is entered again."""
        if not self._link.is_open:
            self._link.open()
        with self._link.transaction() as connection:
            connection.execute("SET LOCAL synchronous_commit = off")
            yield connection

    def shares(self) -> Shares | None:
        with self._using() as connection:
            (made,) = one(connection.execute("SELECT to_regclass(%s) IS NOT NULL", (f"{self.address.schema}.directory",)))
            found = connection.execute("SELECT shares, secrets FROM directory").fetchone() if made else None
        return None if found is None else Shares(int(found[0]), bytes(found[1]))

    def begin(self, shares: Shares) -> Shares:
        if not self._link.is_open:
            self._link.open()
        with self._link.transaction() as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s::bigint)", (lock_key(self.address) ^ 1,))  # two may begin at once
            connection.execute(TABLES)
            connection.execute("INSERT INTO directory(shares, secrets) VALUES (%s, %b) ON CONFLICT DO NOTHING", shares)
            count, secrets = one(connection.execute("SELECT shares, secrets FROM directory"))
        return Shares(int(count), bytes(secrets))

    def look(self) -> Seen:
        with self._using() as connection:
            machines = connection.execute("SELECT address, boot, workers, beats, name FROM machines", prepare=True).fetchall()
            owners = connection.execute("SELECT share, machine, epoch, present FROM owners", prepare=True).fetchall()
        return Seen({row[0]: Machine(*row) for row in machines}, {row[0]: Owner(*row[1:]) for row in owners})

    def beat(self, machine: Machine) -> None:
        with self._fleetingly() as connection:
            connection.execute(BEAT, machine, prepare=True)

    def leave(self, address: str, boot: str) -> None:
        with self._fleetingly() as connection:
            connection.execute("DELETE FROM machines WHERE address = %s AND boot = %s", (address, boot))

    def own(self, share: int, owner: Owner) -> bool:
        with self._using() as connection:
            return connection.execute(OWN, (share, *owner)).rowcount == 1

    def let_go(self, share: int, epoch: int) -> None:
        with self._using() as connection:
            connection.execute("UPDATE owners SET present = false WHERE share = %s AND epoch = %s", (share, epoch))

    def close(self) -> None:
        self._link.close()


#: Opens a directory, as every engine's module names it.
opened = PostgreSQLDirectory
