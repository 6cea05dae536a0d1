"""Render the NetworkPolicy of a service with authentication: its pods are reached by the gateway.

The kubelet's probes come from the pod's own node, which no policy keeps out.
"""

from hearth import names
from hearth.api.llmservice import LLMService
from hearth.api.meta import Manifest
from hearth.cluster import kinds
from hearth.reconcile.render.release import Release


def has_authentication(service: LLMService) -> bool:
    """Whether the service asks for an API key."""
    return service.spec.endpoint.authentication is not None


def render(service: LLMService, *, release: Release) -> Manifest:
    """Only pods of the gateway, and of namespaces that scrape metrics, may reach the backend."""
    key = service.key
    return {
        "apiVersion": kinds.NETWORK_POLICY.api_version,
        "kind": kinds.NETWORK_POLICY.kind,
        "metadata": {
            "name": names.backend_policy(key),
            "namespace": key.namespace,
            "labels": names.labels(key),
        },
        "spec": {
            "podSelector": {"matchLabels": names.pod_selector(key)},
            "policyTypes": ["Ingress"],
            "ingress": [
                {
                    "from": [
                        {
                            **_namespace(release.namespace),
                            "podSelector": {"matchLabels": names.release_pods(release.name)},
                        },
                        *map(_namespace, release.scrape_namespaces),
                    ]
                }
            ],
        },
    }


def _namespace(name: str) -> Manifest:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}
