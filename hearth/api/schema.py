"""The custom resources' models as structural OpenAPI schemas, and the defaults these carry."""

from functools import cache
from typing import Any

from pydantic import BaseModel

from hearth.api import rules
from hearth.api.llmservice import LLMServiceSpec, LLMServiceStatus
from hearth.api.meta import FieldPath, Manifest
from hearth.api.runtime import InferenceRuntimeSpec, InferenceRuntimeStatus

Schema = dict[str, Any]

_PARTS: dict[str, tuple[type[BaseModel], type[BaseModel]]] = {
    "LLMService": (LLMServiceSpec, LLMServiceStatus),
    "InferenceRuntime": (InferenceRuntimeSpec, InferenceRuntimeStatus),
}
_DROPPED = ("title", "x-hearth-by-controller")


@cache
def of(kind: str, group: str) -> Schema:
    """The `openAPIV3Schema` of a kind in an API group.  Shared: not to be changed."""
    spec, status = _PARTS[kind]
    root: Schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {
                "type": "object",
                # Every name's bound, said here so that the cost of rules about it is known.
                "properties": {"name": {"type": "string", "maxLength": 253}},
            },
            "spec": _structural(spec),
            "status": _structural(status),
        },
    }
    for rule in rules.of(kind, group):
        path, entries = rules.validations(rule)
        _at(root, path).setdefault("x-kubernetes-validations", []).extend(entries)
    return root


def fields(schema: Schema, path: FieldPath) -> list[str]:
    """The fields that exist at `path`; none where it leads out of the schema."""
    node = schema
    for step in path:
        below = node if isinstance(step, int) else node.get("properties", {})
        node = below.get("items" if isinstance(step, int) else step, {})
    return list(node.get("properties", {}))


def with_defaults(manifest: Manifest, schema: Schema) -> Manifest:
    """A copy of `manifest` as the API server would store it: nulls dropped, defaults filled in."""
    filled: Manifest = _fill(manifest, schema)
    return filled


def _fill(value: Any, schema: Schema) -> Any:
    if isinstance(value, list) and "items" in schema:
        return [_fill(item, schema["items"]) for item in value]
    if not isinstance(value, dict) or "properties" not in schema:
        return value
    filled = {}
    properties = schema["properties"]
    for name, item in value.items():
        if item is not None:
            filled[name] = _fill(item, properties.get(name, {}))
    for name, below in properties.items():
        if name not in filled and "default" in below:
            filled[name] = _fill(below["default"], below)
    return filled


def _structural(model: type[BaseModel]) -> Schema:
    schema = model.model_json_schema(by_alias=True, mode="validation")
    return _convert(schema, schema.get("$defs", {}))


def _convert(schema: Schema, defs: dict[str, Schema]) -> Schema:
    node = _resolved(schema, defs)
    by_controller = node.get("x-hearth-by-controller", False)
    out = {name: value for name, value in node.items() if name not in _DROPPED}
    if "description" in out:
        out["description"] = " ".join(out["description"].split())
    if "properties" in out:
        out["properties"] = {name: _convert(item, defs) for name, item in out["properties"].items()}
    if "items" in out:
        out["items"] = _convert(out["items"], defs)
    if isinstance(out.get("additionalProperties"), dict):
        out["additionalProperties"] = _convert(out["additionalProperties"], defs)
    if "const" in out:
        out["enum"] = [out.pop("const")]
    if by_controller or out.get("default") in (None, [], {}):
        out.pop("default", None)
    if "properties" in out and "default" in out:
        # A nested default applies only where its parent is there: the parent defaults to {}.
        # A parent without any default below it is better left out.
        out["default"] = {}
        if not any("default" in item for item in out["properties"].values()):
            del out["default"]
    return out


def _resolved(schema: Schema, defs: dict[str, Schema]) -> Schema:
    """The schema without `$ref` and without the null that an optional field has."""
    node = {name: value for name, value in schema.items() if name != "$defs"}
    choices = [choice for choice in node.get("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) == 1:
        del node["anyOf"]
        node = {**_resolved(choices[0], defs), **node}
    if "$ref" in node:
        name = node.pop("$ref").removeprefix("#/$defs/")
        node = {**_resolved(defs[name], defs), **node}
    return node


def _at(root: Schema, path: str) -> Schema:
    node = root
    for step in path.split(".") if path else ():
        node = node["properties"][step.removesuffix("[]")]
        if step.endswith("[]"):
            node = node["items"]
    return node
