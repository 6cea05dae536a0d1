"""Carry out a plan's writes against a cluster."""

from collections.abc import Iterable
from typing import assert_never

from hearth import names
from hearth.api.meta import Manifest
from hearth.cluster.interface import (
    AlreadyExists,
    Cluster,
    ClusterError,
    Conflict,
    Forbidden,
    Invalid,
    Terminating,
)
from hearth.reconcile.apply.plan import Apply, ApplyReplicas, Create, Delete, TakeOver, Write


class WriteRejected(ClusterError):
    """The cluster rejects one of the objects: it is invalid, or a quota or webhook denies it."""

    def __init__(self, manifest: Manifest, error: ClusterError) -> None:
        self.kind: str = manifest["kind"]
        name = manifest["metadata"]["name"]
        super().__init__(f"the cluster refused {self.kind} {name}: {error}; {_remedy(error)}")


def _remedy(error: ClusterError) -> str:
    """What a person can do; the server only says what is wrong."""
    text = str(error)
    if isinstance(error, Invalid):
        return (
            "change the field of the LLMService, or of its InferenceRuntime, that this comes from;"
            " what runs goes on"
        )
    if "exceeded quota" in text:
        return "raise that quota of the namespace, or ask for less; it is tried again each minute"
    if "admission webhook" in text or "ValidatingAdmissionPolicy" in text:
        return (
            "a policy of the cluster denies it: ask for what the policy allows, or have the policy"
            " changed; it is tried again each minute"
        )
    return (
        "Hearth may lack a right: install the chart of this version of Hearth, with its RBAC; it is"
        " tried again each minute"
    )


async def execute(cluster: Cluster, writes: Iterable[Write]) -> list[Manifest]:
    """One after the other, in order; each may be repeated.  Returns the objects as stored.

    Raises ClusterError at the first that fails: Conflict means that what was decided on is no
    longer so, and that another pass decides anew; Terminating, that all will be gone.
    """
    stored: list[Manifest] = []
    for write in writes:
        try:
            stored.extend(await _execute(cluster, write))
        except Terminating:
            raise
        except (Invalid, Forbidden) as error:
            about = write.main if isinstance(write, ApplyReplicas) else write.manifest
            raise WriteRejected(about, error) from error
    return stored


async def _execute(cluster: Cluster, write: Write) -> tuple[Manifest, ...]:
    match write:
        case Create(manifest):
            try:
                return (await cluster.create(manifest),)
            except AlreadyExists as error:
                raise Conflict(str(error)) from error
        case Apply(manifest):
            return (await cluster.apply(manifest, manager=names.MANAGER),)
        case ApplyReplicas():
            return (await _apply_replicas(cluster, write),)
        case TakeOver():
            return (await _take_over(cluster, write),)
        case Delete(manifest):
            await cluster.delete(manifest)
            return ()
        case _:
            assert_never(write)


async def _apply_replicas(cluster: Cluster, write: ApplyReplicas) -> Manifest:
    main = write.main
    if write.whole is not None:
        created = await cluster.apply(write.whole, manager=names.REPLICAS_MANAGER)
        main = _identified(main, created)
    applied = await cluster.apply(main, manager=names.MANAGER)
    try:
        await cluster.apply(
            _identified(write.replicas, applied), manager=names.REPLICAS_MANAGER, force=False
        )
    except Conflict:
        # Someone scales already: release the field.
        await cluster.apply(_identified(write.release, applied), manager=names.REPLICAS_MANAGER)
    return applied


async def _take_over(cluster: Cluster, write: TakeOver) -> Manifest:
    if write.replicas is not None:
        await cluster.apply(write.replicas, manager=names.REPLICAS_MANAGER, force=False)
    for manager in write.managers:
        await cluster.apply(write.manifest, manager=manager)
    applied = await cluster.apply(write.manifest, manager=names.MANAGER)
    for manager in write.managers:
        applied = await cluster.apply(write.bare, manager=manager)
    return applied


def _identified(manifest: Manifest, stored: Manifest) -> Manifest:
    """With the uid of the stored object, so that a deleted one is never created again."""
    return {
        **manifest,
        "metadata": {**manifest["metadata"], "uid": stored["metadata"]["uid"]},
    }
