"""Which objects another controller applied, and what of them is kept."""

import pytest

from hearth import names
from hearth.reconcile.apply import takeover
from hearth.reconcile.render import desired
from hearth.reconcile.render.release import Release
from tests.reconcile import builders
from tests.reconcile.builders import UID, find, merged, render, runtime, service

OWNER = {"f:metadata": {"f:ownerReferences": {f'k:{{"uid":"{UID}"}}': {}}}}
OTHERS = {"f:metadata": {"f:ownerReferences": {'k:{"uid":"of another"}': {}}}}


def entry(manager="noctaya-operator", fields=OWNER, **more):
    return {"manager": manager, "operation": "Apply", "fieldsV1": fields, **more}


def observed(*entries, uid=UID, selector=None):
    owner = {"kind": "LLMService", "name": "chat", "uid": uid, "controller": True}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "chat",
            "namespace": "ai",
            "uid": "d-1",
            "ownerReferences": [owner],
            **({"managedFields": list(entries)} if entries else {}),
        },
        "spec": {"selector": selector or {}},
    }


MANAGERS = [
    ((), ()),
    ((entry(),), ("noctaya-operator",)),
    ((entry("a"), entry("b")), ("a", "b")),
    ((entry(names.MANAGER),), ()),
    ((entry(names.REPLICAS_MANAGER), entry(names.LOADING_MANAGER)), ()),
    ((entry(operation="Update"),), ()),  # what created it, or changed a field once
    ((entry(subresource="status"),), ()),
    ((entry("kubectl", {"f:metadata": {"f:annotations": {"f:note": {}}}}),), ()),  # a person
    ((entry(fields=None),), ()),
    ((entry(fields=OTHERS),), ()),
]


@pytest.mark.parametrize(("entries", "found"), MANAGERS)
def test_who_applied_an_object_as_its_controller(entries, found):
    assert takeover.former_managers(service(), observed(*entries)) == found


def test_a_service_that_is_only_rendered_has_no_former_controller():
    fields = {"f:metadata": {"f:ownerReferences": {'k:{"uid":""}': {}}}}
    assert takeover.former_managers(service(uid=""), observed(entry(fields=fields))) == ()


@pytest.mark.parametrize(("entries", "found"), MANAGERS)
def test_a_cache_keeps_managed_fields_only_where_they_matter(entries, found):
    kept = takeover.trim_managed_fields(observed(*entries))
    assert takeover.former_managers(service(), kept) == found
    if not found and OTHERS not in [one["fieldsV1"] for one in entries]:
        assert "managedFields" not in kept["metadata"]
    assert kept["metadata"]["uid"] == "d-1"


@pytest.mark.parametrize(
    ("fields", "owns"),
    [
        ({"f:spec": {"f:replicas": {}}}, True),
        ({"f:spec": {"f:template": {}}}, False),
        ({}, False),
    ],
)
def test_whether_a_former_controller_applied_replicas(fields, owns):
    of = observed(entry("a", fields), entry("b", {"f:spec": {"f:replicas": {}}}))
    assert takeover.owns_replicas(of, ("a",)) is owns


THEIRS = {"matchLabels": {"app.kubernetes.io/managed-by": "noctaya", "x": "y"}}


@pytest.mark.parametrize(
    ("deployment", "kept"),
    [
        (None, None),
        (observed(selector=THEIRS), THEIRS),
        (observed(selector=THEIRS, uid="of another"), None),
        (observed(selector={"matchLabels": names.selector(builders.service().key)}), None),
    ],
)
def test_which_selector_is_kept(deployment, kept):
    assert takeover.kept_selector(service(), deployment) == kept


def test_pods_bear_the_labels_of_both_and_the_immutable_ones_win():
    found = find(desired_with(THEIRS), "Deployment")
    ours = find(render(), "Deployment")
    assert found["spec"]["selector"] == THEIRS
    labels = found["spec"]["template"]["metadata"]["labels"]
    own = ours["spec"]["template"]["metadata"]["labels"]
    assert labels == {**own, **THEIRS["matchLabels"]}
    assert found["metadata"]["labels"] == ours["metadata"]["labels"]
    hashes = [m["metadata"]["annotations"][names.HASH_ANNOTATION] for m in (found, ours)]
    assert hashes[0] != hashes[1]


def test_what_selects_pods_selects_those_of_a_kept_selector_too():
    found = desired_with(THEIRS, backend_guard="policy")
    labels = find(found, "Deployment")["spec"]["template"]["metadata"]["labels"]
    of_pods = [
        find(found, "Service", "chat-backend")["spec"]["selector"],
        find(found, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ]
    for selector in of_pods:
        assert selector.items() <= labels.items()


def test_pods_of_the_second_group_bear_its_own_labels():
    of, by = service(group="serving.noctaya.io"), runtime(group="serving.noctaya.io")
    found = find(render(of, by), "Deployment")
    labels = {"serving.noctaya.io/llmservice": "chat", "serving.noctaya.io/runtime": "stub"}
    assert found["spec"]["template"]["metadata"]["labels"].items() >= labels.items()
    assert not found["spec"]["selector"]["matchLabels"].keys() & labels.keys()
    assert "noctaya" not in str(find(render(), "Deployment"))


def desired_with(selector, **release):
    secret = {"secretRef": {"name": "keys", "key": "token"}}
    of = service({"endpoint": {"authentication": secret}})
    return desired.render(of, runtime(), release=Release(**release), selector=selector)


def test_identity_alone():
    of = merged(observed(entry()), {"metadata": {"labels": {"a": "b"}}})
    metadata = {"name": "chat", "namespace": "ai", "uid": "d-1"}
    assert takeover.bare(of) == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
    }
