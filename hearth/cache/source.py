"""Read a model URI: what is served, and from where the engine gets its weights."""

import re
from dataclasses import dataclass
from enum import StrEnum

STAGED = "/models"
"""Where a PVC with staged weights is mounted."""

SUPPORTED = "hf://<org>/<model>, modelscope://<org>/<model> or pvc://<claim>[/<path>]"
_CLAIM = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_DIGEST = re.compile(r"[^@\s]+/[^@\s]+@sha256:[0-9a-f]{64}")


class BadSource(ValueError):
    """The model cannot be served from there; the message says what to write."""


class Hub(StrEnum):
    """Who gives the engine its weights."""

    HUGGING_FACE = "hf"
    MODELSCOPE = "modelscope"
    PVC = "pvc"
    """Nobody: they lie on a PVC already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A model URI, read."""

    hub: Hub
    path: str
    """What the engine is told to serve: `.Model.Path`."""
    pvc: str | None = None
    """The PVC with staged weights."""


def parse(uri: str) -> Source:
    """Raises BadSource; the message does not name the field."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        raise BadSource(f"{uri!r} names no scheme; write {SUPPORTED}")
    match scheme.lower():
        case "hf" | "huggingface":
            return Source(hub=Hub.HUGGING_FACE, path=_path(uri, rest))
        case "modelscope":
            return Source(hub=Hub.MODELSCOPE, path=_path(uri, rest))
        case "pvc":
            claim, _, folder = rest.removesuffix("/").partition("/")
            if not _CLAIM.fullmatch(claim) or len(claim) > 253:
                raise BadSource(f"{uri!r} names no claim; write pvc://<claim>[/<path>]")
            path = f"{STAGED}/{_path(uri, folder)}" if "/" in rest.removesuffix("/") else STAGED
            return Source(hub=Hub.PVC, path=path, pvc=claim)
        case "oci" if _DIGEST.fullmatch(rest):
            raise BadSource(f"oci:// is not built yet; use {SUPPORTED}")
        case "oci":
            raise BadSource(
                f"{uri!r} names no digest; write oci://<registry>/<repository>@sha256:<digest>,"
                f" and as oci:// is not built yet, use {SUPPORTED}"
            )
        case "s3":
            raise BadSource(
                f"s3:// is not supported; stage the weights on a claim and use pvc://, or use"
                f" {SUPPORTED}"
            )
        case _:
            raise BadSource(f"{scheme}:// is not supported; use {SUPPORTED}")


def _path(uri: str, path: str) -> str:
    """A hub's model, or a folder of a claim: relative, and staying below where it starts."""
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise BadSource(f"{uri!r}: the path must name something below it, without empty, . or ..")
    # An engine gets the path as an argument: it must not be read as a flag, or as two.
    if (
        path.startswith("-")
        or "\\" in path
        or any(c.isspace() or not c.isprintable() for c in path)
    ):
        raise BadSource(f"{uri!r}: the path may not begin with - nor hold spaces or backslashes")
    return path
