"""The demo in a real browser: a shift is shown and followed, a person's click counts, a lost connection is restored."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from dashboard.pages import COLOURS, browser, contrast, expect, keep, opened  # noqa: F401 - fixtures
from demo.playing import Playing, playing
from tap import Tap

from swerve.demo.corpus import documents

#: Searches of a query after a shift within which the new best result must be on top.
IMPRESSIONS = 1500
TITLES = {document.id: document.title for document in documents()}


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    with playing(folder, "--speed", "400", "--seed", "3", "--store", f"sqlite:///{folder}/kept.db") as demo:
        yield demo


def wait_for_a_day(demo: Playing) -> None:
    """Wait until queries are known for a simulated day: before that their signals are silent."""
    while (report := demo.report())["now"] < report["began"] + 1.5 * 86_400.0:
        pass


def test_a_shift_is_followed_on_screen(demo, opened, keep):
    wait_for_a_day(demo)
    page = opened(demo.port, "#query=oasis")
    page.locator("#speed").fill("3")  # slow: a busy machine must not reach the scenario's end while the page is looked at
    expect(page.locator("#day")).to_contain_text("2017")
    expect(page.locator("#ranking-title")).to_have_text("“oasis” now")
    expect(page.locator("#ranking li")).to_have_count(10)
    expect(page.locator("#regret .main-svg").first).to_be_visible()
    expect(page.locator("#policies tr")).to_have_count(5)
    keep(page, "demo-before")
    expect(page.locator("#versus .value").nth(2)).to_contain_text("clicks")  # young queries, against the engine's order
    expect(page.locator("#ranking .slot .part").first).to_contain_text("%")
    assert all(text and text[0] in "↑↓=" for text in page.locator("#ranking .moved").all_text_contents())
    before = page.locator("#ranking .name").first.text_content()
    order = page.locator("#ranking .name").all_text_contents()
    moves = page.evaluate("window.moves")
    known = len(demo.report()["events"])
    page.locator("#shift").click()
    report = demo.report()
    while not [event for event in report["events"][known:] if event["query"] == "oasis"]:
        report = demo.report()
    wanted = TITLES[report["best"]["oasis"]]
    assert wanted != before
    page.locator("#speed").fill("9")  # the highest speed
    until = time.monotonic() + 120.0
    while page.locator("#ranking .name").first.text_content() != wanted:
        assert time.monotonic() < until, (wanted, page.locator("#ranking .name").all_text_contents())
        wanted = TITLES[demo.report()["best"]["oasis"]]  # users may have come to want another result meanwhile
    after = page.locator("#ranking .name").all_text_contents()
    assert len(after) == 10 and sum(one != other for one, other in zip(after, order, strict=True)) >= 2  # the list has moved,
    assert page.evaluate("window.moves") > moves  # and was seen to
    expect(page.locator("#timeline .event", has_text="oasis").or_(page.locator("#timeline li").first).first).to_be_visible()
    report = demo.report()
    while not (followed := [one for one in report["adapt"] if one["query"] == "oasis" and one["impressions"] is not None]):
        report = demo.report()
    assert followed[-1]["impressions"] <= IMPRESSIONS
    page.locator("#speed").fill("3")  # time for the tests that follow
    keep(page, "demo-after")


def test_a_persons_search_and_click_count(demo, opened, keep):
    page = opened(demo.port)
    page.fill("#text", "jaguar car restoration")
    page.keyboard.press("Enter")
    results = page.locator("#found-list li")
    expect(results.first).to_be_visible()
    assert results.count() >= 3
    page.locator("#found-list button").nth(0).click()
    expect(page.locator("#found-said")).to_contain_text("ounted")
    state = demo.http.query("jaguar car restoration").json
    assert state["requests"] == 1
    assert sum(arm["clicks"] for arm in state["arms"]) == 1
    keep(page, "demo-found")


def test_a_lost_connection_comes_back_where_it_was(demo, opened):
    with Tap(demo.port) as line:
        page = opened(line.port, "#query=hurricane", lost=True)
        expect(page.locator("#link-text")).to_have_text("Live")
        expect(page.locator("#ranking li").first).to_be_visible()
        line.cut()
        expect(page.locator("#link-text")).to_have_text("Reconnecting")
        expect(page.locator("#ranking li").first).to_be_visible()  # the last state
        searches = page.locator("#reached").text_content()
        line.mend()
        expect(page.locator("#link-text")).to_have_text("Live", timeout=30_000)
        expect(page.locator("#banner")).to_be_hidden()
        expect(page.locator("#reached")).not_to_have_text(searches or "")
        assert page.locator("#ranking li").count() > 0


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1440, "dark"), (360, "light"), (1440, "light")])
def test_it_fits(demo, opened, keep, width, scheme):
    page = opened(demo.port, "#query=hurricane", width, scheme)
    expect(page.locator("#ranking li").first).to_be_visible()
    expect(page.locator("#share .main-svg").first).to_be_visible()
    inside, window = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert inside <= window == width
    expect(page.locator("#ranking .part").first).to_be_visible()
    pairs = page.evaluate(COLOURS)
    assert len(pairs) > 80
    assert [pair for pair in pairs if contrast(*pair[1:]) < 4.5] == []
    keep(page, f"demo-{width}-{scheme}")


@pytest.mark.slow
def test_hold_out_lift_and_a_pin_are_seen_live(tmp_path: Path, opened, keep):
    """From the beginning of the scenario until the operator's pin has expired."""
    with playing(tmp_path, "--speed", "400", "--seed", "3") as demo:
        page = opened(demo.port, "#query=hurricane", width=1400)
        expect(page.locator("#experiment-title")).to_have_text("Experiment “demo”")
        expect(page.locator("#experiment-share")).to_contain_text("80 % treated")
        expect(page.locator("#experiment-verdict")).to_contain_text("reward per search")
        pin = demo.report()["pinned"]
        while pin is None:
            pin = demo.report()["pinned"]
        demo.order("speed", 20)  # the pin holds for a simulated day: time to look at it
        row = page.locator("#ranking li", has=page.locator(".mark:visible"))
        expect(row.locator(".mark")).to_have_text("pinned to 2")
        expect(row.locator(".name")).to_have_text(TITLES[pin["result"]])
        expect(page.locator("#demo-said")).to_contain_text("An operator has pinned")
        expect(page.locator("#rules li")).to_contain_text("an editor's choice")
        place = page.locator("#ranking li").nth(1).locator(".name")
        expect(place).to_have_text(TITLES[pin["result"]], timeout=30_000)
        keep(page, "demo-pinned")
        (rule,) = demo.http.call("GET", "/v1/rules").json["rules"]
        assert (rule["result"], rule["position"], rule["query"]) == (pin["result"], 2, "hurricane")
        demo.order("speed", 1000)
        expect(page.locator("#ranking .mark:visible")).to_have_count(0)
        expect(page.locator("#rules-empty")).to_be_visible()
        assert demo.report()["pinned"] is None
        expect(page.locator("#experiment-verdict")).to_contain_text("It helps", timeout=60_000)
        keep(page, "demo-lift")
        code, said = demo.end()
    assert code == 0
    assert "hold-out: " in said and "an operator's pin: " in said


def test_what_a_person_did_is_in_the_store(tmp_path: Path, opened):
    """The click on the page survives a kill of the process."""
    store = f"sqlite:///{tmp_path}/kept.db"
    with playing(tmp_path, "--store", store, "--speed", "20") as demo:
        page = opened(demo.port)
        page.fill("#text", "python snake keeping")
        page.keyboard.press("Enter")
        page.locator("#found-list button").nth(0).click()
        expect(page.locator("#found-said")).to_contain_text("ounted")
        page.close()
        demo.child.kill()  # only durable state remains
        demo.child.wait()
    with playing(tmp_path, "--store", store, "--speed", "20") as demo:
        assert sum(arm["clicks"] for arm in demo.http.query("python snake keeping").json["arms"]) == 1
