"""The KEDA ScaledObject."""

import pytest

from hearth.api.meta import Manifest
from hearth.reconcile.render import scaled_object
from hearth.reconcile.render.release import Release
from hearth.reconcile.spec.spec_errors import SpecError
from tests.reconcile.builders import UID, merged, service


def render(scaling: Manifest, release: Release | None = None) -> Manifest:
    return scaled_object.render(service({"scaling": scaling}), release=release or Release())


def test_the_scaled_object_of_a_service_that_scales_to_zero():
    got = render({"max": 3, "target": 4, "scaleDownStabilization": "90s"})
    assert got == {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {
            "name": "chat",
            "namespace": "ai",
            "labels": {
                "app.kubernetes.io/name": "chat",
                "app.kubernetes.io/managed-by": "hearth",
                "serving.hearth.dev/service": "chat",
                "scaledobject.keda.sh/name": "chat",
            },
        },
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"},
            "minReplicaCount": 0,
            "maxReplicaCount": 3,
            "pollingInterval": 15,
            "cooldownPeriod": 90,
            "advanced": {
                "horizontalPodAutoscalerConfig": {
                    "behavior": {"scaleDown": {"stabilizationWindowSeconds": 90}}
                }
            },
            "triggers": [
                {
                    "type": "external-push",
                    "metadata": {
                        "scalerAddress": "hearth-scaler.hearth-system.svc:9090",
                        "metricName": "pending",
                        "targetValue": "4",
                        "serviceUID": UID,
                    },
                }
            ],
        },
    }


def test_above_zero_keda_is_not_told_what_has_no_meaning():
    spec = render({"min": 1, "max": 2})["spec"]
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (1, 2)
    assert not {"pollingInterval", "cooldownPeriod"} & spec.keys()
    assert spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"] == {
        "stabilizationWindowSeconds": 300
    }


def test_the_installation_says_how_often_and_where():
    spec = render({}, Release(polling_interval_s=2.0, scaler="127.0.0.1:9090"))["spec"]
    assert spec["pollingInterval"] == 2
    assert spec["triggers"][0]["metadata"]["scalerAddress"] == "127.0.0.1:9090"


@pytest.mark.reference("spec.scaling.scaleDownStabilization")
@pytest.mark.parametrize("window", ["0s", "1h"])
def test_the_ends_of_the_window_are_legal(window: str):
    assert render({"scaleDownStabilization": window})["spec"]["cooldownPeriod"] in (0, 3600)


TLS = {"externalScaler": {"tls": {"serverSecretName": "s", "authenticationRef": {"name": "a"}}}}


@pytest.mark.reference("noctaya:spec.scaling.externalScaler.tls.authenticationRef.kind")
def test_mutual_tls():
    metadata = {
        "scalerAddress": "chat-scaler.ai.svc:9443",
        "metricName": "pending",
        "targetValue": "10",
        "serviceUID": UID,
        "enableTLS": "true",
        "serverSecretName": "s",
    }
    authentication = {"name": "a", "kind": "TriggerAuthentication"}
    assert render(TLS)["spec"]["triggers"] == [
        {"type": "external-push", "metadata": metadata, "authenticationRef": authentication}
    ]


def test_the_client_side_of_tls_may_be_the_clusters():
    reference = {"name": "a", "kind": "ClusterTriggerAuthentication"}
    scaling = merged(TLS, {"externalScaler": {"tls": {"authenticationRef": reference}}})
    assert render(scaling)["spec"]["triggers"][0]["authenticationRef"] == reference


def test_the_name_that_keda_dials_leads_to_the_shared_scaler():
    release = Release(name="rel", namespace="ops", cluster_domain="example.org", scaler_tls_port=7)
    assert scaled_object.render_service(service({"scaling": TLS}), release=release) == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "chat-scaler",
            "namespace": "ai",
            "labels": {
                "app.kubernetes.io/name": "chat",
                "app.kubernetes.io/managed-by": "hearth",
                "serving.hearth.dev/service": "chat",
            },
        },
        "spec": {
            "type": "ExternalName",
            "externalName": "rel-scaler.ops.svc.example.org",
            "ports": [{"name": "grpc", "port": 7, "protocol": "TCP"}],
        },
    }


def test_without_services_there_is_no_tls():
    with pytest.raises(
        SpecError, match=r"^spec.scaling.externalScaler.tls: needs a cluster"
    ) as error:
        render(TLS, Release(scaler="127.0.0.1:9090"))
    assert error.value.rejection.reason == "ScaledObject"


@pytest.mark.parametrize("scaling", [{}, {"externalScaler": {}}, TLS])
def test_the_server_secret_is_read_back(scaling: Manifest):
    expected = "s" if scaling == TLS else None
    assert scaled_object.server_secret(service({"scaling": scaling})) == expected
    assert scaled_object.server_secret_of(render(scaling)) == expected


@pytest.mark.parametrize("triggers", [[], [{}], [{"metadata": {"targetValue": "x"}}]])
def test_what_is_not_ours_has_no_secret(triggers: list[Manifest]):
    assert scaled_object.server_secret_of({"spec": {"triggers": triggers}}) is None


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        ({"metric": "kvCacheUtil"}, "spec.scaling.metric: kvCacheUtil is not supported; use queue"),
    ],
)
def test_refusals_name_the_field(scaling: Manifest, message: str):
    with pytest.raises(SpecError) as error:
        render(scaling)
    assert error.value.rejection.reason == "ScaledObject"
    assert message in error.value.rejection.message


def test_an_external_scaler_without_tls_is_nothing_special():
    assert render({"externalScaler": {}}) == render({})


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        (None, False),
        ({}, False),
        ({"autoscaling.keda.sh/paused": "true"}, True),
        ({"autoscaling.keda.sh/paused": "maybe"}, True),
        ({"autoscaling.keda.sh/paused": "False"}, False),
        ({"autoscaling.keda.sh/paused": "0"}, False),
        ({"autoscaling.keda.sh/paused-replicas": "0"}, True),
        ({"autoscaling.keda.sh/paused-scale-out": "true"}, True),
        ({"autoscaling.keda.sh/paused-scale-in": "true"}, False),
    ],
)
def test_paused_annotations(annotations: Manifest | None, expected: bool):
    assert scaled_object.paused({"metadata": {"annotations": annotations}}) is expected


def test_what_is_not_there_is_not_paused():
    assert scaled_object.paused(None) is False
