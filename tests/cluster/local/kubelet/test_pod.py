from hearth.cluster import kinds
from tests.cluster.local.kubelet import running
from tests.cluster.local.kubelet.running import (
    condition,
    ended,
    machine,
    runs,
    state,
    waits,
)

GPU = "nvidia.com/gpu"


def gpus(number):
    return {"resources": {"limits": {GPU: number}}}


async def test_devices_are_handed_on_in_order(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    async with machine(tmp_path, devices={GPU: 2}) as here:
        first = await here.create("first", "/bin/sleep", "99", container=gpus(2))
        await here.until("first", runs)
        await here.create("second", "/bin/sleep", "99", container=gpus(1))
        pod = await here.until("second", lambda pod: condition(pod, "PodScheduled"))
        scheduled = condition(pod, "PodScheduled")
        assert (scheduled["status"], scheduled["reason"]) == ("False", "Unschedulable")
        assert scheduled["message"].startswith("0/1 nodes are available: 1 Insufficient nvidia.com")
        assert pod["status"]["phase"] == "Pending"
        await here.create("third", "/bin/sleep", "99", container=gpus(2))
        await here.until("third", lambda pod: condition(pod, "PodScheduled"))
        await here.cluster.delete(first)
        pod = await here.until("second", runs)
        assert condition(pod, "PodScheduled")["status"] == "True"
        third = await here.cluster.get(kinds.POD, "ai", "third")
        assert condition(third, "PodScheduled")["status"] == "False"
        await here.cluster.delete(third)
        await here.gone("third")


async def test_ended_pod_releases_its_devices(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    async with machine(tmp_path, devices={GPU: 1}) as here:
        await here.create("job", "/bin/true", container=gpus(1), restartPolicy="Never")
        await here.until("job", ended)
        await here.create("next", "/bin/sleep", "99", container=gpus(1))
        await here.until("next", runs)


async def test_init_containers_run_first_and_in_order(tmp_path):
    async with machine(tmp_path / "state") as here:
        out = tmp_path / "out"
        tried = tmp_path / "tried"
        fails_once = f"echo one >> {out}; test -e {tried} || {{ touch {tried}; exit 1; }}"
        init = [
            {"name": "one", "image": "i:1", "command": ["/bin/sh", "-c", fails_once]},
            {"name": "two", "image": "i:1", "command": ["/bin/sh", "-c", f"echo two >> {out}"]},
        ]
        there = running.fifo(tmp_path / "there")
        script = f"echo main >> {out}; echo > {there}; exec sleep 99"
        await here.create("inits", "/bin/sh", "-c", script, initContainers=init)
        pod = await here.until("inits", running.ready)
        await running.hear(there)
        assert out.read_text() == "one\none\ntwo\nmain\n"
        statuses = pod["status"]["initContainerStatuses"]
        assert [one["state"]["terminated"]["reason"] for one in statuses] == ["Completed"] * 2
        assert [one["restartCount"] for one in statuses] == [1, 0]
        seen = await here.states("inits", last=running.ready)
        assert any(waits("PodInitializing")(one) for one in seen)


async def test_an_init_container_that_fails_for_good_fails_the_pod(tmp_path):
    async with machine(tmp_path) as here:
        init = [{"name": "one", "image": "i:1", "command": ["/bin/false"]}]
        await here.create("fails", "/bin/true", initContainers=init, restartPolicy="Never")
        pod = await here.until("fails", lambda pod: pod["status"].get("phase") == "Failed")
        assert condition(pod, "Initialized")["reason"] == "ContainersNotInitialized"
        assert waits("PodInitializing")(pod)


async def test_deleted_pod_is_unready_at_once_and_leaves_no_process(tmp_path):
    async with machine(tmp_path / "state") as here:
        pids, end = running.fifo(tmp_path / "pids"), running.fifo(tmp_path / "end")
        script = f"trap 'echo > {end}; exit 0' TERM; sleep 999 & echo $$$$ $! > {pids}; wait; wait"
        await here.create("goes", "/bin/sh", "-c", script, terminationGracePeriodSeconds=999)
        numbers = [int(word) for word in (await running.hear(pids)).split()]
        pod = await here.until("goes", running.ready)
        await here.cluster.delete(pod)
        pod = await here.until("goes", lambda pod: not running.ready(pod))
        assert runs(pod)
        assert running.alive(numbers[0])
        await running.hear(end)  # only now does it come to its end
        last = await here.gone("goes")
        assert last is None or state(last)[1]["reason"] == "Completed"
        assert not any(running.alive(number) for number in numbers)
        assert list((tmp_path / "state/pods").iterdir()) == []


async def test_second_delete_without_grace_kills(tmp_path):
    async with machine(tmp_path / "state") as here:
        told = running.fifo(tmp_path / "told")
        script = (
            f"trap 'echo no > {told}' TERM; echo set > {told}; while :; do sleep 9 & wait; done"
        )
        await here.create("stays", "/bin/sh", "-c", script, terminationGracePeriodSeconds=999)
        pod = await here.until("stays", running.ready)
        assert await running.hear(told) == "set\n"
        await here.cluster.delete(pod)
        assert await running.hear(told) == "no\n"
        await here.cluster.finalize(pod)
        await running.dead(running.pid(pod))


async def test_pod_waits_for_a_free_address(tmp_path):
    async with machine(tmp_path, pod_network="127.79.0.0/30") as here:
        pods = [await here.create(name, "/bin/sleep", "99") for name in ("one", "two", "three")]
        await here.until("two", runs)
        waiting = await here.until("three", lambda pod: condition(pod, "PodScheduled"))
        assert "127.79.0.0/30 is in use" in condition(waiting, "PodScheduled")["message"]
        await here.cluster.delete(pods[0])
        await here.until("three", runs)


async def test_invalid_pod_harms_no_other(tmp_path):
    async with machine(tmp_path) as here:
        nonsense = {"env": [{"value": "an entry without a name"}]}
        pod = await here.create("odd", "/bin/true", container=nonsense)
        broken = await here.until("odd", waits("CreateContainerError"))
        assert "internal error" in state(broken)[1]["message"]
        await here.create("fine", "/bin/sleep", "99")
        await here.until("fine", runs)
        await here.cluster.delete(pod)
        await here.gone("odd")


async def test_pod_waits_for_a_writable_state_folder(tmp_path):
    async with machine(tmp_path) as here:
        (tmp_path / "logs").write_text("in the way")
        await here.create("waits", "/bin/sleep", "99")
        waiting = await here.until("waits", lambda pod: condition(pod, "PodScheduled"))
        said = condition(waiting, "PodScheduled")["message"]
        assert "cannot be used as state folder" in said and "--state-dir" in said
        (tmp_path / "logs").unlink()
        await here.until("waits", runs)
