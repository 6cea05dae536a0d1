import pytest

from hearth.cluster.local.kubelet import devices
from hearth.cluster.local.kubelet.devices import NVIDIA, Devices


def pod(*limits, init=()):
    return {
        "spec": {
            "containers": [{"resources": {"limits": one}} for one in limits],
            "initContainers": [{"resources": {"limits": one}} for one in init],
        }
    }


@pytest.mark.parametrize(
    ("manifest", "wanted"),
    [
        (pod({NVIDIA: "2", "memory": "8Gi", "cpu": 4}), {NVIDIA: 2}),
        (pod({NVIDIA: 1}, {NVIDIA: 1, "v.org/npu": 1}), {NVIDIA: 2, "v.org/npu": 1}),
        (pod({NVIDIA: 1}, init=({NVIDIA: 3}, {NVIDIA: 2})), {NVIDIA: 3}),
        (pod({NVIDIA: 0}), {}),
        ({"spec": {"containers": [{}]}}, {}),
    ],
)  # fmt: skip
def test_device_requests_of_a_pod(manifest, wanted):
    assert devices.wanted(manifest) == wanted


def test_devices_are_first_come_first_served_among_those_that_fit():
    pool = Devices({NVIDIA: ("0", "1")})
    with pool.claim({NVIDIA: 1}) as first:
        assert first.held == {NVIDIA: ("0",)}
        with (
            pool.claim({NVIDIA: 2}) as greedy,
            pool.claim({NVIDIA: 1}) as modest,
            pool.claim({NVIDIA: 1}) as late,
        ):
            assert not greedy.granted.is_set()
            assert modest.held == {NVIDIA: ("1",)}
            assert not late.granted.is_set()
            assert pool.shortage(late) == (
                "0/1 nodes are available: 1 Insufficient nvidia.com/gpu"
                " (nvidia.com/gpu: 1 wanted, 2 on this machine, 2 in use)."
            )
    with pool.claim({NVIDIA: 2}) as all_of_them:
        assert all_of_them.held == {NVIDIA: ("0", "1")}


def test_freed_devices_go_to_the_oldest_claim():
    pool = Devices({NVIDIA: ("0",)})
    with pool.claim({NVIDIA: 1}) as second:
        pass
    first = pool.claim({NVIDIA: 1})
    first.__enter__()
    with pool.claim({NVIDIA: 1}) as second, pool.claim({NVIDIA: 1}) as third:
        first.__exit__(None, None, None)
        assert second.granted.is_set()
        assert not third.granted.is_set()


def test_device_shortage_message():
    pool = Devices({})
    with pool.claim({NVIDIA: 1}) as claim:
        assert "0 on this machine" in pool.shortage(claim)
        assert "--devices nvidia.com/gpu=N" in pool.shortage(claim)
    assert repr(pool) == "<Devices free={} waiting=0>"


def test_device_variables():
    pool = Devices({NVIDIA: ("0", "1", "2"), "huawei.com/Ascend910": ("0",)})
    with pool.claim({NVIDIA: 2}) as some, pool.claim({}) as none:
        assert pool.variables(some) == {
            "CUDA_VISIBLE_DEVICES": "0,1",
            "ASCEND_RT_VISIBLE_DEVICES": "",
        }
        assert pool.variables(none)["CUDA_VISIBLE_DEVICES"] == ""
    with Devices({}).claim({}) as claim:
        assert Devices({}).variables(claim) == {}


def held(pool, resource):
    """Every device of a resource that the pool lends."""
    names = []
    for number in range(1, 9):
        with pool.claim({resource: number}) as claim:
            if not claim.granted.is_set():
                break
            names = list(claim.held[resource])
    return names


def test_devices_are_found_under_dev(tmp_path):
    (tmp_path / "dev/dri").mkdir(parents=True)
    for name in ("nvidia0", "nvidia1", "nvidiactl", "davinci3", "kfd", "dri/renderD128"):
        (tmp_path / "dev" / name).touch()
    pool = devices.on_this_machine({}, environ={}, root=tmp_path)
    assert held(pool, NVIDIA) == ["0", "1"]
    assert held(pool, "huawei.com/Ascend910") == ["0"]
    assert held(pool, devices.AMD) == ["0"]


def test_device_settings_and_cuda_visible_devices_are_bounds(tmp_path):
    (tmp_path / "dev").mkdir()
    machine = {"root": tmp_path}
    assert held(devices.on_this_machine({NVIDIA: 3}, environ={}, **machine), NVIDIA) == list("012")
    chosen = {"CUDA_VISIBLE_DEVICES": "4, 6"}
    assert held(devices.on_this_machine({NVIDIA: 3}, environ=chosen, **machine), NVIDIA) == [
        "4",
        "6",
    ]
    assert held(devices.on_this_machine({NVIDIA: 1}, environ=chosen, **machine), NVIDIA) == ["4"]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("1,-1,0", ["1"]),
        ("GPU-8932f937", ["GPU-8932f937"]),
    ],
)
def test_cuda_visible_devices_forms(tmp_path, visible, expected):
    (tmp_path / "dev").mkdir()
    chosen = {"CUDA_VISIBLE_DEVICES": visible}
    pool = devices.on_this_machine({NVIDIA: 2}, environ=chosen, root=tmp_path)
    assert held(pool, NVIDIA) == expected


def test_devices_of_wsl(tmp_path):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/dxg").touch()
    (tmp_path / "usr/lib/wsl/lib").mkdir(parents=True)
    (tmp_path / "usr/lib/wsl/lib/nvidia-smi").touch()
    assert held(devices.on_this_machine({}, environ={}, root=tmp_path), NVIDIA) == ["0"]
