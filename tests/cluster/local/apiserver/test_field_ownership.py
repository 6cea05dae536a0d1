"""What the contract suite does not reach: managed of one object, step by step."""

import pytest

from hearth.cluster import kinds
from hearth.cluster.interface import Conflict
from hearth.cluster.local.apiserver import field_ownership
from hearth.cluster.local.apiserver.field_ownership import Owner

ONE, TWO = Owner("one", "Apply"), Owner("two", "Apply")
LIVE = {"metadata": {"name": "c"}}


def apply(live, managed, applied, owner, *, force=True):
    return field_ownership.apply(kinds.DEPLOYMENT, live, managed, applied, owner=owner, force=force)


def owned(managed):
    return {str(o): sorted(".".join(s[2:] for s in p) for p in f) for o, f in managed.items()}


def test_apply_removes_a_field_with_its_last_owned_part():
    live, managed = apply(LIVE, {}, {"spec": {"strategy": {"type": "Recreate"}}}, ONE)
    live["spec"]["strategy"]["default"] = "unowned"
    live, managed = apply(live, managed, {"spec": {"replicas": 1}}, ONE)
    assert live["spec"] == {"replicas": 1}
    assert owned(managed) == {'"one"': ["spec.replicas"]}


def test_apply_releases_fields_inside_a_removed_item():
    item = {"name": "a", "image": "b"}
    live, managed = apply(LIVE, {}, {"containers": [item]}, ONE)
    live = {**live, "containers": [{**item, "args": ["x"]}]}
    update = Owner("someone", "Update")
    _, managed = field_ownership.update(
        kinds.DEPLOYMENT, {**live, "containers": [item]}, managed, live, owner=update
    )
    assert owned(managed)['"someone"'] == ['containers.{"name":"a"}.args']
    live, managed = apply(live, managed, {"containers": [{"name": "z", "image": "b"}]}, ONE)
    assert [c["name"] for c in live["containers"]] == ["z"]
    assert list(managed) == [ONE]


def test_apply_conflict_names_every_field():
    live, managed = apply(LIVE, {}, {"spec": {"replicas": 1, "paused": True}}, ONE)
    wanted = {"spec": {"replicas": 2, "paused": False}}
    with pytest.raises(Conflict) as raised:
        apply(live, managed, wanted, TWO, force=False)
    assert str(raised.value) == (
        'Apply failed with 2 conflicts: conflict with "one" using apps/v1: '
        ".spec.paused, .spec.replicas"
    )


def test_managed_fields_entry_keeps_its_time():
    _, managed = apply(LIVE, {}, {"spec": {"replicas": 1}}, ONE)
    kind = kinds.DEPLOYMENT
    first = field_ownership.written(managed, kind, before=None, now="t1")
    before = {"metadata": {"managedFields": first}}
    assert field_ownership.read(before) == managed
    _, more = apply({**LIVE, "spec": {"replicas": 1}}, managed, {"spec": {"paused": True}}, TWO)
    second = field_ownership.written(more, kind, before=before, now="t2")
    assert [entry["time"] for entry in second] == ["t1", "t2"]
    assert second[0] is first[0]


def test_scale_takes_only_owned_replicas():
    scaler = Owner("keda", "Update", "scale")
    assert field_ownership.scale({}, 3, owner=scaler) == {}
    managed = {ONE: frozenset({field_ownership.REPLICAS})}
    assert field_ownership.scale(managed, 3, owner=scaler) == {
        scaler: frozenset({field_ownership.REPLICAS})
    }
    assert field_ownership.scale(managed, 0, owner=scaler) == {}
    assert str(scaler) == '"keda" with subresource "scale"'
