"""The tables that say what the service learns from and how that is judged: signals, feedback, UBI, experiments, evaluation."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from swerve.service.config.fields import Section, about, within
from swerve.service.config.forms import DAY, NAME, NAMED, OPEN_NAME, OPEN_NAMED, UPSTREAM
from swerve.serving.ubi import CLICKS

Kind = Literal["volume", "abandonment", "reformulation", "age", "new"]
#: The signals that are computed from the traffic, in the order of their kinds in `swerve.signals`.
KINDS: tuple[Kind, ...] = ("volume", "abandonment", "reformulation", "age", "new")
#: The signals that the policy sees by default; docs/signals.md says why not all.
USED: tuple[Kind, ...] = ("volume", "abandonment", "reformulation")


class Signals(Section, frozen=True):
    """The signals of the context, and how they are computed. The features of `use` come first, then those of `numbers`."""

    use: Annotated[tuple[Kind, ...], about("Signals computed from the traffic, in the order of the context.")] = USED
    numbers: Annotated[
        dict[Annotated[str, about("", pattern=NAME, allowed=NAMED)], Literal["count", "raw"]],
        about(
            "Numbers that callers may send, by name. `count`: compared with its own past; `raw`: used as it is, clipped to [0, 1].",
            allowed="a table [signals.numbers] in which each value is one of count, raw",
        ),
    ] = msgspec.field(default_factory=dict)
    feed_ttl_seconds: Annotated[
        float,
        within(
            0, 30 * DAY, "Seconds in which a number that was pushed to /v1/signals holds, unless it says so itself.", open_low=True
        ),
    ] = 3600.0
    tuning: dict[str, float] = msgspec.field(
        default_factory=dict
    )  # hyper-parameters of `Senses`; the file has them as fields of [signals]


class EventKind(Section, frozen=True):
    """One table for each kind of user events besides `click`, or for `click` itself: what an event of the kind is worth."""

    weight: Annotated[
        float,
        within(0, 1, "What an event is worth, as a share of a click: the events on a result add up, at most to 1.", open_low=True),
    ] = 1.0
    window_seconds: Annotated[
        Annotated[float, within(0, 7 * DAY, open_low=True)] | None,
        about("Seconds after its ranking in which an event of the kind counts; without it `feedback.window_seconds`."),
    ] = None


class Feedback(Section, frozen=True):
    """Which clicks and other user events the policy learns from."""

    window_seconds: Annotated[float, within(0, 7 * DAY, "Seconds after its ranking in which a click counts.", open_low=True)] = (
        1800.0
    )
    events: Annotated[
        dict[Annotated[str, about("", pattern=NAME, allowed=NAMED)], EventKind],
        about(
            "Kinds of user events besides `click`, each with its weight and its window.",
            allowed="tables [feedback.events.KIND] with weight and window_seconds",
        ),
    ] = msgspec.field(default_factory=dict)
    evidence_per_session: Annotated[
        int,
        within(
            0,
            1000,
            "Pages with one result on top from which the policy learns, for each session and phase of a query; 0: all pages.",
        ),
    ] = 1
    anonymous_share: Annotated[
        float,
        within(
            0,
            1,
            "Bound on requests without a session, for queries that sessions ask too. In each phase the policy learns from at most "
            "20 of their shows, plus this share of the shows it learnt from sessions.",
        ),
    ] = 0.1
    steady_seconds: Annotated[
        float,
        within(
            0,
            DAY,
            "Seconds in which a session that repeats a query with the same candidates is shown the same order, as the same "
            "decision; 0: each request is a new decision.",
        ),
    ] = 120.0
    beacon: Annotated[
        bool,
        about(
            "Take feedback at /v1/beacon, as `navigator.sendBeacon` sends it: the signed decision is the permission, and no API "
            "key is needed. Pages need their origin in `server.origins`."
        ),
    ] = False
    reformulation_seconds: Annotated[
        float, within(0, DAY, "Seconds in which another query of the same session is a reformulation.", open_low=True)
    ] = 60.0


#: `experiment.control` where the control arm has no policy.
GIVEN = "given"


class Experiment(Section, frozen=True):
    """An experiment: a share of the traffic gets the policy's order, the rest the given one, or another policy's. `PUT
    /v1/experiments` and `swerve experiment ramp` change it without a restart; a later change of `name`, `treated` or `salt` in the
    file goes before that. Another `control` begins the counts anew."""

    name: Annotated[
        str,
        about(
            "The name of the experiment; empty: none runs. Another name begins a new one.", pattern=OPEN_NAME, allowed=OPEN_NAMED
        ),
    ] = ""
    treated: Annotated[
        float, within(0, 1, "Share of units that get the policy's order. A unit that is treated stays so when the share rises.")
    ] = 1.0
    salt: Annotated[
        str, about("Goes into the hash that assigns units; empty: the name. The same salt assigns as an earlier experiment did.")
    ] = ""
    control: Annotated[
        str,
        about(
            "What the other units get: `given`, the order of the request, or a policy as in `policy.spec`, such as `ts`, which has "
            "its own record of each query.",
            allowed="`given`, or a policy of the catalogue with its parameters",
        ),
    ] = GIVEN
    visit_seconds: Annotated[
        float,
        within(
            0,
            7 * DAY,
            "Seconds of a visit: what a unit searches from its first search on. It is judged as many seconds later.",
            open_low=True,
        ),
    ] = 600.0
    guard: Annotated[
        float,
        within(
            0,
            0.5,
            "Probability that a query whose order by the policy is not worse ever goes back to its given order by mistake; 0: no "
            "query goes back by itself.",
        ),
    ] = 0.01
    guard_hours: Annotated[
        float, within(0, 8760, "Hours after which a query that went back tries the policy's order again.", open_low=True)
    ] = 24.0


class Ubi(Section, frozen=True):
    """User Behavior Insights: what its collectors send to /ubi_events and /ubi_queries."""

    enabled: Annotated[
        bool,
        about(
            "Take events and queries as the collectors of User Behavior Insights send them. A `query_id` that a request to `rank` "
            "has named, or a decision, is the permission, and no API key is needed."
        ),
    ] = False
    clicks: Annotated[
        tuple[Annotated[str, about("", shortest=1)], ...],
        about(
            f"Values of `action_name` that are clicks, in any case. Empty: {', '.join(CLICKS)}. An action named like a kind of "
            "user events is one of that kind."
        ),
    ] = ()
    first_position: Annotated[
        int, within(0, 1, "The position of the top result in events that name no object: the schema does not say where it begins.")
    ] = 1
    forward: Annotated[
        str,
        about(
            "Address of a search engine whose indexes `ubi_events` and `ubi_queries` get everything that is sent, in bulk; empty: "
            "nothing is forwarded. SWERVE_UBI_AUTHORIZATION is the value of its `Authorization` header.",
            pattern=UPSTREAM,
            allowed="empty, or an address such as 'http://127.0.0.1:9200', without a user",
        ),
    ] = ""
    query_ids: Annotated[int, within(1, 10_000_000, "Query ids whose decision is remembered, the latest; about 0.5 kB each.")] = (
        50_000
    )


class Evaluation(Section, frozen=True):
    """What makes logs of the service fit for estimates of other rankings."""

    swaps: Annotated[
        float,
        within(
            0,
            1,
            "Share of pages on which two slots, drawn at random, change places: every result of a page then has a propensity in "
            "every slot.",
        ),
    ] = 0.0


#: Meanings of the fields of `Senses` in [signals]; docs/signals.md has the formulas.
SENSES = {
    "baseline_hours": "Hours that the baseline of volume and counts reaches back.",
    "warmup_hours": "Hours of baseline before a level can be a surprise.",
    "window_hours_low": "Least length of the fast window, in hours.",
    "window_hours_high": "Greatest length of the fast window, in hours.",
    "window_requests": "Requests that the fast window holds on average.",
    "overdispersion": "Overdispersion of real counts: their variance is mean × (1 + overdispersion × mean).",
    "full_surprise_deviance": "The deviance that is a surprise of 1.",
    "burst_cap": "Greatest rate with which a burst enters the baseline, as a multiple of the known rate.",
    "odds_factor": "Factor of the odds for which the rates (abandonment, reformulation) are watched.",
    "evidence_ceiling": "Upper bound of the summed evidence for risen odds; half of it is a crossing.",
    "recent_rate_retention": "Share of the recent rate that remains after each request.",
    "baseline_rate_retention": "Share of the baseline rate that remains after each request.",
    "rate_warmup_requests": "Requests before a rate can be a surprise.",
    "min_contrary_outcomes": "Requests of the other outcome before a rate can be a surprise.",
    "close_after_seconds": "Least number of seconds before a request without a click counts as abandoned.",
    "latch_hours": "Hours without a crossing before the next one is heard.",
    "latch_requests": "Requests without a crossing before the next one of a rate, of age or of new candidates is heard.",
    "crossing_level": "Level from which on a surprise is a crossing.",
    "noise_ceiling": "Upper bound of the noise that a signal shows in all requests in which it is not heard.",
    "freshness_hours": "Hours in which the freshness of a candidate falls by a factor of e.",
    "season_half_trust_requests": "Requests after which the factor of an hour of the week has half its weight.",
    "season_weeks": "Weeks over which the season is averaged.",
    "season_max_share": "Greatest share of all traffic with which one query enters the season.",
}
