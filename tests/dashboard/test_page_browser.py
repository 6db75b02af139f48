"""The page in a real browser, over a real service: its contents, API keys, and a service that goes away."""

from __future__ import annotations

import socket

import pytest
from dashboard.pages import COLOURS, browser, contrast, expect, keep, opened  # noqa: F401 - fixtures
from service.running import Running, running

from swerve.service.secrets import new_key

CONFIG = {"store": {"store_queries": True}}
READ, RANK = new_key("reader", ["read", "rank", "feedback"]), new_key("searcher", ["rank"])
WIDTHS = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
NAMELESS = """[...document.querySelectorAll('button, input, select, meter, section, [role=img]')]
  .filter((node) => node.checkVisibility() && !node.labels?.length && !node.textContent.trim())
  .filter((node) => !node.ariaLabel && !node.getAttribute('aria-labelledby')).map((node) => node.outerHTML)"""
FOCUSED = """(() => { const node = document.activeElement, style = getComputedStyle(node);
    return [node.id || node.textContent.trim(), style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2]; })()"""


@pytest.fixture(scope="module")
def protected(tmp_path_factory):
    """A service that requires a key, at the same port after a restart."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    keys = [{"name": key.entry.name, "hash": key.entry.hash, "scopes": list(key.entry.scopes)} for key in (READ, RANK)]
    with running(tmp_path_factory.mktemp("protected"), {"server": {"port": port}, "security": {"api_keys": keys}}) as service:
        yield service


def ask(service: Running, query: str, wanted: str, times: int, candidates=("a", "b", "c"), key: str = "") -> None:
    """Let people ask a query, and click if the wanted result is on top."""
    client = service.client(key)
    for _ in range(times):
        answer = client.rank(query, list(candidates)).json
        top = answer["ranking"][0]
        assert client.feedback(answer["decision"], top if top == wanted else None).status == 200


def test_the_most_asked_query_is_shown_without_asking_for_it(served, opened, keep):
    ask(served, "hurricane", "b", 80)
    page = opened(served.port)
    expect(page.locator("#ranking-title")).to_have_text("“hurricane” now")
    expect(page.locator("#ranking li")).to_have_count(3)
    expect(page.locator("#link-text")).to_have_text("Live")
    expect(page.locator("#about")).to_contain_text("ts")
    expect(page.locator("#top button").first).to_have_text("hurricane")
    ask(served, "hurricane", "b", 60)
    expect(page.locator("#ranking li").first.locator(".name")).to_have_text("b")
    expect(page.locator("#ranking li").first.locator(".figure")).to_contain_text("on top")
    expect(page.locator("#share .main-svg").first).to_be_visible()  # under the page's content security policy
    expect(page.locator("#share-about")).to_contain_text("clicks")
    page.locator("#share ~ details summary").click()
    row = page.locator("#share-table tr", has=page.get_by_role("rowheader", name="b", exact=True))
    expect(row.locator("td").first).to_have_text("100 %")
    expect(page.locator("#health .value[data-kind=good]")).to_have_text("ok")
    for hidden in ("#banner", "#demo", "#regret-part", "#chips", "#key"):
        expect(page.locator(hidden)).to_be_hidden()
    assert page.locator("#ranking .name").all_text_contents()[0] == "b"
    keep(page, "service")


def test_another_query_is_watched_before_and_after_somebody_asks_it(served, opened):
    ask(served, "hurricane", "b", 5)
    page = opened(served.port, "#query=hurricane")
    expect(page.locator("#ranking li")).to_have_count(3)
    page.fill("#text", "Oasis, the band")
    page.keyboard.press("Enter")
    expect(page.locator("#ranking-title")).to_have_text("“Oasis, the band” now")
    expect(page.locator("#ranking-note")).to_contain_text("This query was never asked")
    assert page.url.endswith("#query=Oasis%2C+the+band")
    ask(served, "oasis, the band", "y", 3, ("x", "y"))
    expect(page.locator("#ranking li")).to_have_count(2)
    page.go_back()
    expect(page.locator("#ranking-title")).to_have_text("“hurricane” now")
    expect(page.locator("#ranking li")).to_have_count(3)
    page.locator("#top").get_by_role("button", name="oasis, the band").click()
    expect(page.locator("#ranking li")).to_have_count(2)


def test_a_query_that_the_service_refuses_is_said_once(served, opened):
    page = opened(served.port, lost=True)
    page.locator("#text").evaluate("node => { node.removeAttribute('maxlength'); node.value = 'q'.repeat(5000); }")
    page.locator("#go").click()
    expect(page.locator("#banner-text")).to_contain_text("does not take this query")
    expect(page.locator("#link-text")).to_have_text("Not watching")
    assert page.locator("#banner-text").count() == 1
    page.fill("#text", "hurricane")
    page.keyboard.press("Enter")
    expect(page.locator("#banner")).to_be_hidden()


def test_what_strangers_write_is_shown_and_not_run(served, opened):
    query, candidate = "<img src=x onerror=document.title=1>", "<b onclick=alert(1)>&lt;</b>"
    ask(served, query, candidate, 80, (candidate, "a"))
    page = opened(served.port, f"#query={query}")
    expect(page.locator("#ranking-title")).to_have_text(f"“{query}” now")
    ask(served, query, candidate, 60, (candidate, "a"))
    expect(page.locator("#ranking .name").first).to_have_text(candidate)
    expect(page.locator("#share .main-svg").first).to_be_visible()
    expect(page.locator("#top").get_by_role("button", name=query)).to_be_visible()
    assert page.locator("img:not(.mark)").count() == page.locator("b").count() == 0
    assert page.title() == "Swerve: live"


def test_a_shift_moves_the_list_and_is_read_out(served, opened):
    ask(served, "tomato", "a", 60)
    page, calm = (opened(served.port, "#query=tomato", reduced_motion=motion) for motion in ("no-preference", "reduce"))
    for each in (page, calm):
        expect(each.locator("#ranking .name").first).to_have_text("a")
    ask(served, "tomato", "a", 60)
    expect(page.locator("#ranking .figure").first).to_contain_text("on top")
    assert served.client().call("POST", "/v1/queries/tomato/shift", {}).status == 200
    ask(served, "tomato", "c", 250)
    for each in (page, calm):
        expect(each.locator("#ranking .name").first).to_have_text("c")
        expect(each.locator("#say")).to_have_text("New top result for tomato: c")
        expect(each.locator("#timeline .alarm").first).to_contain_text("a person said so")
    expect(page.locator("#shifted").get_by_role("button", name="tomato")).to_be_visible()
    assert page.evaluate("window.moves") > 0 and calm.evaluate("window.moves") == 0


def test_a_protected_service_asks_for_a_key(protected, opened, keep):
    ask(protected, "hurricane", "b", 5, key=READ.text)
    page = opened(protected.port, "#query=hurricane", lost=True)
    dialog, why = page.locator("#key"), page.locator("#key-why")
    expect(dialog).to_be_visible()
    expect(why).to_contain_text("is protected")
    expect(page.locator("#key-text")).to_be_focused()
    keep(page, "key")
    for key, answer in (("swerve_wrong", "not known"), (RANK.text, "does not have the scope read")):
        page.fill("#key-text", key)
        page.keyboard.press("Enter")
        expect(why).to_contain_text(answer)
        expect(dialog).to_be_visible()
    assert page.locator("#ranking li").count() == 0
    page.keyboard.press("Escape")
    expect(page.locator("#banner-text")).to_contain_text("API key")
    page.locator("#banner-button").click()
    page.fill("#key-text", READ.text)
    page.get_by_role("button", name="Connect").click()
    expect(page.locator("#link-text")).to_have_text("Live")
    expect(page.locator("#ranking li")).to_have_count(3)
    expect(dialog).to_be_hidden()
    page.reload()  # the tab remembers the key
    expect(page.locator("#ranking li")).to_have_count(3)
    # without stored texts a query can be watched by its key
    expect(page.locator("#top button").first).to_contain_text("…")
    page.locator("#top button").first.click()
    expect(page.locator("#ranking-title")).to_contain_text("query ")
    expect(page.locator("#ranking li")).to_have_count(3)


def test_the_page_comes_back_with_the_service(protected, opened, keep):
    ask(protected, "oasis", "b", 5, key=READ.text)
    page = opened(protected.port, lost=True)
    page.fill("#key-text", READ.text)
    page.keyboard.press("Enter")
    page.fill("#text", "oasis")
    page.keyboard.press("Enter")
    expect(page.locator("#ranking li")).to_have_count(3)
    protected.kill()
    expect(page.locator("#banner-text")).to_contain_text("No connection")
    expect(page.locator("#link-text")).to_have_text("Reconnecting")
    expect(page.locator("#ranking li")).to_have_count(3)  # the last state
    keep(page, "away")
    protected.start()
    expect(page.locator("#link-text")).to_have_text("Live", timeout=30_000)
    expect(page.locator("#banner")).to_be_hidden()
    ask(protected, "oasis", "d", 5, ("a", "b", "c", "d"), key=READ.text)
    expect(page.locator("#ranking li")).to_have_count(4)
    assert sorted(page.locator("#ranking .name").all_text_contents()) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (800, "light"), (1440, "light")])
def test_it_fits_and_can_be_read(served, opened, keep, width, scheme):
    ask(served, "hurricane", "b", 30)
    page = opened(served.port, "#query=hurricane", width, scheme)
    expect(page.locator("#ranking li")).to_have_count(3)
    ask(served, "hurricane", "b", 30)
    expect(page.locator("#share .main-svg").first).to_be_visible()
    page.locator("#share ~ details summary").click()
    inside, window = page.evaluate(WIDTHS)
    assert inside <= window == width
    pairs = page.evaluate(COLOURS)
    assert len(pairs) > 40
    assert [pair for pair in pairs if contrast(*pair[1:]) < 4.5] == []
    keep(page, f"{width}-{scheme}")
    other = {"light": "dark", "dark": "light"}[scheme]
    while page.locator("#theme").text_content() != f"Theme: {other}":
        page.locator("#theme").click()
    turned = page.evaluate(COLOURS)
    assert [pair for pair in turned if contrast(*pair[1:]) < 4.5] == []
    white = "rgb(255, 255, 255)"
    assert (contrast(pairs[0][1], white) > contrast(turned[0][1], white)) == (scheme == "light")
    page.reload()  # the theme is remembered
    expect(page.locator("#theme")).to_have_text(f"Theme: {other}")


def test_everything_is_reached_by_the_keyboard_and_named(served, opened):
    ask(served, "hurricane", "b", 5)
    page = opened(served.port, "#query=hurricane")
    expect(page.locator("#top button").first).to_be_visible()
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            break
        name, visible = page.evaluate(FOCUSED)
        assert visible, name
        reached.append(name)
    assert reached[:4] == ["Skip to the ranking", "theme", "text", "go"]
    assert {"As a table", "hurricane"} <= {name.removeprefix("▸ ") for name in reached}
    landmarks = [page.get_by_role(role).count() for role in ("banner", "main", "search")]
    assert landmarks == [1, 1, 1] and page.get_by_role("heading", level=1).text_content() == "Swerve"
    assert page.evaluate(NAMELESS) == []


def test_the_focus_stays_where_it_is_while_lists_change(served, opened):
    for query, times in (("less", 2), ("more", 6)):
        ask(served, query, "b", times)
    page = opened(served.port, "#query=hurricane")
    less = page.locator("#top").get_by_role("button", name="less")
    expect(less).to_be_visible()
    less.focus()
    height = less.bounding_box()["y"]
    ask(served, "less", "b", 10)
    expect(less.locator("xpath=../following-sibling::li/button[text()='more']")).to_have_count(1)
    assert less.bounding_box()["y"] < height
    expect(less).to_be_focused()
