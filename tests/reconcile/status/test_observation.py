"""Pods and Deployment as facts."""

from typing import Any

import pytest

from hearth.api.meta import Manifest
from hearth.reconcile.status import observation
from hearth.reconcile.status.observation import Observed, Stage, served_model_name
from hearth.reconcile.status.pod_failures import PodHistory
from hearth.reconcile.status.prewarm_progress import PrewarmProgress
from hearth.routes import Backend, Failure, HttpReadiness, KeyRef, TcpReadiness
from tests.reconcile.builders import WALL, observe, pod

HEALTH = HttpReadiness(path="/health", port=8000)


def named(name: str, of: Manifest) -> Manifest:
    return {**of, "metadata": {**of["metadata"], "name": name, "uid": f"uid-{name}"}}


def test_without_pods_there_is_nothing_observed():
    assert observe() == Observed(history=PodHistory())


def test_a_ready_pod_is_an_endpoint():
    got = observe(pod(ready=True, restarts=2), deployment={"spec": {"replicas": 1}})
    assert got == Observed(
        backends=(
            Backend(
                uid="pod-1/2", pod="chat-1", host="10.0.0.1", port=8000, ready=True,
                readiness=HEALTH,
            ),
        ),
        stage=Stage.READY,
        pods=1,
        ready=1,
        replicas=1,
        history=PodHistory(restarts={("pod-1", "serving"): 2}),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("over", "pods", "backends"),
    [
        ({}, 1, 1),
        ({"status": {"podIP": None}}, 1, 0),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, 0, 0),
        ({"status": {"phase": "Failed"}}, 0, 0),
        ({"status": {"phase": "Succeeded"}}, 0, 0),
    ],
)
def test_which_pods_count_and_which_are_endpoints(over: Manifest, pods: int, backends: int):
    got = observe(pod(over=over))
    assert (got.pods, len(got.backends)) == (pods, backends)


def probed(probe: Manifest | None, **spec: object) -> Manifest:
    container = {
        "name": "serving",
        "ports": [{"name": "http", "containerPort": 9000}],
        "readinessProbe": probe,
    }
    return pod(over={"spec": {"containers": [container], **spec}})


@pytest.mark.parametrize(
    ("probe", "expected"),
    [
        ({"httpGet": {"port": "http"}}, HttpReadiness(path="/", port=9000)),
        (
            {
                "httpGet": {
                    "path": "/ready",
                    "port": 9001,
                    "scheme": "HTTP",
                    "httpHeaders": [{"name": "X-A", "value": "1"}],
                },
                "timeoutSeconds": 3,
            },
            HttpReadiness(path="/ready", port=9001, headers=(("X-A", "1"),), timeout_s=3.0),
        ),
        ({"tcpSocket": {"port": "http"}}, TcpReadiness(port=9000)),
        ({"httpGet": {"port": "http", "scheme": "HTTPS"}}, None),
        ({"httpGet": {"port": "http", "host": "elsewhere"}}, None),
        ({"httpGet": {"port": "unknown"}}, None),
        ({"exec": {"command": ["true"]}}, None),
        ({"grpc": {"port": 9000}}, None),
        (None, None),
    ],
)
def test_the_readiness_probe_of_a_pod(probe: Manifest | None, expected: object):
    assert observe(probed(probe)).backends[0].readiness == expected


def test_with_readiness_gates_only_the_kubelet_s_word_counts():
    of = probed({"httpGet": {"port": "http"}}, readinessGates=[{"conditionType": "x"}])
    assert observe(of).backends[0].readiness is None


def test_field_case_130_what_an_engine_asks_for_is_the_pod_s_own():
    reference = {"secretKeyRef": {"name": "keys", "key": "token"}}
    other = {"name": "TOKEN", "valueFrom": reference}
    own = {"name": "HEARTH_ENGINE_KEY", "valueFrom": reference}
    for env, expected in (
        ([other, {"name": "A", "value": "b"}], None),
        ([other, own], KeyRef(secret="keys", key="token")),
        ([{"name": "HEARTH_ENGINE_KEY", "value": "plain"}], None),
    ):
        of = pod(over={"spec": {"containers": [{"name": "serving", "env": env}]}})
        assert observe(of).backends[0].engine_key == expected


def test_port_and_served_name_are_the_pod_s_own():
    serving = {
        "name": "serving",
        "command": ["vllm", "serve"],
        "args": ["--served-model-name=old"],
        "ports": [{"containerPort": 7000}],
    }
    of = pod(over={"spec": {"containers": [{"name": "proxy"}, serving]}})
    got = observe(of).backends[0]
    assert (got.port, got.served_name, got.readiness) == (7000, "old", None)


def test_a_pod_without_the_serving_container_has_no_readiness_probe():
    got = observe(pod(over={"spec": {"containers": []}, "status": {"containerStatuses": []}}))
    assert (got.backends[0].port, got.stage) == (0, Stage.STARTING)


UNSCHEDULED = pod(
    ip=None,
    conditions=[
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/3 nodes: Insufficient nvidia.com/gpu",
        }
    ],
)


@pytest.mark.parametrize(
    ("of", "stage", "message"),
    [
        (UNSCHEDULED, "SchedulingDelayed", "0/3 nodes: Insufficient nvidia.com/gpu"),
        (pod(conditions=[]), "Starting", ""),
        (pod(waiting={"reason": "ContainerCreating"}), "Starting", ""),
        (pod(waiting={"reason": "PodInitializing"}), "Starting", "PodInitializing"),
        (pod(waiting={"reason": "ErrImagePull", "message": "denied"}), "Starting", "denied"),
        (pod(running=True), "ModelLoading", ""),
        (pod(ready=True), "Available", ""),
    ],
)
def test_the_stage_of_a_pod(of: Manifest, stage: str, message: str):
    got = observe(of)
    assert (got.stage, got.message) == (stage, message)


@pytest.mark.parametrize(
    ("words", "claims", "message"),
    [
        (
            "0/1 nodes: pod has unbound immediate PersistentVolumeClaims",
            ["chat-cache", "weights"],
            "0/1 nodes: pod has unbound immediate PersistentVolumeClaims (the pod mounts"
            " chat-cache, weights)",
        ),
        ("pod has unbound PersistentVolumeClaims", [], "pod has unbound PersistentVolumeClaims"),
        ('PersistentVolumeClaim "weights" not found', ["weights"], None),
        ("Insufficient cpu", ["weights"], None),
    ],
)
def test_a_claim_that_a_pod_cannot_be_scheduled_for_is_named(words, claims, message):
    of = pod(
        conditions=[{"type": "PodScheduled", "status": "False", "message": words}],
        over={
            "spec": {"volumes": [{"persistentVolumeClaim": {"claimName": one}} for one in claims]}
        },
    )
    assert observe(of).message == (message or words)


def test_the_stage_is_that_of_the_most_advanced_pod():
    got = observe(named("a", UNSCHEDULED), named("b", pod(running=True)))
    assert (got.stage, got.pods, got.ready) == (Stage.LOADING, 2, 0)


def test_a_delay_of_scheduling_is_no_failure():
    assert observe(UNSCHEDULED).failure is None


BROKEN = pod(waiting={"reason": "ImagePullBackOff", "message": "denied"})
FAILED = Failure(
    reason="ImagePullFailed",
    message="container serving: denied",
    brief="container serving: its image cannot be pulled",
)


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([BROKEN], FAILED),
        ([BROKEN, pod(running=True)], None),
        ([BROKEN, pod(ready=True)], None),
        ([BROKEN, UNSCHEDULED], None),
        ([BROKEN, pod(over={"metadata": {"deletionTimestamp": "now"}})], FAILED),
        ([], None),
    ],
)
def test_a_failure_is_one_of_all_pods_while_none_is_ready(
    pods: list[Manifest], expected: Failure | None
):
    got = observe(*(named(str(number), of) for number, of in enumerate(pods)))
    assert got.failure == expected


def backing_off(name: str, pause: str, finished: str) -> Manifest:
    waiting = {
        "reason": "CrashLoopBackOff",
        "message": f"back-off {pause} restarting failed container",
    }
    last = {"terminated": {"exitCode": 1, "finishedAt": finished}}
    status = {
        "name": "serving",
        "restartCount": 3,
        "state": {"waiting": waiting},
        "lastState": last,
    }
    return named(name, pod(containerStatuses=[status]))


def test_the_failure_is_that_of_the_newest_template():
    def made(name: str, template: str, second: int, said: str) -> Manifest:
        of = pod(waiting={"reason": "ErrImageNeverPull", "message": said})
        created = f"2026-01-01T00:00:0{second}Z"
        labels = {"pod-template-hash": template}
        metadata = {**of["metadata"], "labels": labels, "creationTimestamp": created}
        return named(name, {**of, "metadata": metadata})

    first = made("a", "old", 1, "first mistake")
    second, third = made("b", "new", 2, "second mistake"), made("c", "new", 3, "the same again")
    for pods, said in (
        ((first,), "first mistake"),
        ((second, first), "second mistake"),
        ((third, second, first), "second mistake"),
    ):
        got = observe(*pods).failure
        assert got is not None and got.message == f"container serving: {said}"


def test_the_next_attempt_is_the_earliest():
    got = observe(
        backing_off("a", "40s", "2026-01-01T11:59:50Z"),
        backing_off("b", "20s", "2026-01-01T11:59:50Z"),
    )
    assert got.failure is not None
    assert got.failure.attempt_at == WALL.timestamp() + 10


def deployment(replicas: int, **condition: str) -> Manifest:
    return {"spec": {"replicas": replicas}, "status": {"conditions": [condition]}}


DEADLINE = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}


@pytest.mark.reference("noctaya:reason.ProgressDeadlineExceeded")
@pytest.mark.parametrize(
    ("of", "pods", "expected"),
    [
        (deployment(1, **DEADLINE, message="too slow"), [pod()], "ProgressDeadlineExceeded"),
        (deployment(1, **DEADLINE), [], "ProgressDeadlineExceeded"),
        (deployment(0, **DEADLINE), [], None),
        (deployment(1, **DEADLINE), [pod(ready=True)], None),
        (deployment(1, type="Progressing", status="True"), [pod()], None),
        (deployment(1, **DEADLINE), [BROKEN], "ImagePullFailed"),
    ],
)
def test_progress_deadline_exceeded_is_a_failure(
    of: Manifest, pods: list[Manifest], expected: str | None
):
    failure = observe(*pods, deployment=of).failure
    assert (failure.reason if failure else None) == expected
    assert failure is None or (failure.brief and "too slow" not in failure.brief)


QUOTA = (
    'pods "chat-5d9-x2x9z" is forbidden: exceeded quota: small, requested: limits.cpu=4,'
    " used: limits.cpu=0, limited: limits.cpu=2"
)
SECURITY = (
    'pods "chat-5d9-x2x9z" is forbidden: violates PodSecurity "restricted:latest":'
    " allowPrivilegeEscalation != false"
)
UNLIMITED = (
    'pods "chat-5d9-x2x9z" is forbidden: failed quota: small: must specify limits.cpu for: serving'
)
DENIED = 'admission webhook "policy.example.com" denied the request: no team'
AWAY = (
    'Internal error occurred: failed calling webhook "policy.example.com": Post "https://x": dial'
    " tcp 10.0.0.1:443: connect: connection refused"
)


def refused(message: str, replicas: int = 1, status: str = "True") -> Manifest:
    return deployment(
        replicas, type="ReplicaFailure", reason="FailedCreate", status=status, message=message
    )


@pytest.mark.parametrize(
    ("of", "stage", "failure"),
    [
        (refused(SECURITY), "Activating", SECURITY),
        (refused(UNLIMITED), "Activating", UNLIMITED),  # no waiting mends that
        (refused(DENIED), "Activating", DENIED),
        (refused(QUOTA), "PodsRefused", None),
        (refused(AWAY), "PodsRefused", None),
    ],
)
def test_field_case_96_and_137_every_pod_is_refused(of: Manifest, stage: str, failure: str | None):
    first = observe(deployment=of, now_s=100.0)
    assert (first.failure, first.stage.value) == (None, stage)
    assert first.message == of["status"]["conditions"][0]["message"]
    assert first.requeue_after_s == (3.0 if failure else None)
    assert observe(deployment=of, history=first.history, now_s=102.0).failure is None
    later = observe(deployment=of, history=first.history, now_s=103.0)
    assert (later.failure.message if later.failure else None) == failure
    if later.failure:
        assert later.failure.reason == "PodsRefused" and "cluster refuses" in later.failure.brief
        assert later.requeue_after_s is None
    else:
        assert first.brief


@pytest.mark.parametrize(
    ("of", "pods"),
    [
        (refused(SECURITY, status="False"), []),
        (refused(SECURITY, replicas=0), []),
        (refused(SECURITY), [pod()]),
        (None, []),
    ],
)
def test_field_case_96_is_not_for_what_wants_none_or_has_one(
    of: Manifest | None, pods: list[Manifest]
):
    first = observe(*pods, deployment=of)
    assert first.history.rejected_at_s is None and first.requeue_after_s is None
    assert observe(*pods, deployment=of, history=first.history, now_s=200.0).failure is None


def test_field_case_96_an_attempt_has_its_own_seconds():
    first = observe(deployment=refused(SECURITY), now_s=100.0)
    slept = observe(deployment=refused(SECURITY, replicas=0), history=first.history, now_s=101.0)
    again = observe(deployment=refused(SECURITY), history=slept.history, now_s=200.0)
    assert (again.failure, again.requeue_after_s) == (None, 3.0)


def test_field_case_137_a_quota_is_no_missed_deadline():
    of = refused(QUOTA)
    of["status"]["conditions"].append({"type": "Progressing", **DEADLINE, "status": "False"})
    assert observe(deployment=of).failure is None


def test_field_case_96_of_more_pods_that_are_refused_there_is_advice():
    assert observe(pod(ready=True), deployment=refused(QUOTA, replicas=3)).warnings == (
        f"the cluster lets no more pods in: {QUOTA}",
    )
    assert observe(pod(ready=True), deployment=deployment(1, type="Progressing")).warnings == ()


def test_requeue_at_the_second_observation():
    of = pod(waiting={"reason": "CreateContainerError"})
    first = observe(of)
    assert (first.failure, first.requeue_after_s) == (None, 3.0)
    second = observe(of, history=first.history, now_s=103.0)
    assert second.failure is not None
    assert second.requeue_after_s is None


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ([], None),
        (["--model=m"], None),
        (["--served-model-name=chat"], "chat"),
        (["--served-model-name", "chat", "other", "--port=1"], "chat"),
        (["--served_model_name=chat"], "chat"),
        (["--alias", "chat"], "chat"),
        (["--alias=chat,other"], "chat"),
        (["-a", "chat"], "chat"),
        (["--served-model-name=a,b"], "a,b"),
        (["--served-model-name=a", "--served-model-name=b"], "b"),
        (["--served-model-name=a", "--served-model-name"], "a"),
        (["--served-model-name", "--port=1"], None),
        (["--served-model-name=$(NAME)"], None),
        (["--served-model-name="], None),
        (["--served-model-name= "], None),
        (["--served-model-names=x"], None),
    ],
)
def test_served_model_name(args: list[str], expected: str | None):
    assert served_model_name(args) == expected


PREWARMED = {"spec": {"replicas": 1, "template": {"spec": {"initContainers": [
    {"name": "wait-for-prewarm"}]}}}}  # fmt: skip
RUNS = PrewarmProgress(message="prewarm Job chat-prewarm runs")
PREWARM_FAILED = PrewarmProgress(failure=Failure(reason="PrewarmFailed", message="Job failed"))


def waiting(**state: Any) -> Manifest:
    init = [{"name": "wait-for-prewarm", "restartCount": 0, "state": state}]
    return pod(waiting={"reason": "PodInitializing"}, initContainerStatuses=init)


def prewarmed(*pods: Manifest, prewarm: PrewarmProgress, deployment: Manifest = PREWARMED):
    return observation.observe(deployment, pods, history=PodHistory(), now_s=100.0, prewarm=prewarm)


def test_a_pod_that_waits_for_its_weights_says_so_and_has_not_failed():
    got = prewarmed(waiting(running={}), prewarm=RUNS)
    assert (got.stage, got.message) == (Stage.PREWARMING, "prewarm Job chat-prewarm runs")
    assert got.failure is None
    assert got.brief == "its weights are being fetched"


def test_a_pod_that_waits_though_no_job_runs():
    got = prewarmed(waiting(running={}), prewarm=PrewarmProgress())
    assert got.stage is Stage.PREWARMING
    assert "delete the prewarm Job to run it again" in got.message


def test_a_pod_that_has_waited_starts_and_loads_as_any_other():
    done = waiting(terminated={"exitCode": 0})
    assert prewarmed(done, prewarm=PrewarmProgress()).stage is Stage.STARTING


def test_before_there_is_a_pod_the_job_is_what_is_waited_for():
    got = prewarmed(prewarm=RUNS)
    assert (got.stage, got.message, got.prewarm) == (Stage.PREWARMING, RUNS.message, RUNS.message)


def test_where_nothing_waits_the_job_holds_up_nothing():
    got = prewarmed(prewarm=RUNS, deployment={})
    assert (got.stage, got.message, got.prewarm) == (Stage.NONE, "", RUNS.message)


def test_a_failed_job_is_a_failure_where_pods_wait_for_it():
    for pods in ([], [waiting(running={})]):
        got = prewarmed(*pods, prewarm=PREWARM_FAILED)
        assert got.failure == PREWARM_FAILED.failure
    serving = prewarmed(pod(ready=True), prewarm=PREWARM_FAILED)
    assert (serving.failure, serving.warnings) == (None, ("Job failed",))


def test_where_nothing_waits_a_failed_job_is_a_warning():
    got = prewarmed(prewarm=PREWARM_FAILED, deployment={})
    assert (got.failure, got.warnings) == (None, ("Job failed",))


LATE = {
    **PREWARMED,
    "status": {"conditions": [{
        "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded",
        "lastUpdateTime": "2026-01-01T12:00:00Z",
    }]},
}  # fmt: skip


@pytest.mark.parametrize(
    ("state", "late"),
    [
        ({"running": {}}, False),
        ({"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T12:00:01Z"}}, False),
        ({"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T11:00:00Z"}}, True),
    ],
)
def test_to_wait_for_weights_takes_as_long_as_it_takes(state: Manifest, late: bool):
    got = prewarmed(waiting(**state), prewarm=RUNS, deployment=LATE)
    assert (got.failure is not None) is late
