"""From a container as written to the program that stands for it here."""

import dataclasses
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hearth.api.meta import Manifest
from hearth.cluster import kinds
from hearth.cluster.interface import ClusterError, NotFound
from hearth.cluster.local.kubelet import addresses, environment, probes, programs, volumes
from hearth.cluster.local.kubelet.environment import CannotStart
from hearth.cluster.local.kubelet.machine import PodContext
from hearth.cluster.local.kubelet.processes import Program

_KINDS = {
    "Secret": kinds.SECRET,
    "ConfigMap": kinds.CONFIG_MAP,
    "PersistentVolumeClaim": kinds.PVC,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A container that can be started, and what will be asked of it."""

    program: Program
    mounts: volumes.Mounts
    startup: probes.Probe | None
    readiness: probes.Probe | None
    liveness: probes.Probe | None

    def command(self, words: Iterable[str]) -> Program:
        """Another command in the same container."""
        argv = tuple(self.mounts.translate(word) for word in words)
        return dataclasses.replace(self.program, argv=argv)


async def prepare(container: Manifest, context: PodContext) -> Launch:
    """Read what it needs, lay out its volumes, resolve its words.  Raises CannotStart."""
    pod, ip, machine = context.pod, context.ip, context.machine
    found = await _read(context, {*environment.references(container), *volumes.references(pod)})
    secrets = {name: one for (kind, name), one in found.items() if kind == "Secret"}
    config_maps = {name: one for (kind, name), one in found.items() if kind == "ConfigMap"}
    claims = {name: one for (kind, name), one in found.items() if kind == "PersistentVolumeClaim"}
    own = environment.resolve(
        container,
        environment.EnvironmentSources(
            pod=pod,
            ip=ip,
            node=machine.config.node_name,
            secrets=secrets,
            config_maps=config_maps,
        ),
    )
    argv = [
        environment.expand(word, own)
        for word in programs.resolve(container, machine.programs, ip=ip)
    ]
    checks = _probes(container, ip=ip)
    mounts = volumes.prepare(
        pod,
        container,
        volumes.VolumeLayout(state=machine.state, pod=context.folder, claims=machine.config.claims),
        volumes.ReferencedObjects(secrets=secrets, config_maps=config_maps, claims=claims),
    )
    _check_ports(container, ip=ip)
    inherited = environment.inherited(machine.environ)
    named = {"HOSTNAME": pod["metadata"]["name"], **context.device_env}
    translated = {name: mounts.translate(value) for name, value in own.items()}
    return Launch(
        program=Program(
            argv=tuple(mounts.translate(word) for word in argv),
            env={**inherited, **named, **translated},
            cwd=_working_directory(container, context.folder, mounts),
            open_files=machine.config.open_files,
        ),
        mounts=mounts,
        startup=checks.get("startupProbe"),
        readiness=checks.get("readinessProbe"),
        liveness=checks.get("livenessProbe"),
    )


async def _read(
    context: PodContext, wanted: set[tuple[str, str]]
) -> dict[tuple[str, str], Manifest | None]:
    namespace = context.pod["metadata"].get("namespace", "")
    found: dict[tuple[str, str], Manifest | None] = {}
    for kind, name in sorted(wanted):
        try:
            found[kind, name] = await context.machine.cluster.get(_KINDS[kind], namespace, name)
        except NotFound:
            found[kind, name] = None
        except ClusterError as error:
            raise CannotStart("CreateContainerConfigError", f"{kind} {name}: {error}") from error
    return found


def _probes(container: Manifest, *, ip: str) -> dict[str, probes.Probe]:
    ports = probes.ports_of(container)
    parsed = {}
    for field in ("startupProbe", "readinessProbe", "livenessProbe"):
        if manifest := container.get(field):
            try:
                parsed[field] = probes.parse(manifest, ports, ip=ip)
            except probes.BadProbe as error:
                raise CannotStart("CreateContainerConfigError", f"{field}: {error}") from error
    return parsed


def _check_ports(container: Manifest, *, ip: str) -> None:
    for port in container.get("ports") or ():
        number = port["containerPort"]
        if port.get("protocol", "TCP") == "TCP" and addresses.taken(ip, number):
            raise CannotStart(
                "RunContainerError",
                f"port {number} is in use on {ip}: another program of this machine listens on it"
                f" on every address (see: ss -ltnp 'sport = :{number}'); stop that program, bind it"
                " to 127.0.0.1, or give the runtime another containerPort",
            )


def _working_directory(container: Manifest, folder: Path, mounts: volumes.Mounts) -> Path:
    """What the container says where it is here, else a folder of the pod's own."""
    path = mounts.translate(container.get("workingDir") or "")
    if os.path.isabs(path) and os.path.isdir(path):
        return Path(path)
    own = folder / "work"
    own.mkdir(parents=True, exist_ok=True)
    return own
