"""The contract of every policy: the checks of `swerve.conformance`, and what we ask of our own."""

from __future__ import annotations

import pytest
from conformance.examples import classifiers, examples_of, label, load, of_kind, policies, subject_of

from swerve import Spec, policy as policy_of

#: The first example of each class is compiled; the others are slow. A combinator's code is the same around any part, and the parts
#: are compiled by themselves (`test_classifiers.py`, `test_detectors.py`). `Listed` is compiled for pages, in
#: tests/simulate/test_pages.py.
ELSEWHERE = {"Listed"}
COMPILED = "compiled_equals_interpreted"
#: By default pages are compiled in tests/simulate/test_pages.py.
COMPILED_PAGES = "compiled_pages_equal_interpreted"


def cases():
    """Yield every check with every policy."""
    for check in of_kind("policy"):
        for policy in policies():
            if not check.concerns(subject_of(policy)):
                continue
            first = policy == examples_of(type(policy))[0] and type(policy).__name__ not in ELSEWHERE
            late = (check.name == COMPILED and not first) or check.name == COMPILED_PAGES
            marks = [pytest.mark.slow] if late else []
            yield pytest.param(check, policy, marks=marks, id=f"{check.name}-{label(policy)}")


@pytest.mark.parametrize(("check", "policy"), list(cases()))
def test_what_holds_for_every_policy(check, policy):
    check.run(subject_of(policy))


def test_something_is_registered():
    names = {type(policy).__name__ for policy in policies()}
    assert names >= {"UCB1", "KLUCB", "Thompson", "EXP3S", "Testable", "ExploreFirst", "BWC", "Oracle"}
    tried = {type(policy.classifier).__name__ for policy in policies() if type(policy).__name__ == "BWC"}
    assert tried >= {type(classifier).__name__ for classifier in classifiers()}
    assert {COMPILED, COMPILED_PAGES} <= {check.name for check in of_kind("policy")}


def test_a_class_without_an_example_is_named():
    class NeedsMore(Spec):
        what: Spec

    with pytest.raises(AssertionError, match=r"NeedsMore needs arguments .* tests/conformance/examples.py"):
        examples_of(NeedsMore)
    assert NeedsMore not in load()


@pytest.mark.parametrize("policy", policies(), ids=label)
def test_ours_name_their_source_and_can_be_named(policy):
    doc = type(policy).__doc__ or ""
    assert "Paper:" in doc or "Source:" in doc, f"{type(policy).__name__} names no source"
    assert policy_of(repr(policy)) == policy
