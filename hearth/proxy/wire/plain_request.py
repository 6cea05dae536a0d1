"""A whole request whose head is remembered, as long as nothing needs a closer look."""

from typing import TYPE_CHECKING

import msgspec

from hearth.demand import DemandClaim, QueueFull
from hearth.proxy.body import body_fields
from hearth.proxy.body.body_budget import BodyBudget
from hearth.proxy.errors import GatewayError
from hearth.proxy.routing.endpoint_queue import EndpointSlot
from hearth.proxy.routing.upstream_models import NotAsked
from hearth.proxy.wire.head_cache import RequestTemplate, match
from hearth.proxy.wire.request import Request
from hearth.proxy.wire.shared import Shared
from hearth.routes import Route

if TYPE_CHECKING:
    from hearth.proxy.wire.client_connection import ClientConnection


class PlainRequest:
    """Its sender may use the service, and the budget has counted all of its bytes."""

    __slots__ = (
        "_begin",
        "_data",
        "_name",
        "_peer",
        "_span",
        "demand_claim",
        "model",
        "route",
        "slot",
        "stream",
        "template",
    )

    def __init__(
        self,
        template: RequestTemplate,
        route: Route,
        data: bytes,
        begin: int,
        *,
        peer: bytes,
        model: str,
        stream: bool,
        name: str | None = None,
        span: body_fields.Span | None = None,
        slot: EndpointSlot | None = None,
        demand_claim: DemandClaim | None = None,
    ) -> None:
        """The body begins at `begin`.  `name` is sent for the model's, which stands at `span`."""
        self.template = template
        self.route = route
        self.stream = stream and template.api_path.streams
        self._data = data
        self._begin = begin
        self._peer = peer
        self.model = model
        self._name = name
        self._span = span
        self.slot = slot
        """With its demand claim, where an endpoint is free: no admission is needed any more."""
        self.demand_claim = demand_claim

    def upstream_bytes(self, host: bytes, engine_key: bytes) -> bytes:
        """Head and body.  `host`: the rest of the Host field's line; `engine_key`: a field line."""
        route, template, start = self.route, self.template, self._begin
        fields = template.fields(
            self._peer,
            authenticated=route.authentication is not None or route.engine_keyed,
            stream=self.stream,
        )
        body = memoryview(self._data)[start:]
        if self._span is None:
            size = b"%bContent-Length: %d\r\n\r\n" % (engine_key, len(body))
            return b"".join((template.request_line, host, fields, size, body))
        start, stop = self._span
        name = msgspec.json.encode(self._name)
        length = len(body) - stop + start + len(name)
        size = b"%bContent-Length: %d\r\n\r\n" % (engine_key, length)
        return b"".join(
            (template.request_line, host, fields, size, body[:start], name, body[stop:])
        )

    def to_request(self, shared: Shared) -> Request:
        """The same for whoever may have to wait, or be sent again."""
        data = self._data
        self.drop_body(shared.budget)
        return Request.from_template(
            shared,
            self.template,
            self.route,
            data[self._begin :],
            peer=self._peer,
            model=self.model,
            stream=self.stream,
            name=self._name,
        )

    def drop_body(self, budget: BodyBudget) -> None:
        """It will not go again.  Idempotent."""
        size, self._data = len(self._data), b""
        budget.release(size)


def take(shared: Shared, client: "ClientConnection", data: bytes) -> PlainRequest | int:
    """The request that `data` is, with an endpoint slot where one is free.

    Else nothing was done; returns how long its body is, where it may be one of these when the
    rest of that is here, and 0 where it takes full parsing.
    """
    template = client.template
    found = match(template, data) if template is not None else None
    if found is None:
        client.template = template = shared.head_cache.find(data)
        found = match(template, data) if template is not None else None
    if template is None or found is None:
        return 0
    start, size = found
    if len(data) != start + size or size > shared.head_cache.body_bytes:
        return size if len(data) < start + size <= start + shared.head_cache.body_bytes else 0
    body = data[start:]
    asked = body_fields.read_plain(body)
    if asked is None:
        return 0
    model, stream = asked
    key = template.key(model)
    route = shared.routes.find(key) if key is not None else None
    if route is None or shared.stopping or not shared.routes.complete:
        return 0
    if route.authentication is not None and not shared.router.is_allowed(route, template.sent_key):
        return 0
    backend = shared.queue.peek(route.key)
    name: str | None = None
    span = claim = None
    if backend is not None:
        if backend.engine_key and not shared.engine_keys.is_fresh(route.key.namespace, backend):
            return 0
        served = shared.models.upstream_name(route.key, backend, model)
        if served is NotAsked.NOT_ASKED:
            # It must be asked first.
            return 0
        name = served
        span = body_fields.single_model_span(body) if name is not None else None
        if (span is None) != (name is None):
            # The body must be looked through.
            return 0
        try:
            claim = shared.demand.admit(route.key, limit=route.max_queue)
        except QueueFull:
            return 0
    try:
        shared.budget.reserve(len(data))
    except GatewayError:
        if claim is not None:
            claim.release()
        return 0
    return PlainRequest(
        template,
        route,
        data,
        start,
        peer=client.transport.address(),
        model=model,
        stream=stream,
        name=name,
        span=span,
        slot=None if backend is None else shared.queue.acquire(route.key, backend),
        demand_claim=claim,
    )
