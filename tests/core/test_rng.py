"""Words against an independent splitmix64, samplers against SciPy's distribution functions and the twins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numba import njit
from scipy import stats
from twins import splitmix, thompson as samplers

from swerve.core import rng
from swerve.core.spec import record_dtype

WORD = st.integers(0, 2**64 - 1)
ROW = record_dtype([("rng", "u8")])


@njit
def many_normals(word, out):
    for i in range(len(out)):
        out[i], word = rng.normal(word)
    return word


@njit
def many_gammas(word, shape, out):
    scale = rng.gamma_scale(shape)
    for i in range(len(out)):
        out[i], word = rng.gamma(word, shape, scale)
    return word


@njit
def many_betas(word, a, b, out):
    for i in range(len(out)):
        out[i], word = rng.beta(word, a, b, rng.gamma_scale(a), rng.gamma_scale(b))
    return word


@njit
def many_draws(table, out):
    for i in range(len(out)):
        out[i] = rng.draw(table[0])


@njit
def words_at(word, out):
    for i in range(len(out)):
        out[i] = rng.at(word, i + 1)


@given(WORD)
def test_words_equal_the_published_generator(start):
    ours = np.zeros(5, np.uint64)
    words_at(np.uint64(start), ours)
    expected = [splitmix.word(start, t) for t in range(1, 6)]
    assert ours.tolist() == expected
    assert [int(rng.at(np.uint64(start), t)) for t in range(1, 6)] == expected  # the same source, uncompiled


def test_known_words_of_seed_1234567():
    # the test vector that circulates with splitmix64's reference implementation
    following = splitmix.words(1234567)
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]
    assert [following() for _ in range(5)] == known


@given(WORD)
def test_draw_walks_the_stream_that_at_addresses(start):
    table = np.zeros(1, ROW)
    table[0].rng = start
    drawn = np.zeros(4)
    many_draws(table, drawn)
    assert drawn.tolist() == [splitmix.as_unit(splitmix.word(start, t)) for t in range(1, 5)]
    stream = rng.Stream(start)
    assert [stream.uniform() for _ in range(4)] == drawn.tolist()
    assert ((drawn >= 0) & (drawn < 1)).all()


def test_split_is_the_named_stream():
    assert rng.split(7, "clicks", 3) == splitmix.named(7, "clicks", 3)


def test_streams_with_different_paths_differ():
    paths = [(s, p, q) for s in range(4) for p in ("clicks", "contexts", "policy", "query") for q in range(50)]
    words = {rng.split(*path) for path in paths}
    assert len(words) == len(paths)
    drawn = [rng.Stream(word).uniform() for word in words]
    assert len(set(drawn)) == len(paths)
    assert stats.kstest(drawn, "uniform").pvalue > 0.001


COUNT = 20_000


def test_normal_is_normal():
    out = np.zeros(4 * COUNT)
    many_normals(np.uint64(rng.split(1, "normal")), out)
    assert stats.kstest(out, "norm").pvalue > 0.001
    # the tail has separate code, which a test of all draws cannot see: 1 in 3,900 draws
    tail = np.zeros(2_000_000)
    many_normals(np.uint64(rng.split(2, "normal")), tail)
    edge = samplers.TAIL
    far = np.abs(tail[np.abs(tail) > edge])
    assert stats.binomtest(len(far), len(tail), 2 * stats.norm.sf(edge)).pvalue > 0.001
    assert stats.kstest(stats.norm.sf(far) / stats.norm.sf(edge), "uniform").pvalue > 0.001


@pytest.mark.parametrize("shape", [0.05, 0.5, 0.999, 1.0, 2.5, 40.0, 1e4])
def test_gamma_is_gamma(shape):
    out = np.zeros(COUNT)
    many_gammas(np.uint64(rng.split(3, "gamma", str(shape))), shape, out)
    assert stats.kstest(out, stats.gamma(shape).cdf).pvalue > 0.001


@pytest.mark.parametrize(("a", "b"), [(0.3, 0.7), (1.0, 1.0), (1.0, 5.0), (3.0, 0.5), (20.0, 80.0), (1e4, 1e4), (1.0, 1e4)])
def test_beta_is_beta(a, b):
    out = np.zeros(COUNT)
    many_betas(np.uint64(rng.split(4, "beta", str(a), str(b))), a, b, out)
    assert stats.kstest(out, stats.beta(a, b).cdf).pvalue > 0.001


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (0.4, 3.0), (50.0, 7.0), (1e4, 2.0)])
def test_samplers_follow_their_twins_word_by_word(a, b):
    start = rng.split(5, "twin", str(a))
    ours = np.zeros(3000)
    last = many_betas(np.uint64(start), a, b, ours)
    taken = []
    following = splitmix.words(start)

    def words():
        taken.append(following())
        return taken[-1]

    twin = [samplers.beta(words, a, b) for _ in range(3000)]
    np.testing.assert_allclose(ours, twin, rtol=1e-12)
    assert int(last) == (start + len(taken) * splitmix.GAMMA) % 2**64  # exactly this many words were used


@given(st.integers(1, 60), st.data())
def test_choose_gives_distinct_numbers_below_n(n, data):
    count = data.draw(st.integers(0, n))
    stream = rng.Stream(data.draw(WORD))
    chosen = stream.choose(n, count)
    assert len(set(chosen)) == len(chosen) == count
    assert all(0 <= item < n for item in chosen)


def test_choose_is_uniform_over_ordered_pairs():
    stream = rng.Stream(rng.split(6, "choose"))
    seen = np.zeros((4, 4), int)
    for _ in range(12_000):
        i, j = stream.choose(4, 2)
        seen[i, j] += 1
    pairs = seen[~np.eye(4, dtype=bool)]
    assert seen.trace() == 0
    assert stats.chisquare(pairs).pvalue > 0.001


def test_integer_covers_both_ends():
    stream = rng.Stream(3)
    drawn = [stream.integer(1, 10) for _ in range(2000)]
    assert set(drawn) == set(range(1, 11))
