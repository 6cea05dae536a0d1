"""From desired and observed objects to the writes that make them equal."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from hearth import names, routes
from hearth.api import groups
from hearth.api.llmservice import LLMService
from hearth.api.meta import Manifest
from hearth.cluster import kinds
from hearth.reconcile.apply import drift, leftovers, ownership, takeover, written_once
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOver:
    """Apply an object that other controllers applied before, and end what they own of it.

    Repeatable from any step; a Conflict asks for another pass:

    1. where `replicas` is set: apply it, manager names.REPLICAS_MANAGER, *no* force, so that the
       field outlives its owner with the value it has;
    2. apply `manifest`, by force, as each of `managers`: what only they wanted goes in the very
       write that brings what Hearth wants, and pods are replaced once;
    3. apply `manifest`, manager names.MANAGER, force;
    4. apply `bare`, as each of `managers`: they own nothing any more.
    """

    manifest: Manifest
    managers: tuple[str, ...]
    bare: Manifest
    replicas: Manifest | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """`cluster.delete`, by uid: owned by the service and no longer desired."""

    manifest: Manifest


Write = Create | Apply | ApplyReplicas | TakeOver | Delete


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to write, in order; or why nothing is written."""

    writes: tuple[Write, ...] = ()
    rejection: routes.SpecRejection | None = None
    adopted: tuple[str, ...] = ()
    """Kind and name of the objects that these writes adopt."""
    taken_over: tuple[str, ...] = ()
    """The same of those that another controller applied before."""


def writes(
    service: LLMService, desired: Desired, observed: Iterable[Manifest], *, leaves: bool = False
) -> Plan:
    """The writes for one service; none where nothing differs.

    `observed`: every object of the namespace that bears a desired kind and name, or the
    service's label.  One that this very LLMService does not control is adopted where Hearth wrote
    it and nothing controls it; else it is left alone, nothing at all is written, and the rejection
    names it.  `leaves`: whether another project's controller left objects beside these.
    """
    observed_by_id = {_identity(manifest): manifest for manifest in observed}
    manifests = leftovers.marked(desired.manifests, service.key) if leaves else desired.manifests
    desired_by_id = {_identity(manifest): manifest for manifest in manifests}
    problems = [
        problem
        for identity, manifest in desired_by_id.items()
        if (current := observed_by_id.get(identity)) is not None
        and (problem := _rejection(service, manifest, current)) is not None
    ]
    if problems:  # all at once: who mends one and is told the next has waited twice
        message = "; ".join(problem.message for problem in problems)
        return Plan(rejection=routes.SpecRejection(reason=problems[0].reason, message=message))
    steps: list[Write] = []
    adopted: list[str] = []
    taken_over: list[str] = []
    for identity, manifest in desired_by_id.items():
        current = observed_by_id.get(identity)
        if step := _take_over(service, manifest, current):
            steps.append(step)
            taken_over.append(f"{manifest['kind']} {manifest['metadata']['name']}")
        elif current is None or ownership.controlled(service, current) or _is_terminating(current):
            steps.extend(_steps(manifest, current, desired.initial_replicas))
        else:
            steps.append(Apply(_adopting(manifest, current)))
            adopted.append(f"{current['kind']} {current['metadata']['name']}")
    orphans = (
        current for identity, current in observed_by_id.items() if identity not in desired_by_id
    )
    return Plan(
        writes=(*_deletions(service, orphans), *steps),
        adopted=tuple(adopted),
        taken_over=tuple(taken_over),
    )


def shared_service(desired: Manifest, observed: Manifest | None) -> Plan:
    """The same for a namespace's shared Service, which has no controller."""
    if observed is not None and not _written_by_hearth(observed):
        return Plan(
            rejection=_not_owned(
                observed, "choose another name for the shared endpoint where Hearth is installed"
            )
        )
    if observed is not None:
        owners = {owner["uid"] for owner in desired["metadata"].get("ownerReferences", ())}
        observed_owners = {
            owner["uid"] for owner in observed["metadata"].get("ownerReferences", ())
        }
        if observed_owners - owners:  # drift sees what is missing, not what should be gone
            return Plan(writes=(Apply(_identified(desired, observed)),))
    return Plan(writes=tuple(_steps(desired, observed, 0)))


# The hash is one of the annotations: where another stands, something else was wanted.
def _steps(desired: Manifest, observed: Manifest | None, replicas: int) -> Iterator[Write]:
    if observed is not None and _is_terminating(observed):
        return  # its end is seen, and then it is written anew
    kind = kinds.of(desired)
    if kind == kinds.DEPLOYMENT:
        yield from _deployment_steps(desired, observed, replicas)
    elif observed is None:
        yield Create(desired) if kind.kind in written_once.KINDS else Apply(desired)
    elif kind == kinds.PVC:
        if not drift.matches(_metadata(desired, "labels"), _metadata(observed, "labels")):
            yield Apply(_unwritten(_identified(desired, observed)))
    elif kind.kind not in written_once.KINDS and (
        not drift.matches(desired, observed)
        or (leftovers.is_marked(observed) and not leftovers.is_marked(desired))
    ):
        yield Apply(_identified(desired, observed))


def _take_over(
    service: LLMService, desired: Manifest, observed: Manifest | None
) -> TakeOver | None:
    """None where no other controller applied it; a claim is written once, by whomever."""
    if observed is None or desired["kind"] in written_once.KINDS or _is_terminating(observed):
        return None
    managers = takeover.former_managers(service, observed)
    if not managers or not ownership.controlled(service, observed):
        return None
    bare = takeover.bare(observed)
    replicas = None
    if takeover.owns_replicas(observed, managers):
        replicas = {**bare, "spec": {"replicas": observed["spec"]["replicas"]}}
    return TakeOver(
        manifest=_identified(desired, observed), managers=managers, bare=bare, replicas=replicas
    )


def _deployment_steps(
    desired: Manifest, observed: Manifest | None, replicas: int
) -> Iterator[Write]:
    if observed is None:
        yield _apply_replicas(desired, replicas, whole=_with_replicas(desired, replicas))
    elif _half_created(observed):
        now = observed["spec"].get("replicas", replicas)
        yield _apply_replicas(_identified(desired, observed), now, whole=None)
    elif not drift.matches(desired, observed):
        yield Apply(_identified(desired, observed))


def _apply_replicas(main: Manifest, replicas: int, *, whole: Manifest | None) -> ApplyReplicas:
    bare = takeover.bare(main)
    return ApplyReplicas(
        whole=whole,
        main=main,
        replicas={**bare, "spec": {"replicas": replicas}},
        release=bare,
    )


def _with_replicas(manifest: Manifest, replicas: int) -> Manifest:
    return {**manifest, "spec": {**manifest["spec"], "replicas": replicas}}


def _half_created(observed: Manifest) -> bool:
    """Whether the steps of ApplyReplicas were cut short: the second manager owns too much."""
    managers = {
        entry["manager"]: entry.get("fieldsV1", {})
        for entry in observed["metadata"].get("managedFields", ())
        if entry.get("operation") == "Apply" and not entry.get("subresource")
    }
    owned: dict[str, Any] = managers.get(names.REPLICAS_MANAGER, {})
    return bool(owned) and (
        names.MANAGER not in managers
        or set(owned) != {"f:spec"}
        or set(owned["f:spec"]) - {"."} != {"f:replicas"}
    )


def _rejection(
    service: LLMService, desired: Manifest, observed: Manifest
) -> routes.SpecRejection | None:
    if not ownership.controlled(service, observed) and not ownership.adoptable(service, observed):
        return _not_owned(observed, _remedy(service, observed))
    if observed["kind"] in written_once.KINDS:
        return written_once.rejection(desired, observed)
    return None


def _deletions(service: LLMService, orphans: Iterable[Manifest]) -> list[Delete]:
    """A PVC is not among them: it holds data, and is deleted with the service."""
    doomed = [
        observed
        for observed in orphans
        if observed["kind"] != kinds.PVC.kind
        and observed["metadata"].get("labels", {}).get(names.SERVICE_LABEL) == service.metadata.name
        and ownership.controlled(service, observed)
        and not _is_terminating(observed)
    ]
    # KEDA must not scale what is about to be deleted.
    doomed.sort(key=lambda observed: bool(observed["kind"] != kinds.SCALED_OBJECT.kind))
    return [Delete(observed) for observed in doomed]


def _written_by_hearth(observed: Manifest) -> bool:
    owners = observed["metadata"].get("ownerReferences", ())
    managed_by = observed["metadata"].get("labels", {}).get("app.kubernetes.io/managed-by")
    written = names.HASH_ANNOTATION in (observed["metadata"].get("annotations") or {})
    return (
        written
        and managed_by == names.MANAGER
        and all(
            owner.get("kind") == "LLMService" and _group(owner) in groups.GROUPS for owner in owners
        )
    )


def _group(owner: Manifest) -> str:
    return str(owner.get("apiVersion", "")).partition("/")[0]


def _not_owned(observed: Manifest, remedy: str) -> routes.SpecRejection:
    metadata = observed["metadata"]
    owner = ownership.controller(observed)
    belongs = f"belongs to {owner['kind']} {owner['name']}" if owner else "is not Hearth's"
    return routes.SpecRejection(
        reason=spec_errors.NOT_OWNED,
        message=f"{observed['kind']} {metadata['name']} {belongs} and is left alone; {remedy}",
    )


def _is_terminating(observed: Manifest) -> bool:
    return bool(observed["metadata"].get("deletionTimestamp"))


def _remedy(service: LLMService, observed: Manifest) -> str:
    owner = ownership.controller(observed)
    if owner.get("kind") == "LLMService" and owner.get("name") == service.metadata.name:
        return (
            f"that is another LLMService of this name (uid {owner.get('uid')}), deleted perhaps:"
            " the cluster then removes what it owned; delete it yourself if it stays"
        )
    return "delete or rename it, or rename the service"


def _adopting(desired: Manifest, observed: Manifest) -> Manifest:
    """For the observed version only: an object that someone else adopts meanwhile stays theirs.

    Of what is written once nothing but owner and labels.
    """
    made = _identified(desired, observed)
    version = {"resourceVersion": observed["metadata"]["resourceVersion"]}
    metadata = {**made["metadata"], **version}
    adopting = {**made, "metadata": metadata}
    return adopting if observed["kind"] not in written_once.KINDS else _unwritten(adopting)


def _unwritten(once: Manifest) -> Manifest:
    """Of what is written once, only what may be written again: whose it is."""
    kept = ("name", "namespace", "uid", "resourceVersion", "ownerReferences", "labels")
    metadata = {name: once["metadata"][name] for name in kept if name in once["metadata"]}
    return {"apiVersion": once["apiVersion"], "kind": once["kind"], "metadata": metadata}


def _metadata(manifest: Manifest, name: str) -> Any:
    return manifest["metadata"].get(name) or {}


def _identified(desired: Manifest, observed: Manifest) -> Manifest:
    uid = observed["metadata"].get("uid")
    return {**desired, "metadata": {**desired["metadata"], **({"uid": uid} if uid else {})}}


def _identity(manifest: Manifest) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]
