"""Warnings of a spec: what works, but maybe not as its author means."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from hearth import names
from hearth.api.llmservice import LLMService
from hearth.api.runtime import InferenceRuntime
from hearth.cache import volume
from hearth.cache.prewarm import Prewarm
from hearth.cache.source import Hub, Source


def warnings(
    service: LLMService,
    runtime: InferenceRuntime,
    model: Source,
    *,
    startup_s: int,
    storage_env: Mapping[str, str],
    warns_of_unguarded: bool,
    prewarm: Prewarm | None = None,
    security: Mapping[str, Any] | None = None,
    jobs: bool = True,
) -> Iterator[str]:
    """Sentences for a condition and its Event; each names its field and says what to do.

    `startup_s`: how long the startup probe lets an engine load.  `storage_env`: variables that come
    with cache and source.  `warns_of_unguarded`: whether nothing but the gateway asks for the key
    of a service that has one.  `prewarm`: what a Job fetches.  `security`: what pod and container
    are told about their user.  `jobs`: whether Hearth may write any.
    """
    spec, scaling = service.spec, service.spec.scaling
    if spec.model.catalog_ref:
        yield "spec.model.catalogRef has no effect beside source; remove it"
    if spec.runtime is not None and spec.runtime.name and spec.runtime.selector is not None:
        yield ("spec.runtime.selector has no effect beside name, which wins; remove one of the two")
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
            f" {scaling.max} replicas must run on one node; use SharedPVC, HostPath or None to"
            " spread them"
        )
    yield from _prewarm(spec.cache.strategy, prewarm, jobs=jobs)
    if spec.cache.strategy == "HostPath" and model.pvc is None and not _may_be_root(security or {}):
        yield (
            "spec.cache.strategy: the folder of a HostPath belongs to root on each node, and"
            f" InferenceRuntime {runtime.name} runs as another user, who cannot write there; change"
            " its owner on the nodes, or use NodeLocalPVC or SharedPVC"
        )
    yield from _cache_variables(runtime, model, storage_env)
    if startup_s < scaling.activation_timeout:
        yield (
            f"InferenceRuntime {runtime.name}: spec.health.startup gives up after {startup_s} s,"
            f" before spec.scaling.activationTimeout ({scaling.activation_timeout}); raise its"
            " failureThreshold"
        )
    metrics, port = runtime.spec.metrics, runtime.spec.container.port
    if metrics is not None and metrics.port not in (names.BACKEND_PORT, port.name):
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


def _prewarm(strategy: str, prewarm: Prewarm | None, *, jobs: bool) -> Iterator[str]:
    if prewarm is None:
        return
    if strategy == "HostPath":
        elsewhere = (
            "pods wait there until it is"
            if prewarm.waits
            else "there each engine downloads its weights by itself"
        )
        yield (
            "spec.cache: the Job of a prewarm fills the folder of the one node that it runs on; on"
            f" any other {elsewhere}. Bind the runtime to one node by its nodeSelector, or use"
            " NodeLocalPVC or SharedPVC"
        )
    if not jobs:
        yield (
            "spec.cache.prewarm: Hearth may not list, watch and create Jobs, so nothing fetches the"
            " weights, and pods that wait for them go on waiting; give its ServiceAccount that"
            " right (the chart of this version does so)"
        )


def _may_be_root(security: Mapping[str, Any]) -> bool:
    if security.get("runAsUser") is not None:
        return bool(security["runAsUser"] == 0)
    return not security.get("runAsNonRoot")


def _cache_variables(
    runtime: InferenceRuntime, model: Source, storage_env: Mapping[str, str]
) -> Iterator[str]:
    own = {variable.name: variable.value for variable in runtime.spec.container.env}
    field = f"InferenceRuntime {runtime.name}: spec.container.env"
    for name in volume.FIXED:
        needed = storage_env.get(name)
        if needed is not None and name in own and (own[name] or "").lower() != needed:
            yield (
                f"{field}: {name} is {needed} for this service, as its spec.model.source and"
                " spec.cache need it, and the runtime's value has no effect; remove it"
            )
    for name in volume.HUB_CACHES:
        if (
            name in own
            and model.hub is Hub.HUGGING_FACE
            and "HF_HOME" in storage_env
            and not (own[name] or "").startswith(f"{volume.CACHE}/")
        ):
            yield (
                f"{field}: {name} leads weights past {volume.CACHE}, so the cache of spec.cache"
                " stays empty and each start downloads them; remove it"
            )
