"""What a worker contributes to the trust and the pages of all queries, and how others take it up."""

from __future__ import annotations

from swerve.core.contract import begin_contribution, contribute, contribution_layout, novel, take_up
from swerve.core.tables import nested
from swerve.core.wrapping import inner_contribution_layout
from swerve.policies.swerve.examination import (
    examination_contribution_layout,
    merge_examination,
    novel_examination,
    take_up_examination,
)
from swerve.policies.swerve.listed import Listed
from swerve.policies.swerve.policy import Swerve
from swerve.policies.swerve.trust import contribute_trust, novel_trust, take_up_trust, trust_contribution_layout


@contribution_layout.register(Swerve)
def _(spec, features):
    return [
        ("classifier", nested(contribution_layout(spec.classifier, features))),
        ("trust", nested(trust_contribution_layout(features))),
    ]


@begin_contribution.register(Swerve)
def _(spec, own, d):
    begin_contribution(spec.classifier, own.classifier, d)
    return 0


@contribute.register(Swerve)
def _(spec, own, delta):
    contribute(spec.classifier, own.classifier, delta.classifier)
    contribute_trust(own.trust, delta.trust)
    return 0


@novel.register(Swerve)
def _(spec, theirs, known):
    classified = novel(spec.classifier, theirs.classifier, known.classifier)
    return 1 if novel_trust(theirs.trust, known.trust) or classified else 0


@take_up.register(Swerve)
def _(spec, pool, delta, theirs, known):
    take_up(spec.classifier, pool.classifier, delta.classifier, theirs.classifier, known.classifier)
    take_up_trust(spec.trust, pool.trust, theirs.trust, known.trust)
    return 0


@contribution_layout.register(Listed)
def _(spec, features):
    return [*inner_contribution_layout(spec, features), ("pages", nested(examination_contribution_layout()))]


@contribute.register(Listed)
def _(spec, own, delta):
    contribute(spec.bandit, own.bandit, delta.bandit)
    merge_examination(own.pages, delta.pages)
    return 0


@novel.register(Listed)
def _(spec, theirs, known):
    inside = novel(spec.bandit, theirs.bandit, known.bandit)
    return 1 if novel_examination(theirs.pages, known.pages) or inside else 0


@take_up.register(Listed)
def _(spec, pool, delta, theirs, known):
    take_up(spec.bandit, pool.bandit, delta.bandit, theirs.bandit, known.bandit)
    take_up_examination(pool.pages, theirs.pages, known.pages)
    return 0
