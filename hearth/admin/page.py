"""The status page: one file without anything from elsewhere, and the policy that says so."""

import base64
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

_INLINE = re.compile(rb"<(script|style)>(.*?)</\1>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Page:
    """A document and its Content-Security-Policy."""

    body: bytes
    policy: str


def load() -> Page:
    """Read the page that lies beside this file."""
    body = Path(__file__).with_name("page.html").read_bytes()
    return Page(body, policy(body))


def policy(body: bytes) -> str:
    """Allow a page's own inline scripts and styles by their hashes, and this server's data."""
    allowed: dict[bytes, list[str]] = {b"script": [], b"style": []}
    for name, text in _INLINE.findall(body):
        digest = base64.b64encode(hashlib.sha256(text).digest()).decode()
        allowed[name].append(f"'sha256-{digest}'")
    return "; ".join((
        "default-src 'none'",
        "connect-src 'self'",
        "img-src data:",
        f"script-src {' '.join(allowed[b'script'])}",
        f"style-src {' '.join(allowed[b'style'])}",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ))  # fmt: skip
