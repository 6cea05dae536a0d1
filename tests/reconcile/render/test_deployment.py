"""The model server's Deployment and Service; examples' golden files show them whole."""

import pytest

from hearth.reconcile.spec.spec_errors import SpecError
from tests.reconcile.builders import find, render, runtime, service

GPU = {"vendor": "nvidia", "accelerator": {"resourceName": "nvidia.com/gpu"}}


def pod(of=None, by=None, **release):
    return find(render(of, by, **release), "Deployment")["spec"]["template"]["spec"]


def test_the_deployment_has_no_replicas_field():
    got = find(render(service({"scaling": {"min": 2, "max": 3}})), "Deployment")
    assert "replicas" not in got["spec"]


def test_no_surge_where_a_device_is_needed():
    with_device = find(render(by=runtime(GPU)), "Deployment")["spec"]
    assert with_device["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
    }
    assert "strategy" not in find(render(), "Deployment")["spec"]


@pytest.mark.parametrize(
    ("resources", "by", "expected"),
    [
        ({}, runtime(), None),
        ({"cpu": "2"}, runtime(), {"requests": {"cpu": "2"}}),
        (
            {"accelerators": 4, "cpu": "2", "memory": "8Gi"},
            runtime(GPU),
            {
                "limits": {"nvidia.com/gpu": "4", "memory": "8Gi"},
                "requests": {"cpu": "2", "memory": "8Gi"},
            },
        ),
        ({}, runtime(GPU), {"limits": {"nvidia.com/gpu": "1"}}),
    ],
)
def test_resources(resources, by, expected):
    assert pod(service({"resources": resources}), by)["containers"][0].get("resources") == expected


def test_shared_memory_is_there_for_any_number_of_devices():
    for accelerators in (1, 2):
        got = pod(service({"resources": {"accelerators": accelerators}}), runtime(GPU))
        assert got["volumes"][0] == {"name": "dshm", "emptyDir": {"medium": "Memory"}}
        assert got["containers"][0]["volumeMounts"][0] == {"name": "dshm", "mountPath": "/dev/shm"}


@pytest.mark.reference("hearth:spec.imagePullSecrets[].name")
def test_placement_and_pull_secrets():
    toleration = {"key": "gpu", "operator": "Exists"}
    by = runtime(
        {
            "accelerator": {
                "nodeSelector": {"zone": "a"},
                "tolerations": [toleration],
                "scheduler": {"name": "volcano", "queue": "big"},
            }
        }
    )
    secrets = [{"name": "one"}, {"name": ""}, {"name": "two"}, {"name": "one"}]
    template = find(render(service({"imagePullSecrets": secrets}), by), "Deployment")["spec"][
        "template"
    ]
    assert template["metadata"]["annotations"] == {"scheduling.volcano.sh/queue-name": "big"}
    got = template["spec"]
    assert got["nodeSelector"] == {"zone": "a"}
    assert got["tolerations"] == [toleration]
    assert got["schedulerName"] == "volcano"
    assert got["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]


def test_without_settings_there_is_no_placement():
    template = find(render(), "Deployment")["spec"]["template"]
    assert "annotations" not in template["metadata"]
    asked = {"nodeSelector", "tolerations", "schedulerName", "imagePullSecrets"}
    assert not asked & template["spec"].keys()
    named = runtime({"accelerator": {"scheduler": {"name": "mine"}}})
    assert pod(by=named)["schedulerName"] == "mine"


def test_a_cache_claim_belongs_to_a_group_unless_the_platform_says_which():
    group = {"fsGroup": 1000, "fsGroupChangePolicy": "OnRootMismatch"}
    assert pod()["securityContext"].items() >= group.items()
    assert "fsGroup" not in pod(file_system_group=None)["securityContext"]
    assert "fsGroup" not in pod(service({"cache": {"strategy": "None"}}))["securityContext"]


def test_fields_that_are_off_or_left_out_by_default():
    got = pod()
    assert got["automountServiceAccountToken"] is False
    assert got["enableServiceLinks"] is False
    assert "terminationGracePeriodSeconds" not in got
    assert "lifecycle" not in got["containers"][0]
    assert "args" not in pod(by=runtime({"container": {"args": []}}))["containers"][0]


def test_a_crash_leaves_the_end_of_the_log():
    assert pod()["containers"][0]["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_draining():
    got = pod(by=runtime({"lifecycle": {"preStopDrain": True}}))
    assert got["terminationGracePeriodSeconds"] == 130
    assert got["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][-1] == "sleep 120"


def test_labels_tell_service_and_runtime_and_the_selector_only_the_service():
    deployment = find(render(), "Deployment")
    labels = {
        "app.kubernetes.io/name": "chat",
        "app.kubernetes.io/managed-by": "hearth",
        "serving.hearth.dev/service": "chat",
        "serving.hearth.dev/runtime": "stub",
    }
    assert deployment["metadata"]["labels"] == labels
    assert deployment["spec"]["template"]["metadata"]["labels"] == labels
    assert deployment["spec"]["selector"]["matchLabels"] == {
        "app.kubernetes.io/managed-by": "hearth",
        "serving.hearth.dev/service": "chat",
    }


@pytest.mark.reference("spec.metrics.path", "spec.metrics.port")
@pytest.mark.parametrize("port", ["api", "http"])
def test_the_service_leads_to_the_named_port_and_announces_metrics(port):
    """Its own port is always called http, so `metrics.port` may mean either."""
    by = runtime(
        {
            "container": {"port": {"name": "api", "containerPort": 9000}},
            "metrics": {"path": "/stats", "port": port, "queueDepth": "waiting"},
        }
    )
    got = find(render(by=by), "Service", "chat-backend")
    assert got["spec"]["ports"] == [
        {"name": "http", "port": 80, "targetPort": "api", "protocol": "TCP"}
    ]
    assert got["metadata"]["labels"]["serving.hearth.dev/metrics"] == "true"
    said = {k: v for k, v in got["metadata"]["annotations"].items() if "prometheus" in k}
    assert said == {
        "prometheus.io/scrape": "true",
        "prometheus.io/path": "/stats",
        "prometheus.io/port": "9000",
    }


@pytest.mark.parametrize("metrics", [None, {"port": "other", "queueDepth": "waiting"}])
def test_no_metrics_no_announcement(metrics):
    by = runtime({"metrics": metrics} if metrics else {})
    got = find(render(by=by), "Service", "chat-backend")["metadata"]
    assert "serving.hearth.dev/metrics" not in got["labels"]
    assert list(got["annotations"]) == ["serving.hearth.dev/spec-hash"]


@pytest.mark.parametrize(
    ("of", "by", "message"),
    [
        (service({"resources": {"fraction": {"cores": 1}}}), runtime(), "spec.resources.fraction"),
    ],
)
def test_refusals(of, by, message: str):
    with pytest.raises(SpecError) as error:
        render(of, by)
    assert error.value.rejection.reason == "Render"
    assert message in error.value.rejection.message
