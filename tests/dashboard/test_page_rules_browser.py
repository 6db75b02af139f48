"""Rules on the page, in a real browser over a real service: an operator sets and removes them, others see only what they do."""

from __future__ import annotations

import re

import pytest
from dashboard.pages import COLOURS, browser, contrast, expect, keep, opened  # noqa: F401 - fixtures

from swerve.service.secrets import new_key

ADA, READER = new_key("ada"), new_key("reader", ["read"])
CONFIG = {
    "store": {"store_queries": True},
    "policy": {"slots": 3, "seed": 5},
    "security": {
        "api_keys": [{"name": key.entry.name, "hash": key.entry.hash, "scopes": list(key.entry.scopes)} for key in (ADA, READER)]
    },
}
OFFER = ["a", "b", "c", "d"]
WIDTHS = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"


@pytest.fixture
def client(served):
    """An operator's connection. Every test begins with a query that was asked, and without rules."""
    made = served.client(ADA.text)
    for rule in made.call("GET", "/v1/rules").json["rules"]:
        made.call("DELETE", f"/v1/rules/{rule['id']}")
    assert made.rank("storm", OFFER).status == 200
    return made


@pytest.fixture
def enter(served, opened):
    """A function that opens the page with a key."""

    def at(key, **more):
        page = opened(served.port, "#query=storm", lost=True, **more)  # the browser reports the 401 before the key
        page.locator("#key-text").fill(key.text)
        page.keyboard.press("Enter")
        expect(page.locator("#link-text")).to_have_text("Live")
        return page

    return at


def rules(client):
    return client.call("GET", "/v1/rules").json["rules"]


def test_an_operator_pins_a_result_and_takes_the_pin_away(client, enter, keep):
    page = enter(ADA)
    expect(page.locator("#rules-empty")).to_be_visible()
    page.select_option("#rule-kind", "pin")
    page.select_option("#rule-result", "d")
    page.fill("#rule-number", "2")
    page.fill("#rule-note", "landfall")
    page.locator("#rule-form button").click()
    expect(page.locator("#rules-said")).to_have_text("In force: d: pinned to 2, for “storm”.")
    (rule,) = rules(client)
    assert (rule["kind"], rule["result"], rule["position"], rule["query"]) == ("pin", "d", 2, "storm")
    assert (rule["note"], rule["by"]) == ("landfall", "ada") and abs(rule["until"] - rule["at"] - 86_400) < 60
    expect(page.locator("#rules li")).to_have_count(1)
    expect(page.locator("#rules li .soft")).to_have_text(
        re.compile(r"^for “storm” · until \d+ [A-Z][a-z]{2}, \d\d:\d\d · by ada · “landfall”$")
    )
    assert client.rank("storm", OFFER).json["ranking"][1] == "d"
    expect(page.locator("#ranking li", has=page.locator(".mark:visible")).locator(".name")).to_have_text("d")
    expect(page.locator("#ranking .mark:visible")).to_have_text("pinned to 2")
    page.locator("#audit-part summary").click()
    expect(page.locator("#audit li").first).to_contain_text("d: pinned to 2, for “storm”")
    expect(page.locator("#audit li").first).to_contain_text("ada")
    keep(page, "rules")
    page.get_by_role("button", name="Remove: d: pinned to 2, for “storm”").click()
    expect(page.locator("#rules-said")).to_have_text("Removed: d: pinned to 2, for “storm”.")
    expect(page.locator("#rules li")).to_have_count(0)
    assert rules(client) == []
    expect(page.locator("#ranking .mark:visible")).to_have_count(0)
    expect(page.locator("#audit li").first).to_contain_text("Removed: d: pinned to 2")


def test_the_switch_blocks_and_boosts(client, enter):
    page = enter(ADA)
    page.select_option("#rule-kind", "off")
    expect(page.locator("#rule-result-field")).to_be_hidden()
    expect(page.locator("#rule-number-field")).to_be_hidden()
    page.locator("#rule-form button").click()
    expect(page.locator("#ruled")).to_contain_text("switched the policy off")
    assert client.rank("storm", OFFER).json["ruled"] == [{"kind": "off", "rule": rules(client)[0]["id"]}]
    page.select_option("#rule-kind", "block")
    page.select_option("#rule-result", "a")
    page.select_option("#rule-where", "all")
    page.select_option("#rule-until", "0")
    page.locator("#rule-form button").click()
    expect(page.locator("#rules li")).to_have_count(2)
    expect(page.locator("#rules li").nth(1)).to_contain_text("for all queries · until it is removed")
    expect(page.locator("#ruled")).to_contain_text("Blocked by an operator: “a”.")
    assert client.rank("another", OFFER).json["ranking"].count("a") == 0
    page.select_option("#rule-kind", "boost")
    expect(page.locator("#rule-number-label")).to_have_text("Places up")
    page.fill("#rule-number", "101")
    page.locator("#rule-form button").click()
    page.wait_for_timeout(300)
    assert len(rules(client)) == 2  # the browser itself refuses a number that is too large
    page.fill("#rule-number", "3")
    page.select_option("#rule-where", "query")
    page.locator("#rule-form button").click()
    expect(page.locator("#rules-said")).to_contain_text("boosted by 3")
    assert [rule["kind"] for rule in rules(client)] == ["off", "block", "boost"]


def test_a_rule_for_no_query_is_not_taken_for_one_for_all(site, opened):
    """A service that nobody has asked anything: there is no watched query."""
    page = opened(site.port)
    site.do(site.hub.tick)
    expect(page.locator("#rules-part")).to_be_visible()  # without keys everybody may operate
    page.select_option("#rule-kind", "off")
    page.locator("#rule-form button").click()
    expect(page.locator("#rules-said")).to_contain_text("No query is watched")
    assert site.do(site.service.control.rules) == []


def test_a_rule_of_another_operator_appears_and_one_that_is_gone_is_said_to_be(client, enter):
    page = enter(ADA)
    expect(page.locator("#rules-part")).to_be_visible()
    rule = client.call("POST", "/v1/rules", {"kind": "pin", "result": "c", "position": 1, "query": "storm"}).json
    expect(page.locator("#rules li .name")).to_have_text("c: pinned to 1")
    page.evaluate(
        "window.fetched = window.fetch; window.fetch = (...a) => a[1]?.method === 'GET' ? new Promise(() => {}) : fetched(...a)"
    )
    client.call("DELETE", f"/v1/rules/{rule['id']}")
    page.locator("#rules li button").click()
    expect(page.locator("#rules-said")).to_contain_text("there is no rule")
    expect(page.locator("#rules-said")).to_have_attribute("data-kind", "bad")
    assert rules(client) == []


def test_without_the_scope_one_sees_what_rules_do_and_can_change_nothing(client, enter):
    client.call("POST", "/v1/rules", {"kind": "pin", "result": "d", "position": 1, "query": "storm", "note": "secret plan"})
    client.rank("storm", OFFER)
    page = enter(READER)
    expect(page.locator("#ranking .mark:visible")).to_have_text("pinned to 1")
    page.wait_for_timeout(2500)
    expect(page.locator("#rules-part")).to_be_hidden()
    assert "secret plan" not in page.content()


def test_it_is_readable_in_both_themes_and_on_a_phone(client, enter, keep):
    client.call("POST", "/v1/rules", {"kind": "pin", "result": "d", "position": 1, "query": "storm", "note": "long words " * 20})
    client.rank("storm", OFFER)
    for scheme, width in (("light", 1200), ("dark", 1200), ("dark", 360)):
        page = enter(ADA, width=width, scheme=scheme)
        expect(page.locator("#rules li")).to_have_count(1)
        page.locator("#audit-part summary").click()
        scroll, window = page.evaluate(WIDTHS)
        assert scroll <= window
        for text, ink, paper in page.evaluate(COLOURS):
            assert contrast(ink, paper) >= 4.5, (scheme, text, ink, paper)
        keep(page, f"rules-{scheme}-{width}")
