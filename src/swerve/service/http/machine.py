"""Several workers over a store on a server, on one machine or several: the supervisor of one machine.

It runs a worker for each share that this machine is to have. Which these are, its *steward* says: another process, which has the
directory of the store (`swerve.service.membership`). A worker that waits for the owner before, because that one still writes, does
not listen yet.

Tests: tests/service/test_machines.py.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
from collections.abc import Callable
from pathlib import Path

from swerve.core.errors import SwerveError
from swerve.service.config.load import Config
from swerve.service.config.settings import settings_of
from swerve.service.crew import Among, Post
from swerve.service.http.server import Extend, open_owned
from swerve.service.http.starting import addressed, alone, checked, patiently, sockets_folder, with_log
from swerve.service.http.supervisor import Child, Supervisor
from swerve.service.membership import HAVE, LOOK_SECONDS, RUN, Member, new_boot
from swerve.service.secrets import SecretsError, load_secrets, secrets_path
from swerve.service.warm import LEARN_AT, NO_KEY, SCRATCH, Warming
from swerve.serving.ranker import Ranker
from swerve.store import StoreError
from swerve.store.directory import Machine, Shares
from swerve.store.shares import Share
from swerve.store.urls import open_directory, server_of, share_url, shares_at, shown_url, store_exists
from swerve.version import __version__

log = logging.getLogger("swerve.service")

#: The numbers of the processes that are no workers.
STEWARD, COMPILER = -1, -2


def is_for(config: Config) -> bool:
    """Return whether several workers, or several machines, are to serve a store on a server. Raises `SwerveError` for settings that
    no other store has."""
    if server_of(config.store.url) is None:
        for setting, given in (("server.crew_address", config.server.crew_address), ("store.shares", config.store.shares)):
            if given:
                raise SwerveError(
                    f"{setting} is for a store on a server; workers of one machine serve one in files: server.workers"
                )
        return False
    if config.server.workers > 1 or config.server.crew_address or config.store.shares > 1:
        return True
    if config.store.standby:  # which may wait for the server too
        return False
    known = shares_at(config.store.url)
    return known is not None and known.of > 1


def supervise(
    config: Config,
    announce: Callable[[str], None] = print,
    *,
    extend: Extend | None = None,
    new_store: bool = False,
    new_log: bool = False,
) -> None:
    """Serve shares of a store on a server, together with other machines if there are any, until SIGINT or SIGTERM."""
    checked(config)
    with addressed(config) as (port, address), sockets_folder() as folder:
        said = alone(lambda: patiently(lambda: with_log(lambda new: prepared(config, new_store, new), new_log)))
        shares = int(said)
        announce(
            f"swerve {__version__}: {address}  store {shown_url(config.store.url)}  policy {config.policy.spec}  shares {shares}"
        )
        MachineSupervisor(config, port, folder, extend, new_log, shares).run(lambda: announce(f"ready: {address}"))
    announce("stopped: everything is written")


def prepared(config: Config, new_store: bool, new_log: bool) -> str:
    """Begin the store if there is none, and its directory; return how many shares it has."""
    url, asked = config.store.url, config.store.shares
    known = None if new_store else shares_at(url)
    if known is not None:
        secrets = load_secrets(secrets_path(config), make=False)
    else:
        store, secrets = open_owned(config, new_store=new_store, new_log=new_log)
        try:
            if store.count() or store.end:  # it was served before, as a whole
                known = Shares(1, secrets.fingerprint())
            else:
                known = begun(url, Shares(asked or config.server.workers, secrets.fingerprint()))
        finally:
            store.close()
    if known.secrets != secrets.fingerprint():
        raise SecretsError(f"{shown_url(url)} is served with other secrets than those of this machine: each machine has the same")
    if asked not in (0, known.of):
        raise SwerveError(
            f"{shown_url(url)} has {known.of} share{'s' if known.of > 1 else ''} for good, and store.shares is {asked}: leave it "
            "out, or begin another store"
        )
    if known.of == 1 < config.server.workers and not config.server.crew_address:
        raise SwerveError(
            f"{shown_url(url)} has one share, which one worker serves: --workers 1, or begin another store with store.shares"
        )
    with open_directory(url) as directory:
        directory.begin(known)
    return str(known.of)


def begun(url: str, shares: Shares) -> Shares:
    """Note how many shares a new store has. Raises `SwerveError` where shares of an earlier one are left."""
    for number in range(1, shares.of):
        share = Share(number, shares.of)
        if store_exists(share_url(url, share)):
            raise SwerveError(
                f"{shown_url(share_url(url, share))} is {share} of an earlier store: remove it, or name another store"
            )
    with open_directory(url) as directory:
        found: Shares = directory.begin(shares)
    return found


class MachineSupervisor(Supervisor):
    """Runs the workers of a machine, and its steward."""

    def __init__(self, config: Config, port: int, folder: Path, extend: Extend | None, new_log: bool, shares: int) -> None:
        super().__init__(config, port, folder, extend, new_log, shares)
        self.steward, self.compiler = Child(STEWARD, "the steward"), Child(COMPILER, "the compiler")
        self.workers = self.children
        for child in self.workers:
            child.wanted = False
        self.children = [self.steward, self.compiler, *self.workers]
        self.boot = new_boot()
        self.had = set[int]()  # shares that this machine owns, as its workers know

    def _first(self) -> list[Child]:
        return [self.steward, self.compiler] if self.code.left else [self.steward]

    def _writers(self) -> list[Child]:
        return self.workers

    def _are_ready(self) -> bool:
        wanted = [child for child in self.workers if child.wanted]
        return bool(wanted) and all(child.ready and child.index in self.had for child in wanted)

    def _may_end(self, child: Child) -> bool:
        if child is self.compiler:
            return child.code == 0
        if not child.wanted:
            if child.code:
                log.warning("worker %d has let its share go, and not everything could be written", child.index)
            child.code, child.deaths = 0, 0
        return super()._may_end(child)

    def _post(self, index: int) -> Post:
        return super()._post(index)._replace(among=Among(self.config.server.crew_address, self.config.store.url))

    def _heard(self, child: Child) -> None:
        if child is self.compiler:
            child.ready = True
        elif child is not self.steward:
            return super()._heard(child)
        else:
            said = child.said[: child.said.rfind(b"\n") + 1].decode()
            child.said = child.said[len(said) :]
            for line in said.splitlines():
                word, *numbers = line.split()
                if word == RUN:
                    child.ready = True
                    self._run(set(map(int, numbers)))
                elif word == HAVE:
                    self.had = set(map(int, numbers))
                elif word == "error":
                    child.said = line.encode()
        return None

    def _run(self, shares: set[int]) -> None:
        """Run the workers of these shares, and no others."""
        if self.stopping:
            return
        log.info("this machine is to have shares", extra={"shares": sorted(shares)})
        for child in self.workers:
            child.wanted = child.index in shares
            if not child.wanted:
                self._end(child)
            elif not child.pid and child.again is None:
                self._start(child)

    def _work(self, child: Child, told: int) -> str:
        if child is self.steward:
            return self._steward(told)
        if child is self.compiler:
            return self._compile(told)
        return super()._work(child, told)

    def _compile(self, told: int) -> str:
        """Compile what is not on the disk, for all workers of this machine."""
        os.write(told, b"compiling\n")
        ranker = Ranker(settings_of(self.config)._replace(budget=SCRATCH), NO_KEY)
        warming = Warming(self.config, ranker, several=True)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: warming.stop())  # with the processes that compile for it
        warming.run()
        warming.learn_to_play(lambda: LEARN_AT)
        return ""

    def _steward(self, told: int) -> str:
        """Say what is to be run, until a signal or the end of the supervisor."""
        config, stopping = self.config, list[int]()
        signal.signal(signal.SIGTERM, lambda number, frame: stopping.append(number))
        signal.signal(signal.SIGINT, lambda number, frame: stopping.append(number))
        name = f"process {os.getppid()} on {socket.gethostname()}"
        machine = Machine(config.server.crew_address, self.boot, config.server.workers, 0, name)

        def tell(what: str, shares: list[int]) -> None:
            with contextlib.suppress(OSError):  # the supervisor has gone
                os.write(told, f"{' '.join([what, *map(str, shares)])}\n".encode())

        with open_directory(config.store.url) as directory:
            member, trouble = Member(directory, machine, self.shares, self._post(0).board, tell), ""
            member.join()
            while not stopping:
                try:
                    member.step()
                    trouble = ""
                except StoreError as error:
                    if error.kind != trouble:
                        log.warning("the directory of the store cannot be read (%s): %s", error.kind, error)
                    trouble = error.kind
                if select.select([self._life], [], [], LOOK_SECONDS)[0]:
                    break
            with contextlib.suppress(StoreError):
                member.leave()
        return ""
