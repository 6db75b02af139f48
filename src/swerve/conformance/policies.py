"""What holds for every policy."""

from __future__ import annotations

import functools
import random
from typing import Any

import numpy as np

from swerve.conformance.checking import ARMS, FEATURES, Subject, check, need, reads_back
from swerve.core import engine
from swerve.core.contract import (
    begin,
    evict,
    mean_of,
    needs_events,
    played,
    plays_of,
    reads_context,
    restart,
    reward,
    select,
    show,
    starts,
)
from swerve.core.decisions import decode
from swerve.core.fleet import Fleet
from swerve.core.pages import order, present_and_respond
from swerve.core.rng import split
from swerve.core.spec import Spec, pack, walk
from swerve.core.tables import full_mask, pool_dtype, row_dtype
from swerve.environments import Pages, Traffic, World, world
from swerve.simulate import Session, loop

#: Verbs without which no policy plays.
NEEDED = (select, begin, restart, show, reward, evict)
SEED = 5
ROUNDS = 150
MOST_ARMS = 64
#: Results of a query, and slots of a page.
PAGE_ARMS, SLOTS = 6, 3
PAGES_SHOWN = 50
#: Rounds of the simulation loop, before and after an eviction and a restart.
FIRST_ROUNDS, ALL_ROUNDS = 300, 400


class Plain:
    """The tables of a policy, with the kernels' source run by Python."""

    def __init__(self, policy: Spec, queries: int = 1, arms: int = ARMS, features: int = FEATURES, seed: int = SEED) -> None:
        self.policy, self.params, self.arms = policy, pack(policy), arms
        self.table = np.zeros(queries, row_dtype(policy, arms, features))
        self.pools = np.zeros(2, pool_dtype(policy, features))
        words = np.array([split(seed, "policy", i) for i in range(queries)], np.uint64)
        engine.begin_rows.plain(self.params, self.table, words)
        engine.begin_pools.plain(self.params, self.pools, features)

    def decide(self, x: list[float], available: int | None = None, told: bool = False, now: float = 0.0) -> tuple[int, int, int]:
        """Return the arm of a decision, its generation and the start of the policy."""
        mask = np.int64(full_mask(self.arms) if available is None else available)
        code = engine.select_one.plain(self.params, self.table, 0, self.pools, 0, 1, np.array(x), int(told), mask, now)
        need(code != engine.OUTSIDE, f"the context {x} is outside its domain: give the class a static method `contexts`")
        need(code >= 0, f"it shows nothing although the arms {int(mask):b} (a mask) are on offer")
        arm, generation, start = decode(int(code))
        return int(arm), int(generation), int(start)

    def reward(self, decision: tuple[int, int, int], now: float = 0.0) -> bool:
        """Tell of a click on a decision; return whether it was learnt."""
        return bool(engine.update_one.plain(self.params, self.table, 0, *decision, 1.0, now, now))

    def evict(self, arm: int) -> None:
        """Give an arm to another candidate."""
        engine.evict_one.plain(self.params, self.table, 0, arm)

    def restart(self) -> None:
        """Start over."""
        engine.restart_one.plain(self.params, self.table, 0)

    @property
    def state(self) -> tuple[bytes, bytes]:
        """Everything that the future depends on."""
        return self.table.tobytes(), self.pools.tobytes()


@functools.cache
def drawn(oracle: str) -> World:
    """Return an instance that compiled and interpreted code play: contexts in a box, or two features in the unit ball.

    The box has as many features as `Traffic`, so that the loop compiled here is that of the commands.
    """
    size = {"features": FEATURES} if oracle == "hyperplane" else {}
    made: World = world(
        Traffic(queries=2, impressions=700, results=ARMS, shifting_share=1.0, order="uniform", oracle=oracle, **size), 1
    )
    return made


@check("policy")
def has_every_verb(subject: Subject) -> None:
    """it implements every verb that a policy needs, and its state is plain numbers."""
    missing = [str(verb) for verb in NEEDED if not verb.knows(subject.spec)]
    need(not missing, f"these are not registered: {', '.join(missing)}")
    for what, record in (("row", row_dtype(subject.spec, ARMS, FEATURES)), ("pool", pool_dtype(subject.spec, FEATURES))):
        need(not record.hasobject, f"the layout of its {what} has Python objects: {record}")


def state_after(policy: Spec, instance: World, see: bool, compiled: bool) -> list[bytes] | None:
    """Return the state after the beginning, after some rounds, and after an eviction, a restart and more rounds.

    None if the policy refuses a context.
    """
    make = Fleet if compiled else Plain
    tables: Any = make(policy, queries=2, arms=ARMS, features=instance.features, seed=SEED)
    places, x = instance.cursors.copy(), np.zeros(instance.features)
    tally, notes = np.zeros(2, loop.TALLY), np.zeros(2, loop.NOTE)

    def picked(entry: Any, *more: Spec) -> Any:
        return entry.bind(policy, *more) if compiled else entry.plain

    def refuses(start: int, stop: int) -> bool:
        reached = picked(loop.play, instance.spec)(
            tables.params, tables.table, tables.pools, np.zeros(2, np.int64), 1, pack(instance.spec), instance.scene,
            instance.segments, places, instance.schedule, start, stop, see, x, np.int64(full_mask(ARMS)), tally, notes,
        )  # fmt: skip
        return bool(reached < stop)

    seen = [tables.table.tobytes(), tables.pools.tobytes()]
    if refuses(0, FIRST_ROUNDS):
        return None
    seen += [tables.table.tobytes(), tables.pools.tobytes()]
    picked(engine.evict_one)(tables.params, tables.table, 0, 1)
    picked(engine.restart_one)(tables.params, tables.table, 1)
    if refuses(FIRST_ROUNDS, ALL_ROUNDS):
        return None
    return [*seen, *[part.tobytes() for part in (tables.table, tables.pools, places, x, tally, notes)]]


PARTS = (
    "begin",
    "pools at begin",
    "300 rounds",
    "pools of 300 rounds",
    "400 rounds",
    "pools",
    "places",
    "contexts",
    "counts",
    "notes",
)


@check("policy")
def compiled_equals_interpreted(subject: Subject) -> None:
    """compiled and interpreted give the same bytes."""
    policy = subject.spec
    reads = bool(reads_context(policy))
    # contexts in a box, else in a ball; a policy that refuses both, such as one over a finite class, sees zeros
    for oracle, see in (("rectangle", reads), ("hyperplane", reads), ("rectangle", False)):
        slow = state_after(policy, drawn(oracle), see, compiled=False)
        if slow is not None:
            fast = state_after(policy, drawn(oracle), see, compiled=True)
            need(fast is not None, "compiled code refuses a context that interpreted code takes")
            differs = [name for name, one, other in zip(PARTS, fast or (), slow, strict=True) if one != other]
            need(not differs, f"compiled and interpreted differ, first in: {(differs or [''])[0]}")
            need(slow[0] != slow[2], "300 rounds have changed nothing in its rows")
            return
    need(False, "it refuses every context: those of a box, of the unit ball, and zeros")


@check("policy")
def plays_what_is_on_offer(subject: Subject) -> None:
    """only arms on offer are chosen, all of them sooner or later; every start comes after the last."""
    dice, state = random.Random(1), Plain(subject.spec)
    last, seen = 0, set()
    for t in range(ROUNDS):
        mask = dice.randrange(1, 1 << ARMS)
        decision = state.decide(subject.draw(dice), mask, told=t % 40 == 39, now=float(t))
        arm, _, start = decision
        need(mask >> arm & 1, f"round {t}: arm {arm} is not on offer (the mask is {mask:04b})")
        need(start >= last, f"round {t}: start {start} comes after {last}")
        need(start == starts(subject.spec, state.table[0]), f"round {t}: the decision names another start")
        last = start
        seen.add(arm)
        if dice.random() < 0.2 * (arm + 1):
            need(state.reward(decision, now=float(t)), f"round {t}: the click on a decision just made is not learnt")
    need(seen == set(range(ARMS)), f"in {ROUNDS} rounds only the arms {sorted(seen)} of {ARMS} are chosen")


@check("policy")
def plays_64_arms(subject: Subject) -> None:
    """all 64 arms can be played."""
    state, dice = Plain(subject.spec, arms=MOST_ARMS), random.Random(2)
    for arm in (63, 0, 31, 32):
        mask = -(2**63) if arm == MOST_ARMS - 1 else 1 << arm
        chosen = state.decide(subject.draw(dice), mask)[0]
        need(chosen == arm, f"arm {arm} alone is on offer, and {chosen} is chosen")
    need(0 <= state.decide(subject.draw(dice))[0] < MOST_ARMS, "an arm beyond the last is chosen")


@check("policy")
def repeats_itself(subject: Subject) -> None:
    """the same seed plays the same way."""

    def arms() -> tuple[list[int], tuple[bytes, bytes]]:
        state, dice, out = Plain(subject.spec, seed=1), random.Random(3), []
        for t in range(60):
            decision = state.decide(subject.draw(dice), now=float(t))
            out.append(decision[0])
            if dice.random() < 0.5:
                state.reward(decision, now=float(t))
        return out, state.state

    need(
        arms() == arms(), "two runs with one seed differ: use `draw(row)` for random numbers, and keep no state outside of the row"
    )


@check("policy")
def its_record_is_its_whole_state(subject: Subject) -> None:
    """a copy of its record goes on as the original does: a store and a replay rely on that."""
    first, dice = Plain(subject.spec), random.Random(8)

    def rounds(state: Plain, seed: int) -> tuple[bytes, bytes]:
        dice = random.Random(seed)
        for t in range(43):
            decision = state.decide(subject.draw(dice), now=100.0 + t)
            if dice.random() < 0.4:
                state.reward(decision, now=100.0 + t)
        return state.state

    for t in range(37):
        decision = first.decide(subject.draw(dice), now=float(t))
        if dice.random() < 0.4:
            first.reward(decision, now=float(t))
    second = Plain(subject.spec)
    second.table[:], second.pools[:] = first.table, first.pools
    need(
        rounds(first, 9) == rounds(second, 9),
        "after a copy of its record it goes on otherwise: something is kept outside of the record",
    )


@check("policy")
def says_that_it_must_be_told(subject: Subject) -> None:
    """if it reads `told`, it says so (`needs_events`): a service refuses it."""
    states = []
    for told in (False, True):
        state, dice = Plain(subject.spec), random.Random(6)
        for t in range(60):
            decision = state.decide(subject.draw(dice), told=told and t % 20 == 19, now=float(t))
            if dice.random() < 0.4:
                state.reward(decision, now=float(t))
        states.append(state.state)
    says = any(needs_events(part) for part in walk(subject.spec))
    need(says or states[0] == states[1], "it plays otherwise when it is told of events: register `needs_events`, which returns 1")


@check("policy")
def a_restart_forgets(subject: Subject) -> None:
    """after a restart nothing is left of what was seen."""
    policy, state, dice = subject.spec, Plain(subject.spec), random.Random(4)
    for t in range(30):
        decision = state.decide(subject.draw(dice), now=float(t))
        state.reward(decision)
    state.restart()
    row = state.table[0]
    if mean_of.knows(policy):
        need(played(policy, row) == 0, f"`played` is {played(policy, row)} after a restart")
        for arm in range(ARMS):
            need(plays_of(policy, row, arm) == 0, f"arm {arm} has {plays_of(policy, row, arm)} plays after a restart")
            need(mean_of(policy, row, arm) == 0.0, f"arm {arm} has the mean {mean_of(policy, row, arm)} after a restart")
    if starts(policy, row) != decision[2]:
        need(not state.reward(decision), "a click from before a restart is learnt")


@check("policy")
def an_evicted_arm_starts_fresh(subject: Subject) -> None:
    """an evicted arm starts without a record, and its late click is harmless."""
    policy, state, dice = subject.spec, Plain(subject.spec), random.Random(5)
    for t in range(10):
        state.reward(state.decide(subject.draw(dice), now=float(t)))
    decision = state.decide(subject.draw(dice), now=10.0)
    state.evict(decision[0])
    if plays_of.knows(policy):
        left = plays_of(policy, state.table[0], decision[0])
        need(left == 0, f"an evicted arm still has {left} plays")
    state.reward((decision[0], int(state.table[0].generation[decision[0]]), decision[2]), now=10.0)
    for t in range(11, 40):
        state.decide(subject.draw(dice), now=float(t))


@check("policy")
def a_late_click_of_an_evicted_arm_is_nobodys(subject: Subject) -> None:
    """a late click for an evicted arm is nobody's."""
    state, x = Plain(subject.spec, arms=1), subject.draw(random.Random(3))
    old = state.decide(x)
    state.evict(0)
    new = state.decide(x)
    before = state.table.tobytes()
    need((old[1], new[1]) == (0, 1), "the generation of an evicted arm is not the next one")
    need(not state.reward(old) and state.table.tobytes() == before, "a click on the old candidate is credited to the new one")
    if new[2] == old[2]:
        need(state.reward(new), "a click on the new candidate is not learnt")


@check("policy")
def a_late_click_of_before_a_restart_is_nobodys(subject: Subject) -> None:
    """a late click of before a restart is nobody's."""
    state, x = Plain(subject.spec, arms=1), subject.draw(random.Random(3))
    old = state.decide(x)
    state.restart()
    new = state.decide(x)
    before = state.table.tobytes()
    need(not state.reward(old) and state.table.tobytes() == before, "a click of before a restart is learnt")
    need(state.reward(new), "a click of after a restart is not learnt")


@check("policy")
def repeated_clicks_break_nothing(subject: Subject) -> None:
    """a click told again and again breaks nothing: no average is above 1."""
    dice, state = random.Random(2), Plain(subject.spec)
    for t in range(12):
        decision = state.decide(subject.draw(dice), now=float(t))
        for _ in range(5):
            state.reward(decision, now=float(t))
    state.decide(subject.draw(dice), now=12.0)
    if mean_of.knows(subject.spec):
        means = [float(mean_of(state.params[0], state.table[0], arm)) for arm in range(ARMS)]
        need(max(means) <= 1.0, f"after repeated clicks the averages are {means}")


def orders_pages(subject: Subject) -> bool:
    """Whether it fills pages in a way of its own; by default it chooses the top, and the rest is as given."""
    own: Any = order.lookup(type(subject.spec))
    default: Any = order.default
    return bool(own.__code__.co_code != default.__code__.co_code)  # a combinator has a copy of the default


@check("policy")
def a_page_has_each_result_once(subject: Subject) -> None:
    """a page has results on offer, each once, and the same clicks teach the same."""

    def pages() -> tuple[bytes, bytes]:
        state, dice = Plain(subject.spec, arms=PAGE_ARMS), random.Random(7)
        spec, row, pool = state.params[0], state.table[0], state.pools[0]
        for t in range(PAGES_SHOWN):
            given = np.array(dice.sample(range(PAGE_ARMS), dice.randint(1, PAGE_ARMS)), np.int64)
            page = np.full(SLOTS, -1, np.int64)
            engine.consider(spec, row, state.pools, 0, 1, np.array(subject.draw(dice)), 0, float(t))
            filled = int(order(spec, row, pool, given, page, float(t)))
            shown = page[:filled].tolist()
            need(
                1 <= filled <= min(SLOTS, len(given)), f"round {t}: {filled} of {SLOTS} slots are filled from {len(given)} results"
            )
            need(len(set(shown)) == filled, f"round {t}: the page {shown} has a result twice")
            need(set(shown) <= set(given.tolist()), f"round {t}: the page {shown} has a result that is not among {given.tolist()}")
            clicks = np.int64(dice.randrange(1 << filled) if dice.random() < 0.5 else 0)
            present_and_respond(spec, row, pool, page[:filled], clicks, t, float(t))
        return state.state

    need(pages() == pages(), "the same pages and clicks end in different bytes")


@check("policy", orders_pages)
def compiled_pages_equal_interpreted(subject: Subject) -> None:
    """on pages, compiled and interpreted give the same bytes."""
    instance = world(Pages(queries=2, impressions=600, results=PAGE_ARMS, slots=SLOTS, features=FEATURES), 4)
    fast, slow = Session(subject.spec, instance), Session(subject.spec, instance, compiled=False)
    for session in (fast, slow):
        session.play(FIRST_ROUNDS)
    differs = [name for name in fast.state if fast.state[name] != slow.state[name]]
    need(not differs, f"compiled and interpreted differ in: {', '.join(differs)}")


@check("policy")
def its_text_reads_back(subject: Subject) -> None:
    """its text reads back."""
    reads_back(subject.spec, "policy")
