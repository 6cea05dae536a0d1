"""Render the model server's Deployment and Service."""

from dataclasses import dataclass

from hearth import names
from hearth.api.llmservice import LLMService
from hearth.api.meta import Manifest
from hearth.api.runtime import InferenceRuntime
from hearth.cache.source import Source
from hearth.cache.volume import Storage
from hearth.cluster import kinds
from hearth.reconcile.render import accelerators, container_args, pod_options, prewarm_job
from hearth.reconcile.render.accelerators import DeviceRequest
from hearth.reconcile.render.go_template import template
from hearth.reconcile.render.pod_options import PodOptions
from hearth.reconcile.render.probes import ProbeSettings
from hearth.reconcile.render.release import Release
from hearth.reconcile.spec import spec_errors
from hearth.reconcile.spec.spec_errors import SpecError

PORT = 80
_QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"
_SHARED_MEMORY = "dshm"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentInputs:
    """What the two objects are made of, beside the release."""

    service: LLMService
    runtime: InferenceRuntime
    model: Source
    storage: Storage
    options: PodOptions
    probes: ProbeSettings
    waits_for: tuple[str, ...] = ()
    """Files of the cache, of which one must be there before the engine starts."""
    selector: Manifest | None = None
    """Of a Deployment that is there and whose selector is another's: its pods bear those labels
    too, and where the two disagree, those."""


def render(inputs: DeploymentInputs, *, release: Release) -> Manifest:
    """The Deployment without replicas, owner and hash.  Raises SpecError."""
    service, runtime = inputs.service, inputs.runtime
    key = service.key
    _check(service)
    device_request = accelerators.render(runtime, accelerators=service.spec.resources.accelerators)
    options = inputs.options
    labels = {**options.labels, **_labels(service, runtime)}
    selector = inputs.selector or {"matchLabels": names.selector(key)}
    of_pods = {**options.annotations, **annotations(runtime)}
    # One accelerator cannot hold two pods: a surge would wait for a device that never comes free.
    strategy = {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
    }
    return {
        "apiVersion": kinds.DEPLOYMENT.api_version,
        "kind": kinds.DEPLOYMENT.kind,
        "metadata": {
            "name": names.deployment(key),
            "namespace": key.namespace,
            "labels": labels,
            **({"annotations": options.annotations} if options.annotations else {}),
        },
        "spec": {
            "selector": selector,
            **({"strategy": strategy} if device_request.limits else {}),
            "progressDeadlineSeconds": inputs.probes.progress_deadline_s,
            "template": {
                "metadata": {
                    "labels": {**labels, **selector.get("matchLabels", {})},
                    **({"annotations": of_pods} if of_pods else {}),
                },
                "spec": {
                    **placement(service, runtime),
                    **options.spec,
                    **_security(inputs.storage, release, options.pod_security),
                    "automountServiceAccountToken": False,
                    # A service called `vllm` would hand the engine a VLLM_PORT it cannot read.
                    "enableServiceLinks": False,
                    **(
                        {"terminationGracePeriodSeconds": inputs.probes.grace_s}
                        if inputs.probes.grace_s is not None
                        else {}
                    ),
                    **_init_containers(inputs),
                    "containers": [_container(inputs, device_request)],
                    "volumes": [
                        {"name": _SHARED_MEMORY, "emptyDir": {"medium": "Memory"}},
                        *inputs.storage.volumes,
                        *device_request.volumes,
                    ],
                },
            },
        },
    }


def render_options(service: LLMService, runtime: InferenceRuntime, model: Source) -> PodOptions:
    """What the runtime's annotations ask for.  Raises SpecError."""
    return pod_options.render(
        runtime,
        template.Data(model_path=model.path, service=service.key),
        own_labels=_labels(service, runtime),
        own_annotations=annotations(runtime),
    )


def render_service(inputs: DeploymentInputs) -> Manifest:
    """The Service of the pods; its labels and annotations announce where metrics are."""
    key, spec = inputs.service.key, inputs.runtime.spec
    port = spec.container.port
    metrics = spec.metrics
    scraped = metrics is not None and metrics.port in (names.BACKEND_PORT, port.name)
    annotations = {
        "prometheus.io/scrape": "true",
        "prometheus.io/path": metrics.path if metrics else "",
        "prometheus.io/port": str(port.container_port),
    }
    return {
        "apiVersion": kinds.SERVICE.api_version,
        "kind": kinds.SERVICE.kind,
        "metadata": {
            "name": names.backend_service(key),
            "namespace": key.namespace,
            "labels": {
                **names.labels(key, runtime=inputs.runtime.name),
                **({names.METRICS_LABEL: "true"} if scraped else {}),
            },
            **({"annotations": annotations} if scraped else {}),
        },
        "spec": {
            "type": "ClusterIP",
            "selector": names.pod_selector(key),
            "ports": [
                {
                    "name": names.BACKEND_PORT,
                    "port": PORT,
                    "targetPort": port.name,
                    "protocol": "TCP",
                }
            ],
        },
    }


def _labels(service: LLMService, runtime: InferenceRuntime) -> dict[str, str]:
    return {
        **names.group_labels(service.key, service.group, runtime=runtime.name),
        **names.labels(service.key, runtime=runtime.name),
    }


def _container(inputs: DeploymentInputs, device_request: DeviceRequest) -> Manifest:
    service, runtime, path = inputs.service, inputs.runtime, inputs.model.path
    wanted = runtime.spec.container
    args = container_args.args(service, runtime, model_path=path)
    return {
        "name": names.CONTAINER,
        "image": wanted.image,
        **({"args": args} if args else {}),
        "env": env(inputs),
        "ports": [
            {
                "name": wanted.port.name,
                "containerPort": wanted.port.container_port,
                "protocol": "TCP",
            }
        ],
        **(
            {"securityContext": security} if (security := inputs.options.container_security) else {}
        ),
        **_resources(service, device_request),
        "volumeMounts": [
            {"name": _SHARED_MEMORY, "mountPath": "/dev/shm"},
            *inputs.storage.mounts,
            *device_request.mounts,
        ],
        **inputs.probes.probes,
        **({"lifecycle": inputs.probes.lifecycle} if inputs.probes.lifecycle else {}),
        # Engines write to no file of the kubelet's: the end of their log says why they died.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def env(inputs: DeploymentInputs, *, engine_key: bool = True) -> list[Manifest]:
    """Variables of the serving container; `engine_key`: also what its clients must send.

    Raises SpecError.
    """
    return container_args.env(
        inputs.service,
        inputs.runtime,
        model_path=inputs.model.path,
        defaults=inputs.storage.env,
        engine_key=inputs.options.engine_key if engine_key else None,
    )


def _init_containers(inputs: DeploymentInputs) -> Manifest:
    if not inputs.waits_for:
        return {}
    container = prewarm_job.wait_container(
        inputs.runtime.spec.container.image,
        inputs.waits_for,
        pod_options=inputs.options,
        resources=_resources(inputs.service, DeviceRequest(limits={})),
    )
    return {"initContainers": [container]}


def _resources(service: LLMService, device_request: DeviceRequest) -> Manifest:
    wanted = service.spec.resources
    memory = {"memory": str(wanted.memory)} if wanted.memory else {}
    requests = {**({"cpu": str(wanted.cpu)} if wanted.cpu else {}), **memory}
    limits = {**device_request.limits, **memory}
    resources = {
        **({"limits": limits} if limits else {}),
        **({"requests": requests} if requests else {}),
    }
    return {"resources": resources} if resources else {}


def placement(service: LLMService, runtime: InferenceRuntime) -> Manifest:
    """Where pods may run, and how their images are pulled: also of what fills their cache."""
    accelerator = runtime.spec.accelerator
    # By name, once each: the API server merges this list by it.
    names_of = dict.fromkeys(secret.name for secret in service.spec.image_pull_secrets)
    secrets = [{"name": name} for name in names_of if name]
    tolerations = [toleration.manifest() for toleration in accelerator.tolerations]
    scheduler = accelerator.scheduler.name if accelerator.scheduler else ""
    return {
        **({"imagePullSecrets": secrets} if secrets else {}),
        **({"nodeSelector": accelerator.node_selector} if accelerator.node_selector else {}),
        **({"tolerations": tolerations} if tolerations else {}),
        **({"schedulerName": scheduler} if scheduler else {}),
    }


def _security(storage: Storage, release: Release, wanted: Manifest) -> Manifest:
    group: Manifest = {}
    if storage.pvc is not None and release.file_system_group is not None:
        # A fresh volume belongs to root.
        group = {"fsGroup": release.file_system_group, "fsGroupChangePolicy": "OnRootMismatch"}
    context = {name: value for name, value in {**group, **wanted}.items() if value is not None}
    return {"securityContext": context} if context else {}


def annotations(runtime: InferenceRuntime) -> dict[str, str]:
    """Of pods, for their scheduler."""
    scheduler = runtime.spec.accelerator.scheduler
    return {_QUEUE_ANNOTATION: scheduler.queue} if scheduler and scheduler.queue else {}


def _check(service: LLMService) -> None:
    if service.spec.resources.fraction is not None:
        raise SpecError(
            spec_errors.RENDER,
            "spec.resources.fraction is not supported; ask for whole devices with"
            " spec.resources.accelerators",
        )
