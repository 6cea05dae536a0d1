"""Specs that a reference's own CRDs let in, and what comes of each under Hearth."""

from typing import Any, NamedTuple

from hearth.api import groups, rules
from tests.api.samples import GONE, OCI

_HEARTH, _NOCTAYA = (groups.HEARTH,), (groups.NOCTAYA,)


class ReferenceSpec(NamedTuple):
    """One spec, as changes of `samples.service`."""

    groups: tuple[str, ...]
    changes: dict[str, Any]
    reason: str = ""
    """Of the refusal at reconcile; empty: it is served."""
    words: str = ""
    """What the refusal says, or the warning of one that is served."""

    def __str__(self) -> str:
        return f"{'+'.join(self.groups)} {self.changes}"


_SELECTED = {"selector": {"vendor": ["nvidia"]}}

SPECS = (
    # Empty texts, as a template leaves them.
    ReferenceSpec(groups.GROUPS, {"runtime": {"name": "", **_SELECTED}}),
    ReferenceSpec(groups.GROUPS, {"model__catalogRef": ""}),
    # What wins.
    ReferenceSpec(
        _HEARTH, {"runtime": {"name": "vllm-nvidia", **_SELECTED}}, words="selector has no effect"
    ),
    ReferenceSpec(
        groups.GROUPS,
        {"runtime": {"name": "vllm-nvidia", "selector": {}}},
        words="selector has no effect",
    ),
    ReferenceSpec(_HEARTH, {"model__catalogRef": "tiny"}, words="catalogRef has no effect"),
    # Let in, and never served.
    ReferenceSpec(_HEARTH, {"runtime": GONE}, "RuntimeResolution", "set spec.runtime.name"),
    ReferenceSpec(_HEARTH, {"runtime": {}}, "RuntimeResolution", "set spec.runtime.name"),
    ReferenceSpec(
        _HEARTH, {"runtime": {"selector": {}}}, "RuntimeResolution", "list at least one vendor"
    ),
    ReferenceSpec(
        _HEARTH,
        {"runtime": {"selector": {"vendor": []}}},
        "RuntimeResolution",
        "list at least one vendor",
    ),
    ReferenceSpec(
        _HEARTH,
        {"runtime": {"selector": {"vendor": ["", "amd"]}}},
        "RuntimeResolution",
        "no InferenceRuntime is of",
    ),
    ReferenceSpec(_HEARTH, {"model": {}}, "ModelResolution", "set spec.model.source.uri"),
    ReferenceSpec(
        groups.GROUPS, {"model": {"catalogRef": "tiny"}}, "ModelResolution", "catalogRef is not"
    ),
    ReferenceSpec(
        _HEARTH,
        {"model__source": {"uri": "hf://a/b", "secretRef": {"name": "token"}}},
        "ModelResolution",
        rules.ONLY_FOR_OCI,
    ),
    ReferenceSpec(
        _HEARTH,
        {"model__source": {"uri": "hf://a/b", "secretRef": {}}},
        "ModelResolution",
        rules.ONLY_FOR_OCI,
    ),
    ReferenceSpec(
        _HEARTH,
        {"model__source": {"uri": OCI, "secretRef": {}}},
        "ModelResolution",
        rules.NAME_THE_SECRET,
    ),
    ReferenceSpec(
        groups.GROUPS, {"model__source__uri": "s3://bucket/key"}, "ModelResolution", "s3://"
    ),
    ReferenceSpec(
        groups.GROUPS,
        {"model__source__uri": OCI.replace("@sha256:" + "0" * 64, ":v1")},
        "ModelResolution",
        "digest",
    ),
    ReferenceSpec(
        groups.GROUPS, {"resources": {"fraction": {"memory": "8Gi"}}}, "Render", "fraction"
    ),
    ReferenceSpec(
        groups.GROUPS, {"cache": {"strategy": "BakedImage"}}, "Render", "BakedImage"
    ),
    ReferenceSpec(
        groups.GROUPS, {"scaling": {"metric": "kvCacheUtil"}}, "ScaledObject", "kvCacheUtil"
    ),
)  # fmt: skip
"""Beside the rows of `samples.EVERYTHING`, which set every field."""

RUNTIMES: tuple[dict[str, Any], ...] = (
    {"metrics": {"path": "/metrics", "port": "http", "queueDepth": ""}},
    {"metrics": {"path": "/m", "port": "elsewhere", "queueDepth": "w", "ttft": "", "running": ""}},
    {"accelerator__scheduler": {}},
    {"accelerator__scheduler": {"name": "", "queue": ""}},
    {"accelerator__scheduler": {"name": "yunikorn"}},
    {"accelerator__sharing": {"supported": True}},
    {"container__env": [{"name": "A", "value": "", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]},
    {"container__env": [{"name": "A"}]},
    {"container__port": {"name": "api", "containerPort": 1}},
    {"health": {"readiness": {"httpGet": {"port": "http"}, "periodSeconds": 0}}},
    {"lifecycle": {"terminationGracePeriodSeconds": 1, "preStopDrain": False}},
    {"priority": -5, "family": "vllm"},
)
"""The same of runtimes, in both groups: each serves."""

STORED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("spec.scaling.scaleDownStabilization", {"scaling": {"scaleDownStabilization": "1500ms"}}),
    ("spec.scaling.scaleDownStabilization", {"scaling": {"scaleDownStabilization": "61m"}}),
    ("spec.scaling.min", {"scaling": {"min": 2}}),
    ("spec.scaling.activationTimeout", {"scaling": {"activationTimeout": "0s"}}),
    ("spec.scaling.drainTimeout", {"scaling": {"drainTimeout": "-1s"}}),
    (
        "spec.endpoint.coldStart.heartbeatInterval",
        {"endpoint": {"coldStart": {"heartbeatInterval": "0s"}}},
    ),
)
"""What a cluster may hold from the time of a reference, and our rules refuse when it is written
anew: the field, and the changes."""

STORED_NAMES = ("hearth", "a" * 55, "1a")
"""The same of names."""
