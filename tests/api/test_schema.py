"""Schemas say the same as the models: fields, defaults, and what they accept."""

from typing import Any

import jsonschema
import pytest

from hearth.api import groups, schema
from hearth.api.llmservice import LLMService
from hearth.api.runtime import InferenceRuntime
from tests.api import samples

_MODELS: dict[str, Any] = {"LLMService": LLMService, "InferenceRuntime": InferenceRuntime}


def _of(manifest):
    return schema.of(manifest["kind"], manifest["apiVersion"].partition("/")[0])


def _leaves(node, path=()):
    for name, item in node.get("properties", {}).items():
        yield (*path, name)
        yield from _leaves(item, (*path, name))
    if "items" in node:
        yield from _leaves(node["items"], (*path, "[]"))


def _set(value, path=()):
    if isinstance(value, dict):
        for name, item in value.items():
            yield (*path, name)
            yield from _set(item, (*path, name))
    if isinstance(value, list):
        for item in value:
            yield from _set(item, (*path, "[]"))


@pytest.mark.parametrize("kind", _MODELS)
def test_the_full_samples_set_every_field(kind):
    """So that what the other tests show of them, they show of every field (variants of a type that
    stands in several places apart)."""
    fields = set(_leaves(schema.of(kind, groups.HEARTH)["properties"]["spec"]))
    seen = {
        path
        for manifest in samples.EVERYTHING
        if manifest["kind"] == kind
        for path in _set(manifest["spec"])
    }
    variants = {path for path in fields if "health" in path or "valueFrom" in path}
    assert fields - variants <= seen


@pytest.mark.parametrize("manifest", samples.EVERYTHING, ids=lambda m: m["apiVersion"])
def test_every_field_is_accepted_and_comes_back(manifest):
    jsonschema.validate(manifest, _of(manifest), cls=jsonschema.Draft7Validator)
    model = _MODELS[manifest["kind"]].model_validate(
        manifest, extra="forbid", by_alias=True, by_name=False
    )
    back = model.spec.model_dump(by_alias=True, exclude_unset=True)
    assert schema.with_defaults(manifest, _of(manifest)).keys() == manifest.keys()
    assert _plain(back) == _plain(manifest["spec"])


def _plain(value):
    """Durations and whole-number quantities by value: they may be spelled anew."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return str(value)


@pytest.mark.parametrize(
    "manifest",
    [
        samples.service(),
        samples.service(runtime=samples.GONE),
        samples.service(
            scaling={}, cache={}, endpoint={"coldStart": {}}, resources={"fraction": {}}
        ),
        samples.runtime(),
        samples.runtime(accelerator__scheduler={}, accelerator__sharing={}),
        samples.runtime(metrics={"queueDepth": "waiting"}),
        *samples.EVERYTHING,
    ],
)
def test_defaults_of_models_and_schemas_agree(manifest):
    model = _MODELS[manifest["kind"]]
    filled = schema.with_defaults(manifest, _of(manifest))
    jsonschema.validate(filled, _of(manifest), cls=jsonschema.Draft7Validator)
    # The same to whoever reads it, whether the API server filled it in or the model did.
    assert model.model_validate(filled).spec == model.model_validate(manifest).spec
    # And nothing that the model fills in is missing, but for what the controller decides.
    by_model = model.model_validate(manifest).spec.model_dump(by_alias=True, exclude_none=True)
    missing = set(_set(by_model)) - set(_set(filled["spec"]))
    empty = {path for path in missing if not _reached(by_model, path)}
    assert missing - empty <= {("cache", "size")}


def _reached(value, path):
    for step in path:
        if step == "[]":
            return None
        value = value[step]
    return value


def test_a_parent_defaults_to_empty_so_that_its_fields_can_have_defaults():
    spec = schema.of("LLMService", groups.HEARTH)["properties"]["spec"]["properties"]
    for name in ("resources", "scaling", "cache", "endpoint"):
        assert spec[name]["default"] == {}
    assert spec["endpoint"]["properties"]["coldStart"]["default"] == {}
    assert "default" not in spec["imagePullSecrets"]
    assert "default" not in spec["cache"]["properties"]["size"]


def test_stored_form_of_a_small_service():
    filled = schema.with_defaults(samples.service(cache=None), _of(samples.service()))
    assert filled["spec"] == samples.STORED


def test_filling_in_leaves_wrong_types_alone():
    manifest = {"spec": {"scaling": "fast", "imagePullSecrets": {"name": None}, "odd": None}}
    filled = schema.with_defaults(manifest, schema.of("LLMService", groups.HEARTH))
    assert filled["spec"]["scaling"] == "fast"
    assert "odd" not in filled["spec"]


@pytest.mark.parametrize(
    ("path", "some"),
    [
        (("spec", "scaling"), "min"),
        (("spec", "imagePullSecrets", 3), "name"),
        ((), "spec"),
        (("spec", "nothing", "below"), None),
    ],
)
def test_fields_at_a_path(path, some):
    fields = schema.fields(schema.of("LLMService", groups.HEARTH), path)
    assert fields == [] if some is None else some in fields


def test_only_noctaya_has_its_rules():
    def rules_of(group):
        spec = schema.of("LLMService", group)["properties"]["spec"]
        return [rule["rule"] for rule in spec.get("x-kubernetes-validations", ())]

    assert rules_of(groups.HEARTH) == []
    assert rules_of(groups.NOCTAYA) == ["has(self.runtime)"]
