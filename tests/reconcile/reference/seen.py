"""What the second reference's own controller made of some thirty services, as it was seen to.

A pod is written as its containers see it: variables by name, mounts by path with what lies behind
them, whatever the volume is called in the manifest.  `BASE` is the pod of a small service with a
model of Hugging Face; a row says what is laid over it (None takes away).
"""

from typing import Any, NamedTuple

DIGEST = "5" * 64
OCI = f"oci://registry.example/models/tiny@sha256:{DIGEST}"
DEVICE = "nvidia.com/gpu"
AS_IS: dict[str, Any] = {}

SERVICE = {"model": {"source": {"uri": "hf://org/model"}}, "runtime": {"name": "vllm"}}
RUNTIME = {
    "family": "vllm",
    "vendor": "nvidia",
    "container": {
        "image": "vllm/vllm-openai:v1",
        "args": ["{{ .Model.Path }}", "--served-model-name={{ .Service.Name }}", "--port=8000"],
        "port": {"name": "http", "containerPort": 8000},
    },
    "accelerator": {"resourceName": DEVICE},
}

CLAIM = {"persistentVolumeClaim": {"claimName": "chat-cache"}}
HEALTH = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 10}
BASE: dict[str, Any] = {
    "labels": {
        "app.kubernetes.io/name": "chat",
        "app.kubernetes.io/managed-by": "noctaya",
        "serving.noctaya.io/llmservice": "chat",
        "serving.noctaya.io/runtime": "vllm",
    },
    "annotations": {},
    "strategy": {"maxSurge": "25%", "maxUnavailable": "25%"},
    "progressDeadlineSeconds": 600,
    "pod": {"automountServiceAccountToken": False},
    "container": {
        "image": "vllm/vllm-openai:v1",
        "args": ["org/model", "--served-model-name=chat", "--port=8000"],
        "ports": [{"name": "http", "containerPort": 8000, "protocol": "TCP"}],
        "resources": {"limits": {DEVICE: "1"}},
        "startupProbe": {**HEALTH, "failureThreshold": 60},
        "readinessProbe": {**HEALTH, "failureThreshold": 3},
    },
    "env": {"HF_HOME": "/cache/hf", "MODELSCOPE_CACHE": "/cache/modelscope"},
    "mounts": {"/dev/shm": {"emptyDir": {"medium": "Memory"}}, "/cache": CLAIM},
    "waits for prewarm": False,
    "claim": {"accessModes": ["ReadWriteOnce"], "storage": "50Gi"},
    "backend service": {"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"},
    "scaling": {
        "min": 0,
        "max": 1,
        "pollingInterval": 5,
        "cooldownPeriod": 300,
        "stabilizationWindowSeconds": 300,
        "type": "external-push",
        "metadata": {
            "scalerAddress": "chat-scaler.ai.svc:9090",
            "metricName": "pending",
            "targetValue": "10",
        },
    },
}
NO_CACHE = {
    "env": {"HF_HOME": None, "MODELSCOPE_CACHE": None},
    "mounts": {"/cache": None},
    "claim": None,
}


class Served(NamedTuple):
    """What one service came to."""

    name: str
    service: dict[str, Any] = AS_IS
    """Laid over SERVICE."""
    runtime: dict[str, Any] = AS_IS
    """Laid over RUNTIME."""
    over: dict[str, Any] = AS_IS
    """Laid over BASE."""


def model_of(uri: str, **more: Any) -> dict[str, Any]:
    return {"model": {"source": {"uri": uri, **more}}}


def args_of(path: str, *more: str) -> dict[str, Any]:
    return {"container": {"args": [path, "--served-model-name=chat", "--port=8000", *more]}}


_NONE = {"cache": {"strategy": "None"}}
ASCEND: dict[str, Any] = {
    "vendor": "ascend",
    "accelerator": {"resourceName": "huawei.com/Ascend910"},
}
_HOST = {
    path: {"hostPath": {"path": path}, "readOnly": True}
    for path in (
        "/usr/local/Ascend/driver",
        "/usr/local/bin/npu-smi",
        "/usr/local/dcmi",
        "/etc/ascend_install.info",
    )
}
ASCEND_POD = {
    "container": {"resources": {"limits": {DEVICE: None, "huawei.com/Ascend910": "1"}}},
    "mounts": _HOST,
}
PLACED = {
    "accelerator": {
        "nodeSelector": {"gpu": "a10"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "scheduler": {"name": "volcano", "queue": "models"},
    }
}
PLACES = {
    "nodeSelector": {"gpu": "a10"},
    "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "schedulerName": "volcano",
}
QUEUE = {"scheduling.volcano.sh/queue-name": "models"}
_MTLS = {
    "serverSecretName": "scaler-tls",
    "authenticationRef": {"name": "scaler", "kind": "ClusterTriggerAuthentication"},
}
_PROBE = {"tcpSocket": {"port": "http"}, "periodSeconds": 7, "failureThreshold": 9}

SERVED = [
    Served("a hub's model with all defaults"),
    Served("huggingface:// is hf://", model_of("huggingface://org/model")),
    Served("no cache", _NONE, over=NO_CACHE),
    Served(
        "modelscope",
        model_of("modelscope://org/model"),
        over={"env": {"VLLM_USE_MODELSCOPE": "true"}},
    ),
    Served(
        "modelscope without a cache",
        {**model_of("modelscope://org/model"), **_NONE},
        over={**NO_CACHE, "env": {**NO_CACHE["env"], "VLLM_USE_MODELSCOPE": "true"}},
    ),
    Served(
        "staged weights",
        {**model_of("pvc://weights/sub/dir"), **_NONE},
        over={
            **NO_CACHE,
            **args_of("/models/sub/dir"),
            "mounts": {
                "/cache": None,
                "/models": {
                    "persistentVolumeClaim": {"claimName": "weights", "readOnly": True},
                    "readOnly": True,
                },
            },
        },
    ),
    Served(
        "staged weights and a cache",
        model_of("pvc://weights"),
        over={
            **args_of("/models"),
            "mounts": {
                "/models": {
                    "persistentVolumeClaim": {"claimName": "weights", "readOnly": True},
                    "readOnly": True,
                }
            },
        },
    ),
    Served(
        "size and class of a claim",
        {"cache": {"size": "80Gi", "storageClassName": "fast"}},
        over={"claim": {"storage": "80Gi", "storageClassName": "fast"}},
    ),
    Served(
        "a folder of the node",
        {"cache": {"strategy": "HostPath"}},
        over={
            "claim": None,
            "mounts": {
                "/cache": {
                    "persistentVolumeClaim": None,
                    "hostPath": {
                        "path": "/var/lib/noctaya/cache/ai-chat",
                        "type": "DirectoryOrCreate",
                    },
                }
            },
        },
    ),
    Served(
        "devices, cpu and memory",
        {"resources": {"accelerators": 4, "cpu": "8", "memory": "32Gi"}},
        over={
            "container": {
                "resources": {
                    "limits": {DEVICE: "4", "memory": "32Gi"},
                    "requests": {"cpu": "8", "memory": "32Gi"},
                }
            }
        },
    ),
    Served(
        "draining",
        runtime={"lifecycle": {"preStopDrain": True}},
        over={
            "pod": {"terminationGracePeriodSeconds": 130},
            "container": {
                "lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", "sleep 120"]}}}
            },
        },
    ),
    Served(
        "draining in less than the pod's own grace",
        {"scaling": {"drainTimeout": "20s"}},
        {"lifecycle": {"preStopDrain": True, "terminationGracePeriodSeconds": 120}},
        {
            "pod": {"terminationGracePeriodSeconds": 120},
            "container": {
                "lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", "sleep 20"]}}}
            },
        },
    ),
    Served(
        "no draining",
        runtime={"lifecycle": {"terminationGracePeriodSeconds": 45}},
        over={"pod": {"terminationGracePeriodSeconds": 45}},
    ),
    Served(
        "probes of the runtime's own",
        runtime={"health": {"startup": _PROBE, "readiness": _PROBE, "liveness": _PROBE}},
        over={
            "container": {
                "startupProbe": {"httpGet": None, **_PROBE},
                "readinessProbe": {"httpGet": None, **_PROBE},
                "livenessProbe": _PROBE,
            }
        },
    ),
    Served("ascend", runtime=ASCEND, over=ASCEND_POD),
    Served(
        "volcano, selector and tolerations",
        runtime=PLACED,
        over={"pod": PLACES, "annotations": QUEUE},
    ),
    Served(
        "arguments of the service's own",
        {"runtime": {"argsOverride": ["--max-model-len=2048", "--alias={{ .Service.Namespace }}"]}},
        over=args_of("org/model", "--max-model-len=2048", "--alias=ai"),
    ),
    Served(
        "variables of the runtime's",
        runtime={
            "container": {
                "env": [
                    {"name": "NAME", "value": "{{ .Service.Name }}"},
                    {
                        "name": "HF_TOKEN",
                        "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}},
                    },
                ]
            }
        },
        over={
            "env": {"NAME": "chat", "HF_TOKEN": {"secretKeyRef": {"name": "hub", "key": "token"}}}
        },
    ),
    Served(
        "another port",
        runtime={"container": {"port": {"name": "api", "containerPort": 9000}}},
        over={
            "container": {
                "ports": [{"name": "api", "containerPort": 9000, "protocol": "TCP"}],
                "startupProbe": {"httpGet": {"port": "api"}},
                "readinessProbe": {"httpGet": {"port": "api"}},
            },
            "backend service": {"targetPort": "api"},
        },
    ),
    Served(
        "pull secrets",
        {"imagePullSecrets": [{"name": "registry"}]},
        over={"pod": {"imagePullSecrets": [{"name": "registry"}]}},
    ),
    Served(
        "scaling",
        {"scaling": {"min": 1, "max": 3, "target": 4, "scaleDownStabilization": "90s"}},
        over={
            "scaling": {
                "min": 1,
                "max": 3,
                "cooldownPeriod": 90,
                "stabilizationWindowSeconds": 90,
                "metadata": {"targetValue": "4"},
            }
        },
    ),
    Served(
        "a long activation",
        {"scaling": {"activationTimeout": "20m"}},
    ),
    Served(
        "mutual TLS of the scaler",
        {"scaling": {"externalScaler": {"tls": _MTLS}}},
        over={
            "scaling": {
                "authenticationRef": {"name": "scaler", "kind": "ClusterTriggerAuthentication"}
            }
        },
    ),
]
"""Services that need no model delivery."""


class Refused(NamedTuple):
    """A service that its controller refused: phase Degraded, Ready False, Degraded True."""

    name: str
    reason: str
    service: dict[str, Any] = AS_IS
    runtime: dict[str, Any] = AS_IS
    others: tuple[str, ...] = ()
    """More runtimes, equal to the first."""


REFUSED = [
    Refused("a catalog", "ModelResolution", {"model": {"source": None, "catalogRef": "tiny"}}),
    Refused("an unknown scheme", "ModelResolution", model_of("s3://bucket/key")),
    Refused("a tag", "ModelResolution", model_of("oci://registry.example/models/tiny:latest")),
    Refused("no such runtime", "RuntimeResolution", {"runtime": {"name": "other"}}),
    Refused(
        "two runtimes alike",
        "RuntimeResolution",
        {"runtime": {"name": None, "selector": {"vendor": ["nvidia"]}}},
        others=("vllm-2",),
    ),
    Refused(
        "a vendor without runtimes",
        "RuntimeResolution",
        {"runtime": {"name": None, "selector": {"vendor": ["ascend"]}}},
    ),
    Refused("a part of a device", "Render", {"resources": {"fraction": {"cores": 1}}}),
    Refused(
        "a part of a device's memory", "Render", {"resources": {"fraction": {"memory": "8Gi"}}}
    ),
    Refused("a baked image", "Render", {"cache": {"strategy": "BakedImage"}}),
    Refused("a template that is none", "Render", {"runtime": {"argsOverride": ["{{ .Nope }}"]}}),
    Refused(
        "a queue of another scheduler",
        "Render",
        runtime={"accelerator": {"scheduler": {"name": "other", "queue": "models"}}},
    ),
    Refused("kvCacheUtil", "ScaledObject", {"scaling": {"metric": "kvCacheUtil"}}),
    Refused("half seconds", "ScaledObject", {"scaling": {"scaleDownStabilization": "1500ms"}}),
    Refused(
        "an artifact without a cache",
        "Prewarm",
        {**model_of(OCI), "cache": {"strategy": "None"}},
    ),
    Refused("more than an hour", "ScaledObject", {"scaling": {"scaleDownStabilization": "61m"}}),
]

UNSTORED: dict[str, dict[str, Any]] = {
    "no runtime": {"runtime": None},
    "source and catalogRef": {"model": {"catalogRef": "tiny"}},
    "name and selector": {"runtime": {"selector": {"vendor": ["nvidia"]}}},
    "an empty name": {"runtime": {"name": ""}},
    "an empty selector": {"runtime": {"name": None, "selector": {}}},
    "min above max": {"scaling": {"min": 3, "max": 2}},
    "no activationTimeout": {"scaling": {"activationTimeout": "0s"}},
    "no heartbeatInterval": {"endpoint": {"coldStart": {"heartbeatInterval": "0s"}}},
    "a negative drainTimeout": {"scaling": {"drainTimeout": "-1s"}},
    "an empty uri": model_of(""),
    "authentication without key": {"endpoint": {"authentication": {"secretRef": {"name": "key"}}}},
    "secretRef of a hub": model_of("hf://org/model", secretRef={"name": "token"}),
    "a secretRef without name": model_of(OCI, secretRef={}),
}
"""What its schema refuses: never served, here or there."""

SHOWS: dict[str, tuple[str, ...]] = {
    "a hub's model with all defaults": (
        "spec.model.source",
        "spec.model.source.uri",
        "spec.cache.strategy",
        "spec.cache.size",
        "spec.vendor",
        "spec.container.image",
        "spec.container.args",
        "spec.accelerator.resourceName",
        "spec.health.readiness",
        "spec.health.liveness",
        "spec.health.startup",
    ),
    "staged weights": ("text.staged weights",),
    "one claim for all nodes": ("text.one writer",),
    "one claim for all nodes, filled by a Job": ("text.one writer",),
    "a Job on the nodes of the pods": ("text.no device",),
    "an artifact of a private registry": ("text.artifact",),
    "draining": ("spec.scaling.drainTimeout", "text.grace"),
    "no draining": ("spec.lifecycle.preStopDrain",),
    "a long activation": ("spec.health.startup",),
    "two runtimes alike": ("spec.priority",),
    "authentication without key": ("spec.endpoint.authentication.secretRef.key",),
    "name and selector": ("spec.runtime.name",),
    "no runtime": ("spec.runtime.name", "text.schema"),
    "an empty uri": ("text.schema",),
    "min above max": ("text.schema",),
    "an empty selector": ("text.schema",),
}
"""What a service shows of the references beside the fields that it sets."""


def shown(name: str, service: dict[str, Any], runtime: dict[str, Any], reason: str) -> set[str]:
    """The fields, reasons and sentences of the references that one service shows."""
    said = {f"reason.{reason}"} if reason else set()
    return {*_paths(service, "spec"), *_paths(runtime, "spec"), *SHOWS.get(name, ()), *said}


def _paths(over: Any, at: str) -> set[str]:
    below = over.items() if isinstance(over, dict) else ()
    return {at}.union(*(_paths(value, f"{at}.{key}") for key, value in below))
