"""The CRDs: structural, cheap enough for the API server, and equal to the chart's copies."""

from copy import deepcopy
from pathlib import Path

import pytest
import yaml

from hearth.api import crd, groups
from tests.api import structural

_CHART = Path(__file__).parents[2] / "charts" / "hearth" / "files" / "crds"
_DEFINITIONS = crd.documents()


@pytest.mark.parametrize("definition", _DEFINITIONS, ids=lambda d: d["metadata"]["name"])
def test_an_api_server_would_take_it(definition):
    assert structural.problems(definition) == []


def test_the_charts_copies_are_up_to_date():
    assert {path.name: path.read_text() for path in _CHART.glob("*.yaml")} == crd.files()


def test_both_kinds_in_both_groups():
    assert [d["metadata"]["name"] for d in _DEFINITIONS] == [
        "llmservices.serving.hearth.dev",
        "inferenceruntimes.serving.hearth.dev",
        "llmservices.serving.noctaya.io",
        "inferenceruntimes.serving.noctaya.io",
    ]
    assert [d["spec"]["scope"] for d in _DEFINITIONS] == ["Namespaced", "Cluster"] * 2
    assert len(crd.documents([groups.HEARTH])) == 2


def test_the_text_is_the_documents_and_small_enough_for_an_annotation():
    text = crd.yaml_text()
    assert list(yaml.safe_load_all(text)) == _DEFINITIONS
    assert "&id" not in text
    assert all(len(part) < 200 * 1024 for part in crd.files().values())


def test_columns_of_a_service():
    columns = _DEFINITIONS[0]["spec"]["versions"][0]["additionalPrinterColumns"]
    assert [c["name"] for c in columns if not c.get("priority")] == [
        "Phase",
        "Runtime",
        "Replicas",
        "Age",
    ]
    assert [c["name"] for c in columns if c.get("priority") == 1] == ["Endpoint"]


def _spec(definition):
    root = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return root["properties"]["spec"]


def _spoil_scaling(**changes):
    def spoil(definition):
        _spec(definition)["properties"]["scaling"].update(changes)

    return spoil


def _spoil_min(**changes):
    def spoil(definition):
        _spec(definition)["properties"]["scaling"]["properties"]["min"].update(changes)

    return spoil


def _rule(**changes):
    rule = {"rule": "self.min > 0", "message": "x", **changes}
    return _spoil_scaling(**{"x-kubernetes-validations": [rule]})


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (_spoil_min(title="Min"), "does not know title"),
        (_spoil_min(type="null"), "is no type"),
        (_spoil_min(default=None), "default is null"),
        (_spoil_min(exclusiveMinimum=0), "is a number"),
        (_spoil_min(minimum=3, maximum=1), "above"),
        (_spoil_min(pattern="^(?=a)$"), "RE2"),
        (_spoil_min(pattern="a"), "anchored"),
        (_spoil_min(format="duration"), "format"),
        (_spoil_min(anyOf=[{"minimum": 1}]), "anyOf"),
        (_spoil_min(properties={}), "outside an object"),
        (_spoil_min(items={"type": "string"}), "items"),
        (_spoil_scaling(additionalProperties=False), "together"),
        (_spoil_scaling(required=["nothing"]), "does not have"),
        (_spoil_scaling(required=["min"]), "lacks the required"),
        (_spoil_scaling(default={"x": 1}), "unknown x"),
        (_spoil_scaling(description="a\nb"), "paragraph"),
        (_rule(rule="self.min > 0"), "may be absent"),
        (_rule(rule="!has(self.nothing) || self.nothing > 0"), "no field"),
        (_rule(rule="has(self.metric) && self.metric == 'x'", fieldPath=".y"), "leads nowhere"),
        (_rule(message="a\nb"), "one line"),
    ],
)
def test_the_check_sees_what_a_server_would_refuse(spoil, told):
    definition = deepcopy(_DEFINITIONS[0])
    spoil(definition)
    assert any(told in problem for problem in structural.problems(definition))
