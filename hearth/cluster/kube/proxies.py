"""Which proxy the environment names for the API server, read as Go's programs read it.

`NO_PROXY` has names (`.svc` stands for what is below, `svc` for that and itself), addresses,
ranges of either family (`10.96.0.0/12`, `fd00::/8`), each with a port if one is meant, and `*`.
"""

import base64
import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

_PORTS = {"http": 80, "https": 443}

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class BadProxy(ValueError):
    """What the environment names cannot be used; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy, with its password apart: a URL is logged sooner or later."""

    url: str
    headers: dict[str, str] = field(default_factory=dict, repr=False)


def find(url: str, environ: Mapping[str, str]) -> Proxy | None:
    """The proxy for `url`; None where it is reached directly.  Raises BadProxy."""
    parts = urlsplit(url)
    name = f"{parts.scheme.upper()}_PROXY"
    value = _either(environ, name)
    host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
    if not value or not host or _excepted(host, port, _either(environ, "NO_PROXY")):
        return None
    return read(value, origin=name)


def read(value: str, *, origin: str) -> Proxy:
    """A proxy as people write it: a URL, or host and port alone.  Raises BadProxy."""
    try:
        parts = urlsplit(value if "://" in value else f"http://{value}")
        port = parts.port
    except ValueError as error:
        raise BadProxy(f"{origin} is no URL of a proxy: {error}") from error
    if parts.scheme not in _PORTS or not parts.hostname:
        raise BadProxy(
            f"{origin} names no http:// or https:// proxy; write one, or name the API server in"
            " NO_PROXY"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    shown = f"{parts.scheme}://{host}" + (f":{port}" if port else "")
    if parts.username is None:
        return Proxy(shown)
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    known = base64.b64encode(pair.encode()).decode()
    return Proxy(shown, {"Proxy-Authorization": f"Basic {known}"})


def _either(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name) or environ.get(name.lower()) or ""


def _excepted(host: str, port: int, no_proxy: str) -> bool:
    host = host.lower().rstrip(".")
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(_matches(entry, host, address, port) for entry in _entries(no_proxy))


def _entries(no_proxy: str) -> Iterator[str]:
    return filter(None, (entry.strip().lower() for entry in no_proxy.split(",")))


def _matches(entry: str, host: str, address: Address | None, port: int) -> bool:
    if entry == "*":
        return True
    if "/" in entry and (network := _network(entry)) is not None:
        return address is not None and address in network
    name, wanted_port = _port_apart(entry)
    if wanted_port and wanted_port != str(port):
        return False
    if (listed := _address(name)) is not None:
        return listed == address
    name = name[1:] if name.startswith("*.") else name
    below = name if name.startswith(".") else f".{name}"
    return bool(name) and (host.endswith(below) or host == name)


def _port_apart(entry: str) -> tuple[str, str]:
    """`name:443` and `[fd00::1]:443`, but not `fd00::1`."""
    if entry.startswith("["):
        name, _, port = entry[1:].partition("]")
        return name, port.removeprefix(":")
    name, _, port = entry.partition(":")
    return (entry, "") if ":" in port else (name, port)


def _address(text: str) -> Address | None:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
