"""What an autoscaler says of itself, in KEDA's words."""

from dataclasses import dataclass
from typing import Literal

from hearth.cluster.autoscaler.algorithms import KedaReason


@dataclass(frozen=True, slots=True)
class Ready:
    """Whether the target is there and its triggers answer."""

    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str


READY = Ready("True", "ScaledObjectReady", "the target and all triggers answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleStatus:
    """What is known so far."""

    ready: Ready | None = None
    reason: KedaReason | None = None
    metric_names: tuple[str, ...] = ()
    """As the HPA knows them: the proof that the triggers were found."""
    last_active_unix_s: float | None = None


def ready(*, active: bool, failure: str) -> Ready:
    """A trigger's failure is partial while another one is active."""
    if not failure:
        return READY
    if active:
        return Ready("Unknown", "PartialTriggerError", failure)
    return Ready("False", "TriggerError", failure)
