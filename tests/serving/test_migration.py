"""Records of the policy for one slot go on as records of the policy for pages, with everything that they have learnt."""

from __future__ import annotations

import pytest

from swerve.policies import Listed, Patient, Swerve
from swerve.service.batches import row_of
from swerve.serving.messages import Event
from swerve.serving.migration import Layouts, for_pages, policy_in
from swerve.serving.outcomes import Outcome
from swerve.serving.ranker import Ranker
from swerve.serving.replay import ticket_of
from swerve.serving.requests import Prepared
from swerve.serving.settings import Settings
from swerve.signals import Senses
from swerve.store.protocol import Batch
from swerve.store.sqlite import SQLiteStore

KEY = b"k" * 32
IDS = ["a", "b", "c", "d"]


def ranker_of(policy, slots):
    return Ranker(Settings(policy, Senses(), (0,), (), arms=8, slots=slots, seed=5, per_session=0, draws=0), KEY)


@pytest.fixture
def plain(monkeypatch):
    """Uncompiled kernels: these tests are about bytes, not about speed."""
    from swerve.core import engine

    monkeypatch.setattr(engine.Entry, "bind", lambda self, *specs, variant="": self.plain)


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("wrapped", [True, False])
def test_a_record_for_one_slot_becomes_one_for_pages(tmp_path, wrapped):
    def around(policy):
        return Patient(policy, click_wait=5.0) if wrapped else policy

    single = ranker_of(around(Swerve()), 1)
    store = SQLiteStore(tmp_path / "swerve.db")
    layouts = Layouts(store, single)
    key = single.key_of("boots")
    place = single.fresh(key, "boots", 4, 0.0)
    for t in range(60):
        now = 100.0 * t
        decided = single.rank([(place, Prepared(key, "boots", list(IDS), slots=1))], now)[0]
        ticket = ticket_of(decided, single.life)
        events = [Event("click", position=1)] if decided.ranking[0] == "c" else []
        single.feedback(place, ticket, decided.signed.number, Outcome(0, ticket.seen), events, None, now + 1.0)
    record = place.record
    inside = (record.policy.bandit if wrapped else record.policy).test
    before = inside.old_plays.copy(), inside.old_total.copy()
    assert before[1][2] > 20.0
    store.checkpoint(Batch([row_of(place, layouts.ids, 1)]))

    pages = ranker_of(around(Listed()), 10)
    (row,) = store.load([key])
    moved = Layouts(store, pages).restore(row)
    record = moved.record
    state = record.policy.bandit if wrapped else record.policy
    assert (state.bandit.test.old_plays == before[0]).all()
    assert (state.bandit.test.old_total == before[1]).all()
    assert int(record.ledger.requests) == 60
    assert int(record.ledger.phase) == int(place.record.ledger.phase)  # no phase begins: it is the same policy
    decided = pages.rank([(moved, Prepared(key, "boots", list(IDS)))], 10_000.0)[0]
    assert decided.ranking[0] == "c"
    assert (state.prior_plays[:4] > 0).all()  # the prior is added
    assert int(state.bandit.test.old_plays[2]) > int(before[0][2])
    store.close()


def test_only_the_policy_for_pages_takes_over_a_record():
    text = '{"form":1,"bytes":8,"fields":[["policy Patient Thompson",{"bytes":8,"fields":[]},[],0]]}'
    other = text.replace("Patient Thompson", "Patient Listed Swerve")
    assert for_pages(text, other) == text
    assert for_pages(text, text) == text
    assert policy_in(for_pages(other, text)) == "Patient Listed Swerve"
