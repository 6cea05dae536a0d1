import pytest

from hearth.cluster import kinds
from hearth.cluster.interface import Invalid
from hearth.cluster.local.apiserver import field_sets, merge_schema

RULES = merge_schema.of(kinds.DEPLOYMENT)


def paths(value):
    return {field_sets.format_path(path) for path in field_sets.of(value, RULES)}


@pytest.mark.parametrize(
    "value, found",
    [
        ({"spec": {"replicas": 1}}, {".spec.replicas"}),
        ({"spec": {}}, {".spec"}),
        ({"args": ["a", "b"]}, {".args"}),
        ({"nodeSelector": {"a": "b"}}, {".nodeSelector"}),
        ({"limits": {"cpu": 1, "gpu": 2}}, {".limits.cpu", ".limits.gpu"}),
        ({"env": [{"name": "A", "value": "1"}]},
         {'.env[name="A"]', '.env[name="A"].name', '.env[name="A"].value'}),
        ({"ports": [{"containerPort": 80}]},
         {'.ports[containerPort=80,protocol="TCP"]',
          '.ports[containerPort=80,protocol="TCP"].containerPort'}),
        ({"finalizers": ["a", "b"]}, {'.finalizers[="a"]', '.finalizers[="b"]'}),
        ({"env": ["no object"]}, {".env"}),
        ({"env": []}, set()),
    ],
)  # fmt: skip
def test_fields_of_a_value(value, found):
    assert paths(value) == found


def test_duplicate_list_item_is_invalid():
    with pytest.raises(Invalid, match='env: name="A" is there twice'):
        field_sets.of({"env": [{"name": "A"}, {"name": "A"}]}, RULES)


def env(*names):
    return {"env": [{"name": name, "value": name.lower()} for name in names]}


@pytest.mark.parametrize(
    "old, new, changed, removed",
    [
        ({"a": 1}, {"a": 1}, set(), set()),
        ({"a": 1}, {"a": 2}, {".a"}, set()),
        ({"a": 1}, {"b": 1}, {".b"}, {".a"}),
        ({"a": 1}, {"a": {"b": 1}}, {".a.b"}, set()),
        ({"a": {"b": 1}}, {"a": 1}, {".a"}, {".a.b"}),
        ({"args": ["a"]}, {"args": ["a", "b"]}, {".args"}, set()),
        (env("A"), env("A", "B"),
         {'.env[name="B"]', '.env[name="B"].name', '.env[name="B"].value'}, set()),
        (env("A", "B"), env("A"), set(),
         {'.env[name="B"]', '.env[name="B"].name', '.env[name="B"].value'}),
        (env("A", "B"), env("B", "A"), set(), set()),
        (env("A"), {"env": [{"name": "A", "value": "x"}]}, {'.env[name="A"].value'}, set()),
    ],
)  # fmt: skip
def test_differ(old, new, changed, removed):
    found = field_sets.differ(old, new, RULES)
    assert tuple({field_sets.format_path(path) for path in part} for part in found) == (
        changed,
        removed,
    )


@pytest.mark.parametrize(
    "live, applied, order",
    [
        ("", "AB", "AB"),
        ("AB", "BA", "BA"),
        ("AB", "C", "ABC"),
        ("AB", "CB", "ACB"),
        ("AB", "CAD", "CABD"),
        ("ABXY", "DBEY", "ADBXEY"),
        ("XY", "AYB", "XAYB"),
        ("ABC", "CA", "BCA"),
        ("XAYB", "AB", "XAYB"),
    ],
)
def test_merge_keeps_the_appliers_order(live, applied, order):
    merged = field_sets.merge(env(*live), env(*applied), RULES)
    assert "".join(item["name"] for item in merged["env"]) == order


def test_merge_changes_neither_side():
    live, applied = {"a": {"b": 1}, "args": ["x"]}, {"a": {"c": 2}, "args": ["y"]}
    assert field_sets.merge(live, applied, RULES) == {"a": {"b": 1, "c": 2}, "args": ["y"]}
    assert (live, applied) == ({"a": {"b": 1}, "args": ["x"]}, {"a": {"c": 2}, "args": ["y"]})
    assert field_sets.merge({"a": 1}, {"a": {"b": 1}}, RULES) == {"a": {"b": 1}}


def test_without_removes_fields_below_too():
    value = {"a": {"b": 1, "c": 2}, **env("A", "B"), "finalizers": ["x", "y"]}
    gone = [
        ("f:a", "f:b"),
        ("f:env", 'k:{"name":"A"}'),
        ("f:env", 'k:{"name":"B"}', "f:value"),
        ("f:finalizers", 'v:"x"'),
        ("f:nowhere",),
    ]
    left = {"a": {"c": 2}, "env": [{"name": "B"}], "finalizers": ["y"]}
    assert field_sets.without(value, gone, RULES) == left
    assert field_sets.without(value, [("f:a",), ("f:args", "f:x")], RULES).keys() == {
        "env",
        "finalizers",
    }
    assert field_sets.without({"args": ["a"]}, [("f:args", "k:x")], RULES) == {"args": ["a"]}


def test_with_parents_adds_named_fields():
    item = ("f:spec", "f:env", 'k:{"name":"A"}', "f:value")
    assert field_sets.with_parents([item]) == {
        ("f:spec",),
        ("f:spec", "f:env"),
        item,
    }


def test_fields_v1_round_trip():
    found = field_sets.of({"a": {"b": 1}, **env("A"), "empty": {}}, RULES)
    tree = field_sets.to_tree(found)
    assert tree == {
        "f:a": {"f:b": {}},
        "f:empty": {},
        "f:env": {'k:{"name":"A"}': {".": {}, "f:name": {}, "f:value": {}}},
    }
    assert field_sets.from_tree(tree) == found
    assert field_sets.from_tree({}) == field_sets.NONE
