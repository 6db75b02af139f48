"""The experiment on the page, in a real browser over a real service: does it help, how sure, how long until it is decided."""

from __future__ import annotations

import random

from dashboard.pages import COLOURS, browser, contrast, expect, keep, opened  # noqa: F401 - fixtures
from service.running import until

CONFIG = {
    "store": {"store_queries": True},
    "policy": {"slots": 3, "seed": 5},
    "experiment": {"name": "spring", "treated": 0.5, "visit_seconds": 0.05},
}
OFFER = ["a", "b", "c", "d"]
WIDTHS = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"


def play(served, first: int, visits: int, clicked) -> None:
    """Let people search; `clicked(answer)` says whether one clicks the top."""
    client = served.client()
    for number in range(first, first + visits):
        answer = client.rank("storm", OFFER, session=f"s{number}").json
        client.feedback(answer["decision"], answer["ranking"][0] if clicked(answer) else None)
    until(lambda: client.call("GET", "/v1/experiments").json["open"] == 0)


DRAW = random.Random(4)


def wanted(answer: dict) -> bool:
    """Most people want `d`, which the given order has last; some click on anything."""
    return DRAW.random() < (0.8 if answer["ranking"][0] == "d" else 0.3)


def test_one_sees_whether_it_helps_how_sure_that_is_and_how_long_it_takes(served, opened, keep):
    page = opened(served.port)
    expect(page.locator("#experiment-title")).to_have_text("Experiment “spring”")
    expect(page.locator("#experiment-share")).to_contain_text("50 % treated")
    expect(page.locator("#experiment-verdict")).to_contain_text("Nothing to compare yet")
    expect(page.locator("#experiment-line")).to_be_hidden()
    play(served, 0, 60, wanted)
    expect(page.locator("#experiment-verdict")).to_contain_text("Not decided yet")
    expect(page.locator("#experiment-verdict")).to_contain_text("more searches")
    expect(page.locator("#experiment-line")).to_have_attribute("data-kind", "undecided")
    keep(page, "experiment-open")
    play(served, 60, 600, wanted)
    expect(page.locator("#experiment-verdict")).to_contain_text("It helps")
    expect(page.locator("#experiment-verdict")).to_have_attribute("data-right", "true")
    expect(page.locator("#experiment-tiles .value[data-kind=good]")).to_have_count(3)
    expect(page.locator("#experiment-note")).to_contain_text("660 visits compared")
    expect(page.locator("#guarded-title")).to_be_hidden()
    left = "document.querySelector('#experiment-line .%s').getBoundingClientRect().left"
    until(lambda: page.evaluate(left % "range") > page.evaluate(left % "zero"))  # the page is told of the last visits with a delay
    assert page.evaluate(left % "range") > page.evaluate(left % "zero")  # and the whole interval stays right of 0
    keep(page, "experiment-helps")


def test_it_is_readable_in_both_themes_and_on_a_phone(served, opened, keep):
    play(served, 2000, 40, lambda answer: False)
    for scheme, width in (("light", 1200), ("dark", 1200), ("dark", 360)):
        page = opened(served.port, width=width, scheme=scheme)
        expect(page.locator("#experiment-verdict")).to_be_visible()
        page.wait_for_timeout(700)
        scroll, client = page.evaluate(WIDTHS)
        assert scroll <= client
        for text, ink, paper in page.evaluate(COLOURS):
            assert contrast(ink, paper) >= 4.5, (scheme, text, ink, paper)
        keep(page, f"experiment-{scheme}-{width}")


def test_a_query_on_guard_is_listed_with_the_reason(served, opened, keep):
    """Another query, whose users click on the given order alone."""
    client = served.client()
    number = 0
    while not client.call("GET", "/v1/experiments").json["guarded"]:
        assert number < 4000
        for _ in range(20):
            number += 1
            answer = client.rank("punished", ["x", "y", "z"], session=f"p{number}").json
            if answer["arm"] == "control":
                client.feedback(answer["decision"], ["x", "y", "z"][number % 3])
    page = opened(served.port)
    expect(page.locator("#guarded li")).to_have_count(1)
    expect(page.locator("#guarded .why")).to_contain_text("worse than its given order: reward 0.000")
    expect(page.locator("#guarded button")).to_have_text("punished")  # its text is kept
    page.locator("#guarded button").click()
    expect(page.locator("#guarded button")).to_have_attribute("aria-pressed", "true")
    keep(page, "experiment-guarded")


def test_without_an_experiment_there_is_no_panel(served, opened):
    client = served.client()
    assert client.call("PUT", "/v1/experiments", {"name": ""}).json == {"running": False}
    page = opened(served.port)
    expect(page.locator("#link-text")).to_have_text("Live")
    page.wait_for_timeout(1500)
    expect(page.locator("#experiment-part")).to_be_hidden()
