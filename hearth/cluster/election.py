"""Read and write the Lease that names the leader; pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hearth.api.meta import Manifest, ServiceKey, rfc3339_micro
from hearth.cluster import kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Kubernetes' usual numbers, in seconds."""

    duration_s: int = 15
    """How long others leave the Lease to a holder that is silent."""
    renew_s: float = 10.0
    """A holder that has not renewed for so long begins no write."""
    retry_s: float = 2.0
    """Between two tries, +-20 %."""
    try_s: float = 3.0
    """One try; two fit between a renewal and the deadline."""
    release_s: float = 2.0
    """Giving it back, on the way out."""

    @property
    def cut_s(self) -> float:
        """A write that is still under way so long after the last renewal is cut."""
        return (self.renew_s + self.duration_s) / 2


@dataclass(frozen=True, slots=True)
class ObservedLease:
    """Another's hold on the Lease, dated by our clock: clocks of two machines never agree."""

    holder: str
    mark: tuple[str, str]
    until: float
    at: float
    """When it was last looked at."""


def own_pod(name: str, uid: str) -> str:
    """What the identities of all processes of one pod begin with; empty for a pod half known.

    Neither a name nor a uid holds an underscore, so no other pod's begin with it.
    """
    return f"{name}_{uid}_" if name and uid else ""


def holder(lease: Manifest) -> str:
    """Who holds it; empty when it was given back."""
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def never_held(lease: Manifest) -> bool:
    """Whether it is as the chart makes it."""
    return not (lease.get("spec") or {}).get("renewTime")


def observe(
    lease: Manifest, before: ObservedLease | None, *, now: float, timing: Timing
) -> ObservedLease:
    """`before`, unless its holder has renewed since: then its time begins anew, now.

    So it does where nothing was seen for as long as makes a holder begin no write: who was cut off
    himself cannot tell one that died from one that was cut off too, and has come back as well.
    """
    spec = lease.get("spec") or {}
    version = lease["metadata"].get("resourceVersion", "")
    mark = (str(spec.get("renewTime")), str(version))
    if before is not None and before.mark == mark and now - before.at <= timing.renew_s:
        return replace(before, at=now)
    duration_s = spec.get("leaseDurationSeconds") or timing.duration_s
    return ObservedLease(holder(lease), mark, now + duration_s, now)


def observe_missing(before: ObservedLease | None, *, now: float, timing: Timing) -> ObservedLease:
    """The Lease is gone: its last holder's time begins anew when that is first noticed."""
    gone: Manifest = {"metadata": {}, "spec": {"holderIdentity": before.holder if before else ""}}
    return observe(gone, before, now=now, timing=timing)


def first(
    key: ServiceKey,
    identity: str,
    *,
    wall_s: float,
    duration_s: int,
    owners: Sequence[Manifest] = (),
) -> Manifest:
    """The Lease where there is none; it goes with its `owners`, if it has any."""
    now = rfc3339_micro(wall_s)
    return {
        "apiVersion": kinds.LEASE.api_version,
        "kind": kinds.LEASE.kind,
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            **({"ownerReferences": list(owners)} if owners else {}),
        },
        "spec": {
            "holderIdentity": identity,
            "leaseDurationSeconds": duration_s,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": 0,
        },
    }


def claimed(lease: Manifest, identity: str, *, wall_s: float, duration_s: int) -> Manifest:
    """`lease` taken over by `identity`, or renewed where it is the holder already."""
    now = rfc3339_micro(wall_s)
    before = lease.get("spec") or {}
    spec = {
        **before,
        "holderIdentity": identity,
        "leaseDurationSeconds": duration_s,
        "renewTime": now,
    }
    if holder(lease) != identity:
        spec["acquireTime"] = now
        spec["leaseTransitions"] = (before.get("leaseTransitions") or 0) + 1
    return {**lease, "spec": spec}


def given_back(lease: Manifest, *, wall_s: float) -> Manifest:
    """`lease` free for the next one at once."""
    spec = {
        **lease["spec"],
        "holderIdentity": "",
        "leaseDurationSeconds": 1,
        "renewTime": rfc3339_micro(wall_s),
    }
    return {**lease, "spec": spec}
