"""One container of a pod: started, probed, started again, ended."""

import errno
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

import anyio
import anyio.lowlevel

from hearth.api.meta import Manifest, go_duration
from hearth.cluster.local.kubelet import launch, oom, orphans, prober, probes, processes
from hearth.cluster.local.kubelet.environment import CannotStart
from hearth.cluster.local.kubelet.logs import Tail
from hearth.cluster.local.kubelet.machine import PodContext, timestamp
from hearth.cluster.local.kubelet.pod_status import ContainerFacts, Running, Terminated, Waiting
from hearth.cluster.local.kubelet.processes import Exit, Process
from hearth.cluster.local.kubelet.restart_backoff import Backoff

_LEAST_GRACE_S = 2.0
"""What a process gets after its preStop hook, however long that took: as a kubelet does."""


class Container:
    """`run` brings it up and keeps it up; cancelling that leaves its process for `stop`."""

    def __init__(self, spec: Manifest, context: PodContext, *, restarts: str) -> None:
        """`restarts`: Always, OnFailure or Never."""
        self.facts = ContainerFacts(name=spec["name"], image=spec.get("image", ""))
        self._spec = spec
        self._context = context
        self._restarts = restarts
        self._config = context.machine.config
        self._launch: launch.Launch | None = None
        self._process: Process | None = None
        self._tail = Tail()
        self._began = 0.0
        self._oom_kills: int | None = None
        """The count when its process was started."""

    def __repr__(self) -> str:
        return f"<Container {self.facts.name} {self.facts.state}>"

    def set_waiting(self, reason: str, message: str = "") -> None:
        """Its state is Waiting, for this reason."""
        self._set_facts(replace(self.facts, state=Waiting(reason, message), last=self._last_exit()))

    async def run(self) -> None:
        """Until it ended for good, by its restart policy."""
        backoff = self._backoff()
        while True:
            process = await self._start()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._probe)
                ended = await process.wait()
                tasks.cancel_scope.cancel()
            self._record_exit(ended)
            if self._restarts == "Never" or (self._restarts == "OnFailure" and ended.code == 0):
                return
            await self._back_off(backoff.pause_s(ran_s=time.monotonic() - self._began))

    async def stop(self, *, grace_s: float, hook: bool) -> None:
        """End its process, if one runs: preStop if `hook`, SIGTERM, SIGKILL when time is up."""
        process = self._process
        if process is None:
            return
        left_s = grace_s
        pre_stop = (self._spec.get("lifecycle") or {}).get("preStop")
        if hook and pre_stop and grace_s > 0:
            until = time.monotonic() + grace_s
            async with anyio.create_task_group() as tasks:
                tasks.cancel_scope.deadline = anyio.current_time() + grace_s
                tasks.start_soon(self._end_with, process, tasks.cancel_scope)
                await self._pre_stop(pre_stop, grace_s=grace_s)
                tasks.cancel_scope.cancel()
            left_s = max(_LEAST_GRACE_S, until - time.monotonic())
        self._record_exit(await process.stop(grace_s=left_s))

    async def _start(self) -> Process:
        """Try until a process runs."""
        backoff = self._backoff()
        while True:
            seen = self._context.machine.references_changed.changes
            try:
                self._launch = await self._prepare()
                self._oom_kills = self._context.machine.oom_kills.read()
                process = self._spawn(self._launch)
            except CannotStart as problem:
                await self._cannot_start(problem, backoff, seen)
            else:
                self._process, self._began = process, time.monotonic()
                last, started = self._last_exit(), self._launch.startup is None
                self._set_facts(
                    replace(
                        self.facts,
                        state=Running(timestamp()),
                        last=last,
                        restarts=self.facts.restarts + (last is not None),
                        started=started,
                        ready=started and self._launch.readiness is None,
                        container_id=f"process://{process.pid}",
                    )
                )
                await self._context.recorder.record(
                    "Started", f"Started container {self.facts.name}"
                )
                return process

    async def _prepare(self) -> launch.Launch:
        try:
            return await launch.prepare(self._spec, self._context)
        except OSError as error:
            message = orphans.unusable(self._context.machine.state, error)
            raise CannotStart("CreateContainerError", message) from error

    def _spawn(self, what: launch.Launch) -> Process:
        tail = self._tail = Tail()
        log = self._context.log

        def on_output(data: bytes) -> None:
            log.write(data)
            tail.write(data)

        uid = self._context.pod["metadata"]["uid"]
        try:
            return Process(
                what.program, state=self._context.machine.state, mark=uid, output=on_output
            )
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                message = orphans.unusable(self._context.machine.state, error)
                raise CannotStart("CreateContainerError", message) from error
            raise CannotStart(
                "RunContainerError",
                f"{what.program.argv[0]} could not be started: {error.strerror}; see that it is a"
                " program for this machine, and that the interpreter it names is there",
            ) from error

    async def _cannot_start(self, problem: CannotStart, backoff: Backoff, seen: int) -> None:
        """Report the reason; wait for the back-off, or for what was missing to appear."""
        self.set_waiting(problem.reason, problem.message)
        # The one who writes the status goes first, so that a watcher sees both reasons.
        await anyio.lowlevel.checkpoint()
        await self._context.recorder.record(problem.event, str(problem), warning=True)
        if problem.reason == "ErrImagePull":
            image = self.facts.image
            self.set_waiting("ImagePullBackOff", f'Back-off pulling image "{image}": {problem}')
        pause_s = backoff.pause_s(ran_s=0) or self._config.backoff_s
        if problem.reason == "CreateContainerConfigError":
            with anyio.move_on_after(pause_s):
                await self._context.machine.references_changed.wait(since=seen)
        else:
            await anyio.sleep(pause_s)

    async def _back_off(self, pause_s: float) -> None:
        if pause_s:
            metadata = self._context.pod["metadata"]
            message = (
                f"back-off {go_duration(pause_s)} restarting failed container={self.facts.name}"
                f" pod={metadata['name']}_{metadata.get('namespace', '')}({metadata['uid']})"
            )
            self.set_waiting("CrashLoopBackOff", message)
            await self._context.recorder.record(
                "BackOff", f"Back-off restarting failed container {self.facts.name}", warning=True
            )
            await anyio.sleep(pause_s)

    def _record_exit(self, ended: Exit) -> None:
        """Its state is Terminated, with how its process ended."""
        state = self.facts.state
        self._process = None
        if not isinstance(state, Running):
            return
        terminated = Terminated(
            exit_code=ended.code,
            signal=ended.signal,
            reason=oom.reason(
                ended, before=self._oom_kills, after=self._context.machine.oom_kills.read()
            ),
            message=self._tail.lines() if ended.code else "",
            started_at=state.started_at,
            finished_at=timestamp(),
            container_id=self.facts.container_id,
        )
        self._set_facts(replace(self.facts, state=terminated, started=False, ready=False))

    def _last_exit(self) -> Terminated | None:
        """How its last process ended."""
        state = self.facts.state
        return state if isinstance(state, Terminated) else self.facts.last

    async def _probe(self) -> None:
        """Startup first; then readiness and liveness, for as long as the process runs."""
        assert self._launch is not None
        if startup := self._launch.startup:
            async with aclosing(self._verdicts(startup, "Startup", None)) as verdicts:
                async for passing in verdicts:
                    if passing:
                        break
                    await self._fail(startup, "startup")
            self._set_facts(replace(self.facts, started=True, ready=self._launch.readiness is None))
        readiness, liveness = self._launch.readiness, self._launch.liveness
        async with anyio.create_task_group() as tasks:
            if readiness:
                tasks.start_soon(self._follow_readiness, readiness)
            if liveness:
                tasks.start_soon(self._follow_liveness, liveness)

    async def _follow_readiness(self, probe: probes.Probe) -> None:
        async with aclosing(self._verdicts(probe, "Readiness", False)) as verdicts:
            async for passing in verdicts:
                self._set_facts(replace(self.facts, ready=passing))

    async def _follow_liveness(self, probe: probes.Probe) -> None:
        async with aclosing(self._verdicts(probe, "Liveness", True)) as verdicts:
            async for passing in verdicts:
                if not passing:
                    await self._fail(probe, "liveness")

    async def _fail(self, probe: probes.Probe, name: str) -> None:
        """End the process; `run` sees that and starts it again."""
        await self._context.recorder.record(
            "Killing", f"Container {self.facts.name} failed {name} probe, will be restarted"
        )
        grace_s = self._context.pod["spec"].get("terminationGracePeriodSeconds", 30)
        if probe.termination_grace_s is not None:
            grace_s = probe.termination_grace_s
        await self.stop(grace_s=float(grace_s), hook=True)

    async def _verdicts(
        self, probe: probes.Probe, name: str, passing: bool | None
    ) -> AsyncGenerator[bool, None]:
        """The verdict, each time that it is reached or changes."""
        verdict = probes.Verdict(probe, passing=passing)
        due_s = probe.first_due_s(running_s=time.monotonic() - self._began)
        while True:
            await anyio.sleep(max(0.0, self._began + due_s - time.monotonic()))
            result = await self._send(probe.action, timeout_s=probe.timeout_s)
            if not result.success:
                message = f"{name} probe failed: {result.message}"
                await self._context.recorder.record("Unhealthy", message, warning=True)
            if verdict.record(result.success):
                yield result.success
            due_s = probe.next_due_s(due_s=due_s, running_s=time.monotonic() - self._began)

    async def _send(self, action: probes.Action, *, timeout_s: float) -> prober.Result:
        http = self._context.machine.http
        return await prober.send(action, timeout_s=timeout_s, http=http, execute=self._execute)

    async def _execute(self, command: tuple[str, ...], timeout_s: float) -> processes.Finished:
        assert self._launch is not None
        return await processes.run(
            self._launch.command(command),
            state=self._context.machine.state,
            mark=self._context.pod["metadata"]["uid"],
            timeout_s=timeout_s,
        )

    async def _pre_stop(self, hook: Manifest, *, grace_s: float) -> None:
        if "sleep" in hook:
            await anyio.sleep(float(hook["sleep"].get("seconds") or 0))
            return
        try:
            action = probes.parse_action(hook, probes.ports_of(self._spec), ip=self._context.ip)
        except probes.BadProbe as error:
            message = str(error)
        else:
            result = await self._send(action, timeout_s=grace_s)
            if result.success:
                return
            message = result.message
        await self._context.recorder.record(
            "FailedPreStopHook", f"PreStopHook failed: {message}", warning=True
        )

    async def _end_with(self, process: Process, scope: anyio.CancelScope) -> None:
        await process.wait()
        scope.cancel()

    def _backoff(self) -> Backoff:
        return Backoff(base_s=self._config.backoff_s, cap_s=self._config.backoff_cap_s)

    def _set_facts(self, facts: ContainerFacts) -> None:
        self.facts = facts
        self._context.changed()
