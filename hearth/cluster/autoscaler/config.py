"""What one autoscaler goes by."""

from dataclasses import dataclass

from hearth.api.meta import ServiceKey
from hearth.cluster.autoscaler.algorithms import Hpa, ZeroScaling


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalerConfig:
    """All that its decisions follow from.  Two that are equal need no restart."""

    key: ServiceKey
    """As it is named in logs."""
    window: ZeroScaling
    polling_s: float
    hpa: Hpa
    paused: bool = False
    paused_replicas: int | None = None
    scale_out_paused: bool = False
    scale_in_paused: bool = False
    force_active: bool = False
    """Active whatever the triggers say."""
