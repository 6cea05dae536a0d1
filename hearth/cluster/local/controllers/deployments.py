"""A Deployment and its pods to the pods to start and stop, and to its status."""

import datetime
import hashlib
import json
import math
from collections.abc import Callable
from typing import Any

from hearth.api.meta import Manifest
from hearth.cluster.local.controllers import owned_pods, rollout
from hearth.cluster.local.controllers.owned_pods import Decision

HASH_LABEL = "pod-template-hash"
MANAGER = "deployment-controller"

_REPLACE_FAILED_S = 10.0
"""A pod that failed as a whole is replaced at most this often."""


def decide(deployment: Manifest, pods: list[Manifest], *, now: datetime.datetime) -> Decision:
    """The next step towards the spec, as the Deployment controller of Kubernetes would take it.

    `pods` are those that the Deployment owns.  The strategy is RollingUpdate.  Pods that are being
    deleted count no more, so their replacements start at once.
    """
    spec = deployment["spec"]
    wanted: int = spec["replicas"]
    if deployment["metadata"].get("deletionTimestamp"):
        return Decision(status=deployment.get("status", {}))
    current = template_hash(deployment)
    staying = [pod for pod in pods if not owned_pods.leaving(pod)]
    living = [pod for pod in staying if not owned_pods.over(pod)]
    failed = sorted(filter(owned_pods.over, staying), key=owned_pods.created)
    new = [pod for pod in living if _hash(pod) == current]
    old = [pod for pod in living if _hash(pod) != current]

    surge, unavailable = bounds(spec["strategy"], wanted)
    ready = [pod for pod in living if owned_pods.ready(pod)]
    least = max(0, wanted - unavailable)
    doomed = _superseded(new, old, ready, least=least) if wanted else old
    count = max(0, min(wanted, wanted + surge - len(old)) - len(new))
    rest_s = 0.0
    if failed and count:
        age_s = now.timestamp() - owned_pods.created(failed[-1])
        rest_s = max(0.0, _REPLACE_FAILED_S - age_s)
        count = 0 if rest_s else count

    status = rollout.status(
        deployment,
        rollout.Counts(
            replicas=len(living),
            updated=len(new),
            ready=len(ready),
            least=least,
        ),
        template=current,
        now=now,
    )
    moments = [rest_s, rollout.deadline_in_s(deployment, status, now)]
    return Decision(
        create=[owned_pods.make(deployment, suffix=current, labels={HASH_LABEL: current})] * count,
        delete=[
            *owned_pods.removal_order(new)[: max(0, len(new) - wanted)],
            *doomed,
            *failed[:-1],
            *(failed[-1:] if count or not wanted else []),
        ],
        status=status,
        requeue_after_s=min((moment for moment in moments if moment), default=None),
    )


def template_hash(deployment: Manifest) -> str:
    """What tells the pods of one template from those of another."""
    text = json.dumps(deployment["spec"]["template"], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def bounds(strategy: dict[str, Any], wanted: int) -> tuple[int, int]:
    """maxSurge and maxUnavailable as numbers; at least one of them lets a rollout move."""
    rolling = strategy.get("rollingUpdate", {})
    surge = _share(rolling.get("maxSurge", "25%"), wanted, math.ceil)
    unavailable = _share(rolling.get("maxUnavailable", "25%"), wanted, math.floor)
    return (surge, unavailable) if surge or unavailable else (0, 1)


def _superseded(
    new: list[Manifest], old: list[Manifest], ready: list[Manifest], *, least: int
) -> list[Manifest]:
    """Old pods that may go now: those that serve nobody, and as many more as can be spared.

    `least` is how many must stay ready.  Old pods that are not ready go first, but no more of them
    than leave enough if the new ones that are not ready either never come.
    """
    serving = {pod["metadata"]["uid"] for pod in ready}
    coming = sum(pod["metadata"]["uid"] not in serving for pod in new)
    spare = max(0, len(old) + len(new) - least - coming)
    ranked = owned_pods.removal_order(old)
    idle = [pod for pod in ranked if pod["metadata"]["uid"] not in serving][:spare]
    spare = max(0, len(ready) - least)
    return idle + [pod for pod in ranked if pod["metadata"]["uid"] in serving][:spare]


def _share(value: int | str, of: int, rounded: Callable[[float], int]) -> int:
    if isinstance(value, int):
        return value
    return rounded(int(value.rstrip("%")) * of / 100)


def _hash(pod: Manifest) -> str | None:
    value: str | None = pod["metadata"].get("labels", {}).get(HASH_LABEL)
    return value
