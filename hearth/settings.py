"""Every setting of the process, with unit, default and reason.

Each field is a flag (`--gateway-port 8080`) and an environment variable (`HEARTH_GATEWAY_PORT`);
the flag wins.  Only `cli` and `app` see this class; parts get the values they use.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from hearth.api import groups, rules, validation_messages
from hearth.api.meta import Duration
from hearth.reconcile.render.release import ORAS_IMAGE, BackendGuard, Release
from hearth.setting_types import (
    Claims,
    Counts,
    Folder,
    Groups,
    Host,
    Hosts,
    Label,
    Origins,
    Port,
    Positive,
)

S = TypeVar("S", bound="Settings")


class BadSettings(ValueError):
    """One line that names the setting and says what to write."""


class Settings(BaseModel):
    """What `hearth run` and `hearth local` share."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field(
        "",
        description="Address that the three ports listen on; empty: every one of the machine, of"
        " IPv4 and IPv6.",
    )
    gateway_port: Port = Field(8080, description="OpenAI-compatible gateway; 0 takes a free port.")
    admin_port: Port = Field(8081, description="Health, metrics, demand table and status page.")
    admin_hosts: Hosts = Field(
        (),
        description="Host names under which the admin port answers, comma separated, beside"
        " addresses and the names of cluster and machine: a web page could lead any other here.",
    )
    admin_token: str = Field(
        "",
        description="Who gives it, as a bearer token or password, reads on the admin port what"
        " engines and the cluster say; empty: who comes from the pod or machine itself does, as"
        " with kubectl port-forward. With error_detail full everybody does.",
    )
    scaler_port: Port = Field(9090, description="KEDA ExternalScaler gRPC, plaintext.")

    release: str = Field("hearth", description="Name of the Helm release: prefix of its Services.")
    namespace: Label = Field("hearth-system", description="Namespace that Hearth itself runs in.")
    cluster_domain: Host = Field("cluster.local", description="DNS domain of the cluster.")
    ingress_domain: Hosts = Field(
        (),
        description="Names of the gateway itself, comma separated, for example models.example.com;"
        " namespaces and services are names below each.",
    )
    default_namespace: Label = Field(
        "", description="Namespace in which an unqualified model name is looked up on shared hosts."
    )
    shared_service: Label = Field(
        rules.RESERVED_NAME,
        description="Name of the Service in each namespace that leads to the gateway.",
    )
    groups: Groups = Field(
        groups.GROUPS, description="API groups that are served, comma separated."
    )

    prewarm_oras_image: str = Field(
        ORAS_IMAGE,
        min_length=1,
        description="Image of oras, which pulls models of oci://; for those behind a mirror.",
    )
    polling_interval: Positive = Field(
        Duration(15),
        description="How often KEDA asks.  Push carries the latency, so this can be long.",
    )
    ready_grace: Duration = Field(
        Duration(10),
        description="Demand is kept this long after a cold backend became ready, for the retry of"
        " a client that was told to come back.",
    )
    drain_limit: Duration = Field(
        Duration(120), description="On shutdown, how long open streams may take to finish."
    )
    body_limit_bytes: int = Field(
        64 * 2**20, ge=1024, description="Largest request body; above it 413."
    )
    held_bytes: int = Field(
        512 * 2**20, ge=1024, description="Budget over all bodies in memory; above it 503."
    )
    client_idle: Positive = Field(
        Duration(620),
        description="How long an idle client connection stays open: longer than the load balancer"
        " in front keeps it, or it sends a request into the closing (Google's: 600 s).",
    )
    cors_origins: Origins = Field(
        (), description="Origins (or *) that browsers may call from, comma separated."
    )
    error_detail: Literal["brief", "full"] = Field(
        "brief",
        description="What clients hear of why a model cannot start: brief, the kind alone, or full,"
        " with the words of engine and cluster (up to 500 characters of the engine's log).",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="What is logged: debug, info, warning or error."
    )
    log_format: Literal["text", "json"] = Field("text", description="One line of text or JSON.")
    access_log: bool = Field(
        False,
        description="Write a line of JSON for each request that ended to standard output: true or"
        " false.",
    )

    def to_release(self, *, scaler: str = "") -> Release:
        """What rendering needs to know; `scaler`: what KEDA dials, where no Service leads there."""
        return Release(
            name=self.release,
            namespace=self.namespace,
            cluster_domain=self.cluster_domain,
            scaler=scaler,
            polling_interval_s=self.polling_interval,
            shared_service=self.shared_service,
            oras_image=self.prewarm_oras_image,
        )


class ClusterSettings(Settings):
    """What `hearth run` adds."""

    pod_name: str = Field("", description="Pod that this process runs in; empty outside a cluster.")
    pod_uid: str = Field(
        "",
        description="Its uid, from the downward API: a container that starts again leads again at"
        " once; empty: it waits until the Lease of the process before it has run out.",
    )
    kubeconfig: str = Field(
        "", description="How to reach the cluster; empty: the pod's own account, or KUBECONFIG."
    )
    context: str = Field("", description="Context of the kubeconfig; empty: its current one.")
    namespaces: tuple[str, ...] = Field(
        (),
        description="Namespaces that are served and read, comma separated; empty: all.",
    )
    scaler_tls_port: Port = Field(
        9443,
        description="KEDA ExternalScaler gRPC, mutual TLS, for services with externalScaler.tls.",
    )
    watchdog: Positive = Field(
        Duration(10),
        description="How long KEDA may take to act on a push before Hearth scales up itself.",
    )
    hpa_watchdog: Duration = Field(
        Duration(60),
        description="How long the HPA may leave a service with fewer replicas than demand asks for"
        " before Hearth scales up itself, up to max; 0s: as long as it likes.",
    )
    backend_guard: BackendGuard = Field(
        "warn",
        description="What is done about pods that go past the gateway to a service with"
        " authentication: policy, a NetworkPolicy for its backend (needs the right to write them);"
        " warn, a Warning condition; off, nothing, since somebody else sees to it.",
    )
    scrape_namespaces: tuple[str, ...] = Field(
        (),
        description="Namespaces whose pods may reach guarded backends all the same, for their"
        " metrics, comma separated.",
    )
    migration_cleanup: bool = Field(
        False,
        description="Delete gateways and what belongs to them that a reference project's controller"
        " made for a service, once Hearth serves it; needs the right to delete Secrets and"
        " PodDisruptionBudgets: true or false.",
    )
    mark_loading: bool = Field(
        False,
        description="Mark pods while they load, so that Karpenter and the cluster autoscaler leave"
        " their nodes alone; needs the right to patch pods: true or false.",
    )

    def to_release(self, *, scaler: str = "") -> Release:
        # Outside the cluster the gateway has no pod that a policy could let through.
        reachable = bool(self.pod_name) or self.backend_guard != "policy"
        return replace(
            super().to_release(scaler=scaler),
            backend_guard=self.backend_guard if reachable else "warn",
            scrape_namespaces=self.scrape_namespaces,
            cleanup=self.migration_cleanup,
            mark_loading=self.mark_loading,
        )


class RenderSettings(ClusterSettings):
    """What `hearth render` goes by: as in a cluster, and what the chart makes of it."""

    backend_guard: BackendGuard = Field(
        "policy", description=ClusterSettings.model_fields["backend_guard"].description
    )

    def to_release(self, *, scaler: str = "") -> Release:
        return replace(super().to_release(scaler=scaler), backend_guard=self.backend_guard)


class LocalSettings(Settings):
    """What `hearth local` adds, and where its defaults differ."""

    host: str = Field(
        "localhost",
        description="Address that the three ports listen on; localhost: its addresses of IPv4 and"
        " IPv6.  Containers need 0.0.0.0, or the address of their bridge.",
    )
    namespace: Label = Field("hearth-system", description="Namespace that names Hearth itself.")
    default_namespace: Label = Field(
        "default", description="Namespace of manifests and model names that name none."
    )
    polling_interval: Positive = Field(
        Duration(2), description="How often the stand-in for KEDA asks; cheap on one machine."
    )
    ready_grace: Duration = Field(
        Duration(2), description=Settings.model_fields["ready_grace"].description
    )
    error_detail: Literal["brief", "full"] = Field(
        "full", description=Settings.model_fields["error_detail"].description
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "warning",
        description="What is logged beside the lines for people: debug, info, warning or error.",
    )
    drain_limit: Duration = Field(
        Duration(5), description="On Ctrl-C, how long open streams may take to finish."
    )

    files: tuple[Path, ...] = Field((), description="Manifest files or folders to watch.")
    state_dir: Folder = Field(
        Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state") / "hearth",
        validate_default=True,
        description="Where logs, claims and process records of pods are kept.",
    )
    devices: Counts = Field(
        default_factory=dict,
        description="Devices of this machine, for example nvidia.com/gpu=2; by itself it counts"
        " NVIDIA's, AMD's and Ascend's below /dev.",
    )
    images: Mapping[str, str] = Field(
        default_factory=dict,
        description="How an image is run here, IMAGE_GLOB=COMMAND; may be given more than once.",
    )
    claims: Claims = Field(
        default_factory=dict,
        description="Folder of a volume claim, NAMESPACE/NAME=PATH; may be given more than once.",
    )
    hpa_sync: Positive = Field(
        Duration(15), description="How often the stand-in for the HPA looks, as Kubernetes does."
    )
    restart_backoff: Positive = Field(
        Duration(10), description="First pause before a crashed engine is started again; doubles."
    )


def read(model: type[S], flags: Mapping[str, list[str]], env: Mapping[str, str]) -> S:
    """Settings from flags over `HEARTH_*` variables over defaults.  Raises BadSettings."""
    values: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        variable = f"HEARTH_{name.upper()}"
        origin = f"--{name.replace('_', '-')}"
        texts = flags.get(name)
        if texts is None:
            if variable not in env:
                continue
            origin, texts = variable, env[variable].splitlines()
        values[name] = _shape(origin, texts, many=is_many(field), pairs=is_map(field))
    try:
        settings = model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        raise BadSettings(
            f"{_both(name)}: {validation_messages.message(first, fields=())}"
        ) from error
    _check_ports(settings)
    return settings


def _check_ports(settings: Settings) -> None:
    """Raises BadSettings where two settings name one port; of the free ones each gets its own."""
    seen: dict[int, str] = {}
    for name in type(settings).model_fields:
        number = getattr(settings, name) if name.endswith("_port") else 0
        if number in seen:
            raise BadSettings(
                f"{_both(seen[number])} and {_both(name)} are both {number};"
                " give each port a number of its own"
            )
        if number:
            seen[number] = name


def _both(name: str) -> str:
    """How a setting is called: its flag and its variable."""
    return f"--{name.replace('_', '-')} (or HEARTH_{name.upper()})"


def metavar(field: FieldInfo) -> str:
    """How a help text names this field's value."""
    if is_map(field):
        return "NAME=VALUE"
    if field.annotation is Duration:
        return "DURATION"
    return "N" if field.annotation is int else "PATH" if field.annotation is Path else "TEXT"


def shown_default(field: FieldInfo) -> str:
    """The default as a person would write it; empty for none."""
    default = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    return "" if default in ("", {}) else str(default)


def is_many(field: FieldInfo) -> bool:
    """Whether the field takes a list: comma separated, or the flag given more than once."""
    return get_origin(field.annotation) is tuple


def is_map(field: FieldInfo) -> bool:
    """Whether the field takes NAME=VALUE pairs, the flag given once for each."""
    return get_origin(field.annotation) is Mapping


def _shape(origin: str, texts: list[str], *, many: bool, pairs: bool) -> Any:
    if pairs:
        result = {}
        for text in texts:
            name, equals, value = text.partition("=")
            if not (name and equals and value):
                raise BadSettings(f"{origin}: write NAME=VALUE, not {text!r}")
            result[name] = value
        return result
    if many:
        return tuple(part for text in texts for part in text.split(",") if part)
    return texts[-1] if texts else ""


def reference() -> str:
    """docs/settings.md."""
    lines = [
        "# Settings",
        "",
        "Every setting is a flag and an environment variable; the flag wins. Durations are written",
        "as Go writes them: `10s`, `2m`, `1h30m`. Lists have commas between them. What takes pairs",
        "`NAME=VALUE` takes the flag once for each, or a variable with one on each line. Generated",
        "by `scripts/generate`.",
    ]
    shared = Settings.model_fields
    own = [name for name in ClusterSettings.model_fields if name not in shared]
    for title, model, names in (
        ("Both `hearth run` and `hearth local`", Settings, list(shared)),
        ("`hearth run`: its own settings", ClusterSettings, own),
        (
            "`hearth local`: its own settings and defaults",
            LocalSettings,
            [
                name
                for name, field in LocalSettings.model_fields.items()
                if name != "files"
                and (name not in shared or shown_default(shared[name]) != shown_default(field))
            ],
        ),
    ):
        lines += ["", f"## {title}", "", "| flag, variable | default | what it does |"]
        lines.append("| --- | --- | --- |")
        for name in names:
            field = model.model_fields[name]
            shown = "`~/.local/state/hearth`" if name == "state_dir" else shown_default(field)
            lines.append(
                f"| `--{name.replace('_', '-')}` `HEARTH_{name.upper()}` | {shown} |"
                f" {field.description} |"
            )
    return "\n".join(lines) + "\n"
