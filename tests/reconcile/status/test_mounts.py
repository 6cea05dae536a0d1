"""What a pod waits for before its first container."""

from hearth.reconcile.status import mounts, pod_failures
from tests.reconcile.builders import observe, pod

PREPARING = {"type": "PodReadyToStartContainers", "status": "False"}
CLAIM = {"name": "model-cache", "persistentVolumeClaim": {"claimName": "chat-cache"}}
VOLUMES = [
    {"name": "dshm", "emptyDir": {}},
    CLAIM,
    {"name": "driver", "hostPath": {"path": "/usr/local/Ascend/driver"}},
    {"name": "keys", "secret": {"secretName": "pull"}},
    {"name": "settings", "configMap": {"name": "engine"}},
]


def preparing(*volumes):
    return pod(conditions=[PREPARING], over={"spec": {"volumes": list(volumes)}})


def test_every_volume_that_a_node_has_to_mount_is_named():
    assert mounts.waits_for(preparing(*VOLUMES)) == (
        "the pod waits for its node to mount PersistentVolumeClaim chat-cache and"
        " /usr/local/Ascend/driver of the node and Secret pull and ConfigMap engine, or to make its"
        " network; see the Events of pod chat-1 (kubectl describe pod)"
    )
    assert mounts.waits_for(pod()).startswith("the pod waits for its node to make its network; see")


def test_a_pod_without_volumes_mounts_no_claim():
    assert mounts.claims(pod()) == []
    assert mounts.claims(preparing(*VOLUMES)) == ["chat-cache"]


def test_only_a_mount_that_lasts_is_told_and_it_is_told_by_itself():
    of = preparing(CLAIM)
    first = observe(of, now_s=100.0)
    assert (first.stage, first.message, first.brief) == ("Starting", "", "")
    assert first.requeue_after_s == mounts.PATIENCE_S
    later = observe(of, history=first.history, now_s=104.0)
    assert (later.message, later.requeue_after_s) == ("", mounts.PATIENCE_S - 4.0)
    last = observe(of, history=later.history, now_s=110.0)
    assert "mount PersistentVolumeClaim chat-cache, or" in last.message
    assert (last.requeue_after_s, last.brief) == (None, mounts.BRIEF)


def test_a_pod_that_is_prepared_waits_for_no_mount():
    told = observe(preparing(CLAIM), history=pod_failures.PodHistory(), now_s=0.0)
    ready = pod(conditions=[{**PREPARING, "status": "True"}])
    assert observe(ready, history=told.history, now_s=60.0).message == ""
    pulling = pod(waiting={"reason": "ErrImagePull", "message": "denied"}, conditions=[PREPARING])
    assert observe(pulling, history=told.history, now_s=60.0).message == "denied"
