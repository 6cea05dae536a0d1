import pytest

from hearth.cluster.local.controllers import jobs
from tests.cluster.local.controllers.workloads_of import NOW, at, job, names, pod, spelled


def decide(owner, *pods, now=NOW):
    return jobs.decide(owner, list(pods), now=now)


def ended(name, phase="Failed", *, ago=0, **kwargs):
    state = {"state": {"terminated": {"exitCode": 1, "finishedAt": spelled(-ago)}}}
    return pod(name, phase=phase, containerStatuses=[state], **kwargs)


def conditions(decision):
    return [(c["type"], c["reason"]) for c in decision.status.get("conditions", ())]


def test_job_creates_a_pod():
    decision = decide(job())
    [made] = decision.create
    assert made["metadata"]["generateName"] == "fill-"
    assert made["metadata"]["labels"] == {jobs.NAME_LABEL: "fill", jobs.UID_LABEL: "j"}
    assert decision.status == {"startTime": spelled()}


def test_job_waits_for_its_pod():
    started = {"startTime": spelled(-60)}
    decision = decide(job(status=started), pod("a", ready=1))
    assert (decision.create, decision.delete) == ([], [])
    assert decision.status == {**started, "active": 1, "ready": 1}
    assert decision.requeue_after_s is None


def test_job_complete():
    decision = decide(job(), ended("a", "Succeeded"), pod("b"))
    assert conditions(decision) == [("Complete", "CompletionsReached")]
    assert names(decision.delete) == ["b"]
    assert decision.status["succeeded"] == 1
    assert decision.status["completionTime"] == spelled()
    assert "active" not in decision.status
    done = job(status=decision.status)
    assert jobs.finished(done)
    assert decide(done, ended("a", "Succeeded")).status == decision.status
    assert decide(done).create == []


@pytest.mark.parametrize(
    "restarts, limit, failed", [(1, 2, False), (2, 2, True), (1, 0, True), (0, 0, False)]
)
def test_container_restarts_count_towards_backoff_limit(restarts, limit, failed):
    running = pod("a", containerStatuses=[{"restartCount": restarts}])
    decision = decide(job(backoffLimit=limit), running)
    assert bool(conditions(decision)) is failed
    assert names(decision.delete) == (["a"] if failed else [])
    assert decision.status.get("failed", 0) == (1 if failed else 0)


def test_container_restarts_do_not_count_with_restart_policy_never():
    running = pod("a", containerStatuses=[{"restartCount": 9}])
    running["spec"]["restartPolicy"] = "Never"
    assert conditions(decide(job(restart="Never"), running)) == []


def test_retry_pod_after_a_back_off():
    owner = job(restart="Never")
    early = decide(owner, ended("a", ago=4))
    assert (early.create, early.requeue_after_s) == ([], 6.0)
    assert early.status["failed"] == 1
    assert len(decide(owner, ended("a", ago=10)).create) == 1
    twice = decide(owner, ended("a", ago=50), ended("b", ago=15))
    assert (twice.create, twice.requeue_after_s) == ([], 5.0)
    assert decide(owner, ended("a", ago=99), ended("b", ago=0), pod("c")).requeue_after_s is None


def test_backoff_limit_exceeded():
    owner = job(restart="Never", backoffLimit=1)
    decision = decide(owner, ended("a", ago=99), ended("b", ago=9))
    assert conditions(decision) == [("Failed", "BackoffLimitExceeded")]
    assert decision.status["failed"] == 2
    assert jobs.finished(job(status=decision.status))


def test_back_off_of_a_pod_that_never_ran():
    decision = decide(job(restart="Never"), pod("a", phase="Failed", age=3))
    assert decision.requeue_after_s == 7.0


def test_failed_count_never_falls():
    status = {"startTime": spelled(-99), "failed": 1}
    assert decide(job(status=status)).status["failed"] == 1
    assert len(decide(job(status=status)).create) == 1


def test_active_deadline_seconds():
    started = job(activeDeadlineSeconds=100, status={"startTime": spelled()})
    assert decide(started, pod("a"), now=at(60)).requeue_after_s == 40.0
    decision = decide(started, pod("a"), now=at(100))
    assert conditions(decision) == [("Failed", "DeadlineExceeded")]
    assert names(decision.delete) == ["a"]


def test_parallelism_and_suspend():
    owner = job(parallelism=3, completions=4)
    assert len(decide(owner).create) == 3
    assert len(decide(owner, *[ended(n, "Succeeded") for n in "abc"]).create) == 1
    assert names(decide(job(suspend=True), pod("a")).delete) == ["a"]
    assert decide(job(suspend=True)).create == []


def test_deleted_pods_are_replaced_but_not_of_a_deleted_job():
    assert len(decide(job(), pod("a", leaving=True)).create) == 1
    going = job()
    going["metadata"]["deletionTimestamp"] = spelled()
    assert decide(going).create == []
