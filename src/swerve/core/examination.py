"""How people read a result page: the probability that they look at a slot, by click model.

A person looks at slot r with a probability that depends on r and on the last click above it, and clicks a result that they look at
with the result's attractiveness. `EXAMINATION[model, r, l]` is that probability for slot r (0 is the top), where l is the number of
slots down to and including the last click above: 0 if there is none, otherwise 1 … r.

`ubm`
    User browsing model (Dupret and Piwowarski, SIGIR 2008): exactly this table, as the ULTRA toolbox has it (Tran, Yates and Ai,
    "ULTRA: an unbiased learning to rank algorithm toolbox", CIKM 2021).
`pbm`
    Position-based model: the slot alone decides. The curve is that of the eye tracking of Joachims et al. (SIGIR 2005) relative to
    its top, as in the same toolbox.
`dcm`
    Dependent click model (Guo, Liu and Wang, WSDM 2009): after a click a person reads on with probability 0.5, after a skip with
    0.9. The table has the probability that the person has read on to the slot, given the last click above it. The skips since that
    click, which make it a little less likely, are left out.
`cascade`
    Cascade model (Craswell et al., WSDM 2008): a person reads down to the first click and stops.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

#: The click models. Compiled code reads the index of the name.
CLICKS = ("ubm", "pbm", "dcm", "cascade")
UBM, PBM, DCM, CASCADE = range(4)

#: The most slots of a page: the published tables end there.
SLOTS = 10

#: By slot; in each line the last click is 1, 2, … slots above, and the last entry is for no click above.
UBM_TABLE: tuple[tuple[float, ...], ...] = (
    (1.0,),
    (0.98, 1.0),
    (1.0, 0.62, 0.95),
    (1.0, 0.77, 0.42, 0.82),
    (1.0, 0.92, 0.55, 0.31, 0.69),
    (1.0, 0.96, 0.63, 0.4, 0.22, 0.54),
    (1.0, 0.99, 0.73, 0.46, 0.29, 0.17, 0.47),
    (1.0, 1.0, 0.89, 0.52, 0.35, 0.24, 0.14, 0.43),
    (1.0, 1.0, 0.95, 0.68, 0.4, 0.29, 0.19, 0.12, 0.41),
    (1.0, 1.0, 1.0, 0.96, 0.52, 0.36, 0.27, 0.18, 0.12, 0.43),
)
PBM_CURVE = (1.0, 0.90, 0.71, 0.50, 0.41, 0.29, 0.16, 0.15, 0.12, 0.09)

#: The probability of reading on after a click and after a skip, by click model (`dcm` and `cascade`; others do not stop).
AFTER_CLICK = np.array([1.0, 1.0, 0.5, 0.0])
AFTER_SKIP = np.array([1.0, 1.0, 0.9, 1.0])


def _tables() -> NDArray[np.float64]:
    out = np.zeros((len(CLICKS), SLOTS, SLOTS + 1))
    for slot in range(SLOTS):
        for last in range(slot + 1):
            apart = slot + 1 - last  # 1: right below the click; slot + 1: no click above
            out[UBM, slot, last] = UBM_TABLE[slot][apart - 1]
            out[PBM, slot, last] = PBM_CURVE[slot]
            for model in (DCM, CASCADE):
                read_on = AFTER_SKIP[model] ** (apart - 1)
                out[model, slot, last] = read_on if last == 0 else AFTER_CLICK[model] * read_on
    return out


EXAMINATION = _tables()

#: Grades of a search engine's scores: enough to tell a clear lead from a near tie.
GRADES = 4
NO_GRADE = 255


def grades_of(scores: Sequence[float | None]) -> bytes:
    """Return what the scores of results, in the given order, say besides their order: a grade for each, none if one is missing.

    A grade is where a result's score lies between the lowest and the highest of the page; for the first result, how far it leads.

    >>> list(grades_of([9.0, 8.8, 5.0, 1.0])), list(grades_of([9.0, 3.0, 2.0, 1.0])), grades_of([1.0, None])
    ([0, 3, 2, 0], [3, 1, 0, 0], b'')
    """
    known = [score for score in scores if score is not None]
    if len(known) < len(scores) or len(known) < 2:
        return b""
    low, high = min(known), max(known)
    if not low < high:
        return b""
    shares = [(score - low) / (high - low) for score in known]
    shares[0] = max(shares[0] - max(shares[1:]), 0.0)
    return bytes([min(int(GRADES * share), GRADES - 1) for share in shares])
