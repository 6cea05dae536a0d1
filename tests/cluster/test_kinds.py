"""The kinds, by what a manifest says of itself."""

import pytest

from hearth.cluster import kinds


@pytest.mark.parametrize("kind", kinds.ALL, ids=str)
def test_kind_of_a_manifest(kind):
    assert kinds.of({"apiVersion": kind.api_version, "kind": kind.kind}) == kind


def test_kind_names():
    assert str(kinds.DEPLOYMENT) == "deployments.apps" and str(kinds.POD) == "pods"
    assert kinds.POD.api_version == "v1"
    assert [str(kind) for kind in kinds.CUSTOM] == [
        "llmservices.serving.hearth.dev",
        "inferenceruntimes.serving.hearth.dev",
        "llmservices.serving.noctaya.io",
        "inferenceruntimes.serving.noctaya.io",
    ]
    assert [kind.namespaced for kind in kinds.CUSTOM] == [True, False, True, False]


def test_an_unknown_kind_is_an_error():
    with pytest.raises(KeyError):
        kinds.of({"apiVersion": "v1", "kind": "Node"})
