"""What the schema alone cannot say of a custom resource: one table, read by CRDs and by Hearth.

Each rule is written twice, as CEL for the API server and as a Python predicate for `hearth local`
and `hearth render`, and has one message: both refuse in the same words.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, get_args

from hearth.api import groups
from hearth.api.meta import Duration, FieldPath, Manifest, format_path
from hearth.api.runtime import Vendor

MAX_NAME = 54
"""Longest name of an LLMService: `keda-hpa-<name>` must fit into 63."""
RESERVED_NAME = "hearth"
"""Default name of the Service in each namespace that leads to the gateway."""
VENDORS = get_args(Vendor)

Node = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule about the object at `path` (`[]` stands for each item of a list)."""

    kind: str
    path: str
    cel: str
    holds: Callable[[Node], bool]
    """The same as `cel`, of a node whose defaults are filled in and whose types are right."""
    message: str
    detail: Callable[[Node], str] = lambda node: ""
    """What Hearth adds to the message of the values, as an API server cannot: for the cost of such
    an expression it knows no bound."""
    field: str = ""
    """The field below `path` that is at fault, where it is one."""
    groups: tuple[str, ...] = groups.GROUPS
    compared: tuple[str, ...] | None = None
    """Set where an object that breaks the rule may be stored already, under CRDs that lack it: the
    fields below `path` that the rule reads.  The API server then judges an object that is new, and
    a change of one of these fields, but no other write: the object gets its status, and can be
    edited.  `path` must always be there, by its defaults."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A rule that does not hold, and the field it is about."""

    path: FieldPath
    message: str

    def __str__(self) -> str:
        return f"{format_path(self.path)}: {self.message}"


def _service(path: str, cel: str, holds: Callable[[Node], bool], message: str, **more: Any) -> Rule:
    return Rule(kind="LLMService", path=path, cel=cel, holds=holds, message=message, **more)


def _runtime(path: str, cel: str, holds: Callable[[Node], bool], message: str, **more: Any) -> Rule:
    return Rule(kind="InferenceRuntime", path=path, cel=cel, holds=holds, message=message, **more)


def _seconds(node: Node, field: str) -> float:
    return Duration.parse(node[field])


def _filled(node: Node, *path: str) -> bool:
    """Whether the field is there, and neither empty nor below something that is absent."""
    value: Any = node
    for step in path:
        value = value.get(step) or {}
    return bool(value)


_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_NOCTAYA = (groups.NOCTAYA,)
_CATALOG = "has(self.catalogRef) && self.catalogRef != ''"
_NAMED = "has(self.name) && self.name != ''"
_SELECTED = "has(self.selector) && has(self.selector.vendor) && size(self.selector.vendor) > 0"
ONLY_FOR_OCI = (
    "is for oci:// sources only; remove it. The token of a hub reaches the engine by its runtime's "
    "env: HF_TOKEN (or MODELSCOPE_API_TOKEN), with valueFrom.secretKeyRef"
)
"""What is wrong with the secretRef of another source."""
NAME_THE_SECRET = (
    "name the Secret with the registry's credentials, of type kubernetes.io/dockerconfigjson"
)
_HANDLERS = ("httpGet", "tcpSocket", "exec", "grpc")
_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef")


def _one_of(fields: tuple[str, ...]) -> tuple[str, Callable[[Node], bool]]:
    cel = f"[{', '.join(f'has(self.{field})' for field in fields)}].exists_one(x, x)"
    return cel, lambda node: sum(field in node for field in fields) == 1


TABLE = (
    _service(
        "",
        f"size(self.metadata.name) <= {MAX_NAME}",
        lambda node: len(node["metadata"]["name"]) <= MAX_NAME,
        f"a name has at most {MAX_NAME} characters, so that names made from it stay legal",
        field="metadata.name",
        compared=(),
    ),
    _service(
        "",
        "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        lambda node: (
            _NAME_CHARACTERS.issuperset(name := node["metadata"]["name"])
            and name[:1].isalpha()
            and not name.endswith("-")
        ),
        "a name is made of lower-case letters, digits and hyphens, begins with a letter and does "
        "not end with a hyphen",
        field="metadata.name",
        compared=(),
    ),
    _service(
        "",
        f"self.metadata.name != '{RESERVED_NAME}'",
        lambda node: node["metadata"]["name"] != RESERVED_NAME,
        f"the name {RESERVED_NAME} is reserved for the shared endpoint of the namespace; choose "
        "another",
        field="metadata.name",
        compared=(),
    ),
    _service(
        "spec",
        "has(self.runtime)",
        lambda node: "runtime" in node,
        "is required: set runtime.name or runtime.selector.vendor",
        field="runtime",
        groups=_NOCTAYA,
    ),
    _service(
        "spec.model",
        f"!(has(self.source) && {_CATALOG})",
        lambda node: not ("source" in node and _filled(node, "catalogRef")),
        "set source or catalogRef, not both",
        groups=_NOCTAYA,
    ),
    _service(
        "spec.model",
        f"has(self.source) || {_CATALOG}",
        lambda node: "source" in node or _filled(node, "catalogRef"),
        "say where the model comes from: set source.uri",
        groups=_NOCTAYA,
    ),
    _service(
        "spec.model.source",
        "!has(self.secretRef) || self.uri.startsWith('oci://')",
        lambda node: "secretRef" not in node or node["uri"].startswith("oci://"),
        ONLY_FOR_OCI,
        field="secretRef",
        groups=_NOCTAYA,
    ),
    _service(
        "spec.model.source",
        "!has(self.secretRef) || !self.uri.startsWith('oci://') || "
        "(has(self.secretRef.name) && self.secretRef.name != '')",
        lambda node: (
            "secretRef" not in node
            or not node["uri"].startswith("oci://")
            or bool(node["secretRef"].get("name"))
        ),
        NAME_THE_SECRET,
        field="secretRef.name",
        groups=_NOCTAYA,
    ),
    _service(
        "spec.runtime",
        f"!({_NAMED} && {_SELECTED})",
        lambda node: not (_filled(node, "name") and _filled(node, "selector", "vendor")),
        "set name or selector, not both",
        groups=_NOCTAYA,
    ),
    _service(
        "spec.runtime",
        f"{_NAMED} || {_SELECTED}",
        lambda node: _filled(node, "name") or _filled(node, "selector", "vendor"),
        "say which runtime serves: set name or selector.vendor",
        groups=_NOCTAYA,
    ),
    _service(
        "spec.runtime.selector",
        f"!has(self.vendor) || self.vendor.all(v, v in {list(VENDORS)})",
        lambda node: all(vendor in VENDORS for vendor in node.get("vendor", ())),
        f"each vendor is one of {', '.join(VENDORS)}",
        field="vendor",
        groups=_NOCTAYA,
    ),
    _service(
        "spec.scaling",
        "self.min <= self.max",
        lambda node: bool(node["min"] <= node["max"]),
        "must not be more than max (1 by default)",
        detail=lambda node: f": min is {node['min']}, max is {node['max']}",
        field="min",
        compared=("min", "max"),
    ),
    _service(
        "spec.scaling",
        "duration(self.activationTimeout) > duration('0s')",
        lambda node: _seconds(node, "activationTimeout") > 0,
        "must be longer than 0s",
        field="activationTimeout",
        compared=("activationTimeout",),
    ),
    _service(
        "spec.scaling",
        "[duration(self.scaleDownStabilization)].all(d, d >= duration('0s') && "
        "d <= duration('1h') && timestamp(0) + d == timestamp(d.getSeconds()))",
        lambda node: (
            0 <= _seconds(node, "scaleDownStabilization") <= 3600
            and _seconds(node, "scaleDownStabilization").is_integer()
        ),
        "must be whole seconds from 0s to 1h",
        field="scaleDownStabilization",
        compared=("scaleDownStabilization",),
    ),
    _service(
        "spec.scaling",
        "duration(self.drainTimeout) >= duration('0s')",
        lambda node: _seconds(node, "drainTimeout") >= 0,
        "must not be negative",
        field="drainTimeout",
        compared=("drainTimeout",),
    ),
    _service(
        "spec.endpoint.coldStart",
        "duration(self.heartbeatInterval) > duration('0s')",
        lambda node: _seconds(node, "heartbeatInterval") > 0,
        "must be longer than 0s",
        field="heartbeatInterval",
        compared=("heartbeatInterval",),
    ),
    _runtime(
        "spec",
        "self.vendor == 'cpu' || (has(self.accelerator) && has(self.accelerator.resourceName))",
        lambda node: node["vendor"] == "cpu" or "resourceName" in node.get("accelerator", {}),
        "accelerator.resourceName is required, such as nvidia.com/gpu, unless vendor is cpu",
        field="accelerator",
    ),
    _runtime(
        "spec.accelerator.scheduler",
        "!has(self.queue) || self.queue == '' || self.name == 'volcano'",
        lambda node: not node.get("queue") or node["name"] == "volcano",
        "is for the scheduler volcano: set name to volcano, or remove queue",
        field="queue",
    ),
    _runtime(
        "spec.container.env[]",
        "!has(self.value) || self.value == '' || !has(self.valueFrom)",
        lambda node: not node.get("value") or "valueFrom" not in node,
        "set value or valueFrom, not both",
    ),
    _runtime(
        "spec.container.env[].valueFrom",
        *_one_of(_SOURCES),
        f"set exactly one of {', '.join(_SOURCES)}",
    ),
    *(
        _runtime(
            f"spec.health.{probe}",
            *_one_of(_HANDLERS),
            f"set exactly one of {', '.join(_HANDLERS)}",
        )
        for probe in ("readiness", "liveness", "startup")
    ),
    *(
        _runtime(
            f"spec.health.{probe}",
            "!has(self.successThreshold) || self.successThreshold <= 1",
            lambda node: bool(node.get("successThreshold", 1) <= 1),
            f"must be 1 for a {probe} probe",
            field="successThreshold",
        )
        for probe in ("liveness", "startup")
    ),
    _runtime(
        "spec.health.readiness",
        "!has(self.terminationGracePeriodSeconds)",
        lambda node: "terminationGracePeriodSeconds" not in node,
        "has no meaning for a readiness probe; remove it",
        field="terminationGracePeriodSeconds",
    ),
)


def of(kind: str, group: str) -> Iterator[Rule]:
    """The rules of one kind in one API group."""
    return (rule for rule in TABLE if rule.kind == kind and group in rule.groups)


def validations(rule: Rule) -> tuple[str, list[dict[str, str]]]:
    """Where in the schema the API server's side of a rule stands, and its entries there."""
    if rule.compared is None:
        return rule.path, [_entry(rule, rule.cel, field=rule.field)]
    # Only the root sees the status, which nothing has when it is created.  A rule with oldSelf is
    # judged at an update alone.
    at = f"{rule.path}." if rule.path else ""
    cel = rule.cel.replace("self.", f"self.{at}")
    entries = [f"has(self.status) || {cel}"]
    if rule.compared:
        same = " && ".join(f"self.{at}{name} == oldSelf.{at}{name}" for name in rule.compared)
        entries.append(f"!has(oldSelf.status) || {same} || {cel}")
    return "", [_entry(rule, entry, field=f"{at}{rule.field}") for entry in entries]


def _entry(rule: Rule, cel: str, *, field: str) -> dict[str, str]:
    entry = {"rule": cel, "message": rule.message}
    return {**entry, "fieldPath": f".{field}"} if field else entry


def broken(manifest: Manifest) -> list[Broken]:
    """Every rule that a custom resource breaks; its defaults are filled in.

    Where a type is wrong, which the schema says, the rules that stumble over it are left out.
    """
    group = manifest["apiVersion"].partition("/")[0]
    found = []
    for rule in of(manifest["kind"], group):
        for path, node in _nodes(manifest, rule.path):
            if not _holds(rule, node):
                field = tuple(rule.field.split(".")) if rule.field else ()
                message = f"{rule.message}{rule.detail(node)}"
                found.append(Broken((*path, *field), message))
    return found


def _holds(rule: Rule, node: Any) -> bool:
    try:
        return rule.holds(node)
    except (TypeError, KeyError, ValueError, AttributeError):
        return True


def _nodes(manifest: Manifest, path: str) -> list[tuple[FieldPath, Any]]:
    nodes: list[tuple[FieldPath, Any]] = [((), manifest)]
    for step in path.split(".") if path else ():
        name = step.removesuffix("[]")
        nodes = [
            ((*at, name), node[name])
            for at, node in nodes
            if isinstance(node, dict) and name in node
        ]
        if step.endswith("[]"):
            nodes = [
                ((*at, i), item)
                for at, items in nodes
                if isinstance(items, list)
                for i, item in enumerate(items)
            ]
    return nodes
