import os
import signal

import pytest

from tests import hanging
from tests.cluster.local.kubelet import running
from tests.cluster.local.kubelet.running import ended, machine, runs, serving, state, waits

# A server of the simplest kind: healthy while the file is there.
SERVE = (
    "import http.server, os, sys, functools\n"
    "handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[2])\n"
    "http.server.ThreadingHTTPServer((sys.argv[1], 8000), handler).serve_forever()"
)
SERVER = {
    "image": "test/python:1",
    "args": ["-c", SERVE, "$(POD_IP)", "$(ROOT)"],
    "ports": [{"name": "http", "containerPort": 8000}],
}


def server(root, **probes):
    variables = [
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "ROOT", "value": str(root)},
    ]
    return {**SERVER, "env": variables, **probes}


def get(path, **more):
    return {"httpGet": {"port": "http", "path": path}, "periodSeconds": 0.05, **more}


async def test_restart_with_back_off(tmp_path):
    async with machine(tmp_path) as here:
        await here.create("dies", "/bin/sh", "-c", "echo out of luck; exit 3")
        pod = await here.until(
            "dies", lambda pod: waits("CrashLoopBackOff")(pod) and serving(pod)["restartCount"] > 1
        )
        uid = pod["metadata"]["uid"]
        assert state(pod)[1]["message"].endswith(
            f" restarting failed container=serving pod=dies_ai({uid})"
        )
        last = serving(pod)["lastState"]["terminated"]
        assert (last["exitCode"], last["reason"]) == (3, "Error")
        assert last["message"] == "out of luck"
        assert pod["status"]["phase"] == "Running"
        assert here.log("dies").startswith("out of luck\nout of luck\n")
        assert await here.event("BackOff")


async def test_the_first_restart_is_at_once(tmp_path):
    async with machine(tmp_path, backoff_s=1000) as here:
        await here.create("dies", "/bin/sh", "-c", "exit 1")
        pod = await here.until("dies", waits("CrashLoopBackOff"))
        assert serving(pod)["restartCount"] == 1
        assert (
            "back-off 16m40s" in state(pod)[1]["message"]
            or "back-off 5m0s" in state(pod)[1]["message"]
        )


@pytest.mark.parametrize(
    ("script", "reason", "code", "signal_number"),
    [
        ("kill -9 $$$$", "Error", 137, 9),
        ("exit 137", "Error", 137, None),
        ("exit 1", "Error", 1, None),
        ("exit 0", "Completed", 0, None),
    ],
)
async def test_terminated_state(tmp_path, script, reason, code, signal_number):
    async with machine(tmp_path) as here:
        await here.create("ends", "/bin/sh", "-c", script, restartPolicy="Never")
        pod = await here.until("ends", ended)
        said = state(pod)[1]
        assert (said["reason"], said["exitCode"], said.get("signal")) == (
            reason,
            code,
            signal_number,
        )
        assert pod["status"]["phase"] == ("Succeeded" if code == 0 else "Failed")
        assert serving(pod)["lastState"] == {}


async def test_terminated_reason_oom_killed(tmp_path):
    count = tmp_path / "proc" / "vmstat"
    count.parent.mkdir()
    count.write_text("oom_kill 4\n")
    async with machine(tmp_path / "state", root=tmp_path) as here:
        script = f"echo oom_kill 5 > {count}; kill -9 $$$$"
        await here.create("ends", "/bin/sh", "-c", script, restartPolicy="Never")
        pod = await here.until("ends", ended)
        assert (state(pod)[1]["reason"], state(pod)[1]["exitCode"]) == ("OOMKilled", 137)


async def test_restart_policy_on_failure(tmp_path):
    async with machine(tmp_path) as here:
        marker = tmp_path / "marker"
        script = f"test -e {marker} || {{ touch {marker}; exit 1; }}"
        await here.create("retried", "/bin/sh", "-c", script, restartPolicy="OnFailure")
        pod = await here.until("retried", lambda pod: pod["status"].get("phase") == "Succeeded")
        assert serving(pod)["restartCount"] == 1


async def test_container_states_while_starting(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    async with machine(tmp_path / "state") as here:
        await here.create(
            "comes",
            container=server(
                root, startupProbe=get("/", failureThreshold=1000), readinessProbe=get("/ready")
            ),
        )
        pod = await here.until("comes", lambda pod: serving(pod).get("started"))
        assert not serving(pod)["ready"]
        (root / "ready").touch()
        pod = await here.until("comes", running.ready)
        assert pod["status"]["podIP"].startswith("127.77.")
        (root / "ready").unlink()
        pod = await here.until("comes", lambda pod: not running.ready(pod))
        assert serving(pod)["restartCount"] == 0
        seen = await here.states("comes", last=running.ready)
        moments = [
            (*[next(iter(serving(p)["state"]))], serving(p)["started"], serving(p)["ready"])
            for p in seen
            if serving(p)
        ]
        assert [one for n, one in enumerate(moments) if n == 0 or one != moments[n - 1]] == [
            ("waiting", False, False),
            ("running", False, False),
            ("running", True, False),
            ("running", True, True),
        ]


async def test_failed_startup_probe_restarts(tmp_path):
    async with machine(tmp_path / "state") as here:
        probe = get("/never", failureThreshold=2)
        await here.create(
            "slow", container=server(tmp_path, startupProbe=probe), terminationGracePeriodSeconds=0
        )
        pod = await here.until("slow", lambda pod: serving(pod).get("restartCount", 0) > 0)
        assert serving(pod)["lastState"]["terminated"]["reason"] == "Error"
        assert "failed startup probe, will be restarted" in await here.event("Killing")


async def test_failed_liveness_probe_restarts_with_grace(tmp_path):
    alive = tmp_path / "alive"
    alive.touch()
    async with machine(tmp_path / "state") as here:
        probe = {
            "exec": {"command": ["test", "-e", str(alive)]},
            "periodSeconds": 0.05,
            "failureThreshold": 1,
        }
        script = "trap 'exit 7' TERM; while :; do sleep 9 & wait; done"
        container = {"livenessProbe": probe}
        await here.create("alive", "/bin/sh", "-c", script, container=container)
        await here.until("alive", running.ready)
        alive.unlink()
        pod = await here.until("alive", lambda pod: serving(pod)["restartCount"] == 1)
        assert serving(pod)["lastState"]["terminated"]["exitCode"] in (7, 143)
        assert "liveness" in await here.event("Killing")
        assert (await here.event("Unhealthy")).startswith("Liveness probe failed: ")


async def test_exec_format_error_is_a_waiting_state(tmp_path):
    program = tmp_path / "program"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    async with machine(tmp_path / "state") as here:
        await here.create("strange", str(program))
        pod = await here.until("strange", waits("RunContainerError"))
        assert str(program) in state(pod)[1]["message"]


async def test_unknown_image_is_err_image_pull_and_retried(tmp_path):
    async with machine(tmp_path) as here:
        await here.create("unknown", container={"image": "no/one:1"})
        pod = await here.until("unknown", waits("ImagePullBackOff"))
        assert "--images 'no/one:1=COMMAND'" in state(pod)[1]["message"]
        assert pod["status"]["phase"] == "Pending"
        seen = await here.states("unknown", last=waits("ImagePullBackOff"))
        assert any(waits("ErrImagePull")(one) for one in seen)


async def test_missing_secret_starts_the_container_once_created(tmp_path):
    async with machine(tmp_path, backoff_s=1000, backoff_cap_s=1000) as here:
        reference = {"secretKeyRef": {"name": "key", "key": "token"}}
        container = {"env": [{"name": "KEY", "valueFrom": reference}]}
        await here.create(
            "late", "/bin/sh", "-c", 'echo "$KEY"; exec sleep 99', container=container
        )
        pod = await here.until("late", waits("CreateContainerConfigError"))
        assert state(pod)[1]["message"] == 'secret "key" not found'
        await here.cluster.create(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "key", "namespace": "ai"},
                "data": {"token": "czNjcmV0"},
            }
        )
        await here.until("late", runs)


@pytest.mark.parametrize(
    "hook",
    [
        {"exec": {"command": ["/bin/sh", "-c", "echo drained > $OUT"]}},
        {"httpGet": {"port": "nowhere"}},
        {"sleep": {"seconds": 0.01}},
    ],
)
async def test_pre_stop_hook_runs_before_sigterm(tmp_path, hook):
    async with machine(tmp_path / "state") as here:
        out = tmp_path / "out"
        script = (
            "trap 'echo term >> $OUT; exit 0' TERM; touch $OUT; while :; do sleep 9 & wait; done"
        )
        container = {"env": [{"name": "OUT", "value": str(out)}], "lifecycle": {"preStop": hook}}
        container["livenessProbe"] = {"exec": {"command": ["true"]}}
        readiness = {"exec": {"command": ["test", "-e", str(out)]}, "periodSeconds": 0.05}
        pod = await here.create(
            "drains", "/bin/sh", "-c", script, container={**container, "readinessProbe": readiness}
        )
        await here.until("drains", running.ready)
        await here.cluster.delete(pod)
        await here.gone("drains")
        drained = "drained\n" if "exec" in hook else ""
        assert out.read_text() == f"{drained}term\n"
        if "httpGet" in hook:
            assert "no port named 'nowhere'" in await here.event("FailedPreStopHook")


async def test_pre_stop_hook_ends_with_its_container(tmp_path):
    async with machine(tmp_path / "state") as here:
        hook = {"exec": {"command": ["/bin/sh", "-c", f"echo > {tmp_path}/begun; sleep 1000"]}}
        begun = running.fifo(tmp_path / "begun")
        pod = await here.create(
            "drains",
            "/bin/sleep",
            "1000",
            container={"lifecycle": {"preStop": hook}},
            terminationGracePeriodSeconds=1000,
        )
        pod = await here.until("drains", runs)
        await here.cluster.delete(pod)
        await running.hear(begun)
        os.kill(running.pid(pod), signal.SIGKILL)
        await here.gone("drains")


async def test_pre_stop_hook_is_cut_at_the_grace_period(tmp_path):
    async with machine(tmp_path) as here:
        pod = await here.create(
            "drains",
            "/bin/sleep",
            "1000",
            container={"lifecycle": {"preStop": {"sleep": {"seconds": 1000}}}},
            terminationGracePeriodSeconds=1,
        )
        await here.until("drains", runs)
        with hanging.guard():
            await here.cluster.delete(pod)
            await here.gone("drains")
