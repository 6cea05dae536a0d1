"""What a runtime says of pods reaches them, and nothing that is Hearth's own."""

import pytest

from hearth.reconcile.spec.spec_errors import SpecError
from tests.reconcile.builders import find, render, runtime, service

DEVICE = {"accelerator": {"resourceName": "example.com/npu"}}
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
NO_CACHE = service({"cache": {"strategy": "None"}})


def deployment(spec=None, of=NO_CACHE, **said: str):
    annotations = {f"hearth.dev/{name.replace('_', '-')}": text for name, text in said.items()}
    return find(render(of, runtime(spec, annotations=annotations)), "Deployment")


def pod(*args, **said: str):
    return deployment(*args, **said)["spec"]["template"]["spec"]


def security(spec=None, of=NO_CACHE, **said: str):
    """Of the pod and of its container."""
    found = pod(spec, of, **said)
    return found.get("securityContext"), found["containers"][0].get("securityContext")


def warnings(**said: str):
    annotations = {f"hearth.dev/{name.replace('_', '-')}": text for name, text in said.items()}
    return render(NO_CACHE, runtime(annotations=annotations)).warnings


def test_field_case_103_the_runtime_class_is_said():
    assert "runtimeClassName" not in pod()
    assert pod(pod_runtime_class="nvidia")["runtimeClassName"] == "nvidia"
    by_name = pod(pod_runtime_class="for-{{ .Service.Namespace }}")
    assert by_name["runtimeClassName"] == "for-ai"
    assert pod(pod_priority_class="high")["priorityClassName"] == "high"


def test_field_case_104_labels_and_annotations_reach_deployment_and_pods():
    plain = deployment()
    got = deployment(
        pod_labels="{team: serving, kueue.x-k8s.io/queue-name: 'of-{{ .Service.Namespace }}'}",
        pod_annotations='{"sidecar.istio.io/inject": "false", "model": "{{ .Model.Path }}"}',
    )
    more = {"team": "serving", "kueue.x-k8s.io/queue-name": "of-ai"}
    notes = {"sidecar.istio.io/inject": "false", "model": "org/model"}
    for metadata, before in (
        (got["metadata"], plain["metadata"]),
        (got["spec"]["template"]["metadata"], plain["spec"]["template"]["metadata"]),
    ):
        assert metadata["labels"] == before["labels"] | more
        assert metadata["annotations"].items() >= notes.items()
    assert got["spec"]["selector"] == plain["spec"]["selector"]


def test_field_case_104_hearths_own_labels_and_annotations_win():
    queue = {
        "vendor": "nvidia",
        "accelerator": {
            "resourceName": "nvidia.com/gpu",
            "scheduler": {"name": "volcano", "queue": "models"},
        },
    }
    said = {
        "pod_labels": "{app.kubernetes.io/name: x, serving.hearth.dev/role: leader,"
        " pod-template-hash: a, team: b}",
        "pod_annotations": "{serving.hearth.dev/spec-hash: x, scheduling.volcano.sh/queue-name: x,"
        " deployment.kubernetes.io/revision: '7'}",
    }
    plain, got = deployment(queue), deployment(queue, **said)
    assert got["metadata"]["labels"] == plain["metadata"]["labels"] | {"team": "b"}
    template = got["spec"]["template"]["metadata"]
    assert template["labels"] == got["metadata"]["labels"]
    assert template["annotations"] == {"scheduling.volcano.sh/queue-name": "models"}
    assert set(got["metadata"]["annotations"]) == {"serving.hearth.dev/spec-hash"}
    told = warnings(**said)
    assert len(told) == 5  # the queue's annotation is free where no queue is said
    assert told[0] == (
        "InferenceRuntime stub: annotation hearth.dev/pod-labels: app.kubernetes.io/name is set by"
        " Hearth or by Kubernetes and stays as it is; remove it"
    )
    assert warnings(pod_labels="team: b") == ()


@pytest.mark.parametrize(
    ("vendor", "expected"),
    [
        ("cpu", ({"seccompProfile": {"type": "RuntimeDefault"}}, RESTRICTED)),
        ("nvidia", ({"seccompProfile": {"type": "RuntimeDefault"}}, RESTRICTED)),
        # Its devices belong to a user of the driver's: root needs a capability to open them.
        ("ascend", (None, {"allowPrivilegeEscalation": False})),
    ],
)
def test_field_case_105_what_costs_nothing_is_the_default(vendor, expected):
    assert security({"vendor": vendor, **(DEVICE if vendor != "cpu" else {})}) == expected


@pytest.mark.parametrize(
    ("pod_says", "container_says", "expected"),
    [
        (
            "{runAsNonRoot: true, runAsUser: 5}",
            "readOnlyRootFilesystem: true",
            (
                {"seccompProfile": {"type": "RuntimeDefault"}, "runAsNonRoot": True,
                 "runAsUser": 5},
                {**RESTRICTED, "readOnlyRootFilesystem": True},
            ),
        ),
        (
            "seccompProfile: {type: Unconfined}",
            "capabilities: {add: [SYS_NICE], drop: [ALL]}",
            (
                {"seccompProfile": {"type": "Unconfined"}},
                {**RESTRICTED, "capabilities": {"add": ["SYS_NICE"], "drop": ["ALL"]}},
            ),
        ),
        ("seccompProfile: null", "{capabilities: null, allowPrivilegeEscalation: null}",
         (None, None)),
        # The API server refuses these together with allowPrivilegeEscalation: false.
        ("{}", "privileged: true",
         ({"seccompProfile": {"type": "RuntimeDefault"}},
          {"capabilities": {"drop": ["ALL"]}, "privileged": True})),
        ("{}", "capabilities: {add: [SYS_ADMIN]}",
         ({"seccompProfile": {"type": "RuntimeDefault"}},
          {"capabilities": {"add": ["SYS_ADMIN"]}})),
    ],
)  # fmt: skip
def test_field_case_105_the_runtime_says_the_rest(pod_says, container_says, expected):
    got = security(pod_security_context=pod_says, container_security_context=container_says)
    assert got == expected


def test_field_case_105_the_group_of_a_cache_claim_is_a_default_too():
    assert security(of=service())[0]["fsGroup"] == 1000
    context, _ = security(of=service(), pod_security_context="{fsGroup: 7}")
    assert (context["fsGroup"], context["fsGroupChangePolicy"]) == (7, "OnRootMismatch")
    context, _ = security(of=service(), pod_security_context="{fsGroup: null}")
    assert "fsGroup" not in context


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"pod_labels": "team: '{{ .Model.Path }}'"}, "hearth.dev/pod-labels: team: a label's"),
        ({"pod_labels": "team: '{{ .Model.Pth }}'"}, "hearth.dev/pod-labels: {{ .Model.Pth }}: "),
        ({"pod_runtime_class": "{{ .Model.Path }}"}, "hearth.dev/pod-runtime-class: write a name"),
        ({"pod_runtime_class": "{{ .X }}"}, "hearth.dev/pod-runtime-class: {{ .X }}: "),
        ({"engine_key": "{{ .Model.Path }}/k"}, "hearth.dev/engine-key: write SECRET/KEY"),
        ({"pod_label": "a: b"}, "hearth.dev/pod-label: there is no such option"),
        ({"pod_annotations": "[]"}, "hearth.dev/pod-annotations: write a mapping"),
        ({"pod_security_context": "{seLinuxOptions: {level: '{{ range }}'}}"},
         "hearth.dev/pod-security-context: {{ range }}: "),
    ],
)  # fmt: skip
def test_field_cases_103_and_104_a_mistake_is_refused_by_name(said, told):
    with pytest.raises(SpecError) as error:
        pod(**said)
    assert str(error.value).startswith(f"InferenceRuntime stub: annotation {told}")
    assert error.value.rejection.reason == "Render"


def test_what_is_said_in_a_list_is_rendered_too():
    _, container = security(
        container_security_context="capabilities: {drop: ['{{ .Model.Path }}']}"
    )
    assert container["capabilities"] == {"drop": ["org/model"]}


def test_field_case_130_the_engines_own_key_is_in_its_environment():
    assert "HEARTH_ENGINE_KEY" not in str(pod())
    got = render(
        NO_CACHE,
        runtime(annotations={"hearth.dev/engine-key": "of-{{ .Service.Name }}/token"}),
        backend_guard="warn",
    )
    assert got.engine_keyed and not render(NO_CACHE, runtime()).engine_keyed
    [container] = find(got, "Deployment")["spec"]["template"]["spec"]["containers"]
    # In front of what may refer to it.
    assert [variable["name"] for variable in container["env"]][:2] == [
        "POD_IP",
        "HEARTH_ENGINE_KEY",
    ]
    reference = {"secretKeyRef": {"name": "of-chat", "key": "token"}}
    assert container["env"][1]["valueFrom"] == reference
    own = {"container": {"env": [{"name": "HEARTH_ENGINE_KEY", "value": "mine"}]}}
    [container] = pod(own, engine_key="keys/token")["containers"]
    assert [v for v in container["env"] if v["name"] == "HEARTH_ENGINE_KEY"] == [
        {"name": "HEARTH_ENGINE_KEY", "value": "mine"}
    ]
