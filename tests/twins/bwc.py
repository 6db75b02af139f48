"""Algorithm 1, `bwc`, over any testable bandit and any classifier, read as in the notes on the paper.

L rounds of testing; the round of a positive prediction is the first of the next test; no label after phase 1; the classifier is
not consulted inside a test. A guess may wait `grace` for late clicks. Without an arm of G⁺ that was played in the test, no label.
"""

from __future__ import annotations

from typing import Any


class BWC:
    def __init__(self, bandit: Any, classifier: Any, grace: float = 0.0) -> None:
        self.bandit, self.classifier, self.grace = bandit, classifier, grace
        self.phase = 1
        self.full: set[int] = set()  # G⁺ of the most recent full phase
        self.due: float | None = None  # from when this phase's guess may be taken; None before its L-th play
        self.taken = False
        self.context: list[float] = []
        self.labels: list[tuple[int, bool]] = []  # (phase, label): True means that something changed

    @property
    def starts(self) -> int:
        return self.phase

    @property
    def testing(self) -> bool:
        return self.phase % 2 == 1

    def next_phase(self) -> None:
        self.phase += 1
        self.bandit.restart()
        self.due, self.taken = None, False
        self.restarts += 1

    def close(self, now: float) -> None:
        """Take the L-th round guess once it is ripe; after a test, label the context that opened it."""
        if self.taken or self.due is None or now < self.due:
            return
        plus, minus = self.bandit.guess()
        if self.testing:
            if any(self.bandit.plays(arm) for arm in self.full):
                self.label = bool(self.full & minus)
                self.labels.append((self.phase, self.label))
                if not self.label:
                    self.classifier.learn(self.context)
            self.full = plus
            self.next_phase()
        else:
            self.full, self.taken = plus, True

    def decide(self, x: list[float], told: bool, offer: list[int], now: float) -> int:
        self.label: bool | None = None
        self.consulted = self.alarm = False
        self.restarts = 0
        self.close(now)
        if not self.testing:
            self.consulted = True
            if self.classifier.predict(x, told):
                self.alarm = True
                self.context = list(x)
                self.next_phase()
        arm = int(self.bandit.select(offer))
        self.bandit.show(arm)
        if self.bandit.played == self.bandit.length:
            self.due = now + self.grace
        return arm

    def reward(self, arm: int, value: float) -> None:
        self.bandit.reward(arm, value)

    def evict(self, arm: int) -> None:
        self.bandit.evict(arm)
        self.full.discard(arm)


class Never:
    def predict(self, x: list[float], told: bool = False) -> bool:
        return False

    def learn(self, x: list[float]) -> None:
        pass


class Always(Never):
    def predict(self, x: list[float], told: bool = False) -> bool:
        return True


class Told(Never):
    def predict(self, x: list[float], told: bool = False) -> bool:
        return bool(told)
