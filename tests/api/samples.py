"""Custom resources as people write them, for the tests of models, schemas and parsing."""

from copy import deepcopy

from hearth.api import groups
from hearth.api.meta import Manifest

GONE = object()
"""As a change: the field is left out."""


def service(group=groups.HEARTH, *, name="chat", **changes):
    """A sound LLMService; changes are `path__to__field=value` below its spec."""
    spec = {
        "model": {"source": {"uri": "hf://acme/tiny"}},
        "runtime": {"name": "vllm-nvidia"},
    }
    return _manifest("LLMService", group, {"name": name, "namespace": "ai"}, spec, changes)


def runtime(group=groups.HEARTH, *, name="vllm-nvidia", **changes):
    """A sound InferenceRuntime, likewise."""
    spec = {
        "vendor": "nvidia",
        "container": {"image": "vllm/vllm-openai:v1"},
        "accelerator": {"resourceName": "nvidia.com/gpu"},
    }
    return _manifest("InferenceRuntime", group, {"name": name}, spec, changes)


def _manifest(kind, group, metadata, spec, changes) -> Manifest:
    spec = deepcopy(spec)
    for path, value in changes.items():
        *above, last = path.split("__")
        node = spec
        for step in above:
            node = node.setdefault(step, {})
        if value is GONE:
            del node[last]
        else:
            node[last] = value
    return {
        "apiVersion": f"{group}/{groups.VERSION}",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    }


STORED = {
    "model": {"source": {"uri": "hf://acme/tiny"}},
    "runtime": {"name": "vllm-nvidia"},
    "resources": {"accelerators": 1},
    "scaling": {
        "min": 0,
        "max": 1,
        "metric": "queueDepth",
        "target": 10,
        "activationTimeout": "5m",
        "scaleDownStabilization": "5m",
        "drainTimeout": "2m",
    },
    "cache": {"strategy": "NodeLocalPVC", "prewarm": False},
    "endpoint": {
        "openAICompatible": True,
        "maxQueue": 100,
        "coldStart": {"mode": "keepalive", "heartbeatInterval": "10s"},
    },
}
"""The spec of `service()`, as an API server stores it."""

OCI = "oci://registry.example/acme/tiny@sha256:" + "0" * 64

_SERVICES = [
    service(
        group,
        model={"source": {"uri": OCI, "secretRef": {"name": "pull"}}},
        runtime={"selector": {"vendor": ["nvidia", "cpu"]}, "argsOverride": ["--max-model-len=1"]},
        resources={
            "accelerators": 2,
            "fraction": {"memory": "8Gi", "cores": 2},
            "cpu": 4,
            "memory": "32Gi",
        },
        scaling={
            "min": 1,
            "max": 4,
            "metric": "kvCacheUtil",
            "target": 3,
            "activationTimeout": "10m",
            "scaleDownStabilization": "90s",
            "drainTimeout": "30s",
            "externalScaler": {
                "tls": {
                    "serverSecretName": "tls",
                    "authenticationRef": {"name": "keda", "kind": "ClusterTriggerAuthentication"},
                }
            },
        },
        cache={
            "strategy": "SharedPVC",
            "size": "200Gi",
            "storageClassName": "fast",
            "prewarm": True,
        },
        endpoint={
            "openAICompatible": False,
            "maxQueue": 7,
            "resources": {
                "requests": {"cpu": "100m", "memory": "64Mi"},
                "limits": {"cpu": 1, "memory": "1Gi"},
            },
            "authentication": {"secretRef": {"name": "key", "key": "token"}},
            "coldStart": {"mode": "reject", "heartbeatInterval": "5s"},
        },
        imagePullSecrets=[{"name": "registry"}, {}],
    )
    for group in groups.GROUPS
]
_RUNTIMES = [
    runtime(
        group,
        family="vllm",
        vendor="ascend",
        priority=-3,
        container={
            "image": "engine:1",
            "args": ["--model={{ .Model.Path }}"],
            "env": [
                {"name": "A", "value": "b"},
                {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            ],
            "port": {"name": "api", "containerPort": 9000},
        },
        accelerator={
            "resourceName": "huawei.com/Ascend910",
            "sharing": {"supported": True},
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [
                {"key": "npu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
                {"key": "gpu", "value": "yes"},
            ],
            "scheduler": {"name": "volcano", "queue": "models"},
        },
        health={
            "readiness": {
                "httpGet": {
                    "path": "/ready",
                    "port": 9000,
                    "host": "127.0.0.1",
                    "scheme": "HTTPS",
                    "httpHeaders": [{"name": "X-Probe", "value": "1"}],
                },
                "initialDelaySeconds": 1,
                "timeoutSeconds": 2,
                "periodSeconds": 3,
                "successThreshold": 2,
                "failureThreshold": 4,
            },
            "liveness": {
                "grpc": {"port": 9001, "service": "x"},
                "terminationGracePeriodSeconds": 9,
            },
            "startup": {"exec": {"command": ["true"]}, "failureThreshold": 60},
        },
        lifecycle={"terminationGracePeriodSeconds": 45, "preStopDrain": True},
        metrics={
            "path": "/m",
            "port": "api",
            "queueDepth": "waiting",
            "kvCacheUtil": "kv",
            "running": "running",
            "ttft": "ttft",
        },
    )
    for group in groups.GROUPS
]
_SPARSE = service(model={"catalogRef": "tiny"}, runtime={"name": "vllm"})
EVERYTHING = [_SPARSE, *_SERVICES, *_RUNTIMES]
"""Objects that set every field of both references."""

RESERVED = [
    service(group, **changes)
    for group in groups.GROUPS
    for changes in (
        {"model": {"catalogRef": "tiny"}},
        {"resources": {"fraction": {"memory": "8Gi"}}},
        {"scaling": {"metric": "kvCacheUtil"}},
        {"cache": {"strategy": "BakedImage"}},
        {"cache": {"strategy": "SharedPVC"}},
        {"model": {"source": {"uri": "s3://bucket/key"}}},
        {"model": {"source": {"uri": "oci://registry.example/a:tag"}}},
    )
]
"""What the schema accepts and a reconcile may refuse."""
