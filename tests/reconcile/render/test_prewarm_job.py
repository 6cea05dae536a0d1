"""The Job that fetches weights, and what waits for it."""

from typing import Any

import pytest

from hearth import names
from hearth.api.meta import Manifest, ServiceKey
from hearth.cache import program_texts
from hearth.reconcile.render import desired
from hearth.reconcile.render.release import ORAS_IMAGE, Release
from hearth.reconcile.spec.spec_errors import SpecError
from tests.reconcile.builders import find, render, runtime, service

KEY = ServiceKey("ai", "chat")
DIGEST = "0" * 64
REFERENCE = f"registry.example.com/team/model@sha256:{DIGEST}"
PREWARM = {"cache": {"prewarm": True}}
MARKER = "/cache/.hearth/ready/759d2c8a9177d6ad.json"
LINK = "/cache/.hearth/models/759d2c8a9177d6ad"
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def oci(secret: str | None = "registry", **cache: Any) -> Manifest:
    source: Manifest = {"uri": f"oci://{REFERENCE}"}
    if secret:
        source["secretRef"] = {"name": secret}
    return {"model": {"source": source}, "cache": cache}


def job_of(spec: Manifest, by=None, **release: Any) -> Manifest:
    return find(render(service(spec), by, **release), "Job")


def pod_of(manifest: Manifest) -> Manifest:
    return manifest["spec"]["template"]["spec"]


def serving_pod(spec: Manifest, by=None) -> Manifest:
    return pod_of(find(render(service(spec), by), "Deployment"))


def values(container: Manifest) -> dict[str, str | None]:
    return {one["name"]: one.get("value") for one in container["env"]}


def test_the_job_of_a_hub_s_model():
    got = job_of(PREWARM)
    metadata = got["metadata"]
    assert got["apiVersion"] == "batch/v1"
    assert metadata["name"] == "chat-prewarm"
    assert metadata["labels"] == {
        "app.kubernetes.io/name": "chat-prewarm",
        "app.kubernetes.io/managed-by": "hearth",
        "serving.hearth.dev/prewarm": "chat",
        "serving.hearth.dev/service": "chat",
    }
    assert metadata["annotations"]["serving.hearth.dev/source"] == "hf://org/model"
    assert metadata["annotations"]["serving.hearth.dev/strategy"] == "NodeLocalPVC"
    assert got["spec"] == {
        "backoffLimit": 4,
        "template": {
            "metadata": {
                "labels": {
                    "app.kubernetes.io/name": "chat-prewarm",
                    "app.kubernetes.io/managed-by": "hearth",
                    "serving.hearth.dev/prewarm": "chat",
                }
            },
            "spec": {
                "restartPolicy": "OnFailure",
                "securityContext": {
                    "fsGroup": 1000,
                    "fsGroupChangePolicy": "OnRootMismatch",
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "terminationGracePeriodSeconds": 5,
                "containers": [
                    {
                        "name": "prewarm",
                        "image": "engine:1",
                        "command": ["python3", "-c", program_texts.DOWNLOAD],
                        "env": [
                            {
                                "name": "POD_IP",
                                "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
                            },
                            {"name": "HOME", "value": "/scratch"},
                            {"name": "XDG_CACHE_HOME", "value": "/cache/xdg"},
                            {"name": "VLLM_CACHE_ROOT", "value": "/cache/vllm"},
                            {"name": "TRITON_CACHE_DIR", "value": "/cache/triton"},
                            {"name": "HF_HOME", "value": "/cache/hf"},
                            {"name": "MODELSCOPE_CACHE", "value": "/cache/modelscope"},
                            {"name": "TORCH_DEVICE_BACKEND_AUTOLOAD", "value": "0"},
                            {"name": "HF_HUB_OFFLINE", "value": "0"},
                            {"name": "HEARTH_SOURCE", "value": "hf://org/model"},
                            {"name": "HEARTH_MARKER", "value": MARKER},
                            {"name": "HEARTH_MODEL_LINK", "value": LINK},
                        ],
                        "securityContext": RESTRICTED,
                        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
                        "volumeMounts": [
                            {"name": "model-cache", "mountPath": "/cache"},
                            {"name": "scratch", "mountPath": "/scratch"},
                        ],
                        "terminationMessagePolicy": "FallbackToLogsOnError",
                    }
                ],
                "volumes": [
                    {"name": "model-cache", "persistentVolumeClaim": {"claimName": "chat-cache"}},
                    {"name": "scratch", "emptyDir": {}},
                ],
            },
        },
    }


def test_the_job_of_a_registry_s_model():
    pod = pod_of(job_of(oci()))
    [puller], [writer] = pod["initContainers"], pod["containers"]
    assert puller == {
        "name": "pull-oci-model",
        "image": ORAS_IMAGE,
        "args": [
            "pull", REFERENCE, "--output", "/staging/model", "--no-tty",
            "--registry-config", "/var/run/hearth/registry/config.json",
        ],
        "env": [{"name": "HOME", "value": "/staging"}],
        "securityContext": {"runAsUser": 65532, **RESTRICTED},
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
        "volumeMounts": [
            {"name": "oci-staging", "mountPath": "/staging"},
            {
                "name": "oci-registry-auth",
                "mountPath": "/var/run/hearth/registry",
                "readOnly": True,
            },
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }  # fmt: skip
    assert writer["command"] == ["python3", "-c", program_texts.PROMOTE]
    assert values(writer)["HEARTH_TARGET"] == f"/cache/oci/sha256-{DIGEST}"
    assert {"name": "oci-staging", "mountPath": "/staging", "readOnly": True} in writer[
        "volumeMounts"
    ]
    assert pod["volumes"][2:] == [
        {"name": "oci-staging", "emptyDir": {}},
        {
            "name": "oci-registry-auth",
            "secret": {
                "secretName": "registry",
                "defaultMode": 0o400,
                "items": [{"key": ".dockerconfigjson", "path": "config.json"}],
            },
        },
    ]
    # The only one that knows the Secret.
    assert not any(m["name"] == "oci-registry-auth" for m in writer["volumeMounts"])
    # The server sees the cache as it became, and nothing of the way there.
    server = serving_pod(oci())
    assert "oci-registry-auth" not in str(server)
    assert "oci-staging" not in str(server)


def test_a_registry_without_credentials_and_another_image_of_oras():
    pod = pod_of(job_of(oci(secret=None), oras_image="mirror/oras:1"))
    [puller] = pod["initContainers"]
    assert puller["image"] == "mirror/oras:1"
    assert "--registry-config" not in puller["args"]
    assert [one["name"] for one in pod["volumes"]] == ["model-cache", "scratch", "oci-staging"]


ACCELERATOR = {
    "resourceName": "nvidia.com/gpu",
    "nodeSelector": {"gpu": "a100"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "scheduler": {"name": "volcano", "queue": "models"},
}


@pytest.mark.parametrize("vendor", ["nvidia", "ascend"])
@pytest.mark.parametrize("spec", [PREWARM, oci()], ids=["hub", "oci"])
def test_field_case_84_the_job_runs_where_its_server_may(vendor: str, spec: Manifest):
    """A claim's node is that of the first pod: one on another kind of node would be of no use."""
    spec = {**spec, "imagePullSecrets": [{"name": "pull"}], "resources": {"accelerators": 2}}
    by = runtime({"vendor": vendor, "accelerator": ACCELERATOR})
    annotations = {"scheduling.volcano.sh/queue-name": "models"}
    got = render(service(spec), by)
    server, job = find(got, "Deployment")["spec"]["template"], find(got, "Job")["spec"]["template"]
    for field in ("nodeSelector", "tolerations", "schedulerName", "imagePullSecrets"):
        assert job["spec"][field] == server["spec"][field]
    assert job["metadata"]["annotations"] == server["metadata"]["annotations"] == annotations
    # It asks for no device, and mounts nothing of the vendor's.
    for container in (*job["spec"].get("initContainers", ()), *job["spec"]["containers"]):
        assert set(container["resources"]) == {"requests"}
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
    assert not any("hostPath" in one for one in job["spec"]["volumes"])
    assert (values(job["spec"]["containers"][0]).get("NVIDIA_VISIBLE_DEVICES") == "void") is (
        vendor == "nvidia"
    )


def test_no_label_of_the_job_s_pods_selects_the_backend():
    labels = job_of(PREWARM)["spec"]["template"]["metadata"]["labels"]
    assert names.SERVICE_LABEL not in labels
    for selector in (names.selector(KEY), names.pod_selector(KEY)):
        assert not selector.items() <= labels.items()


TOKEN = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}


def test_field_case_85_the_hub_s_token_reaches_job_and_server():
    env = [
        TOKEN,
        {"name": "NAME", "value": "{{ .Service.Name }}"},
        {"name": "HF_HUB_OFFLINE", "value": "1"},
        {"name": "HEARTH_SOURCE", "value": "hf://other/model"},
        {
            "name": "LIMIT",
            "valueFrom": {
                "resourceFieldRef": {"containerName": "serving", "resource": "limits.memory"}
            },
        },
    ]
    got = render(service(PREWARM), runtime({"container": {"env": env}}))
    [writer] = pod_of(find(got, "Job"))["containers"]
    [server] = pod_of(find(got, "Deployment"))["containers"]
    for container in (writer, server):
        assert TOKEN in container["env"]
        assert values(container)["NAME"] == "chat"
    # The one that asks the hub, whatever the server is told; and no variable of its own is another.
    told = values(writer)
    assert (told["HF_HUB_OFFLINE"], told["HEARTH_SOURCE"]) == ("0", "hf://org/model")
    assert "LIMIT" not in told
    assert len(told) == len(writer["env"])


def test_what_clients_of_the_engine_send_is_not_the_job_s():
    by = runtime(annotations={"hearth.dev/engine-key": "keys/token"})
    assert "keys" not in str(job_of(PREWARM, by))


def test_options_of_the_runtime_that_are_about_pods():
    by = runtime(
        annotations={
            "hearth.dev/pod-labels": "{team: a, app.kubernetes.io/name: other}",
            "hearth.dev/pod-annotations": '{sidecar.istio.io/inject: "false"}',
            "hearth.dev/pod-runtime-class": "nvidia",
            "hearth.dev/pod-priority-class": "models",
            "hearth.dev/pod-security-context": "{runAsUser: 2000, runAsNonRoot: true}",
            "hearth.dev/container-security-context": "{privileged: true,"
            " readOnlyRootFilesystem: true, capabilities: {add: [SYS_ADMIN]}}",
        }
    )
    template = job_of(oci(), by)["spec"]["template"]
    assert template["metadata"]["labels"]["team"] == "a"
    assert template["metadata"]["labels"]["app.kubernetes.io/name"] == "chat-prewarm"
    assert template["metadata"]["annotations"] == {"sidecar.istio.io/inject": "false"}
    pod = template["spec"]
    assert pod["priorityClassName"] == "models"
    # It hands out devices.
    assert "runtimeClassName" not in pod
    assert pod["securityContext"] == {
        "fsGroup": 1000,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
        "runAsUser": 2000,
        "runAsNonRoot": True,
    }
    for container in (*pod["initContainers"], *pod["containers"]):
        assert container["securityContext"] == {**RESTRICTED, "readOnlyRootFilesystem": True}


def test_a_platform_that_assigns_users_and_groups_assigns_these_too():
    pod = pod_of(job_of(oci(), file_system_group=None))
    assert pod["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert pod["initContainers"][0]["securityContext"] == RESTRICTED


def test_the_server_waits_until_the_weights_are_whole():
    pod = serving_pod({**PREWARM, "resources": {"memory": "4Gi", "cpu": "2"}})
    assert pod["initContainers"] == [
        {
            "name": "wait-for-prewarm",
            "image": "engine:1",
            "command": ["python3", "-c", program_texts.WAIT],
            "env": [{"name": "HEARTH_WAIT_FOR", "value": MARKER}],
            "securityContext": RESTRICTED,
            # No more than the server asks for, so that the pod's request is the same.
            "resources": {
                "requests": {"cpu": "2", "memory": "4Gi"},
                "limits": {"memory": "4Gi"},
            },
            "volumeMounts": [{"name": "model-cache", "mountPath": "/cache", "readOnly": True}],
            "terminationMessagePolicy": "FallbackToLogsOnError",
        }
    ]


@pytest.mark.parametrize(
    ("cache", "waits"),
    [
        ({"prewarm": True}, True),
        ({"prewarm": True, "strategy": "SharedPVC"}, True),
        # The Job fills the folder of one node.
        ({"prewarm": True, "strategy": "HostPath"}, False),
        ({"strategy": "SharedPVC"}, False),
    ],
)
def test_who_waits(cache: Manifest, waits: bool):
    pod = serving_pod({"cache": cache})
    assert ("initContainers" in pod) is waits


def theirs(*, complete: bool, **container: Any) -> Manifest:
    """As another project's controller makes it."""
    container = container or {"command": ["python3", "-c", 'snapshot_download("org/model")']}
    status = {"conditions": [{"type": "Complete", "status": "True"}]} if complete else {}
    return {
        "kind": "Job",
        "metadata": {"name": "chat-prewarm"},
        "spec": {"template": {"spec": {"containers": [container]}}},
        "status": status,
    }


def beside(spec: Manifest, job: Manifest, **metadata: Any) -> desired.Desired:
    of = service(spec, **metadata)
    return desired.render(of, runtime(), release=Release(), their_job=job)


def markers(got: desired.Desired) -> list[str]:
    pod = pod_of(find(got, "Deployment"))
    return [values(one)["HEARTH_WAIT_FOR"] for one in pod.get("initContainers", ())]


SHARED = {"cache": {"prewarm": True, "strategy": "SharedPVC"}}


@pytest.mark.parametrize(
    ("spec", "complete", "waits"),
    [
        (PREWARM, True, []),
        (PREWARM, False, [MARKER]),
        (SHARED, True, [f"{MARKER}:/cache/.noctaya-ready"]),
        (SHARED, False, [f"{MARKER}:/cache/.noctaya-ready"]),
    ],
)
def test_a_job_that_another_controller_made_counts(spec: Manifest, complete: bool, waits):
    got = beside(spec, theirs(complete=complete))
    assert markers(got) == waits
    assert "Job" not in {manifest["kind"] for manifest in got.manifests}


def test_their_job_of_a_registry_s_model_counts():
    job = theirs(complete=True, args=["pull", REFERENCE])
    folder = f"/cache/oci/sha256-{DIGEST}"
    assert markers(beside(oci(), job)) == [f"{folder}/.hearth-ready:{folder}/.noctaya-ready"]


@pytest.mark.parametrize(
    ("spec", "annotations", "message"),
    [
        (
            {**PREWARM, "model": {"source": {"uri": "hf://org/other"}}},
            {},
            "Job chat-prewarm, which another controller made, fetched another model than"
            " hf://org/other; delete the Job",
        ),
        (PREWARM, {"hearth.dev/model-path": "local"}, "left no path that can be served; delete"),
    ],
)
def test_their_job_may_not_do(spec: Manifest, annotations: dict[str, str], message: str):
    with pytest.raises(SpecError) as error:
        beside(spec, theirs(complete=True), annotations=annotations)
    assert error.value.rejection.reason == "PrewarmChanged"
    assert message in error.value.rejection.message


def test_their_job_is_nothing_to_a_service_without_prewarming():
    assert markers(beside({}, theirs(complete=False))) == []
