"""The experiment that runs: units get their arms, searches and clicks are counted by arm, and an operator ramps the share.

What runs is a record of the store, written with the audit before a ramp is answered. The counts are another one, written with the
records that all queries share.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

import msgspec

from swerve.service.config.learning import GIVEN
from swerve.service.config.sections import Config
from swerve.service.metrics import Metrics
from swerve.service.relaying import Relay, Relayed, replay
from swerve.service.turns import Turns
from swerve.serving.control import Change, Trial
from swerve.serving.experiment import ExperimentRequest, KeptExperiment, Report, check_experiment
from swerve.serving.holdout import ARMS, CONTROL, TREATED, Holdout, code
from swerve.serving.lift import KEY, Counted, Lift, Tracked, line_of, names_of
from swerve.serving.messages import Asked, RankResponse, Refused, encode
from swerve.serving.outcomes import Outcome
from swerve.serving.ranker import Ranker
from swerve.serving.requests import Decided, Prepared
from swerve.serving.tokens import Ticket
from swerve_client.naming import SEPARATOR, with_arm

log = logging.getLogger("swerve.service")

#: The records of the store that hold the experiment and its counts.
EXPERIMENT, COUNTS = "experiment", "lift"
#: Visits that a search judges on its way, so that they do not pile up; and those that are judged without a pause.
ON_THE_WAY, TOGETHER = 2, 32
HOUR = 3600.0
#: What the policy is compared with: without a policy of the control arm, and with one.
AGAINST = "its given order", "the control's order"
MOST_REWARD = 1.0  # of a search, whatever its events add up to


class Experiments:
    """The experiment of a service, if one runs."""

    def __init__(
        self,
        ranker: Ranker,
        metrics: Metrics,
        clock: Callable[[], float],
        config: Config,
        kept: Mapping[str, bytes],
        away: bool = False,
    ) -> None:
        self.ranker, self.metrics, self.clock, self.config = ranker, metrics, clock, config.experiment
        self.write: Callable[[dict[str, bytes], Change], Awaitable[None]] | None = None  # the audit's
        self.published: Callable[[], Awaitable[None]] | None = None  # tells other workers what runs
        self.away = away  # whether another worker counts
        self.trial: Trial | None = None
        self.lift: Lift | Relay | None = None
        self.stage = 0
        self.control = None if self.config.control == GIVEN else self.config.control  # the policy of the control arm
        self._unsaved = False  # whether the store does not have what runs
        self._one_at_a_time = asyncio.Lock()
        self.load(kept)
        metrics.treated.ask = lambda: 1.0 if self.trial is None else self.trial.treated
        metrics.guarded.ask = lambda: 0.0 if self.lift is None else float(len(self.lift.guarded))

    # ------------------------------------------------------------------ what runs
    @property
    def configured(self) -> tuple[str, float, str]:
        """What the configuration says."""
        return self.config.name, self.config.treated, self.config.salt

    def load(self, kept: Mapping[str, bytes]) -> None:
        """Take up the records of a store; what the configuration says goes before them where it has changed since."""
        name, treated, salt = self.configured
        self.trial = self.lift = None
        known = msgspec.json.decode(kept[EXPERIMENT], type=KeptExperiment) if EXPERIMENT in kept else None
        before = None if known is None else known.running
        if before is not None and before.control != self.control:  # another comparison: its counts begin anew
            before = Trial(before.name, before.treated, self.clock(), before.salt, before.by, before.note, self.control)
        if known is not None and known.configured == self.configured:
            trial = before
        elif not name:
            trial = None
        elif before is not None and (before.name, before.salt) == (name, salt):
            trial = Trial(name, treated, before.since, salt, control=self.control)
        else:
            trial = Trial(name, treated, self.clock(), salt, control=self.control)
        counted = None
        if trial is not None and COUNTS in kept:
            try:
                counted = msgspec.json.decode(kept[COUNTS], type=Counted)
            except msgspec.DecodeError as error:
                log.error("the counts of the experiment are of another form and start over: %s", error)
        self._take(trial, counted)
        self._unsaved = (known is not None or trial is not None) and known != KeptExperiment(self.configured, trial)

    def _take(self, trial: Trial | None, counted: Counted | None = None) -> None:
        """Let an experiment run; its counts go on if they are its own."""
        before, self.trial = self.trial, trial
        self.stage += 1
        if trial is None:
            self.lift = None
            return
        self._holdout = Holdout(self.ranker.query_key, trial.salt or trial.name)
        if self.lift is not None and before is not None and before.since == trial.since:
            self.lift.forget_open()
            return
        if self.away:
            self.lift = Relay(trial.since)
            return
        if counted is None or counted.since != trial.since:
            counted = Counted(trial.since)
        config, against = self.config, AGAINST[self.control is not None]
        self.lift = Lift(
            counted, visit=config.visit_seconds, guard=config.guard, patience=config.guard_hours * HOUR, against=against
        )
        self.lift.changed = True

    async def set(self, request: ExperimentRequest, by: str | None) -> Report:
        """Ramp the experiment, begin another or end it; return the report once that is durable."""
        check_experiment(request)
        async with self._one_at_a_time:
            before, now = self.trial, self.clock()
            name = request.name if request.name is not None else before.name if before is not None else ""
            after: Trial | None = None
            if name and before is not None and before.name == name:
                treated = before.treated if request.treated is None else request.treated
                after = Trial(name, treated, before.since, before.salt, by, request.note, self.control)
            elif name:
                after = Trial(name, 1.0 if request.treated is None else request.treated, now, "", by, request.note, self.control)
            elif request.name is None:
                raise Refused(422, "unknown", "no experiment runs; a new one must have a name", "name")
            kept = {EXPERIMENT: encode(KeptExperiment(self.configured, after))}
            assert self.write is not None, "wired at the start"
            await self.write(kept, Change(now, "ramp", by, trial_before=before, trial_after=after, note=request.note))
            self._take(after)
            self._unsaved = False
            if self.published is not None:
                await self.published()
        log.info("experiment", extra={"experiment": name, "treated": None if after is None else after.treated})
        return self.report()

    # ------------------------------------------------------------------ requests
    def assign(self, asked: Asked, prepared: Prepared) -> None:
        """Give a request its arm; held-out units, and queries on guard, are shown the given order, or that of the control's policy,
        which has a record of its own for each query."""
        trial, lift = self.trial, self.lift
        if trial is None or lift is None or self.ranker.settings.shadow:
            return  # in shadow mode all units see the given order: there is nothing to compare
        if asked.unit is not None:
            unit = prepared.unit = self._holdout.unit("unit", asked.unit)
        elif asked.session is not None:
            unit = prepared.unit = self._holdout.unit("session", asked.session)
        else:
            unit = self._holdout.unit("query", prepared.key.hex())
        prepared.arm, prepared.stage = code(unit, trial.treated), self.stage
        held = prepared.arm == CONTROL or (prepared.key in lift.guarded and lift.on_guard(prepared.key, self.clock()) is not None)
        if held and self.ranker.rivals is not None:
            prepared.plain = prepared.key
            prepared.key, prepared.text = self.ranker.keys.rival(prepared.key), with_arm(prepared.text)
        else:
            prepared.control = held

    def answered(self, prepared: Prepared, decided: Decided, answer: RankResponse) -> None:
        """Name the arm in an answer, and count a decision that is new."""
        lift, arm = self.lift, prepared.arm
        answer.arm = ARMS[arm]
        if lift is None or self.trial is None or prepared.stage != self.stage:
            return  # a ramp came between
        plain = prepared.key if prepared.plain is None else prepared.plain
        if arm == TREATED and (line := lift.guarded.get(plain)) is not None and (prepared.control or plain is not prepared.key):
            answer.guarded = line.why
        if decided.again:
            return
        self.metrics.arm_searches(str(answer.arm)).value += 1
        names = names_of(plain, prepared.text.split(SEPARATOR)[1:])
        lift.searched(prepared.unit, arm, self.trial.treated, decided.signed.number, names, decided.at)
        self.judge(ON_THE_WAY)

    def clicked(self, ticket: Ticket, number: int, before: Outcome, outcome: Outcome) -> None:
        """Count feedback for its arm."""
        arm = str(ARMS[ticket.arm])
        fresh = outcome.clicked & ~before.clicked
        for slot in range(fresh.bit_length()):
            if fresh >> slot & 1:
                self.metrics.arm_clicks(arm, str(slot + 1)).value += 1
        if outcome.outside and not before.outside:
            self.metrics.arm_clicks(arm, "below").value += 1
        was, now = (one.clicked.bit_count() + one.outside for one in (before, outcome))
        if was == 0 and now:
            self.metrics.arm_clicked(arm).value += 1
        lift = self.lift
        if lift is not None and self.trial is not None and ticket.at >= self.trial.since:
            worth_before, worth = (min(one.reward() + one.outside, MOST_REWARD) for one in (before, outcome))
            lift.clicked(ticket.arm, number, was, now, worth_before, worth)
            self.metrics.arm_reward(arm).value += max(worth - worth_before, 0.0)

    def judge(self, most: int = TOGETHER) -> int:
        """Judge visits that are due; return how many there were."""
        lift = self.lift
        if not isinstance(lift, Lift):
            return 0
        now = self.clock()
        if lift.guarded:
            lift.release(now)
        done, back = lift.judge(now, most)
        for name in back:
            line = lift.counted.queries[name]
            self.metrics.guards.value += 1
            log.warning(
                "a query goes back to %s: %s",
                AGAINST[self.control is not None],
                line.why,
                extra={"query": name, "until": line.until},
            )
        return done

    # ------------------------------------------------------------------ several workers
    def told(self) -> list[Relayed]:
        """Return what this worker has to tell the one that counts, and forget it."""
        return self.lift.told() if isinstance(self.lift, Relay) else []

    def count(self, worker: int, events: Iterable[Relayed]) -> None:
        """Count what another worker tells."""
        if isinstance(self.lift, Lift):
            replay(self.lift, worker, events)

    def guards(self) -> dict[str, Tracked]:
        """Return the queries on guard by the names of their lines, for the other workers."""
        return {line_of(key): line for key, line in self.lift.guarded.items()} if self.lift is not None else {}

    def guard(self, lines: Mapping[str, Tracked]) -> None:
        """Take up the queries on guard from the worker that counts."""
        if isinstance(self.lift, Relay):
            self.lift.guarded = {bytes.fromhex(name.removeprefix(KEY)): line for name, line in lines.items()}

    # ------------------------------------------------------------------ records and reports
    @property
    def changed(self) -> bool:
        """Whether the counts, or what runs, have changed since they were last written."""
        return self._unsaved or (self.lift is not None and self.lift.changed)

    def record(self) -> dict[str, bytes]:
        """Return the counts, and what runs if the configuration has changed it, as records for the store."""
        records: dict[str, bytes] = {}
        if self._unsaved and not self._one_at_a_time.locked():  # else an operator's change is under way, and goes before
            self._unsaved = False
            records[EXPERIMENT] = encode(KeptExperiment(self.configured, self.trial))
        if isinstance(self.lift, Lift):
            self.lift.changed = False
            records[COUNTS] = encode(self.lift.counted)
        return records

    def failed(self) -> None:
        """Note that the records could not be written."""
        self._unsaved = True
        if self.lift is not None:
            self.lift.changed = True

    def why(self, key: bytes) -> str | None:
        """Return why a query is shown in its given order; None if it is not."""
        line = None if self.lift is None else self.lift.on_guard(key, self.clock())
        return None if line is None else line.why

    async def reported(self, limit: int) -> Report:
        """Return the report with as many segments and queries as `limit`, made in turns."""
        report, turns = self.report(), Turns()
        if not isinstance(self.lift, Lift):
            return report
        counted = self.lift.counted
        report.segments, report.queries = [], []
        for found, lines in ((report.segments, counted.segments), (report.queries, counted.queries)):
            for line in self.lift.lines(lines, limit):
                line.query = self._text(line.name)
                found.append(line)
                await turns()
        return report

    def report(self) -> Report:
        """Return what runs, what was counted and what it says over all."""
        trial, lift = self.trial, self.lift
        if trial is None or not isinstance(lift, Lift):
            return Report(running=False)
        self.judge()
        outcomes, arms, counted = lift.outcomes(), lift.arms(), lift.counted
        visits, judged = counted.reward.visits, arms.treated.judged + arms.control.judged
        more = outcomes.reward.more_visits
        guarded = lift.guards()
        for line in guarded:
            line.query = self._text(line.name)
        return Report(
            True,
            trial.name,
            trial.treated,
            trial.since,
            trial.by,
            trial.note,
            outcomes.reward.verdict,
            None if more is None else round(more * judged / max(visits, 1)),
            lift.waiting(),
            counted.by_query,
            arms,
            outcomes,
            guarded=guarded,
            control=trial.control,
            judged_at=lift.judged_at(),
            judged_after=2.0 * lift.visit,
        )

    def _text(self, name: str) -> str | None:
        """Return the text of a query in memory by the name of its line; None where texts are not kept."""
        if not name.startswith(KEY):
            return None
        key, rows = bytes.fromhex(name.removeprefix(KEY)), self.ranker.rows
        place = rows.get(key) or rows.get(self.ranker.keys.rival(key))
        return None if place is None or place.query is None else place.query.split(SEPARATOR)[0]
