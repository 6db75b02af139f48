"""Metrics: Prometheus' own parser reads the text that the service writes."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given, strategies as st
from prometheus_client.parser import text_string_to_metric_families

from swerve.service.metrics import CONTENT_TYPE, LATENCIES, Counter, Family, Histogram, Metrics


def families(metrics: Metrics):
    return {family.name: family for family in text_string_to_metric_families(metrics.render().decode())}


def value(metrics: Metrics, sample: str, **labels: str) -> float:
    found = [
        one.value for family in families(metrics).values() for one in family.samples if one.name == sample and one.labels == labels
    ]
    assert len(found) == 1, (sample, labels, found)
    return found[0]


def test_fresh_metrics_are_zero_named_and_explained():
    made = families(Metrics())
    assert "swerve_decisions" in made  # the parser removes _total from the names of counters
    for name, family in made.items():
        assert name.startswith("swerve_")
        assert family.documentation
        assert family.type in {"counter", "gauge", "histogram"}
        assert all(sample.value == 0 for sample in family.samples)
    declared = re.findall(r"^# TYPE (\S+) (\S+)$", Metrics().render().decode(), re.M)
    assert len(declared) == len({name for name, _ in declared}) == len(made)
    assert all(name.endswith("_total") == (kind == "counter") for name, kind in declared)


def test_counts_come_back():
    metrics = Metrics()
    metrics.request("rank", 200)
    metrics.request("rank", 204)
    metrics.request("rank", 503)
    metrics.request("feedback", 422)
    metrics.degraded("store").value += 2
    metrics.decisions.value += 1
    metrics.store_errors("full").value += 1
    metrics.alarms("volume").value += 3
    metrics.feedback("learned").value += 1
    metrics.clicks[2].value += 4
    metrics.shown_again.value += 1
    metrics.commit_rows.observe(32)
    assert value(metrics, "swerve_requests_total", route="rank", status="2xx") == 2
    assert value(metrics, "swerve_requests_total", route="rank", status="5xx") == 1
    assert value(metrics, "swerve_requests_total", route="feedback", status="4xx") == 1
    assert value(metrics, "swerve_degraded_total", reason="store") == 2
    assert value(metrics, "swerve_decisions_total") == 1
    assert value(metrics, "swerve_store_errors_total", kind="full") == 1
    assert value(metrics, "swerve_alarms_total", signal="volume") == 3
    assert value(metrics, "swerve_feedback_total", outcome="learned") == 1
    assert value(metrics, "swerve_clicks_total", position="3") == 4
    assert value(metrics, "swerve_clicks_total", position="1") == 0
    assert value(metrics, "swerve_shown_again_total") == 1
    assert value(metrics, "swerve_commit_rows_bucket", le="32.0") == 1
    assert value(metrics, "swerve_commit_rows_bucket", le="16.0") == 0


def test_a_gauge_is_asked_when_somebody_looks():
    metrics = Metrics()
    rows = [1, 2, 3]
    metrics.cache_rows.ask = lambda: len(rows)
    metrics.started.value = 1234.5
    assert value(metrics, "swerve_cache_rows") == 3
    rows.append(4)
    assert value(metrics, "swerve_cache_rows") == 4
    assert value(metrics, "swerve_start_time_seconds") == 1234.5


@given(st.lists(st.floats(0, 100)))
def test_histograms_count_as_their_definition_says(values):
    metrics = Metrics()
    for one in values:
        metrics.rank_seconds.observe(one)
    *buckets, total, count = families(metrics)["swerve_rank_seconds"].samples
    below = [(repr(bound), sum(one <= bound for one in values)) for bound in LATENCIES]
    assert [(one.labels["le"], one.value) for one in buckets] == [*below, ("+Inf", len(values))]
    assert (count.name, count.value) == ("swerve_rank_seconds_count", len(values))
    assert total.name == "swerve_rank_seconds_sum"
    assert math.isclose(total.value, sum(values), rel_tol=1e-9)


@given(st.text(st.characters(codec="utf-8"), max_size=20))
def test_labels_are_escaped(text):
    metrics = Metrics()
    metrics.info("1.0", text, 'a\\b"c\nd').value = 1
    assert value(metrics, "swerve_build_info", version="1.0", policy=text, store='a\\b"c\nd') == 1


def test_a_family_has_its_labels_and_no_others():
    family = Family(Counter, "route", "status")
    assert family("a", "b") is family("a", "b")
    assert family("a", "b") is not family("a", "c")
    with pytest.raises(TypeError, match="route, status"):
        family("a")


def test_bounds_are_in_order_and_the_type_is_that_of_the_text_format():
    for histogram in (Metrics().rank_seconds, Metrics().commit_rows, Histogram()):
        assert list(histogram.bounds) == sorted(set(histogram.bounds))
    assert CONTENT_TYPE == "text/plain; version=0.0.4; charset=utf-8"
