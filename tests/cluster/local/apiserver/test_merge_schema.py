import pytest

from hearth.api import groups
from hearth.cluster import kinds
from hearth.cluster.local.apiserver import merge_schema


@pytest.mark.parametrize(
    "kind, field, keys",
    [
        (kinds.POD, "containers", ("name",)),
        (kinds.POD, "ports", ("containerPort", "protocol")),
        (kinds.POD, "tolerations", None),
        (kinds.POD, "containerStatuses", None),
        (kinds.POD, "conditions", ("type",)),
        (kinds.JOB, "conditions", None),
        (kinds.SERVICE, "ports", ("port", "protocol")),
        (kinds.SCALED_OBJECT, "triggers", None),
        (kinds.SCALED_OBJECT, "conditions", None),
        (kinds.llm_service(groups.HEARTH), "conditions", ("type",)),
        (kinds.llm_service(groups.NOCTAYA), "env", None),
        *((kind, "ownerReferences", ("uid",)) for kind in kinds.ALL),
        *((kind, "finalizers", merge_schema.SET) for kind in kinds.ALL),
    ],
)
def test_merge_keys_of_lists(kind, field, keys):
    assert merge_schema.of(kind).keys(field) == keys


@pytest.mark.parametrize(
    "kind, field, atomic",
    [
        (kinds.DEPLOYMENT, "selector", True),
        (kinds.DEPLOYMENT, "secretKeyRef", True),
        (kinds.DEPLOYMENT, "limits", False),
        (kinds.llm_service(groups.HEARTH), "selector", False),
    ],
)
def test_atomic_maps(kind, field, atomic):
    assert merge_schema.of(kind).atomic(field) is atomic


@pytest.mark.parametrize(
    "item, keys, found",
    [
        ({"name": "a"}, ("name",), ("a",)),
        ({"containerPort": 1}, ("containerPort", "protocol"), (1, "TCP")),
        ({"containerPort": 1, "protocol": "UDP"}, ("containerPort", "protocol"), (1, "UDP")),
        ({"value": "a"}, ("name",), None),
        ("a", ("name",), None),
        ("a", merge_schema.SET, ("a",)),
    ],
)
def test_item_keys(item, keys, found):
    assert merge_schema.item_key(item, keys) == found


def test_kinds_with_status_and_generation():
    assert {k.kind for k in kinds.ALL if not merge_schema.has_status(k)} == {
        "Secret",
        "ConfigMap",
        "Event",
        "Lease",
    }
    status = {k for k in kinds.ALL if merge_schema.has_status(k)}
    counted = {k for k in kinds.ALL if merge_schema.has_generation(k)}
    assert {k.kind for k in status - counted} == {"Service", "PersistentVolumeClaim"}
