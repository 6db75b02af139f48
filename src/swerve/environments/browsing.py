"""The verbs of an environment with result pages, beside those of `swerve.environments.worlds`.

All arguments but `given` and `page` are those of the other verbs. `page` holds the arms of a page, the top slot first.
"""

from __future__ import annotations

from swerve.core.verbs import kernel, verb


@kernel
def _hidden(spec, scene, segments, cursor, grades):
    return False


@verb
def offer(spec, scene, segments, cursor, given):
    """Write the given order of the query's candidates into `given`, the engine's best first."""


@verb(default=_hidden)
def rate(spec, scene, segments, cursor, grades):
    """Write the grades of the engine's scores, in the given order, into `grades`; return whether scores are sent."""


@verb
def browse(spec, scene, segments, cursor, page):
    """Return the slots of the page that are clicked in this round, as a mask: bit 0 is the top."""


@verb
def worth(spec, scene, segments, cursor, page):
    """Return the expected value of a page in this round."""


@verb
def ideal(spec, scene, segments, cursor):
    """Return the expected value of the best page in this round."""
