"""Tell which fields of ours a CustomResourceDefinition that a cluster serves does not have.

An API server drops what its schema does not know, without a word to whoever wrote it.
"""

from collections.abc import Iterator

from hearth.api import groups, schema
from hearth.api.meta import Manifest


def missing_fields(definition: Manifest) -> list[str]:
    """Fields of the kind, as `spec.endpoint.authentication`, that would be dropped.

    Of a field that is not there the ones below are not named.  A definition that does not serve our
    version drops nothing: to the cluster's clients the kind is then not there at all.
    """
    spec = definition["spec"]
    wanted = schema.of(spec["names"]["kind"], spec["group"])
    for version in spec["versions"]:
        if version["name"] == groups.VERSION and version.get("served"):
            found = (version.get("schema") or {}).get("openAPIV3Schema") or {}
            return [
                field
                for part in ("spec", "status")
                for field in _missing(wanted["properties"][part], _property(found, part), part)
            ]
    return []


def _missing(wanted: Manifest, found: Manifest | None, path: str) -> Iterator[str]:
    if found is None:
        yield path
    elif not found.get("x-kubernetes-preserve-unknown-fields"):
        for name, below in wanted.get("properties", {}).items():
            yield from _missing(below, _property(found, name), f"{path}.{name}")
        if (items := wanted.get("items")) is not None:
            yield from _missing(items, found.get("items"), f"{path}[]")


def _property(node: Manifest, name: str) -> Manifest | None:
    found: Manifest | None = (node.get("properties") or {}).get(name)
    return found
