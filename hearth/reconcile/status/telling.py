"""Write Events about a service."""

import datetime
import logging
from collections.abc import Awaitable, Callable

from hearth import names
from hearth.api.llmservice import LLMService
from hearth.api.meta import Manifest, ServiceKey, rfc3339
from hearth.cluster import kinds
from hearth.cluster.interface import Cluster, ClusterError
from hearth.reconcile.caches import Caches
from hearth.reconcile.spec import parse
from hearth.reconcile.status.transitions import ServiceEvent

logger = logging.getLogger(__name__)

_LONGEST = 1024
"""What Kubernetes takes as an Event's message."""


async def record(
    cluster: Cluster, service: LLMService, event: ServiceEvent, *, wall: datetime.datetime
) -> None:
    """One Event.  That it cannot be written is logged, and no reason to fail."""
    try:
        await cluster.create(render(service, event, wall=wall))
    except ClusterError as error:
        logger.warning(
            "event not written",
            extra={"service": str(service.key), "reason": event.reason, "error": str(error)},
        )


def warning_recorder(
    cluster: Cluster, caches: Caches
) -> Callable[[ServiceKey, str, str], Awaitable[None]]:
    """How others warn of a service by its key: `await warn(key, reason, message)`."""

    async def warn(key: ServiceKey, reason: str, message: str) -> None:
        for manifest in caches.services(key):
            service, _ = parse.parse(manifest)
            wall = datetime.datetime.now(datetime.UTC)
            await record(cluster, service, ServiceEvent("Warning", reason, message), wall=wall)

    return warn


def render(service: LLMService, event: ServiceEvent, *, wall: datetime.datetime) -> Manifest:
    """The Event; its name is unique by the microsecond."""
    stamp = rfc3339(wall)
    return {
        "apiVersion": kinds.EVENT.api_version,
        "kind": kinds.EVENT.kind,
        "metadata": {
            "name": f"{service.key.name}.{int(wall.timestamp() * 1e6):x}",
            "namespace": service.key.namespace,
        },
        "involvedObject": {
            "apiVersion": service.api_version,
            "kind": service.kind,
            "namespace": service.key.namespace,
            "name": service.key.name,
            "uid": service.metadata.uid,
        },
        "type": event.type,
        "reason": event.reason,
        "message": event.message[:_LONGEST],
        "source": {"component": names.MANAGER},
        "reportingComponent": names.MANAGER,
        "reportingInstance": "",
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
