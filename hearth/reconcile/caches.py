"""What the reconcilers read: informers, their indexes, and which key a change enqueues."""

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pydantic import ValidationError

from hearth import names
from hearth.api.llmservice import LLMService
from hearth.api.meta import Manifest, ServiceKey, key_of
from hearth.api.runtime import InferenceRuntime
from hearth.cache import volume
from hearth.cluster import kinds
from hearth.cluster.informer import Informer, by_label
from hearth.cluster.interface import Cluster, Kind, LabelSelector
from hearth.reconcile import crd_check
from hearth.reconcile.apply import ownership, takeover
from hearth.reconcile.render import host_folders
from hearth.reconcile.spec import parse, runtime_selection
from hearth.reconcile.spec.parse import ParsedService
from hearth.routes import SpecRejection

OWNED = (kinds.DEPLOYMENT, kinds.SERVICE, kinds.SCALED_OBJECT, kinds.PVC, kinds.JOB)
"""Kinds of the objects that Hearth writes for a service."""
OWNED_AND_POLICIES = (*OWNED, kinds.NETWORK_POLICY)
"""The same where it writes a NetworkPolicy for services with authentication."""

_SERVICE = "service"
_RUNTIME = "runtime"
_FOLDER = "folder"
_PREWARM = "prewarm"
_OURS = {"app.kubernetes.io/managed-by": names.MANAGER}
_BACKENDS: LabelSelector = {names.SERVICE_LABEL: None}
"""Pods, and what stands above them: those of a Deployment that another controller made bear that
one's name as their manager."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrewarmObjects:
    """The Job that fetches one service's weights, and what belongs to it."""

    job: Manifest | None = None
    """None where there is none, or somebody else's of that name."""
    pods: tuple[Manifest, ...] = ()
    claim: Manifest | None = None
    """What it fills, where that is a claim."""


class Caches:
    """Informers over all kinds, indexed by service.  Run each of `informers`."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        groups: Iterable[str],
        enqueue: Callable[[ServiceKey], None],
        enqueue_namespace: Callable[[str], None],
        shared_service: str,
        owned: Iterable[Kind] = OWNED,
        replica_sets: bool = False,
        missing_retry_s: float = 60.0,
    ) -> None:
        """`enqueue` is called with services, `enqueue_namespace` with namespaces to reconcile.
        `owned`: kinds of the objects that are written for a service.  `replica_sets`: whether they
        stand between a Deployment and its pods.

        A kind that the cluster does not serve is looked for every `missing_retry_s`.
        """
        groups = tuple(groups)
        self.crd_check = crd_check.CRDCheck(cluster, api_groups=groups, changed=self._all_changed)
        """Which fields the cluster's CRDs drop; run it beside the informers."""
        self._enqueue = enqueue
        self._enqueue_namespace = enqueue_namespace
        self._shared_service = shared_service
        self._services = {
            g: Informer(
                cluster,
                kinds.llm_service(g),
                indexes={
                    _RUNTIME: runtime_selection.service_index_keys,
                    _FOLDER: host_folders.index_keys,
                },
            )
            for g in groups
        }
        self._runtimes = {g: Informer(cluster, kinds.inference_runtime(g)) for g in groups}
        self._owned = {
            kind: Informer(
                cluster,
                kind,
                labels=_OURS,
                indexes={_SERVICE: by_label(names.SERVICE_LABEL)},
                # Whether the first replicas were handed over is written nowhere else, nor whether
                # another controller owns a part.
                managed_fields=True,
                keep=None if kind == kinds.DEPLOYMENT else takeover.trim_managed_fields,
                missing_retry_s=missing_retry_s,
                # Roles of an older release may not name them.
                may_be_forbidden=kind == kinds.JOB,
            )
            for kind in owned
        }
        self._prewarm_pods = Informer(
            cluster,
            kinds.POD,
            labels={names.PREWARM_LABEL: None},
            indexes={_PREWARM: by_label(names.PREWARM_LABEL)},
        )
        self._pods = Informer(
            cluster, kinds.POD, labels=_BACKENDS, indexes={_SERVICE: by_label(names.SERVICE_LABEL)}
        )
        self._replica_sets = Informer(
            cluster,
            kinds.REPLICA_SET,
            labels=_BACKENDS,
            indexes={_SERVICE: by_label(names.SERVICE_LABEL)},
            keep=ownership.trim_replica_set,
        )
        self._has_replica_sets = replica_sets
        self._parsed_services: dict[str, tuple[str, ParsedService]] = {}
        self._parsed_runtimes: dict[str, tuple[str, InferenceRuntime, SpecRejection | None]] = {}
        """Both by uid, with the version that was parsed."""
        self._own_writes: dict[str, tuple[str, Manifest]] = {}
        self._own_pods: dict[str, frozenset[str]] = {}
        """By a service's uid, the uids of its pods when they were last read."""
        for informer in self._services.values():
            informer.listen(self._service_changed)
        for group, informer in self._runtimes.items():
            informer.listen(functools.partial(self._runtime_changed, group))
        for informer in (*self._owned.values(), self._pods):
            informer.listen(self._owned_changed)
        self._prewarm_pods.listen(self._owned_changed)
        self._replica_sets.listen(self._replica_set_changed)
        self.listen_keda(self._all_changed)
        self._owned[kinds.JOB].listen_available(lambda _: self._all_changed())

    @property
    def informers(self) -> tuple[Informer, ...]:
        return (
            *self._services.values(),
            *self._runtimes.values(),
            *self._owned.values(),
            self._pods,
            self._prewarm_pods,
            *((self._replica_sets,) if self._has_replica_sets else ()),
        )

    @property
    def keda(self) -> bool:
        """Whether the cluster serves ScaledObjects."""
        return self._owned[kinds.SCALED_OBJECT].available

    @property
    def jobs(self) -> bool:
        """Whether Hearth may read Jobs."""
        return self._owned[kinds.JOB].available

    def listen_keda(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` whenever `keda` changes; returns how to stop it."""
        return self._owned[kinds.SCALED_OBJECT].listen_available(lambda _: listener())

    def listen_backends(self, listener: Callable[[ServiceKey], None]) -> Callable[[], None]:
        """Call `listener(service)` at each change of a pod or its owners; returns how to stop."""

        def changed(old: Manifest | None, new: Manifest | None) -> None:
            for key in dict.fromkeys(map(_service_of, (old, new))):
                if key is not None:
                    listener(key)

        def linked(old: Manifest | None, new: Manifest | None) -> None:
            if not ownership.same_replica_set(old, new):
                changed(old, new)

        stops = [
            self._pods.listen(changed),
            self._prewarm_pods.listen(changed),
            self._owned[kinds.DEPLOYMENT].listen(changed),
            self._owned[kinds.JOB].listen(changed),
            self._replica_sets.listen(linked),
        ]

        def stop() -> None:
            for one in stops:
                one()

        return stop

    def listen_pods(
        self, listener: Callable[[ServiceKey, Manifest | None, Manifest | None], None]
    ) -> Callable[[], None]:
        """Call `listener(service, old, new)` at each change of a pod; returns how to stop."""

        def changed(old: Manifest | None, new: Manifest | None) -> None:
            before, after = _service_of(old), _service_of(new)
            if before is not None and before == after:
                listener(before, old, new)
                return
            if before is not None:
                listener(before, old, None)
            if after is not None:
                listener(after, None, new)

        return self._pods.listen(changed)

    def service_keys(self) -> set[ServiceKey]:
        """Every service that there is."""
        return {key_of(manifest) for informer in self._services.values() for manifest in informer}

    def services(self, key: ServiceKey) -> list[Manifest]:
        """The LLMServices of this name: none, one, or one in each group."""
        found = (informer.get(key) for informer in self._services.values())
        return [self._latest(manifest) for manifest in found if manifest is not None]

    def parsed_services(self, key: ServiceKey) -> list[ParsedService]:
        """The same, parsed; each version once."""
        return [self._parsed_service(manifest) for manifest in self.services(key)]

    def resource_version(self, group: str, key: ServiceKey) -> str:
        """Of a service in the cache; empty where there is none."""
        copy = self._services[group].get(key)
        return _version(copy) if copy is not None else ""

    def remember_write(self, stored: Manifest, *, over: str) -> None:
        """Serve `stored`, which a write of ours returned, while the cache still has the version
        `over` that was there before: else the next pass would write the same again."""
        self._own_writes[stored["metadata"]["uid"]] = (over, stored)

    def services_in(self, namespace: str) -> Iterator[Manifest]:
        """All LLMServices of a namespace, of every group."""
        for informer in self._services.values():
            yield from informer.find("namespace", namespace)

    def runtimes(self, group: str) -> Iterator[InferenceRuntime]:
        """The runtimes of one group that can be read."""
        for manifest in self._runtimes[group]:
            if (runtime := self._runtime(manifest)) is not None:
                yield runtime

    def all_runtimes(self) -> Iterator[InferenceRuntime]:
        """Those of every group that can be read."""
        for group in self._runtimes:
            yield from self.runtimes(group)

    def unreadable_runtime(self, group: str, name: str) -> str | None:
        """Why the runtime of that name, one that is there, cannot be read; else None."""
        manifest = self._runtimes[group].get(ServiceKey("", name))
        if manifest is None:
            return None
        try:
            InferenceRuntime.model_validate(manifest)
        except ValidationError as error:
            return parse.unreadable(error)
        return None

    def runtime_rejection(self, runtime: InferenceRuntime) -> SpecRejection | None:
        """The first rule that a runtime, one of `all_runtimes`, breaks."""
        return self._parsed_runtimes[runtime.metadata.uid][2]

    def owned(self, key: ServiceKey) -> list[Manifest]:
        """Objects with this service's label."""
        return [found for i in self._owned.values() for found in i.find(_SERVICE, key)]

    def object(self, kind: Kind, key: ServiceKey) -> Manifest | None:
        """One object that Hearth manages, of a kind in OWNED."""
        return self._owned[kind].get(key)

    def host_folder(
        self, service: LLMService, deployment: Manifest | None
    ) -> host_folders.HostFolder:
        """Which folder of the nodes this service caches its model in; `deployment`: its own."""
        shared = volume.host_folder(service.key, service.group, former=True)
        sharing = self._services[service.group].find(_FOLDER, shared)
        return host_folders.choose(service, sharing, deployment)

    def backend(self, service: LLMService) -> ownership.Backend:
        """The Deployment and the pods that belong to this very service."""
        key = service.key
        name = ServiceKey(key.namespace, names.deployment(key))
        uid = service.metadata.uid
        found = ownership.backend(
            service,
            self._owned[kinds.DEPLOYMENT].get(name),
            self._pods.find(_SERVICE, key),
            replica_sets=self._replica_sets.find(_SERVICE, key) if self._has_replica_sets else None,
            known=self._own_pods.get(uid, frozenset()),
        )
        if found.pods:
            self._own_pods[uid] = frozenset(pod["metadata"]["uid"] for pod in found.pods)
        else:
            self._own_pods.pop(uid, None)
        return found

    def prewarm(self, service: LLMService) -> PrewarmObjects:
        """What fetches the weights of this very service."""
        key = service.key
        job = self._owned[kinds.JOB].get(ServiceKey(key.namespace, names.prewarm_job(key)))
        if job is None or not ownership.controlled(service, job):
            return PrewarmObjects()
        uid = job["metadata"]["uid"]
        pods = self._prewarm_pods.find(_PREWARM, key)
        return PrewarmObjects(
            job=job,
            pods=tuple(pod for pod in pods if ownership.controller(pod).get("uid") == uid),
            claim=self._owned[kinds.PVC].get(ServiceKey(key.namespace, names.cache_pvc(key))),
        )

    def _latest(self, copy: Manifest) -> Manifest:
        uid = copy["metadata"]["uid"]
        over, stored = self._own_writes.get(uid, ("", copy))
        if _version(copy) == over:
            return stored
        self._own_writes.pop(uid, None)
        return copy

    def _runtime(self, manifest: Manifest) -> InferenceRuntime | None:
        metadata = manifest["metadata"]
        uid, resource_version = metadata["uid"], metadata["resourceVersion"]
        parsed = self._parsed_runtimes.get(uid)
        if parsed is None or parsed[0] != resource_version:
            try:
                runtime = InferenceRuntime.model_validate(manifest)
            except ValidationError:
                return None  # a newer Hearth's, maybe: for services it does not exist
            rejection = parse.runtime_rejection(runtime)
            self._parsed_runtimes[uid] = (resource_version, runtime, rejection)
        return self._parsed_runtimes[uid][1]

    def _parsed_service(self, manifest: Manifest) -> ParsedService:
        uid, resource_version = manifest["metadata"]["uid"], _version(manifest)
        parsed = self._parsed_services.get(uid)
        if parsed is None or parsed[0] != resource_version:
            parsed = (resource_version, parse.parse(manifest))
            self._parsed_services[uid] = parsed
        return parsed[1]

    def _service_changed(self, old: Manifest | None, new: Manifest | None) -> None:
        manifest = new or old
        assert manifest is not None
        key = key_of(manifest)
        self._enqueue(key)
        # Which service has a folder may change with each that would have it by name.
        for informer in self._services.values():
            for index_key in {
                index_key for one in (old, new) if one for index_key in host_folders.index_keys(one)
            }:
                for other in informer.find(_FOLDER, index_key):
                    self._enqueue(key_of(other))
        if new is None:
            self._parsed_services.pop(manifest["metadata"]["uid"], None)
            self._own_writes.pop(manifest["metadata"]["uid"], None)
            self._own_pods.pop(manifest["metadata"]["uid"], None)
        if old is None or new is None:
            self._enqueue_namespace(key.namespace)

    def _runtime_changed(self, group: str, old: Manifest | None, new: Manifest | None) -> None:
        if new is None and old is not None:
            self._parsed_runtimes.pop(old["metadata"]["uid"], None)
        there = [manifest for manifest in (old, new) if manifest is not None]
        services = self._services[group]
        for index_key in {
            index_key
            for manifest in there
            for index_key in runtime_selection.runtime_index_keys(manifest)
        }:
            for service in services.find(_RUNTIME, index_key):
                self._enqueue(key_of(service))
        if old is not None and new is not None:
            return
        # Who asks for this name in the other group is told whose it is.
        names_it = ("name", there[0]["metadata"]["name"])
        for other in self._services.values():
            for service in other.find(_RUNTIME, names_it):
                self._enqueue(key_of(service))

    def _all_changed(self) -> None:
        for key in self.service_keys():
            self._enqueue(key)

    def _replica_set_changed(self, old: Manifest | None, new: Manifest | None) -> None:
        if not ownership.same_replica_set(old, new):
            self._owned_changed(old, new)

    def _owned_changed(self, old: Manifest | None, new: Manifest | None) -> None:
        for manifest in (old, new):
            if manifest is None:
                continue
            if (service := _service_of(manifest)) is not None:
                self._enqueue(service)
            elif (key := key_of(manifest)).name == self._shared_service:
                self._enqueue_namespace(key.namespace)


def _version(manifest: Manifest) -> str:
    resource_version: str = manifest["metadata"]["resourceVersion"]
    return resource_version


def _service_of(manifest: Manifest | None) -> ServiceKey | None:
    """The service that an object's label names: its own, or the one that it fetches weights for."""
    metadata = manifest["metadata"] if manifest is not None else {}
    labels = metadata.get("labels") or {}
    name = labels.get(names.SERVICE_LABEL, labels.get(names.PREWARM_LABEL))
    return None if name is None else ServiceKey(metadata.get("namespace", ""), name)
