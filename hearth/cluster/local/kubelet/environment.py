"""Resolve a container's environment as Kubernetes defines it.

A pod's process gets, in this order, each overriding the ones before: what `INHERITED` names in
Hearth's own environment, what names its devices, `env`.
Nothing else of Hearth's environment reaches a pod, so no key or token of Hearth's does.
"""

import base64
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hearth.api.meta import Manifest, Quantity

INHERITED = (
    "PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "HOME", "USER", "LOGNAME", "SHELL",
    "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "CUDA_HOME", "CUDA_PATH",
    "ASCEND_HOME_PATH", "ROCM_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
)  # fmt: skip
"""What a program needs to run on this machine at all, to find libraries and the network."""

_REFERENCE = re.compile(r"\$(?:(\$)|\(([^)]*)\)|(.))", re.DOTALL)
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
_CONFIG_ERROR = "CreateContainerConfigError"


@dataclass
class CannotStart(Exception):
    """Why a container cannot be started now: a waiting reason of Kubernetes, and what to do."""

    reason: str
    message: str
    event: str = "Failed"

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSources:
    """Everything that a value may come from."""

    pod: Manifest
    ip: str
    node: str
    secrets: Mapping[str, Manifest | None]
    """By name; None for one that is not there."""
    config_maps: Mapping[str, Manifest | None]


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of Hearth's own environment that a pod may see."""
    return {name: environ[name] for name in INHERITED if name in environ}


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace `$(NAME)`; `$$` is one dollar; an unknown name or open bracket stays as it is."""

    def replace(match: re.Match[str]) -> str:
        dollar, name, other = match.groups()
        if dollar:
            return "$"
        if other is not None:
            return f"${other}"
        return variables.get(name, f"$({name})")

    return _REFERENCE.sub(replace, text)


def references(container: Manifest) -> Iterator[tuple[str, str]]:
    """(`Secret` or `ConfigMap`, name) of each object that the environment is read from."""
    for variable in container.get("env") or ():
        origin = variable.get("valueFrom") or {}
        for field, kind in (("secretKeyRef", "Secret"), ("configMapKeyRef", "ConfigMap")):
            if field in origin:
                yield kind, origin[field].get("name", "")


def resolve(container: Manifest, sources: EnvironmentSources) -> dict[str, str]:
    """`env`, each value seeing those before it.  Raises CannotStart."""
    resolved: dict[str, str] = {}
    for variable in container.get("env") or ():
        if variable.get("valueFrom"):
            value_from = _value_from(variable["valueFrom"], container, sources)
            if value_from is not None:
                resolved[variable["name"]] = value_from
        else:
            resolved[variable["name"]] = expand(variable.get("value") or "", resolved)
    return resolved


def content(kind: str, manifest: Manifest) -> dict[str, bytes]:
    """The keys of a Secret or ConfigMap."""
    decoded = {
        key: base64.b64decode(value)
        for key, value in (manifest.get("data" if kind == "Secret" else "binaryData") or {}).items()
    }
    plain = manifest.get("stringData" if kind == "Secret" else "data") or {}
    return {**decoded, **{key: value.encode() for key, value in plain.items()}}


def _object(kind: str, name: str, sources: EnvironmentSources) -> dict[str, bytes] | None:
    found = (sources.secrets if kind == "Secret" else sources.config_maps).get(name)
    return None if found is None else content(kind, found)


def _value_from(origin: Manifest, container: Manifest, sources: EnvironmentSources) -> str | None:
    """None where an optional reference leads nowhere."""
    if "fieldRef" in origin:
        return field_of(origin["fieldRef"].get("fieldPath", ""), sources)
    if "resourceFieldRef" in origin:
        return _amount_of(origin["resourceFieldRef"], container, sources)
    kind, reference = (
        ("Secret", origin["secretKeyRef"])
        if "secretKeyRef" in origin
        else ("ConfigMap", origin.get("configMapKeyRef") or {})
    )
    name, key = reference.get("name", ""), reference.get("key", "")
    found = _object(kind, name, sources)
    if found is not None and key in found:
        return found[key].decode(errors="replace")
    if reference.get("optional"):
        return None
    namespace = sources.pod["metadata"].get("namespace", "")
    raise CannotStart(
        _CONFIG_ERROR,
        f'{kind.lower()} "{name}" not found'
        if found is None
        else f"couldn't find key {key} in {kind} {namespace}/{name}",
    )


def field_of(path: str, sources: EnvironmentSources) -> str:
    """A field of the pod, as `fieldRef` names it.  Raises CannotStart for any other."""
    metadata = sources.pod["metadata"]
    if subscript := _SUBSCRIPT.fullmatch(path):
        return str((metadata.get(subscript[1]) or {}).get(subscript[2], ""))
    match path:
        case "metadata.name" | "metadata.namespace" | "metadata.uid":
            return str(metadata.get(path.removeprefix("metadata."), ""))
        case "spec.nodeName":
            return sources.node
        case "spec.serviceAccountName":
            return str(sources.pod["spec"].get("serviceAccountName", "default"))
        case "status.podIP" | "status.podIPs":
            return sources.ip
        case "status.hostIP" | "status.hostIPs":
            return "127.0.0.1"
        case _:
            raise CannotStart(_CONFIG_ERROR, f"field path {path!r} of a fieldRef is not supported")


def _amount_of(reference: Manifest, container: Manifest, sources: EnvironmentSources) -> str:
    named = reference.get("containerName")
    owner = next(
        (other for other in sources.pod["spec"]["containers"] if other["name"] == named), container
    )
    section, _, resource = str(reference.get("resource", "")).partition(".")
    amount = ((owner.get("resources") or {}).get(section) or {}).get(resource, "0")
    divisor = Quantity(str(reference.get("divisor") or "1")).amount or 1
    return str(math.ceil(Quantity(str(amount)).amount / divisor))
