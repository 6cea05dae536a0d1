"""Which requests come from a web page of another site.  No I/O.

A page can send much without a preflight (`fetch` with a plain content type, a form, an image).  So
requests of other sites' pages are recognized by Origin and Sec-Fetch-*: browsers send these fields,
pages cannot change them, and other clients do not send them.
"""

from collections.abc import Callable, Collection

Field = Callable[[str], str]
"""The value of a request's field, by its name in lower case; empty where there is none."""

_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
_PRIVATE = ("localhost", "svc", "internal", "local", "home.arpa", "test", "invalid")
"""Top-level names that no public DNS leads anywhere."""


def is_cross_site(
    field: Field,
    *,
    method: str,
    host: str,
    allowed: Collection[str] = (),
    rebindable: bool = False,
) -> bool:
    """Whether a page that is neither of this server's own site nor `allowed` asks.

    `host`: as the client named it.  `allowed`: origins, or `*`.  `rebindable`: public DNS may
    lead `host` here, so a page of that name proves nothing.
    """
    origin, site = field("origin"), field("sec-fetch-site").strip().lower()
    if "*" in allowed or (origin and origin in allowed):
        return False
    if site == "cross-site":
        return not _followed_link(field, method)
    if not origin:
        # No browser sends a POST without one.  What it may leave it out of, it lets nobody read.
        return False
    if rebindable:
        return True
    if site == "same-origin":
        # By the browser's own word; a proxy in between may have changed the Host.
        return False
    hosts = (host, field("x-forwarded-host").partition(",")[0])
    return not any(_same(origin, name.strip().lower()) for name in hosts)


def is_private_host(host: str, *, domains: Collection[str] = ()) -> bool:
    """Whether public DNS cannot lead `host` (port allowed) here: an address, a name without
    dots, one below a private top-level name, or one of `domains` or below it."""
    name = _without_port(host.strip().lower()).removesuffix(".")
    if "." not in name or name.rpartition(".")[2].isdigit() or ":" in name:
        return True
    return any(
        name == domain or name.endswith(f".{domain}") for domain in (*_PRIVATE, *domains) if domain
    )


def _followed_link(field: Field, method: str) -> bool:
    """A person followed a link: the page that it was on cannot read the response."""
    return (
        method in ("GET", "HEAD")
        and field("sec-fetch-mode").strip().lower() == "navigate"
        and field("sec-fetch-dest").strip().lower() == "document"
    )


def _same(origin: str, host: str) -> bool:
    scheme, _, authority = origin.lower().partition("://")
    port = _DEFAULT_PORTS.get(scheme)
    if port is None or not host:
        return False
    if _without_port(host) == host:
        # Widespread proxies leave the port out of the Host they pass on.
        return _without_port(authority) == host
    return authority.removesuffix(port) == host.removesuffix(port)


def _without_port(authority: str) -> str:
    if authority.startswith("["):
        return authority.partition("]")[0].removeprefix("[")
    name, _, port = authority.rpartition(":")
    return name if name and ":" not in name and port.isdigit() else authority
