"""Kubernetes' own types come back as they were written, and refuse what Kubernetes refuses."""

import pytest
from pydantic import ValidationError

from hearth.api.kubernetes import EnvVar, LocalObjectReference, Probe, Toleration


@pytest.mark.parametrize(
    ("model", "body"),
    [
        (LocalObjectReference, {}),
        (LocalObjectReference, {"name": ""}),
        (EnvVar, {"name": "A", "value": ""}),
        (EnvVar, {"name": "A", "valueFrom": {"secretKeyRef": {"key": "k", "optional": False}}}),
        (
            EnvVar,
            {"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "x", "divisor": "0"}}},
        ),
        (Toleration, {"operator": "Exists"}),
        (Probe, {"httpGet": {"port": "http", "httpHeaders": []}, "initialDelaySeconds": 0}),
        (Probe, {"httpGet": {"port": 8000, "scheme": "HTTPS"}, "periodSeconds": 1}),
        (Probe, {"exec": {"command": ["a", "b"]}}),
        (Probe, {"grpc": {"port": 1, "service": ""}}),
    ],
)
def test_manifest_is_what_was_written(model, body):
    assert model.model_validate(body).manifest() == body


@pytest.mark.parametrize(
    ("model", "body"),
    [
        (EnvVar, {"name": ""}),
        (EnvVar, {"name": "A", "value": 1}),
        (Toleration, {"operator": "In"}),
        (Toleration, {"effect": "Never"}),
        (Probe, {"httpGet": {}}),
        (Probe, {"httpGet": {"port": 0}}),
        (Probe, {"httpGet": {"port": 65536}}),
        (Probe, {"httpGet": {"port": True}}),
        (Probe, {"httpGet": {"port": "8000"}}),
        (Probe, {"httpGet": {"port": "a--b"}}),
        (Probe, {"httpGet": {"port": "a" * 16}}),
        (Probe, {"tcpSocket": {"port": None}}),
        (Probe, {"exec": {"command": []}}),
        (Probe, {"exec": {"command": ["a"]}, "periodSeconds": -1}),
        (Probe, {"grpc": {"port": "http"}}),
    ],
)
def test_what_kubernetes_refuses_is_refused(model, body):
    with pytest.raises(ValidationError):
        model.model_validate(body)
