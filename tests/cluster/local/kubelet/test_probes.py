import pytest

from hearth.cluster.local.kubelet import probes
from hearth.cluster.local.kubelet.probes import BadProbe, Exec, Grpc, Http, Probe, Tcp, Verdict

IP = "127.77.0.2"
HTTP = Http("http", IP, 8000, "/")


def rows(text, *, passing, success=1, failure=3):
    """Feed `+` and `-`; answer with `R` where a verdict was reached, `.` elsewhere."""
    verdict = Verdict(
        Probe(action=HTTP, success_threshold=success, failure_threshold=failure), passing=passing
    )
    return "".join("R" if verdict.record(sign == "+") else "." for sign in text)


@pytest.mark.parametrize(
    ("results", "options", "reached"),
    [
        # readiness: not ready at first
        ("-+", {"passing": False}, ".R"),
        ("+---+", {"passing": False}, "R..RR"),
        ("+--+---", {"passing": False}, "R.....R"),
        ("+-+++", {"passing": False, "success": 3}, "....R"),
        ("+++", {"passing": False, "success": 2}, ".R."),
        # liveness: alive at first
        ("--", {"passing": True}, ".."),
        ("---", {"passing": True}, "..R"),
        ("--+---", {"passing": True}, ".....R"),
        ("-", {"passing": True, "failure": 1}, "R"),
        # startup: nothing said at first
        ("--+", {"passing": None}, "..R"),
        ("---", {"passing": None}, "..R"),
    ],
)
def test_probe_thresholds(results, options, reached):
    assert rows(results, **options) == reached


@pytest.mark.parametrize(
    ("delay", "running", "due"),
    [(0, 0, 0), (5, 0, 5), (5, 2, 5), (5, 7, 7)],
)
def test_first_probe_delay(delay, running, due):
    assert Probe(action=HTTP, initial_delay_s=delay).first_due_s(running_s=running) == due


@pytest.mark.parametrize(
    ("due", "running", "following"),
    [(0, 0.1, 10), (0, 9.9, 10), (5, 6, 15), (0, 10.5, 20), (0, 31, 40), (0, 0, 10)],
)
def test_probe_period(due, running, following):
    assert Probe(action=HTTP).next_due_s(due_s=due, running_s=running) == following


@pytest.mark.parametrize(
    ("manifest", "action"),
    [
        ({"httpGet": {"port": "http"}}, HTTP),
        (
            {"httpGet": {"port": 9, "path": "health", "scheme": "HTTPS", "host": "h",
                         "httpHeaders": [{"name": "A", "value": "b"}]}},
            Http("https", "h", 9, "/health", (("A", "b"),)),
        ),
        ({"httpGet": {"port": "9"}}, Http("http", IP, 9, "/")),
        ({"tcpSocket": {"port": 9}}, Tcp(IP, 9)),
        ({"exec": {"command": ["a", 1]}}, Exec(("a", "1"))),
        ({"grpc": {"port": 9}}, Grpc(IP, 9, "")),
        ({"grpc": {"port": 9, "service": "s"}}, Grpc(IP, 9, "s")),
    ],
)  # fmt: skip
def test_probe_actions(manifest, action):
    assert probes.parse_action(manifest, {"http": 8000}, ip=IP) == action


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ({}, "none of httpGet"),
        ({"exec": {}}, "none of httpGet"),
        ({"httpGet": {"port": "other"}}, "no port named 'other'"),
        ({"tcpSocket": {"port": 0}}, "not a port"),
        ({"httpGet": {"path": "/"}}, "not a port"),
    ],
)
def test_invalid_probe(manifest, message):
    with pytest.raises(BadProbe, match=message):
        probes.parse_action(manifest, {}, ip=IP)


def test_probe_defaults():
    assert probes.parse({"tcpSocket": {"port": 9}}, {}, ip=IP) == Probe(
        action=Tcp(IP, 9),
        initial_delay_s=0,
        period_s=10,
        timeout_s=1,
        success_threshold=1,
        failure_threshold=3,
        termination_grace_s=None,
    )


def test_probe_with_every_field():
    manifest = {
        "tcpSocket": {"port": 9},
        "initialDelaySeconds": 1,
        "periodSeconds": 2,
        "timeoutSeconds": 3,
        "successThreshold": 4,
        "failureThreshold": 5,
        "terminationGracePeriodSeconds": 6,
    }
    probe = probes.parse(manifest, {}, ip=IP)
    assert (probe.initial_delay_s, probe.period_s, probe.timeout_s) == (1, 2, 3)
    assert (probe.success_threshold, probe.failure_threshold) == (4, 5)
    assert probe.termination_grace_s == 6


def test_named_ports():
    container = {"ports": [{"name": "http", "containerPort": 8000}, {"containerPort": 9}]}
    assert probes.ports_of(container) == {"http": 8000}
    assert probes.ports_of({}) == {}
