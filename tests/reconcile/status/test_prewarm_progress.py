"""What is told of the Job that fetches weights."""

from typing import Any

import pytest

from hearth.api.meta import Manifest
from hearth.reconcile.status import prewarm_progress
from hearth.reconcile.status.prewarm_progress import PrewarmProgress
from hearth.routes import Failure
from tests.reconcile.builders import merged

AGAIN = (
    "delete the Job to run it again (kubectl -n ai delete job chat-prewarm; of hearth local: start"
    " that again)"
)


def job(*conditions: Manifest, theirs: bool = False, **spec: Any) -> Manifest:
    annotations = {} if theirs else {"serving.hearth.dev/spec-hash": "h"}
    return {
        "metadata": {
            "name": "chat-prewarm",
            "namespace": "ai",
            "uid": "job-1",
            "creationTimestamp": "2026-01-01T12:00:00Z",
            "annotations": annotations,
        },
        "spec": spec,
        "status": {"conditions": list(conditions)},
    }


def condition(kind: str, **said: str) -> Manifest:
    return {"type": kind, "status": "True", **said}


COMPLETE = job(condition("Complete"))
FAILED = job(condition("Failed", reason="BackoffLimitExceeded", message="it reached the limit"))


def pod(*, name: str = "p", init: bool = False, over: Manifest | None = None, **state: Any):
    status: Manifest = {"name": "pull-oci-model" if init else "prewarm", "state": state}
    base = {
        "metadata": {"name": name, "creationTimestamp": "2026-01-01T12:00:01Z"},
        "spec": {"volumes": [{"persistentVolumeClaim": {"claimName": "chat-cache"}}]},
        "status": {"initContainerStatuses" if init else "containerStatuses": [status]},
    }
    return merged(base, over or {})


def unscheduled(**said: str) -> Manifest:
    condition = {"type": "PodScheduled", "status": "False", **said}
    return pod(over={"status": {"conditions": [condition], "containerStatuses": []}})


def ended(message: str = "", code: int = 1) -> Manifest:
    return {"exitCode": code, "message": message}


RUNS = "prewarm Job chat-prewarm runs: its pod p "


@pytest.mark.parametrize(
    ("of", "pods", "message"),
    [
        (None, [], ""),
        (COMPLETE, [], ""),
        (job(), [], "prewarm Job chat-prewarm has no pod yet (kubectl -n ai describe job chat-pre"),
        (job(), [pod(over={"metadata": {"deletionTimestamp": "x"}})], "prewarm Job chat-prewarm"),
        (job(suspend=True), [], "prewarm Job chat-prewarm is suspended: whoever"),
        (job(theirs=True), [], "prewarm Job chat-prewarm runs, which another controller made"),
        (job(), [unscheduled(message="0/3 nodes")], f"{RUNS}is not scheduled: 0/3 nodes"),
        (job(), [unscheduled()], f"{RUNS}is not scheduled: nobody says why"),
        (
            job(),
            [unscheduled(message="pod has unbound immediate PersistentVolumeClaims")],
            f"{RUNS}is not scheduled: pod has unbound immediate PersistentVolumeClaims (the pod"
            " mounts chat-cache)",
        ),
        (job(), [pod()], f"{RUNS}starts"),
        (job(), [pod(waiting={"reason": "PodInitializing"})], f"{RUNS}starts"),
        (
            job(),
            [pod(waiting={"reason": "ContainerCreating"})],
            f"{RUNS}waits for its volumes, or for its image",
        ),
        (job(), [pod(running={})], f"{RUNS}writes them to the cache"),
        (job(), [pod(running={}, init=True)], f"{RUNS}pulls them from the registry"),
        (
            job(),
            [pod(running={}, over={"status": {"containerStatuses": [
                {"name": "istio", "state": {"running": {}}}]}})],
            f"{RUNS}runs istio",
        ),
        (
            job(),
            [pod(waiting={"reason": "ImagePullBackOff", "message": "no such image"})],
            f"{RUNS}cannot start container prewarm: ImagePullBackOff: no such image",
        ),
        (
            job(),
            [pod(waiting={"reason": "InvalidImageName"}, init=True)],
            f"{RUNS}cannot start container pull-oci-model: InvalidImageName",
        ),
        (
            job(),
            [pod(terminated=ended("fetches it\n401  from the hub"))],
            f'{RUNS}failed in container prewarm and is started again; it said last: "401 from the'
            ' hub"',
        ),
        (
            job(),
            [pod(waiting={"reason": "CrashLoopBackOff"})],
            f"{RUNS}failed in container prewarm and is started again",
        ),
        (job(), [pod(terminated=ended(code=0))], f"{RUNS}starts"),
    ],
)  # fmt: skip
def test_what_a_job_does(of: Manifest | None, pods: list[Manifest], message: str):
    got = prewarm_progress.observe(of, pods)
    assert got.message.startswith(message) if message else got == PrewarmProgress()
    assert got.failure is None


def test_the_youngest_pod_counts():
    old = pod(name="a", running={}, over={"metadata": {"creationTimestamp": "2026-01-01"}})
    assert "its pod p starts" in prewarm_progress.observe(job(), [pod(), old]).message


def failure(told: str) -> Failure:
    return Failure(
        reason="PrewarmFailed",
        message=f"Job chat-prewarm {told}; {AGAIN}",
        brief="its weights could not be fetched",
    )


@pytest.mark.parametrize(
    ("of", "told"),
    [
        (FAILED, "failed: it reached the limit"),
        (job(condition("Failed", reason="DeadlineExceeded")), "failed: DeadlineExceeded"),
        (job(condition("Failed")), "failed: it does not say why"),
    ],
)
def test_a_job_that_failed(of: Manifest, told: str):
    assert prewarm_progress.observe(of) == PrewarmProgress(failure=failure(told))


def test_field_case_85_what_the_program_said_last_is_told():
    words = "401 from huggingface.co: the token is missing"
    crashed = pod(waiting={"reason": "CrashLoopBackOff"})
    crashed["status"]["containerStatuses"][0]["lastState"] = {"terminated": ended(words)}
    seen = prewarm_progress.observe(job(), [crashed])
    assert seen.said == words
    # When a Job fails, its pods go.
    got = prewarm_progress.observe(FAILED, [], said=seen.said)
    assert got.failure == failure(f'failed: it said last: "{words}"')
    # Another leader has not heard it, and finds it in the status.
    assert prewarm_progress.said_in(["Healthy", got.failure.message]) == words
    assert prewarm_progress.said_in([seen.message]) == words
    assert prewarm_progress.said_in(["nobody asks"]) == ""


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("fetches org/model\nthe hub is away; tries again\nthe hub is away\n\n", "the hub is away"),
        ("Error: no key\nPlease  check the file\n", "Error: no key Please check the file"),
        ("Error: before\nError: then\n", "Error: then"),
        (" \n", ""),
    ],
)  # fmt: skip
def test_of_a_log_only_the_error_is_told(log: str, said: str):
    assert prewarm_progress.observe(job(), [pod(terminated=ended(log))]).said == said


def test_long_words_are_cut_to_their_end():
    got = prewarm_progress.observe(job(), [pod(terminated=ended("x" * 900 + "end"))])
    assert len(got.said) == 500
    assert got.said.endswith("end")


@pytest.mark.parametrize(
    ("claim_created", "empty"),
    [("2026-01-01T11:00:00Z", False), ("2026-01-01T12:00:00Z", False),
     ("2026-01-01T12:00:01Z", True)],
)  # fmt: skip
def test_a_claim_that_is_younger_than_its_job_is_empty(claim_created: str, empty: bool):
    claim = {"metadata": {"creationTimestamp": claim_created}}
    got = prewarm_progress.observe(COMPLETE, claim=claim)
    told = failure("filled a claim that is gone; the one that there is now is empty")
    assert got == PrewarmProgress(failure=told if empty else None)
