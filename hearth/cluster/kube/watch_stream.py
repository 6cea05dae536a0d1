"""Turn the bytes of a watch into changes."""

from hearth.api.meta import Manifest
from hearth.cluster import interface
from hearth.cluster.interface import Change, Kind
from hearth.cluster.kube import api_errors

LONGEST_LINE_BYTES = 4 * 2**20
"""An object is at most 1.5 MiB in etcd; as JSON with its managed fields it stays below this."""


class LineSplitter:
    """Splits a stream into lines.  aiohttp's own reader gives up past 512 KiB a line."""

    def __init__(self, *, longest_bytes: int = LONGEST_LINE_BYTES) -> None:
        self._longest_bytes = longest_bytes
        self._parts: list[bytes] = []
        self._held_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes, blank ones left out.

        Raises Expired for a line beyond the limit: a list can read what a watch cannot.
        """
        head, *rest = chunk.split(b"\n")
        lines = []
        self._hold(head)
        for part in rest:
            lines.append(b"".join(self._parts))
            self._parts.clear()
            self._held_bytes = 0
            self._hold(part)
        return [line for line in lines if line.strip()]

    def _hold(self, part: bytes) -> None:
        self._held_bytes += len(part)
        if self._held_bytes > self._longest_bytes:
            raise interface.Expired(f"a change is longer than {self._longest_bytes} bytes")
        self._parts.append(part)


def change(line: bytes, *, kind: Kind) -> Change:
    """The change in one line of a watch.

    Raises Expired, or whatever else the server says in the line; Unavailable for text that is no
    change at all (a proxy's error page, say).
    """
    event = api_errors.parse(line)
    body = event.get("object") if event else None
    if event is None or not isinstance(body, dict):
        text = line[:100].decode(errors="replace")
        raise interface.Unavailable(f"the watch of {kind} was answered with: {text}")
    match event.get("type"):
        case "ERROR":
            code = body.get("code")
            raise api_errors.of_status(code if isinstance(code, int) else 500, body, kind=kind)
        case "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" as name:
            manifest = named(body, kind=kind)
            return Change(name, manifest, str(manifest["metadata"].get("resourceVersion", "")))
        case other:
            raise interface.Unavailable(f"the watch of {kind} told an unknown change: {other}")


def named(manifest: Manifest, *, kind: Kind) -> Manifest:
    """`manifest`, which from now on says what it is: the items of a list do not."""
    manifest.setdefault("apiVersion", kind.api_version)
    manifest.setdefault("kind", kind.kind)
    manifest.setdefault("metadata", {})
    return manifest
