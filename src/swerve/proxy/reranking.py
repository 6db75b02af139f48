"""A search that is re-ranked: the window asked of the engine, the order of the service, the page in the answer."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from swerve.proxy.answers import Listed, Results, Rubbish
from swerve.proxy.deciding import Decided, Decider
from swerve.proxy.framing import BadBody
from swerve.proxy.heads import BadHead, RequestHead
from swerve.proxy.orders import Order, Orders, applied
from swerve.proxy.pool import Answer, Away, TooLarge
from swerve.proxy.rules import Plan
from swerve.proxy.says import LEAST_PACKED, MOST_PACKED, accepts_gzip, packed
from swerve.proxy.wire import Slow
from swerve.service.tracing import inside, taken_over

if TYPE_CHECKING:
    from swerve.proxy.conversation import Conversation
    from swerve.proxy.server import Proxy

#: Headers of a request that do not fit another body.
FRAMED = (b"content-length", b"transfer-encoding", b"content-encoding")
#: Headers of an answer that do not fit another body.
REPLACED = (*FRAMED, b"trailer")
#: The header of answers that carries the decision; several of an `_msearch` are separated by commas.
DECISION = b"X-Swerve-Decision: "


class Reranking:
    """Answers searches that a rule concerns."""

    def __init__(self, proxy: Proxy, decider: Decider, orders: Orders) -> None:
        self.proxy, self.decider, self.orders = proxy, decider, orders

    def plan(self, head: RequestHead, said: bytes) -> Plan | None:
        """Return what to ask the engine for a request with this body; None: nothing else than it does."""
        kind, coding = head.one(b"content-type"), head.one(b"content-encoding")
        if said and (kind is None or b"json" not in kind.lower()):
            return None
        if coding is not None and coding.lower() != b"identity":
            if coding.lower() != b"gzip":
                return None
            try:
                reader = zlib.decompressobj(wbits=31)
                said = reader.decompress(said, self.proxy.buffer)
            except zlib.error:
                return None
            if not reader.eof or reader.unused_data:
                return None
        return self.proxy.rules.plan(head, said)

    async def answer(self, asking: Conversation, head: RequestHead, raw: bytes, said: bytes) -> bool:
        """Answer a search; return False, having done nothing, if no rule concerns it.

        What cannot be re-ranked is asked again as it came, and the engine's answer streams.
        """
        plan, proxy = self.plan(head, said), self.proxy
        if plan is None:
            return False
        if not plan.targets:
            await asking.stream(head, raw, True, self._request(head, raw, plan.plain))
            return True
        request = self._request(head, raw, plan.body, (b"accept-encoding",), plan.target)
        try:
            with inside("engine", "client"):
                answer = await proxy.engine.ask(request, proxy.buffer)
            listed = read(answer, plan)
            decided = [await self._decide(result) for result in listed.results]
            pages = [
                result.page(None, None) if made is None else result.page(made.ids, made.decision, made.hidden)
                for result, made in zip(listed.results, decided, strict=True)
            ]
        except Away as error:
            asking.refuse(502, f"the engine cannot be reached: {error}", head)
        except Slow:
            asking.refuse(504, f"the engine sent nothing for {proxy.timeout:g} seconds", head)
        except (TooLarge, BadHead, BadBody, Rubbish):
            await asking.stream(head, raw, True, self._request(head, raw, plan.plain), "unreadable")
            return True
        same = all(page is result.text for page, result in zip(pages, listed.results, strict=True))
        text = answer.body if same else listed.text(pages)
        moved = any(
            made is not None and (made.decision is not None or made.ids != result.offered)
            for made, result in zip(decided, listed.results, strict=True)
        )
        asking.answered(answer.head.status, "reranked" if moved else "engine_order")
        decisions = [made.decision for made in decided if made is not None and made.decision is not None]
        asking.begun = True
        asking.wire.write(written(head, answer, text, decisions))
        await asking.wire.drain(asking.limits.unread_seconds)
        return True

    def _request(
        self, head: RequestHead, raw: bytes, body: bytes | None, without: tuple[bytes, ...] = (), target: bytes | None = None
    ) -> bytes:
        """Return a request for the engine: with another body, another target, or without some headers."""
        if body is None:
            return self.proxy.head_for(head, without, (), target) + raw
        return self.proxy.head_for(head, (*without, *FRAMED), (b"Content-Length: %d" % len(body),), target) + body

    async def _decide(self, result: Results) -> Decided | None:
        """Return the order of a window: that of the session's first page, or a new decision; None: the engine's."""
        target, offered = result.target, result.offered
        if not offered:
            return None
        if target.first > 0 and (kept := self.orders.get(target.key)) is not None:
            ids = applied(kept.ids, [one for one in offered if one not in kept.hidden])
            return None if not kept.made and ids == offered else Decided(ids, kept.decision, kept.hidden)
        with inside("decide", self.decider.kind) as span:
            made = await self.decider.decide(result, taken_over.get() if span is None else span.traceparent)
        if target.key:  # the engine's order is kept too: a further page must not be that of another order
            order = Order(offered, None, made=False) if made is None else Order(*made)
            self.orders.put(target.key, order)
        return made


def read(answer: Answer, plan: Plan) -> Listed:
    """Read an answer of the engine. Raises `Rubbish`."""
    head = answer.head
    if head.status != 200 or b"json" not in (head.one(b"content-type") or b"").lower():
        raise Rubbish("the answer is no JSON")
    if (head.one(b"content-encoding") or b"identity").lower() != b"identity":
        raise Rubbish("the answer is compressed, although nobody asked for that")
    return Listed(answer.body, plan.targets, plan.several)


def written(head: RequestHead, answer: Answer, text: bytes, decisions: list[str]) -> bytes:
    """Return the bytes of an answer: the engine's head with what has changed, and the body."""
    more = [DECISION + ", ".join(decisions).encode()] if decisions else []
    if LEAST_PACKED <= len(text) <= MOST_PACKED and accepts_gzip(head.all(b"accept-encoding")):
        text = packed(text)
        more.append(b"content-encoding: gzip")
    if head.closes:
        more.append(b"connection: close")
    if not more and text is answer.body and answer.head.body >= 0:
        return answer.head.kept() + text
    return answer.head.kept(REPLACED, [*more, b"content-length: %d" % len(text)]) + text
