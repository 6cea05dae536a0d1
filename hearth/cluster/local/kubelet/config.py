"""What a machine offers to its pods, as far as a person may choose it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletConfig:
    """Choices of the kubelet; every default is what Kubernetes does, or the safe one."""

    node_name: str = "local"
    """What `spec.nodeName` says to a pod that asks."""
    pod_network: str = "127.77.0.0/16"
    """Loopback addresses for pods; anywhere in 127.0.0.0/8."""
    devices: Mapping[str, int] = field(default_factory=dict)
    """Devices by resource name, for example `nvidia.com/gpu`; the rest is what the machine has."""
    images: Mapping[str, str] = field(default_factory=dict)
    """Image glob to command line, tried in this order before the built-in ones."""
    claims: Mapping[str, Path] = field(default_factory=dict)
    """Folder of a volume claim, by `namespace/name`."""
    open_files: int | None = None
    """Soft limit of what pods may have open; None: Hearth's own."""
    backoff_s: float = 10.0
    """First pause before a container that ended again is started again; doubles."""
    backoff_cap_s: float = 300.0
    """Longest such pause; after twice this long in good health the count begins anew."""
    stop_grace_s: float = 5.0
    """When Hearth itself stops: from SIGTERM to SIGKILL of every pod."""
    log_limit_bytes: int = 16 * 1024 * 1024
    """A pod's log is moved aside (one old file is kept) when it is longer."""
    log_files: int = 200
    """Logs of so many pods are kept."""
