"""Access to messages of engines and cluster on the admin port: ends of logs, and their errors.

| a token is set | caller                                                              | reads all |
| -------------- | ------------------------------------------------------------------- | --------- |
| no             | from this very pod or machine (`kubectl port-forward`), not handed on | yes     |
| no             | anybody else                                                        | no        |
| yes            | has it, as a bearer token or as the password of any user            | yes       |
| yes            | anybody else                                                        | no        |
"""

import base64
import binascii
import hmac
import ipaddress
from collections.abc import Callable

Field = Callable[[str], str]
"""The value of a request's field, by its name; empty where there is none."""

_HANDED_ON = ("x-forwarded-for", "forwarded", "x-real-ip", "via")


class Access:
    """`token`: empty for none."""

    def __init__(self, token: str = "") -> None:
        self._token = token.encode()

    @property
    def by_token(self) -> bool:
        return bool(self._token)

    def may_read_all(self, field: Field, *, peer: str) -> bool:
        """Whether a request from the address `peer` may read all."""
        if self._token:
            return hmac.compare_digest(_password(field("authorization")), self._token)
        return _is_loopback(peer) and not any(map(field, _HANDED_ON))


def _is_loopback(peer: str) -> bool:
    # Not all of 127.0.0.0/8: proxies of service meshes forward others' requests from 127.0.0.6.
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address) in ("127.0.0.1", "::1")


def _password(authorization: str) -> bytes:
    scheme, _, value = authorization.partition(" ")
    value = value.strip()
    if scheme.lower() == "bearer":
        return value.encode()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).partition(b":")[2]
        except binascii.Error:
            return b""
    return b""
