"""The records that all queries of a store share, as a start reads them."""

from __future__ import annotations

import logging

from swerve.service.control import AUDIT, RULES
from swerve.service.experiments import EXPERIMENT
from swerve.store.protocol import Damaged, Store

log = logging.getLogger("swerve.service")

#: What is lost with a damaged record that operators have set.
OPERATED = {RULES: "rules must be set again", AUDIT: "rules must be set again", EXPERIMENT: "the experiment must be set again"}


def shared_of(store: Store) -> dict[str, bytes]:
    """Return the records that all queries of a store share, without damaged ones: those are learnt again, and rules set again."""
    found: dict[str, bytes] = {}
    for (name, _), record in store.groups().items():
        if isinstance(record, Damaged):
            what = OPERATED.get(name, "it is learnt again")
            log.error("a record that all queries share is damaged (%s): %s", what, record)
        else:
            found[name] = record
    return found
