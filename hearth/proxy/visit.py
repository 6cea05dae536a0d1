"""One HTTP request with its reply, and what is known of it so far."""

import anyio
from aiohttp import web

from hearth.api.meta import ServiceKey
from hearth.proxy import headers
from hearth.proxy.answers import Code, Problem
from hearth.proxy.config import GatewayConfig
from hearth.proxy.observer import Outcome
from hearth.proxy.reply import Reply


class Visit:
    """Filled in as it is understood; `key` only with a service that exists."""

    def __init__(self, request: web.BaseRequest, config: GatewayConfig) -> None:
        self.request = request
        origin = request.headers.get("Origin")
        self.reply = Reply(request, extra=headers.cors(origin, config.cors_origins))
        self.began_at = anyio.current_time()
        self.key: ServiceKey | None = None
        self.sent_key: str | None = None
        self.outcome: str = Outcome.CLIENT_CANCELLED

    def path(self) -> str:
        """The target's path.  Raises Problem for what could mean two things to two servers."""
        target = self.request.raw_path
        coding = self.request.headers.getall("Transfer-Encoding", [])
        if not target.startswith("/") or "#" in target or not target.isascii():
            raise self._malformed("The request target must be a plain path, such as /v1/models.")
        if coding and (self.request.version < (1, 1) or coding != ["chunked"]):
            raise self._malformed("The only Transfer-Encoding is chunked, in HTTP/1.1.")
        return target.partition("?")[0]

    def host(self) -> str:
        """The Host header; empty only for HTTP/1.0 without one.  Raises Problem."""
        hosts = self.request.headers.getall("Host", [])
        if len(hosts) > 1 or (self.request.version >= (1, 1) and not any(hosts)):
            raise self._malformed("The request must have one Host header.")
        return hosts[0] if hosts else ""

    def _malformed(self, message: str) -> Problem:
        self.reply.last = True
        return Problem(Code.INVALID_REQUEST, message)
