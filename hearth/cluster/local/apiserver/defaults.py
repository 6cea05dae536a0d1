"""What the API server fills in, and refuses, before an object is stored."""

import base64
import re
from typing import Any

from hearth.api.meta import Manifest, Quantity
from hearth.cluster import kinds
from hearth.cluster.interface import Invalid, Kind

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def normalized(value: Any) -> Any:
    """A copy of what a caller sent, without nulls (they mean: not set)."""
    if isinstance(value, dict):
        return {key: normalized(child) for key, child in value.items() if child is not None}
    if isinstance(value, list):
        return [normalized(child) for child in value]
    return value


def prepare(kind: Kind, manifest: Manifest) -> None:
    """Rewrite, in place, what is written in one way and stored in another."""
    if kind == kinds.SECRET and (plain := manifest.pop("stringData", None)):
        encoded = {key: base64.b64encode(str(v).encode()).decode() for key, v in plain.items()}
        manifest["data"] = {**manifest.get("data", {}), **encoded}
    if kind == kinds.PVC:
        _canonical(manifest.get("spec", {}).get("resources", {}))
    if kind == kinds.POD:
        _canonical_pod(manifest.get("spec", {}))
    if kind in (kinds.DEPLOYMENT, kinds.JOB):
        _canonical_pod(manifest.get("spec", {}).get("template", {}).get("spec", {}))


def fill(kind: Kind, manifest: Manifest) -> None:
    """Set, in place, the defaults of fields that are not set."""
    spec: dict[str, Any] = manifest.get("spec", {})
    if kind == kinds.DEPLOYMENT:
        _set(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600)
        strategy = spec.setdefault("strategy", {})
        _set(strategy, type="RollingUpdate")
        _set(strategy.setdefault("rollingUpdate", {}), maxUnavailable="25%", maxSurge="25%")
        _fill_pod(spec.get("template", {}).get("spec", {}))
        _set(manifest, status={})
    elif kind == kinds.JOB:
        _set(spec, parallelism=1, completions=1, backoffLimit=6, suspend=False)
        _set(spec, completionMode="NonIndexed")
        _fill_pod(spec.get("template", {}).get("spec", {}))
        _set(manifest, status={})
    elif kind == kinds.POD:
        _fill_pod(spec)
        _set(manifest.setdefault("status", {}), phase="Pending")
    elif kind == kinds.SERVICE:
        _set(spec, type="ClusterIP", sessionAffinity="None")
        for port in spec.get("ports", ()):
            _set(port, protocol="TCP", targetPort=port.get("port"))
    elif kind == kinds.SECRET:
        _set(manifest, type="Opaque")
    elif kind == kinds.PVC:
        _set(spec, volumeMode="Filesystem")
        _set(manifest.setdefault("status", {}), phase="Pending")


def check(kind: Kind, old: Manifest | None, new: Manifest) -> None:
    """Raise Invalid, with the field's path, for what the API server would refuse."""
    name = new["metadata"].get("name", "")
    text = f"{kind.kind} {name!r} is invalid"
    if kind == kinds.SERVICE:
        if not _LABEL.fullmatch(name) or len(name) > 63:
            raise Invalid(f"{text}: metadata.name: use lower case letters, digits and '-' only")
    elif not _SUBDOMAIN.fullmatch(name) or len(name) > 253:
        raise Invalid(f"{text}: metadata.name: use lower case letters, digits, '-' and '.' only")
    for key, value in new["metadata"].get("labels", {}).items():
        if not isinstance(value, str) or len(value) > 63 or not _LABEL_VALUE.fullmatch(value):
            raise Invalid(f"{text}: metadata.labels: {key}: {value!r} is not a legal label value")
    spec = new.get("spec", {})
    if kind in (kinds.DEPLOYMENT, kinds.JOB):
        _check_containers(text, "spec.template.spec", spec.get("template", {}).get("spec", {}))
    elif kind == kinds.POD:
        _check_containers(text, "spec", spec)
    if kind == kinds.JOB and spec["template"]["spec"]["restartPolicy"] == "Always":
        raise Invalid(f"{text}: spec.template.spec.restartPolicy: set OnFailure or Never")
    if kind == kinds.DEPLOYMENT:
        _check_selector(text, spec)
    if old is not None:
        _check_immutable(kind, text, old, spec)


def _check_selector(text: str, spec: dict[str, Any]) -> None:
    wanted = spec.get("selector", {}).get("matchLabels", {})
    labels = spec.get("template", {}).get("metadata", {}).get("labels", {})
    if not wanted:
        raise Invalid(f"{text}: spec.selector: is required")
    if not wanted.items() <= labels.items():
        raise Invalid(f"{text}: spec.template.metadata.labels: spec.selector does not select them")
    if spec["replicas"] < 0:
        raise Invalid(f"{text}: spec.replicas: must not be negative")


def _check_containers(text: str, path: str, pod: dict[str, Any]) -> None:
    if not pod.get("containers"):
        raise Invalid(f"{text}: {path}.containers: is required")
    for number, container in enumerate(pod["containers"]):
        for field in ("name", "image"):
            if not container.get(field):
                raise Invalid(f"{text}: {path}.containers[{number}].{field}: is required")


def _check_immutable(kind: Kind, text: str, old: Manifest, spec: dict[str, Any]) -> None:
    before = old.get("spec", {})
    fixed = {
        kinds.DEPLOYMENT: ("selector",),
        kinds.JOB: ("template", "selector", "completions"),
        kinds.PVC: ("accessModes", "storageClassName", "volumeName", "volumeMode"),
        kinds.POD: ("volumes", "restartPolicy", "nodeSelector"),
    }
    for field in fixed.get(kind, ()):
        if field in before and before[field] != spec.get(field):
            raise Invalid(f"{text}: spec.{field}: field is immutable")


def _set(target: dict[str, Any], **defaults: Any) -> None:
    for key, value in defaults.items():
        target.setdefault(key, value)


def _fill_pod(pod: dict[str, Any]) -> None:
    _set(pod, restartPolicy="Always", terminationGracePeriodSeconds=30, dnsPolicy="ClusterFirst")
    _set(pod, schedulerName="default-scheduler", securityContext={})
    for container in (*pod.get("initContainers", ()), *pod.get("containers", ())):
        tag = container.get("image", "").rpartition("/")[2].partition(":")[2]
        _set(container, imagePullPolicy="Always" if tag in ("", "latest") else "IfNotPresent")
        _set(container, resources={}, terminationMessagePolicy="File")
        _set(container, terminationMessagePath="/dev/termination-log")
        for port in container.get("ports", ()):
            _set(port, protocol="TCP")
        for env in container.get("env", ()):
            if reference := env.get("valueFrom", {}).get("fieldRef"):
                _set(reference, apiVersion="v1")
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            if probe := container.get(name):
                _set(probe, timeoutSeconds=1, periodSeconds=10)
                _set(probe, successThreshold=1, failureThreshold=3)
                if http := probe.get("httpGet"):
                    _set(http, path="/", scheme="HTTP")
    for volume in pod.get("volumes", ()):
        if (path := volume.get("hostPath")) is not None:
            _set(path, type="")
        if (secret := volume.get("secret")) is not None:
            _set(secret, defaultMode=0o644)


def _canonical_pod(pod: dict[str, Any]) -> None:
    for container in (*pod.get("initContainers", ()), *pod.get("containers", ())):
        _canonical(container.get("resources", {}))
    for volume in pod.get("volumes", ()):
        if limit := volume.get("emptyDir", {}).get("sizeLimit"):
            volume["emptyDir"]["sizeLimit"] = quantity(limit)


def _canonical(resources: dict[str, Any]) -> None:
    for section in ("limits", "requests"):
        for name, value in resources.get(section, {}).items():
            resources[section][name] = quantity(value)


def quantity(value: object) -> str:
    """A quantity as the API server stores it: `1000m` is `1`, `1024Mi` is `1Gi`."""
    text = str(value)
    try:
        amount = Quantity(text).amount
    except ValueError as error:
        raise Invalid(str(error)) from error
    if re.search("[eE][0-9]", text):
        return text
    if text.endswith("i") and amount == int(amount):
        number, unit = int(amount), ""
        for larger in _BINARY:
            if number == 0 or number % 1024:
                break
            number, unit = number // 1024, larger
        return f"{number}{unit}"
    if amount != int(amount):
        return f"{int((amount * 1000).to_integral_value(rounding='ROUND_UP'))}m"
    number, unit = int(amount), ""
    for larger in "kMGTPE":
        if number == 0 or number % 1000:
            break
        number, unit = number // 1000, larger
    return f"{number}{unit}"
