"""Turn an error response of an API server into one of the interface's errors."""

import re

import msgspec

from hearth.api.meta import Manifest
from hearth.cluster import interface
from hearth.cluster.interface import ClusterError, Kind

# Server-side apply reports a wrong object as an internal error without a reason.  Taken for a
# failure of the server, such an object would be sent again for ever.
_REFUSED_APPLY = re.compile(r"failed to create typed patch object|field not declared in schema")
# Also how etcd's compaction looks when it meets the very change that a watch would begin with: an
# internal error, and the same again from the same version.
_COMPACTED = re.compile(r"PrevKv=nil|revision has been compacted|too old resource version")
_PASSING = re.compile(
    r"etcd|time[d]?\s?out|leader changed|connection (refused|reset)|EOF|failed calling webhook",
    re.I,
)
_TERMINATING = "because it is being terminated"
_LONGEST_EXCERPT = 200


def parse(body: bytes) -> Manifest | None:
    """The JSON object in `body`, or None: proxies answer HTML and plain text too."""
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None
    return value if isinstance(value, dict) else None


def error(code: int, body: bytes, *, kind: Kind, retry_after: str = "") -> ClusterError:
    """What a response that is no success means; `retry_after` is that header's text."""
    found = parse(body)
    return of_status(
        code, found or {}, kind=kind, text=_excerpt(code, body, found), retry_after=retry_after
    )


def of_status(
    code: int, status: Manifest, *, kind: Kind, text: str = "", retry_after: str = ""
) -> ClusterError:
    """The error that a Status object stands for, also one that came inside a watch.

    | code | error |
    | 403 / of a namespace that is being deleted | Forbidden / Terminating |
    | 401, 405, 429, 5xx, anything else | Unavailable |
    | 404 without a name in its details | KindMissing: the path itself is not served |
    | 409 / with reason AlreadyExists | Conflict / AlreadyExists |
    | 410, reasons Expired and Gone, or a compacted version, or one from the future | Expired |
    | 400, 406, 413, 415, 422 | Invalid; Conflict where only `metadata.uid` is wrong |
    | 500 that says that the applied object is wrong | Invalid |
    """
    message = str(status.get("message") or text or f"the server answered {code}")
    reason = status.get("reason")
    details = status.get("details") or {}
    if code == 410 or reason in ("Expired", "Gone") or _COMPACTED.search(message):
        return interface.Expired(message)
    if _from_the_future(details):
        return interface.Expired(message)
    match code:
        case 403 if _names(details, "NamespaceTerminating") or _TERMINATING in message:
            return interface.Terminating(message)
        case 403:
            return interface.Forbidden(message)
        case 404 if details.get("name"):
            return interface.NotFound(message)
        case 404:
            return interface.KindMissing(f"the cluster does not serve {kind}")
        case 409 if reason == "AlreadyExists":
            return interface.AlreadyExists(message)
        case 409:
            return interface.Conflict(message)
        case 422 if _only_uid(details):
            return interface.Conflict(message)
        case 400 | 406 | 413 | 415 | 422:
            return interface.Invalid(message)
        case 500 if _REFUSED_APPLY.search(message):
            return interface.Invalid(message)
        case 401:
            return interface.Unavailable(f"the cluster refuses our credentials: {message}")
        case _:
            return interface.Unavailable(
                message, retry_after_s=_retry_after_s(retry_after, details)
            )


def passes(code: int, error: ClusterError) -> bool:
    """Whether the same request may well succeed in a moment."""
    if not isinstance(error, interface.Unavailable):
        return False
    if code == 500:
        return error.retry_after_s is not None or bool(_PASSING.search(error.message))
    return code in (429, 502, 503, 504)


def _excerpt(code: int, body: bytes, found: Manifest | None) -> str:
    if found is not None:
        return ""
    text = " ".join(body[: 4 * _LONGEST_EXCERPT].decode(errors="replace").split())
    return f"the server answered {code}: {text[:_LONGEST_EXCERPT]}" if text else ""


def _from_the_future(details: Manifest) -> bool:
    return _names(details, "ResourceVersionTooLarge")


def _names(details: Manifest, cause: str) -> bool:
    return any(one.get("reason") == cause for one in details.get("causes") or ())


def _only_uid(details: Manifest) -> bool:
    causes = details.get("causes") or ()
    return bool(causes) and all(cause.get("field") == "metadata.uid" for cause in causes)


def _retry_after_s(header: str, details: Manifest) -> float | None:
    # Only whole seconds: the other form of the header, a date, needs two clocks that agree.
    named = [float(header)] if header.strip().isdecimal() else []
    in_body = details.get("retryAfterSeconds")
    if isinstance(in_body, int | float) and in_body > 0:
        named.append(float(in_body))
    return max(named, default=None)
