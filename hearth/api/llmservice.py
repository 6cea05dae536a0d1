"""LLMService: which model to serve, on what, and how it scales, caches and responds while cold."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from hearth.api.kubernetes import Count, LocalObjectReference, Text
from hearth.api.meta import CustomResource, Duration, Model, Quantity, ServiceKey

Phase = Literal["Pending", "Loading", "Ready", "ScaledToZero", "Degraded"]
CacheStrategy = Literal["NodeLocalPVC", "HostPath", "SharedPVC", "BakedImage", "None"]
Metric = Literal["queueDepth", "kvCacheUtil"]
ColdStartMode = Literal["keepalive", "reject"]
AuthenticationKind = Literal["TriggerAuthentication", "ClusterTriggerAuthentication"]
Positive = Annotated[int, Field(ge=1, le=2**31 - 1)]
VendorName = Annotated[str, Field(max_length=63)]

BY_TYPE: dict[str, JsonValue] = {
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
}
"""Conditions are a map by type: several managers may each own some."""
BY_CONTROLLER: dict[str, JsonValue] = {"x-hearth-by-controller": True}
"""Marks a value that Hearth takes for absent fields and the CRD does not store."""


class RegistrySecret(Model):
    """Credentials of a registry, of type kubernetes.io/dockerconfigjson."""

    name: Annotated[str, Field(max_length=253)] = ""
    """Name of the Secret."""


class Source(Model):
    """Where the weights come from."""

    uri: Annotated[Text, Field(max_length=2048)]
    """hf://org/model (or huggingface://), modelscope://org/model, pvc://claim[/path] or
    oci://registry/repository@sha256:digest."""
    secret_ref: RegistrySecret | None = None
    """Secret of type kubernetes.io/dockerconfigjson for an oci:// source."""


class ModelSpec(Model):
    """Identity of the model."""

    source: Source | None = None
    """Inline source; wins over catalogRef."""
    catalog_ref: Annotated[str, Field(max_length=2048)] | None = None
    """Reserved: a catalog entry.  Accepted here, reported as Degraded."""


class RuntimeSelector(Model):
    """Chooses a runtime by vendor."""

    vendor: Annotated[list[VendorName], Field(max_length=16)] = []
    """Acceptable vendors, the preferred one first."""


class RuntimeRef(Model):
    """Which InferenceRuntime serves: by name, or by vendor."""

    name: Annotated[str, Field(max_length=253)] | None = None
    """Exact name of an InferenceRuntime; wins over selector."""
    selector: RuntimeSelector | None = None
    """Choice by vendor, then by the runtime's priority."""
    args_override: list[str] = []
    """Arguments put after those of the runtime; Go templates like these."""


class Fraction(Model):
    """Reserved: a part of a device."""

    memory: Quantity | None = None
    """Share of the device's memory."""
    cores: Count | None = None
    """Share of the device's cores."""


class Resources(Model):
    """What each backend replica asks for."""

    accelerators: Positive = 1
    """Whole devices; none are requested for vendor cpu."""
    fraction: Fraction | None = None
    """Reserved: a part of a device.  Accepted here, reported as Degraded."""
    cpu: Quantity | None = None
    """CPU request."""
    memory: Quantity | None = None
    """Memory request, and limit of the same amount."""


class AuthenticationRef(Model):
    """KEDA's object with the client side of mutual TLS."""

    name: Text
    """Name of the object; it supplies caCert, tlsClientCert and tlsClientKey."""
    kind: AuthenticationKind = "TriggerAuthentication"
    """Kind of the object."""


class ScalerTLS(Model):
    """Mutual TLS between KEDA and the scaler."""

    server_secret_name: Text
    """Secret with tls.crt, tls.key and, to check clients, ca.crt.  The certificate must be valid
    for <service>-scaler.<namespace>.svc."""
    authentication_ref: AuthenticationRef
    """What KEDA presents and trusts."""


class ExternalScaler(Model):
    """How KEDA reaches the scaler."""

    tls: ScalerTLS | None = None
    """Mutual TLS for this service's connection."""


class Scaling(Model):
    """How many replicas, and when."""

    min: Count = 0
    """Fewest replicas; 0 lets the service sleep."""
    max: Positive = 1
    """Most replicas; at least min."""
    metric: Metric = "queueDepth"
    """What scales; kvCacheUtil is reserved and reported as Degraded."""
    target: Positive = 10
    """Pending requests one replica should have."""
    activation_timeout: Duration = Duration.parse("5m")
    """How long a cold request is held, or how long a start for a rejected one may take."""
    scale_down_stabilization: Duration = Duration.parse("5m")
    """Quiet time before replicas go, also the last one; whole seconds from 0s to 1h."""
    drain_timeout: Duration = Duration.parse("2m")
    """Time for running requests when a pod stops, where the runtime sets preStopDrain."""
    external_scaler: ExternalScaler | None = None
    """KEDA's connection to the scaler."""


class Cache(Model):
    """Where weights are kept between starts."""

    strategy: CacheStrategy = "NodeLocalPVC"
    """Kind of cache; BakedImage is reserved and reported as Degraded."""
    size: Annotated[Quantity, Field(json_schema_extra=BY_CONTROLLER)] = Quantity("50Gi")
    """Size of the claim of NodeLocalPVC or SharedPVC; 50Gi when left out."""
    storage_class_name: str | None = None
    """StorageClass of the claim; the cluster's default when left out."""
    prewarm: bool = False
    """Fill the cache once, by a Job, before the first request."""


class ColdStart(Model):
    """What a request meets while nothing is ready."""

    mode: ColdStartMode = "keepalive"
    """keepalive holds requests, streams with heartbeats; reject answers 503 with Retry-After."""
    heartbeat_interval: Duration = Duration.parse("10s")
    """Time between two heartbeats of a held stream."""


class ComputeAmounts(Model):
    """CPU and memory."""

    cpu: Quantity | None = None
    """Amount of CPU."""
    memory: Quantity | None = None
    """Amount of memory."""


class GatewayResources(Model):
    """Resources of a gateway of the service's own."""

    requests: ComputeAmounts | None = None
    """Requested amounts."""
    limits: ComputeAmounts | None = None
    """Highest amounts."""


class SecretKey(Model):
    """One key of a Secret in the service's namespace."""

    name: Text
    """Name of the Secret."""
    key: Text
    """Key within it."""


class Authentication(Model):
    """Who may use the endpoint."""

    secret_ref: SecretKey
    """Holds the accepted bearer token."""


class Endpoint(Model):
    """What clients see."""

    open_ai_compatible: Annotated[bool, Field(alias="openAICompatible")] = True
    """Informational: the gateway always speaks the OpenAI API."""
    max_queue: Positive = 100
    """Most requests admitted and unfinished; the next is answered 429."""
    resources: GatewayResources | None = None
    """Accepted for services that set it; the gateway is shared, and its resources are those of the
    release."""
    authentication: Authentication | None = None
    """Demand a bearer token of clients."""
    cold_start: ColdStart = ColdStart()
    """What a request meets while nothing is ready."""


class LLMServiceSpec(Model):
    """What is wanted."""

    model: ModelSpec
    """Identity and source of the model."""
    runtime: RuntimeRef | None = None
    """Which InferenceRuntime serves it.  Required in serving.noctaya.io; in serving.hearth.dev a
    service without one is Degraded."""
    resources: Resources = Resources()
    """What each backend replica asks for."""
    scaling: Scaling = Scaling()
    """How many replicas, and when."""
    cache: Cache = Cache()
    """Where weights are kept between starts."""
    endpoint: Endpoint = Endpoint()
    """What clients see."""
    image_pull_secrets: Annotated[list[LocalObjectReference], Field(max_length=64)] = []
    """Secrets of this namespace for pulling images, on every pod of the service."""


class Condition(Model):
    """One condition, as every Kubernetes object has them."""

    type: Annotated[
        str,
        Field(
            max_length=316,
            pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
            r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
        ),
    ]
    """Ready, Active, Degraded, AutoscalingReady or Warning."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    observed_generation: Annotated[int, Field(ge=0, json_schema_extra=BY_CONTROLLER)] = 0
    """Generation of the spec it was seen for."""
    last_transition_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    """When the status last changed."""
    reason: Annotated[
        str,
        Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
    ]
    """Why, in one word."""
    message: Annotated[str, Field(max_length=32768)]
    """Why, for a person."""


class LLMServiceStatus(Model):
    """What was seen."""

    phase: Phase | None = None
    """Summary state."""
    resolved_runtime: str | None = None
    """InferenceRuntime that was chosen."""
    replicas: Annotated[Count, Field(json_schema_extra=BY_CONTROLLER)] = 0
    """Ready backend replicas."""
    endpoint_url: Annotated[str | None, Field(alias="endpointURL")] = None
    """Base URL for OpenAI clients in the cluster; ends in /v1."""
    conditions: Annotated[list[Condition], Field(json_schema_extra=BY_TYPE)] = []
    """Ready, Active, Degraded and AutoscalingReady; Warning where there is one."""

    def find_condition(self, kind: str) -> Condition | None:
        """The condition of that type; None where there is none."""
        return next((one for one in self.conditions if one.type == kind), None)


class LLMService(CustomResource):
    """A model endpoint that sleeps while nobody asks."""

    kind: Literal["LLMService"] = "LLMService"
    spec: LLMServiceSpec
    status: LLMServiceStatus = LLMServiceStatus()

    @property
    def key(self) -> ServiceKey:
        return ServiceKey(self.metadata.namespace, self.metadata.name)
