"""From desired and observed objects to the writes that make them equal."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from hearth import names, routes
from hearth.api import groups
from hearth.api.llmservice import LLMService
from hearth.api.meta import Manifest
from hearth.cluster import kinds
from hearth.reconcile.apply import drift, ownership
from hearth.reconcile.render.desired import Desired
from hearth.reconcile.spec import spec_errors


@dataclass(frozen=True, slots=True)
class Create:
    """`cluster.create`, for what is written once.  AlreadyExists asks for another pass."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Apply:
    """`cluster.apply(manifest, manager=names.MANAGER)`, by force.

    The manifest bears the uid of the object it was decided for, where there is one: Conflict
    means that it is gone by now, and that the next pass decides anew.
    """

    manifest: Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyReplicas:
    """Give a Deployment its first replicas without owning that field afterwards.

    Four steps, repeatable from any of them; `main` and `replicas` may get, as metadata.uid, that
    of the answer before:

    1. where `whole` is set: apply it, manager names.REPLICAS_MANAGER, force;
    2. apply `main`, manager names.MANAGER, force;
    3. apply `replicas`, manager names.REPLICAS_MANAGER, *no* force;
    4. if 3 raised Conflict, someone else scales already: apply `release`, names.REPLICAS_MANAGER.
    """

    whole: Manifest | None
    main: Manifest
    replicas: Manifest
    release: Manifest


@dataclass(frozen=True, slots=True)
class Delete:
    """`cluster.delete`, by uid: owned by the service and no longer desired."""

    manifest: Manifest


Write = Create | Apply | ApplyReplicas | Delete


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to write, in order; or why nothing is written."""

    writes: tuple[Write, ...] = ()
    rejection: routes.SpecRejection | None = None
    adopted: tuple[str, ...] = ()
    """Kind and name of the objects that these writes adopt."""


def writes(service: LLMService, desired: Desired, observed: Iterable[Manifest]) -> Plan:
    """The writes for one service; none where nothing differs.

    `observed`: every object of the namespace that bears a desired kind and name, or the
    service's label.  One that this very LLMService does not control is adopted where Hearth wrote
    it and nothing controls it; else it is left alone, nothing at all is written, and the rejection
    names it.
    """
    there = {_identity(manifest): manifest for manifest in observed}
    wanted = {_identity(manifest): manifest for manifest in desired.manifests}
    for identity in wanted:
        found = there.get(identity)
        if found is not None and (problem := _rejection(service, wanted[identity], found)):
            return Plan(rejection=problem)
    steps: list[Write] = []
    adopted: list[str] = []
    for identity, manifest in wanted.items():
        found = there.get(identity)
        if found is None or ownership.controlled(service, found) or _is_terminating(found):
            steps.extend(_steps(manifest, found, desired.initial_replicas))
        else:
            steps.append(Apply(_adopting(manifest, found)))
            adopted.append(f"{found['kind']} {found['metadata']['name']}")
    orphans = (found for identity, found in there.items() if identity not in wanted)
    return Plan(writes=(*_deletions(service, orphans), *steps), adopted=tuple(adopted))


def shared_service(wanted: Manifest, observed: Manifest | None) -> Plan:
    """The same for a namespace's shared Service, which has no controller."""
    if observed is not None and not _written_by_hearth(observed):
        return Plan(
            rejection=_not_owned(
                observed, "choose another name for the shared endpoint where Hearth is installed"
            )
        )
    if observed is not None:
        mine = {owner["uid"] for owner in wanted["metadata"].get("ownerReferences", ())}
        others = {owner["uid"] for owner in observed["metadata"].get("ownerReferences", ())}
        if others - mine:  # drift sees what is missing, not what should be gone
            return Plan(writes=(Apply(_identified(wanted, observed)),))
    return Plan(writes=tuple(_steps(wanted, observed, 0)))


# The hash is one of the annotations: where another stands, something else was wanted.
def _steps(wanted: Manifest, found: Manifest | None, replicas: int) -> Iterator[Write]:
    if found is not None and _is_terminating(found):
        return  # its end is seen, and then it is written anew
    kind = kinds.of(wanted)
    if kind == kinds.DEPLOYMENT:
        yield from _deployment_steps(wanted, found, replicas)
    elif found is None:
        yield Create(wanted) if kind == kinds.PVC else Apply(wanted)
    elif kind != kinds.PVC and not drift.matches(wanted, found):
        yield Apply(_identified(wanted, found))


def _deployment_steps(wanted: Manifest, found: Manifest | None, replicas: int) -> Iterator[Write]:
    if found is None:
        yield _apply_replicas(wanted, replicas, whole=_with_replicas(wanted, replicas))
    elif _half_created(found):
        now = found["spec"].get("replicas", replicas)
        yield _apply_replicas(_identified(wanted, found), now, whole=None)
    elif not drift.matches(wanted, found):
        yield Apply(_identified(wanted, found))


def _apply_replicas(main: Manifest, replicas: int, *, whole: Manifest | None) -> ApplyReplicas:
    metadata = main["metadata"]
    kept = {name: metadata[name] for name in ("name", "namespace", "uid") if name in metadata}
    bare = {"apiVersion": main["apiVersion"], "kind": main["kind"], "metadata": kept}
    return ApplyReplicas(
        whole=whole,
        main=main,
        replicas={**bare, "spec": {"replicas": replicas}},
        release=bare,
    )


def _with_replicas(manifest: Manifest, replicas: int) -> Manifest:
    return {**manifest, "spec": {**manifest["spec"], "replicas": replicas}}


def _half_created(found: Manifest) -> bool:
    """Whether the steps of ApplyReplicas were cut short: the second manager owns too much."""
    managers = {
        entry["manager"]: entry.get("fieldsV1", {})
        for entry in found["metadata"].get("managedFields", ())
        if entry.get("operation") == "Apply" and not entry.get("subresource")
    }
    owned: dict[str, Any] = managers.get(names.REPLICAS_MANAGER, {})
    return bool(owned) and (
        names.MANAGER not in managers
        or set(owned) != {"f:spec"}
        or set(owned["f:spec"]) - {"."} != {"f:replicas"}
    )


def _rejection(
    service: LLMService, wanted: Manifest, found: Manifest
) -> routes.SpecRejection | None:
    if not ownership.controlled(service, found) and not ownership.adoptable(service, found):
        return _not_owned(found, _remedy(service, found))
    if found["kind"] == kinds.PVC.kind and _has_changed(wanted, found):
        name = found["metadata"]["name"]
        return routes.SpecRejection(
            reason=spec_errors.CLAIM_CHANGED,
            message=f"spec.cache: PersistentVolumeClaim {name} was created with another size or"
            " StorageClass, and a claim is written once; undo the change, or save what you need"
            " and delete the claim",
        )
    return None


def _has_changed(wanted: Manifest, found: Manifest) -> bool:
    hashes = [
        m["metadata"].get("annotations", {}).get(names.HASH_ANNOTATION) for m in (wanted, found)
    ]
    # The same amount may be spelled in another way.
    return hashes[0] != hashes[1] and not drift.matches(wanted["spec"], found["spec"])


def _deletions(service: LLMService, orphans: Iterable[Manifest]) -> list[Delete]:
    """A PVC is not among them: it holds data, and is deleted with the service."""
    doomed = [
        found
        for found in orphans
        if found["kind"] != kinds.PVC.kind
        and found["metadata"].get("labels", {}).get(names.SERVICE_LABEL) == service.metadata.name
        and ownership.controlled(service, found)
        and not _is_terminating(found)
    ]
    # KEDA must not scale what is about to be deleted.
    doomed.sort(key=lambda found: bool(found["kind"] != kinds.SCALED_OBJECT.kind))
    return [Delete(found) for found in doomed]


def _written_by_hearth(found: Manifest) -> bool:
    owners = found["metadata"].get("ownerReferences", ())
    managed_by = found["metadata"].get("labels", {}).get("app.kubernetes.io/managed-by")
    written = names.HASH_ANNOTATION in (found["metadata"].get("annotations") or {})
    return (
        written
        and managed_by == names.MANAGER
        and all(
            owner.get("kind") == "LLMService" and _group(owner) in groups.GROUPS for owner in owners
        )
    )


def _group(owner: Manifest) -> str:
    return str(owner.get("apiVersion", "")).partition("/")[0]


def _not_owned(found: Manifest, remedy: str) -> routes.SpecRejection:
    metadata = found["metadata"]
    owner = ownership.controller(found)
    belongs = f"belongs to {owner['kind']} {owner['name']}" if owner else "is not Hearth's"
    return routes.SpecRejection(
        reason=spec_errors.NOT_OWNED,
        message=f"{found['kind']} {metadata['name']} {belongs} and is left alone; {remedy}",
    )


def _is_terminating(found: Manifest) -> bool:
    return bool(found["metadata"].get("deletionTimestamp"))


def _remedy(service: LLMService, found: Manifest) -> str:
    owner = ownership.controller(found)
    if owner.get("kind") == "LLMService" and owner.get("name") == service.metadata.name:
        return (
            f"that is another LLMService of this name (uid {owner.get('uid')}), deleted perhaps:"
            " the cluster then removes what it owned; delete it yourself if it stays"
        )
    return "delete or rename it, or rename the service"


def _adopting(wanted: Manifest, found: Manifest) -> Manifest:
    """For the observed version only: an object that someone else adopts meanwhile stays theirs.

    A claim is written once: of it nothing but the owner.
    """
    made = _identified(wanted, found)
    version = {"resourceVersion": found["metadata"]["resourceVersion"]}
    metadata = {**made["metadata"], **version}
    if found["kind"] != kinds.PVC.kind:
        return {**made, "metadata": metadata}
    kept = ("name", "namespace", "uid", "resourceVersion", "ownerReferences")
    bare = {name: metadata[name] for name in kept if name in metadata}
    return {"apiVersion": made["apiVersion"], "kind": made["kind"], "metadata": bare}


def _identified(wanted: Manifest, found: Manifest) -> Manifest:
    uid = found["metadata"].get("uid")
    return {**wanted, "metadata": {**wanted["metadata"], **({"uid": uid} if uid else {})}}


def _identity(manifest: Manifest) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]
