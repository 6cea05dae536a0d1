"""Options of an engine that no field has: annotations of an InferenceRuntime under `hearth.dev/`.

They say what pods need from their cluster.  An InferenceRuntime is the platform's, so no tenant
can set them.
"""

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from hearth.api import options, validation_messages, yaml_text
from hearth.api.meta import Manifest, Model, format_path
from hearth.api.options import PREFIX, Option
from hearth.api.pod_security import PodSecurityContext, SecurityContext

RUNTIME_CLASS = f"{PREFIX}pod-runtime-class"
PRIORITY_CLASS = f"{PREFIX}pod-priority-class"
LABELS = f"{PREFIX}pod-labels"
ANNOTATIONS = f"{PREFIX}pod-annotations"
POD_SECURITY = f"{PREFIX}pod-security-context"
ENGINE_KEY = f"{PREFIX}engine-key"
CONTAINER_SECURITY = f"{PREFIX}container-security-context"


_DNS_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_DNS_LABEL}(\.{_DNS_LABEL})*")
_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_TEMPLATE = "{{"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeOptions:
    """The options of one runtime, as they are written: strings in them may be templates."""

    runtime_class: str | None = None
    priority_class: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    pod_security: Manifest = field(default_factory=dict)
    """A null takes a default away."""
    container_security: Manifest = field(default_factory=dict)
    """As above."""
    engine_key: str | None = None
    """SECRET/KEY."""


def check_name(text: str) -> str:
    """`text`, the name of an object.  Raises ValueError."""
    if not (_SUBDOMAIN.fullmatch(text) and len(text) <= 253):
        raise ValueError(
            "write a name of lower-case letters, digits, hyphens and dots, at most 253, that begins"
            f" and ends with a letter or digit, not {text[:80]!r}"
        )
    return text


def check_label(name: str, value: str) -> None:
    """Raises ValueError for what no label can have as its value."""
    if value and not (_PART.fullmatch(value) and len(value) <= 63):
        raise ValueError(
            f"{name}: a label's value is made of letters, digits, hyphens, underscores and dots, at"
            f" most 63, and begins and ends with a letter or digit, unlike {value[:80]!r}"
        )


def _check_key(name: str) -> None:
    prefix, slash, rest = name.rpartition("/")
    good = _PART.fullmatch(rest) and len(rest) <= 63
    # Annotations may have capitals in front of the slash; nobody writes them.
    if not good or (slash and not (_SUBDOMAIN.fullmatch(prefix) and len(prefix) <= 253)):
        raise ValueError(
            f"{name[:80]!r} is no key; write one such as team or example.com/team, with at most 63"
            " letters, digits, hyphens, underscores and dots behind the slash"
        )


def split_key(text: str) -> tuple[str, str]:
    """The two names of SECRET/KEY.  Raises ValueError."""
    secret, slash, key = text.partition("/")
    fits = _SUBDOMAIN.fullmatch(secret) and re.fullmatch(r"[-._a-zA-Z0-9]{1,253}", key)
    if not slash or not fits:
        raise ValueError(f"write SECRET/KEY, such as engine-keys/token, not {text[:80]!r}")
    return secret, key


def _key(text: str) -> str:
    if _TEMPLATE not in text:
        split_key(text)
    return text


def _name(text: str) -> str:
    return text if _TEMPLATE in text else check_name(text)


def _mapping(text: str) -> Manifest:
    try:
        found = [document.value for document in yaml_text.read(text)]
    except yaml_text.BadYaml as error:
        raise ValueError(str(error)) from error
    if len(found) != 1 or not isinstance(found[0], dict):
        raise ValueError(f"write a mapping in YAML or JSON, not {text[:80]!r}")
    return found[0]


# Read at each pass over each service of the runtime; nobody changes what is read.
@functools.lru_cache(maxsize=256)
def _annotations(text: str) -> Mapping[str, str]:
    found = _mapping(text)
    for name, value in found.items():
        _check_key(name)
        if not isinstance(value, str):
            raise ValueError(f"{name} must be a string (put it in quotes)")
    return found


@functools.lru_cache(maxsize=256)
def _labels(text: str) -> Mapping[str, str]:
    found = _annotations(text)
    for name, value in found.items():
        if _TEMPLATE not in value:
            check_label(name, value)
    return found


def _context(model: type[Model]) -> Callable[[str], Manifest]:
    fields = [str(info.alias) for info in model.model_fields.values()]

    @functools.lru_cache(maxsize=256)
    def read(text: str) -> Manifest:
        found = _mapping(text)
        try:
            model.model_validate(found, extra="forbid", by_alias=True, by_name=False)
        except ValidationError as error:
            detail = error.errors(include_url=False)[0]
            known = fields if len(detail["loc"]) == 1 else ()
            told = validation_messages.message(detail, fields=known)
            raise ValueError(f"{format_path(detail['loc'])} {told}") from error
        return found

    return read


TABLE = (
    Option(
        name=RUNTIME_CLASS,
        field="runtime_class",
        type="name",
        default="the cluster's",
        description="RuntimeClass of the pods, such as `nvidia` where NVIDIA's container runtime is"
        " not the default.",
        read=_name,
    ),
    Option(
        name=PRIORITY_CLASS,
        field="priority_class",
        type="name",
        default="the cluster's",
        description="PriorityClass of the pods.",
        read=_name,
    ),
    Option(
        name=LABELS,
        field="labels",
        type="mapping of strings",
        default="none",
        description="More labels of the Deployment and its pods. Hearth's own stay as they are, and"
        " so does the selector.",
        read=_labels,
    ),
    Option(
        name=ANNOTATIONS,
        field="annotations",
        type="mapping of strings",
        default="none",
        description="More annotations of the Deployment and its pods. Hearth's own stay as they"
        " are.",
        read=_annotations,
    ),
    Option(
        name=POD_SECURITY,
        field="pod_security",
        type="PodSecurityContext",
        default="`seccompProfile: {type: RuntimeDefault}` (not for ascend); the group of a cache"
        " claim",
        description="Laid over the default, field by field; a null takes a default away.",
        read=_context(PodSecurityContext),
    ),
    Option(
        name=CONTAINER_SECURITY,
        field="container_security",
        type="SecurityContext",
        default="`allowPrivilegeEscalation: false`, `capabilities: {drop: [ALL]}` (not for ascend)",
        description="Of the serving container, laid over the default likewise.",
        read=_context(SecurityContext),
    ),
    Option(
        name=ENGINE_KEY,
        field="engine_key",
        type="SECRET/KEY",
        default="none",
        description="A key that the engine itself asks for, in a Secret of the service's namespace."
        " The container has it as `HEARTH_ENGINE_KEY`, for `--api-key=$(HEARTH_ENGINE_KEY)`; the"
        " gateway sends it as the bearer token, and no client's.",
        read=_key,
    ),
)


def parse(annotations: Mapping[str, str]) -> RuntimeOptions:
    """The options that annotations ask for.  Raises options.BadOption, naming every bad one."""
    found: dict[str, Any] = options.values(annotations, TABLE)
    return RuntimeOptions(**found)


def problems(annotations: Mapping[str, str]) -> list[tuple[str, str]]:
    """Every annotation that `parse` would refuse, and why."""
    return options.read(annotations, TABLE)[1]
