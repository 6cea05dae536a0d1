"""The name, labels and annotations of every object Hearth owns."""

import hashlib

from hearth.api import groups
from hearth.api.meta import ServiceKey

DOMAIN = "serving.hearth.dev"

MANAGER = "hearth"
STATUS_MANAGER = "hearth-status"
REPLICAS_MANAGER = "hearth-replicas"
ROLE_MANAGER = "hearth-role"
LOADING_MANAGER = "hearth-loading"

SERVICE_LABEL = f"{DOMAIN}/service"
RUNTIME_LABEL = f"{DOMAIN}/runtime"
METRICS_LABEL = f"{DOMAIN}/metrics"
LEADER_LABEL = f"{DOMAIN}/role"
"""On the leader's own Pod, with the value LEADER: the release's Services select it."""
LEADER = "leader"
PREWARM_LABEL = f"{DOMAIN}/prewarm"
"""On the Job that fetches weights and its pods: the service that they are for."""
SOURCE_ANNOTATION = f"{DOMAIN}/source"
STRATEGY_ANNOTATION = f"{DOMAIN}/strategy"
"""Both on that Job: what it was created with."""
HASH_ANNOTATION = f"{DOMAIN}/spec-hash"
LEFTOVERS_ANNOTATION = f"{DOMAIN}/leftovers"
"""On a service's gateway Service, while objects of another project's controller are there."""
LOADING_ANNOTATION = f"{DOMAIN}/loading"
"""On a pod that is marked while it loads; says that the marks beside it are Hearth's."""

CONTAINER = "serving"
WAIT_CONTAINER = "wait-for-prewarm"
PREWARM_CONTAINER = "prewarm"
PULL_CONTAINER = "pull-oci-model"
ENGINE_KEY = "HEARTH_ENGINE_KEY"
"""Variable of a container whose engine asks for a key of its own."""
CACHE_VOLUME = "model-cache"
BACKEND_PORT = "http"
"""Port of a backend's Service, whatever the container calls its own: ServiceMonitors and
NetworkPolicies name it."""


def deployment(key: ServiceKey) -> str:
    return key.name


def backend_service(key: ServiceKey) -> str:
    return f"{key.name}-backend"


def backend_policy(key: ServiceKey) -> str:
    return f"{key.name}-backend"


def gateway_service(key: ServiceKey) -> str:
    return key.name


def scaler_service(key: ServiceKey) -> str:
    return f"{key.name}-scaler"


def scaler_host(key: ServiceKey) -> str:
    """The name under which KEDA dials, and checks, a service that has mutual TLS."""
    return f"{scaler_service(key)}.{key.namespace}.svc"


def scaled_object(key: ServiceKey) -> str:
    return key.name


def cache_pvc(key: ServiceKey) -> str:
    return f"{key.name}-cache"


def prewarm_job(key: ServiceKey) -> str:
    return f"{key.name}-prewarm"


def prewarm_labels(key: ServiceKey) -> dict[str, str]:
    """Labels of the pods that fetch a service's weights.  None of them selects its backend."""
    return {
        "app.kubernetes.io/name": prewarm_job(key),
        "app.kubernetes.io/managed-by": MANAGER,
        PREWARM_LABEL: key.name,
    }


def release_pods(release: str) -> dict[str, str]:
    """Labels of the release's own pods, as its chart sets them."""
    return {"app.kubernetes.io/name": "hearth", "app.kubernetes.io/instance": release}


def release_gateway(release: str) -> str:
    return f"{release}-gateway"


def release_scaler(release: str) -> str:
    return f"{release}-scaler"


def release_admin(release: str) -> str:
    return f"{release}-admin"


def endpoint_url(key: ServiceKey) -> str:
    """What `status.endpointURL` says: the in-cluster base URL of an OpenAI client."""
    return f"http://{key.name}.{key.namespace}.svc/v1"


def label_value(text: str) -> str:
    """`text` as a legal label value: cut with a hash where it is longer than 63."""
    if len(text) <= 63:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{text[:54].rstrip('-._')}-{digest}"


def selector(key: ServiceKey) -> dict[str, str]:
    """The selector of a Deployment that Hearth creates.  Immutable there: never change it."""
    return {SERVICE_LABEL: key.name, "app.kubernetes.io/managed-by": MANAGER}


def pod_selector(key: ServiceKey) -> dict[str, str]:
    """What Services, policies and informers know a service's backend pods by.

    No more than that: pods of a Deployment that another controller made keep its labels too.
    """
    return {SERVICE_LABEL: key.name}


def group_labels(key: ServiceKey, group: str, *, runtime: str) -> dict[str, str]:
    """More labels of pods in the second group, as its own controller sets them: NetworkPolicies and
    dashboards that came along select by them."""
    if group != groups.NOCTAYA:
        return {}
    return {f"{group}/llmservice": key.name, f"{group}/runtime": label_value(runtime)}


def labels(key: ServiceKey, *, runtime: str | None = None) -> dict[str, str]:
    """Labels of everything rendered for a service; `runtime` only where one is used."""
    return {
        "app.kubernetes.io/name": key.name,
        **selector(key),
        **({RUNTIME_LABEL: label_value(runtime)} if runtime else {}),
    }
