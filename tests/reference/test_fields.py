"""Each field of the references has the type, default and constraint that its row says."""

import copy
from typing import Any

import jsonschema
import pytest

from hearth.api import groups, meta, rules, schema
from tests.api import samples
from tests.reference import table

GROUPS = {"hearth": groups.HEARTH, "noctaya": groups.NOCTAYA}


def node_at(kind: str, group: str, path: str) -> dict[str, Any]:
    """The schema of a field."""
    node = schema.of(kind, group)
    for step in path.split("."):
        node = node["properties"][step.removesuffix("[]")]
        node = node["items"] if step.endswith("[]") else node
    return node


def type_of(node: dict[str, Any]) -> str:
    """The type, as the references write it."""
    items = node.get("items", {}).get("properties", {})
    if node.get("pattern") == meta.QUANTITY_PATTERN:
        return "quantity"
    if node.get("pattern") == meta.DURATION_PATTERN:
        return "duration"
    if "valueFrom" in items:
        return "env"
    if "tolerationSeconds" in items:
        return "tolerations"
    if "items" in node:
        return f"{node['items'].get('type')} array"
    if "additionalProperties" in node:
        return "string map"
    if "httpGet" in node.get("properties", {}):
        return "probe"
    return str(node["type"])


def refusal(row, group: str, value: Any) -> object:
    """Why an API server refuses an object with this value of the field; None where it does not."""
    make = samples.service if row.kind == "LLMService" else samples.runtime
    made = make(group, **copy.deepcopy(dict(row.within)))
    *above, last = row.path.removeprefix("spec.").split(".")
    node = made["spec"]
    for step in above:
        node = node.setdefault(step, {})
    if value is samples.GONE:
        node.pop(last, None)
    else:
        node[last] = value
    structure = schema.of(row.kind, group)
    try:
        jsonschema.validate(made, structure, cls=jsonschema.Draft7Validator)
    except jsonschema.ValidationError as error:
        return error
    return rules.broken(schema.with_defaults(made, structure)) or None


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=row.id, marks=pytest.mark.reference(row.id)) for row in table.FIELDS],
)
def test_a_field_is_as_its_row_says(row):
    for reference in row.of.split():
        group = GROUPS[reference]
        node = node_at(row.kind, group, row.path)
        assert type_of(node) == row.type
        stored = None if row.by_controller else row.default
        assert node.get("default", {} if row.type == "object" else None) == (
            {} if row.type == "object" else stored
        )
        for value in row.good:
            assert refusal(row, group, value) is None
        for value in row.bad:
            assert refusal(row, group, value) is not None, value
