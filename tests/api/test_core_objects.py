"""Secrets, ConfigMaps and claims as an API server stores them."""

import pytest
from pydantic import ValidationError

from hearth.api import core_objects


def _secret(**fields):
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, **fields}


def test_text_of_a_secret_is_stored_coded_and_wins():
    stored = core_objects.stored(
        _secret(data={"a": "b2xk", "b": "a2VwdA=="}, stringData={"a": "nëw"}, status=None)
    )
    assert stored == _secret(type="Opaque", data={"a": "bsOrdw==", "b": "a2VwdA=="})


def test_others_are_stored_as_they_are():
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a"},
        "data": {"b": "c"},
    }
    assert core_objects.stored({**config, "binaryData": None}) == config
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "weights"},
        "spec": {"accessModes": ["ReadWriteOnce"]},
    }
    assert core_objects.stored({**claim, "status": {"phase": "Bound"}}) == claim


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("Secret", {"data": {"a": "not base64!"}}),
        ("Secret", {"data": {"a": "YQ"}}),
        ("Secret", {"data": {"a": "ü"}}),
        ("Secret", {"data": {"a b": "YQ=="}}),
        ("Secret", {"stringData": {"a": 1}}),
        ("Secret", {"stringData": {"": "x"}}),
        ("Secret", {"type": 1}),
        ("ConfigMap", {"data": {"a": True}}),
        ("ConfigMap", {"binaryData": {"a": "?"}}),
        ("PersistentVolumeClaim", {}),
        ("PersistentVolumeClaim", {"spec": []}),
    ],
)
def test_what_the_api_server_refuses_is_refused(kind, fields):
    with pytest.raises(ValidationError):
        core_objects.MODELS[kind].model_validate(
            {"apiVersion": "v1", "kind": kind, "metadata": {}, **fields}
        )


def test_base64_may_be_folded():
    secret = core_objects.Secret.model_validate(_secret(data={"a": "YWFh\n  YWFh\n"}))
    assert secret.data
