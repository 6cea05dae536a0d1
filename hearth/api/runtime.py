"""InferenceRuntime: image, arguments, devices, health and shutdown of an engine."""

from typing import Annotated, Literal

from pydantic import Field

from hearth.api.kubernetes import EnvVar, PortName, PortNumber, Probe, Text, Toleration
from hearth.api.llmservice import BY_TYPE, Condition
from hearth.api.meta import CustomResource, Model

Family = Literal["vllm"]
Vendor = Literal["nvidia", "ascend", "cpu"]
RESOURCE_PATTERN = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"


class ContainerPort(Model):
    """The port of the engine's API."""

    name: PortName = "http"
    """Name by which Services and probes refer to it."""
    container_port: PortNumber = 8000
    """Number of the port."""


class Container(Model):
    """The serving container."""

    image: Text
    """Image with an OpenAI-compatible server."""
    args: list[str] = []
    """Arguments: Go templates over .Model.Path, .Service.Name and .Service.Namespace."""
    env: Annotated[list[EnvVar], Field(max_length=1000)] = []
    """Environment; literal values are templates too."""
    port: ContainerPort = ContainerPort()
    """The port of the engine's API."""


class Sharing(Model):
    """Reserved: devices in parts."""

    supported: bool = False
    """Says so only; it does not switch sharing on."""


class Scheduler(Model):
    """Another scheduler than the cluster's default."""

    name: Annotated[str, Field(max_length=253)] = ""
    """The pod's schedulerName; empty is the default scheduler."""
    queue: Annotated[str, Field(max_length=253)] | None = None
    """Volcano queue; only with the scheduler volcano."""


class Accelerator(Model):
    """Device and placement."""

    resource_name: (
        Annotated[
            str,
            Field(
                min_length=1,
                max_length=317,
                pattern=RESOURCE_PATTERN,
            ),
        ]
        | None
    ) = None
    """Extended resource of the device plugin, for example nvidia.com/gpu; may be left out for
    vendor cpu only."""
    sharing: Sharing | None = None
    """Reserved: devices in parts."""
    node_selector: dict[str, str] = {}
    """Labels that a node must bear."""
    tolerations: list[Toleration] = []
    """Node taints that the pods bear."""
    scheduler: Scheduler | None = None
    """Another scheduler than the cluster's default."""


class Health(Model):
    """Probes of the serving container."""

    readiness: Probe | None = None
    """When a replica gets requests; GET /health by default."""
    liveness: Probe | None = None
    """When a started replica is restarted; none by default."""
    startup: Probe | None = None
    """How long loading may take; by default GET /health for ten minutes, or for the service's
    activationTimeout where that is longer."""


class Lifecycle(Model):
    """How a pod ends."""

    termination_grace_period_seconds: Annotated[int, Field(ge=1)] | None = None
    """Time a pod has to stop; widened to drainTimeout plus 10 seconds where it drains."""
    pre_stop_drain: bool = False
    """Wait for the service's drainTimeout before stopping; the image must have /bin/sh."""


class Metrics(Model):
    """Names of the engine's own metrics, for others; scaling does not use them."""

    path: str = "/metrics"
    """Path to scrape."""
    port: str = "http"
    """Name of the port to scrape."""
    queue_depth: str
    """Waiting requests."""
    kv_cache_util: str | None = None
    """Use of the KV cache."""
    running: str | None = None
    """Running requests."""
    ttft: str | None = None
    """Time to first token."""


class InferenceRuntimeSpec(Model):
    """What the runtime is."""

    family: Family = "vllm"
    """Kind of engine."""
    vendor: Vendor
    """Vendor of the device; cpu requests none."""
    priority: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] = 0
    """Among runtimes of one vendor the highest is taken; equal ones are ambiguous."""
    container: Container
    """The serving container."""
    accelerator: Accelerator = Accelerator()
    """Device and placement."""
    health: Health = Health()
    """Probes of the serving container."""
    lifecycle: Lifecycle = Lifecycle()
    """How a pod ends."""
    metrics: Metrics | None = None
    """Names of the engine's own metrics."""


class InferenceRuntimeStatus(Model):
    """Not filled in: services report how a runtime serves them."""

    conditions: Annotated[list[Condition], Field(json_schema_extra=BY_TYPE)] = []
    """Reserved."""


class InferenceRuntime(CustomResource):
    """A way to run models, shared by the services of a cluster."""

    kind: Literal["InferenceRuntime"] = "InferenceRuntime"
    spec: InferenceRuntimeSpec
    status: InferenceRuntimeStatus = InferenceRuntimeStatus()

    @property
    def name(self) -> str:
        return self.metadata.name
