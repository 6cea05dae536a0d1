"""The second reference's services come to the same pods and refusals, but for what is meant."""

import fnmatch

import jsonschema
import pytest

from hearth.api import groups, rules, schema
from hearth.reconcile.spec.spec_errors import SpecError
from tests.reconcile import builders
from tests.reconcile.reconciler_fixture import NOCTAYA, ReconcilerFixture
from tests.reconcile.reference import delivered, meant, seen, view

ROWS = [*seen.SERVED, *delivered.DELIVERED]
BY_NAME = {row.name: row for row in ROWS}


def shown():
    """What each test of one service shows of the references."""
    for row in ROWS:
        test = "test_the_same_spec_comes_to_the_same_pod"
        yield test, row, seen.shown(row.name, row.service, row.runtime, "")
    for bad in seen.REFUSED:
        test = "test_the_same_spec_is_refused_for_the_same_reason"
        yield test, bad, seen.shown(bad.name, bad.service, bad.runtime, bad.reason)
    for name, service in seen.UNSTORED.items():
        test = "test_what_its_schema_refuses_is_not_served"
        yield test, name, seen.shown(name, service, {}, "")


SHOWN = {(test, getattr(row, "name", row)): ids for test, row, ids in shown()}


def cases(wanted):
    """The services of one test, each with a mark that names its rows."""
    return [
        pytest.param(row, id=getattr(row, "name", row), marks=pytest.mark.reference(*sorted(ids)))
        for test, row, ids in shown()
        if test == wanted
    ]


def laid_over(base, over):
    """`base` with `over` upon it; None takes away."""
    if not (isinstance(base, dict) and isinstance(over, dict)):
        return over
    below = {key: laid_over(base.get(key), value) for key, value in over.items()}
    return {k: v for k, v in {**base, **below}.items() if v is not None}


def rendered(row, group=groups.NOCTAYA):
    """The view of what Hearth makes of a row."""
    service = builders.service(laid_over(seen.SERVICE, row.service), group=group)
    spec = laid_over(seen.RUNTIME, row.runtime)
    runtime = builders.runtime(spec, name="vllm", group=group)
    return view.of(builders.render(service, runtime).manifests)


def differences(row):
    """Path, their value and ours, of each leaf that differs."""
    theirs = dict(view.flat(laid_over(seen.BASE, row.over)))
    ours = dict(view.flat(rendered(row)))
    paths = dict.fromkeys([*theirs, *ours])
    values = [(p, theirs.get(p, meant.ABSENT), ours.get(p, meant.ABSENT)) for p in paths]
    return [(path, a, b) for path, a, b in values if a != b]


def reasons(row, path, theirs, ours):
    """The table's entries that a difference is one of."""
    return [
        entry
        for entry in meant.DIFFERENCES
        if (path == entry.path or fnmatch.fnmatchcase(path, entry.path))
        and entry.theirs in (meant.ANY, theirs)
        and entry.ours in (meant.ANY, ours)
        and (not entry.only or row.name in entry.only)
    ]


@pytest.mark.parametrize("row", cases("test_the_same_spec_comes_to_the_same_pod"))
def test_the_same_spec_comes_to_the_same_pod(row):
    """A difference is one of `meant.DIFFERENCES`, with its reason, or a mistake."""
    assert [found for found in differences(row) if not reasons(row, *found)] == []


def test_every_difference_that_is_meant_is_there():
    used = [entry for row in ROWS for found in differences(row) for entry in reasons(row, *found)]
    assert [entry.path for entry in meant.DIFFERENCES if entry not in used] == []
    assert {name for entry in meant.DIFFERENCES for name in entry.only} <= BY_NAME.keys()


def test_a_difference_that_is_not_meant_is_found():
    row = BY_NAME["draining"]
    other = row._replace(over=laid_over(row.over, {"pod": {"terminationGracePeriodSeconds": 30}}))
    found = [found for found in differences(other) if not reasons(other, *found)]
    assert found == [("pod.terminationGracePeriodSeconds", 30, 130)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_both_groups_come_to_the_same_pod(row):
    """But for the folder of a node, and the labels that policies of the second group select by."""
    of_group = {
        "mounts./cache.hostPath.path",
        "labels.serving.noctaya.io/llmservice",
        "labels.serving.noctaya.io/runtime",
    }
    one, other = (dict(view.flat(rendered(row, group))) for group in groups.GROUPS)
    assert {path for path in one | other if one.get(path) != other.get(path)} <= of_group


@pytest.mark.parametrize("row", cases("test_the_same_spec_is_refused_for_the_same_reason"))
async def test_the_same_spec_is_refused_for_the_same_reason(row):
    fixture = ReconcilerFixture()
    for name in ("vllm", *row.others):
        spec = laid_over(seen.RUNTIME, row.runtime)
        await fixture.user("InferenceRuntime", name, group=NOCTAYA, spec=spec)
    spec = laid_over(seen.SERVICE, row.service)
    await fixture.user("LLMService", group=NOCTAYA, spec=spec)
    await fixture.reconcile_once()
    status = (await fixture.service(group=NOCTAYA))["status"]
    conditions = await fixture.conditions(group=NOCTAYA)
    assert status["phase"] == "Degraded"
    assert conditions["Ready"] == ("False", row.reason)
    assert conditions["Degraded"] == ("True", row.reason)
    assert conditions["AutoscalingReady"] == ("False", row.reason)
    message = next(c["message"] for c in status["conditions"] if c["type"] == "Ready")
    assert "spec." in message, "it names the field"
    assert await fixture.objects() == []


@pytest.mark.parametrize("name", cases("test_what_its_schema_refuses_is_not_served"))
def test_what_its_schema_refuses_is_not_served(name):
    """By the schema, by a rule, or at reconcile."""
    spec = laid_over(seen.SERVICE, seen.UNSTORED[name])
    manifest = builders.service_manifest(group=NOCTAYA) | {"spec": spec}
    structure = schema.of("LLMService", NOCTAYA)
    try:
        jsonschema.validate(manifest, structure, cls=jsonschema.Draft7Validator)
        if not rules.broken(schema.with_defaults(manifest, structure)):
            with pytest.raises(SpecError):
                service = builders.service(group=NOCTAYA)
                builders.render(type(service).model_validate(manifest))
    except jsonschema.ValidationError:
        pass
