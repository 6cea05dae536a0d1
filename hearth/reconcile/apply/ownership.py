"""Which service an object belongs to: by uid along the chain of owners, never by a label alone."""

import hashlib
import json
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hearth import names
from hearth.api.llmservice import LLMService
from hearth.api.meta import Manifest
from hearth.cluster import kinds
from hearth.reconcile.apply import drift

_HASH_LABEL = "pod-template-hash"
_LONGEST_BASE = 58
"""Longest prefix that the API server keeps of `<owner>-` in a generated name."""
_TEMPLATE = "template"
_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """The Deployment and pods of one service."""

    deployment: Manifest | None = None
    """The service's own; None where there is none, or somebody else's of that name."""
    pods: tuple[Manifest, ...] = ()
    foreign: tuple[str, ...] = ()
    """What runs with the service's labels and is not of its Deployment, for a warning."""


def controller(manifest: Manifest) -> Mapping[str, Any]:
    """The owner reference of the controller; empty without one."""
    owners = manifest["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), {})


def controlled(service: LLMService, manifest: Manifest) -> bool:
    """Whether this very LLMService controls it, and not one of the same name before."""
    uid = controller(manifest).get("uid")
    return bool(uid) and uid == service.metadata.uid


def of_former_controller(service: LLMService, manifest: Manifest) -> bool:
    """Whether this very LLMService controls it, and not Hearth wrote it: another project's
    controller did."""
    annotations = manifest["metadata"].get("annotations") or {}
    return controlled(service, manifest) and names.HASH_ANNOTATION not in annotations


def adoptable(service: LLMService, manifest: Manifest) -> bool:
    """Whether Hearth wrote it for a service of this name, and it has no controller any more.

    So is what a backup tool restores, since it drops owner references, and what
    `kubectl delete --cascade=orphan` leaves behind.
    """
    metadata = manifest["metadata"]
    labels = metadata.get("labels") or {}
    own = names.selector(service.key).items() <= labels.items()
    written = names.HASH_ANNOTATION in (metadata.get("annotations") or {})
    return own and written and not controller(manifest)


def trim_replica_set(replica_set: Manifest) -> Manifest:
    """The parts of a ReplicaSet that `backend` needs: there is one for each old revision, too."""
    metadata = replica_set["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "labels", "ownerReferences")
    return {
        "apiVersion": kinds.REPLICA_SET.api_version,
        "kind": kinds.REPLICA_SET.kind,
        "metadata": {name: metadata[name] for name in kept if name in metadata},
        _TEMPLATE: _digest(replica_set["spec"].get("template") or {}),
    }


def same_replica_set(old: Manifest | None, new: Manifest | None) -> bool:
    """Whether two trimmed versions have the same owner and template; the scale does not count."""
    if old is None or new is None:
        return old is new
    return controller(old) == controller(new) and old[_TEMPLATE] == new[_TEMPLATE]


def backend(
    service: LLMService,
    deployment: Manifest | None,
    pods: Iterable[Manifest],
    *,
    replica_sets: Iterable[Manifest] | None,
    known: Container[str] = (),
) -> Backend:
    """The Deployment and pods that belong to this very service.

    `replica_sets`: trimmed by `trim_replica_set`; None where Deployments own pods directly (one
    machine).
    A pod is the service's only if

    * this LLMService's uid controls the Deployment, that one's uid the ReplicaSet, that one's uid
      the pod;
    * it is called as what controls it calls its pods: Kubernetes adopts whatever bears all labels;
    * it is younger than the service, or made from the Deployment's present template: with an
      adopted Deployment, or ReplicaSet, come pods that serve another model.  A pod of which that
      was so once (`known`, by uid) stays the service's while another template is rolled out.
    """
    if deployment is None or not controlled(service, deployment):
        return Backend()
    sets = None if replica_sets is None else {one["metadata"]["uid"]: one for one in replica_sets}
    own: list[Manifest] = []
    foreign: list[str] = []
    for pod in pods:
        owner = pod if sets is None else sets.get(controller(pod).get("uid", ""))
        if not _owned_by(pod, owner, deployment):
            foreign.extend(_foreign(pod, owner, deployment))
        elif (
            pod["metadata"]["uid"] in known
            or _is_younger(pod, service)
            or _has_current_template(pod, owner, deployment)
        ):
            own.append(pod)
    return Backend(
        deployment=deployment, pods=tuple(own), foreign=tuple(dict.fromkeys(sorted(foreign)))
    )


def warnings(service: LLMService, foreign: tuple[str, ...]) -> tuple[str, ...]:
    """A sentence for a condition about pods with the service's labels that are not its own."""
    if not foreign:
        return ()
    more = f" and {len(foreign) - _NAMED} more" if len(foreign) > _NAMED else ""
    return (
        f"the labels of this service are also on {', '.join(foreign[:_NAMED])}{more}: Hearth"
        f" sends no requests there, but Service {names.backend_service(service.key)} leads there"
        f" too; take the label {names.SERVICE_LABEL} off, or delete it",
    )


def _owned_by(pod: Manifest, owner: Manifest | None, deployment: Manifest) -> bool:
    """`owner`: the ReplicaSet between the two; the pod itself where there is none between."""
    if owner is None or controller(owner).get("uid") != deployment["metadata"]["uid"]:
        return False
    by = controller(pod).get("name", "")
    return bool(pod["metadata"]["name"].startswith(f"{by}-"[:_LONGEST_BASE]))


def _is_younger(pod: Manifest, service: LLMService) -> bool:
    """Times are whole seconds, set by the API server: an equal one decides nothing."""
    created: str = pod["metadata"].get("creationTimestamp", "")
    return created > service.metadata.creation_timestamp


def _has_current_template(pod: Manifest, owner: Manifest | None, deployment: Manifest) -> bool:
    template = deployment["spec"]["template"]
    if owner is None or owner is pod:
        return drift.matches(template.get("spec"), pod["spec"])
    return bool(owner[_TEMPLATE] == _digest(template))


def _foreign(pod: Manifest, owner: Manifest | None, deployment: Manifest) -> Iterable[str]:
    metadata = pod["metadata"]
    over = (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")
    if metadata.get("deletionTimestamp") or over:
        return
    by = controller(pod)
    if owner is not None and owner is not pod and controller(owner):
        by = controller(owner)
    if not by or by.get("uid") == deployment["metadata"]["uid"]:
        yield f"Pod {metadata['name']}"
    elif by.get("kind") == kinds.REPLICA_SET.kind and owner is None:
        return  # not in the cache yet
    elif by.get("kind") == kinds.JOB.kind or by.get("name") == deployment["metadata"]["name"]:
        return  # a Job's work, or a Deployment of before that is on its way out
    else:
        yield f"{by.get('kind')} {by.get('name')}"


def _digest(template: Manifest) -> str:
    """As Kubernetes compares templates: without the label that it adds itself."""
    metadata = template.get("metadata") or {}
    labels = {k: v for k, v in (metadata.get("labels") or {}).items() if k != _HASH_LABEL}
    plain = {"labels": labels, "annotations": metadata.get("annotations") or {}}
    text = json.dumps([plain, template.get("spec")], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
