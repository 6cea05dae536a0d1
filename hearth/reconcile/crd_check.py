"""Check at the start whether the cluster's CustomResourceDefinitions have all fields of ours."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import anyio
from anyio.abc import TaskStatus

from hearth.api import crd_compatibility, groups
from hearth.cluster import kinds
from hearth.cluster.interface import Cluster, ClusterError, Forbidden, NotFound
from hearth.reconcile.spec import spec_errors
from hearth.routes import SpecRejection

logger = logging.getLogger(__name__)

_UNREAD_RETRY_S = 1.0
_OUTDATED_RETRY_S = 60.0
_GUARDS = ("spec.endpoint.authentication", "spec.scaling.externalScaler.tls")
"""Fields of an LLMService without which more clients could use it than its author wrote."""


@dataclass(frozen=True, slots=True)
class OutdatedCRDs:
    """What the definitions of one group drop: the plural of a kind, and fields of it."""

    dropped: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def warning(self) -> str | None:
        """For a service that is served all the same; None where it is not."""
        return None if self.rejection else self.message

    @property
    def message(self) -> str:
        lists = (f"{plural}: {', '.join(fields)}" for plural, fields in self.dropped)
        return (
            f"the cluster's CRDs are older than Hearth and drop these fields ({'; '.join(lists)});"
            " upgrade them: hearth crd | kubectl apply --server-side --force-conflicts -f -"
        )

    @property
    def rejection(self) -> SpecRejection | None:
        """Set where a dropped field may have guarded a service: then none is served."""
        dropped = dict(self.dropped).get(kinds.llm_service(groups.HEARTH).plural, ())
        # The field itself, or one that it is in.
        if any(f"{guard}.".startswith(f"{field}.") for guard in _GUARDS for field in dropped):
            return SpecRejection(reason=spec_errors.CRD_OUTDATED, message=self.message)
        return None


class CRDCheck:
    """What each group's definitions drop, by the last check."""

    def __init__(
        self, cluster: Cluster, *, api_groups: Iterable[str], changed: Callable[[], None]
    ) -> None:
        """`changed`: called when a check differs from the one before."""
        self._cluster = cluster
        self._groups = tuple(api_groups)
        self._changed = changed
        self._outdated: dict[str, OutdatedCRDs] = {}

    def outdated(self, group: str) -> OutdatedCRDs | None:
        """None: every field is kept, or the definitions may not be read."""
        return self._outdated.get(group)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Check until nothing is missing.  Started once the cluster has responded."""
        started = False
        while True:
            try:
                found = {group: one for group in self._groups if (one := await self._read(group))}
            except ClusterError as error:
                logger.warning("CRDs not read", extra={"error": str(error)})
                await anyio.sleep(_UNREAD_RETRY_S)
                continue
            if found != self._outdated:
                self._outdated = found
                for one in found.values():
                    logger.error("CRDs lack fields", extra={"detail": one.message})
                if started:
                    self._changed()
            if not started:
                started = True
                task_status.started()
            if not found:
                return
            await anyio.sleep(_OUTDATED_RETRY_S)

    async def _read(self, group: str) -> OutdatedCRDs | None:
        dropped = []
        for kind in (kinds.llm_service(group), kinds.inference_runtime(group)):
            try:
                definition = await self._cluster.get(kinds.DEFINITION, "", f"{kind.plural}.{group}")
            except (NotFound, Forbidden) as error:
                # Without the definition the kind is missing too, which its informer reports.
                logger.debug("CRD not read", extra={"kind": str(kind), "error": str(error)})
                continue
            if fields := crd_compatibility.missing_fields(definition):
                dropped.append((kind.plural, tuple(fields)))
        return OutdatedCRDs(tuple(dropped)) if dropped else None
