"""Mark pods that load, so that no autoscaler of nodes removes their node meanwhile.

The marks are on the pod itself: in the template they would roll the pods out to come and to go.
"""

from collections.abc import Iterable, Iterator

from hearth import names
from hearth.api.meta import Manifest
from hearth.cluster import kinds
from hearth.reconcile.status import pod_failures

MARKS = {
    "karpenter.sh/do-not-disrupt": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
}


def writes(pods: Iterable[Manifest], *, failed: bool) -> Iterator[Manifest]:
    """Pods to apply with the manager names.LOADING_MANAGER, so that these are marked:

    | pod                                                  | marked        |
    | ---------------------------------------------------- | ------------- |
    | on a node, not Ready, and the backend has not failed | yes           |
    | going away, evicted or ended                         | as it was     |
    | any other                                            | no            |

    What the pod says itself of a mark's key stays as it is.
    """
    for pod in pods:
        if pod["metadata"].get("deletionTimestamp") or _ended(pod):
            continue
        annotations = pod["metadata"].get("annotations") or {}
        marked = names.LOADING_ANNOTATION in annotations
        loads = bool(pod["spec"].get("nodeName")) and not pod_failures.is_ready(pod) and not failed
        if loads and not marked:
            missing = {key: text for key, text in MARKS.items() if key not in annotations}
            yield _applied(pod, {**missing, names.LOADING_ANNOTATION: "true"})
        elif marked and not loads:
            yield _applied(pod, {})


def _ended(pod: Manifest) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")


def _applied(pod: Manifest, annotations: dict[str, str]) -> Manifest:
    metadata = pod["metadata"]
    return {
        "apiVersion": kinds.POD.api_version,
        "kind": kinds.POD.kind,
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],  # a pod that went is not created anew
            "annotations": annotations,
        },
    }
