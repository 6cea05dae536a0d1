"""One request as it goes to a backend; can go again, and under another model name."""

import msgspec

from hearth.host_port import authority
from hearth.proxy.body import body_fields
from hearth.proxy.body.body_budget import BufferedBody
from hearth.proxy.wire.head_parser import RequestHead
from hearth.proxy.wire.upstream_connection import Piece
from hearth.proxy.wire.upstream_models import NotAsked
from hearth.routes import Backend


class Sending:
    """The body is kept until it will not go again."""

    __slots__ = (
        "_content_type",
        "_fields",
        "_form",
        "_held",
        "_line",
        "authorization",
        "model",
        "name",
        "spans",
    )

    def __init__(
        self,
        *,
        method: str,
        target: bytes,
        fields: bytes,
        held: BufferedBody,
        content_type: str = "",
        model: str | None = None,
        form: bool = False,
        authorization: str = "",
    ) -> None:
        """`model`: as the client named it; None where it named none.  `fields`: field lines."""
        self.model = model
        self.authorization = authorization
        """What the backend may see of it."""
        self.name: str | None = None
        """What the backend calls the model; None: the body goes as it came."""
        self.spans: tuple[body_fields.Span, ...] | None = None
        """Where the model's name stands; found when needed, unless it was before."""
        self._line = b"%b %b HTTP/1.1\r\nHost: " % (method.encode(), target)
        self._fields = fields
        self._held = held
        self._content_type = content_type
        self._form = form

    def rename_model(self, name: str | NotAsked | None) -> None:
        """Send the model under `name`."""
        self.name = name if isinstance(name, str) else None

    def find(self) -> None:
        """Look for the model's name now: in a worker thread, for a body that is big."""
        self.spans = body_fields.model_spans(self._held.data, self._content_type)

    def upstream_bytes(self, backend: Backend, key: bytes = b"") -> tuple[bytes, tuple[Piece, ...]]:
        """Head and body for `backend`; `key`: a field line with what its engine asks for."""
        data = self._held.data
        pieces: tuple[Piece, ...] = (data,) if data else ()
        size = len(data)
        if self.name is not None:
            if self.spans is None:
                self.find()
            value = self.name.encode() if self._form else msgspec.json.encode(self.name)
            pieces = body_fields.replace_spans(data, self.spans or (), value)
            size = sum(map(len, pieces))
        length = b"Content-Length: %d\r\n" % size if size or self._line.startswith(b"POST") else b""
        head = b"%b%b\r\n%b%b%b\r\n" % (
            self._line,
            authority(backend.host, backend.port).encode(),
            self._fields,
            key,
            length,
        )
        return head, pieces

    def drop(self) -> None:
        """It will not go again: the body is not kept."""
        self._held.drop()


def prepared(
    head: RequestHead,
    target: body_fields.BodyFields,
    held: BufferedBody,
    *,
    fields: bytes,
    authenticated: bool,
) -> Sending:
    """As its backend may see it; `authenticated`: the gateway checked its key."""
    return Sending(
        method=head.method,
        target=head.target,
        fields=fields,
        held=held,
        content_type=head.content_type.decode("latin-1"),
        model=target.model,
        form=target.multipart,
        authorization="" if authenticated else head.field(b"authorization").decode("latin-1"),
    )
