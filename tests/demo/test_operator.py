"""The demo's operator: one pin for each scenario, with an expiry; and held-out users, who are counted apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from demo.inside import Inside
from demo.test_world import small

from swerve.demo.operator import PIN_AFTER, PIN_POSITION, PIN_SECONDS, Operator
from swerve.demo.search import Search
from swerve.demo.world import World
from swerve_client import ServiceAway


class Pins:
    """Notes the pins."""

    def __init__(self, broken: bool = False) -> None:
        self.set: list[tuple[str, int, dict[str, Any]]] = []
        self.broken = broken

    def pin(self, result: str, position: int, **where: Any) -> Any:
        if self.broken:
            raise ServiceAway("away")
        self.set.append((result, position, where))


@pytest.fixture(scope="module")
def search() -> Search:
    return Search()


def begun(search: Search, client: Any = None) -> World:
    inside = client or Inside(spec="ts", grace_seconds=0.0, propensity_draws=0)
    scenario = small()
    return World(scenario, client=inside, began=scenario.begins, advance=inside.advance, search=search, compete=False)


@pytest.mark.usefixtures("uncompiled")
def test_a_pin_is_set_once_in_each_scenario_and_ends(search: Search) -> None:
    world, pins = begun(search), Pins()
    operator = Operator(world, pins)
    operator.step()
    assert pins.set == [] and operator.now() is None
    world.now = world.began + PIN_AFTER
    operator.step()
    operator.step()
    ((result, position, where),) = pins.set
    offer = world.intents.view("jaguar", PIN_AFTER).offer
    assert (result, position) == (offer[-1].id, PIN_POSITION) and where["query"] == "jaguar"
    assert where["until"] == world.now + PIN_SECONDS and where["note"]
    assert operator.now() == operator.pinned != None  # noqa: E711 - the pin, and not none
    world.now += PIN_SECONDS
    assert operator.now() is None
    world.switch(small(name="again"))
    operator.step()
    assert operator.pinned is None and len(pins.set) == 1
    world.now = world.began + PIN_AFTER
    operator.step()
    assert len(pins.set) == 2


@pytest.mark.usefixtures("uncompiled")
def test_a_service_that_is_away_does_not_stop_the_simulation(search: Search) -> None:
    world = begun(search)
    operator = Operator(world, Pins(broken=True))
    world.now = world.began + PIN_AFTER
    operator.step()
    assert operator.pinned is None and operator.now() is None


class Divided(Inside):
    """Holds every fifth user out, and says so, as an experiment of the service does."""

    def rank_many(self, requests: Any) -> list[Any]:
        asked = list(requests)
        answers = super().rank_many(asked)
        held = [int(str(one["session"]).rpartition("-")[2]) % 5 == 0 for one in asked]
        return [
            replace(answer, arm="control", ranking=list(one["candidates"])) if out else replace(answer, arm="treated")
            for one, answer, out in zip(asked, answers, held, strict=True)
        ]


@pytest.mark.usefixtures("uncompiled")
def test_users_who_are_held_out_are_counted_apart_for_all_policies(search: Search) -> None:
    inside = Divided(spec="ts", grace_seconds=0.0, propensity_draws=0)
    scenario = small()
    world = World(scenario, client=inside, began=scenario.begins, advance=inside.advance, search=search)
    played = world.step(world.began + 86_400.0)
    summary = world.summary()
    assert summary["impressions"] + summary["held_out"] == played
    assert summary["held_out"] == played // 5 > 20
    assert summary["head"]["impressions"] == summary["impressions"]
    views = {query: world.intents.view(query, 0.0) for query in ("jaguar", "mercury")}
    lost = {query: view.pages.best - view.pages.chance([one.id for one in view.offer]) for query, view in views.items()}
    treated = [one["query"] for one in inside.asked if one["query"] in lost and int(str(one["session"]).rpartition("-")[2]) % 5]
    assert len(treated) == summary["impressions"]
    assert summary["regret"]["fixed"] == pytest.approx(sum(lost[query] for query in treated), abs=1e-3)  # of these users alone
    assert 0 < summary["regret"]["swerve"] < played
