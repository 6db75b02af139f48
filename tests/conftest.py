"""Settings of all tests: reproducible Hypothesis runs, and the twins on the path."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from swerve.core.engine import Entry

HERE = Path(__file__).parent
#: A file as a user writes it: the tests load it by its path, and must be the first to define its classes.
collect_ignore = ["service/own_policy.py"]
sys.path.insert(0, str(HERE))  # `twins` is plain Python beside the tests, not part of the package

# the first example compiles kernels, so a deadline would measure the compiler
settings.register_profile("swerve", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("swerve")


#: The files that take longest by the clock. They begin first, so that at the end no worker has a long one alone: those that compile
#: much, then those that wait for services and browsers, which are slow while others compile.
LONGEST = (
    "test_prove_it.py", "conformance/test_policies.py", "simulate/test_pages.py", "test_examples.py", "demo/test_browser.py",
    "dashboard/test_page_browser.py", "demo/test_command.py", "bench/test_proxy.py", "service/test_ranking.py",
    "dashboard/test_page_rules_browser.py", "service/test_pages.py", "dashboard/test_page_demo_browser.py", "demo/test_world.py",
    "serving/test_memory.py", "proxy/test_tracing.py", "dashboard/test_service.py", "service/test_exhaustion.py",
    "service/test_faults.py", "service/test_same_kernels.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first; the others keep their order."""
    turns = {HERE / name: turn for turn, name in enumerate(LONGEST)}
    items.sort(key=lambda item: turns.get(item.path, len(turns)))


@pytest.fixture
def uncompiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let everything made in a test run the kernels' source in Python, which for few rounds is faster than the compiler.

    Compiled code gives the same bytes: `tests/conformance` proves it for every policy, classifier, detector and environment.
    A test marked `compiled` runs compiled code all the same.
    """
    if request.node.get_closest_marker("compiled") is None:
        monkeypatch.setattr(Entry, "bind", lambda entry, *specs, variant="": entry.plain)
        if (warm := sys.modules.get("swerve.service.warm")) is not None:
            monkeypatch.setattr(warm, "mark_of", lambda ranker, shelf: None)  # nothing is missing that children could compile
