import base64

import pytest

from hearth.api.meta import Manifest
from hearth.cluster.local.kubelet import environment
from hearth.cluster.local.kubelet.environment import CannotStart, EnvironmentSources

POD: Manifest = {
    "metadata": {
        "name": "chat-x",
        "namespace": "ai",
        "uid": "u1",
        "labels": {"app": "chat"},
        "annotations": {"hearth.dev/note": "n"},
    },
    "spec": {
        "containers": [
            {"name": "serving", "resources": {"limits": {"memory": "2Gi", "cpu": "1500m"}}}
        ]
    },
}
SOURCES = EnvironmentSources(
    pod=POD,
    ip="127.77.0.9",
    node="here",
    secrets={
        "key": {"data": {"token": base64.b64encode(b"s3cret").decode()}},
        "gone": None,
    },
    config_maps={"conf": {"data": {"level": "high"}}, "gone": None},
)


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("--host=$(IP)", "--host=1.2.3.4"),
        ("$(IP):$(PORT)", "1.2.3.4:80"),
        ("$(NOBODY)", "$(NOBODY)"),
        ("$$(IP)", "$(IP)"),
        ("$$$(IP)", "$1.2.3.4"),
        ("$IP ${IP} $", "$IP ${IP} $"),
        ("$(IP", "$(IP"),
        ("$()", "$()"),
        ("a$\nb", "a$\nb"),
    ],
)
def test_variable_expansion(text, expanded):
    assert environment.expand(text, {"IP": "1.2.3.4", "PORT": "80"}) == expanded


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "chat-x"),
        ("metadata.namespace", "ai"),
        ("metadata.uid", "u1"),
        ("metadata.labels['app']", "chat"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['hearth.dev/note']", "n"),
        ("spec.nodeName", "here"),
        ("spec.serviceAccountName", "default"),
        ("status.podIP", "127.77.0.9"),
        ("status.hostIP", "127.0.0.1"),
    ],
)
def test_field_ref(path, value):
    assert environment.field_of(path, SOURCES) == value


def test_unsupported_field_ref_names_the_field():
    with pytest.raises(CannotStart, match=r"spec\.color"):
        environment.field_of("spec.color", SOURCES)


@pytest.mark.parametrize(
    ("reference", "value"),
    [
        ({"resource": "limits.memory"}, str(2 * 1024**3)),
        ({"resource": "limits.memory", "divisor": "1Mi"}, "2048"),
        ({"resource": "limits.cpu"}, "2"),
        ({"resource": "limits.cpu", "containerName": "serving", "divisor": "1m"}, "1500"),
        ({"resource": "requests.cpu"}, "0"),
    ],
)
def test_resource_field_ref(reference, value):
    container = {
        **POD["spec"]["containers"][0],
        "env": [{"name": "A", "valueFrom": {"resourceFieldRef": reference}}],
    }
    assert environment.resolve(container, SOURCES) == {"A": value}


def test_env_values_see_those_before():
    container = {
        "env": [
            {"name": "T", "valueFrom": {"secretKeyRef": {"name": "key", "key": "token"}}},
            {"name": "A", "value": "$(T)-$(B)"},
            {"name": "B", "value": "b"},
            {"name": "C", "value": "$(A)/$(B)"},
            {"name": "EMPTY"},
            {"name": "L", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "level"}}},
            {
                "name": "NONE",
                "valueFrom": {"secretKeyRef": {"name": "gone", "key": "k", "optional": True}},
            },
            {
                "name": "NONE",
                "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "k", "optional": True}},
            },
        ],
    }
    assert environment.resolve(container, SOURCES) == {
        "A": "s3cret-$(B)",
        "B": "b",
        "C": "s3cret-$(B)/b",
        "EMPTY": "",
        "T": "s3cret",
        "L": "high",
    }
    assert set(environment.references(container)) == {
        ("Secret", "key"),
        ("Secret", "gone"),
        ("ConfigMap", "conf"),
    }


@pytest.mark.parametrize(
    ("container", "message"),
    [
        (
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "gone", "key": "k"}}}]},
            'secret "gone" not found',
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "key", "key": "k"}}}]},
            "couldn't find key k in Secret ai/key",
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "gone"}}}]},
            'configmap "gone" not found',
        ),
    ],
)
def test_missing_secret_or_config_map_message(container, message):
    with pytest.raises(CannotStart) as caught:
        environment.resolve(container, SOURCES)
    assert (caught.value.reason, caught.value.message) == ("CreateContainerConfigError", message)


def test_inherited_environment():
    own = {"PATH": "/bin", "HEARTH_API_KEY": "no", "HF_TOKEN": "no"}
    assert environment.inherited(own) == {"PATH": "/bin"}


def test_a_value_may_be_a_field_of_the_pod():
    origin = {"fieldRef": {"fieldPath": "status.podIP"}}
    container = {"env": [{"name": "IP", "valueFrom": origin}]}
    assert environment.resolve(container, SOURCES) == {"IP": "127.77.0.9"}
