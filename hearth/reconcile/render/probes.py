"""Render the serving container's probes and preStop hook, and how long each may take."""

import math
from dataclasses import dataclass

from hearth.api.kubernetes import Probe
from hearth.api.llmservice import LLMService
from hearth.api.meta import Manifest
from hearth.api.runtime import InferenceRuntime

_PATH = "/health"
_PERIOD_S = 10
_STARTUP_FAILURES = 60
_SCHEDULING_S = 600
"""Beside the time to load: to find a node, and to pull an image of many gigabytes."""
_SHORTEST_DEADLINE_S = 600
_KUBERNETES_GRACE_S = 30
_MARGIN_S = 10
"""Between the end of draining and SIGKILL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSettings:
    """Fields of a Deployment, its pod and its container."""

    probes: Manifest
    startup_s: int
    """How long the startup probe lets an engine load."""
    progress_deadline_s: int
    grace_s: int | None
    """None: Kubernetes' own."""
    lifecycle: Manifest | None


def render(service: LLMService, runtime: InferenceRuntime) -> ProbeSettings:
    """A probe of the runtime stays as it is; a default one gives an activation its time."""
    health, scaling = runtime.spec.health, service.spec.scaling
    request = {"httpGet": {"path": _PATH, "port": runtime.spec.container.port.name}}
    failures = max(_STARTUP_FAILURES, math.ceil(scaling.activation_timeout / _PERIOD_S))
    startup = health.startup or Probe.model_validate(
        {**request, "periodSeconds": _PERIOD_S, "failureThreshold": failures}
    )
    readiness = health.readiness or Probe.model_validate(
        {**request, "periodSeconds": _PERIOD_S, "failureThreshold": 3}
    )
    startup_s = _startup_s(startup)
    lifecycle = runtime.spec.lifecycle
    grace_s = lifecycle.termination_grace_period_seconds
    drain_s = math.ceil(scaling.drain_timeout) if lifecycle.pre_stop_drain else 0
    if lifecycle.pre_stop_drain:
        grace_s = max(grace_s or _KUBERNETES_GRACE_S, drain_s + _MARGIN_S)
    return ProbeSettings(
        probes={
            "startupProbe": startup.manifest(),
            "readinessProbe": readiness.manifest(),
            **({"livenessProbe": health.liveness.manifest()} if health.liveness else {}),
        },
        startup_s=startup_s,
        progress_deadline_s=max(_SHORTEST_DEADLINE_S, startup_s + _SCHEDULING_S),
        grace_s=grace_s,
        # The gateway sends a stopping pod nothing new; SIGTERM would abort what runs.
        lifecycle={"preStop": {"exec": {"command": ["/bin/sh", "-c", f"sleep {drain_s}"]}}}
        if drain_s
        else None,
    )


def _startup_s(probe: Probe) -> int:
    period = probe.period_seconds or _PERIOD_S
    failures = 3 if probe.failure_threshold is None else probe.failure_threshold
    return (probe.initial_delay_seconds or 0) + period * failures
