"""The contract of every detector: the checks of `swerve.conformance`, and what we ask of our own."""

from __future__ import annotations

import pytest
from conformance.examples import detectors, label, of_kind, subject_of

from swerve import SwerveError, Watcher, policy


@pytest.mark.parametrize("check", of_kind("detector"), ids=lambda check: check.name)
@pytest.mark.parametrize("detector", detectors(), ids=label)
def test_what_holds_for_every_detector(check, detector):
    check.run(subject_of(detector))


def test_something_is_registered():
    assert {type(detector).__name__ for detector in detectors()} >= {"CUSUM", "GLR", "MUCB", "BOCPD", "Split"}


@pytest.mark.parametrize("detector", detectors(), ids=label)
def test_ours_name_their_source(detector):
    assert "Source:" in (type(detector).__doc__ or "")


def test_only_a_detector_can_be_watched_with_and_it_chooses_no_arms():
    with pytest.raises(SwerveError, match="must be able to watch"):
        Watcher(policy("ucb1"))
    with pytest.raises(SwerveError, match="does not choose arms"):
        policy("GLR()")
