"""Count this machine's devices and lend them to pods, first come first served."""

import itertools
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import anyio

from hearth.api.meta import Manifest, Quantity

NVIDIA = "nvidia.com/gpu"
AMD = "amd.com/gpu"
_VISIBLE = (
    (NVIDIA, "CUDA_VISIBLE_DEVICES"),
    (AMD, "HIP_VISIBLE_DEVICES"),
    ("huawei.com/", "ASCEND_RT_VISIBLE_DEVICES"),
)
"""Resource, or a prefix of its name, to the variable that engines read."""
_DEVICE = re.compile(r"[0-9]+|(GPU|MIG)-.+")


class Claim:
    """The devices that one pod wants; they are its own once `granted` is set."""

    def __init__(self, wanted: Mapping[str, int]) -> None:
        self.wanted = wanted
        self.granted = anyio.Event()
        self.held: dict[str, tuple[str, ...]] = {}


class Devices:
    """Devices by resource name, and which are free.

    First come, first served; a pod that does not fit holds up no other, as with Kubernetes'
    scheduler.
    """

    def __init__(self, ids: Mapping[str, tuple[str, ...]]) -> None:
        self._all = dict(ids)
        self._free = {resource: list(names) for resource, names in ids.items()}
        self._waiting: list[Claim] = []

    def __repr__(self) -> str:
        free = {resource: len(names) for resource, names in self._free.items()}
        return f"<Devices free={free} waiting={len(self._waiting)}>"

    @contextmanager
    def claim(self, wanted: Mapping[str, int]) -> Iterator[Claim]:
        """Ask for devices for the length of the block; `Claim.granted` says when they are there."""
        claim = Claim(wanted)
        self._waiting.append(claim)
        self._grant()
        try:
            yield claim
        finally:
            if claim in self._waiting:
                self._waiting.remove(claim)
            for resource, names in claim.held.items():
                self._free[resource] = sorted([*self._free[resource], *names])
            self._grant()

    def shortage(self, claim: Claim) -> str:
        """Why a claim waits, in the scheduler's words, and what to do."""
        short = [
            (resource, number)
            for resource, number in claim.wanted.items()
            if number > len(self._free.get(resource, ()))
        ]
        shortage = ", ".join(f"Insufficient {resource}" for resource, _ in short)
        counts = "; ".join(
            f"{resource}: {number} wanted, {len(self._all.get(resource, ()))} on this machine,"
            f" {len(self._all.get(resource, ())) - len(self._free.get(resource, ()))} in use"
            for resource, number in short
        )
        hint = "".join(
            f". If there are more, say --devices {resource}=N"
            for resource, number in short[:1]
            if number > len(self._all.get(resource, ()))
        )
        return f"0/1 nodes are available: 1 {shortage} ({counts}){hint}."

    def variables(self, claim: Claim) -> dict[str, str]:
        """The variables that name a program's devices; none of them, where it asked for none.

        A pod without a claim on GPUs sees no GPU, as in a cluster, so that it cannot fill the
        memory of one that another pod was given.
        """
        variables: dict[str, str] = {}
        for prefix, variable in _VISIBLE:
            kinds = [resource for resource in self._all if resource.startswith(prefix)]
            if kinds:
                variables[variable] = ",".join(
                    n for kind in kinds for n in claim.held.get(kind, ())
                )
        return variables

    def _grant(self) -> None:
        for claim in list(self._waiting):
            if all(len(self._free.get(r, ())) >= n for r, n in claim.wanted.items()):
                self._waiting.remove(claim)
                for resource, number in claim.wanted.items():
                    claim.held[resource] = tuple(self._free[resource][:number])
                    del self._free[resource][:number]
                claim.granted.set()


def wanted(pod: Manifest) -> dict[str, int]:
    """Devices that a pod asks for: its containers' sum, or its greediest init container.

    Only extended resources (`vendor/name`) are counted.  CPU and memory are the machine's to share.
    """
    total: dict[str, int] = {}
    for container in pod["spec"].get("containers") or ():
        for resource, number in _limits(container):
            total[resource] = total.get(resource, 0) + number
    for container in pod["spec"].get("initContainers") or ():
        for resource, number in _limits(container):
            total[resource] = max(total.get(resource, 0), number)
    return total


def _limits(container: Manifest) -> Iterator[tuple[str, int]]:
    for resource, amount in ((container.get("resources") or {}).get("limits") or {}).items():
        number = int(Quantity(str(amount)).amount) if "/" in resource else 0
        if number:
            yield resource, number


def on_this_machine(
    counts: Mapping[str, int], *, environ: Mapping[str, str] | None = None, root: Path = Path("/")
) -> Devices:
    """What `counts` says, and for other resources what is found under /dev.

    `CUDA_VISIBLE_DEVICES` of Hearth's own environment bounds what it lends.
    """
    environ = os.environ if environ is None else environ
    found = _found(root)
    for resource, number in counts.items():
        found[resource] = tuple(str(index) for index in range(number))
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and NVIDIA in found:
        # As CUDA reads it: nothing counts from the first that is no device on; -1 hides them all.
        named = (name.strip() for name in visible.split(","))
        names = tuple(itertools.takewhile(_DEVICE.fullmatch, named))
        found[NVIDIA] = names[: counts.get(NVIDIA, len(names))]
    return Devices(found)


def _found(root: Path) -> dict[str, tuple[str, ...]]:
    dev = root / "dev"
    numbers = {
        NVIDIA: len(list(dev.glob("nvidia[0-9]*"))),
        AMD: len(list(dev.glob("dri/renderD*"))) if (dev / "kfd").exists() else 0,
        "huawei.com/Ascend910": len(list(dev.glob("davinci[0-9]*"))),
    }
    if (dev / "dxg").exists() and (root / "usr/lib/wsl/lib/nvidia-smi").exists():
        numbers[NVIDIA] = numbers[NVIDIA] or 1  # Windows' subsystem has no /dev/nvidia0
    return {
        resource: tuple(str(index) for index in range(number))
        for resource, number in numbers.items()
        if number
    }
