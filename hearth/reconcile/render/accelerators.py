"""The accelerators of a serving pod, by vendor: device limits, and what it mounts of the host."""

from collections.abc import Callable
from dataclasses import dataclass

from hearth.api.meta import Manifest
from hearth.api.runtime import InferenceRuntime


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequest:
    """What one pod asks for; `limits` is empty for a vendor without devices."""

    limits: dict[str, str]
    volumes: tuple[Manifest, ...] = ()
    mounts: tuple[Manifest, ...] = ()


_ASCEND_HOST = (
    ("ascend-driver", "/usr/local/Ascend/driver"),
    ("npu-smi", "/usr/local/bin/npu-smi"),
    ("dcmi", "/usr/local/dcmi"),
    ("ascend-install-info", "/etc/ascend_install.info"),
)


def render(runtime: InferenceRuntime, *, accelerators: int) -> DeviceRequest:
    """`runtime` keeps to the rules: one of a vendor that has devices names them."""
    return _VENDORS[runtime.spec.vendor](runtime, accelerators)


def _nvidia(runtime: InferenceRuntime, accelerators: int) -> DeviceRequest:
    return DeviceRequest(limits=_limits(runtime, accelerators))


def _ascend(runtime: InferenceRuntime, accelerators: int) -> DeviceRequest:
    # The driver belongs to the node; the image brings none, and must not change it.  No type: not
    # every kind of node has all four, and where one is missing a checked mount would keep a pod
    # from starting that needs no more than the rest.
    return DeviceRequest(
        limits=_limits(runtime, accelerators),
        volumes=tuple({"name": name, "hostPath": {"path": path}} for name, path in _ASCEND_HOST),
        mounts=tuple(
            {"name": name, "mountPath": path, "readOnly": True} for name, path in _ASCEND_HOST
        ),
    )


def _cpu(runtime: InferenceRuntime, accelerators: int) -> DeviceRequest:
    return DeviceRequest(limits={})


def _limits(runtime: InferenceRuntime, accelerators: int) -> dict[str, str]:
    resource = runtime.spec.accelerator.resource_name
    assert resource is not None, "a rule of InferenceRuntime"
    return {resource: str(accelerators)}


_VENDORS: dict[str, Callable[[InferenceRuntime, int], DeviceRequest]] = {
    "nvidia": _nvidia,
    "ascend": _ascend,
    "cpu": _cpu,
}
