"""A Secret's data as the TLS context of one service, or what is wrong with it."""

import importlib
import os
import re
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearth.api.meta import rfc3339

if TYPE_CHECKING:
    from hearth.keda.tls import x509

CERTIFICATE, KEY, CLIENT_CA = "tls.crt", "tls.key", "ca.crt"

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_NOISE = re.compile(r"^\[.*?\] | \(_ssl\.c:\d+\)$")

Roots = frozenset[bytes]
"""The certificates, in DER, that a client's may descend from."""


class BadSecret(ValueError):
    """The data cannot be used; the message names the key in the Secret."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Certificate:
    """What a server shows and whom it trusts, ready for a handshake."""

    context: ssl.SSLContext
    roots: Roots
    names: tuple[str, ...]
    """DNS names it is valid for; one may begin with `*.`."""
    not_before_s: float
    not_after_s: float
    """Unix seconds."""


def read(data: Mapping[str, bytes]) -> Certificate:
    """The certificate, its key and the clients' CA.  Raises BadSecret."""
    missing = [name for name in (CERTIFICATE, KEY, CLIENT_CA) if not data.get(name, b"").strip()]
    if missing:
        raise BadSecret(f"has no {' and no '.join(missing)}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # A handshake begins in the context of the port and takes from this one what is set here; the
    # rest (versions, sessions, that a client must show a certificate) the port itself demands.
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    trusted = _blocks(data, CLIENT_CA)
    _trust(context, trusted, of=CLIENT_CA)
    shown = _blocks(data, CERTIFICATE)[0]
    _check(shown)
    _show(context, data)
    details = _details(shown)
    return Certificate(
        context=context,
        roots=frozenset(map(ssl.PEM_cert_to_DER_cert, trusted)),
        names=details.names,
        not_before_s=details.not_before_s,
        not_after_s=details.not_after_s,
    )


def load_library() -> None:
    """What `read` needs, and takes a tenth of a second the first time: not on the event loop."""
    importlib.import_module("hearth.keda.tls.x509")


def roots(data: Mapping[str, bytes]) -> Roots:
    """Whom the Secret trusts, whatever else is wrong with it; nobody where that is unreadable."""
    try:
        return frozenset(map(ssl.PEM_cert_to_DER_cert, _blocks(data, CLIENT_CA)))
    except ValueError:
        return frozenset()


def problem(certificate: Certificate, *, server_name: str, now_s: float) -> str | None:
    """Why a client that dials `server_name` would refuse the certificate at `now_s` (Unix)."""
    if now_s < certificate.not_before_s:
        return f"{CERTIFICATE} is not valid before {rfc3339(certificate.not_before_s)}"
    if now_s > certificate.not_after_s:
        return f"{CERTIFICATE} expired on {rfc3339(certificate.not_after_s)}; renew it"
    if not any(_matches(name, server_name) for name in certificate.names):
        valid = f"only for {', '.join(certificate.names)}" if certificate.names else "for no name"
        return (
            f"{CERTIFICATE} is valid {valid}, not for {server_name}, which KEDA dials; add it to"
            " the certificate's DNS names"
        )
    return None


def reason(error: Exception) -> str:
    """What OpenSSL says, without where in its code it says so."""
    return _NOISE.sub("", getattr(error, "strerror", None) or str(error))


def _matches(name: str, wanted: str) -> bool:
    """A star stands for the whole first label, as Go's clients read it."""
    first, _, rest = name.lower().partition(".")
    return name.lower() == wanted or (first == "*" and rest == wanted.partition(".")[2])


def _blocks(data: Mapping[str, bytes], name: str) -> list[str]:
    """The certificates of a bundle, without the comments between them."""
    found = [block.decode("ascii", "replace") for block in _PEM.findall(data.get(name, b""))]
    if not found:
        raise BadSecret(f"{name} holds no PEM certificate")
    return found


def _trust(context: ssl.SSLContext, blocks: list[str], *, of: str) -> None:
    try:
        context.load_verify_locations(cadata="\n".join(blocks))
    except (ssl.SSLError, ValueError) as error:
        raise BadSecret(f"{of} cannot be read: {reason(error)}") from error


def _check(shown: str) -> None:
    """OpenSSL's own look: it says more of what is broken."""
    _trust(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), [shown], of=CERTIFICATE)


def _details(shown: str) -> "x509.Details":
    from hearth.keda.tls import x509

    try:
        return x509.read(shown)
    except x509.NotForServers as error:
        raise BadSecret(f"{CERTIFICATE} is not for servers (usage serverAuth)") from error
    except ValueError as error:
        raise BadSecret(f"{CERTIFICATE} cannot be used: {error}") from error


def _show(context: ssl.SSLContext, data: Mapping[str, bytes]) -> None:
    with _file(data[CERTIFICATE] + b"\n" + data[KEY]) as path:
        try:
            # Without an answer of ours OpenSSL would ask the terminal for a passphrase.
            context.load_cert_chain(path, password="")
        except (ssl.SSLError, ValueError) as error:
            if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
                raise BadSecret(f"{KEY} is not the key of {CERTIFICATE}") from error
            raise BadSecret(
                f"{KEY} cannot be used ({reason(error)}); it must be a PEM key without a passphrase"
            ) from error


@contextmanager
def _file(content: bytes) -> Iterator[str]:
    """A path to the bytes, for a library that reads files only; where it can be, it is memory."""
    if hasattr(os, "memfd_create"):
        with open(os.memfd_create("certificate"), "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as named:
            named.write(content)
            named.flush()
            yield named.name
