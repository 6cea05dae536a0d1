"""One pod of this machine, from its place in the queue for devices to its end."""

import logging
import shutil
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial

import anyio
import anyio.to_thread

from hearth.api.meta import Manifest
from hearth.cluster.interface import ClusterError, Conflict, NotFound
from hearth.cluster.local.kubelet import devices, logs, orphans, pod_status
from hearth.cluster.local.kubelet.addresses import NoAddress
from hearth.cluster.local.kubelet.container import Container
from hearth.cluster.local.kubelet.machine import EventRecorder, Machine, PodContext, timestamp

logger = logging.getLogger(__name__)

MANAGER = "kubelet"
_RETRY_S = 1.0
"""Pause after a status that could not be written."""
_DEATH_S = 10.0
"""What is given, beyond every grace, to a killed process that a driver holds."""


class Pod:
    """`run` does everything; the kubelet passes on what it sees by `update` and `vanish`."""

    def __init__(self, manifest: Manifest, machine: Machine) -> None:
        metadata = manifest["metadata"]
        self.log_path = logs.path_of(machine.state, metadata.get("namespace", ""), metadata["name"])
        self._manifest = manifest
        self._machine = machine
        self._recorder = EventRecorder(machine.cluster, manifest)
        self._folder = machine.state / "pods" / metadata["uid"]
        self._init: list[Container] = []
        self._containers: list[Container] = []
        self._facts = pod_status.PodFacts()
        self._written: Manifest = {}
        self._dirty = anyio.Event()
        self._life = anyio.CancelScope()
        self._ending = anyio.CancelScope()
        self._grace_s: float | None = None
        self._gone = False

    def __repr__(self) -> str:
        metadata = self._manifest["metadata"]
        return f"<Pod {metadata.get('namespace')}/{metadata['name']} grace={self._grace_s}>"

    def update(self, manifest: Manifest) -> None:
        """The pod as the cluster has it now."""
        self._manifest = manifest
        metadata = manifest["metadata"]
        if "deletionTimestamp" in metadata:
            self._delete(float(metadata.get("deletionGracePeriodSeconds") or 0))

    def vanish(self) -> None:
        """The cluster has it no more: nothing is left to report, only to end."""
        self._gone = True
        self._delete(0.0)

    async def run(self) -> None:
        """Until the pod is deleted and its processes are gone, or, cancelled, until those are."""
        config = self._machine.config
        with ExitStack() as held:
            lent = held.enter_context(ExitStack())
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._report)
                    with self._life:
                        await self._live(held, lent)
                        await anyio.sleep_forever()
                    await self._end()
                    tasks.cancel_scope.cancel()
                # Gone from the cluster means that all of it is gone, and free for others.
                lent.close()
                await self._clear()
                await self._finalize()
            finally:
                limit_s = config.stop_grace_s + _DEATH_S
                with anyio.move_on_after(limit_s, shield=True):
                    await self._stop(grace_s=config.stop_grace_s, hook=False)
                    await self._clear()

    async def _live(self, held: ExitStack, lent: ExitStack) -> None:
        """Until all its containers ended for good; what was `lent` to it is then given back."""
        try:
            claim = lent.enter_context(self._machine.devices.claim(devices.wanted(self._manifest)))
            await self._schedule(claim)
            ip = await self._address(lent)
            context = await self._context(
                held, ip=ip, device_env=self._machine.devices.variables(claim)
            )
            self._make_containers(context)
            if await self._initialize():
                async with anyio.create_task_group() as tasks:
                    for one in self._containers:
                        one.set_waiting("ContainerCreating")
                        tasks.start_soon(one.run)
        except Exception as error:  # one pod that is not understood does not end the others
            logger.exception("pod failed", extra={"pod": repr(self)})
            await self._stop(grace_s=0, hook=False)
            for one in self._containers:
                one.set_waiting(
                    "CreateContainerError", f"internal error, see Hearth's log: {error!r}"
                )
        lent.close()

    async def _schedule(self, claim: devices.Claim) -> None:
        if not claim.granted.is_set():
            message = self._machine.devices.shortage(claim)
            self._set_facts(pod_status.PodFacts(unschedulable=message))
            await self._recorder.record("FailedScheduling", message, warning=True)
            await claim.granted.wait()
        node, metadata = self._machine.config.node_name, self._manifest["metadata"]
        await self._recorder.record(
            "Scheduled",
            f"Successfully assigned {metadata.get('namespace', '')}/{metadata['name']} to {node}",
        )

    async def _address(self, lent: ExitStack) -> str:
        while True:
            try:
                return lent.enter_context(self._machine.addresses.claim())
            except NoAddress as error:
                self._set_facts(pod_status.PodFacts(unschedulable=str(error)))
                await self._recorder.record("FailedScheduling", str(error), warning=True)
                await anyio.sleep(self._machine.config.backoff_s)

    async def _log(self) -> logs.PodLog:
        """Its folder and its log, as soon as the disk has room for them."""
        while True:
            try:
                self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                limit = self._machine.config.log_limit_bytes
                return logs.PodLog(self.log_path, limit_bytes=limit)
            except OSError as error:
                message = orphans.unusable(self._machine.state, error)
                self._set_facts(pod_status.PodFacts(unschedulable=message))
                await self._recorder.record("FailedScheduling", message, warning=True)
                await anyio.sleep(self._machine.config.backoff_s)

    async def _context(self, held: ExitStack, *, ip: str, device_env: dict[str, str]) -> PodContext:
        log = await self._log()
        held.callback(log.close)
        return PodContext(
            machine=self._machine,
            pod=self._manifest,
            ip=ip,
            folder=self._folder,
            device_env=device_env,
            log=log,
            recorder=self._recorder,
            changed=self._changed,
        )

    def _make_containers(self, context: PodContext) -> None:
        spec = self._manifest["spec"]
        restarts = spec.get("restartPolicy", "Always")
        again = "Never" if restarts == "Never" else "OnFailure"
        self._init = [
            Container(one, context, restarts=again) for one in spec.get("initContainers") or ()
        ]
        self._containers = [
            Container(one, context, restarts=restarts) for one in spec["containers"]
        ]
        self._set_facts(
            replace(
                self._facts,
                unschedulable="",
                ip=context.ip,
                start_time=timestamp(),
                restarts=restarts,
            )
        )

    async def _initialize(self) -> bool:
        """Run the init containers, one after the other.  Whether all of them did their work."""
        for one in self._init:
            await one.run()
            if not one.facts.succeeded:
                return False
        return True

    def _delete(self, grace_s: float) -> None:
        """Begin the end, or hasten it."""
        if self._grace_s is None or grace_s < self._grace_s:
            self._grace_s = grace_s
            self._set_facts(replace(self._facts, terminating=True))
            self._life.cancel()
            self._ending.cancel()

    async def _end(self) -> None:
        hook = True
        while True:
            grace_s = self._grace_s or 0.0
            with anyio.CancelScope() as self._ending:
                for one in self._containers:
                    await self._recorder.record("Killing", f"Stopping container {one.facts.name}")
                await self._stop(grace_s=grace_s, hook=hook)
                return
            hook = False  # it had its time; what follows is in more of a hurry

    async def _stop(self, *, grace_s: float, hook: bool) -> None:
        async with anyio.create_task_group() as tasks:
            for one in (*self._init, *self._containers):
                tasks.start_soon(partial(one.stop, grace_s=grace_s, hook=hook))

    async def _clear(self) -> None:
        remove = partial(shutil.rmtree, ignore_errors=True)
        await anyio.to_thread.run_sync(remove, self._folder)

    async def _finalize(self) -> None:
        while not self._gone:
            try:
                await self._write()
                await self._machine.cluster.finalize(self._manifest)
                return
            except (NotFound, Conflict):
                return
            except ClusterError as error:
                logger.warning(
                    "pod could not be removed", extra={"pod": repr(self), "error": str(error)}
                )
                await anyio.sleep(_RETRY_S)

    async def _report(self) -> None:
        """Write the status whenever it changed."""
        while True:
            self._dirty = dirty = anyio.Event()
            try:
                await self._write()
            except ClusterError as error:
                logger.warning(
                    "status was not written", extra={"pod": repr(self), "error": str(error)}
                )
                await anyio.sleep(_RETRY_S)
                continue
            await dirty.wait()

    async def _write(self) -> None:
        facts = replace(
            self._facts,
            init=tuple(one.facts for one in self._init),
            containers=tuple(one.facts for one in self._containers),
        )
        if self._gone or not (facts.unschedulable or facts.start_time):
            return
        before = self._written.get("conditions") or ()
        status = pod_status.summarize(facts, before=before, now=timestamp())
        if status == self._written:
            return
        metadata = self._manifest["metadata"]
        manifest: Manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {key: metadata[key] for key in ("name", "namespace", "uid")},
            "status": status,
        }
        with suppress(NotFound, Conflict):  # it is gone, which the watch will say
            await self._machine.cluster.patch_status(manifest, manager=MANAGER)
        self._written = status

    def _set_facts(self, facts: pod_status.PodFacts) -> None:
        self._facts = facts
        self._changed()

    def _changed(self) -> None:
        self._dirty.set()
