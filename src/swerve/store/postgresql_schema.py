"""The tables of a store in PostgreSQL, in a schema of their own, and how they are made.

`seats` has the epoch that each checkpoint compares, `logs` the end that each append moves: two rows, so that checkpoints and
appends do not wait for each other. There is one seat.
"""

from __future__ import annotations

import os

from swerve.core.errors import SwerveError
from swerve.store.postgresql_address import Address
from swerve.store.postgresql_link import Bounded, one
from swerve.store.protocol import StoreError

#: How much a row is worth keeping, as in `swerve.store.schema`.
WORTH = "day + 8 * level"
#: The number of the only seat.
SEAT = 0
#: Bytes of random numbers; they have 63 bits, because PostgreSQL's integers are signed.
RANDOM_BYTES, RANDOM_MASK = 8, (1 << 63) - 1

#: Statements that lead from form i to form i + 1. Never edit an entry; add one. PostgreSQL does not compress records and blocks,
#: which are compressed already, and keeps rows in their page where they fit. Pages are filled to 70 %, so that an update finds room
#: for the new version of a row beside the old one, and need not write indexes of columns that stay the same.
MIGRATIONS = (
    f"""
    CREATE TABLE store(
        one boolean PRIMARY KEY DEFAULT true CHECK (one), form integer NOT NULL, id bigint NOT NULL,
        owner bytea NOT NULL, room bytea
    );
    CREATE TABLE seats(number integer PRIMARY KEY, epoch bigint NOT NULL, begin bigint NOT NULL) WITH (fillfactor = 10);
    CREATE TABLE logs(
        seat integer PRIMARY KEY, epoch bigint NOT NULL, "end" bigint NOT NULL, last double precision NOT NULL
    ) WITH (fillfactor = 10);
    INSERT INTO seats VALUES ({SEAT}, 0, 0);
    INSERT INTO logs VALUES ({SEAT}, 0, 0, 0);
    CREATE TABLE blocks(
        seat integer, first bigint, entries integer NOT NULL, epoch bigint NOT NULL, time double precision NOT NULL,
        anew boolean NOT NULL, crc bigint NOT NULL, content bytea NOT NULL, PRIMARY KEY (seat, first)
    );
    ALTER TABLE blocks ALTER content SET STORAGE EXTERNAL;
    CREATE INDEX blocks_anew ON blocks(seat, first) WHERE anew;
    CREATE TABLE rows(
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key bytea NOT NULL, version bigint NOT NULL, layout bigint NOT NULL,
        day bigint NOT NULL, level bigint NOT NULL, shifted double precision NOT NULL, size bigint NOT NULL, crc bigint NOT NULL,
        record bytea NOT NULL, names bytea NOT NULL
    ) WITH (fillfactor = 70, toast_tuple_target = 8160);
    ALTER TABLE rows ALTER record SET STORAGE EXTERNAL, ALTER names SET STORAGE EXTERNAL;
    CREATE UNIQUE INDEX rows_key ON rows(key);
    CREATE INDEX rows_day ON rows(day);
    CREATE INDEX rows_level ON rows(level, id);
    CREATE INDEX rows_shifted ON rows(shifted, id) WHERE shifted > 0;
    CREATE INDEX rows_worth ON rows(({WORTH}));
    CREATE TABLE used(id bigint PRIMARY KEY, outcome bytea NOT NULL);
    CREATE TABLE groups(name text, worker text, crc bigint NOT NULL, record bytea NOT NULL, PRIMARY KEY (name, worker));
    CREATE TABLE layouts(id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, description text NOT NULL);
    CREATE UNIQUE INDEX layouts_description ON layouts(md5(description));
    CREATE TABLE lives(id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, mark bigint NOT NULL UNIQUE);
    """,
)


def is_made(connection: Bounded, address: Address) -> bool:
    """Return whether the schema has a store."""
    return one(connection.execute("SELECT to_regclass(%s) IS NOT NULL", (f"{address.schema}.store",)))[0] is True


def make(connection: Bounded, address: Address) -> None:
    """Make an empty store, inside a transaction."""
    (taken,) = one(connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = %s", (address.schema,)))
    if taken:
        raise SwerveError(
            f"{address.shown}: the schema {address.schema} has tables of another program; name another with ?schema=NAME"
        )
    (known,) = one(connection.execute("SELECT count(*) FROM pg_namespace WHERE nspname = %s", (address.schema,)))
    if not known:  # making one needs a right that the role may lack where an operator has made it
        connection.execute(f"CREATE SCHEMA {address.schema}")
    mark = int.from_bytes(os.urandom(RANDOM_BYTES), "little") & RANDOM_MASK
    for step in MIGRATIONS:
        connection.execute(step)
    connection.execute("INSERT INTO store(form, id, owner) VALUES (%s, %s, '')", (len(MIGRATIONS), mark))


def migrate(connection: Bounded, address: Address) -> int:
    """Bring a store to the present form, inside a transaction; return its id."""
    found = connection.execute("SELECT form, id FROM store").fetchone()
    if found is None:
        raise StoreError(
            "corrupt", f"{address.shown}: the table `store` is empty; restore a backup of the database (docs/operations.md)"
        )
    form, mark = found
    if form > len(MIGRATIONS):
        raise SwerveError(
            f"{address.shown} has form {form}, and this version of Swerve knows forms up to {len(MIGRATIONS)}: use a newer Swerve"
        )
    for step in MIGRATIONS[form:]:
        connection.execute(step)
    if form < len(MIGRATIONS):
        connection.execute("UPDATE store SET form = %s", (len(MIGRATIONS),))
    return int(mark)
