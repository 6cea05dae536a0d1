"""Render the KEDA ScaledObject of one service, and read one that is there."""

from hearth import names, trigger
from hearth.api.llmservice import LLMService
from hearth.api.meta import Manifest
from hearth.cluster import kinds
from hearth.reconcile.render.release import Release
from hearth.reconcile.spec import spec_errors
from hearth.reconcile.spec.spec_errors import SpecError

_PAUSED_REPLICAS = "autoscaling.keda.sh/paused-replicas"
_PAUSED = ("autoscaling.keda.sh/paused", "autoscaling.keda.sh/paused-scale-out")
"""With any of them a service at zero is meant to stay there."""
_FALSE = ("0", "f", "false")


def render(service: LLMService, *, release: Release) -> Manifest:
    """The ScaledObject without owner and hash.

    KEDA copies its labels and annotations to the HPA: nothing here changes but with the spec.
    Raises SpecError for a metric or connection that is not built.
    """
    _check(service, release)
    key, scaling = service.key, service.spec.scaling
    window_s = int(scaling.scale_down_stabilization)
    # Above zero KEDA only lifts to the minimum, and warns of settings that then have no meaning.
    # Whole seconds to KEDA; at zero it would ask without a pause.
    polling_s = max(1, round(release.polling_interval_s))
    to_zero = {"pollingInterval": polling_s, "cooldownPeriod": window_s}
    tls = scaling.external_scaler.tls if scaling.external_scaler else None
    metadata = trigger.render(
        trigger.Trigger(
            target=scaling.target,
            uid=service.metadata.uid,
            server_secret=tls.server_secret_name if tls else "",
        ),
        scaler_address=f"{names.scaler_host(key)}:{release.scaler_tls_port}"
        if tls
        else release.scaler_address,
    )
    authentication = (
        {
            "authenticationRef": {
                "name": tls.authentication_ref.name,
                "kind": tls.authentication_ref.kind,
            }
        }
        if tls
        else {}
    )
    return {
        "apiVersion": kinds.SCALED_OBJECT.api_version,
        "kind": kinds.SCALED_OBJECT.kind,
        "metadata": {
            "name": names.scaled_object(key),
            "namespace": key.namespace,
            "labels": {
                **names.labels(key),
                "scaledobject.keda.sh/name": names.scaled_object(key),
            },
        },
        "spec": {
            "scaleTargetRef": {
                "apiVersion": kinds.DEPLOYMENT.api_version,
                "kind": kinds.DEPLOYMENT.kind,
                "name": names.deployment(key),
            },
            "minReplicaCount": scaling.min,
            "maxReplicaCount": scaling.max,
            **(to_zero if scaling.min == 0 else {}),
            "advanced": {
                "horizontalPodAutoscalerConfig": {
                    "behavior": {"scaleDown": {"stabilizationWindowSeconds": window_s}}
                }
            },
            "triggers": [{"type": "external-push", "metadata": metadata, **authentication}],
        },
    }


def render_service(service: LLMService, *, release: Release) -> Manifest:
    """The Service that KEDA dials for mutual TLS: a name of the scaler that all services share."""
    key = service.key
    return {
        "apiVersion": kinds.SERVICE.api_version,
        "kind": kinds.SERVICE.kind,
        "metadata": {
            "name": names.scaler_service(key),
            "namespace": key.namespace,
            "labels": names.labels(key),
        },
        "spec": {
            "type": "ExternalName",
            "externalName": release.scaler_host,
            "ports": [{"name": "grpc", "port": release.scaler_tls_port, "protocol": "TCP"}],
        },
    }


def server_secret(service: LLMService) -> str | None:
    """The Secret with the scaler's certificate, from the spec; None: plaintext."""
    external = service.spec.scaling.external_scaler
    return external.tls.server_secret_name if external and external.tls else None


def server_secret_of(scaled_object: Manifest) -> str | None:
    """The same of a ScaledObject that is there: what KEDA uses now, whatever the spec is."""
    for one in scaled_object["spec"].get("triggers", ()):
        try:
            return trigger.read(one.get("metadata") or {}).server_secret or None
        except trigger.BadTrigger:
            continue
    return None


def paused(scaled_object: Manifest | None) -> bool:
    """Whether someone paused KEDA for this service: then nobody may scale it in KEDA's place."""
    if scaled_object is None:
        return False
    annotations = scaled_object["metadata"].get("annotations") or {}
    # KEDA takes any value but a false one for yes; of replicas zero is a number like any other.
    return _PAUSED_REPLICAS in annotations or any(
        name in annotations and annotations[name].lower() not in _FALSE for name in _PAUSED
    )


def _check(service: LLMService, release: Release) -> None:
    scaling = service.spec.scaling
    if scaling.metric != "queueDepth":
        raise _error("metric", f"{scaling.metric} is not supported; use queueDepth")
    if release.scaler and server_secret(service):
        raise _error(
            "externalScaler.tls",
            "needs a cluster, where KEDA has a client certificate and finds the service's name in"
            " DNS; remove it here",
        )


def _error(field: str, problem: str) -> SpecError:
    return SpecError(spec_errors.SCALED_OBJECT, f"spec.scaling.{field}: {problem}")
