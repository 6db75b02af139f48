"""The checker of histories: histories that are linearisable and some that are not, and a search through all orders beside it."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter

import pytest
from faults.history import Click, Crash, History, Read, bounds, judge, order

NEVER = math.inf


def history(*what: Click | Read | Crash, **before: int) -> History:
    return History(
        before,
        [one for one in what if isinstance(one, Click)],
        [one for one in what if isinstance(one, Read)],
        [one for one in what if isinstance(one, Crash)],
    )


def read(sent: float, answered: float, **counts: int) -> Read:
    return Read(sent, answered, counts)


RIGHT = {
    "nothing": history(),
    "an acknowledged click is seen": history(Click("a", 1, 2), read(3, 4, a=1)),
    "a click under way is seen": history(Click("a", 1, 5), read(3, 4, a=1)),
    "a click under way is not seen": history(Click("a", 1, 5), read(3, 4)),
    "a click without an answer is seen": history(Click("a", 1), read(3, 4, a=1)),
    "a click without an answer is never seen": history(Click("a", 1), read(3, 4), read(100, 101)),
    "a click without an answer takes effect late": history(Click("a", 1), read(3, 4), read(100, 101, a=1)),
    "reads at the same time see before and after": history(Click("a", 1, 9), read(2, 8, a=1), read(3, 7)),
    "what was there before is there": history(Click("b", 1, 2), read(3, 4, a=5, b=1), a=5),
    "two candidates, each in its turn": history(Click("a", 1, 9), Click("b", 1, 9), read(2, 3, b=1), read(4, 5, a=1, b=1)),
    "what touches at its ends overlaps": history(Click("a", 1, 2), read(2, 3)),
    # the read must come before the click on b, and needs the click on a before it
    "a read forces one click before another": history(Click("a", 1), Click("b", 1, 3), read(2, 5, a=1), read(6, 7, a=1, b=1)),
    # the first read counts one of the two: it must be the one that is acknowledged first
    "of two clicks the one with the earlier answer": history(Click("a", 1), Click("a", 2, 6), read(3, 4, a=1), read(7, 8, a=1)),
    "a crash undoes what was not acknowledged": history(Click("a", 1), read(2, 3, a=1), Crash(4, 5), read(6, 7)),
    "a crash need not undo it": history(Click("a", 1), read(2, 3, a=1), Crash(4, 5), read(6, 7, a=1)),
    "what a crash undid is sent again": history(Click("a", 1, 9), read(2, 3, a=1), Crash(4, 5), read(6, 7), read(10, 11, a=1)),
}
WRONG = {
    "an acknowledged click is lost": history(Click("a", 1, 2), read(3, 4)),
    "a click counts twice": history(Click("a", 1, 2), read(3, 4, a=2)),
    "a click without an answer counts twice": history(Click("a", 1), read(3, 4, a=2)),
    "a click is seen before it is sent": history(Click("a", 5, 6), read(3, 4, a=1)),
    "a click is in the place of another": history(Click("a", 1, 2), read(3, 4, b=1)),
    "what was there before is lost": history(read(3, 4, a=4), a=5),
    "a crash loses an acknowledged click": history(Click("a", 1, 2), read(3, 4, a=1), Crash(5, 6), read(7, 8)),
    "a crash doubles a click": history(Click("a", 1), Crash(2, 3), read(4, 5, a=2)),
}
#: No single read is wrong, but all together are.
TOGETHER = {
    "a click that was seen is taken back": history(Click("a", 1), read(2, 3, a=1), read(4, 5)),
    "a click that was seen is taken back before its answer": history(Click("a", 1, 9), read(2, 3, a=1), read(4, 5)),
    # one of the two counts, by the first read; the second is acknowledged and must count besides
    "a click is lost behind one without an answer": history(Click("a", 1), read(2, 3, a=1), Click("a", 4, 5), read(6, 7, a=1)),
    "two reads disagree on which click came first": history(Click("a", 1, 9), Click("b", 1, 9), read(2, 3, a=1), read(4, 5, b=1)),
    "… also at the same time": history(Click("a", 1, 9), Click("b", 1, 9), read(2, 5, a=1), read(2, 5, b=1)),
    "a kill of another process takes it back": history(Click("a", 1), Crash(2, 3), read(4, 5, a=1), read(6, 7)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_an_order_explains_is_right(name):
    assert bounds(RIGHT[name]) == []
    assert order(RIGHT[name]) is None
    assert searched(RIGHT[name])


@pytest.mark.parametrize("name", WRONG)
def test_a_read_that_cannot_be_is_found(name):
    assert len(bounds(WRONG[name])) >= 1
    assert order(WRONG[name]) is not None
    assert not searched(WRONG[name])


@pytest.mark.parametrize("name", TOGETHER)
def test_what_no_order_explains_is_found(name):
    assert bounds(TOGETHER[name]) == []
    assert "no order explains" in str(order(TOGETHER[name]))
    assert not searched(TOGETHER[name])


def test_what_is_wrong_is_told():
    told = bounds(history(Click("a", 1, 2), Click("b", 1), read(3, 4, b=2)))
    assert told == ["a: 0 clicks at 4.000, 1 to 1 are possible: 1 lost", "b: 2 clicks at 4.000, 0 to 1 are possible: 1 too many"]
    assert judge({"q": history(Click("q/a", 1, 2), Read(3, 4, {"q/a": 1}))}) == []
    (line,) = judge({"q": history(Click("q/a", 1, 2), Read(3, 4, {"q/a": 1, "p/a": 0}))})
    assert line == "q has clicks of another query: p/a"
    (line,) = judge({"q": history(Click("q/a", 1), Read(2, 3, {"q/a": 1}), Read(4, 5, {}))})
    assert line == "q: no order explains the read that was answered at 5.000: q/a 0, 1 to 1 are possible"


# ---------------------------------------------------------------------- all orders


def searched(what: History) -> bool:
    """Return whether some order of all clicks and reads explains a history, by trying every one."""
    crossing = {one for one in what.reads for crash in what.crashes if one.sent <= crash.ended and one.answered >= crash.began}
    reads = [one for one in what.reads if one not in crossing]
    operations = [*((one.sent, one.acknowledged, one) for one in what.clicks), *((one.sent, one.answered, one) for one in reads)]
    operations += [(crash.began, crash.began, crash) for crash in what.crashes]
    seen = set()

    def go(left: frozenset[int], counted: frozenset[Click]) -> bool:
        """Try every next step; `counted` are the clicks that count."""
        if (left, counted) in seen:
            return False
        seen.add((left, counted))
        if all(operations[at][1] == NEVER for at in left):
            return True
        latest = min(operations[at][1] for at in left)
        for at in left:
            begins, ends, one = operations[at]
            if begins > latest:  # another one had its answer before this one was sent
                continue
            rest = left - {at}
            if isinstance(one, Click):
                if go(rest, counted | {one}):
                    return True
            elif isinstance(one, Read):
                state = Counter(what.before) + Counter(click.candidate for click in counted)
                if Counter(one.counts) == state and go(rest, counted):
                    return True
            else:
                undone = [click for click in counted if click.acknowledged > ends]
                for some in itertools.chain.from_iterable(itertools.combinations(undone, n) for n in range(len(undone) + 1)):
                    again = {number for number, (_, _, other) in enumerate(operations) if other in some}
                    if go(rest | again, counted - set(some)):
                        return True
        return False

    return go(frozenset(range(len(operations))), frozenset())


def drawn(draw: random.Random) -> History:
    """Return a small history: a counter answers at random moments, and sometimes it errs."""
    moments = iter(sorted(draw.sample(range(1000), 40)))
    what = History(before={"a": draw.choice([0, 0, 2])} if draw.random() < 0.5 else {})
    state, moment = Counter(what.before), 0.0
    under_way: list[tuple[str, Click | Read, bool]] = []
    for _ in range(draw.randint(6, 20)):
        moment = float(next(moments))
        kind = draw.choices(("click", "read", "end", "crash", "undo"), (4, 4, 6, 0.5, 0.5))[0]
        if kind == "click" and len(what.clicks) < 5:
            click = Click(draw.choice("ab"), moment)
            what.clicks.append(click)
            under_way.append(("click", click, False))
        elif kind == "read" and len(what.reads) < 5:
            under_way.append(("read", Read(moment, NEVER, {}), False))
        elif kind == "end" and under_way:
            under_way, state = ended(draw, what, under_way, state, moment)
        elif kind == "crash" and not what.crashes:
            what.crashes.append(Crash(moment, moment + 0.5))
            under_way, state = undone(draw, under_way, state)
        elif kind == "undo":
            under_way, state = undone(draw, under_way, state)
    return what


def undone(draw, under_way, state):
    """Take clicks back that have taken effect and have no answer: a crash may do that, and nothing else."""
    lost = [one for name, one, done in under_way if name == "click" and done and draw.random() < 0.5]
    state = state - Counter(one.candidate for one in lost)
    return [(name, one, done and one not in lost) for name, one, done in under_way], state


def ended(draw, what, under_way, state, moment):
    """Let some operation take effect, and answer one; the counter may err."""
    some = [
        (name, one, True) if name == "click" and not done and draw.random() < 0.4 else (name, one, done)
        for name, one, done in under_way
    ]
    for (_, one, before), (_, _, after) in zip(under_way, some, strict=True):
        state[one.candidate if isinstance(one, Click) else ""] += after and not before
    state = +state
    at = draw.randrange(len(some))
    name, one, done = some.pop(at)
    if name == "click":
        if draw.random() < 0.7:
            one.acknowledged = moment
            state[one.candidate] += (not done) and draw.random() < 0.9
    else:
        counts = dict(state)
        if draw.random() < 0.1:
            counts["a"] = max(counts.get("a", 0) + draw.choice([-1, 1]), 0)
        one.answered, one.counts = moment, {key: n for key, n in counts.items() if n}
        what.reads.append(one)
    return some, +state


def test_the_checker_finds_what_a_search_through_all_orders_finds():
    draw, counts = random.Random(7), Counter()
    for number in range(6000):
        what = drawn(draw)
        right, why = searched(what), order(what)
        assert right == (why is None), (number, what, why)
        if right and not what.crashes:  # reads across a crash are judged by themselves alone
            assert bounds(what) == [], (number, what)
        counts[right, bounds(what) == []] += 1
    # both kinds are there, and also those in which no single read is wrong
    assert counts[True, True] > 1000 and counts[False, False] > 300 and counts[False, True] > 30, counts
