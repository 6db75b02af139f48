"""dcmKL-UCB: a page of the arms with the highest KL-UCB bounds, for people who may click several results."""

from __future__ import annotations

from swerve.bandits.cascade_kl_ucb import CascadeKLUCB
from swerve.bandits.listing import depth_of, to_last_click


class DCMKLUCB(CascadeKLUCB):
    """`CascadeKLUCB` that learns from the slots down to the last click.

    A page without a click counts as read to its end.

    Source: Katariya, Kveton, Szepesvári and Wen, "DCM bandits: learning to rank with multiple clicks" (ICML 2016). They too assume
    that a click is the likelier to end a search the higher its slot.

    >>> from swerve import Pages, simulate
    >>> quiet = Pages(queries=1, impressions=4000, results=8, slots=3, clicks="dcm", events_low=0, events_high=0)
    >>> found = simulate(DCMKLUCB(), quiet, runs=1, points=2)
    >>> bool(found.curves[0, 1] < 1.6 * found.curves[0, 0])
    True
    """


depth_of.register(DCMKLUCB)(to_last_click)
