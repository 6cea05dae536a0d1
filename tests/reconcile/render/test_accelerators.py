"""What differs from vendor to vendor."""

import pytest

from hearth.reconcile.render import accelerators
from hearth.reconcile.spec.spec_errors import SpecError
from tests.reconcile.builders import runtime

DEVICE = {"accelerator": {"resourceName": "example.com/device"}}
HOST = {
    "ascend-driver": ("/usr/local/Ascend/driver", "Directory"),
    "ascend-npu-smi": ("/usr/local/bin/npu-smi", "File"),
    "ascend-dcmi": ("/usr/local/dcmi", "Directory"),
    "ascend-install-info": ("/etc/ascend_install.info", "File"),
}


def test_nvidia_asks_for_devices_and_nothing_else():
    got = accelerators.render(runtime({"vendor": "nvidia", **DEVICE}), accelerators=2)
    assert got == accelerators.DeviceRequest(limits={"example.com/device": "2"})


def test_ascend_borrows_the_driver_of_the_host():
    got = accelerators.render(runtime({"vendor": "ascend", **DEVICE}), accelerators=1)
    assert got == accelerators.DeviceRequest(
        limits={"example.com/device": "1"},
        volumes=tuple(
            {"name": name, "hostPath": {"path": path, "type": kind}}
            for name, (path, kind) in HOST.items()
        ),
        mounts=tuple(
            {"name": name, "mountPath": path, "readOnly": True} for name, (path, _) in HOST.items()
        ),
    )


@pytest.mark.parametrize("spec", [{}, DEVICE])
def test_cpu_asks_for_none(spec):
    assert accelerators.render(runtime(spec), accelerators=4) == accelerators.DeviceRequest(
        limits={}
    )


@pytest.mark.parametrize("vendor", ["nvidia", "ascend"])
def test_a_device_must_be_named(vendor: str):
    with pytest.raises(SpecError, match=r"stub: spec.accelerator.resourceName is missing") as error:
        accelerators.render(runtime({"vendor": vendor}), accelerators=1)
    assert error.value.rejection.reason == "Render"
