"""Render every object of one service, in the order in which they are written."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

from hearth import names
from hearth.api import options, rules
from hearth.api.llmservice import LLMService
from hearth.api.meta import Manifest
from hearth.api.runtime import InferenceRuntime
from hearth.cache import prewarm, source, volume
from hearth.cache.prewarm import Prewarm
from hearth.cluster import kinds
from hearth.reconcile.render import (
    deployment,
    gateway_services,
    network_policy,
    prewarm_job,
    probes,
    scaled_object,
)
from hearth.reconcile.render.host_folders import HostFolder
from hearth.reconcile.render.release import Release
from hearth.reconcile.spec import spec_errors, spec_warnings
from hearth.reconcile.spec.spec_errors import SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """What should exist for one service."""

    manifests: tuple[Manifest, ...]
    """In write order; each with its hash, and its owner where the service has a uid."""
    initial_replicas: int
    """Replicas of the Deployment when it is created; the manifest itself never says any."""
    warnings: tuple[str, ...]
    """Sentences about what works, but maybe not as meant."""
    engine_keyed: bool = False
    """Whether the engine asks for a key of its own."""
    prewarm: Prewarm | None = None
    """What a Job fetches into the cache."""


def render(
    service: LLMService,
    runtime: InferenceRuntime,
    *,
    release: Release,
    host_folder: HostFolder | None = None,
    their_job: Manifest | None = None,
    selector: Manifest | None = None,
) -> Desired:
    """All or nothing.  Raises SpecError, naming the field, for a spec that cannot be served.

    `their_job`: the Job that another project's controller made to fill this service's cache.
    `selector`: what the Deployment that is there has, where it is not Hearth's own.
    """
    _check_name(service, release)
    model = _model(service)
    try:
        chosen = options.parse(service.metadata.annotations)
        storage = volume.render(
            service.spec.cache,
            model,
            key=service.key,
            group=service.group,
            apart=host_folder is not None and host_folder.apart,
            former=host_folder is not None and host_folder.former,
        )
    except options.BadOption as error:
        raise SpecError(spec_errors.RENDER, str(error)) from error
    except volume.BadCache as error:
        raise SpecError(error.reason, str(error)) from error
    wanted = prewarm.plan(service.spec.cache, model)
    local = chosen.model_path == "local"
    if local:
        model = dataclasses.replace(model, path=_local_path(wanted))
    if wanted is not None and their_job is not None:
        prewarm_job.check_theirs(wanted, their_job, local=local)
    scaler = scaled_object.render(service, release=release)
    inputs = deployment.DeploymentInputs(
        service=service,
        runtime=runtime,
        model=model,
        storage=storage,
        options=deployment.render_options(service, runtime, model),
        probes=probes.render(service, runtime),
        waits_for=prewarm_job.waits_for(wanted, their_job),
        selector=selector,
    )
    rendered = (
        # Before there is a pod that it is about.
        *(
            [network_policy.render(service, release=release)]
            if _is_guarded(service, release)
            else []
        ),
        *([_pvc(service, storage.pvc)] if storage.pvc is not None else []),
        *(
            [_job(inputs, wanted, release=release)]
            if wanted is not None and their_job is None and release.jobs
            else []
        ),
        # KEDA looks for its target once, then ever more seldom: the Deployment comes first.
        deployment.render(inputs, release=release),
        deployment.render_service(inputs),
        gateway_services.render(service, release=release),
        *(
            [scaled_object.render_service(service, release=release)]
            if scaled_object.server_secret(service)
            else []
        ),
        *([scaler] if release.keda else []),
    )
    return Desired(
        manifests=tuple(_hashed(_owned(manifest, service)) for manifest in rendered),
        initial_replicas=service.spec.scaling.min,
        warnings=(
            *spec_warnings.warnings(
                service,
                runtime,
                model,
                startup_s=inputs.probes.startup_s,
                storage_env=storage.env,
                prewarm=wanted,
                security={**inputs.options.pod_security, **inputs.options.container_security},
                jobs=release.jobs,
                warns_of_unguarded=release.backend_guard == "warn"
                and inputs.options.engine_key is None,
            ),
            *inputs.options.without_effect,
            *(host_folder.warnings if host_folder is not None else ()),
        ),
        engine_keyed=inputs.options.engine_key is not None,
        prewarm=wanted,
    )


def may_prewarm(service: LLMService) -> bool:
    """Whether its weights may be a Job's to fetch, as far as the spec alone says."""
    source_ = service.spec.model.source
    pulled = source_ is not None and source_.uri.lower().startswith("oci://")
    return service.spec.cache.prewarm or pulled


def render_shared(namespace: str, services: Iterable[Manifest], *, release: Release) -> Manifest:
    """The namespace's shared Service, owned by all LLMServices of both groups that are there."""
    return _hashed(gateway_services.render_shared(namespace, services, release=release))


def first_of(a: LLMService, b: LLMService) -> LLMService:
    """Of two services with one key, one in each group: the one that has the name.

    The older one; of the same second, Hearth's own group.  The other is refused with NAME_TAKEN.
    """
    return min(a, b, key=lambda s: (s.metadata.creation_timestamp, s.group))


def name_taken(service: LLMService, by: LLMService) -> SpecError:
    """The error of the later of two services."""
    return SpecError(
        spec_errors.NAME_TAKEN,
        f"metadata.name: an LLMService {service.key} of {by.group} was there before; delete one of"
        " them, or choose another name",
    )


def _check_name(service: LLMService, release: Release) -> None:
    """A rule of the API reserves the usual name; a release may choose another."""
    if service.metadata.name == release.shared_service:
        raise SpecError(
            spec_errors.RENDER,
            f"metadata.name: the name {release.shared_service} is reserved for the shared endpoint"
            " of the namespace; choose another",
        )


def _model(service: LLMService) -> source.Source:
    model = service.spec.model
    if model.source is None:
        problem = "spec.model.catalogRef is not supported; " if model.catalog_ref else ""
        raise SpecError(
            spec_errors.MODEL, f"{problem}set spec.model.source.uri to {source.SUPPORTED}"
        )
    uri = model.source.uri
    try:
        parsed = source.parse(uri)
    except source.BadSource as error:
        raise SpecError(spec_errors.MODEL, f"spec.model.source.uri: {error}") from error
    if model.source.secret_ref is not None and parsed.hub is not source.Hub.OCI:
        raise SpecError(spec_errors.MODEL, f"spec.model.source.secretRef: {rules.ONLY_FOR_OCI}")
    if model.source.secret_ref is not None and not model.source.secret_ref.name:
        raise SpecError(
            spec_errors.MODEL, f"spec.model.source.secretRef.name: {rules.NAME_THE_SECRET}"
        )
    return parsed


def _local_path(wanted: Prewarm | None) -> str:
    if wanted is None or wanted.link is None or not wanted.waits:
        raise SpecError(
            spec_errors.RENDER,
            f"annotation {options.MODEL_PATH}: local is for a model of hf:// or modelscope:// that"
            " spec.cache.prewarm fetches to a claim (NodeLocalPVC or SharedPVC); set that, or"
            " remove the annotation",
        )
    return wanted.link


def _job(inputs: deployment.DeploymentInputs, wanted: Prewarm, *, release: Release) -> Manifest:
    return prewarm_job.render(
        inputs.service,
        inputs.runtime,
        wanted,
        storage=inputs.storage,
        pod_options=inputs.options,
        env=deployment.env(inputs, engine_key=False),
        placement=deployment.placement(inputs.service, inputs.runtime),
        annotations=deployment.annotations(inputs.runtime),
        release=release,
    )


def _is_guarded(service: LLMService, release: Release) -> bool:
    return release.backend_guard == "policy" and network_policy.has_authentication(service)


def _pvc(service: LLMService, spec: Manifest) -> Manifest:
    return {
        "apiVersion": kinds.PVC.api_version,
        "kind": kinds.PVC.kind,
        "metadata": {
            "name": names.cache_pvc(service.key),
            "namespace": service.key.namespace,
            "labels": names.labels(service.key),
        },
        "spec": spec,
    }


def _owned(manifest: Manifest, service: LLMService) -> Manifest:
    if not service.metadata.uid:  # only rendered, never stored
        return manifest
    owner = {
        "apiVersion": service.api_version,
        "kind": service.kind,
        "name": service.metadata.name,
        "uid": service.metadata.uid,
        "controller": True,
        # True would let a ScaledObject that waits for KEDA hold up the service's own deletion.
        "blockOwnerDeletion": False,
    }
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [owner]}}


def _hashed(manifest: Manifest) -> Manifest:
    """With an annotation that is a hash of what is desired; of a PVC, only of its spec.

    A Job has its own.
    """
    if manifest["kind"] == kinds.JOB.kind:
        return manifest
    once = manifest["kind"] == kinds.PVC.kind
    text = json.dumps(manifest["spec"] if once else manifest, sort_keys=True)
    metadata = manifest["metadata"]
    annotations = {
        **metadata.get("annotations", {}),
        names.HASH_ANNOTATION: hashlib.sha256(text.encode()).hexdigest()[:16],
    }
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}
