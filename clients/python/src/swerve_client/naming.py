"""The name of a query: its text in a normal form, with the parts of its key."""

from __future__ import annotations

import unicodedata


def normalise(text: str) -> str:
    """Return the normal form of a query: NFKC, case folded, single spaces.

    >>> normalise("  Café\\tＮＯＩＲ ")
    'café noir'
    """
    if text.isascii():
        return " ".join(text.lower().split())  # equal for ASCII, and faster
    # Folding can decompose (ΐ becomes three characters): composing again makes the normal form stable.
    return " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).split())


#: Separates the parts of a query's key; no text contains it.
SEPARATOR = "\0"


#: In a text of `key_text`: the query's record for the policy of an experiment's control arm.
CONTROL = f"{SEPARATOR}arm=control"


def key_text(
    query: str,
    locale: str | None = None,
    filter: str | None = None,
    segment: str | None = None,
    namespace: str | None = None,
    arm: str | None = None,
) -> str:
    """Return the text that identifies a query: its normal form, and the parts that are given.

    >>> key_text(" Boots ", locale="en_US"), key_text("boots"), key_text("boots", namespace="shop")
    ('boots\\x00locale=en-us', 'boots', 'boots\\x00namespace=shop')
    """
    text = normalise(query)
    if locale is not None:
        text += f"{SEPARATOR}locale={locale.casefold().replace('_', '-')}"
    if filter is not None:
        text += f"{SEPARATOR}filter={filter}"
    if segment is not None:
        text += f"{SEPARATOR}segment={segment}"
    if arm is not None:
        text += f"{SEPARATOR}arm={arm}"
    if namespace is not None:
        text += f"{SEPARATOR}namespace={namespace}"
    return text


def namespace_in(text: str | None) -> str | None:
    """Return the namespace in a text of `key_text`.

    >>> namespace_in("boots\\0locale=de\\0namespace=shop"), namespace_in("boots")
    ('shop', None)
    """
    found = "" if text is None else text.rpartition(f"{SEPARATOR}namespace=")
    return found[2] if found and found[1] else None


def named(query: str | None, **parts: str | None) -> str | None:
    """Return the text that identifies the query of a rule; for all queries, the one of the namespace, None without one."""
    return parts.get("namespace") if query is None else key_text(query, **parts)


def with_arm(text: str) -> str:
    """Return the text of a query's record for the policy of the control arm.

    >>> with_arm("boots\\0locale=de\\0namespace=shop"), with_arm("boots")
    ('boots\\x00locale=de\\x00arm=control\\x00namespace=shop', 'boots\\x00arm=control')
    """
    before, found, namespace = text.partition(f"{SEPARATOR}namespace=")
    return f"{before}{CONTROL}{found}{namespace}"


def without_arm(text: str) -> str:
    """Return the text of the query itself.

    >>> without_arm(with_arm("boots\\0namespace=shop")), without_arm("boots")
    ('boots\\x00namespace=shop', 'boots')
    """
    return text.replace(CONTROL, "", 1) if CONTROL in text else text
