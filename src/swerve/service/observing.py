"""Rankings that Swerve did not make: hold-out traffic and other rankers teach the query's policy too."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from swerve.service.availability import Availability, Unavailable
from swerve.service.feedback import Feedback
from swerve.service.groups import durable
from swerve.service.loader import Loader, Wish
from swerve.service.ranking import Ranking
from swerve.serving.checks import check_events, check_positions
from swerve.serving.messages import ObserveRequest, ObserveResponse, Refused, ids_of
from swerve.serving.outcomes import Outcome
from swerve.serving.people import name_of
from swerve.serving.ranker import Ranker
from swerve.serving.replay import ticket_of
from swerve.serving.tokens import Tokens

#: Seconds that an observed ranking waits for its row; then it is answered 503.
WAIT = 1.0
#: Seconds by which the clock of a caller may be ahead.
AHEAD = 60.0


class Observing:
    """The `observe` side of a service. The ranking counts as shown now, and its events as feedback."""

    def __init__(
        self,
        ranker: Ranker,
        loader: Loader,
        tokens: Tokens,
        availability: Availability,
        ranking: Ranking,
        feedback: Feedback,
        clock: Callable[[], float],
        *,
        window: float,
    ) -> None:
        self.ranker, self.loader, self.tokens, self.availability = ranker, loader, tokens, availability
        self.ranking, self.feedback, self.clock, self.window = ranking, feedback, clock, window

    async def one(self, request: ObserveRequest) -> ObserveResponse:
        """Count a ranking and its events; return once they are durable. Raises `Refused`, or `Unavailable`."""
        prepared = self.ranking.prepare_shown(request)
        check_events(request.events, self.ranking.limits, self.ranker.responses.rewards.weights)
        _check_results(request)
        self._check_time(request)
        self.ranking.namespaces.take(prepared.namespace)
        self.availability.require()
        wish = Wish(prepared.key, True, prepared.text, len(request.shown), name_of(prepared.session))
        async with self.loader.held([wish], WAIT) as (found,):
            if isinstance(found, str):
                raise Unavailable
            self.availability.require()
            now = self.clock()
            decided = self.ranker.rank([(found, prepared)], now)[0]
            if decided is None:
                raise Unavailable  # the capacity that it needs is still compiling
            token = self.tokens.sign(decided.signed, now)
            ticket = ticket_of(decided, self.ranker.life)
            events = request.events
            status, written = self.feedback.apply(found, ticket, decided.signed.number, Outcome(0, ticket.seen), events, None, now)
        if written is not None:
            await durable(written)
        return ObserveResponse(status, token)

    def _check_time(self, request: ObserveRequest) -> None:
        """Refuse a ranking that is older than the window for feedback, or that was shown in the future."""
        if request.at is None:
            return
        at = request.at.timestamp() if isinstance(request.at, datetime) else request.at
        age = self.clock() - at
        if age > self.window:
            message = f"at is {age:.0f} seconds ago; at most {self.window:.0f} are allowed (feedback.window_seconds)"
            raise Refused(422, "too_old", message, "at")
        if age < -AHEAD:
            raise Refused(422, "in_the_future", f"at is {-age:.0f} seconds ahead of this service's clock", "at")


def _check_results(request: ObserveRequest) -> None:
    """Refuse events on results that were not shown, before the ranking counts as shown."""
    shown = set(ids_of(request.shown))
    check_positions(request.events, len(shown))
    for index, event in enumerate(request.events):
        if event.result is not None and event.result not in shown:
            field = f"events[{index}].result"
            raise Refused(422, "not_offered", f"{field} is not in shown", field)
