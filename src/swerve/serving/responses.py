"""Feedback for a decision: which results were shown and clicked, and what the policy may learn from that.

A decision's token has its page. Feedback may arrive in any number of requests; `Outcome` has what is known of a decision so far.

Tests: tests/serving/test_pages.py, tests/serving/test_one_rule.py, tests/serving/test_evidence.py, tests/service/test_pages.py.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from swerve.core.decisions import ARM_BITS, encode
from swerve.core.examination import SLOTS
from swerve.serving import feedback_kernel
from swerve.serving.arms import written
from swerve.serving.ledger import NOBODY, count_click
from swerve.serving.messages import Event, Refused
from swerve.serving.outcomes import GONE, IGNORED, LATE, LEARNED, UNITS, Mark, Outcome, encode as encode_outcome, slots_of
from swerve.serving.place import Place
from swerve.serving.rewards import Rewards, added, drawn, mark_of
from swerve.serving.tokens import NAMES, Ticket

if TYPE_CHECKING:
    from swerve.serving.ranker import Ranker

#: The kind of user events that entries of a journal have as slots.
CLICK = "click"
#: Arms of the largest record, and the bits of a code that hold the arm.
MOST_ARMS = 64
ARM_MASK = MOST_ARMS - 1
#: The bits of a candidate's hash that tokens carry.
#: The columns of a call before its pages, and those of a page by its length: NumPy takes ten times as long to set them.
_HEAD = struct.Struct(f"{feedback_kernel.PAGE_SO_FAR}q")
_PAGES = tuple(struct.Struct(f"{slots}q") for slots in range(SLOTS + 1))


class Responses:
    """The feedback side of a ranker."""

    def __init__(self, ranker: Ranker) -> None:
        self.ranker = ranker
        self.rewards = Rewards(dict(ranker.settings.weights))
        self._ask = np.zeros(feedback_kernel.RESPONSE, np.int64)
        self._data = self._ask.data

    def compile(self, place: Place) -> None:
        """Compile (or load) the call, by feedback to a row that has no owner."""
        ranker, shelf = self.ranker, place.shelf
        self._ask[: feedback_kernel.PAGE_SO_FAR] = 0
        self._ask[[feedback_kernel.F_ROW, feedback_kernel.F_OWNER]] = place.index, NOBODY
        shelf.calls.respond(shelf.params, ranker.senses, shelf.table, place.common.pools, self._ask, 0.0, 0.0)

    def _call(self, place: Place, head: Sequence[int], was: Sequence[int], final: Sequence[int], shown: float, now: float) -> int:
        """Call the kernel with the columns of feedback, whose last are the pages so far and from now on; return the outcome."""
        data, size = self._data, self._ask.itemsize
        _HEAD.pack_into(data, 0, *head, len(was), len(final))
        _PAGES[len(was)].pack_into(data, feedback_kernel.PAGE_SO_FAR * size, *was)
        _PAGES[len(final)].pack_into(data, feedback_kernel.PAGE_NOW * size, *final)
        ranker, shelf, pools = self.ranker, place.shelf, place.common.pools
        return written(place, shelf.calls.respond(shelf.params, ranker.senses, shelf.table, pools, self._ask, shown, now))

    def _foreign(self, place: Place, ticket: Ticket, arm: int) -> bool:
        """Return whether the candidate of an arm was surely not on offer: it had this arm, and the decision did not offer the arm.

        A candidate that has come back since may have been on offer under another arm.
        """
        since = int(place.record.ledger.first[arm]) or float(place.record.ledger.created)
        return not ticket.offer >> arm & 1 and since < int(ticket.at)

    def _code(self, place: Place, arm: int) -> int:
        """Return the code of an arm now, see `swerve.core.decisions`."""
        return int(encode(arm, int(place.record.policy.generation[arm]), 0))  # type: ignore[no-untyped-call]

    def apply(
        self,
        place: Place,
        ticket: Ticket,
        number: int,
        before: Outcome,
        events: Sequence[Event],
        shown: Sequence[str] | None,
        now: float,
    ) -> Outcome:
        """Apply feedback to the decision `number` of this query and return its outcome; `before` is the outcome so far.

        Raises `Refused` when it names a result that was not on offer.
        """
        page = ticket.codes if before.final is None else before.final
        final = page if shown is None else self._shown(place, ticket, shown)
        moved = final is not page
        clicks, clicked, marks, unheeded, late = before.clicks, before.clicked, before.marks, before.ignored, before.late
        if moved:  # clicks are on results: they move with them
            clicks, clicked, unheeded, late = (moved_to(final, page, mask) for mask in (clicks, clicked, unheeded, late))
            marks = marks_moved_to(final, page, marks)
        told = clicked | slots_of(marks)
        fresh, outside = 0, before.outside
        partial: list[Mark] = []
        for index, event in enumerate(events):
            slot, units = self._slot(place, ticket, final, event, index), self.rewards.units_of(event, index)
            if units == 0:
                continue
            if slot < 0:
                outside = True
            elif units >= UNITS:
                fresh |= 1 << slot
            else:
                partial.append(mark_of(slot, event, units))
        if partial or marks:
            marks, fresh = added(marks, partial, clicked & ~slots_of(marks) | fresh)
            fresh |= drawn(marks, number, final)
        fresh &= ~clicked
        if before.status and not moved and not fresh and outside == before.outside and marks == before.marks:
            return before  # a repeat
        self.ranker.mark(place, now)
        if self.ranker.notes is not None:
            self.ranker.notes.know(place)
        allowed, evidence = fresh, ticket.evidence
        alive = self._alive(place, ticket, final)
        if moved and evidence and ticket.session:
            others = [place.shorts[code & ARM_MASK] for slot, code in enumerate(final) if alive[slot] and code not in page]
            self.ranker.people.shown_instead(ticket.session, place.key, ticket.phase, others)
        for slot in range(len(final)):
            if fresh >> slot & 1:
                if not alive[slot]:
                    self._count_alone(place, ticket, final[slot], events, now)
                elif ticket.session and self.ranker.people.limit and ticket.life == self.ranker.life.mark:
                    result = place.shorts[final[slot] & ARM_MASK]
                    if not self.ranker.people.clicked(ticket.session, place.key, ticket.phase, result, shown=evidence):
                        allowed &= ~(1 << slot)
                elif not evidence:
                    allowed &= ~(1 << slot)
        ignored = fresh & ~allowed
        shows = [code if alive[slot] else -1 for slot, code in enumerate(final)]
        was = shows
        if moved:
            was = [code if ours else -1 for code, ours in zip(page, self._alive(place, ticket, page), strict=True)]
        seen, counted = before.seen, before.clicks
        if not evidence and allowed:
            # another page of the session counts as shown: of this one only the clicks count
            shows = [code if allowed >> slot & 1 else -1 for slot, code in enumerate(shows)]
            was, seen, counted, clicks = shows, allowed, 0, 0
        ask = self._ask
        first = (fresh != 0 or outside or marks != ()) and before.clicked == 0 and not before.outside and not before.marks
        head = (
            place.index, place.owner, ticket.start, ticket.phase, number, evidence or allowed != 0, seen, counted, clicks | allowed,
            first,
        )  # fmt: skip
        outcome = self._call(place, head, was, shows, ticket.at, now)
        learnt_seen, learnt = int(ask[feedback_kernel.SEEN_SO_FAR]), int(ask[feedback_kernel.AFTER])
        if ignored:
            outcome = outcome if allowed else IGNORED
        elif (outside and not fresh and not moved and marks == before.marks) or all(code == GONE for code in ticket.codes):
            outcome = IGNORED  # the click is on nothing that the policy has chosen, or the page has nothing of it
        if not ticket.evidence:
            learnt_seen, learnt = before.seen, 0
        if outcome == LATE:
            late |= (clicked | fresh | slots_of(marks)) & ~told & ~ignored
        reported = None if final is ticket.codes else tuple(final)
        made = Outcome(outcome, learnt_seen, learnt, clicked | fresh, outside, reported, marks, unheeded | ignored, late)
        if (notes := self.ranker.notes) is not None:
            if shown is not None or outside or marks or any(event.kind != CLICK or event.at is not None for event in events):
                notes.reported(place.key, number, events, shown, now)
            notes.responded(place.key, head, was, shows, ticket.at, now, encode_outcome(made), fresh.bit_count())
        for slot, code in enumerate(final):
            if ignored >> slot & 1:
                self._count_click(place, code & ARM_MASK, now)  # no evidence: it is in the totals alone
        return made

    def again(self, place: Place, ticket: Ticket, outcome: Outcome, events: Sequence[Event]) -> int:
        """Return the status of events that a decision's outcome has: a repeat is answered as its first was, whatever came between.

        Events on several slots are learned if those on one of them are. The status of the outcome is that of its last change.
        """
        page = ticket.codes if outcome.final is None else outcome.final
        touched = 0
        for index, event in enumerate(events):
            slot = self._slot(place, ticket, page, event, index)
            touched |= 0 if slot < 0 else 1 << slot
        heeded = touched & ~outcome.ignored
        if events and not heeded:
            return IGNORED
        heeded &= outcome.told
        if not heeded:
            return outcome.status
        return LEARNED if heeded & ~outcome.late else LATE

    def instead(
        self,
        place: Place,
        start: int,
        phase: int,
        number: int,
        evidence: bool,
        seen: int,
        page: Sequence[int],
        shown: Sequence[int],
        now: float,
    ) -> tuple[int, int]:
        """Count a page that was decided just now as shown with other results: `GONE` in slots that are not the policy's choice.

        Returns the outcome, and the slots that count as seen.
        """
        final = [-1 if code == GONE else code for code in shown]
        was = list(page)
        if place.shelf.held:  # the page has not been counted
            was, seen = [-1] * len(page), int(final[0] >= 0)
        ask = self._ask
        head = place.index, place.owner, start, phase, number, evidence, seen, 0, 0, 0
        outcome = self._call(place, head, was, final, now, now)
        if self.ranker.notes is not None:
            self.ranker.notes.responded(place.key, head, was, final, now, now)
        return outcome, int(ask[feedback_kernel.SEEN_SO_FAR]) if outcome == LEARNED else 0

    def _shown(self, place: Place, ticket: Ticket, shown: Sequence[str]) -> tuple[int, ...]:
        """Return the codes of the results that were really shown; raises `Refused` for those that were not on offer."""
        names = dict(zip(ticket.names, ticket.codes, strict=True))
        # whether the page has every result that was on offer; what a rule has put there may be beyond the offer
        whole = GONE not in ticket.codes and ticket.offer.bit_count() == len(ticket.codes)
        codes: list[int] = []
        for index, result in enumerate(shown):
            name = self.ranker.rows.short(result) & NAMES
            if name in names:
                codes.append(names[name])
                continue
            arm = place.arms.get(result)
            if whole or (arm is not None and self._foreign(place, ticket, arm)):
                raise Refused(422, "not_offered", f"shown[{index}] is not a result of this decision", f"shown[{index}]")
            codes.append(GONE if arm is None else self._code(place, arm))  # gone: to another candidate, or it was never on offer
        final = tuple(codes[:SLOTS])
        return ticket.codes if final == ticket.codes else final

    def _slot(self, place: Place, ticket: Ticket, final: Sequence[int], event: Event, index: int) -> int:
        """Return the slot that an event is on, −1 for a result outside the slots; raises `Refused`."""
        if event.position is not None:
            return event.position - 1 if event.position <= len(final) and final[event.position - 1] != GONE else -1
        assert event.result is not None, "an event that was checked names a result or a position"
        name = self.ranker.rows.short(event.result) & NAMES
        if name in ticket.names:
            code = ticket.codes[ticket.names.index(name)]
            return final.index(code) if code in final and code != GONE else -1
        arm = place.arms.get(event.result)
        if arm is None:
            return -1
        if self._foreign(place, ticket, arm):
            raise Refused(422, "not_offered", f"events[{index}].result is not a result of this decision", f"events[{index}].result")
        code = self._code(place, arm)
        return final.index(code) if code in final else -1

    def _alive(self, place: Place, ticket: Ticket, codes: Sequence[int]) -> list[bool]:
        """Return for each code whether its arm is still the decision's: it may belong to another candidate, or to the same one
        anew, an operator's shift disowns all arms, and a crash may have undone what gave it."""
        ids, shorts, generations = place.ids, place.shorts, place.shelf.generations[place.index].tolist()
        if codes is ticket.codes:
            return [
                code != GONE
                and (arm := code & ARM_MASK) < len(ids)
                and ids[arm] is not None
                and code >> ARM_BITS == generations[arm]
                and shorts[arm] & NAMES == name
                for code, name in zip(codes, ticket.names, strict=True)
            ]
        names = dict(zip(ticket.codes, ticket.names, strict=True))
        out: list[bool] = []
        for code in codes:
            arm = code & ARM_MASK
            ours = code != GONE and arm < len(ids) and ids[arm] is not None and code >> ARM_BITS == generations[arm]
            out.append(ours and (code not in names or shorts[arm] & NAMES == names[code]))
        return out

    def _count_alone(self, place: Place, ticket: Ticket, code: int, events: Sequence[Event], now: float) -> None:
        """Count a click for a candidate whose arm is no longer the decision's, so that no click is missing in the totals."""
        if code not in ticket.codes:
            return
        short, name = self.ranker.rows.short, ticket.names[ticket.codes.index(code)]
        arm = next((arm for arm in place.arms.values() if place.shorts[arm] & NAMES == name), None)
        if arm is None:
            named = (event.result for event in events if event.result is not None and short(event.result) & NAMES == name)
            result = next(named, None)
            if result is not None:
                arm = self.ranker.arms.free(place, set(place.arms.values()), now)  # no candidate has to go for it
                if arm is not None:
                    self.ranker.rows.name(place, arm, result)
                    self.ranker.rows.recount(place)
                    if self.ranker.notes is not None:
                        self.ranker.notes.named(place, arm, False, now)
        if arm is not None:
            self._count_click(place, arm, now)

    def _count_click(self, place: Place, arm: int, now: float) -> None:
        """Count a click in the totals alone."""
        count_click(place.record.ledger, arm)  # type: ignore[no-untyped-call]
        if self.ranker.notes is not None:
            self.ranker.notes.clicked(place.key, arm, now)


def moved_to(final: Sequence[int], page: Sequence[int], clicks: int) -> int:
    """Return the clicks on a page as clicks on the results that were really shown. A click on a result that was not is dropped.

    >>> moved_to(final=(7, 5), page=(5, 6, 7), clicks=0b111)
    3
    """
    moved = 0
    for slot, code in enumerate(page):
        if clicks >> slot & 1 and code in final and code != GONE:
            moved |= 1 << final.index(code)
    return moved


def marks_moved_to(final: Sequence[int], page: Sequence[int], marks: Sequence[Mark]) -> tuple[Mark, ...]:
    """Return the marks of a page as marks of the results that were really shown, as `moved_to` does for clicks."""
    slots = {slot: final.index(code) for slot, code in enumerate(page) if code in final and code != GONE}
    return tuple(sorted((slots[slot], key, units) for slot, key, units in marks if slot in slots))
