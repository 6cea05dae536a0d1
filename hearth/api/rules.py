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
    field: str = ""
    """The field below `path` that is at fault, where it is one."""
    groups: tuple[str, ...] = groups.GROUPS


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


def _if_set(field: str, cel: str) -> str:
    # The parent's default {} is checked as it stands, before the fields' own defaults are in it.
    return f"!has(self.{field}) || {cel}"


_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_NOCTAYA = (groups.NOCTAYA,)
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
    ),
    _service(
        "",
        f"self.metadata.name != '{RESERVED_NAME}'",
        lambda node: node["metadata"]["name"] != RESERVED_NAME,
        f"the name {RESERVED_NAME} is reserved for the shared endpoint of the namespace; choose "
        "another",
        field="metadata.name",
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
        "!(has(self.source) && has(self.catalogRef))",
        lambda node: not ("source" in node and "catalogRef" in node),
        "set source or catalogRef, not both",
    ),
    _service(
        "spec.model",
        "has(self.source) || has(self.catalogRef)",
        lambda node: "source" in node or "catalogRef" in node,
        "say where the model comes from: set source.uri",
        groups=_NOCTAYA,
    ),
    _service(
        "spec.model.source",
        "!has(self.secretRef) || self.uri.startsWith('oci://')",
        lambda node: "secretRef" not in node or node["uri"].startswith("oci://"),
        "is for oci:// sources only; remove it",
        field="secretRef",
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
        "name the Secret with the registry's credentials, of type kubernetes.io/dockerconfigjson",
        field="secretRef.name",
    ),
    _service(
        "spec.runtime",
        "!(has(self.name) && has(self.selector))",
        lambda node: not ("name" in node and "selector" in node),
        "set name or selector, not both",
    ),
    _service(
        "spec.runtime",
        "has(self.name) || has(self.selector)",
        lambda node: "name" in node or "selector" in node,
        "say which runtime serves: set name or selector.vendor",
        groups=_NOCTAYA,
    ),
    _service(
        "spec.runtime.selector",
        "has(self.vendor) && size(self.vendor) > 0",
        lambda node: bool(node.get("vendor")),
        "list at least one vendor",
        field="vendor",
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
        "!has(self.min) || !has(self.max) || self.min <= self.max",
        lambda node: bool(node["min"] <= node["max"]),
        "must not be more than max",
        field="min",
    ),
    _service(
        "spec.scaling",
        _if_set("activationTimeout", "duration(self.activationTimeout) > duration('0s')"),
        lambda node: _seconds(node, "activationTimeout") > 0,
        "must be longer than 0s",
        field="activationTimeout",
    ),
    _service(
        "spec.scaling",
        _if_set(
            "scaleDownStabilization",
            "[duration(self.scaleDownStabilization)].all(d, d >= duration('0s') && "
            "d <= duration('1h') && timestamp(0) + d == timestamp(d.getSeconds()))",
        ),
        lambda node: (
            0 <= _seconds(node, "scaleDownStabilization") <= 3600
            and _seconds(node, "scaleDownStabilization").is_integer()
        ),
        "must be whole seconds from 0s to 1h",
        field="scaleDownStabilization",
    ),
    _service(
        "spec.scaling",
        _if_set("drainTimeout", "duration(self.drainTimeout) >= duration('0s')"),
        lambda node: _seconds(node, "drainTimeout") >= 0,
        "must not be negative",
        field="drainTimeout",
    ),
    _service(
        "spec.endpoint.coldStart",
        _if_set("heartbeatInterval", "duration(self.heartbeatInterval) > duration('0s')"),
        lambda node: _seconds(node, "heartbeatInterval") > 0,
        "must be longer than 0s",
        field="heartbeatInterval",
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
                found.append(Broken((*path, *field), rule.message))
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
