"""A whole request whose head is remembered, as long as nothing needs a closer look."""

import msgspec

from hearth.api.meta import ServiceKey
from hearth.proxy.body import body_fields
from hearth.proxy.body.body_budget import BodyBudget
from hearth.proxy.wire.head_cache import RequestTemplate
from hearth.proxy.wire.request import Request
from hearth.proxy.wire.shared import Shared
from hearth.routes import Route


class PlainRequest:
    """Its sender may use the service, and the budget has counted all of its bytes."""

    __slots__ = (
        "_begin",
        "_data",
        "_name",
        "_peer",
        "_span",
        "model",
        "route",
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

    @property
    def key(self) -> ServiceKey:
        """Of the service."""
        return self.route.key

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

    def to_request(self, parts: Shared) -> Request:
        """The same for whoever may have to wait, or be sent again."""
        data = self._data
        self.drop_body(parts.budget)
        return Request.from_template(
            parts,
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
