"""Short ways to the custom resources and observed objects of these tests."""

import copy
import datetime
from typing import Any

from hearth.api.llmservice import LLMService
from hearth.api.meta import Manifest
from hearth.api.runtime import InferenceRuntime
from hearth.reconcile.render import desired
from hearth.reconcile.render.release import Release
from hearth.reconcile.status import observation, pod_failures

WALL = datetime.datetime(2026, 1, 1, 12, 0, 0, tzinfo=datetime.UTC)
UID = "uid-of-chat"


def merged(base: Any, over: Any) -> Any:
    """`base` with `over` laid upon it, dict by dict."""
    if not (isinstance(base, dict) and isinstance(over, dict)):
        return copy.deepcopy(over)
    return {**base, **{key: merged(base.get(key), value) for key, value in over.items()}}


def service(
    spec: Manifest | None = None,
    *,
    name: str = "chat",
    group: str = "serving.hearth.dev",
    status: Manifest | None = None,
    **metadata: Any,
) -> LLMService:
    said = service_manifest(spec, name=name, group=group, status=status, **metadata)
    return LLMService.model_validate(said)


def service_manifest(
    spec: Manifest | None = None,
    *,
    name: str = "chat",
    group: str = "serving.hearth.dev",
    status: Manifest | None = None,
    **metadata: Any,
) -> Manifest:
    base = {"model": {"source": {"uri": "hf://org/model"}}, "runtime": {"name": "stub"}}
    return {
        "apiVersion": f"{group}/v1alpha1",
        "kind": "LLMService",
        "metadata": {"name": name, "namespace": "ai", "uid": UID, "generation": 3, **metadata},
        "spec": merged(base, spec or {}),
        "status": status or {},
    }


def written(resource: LLMService | InferenceRuntime) -> Manifest:
    """As a user's file has it."""
    return {**resource.manifest(), "apiVersion": resource.api_version, "kind": resource.kind}


def runtime(
    spec: Manifest | None = None,
    *,
    name: str = "stub",
    group: str = "serving.hearth.dev",
    annotations: dict[str, str] | None = None,
) -> InferenceRuntime:
    base = {"vendor": "cpu", "container": {"image": "engine:1", "args": ["serve"]}}
    return InferenceRuntime.model_validate(
        {
            "apiVersion": f"{group}/v1alpha1",
            "kind": "InferenceRuntime",
            "metadata": {"name": name, "annotations": annotations or {}},
            "spec": merged(base, spec or {}),
        }
    )


def render(
    of: LLMService | None = None, by: InferenceRuntime | None = None, **release: Any
) -> desired.Desired:
    return desired.render(of or service(), by or runtime(), release=Release(**release))


def find(found: desired.Desired, kind: str, name: str = "") -> Manifest:
    return next(
        m for m in found.manifests if m["kind"] == kind and name in ("", m["metadata"]["name"])
    )


def pod(
    *,
    ready: bool = False,
    ip: str | None = "10.0.0.1",
    waiting: Manifest | None = None,
    running: bool = False,
    restarts: int = 0,
    over: Manifest | None = None,
    **status: Any,
) -> Manifest:
    """A scheduled pod whose serving container waits (for nothing in particular) or runs."""
    state = {"running": {}} if running or ready else {"waiting": waiting or {}}
    base = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "chat-1", "namespace": "ai", "uid": "pod-1"},
        "spec": {
            "containers": [
                {
                    "name": "serving",
                    "image": "engine:1",
                    "args": ["serve"],
                    "ports": [{"name": "http", "containerPort": 8000}],
                    "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}},
                }
            ]
        },
        "status": {
            "phase": "Pending",
            **({"podIP": ip} if ip else {}),
            "conditions": [
                {"type": "PodScheduled", "status": "True"},
                {"type": "Ready", "status": "True" if ready else "False"},
            ],
            "containerStatuses": [{"name": "serving", "restartCount": restarts, "state": state}],
            **status,
        },
    }
    return merged(base, over or {})


def observe(
    *pods: Manifest,
    deployment: Manifest | None = None,
    history: pod_failures.PodHistory | None = None,
    now_s: float = 100.0,
) -> observation.Observed:
    return observation.observe(
        deployment, pods, history=history or pod_failures.PodHistory(), now_s=now_s
    )
