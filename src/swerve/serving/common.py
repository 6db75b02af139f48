"""What queries share, for each namespace its own: what policies learn together, and the season."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from swerve.core import engine
from swerve.core.spec import Spec, pack
from swerve.core.tables import nested, pool_dtype
from swerve.serving.place import Common
from swerve.serving.settings import ANY, Settings, shared_name
from swerve.signals import begin_season, season_layout


class Commons:
    """What the queries of each namespace share, for one policy; `prefix` begins the names of its records. Namespaces that are not
    configured by name share with each other."""

    def __init__(self, settings: Settings, policy: Spec, senses: Any, prefix: str = "") -> None:
        self.settings, self.params, self.senses, self.prefix = settings, pack(policy), senses, prefix
        self.dtype = pool_dtype(policy, len(settings.plan))
        self.name = shared_name(settings, policy, self.dtype)
        self._found: dict[str | None, Common] = {}

    def of(self, namespace: str | None) -> Common:
        """Return what the queries of a namespace share."""
        if namespace is not None and namespace not in self.settings.namespaces:
            namespace = ANY
        found = self._found.get(namespace)
        if found is None:
            found = self._found[namespace] = Common(np.zeros(2, self.dtype), np.zeros(1, nested(season_layout())))
            self._begin(found)
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

    def records(self) -> dict[str, bytes]:
        """Return the records for the store."""
        found: dict[str, bytes] = {}
        for namespace, common in self._found.items():
            policy, season = self.names(namespace)
            found |= {policy: common.pools[:1].tobytes(), season: common.seasons.tobytes()}
        return found

    def take(self, records: Mapping[str, bytes]) -> None:
        """Take up the records of an earlier start."""
        for namespace in (None, *self.settings.namespaces):
            common = self.of(namespace)
            for name, table in zip(self.names(namespace), (common.pools[:1], common.seasons), strict=True):
                if len(records.get(name, b"")) == table.nbytes:
                    table[:] = np.frombuffer(records[name], table.dtype)

    def names(self, namespace: str | None) -> tuple[str, str]:
        """Return the names of the records of a namespace."""
        of = "" if namespace is None else f" of {namespace}"
        return f"{self.prefix}{self.name}{of}", f"{self.prefix}season{of}"
