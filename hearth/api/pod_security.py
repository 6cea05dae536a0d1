"""The security contexts of a pod and of a container, as Kubernetes has them on Linux."""

from typing import Annotated, Literal

from pydantic import Field

from hearth.api.meta import Model

Number = Annotated[int, Field(ge=0, le=2**63 - 1)]


class Profile(Model):
    """A seccomp or AppArmor profile."""

    type: Literal["RuntimeDefault", "Unconfined", "Localhost"]
    """Which one."""
    localhost_profile: str | None = None
    """Its name on the node; with Localhost alone."""


class SELinuxOptions(Model):
    """A SELinux label."""

    user: str | None = None
    """Its user."""
    role: str | None = None
    """Its role."""
    type: str | None = None
    """Its type."""
    level: str | None = None
    """Its level."""


class Capabilities(Model):
    """Of the kernel."""

    add: list[str] = []
    """More than the container runtime gives."""
    drop: list[str] = []
    """Fewer."""


class Sysctl(Model):
    """A kernel parameter of the pod."""

    name: str
    """Its name."""
    value: str
    """Its value."""


class _Both(Model):
    """Fields that a pod sets for all its containers, and a container for itself."""

    run_as_non_root: bool | None = None
    """Refuse to start as root."""
    run_as_user: Number | None = None
    """User of the process."""
    run_as_group: Number | None = None
    """Group of the process."""
    seccomp_profile: Profile | None = None
    """System calls that are let through."""
    app_armor_profile: Profile | None = None
    """AppArmor profile."""
    se_linux_options: Annotated[SELinuxOptions | None, Field(alias="seLinuxOptions")] = None
    """SELinux label."""


class PodSecurityContext(_Both):
    """spec.securityContext of a pod."""

    fs_group: Number | None = None
    """Group of its volumes."""
    fs_group_change_policy: Literal["OnRootMismatch", "Always"] | None = None
    """When volumes are handed to that group."""
    supplemental_groups: list[Number] = []
    """More groups of its processes."""
    supplemental_groups_policy: Literal["Merge", "Strict"] | None = None
    """Whether groups of the image count."""
    se_linux_change_policy: Annotated[
        Literal["MountOption", "Recursive"] | None, Field(alias="seLinuxChangePolicy")
    ] = None
    """How volumes are labelled."""
    sysctls: list[Sysctl] = []
    """Kernel parameters."""


class SecurityContext(_Both):
    """securityContext of a container."""

    allow_privilege_escalation: bool | None = None
    """Whether a process may gain more than its parent has."""
    capabilities: Capabilities | None = None
    """Of the kernel."""
    privileged: bool | None = None
    """As root on the host."""
    proc_mount: Literal["Default", "Unmasked"] | None = None
    """How /proc is seen."""
    read_only_root_filesystem: bool | None = None
    """Whether the image's files are read-only."""
