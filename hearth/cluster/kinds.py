"""The kinds Hearth touches."""

from hearth.api import groups
from hearth.cluster.interface import Kind

DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments")
REPLICA_SET = Kind("apps", "v1", "ReplicaSet", "replicasets")
SERVICE = Kind("", "v1", "Service", "services")
POD = Kind("", "v1", "Pod", "pods")
SECRET = Kind("", "v1", "Secret", "secrets")
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps")
PVC = Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
EVENT = Kind("", "v1", "Event", "events")
JOB = Kind("batch", "v1", "Job", "jobs")
NETWORK_POLICY = Kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")
POD_DISRUPTION_BUDGET = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases")
SCALED_OBJECT = Kind("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects")
TRIGGER_AUTHENTICATION = Kind(
    "keda.sh", "v1alpha1", "TriggerAuthentication", "triggerauthentications"
)
DEFINITION = Kind(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    namespaced=False,
)
"""Only looked at; nobody's manifest that Hearth would take."""


def llm_service(group: str) -> Kind:
    return Kind(group, groups.VERSION, "LLMService", "llmservices")


def inference_runtime(group: str) -> Kind:
    return Kind(group, groups.VERSION, "InferenceRuntime", "inferenceruntimes", namespaced=False)


CUSTOM = tuple(kind(group) for group in groups.GROUPS for kind in (llm_service, inference_runtime))
ALL = (
    DEPLOYMENT, REPLICA_SET, SERVICE, POD, SECRET, CONFIG_MAP, PVC, EVENT, JOB, LEASE,
    SCALED_OBJECT, TRIGGER_AUTHENTICATION, NETWORK_POLICY, POD_DISRUPTION_BUDGET, *CUSTOM,
)  # fmt: skip

_BY_NAME = {(kind.api_version, kind.kind): kind for kind in ALL}


def of(manifest: dict[str, object]) -> Kind:
    """The kind of a manifest.  Raises KeyError with both names for one Hearth does not know."""
    return _BY_NAME[str(manifest.get("apiVersion")), str(manifest.get("kind"))]
