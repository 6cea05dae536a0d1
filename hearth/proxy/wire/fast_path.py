"""Start an exchange from the head cache, where nothing needs a closer look."""

from typing import Protocol

from hearth.demand import QueueFull
from hearth.proxy.body import body_fields
from hearth.proxy.errors import GatewayError
from hearth.proxy.routing.upstream_models import NotAsked
from hearth.proxy.wire.exchange import Exchange
from hearth.proxy.wire.head_cache import RequestTemplate, match
from hearth.proxy.wire.plain_request import PlainRequest
from hearth.proxy.wire.shared import Shared
from hearth.proxy.wire.states import Client


class PlainClient(Client, Protocol):
    """A connection that remembers what its last request was like."""

    template: RequestTemplate | None

    def address(self) -> bytes:
        """The client's."""
        ...


def take(parts: Shared, client: PlainClient, data: bytes) -> Exchange | int:
    """The exchange that begins with `data`, to be `run`.

    Else nothing was done; returns how long its body is, where it may be one of these when the
    rest of that is here, and 0 where it takes full parsing.
    """
    template = client.template
    found = match(template, data) if template is not None else None
    if found is None:
        client.template = template = parts.head_cache.find(data)
        found = match(template, data) if template is not None else None
    if template is None or found is None:
        return 0
    start, size = found
    if len(data) != start + size or size > parts.head_cache.body_bytes:
        return size if len(data) < start + size <= start + parts.head_cache.body_bytes else 0
    body = data[start:]
    asked = body_fields.read_plain(body)
    if asked is None:
        return 0
    model, stream = asked
    key = template.key(model)
    route = parts.routes.find(key) if key is not None else None
    if route is None or parts.stopping or not parts.routes.complete:
        return 0
    if route.authentication is not None and not parts.router.is_allowed(route, template.sent_key):
        return 0
    backend = parts.queue.peek(route.key)
    name: str | None = None
    span = claim = None
    if backend is not None:
        if backend.engine_key and not parts.engine_keys.is_fresh(route.key.namespace, backend):
            return 0
        served = parts.models.upstream_name(route.key, backend, model)
        if served is NotAsked.NOT_ASKED:
            # It must be asked first.
            return 0
        name = served
        span = body_fields.single_model_span(body) if name is not None else None
        if (span is None) != (name is None):
            # The body must be looked through.
            return 0
        try:
            claim = parts.demand.admit(route.key, limit=route.max_queue)
        except QueueFull:
            return 0
    try:
        parts.budget.reserve(len(data))
    except GatewayError:
        if claim is not None:
            claim.release()
        return 0
    request = PlainRequest(
        template,
        route,
        data,
        start,
        peer=client.address(),
        model=model,
        stream=stream,
        name=name,
        span=span,
    )
    exchange = Exchange(parts, client, request)
    if backend is not None and claim is not None:
        exchange.forward_to(parts.queue.acquire(route.key, backend), claim)
    return exchange
