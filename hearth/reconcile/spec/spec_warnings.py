"""Warnings of a spec: what works, but maybe not as its author means."""

import math
from collections.abc import Iterator

from hearth import names
from hearth.api.llmservice import LLMService
from hearth.api.runtime import InferenceRuntime
from hearth.cache.source import Source


def warnings(
    service: LLMService,
    runtime: InferenceRuntime,
    model: Source,
    *,
    startup_s: int,
    warns_of_unguarded: bool,
) -> Iterator[str]:
    """Sentences for a condition and its Event; each names its field and says what to do.

    `startup_s`: how long the startup probe lets an engine load.  `warns_of_unguarded`: whether
    nothing but the gateway asks for the key of a service that has one.
    """
    spec, scaling = service.spec, service.spec.scaling
    queue, needed = spec.endpoint.max_queue, scaling.target * scaling.max
    if queue < needed:
        reached = math.ceil(queue / scaling.target)
        yield (
            f"spec.endpoint.maxQueue: {queue} is less than scaling.target x scaling.max"
            f" ({needed}): never more than {reached} of {scaling.max} replicas will run; raise it"
            " or lower the target"
        )
    if scaling.max > 1 and spec.cache.strategy == "NodeLocalPVC" and model.pvc is None:
        yield (
            "spec.cache.strategy: a NodeLocalPVC claim is ReadWriteOnce, so all"
            f" {scaling.max} replicas must run on one node; use HostPath or None to spread them"
        )
    if startup_s < scaling.activation_timeout:
        yield (
            f"InferenceRuntime {runtime.name}: spec.health.startup gives up after {startup_s} s,"
            f" before spec.scaling.activationTimeout ({scaling.activation_timeout}); raise its"
            " failureThreshold"
        )
    metrics, port = runtime.spec.metrics, runtime.spec.container.port
    if metrics is not None and metrics.port != port.name:
        yield (
            f"InferenceRuntime {runtime.name}: spec.metrics.port: there is no port"
            f" {metrics.port!r}; the container's is {port.name!r}, so metrics are not announced"
        )
    if spec.endpoint.resources is not None:
        yield (
            "spec.endpoint.resources has no effect: the gateway is shared by all services; its"
            " resources are set where Hearth is installed"
        )
    if warns_of_unguarded and spec.endpoint.authentication is not None:
        yield (
            "spec.endpoint.authentication: the key guards the gateway only: every pod of the"
            f" cluster reaches {names.backend_service(service.key)} without it; let Hearth write a"
            " NetworkPolicy (backends.guard=policy in its chart), or write one and set it to off,"
            " or give the engine a key of its own (hearth.dev/engine-key of its InferenceRuntime)"
        )
