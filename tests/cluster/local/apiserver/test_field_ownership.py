"""What the contract suite does not reach: books of one object, step by step."""

import pytest

from hearth.cluster import kinds
from hearth.cluster.interface import Conflict
from hearth.cluster.local.apiserver import field_ownership
from hearth.cluster.local.apiserver.field_ownership import Owner

ONE, TWO = Owner("one", "Apply"), Owner("two", "Apply")
LIVE = {"metadata": {"name": "c"}}


def apply(live, books, applied, owner, *, force=True):
    return field_ownership.apply(kinds.DEPLOYMENT, live, books, applied, owner=owner, force=force)


def owned(books):
    return {str(o): sorted(".".join(s[2:] for s in p) for p in f) for o, f in books.items()}


def test_a_named_field_goes_with_its_last_part_and_with_what_nobody_owns_inside():
    live, books = apply(LIVE, {}, {"spec": {"strategy": {"type": "Recreate"}}}, ONE)
    live["spec"]["strategy"]["default"] = "unowned"
    live, books = apply(live, books, {"spec": {"replicas": 1}}, ONE)
    assert live["spec"] == {"replicas": 1}
    assert owned(books) == {'"one"': ["spec.replicas"]}


def test_what_stood_in_a_removed_item_is_nobodys():
    item = {"name": "a", "image": "b"}
    live, books = apply(LIVE, {}, {"containers": [item]}, ONE)
    live = {**live, "containers": [{**item, "args": ["x"]}]}
    update = Owner("someone", "Update")
    _, books = field_ownership.update(
        kinds.DEPLOYMENT, {**live, "containers": [item]}, books, live, owner=update
    )
    assert owned(books)['"someone"'] == ['containers.{"name":"a"}.args']
    live, books = apply(live, books, {"containers": [{"name": "z", "image": "b"}]}, ONE)
    assert [c["name"] for c in live["containers"]] == ["z"]
    assert list(books) == [ONE]


def test_all_conflicts_are_named():
    live, books = apply(LIVE, {}, {"spec": {"replicas": 1, "paused": True}}, ONE)
    wanted = {"spec": {"replicas": 2, "paused": False}}
    with pytest.raises(Conflict) as raised:
        apply(live, books, wanted, TWO, force=False)
    assert str(raised.value) == (
        'Apply failed with 2 conflicts: conflict with "one" using apps/v1: '
        ".spec.paused, .spec.replicas"
    )


def test_an_entry_keeps_its_time_while_its_fields_stay():
    _, books = apply(LIVE, {}, {"spec": {"replicas": 1}}, ONE)
    kind = kinds.DEPLOYMENT
    first = field_ownership.written(books, kind, before=None, now="t1")
    before = {"metadata": {"managedFields": first}}
    assert field_ownership.read(before) == books
    _, more = apply({**LIVE, "spec": {"replicas": 1}}, books, {"spec": {"paused": True}}, TWO)
    second = field_ownership.written(more, kind, before=before, now="t2")
    assert [entry["time"] for entry in second] == ["t1", "t2"]
    assert second[0] is first[0]


def test_scale_books_only_what_somebody_owned():
    scaler = Owner("keda", "Update", "scale")
    assert field_ownership.scale({}, 3, owner=scaler) == {}
    books = {ONE: frozenset({field_ownership.REPLICAS})}
    assert field_ownership.scale(books, 3, owner=scaler) == {
        scaler: frozenset({field_ownership.REPLICAS})
    }
    assert field_ownership.scale(books, 0, owner=scaler) == {}
    assert str(scaler) == '"keda" with subresource "scale"'
