"""Which service caches in a node's folder that is two services' by name.

Namespace `a-b` with a service `c`, and `a` with `b-c`, would be one folder with two writers.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from hearth.api import groups
from hearth.api.llmservice import LLMService
from hearth.api.meta import Manifest, ServiceKey, key_of
from hearth.cache import volume


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFolder:
    """Where one service caches on its nodes."""

    apart: bool = False
    """Whether it is a folder that no other service can have by name."""
    former: bool = False
    """Whether it is the one that the first reference's controller gave the service."""
    warnings: tuple[str, ...] = ()


def index_keys(manifest: Manifest) -> Iterator[str]:
    """For an index: the folder that an LLMService has by name, where another may have the same."""
    spec = _part(manifest, "spec")
    uri = _part(_part(spec, "model"), "source").get("uri")
    staged = isinstance(uri, str) and uri.startswith("pvc://")
    group = str(manifest.get("apiVersion", "")).partition("/")[0]
    if _part(spec, "cache").get("strategy") == "HostPath" and group in groups.GROUPS and not staged:
        yield volume.host_folder(key_of(manifest), group, former=True)


def choose(
    service: LLMService, sharing: Iterable[Manifest], deployment: Manifest | None
) -> HostFolder:
    """`sharing`: every LLMService with the same index key, this one too.  `deployment`: its own.

    The older service has the folder.  The other gets one apart, and keeps it when the older one is
    gone: what it has downloaded is there.  In the first group each has one of its own, and the one
    of its reference for as long as its Deployment mounts that.
    """
    own = volume.host_folder(service.key, service.group)
    shared = volume.host_folder(service.key, service.group, former=True)
    apart = volume.host_folder(service.key, service.group, apart=True)
    mounted = _mounted(deployment)
    former = own != shared and shared in mounted
    if own != shared and not former:
        return HostFolder()
    others = [one for one in sharing if key_of(one) != service.key]
    older = any(_age(one) < (service.metadata.creation_timestamp, service.key) for one in others)
    leaves = older or (apart != own and apart in mounted)
    chosen = HostFolder(apart=leaves, former=former and not leaves)
    if not others:
        return chosen
    named = ", ".join(sorted(str(key_of(one)) for one in others))
    warning = (
        f"spec.cache: by its name, {shared} on the nodes would be the folder of LLMService {named}"
        f" as well; this service's is {apart if leaves else shared}, and no two write to one."
        " Rename one of them"
    )
    return replace(chosen, warnings=(warning,))


def _age(manifest: Manifest) -> tuple[str, ServiceKey]:
    return manifest["metadata"].get("creationTimestamp", ""), key_of(manifest)


def _mounted(deployment: Manifest | None) -> set[str]:
    template = _part(_part(_part(deployment or {}, "spec"), "template"), "spec")
    volumes = template.get("volumes") or ()
    return {one["hostPath"].get("path", "") for one in volumes if one.get("hostPath")}


def _part(manifest: Any, name: str) -> dict[str, Any]:
    """A manifest need not have the shape that the schema asks for."""
    found = manifest.get(name) if isinstance(manifest, dict) else None
    return found if isinstance(found, dict) else {}
