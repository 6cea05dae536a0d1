"""What gateway and scaler need to know of a service: its scale, and what its pods wait for."""

import dataclasses
from typing import Any

import pytest

from hearth.reconcile import route as routing
from hearth.reconcile.route import scale
from hearth.reconcile.status import mounts
from hearth.reconcile.status.observation import Observed, Stage
from hearth.reconcile.status.pod_failures import PodHistory
from hearth.routes import Backend, Delay, KeyRef, Route, Scale
from tests.reconcile import builders

SERVICE = builders.service({"scaling": {"min": 1, "max": 4, "target": 8}})
PLAIN = Scale(min=1, max=4, target=8, window_s=300.0, replicas=2, pods=3)
BEFORE = dataclasses.replace(PLAIN, min=2, max=9, target=5, window_s=60.0, replicas=7, pods=7)
STANDING = dataclasses.replace(BEFORE, replicas=2, pods=3)


def deployment(*, owner=SERVICE.metadata.uid, **metadata):
    references = [{"uid": owner, "controller": True}, {"uid": "someone"}]
    return {
        "metadata": {"ownerReferences": references, **metadata},
        "spec": {"replicas": 2},
        "status": {"replicas": 3},
    }


def route(**fields) -> Route:
    usual: dict[str, Any] = {"uid": SERVICE.metadata.uid, "created": 0, "phase": "Ready"}
    return Route(key=SERVICE.key, **usual | fields)


@pytest.mark.parametrize(
    ("found", "refused", "readable", "before", "expected"),
    [
        (deployment(), False, True, None, PLAIN),
        (deployment(), False, True, route(scale=BEFORE), PLAIN),
        (deployment(), True, True, None, PLAIN),
        (deployment(), True, True, route(scale=BEFORE), STANDING),
        (deployment(), True, True, route(scale=BEFORE, uid="another"), PLAIN),
        (deployment(), True, False, route(scale=BEFORE), STANDING),
        (deployment(), True, False, route(), None),
        (deployment(), True, False, None, None),
        (None, False, True, route(scale=BEFORE), None),
        (deployment(owner="another"), False, True, None, None),
        (deployment(ownerReferences=[]), False, True, None, None),
        (deployment(deletionTimestamp="2026-01-01T00:00:00Z"), False, True, None, None),
    ],
)
def test_scale(found, refused, readable, before, expected):
    got = scale(SERVICE, found, is_rejected=refused, readable=readable, before=before)
    assert got == expected


def test_a_deployment_that_is_only_just_written():
    found = {"metadata": deployment()["metadata"], "spec": {}}
    got = scale(SERVICE, found, is_rejected=False, readable=True, before=None)
    assert got == dataclasses.replace(PLAIN, replicas=1, pods=0)


FULL = Delay(reason="SchedulingDelayed", message="no room")
QUOTA = Delay(reason="Activating", message="no room")
WEIGHTS = Delay(reason="Prewarming", message="no room")


@pytest.mark.parametrize("readable", [True, False])
@pytest.mark.parametrize(
    ("stage", "phase", "message", "expected"),
    [
        (Stage.UNSCHEDULED, "Loading", "no room", FULL),
        (Stage.UNSCHEDULED, "Loading", "", None),
        (Stage.UNSCHEDULED, "Degraded", "no room", None),
        (Stage.NONE, "Pending", "no room", QUOTA),
        (Stage.NONE, "ScaledToZero", "no room", None),
        (Stage.PREWARMING, "Loading", "no room", WEIGHTS),
        # It would wait for them whether it is wanted or not.
        (Stage.PREWARMING, "ScaledToZero", "no room", WEIGHTS),
        (Stage.PREWARMING, "Ready", "no room", None),
        (Stage.STARTING, "Loading", "cannot pull", None),
        (Stage.READY, "Ready", "", None),
    ],
)
def test_a_delay_is_what_may_last(stage, phase, message, readable, expected):
    got = routing.route(
        SERVICE,
        observed=Observed(stage=stage, message=message, history=PodHistory()),
        rejection=None,
        readable=readable,
        phase=phase,
        scale=None,
        paused=False,
        scaler_tls=None,
        before=route(delay=Delay(reason="Activating", message="long ago")),
    )
    assert (got.phase, got.delay) == (phase, expected)


KEYED = Backend(
    uid="1", pod="p", host="h", port=1, ready=True, engine_key=KeyRef(secret="s", key="k")
)
OPEN = Backend(uid="2", pod="q", host="h", port=1, ready=True)


@pytest.mark.parametrize(
    ("backends", "wanted", "expected"),
    [
        ((), False, False),
        ((), True, True),
        ((OPEN,), False, False),
        # A spec that is refused, or rolls out: pods are right of what they ask for.
        ((OPEN, KEYED), False, True),
    ],
)
def test_field_case_130_whether_clients_keys_stay_here(backends, wanted, expected):
    got = routing.route(
        SERVICE,
        observed=Observed(backends=backends, history=PodHistory()),
        rejection=None,
        readable=True,
        phase="Ready",
        scale=None,
        paused=False,
        scaler_tls=None,
        engine_keyed=wanted,
        before=None,
    )
    assert got.engine_keyed is expected


def test_a_mount_that_lasts_is_a_delay():
    got = routing.route(
        SERVICE,
        observed=Observed(
            stage=Stage.STARTING, message="PVC w", brief=mounts.BRIEF, history=PodHistory()
        ),
        rejection=None,
        readable=True,
        phase="Loading",
        scale=None,
        paused=False,
        scaler_tls=None,
        before=None,
    )
    assert got.delay == Delay(reason="Starting", message="PVC w", brief=mounts.BRIEF)


@pytest.mark.parametrize("readable", [True, False])
def test_warnings_are_those_of_now(readable):
    got = routing.route(
        SERVICE,
        observed=Observed(history=PodHistory()),
        rejection=None,
        readable=readable,
        phase="Ready",
        scale=None,
        paused=False,
        scaler_tls=None,
        before=route(warnings=("old",)),
        warnings=("new",),
    )
    assert got.warnings == ("new",)


@pytest.mark.parametrize(
    ("before", "limit"), [(None, None), (route(max_in_flight=7), 7), (route(uid="another"), None)]
)
def test_options_that_cannot_be_read_are_those_of_before(before, limit):
    got = routing.route(
        builders.service(annotations={"hearth.dev/max-in-flight": "many"}),
        observed=Observed(history=PodHistory()),
        rejection=None,
        readable=True,
        phase="Degraded",
        scale=None,
        paused=False,
        scaler_tls=None,
        before=before,
    )
    assert got.max_in_flight == limit
