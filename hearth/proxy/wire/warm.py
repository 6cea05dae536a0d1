"""The short way of a plain request to a backend that runs: one write there, one write back.

It is taken where nothing can be in the way, and left for the long one, `Turn`, as soon as
anything is: until its answer is whole, the client has been told nothing.  A stream is asked for
on this way, and comes on the long one.
"""

import logging
from typing import Protocol

import msgspec

from hearth.demand import DemandClaim
from hearth.proxy.body import body_fields
from hearth.proxy.observer import Outcome, RequestDetails
from hearth.proxy.routing.endpoint_queue import EndpointSlot
from hearth.proxy.wire.head_cache import RequestTemplate, ResponseTemplate
from hearth.proxy.wire.shared import Shared
from hearth.proxy.wire.states import Client
from hearth.proxy.wire.turn import Turn
from hearth.proxy.wire.upstream_connection import UpstreamConnection
from hearth.proxy.wire.visit import Visit
from hearth.routes import Route

log = logging.getLogger(__name__)


class WarmClient(Client, Protocol):
    """The connection, as the short way knows it."""

    template: RequestTemplate | None
    """The kind of its last request."""

    def address(self) -> bytes:
        """The client's."""
        ...

    def changed_over(self, visit: Visit) -> None:
        """The request that it waits for goes on as `visit`."""
        ...


class Warm:
    """One request that is sent, or for which a connection is being made."""

    __slots__ = (
        "_began_at",
        "_begin",
        "_client",
        "_data",
        "_demand_claim",
        "_headed",
        "_key",
        "_left",
        "_model",
        "_name",
        "_parts",
        "_raw",
        "_route",
        "_slot",
        "_span",
        "_stream",
        "_template",
        "_upstream",
        "deadline",
    )

    def __init__(
        self,
        parts: Shared,
        client: WarmClient,
        plan: RequestTemplate,
        route: Route,
        place: EndpointSlot,
        claim: DemandClaim,
        data: bytes,
        begin: int,
        model: str,
        stream: bool,
        name: str | None,
        span: body_fields.Span | None,
    ) -> None:
        self._parts = parts
        self._client = client
        self._template = plan
        self._route = route
        self._key = route.key
        self._slot = place
        self._demand_claim = claim
        self._data = data
        """Of no more use, and given back, once the answer is whole."""
        self._begin = begin
        self._model = model
        self._stream = stream
        self._name = name
        self._span = span
        self._raw = b""
        """An answer's head whose body has not come."""
        self._headed = False
        """Whether it has counted as an answer."""
        self._left = False
        """Whether the client was lost within the write of its answer."""
        self._upstream: UpstreamConnection | None = None
        self._began_at = now = parts.deadlines.time()
        self.deadline = now + route.response_timeout_s
        parts.deadlines.add(self)
        parts.running.add(self)

    def run(self) -> None:
        """Begin: its client knows it now."""
        self._parts.pool.acquire(self._address(), self)

    # The pool's side

    def connected(self, link: UpstreamConnection) -> None:
        """Send it."""
        try:
            self._send(link)
        except Exception:
            log.exception("request failed")
            self.failed()

    def _send(self, link: UpstreamConnection) -> None:
        self._upstream = link
        plan, begin = self._template, self._begin
        body = memoryview(self._data)[begin:]
        authenticated = self._route.authentication is not None or self._route.engine_keyed
        peer = self._client.address()
        fields = plan.fields(peer, authenticated=authenticated, stream=self._stream)
        backend = self._slot.backend
        if backend.engine_key is not None:
            fields += self._parts.engine_keys.field_line(self._key.namespace, backend)
        fields += b"Content-Length: "
        if self._span is None:
            size = b"%d\r\n\r\n" % len(body)
            link.carry(self, b"".join((plan.request_line, link.host, fields, size, body)))
            return
        start, stop = self._span
        name = msgspec.json.encode(self._name)
        size = b"%d\r\n\r\n" % (len(body) - stop + start + len(name))
        link.carry(
            self,
            b"".join((plan.request_line, link.host, fields, size, body[:start], name, body[stop:])),
        )

    def unreachable(self) -> None:
        """Nothing was sent."""
        self._leave(dial=False)[0].unreachable()

    def exhausted(self) -> None:
        """Nothing was sent, and it is not the endpoint's fault."""
        self._leave(dial=False)[0].exhausted()

    # The link's side

    def heard(self, data: bytes) -> None:
        """What came: the answer, its head, or something else."""
        raw = self._raw
        if raw:
            data = raw + data
        if self._stream:
            # It comes on the long way, and is told there if it is none.
            self._raw = data
            self._leave()
            return
        found = self._template.responses.find(data)
        if found is not None:
            kind, begin, size = found
            if len(data) == begin + size:
                self._finish(kind, memoryview(data)[begin:])
                return
            if len(data) == begin and not raw:
                # Engines write their heads first.
                self._raw = data
                self._headed = True
                self._parts.balancer.succeeded(self._slot.backend.uid)
                return
        self._raw = data
        self._leave()

    def upstream_closed(self, *, clean: bool, untaken: bool) -> None:
        """The connection ended before the answer was whole."""
        self._leave()[0].upstream_closed(clean=clean, untaken=untaken and not self._raw)

    def failed(self) -> None:
        """A defect of ours."""
        if self._data:
            self._leave()[1].internal_error()
            return
        # It was over: the client has its answer, or part of it.
        self._slot.release()
        self._demand_claim.release()
        self._client.abort()

    # The client's side, the sweep's and the gateway's

    def gone(self) -> None:
        """The client is gone."""
        self._left = True
        if self._data:
            self._leave()[1].gone()

    def pause(self) -> None:
        """The client takes no more for now: of the answer, where that was just written."""
        if self._data:
            self._leave()[1].pause()

    def resume(self) -> None:
        """It never paused."""

    def internal_error(self) -> None:
        """A defect of ours."""
        self.failed()

    def drain(self) -> None:
        """The connection ends with this answer."""
        self._leave()[1].drain()

    def cut(self) -> None:
        """The gateway stops."""
        self._leave()[1].cut()

    def pod_vanished(self, pod_uid: str) -> None:
        """A pod's object is gone."""
        if self._slot.backend.pod_uid != pod_uid:
            return
        if self._upstream is None:
            self._parts.pool.cancel(self._address(), self)
        self._leave(dial=False)[0].pod_vanished(pod_uid)

    def on_deadline(self, now: float) -> None:
        """The backend is silent."""
        self._leave()[0].on_deadline(now)

    # Ends

    def _finish(self, kind: ResponseTemplate, body: memoryview) -> None:
        parts, link, key, client = self._parts, self._upstream, self._key, self._client
        assert link is not None
        parts.deadlines.remove(self)
        parts.running.discard(self)
        # Before the write: it may say at once that the client takes no more.
        size, self._data = len(self._data), b""
        parts.budget.release(size)
        client.write(b"".join((kind.before, b"%d" % len(body), kind.after, body)))
        self._upstream = None
        link.finish(keep=kind.keep_alive)
        if not self._headed:
            parts.balancer.succeeded(self._slot.backend.uid)
        self._slot.release()
        self._demand_claim.release()
        seconds = parts.deadlines.time() - self._began_at
        parts.observer.first_byte(key, seconds=seconds)
        outcome = Outcome.CLIENT_CANCELLED if self._left else kind.outcome
        parts.observer.finished(
            key,
            outcome=outcome,
            status=kind.status,
            seconds=seconds,
            details=self._details(len(body), seconds) if parts.observer.detailed else None,
        )
        parts.changed()
        client.response_done(keep=not self._template.close_after_response)

    def _details(self, body_bytes: int, seconds: float) -> RequestDetails:
        return RequestDetails(
            request_id=self._template.head.request_id or self._parts.request_ids.make(),
            model=self._model,
            body_bytes=body_bytes,
            first_byte_s=seconds,
            endpoint=self._address(),
        )

    def _address(self) -> tuple[str, int]:
        return self._slot.backend.host, self._slot.backend.port

    def _leave(self, *, dial: bool = True) -> tuple[Turn, Visit]:
        """Go on the long way, as if it had been taken from the beginning."""
        parts, link = self._parts, self._upstream
        self._upstream = None
        parts.deadlines.remove(self)
        parts.running.discard(self)
        data, self._data = self._data, b""
        parts.budget.release(len(data))
        client = self._client
        visit = Visit(parts, client, self._template.head, peer=client.address(), scheme=b"http")
        client.changed_over(visit)
        turn = visit.take_over(
            self._template,
            self._route,
            data[self._begin :],
            model=self._model,
            stream=self._stream,
            began_at=self._began_at,
        )
        turn.carry_on(
            self._demand_claim,
            self._slot,
            link,
            route=self._route,
            name=self._name,
            limit=self.deadline,
        )
        turn.headed = self._headed
        if link is not None:
            link.hand_over(turn, self._raw)
        elif dial:
            parts.pool.cancel(self._address(), self)
            turn.connect()
        return turn, visit
