"""What the Helm release decides about every rendered object."""

from dataclasses import dataclass
from typing import Literal

from hearth import names
from hearth.api import rules

ORAS_IMAGE = (
    "ghcr.io/oras-project/oras:v1.3.3"
    "@sha256:a4c54befd87d0366e0ba3ac3a9536a5288c8a3735acd3b635cdace59a2c559c8"
)

BackendGuard = Literal["policy", "warn", "off"]
"""What is done about requests that reach a backend without the gateway's check of its key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The release, as far as the objects of a service refer to it."""

    name: str = "hearth"
    namespace: str = "hearth-system"
    cluster_domain: str = "cluster.local"
    scaler_port: int = 9090
    scaler_tls_port: int = 9443
    scaler: str = ""
    """`host:port` that KEDA dials; by default that of the release's Service.  Given only where
    there is no such Service, and then no Service for mutual TLS either."""
    polling_interval_s: float = 15.0
    shared_service: str = rules.RESERVED_NAME
    keda: bool = True
    """Whether the cluster has KEDA: without, there is no ScaledObject to write."""
    file_system_group: int | None = 1000
    """Group that owns a cache claim, so that images without root can write to it.  None where the
    platform assigns one itself and refuses any other (OpenShift)."""

    backend_guard: BackendGuard = "off"
    """`policy`: a NetworkPolicy; `warn`: a warning on the service."""
    scrape_namespaces: tuple[str, ...] = ()
    """Namespaces whose pods may reach guarded backends, too."""
    oras_image: str = ORAS_IMAGE
    """What pulls models of registries (oci://)."""
    jobs: bool = True
    """Whether Hearth may read and write Jobs: without, none is rendered."""
    cleanup: bool = False
    """Whether what another project's controller left of a service is deleted."""
    mark_loading: bool = False
    """Whether pods that load are marked for autoscalers of nodes."""

    @property
    def gateway_host(self) -> str:
        """Full DNS name of the release's gateway Service."""
        return f"{names.release_gateway(self.name)}.{self.namespace}.svc.{self.cluster_domain}"

    @property
    def scaler_host(self) -> str:
        """Full DNS name of the release's scaler Service."""
        return f"{names.release_scaler(self.name)}.{self.namespace}.svc.{self.cluster_domain}"

    @property
    def scaler_address(self) -> str:
        """The address that KEDA dials in plaintext."""
        host = f"{names.release_scaler(self.name)}.{self.namespace}.svc"
        return self.scaler or f"{host}:{self.scaler_port}"
