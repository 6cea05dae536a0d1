"""Manifests on both sides of every rule, for the Python predicates and for an API server."""

from typing import NamedTuple

from hearth.api import groups, rules
from hearth.api.meta import Manifest
from tests.api.samples import GONE, OCI, runtime, service


class Sides(NamedTuple):
    """Samples that one rule lets pass, and samples that it refuses."""

    kind: str
    field: str
    """Where the refusal points; with `message` this says which rule is meant."""
    message: str
    good: list[Manifest]
    bad: list[Manifest]


def _scaling(field, message, good, bad):
    return Sides(
        "LLMService",
        f"spec.scaling.{field}",
        message,
        [service(**{f"scaling__{field}": value}) for value in good],
        [service(**{f"scaling__{field}": value}) for value in bad],
    )


def _probe(name, message, field, good, bad):
    at = f"spec.health.{name}{f'.{field}' if field else ''}"
    return Sides(
        "InferenceRuntime",
        at,
        message,
        [runtime(**{f"health__{name}": value}) for value in good],
        [runtime(**{f"health__{name}": value}) for value in bad],
    )


_NAME = "metadata.name"
_GET = {"httpGet": {"path": "/health", "port": "http"}}
_ONE_ACTION = "set exactly one of httpGet, tcpSocket, exec, grpc"
_ACTIONS_GOOD = [
    _GET,
    {"tcpSocket": {"port": 8000}},
    {"exec": {"command": ["true"]}},
    {"grpc": {"port": 9000}},
]
_ACTIONS_BAD = [{}, {"periodSeconds": 1}, {**_GET, "tcpSocket": {"port": 8000}}]
_FIELD_REF = {"fieldRef": {"fieldPath": "status.podIP"}}
_SECRET_REF = {"secretKeyRef": {"name": "a", "key": "b"}}
_NOCTAYA = groups.NOCTAYA

SIDES = [
    Sides(
        "LLMService",
        _NAME,
        "a name has at most 54 characters, so that names made from it stay legal",
        [service(name="a" * 54)],
        [service(name="a" * 55)],
    ),
    Sides(
        "LLMService",
        _NAME,
        "a name is made of lower-case letters, digits and hyphens, begins with a letter and does "
        "not end with a hyphen",
        [service(name=name) for name in ("a", "a1", "a-b-c", "qwen3-8b")],
        [service(name=name) for name in ("1a", "a.b", "8")],
    ),
    Sides(
        "LLMService",
        _NAME,
        "the name hearth is reserved for the shared endpoint of the namespace; choose another",
        [service(name="hearth-2")],
        [service(name="hearth")],
    ),
    Sides(
        "LLMService",
        "spec.runtime",
        "is required: set runtime.name or runtime.selector.vendor",
        [service(_NOCTAYA), service(runtime=GONE)],
        [service(_NOCTAYA, runtime=GONE)],
    ),
    Sides(
        "LLMService",
        "spec.model",
        "set source or catalogRef, not both",
        [
            service(_NOCTAYA),
            service(_NOCTAYA, model={"catalogRef": "tiny"}),
            service(_NOCTAYA, model__catalogRef=""),
            service(model__catalogRef="tiny"),
            service(model={}),
        ],
        [service(_NOCTAYA, model__catalogRef="tiny")],
    ),
    Sides(
        "LLMService",
        "spec.model",
        "say where the model comes from: set source.uri",
        [service(_NOCTAYA, model={"catalogRef": "tiny"}), service(model={})],
        [service(_NOCTAYA, model={}), service(_NOCTAYA, model={"catalogRef": ""})],
    ),
    Sides(
        "LLMService",
        "spec.model.source.secretRef",
        rules.ONLY_FOR_OCI,
        [
            service(_NOCTAYA, model__source={"uri": OCI, "secretRef": {"name": "pull"}}),
            service(model__source={"uri": "hf://a/b", "secretRef": {"name": "pull"}}),
        ],
        [
            service(_NOCTAYA, model__source={"uri": uri, "secretRef": {"name": "pull"}})
            for uri in ("hf://a/b", "pvc://weights", "oci:/x")
        ],
    ),
    Sides(
        "LLMService",
        "spec.model.source.secretRef.name",
        rules.NAME_THE_SECRET,
        [service(model__source={"uri": OCI, "secretRef": {"name": "p"}}), service()],
        [
            service(_NOCTAYA, model__source={"uri": OCI, "secretRef": {}}),
            service(_NOCTAYA, model__source={"uri": OCI, "secretRef": {"name": ""}}),
        ],
    ),
    Sides(
        "LLMService",
        "spec.runtime",
        "set name or selector, not both",
        [
            service(_NOCTAYA),
            service(_NOCTAYA, runtime={"selector": {"vendor": ["cpu"]}}),
            service(_NOCTAYA, runtime={"name": "", "selector": {"vendor": ["cpu"]}}),
            service(_NOCTAYA, runtime__selector={}),
            service(_NOCTAYA, runtime__selector={"vendor": []}),
            service(runtime__selector={"vendor": ["nvidia"]}),
            service(runtime={}),
        ],
        [service(_NOCTAYA, runtime__selector={"vendor": ["nvidia"]})],
    ),
    Sides(
        "LLMService",
        "spec.runtime",
        "say which runtime serves: set name or selector.vendor",
        [
            service(_NOCTAYA, runtime={"selector": {"vendor": ["cpu"]}}),
            service(runtime={"argsOverride": ["--x"]}),
            service(runtime={"selector": {"vendor": []}}),
        ],
        [
            service(_NOCTAYA, runtime=value)
            for value in (
                {},
                {"argsOverride": ["--x"]},
                {"name": ""},
                {"selector": {}},
                {"selector": {"vendor": []}},
                {"name": "", "selector": {}},
            )
        ],
    ),
    Sides(
        "LLMService",
        "spec.runtime.selector.vendor",
        "each vendor is one of nvidia, ascend, cpu",
        [
            service(_NOCTAYA, runtime={"selector": {"vendor": ["ascend", "nvidia", "cpu"]}}),
            service(runtime={"selector": {"vendor": ["amd"]}}),
        ],
        [service(_NOCTAYA, runtime={"selector": {"vendor": ["nvidia", "amd"]}})],
    ),
    Sides(
        "LLMService",
        "spec.scaling.min",
        "must not be more than max (1 by default)",
        [service(scaling={"min": 1}), service(scaling={"min": 3, "max": 3})],
        [service(scaling={"min": 2}), service(scaling={"min": 4, "max": 3})],
    ),
    _scaling("activationTimeout", "must be longer than 0s", ["1ns", "1h30m"], ["0s", "0", "-5m"]),
    _scaling(
        "scaleDownStabilization",
        "must be whole seconds from 0s to 1h",
        ["0s", "0", "1h", "60m", "1000ms", "1.5m", "59m59.9s100ms"],
        ["1500ms", "61m", "-1s", "1s1ns", "1h1s"],
    ),
    _scaling("drainTimeout", "must not be negative", ["0s", "90s"], ["-1s", "-1ns"]),
    Sides(
        "LLMService",
        "spec.endpoint.coldStart.heartbeatInterval",
        "must be longer than 0s",
        [service(endpoint__coldStart__heartbeatInterval="500ms")],
        [service(endpoint__coldStart__heartbeatInterval=value) for value in ("0s", "-1s")],
    ),
    Sides(
        "InferenceRuntime",
        "spec.accelerator",
        "accelerator.resourceName is required, such as nvidia.com/gpu, unless vendor is cpu",
        [
            runtime(),
            runtime(vendor="cpu", accelerator=GONE),
            runtime(vendor="cpu", accelerator={"nodeSelector": {"a": "b"}}),
        ],
        [runtime(accelerator=GONE), runtime(vendor="ascend", accelerator={})],
    ),
    Sides(
        "InferenceRuntime",
        "spec.accelerator.scheduler.queue",
        "is for the scheduler volcano: set name to volcano, or remove queue",
        [
            runtime(accelerator__scheduler={"name": "volcano", "queue": "models"}),
            runtime(accelerator__scheduler={"name": "other"}),
            runtime(accelerator__scheduler={"queue": ""}),
        ],
        [
            runtime(accelerator__scheduler={"queue": "models"}),
            runtime(accelerator__scheduler={"name": "other", "queue": "models"}),
        ],
    ),
    Sides(
        "InferenceRuntime",
        "spec.container.env[1]",
        "set value or valueFrom, not both",
        [
            runtime(container__env=[{"name": "A", "value": "b"}]),
            runtime(container__env=[{"name": "A", "value": "", "valueFrom": _FIELD_REF}]),
        ],
        [
            runtime(
                container__env=[{"name": "A"}, {"name": "B", "value": "b", "valueFrom": _FIELD_REF}]
            )
        ],
    ),
    Sides(
        "InferenceRuntime",
        "spec.container.env[0].valueFrom",
        "set exactly one of fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef",
        [
            runtime(container__env=[{"name": "A", "valueFrom": source}])
            for source in (
                _FIELD_REF,
                _SECRET_REF,
                {"configMapKeyRef": {"name": "a", "key": "b", "optional": True}},
                {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}},
            )
        ],
        [
            runtime(container__env=[{"name": "A", "valueFrom": source}])
            for source in ({}, {**_FIELD_REF, **_SECRET_REF})
        ],
    ),
    *(
        _probe(name, _ONE_ACTION, "", _ACTIONS_GOOD, _ACTIONS_BAD)
        for name in ("readiness", "liveness", "startup")
    ),
    *(
        _probe(
            name,
            f"must be 1 for a {name} probe",
            "successThreshold",
            [{**_GET, "successThreshold": 1}],
            [{**_GET, "successThreshold": 2}],
        )
        for name in ("liveness", "startup")
    ),
    _probe(
        "readiness",
        "has no meaning for a readiness probe; remove it",
        "terminationGracePeriodSeconds",
        [{**_GET, "successThreshold": 2}],
        [{**_GET, "terminationGracePeriodSeconds": 5}],
    ),
]
