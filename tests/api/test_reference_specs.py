"""The schema is nowhere stricter than a reference's, in that reference's group."""

import jsonschema
import pytest

from hearth.api import groups, rules, schema
from tests.api import reference_specs, samples
from tests.api.reference_specs import SPECS

_ITS_OWN = {
    groups.HEARTH: set[str](),
    groups.NOCTAYA: {
        "spec.runtime",
        "spec.model",
        "spec.model.source.secretRef",
        "spec.model.source.secretRef.name",
        "spec.runtime.selector.vendor",
    },
}
"""Fields whose rules the reference of a group has as well: no stored object breaks those."""


@pytest.mark.parametrize(
    ("group", "spec"),
    [(group, spec) for spec in SPECS for group in spec.groups],
    ids=str,
)
def test_a_spec_that_a_reference_lets_in_is_let_in(group, spec):
    manifest = samples.service(group, **spec.changes)
    structure = schema.of("LLMService", group)
    jsonschema.validate(manifest, structure, cls=jsonschema.Draft7Validator)
    assert rules.broken(schema.with_defaults(manifest, structure)) == []


@pytest.mark.parametrize("group", groups.GROUPS)
@pytest.mark.parametrize("changes", reference_specs.RUNTIMES, ids=str)
def test_a_runtime_that_a_reference_lets_in_is_let_in(group, changes):
    manifest = samples.runtime(group, **changes)
    structure = schema.of("InferenceRuntime", group)
    jsonschema.validate(manifest, structure, cls=jsonschema.Draft7Validator)
    assert rules.broken(schema.with_defaults(manifest, structure)) == []


@pytest.mark.parametrize("group", groups.GROUPS)
def test_field_case_90_a_rule_that_a_reference_lacks_blocks_no_status(group):
    """Before Kubernetes 1.30 every rule is judged at every write, also of the status."""
    for rule in rules.of("LLMService", group):
        at = ".".join(part for part in (rule.path, rule.field) if part)
        if at in _ITS_OWN[group]:
            continue
        path, entries = rules.validations(rule)
        assert path == "", at
        first, *more = [entry["rule"] for entry in entries]
        assert first.startswith("has(self.status) || ")
        assert all(one.startswith("!has(oldSelf.status) || self.") for one in more)
        assert all(entry["fieldPath"] == f".{at}" for entry in entries)
        # A name never changes; any other field is judged again when it does.
        assert bool(more) == (at != "metadata.name")


def test_every_stored_field_is_one_of_a_rule_for_new_objects():
    compared = {f"{rule.path}.{rule.field}" for rule in rules.TABLE if rule.compared}
    assert {field for field, _ in reference_specs.STORED} == compared
