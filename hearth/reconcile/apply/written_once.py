"""Objects that are created and never changed: what of them the spec says differently now."""

from collections.abc import Iterator

from hearth import names, routes
from hearth.api.meta import Manifest
from hearth.cluster import kinds
from hearth.reconcile.apply import drift
from hearth.reconcile.spec import spec_errors

KINDS = frozenset({kinds.PVC.kind, kinds.JOB.kind})


def rejection(desired: Manifest, observed: Manifest) -> routes.SpecRejection | None:
    """Why `observed`, of one of KINDS, does not do for `desired`; None where it does.

    The message has the values of both, and says what to delete.
    """
    if _hash(desired) == _hash(observed):
        return None
    if observed["kind"] == kinds.JOB.kind:
        return _job(desired, observed)
    return _claim(desired, observed)


def _claim(desired: Manifest, observed: Manifest) -> routes.SpecRejection | None:
    changed = [
        f"{what} ({there}; the spec says {wanted})"
        for what, there, wanted in _differences(desired["spec"], observed["spec"])
    ]
    if not changed:
        return None  # the same amount may be spelled in another way
    return routes.SpecRejection(
        reason=spec_errors.CLAIM_CHANGED,
        message=f"spec.cache: PersistentVolumeClaim {observed['metadata']['name']} was created with"
        f" another {' and '.join(changed)}, and a claim is written once; undo the change, or save"
        " what you need and delete the claim",
    )


def _differences(desired: Manifest, observed: Manifest) -> Iterator[tuple[str, str, str]]:
    def size(spec: Manifest) -> str:
        return str(((spec.get("resources") or {}).get("requests") or {}).get("storage", "none"))

    if not drift.matches(desired["resources"], observed.get("resources"), field="resources"):
        yield "size", size(observed), size(desired)
    wanted_class, there = desired.get("storageClassName"), observed.get("storageClassName")
    if wanted_class and wanted_class != there:
        yield "StorageClass", there or "none", wanted_class
    modes = [", ".join(spec.get("accessModes") or ["none"]) for spec in (observed, desired)]
    if modes[0] != modes[1]:
        yield "access mode", modes[0], modes[1]


def _job(desired: Manifest, observed: Manifest) -> routes.SpecRejection:
    name = observed["metadata"]["name"]
    there, wanted = _fetched(observed), _fetched(desired)
    difference = f"{there}, and the spec now says {wanted}"
    if there == wanted:
        difference = f"{there} in another folder"
    return routes.SpecRejection(
        reason=spec_errors.PREWARM_CHANGED,
        message=f"spec.model.source, spec.cache: Job {name} was created to fetch {difference}; a"
        f" Job is written once: delete Job {name} (of hearth local: start that again), and Hearth"
        " fetches what the spec says, or undo the change",
    )


def _fetched(job: Manifest) -> str:
    annotations = job["metadata"].get("annotations") or {}
    source = annotations.get(names.SOURCE_ANNOTATION, "another model")
    return f"{source} ({annotations.get(names.STRATEGY_ANNOTATION, 'no strategy')})"


def _hash(manifest: Manifest) -> str | None:
    found: str | None = (manifest["metadata"].get("annotations") or {}).get(names.HASH_ANNOTATION)
    return found
