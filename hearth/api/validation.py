"""One object that a person wrote: what is wrong with it, and how an API server would store it."""

import difflib
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import ValidationError

from hearth.api import core_objects, options, rules, runtime_options, schema, validation_messages
from hearth.api import groups as api_groups
from hearth.api.llmservice import LLMService
from hearth.api.meta import FieldPath, Manifest, Model
from hearth.api.runtime import InferenceRuntime

CUSTOM: dict[str, type[Model]] = {"LLMService": LLMService, "InferenceRuntime": InferenceRuntime}
KINDS = (*CUSTOM, *core_objects.MODELS)
_OPTIONS = {"LLMService": options.problems, "InferenceRuntime": runtime_options.problems}
_CLUSTER_SCOPED = ("InferenceRuntime",)

_DNS_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL = re.compile(_DNS_LABEL)
_SUBDOMAIN = re.compile(rf"{_DNS_LABEL}(\.{_DNS_LABEL})*")
_METADATA = ("name", "namespace", "labels", "annotations")
_SERVERS_OWN = (
    "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink",
    "deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences", "finalizers",
)  # fmt: skip
"""Comes with an object that was read from a cluster, and means nothing in a file."""


class Identity(NamedTuple):
    """Which object a manifest is about."""

    api_version: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {name}"


class FieldError(NamedTuple):
    """One thing that is wrong with a field."""

    path: FieldPath
    message: str


@dataclass(frozen=True, slots=True)
class CheckedObject:
    """One object after the check; `manifest` is there if nothing is wrong."""

    identity: Identity | None
    manifest: Manifest | None
    errors: list[FieldError]
    foreign: bool = False
    """Whether the one error is that it is of a kind that Hearth has nothing to do with."""


def check(value: Any, *, namespace: str, groups: Collection[str]) -> CheckedObject:
    """Look at one object; raises nothing.

    `namespace` is for objects that name none; `groups` are the API groups that are switched on.
    """
    if not isinstance(value, dict):
        error = FieldError((), "a manifest is a mapping with apiVersion, kind, metadata and spec")
        return CheckedObject(None, None, [error])
    wrong_kind = list(_kind_errors(value, groups))
    metadata = {k: v for k, v in _mapping(value.get("metadata")).items() if v is not None}
    identity = _identity(value, metadata, namespace)
    if wrong_kind:
        return CheckedObject(identity, None, wrong_kind, foreign=_is_foreign(value))
    kind = value["kind"]
    errors = list(_metadata_errors(kind, value.get("metadata"), metadata))
    kept = {
        **value,
        "metadata": {name: metadata[name] for name in _METADATA if name in metadata},
    }
    if kind in _CLUSTER_SCOPED:
        kept["metadata"].pop("namespace", None)
    else:
        kept["metadata"]["namespace"] = metadata.get("namespace", namespace)
    manifest = _custom(kept, errors) if kind in CUSTOM else _core(kept, errors)
    return CheckedObject(identity, None if errors else manifest, errors)


def _kind_errors(value: Manifest, groups: Collection[str]) -> Iterator[FieldError]:
    api_version, kind = value.get("apiVersion"), value.get("kind")
    for name, text in (("apiVersion", api_version), ("kind", kind)):
        if not isinstance(text, str) or not text:
            yield FieldError((name,), _wrong_text(text))
    if not isinstance(kind, str) or not isinstance(api_version, str) or not kind:
        return
    group, _, version = api_version.rpartition("/")
    if kind in CUSTOM and group in api_groups.GROUPS and group not in groups:
        yield FieldError(("apiVersion",), f"the API group {group} is switched off here")
    elif kind in CUSTOM and (group not in groups or version != api_groups.VERSION):
        known = " or ".join(f"{name}/{api_groups.VERSION}" for name in groups)
        yield FieldError(("apiVersion",), f"must be {known} for {kind}, not {api_version!r}")
    elif kind in core_objects.MODELS and api_version != "v1":
        yield FieldError(("apiVersion",), f"must be v1 for {kind}, not {api_version!r}")
    elif kind.endswith("List"):
        yield FieldError(("items",), "is required, as a list")
    elif not _is_foreign(value) and kind not in KINDS:
        meant = _similar_kind(kind, group, api_version)
        yield FieldError(("kind",), f"there is no {kind}; did you mean {meant}?")
    elif kind not in KINDS:
        yield FieldError(
            ("kind",),
            f"Hearth does not read {kind!r} here, only {', '.join(KINDS)}; remove the object, or "
            "apply it to a cluster with kubectl",
        )


def _is_foreign(value: Manifest) -> bool:
    """Whether it is an object, as far as one can see, of a kind that Hearth does not know."""
    api_version, kind = value.get("apiVersion"), value.get("kind")
    if not (isinstance(kind, str) and isinstance(api_version, str) and kind and api_version):
        return False
    if kind in KINDS or kind.endswith("List"):
        return False
    return _similar_kind(kind, api_version.rpartition("/")[0], api_version) is None


def _similar_kind(kind: str, group: str, api_version: str) -> str | None:
    """The kind of this API group that differs by a slip."""
    there = (
        CUSTOM if group in api_groups.GROUPS else core_objects.MODELS if api_version == "v1" else ()
    )
    names = {name.lower(): name for name in there}
    close = difflib.get_close_matches(kind.lower(), names, n=1, cutoff=0.8)
    return names[close[0]] if close else None


def _wrong_text(value: Any) -> str:
    """What to say of a value that is no text."""
    return "is required" if value in (None, "") else "must be a string (put it in quotes)"


def _metadata_errors(kind: str, written: Any, metadata: Manifest) -> Iterator[FieldError]:
    if not isinstance(written, dict):
        yield FieldError(("metadata",), "is required, with a name")
        return
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        yield FieldError(("metadata", "name"), _wrong_text(name))
    elif kind != "LLMService" and not (_SUBDOMAIN.fullmatch(name) and len(name) <= 253):
        yield FieldError(
            ("metadata", "name"),
            "a name is made of lower-case letters, digits, hyphens and dots, at most 253, and "
            f"begins and ends with a letter or digit, unlike {name!r}",
        )
    namespace = metadata.get("namespace", "default")
    if not (isinstance(namespace, str) and _LABEL.fullmatch(namespace) and len(namespace) <= 63):
        yield FieldError(
            ("metadata", "namespace"),
            "a namespace is made of lower-case letters, digits and hyphens, at most 63, and begins "
            f"and ends with a letter or digit, unlike {namespace!r}",
        )
    for field in ("labels", "annotations"):
        if not isinstance(metadata.get(field, {}), dict):
            yield FieldError(("metadata", field), "must be a mapping of strings")
        for key, text in _mapping(metadata.get(field)).items():
            if not isinstance(text, str):
                yield FieldError(("metadata", field, key), "must be a string (put it in quotes)")
    for field in metadata:
        if field not in _METADATA and field not in _SERVERS_OWN:
            yield FieldError(
                ("metadata", field), f"is not a field; there are {', '.join(_METADATA)}"
            )
    annotations = {k: v for k, v in _mapping(metadata.get("annotations")).items() if type(v) is str}
    if kind in _OPTIONS:
        for key, message in _OPTIONS[kind](annotations):
            yield FieldError(("metadata", "annotations", key), message)


def _custom(written: Manifest, errors: list[FieldError]) -> Manifest:
    """The manifest with its defaults; adds what is wrong with it to `errors`."""
    group = written["apiVersion"].partition("/")[0]
    structure = schema.of(written["kind"], group)
    manifest = schema.with_defaults(
        {name: item for name, item in written.items() if name != "status"}, structure
    )
    # Metadata was looked at; the model wants a name all the same.
    body = {**manifest, "metadata": {"name": "looked-at"}}
    errors.extend(_model_errors(CUSTOM[written["kind"]], body, structure))
    errors.extend(FieldError(*broken) for broken in _broken(manifest))
    return manifest


def _broken(manifest: Manifest) -> Iterator[tuple[FieldPath, str]]:
    return ((broken.path, broken.message) for broken in rules.broken(manifest))


def _core(written: Manifest, errors: list[FieldError]) -> Manifest:
    model = core_objects.MODELS[written["kind"]]
    fields: schema.Schema = {str(info.alias): {} for info in model.model_fields.values()}
    wrong = list(_model_errors(model, written, {"properties": fields}))
    errors.extend(wrong)
    return {} if wrong else core_objects.stored(written)


def _model_errors(
    model: type[Model], body: Manifest, structure: schema.Schema
) -> Iterator[FieldError]:
    try:
        model.model_validate(body, extra="forbid", by_alias=True, by_name=False)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            # pydantic marks a wrong key of a dict by one more step.
            path = tuple(step for step in detail["loc"] if step != "[key]")
            fields = schema.fields(structure, path[:-1])
            yield FieldError(path, validation_messages.message(detail, fields=fields))


def _identity(value: Manifest, metadata: Manifest, namespace: str) -> Identity | None:
    api_version, kind = value.get("apiVersion"), value.get("kind")
    name = metadata.get("name")
    if not isinstance(api_version, str) or not isinstance(kind, str) or not isinstance(name, str):
        return None
    if kind in _CLUSTER_SCOPED:
        return Identity(api_version, kind, "", name)
    return Identity(api_version, kind, str(metadata.get("namespace", namespace)), name)


def _mapping(value: Any) -> Manifest:
    return value if isinstance(value, dict) else {}
