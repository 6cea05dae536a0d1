"""The options of a runtime's annotations, for the pods of one service."""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hearth import names
from hearth.api import options, runtime_options
from hearth.api.meta import Manifest
from hearth.api.runtime import InferenceRuntime, Vendor
from hearth.reconcile.render.go_template import functions, template
from hearth.reconcile.spec import spec_errors
from hearth.reconcile.spec.spec_errors import SpecError

_OWN_PREFIXES = (f"{names.DOMAIN}/", options.PREFIX, "deployment.kubernetes.io/")
"""Keys with these prefixes are Hearth's, or the Deployment controller's."""
_HASH_LABEL = "pod-template-hash"
"""The Deployment controller's."""
_SYS_ADMIN = {"SYS_ADMIN", "CAP_SYS_ADMIN"}

_RESTRICTED: tuple[Manifest, Manifest] = (
    {"seccompProfile": {"type": "RuntimeDefault"}},
    {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
)
_DEFAULTS: dict[Vendor, tuple[Manifest, Manifest]] = {
    # What the restricted Pod security standard asks for and engines have no use for: devices come
    # from the container runtime, open to all, and no engine changes its user.
    "cpu": _RESTRICTED,
    "nvidia": _RESTRICTED,
    # The nodes of its devices belong to a user of the driver's: root opens them by a capability
    # (DAC_OVERRIDE).  Which system calls CANN makes is written nowhere.
    "ascend": ({}, {"allowPrivilegeEscalation": False}),
}
"""Security contexts of pod and container."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOptions:
    """Rendered for one service; empty without annotations."""

    labels: dict[str, str]
    annotations: dict[str, str]
    spec: Manifest
    """Fields of the pod's spec."""
    pod_security: Manifest
    """The annotation over the default; a null removes a field that would be there."""
    container_security: Manifest
    engine_key: tuple[str, str] | None
    """Secret and key in it."""
    without_effect: tuple[str, ...]
    """Sentences about keys that are Hearth's own."""


def render(
    runtime: InferenceRuntime,
    data: template.Data,
    *,
    own_labels: Container[str],
    own_annotations: Container[str],
) -> PodOptions:
    """The options with their Go templates rendered; Hearth's own keys are left out.

    Raises SpecError, naming the annotation.
    """
    try:
        annotated = runtime_options.parse(runtime.metadata.annotations)
    except options.BadOption as error:
        raise SpecError(spec_errors.RENDER, f"InferenceRuntime {runtime.name}: {error}") from error
    reader = _Reader(runtime, data)
    labels = reader.labels(annotated.labels)
    annotations = reader.fill(runtime_options.ANNOTATIONS, annotated.annotations)
    reserved = {
        runtime_options.LABELS: set(_reserved(labels, own_labels)),
        runtime_options.ANNOTATIONS: set(_reserved(annotations, own_annotations)),
    }
    pod, container = _DEFAULTS[runtime.spec.vendor]
    return PodOptions(
        labels={k: v for k, v in labels.items() if k not in reserved[runtime_options.LABELS]},
        annotations={
            k: v for k, v in annotations.items() if k not in reserved[runtime_options.ANNOTATIONS]
        },
        spec={
            **reader.name(
                "runtimeClassName", runtime_options.RUNTIME_CLASS, annotated.runtime_class
            ),
            **reader.name(
                "priorityClassName", runtime_options.PRIORITY_CLASS, annotated.priority_class
            ),
        },
        pod_security=pod | reader.fill(runtime_options.POD_SECURITY, annotated.pod_security),
        container_security=_container(
            container, reader.fill(runtime_options.CONTAINER_SECURITY, annotated.container_security)
        ),
        engine_key=reader.key(annotated.engine_key),
        without_effect=tuple(
            f"InferenceRuntime {runtime.name}: annotation {annotation}: {key} is set by Hearth or"
            " by Kubernetes and stays as it is; remove it"
            for annotation, keys in reserved.items()
            for key in sorted(keys)
        ),
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Renders Go templates; a mistake becomes a SpecError that names its annotation."""

    runtime: InferenceRuntime
    data: template.Data

    def fill(self, annotation: str, value: Any) -> Any:
        """`value` with every string in it rendered."""
        if isinstance(value, Mapping):
            return {name: self.fill(annotation, inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.fill(annotation, inner) for inner in value]
        if not isinstance(value, str):
            return value
        try:
            return template.render(value, self.data)
        except functions.TemplateError as error:
            raise self._refused(annotation, error) from error

    def labels(self, annotated: Mapping[str, str]) -> dict[str, str]:
        rendered: dict[str, str] = self.fill(runtime_options.LABELS, annotated)
        try:
            for name, value in rendered.items():
                runtime_options.check_label(name, value)
        except ValueError as error:
            raise self._refused(runtime_options.LABELS, error) from error
        return rendered

    def name(self, field: str, annotation: str, annotated: str | None) -> Manifest:
        if annotated is None:
            return {}
        try:
            return {field: runtime_options.check_name(self.fill(annotation, annotated))}
        except ValueError as error:
            raise self._refused(annotation, error) from error

    def key(self, annotated: str | None) -> tuple[str, str] | None:
        if annotated is None:
            return None
        try:
            return runtime_options.split_key(self.fill(runtime_options.ENGINE_KEY, annotated))
        except ValueError as error:
            raise self._refused(runtime_options.ENGINE_KEY, error) from error

    def _refused(self, annotation: str, error: ValueError) -> SpecError:
        return SpecError(
            spec_errors.RENDER,
            f"InferenceRuntime {self.runtime.name}: annotation {annotation}: {error}",
        )


def _reserved(rendered: Mapping[str, str], reserved: Container[str]) -> Iterator[str]:
    for key in rendered:
        if key in reserved or key == _HASH_LABEL or key.startswith(_OWN_PREFIXES):
            yield key


def _container(default: Manifest, annotated: Manifest) -> Manifest:
    """The serving container's security context; nulls are left out."""
    added = (annotated.get("capabilities") or {}).get("add") or ()
    if annotated.get("privileged") or _SYS_ADMIN & set(added):
        # The API server refuses these together with allowPrivilegeEscalation: false.
        default = {k: v for k, v in default.items() if k != "allowPrivilegeEscalation"}
    return {name: value for name, value in {**default, **annotated}.items() if value is not None}
