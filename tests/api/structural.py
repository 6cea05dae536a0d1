"""What an API server demands of a CustomResourceDefinition, as far as it shows without one.

`problems` walks a definition by the rules for structural schemas, defaults, lists, columns and CEL.
"""

import re
from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]

_TYPES = {"array", "boolean", "integer", "number", "object", "string"}
_VALUE_CHECKS = {
    "enum", "pattern", "format", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "minProperties", "maxProperties",
    "required", "properties", "items", "allOf", "anyOf", "oneOf", "not",
}  # fmt: skip
_STRUCTURE = {
    "type", "description", "default", "nullable", "additionalProperties",
    "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource", "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type", "x-kubernetes-validations",
}  # fmt: skip
_ROOT = {"type", "description", "required", "properties", "x-kubernetes-validations"}
_FORMATS = {"date-time", "int32", "int64", "byte"}
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_RULE = {"rule", "message", "messageExpression", "reason", "fieldPath", "optionalOldSelf"}
_COLUMN = {"name", "type", "jsonPath", "priority", "format", "description"}
_RE2_LACKS = re.compile(r"\(\?[=!<]|\\[1-9]|\(\?P[=>]|[*+?}]\+")
_BOUNDS = (("minimum", "maximum"), ("minLength", "maxLength"), ("minItems", "maxItems"))
_PATH = re.compile(r"self((?:\.\w+)+)")
_CEL_WORDS = {
    "as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in",
    "let", "loop", "null", "package", "namespace", "return", "true", "var", "void", "while",
}  # fmt: skip


def problems(definition: Schema) -> list[str]:
    """Everything an API server would refuse, or silently drop."""
    return [*_definition(definition), *_columns(definition), *_versions(definition)]


def _definition(definition: Schema) -> Iterator[str]:
    spec, names = definition["spec"], definition["spec"]["names"]
    if definition["apiVersion"] != "apiextensions.k8s.io/v1":
        yield "apiVersion is not apiextensions.k8s.io/v1"
    if definition["metadata"]["name"] != f"{names['plural']}.{spec['group']}":
        yield "the name is not plural.group"
    if spec["scope"] not in ("Namespaced", "Cluster"):
        yield "scope is neither Namespaced nor Cluster"
    if names["listKind"] != f"{names['kind']}List":
        yield "listKind is not the kind's"
    for name in (names["plural"], names["singular"], *names.get("shortNames", ())):
        if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name):
            yield f"{name} is no DNS label"
    if sum(version["storage"] for version in spec["versions"]) != 1:
        yield "not exactly one storage version"
    if "conversion" in spec:
        yield "conversion without a second version"


def _versions(definition: Schema) -> Iterator[str]:
    for version in definition["spec"]["versions"]:
        if version["subresources"] != {"status": {}}:
            yield "subresources are not just status"
        root = version["schema"]["openAPIV3Schema"]
        for word in root.keys() - _ROOT:
            yield f"root has {word}"
        if root.get("type") != "object":
            yield "root is no object"
        if root["properties"]["metadata"].get("properties", {}).keys() - {"name", "generateName"}:
            yield "metadata restricts more than its name"
        for name in ("apiVersion", "kind"):
            if root["properties"][name] != {"type": "string"}:
                yield f"{name} is restricted"
        yield from _node(root, "", root)


def _columns(definition: Schema) -> Iterator[str]:
    version = definition["spec"]["versions"][0]
    columns = version["additionalPrinterColumns"]
    if not any(column["name"] == "Age" for column in columns):
        yield "the column Age is missing"
    for column in columns:
        if column.keys() - _COLUMN:
            yield f"column {column['name']} has unknown keys"
        if column["type"] not in ("integer", "number", "string", "boolean", "date"):
            yield f"column {column['name']} has the type {column['type']}"
        steps = column["jsonPath"].split(".")
        if steps[0] != "":
            yield f"column {column['name']} has a path without a leading dot"
        if steps[1] == "metadata":
            continue
        node = version["schema"]["openAPIV3Schema"]
        for step in steps[1:]:
            node = node.get("properties", {}).get(step)
            if node is None:
                yield f"column {column['name']} leads nowhere"
                break
        else:
            if node["type"] != column["type"]:
                yield f"column {column['name']} is not of its field's type"


def _node(node: Schema, at: str, root: Schema) -> Iterator[str]:
    for word in node.keys() - _STRUCTURE - _VALUE_CHECKS:
        yield f"{at}: the server does not know {word}"
    yield from _kind(node, at)
    yield from _checks(node, at)
    yield from _lists(node, at)
    for junctor in ("allOf", "anyOf", "oneOf", "not"):
        if junctor in node and not _is_int_or_string(node, junctor):
            yield f"{at}: {junctor} is not needed here"
    if "default" in node:
        yield from _default(node, at)
    for rule in node.get("x-kubernetes-validations", ()):
        yield from _cel(rule, node, at)
    if len(node.get("description", "")) > 300 or "\n" in node.get("description", ""):
        yield f"{at}: the description is not one short paragraph"
    if at.startswith(".spec") and not at.endswith(("[]", "{}")) and not node.get("description"):
        yield f"{at}: no description"
    for name, item in node.get("properties", {}).items():
        yield from _node(item, f"{at}.{name}", root)
    if "items" in node:
        yield from _node(node["items"], f"{at}[]", root)
    if isinstance(node.get("additionalProperties"), dict):
        yield from _node(node["additionalProperties"], f"{at}{{}}", root)


def _is_int_or_string(node: Schema, junctor: str) -> bool:
    flagged = bool(node.get("x-kubernetes-int-or-string"))
    return junctor == "anyOf" and node["anyOf"] == _INT_OR_STRING and flagged


def _kind(node: Schema, at: str) -> Iterator[str]:
    kind = node.get("type")
    loose = node.get("x-kubernetes-int-or-string") or node.get(
        "x-kubernetes-preserve-unknown-fields"
    )
    if kind is None and not loose:
        yield f"{at}: no type"
    if kind is not None and kind not in _TYPES:
        yield f"{at}: {kind!r} is no type"
    if node.get("x-kubernetes-int-or-string") and (kind or node.get("anyOf") != _INT_OR_STRING):
        yield f"{at}: int-or-string with a type, or without its anyOf"
    if node.get("x-kubernetes-preserve-unknown-fields") is False:
        yield f"{at}: preserve-unknown-fields may only be true"
    if "properties" in node and kind != "object":
        yield f"{at}: properties outside an object"
    if "properties" in node and "additionalProperties" in node:
        yield f"{at}: properties and additionalProperties together"
    if not isinstance(node.get("additionalProperties", {}), dict):
        yield f"{at}: additionalProperties without a schema"
    if (kind == "array") != ("items" in node) or not isinstance(node.get("items", {}), dict):
        yield f"{at}: a list has one schema for its items, and nothing else has"
    if kind == "number":
        yield f"{at}: floats do not survive a round trip"


def _checks(node: Schema, at: str) -> Iterator[str]:
    for name in node.get("required", ()):
        if name not in node.get("properties", {}):
            yield f"{at}: requires {name}, which it does not have"
    if len(set(node.get("required", ()))) != len(node.get("required", ())):
        yield f"{at}: requires a field twice"
    pattern = node.get("pattern")
    if pattern is not None and _RE2_LACKS.search(pattern):
        yield f"{at}: RE2 does not read {pattern}"
    if pattern is not None and not (pattern.startswith("^") and pattern.endswith("$")):
        yield f"{at}: the pattern is not anchored"
    if "format" in node and node["format"] not in _FORMATS:
        yield f"{at}: the format {node['format']} is not one to use"
    for word in ("exclusiveMinimum", "exclusiveMaximum"):
        if not isinstance(node.get(word, False), bool):
            yield f"{at}: {word} is a number"
    if "enum" in node and (not node["enum"] or len(set(node["enum"])) != len(node["enum"])):
        yield f"{at}: enum is empty or has a value twice"
    for least, most in (
        ("minimum", "maximum"),
        ("minLength", "maxLength"),
        ("minItems", "maxItems"),
    ):
        if least in node and most in node and node[least] > node[most]:
            yield f"{at}: {least} is above {most}"


def _lists(node: Schema, at: str) -> Iterator[str]:
    kind = node.get("x-kubernetes-list-type")
    keys = node.get("x-kubernetes-list-map-keys", ())
    if kind is not None and node.get("type") != "array":
        yield f"{at}: list-type outside a list"
    if (kind == "map") != bool(keys):
        yield f"{at}: list-map-keys go with list-type map"
    if at.endswith(".conditions") and (kind != "map" or keys != ["type"]):
        yield f"{at}: conditions are a map by type"
    for key in keys:
        items = node["items"]
        field = items.get("properties", {}).get(key)
        if field is None or field["type"] not in ("string", "integer", "boolean"):
            yield f"{at}: the key {key} is no scalar field of the items"
        elif key not in items.get("required", ()) and "default" not in field:
            yield f"{at}: the key {key} is neither required nor defaulted"
    if kind == "set" and node["items"].get("type") in ("object", "array"):
        yield f"{at}: a set of what is not scalar"


def _default(node: Schema, at: str) -> Iterator[str]:
    default = node["default"]
    if default is None:
        yield f"{at}: the default is null"
    if not at.startswith(".spec."):
        yield f"{at}: a default outside spec"
    if isinstance(default, dict):
        # Checked by the server as it stands, before the defaults below are filled in.
        for name in node.get("required", ()):
            if name not in default:
                yield f"{at}: the default lacks the required {name}"
        for name in default.keys() - node.get("properties", {}).keys():
            yield f"{at}: the default has the unknown {name}"


def _cel(rule: Schema, node: Schema, at: str) -> Iterator[str]:
    text = rule["rule"]
    if rule.keys() - _RULE:
        yield f"{at}: rule with unknown keys"
    if "\n" in text or "\n" in rule.get("message", "\n"):
        yield f"{at}: rule or message is not one line"
    if "oldSelf" in text and "[]" in at:
        yield f"{at}: oldSelf below a list"
    if text.count("(") != text.count(")"):
        yield f"{at}: unbalanced rule"
    if "fieldPath" in rule and _reached(node, rule["fieldPath"].split(".")[1:]) is None:
        yield f"{at}: fieldPath {rule['fieldPath']} leads nowhere"
    for path in _PATH.findall(text):
        steps = path.split(".")[1:]
        if _CEL_WORDS.intersection(steps):
            yield f"{at}: {path} needs escaping in CEL"
        # The last step may be a method of a string.
        field = _reached(node, steps) or (_reached(node, steps[:-1]) if steps[1:] else None)
        if field is None:
            yield f"{at}: the rule reads {path}, which is no field"
            continue
        if f"has(self{path})" in text and text.count(f"self{path}") == 1:
            continue
        for word in _unbounded(field):
            yield f"{at}: the rule reads {path}, which has no {word}: its cost has no bound"
        required = steps[0] in node.get("required", ()) or steps[0] in ("metadata", "name")
        defaulted = "default" in node["properties"].get(steps[0], {}) and "default" not in node
        if not (required or defaulted or f"has(self.{steps[0]})" in text):
            yield f"{at}: the rule reads {path}, which may be absent"


def _reached(node: Schema, steps: list[str]) -> Schema | None:
    for step in steps:
        node = node.get("properties", {}).get(step)
        if node is None:
            return None
    return node


def _unbounded(field: Schema) -> Iterator[str]:
    if field.get("type") == "string" and not field.keys() & {"enum", "maxLength"}:
        yield "maxLength"
    if field.get("type") == "array":
        if "maxItems" not in field:
            yield "maxItems"
        yield from _unbounded(field["items"])
