"""A page after the operator's rules: what is shown, and what the policy may learn from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from swerve.serving.outcomes import GONE, LEARNED
from swerve.serving.packing import WORDS
from swerve.serving.requests import Asking, Decided, Prepared
from swerve.serving.tokens import NAMES, Signed, page_of

if TYPE_CHECKING:
    from swerve.serving.place import Place
    from swerve.serving.ranker import Ranker


class Shown(Struct, gc=False):
    """A page after the rules: the whole order, and for each slot its code, its propensity and the result's hash."""

    ranking: list[str]
    codes: list[int]
    chances: list[float]
    names: list[int]
    evidence: bool
    seen: int
    offer: int


def ruled(
    ranker: Ranker,
    asking: Asking,
    request: Prepared,
    order: list[Any],
    answer: Sequence[int],
    chance: Sequence[float],
    number: int,
    now: float,
) -> Decided:
    """Return the policy's ranking after the operator's rules; the policy counts what is shown after them."""
    place, session, people = asking[0], asking[1] & WORDS, ranker.people
    _, start, phase, _, report, signal, _, _ = answer[:8]
    page = show(ranker, place, request, order, answer, chance, number, now)
    if ranker.notes is not None:
        ranker.notes.ruled(place.key, number, page.ranking[: len(page.chances)], page.chances, now)
    free = [name for name, code in zip(page.names, page.codes, strict=True) if code != GONE]
    if page.evidence and session and people.limit > 0 and free:
        people.shown(session, place.key, phase, free)
    codes, rival = page_of(page.codes, [name & NAMES for name in page.names]), place.shelf.rival
    token = Signed(
        place.key, start, phase, number, session, page.evidence, page.seen, page.offer, codes, request.arm, rival, True
    )  # fmt: skip
    explored = next((slot for slot, share in enumerate(page.chances) if share < 0.5), -1)
    decided = Decided(
        page.ranking, token, page.chances, explored, phase, report, signal, now, False, request.ruling, request.control
    )
    if session and ranker.settings.steady > 0.0:
        people.keep(session, place.key, decided)
    return decided


def show(
    ranker: Ranker,
    place: Place,
    request: Prepared,
    order: list[str],
    answer: Sequence[int],
    chance: Sequence[float],
    number: int,
    now: float,
) -> Shown:
    """Apply the rules to the policy's order, and let the policy learn what was shown in place of its own page."""
    ruling = request.ruling
    assert ruling is not None, "only a ruled request comes here"
    filled, start, phase, _, _, _, evidence, seen = answer[:8]
    page = list(answer[8 : 8 + filled])
    ranking, placed = ruling.arrange(order), ruling.placed
    slot_of = {result: slot for slot, result in enumerate(order[:filled])}
    shown = ranking[: ruling.slots]
    slots = [-1 if result in placed else slot_of.get(result, -1) for result in shown]
    codes = [page[slot] if slot >= 0 else GONE for slot in slots]
    chances = [chance[slot] if slot >= 0 else 1.0 for slot in slots]
    evidence = evidence != 0 and not (place.shelf.held and codes[0] == GONE)  # such a policy learns from the top alone
    outcome, seen = ranker.responses.instead(place, start, phase, number, evidence, seen, page, codes, now)
    short = ranker.rows.short
    names = [short(result) for result in shown]
    offer = place.mask
    for result, _, _ in ruling.pins:  # a click on it, wherever it was shown, is a click on something that was on offer
        if (arm := place.arms.get(result)) is not None:
            offer |= 1 << arm
    return Shown(ranking, codes, chances, names, evidence and outcome == LEARNED, seen, offer)
