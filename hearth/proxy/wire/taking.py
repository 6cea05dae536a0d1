"""Whether a request needs no closer look, and how it begins then."""

from hearth.demand import QueueFull
from hearth.proxy.body import body_fields
from hearth.proxy.errors import ErrorCode, GatewayError
from hearth.proxy.wire.head_cache import RequestTemplate, match
from hearth.proxy.wire.shared import Shared
from hearth.proxy.wire.upstream_models import NotAsked
from hearth.proxy.wire.visit import Visit
from hearth.proxy.wire.warm import Warm, WarmClient
from hearth.routes import Route


def take(parts: Shared, client: WarmClient, data: bytes) -> Warm | Visit | int:
    """The request that `data` is, to be run: on the short way, or as one that has to wait.

    Else nothing was done; returns how long its body is, where it may be one of these when the
    rest of that is here, and 0 where it needs a closer look.
    """
    plan = client.template
    found = match(plan, data) if plan is not None else None
    if found is None:
        client.template = plan = parts.head_cache.find(data)
        found = match(plan, data) if plan is not None else None
    if plan is None or found is None:
        return 0
    begin, size = found
    if len(data) != begin + size or size > parts.head_cache.body_bytes:
        return size if len(data) < begin + size <= begin + parts.head_cache.body_bytes else 0
    body = data[begin:]
    asked = body_fields.read_plain(body)
    if asked is None:
        return 0
    model, stream = asked
    key = plan.key(model)
    route = parts.routes.find(key) if key is not None else None
    if route is None or parts.stopping or not parts.routes.complete:
        return 0
    if route.authentication is not None and not parts.router.is_allowed(route, plan.sent_key):
        return 0
    backend = parts.queue.peek(route.key)
    if backend is None:
        return _wait(parts, client, plan, route, body, model, stream)
    if backend.engine_key and not parts.engine_keys.is_fresh(route.key.namespace, backend):
        return 0
    name = parts.models.upstream_name(route.key, backend, model)
    span = body_fields.single_model_span(body) if name is not None else None
    if name is NotAsked.NOT_ASKED or (span is None) != (name is None):
        # The backend must be asked first, or the body looked through.
        return 0
    try:
        claim = parts.demand.admit(route.key, limit=route.max_queue)
    except QueueFull:
        return 0
    try:
        parts.budget.reserve(len(data))
    except GatewayError:
        claim.release()
        return 0
    place = parts.queue.acquire(route.key, backend)
    return Warm(parts, client, plan, route, place, claim, data, begin, model, stream, name, span)


def _wait(
    parts: Shared,
    client: WarmClient,
    plan: RequestTemplate,
    route: Route,
    body: bytes,
    model: str,
    stream: bool,
) -> Visit | int:
    """A request without a free endpoint: it is known what it asks for, and that it may."""
    if not parts.budget.fits(len(body)):
        return 0
    visit = Visit(parts, client, plan.head, peer=client.address(), scheme=b"http")
    began_at = parts.deadlines.time()
    try:
        visit.take_over(plan, route, body, model=model, stream=stream, began_at=began_at)
    except Exception:
        # Nobody else knows it yet: left as it is, it would run, and hold its body, for ever.
        visit.abort(ErrorCode.INTERNAL_ERROR)
        raise
    return visit
