"""Read a model URI: what is served, and from where the engine gets its weights."""

import re
from dataclasses import dataclass
from enum import StrEnum

STAGED = "/models"
"""Where a PVC with staged weights is mounted."""

PULLED = "/cache/oci"
"""Where models of registries lie in a cache, each in a folder of its digest."""

SUPPORTED = (
    "hf://<org>/<model>, modelscope://<org>/<model>, pvc://<claim>[/<path>] or"
    " oci://<registry>/<repository>@sha256:<digest>"
)
_CLAIM = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_REGISTRY = r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]+)?"
_REPOSITORY = r"[a-z0-9]+([._/-][a-z0-9]+)*"
_PINNED = re.compile(rf"{_REGISTRY}/{_REPOSITORY}@sha256:(?P<digest>[a-f0-9]{{64}})")


class BadSource(ValueError):
    """The model cannot be served from there; the message says what to write."""


class Hub(StrEnum):
    """Who gives the engine its weights."""

    HUGGING_FACE = "hf"
    MODELSCOPE = "modelscope"
    PVC = "pvc"
    """Nobody: they lie on a PVC already."""
    OCI = "oci"
    """A registry; they are pulled into the cache before the engine starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A model URI, read."""

    hub: Hub
    path: str
    """What the engine is told to serve: `.Model.Path`."""
    pvc: str | None = None
    """The PVC with staged weights."""
    reference: str | None = None
    """What is pulled from a registry: `registry/repository@sha256:digest`."""

    @property
    def uri(self) -> str:
        """The URI in its one spelling.  Not of staged weights, whose `path` is another."""
        return f"{self.hub}://{self.reference or self.path}"


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
        case "oci":
            return _pulled(uri, rest)
        case "s3":
            raise BadSource(
                f"s3:// is not supported; stage the weights on a claim and use pvc://, or use"
                f" {SUPPORTED}"
            )
        case _:
            raise BadSource(f"{scheme}:// is not supported; use {SUPPORTED}")


def _pulled(uri: str, reference: str) -> Source:
    match = _PINNED.fullmatch(reference)
    if match is None:
        raise BadSource(
            f"{uri!r} does not name one image by its digest; write"
            " oci://<registry>/<repository>@sha256:<64 hexadecimal digits>, in lower case and"
            " without a tag, which may lead to other weights tomorrow"
        )
    path = f"{PULLED}/sha256-{match['digest']}"
    return Source(hub=Hub.OCI, path=path, reference=reference)


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
