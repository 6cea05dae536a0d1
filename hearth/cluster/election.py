"""Read and write the Lease that names the leader; pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hearth.api.meta import Manifest, ServiceKey, rfc3339_micro
from hearth.cluster import kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Times of the election, in seconds; the defaults are Kubernetes' own."""

    duration_s: int = 15
    """How long a Lease stays its holder's after the last renewal."""
    renew_s: float = 10.0
    """Renew deadline: without a renewal for so long, the holder begins no write."""
    retry_s: float = 2.0
    """Between two tries to take or renew, +-20 %."""
    try_s: float = 3.0
    """Limit of one try; two fit between a renewal and the renew deadline."""
    release_s: float = 2.0
    """Limit of releasing the Lease at the end."""

    @property
    def cut_s(self) -> float:
        """A write still under way so long after the last renewal is cancelled."""
        return (self.renew_s + self.duration_s) / 2


@dataclass(frozen=True, slots=True)
class ObservedLease:
    """Another holder's Lease as observed here, dated by this process's clock.

    Clocks of two machines never agree.
    """

    holder: str
    mark: tuple[str, str]
    until: float
    at: float
    """When it was last read."""


def own_pod(name: str, uid: str) -> str:
    """Prefix of the identities of all processes of one pod; empty where name or uid is unknown.

    Neither a name nor a uid has an underscore, so identities of other pods never begin with it.
    """
    return f"{name}_{uid}_" if name and uid else ""


def holder(lease: Manifest) -> str:
    """The holder's identity; empty when the Lease was released."""
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def never_held(lease: Manifest) -> bool:
    """Whether no process ever held it: the chart makes it without a renewTime."""
    return not (lease.get("spec") or {}).get("renewTime")


def observe(
    lease: Manifest, before: ObservedLease | None, *, now: float, timing: Timing
) -> ObservedLease:
    """`before`, unless the holder renewed since: then the Lease runs for its duration from now.

    It also runs anew where this process read nothing for `renew_s`: it was cut off itself, and
    cannot tell a holder that died from one that was cut off too and has come back.
    """
    spec = lease.get("spec") or {}
    version = lease["metadata"].get("resourceVersion", "")
    mark = (str(spec.get("renewTime")), str(version))
    if before is not None and before.mark == mark and now - before.at <= timing.renew_s:
        return replace(before, at=now)
    duration_s = spec.get("leaseDurationSeconds") or timing.duration_s
    return ObservedLease(holder(lease), mark, now + duration_s, now)


def observe_missing(before: ObservedLease | None, *, now: float, timing: Timing) -> ObservedLease:
    """The Lease was deleted: it runs for its last holder from when that is first observed."""
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
    """The Lease to create where there is none; deleted with its `owners`, if there are any."""
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
    """`lease` released: the next candidate need not wait."""
    spec = {
        **lease["spec"],
        "holderIdentity": "",
        "leaseDurationSeconds": 1,
        "renewTime": rfc3339_micro(wall_s),
    }
    return {**lease, "spec": spec}
