"""Arguments and environment of the serving container."""

import pytest

from hearth.reconcile.render import container_args
from hearth.reconcile.spec.spec_errors import SpecError
from tests.reconcile.builders import runtime, service


def args(spec, override=()):
    of = service({"runtime": {"argsOverride": list(override)}})
    return container_args.args(of, runtime({"container": spec}), model_path="org/model")


def env(*variables, **defaults):
    by = runtime({"container": {"env": list(variables)}})
    return container_args.env(service(), by, model_path="org/model", defaults=defaults)


def test_arguments_are_rendered_and_the_service_s_come_last():
    got = args(
        {"args": ["--model={{ .Model.Path }}", "{{ .Service.Namespace }}/{{ .Service.Name }}"]},
        ["--max-model-len=1", "--alias={{ .Service.Name }}", '{{ "{{" }} braces }}'],
    )
    rendered = ["--max-model-len=1", "--alias=chat", "{{ braces }}"]
    assert got == ["--model=org/model", "ai/chat", *rendered]


def test_a_mistake_in_a_service_s_argument_names_its_field_and_says_how_braces_are_written():
    with pytest.raises(SpecError) as error:
        args({}, ["--fine", "{{ not a template }}"])
    assert error.value.rejection.reason == "Render"
    assert error.value.rejection.message == (
        "spec.runtime.argsOverride[1]: {{ not a template }}: a is not a function; there is and, or,"
        ' eq, ne, not, printf; two braces that are meant as such are written {{ "{{" }}'
    )


def test_without_spec_runtime_there_is_no_args_override():
    of = service()
    bare = of.model_copy(update={"spec": of.spec.model_copy(update={"runtime": None})})
    assert container_args.args(bare, runtime(), model_path="m") == ["serve"]


def test_the_address_comes_first_and_defaults_last():
    secret = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    got = env({"name": "URL", "value": "http://$(POD_IP)/{{ .Service.Name }}"}, secret, HOME="/s")
    assert got == [
        container_args.POD_IP,
        {"name": "URL", "value": "http://$(POD_IP)/chat"},
        secret,
        {"name": "HOME", "value": "/s"},
    ]


def test_what_the_runtime_sets_wins():
    got = env({"name": "HOME", "value": "/mine"}, {"name": "POD_IP", "value": "::1"}, HOME="/s")
    assert got == [{"name": "HOME", "value": "/mine"}, {"name": "POD_IP", "value": "::1"}]


def test_what_a_cache_needs_wins_and_later_variables_mean_it():
    got = env(
        {"name": "HF_HOME", "value": "/data"},
        {"name": "HF_DATASETS_CACHE", "value": "$(HF_HOME)/datasets"},
        HF_HOME="/cache/hf",
        HOME="/s",
    )
    assert got[1:] == [
        {"name": "HF_HOME", "value": "/cache/hf"},
        {"name": "HF_DATASETS_CACHE", "value": "$(HF_HOME)/datasets"},
        {"name": "HOME", "value": "/s"},
    ]
    without_a_cache = env({"name": "HF_HOME", "value": "/data"}, HOME="/s")
    assert {"name": "HF_HOME", "value": "/data"} in without_a_cache


def test_a_name_stands_once_with_its_last_value():
    got = env({"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "A", "value": "3"})
    assert got[1:] == [{"name": "B", "value": "2"}, {"name": "A", "value": "3"}]


@pytest.mark.reference("spec.container.args")
def test_refusals_name_runtime_field_and_text():
    with pytest.raises(SpecError) as error:
        args({"args": ["fine", "{{ range .Model }}"]})
    assert error.value.rejection.reason == "Render"
    assert error.value.rejection.message == (
        "InferenceRuntime stub: spec.container.args[1]: {{ range .Model }}: range is not supported"
    )
    with pytest.raises(SpecError, match=r"spec\.container\.env\[0\]\.value: \{\{ \.Nope \}\}"):
        env({"name": "A", "value": "{{ .Nope }}"})
