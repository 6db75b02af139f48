"""Experiments as plain structures: what an operator sets, and what the service reports. Reports are those of `swerve_client`."""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta, Struct

from swerve.core.errors import shown
from swerve.serving.control import MOST_NOTE, Note, Trial
from swerve.serving.messages import LISTED, MOST_LISTED, Refused
from swerve_client.experiments import (
    Arms as Arms,
    ArmTotals as ArmTotals,
    Effect as Effect,
    Guarded as Guarded,
    Line as Line,
    Outcomes as Outcomes,
    Report as Report,
    Verdict as Verdict,
)

#: The form of an experiment's name.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

Share = Annotated[float, Meta(ge=0, le=1)]


class ExperimentRequest(Struct, forbid_unknown_fields=True):
    """The experiment from now on. With another name a new one begins, with an empty name none runs."""

    treated: Annotated[
        Share | None, Meta(description="The share of units that get the policy's order; default: as it is, 1 for a new experiment.")
    ] = None
    name: Annotated[str | None, Meta(description="Default: the name of the experiment that runs.")] = None
    note: Note = None


class ExperimentList(Struct, forbid_unknown_fields=True):
    """The parameters of `GET /v1/experiments`."""

    limit: Annotated[int, Meta(ge=0, le=MOST_LISTED)] = LISTED


class KeptExperiment(Struct):
    """The record of the experiment in the store: what runs, and what the configuration said when it was set."""

    configured: tuple[str, float, str]
    running: Trial | None


def check_experiment(request: ExperimentRequest) -> None:
    """Refuse a name of another form, a note that is too long, and a request that asks for nothing."""
    if request.treated is None and request.name is None:
        raise Refused(422, "empty", "there is neither treated nor name; there must be one of them", "treated")
    if request.name and not NAME.fullmatch(request.name):
        message = f"name = {shown(request.name)} is not allowed; it must be up to 64 letters, digits, '_', '.' or '-'"
        raise Refused(422, "invalid", message, "name")
    if request.note is not None and len(request.note) > MOST_NOTE:
        raise Refused(422, "too_long", f"note has {len(request.note)} characters; at most {MOST_NOTE} are allowed", "note")
