"""Outcomes of used decisions: eight bytes for each decision of this life, in blocks that are dropped when their window is over.

Decision numbers are dense, so that ten thousand decisions a second for half an hour take 144 MB. Outcomes of more than 64 bits are
rare, and used decisions of earlier lives are few and soon expire: both are kept in dictionaries.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict

from swerve.serving.tokens import NUMBER_BITS

#: Decisions of one block: 64 kB, so that a quiet service holds little and a busy one drops blocks seldom.
BLOCK = 1 << 13
#: In a block: the outcome is too long for it.
LONG = (1 << 64) - 1


class Used:
    """Outcomes by decision number; 0 is "not used".

    >>> used = Used(life=2, window=60.0)
    >>> number = 2 << 40 | 7
    >>> used.get(number), used.put(number, 1, now=0.0), used.get(number)
    (0, None, 1)
    >>> used.forget(now=100.0)
    >>> used.get(number)
    0
    """

    def __init__(self, life: int, window: float) -> None:
        self.life, self.window = life, window
        self._mask = (1 << NUMBER_BITS) - 1
        self._blocks: OrderedDict[int, tuple[array[int], float]] = OrderedDict()
        self._long: dict[int, int] = {}
        self._older: dict[int, tuple[int, float]] = {}

    def ours(self, number: int) -> bool:
        """Return whether the decision was made in this life. Then its outcome is in memory and the store need not be asked."""
        return number >> NUMBER_BITS == self.life

    def get(self, number: int) -> int:
        """Return the outcome of a decision; 0 when it is not used, or not known here."""
        if self.ours(number):
            found = self._blocks.get((number & self._mask) // BLOCK)
            outcome = found[0][number % BLOCK] if found else 0
            return outcome if outcome != LONG else self._long[number]
        older = self._older.get(number)
        return older[0] if older else 0

    def put(self, number: int, outcome: int, now: float) -> None:
        """Set the outcome of a decision; 0 marks it as unused."""
        if self.ours(number):
            index = (number & self._mask) // BLOCK
            block = self._blocks[index][0] if index in self._blocks else array("Q", bytes(8 * BLOCK))
            if outcome >= LONG:
                self._long[number] = outcome
            block[number % BLOCK] = min(outcome, LONG)
            self._blocks[index] = (block, now)
            self._blocks.move_to_end(index)
        elif outcome:
            self._older[number] = (outcome, now)
        else:
            self._older.pop(number, None)

    def forget(self, now: float) -> None:
        """Drop the outcomes of decisions whose feedback window is over."""
        while self._blocks:
            index, (_, last) = next(iter(self._blocks.items()))
            if now - last <= self.window:
                break
            del self._blocks[index]
            if self._long:
                self._long = {number: outcome for number, outcome in self._long.items() if (number & self._mask) // BLOCK != index}
        for number in [number for number, (_, at) in self._older.items() if now - at > self.window]:
            del self._older[number]
