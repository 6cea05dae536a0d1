"""What a probe's results mean, and when the next one is due: Kubernetes' rules without a clock.

The first probe is sent `initialDelaySeconds` after the container started, the following ones every
`periodSeconds` after it.  (A real kubelet's first falls anywhere within the first period, since
its ticker runs for the pod; this one is the earliest of those.)  Readiness and liveness begin when
the startup probe has succeeded, at once where their own delay is over.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from hearth.api.meta import Manifest


class BadProbe(ValueError):
    """A probe that cannot be sent; the message says why."""


@dataclass(frozen=True, slots=True)
class Http:
    """Success: 200 to 399."""

    scheme: str
    host: str
    port: int
    path: str
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Tcp:
    """Success: the port accepts a connection."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Exec:
    """Success: exit code 0."""

    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Grpc:
    """Success: SERVING, by gRPC's health protocol."""

    host: str
    port: int
    service: str


Action = Http | Tcp | Exec | Grpc


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One probe of a container, with Kubernetes' defaults filled in."""

    action: Action
    initial_delay_s: float = 0.0
    period_s: float = 10.0
    timeout_s: float = 1.0
    success_threshold: int = 1
    failure_threshold: int = 3
    termination_grace_s: float | None = None
    """In place of the pod's, when this probe ends the container."""

    def first_due_s(self, *, running_s: float) -> float:
        """When the first probe is due, in seconds since the container started."""
        return max(self.initial_delay_s, running_s)

    def next_due_s(self, *, due_s: float, running_s: float) -> float:
        """When the one after `due_s` is due; periods that a slow probe missed are left out."""
        return due_s + self.period_s * max(1, math.ceil((running_s - due_s) / self.period_s))


class Verdict:
    """The verdict of a probe's results in a row; `passing` is None before the first one."""

    def __init__(self, probe: Probe, *, passing: bool | None) -> None:
        self.passing = passing
        self._probe = probe
        self._last: bool | None = None
        self._run = 0

    def record(self, success: bool) -> bool:
        """Count one result.  Whether the verdict was reached or changed by it."""
        self._run = self._run + 1 if success == self._last else 1
        self._last = success
        threshold = self._probe.success_threshold if success else self._probe.failure_threshold
        if self._run < threshold or self.passing == success:
            return False
        self.passing = success
        return True


def parse(manifest: Manifest, ports: Mapping[str, int], *, ip: str) -> Probe:
    """Read a probe as written in a pod.  Raises BadProbe."""
    return Probe(
        action=parse_action(manifest, ports, ip=ip),
        initial_delay_s=float(manifest.get("initialDelaySeconds") or 0),
        period_s=float(manifest.get("periodSeconds") or 10),
        timeout_s=float(manifest.get("timeoutSeconds") or 1),
        success_threshold=int(manifest.get("successThreshold") or 1),
        failure_threshold=int(manifest.get("failureThreshold") or 3),
        termination_grace_s=manifest.get("terminationGracePeriodSeconds"),
    )


def parse_action(manifest: Manifest, ports: Mapping[str, int], *, ip: str) -> Action:
    """What a probe or a lifecycle hook does.  Raises BadProbe."""
    if http := manifest.get("httpGet"):
        path = http.get("path") or "/"
        return Http(
            scheme=str(http.get("scheme") or "HTTP").lower(),
            host=http.get("host") or ip,
            port=_port(http.get("port"), ports),
            path=path if path.startswith("/") else f"/{path}",
            headers=tuple((h["name"], h.get("value", "")) for h in http.get("httpHeaders") or ()),
        )
    if tcp := manifest.get("tcpSocket"):
        return Tcp(host=tcp.get("host") or ip, port=_port(tcp.get("port"), ports))
    if command := (manifest.get("exec") or {}).get("command"):
        return Exec(tuple(str(word) for word in command))
    if grpc := manifest.get("grpc"):
        return Grpc(ip, _port(grpc.get("port"), ports), grpc.get("service") or "")
    raise BadProbe("it has none of httpGet, tcpSocket, exec and grpc")


def ports_of(container: Manifest) -> dict[str, int]:
    """Named ports of a container."""
    return {
        port["name"]: port["containerPort"]
        for port in container.get("ports") or ()
        if "name" in port
    }


def _port(port: int | str | None, ports: Mapping[str, int]) -> int:
    if isinstance(port, str) and not port.isdigit():
        if port not in ports:
            raise BadProbe(f"the container has no port named {port!r}")
        return ports[port]
    number = int(port or 0)
    if not 1 <= number <= 65535:
        raise BadProbe(f"{port!r} is not a port")
    return number
