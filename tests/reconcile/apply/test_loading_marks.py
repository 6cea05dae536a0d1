"""Pods that load are marked, and unmarked when they are ready, on the pods themselves."""

import pytest

from hearth import names
from hearth.cluster import kinds
from hearth.cluster.interface import Forbidden
from hearth.reconcile.apply import loading_marks
from hearth.reconcile.render.release import Release
from tests.reconcile import builders
from tests.reconcile.reconciler_fixture import KEY, ReconcilerFixture

NODE = {"spec": {"nodeName": "n1"}}
MARKED = {**loading_marks.MARKS, names.LOADING_ANNOTATION: "true"}


def pod(*, annotations=None, over=None, **how):
    metadata = {"annotations": annotations} if annotations else {}
    return builders.pod(over=builders.merged({**NODE, "metadata": metadata}, over or {}), **how)


@pytest.mark.parametrize(
    ("found", "failed", "expected"),
    [
        (pod(), False, MARKED),
        (pod(running=True), False, MARKED),
        (pod(annotations={"a": "b"}, running=True), False, MARKED),
        (pod(annotations=MARKED), False, None),
        (pod(annotations=MARKED, ready=True), False, {}),
        (pod(ready=True), False, None),
        # What will never be ready keeps no node.
        (pod(annotations=MARKED), True, {}),
        (pod(), True, None),
        # No node yet: nothing to be taken away.
        (builders.pod(), False, None),
        # What the template says stays the template's.
        (pod(annotations={"karpenter.sh/do-not-disrupt": "false"}), False,
         {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
          names.LOADING_ANNOTATION: "true"}),
        (pod(annotations=loading_marks.MARKS, ready=True), False, None),
        (pod(over={"metadata": {"deletionTimestamp": "t"}}), False, None),
        (pod(phase="Failed"), False, None),
    ],
)  # fmt: skip
def test_field_case_106_which_pods_are_marked(found, failed, expected):
    written = list(loading_marks.writes([found], failed=failed))
    assert [one["metadata"]["annotations"] for one in written] == (
        [] if expected is None else [expected]
    )
    for one in written:
        identity = {"name": "chat-1", "namespace": "ai", "uid": "pod-1"}
        assert one["metadata"].items() >= identity.items() and set(one) == {
            "apiVersion",
            "kind",
            "metadata",
        }


async def _annotations(world):
    found = await world.cluster.get(kinds.POD, "ai", "chat-1")
    return found["metadata"].get("annotations") or {}


async def test_field_case_106_marks_come_with_loading_and_go_with_ready():
    world = ReconcilerFixture(release=Release(mark_loading=True))
    await world.runtime()
    await world.user("LLMService")
    await world.reconcile_once()
    own = {"metadata": {"annotations": {"team": "a"}}}
    await world.pod(running=True, over=builders.merged(NODE, own))
    await world.reconcile_once()
    assert await _annotations(world) == MARKED | {"team": "a"}
    world.cluster.written.clear()
    await world.reconcile_once()
    assert world.cluster.written == []
    await world.pod(ready=True, over=builders.merged(NODE, own))
    await world.reconcile_once()
    assert await _annotations(world) == {"team": "a"}
    world.cluster.written.clear()
    await world.reconcile_once()
    assert world.cluster.written == []


async def test_field_case_106_off_by_default():
    world = ReconcilerFixture()
    await world.runtime()
    await world.user("LLMService")
    await world.pod(running=True, over=NODE)
    await world.reconcile_once()
    assert await _annotations(world) == {}


async def test_field_case_106_what_may_not_be_marked_is_served_all_the_same(caplog):
    world = ReconcilerFixture(release=Release(mark_loading=True))
    await world.runtime()
    await world.user("LLMService")
    await world.reconcile_once()
    world.cluster.answers["apply", "Pod"] = Forbidden("pods is forbidden")
    await world.pod(running=True, over=NODE)
    await world.reconcile_once()
    assert (await world.service())["status"]["phase"] == "Loading"
    assert world.routes.find(KEY).backends
    assert "pod not marked" in caplog.text
