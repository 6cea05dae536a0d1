"""A cluster as its administrator sees it: objects put in, watched and taken out; programs run."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup

from hearth.api.meta import Manifest, ServiceKey
from hearth.cluster import kinds
from hearth.cluster.informer import Informer
from hearth.cluster.interface import Kind, LabelSelector, NotFound
from hearth.cluster.kube.cluster import KubeCluster
from tests import hanging

LIMIT_S = hanging.limit_s(90)
"""A hang is a failure; nothing here is expected to come near it."""
WITHIN = f"--timeout={hanging.duration(90)}"
"""What ends a `kubectl` that waits."""
MANAGER = "administrator"
NAMESPACE = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
SERVICES = kinds.llm_service("serving.hearth.dev")
RUNTIMES = kinds.inference_runtime("serving.hearth.dev")


class Failed(AssertionError):
    """A program's exit status was not zero; the message is what it printed."""


async def run(*command: str | Path, stdin: str = "", check: bool = True) -> str:
    """What a program prints; raises Failed with all it said."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    with hanging.guard(180):
        output, errors = await process.communicate(stdin.encode())
    if check and process.returncode:
        raise Failed(f"{' '.join(map(str, command))}: {output.decode()} {errors.decode()}")
    return output.decode() if check else output.decode() + errors.decode()


async def kubectl(*words: str, stdin: str = "", check: bool = True) -> str:
    """`kubectl` on the cluster under test."""
    return await run("kubectl", *words, stdin=stdin, check=check)


class Begun:
    """A coroutine under way in a task group."""

    def __init__(self, tasks: TaskGroup, work: Awaitable[Any]) -> None:
        self.value: Any = None
        self.scope = anyio.CancelScope()
        self._work = work
        self._ended = anyio.Event()
        tasks.start_soon(self._run)

    @property
    def done(self) -> bool:
        return self._ended.is_set()

    async def end(self) -> Any:
        """Its value, once it is there."""
        await self._ended.wait()
        return self.value

    async def _run(self) -> None:
        with self.scope:
            self.value = await self._work
        self._ended.set()


class ClusterFixture:
    """The cluster under test."""

    def __init__(self, cluster: KubeCluster) -> None:
        self.cluster = cluster

    async def apply(self, *manifests: Manifest) -> None:
        """As `kubectl apply --server-side` would."""
        for manifest in manifests:
            await self.cluster.apply(manifest, manager=MANAGER)

    async def delete(self, *manifests: Manifest) -> None:
        for manifest in manifests:
            await self.cluster.delete(manifest)

    @contextlib.asynccontextmanager
    async def namespace(self, name: str) -> AsyncIterator[str]:
        """A namespace that pods can be made in; gone, with all that is in it, in the end.

        A test may have deleted it, and it may be gone before the end or while it is waited for.
        """
        await kubectl("create", "namespace", name)
        account = Kind("", "v1", "ServiceAccount", "serviceaccounts")
        await self.until(account, ServiceKey(name, "default"), lambda found: found is not None)
        try:
            yield name
        finally:
            await kubectl("delete", "namespace", name, "--ignore-not-found", WITHIN)

    @contextlib.asynccontextmanager
    async def follow(
        self, kind: Kind, namespace: str, labels: LabelSelector | None = None
    ) -> AsyncIterator[Informer]:
        """The objects of a kind, kept up to date; an API server that is away is waited for."""
        informer = Informer(
            self.cluster,
            kind,
            namespace=namespace,
            labels=labels,
            managed_fields=True,
            missing_retry_s=0.2,
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run)
            await informer.synced.wait()
            try:
                yield informer
            finally:
                tasks.cancel_scope.cancel()

    async def until(
        self,
        kind: Kind,
        key: ServiceKey,
        condition: Callable[[Manifest | None], object],
        *,
        limit_s: float = LIMIT_S,
    ) -> Manifest | None:
        """Wait until `condition(object, or None)` holds; the object."""
        async with self.follow(kind, key.namespace) as copy:
            return await seen(
                copy, lambda: condition(copy.get(key)), lambda: copy.get(key), limit_s=limit_s
            )

    async def pods(
        self,
        namespace: str,
        labels: Mapping[str, str],
        condition: Callable[[list[Manifest]], object],
        *,
        limit_s: float = LIMIT_S,
    ) -> list[Manifest]:
        """Wait until `condition(pods with these labels)` holds; the pods."""
        async with self.follow(kinds.POD, namespace, labels) as copy:
            return await seen(
                copy, lambda: condition(list(copy)), lambda: list(copy), limit_s=limit_s
            )

    async def find(self, kind: Kind, key: ServiceKey) -> Manifest | None:
        try:
            return await self.cluster.get(kind, key.namespace, key.name)
        except NotFound:
            return None


async def seen(copy: Informer, condition, value, *, limit_s: float = LIMIT_S):
    """Wait until `condition()` holds of what an informer has; `value()` then."""
    changed = anyio.Event()

    def on_change(*_: object) -> None:
        nonlocal changed
        changed.set()
        changed = anyio.Event()

    stop = copy.listen(on_change)
    try:
        with anyio.move_on_after(limit_s):
            while not condition():
                await changed.wait()
            return value()
    finally:
        stop()
    raise AssertionError(f"never came there; last seen: {value()}")


async def warnings(namespace: str) -> str:
    """What Warning Events of the services in a namespace say."""
    return await kubectl(
        "-n",
        namespace,
        "get",
        "events",
        "-o",
        "jsonpath={.items[*].message}",
        "--field-selector=type=Warning,involvedObject.kind=LLMService",
    )


def owners_of_replicas(deployment: Manifest) -> set[str]:
    """Managers that own `spec.replicas`."""
    return {
        entry["manager"]
        for entry in deployment["metadata"].get("managedFields", ())
        if "f:replicas" in entry.get("fieldsV1", {}).get("f:spec", {})
    }


def scaled_by_hearth(deployment: Manifest) -> bool:
    """Whether Hearth set its scale in KEDA's place, as far as the object remembers."""
    return any(
        entry.get("subresource") == "scale" and entry["manager"].startswith("hearth")
        for entry in deployment["metadata"].get("managedFields", ())
    )


def condition(manifest: Manifest | None, kind: str) -> dict:
    """One condition of an object; empty without it."""
    found = (manifest or {}).get("status", {}).get("conditions", ())
    return next((one for one in found if one["type"] == kind), {})


def phase(manifest: Manifest | None) -> str | None:
    return (manifest or {}).get("status", {}).get("phase")


def variable(name: str) -> str:
    return os.environ.get(name, "")
