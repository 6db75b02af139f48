"""Result pages: click models against their definitions and closed forms, values of pages, and drawn instances."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random

import numba
import numpy as np
import pytest
from twins import clicks as twin

from swerve import Pages, Shifts, SwerveError
from swerve.core.examination import CLICKS, EXAMINATION
from swerve.core.spec import pack
from swerve.environments import PAGES, workload, world
from swerve.environments.browsing import browse, ideal, offer, worth
from swerve.environments.clicks import best_clicks
from swerve.environments.worlds import advance

SMALL = Pages(queries=3, impressions=900, results=12)
EVERY = pytest.mark.parametrize("model", CLICKS)
ROUNDS = 100_000


def small(**changes):
    return dataclasses.replace(SMALL, **changes)


@numba.njit
def count_clicks(params, scene, segments, cursors, page, rates, searches):
    """Return how often each slot of a page is clicked, over rounds of one query without events."""
    for _ in range(ROUNDS):
        advance(params[0], scene[0], segments, cursors[0])
        mask = browse(params[0], scene[0], segments, cursors[0], page)
        searches[0] += mask != 0
        for slot in range(len(page)):
            rates[slot] += mask >> slot & 1


def parts(instance, query=0):
    return pack(instance.spec)[0], instance.scene[0], instance.segments, instance.cursors.copy()[query]


def test_the_tables_are_the_published_ones():
    ubm, pbm = EXAMINATION[0], EXAMINATION[1]
    assert ubm[:, 0].tolist() == [1.0, 1.0, 0.95, 0.82, 0.69, 0.54, 0.47, 0.43, 0.41, 0.43]
    assert min(ubm[slot, slot] for slot in range(1, 10)) == 0.98
    assert ubm[9, 1:4].tolist() == [0.12, 0.18, 0.27]
    assert all(len(set(pbm[slot, : slot + 1])) == 1 for slot in range(10))
    assert EXAMINATION[2, 3, :4] == pytest.approx([0.9**3, 0.5 * 0.9**2, 0.5 * 0.9, 0.5])
    assert EXAMINATION[3, 4, :5].tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]


@EVERY
def test_clicks_equal_the_twin_round_by_round(model):
    dice = random.Random(1)
    instance = world(small(clicks=model, slots=10), 5)
    spec, scene, segments, cursor = parts(instance, query=1)
    several = 0
    for t in range(1, 301):
        advance(spec, scene, segments, cursor)
        page = np.array(dice.sample(range(12), 10))
        mask = int(browse(spec, scene, segments, cursor, page))
        attraction = [float(segments[cursor.segment].chance[arm]) for arm in page]
        expected = twin.clicks(model, attraction, 5, 1, t)
        assert [slot for slot in range(10) if mask >> slot & 1] == expected
        several += len(expected) > 1
    assert (several == 0) == (model == "cascade")


@EVERY
@pytest.mark.parametrize("moves", ["all", "intents"])
def test_click_rates_equal_the_closed_forms(model, moves):
    spec = Pages(queries=1, impressions=10, results=16, slots=8, clicks=model, moves=moves, events_low=0, events_high=0)
    instance = world(spec, 2)
    page = instance.segments[0]["given"][:8].copy()
    rates, searches = np.zeros(8), np.zeros(1)
    count_clicks(pack(spec), instance.scene, instance.segments, instance.cursors.copy(), page, rates, searches)
    line = instance.segments[0]
    expected, some = np.zeros(8), 0.0
    for share, attraction in zip(line["share"], line["attraction"], strict=True):
        expected += share * np.array(twin.click_rates(model, attraction[page].tolist()))
        some += share * twin.any_click(model, attraction[page].tolist())
    allowed = 4.5 * np.sqrt(expected * (1 - expected) / ROUNDS) + 1e-9
    assert (np.abs(rates / ROUNDS - expected) < allowed).all()
    assert abs(searches[0] / ROUNDS - some) < 4.5 * math.sqrt(some * (1 - some) / ROUNDS)


@EVERY
def test_the_closed_form_of_a_click_equals_the_sum_over_histories(model):
    """For one person: the twin's two independent computations of P(any click), and the environment's value."""
    spec = small(clicks=model, slots=4, value="click")
    spec_record, scene, segments, cursor = parts(world(spec, 3))
    advance(spec_record, scene, segments, cursor)
    page = np.array([3, 1, 7, 5])
    attraction = [float(segments[cursor.segment].chance[arm]) for arm in page]
    expected = twin.any_click(model, attraction)
    assert float(worth(spec_record, scene, segments, cursor, page)) == pytest.approx(expected, rel=1e-12)
    first = sum(twin.click_rates(model, attraction)) if model == "cascade" else None  # a single click: rates add up
    assert first is None or first == pytest.approx(expected)


@EVERY
@pytest.mark.parametrize("intents", [1, 3])
def test_the_best_page_for_a_click_is_found(model, intents):
    dice = np.random.default_rng(4)
    shares = dice.dirichlet(np.ones(intents), 4)
    attractions = dice.random((4, intents, 7)) ** 3
    found = best_clicks(model, shares, attractions, 3, compiled=False)
    for line in range(4):
        values = (
            sum(shares[line, i] * twin.any_click(model, [attractions[line, i, arm] for arm in page]) for i in range(intents))
            for page in itertools.permutations(range(7), 3)
        )
        assert found[line] == pytest.approx(max(values), rel=1e-12)


def test_the_best_page_by_gain_is_found_and_compiled_search_agrees():
    spec = small(results=6, slots=3)
    instance = world(spec, 6)
    record, scene, segments, cursor = parts(instance)
    advance(record, scene, segments, cursor)
    chance = segments[cursor.segment].chance
    values = [
        sum(float(chance[arm]) / math.log2(2 + slot) for slot, arm in enumerate(page))
        for page in itertools.permutations(range(6), 3)
    ]
    assert float(ideal(record, scene, segments, cursor)) == pytest.approx(max(values))
    best = np.argsort(-chance[:6], kind="stable")[:3]
    assert float(worth(record, scene, segments, cursor, best)) == float(ideal(record, scene, segments, cursor)), "no regret at all"
    dice = np.random.default_rng(5)
    shares, attractions = dice.dirichlet(np.ones(3), 3), dice.random((3, 3, 8))
    slow, fast = (best_clicks("ubm", shares, attractions, 4, compiled=compiled) for compiled in (False, True))
    assert slow.tolist() == fast.tolist()


def test_clicks_depend_on_the_page_only_through_its_results():
    """Pages with equal results down to a slot get the same clicks down to it: random draws belong to slots, not to policies."""
    instance = world(small(slots=6), 7)
    spec, scene, segments, cursor = parts(instance)
    dice = random.Random(3)
    for _ in range(200):
        advance(spec, scene, segments, cursor)
        one = dice.sample(range(12), 6)
        other = one[:3] + dice.sample([arm for arm in range(12) if arm not in one[:3]], 3)
        masks = [int(browse(spec, scene, segments, cursor, np.array(page))) for page in (one, other)]
        assert masks[0] & 0b111 == masks[1] & 0b111


def test_the_given_order_sorts_by_attractiveness_with_an_error_and_never_adapts():
    lost = {}
    for engine in (0.0, 0.05, 0.3, math.inf):
        instance = world(small(queries=60, impressions=60_000, engine=engine), 8)
        first = instance.cursors["segment"]
        for query in range(60):
            lines = instance.segments[instance.owner == query]
            assert (lines["given"] == lines["given"][0]).all(), "the order never adapts"
            assert sorted(lines["given"][0][:12]) == list(range(12))
        orders = instance.segments["given"][first][:, :12]
        chances = np.take_along_axis(instance.segments["chance"][first], orders, axis=1)
        lost[engine] = float(
            (instance.segments["ideal"][first] - chances[:, :10] @ [1 / math.log2(2 + r) for r in range(10)]).mean()
        )
        if engine == 0.0:
            assert (np.diff(chances, axis=1) <= 0).all()
    assert lost[0.0] == pytest.approx(0.0, abs=1e-12)
    assert 0.0 < lost[0.05] < lost[0.3] < lost[math.inf]


@pytest.mark.parametrize("share", [0.2, 0.8, 0.95])
def test_the_top_of_the_given_order_is_right_in_exactly_this_share_of_the_queries(share):
    instance = world(small(queries=100, impressions=10_000, events_low=0, events_high=0, right_share=share), 9)
    best = instance.segments["chance"].argmax(axis=1)
    assert int((instance.segments["given"][:, 0] == best).sum()) == round(100 * share)
    assert all(arm in line["given"][:10] for arm, line in zip(best, instance.segments, strict=True)), "it stays on the page"


def test_scaled_click_rates_change_nothing_else():
    plain, scaled = world(SMALL, 10), world(small(click_scale=1 / 3), 10)
    assert scaled.segments["chance"] == pytest.approx(plain.segments["chance"] / 3)
    assert scaled.segments["ideal"] == pytest.approx(plain.segments["ideal"] / 3)
    for name in ("since", "event", "signal", "given"):
        assert (scaled.segments[name] == plain.segments[name]).all()


def test_shifts_and_signals_are_those_of_shifts():
    spec = small(moves="one", silent_share=0.3, spurious_share=0.01, lag_rounds=20)
    names = [field.name for field in dataclasses.fields(Shifts)]
    plain = world(Shifts(**{name: getattr(spec, name) for name in names}), 11)
    drawn = world(spec, 11)
    for name in plain.segments.dtype.names:
        assert (plain.segments[name] == drawn.segments[name]).all()
    assert (plain.schedule == drawn.schedule).all()
    assert (plain.cursors == drawn.cursors).all()


def test_people_with_three_intents():
    instance = world(small(queries=30, impressions=30_000, results=20, moves="intents", value="click", slots=5), 12)
    lines = instance.segments
    assert lines["share"].sum(axis=1) == pytest.approx(np.ones(len(lines)))
    leading = lines["share"].max(axis=1)
    assert (leading >= 0.4).all()
    assert (leading <= 0.7).all()
    assert lines["share"].min() >= 0.0
    own = lines["attraction"][:, :, :20] >= 0.2
    assert (own.sum(axis=2) == 5).all()
    assert (own.sum(axis=1) <= 1).all(), "no result belongs to two intents"
    assert lines["attraction"][:, :, :20][~own].max() <= 0.05
    assert lines["attraction"].max() <= 0.8
    assert lines["chance"] == pytest.approx(np.einsum("li,lia->la", lines["share"], lines["attraction"]))
    for i in np.flatnonzero(lines["event"]):
        assert lines["share"][i].argmax() != lines["share"][i - 1].argmax(), "another group leads"
        assert (lines["attraction"][i] == lines["attraction"][i - 1]).all(), "the attractiveness per intent does not change"


def test_offer_gives_the_given_order():
    instance = world(SMALL, 13)
    record, scene, segments, cursor = parts(instance, query=2)
    advance(record, scene, segments, cursor)
    given = np.zeros(12, np.int64)
    offer(record, scene, segments, cursor, given)
    assert given.tolist() == segments[cursor.segment].given[:12].tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"slots": 10, "results": 9}, "slots = 10 is not allowed; slots must be ≤ results = 9"),
        ({"engine": -0.1}, "engine = -0.1 is not allowed; engine must be ≥ 0, where inf is a random order"),
        ({"moves": "intents", "results": 14}, "results = 14 is not allowed; results must be ≥ 15"),
        ({"moves": "intents", "results": 20, "glide_rounds": 5}, "glide_rounds = 5 is not allowed; glide_rounds must be 0"),
        ({"value": "click", "slots": 6}, "slots = 6 is not allowed; slots must be ≤ 5 if value = click"),
        ({"clicks": "dbn"}, "one of ubm, pbm, dcm, cascade"),
        ({"click_scale": 1.5}, "click_scale = 1.5 is not allowed"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(SwerveError, match=message):
        small(**changes)


def test_the_workloads_are_those_of_the_study():
    kinds = ["page-clear", "page-mixed", "page-intents", "page-quiet"]
    assert list(PAGES) == [*kinds, *(f"{kind}-noisy" for kind in kinds), "tail"]
    clear = workload("page-clear")
    assert clear == Pages()
    assert (clear.queries, clear.impressions, clear.results, clear.slots, clear.engine) == (40, 160_000, 20, 10, 0.05)
    assert (clear.events_low, clear.events_high, clear.clicks, clear.value) == (1, 4, "ubm", "gain")
    assert (workload("page-intents").slots, workload("page-intents").value) == (5, "click")
    assert world(workload("page-quiet", queries=5, impressions=500), 0).k == 0
    noisy = workload("page-mixed-noisy")
    assert (noisy.moves, noisy.silent_share, noisy.spurious_share) == ("one", 0.05, 0.001)


def test_parameters_of_a_workload():
    spec = workload("page-clear(clicks=pbm, slots=5, candidates=64, engine=inf)", queries=3, impressions=30)
    assert spec == Pages(queries=3, impressions=30, results=64, clicks="pbm", slots=5, engine=math.inf)
    assert workload("page-clear", candidates=10, slots=5) == Pages(results=10, slots=5)
    assert workload("clear(results=7)", 0.5) == Shifts(results=7, shifting_share=0.5)
    with pytest.raises(SwerveError, match=r"page-clear: unknown parameter 'candidate'; did you mean 'candidates'\?"):
        workload("page-clear(candidate=3)")
    with pytest.raises(SwerveError, match="unknown workload 'page-cleer'"):
        workload("page-cleer(slots=3)")


def test_most_queries_of_the_tail_are_rare():
    spec = workload("tail(right_share=0.5)", queries=2000, impressions=20_000)
    instance = world(spec, 0)
    assert (np.asarray(instance.rounds) < 20).mean() > 0.8
    assert instance.k == 0
    whole = workload("tail")
    assert (whole.queries, whole.clicks, whole.order) == (100_000, "ubm", "zipf")
