import pytest

from hearth.api.manifests import Parsed, Problem
from hearth.api.validation import Identity
from hearth.cluster.local.manifests.manifest_sources import ManifestSources

CONFIG = "ConfigMap"


def manifest(name, kind=CONFIG, **fields):
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **fields}


def identity(name, kind=CONFIG):
    return Identity("v1", kind, "", name)


def parsed(file, *manifests, problems=()):
    return Parsed(file=file, manifests=list(manifests), problems=list(problems))


def problem(file, name=None):
    return Problem(file=file, identity=name and identity(name), message="wrong")


def carry_out(sources):
    """Names applied and deleted, all with success, and what is told."""
    plan = sources.plan()
    for step in plan.apply:
        sources.applied(step)
    for step in plan.delete:
        sources.deleted(step)
    names = [[step.identity.name for step in steps] for steps in (plan.apply, plan.delete)]
    return *names, [str(one) for one in plan.problems]


@pytest.fixture
def sources():
    """Two files, a.yaml with a1 and a2, b.yaml with b1, applied."""
    sources = ManifestSources()
    sources.read(parsed("a.yaml", manifest("a1"), manifest("a2")))
    sources.read(parsed("b.yaml", manifest("b1")))
    assert carry_out(sources) == (["a1", "a2", "b1"], [], [])
    assert carry_out(sources) == ([], [], [])
    return sources


def test_apply_and_delete_order():
    sources = ManifestSources()
    kinds = ("LLMService", "Other", "InferenceRuntime", "Secret", "ConfigMap")
    sources.read(parsed("a.yaml", *(manifest(kind.lower(), kind) for kind in kinds)))
    applied, _, _ = carry_out(sources)
    assert applied == ["secret", "configmap", "inferenceruntime", "other", "llmservice"]
    sources.forget("a.yaml")
    _, deleted, _ = carry_out(sources)
    assert deleted == applied[::-1]


def test_changed_added_and_removed_objects(sources):
    sources.read(parsed("a.yaml", manifest("a1", data={"k": "v"}), manifest("a3")))
    assert carry_out(sources) == (["a1", "a3"], ["a2"], [])


def test_removed_file(sources):
    sources.forget("a.yaml")
    sources.forget("never.yaml")
    assert carry_out(sources) == ([], ["a2", "a1"], [])
    assert repr(sources) == "<ManifestSources 1 files, 1 objects>"


def test_an_object_that_moves_to_another_file_is_not_deleted(sources):
    sources.read(parsed("a.yaml", manifest("a1")))
    sources.read(parsed("c.yaml", manifest("a2")))
    assert carry_out(sources) == ([], [], [])


def test_a_wrong_object_stays_as_it_was_and_the_rest_moves(sources):
    wrong = parsed("a.yaml", manifest("a1", data={"k": "v"}), problems=[problem("a.yaml", "a2")])
    assert sources.read(wrong) == wrong.problems
    assert carry_out(sources) == (["a1"], [], [])


def test_a_file_that_cannot_be_understood_stays_as_it_was(sources):
    sources.read(parsed("a.yaml", problems=[problem("a.yaml")]))
    assert carry_out(sources) == ([], [], [])
    sources.read(parsed("a.yaml", manifest("a2")))
    assert carry_out(sources) == ([], ["a1"], [])


def test_of_two_files_with_one_object_the_first_keeps_it(sources):
    sources.read(parsed("b.yaml", manifest("b1"), manifest("a1", data={"from": "b"})))
    told = "b.yaml: ConfigMap a1: is in a.yaml already, which is used; remove one of the two"
    assert carry_out(sources) == ([], [], [told])
    assert carry_out(sources) == ([], [], [])
    sources.read(parsed("a.yaml", manifest("a2")))
    assert carry_out(sources) == (["a1"], [], [])
    sources.read(parsed("a.yaml", manifest("a2"), manifest("a1")))
    applied, deleted, [told] = carry_out(sources)
    assert (applied, deleted) == (["a1"], [])
    assert told.startswith("b.yaml: ConfigMap a1")


def test_failed_step_is_planned_again(sources):
    sources.read(parsed("b.yaml", manifest("b1"), manifest("b2")))
    assert [step.identity.name for step in sources.plan().apply] == ["b2"]
    assert carry_out(sources) == (["b2"], [], [])
    sources.forget("b.yaml")
    assert [step.identity.name for step in sources.plan().delete] == ["b2", "b1"]
    assert carry_out(sources) == ([], ["b2", "b1"], [])
