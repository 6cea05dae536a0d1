"""What Hearth asks of a cluster: a handful of verbs on plain dicts, and how they can fail."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from hearth.api.meta import Manifest, ServiceKey


@dataclass(frozen=True, slots=True)
class Kind:
    """One resource type; `str()` names it as people do."""

    group: str
    """Empty for the core group."""
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects of a kind at one version, from which a watch can go on."""

    items: list[Manifest]
    version: str


@dataclass(frozen=True, slots=True)
class Change:
    """One step of a watch.  A BOOKMARK carries only a version; DELETED the last state."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    manifest: Manifest
    version: str


LabelSelector = Mapping[str, str | None]
"""Labels that an object must bear, all of them; None stands for any value."""


class ClusterError(Exception):
    """A cluster's refusal or failure; the message is fit for a condition."""


class NotFound(ClusterError):
    """No such object."""


class KindMissing(NotFound):
    """The cluster does not serve this kind (its CRD is not installed)."""


class AlreadyExists(ClusterError):
    """An object of that name is there already."""


class Conflict(ClusterError):
    """Somebody else changed, or owns, what this write would change: read again."""


class Invalid(ClusterError):
    """The object is wrong and will be until someone changes it: terminal."""


class Forbidden(ClusterError):
    """Not allowed (RBAC, quota, an admission webhook)."""


class Terminating(Forbidden):
    """The namespace is being deleted: nothing is created there any more, and all goes with it."""


class Expired(ClusterError):
    """The watch's version is too old: list again."""


@dataclass
class Unavailable(ClusterError):
    """The cluster cannot be asked now: try later."""

    message: str = "the cluster cannot be reached"
    retry_after_s: float | None = None
    cause: BaseException | None = field(default=None, repr=False)
    begun: bool = False
    """A watch that the cluster had granted was cut."""

    def __str__(self) -> str:
        return self.message


class Cluster(Protocol):
    """A cluster, as far as Hearth needs one.  Raises only ClusterError and its kinds.

    Manifests carry `apiVersion` and `kind`.  Results are the caller's to read, not to change.
    """

    async def list(
        self, kind: Kind, *, namespace: str = "", labels: LabelSelector | None = None
    ) -> Listing:
        """Objects of a kind; all namespaces when `namespace` is empty."""
        ...

    def watch(
        self,
        kind: Kind,
        *,
        since: str,
        namespace: str = "",
        labels: LabelSelector | None = None,
    ) -> AsyncGenerator[Change, None]:
        """Changes after `since`.  An end without error is normal (watch again); raises Expired.

        Close it (`contextlib.aclosing`) when leaving before its end.
        """
        ...

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest:
        """Raises NotFound."""
        ...

    async def apply(self, manifest: Manifest, *, manager: str, force: bool = True) -> Manifest:
        """Server-side apply.  With `metadata.uid` set it never re-creates (Conflict).

        `force=False` raises Conflict where another manager owns a field with another value.
        """
        ...

    async def create(self, manifest: Manifest) -> Manifest:
        """For what is written once.  Raises AlreadyExists."""
        ...

    async def update(self, manifest: Manifest) -> Manifest:
        """Replace, guarded by `metadata.resourceVersion`.  Raises Conflict, NotFound."""
        ...

    async def delete(self, manifest: Manifest) -> None:
        """By name, and by uid where the manifest bears one (Conflict).  Absent is fine."""
        ...

    async def patch_status(self, manifest: Manifest, *, manager: str) -> Manifest:
        """Apply `status` (the whole of what `manager` says) through the status subresource."""
        ...

    async def scale(self, key: ServiceKey, *, replicas: int, uid: str = "") -> None:
        """Set a Deployment's `/scale`: for autoscalers, the watchdog and nobody else.

        With `uid` only of that one: Conflict where another has its name.
        """
        ...
