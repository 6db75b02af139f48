"""BWC, "bandit with classifier": the paper's meta-algorithm."""

from __future__ import annotations

from swerve.core.contract import (
    ALARM,
    CONSULTED,
    LABEL_FALSE,
    LABEL_TRUE,
    LEARNT,
    RESTARTED,
    absorb,
    begin,
    begin_contribution,
    begin_pool,
    blame,
    clear,
    contribute,
    contribution_layout,
    domain,
    evict,
    guess,
    joins,
    layout,
    learn,
    merge,
    novel,
    observe,
    played,
    plays_of,
    pool_layout,
    predict,
    reads_context,
    restart,
    room,
    settle,
    show,
    starts,
    take_up,
    test_length,
    testing,
)
from swerve.core.spec import NonNegative, Spec
from swerve.core.tables import bit, has, nested, pool_dtype, pools_nothing
from swerve.core.verbs import kernel
from swerve.core.wrapping import inner_contribution_layout, inner_layout, inner_pool_layout, wrapping


@wrapping(without=(guess, test_length))  # BWC itself is not testable: it starts over when a guess would be due
class BWC(Spec):
    """Restart the bandit when the classifier calls an event, test whether it was one, and teach the classifier if it was not.

    Odd phases are tests: L rounds in which the classifier is not asked. Even phases adapt: they end with the round whose context is
    positive, and that round is the first of the next test. After test j, with i the most recent full phase before it, l = false
    ⇔ G⁺_i ∩ G⁻_j = ∅, and then (x_{t_j}, false) is fed back. Every phase runs a new bandit.

    `bandit` is any testable bandit (it defines L and ε), `classifier` any classifier. `click_wait` is the time after the L-th play
    during which a guess waits for late clicks. With 0 and clicks without delay this is Algorithm 1. A label requires an arm of G⁺_i
    that was also played in phase j: if there is none (arms come and go), there is no label.

    Paper: Algorithm 1, interpreted as in docs/policies.md.

    >>> from swerve import BWC, UCB1, Fleet, Rectangle, Testable
    >>> fleet = Fleet(BWC(Testable(UCB1(), length=50), Rectangle(margin=0.1)), queries=1, arms=3, features=2)
    >>> for t in range(60):
    ...     decision = fleet.select(0, x=[0.2, 0.3], now=t)
    >>> decision  # test 1, an adapting phase of no rounds (an untaught classifier is always positive), test 3
    Decision(arm=0, start=3, shown=59.0)
    """

    bandit: Spec
    classifier: Spec
    click_wait: NonNegative = 0.0

    def check(self) -> None:
        if not guess.knows(self.bandit):
            self.refuse("bandit", "testable: a bandit with a guess, such as Testable(UCB1(), length=200, epsilon=0.3)")
        if not predict.knows(self.classifier):
            self.refuse("classifier", "a classifier, such as Rectangle(margin=0.1)")


@layout.register(BWC)
def _(spec, arms, features):
    return [
        *inner_layout(spec, arms, features),
        ("phase", "i8"),  # j, counted from 1
        ("plus", "i8"),  # G⁺ of the most recent full phase
        ("ripe", "f8"),  # when the guess of this phase may be taken: the time of its L-th play plus `click_wait`
        ("guessed", "i8"),  # whether it has been taken
        ("alarm", "f8", features),  # x_{t_j}, the context that opened the test
    ]


@pool_layout.register(BWC)
def _(spec, features):
    return [
        ("classifier", nested(pool_layout(spec.classifier, features))),
        *inner_pool_layout(spec, features),
    ]


@begin_pool.register(BWC)
def _(spec, pool, d):
    begin_pool(spec.classifier, pool.classifier, d)
    begin_pool(spec.bandit, pool.bandit, d)
    return 0


@begin.register(BWC)
def _(spec, row, word):
    begin(spec.bandit, row.bandit, word)
    row.phase = 1
    row.plus = 0
    row.guessed = 0


@restart.register(BWC)
def _(spec, row):
    restart(spec.bandit, row.bandit)
    row.phase += 1 if row.phase % 2 == 0 else 2  # start over with a test; a phase number must not repeat
    row.plus = 0
    row.guessed = 0


@kernel
def next_phase(spec, row):
    """Begin the next phase with a restarted bandit."""
    row.phase += 1
    row.guessed = 0
    restart(spec.bandit, row.bandit)


@kernel
def comparable(spec, row):
    """Return whether an arm of G⁺_i was played in this phase; otherwise the two guesses cannot be compared."""
    for arm in range(room(spec.bandit, row.bandit)):
        if has(row.plus, arm) and plays_of(spec.bandit, row.bandit, arm) > 0:
            return True
    return False


@settle.register(BWC)
def _(spec, row, pool, delta, now):
    report = settle(spec.bandit, row.bandit, pool.bandit, delta.bandit, now)
    if row.guessed != 0 or played(spec.bandit, row.bandit) < test_length(spec.bandit) or now < row.ripe:
        return report
    plus, minus = guess(spec.bandit, row.bandit)
    tested = row.phase % 2 == 1
    if tested and comparable(spec, row):
        if row.plus & minus == 0:
            learn(spec.classifier, delta.classifier, row.alarm)
            report |= LABEL_FALSE | LEARNT
        else:
            report |= LABEL_TRUE
    row.plus = plus
    row.guessed = 1
    if tested:
        next_phase(spec, row)
        report |= RESTARTED
    return report


@observe.register(BWC)
def _(spec, row, pool, delta, x, told, now):
    report = observe(spec.bandit, row.bandit, pool.bandit, delta.bandit, x, told, now)
    if absorb(spec.classifier, pool.classifier, delta.classifier, x):  # for classifiers without labels; SafeCl ignores it
        report |= LEARNT
    if row.phase % 2 == 1:
        return report
    report |= CONSULTED
    if predict(spec.classifier, pool.classifier, delta.classifier, x, told):
        for j in range(min(len(x), row.alarm.shape[0])):
            row.alarm[j] = x[j]
        next_phase(spec, row)
        report |= ALARM | RESTARTED
    return report


@show.register(BWC)
def _(spec, row, arm, now):
    show(spec.bandit, row.bandit, arm, now)
    if played(spec.bandit, row.bandit) == test_length(spec.bandit):
        row.ripe = now + spec.click_wait


@evict.register(BWC)
def _(spec, row, arm):
    evict(spec.bandit, row.bandit, arm)
    row.plus &= ~bit(arm)


@starts.register(BWC)
def _(spec, row):
    return row.phase + starts(spec.bandit, row.bandit)  # both terms only grow


@merge.register(BWC)
def _(spec, pool, delta):
    merge(spec.classifier, pool.classifier, delta.classifier)
    merge(spec.bandit, pool.bandit, delta.bandit)
    return 0


@contribution_layout.register(BWC)
def _(spec, features):
    return [
        ("classifier", nested(contribution_layout(spec.classifier, features))),
        *inner_contribution_layout(spec, features),
    ]


@begin_contribution.register(BWC)
def _(spec, own, d):
    begin_contribution(spec.classifier, own.classifier, d)
    begin_contribution(spec.bandit, own.bandit, d)
    return 0


@contribute.register(BWC)
def _(spec, own, delta):
    contribute(spec.classifier, own.classifier, delta.classifier)
    contribute(spec.bandit, own.bandit, delta.bandit)
    return 0


@novel.register(BWC)
def _(spec, theirs, known):
    classified = novel(spec.classifier, theirs.classifier, known.classifier)
    return 1 if novel(spec.bandit, theirs.bandit, known.bandit) or classified else 0


@take_up.register(BWC)
def _(spec, pool, delta, theirs, known):
    take_up(spec.classifier, pool.classifier, delta.classifier, theirs.classifier, known.classifier)
    take_up(spec.bandit, pool.bandit, delta.bandit, theirs.bandit, known.bandit)
    return 0


@joins.register(BWC)
def _(spec):
    return joins(spec.classifier) and pools_nothing(pool_dtype(spec.bandit, 1))


@clear.register(BWC)
def _(spec, delta):
    clear(spec.classifier, delta.classifier)
    clear(spec.bandit, delta.bandit)
    return 0


@blame.register(BWC)
def _(spec, pool, x):
    return blame(spec.classifier, pool.classifier, x)


@reads_context.register(BWC)
def _(spec):
    return True


@domain.register(BWC)
def _(spec, pool, x):
    if not domain(spec.classifier, pool.classifier, x):
        return False
    # measured: checking the context a second time, for a bandit that does not read it, cost a fifth of a round
    return domain(spec.bandit, pool.bandit, x) if reads_context(spec.bandit) else True


@testing.register(BWC)
def _(spec, row):
    return row.phase % 2 | testing(spec.bandit, row.bandit)
