"""The hyper-parameters of the senses, and the size of their state."""

import itertools

import pytest
from signals.sensing import Query

from swerve import SwerveError
from swerve.core.tables import nested
from swerve.signals import Senses, senses_layout


def test_the_state_is_small_and_grows_by_four_words_a_number():
    sizes = [nested(senses_layout(numbers)).itemsize for numbers in range(4)]
    assert sizes[0] == 232
    assert {after - before for before, after in itertools.pairwise(sizes)} == {32}


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("noise_ceiling", 0.6, "< crossing_level = 0.5"),
        ("recent_rate_retention", 0.9999, "≤ baseline_rate_retention = 0.9995"),
        ("window_hours_low", 30.0, "≤ window_hours_high = 24"),
        ("odds_factor", 1.0, "> 1"),
        ("latch_requests", 40_000, "in [0, 30000]"),
        ("close_after_seconds", 0.0, "> 0"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(field, value, allowed):
    with pytest.raises(SwerveError) as caught:
        Senses(**{field: value})
    assert str(caught.value).startswith(f"Senses: {field} = ")
    assert allowed in str(caught.value)


def test_a_fresh_row_has_no_gaps_that_differ():
    assert Query(numbers=2).row.tobytes() == Query(numbers=2).row.tobytes()
