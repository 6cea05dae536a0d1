"""Let in who may speak for a service: by server name and client certificate."""

import logging
import ssl
import time
from asyncio import BaseTransport
from collections.abc import Callable
from typing import cast

from hearth import names
from hearth.api.meta import ServiceKey
from hearth.keda.tls import certificate
from hearth.keda.tls.certificate_store import CertificateStore, Identity
from hearth.routes import Route

logger = logging.getLogger(__name__)

LOG_EVERY_S = 1.0
"""Between two log lines: anybody can be refused, as often as they like."""


def identity(transport: BaseTransport) -> Identity | None:
    """Whose the connection is; None in plaintext."""
    handshake = transport.get_extra_info("ssl_object")
    return handshake.identity if isinstance(handshake, _Handshake) else None


def forbidden(caller: ServiceKey | None, requested: ServiceKey, route: Route | None) -> str | None:
    """Why a caller may not ask about a service; None where it may.

    | connection          | the service  | answer    |
    | ------------------- | ------------ | --------- |
    | plaintext           | has TLS      | forbidden |
    | plaintext           | has not      | may ask   |
    | TLS of this service | any          | may ask   |
    | TLS of another      | any          | forbidden |
    """
    if caller is not None:
        if caller == requested:
            return None
        why = f"this connection is for LLMService {caller} alone; dial"
        return f"{why} {names.scaler_host(requested)}"
    if route is None or route.scaler_tls is None:
        return None
    host = names.scaler_host(requested)
    return f"LLMService {requested} has externalScaler.tls: dial {host} over mutual TLS"


class SniPort:
    """One port for all services that have TLS.

    Who is let in named a service's server name and showed a certificate of that service's CA; it
    speaks HTTP/2, and TLS 1.2 or newer.
    """

    def __init__(
        self, certificates: CertificateStore, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.certificates = certificates
        self._clock = clock
        self._quiet_until = float("-inf")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # A handshake keeps these when it goes over to a service's context.
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        context.set_alpn_protocols(["h2"])
        # A resumed session would let in a client whose CA has been replaced since.
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0
        context.sslobject_class = _Handshake
        context.sni_callback = self._choose_certificate
        self.context = context

    def log_refusal(self, server_name: str | None, error: str) -> None:
        """Say so in the log: the peer sees no more than a closed connection."""
        now = self._clock()
        if now >= self._quiet_until:
            self._quiet_until = now + LOG_EVERY_S
            extra = {"server_name": server_name, "error": error}
            logger.warning("connection to the scaler refused", extra=extra)

    def _choose_certificate(
        self, handshake: ssl.SSLObject, server_name: str | None, _: ssl.SSLContext
    ) -> int | None:
        handshake = cast(_Handshake, handshake)
        handshake.sni_port, handshake.server_name = self, server_name
        identity = self.certificates.find(server_name or "")
        if identity is None:
            return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
        handshake.identity = identity
        handshake.context = identity.certificate.context
        return None


class _Handshake(ssl.SSLObject):
    """The server's end of one connection."""

    sni_port: SniPort | None = None
    server_name: str | None = None
    identity: Identity | None = None

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
            if (problem := self._problem()) is not None:
                raise ssl.SSLError(ssl.SSL_ERROR_SSL, problem)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            if self.sni_port is not None:
                self.sni_port.log_refusal(self.server_name, self._error_text(error))
            raise

    def _problem(self) -> str | None:
        """What OpenSSL does not ask for."""
        if self.selected_alpn_protocol() != "h2":
            return "the client does not offer HTTP/2 (ALPN h2)"
        if self.session_reused:
            return "the client resumes a session"
        # While its packets were under way, the CA may have been replaced.
        if not (
            self.sni_port and self.identity and self.sni_port.certificates.trusts(self.identity)
        ):
            return "the client's CA is not trusted any more"
        return None

    def _error_text(self, error: ssl.SSLError) -> str:
        if self.identity is None:
            return "no server name" if self.server_name is None else "unknown server name"
        return certificate.reason(error)
