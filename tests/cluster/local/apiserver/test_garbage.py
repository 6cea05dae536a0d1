from hearth.api.meta import ServiceKey
from hearth.cluster import kinds
from hearth.cluster.local.apiserver.garbage import OwnerGraph, Ref


def ref(name, namespace="ai"):
    return Ref(kinds.CONFIG_MAP, ServiceKey(namespace, name))


def manifest(uid, *owners):
    return {"metadata": {"uid": uid, "ownerReferences": [{"uid": owner} for owner in owners]}}


def test_a_dropped_owner_reference_binds_no_more():
    owners = OwnerGraph()
    owners.put(ref("o"), None, manifest("o"))
    owners.put(ref("c"), None, manifest("c", "o"))
    owners.put(ref("c"), manifest("c", "o"), manifest("c"))
    assert owners.remove(ref("o"), manifest("o")) == []


def test_owners_are_looked_for_in_ones_own_namespace_and_above_all():
    owners = OwnerGraph()
    owners.put(ref("near"), None, manifest("near"))
    owners.put(ref("far", "other"), None, manifest("far"))
    owners.put(ref("wide", ""), None, manifest("wide"))
    assert owners.living("ai", manifest("c", "near", "far", "wide", "dead")) == [
        {"uid": "near"},
        {"uid": "wide"},
    ]
    assert owners.orphan("ai", manifest("c", "far"))
    assert not owners.orphan("ai", manifest("c", "near", "far"))
    assert not owners.orphan("ai", manifest("c"))


def test_owner_graph_keeps_nothing_of_deleted_objects():
    owners = OwnerGraph()
    owners.put(ref("o"), None, manifest("o"))
    owners.put(ref("c"), None, manifest("c", "o", "p"))
    assert owners.remove(ref("o"), manifest("o")) == [ref("c")]
    assert owners.remove(ref("c"), manifest("c", "o", "p")) == []
    assert owners._alive == {}
    assert owners._dependents == {}
