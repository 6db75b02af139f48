"""Every alarm can be explained: which signal, how strong, when, and what the test concluded."""

from __future__ import annotations

import numpy as np
from serving.scripted import Script, ranker

from swerve import BWC, UCB1, Rectangle, Testable
from swerve.core.contract import ALARM, LABEL_FALSE, LEARNT, REVISED
from swerve.core.tables import nested
from swerve.serving.explain import alarms_of, state_of
from swerve.serving.ledger import begin_ledger, ledger_layout, note
from swerve.signals import RAW

NAMES = ("news", "volume")
PLAN = (RAW | 0 << 8, RAW | 1 << 8)
POLICY = BWC(Testable(UCB1(), length=40, epsilon=0.3), Rectangle(margin=0.1))


def play(script: Script, rounds: int, best: str, rng: np.random.Generator, news: float = 0.1) -> None:
    """Send a first request with this much news, then requests with a quiet context; the best candidate is nearly always clicked."""
    for t in range(rounds):
        quiet = 0.1 + 0.02 * rng.random()
        decided = script.rank("q", ["a", "b", "c"], signals={"news": news if t == 0 else quiet, "volume": quiet})
        if rng.random() < (0.9 if decided.ranking[0] == best else 0.05):
            script.click(decided, decided.ranking[0])


def test_an_alarm_names_its_signal_and_what_came_of_it():
    script, rng = Script(ranker(POLICY, plan=PLAN, numbers=NAMES)), np.random.default_rng(3)
    play(script, 400, "a", rng)  # a rectangle without data is positive on everything: false alarms teach it quiet contexts
    state = state_of(script.place("q"), NAMES)
    assert any(alarm.verdict == "false" for alarm in state.alarms)
    before = state.phases

    play(script, 200, "b", rng, news=0.9)  # intent shifts, and the news show it
    state = state_of(script.place("q"), NAMES)
    newest = next(alarm for alarm in state.alarms if alarm.value is not None and alarm.value > 0.5)
    assert (newest.signal, newest.verdict) == ("news", "true")
    assert newest.at >= 1_000_400
    assert state.phases > before
    assert state.arms[0].id == "b"
    assert state.arms[0].plays >= state.arms[0].phase_plays > 0
    assert sum(arm.plays for arm in state.arms) == state.requests == 600
    assert sum(arm.clicks for arm in state.arms) > 400


def test_an_operators_word_is_an_alarm_too():
    script = Script(ranker("ts"))
    script.rank("q", ["a", "b"])
    script.ranker.shift(script.place("q"), script.now)
    state = state_of(script.place("q"), ("volume",))
    assert [(alarm.signal, alarm.verdict, alarm.value) for alarm in state.alarms] == [("operator", "true", None)]
    assert [arm.phase_plays for arm in state.arms] == [0, 0]
    assert sum(arm.plays for arm in state.arms) == 1


def test_the_log_keeps_the_newest_alarms():
    script = Script(ranker("ts"))
    for _ in range(12):
        script.rank("q", ["a", "b"], step=60.0)
        script.ranker.shift(script.place("q"), script.now)
    alarms = state_of(script.place("q"), ("volume",)).alarms
    assert [alarm.at for alarm in alarms] == [1_000_000 + 60 * n for n in range(12, 4, -1)]


def test_a_verdict_that_was_taken_back_is_told_so():
    """An alarm was labelled false, and later clicks showed that it was true: the list of alarms shows the new verdict."""
    book = np.zeros(1, nested(ledger_layout(8, 2)))[0].view(np.recarray)
    begin_ledger(book, 7, 0.0)
    note(book, ALARM, 1, 0.8, False, True, 10.0)
    note(book, LABEL_FALSE | LEARNT, 0, 0.0, True, True, 20.0)
    assert [(alarm.signal, alarm.verdict) for alarm in alarms_of(book, NAMES)] == [("volume", "false")]
    assert float(book.shifted) == 0.0
    note(book, LEARNT | REVISED, 0, 0.0, True, True, 30.0)
    assert [(alarm.signal, alarm.verdict) for alarm in alarms_of(book, NAMES)] == [("volume", "true")]
    assert float(book.shifted) == 30.0
    note(book, ALARM, 0, 0.9, False, True, 40.0)
    note(book, LEARNT | REVISED, 0, 0.0, True, True, 50.0)  # about an earlier alarm, which has its verdict
    assert [alarm.verdict for alarm in alarms_of(book, NAMES)] == ["open", "true"]
    note(book, LABEL_FALSE | LEARNT | REVISED | ALARM, 1, 0.7, True, True, 60.0)  # called false, revised, and followed by another
    assert [alarm.verdict for alarm in alarms_of(book, NAMES)] == ["open", "true", "true"]
    assert float(book.shifted) == 60.0


def test_a_number_that_is_missing_is_null_and_silent():
    """A null or omitted number is no value and raises no alarm, and the explanation shows that it is missing."""
    script = Script(ranker(POLICY, plan=PLAN, numbers=NAMES))
    for t in range(200):
        script.rank("q", ["a", "b", "c"], signals={"news": None} if t % 2 else {})
    state = state_of(script.place("q"), NAMES)
    assert state.signals == {"news": None, "volume": None}
    assert state.alarms == []
    script.rank("q", ["a", "b", "c"], signals={"news": None, "volume": 0.25})
    assert state_of(script.place("q"), NAMES).signals == {"news": None, "volume": 0.25}
    asked = ({"news": None}, {"news": None, "volume": 0.5})
    together = [script.asking("q", ["a", "b", "c"], signals=signals) for signals in asked]
    assert len(script.ranker.rank(together, script.now)) == 2  # a batch is packed in another way
    assert state_of(script.place("q"), NAMES).signals == {"news": None, "volume": 0.5}
