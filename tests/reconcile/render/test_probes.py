"""Probes and shutdown, and their arithmetic."""

import pytest

from hearth.reconcile.render import probes
from tests.reconcile.builders import runtime, service

DEFAULT = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 10}


def render(scaling=None, **spec):
    return probes.render(service({"scaling": scaling or {}}), runtime(spec))


def test_default_probes():
    assert render().probes == {
        "startupProbe": {**DEFAULT, "failureThreshold": 60},
        "readinessProbe": {**DEFAULT, "failureThreshold": 3},
    }


def test_default_probes_use_the_named_port():
    got = render(container={"port": {"name": "api"}}).probes
    assert got["startupProbe"]["httpGet"] == {"path": "/health", "port": "api"}


def test_a_runtime_s_probes_stay_as_they_are():
    probe = {"tcpSocket": {"port": 8000}, "periodSeconds": 7, "failureThreshold": 2}
    got = render(
        {"activationTimeout": "1h"},
        health={"startup": probe, "readiness": probe, "liveness": probe},
    )
    assert got.probes == dict.fromkeys(("startupProbe", "readinessProbe", "livenessProbe"), probe)
    assert got.startup_s == 14


@pytest.mark.parametrize(
    ("timeout", "failures", "deadline_s"),
    [
        ("1m", 60, 1200),
        ("10m", 60, 1200),
        ("10m1s", 61, 1210),
        ("60m", 360, 4200),
    ],
)
def test_an_activation_gets_its_time(timeout: str, failures: int, deadline_s: int):
    got = render({"activationTimeout": timeout})
    assert got.probes["startupProbe"]["failureThreshold"] == failures
    assert got.startup_s == failures * 10
    assert got.progress_deadline_s == deadline_s > got.startup_s


@pytest.mark.parametrize(
    ("probe", "seconds"),
    [
        ({}, 30),
        ({"initialDelaySeconds": 5, "periodSeconds": 1, "failureThreshold": 2}, 7),
        ({"failureThreshold": 0}, 0),
    ],
)
def test_how_long_a_startup_probe_waits(probe, seconds: int):
    got = render(health={"startup": {"httpGet": {"port": 80}, **probe}})
    assert got.startup_s == seconds


@pytest.mark.parametrize(
    ("drains", "timeout", "own", "grace_s", "sleep"),
    [
        (False, "2m", None, None, None),
        (False, "2m", 45, 45, None),
        (True, "2m", None, 130, "sleep 120"),
        (True, "2m", 45, 130, "sleep 120"),
        (True, "2m", 300, 300, "sleep 120"),
        (True, "5s", None, 30, "sleep 5"),
        (True, "1500ms", 1, 12, "sleep 2"),
        (True, "0s", None, 30, None),
    ],
)
def test_draining(drains: bool, timeout: str, own: int | None, grace_s, sleep: str | None):
    lifecycle: dict[str, object] = {"preStopDrain": drains}
    if own:
        lifecycle["terminationGracePeriodSeconds"] = own
    got = render({"drainTimeout": timeout}, lifecycle=lifecycle)
    assert got.grace_s == grace_s
    wanted = {"preStop": {"exec": {"command": ["/bin/sh", "-c", sleep]}}} if sleep else None
    assert got.lifecycle == wanted
