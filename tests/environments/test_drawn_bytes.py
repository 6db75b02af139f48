"""The bytes of drawn instances, pinned: they may not change with the way of drawing, the compiler, or the machine."""

from __future__ import annotations

import hashlib

import pytest

from swerve.environments import Pages, Shifts, Traffic, workload, world

ENVIRONMENTS = {
    "traffic": Traffic(queries=12, impressions=24_000, shifting_share=0.5, features=6),
    "traffic, uniform": Traffic(queries=12, impressions=24_000, shifting_share=0.5, features=6, order="uniform"),
    "shifts": Shifts(queries=10, impressions=9000),
    "zipf": workload("zipf", 0.5, queries=20, impressions=20_000),
    "mixed-noisy": workload("mixed-noisy", 0.5, queries=5, impressions=10_000),
    "pages": Pages(queries=6, impressions=6000, results=10, slots=4, features=4),
}
DIGESTS = {
    ("traffic", 0): "1d3005b0d67ed6df",
    ("traffic", 2**40): "9c4a20520032ac16",
    ("traffic, uniform", 0): "649f2fe88adeed08",
    ("traffic, uniform", 2**40): "3aa187006c889392",
    ("shifts", 0): "12ffe805a885fa7b",
    ("shifts", 2**40): "67e074e7e128df9f",
    ("zipf", 0): "ad9547c883e4a05d",
    ("zipf", 2**40): "230b4b217200e55a",
    ("mixed-noisy", 0): "500d2cfd36204420",
    ("mixed-noisy", 2**40): "05b312c5c4d346ba",
    ("pages", 0): "f176074d160481a5",
    ("pages", 2**40): "7befd929f935fbb1",
}


def digest(drawn):
    hashed = hashlib.sha256()
    for table in (drawn.schedule, drawn.rounds, drawn.cursors, drawn.segments, drawn.scene, drawn.owner):
        hashed.update(table.tobytes())
    return hashed.hexdigest()[:16]


@pytest.mark.parametrize("seed", [0, 2**40])
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_bytes_of_an_instance(name, seed):
    assert digest(world(ENVIRONMENTS[name], seed)) == DIGESTS[name, seed]


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_interpreted_code_draws_the_same_bytes(name):
    assert digest(world(ENVIRONMENTS[name], 0)) == DIGESTS[name, 0]
