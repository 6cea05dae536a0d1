"""A store with one service in it, and a plan for it carried out step by step."""

import itertools
from collections.abc import Callable
from typing import Any, assert_never

from hearth import names
from hearth.api.llmservice import LLMService
from hearth.api.meta import Manifest, ServiceKey
from hearth.cluster import kinds
from hearth.cluster.interface import Conflict
from hearth.cluster.local.apiserver.store import Store
from hearth.reconcile.apply import plan
from hearth.reconcile.apply.plan import Apply, ApplyReplicas, Create, Delete, TakeOver
from tests.reconcile import builders
from tests.reconcile.builders import WALL, merged, render, runtime, written

KEY = ServiceKey("ai", "chat")
KINDS = (kinds.PVC, kinds.DEPLOYMENT, kinds.SERVICE, kinds.SCALED_OBJECT, kinds.JOB)


class PlanFixture:
    def __init__(self) -> None:
        uids = map("uid-{}".format, itertools.count(1))
        self.store = Store(now=lambda: WALL, new_uid=lambda: next(uids), new_suffix=lambda: "x")
        stored = self.store.apply(written(builders.service(uid="")), manager="user")
        self.service = LLMService.model_validate(stored)

    def observed(self) -> list[Manifest]:
        return [m for kind in KINDS for m in self.store.list(kind, namespace="ai").items]

    def decide(self, spec: Manifest | None = None, **runtime_spec: Any) -> plan.Plan:
        of = self.service
        if spec is not None:
            whole = merged(written(of), {"spec": spec, "metadata": {"uid": of.metadata.uid}})
            of = LLMService.model_validate(whole)
        return plan.writes(of, render(of, runtime(runtime_spec)), self.observed())

    def execute(self, of: plan.Plan, *, stop_after: int = 99, between: Any = None) -> None:
        """Every write, or only so many steps of the Deployment's; `between`: after its second."""
        assert of.rejection is None
        for write in of.writes:
            match write:
                case Create(manifest):
                    self.store.create(manifest, manager=names.MANAGER)
                case Apply(manifest):
                    self.store.apply(manifest, manager=names.MANAGER)
                case Delete(manifest):
                    self.store.delete(manifest)
                case ApplyReplicas():
                    self._replicas(write, stop_after, between)
                case TakeOver():
                    self._take_over(write)
                case other:
                    assert_never(other)

    def _replicas(
        self, write: ApplyReplicas, stop_after: int, between: Callable[[], object] | None
    ) -> None:
        if write.whole is not None:
            self.store.apply(write.whole, manager=names.REPLICAS_MANAGER)
        if stop_after < 2:
            return
        self.store.apply(write.main, manager=names.MANAGER)
        if between is not None:
            between()
        if stop_after < 3:
            return
        try:
            self.store.apply(write.replicas, manager=names.REPLICAS_MANAGER, force=False)
        except Conflict:
            self.store.apply(write.release, manager=names.REPLICAS_MANAGER)

    def _take_over(self, write: TakeOver) -> None:
        if write.replicas is not None:
            self.store.apply(write.replicas, manager=names.REPLICAS_MANAGER, force=False)
        for manager in (*write.managers, names.MANAGER):
            self.store.apply(write.manifest, manager=manager)
        for manager in write.managers:
            self.store.apply(write.bare, manager=manager)

    def get(self, kind: Any, name: str = "chat") -> Manifest:
        return self.store.get(kind, "ai", name)

    def edit(self, kind: Any, change: Manifest, name: str = "chat") -> None:
        self.store.update(merged(self.get(kind, name), change), manager="someone")

    def replicas(self) -> int:
        return int(self.get(kinds.DEPLOYMENT)["spec"]["replicas"])

    def owners_of_replicas(self) -> set[str]:
        entries = self.get(kinds.DEPLOYMENT)["metadata"]["managedFields"]
        return {e["manager"] for e in entries if "f:replicas" in e["fieldsV1"].get("f:spec", {})}
