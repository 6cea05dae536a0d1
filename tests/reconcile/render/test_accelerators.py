"""What differs from vendor to vendor."""

import pytest

from hearth.reconcile.render import accelerators
from tests.reconcile.builders import runtime

DEVICE = {"accelerator": {"resourceName": "example.com/device"}}
HOST = {
    "ascend-driver": "/usr/local/Ascend/driver",
    "npu-smi": "/usr/local/bin/npu-smi",
    "dcmi": "/usr/local/dcmi",
    "ascend-install-info": "/etc/ascend_install.info",
}
"""Without a type: a node that lacks one of them still starts the pod."""


def test_nvidia_asks_for_devices_and_nothing_else():
    got = accelerators.render(runtime({"vendor": "nvidia", **DEVICE}), accelerators=2)
    assert got == accelerators.DeviceRequest(limits={"example.com/device": "2"})


def test_ascend_borrows_the_driver_of_the_host():
    got = accelerators.render(runtime({"vendor": "ascend", **DEVICE}), accelerators=1)
    assert got == accelerators.DeviceRequest(
        limits={"example.com/device": "1"},
        volumes=tuple({"name": name, "hostPath": {"path": path}} for name, path in HOST.items()),
        mounts=tuple(
            {"name": name, "mountPath": path, "readOnly": True} for name, path in HOST.items()
        ),
    )


@pytest.mark.parametrize("spec", [{}, DEVICE])
def test_cpu_requests_no_device(spec):
    assert accelerators.render(runtime(spec), accelerators=4) == accelerators.DeviceRequest(
        limits={}
    )
