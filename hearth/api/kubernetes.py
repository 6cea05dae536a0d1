"""Kubernetes' own types that a runtime carries: EnvVar, Probe, Toleration, LocalObjectReference.

Fields and meaning are Kubernetes'; `.manifest()` gives each back as it was written.
"""

import re
from typing import Annotated, Any, Literal, cast

from pydantic import Field, PlainValidator, WithJsonSchema

from hearth.api.meta import Model, Quantity

Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
PortNumber = Annotated[int, Field(ge=1, le=65535)]
PORT_NAME_PATTERN = r"^([a-z0-9]+-)*[a-z0-9]*[a-z][a-z0-9]*(-[a-z0-9]+)*$"
PortName = Annotated[str, Field(max_length=15, pattern=PORT_NAME_PATTERN)]
"""At most 15 of a-z, 0-9 and single hyphens, at least one of them a letter."""


def _read_port(value: Any) -> int | str:
    number = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 65535
    name = isinstance(value, str) and len(value) <= 15 and re.fullmatch(PORT_NAME_PATTERN, value)
    if not number and not name:
        raise ValueError("a port is a number from 1 to 65535 or the name of a container port")
    return cast(int | str, value)


PortRef = Annotated[
    int | str,
    PlainValidator(_read_port),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "minimum": 1,
            "maximum": 65535,
            "maxLength": 15,
            "pattern": PORT_NAME_PATTERN,
        }
    ),
]
Text = Annotated[str, Field(min_length=1)]


class LocalObjectReference(Model):
    """An object of the same namespace."""

    name: str = ""
    """Name of the object."""


class ObjectFieldSelector(Model):
    """A field of the pod."""

    api_version: str | None = None
    """Version in which the path is written."""
    field_path: str
    """Path of the field, for example status.podIP."""


class ResourceFieldSelector(Model):
    """A request or limit of a container."""

    container_name: str | None = None
    """Container; its own by default."""
    resource: str
    """For example limits.memory."""
    divisor: Quantity | None = None
    """Unit of the value."""


class KeySelector(LocalObjectReference):
    """One key of a ConfigMap or Secret."""

    key: str
    """Key within the object."""
    optional: bool | None = None
    """Whether the pod may start without it."""


class EnvVarSource(Model):
    """Where a variable's value comes from; exactly one of these."""

    field_ref: ObjectFieldSelector | None = None
    """A field of the pod."""
    resource_field_ref: ResourceFieldSelector | None = None
    """A request or limit of a container."""
    config_map_key_ref: KeySelector | None = None
    """A key of a ConfigMap."""
    secret_key_ref: KeySelector | None = None
    """A key of a Secret."""


class EnvVar(Model):
    """One environment variable."""

    name: Text
    """Name of the variable."""
    value: Annotated[str, Field(max_length=131072)] | None = None
    """Literal value; may hold the same templates as args."""
    value_from: EnvVarSource | None = None
    """Another source for the value; not together with value."""


class ExecAction(Model):
    """Runs a command in the container; status 0 is success."""

    command: Annotated[list[str], Field(min_length=1)]
    """Program and arguments; no shell is involved."""


class HTTPHeader(Model):
    """One request header."""

    name: str
    """Name of the header."""
    value: str
    """Value of the header."""


class HTTPGetAction(Model):
    """An HTTP GET; a status from 200 to 399 is success."""

    path: str | None = None
    """Path; / by default."""
    port: PortRef
    """Number or name of a container port."""
    host: str | None = None
    """Host to connect to; the pod's address by default."""
    scheme: Literal["HTTP", "HTTPS"] | None = None
    """HTTP by default."""
    http_headers: list[HTTPHeader] = []
    """Headers of the request."""


class TCPSocketAction(Model):
    """Opens a connection; being accepted is success."""

    port: PortRef
    """Number or name of a container port."""
    host: str | None = None
    """Host to connect to; the pod's address by default."""


class GRPCAction(Model):
    """Calls the standard gRPC health service."""

    port: PortNumber
    """Number of a container port."""
    service: str | None = None
    """Service name in the health request."""


class Probe(Model):
    """How the kubelet finds out about a container; exactly one action."""

    http_get: HTTPGetAction | None = None
    """An HTTP request."""
    tcp_socket: TCPSocketAction | None = None
    """A connection."""
    exec: ExecAction | None = None
    """A command in the container."""
    grpc: GRPCAction | None = None
    """A gRPC health check."""
    initial_delay_seconds: Count | None = None
    """Seconds between start and first probe; 0 by default."""
    timeout_seconds: Count | None = None
    """Seconds one probe may take; 1 by default."""
    period_seconds: Count | None = None
    """Seconds between probes; 10 by default."""
    success_threshold: Count | None = None
    """Successes in a row that make it good; 1 by default."""
    failure_threshold: Count | None = None
    """Failures in a row that make it bad; 3 by default."""
    termination_grace_period_seconds: Annotated[int, Field(ge=1)] | None = None
    """Grace of a pod that fails this probe; the pod's own by default."""


class Toleration(Model):
    """A node taint that a pod bears."""

    key: str | None = None
    """Taint key; every key when left out (operator Exists)."""
    operator: Literal["Exists", "Equal", "Lt", "Gt"] | None = None
    """Relation of key and value; Equal by default."""
    value: str | None = None
    """Taint value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Taint effect; every effect when left out."""
    toleration_seconds: int | None = None
    """Seconds a NoExecute taint is borne; for ever when left out."""
