"""What the stub received, one JSON line a request, so that a test can compare bytes."""

import base64
import hashlib
import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(slots=True, kw_only=True)
class Entry:
    """One request, while it runs."""

    method: str
    target: str
    """Path and query as they came."""
    headers: list[tuple[str, str]]
    at: float = field(default_factory=time.time)
    """Unix seconds."""
    body: bytes | None = None
    """None until it was read whole."""
    status: int | None = None
    """Of the answer, once its head was sent."""
    tokens: int = 0
    """Sent as an event, or as part of a whole answer."""
    end: str | None = None
    """`finished`, `client gone`, `stopped`, or the name of the fault that ended it."""


class Record:
    """Appends lines to a file; several engines may share one.  Without a file it does nothing."""

    def __init__(self, path: Path | None, *, engine: str) -> None:
        self._engine = engine
        self._file = (
            None if path is None else os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        )

    def write(self, entry: Entry) -> None:
        """Write the line of a request that ended."""
        if self._file is not None:
            # One write of a whole line: lines of several processes do not mix.
            os.write(self._file, (json.dumps(_line(entry, self._engine)) + "\n").encode())

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def decode(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    """Raw headers as text, in their order and spelling."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


def _line(entry: Entry, engine: str) -> dict[str, Any]:
    return {
        "at": entry.at,
        "engine": engine,
        "method": entry.method,
        "path": entry.target,
        "headers": entry.headers,
        **_body(entry.body),
        "status": entry.status,
        "tokens": entry.tokens,
        "end": entry.end,
    }


def _body(body: bytes | None) -> dict[str, Any]:
    if body is None:
        return {"body": None, "body_bytes": None, "body_sha256": None}
    sizes = {"body_bytes": len(body), "body_sha256": hashlib.sha256(body).hexdigest()}
    try:
        return {"body": body.decode(), **sizes}
    except UnicodeDecodeError:
        return {"body": None, "body_base64": base64.b64encode(body).decode(), **sizes}
