"""Numbers from outside, pushed ahead of the requests that use them; see `swerve.serving.feeds`."""

from __future__ import annotations

from collections.abc import Callable, Collection

from swerve.service.metrics import Metrics
from swerve.service.namespaces import Within, require, require_all
from swerve.service.ranking import Ranking
from swerve.serving.checks import check_signals
from swerve.serving.feeds import Owner, Pushed, SignalRequest, SignalResponse, check_signal


class Feeding:
    """The signals side of a service."""

    def __init__(self, ranking: Ranking, metrics: Metrics, clock: Callable[[], float], *, ttl: float) -> None:
        self.ranking, self.metrics, self.clock, self.ttl = ranking, metrics, clock, ttl
        metrics.fed.ask = lambda: len(ranking.feeds.some) + bool(ranking.feeds.everywhere)

    def push(self, request: SignalRequest, within: Within = None) -> SignalResponse:
        """Keep a number for the rankings to come. Raises `Refused`."""
        ranking, now = self.ranking, self.clock()
        namespace = request.namespace
        if request.query is None and namespace is None:
            require_all(within, "a number for all queries")
        require(within, namespace)
        at = check_signal(request, ranking.limits, ranking.numbers, now)
        allowed: Collection[str] | None = ranking.namespaces.numbers(namespace)
        if allowed is not None:
            check_signals((request.name,), allowed)
        owner: Owner = namespace
        if request.query is not None:
            owner = ranking.key_of(request.query, request.locale, request.filter, request.segment, namespace)
        pushed = Pushed(request.value, at, at + (request.ttl_seconds or self.ttl))
        status = ranking.feeds.push(request.name, owner, pushed, now)
        self.metrics.signals(request.name, status).value += 1
        return SignalResponse(status)
