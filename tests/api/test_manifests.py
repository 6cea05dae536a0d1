"""Parsing files: a text in, manifests and every problem out, one line each."""

import pytest

from hearth.api import groups, manifests, validation
from hearth.api.manifests import Parsed
from hearth.api.validation import Identity

_SECRET = "{apiVersion: v1, kind: Secret, metadata: {name: %s}, stringData: {a: b}}"

_MIXED = """\
apiVersion: serving.hearth.dev/v1alpha1
kind: LLMService
metadata:
  name: chat
spec:
  model: {source: {uri: hf://a/b}}
  scaling:
    max: "3"
    scaleDownStabilization: 90m
---
apiVersion: serving.hearth.dev/v1alpha1
kind: InferenceRuntime
metadata: {name: tiny}
spec: {vendor: cpu, container: {image: "hearth/hearth:latest"}}
"""


def _read(text, **more):
    return manifests.parse(text, file="a.yaml", **more)


def _lines(parsed):
    return [str(problem) for problem in parsed.problems]


def test_every_problem_is_one_line_with_file_line_object_and_field():
    assert _lines(_read(_MIXED)) == [
        "a.yaml:8: LLMService default/chat: spec.scaling.max: must be a whole number, not '3'",
        "a.yaml:9: LLMService default/chat: spec.scaling.scaleDownStabilization: must be whole "
        "seconds from 0s to 1h",
    ]


def test_a_problem_leaves_the_other_objects():
    parsed = _read(_MIXED)
    assert [str(manifests.identity(m)) for m in parsed.manifests] == ["InferenceRuntime tiny"]
    assert not parsed.unknown


def test_a_sound_text():
    text = _MIXED.replace('"3"', "3").replace("90m", "90s")
    parsed = _read(text, namespace="ai")
    assert parsed.problems == []
    service, runtime = parsed.manifests
    assert manifests.identity(service) == Identity(
        "serving.hearth.dev/v1alpha1", "LLMService", "ai", "chat"
    )
    assert service["spec"]["endpoint"]["coldStart"]["mode"] == "keepalive"
    assert runtime["spec"]["container"]["port"] == {"name": "http", "containerPort": 8000}


def test_broken_yaml_leaves_what_stands_before_it_and_may_mean_anything():
    parsed = _read(f"{_SECRET % 'a'}\n---\na: [\n")
    assert [m["metadata"]["name"] for m in parsed.manifests] == ["a"]
    assert parsed.unknown
    assert _lines(parsed)[0].startswith("a.yaml:4: not YAML: ")


def test_an_object_without_a_name_may_be_any():
    assert _read("{apiVersion: v1, kind: Secret, metadata: {}}").unknown


@pytest.mark.parametrize(
    "text",
    [
        "{apiVersion: v1, kind: List, items: [%s, %s]}",
        "{apiVersion: v1, kind: SecretList, items: [%s, %s]}",
        "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: List, items: [%s, %s]}]}",
    ],
)
def test_lists_are_unwrapped(text):
    parsed = _read(text % (_SECRET % "a", _SECRET % "b"))
    assert [m["metadata"]["name"] for m in parsed.manifests] == ["a", "b"]


def test_items_of_a_typed_list_need_no_kind():
    parsed = _read("{apiVersion: v1, kind: SecretList, items: [{metadata: {name: a}}]}")
    assert parsed.manifests[0]["kind"] == "Secret"


def test_problems_in_a_list_have_their_line():
    parsed = _read("apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n- x\n")
    assert [problem.line for problem in parsed.problems] == [5, 6]


@pytest.mark.parametrize(
    "text", ["{kind: List, apiVersion: v1}", "{kind: List, apiVersion: v1, items: 3}"]
)
def test_a_list_without_items_is_refused(text):
    assert _lines(_read(text)) == ["a.yaml:1: items: is required, as a list"]


def test_the_same_object_twice():
    parsed = _read(f"{_SECRET % 'a'}\n---\n{_SECRET % 'a'}")
    assert len(parsed.manifests) == 1
    assert _lines(parsed) == ["a.yaml:3: Secret default/a: stands in this file for the second time"]


def test_the_same_object_in_two_files():
    files = [manifests.parse(_SECRET % "a", file=file) for file in ("a.yaml", "b.yaml")]
    assert [str(problem) for problem in manifests.duplicates(files)] == [
        "b.yaml: Secret default/a: is in a.yaml already"
    ]


def test_same_names_in_two_groups_are_two_objects():
    text = _MIXED.replace('"3"', "3").replace("90m", "90s").replace("hearth.dev", "noctaya.io")
    text = text.replace("spec:\n", "spec:\n  runtime: {name: tiny}\n", 1)
    files = [_read(_MIXED), _read(text)]
    assert files[1].problems == []
    assert manifests.duplicates(files) == []


def test_a_group_may_be_off():
    text = _MIXED.replace("hearth.dev", "noctaya.io")
    lines = _lines(_read(text, groups=[groups.HEARTH]))
    assert all("serving.noctaya.io is switched off" in line for line in lines)
    assert len(lines) == 2


@pytest.mark.parametrize("text", ["", "\n", "# only a comment", "---\n---"])
def test_nothing_in_nothing_out(text):
    assert _read(text) == Parsed(file="a.yaml")


def test_objects_of_other_kinds_are_passed_over_where_that_is_asked_for():
    text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: ai}\n"
    assert [str(one) for one in manifests.parse(text, file="f").problems] == [
        "f:2: Namespace default/ai: kind: Hearth does not read 'Namespace' here, only"
        f" {', '.join(validation.KINDS)}; remove the object, or apply it to a cluster with kubectl"
    ]
    parsed = manifests.parse(text, file="f", skip_foreign=True)
    assert parsed.problems == parsed.manifests == []
    assert [one.identity.kind for one in parsed.skipped] == ["Namespace"]
