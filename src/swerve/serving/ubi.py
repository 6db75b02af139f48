"""User Behavior Insights 1.3.0: what its events and queries say, read leniently.

Samples in the wild break their own schema: spellings of actions, ids as numbers, positions from 0 or from 1, a click that names its
object but not its position, or the reverse. `swerve.evaluate` reads logs of them, and the service what a collector sends.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct

from swerve.serving.loose import inside, number_of, text_of

#: Actions that are clicks on a result, in the spellings that were found.
CLICKS = (
    "click",
    "click_through",
    "clickthrough",
    "item_click",
    "product_click",
    "result_click",
    "search_result_click",
    "select_item",
)
OBJECT = ("event_attributes.object.object_id", "event_attributes.object.object_id_value", "object_id")
ORDINAL = ("event_attributes.position.ordinal", "event_attributes.position.index", "position")
QUERY = ("user_query", "query", "query_attributes.user_query")
#: Where an event, or a query, may carry the decision itself.
DECISION = tuple(
    f"{attributes}.{name}" for attributes in ("event_attributes", "query_attributes") for name in ("decision", "swerve.decision")
)

Attributes = Annotated[dict[str, Any] | None, Meta(description="Anything; `decision` in it is the token of an answer to `rank`.")]


class UbiEvent(Struct):
    """An event of User Behavior Insights, as a collector sends it. Further fields are ignored, and so are wrong ones."""

    action_name: Annotated[Any, Meta(description="What the user did, such as `click`.")] = None
    query_id: Annotated[Any, Meta(description="The `query_id` of the request to `rank`.")] = None
    timestamp: Annotated[Any, Meta(description="When, in any of many forms.")] = None
    event_attributes: Attributes = None


class UbiQuery(Struct):
    """A query of User Behavior Insights, as a collector sends it. Further fields are ignored, and so are wrong ones."""

    query_id: Any = None
    user_query: Any = None
    query_attributes: Attributes = None


def action_of(line: dict[str, Any]) -> str:
    """Return the action of an event, in lower case."""
    return str(line.get("action_name")).lower()


def first_text(line: dict[str, Any], paths: Sequence[str]) -> str | None:
    """Return the first text at one of the paths, or None."""
    return next((found for path in paths if (found := text_of(inside(line, path))) is not None), None)


def first_number(line: dict[str, Any], paths: Sequence[str]) -> float:
    """Return the first number at one of the paths, or NaN."""
    found = (number_of(inside(line, path)) for path in paths)
    return next((number for number in found if number == number), float("nan"))


class QueryIds:
    """The decision of each query id, for the last `most` of them.

    >>> known = QueryIds(most=2)
    >>> for name in "abc":
    ...     known.put(name, f"decision {name}")
    >>> known.get("a"), known.get("c")
    (None, 'decision c')
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._decisions: OrderedDict[str, str] = OrderedDict()

    def put(self, name: str, decision: str) -> None:
        """Remember the decision of a query id, in place of an earlier one."""
        self._decisions[name] = decision
        self._decisions.move_to_end(name)
        if len(self._decisions) > self.most:
            self._decisions.popitem(last=False)

    def get(self, name: str | None) -> str | None:
        """Return the decision of a query id, or None."""
        return None if name is None else self._decisions.get(name)
