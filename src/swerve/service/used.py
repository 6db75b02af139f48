"""Which decisions have been used: a byte for each decision of this life, in blocks that go when their window is over.

Decision numbers are dense, so the outcome of each is one byte in a block of many; ten thousand decisions a second for half an hour
take 18 MB. Decisions of earlier lives are few and short-lived: those are asked of the store and kept in a dictionary.
"""

from __future__ import annotations

from collections import OrderedDict

from swerve.serving.tokens import NUMBER_BITS

BLOCK = 1 << 16


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
        self._blocks: OrderedDict[int, tuple[bytearray, float]] = OrderedDict()
        self._older: dict[int, tuple[int, float]] = {}

    def ours(self, number: int) -> bool:
        """Whether the decision was made in this life: then all that is known of it is here."""
        return number >> NUMBER_BITS == self.life

    def get(self, number: int) -> int:
        """The outcome."""
        if self.ours(number):
            found = self._blocks.get((number & self._mask) // BLOCK)
            return found[0][number % BLOCK] if found else 0
        older = self._older.get(number)
        return older[0] if older else 0

    def put(self, number: int, outcome: int, now: float) -> None:
        """Note an outcome (0 takes it back)."""
        if self.ours(number):
            place = (number & self._mask) // BLOCK
            block = self._blocks[place][0] if place in self._blocks else bytearray(BLOCK)
            block[number % BLOCK] = outcome
            self._blocks[place] = (block, now)
            self._blocks.move_to_end(place)
        elif outcome:
            self._older[number] = (outcome, now)
        else:
            self._older.pop(number, None)

    def forget(self, now: float) -> None:
        """Drop what nobody can ask about any more: feedback for it would be outside its window."""
        while self._blocks:
            place, (_, last) = next(iter(self._blocks.items()))
            if now - last <= self.window:
                break
            del self._blocks[place]
        for number in [number for number, (_, at) in self._older.items() if now - at > self.window]:
            del self._older[number]
