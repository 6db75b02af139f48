"""The calls of operators: rules, the audit, deletions, experiments and exports. Each is a generator of steps (`exchange`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, Unpack

import msgspec

from swerve_client.calls import QUERIES_LISTED, Calls
from swerve_client.exchange import Failure, Reply, Steps
from swerve_client.experiments import Report as Experiment
from swerve_client.forms import PartArguments, RuleArguments, ServiceAway, parameters_of
from swerve_client.naming import named
from swerve_client.rules import Change, ChangeList, DeleteResponse, Kind, Rule, RuleList

CHANGES_LISTED = 100  # of the audit


class AllCalls(Calls):
    """The calls of a search and those of operators."""

    def rules(self) -> Steps[list[Rule]]:
        """Return the rules of operators in force. All calls about rules need a key with the scope `operate`."""
        return (yield from self._once("GET", "/v1/rules", RuleList)).rules

    def pin(self, result: str, position: int, **where: Unpack[RuleArguments]) -> Steps[Rule]:
        """Show a result at a position, from 1. A rule that is set again replaces the one before."""
        return (yield from self._set("pin", {"result": result, "position": position, **where}))

    def block(self, result: str, **where: Unpack[RuleArguments]) -> Steps[Rule]:
        """Do not show a result."""
        return (yield from self._set("block", {"result": result, **where}))

    def boost(self, result: str, up: int, **where: Unpack[RuleArguments]) -> Steps[Rule]:
        """Show a result so many positions above the place that the policy gives it."""
        return (yield from self._set("boost", {"result": result, "up": up, **where}))

    def off(self, **where: Unpack[RuleArguments]) -> Steps[Rule]:
        """Switch the policy off: the given order is shown, without blocked results."""
        return (yield from self._set("off", where))

    def on(self, query: str | None = None, **parts: Unpack[PartArguments]) -> Steps[Rule | None]:
        """Remove the rule that switches the policy off, for a query or for all; return it, None if there is none."""
        name = named(query, **self._placed(parts))
        for rule in (yield from self.rules()):
            if rule.kind == "off" and named(rule.query, **rule.parts) == name:
                return (yield from self.remove_rule(rule.id))
        return None

    def remove_rule(self, rule: int) -> Steps[Rule]:
        """Remove a rule by its id; return it."""
        return (yield from self._once("DELETE", f"/v1/rules/{int(rule)}", Rule))

    def delete(
        self, query: str | None = None, *, result: str | None = None, **parts: Unpack[PartArguments]
    ) -> Steps[DeleteResponse]:
        """Delete for good: a query; a result in one query; or, without a query, a result in all. Durable on return."""
        body = self._encoded(self._placed({"query": query, "result": result, **parts}))
        return (yield from self._once("POST", "/v1/delete", DeleteResponse, body))

    def audit(self, limit: int = CHANGES_LISTED) -> Steps[list[Change]]:
        """Return what operators did, the latest first."""
        return (yield from self._once("GET", f"/v1/audit?limit={int(limit)}", ChangeList)).changes

    def experiment(self, limit: int = QUERIES_LISTED) -> Steps[Experiment]:
        """Return the experiment that runs, what it says and how sure that is, with the busiest segments and queries."""
        return (yield from self._once("GET", f"/v1/experiments?limit={int(limit)}", Experiment))

    def ramp(self, treated: float | None = None, *, name: str | None = None, note: str | None = None) -> Steps[Experiment]:
        """Set the share of treated units; with another name begin a new experiment, with an empty one end it. Needs `operate`."""
        trial = {"treated": treated, "name": name, "note": note}
        body = self._encoded({field: value for field, value in trial.items() if value is not None})
        return (yield from self._once("PUT", "/v1/experiments", Experiment, body))

    def export(self, namespace: str | None, brief: bool) -> dict[str, Any]:
        """Return the request of an export as the arguments of httpx's `stream`: each wait is bounded, and not their sum."""
        asked = self._placed({"namespace": namespace, "brief": "true" if brief else None})
        bounds = dict.fromkeys(("connect", "read", "write", "pool"), self._feedback_timeout)
        return {"method": "GET", "url": "/v1/export" + parameters_of(asked), "extensions": {"timeout": bounds}}

    def line(self, text: bytes) -> dict[str, Any]:
        """Return one line of an export."""
        try:
            return msgspec.json.decode(text, type=dict[str, Any])
        except (ValueError, RecursionError) as trouble:
            raise ServiceAway(f"the answer is not one of the service's: {trouble}") from None

    def refused(self, status: int, body: bytes) -> NoReturn:
        """Raise for an answer that is no export."""
        failure = self._answer(Reply(status, body, None), lambda _: Failure("no lines"))
        raise ServiceAway(failure.reason)

    def _set(self, kind: Kind, fields: Mapping[str, Any]) -> Steps[Rule]:
        return (yield from self._once("POST", "/v1/rules", Rule, self._encoded({"kind": kind, **self._placed(fields)})))
