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
    for manifest in rule.good:
        assert _broken(manifest) == []
    for manifest in rule.bad:
        said = [message for field, message in _broken(manifest) if field == rule.field]
        # Words about the values may follow.
        assert any(f"{message}: ".startswith(f"{rule.message}: ") for message in said)


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


@pytest.mark.parametrize(
    ("scaling", "numbers"),
    [
        ({"min": 2}, "min is 2, max is 1"),
        ({"min": 2, "max": 1}, "min is 2, max is 1"),
        ({"min": 5, "max": 3}, "min is 5, max is 3"),
    ],
)
def test_a_broken_rule_says_where_and_what(scaling, numbers):
    told = _broken(samples.service(scaling=scaling))
    assert told == [
        (
            "spec.scaling.min",
            f"must not be more than max (1 by default): {numbers}",
        )
    ]
    manifest = samples.service(scaling={"min": 5, "max": 3})
    assert str(rules.broken(manifest)[0]) == (
        "spec.scaling.min: must not be more than max (1 by default): min is 5, max is 3"
    )
