"""What an operator's rules do to one ranking.

Blocked results leave the offer before the policy decides, and so do pinned ones: it ranks what it may choose. Then boosted results
move up in its order, and pinned ones take their positions. Slots that a rule has filled are no choices of the policy: they have the
propensity 1 and are not learnt. The results in between are learnt in the slots in which they were really shown.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from swerve_client.rules import Kind as Kind, Ruled as Ruled


class Ruling(Struct, frozen=True, gc=False):
    """The rules that concern one request. Pairs and triples end with the id of the rule."""

    slots: int  # slots of the page; the policy fills those of them that no pin takes
    pins: tuple[tuple[str, int, int], ...] = ()  # result, position from 1; in the order of positions
    boosts: tuple[tuple[str, int, int], ...] = ()  # result, positions to move up
    blocks: tuple[tuple[str, int], ...] = ()  # results that were removed
    off: int = 0  # the rule that switches the policy off, 0 for none

    @property
    def placed(self) -> set[str]:
        """The results whose position a rule has chosen."""
        return {result for result, _, _ in (*self.pins, *self.boosts)}

    def arrange(self, order: Sequence[str]) -> list[str]:
        """Return the order to show, from the order of the results that are not pinned.

        >>> Ruling(10, pins=(("p", 1, 1), ("q", 1, 2)), boosts=(("c", 1, 3),)).arrange(["a", "b", "c"])
        ['p', 'q', 'a', 'c', 'b']
        """
        out = list(order)
        for result, up, _ in sorted((boost for boost in self.boosts if boost[0] in out), key=lambda boost: out.index(boost[0])):
            at = out.index(result)
            out.insert(max(at - up, 0), out.pop(at))
        last = 0  # the position of the pin before: of two pins for one position the later one goes below
        for result, position, _ in self.pins:
            last = max(position, last + 1)
            out.insert(last - 1, result)
        return out

    def marks(self, ranking: Sequence[str]) -> list[Ruled]:
        """Return what the rules have done, for the answer."""
        marks = [Ruled("off", self.off)] if self.off else []
        marks += [Ruled("pin", rule, result, ranking.index(result) + 1) for result, _, rule in self.pins]
        marks += [Ruled("boost", rule, result, ranking.index(result) + 1) for result, _, rule in self.boosts]
        return marks + [Ruled("block", rule, result) for result, rule in self.blocks]
