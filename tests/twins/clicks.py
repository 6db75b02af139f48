"""The click models from their definitions, person by person, and their closed forms: plain Python."""

from __future__ import annotations

from collections.abc import Sequence

from twins.splitmix import as_unit, named, word

#: P(looked at | slot, last click above), from the ULTRA toolbox: per slot, for a click 1, 2, … slots above, and last for none.
UBM = [
    [1.0],
    [0.98, 1.0],
    [1.0, 0.62, 0.95],
    [1.0, 0.77, 0.42, 0.82],
    [1.0, 0.92, 0.55, 0.31, 0.69],
    [1.0, 0.96, 0.63, 0.4, 0.22, 0.54],
    [1.0, 0.99, 0.73, 0.46, 0.29, 0.17, 0.47],
    [1.0, 1.0, 0.89, 0.52, 0.35, 0.24, 0.14, 0.43],
    [1.0, 1.0, 0.95, 0.68, 0.4, 0.29, 0.19, 0.12, 0.41],
    [1.0, 1.0, 1.0, 0.96, 0.52, 0.36, 0.27, 0.18, 0.12, 0.43],
]
PBM = [1.0, 0.90, 0.71, 0.50, 0.41, 0.29, 0.16, 0.15, 0.12, 0.09]
READS_ON = {"dcm": (0.5, 0.9), "cascade": (0.0, 1.0)}  # after a click, after a skip


def seen(model: str, slot: int, last: int | None) -> float:
    """Return P(looked at) in the models in which nobody leaves; `last` is the slot of the last click above."""
    if model == "pbm":
        return PBM[slot]
    return UBM[slot][-1] if last is None else UBM[slot][slot - last - 1]


def clicks(model: str, attraction: Sequence[float], seed: int, query: int, t: int) -> list[int]:
    """Return the clicked slots of a page in a query's t-th round; `attraction` is by slot."""
    key = word(named(seed, "clicks", query), t)
    out: list[int] = []
    for slot, chance in enumerate(attraction):
        luck, patience = (as_unit(word(key, 2 * slot + i)) for i in range(2))
        last = out[-1] if out else None
        clicked = luck < (chance if model in READS_ON else chance * seen(model, slot, last))
        if clicked:
            out.append(slot)
        if model in READS_ON and patience >= READS_ON[model][0 if clicked else 1]:
            break
    return out


def click_rates(model: str, attraction: Sequence[float]) -> list[float]:
    """Return P(click) of every slot, summed over all possible histories above it."""
    states: dict[tuple[int | None, bool], float] = {(None, True): 1.0}  # probability by (last click, still reading)
    out = []
    for slot, chance in enumerate(attraction):
        after: dict[tuple[int | None, bool], float] = {}
        rate = 0.0
        for (last, there), weight in states.items():
            look = float(there) if model in READS_ON else seen(model, slot, last)
            for clicked, part in ((True, look * chance), (False, 1.0 - look * chance)):
                rate += weight * part * clicked
                stay = 1.0
                if model in READS_ON and there:
                    stay = READS_ON[model][0 if clicked else 1]
                for still, share in ((True, stay), (False, 1.0 - stay)):
                    key = (slot if clicked else last, there and still)
                    after[key] = after.get(key, 0.0) + weight * part * share
        out.append(rate)
        states = after
    return out


def any_click(model: str, attraction: Sequence[float]) -> float:
    """Return P(at least one click) as 1 − P(none)."""
    if model not in READS_ON:
        none = 1.0
        for slot, chance in enumerate(attraction):
            none *= 1.0 - chance * seen(model, slot, None)
        return 1.0 - none
    none = 1.0
    for chance in reversed(attraction):  # from the bottom: P(no click from here on | looks at this slot)
        on = READS_ON[model][1]
        none = (1.0 - chance) * ((1.0 - on) + on * none)
    return 1.0 - none
