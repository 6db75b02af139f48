"""The parts of the proxy that need no connection: heads, chunks, rules, kept orders, configuration."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from swerve.core.errors import SwerveError
from swerve.proxy.framing import Chunks
from swerve.proxy.heads import RequestHead
from swerve.proxy.orders import Order, Orders, applied
from swerve.proxy.rules import Rules
from swerve.proxy.server import Names, secret_in
from swerve.service.config.load import load, load_traced
from swerve.service.config.proxying import Proxy, Rule

IDS = st.lists(st.sampled_from("abcdefghij"), unique=True)


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=6), st.lists(st.integers(1, 40), min_size=1), st.binary(max_size=10))
def test_chunks_end_where_they_end_however_they_arrive(parts, cuts, behind):
    raw = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\nA: b\r\n\r\n"
    content, taken = bytearray(), 0
    chunks, data, at = Chunks(content), raw + behind, 0
    while at < len(data) and not chunks.done:
        size = cuts[at % len(cuts)]
        count = chunks.feed(data[at : at + size])
        taken, at = taken + count, at + count
    assert chunks.done
    assert (taken, bytes(content)) == (len(raw), b"".join(parts))


@given(IDS, IDS)
def test_an_earlier_order_shows_every_result_once_and_moves_none_that_stays(order, ids):
    shown = applied(order, ids)
    assert sorted(shown) == sorted(ids)
    if len(ids) >= len(order):  # every place that is left is taken by a new result
        assert all(shown[at] == one for at, one in enumerate(order) if one in ids)


def test_kept_orders_are_bounded_in_bytes_and_time():
    now = [0.0]
    orders = Orders(20_000, 60.0, lambda: now[0])
    for number in range(1000):
        orders.put(b"%d" % number, Order([f"id-{n}" for n in range(10)], "token"))
        assert orders.size <= 20_000
    assert orders.get(b"999") is not None and orders.get(b"0") is None
    kept = len(orders)
    assert 10 < kept < 30
    now[0] = 61.0
    assert orders.get(b"999") is None
    orders.put(b"new", Order(["a"], None))
    assert len(orders) == 1


def head(path: str, method: str = "POST", **more: str) -> RequestHead:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", *(f"{name}: {value}" for name, value in more.items())]
    return RequestHead("\r\n".join(lines).encode())


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"query":{"match":{"title":"red boots"}}}', "red boots"),
        (b'{"query":{"match":{"title":{"query":"red boots","fuzziness":"AUTO"}}}}', "red boots"),
        (b'{"query":{"multi_match":{"query":"red boots","fields":["a"]}}}', "red boots"),
        (b'{"query":{"bool":{"must":[{"match":{"title":"red boots"}}],"filter":[{"term":{"a":1}}]}}}', "red boots"),
        (b'{"query":{"bool":{"must":{"multi_match":{"query":"red boots"}}}}}', "red boots"),
        (b'{"query":{"match_all":{}},"ext":{"ubi":{"user_query":" red boots "}}}', "red boots"),
        (b'{"query":{"bool":{"must":[{"match":{"a":"x"}},{"match":{"b":"y"}}]}}}', None),
        (b'{"query":{"match":{"title":7}}}', "7"),
        (b'{"query":{"match":{"title":true}}}', None),
        (b'{"query":{"match":{"title":""}}}', None),
        (b'{"query":{"term":{"title":"x"}}}', None),
        (b'[1]', None),
        (b'{"query":' + b"[" * 3000, None),
    ],
)  # fmt: skip
def test_the_text_of_common_queries_is_found(body, text):
    plan = Rules((), 64).plan(head("/shop/_search"), body)
    assert (plan.targets[0].query if plan is not None else None) == text


def test_parts_of_a_query_come_from_where_the_rule_says():
    rule = Rule(
        filter=("query.bool.filter", "param:brand"), locale=("header:accept-language",), namespace="toys", unit=("cookie:u",)
    )
    body = b'{"query":{"bool":{"must":{"match":{"t":"x"}},"filter":[{"term":{"b":1,"a":2}}]}}}'
    plan = Rules((rule,), 64).plan(head("/shop/_search?brand=z", **{"Accept-Language": "de", "Cookie": 'v=1; u="me"'}), body)
    parts = {"filter": '[{"term":{"a":2,"b":1}}]\x1fz', "locale": "de", "namespace": "toys", "unit": "me"}
    assert plan.targets[0].parts == parts


def test_the_first_rule_that_fits_holds():
    rules = Rules(
        (Rule(name="a", indices=("shop-*",)), Rule(name="b", where={"track": "true"}), Rule(name="c", indices=("*",))), 64
    )

    def name(path: str, body: bytes) -> str | None:
        plan = rules.plan(head(path), body)
        return None if plan is None else plan.targets[0].rule.name

    query = b'"query":{"match":{"t":"x"}}'
    assert name("/shop-1,shop-2/_search", b"{%b}" % query) == "a"
    assert name("/shop-1,other/_search", b"{%b}" % query) == "c"
    assert name("/other/_search", b'{%b,"track":true}' % query) == "b"
    assert name("/.kibana/_search", b"{%b}" % query) is None
    assert name("/_search", b"{%b}" % query) == "c"


@pytest.mark.parametrize(
    "path", ["/shop/_search/scroll", "/shop/_doc/_search2", "/a/b/_search", "/shop/_count", "/_searchx", "/shop/_search/"]
)
def test_other_paths_are_no_searches(path):
    assert not Rules((), 64).concern(head(path))


def test_pages_of_one_search_have_one_key_and_sessions_have_their_own():
    rules = Rules((), 64)

    def key(path: str, body: bytes, session: str = "s") -> bytes:
        return rules.plan(head(path, **{"X-Swerve-Session": session}), body).targets[0].key

    first = key("/shop/_search", b'{"query":{"match":{"t":"x"}}}')
    assert first == key("/shop/_search?from=10&size=5", b'{"from":3,"query":{"match":{"t":"x"}},"ext":{"ubi":{"query_id":"9"}}}')
    others = [
        key("/shop/_search", b'{"query":{"match":{"t":"x"}}}', "t"),
        key("/shop/_search", b'{"query":{"match":{"t":"x"}},"min_score":1}'),
        key("/shop2/_search", b'{"query":{"match":{"t":"x"}}}'),
        key("/shop/_search?routing=1", b'{"query":{"match":{"t":"x"}}}'),
    ]
    assert len({first, *others}) == 5


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('upstream = "http://user:secret@host:9200"', "without credentials"),
        ('upstream = "host:9200"', "proxy.upstream"),
        ('upstream = "https://user:secret/@x@host"', "proxy.upstream"),
        ('service = ""', "proxy.service"),
        ('listen = "9200"', "proxy.listen"),
        ('[[proxy.rules]]\nquery = ["header:"]', "proxy.rules[0].query[0]"),
        ("[[proxy.rules]]\nwindow = 65", "proxy.rules[0].window"),
        ('[[proxy.rules]]\nname = "a"\n[[proxy.rules]]\nname = "a"', "repeats the name 'a'"),
        ('[[proxy.rules]]\nindexes = ["a"]', "did you mean 'indices'"),
    ],
)
def test_mistakes_of_the_configuration_are_told(tmp_path, text, told):
    (tmp_path / "swerve.toml").write_text(f"[proxy]\n{text}\n")
    with pytest.raises(SwerveError) as error:
        load(tmp_path / "swerve.toml")
    assert told in str(error.value) and "secret" not in str(error.value)


def test_a_configuration_with_rules_is_shown_as_it_was_given(tmp_path):
    from swerve.cli.config import as_toml

    rule = '[[proxy.rules]]\nname = "shop"\nstrip = ["ext.ubi"]\n[proxy.rules.where]\n"ext.a" = "1"\n'
    text = f'[proxy]\nupstream = "https://[::1]:9200"\n{rule}'
    (tmp_path / "one.toml").write_text(text)
    (tmp_path / "two.toml").write_text(as_toml(*load_traced(tmp_path / "one.toml")))
    shown = load(tmp_path / "two.toml").proxy
    assert shown == load(tmp_path / "one.toml").proxy != Proxy()
    assert shown.rules[0].where == {"ext.a": "1"}


def test_names_are_those_of_the_loopback_the_configured_and_any():
    names = Names(["search.example", "10.0.0.7"])
    assert all(names.knows(host) for host in (b"localhost", b"Search.Example:443", b"10.0.0.7:9280", b"[::1]"))
    assert not any(names.knows(host) for host in (None, b"", b"evil.example", b"search.example.evil.example", b"10.0.0.70"))
    assert Names(["*"]).knows(b"anything") and Names(["*"]).knows(None)


def test_a_secret_that_cannot_be_read_is_named_and_not_shown(tmp_path):
    (tmp_path / "two").write_text("hidden\nlines")
    for path in (tmp_path / "two", tmp_path / "missing"):
        with pytest.raises(SwerveError) as error:
            secret_in(str(path), "proxy.api_key_file")
        assert "proxy.api_key_file" in str(error.value) and "hidden" not in str(error.value)
