"""The page's own logic, and its parts for a simulation, in a real browser over a real hub."""

from __future__ import annotations

import pytest
from dashboard.pages import browser, expect, keep, opened  # noqa: F401 - fixtures

BEGAN = 1503273600.0  # 21 August 2017
DAY = 86400.0
TITLES = {
    "harvey-flood": {"title": "Harvey: flooding", "text": "Roads and shelters.", "meaning": "harvey"},
    "irma-track": {"title": "Irma: track", "text": "Where it goes.", "meaning": "irma"},
}
STORIES = [
    {"name": "hurricane", "title": "Hurricanes of 2017", "story": "Four storms."},
    {"name": "quiet", "title": "Quiet", "story": "Nothing."},
]
INTENT = {"hurricane": {"harvey": 0.6, "irma": 0.4}, "oasis": {"band": 1.0}}
DEMO = {"titles": TITLES, "scenarios": STORIES, "queries": ["hurricane", "oasis"]}
#: The parser gets a stream in pieces of every size; the messages must not depend on the cuts.
PARSED = """async () => {
  const { Parser } = await import("/page/stream.js");
  const text = 'retry: 1000\\n\\n: comment\\n\\nid: e-7\\nevent: demo\\ndata: {"a":"ü"}\\n\\n'
    + 'event:query\\r\\ndata: 1\\ndata: 2\\n\\n\\n\\ndata: cut';
  return Array.from({ length: text.length }, (_, size) => {
    const found = [];
    const parser = new Parser((message) => found.push(message));
    for (let at = 0; at < text.length; at += size + 1) parser.feed(text.slice(at, at + size + 1));
    return JSON.stringify(found);
  });
}"""
#: A thousand seconds, one point per second as in the stream: first `a` is on top and clicked, then `b`.
FOLLOWED = """async () => {
  const { State } = await import("/page/state.js");
  const state = new State();
  state.take("hello", { resumed: false, demo: null });
  const clicks = { a: 0, b: 0 };
  const orders = [];
  for (let second = 0; second < 1000; second++) {
    const top = second < 600 ? "a" : "b";
    clicks[top] += 2;
    const arms = Object.entries(clicks).map(([id, got]) => ({ id, plays: 2 * got, clicks: got, phase_plays: 0, phase_clicks: 0 }));
    const tops = second % 50 || top === "b" ? { [top]: 4 } : { a: 3, b: 1 };
    const places = { a: [4, 4 - (tops.a ?? 0)], b: [4, 4 - (tops.b ?? 0)] };
    const slots = [1, 0, second < 990 ? 0 : 1];
    state.take("query", { query: "q", now: second, ranking: ["b", "a"], tops, places, slots, explored: { b: 1 },
      state: { phase: second < 600 ? 1 : 2, arms, alarms: [], signals: {} } });
    orders.push(state.ranking().order.join(""));
  }
  const { times, shares, window } = state.clickShares();
  const sums = times.map((_, j) => [...shares.values()].reduce((sum, parts) => sum + parts[j], 0));
  const tops = state.points.reduce((sum, point) => sum + Object.values(point.tops).reduce((a, b) => a + b, 0), 0);
  return { orders, times, a: shares.get("a"), sums, window, tops, points: state.points.length, phases: state.phases(),
    explored: state.ranking().explored, slots: state.slotClicks() };
}"""


@pytest.fixture
def page(site, opened):
    """The page of a service with a simulation that has just begun; its state is sent when a test ticks."""
    site.do(lambda: setattr(site.hub, "demo", DEMO))
    report(site, 1)
    return opened(site.port)


def report(site, days, **more):
    """Publish the report of a simulation, this many days after its beginning."""
    regret = {"swerve": 10 * days, "bwc": 20 * days, "ucb1": 60 * days, "oracle": 8 * days, "fixed": 90 * days}
    message = {
        "scenario": "hurricane", "title": "Hurricanes of 2017", "now": BEGAN + days * DAY, "began": BEGAN, "ends": BEGAN + 36 * DAY,
        "day": f"{21 + days} Aug 2017", "speed": 100, "reached": 99, "paused": False, "ended": False, "impressions": 1000 * days,
        "regret": regret, "ctr": dict.fromkeys(regret, 0.25), "events": [], "intent": INTENT,
        "best": {"hurricane": "harvey-flood"}, "adapt": [],
    }  # fmt: skip
    site.do(lambda: site.hub.publish("demo", {**message, **more}))


def test_the_parts_of_a_simulation(site, page, keep):
    expect(page.locator("#ranking-title")).to_have_text("“hurricane” now")  # the scenario's main query
    event = {"query": "hurricane", "at": BEGAN + 3 * DAY, "from": "harvey", "to": "irma"}
    report(site, 4, events=[event], adapt=[{"query": "hurricane", "at": event["at"], "impressions": None}])
    expect(page.locator("#day")).to_have_text("25 Aug 2017")
    expect(page.locator("#hour")).to_have_text("00:00")
    expect(page.locator("#story")).to_have_text("Four storms.")
    expect(page.locator("#speed-text")).to_have_text("×100")
    expect(page.locator("#scenario option")).to_have_count(2)
    expect(page.locator("#chips button")).to_have_text(["hurricane", "oasis"])
    site.do(site.hub.tick)
    expect(page.locator("#policies tr th .name")).to_have_text(["Oracle", "Swerve", "BWC", "UCB1", "Engine's order"])
    expect(page.locator("#policies .swerve td").first).to_have_text("40")
    expect(page.locator("#regret .main-svg").first).to_be_visible()
    expect(page.locator("#timeline .event")).to_contain_text("People now want “irma”")
    expect(page.locator("#timeline .event .pill")).to_have_text("learning")
    later = {"query": "hurricane", "at": BEGAN + 4.5 * DAY, "from": "irma", "to": "harvey"}
    took = [
        {"query": "hurricane", "at": event["at"], "impressions": None},
        {"query": "hurricane", "at": later["at"], "impressions": 84},
    ]
    report(site, 5, events=[event, later], adapt=took)
    site.do(site.hub.tick)
    expect(page.locator("#timeline .event .pill")).to_have_text(["followed in 84", "overtaken by the next"])
    expect(page.locator("#timeline .event .small").first).to_contain_text("25 Aug, 12:00")
    assert page.locator("#timeline .event").count() == 2
    keep(page, "demo-parts")


def test_the_engines_order_is_the_rival_from_the_first_report(site, page, keep):
    """Gains over it for all searches, famous and young queries; clicks by slot; and the young queries to look at."""
    tiles = page.locator("#versus .tile")
    expect(tiles.locator(".value")).to_have_text(["+0.0 % clicks"])  # a report without parts
    part = {"impressions": 0, "clicks": {}, "ctr": {"swerve": 0.0, "fixed": 0.0}, "gained_percent": None}
    head = {**part, "impressions": 800, "ctr": {"swerve": 0.5, "fixed": 0.4}, "gained_percent": 25.0}
    slots = {"swerve": [300, 60, 40, *[0] * 7], "fixed": [200, 60, 60, *[0] * 7]}
    ctr = {"swerve": 0.5, "fixed": 0.4}
    report(site, 2, impressions=800, ctr=ctr, head=head, tail=part, slots=slots, young=["jaguar camera traps"])
    expect(tiles.locator("dt")).to_have_text(["All searches", "Famous queries", "Rare and young queries"])
    expect(tiles.locator(".value")).to_have_text(["+25.0 % clicks", "+25.0 % clicks", "–"])
    expect(tiles.locator(".note").nth(1)).to_have_text("50.0\u00a0% clicked, against 40.0\u00a0%, of 800 searches")
    worse = {**head, "impressions": 200, "ctr": {"swerve": 0.48, "fixed": 0.5}, "gained_percent": -4.0}
    report(site, 3, impressions=1000, ctr=ctr, head=head, tail=worse, slots=slots, young=["jaguar camera traps"])
    expect(tiles.locator(".value").nth(2)).to_have_text("−4.0 % clicks")  # a loss is told as well
    page.locator("#versus-part summary").press("Enter")
    expect(page.locator("#slot-table tr")).to_have_count(10)
    expect(page.locator("#slot-table tr").nth(2).locator("td")).to_have_text(["4.0", "6.0"])  # per 100 searches
    keep(page, "demo-versus")
    page.locator("#young button").press("Enter")
    expect(page.locator("#ranking-title")).to_have_text("“jaguar camera traps” now")
    expect(page.locator("#young button")).to_have_attribute("aria-pressed", "true")
    assert page.locator("#young button").all_inner_texts() == ["jaguar camera traps"]


def test_the_banner_says_what_matters_most(site, page):
    banner = page.locator("#banner-text")
    site.do(site.hub.tick)
    expect(banner).to_contain_text("is starting")  # this service is never compiled
    site.do(lambda: setattr(site.service.availability, "compiled", True))
    report(site, 2, paused=True)
    site.do(site.hub.tick)
    expect(banner).to_contain_text("Paused")
    expect(page.locator("#pause")).to_have_text("Resume")
    report(site, 36, ended=True, reached=20)
    site.do(site.hub.tick)
    expect(banner).to_contain_text("has ended")
    expect(page.locator("#shift")).to_be_disabled()
    report(site, 37, reached=20, impressions=123_456_789)
    site.do(site.hub.tick)
    expect(page.locator("#banner")).to_be_hidden()
    expect(page.locator("#reached")).to_contain_text("reaches ×20")
    assert page.locator("#shift").is_enabled()


@pytest.mark.parametrize("width", [360, 700, 1000, 1230, 1440])
def test_long_words_of_a_simulation_fit(site, page, width):
    page.set_viewport_size({"width": width, "height": 800})
    page.add_style_tag(content="body { font-family: 'DejaVu Sans', Verdana, sans-serif; letter-spacing: .03em; }")  # wide fonts
    report(site, 3, title="Wind " * 30, speed=1000, reached=999.4 / 2, impressions=99_999, day="30 September 2017")
    site.do(site.hub.tick)
    expect(page.locator("#reached")).to_contain_text("99,999 searches")
    page.locator("#demo-said").evaluate("node => { node.textContent = 'From now on most people want something else. '.repeat(4); }")
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_another_scenario_begins_with_empty_tallies(site, page):
    report(site, 9)
    site.do(site.hub.tick)
    expect(page.locator("#policies .swerve td").first).to_have_text("90")
    oasis = [{"query": "oasis", "at": BEGAN + 10.25 * DAY, "from": "desert", "to": "band"}]
    quiet = {"scenario": "quiet", "began": BEGAN + 10.1 * DAY, "ends": BEGAN + 20.1 * DAY, "day": "2 Mar 2026", "events": oasis}
    report(site, 10.5, **quiet, regret={"swerve": 3.0}, intent={"oasis": {"band": 1.0}})
    expect(page.locator("#ranking-title")).to_have_text("“oasis” now")  # the main query of this scenario
    site.do(site.hub.tick)
    expect(page.locator("#policies tr")).to_have_count(1)
    expect(page.locator("#story")).to_have_text("Nothing.")
    expect(page.locator("#scenario")).to_have_value("quiet")
    expect(page.locator("#hour")).to_have_text("09:36")  # the scenario's time, which began a tenth of a day after the service's
    expect(page.locator("#timeline .event .small")).to_contain_text("2 Mar, 03:36")
    assert page.locator("#timeline .event").count() == 1


def test_what_is_being_written_is_left_alone(site, opened):
    site.do(lambda: setattr(site.hub, "demo", DEMO))
    page = opened(site.port)
    expect(page.locator("#link-text")).to_have_text("Live")
    page.locator("#text").press_sequentially("jag")
    report(site, 1)  # now the page knows the main query
    expect(page.locator("#ranking-title")).to_have_text("“hurricane” now")
    page.locator("#text").press_sequentially("uar")
    expect(page.locator("#text")).to_have_value("jaguar")
    assert page.locator("#text").input_value() == "jaguar"


def test_a_stream_is_read_whatever_its_pieces(page):
    found = page.evaluate(PARSED)
    demo, query = '{"id":"e-7","event":"demo","data":"{\\"a\\":\\"ü\\"}"}', '{"id":null,"event":"query","data":"1\\n2"}'
    assert set(found) == {f"[{demo},{query}]"}


def test_figures_over_time(page):
    found = page.evaluate(FOLLOWED)
    assert found["orders"][0] == "ab" and set(found["orders"][:600]) == {"ab"}  # one other answer in 200 changes nothing
    assert 604 <= found["orders"].index("ba") <= 608  # half of the last 50 answers
    assert set(found["orders"][608:]) == {"ba"}
    assert found["tops"] == 4000 and found["points"] <= 901  # thinned, without losing counts
    assert len(found["times"]) <= 260 and found["times"][-1] == 999
    assert found["sums"] == pytest.approx([1.0] * len(found["sums"]))
    assert found["a"][0] == 1.0 and found["a"][-1] == 0.0
    assert 60 <= found["window"] <= 70
    assert found["explored"] == {"b": 0.25}  # one of four answers each second
    assert found["slots"] == {"clicks": 200, "slots": [190, 0, 10]}  # the third slot got clicks in the last ten seconds
    assert len(found["phases"]) == 1 and abs(found["phases"][0] - 600) <= 2
