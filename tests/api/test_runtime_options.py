"""Options of a runtime come from annotations; what cannot be read is named, with what to write."""

import dataclasses

import pytest

from hearth.api import runtime_options
from hearth.api.options import BadOption
from hearth.api.runtime_options import RuntimeOptions


def test_without_annotations_nothing_is_said():
    assert runtime_options.parse({"team": "a"}) == RuntimeOptions()


def test_each_option_is_read():
    annotations = {
        "hearth.dev/pod-runtime-class": "nvidia",
        "hearth.dev/pod-priority-class": "high",
        "hearth.dev/pod-labels": "team: serving\nx.example.com/ns: '{{ .Service.Namespace }}'",
        "hearth.dev/pod-annotations": '{"a/b": "any text: {}"}',
        "hearth.dev/pod-security-context": "{runAsUser: 5, seccompProfile: null}",
        "hearth.dev/container-security-context": "capabilities: {add: [SYS_NICE]}",
        "hearth.dev/engine-key": "keys/{{ .Service.Name }}.key",
    }
    assert runtime_options.parse(annotations) == RuntimeOptions(
        runtime_class="nvidia",
        priority_class="high",
        labels={"team": "serving", "x.example.com/ns": "{{ .Service.Namespace }}"},
        annotations={"a/b": "any text: {}"},
        pod_security={"runAsUser": 5, "seccompProfile": None},
        container_security={"capabilities": {"add": ["SYS_NICE"]}},
        engine_key="keys/{{ .Service.Name }}.key",
    )
    assert runtime_options.problems(annotations) == []


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("pod-runtime-class", "", "write a name of lower-case letters"),
        ("pod-runtime-class", "NVIDIA", "write a name of lower-case letters"),
        ("pod-labels", "", "write a mapping in YAML or JSON"),
        ("pod-labels", "- team", "write a mapping in YAML or JSON"),
        ("pod-labels", "team: {{ .Service.Name }}", "put a text with {{ }} in quotes"),
        ("pod-labels", "inject: false", "inject must be a string"),
        ("pod-labels", "team: a b", "team: a label's value is made of letters"),
        ("pod-labels", "a/b/c: d", "'a/b/c' is no key"),
        ("pod-labels", "a: b\na: c", "for the second time"),
        ("pod-labels", f"a: {'b' * 64}", "at most 63"),
        ("pod-annotations", "a: 1", "a must be a string"),
        ("pod-annotations", "-: x", "'-' is no key"),
        ("pod-security-context", "{runAsUser: root}", "runAsUser must be a whole number"),
        ("pod-security-context", "{runAsUsr: 5}", "runAsUsr is not a field; did you mean"),
        ("pod-security-context", "privileged: true", "privileged is not a field; there are"),
        ("pod-security-context", "seccompProfile: {type: X}", "seccompProfile.type must be"),
        ("container-security-context", "fsGroup: 5", "fsGroup is not a field"),
        ("engine-key", "keys", "write SECRET/KEY"),
        ("engine-key", "Keys/token", "write SECRET/KEY"),
        ("engine-key", "keys/a b", "write SECRET/KEY"),
        ("engine-key", "keys/a/b", "write SECRET/KEY"),
        ("pod-label", "a: b", "there is no such option; remove it, or write one of hearth.dev/pod"),
        ("max-in-flight", "3", "there is no such option"),
    ],
)
def test_field_cases_103_and_105_what_cannot_be_read_is_named(name, text, told):
    [(annotation, message)] = runtime_options.problems({f"hearth.dev/{name}": text})
    assert annotation == f"hearth.dev/{name}" and told in message
    with pytest.raises(BadOption, match=f"annotation hearth.dev/{name}: "):
        runtime_options.parse({f"hearth.dev/{name}": text})


def test_a_value_of_a_label_may_be_empty():
    runtime_options.check_label("team", "")


def test_the_table_is_complete():
    assert [option.field for option in runtime_options.TABLE] == [
        field.name for field in dataclasses.fields(RuntimeOptions)
    ]
