"""Security contexts are read as Kubernetes spells them."""

import pytest
from pydantic import ValidationError

from hearth.api.pod_security import PodSecurityContext, SecurityContext


@pytest.mark.parametrize(
    ("model", "written"),
    [
        (
            PodSecurityContext,
            {
                "runAsNonRoot": True, "runAsUser": 0, "runAsGroup": 5, "fsGroup": 5,
                "fsGroupChangePolicy": "Always", "supplementalGroups": [1, 2],
                "supplementalGroupsPolicy": "Strict", "seLinuxChangePolicy": "MountOption",
                "seLinuxOptions": {"level": "s0:c1,c2", "user": "u", "role": "r", "type": "t"},
                "seccompProfile": {"type": "Localhost", "localhostProfile": "p.json"},
                "appArmorProfile": {"type": "RuntimeDefault"},
                "sysctls": [{"name": "net.core.somaxconn", "value": "1024"}],
            },
        ),
        (
            SecurityContext,
            {
                "allowPrivilegeEscalation": False, "privileged": True, "procMount": "Unmasked",
                "readOnlyRootFilesystem": True, "runAsUser": 5,
                "capabilities": {"add": ["SYS_NICE"], "drop": ["ALL"]},
            },
        ),
    ],
)  # fmt: skip
def test_every_field_comes_back(model, written):
    read = model.model_validate(written, extra="forbid", by_alias=True, by_name=False)
    assert read.manifest() == written


@pytest.mark.parametrize(
    ("model", "written"),
    [
        (PodSecurityContext, {"runAsUser": -1}),
        (PodSecurityContext, {"runAsNonRoot": "yes"}),
        (PodSecurityContext, {"seccompProfile": {"type": "Default"}}),
        (PodSecurityContext, {"allowPrivilegeEscalation": False}),
        (SecurityContext, {"fsGroup": 5}),
        (SecurityContext, {"capabilities": ["ALL"]}),
    ],
)
def test_what_kubernetes_would_refuse_is_refused(model, written):
    with pytest.raises(ValidationError):
        model.model_validate(written, extra="forbid", by_alias=True, by_name=False)
