"""Kubernetes' own objects that may stand beside custom resources in a file.

Secrets, ConfigMaps and PVCs: what `hearth local` keeps in place of a cluster.
"""

import base64
import binascii
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from hearth.api.meta import Manifest, Model

KEY_PATTERN = r"^[-._a-zA-Z0-9]+$"
DataKey = Annotated[str, Field(min_length=1, max_length=253, pattern=KEY_PATTERN)]


def _base64(text: str) -> str:
    try:
        base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("must be base64; plain text belongs below stringData") from None
    return text


Base64 = Annotated[str, AfterValidator(_base64)]


class CoreObject(Model):
    """What the three have in common; metadata is looked at elsewhere."""

    api_version: Literal["v1"]
    kind: str
    metadata: dict[str, Any]


class Secret(CoreObject):
    type: str = "Opaque"
    data: dict[DataKey, Base64] = {}
    string_data: dict[DataKey, str] = {}
    immutable: bool = False


class ConfigMap(CoreObject):
    data: dict[DataKey, str] = {}
    binary_data: dict[DataKey, Base64] = {}
    immutable: bool = False


class PersistentVolumeClaim(CoreObject):
    spec: dict[str, Any]
    status: Any = None


MODELS: dict[str, type[CoreObject]] = {
    "Secret": Secret,
    "ConfigMap": ConfigMap,
    "PersistentVolumeClaim": PersistentVolumeClaim,
}


def stored(manifest: Manifest) -> Manifest:
    """A valid manifest as the API server would store it: a Secret's `stringData` is in `data`."""
    kept = {name: value for name, value in manifest.items() if value is not None}
    kept.pop("status", None)
    if kept["kind"] != "Secret":
        return kept
    plain = kept.pop("stringData", {})
    coded = {name: base64.b64encode(text.encode()).decode() for name, text in plain.items()}
    return {**kept, "type": kept.get("type", "Opaque"), "data": {**kept.get("data", {}), **coded}}
