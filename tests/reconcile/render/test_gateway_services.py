"""The names that lead to the gateway."""

from hearth.reconcile.render import gateway_services
from hearth.reconcile.render.release import Release
from tests.reconcile.builders import service, service_manifest

RELEASE = Release(name="rel", namespace="ops", cluster_domain="example.org")
SPEC = {
    "type": "ExternalName",
    "externalName": "rel-gateway.ops.svc.example.org",
    "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
}


def test_a_service_s_own_address():
    assert gateway_services.render(service(), release=RELEASE) == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "chat",
            "namespace": "ai",
            "labels": {
                "app.kubernetes.io/name": "chat",
                "app.kubernetes.io/managed-by": "hearth",
                "serving.hearth.dev/service": "chat",
            },
        },
        "spec": SPEC,
    }


def test_the_shared_address_belongs_to_all_services_of_the_namespace():
    services = [
        service_manifest(name="b", uid="2"),
        service_manifest(name="a", uid="1", group="serving.noctaya.io"),
        service_manifest(name="c", uid=""),
    ]
    assert gateway_services.render_shared("ai", services, release=RELEASE) == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "hearth",
            "namespace": "ai",
            "labels": {
                "app.kubernetes.io/name": "hearth",
                "app.kubernetes.io/managed-by": "hearth",
            },
            "ownerReferences": [
                {
                    "apiVersion": "serving.noctaya.io/v1alpha1",
                    "kind": "LLMService",
                    "name": "a",
                    "uid": "1",
                },
                {
                    "apiVersion": "serving.hearth.dev/v1alpha1",
                    "kind": "LLMService",
                    "name": "b",
                    "uid": "2",
                },
            ],
        },
        "spec": SPEC,
    }


def test_without_a_uid_objects_have_no_owner():
    got = gateway_services.render_shared("ai", [service_manifest(uid="")], release=RELEASE)
    assert "ownerReferences" not in got["metadata"]
