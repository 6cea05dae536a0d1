"""Every rule from both sides, in Python; the API server's side is in the CRDs."""

import re

import pytest

from hearth.api import groups, rules, schema
from hearth.api.meta import format_path
from tests.api import samples, sides


def _broken(manifest):
    group = manifest["apiVersion"].partition("/")[0]
    filled = schema.with_defaults(manifest, schema.of(manifest["kind"], group))
    return [(format_path(broken.path), broken.message) for broken in rules.broken(filled)]


@pytest.mark.parametrize("rule", sides.SIDES, ids=lambda s: f"{s.field}: {s.message[:30]}")
def test_rule_from_both_sides(rule):
    refusal = (rule.field, rule.message)
    for manifest in rule.good:
        assert _broken(manifest) == []
    for manifest in rule.bad:
        assert refusal in _broken(manifest)


def test_every_rule_has_samples():
    said = {(one.kind, re.sub(r"\[.\]", "[]", one.field), one.message) for one in sides.SIDES}
    rows = {
        (rule.kind, ".".join(part for part in (rule.path, rule.field) if part), rule.message)
        for rule in rules.TABLE
    }
    assert rows == said


@pytest.mark.parametrize("manifest", samples.EVERYTHING + samples.RESERVED)
def test_what_the_reference_accepts_is_accepted(manifest):
    assert _broken(manifest) == []


@pytest.mark.parametrize(
    "spec",
    [
        None,
        "text",
        {},
        {"model": "x", "scaling": {"min": "1", "max": None}, "endpoint": []},
        {"scaling": {"min": 1, "max": 2, "activationTimeout": 5, "drainTimeout": "soon"}},
        {"vendor": 1, "container": {"env": [1, {"value": 2}]}, "health": {"readiness": "x"}},
    ],
)
@pytest.mark.parametrize("kind", ["LLMService", "InferenceRuntime"])
def test_wrong_types_are_left_to_the_schema(kind, spec):
    manifest = {
        "apiVersion": f"{groups.NOCTAYA}/{groups.VERSION}",
        "kind": kind,
        "metadata": {"name": "a"},
        "spec": spec,
    }
    rules.broken(manifest)


def test_a_broken_rule_says_where_and_what():
    manifest = samples.service(scaling={"min": 2, "max": 1})
    assert str(rules.broken(manifest)[0]) == "spec.scaling.min: must not be more than max"
