"""Services whose weights a Job brings, as the second reference was seen to serve them."""

from typing import Any

from tests.reconcile.reference.seen import (
    ASCEND,
    ASCEND_POD,
    BASE,
    CLAIM,
    DIGEST,
    NO_CACHE,
    OCI,
    PLACED,
    PLACES,
    QUEUE,
    Served,
    args_of,
    model_of,
)

PULL = [
    "pull",
    OCI.removeprefix("oci://"),
    "--output",
    "/staging/model",
    "--no-tty",
    "--registry-config",
]
STAGED = f"/cache/oci/sha256-{DIGEST}"
_READ_ONLY = {"persistentVolumeClaim": {"claimName": "chat-cache", "readOnly": True}}

JOB: dict[str, Any] = {
    "backoffLimit": 4,
    "labels": {k: v for k, v in BASE["labels"].items() if not k.endswith("/runtime")},
    "annotations": {},
    "pod": {"restartPolicy": "OnFailure", "automountServiceAccountToken": False},
    "container": {"image": "vllm/vllm-openai:v1"},
    "env": {
        "HF_HOME": "/cache/hf",
        "MODELSCOPE_CACHE": "/cache/modelscope",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    },
    "mounts": {"/cache": CLAIM},
    "init": {},
}
"""A prewarm Job, with what lies behind its own mounts."""

DELIVERED = [
    Served(
        "one claim for all nodes",
        {"cache": {"strategy": "SharedPVC"}},
        over={"claim": {"accessModes": ["ReadWriteMany"]}},
    ),
    Served(
        "one claim for all nodes, filled by a Job",
        {"cache": {"strategy": "SharedPVC", "prewarm": True}},
        over={
            "claim": {"accessModes": ["ReadWriteMany"]},
            "mounts": {"/cache": {**_READ_ONLY, "readOnly": True}},
            "waits for prewarm": True,
            "job": JOB,
        },
    ),
    Served("a claim filled by a Job", {"cache": {"prewarm": True}}, over={"job": JOB}),
    Served(
        "a Job on the nodes of the pods",
        {"cache": {"prewarm": True}, "imagePullSecrets": [{"name": "registry"}]},
        {**ASCEND, "accelerator": {**ASCEND["accelerator"], **PLACED["accelerator"]}},
        {
            **ASCEND_POD,
            "pod": {**PLACES, "imagePullSecrets": [{"name": "registry"}]},
            "annotations": QUEUE,
            "job": {
                **JOB,
                "annotations": QUEUE,
                "pod": {**JOB["pod"], **PLACES, "imagePullSecrets": [{"name": "registry"}]},
            },
        },
    ),
    Served(
        "a token of the hub",
        {"cache": {"prewarm": True}},
        {
            "container": {
                "env": [
                    {
                        "name": "HF_TOKEN",
                        "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}},
                    }
                ]
            }
        },
        {"env": {"HF_TOKEN": {"secretKeyRef": {"name": "hub", "key": "token"}}}, "job": JOB},
    ),
    Served(
        "a Job for ModelScope",
        {**model_of("modelscope://org/model"), "cache": {"prewarm": True}},
        over={
            "env": {"VLLM_USE_MODELSCOPE": "true"},
            "job": {**JOB, "env": {**JOB["env"], "VLLM_USE_MODELSCOPE": "true"}},
        },
    ),
    Served(
        "nothing to fill without a cache",
        {"cache": {"strategy": "None", "prewarm": True}},
        over=NO_CACHE,
    ),
    Served(
        "an artifact of a private registry",
        model_of(OCI, secretRef={"name": "registry-login"}),
        over={
            **args_of(STAGED),
            "mounts": {"/cache": {**_READ_ONLY, "readOnly": True}},
            "waits for prewarm": True,
            "job": {
                **JOB,
                "mounts": {**JOB["mounts"], "/staging/model": {"emptyDir": {}, "readOnly": True}},
                "init": {
                    "pull-oci-model": {
                        "image": "ghcr.io/oras-project/oras:v1.3.0",
                        "args": [*PULL, "/var/run/noctaya/registry-auth/config.json"],
                        "mounts": {
                            "/staging/model": {"emptyDir": {}},
                            "/var/run/noctaya/registry-auth": {
                                "secret": {
                                    "secretName": "registry-login",
                                    "defaultMode": 0o400,
                                    "items": [{"key": ".dockerconfigjson", "path": "config.json"}],
                                },
                                "readOnly": True,
                            },
                        },
                    }
                },
            },
        },
    ),
]
"""Services whose weights a Job brings."""
