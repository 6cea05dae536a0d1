"""The pods of a service before the admission of a real API server."""

import json
import subprocess

import pytest

from tests.reconcile import builders

NAMESPACE = "restricted"


@pytest.fixture(scope="module")
def create(apiserver):
    """`create(manifest)` asks whether a namespace that is restricted would take it: its refusal."""

    def call(*words: str, given: dict | None = None) -> str:
        done = subprocess.run(
            [apiserver.assets / "kubectl", "--kubeconfig", apiserver.kubeconfig(), *words],
            input=json.dumps(given),
            capture_output=True,
            text=True,
        )
        return done.stderr if done.returncode else ""

    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": NAMESPACE, "labels": labels}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    assert call("create", "-f", "-", given=namespace) == ""
    return lambda manifest: call("create", "--dry-run=server", "-f", "-", given=manifest)


def _pod(**said: str) -> dict:
    service = builders.service({"cache": {"strategy": "None"}}, namespace=NAMESPACE)
    runtime = builders.runtime(annotations={f"hearth.dev/{k}": v for k, v in said.items()})
    template = builders.find(builders.render(service, runtime), "Deployment")["spec"]["template"]
    metadata = {**template["metadata"], "name": "chat-1", "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def test_field_case_105_only_what_depends_on_the_image_is_left_to_say(create):
    refusal = create(_pod())
    assert "runAsNonRoot != true" in refusal
    for costs_nothing in ("allowPrivilegeEscalation", "capabilities", "seccompProfile"):
        assert costs_nothing not in refusal


def test_field_case_105_a_runtime_makes_its_pods_restricted(create):
    said = {"pod-security-context": "{runAsNonRoot: true, runAsUser: 65532}"}
    assert create(_pod(**said)) == ""
