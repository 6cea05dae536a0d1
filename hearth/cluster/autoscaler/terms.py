"""What one autoscaler goes by."""

from dataclasses import dataclass

from hearth.api.meta import ServiceKey
from hearth.cluster.autoscaler.arithmetic import Hpa, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """All that its decisions follow from.  Two that are equal need no restart."""

    key: ServiceKey
    """As it is named in logs."""
    window: Window
    polling_s: float
    hpa: Hpa
    paused: bool = False
    paused_replicas: int | None = None
    hold_up: bool = False
    hold_down: bool = False
    forced: bool = False
    """Active whatever the triggers say."""
