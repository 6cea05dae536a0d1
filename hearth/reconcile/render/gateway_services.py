"""Render the Services under whose names clients in the cluster reach the gateway."""

from collections.abc import Iterable

from hearth import names
from hearth.api.llmservice import LLMService
from hearth.api.meta import Manifest
from hearth.cluster import kinds
from hearth.reconcile.render.release import Release

PORT = 80


def render(service: LLMService, *, release: Release) -> Manifest:
    """The service's own address: `http://<name>.<namespace>.svc/v1`."""
    key = service.key
    return _alias(
        {
            "name": names.gateway_service(key),
            "namespace": key.namespace,
            "labels": names.labels(key),
        },
        release,
    )


def render_shared(namespace: str, services: Iterable[Manifest], *, release: Release) -> Manifest:
    """The namespace's shared address, where a request's `model` names the service.

    All services of the namespace own it, none controls it: it goes with the last one.  They come
    as they are: to parse a thousand for each new one would hold up the event loop.
    """
    owners = [
        {
            "apiVersion": service["apiVersion"],
            "kind": service["kind"],
            "name": service["metadata"]["name"],
            "uid": service["metadata"]["uid"],
        }
        for service in services
        if service["metadata"].get("uid")
    ]
    owners.sort(key=lambda owner: str(owner["uid"]))
    return _alias(
        {
            "name": release.shared_service,
            "namespace": namespace,
            "labels": {
                "app.kubernetes.io/name": release.shared_service,
                "app.kubernetes.io/managed-by": names.MANAGER,
            },
            **({"ownerReferences": owners} if owners else {}),
        },
        release,
    )


def _alias(metadata: Manifest, release: Release) -> Manifest:
    return {
        "apiVersion": kinds.SERVICE.api_version,
        "kind": kinds.SERVICE.kind,
        "metadata": metadata,
        "spec": {
            "type": "ExternalName",
            "externalName": release.gateway_host,
            "ports": [{"name": "http", "port": PORT, "protocol": "TCP"}],
        },
    }
