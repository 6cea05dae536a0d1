"""Why one pod cannot start, and when waiting on makes no sense."""

import pytest

from hearth.api.meta import Manifest
from hearth.reconcile.status import pod_failures
from hearth.reconcile.status.pod_failures import Diagnosis, PodHistory
from hearth.routes import Failure
from tests.reconcile.builders import WALL, merged, pod

KEY = ("pod-1", "serving")


def diagnosed(of: Manifest, history: PodHistory | None = None, *, now_s: float = 100.0):
    history = pod_failures.update_history(history or PodHistory(), [of], now_s=now_s)
    return pod_failures.diagnose(of, history, now_s=now_s), history


def waits(reason: str, message: str = "") -> Manifest:
    return pod(waiting={"reason": reason, **({"message": message} if message else {})})


def status(**said: object) -> Manifest:
    return pod(containerStatuses=[{"name": "serving", "restartCount": 0, **said}])


def no_image(container: str, said: str) -> Failure:
    return Failure(
        reason="ImagePullFailed",
        message=f"container {container}: {said}",
        brief=f"container {container}: its image cannot be pulled",
    )


@pytest.mark.reference("noctaya:reason.ImagePullFailed")
@pytest.mark.parametrize("reason", ["InvalidImageName", "ErrImageNeverPull", "ImagePullBackOff"])
def test_an_image_that_cannot_be_pulled_fails_at_once(reason: str):
    diagnosis, _ = diagnosed(waits(reason, "no such image"))
    assert diagnosis == Diagnosis(failure=no_image("serving", "no such image"))


@pytest.mark.reference("noctaya:reason.ImagePullFailed")
def test_an_image_pull_may_fail_once():
    diagnosis, history = diagnosed(waits("ErrImagePull"))
    assert diagnosis == Diagnosis(failure=None)
    diagnosis, history = diagnosed(waits("ImagePullBackOff"), history)
    assert diagnosis.failure == no_image("serving", "ImagePullBackOff")
    # The kubelet alternates between the two: the next try is no fresh start...
    diagnosis, history = diagnosed(waits("ErrImagePull"), history)
    assert diagnosis.failure is not None
    # ...unless it gets further.
    diagnosis, history = diagnosed(waits("ContainerCreating"), history)
    assert diagnosis.failure is None
    assert diagnosed(waits("ErrImagePull"), history)[0].failure is None


def test_the_message_is_the_same_during_and_between_image_pulls():
    between = 'Back-off pulling image "engine:1": ErrImagePull: denied: no such image'
    diagnosis, history = diagnosed(waits("ImagePullBackOff", between))
    assert diagnosed(waits("ErrImagePull", "denied: no such image"), history)[0] == diagnosis
    assert diagnosis.failure is not None
    assert diagnosis.failure.message == "container serving: denied: no such image"


@pytest.mark.parametrize(
    "reason", ["CreateContainerConfigError", "CreateContainerError", "RunContainerError"]
)
def test_a_container_that_cannot_be_created_fails_at_the_second_observation(reason: str):
    of = waits(reason, 'secret "s" not found')
    diagnosis, history = diagnosed(of)
    assert diagnosis == Diagnosis(failure=None, requeue_after_s=3.0)
    diagnosis, history = diagnosed(of, history, now_s=101.0)
    assert diagnosis == Diagnosis(failure=None, requeue_after_s=2.0)
    diagnosis, history = diagnosed(of, history, now_s=103.0)
    assert diagnosis.failure == Failure(
        reason="CreateContainerFailed",
        message='container serving: secret "s" not found',
        brief="container serving: it cannot be created",
    )
    # Mended in between: what comes later is a first sighting.
    diagnosis, history = diagnosed(waits("ContainerCreating"), history, now_s=104.0)
    assert diagnosed(of, history, now_s=110.0)[0] == Diagnosis(failure=None, requeue_after_s=3.0)


def test_requeue_is_at_the_sooner_of_two_observations():
    config = {"waiting": {"reason": "CreateContainerConfigError"}}
    one = {"name": "one", "restartCount": 0, "state": config}
    two = {**one, "name": "two"}
    _, history = diagnosed(pod(containerStatuses=[one]))
    diagnosis, _ = diagnosed(pod(containerStatuses=[one, two]), history, now_s=101.0)
    assert diagnosis == Diagnosis(failure=None, requeue_after_s=2.0)


def crashed(
    restarts: int, *, reason: str = "Error", message: str = "", code: int = 1, **state: object
) -> Manifest:
    ended = {"exitCode": code, "reason": reason, "finishedAt": "2026-01-01T11:59:50Z"}
    if message:
        ended["message"] = message
    return status(restartCount=restarts, state=state, lastState={"terminated": ended})


BACK_OFF = {
    "reason": "CrashLoopBackOff",
    "message": "back-off 40s restarting failed container=serving pod=chat-1_ai(pod-1)",
}


@pytest.mark.reference(
    "noctaya:reason.OOMKilled",
    "noctaya:reason.CrashLoopBackOff",
    "noctaya:reason.ContainerRestarting",
)
@pytest.mark.parametrize(
    ("of", "reason", "attempt_in_s"),
    [
        (pod(running=True), None, None),
        (status(state={"terminated": {"exitCode": 1, "reason": "Error"}}), None, None),
        (crashed(1, running={}), None, None),
        (crashed(1, waiting={}), None, None),
        (crashed(0, waiting=BACK_OFF), None, None),
        (crashed(1, waiting=BACK_OFF), "CrashLoopBackOff", 30.0),
        (crashed(2, waiting=BACK_OFF), "CrashLoopBackOff", 30.0),
        (crashed(2, running={}), "ContainerRestarting", None),
        (crashed(2, running={"startedAt": "2026-01-01T11:59:58Z"}), "ContainerRestarting", -2.0),
        (crashed(2, waiting={}), "ContainerRestarting", None),
        (crashed(2, reason="OOMKilled", running={}), "OOMKilled", None),
        (crashed(1, reason="OOMKilled", waiting=BACK_OFF), "OOMKilled", 30.0),
        (
            status(restartCount=2, state={"terminated": {"exitCode": 137, "reason": "OOMKilled"}}),
            "OOMKilled",
            None,
        ),
        (status(restartCount=2, state={"running": {}}), "ContainerRestarting", None),
        (status(restartCount=2, state={"terminated": {"exitCode": 0}}), None, None),
        (crashed(1, waiting={"reason": "CrashLoopBackOff"}), "CrashLoopBackOff", None),
        (
            crashed(
                1, waiting={**BACK_OFF, "message": "back-off 2.5s restarting failed container"}
            ),
            "CrashLoopBackOff",
            -7.5,
        ),
        (
            crashed(
                1, waiting={**BACK_OFF, "message": "back-off 5m0s restarting failed container"}
            ),
            "CrashLoopBackOff",
            290.0,
        ),
        (status(restartCount=1, state={"waiting": BACK_OFF}), "CrashLoopBackOff", None),
    ],
)
def test_crashes_are_terminal_from_the_second_restart_on(
    of: Manifest, reason: str | None, attempt_in_s: float | None
):
    failure = diagnosed(of)[0].failure
    assert (failure.reason if failure else None) == reason
    expected = None if attempt_in_s is None else WALL.timestamp() + attempt_in_s
    assert (failure.attempt_at if failure else None) == expected


def test_the_message_tells_what_the_engine_said_last():
    failure = diagnosed(crashed(3, message="CUDA error\n", code=9, waiting=BACK_OFF))[0].failure
    assert failure is not None
    assert failure.message == (
        "container serving was restarted 3 times, last with exit code 9: CUDA error"
    )
    assert failure.brief == "container serving was restarted 3 times, last with exit code 9"
    failure = diagnosed(crashed(2, reason="OOMKilled", code=137, running={}))[0].failure
    assert failure is not None
    assert failure.message.endswith("last with exit code 137; it needs more memory")
    assert failure.brief == failure.message


def test_restarts_before_the_pod_was_ready_are_of_an_earlier_activation():
    served = pod(ready=True, restarts=5)
    _, history = diagnosed(served)
    assert history.restarts == {KEY: 5}
    diagnosis, history = diagnosed(crashed(6, running={}), history)
    assert diagnosis.failure is None
    diagnosis, history = diagnosed(crashed(6, waiting=BACK_OFF), history)
    assert diagnosis.failure is not None
    assert "was restarted once" in diagnosis.failure.message


def test_restarts_that_another_leader_saw_are_not_of_this_activation():
    diagnosis, history = diagnosed(crashed(5, running={}), PodHistory(inherited=True))
    assert (diagnosis.failure, history.restarts) == (None, {KEY: 5})
    diagnosis, history = diagnosed(crashed(6, running={}), history)
    assert diagnosis.failure is None
    assert diagnosed(crashed(7, running={}), history)[0].failure is not None


def test_history_is_inherited_once():
    _, history = diagnosed(pod(ready=True), PodHistory(inherited=True))
    assert not history.inherited


def test_an_init_container_counts_as_well():
    of = pod(
        initContainerStatuses=[
            {
                "name": "fetch",
                "restartCount": 0,
                "state": {"waiting": {"reason": "ImagePullBackOff", "message": "denied"}},
            }
        ]
    )
    assert diagnosed(of)[0].failure == no_image("fetch", "denied")


def test_nothing_is_kept_of_pods_that_are_gone():
    _, history = diagnosed(waits("CreateContainerError"))
    assert pod_failures.update_history(history, [], now_s=200.0) == PodHistory()


def test_a_pod_without_a_status_is_no_failure():
    bare = {"metadata": {"uid": "u", "name": "p"}, "spec": {}}
    assert diagnosed(bare)[0] == Diagnosis(failure=None)
    assert not pod_failures.is_ready(bare)
    assert not pod_failures.is_ready(merged(bare, {"status": {"conditions": []}}))
