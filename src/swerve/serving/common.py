"""What queries share, for each namespace its own: what policies learn together, and the season."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from swerve.core import engine
from swerve.core.spec import Spec, pack
from swerve.core.tables import nested, pool_dtype
from swerve.serving.contributions import Contributions, Kind
from swerve.serving.place import Common
from swerve.serving.settings import ANY, Settings, shared_name
from swerve.signals import begin_season, season_layout

#: Begins the names of records of contributions; what follows names what they are to.
EXCHANGED = "exchanged "


class Commons:
    """What the queries of each namespace share, for one policy; `prefix` begins the names of its records. Namespaces that are not
    configured by name share with each other."""

    def __init__(self, settings: Settings, policy: Spec, senses: Any, prefix: str = "") -> None:
        self.settings, self.params, self.senses, self.prefix = settings, pack(policy), senses, prefix
        self.dtype = pool_dtype(policy, len(settings.plan))
        self.name = shared_name(settings, policy, self.dtype)
        self._kind = Kind(policy, len(settings.plan))
        self._found: dict[str | None, Common] = {}
        self.since: float | None = None  # when the exchange with other workers began, None: there is none
        self._contributions: dict[str, Contributions] = {}  # by the name of what they are to

    def of(self, namespace: str | None) -> Common:
        """Return what the queries of a namespace share."""
        if namespace is not None and namespace not in self.settings.namespaces:
            namespace = ANY
        found = self._found.get(namespace)
        if found is None:
            pools, owns, seasons = np.zeros(2, self.dtype), np.zeros(0, self._kind.dtype), np.zeros(1, nested(season_layout()))
            found = self._found[namespace] = Common(pools, owns, seasons)
            self._begin(found)
            self._exchange(namespace, found)
        return found

    def _begin(self, common: Common) -> None:
        engine.begin_pools.plain(self.params, common.pools, len(self.settings.plan))
        begin_season(self.senses[0], common.seasons[0], 0.0)

    def begin(self) -> None:
        """Forget what was learnt, as a start does."""
        for common in self._found.values():
            for table in (common.pools, common.seasons):
                table[:] = np.zeros(1, table.dtype)
            self._begin(common)
            common.owns = np.zeros(0, self._kind.dtype)
        self.since = None
        self._contributions = {}

    def records(self) -> dict[str, bytes]:
        """Return the records for the store."""
        found: dict[str, bytes] = {}
        for namespace, common in self._found.items():
            policy, season = self.names(namespace)
            found |= {policy: common.pools[:1].tobytes(), season: common.seasons.tobytes()}
            if policy in self._contributions:
                found[EXCHANGED + policy] = self._contributions[policy].record(common.owns, common.seasons[0])
        return found

    def take(self, records: Mapping[str, bytes]) -> None:
        """Take up the records of an earlier start."""
        for namespace in (None, *self.settings.namespaces):
            common = self.of(namespace)
            for name, table in zip(self.names(namespace), (common.pools[:1], common.seasons), strict=True):
                if len(records.get(name, b"")) == table.nbytes:
                    table[:] = np.frombuffer(records[name], table.dtype)
            policy = self.names(namespace)[0]
            stored = Contributions.read(self._kind, records[EXCHANGED + policy]) if EXCHANGED + policy in records else None
            if stored is not None:
                self._contributions[policy], common.owns = stored
                self.since = max(self.since or 0.0, stored[0].since)
        if self.since is not None:
            self.exchange(self.since)

    def names(self, namespace: str | None) -> tuple[str, str]:
        """Return the names of the records of a namespace."""
        of = "" if namespace is None else f" of {namespace}"
        return f"{self.prefix}{self.name}{of}", f"{self.prefix}season{of}"

    # ------------------------------------------------------------------ several workers, see `swerve.serving.exchange`
    def exchange(self, now: float) -> None:
        """Keep what this worker contributes from now on apart, where that is not done yet."""
        if self.since is None:
            self.since = now
        for namespace, common in self._found.items():
            self._exchange(namespace, common)

    def _exchange(self, namespace: str | None, common: Common) -> None:
        name = self.names(namespace)[0]
        if self.since is not None and name not in self._contributions:
            self._contributions[name], common.owns = Contributions(self._kind, self.since), self._kind.fresh()

    def contributing(self) -> Iterator[tuple[str, Common, Contributions]]:
        """Yield what queries share, with its name and the contributions to it."""
        for namespace, common in self._found.items():
            name = self.names(namespace)[0]
            if name in self._contributions:
                yield name, common, self._contributions[name]

    def contributed(self, name: str) -> tuple[Common, Contributions] | None:
        """Return what queries share under a name, and the contributions to it; None if nothing has this name."""
        for namespace in (None, *self.settings.namespaces):
            if self.names(namespace)[0] == name:
                common = self.of(namespace)  # it may be new here
                return common, self._contributions[name]
        return None

    def compile_exchange(self) -> None:
        """Compile (or load) what takes up contributions, by calls that take up nothing."""
        kind, pools = self._kind, np.zeros(2, self.dtype)
        engine.begin_pools.plain(self.params, pools, len(self.settings.plan))
        kind.novel(kind.params, kind.fresh(), kind.fresh())
        kind.take_up(kind.params, pools, 0, 1, kind.fresh(), kind.fresh())
