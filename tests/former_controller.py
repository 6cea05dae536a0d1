"""What the controllers of the two reference projects leave in a cluster for one LLMService.

Names, labels, managers and the absence of `spec.replicas` and `type` are as the second one's was
seen to do; of the first one is known that it was its forerunner.
"""

from dataclasses import dataclass
from typing import Any

from hearth.api.meta import Manifest

GATEWAY_PORT, SCALER_PORT, REPORT_PORT = 8080, 9090, 9091


@dataclass(frozen=True, kw_only=True)
class FormerController:
    """One of the two, and the pods that it would make."""

    group: str
    name: str
    """Its value of `app.kubernetes.io/managed-by`."""
    manager: str
    engine: Manifest
    """The container of a backend."""
    gateway: Manifest
    """The container of a gateway."""

    def applied(
        self, service: Manifest, *, gateways: int = 1, cache: str = "NodeLocalPVC"
    ) -> list[Manifest]:
        """What it applies, in its order; with two gateways an aggregator for KEDA beside them."""
        name = service["metadata"]["name"]
        backend, gateway = self.labels(service), self.part(service, "gateway")
        listed = {**gateway, f"{self.group}/llmservice": name}
        aggregator = self.part(service, "scaler")
        asked, ports = gateway, [("grpc", SCALER_PORT, SCALER_PORT)]
        if gateways > 1:
            asked, ports = aggregator, [*ports, ("http", REPORT_PORT, REPORT_PORT)]
        pods = {**backend, f"{self.group}/runtime": service["spec"]["runtime"]["name"]}
        return [
            self._scaled_object(service),
            self._owned(service, "apps/v1", "Deployment", name, pods, {
                "selector": {"matchLabels": backend},
                "template": {"metadata": {"labels": pods}, "spec": self._backend(service, cache)},
            }),
            self._service(service, f"{name}-backend", backend, backend, ("http", 80, "http")),
            self._deployment(service, f"{name}-gateway", gateway, gateways),
            self._service(service, name, listed, gateway, ("http", 80, GATEWAY_PORT)),
            self._service(service, f"{name}-scaler", listed, asked, *ports),
            *([] if gateways == 1 else [
                self._disruptions(service, listed, gateway),
                self._deployment(service, f"{name}-scaler", aggregator, 1),
            ]),
        ]  # fmt: skip

    def created(
        self, service: Manifest, *, gateways: int = 1, claim: bool = True
    ) -> list[Manifest]:
        """What it creates once."""
        name = service["metadata"]["name"]
        labels = self.labels(service)
        model = service["spec"]["model"]["source"]["uri"].partition("://")[2]
        container = {"name": "prewarm", "image": self.engine["image"], "command": ["true", model]}
        pod = self._backend(service, "NodeLocalPVC" if claim else "None")
        pod |= {"restartPolicy": "OnFailure", "containers": [container]}
        job = {"backoffLimit": 4, "template": {"metadata": {"labels": labels}, "spec": pod}}
        made = [self._owned(service, "batch/v1", "Job", f"{name}-prewarm", labels, job)]
        if claim:
            size = {"requests": {"storage": "50Gi"}}
            spec: Manifest = {"accessModes": ["ReadWriteOnce"], "resources": size}
            pvc = self._owned(service, "v1", "PersistentVolumeClaim", f"{name}-cache", labels, spec)
            made.insert(0, pvc)
        if gateways > 1:
            secret = self._owned(service, "v1", "Secret", f"{name}-demand-auth", labels, {})
            secret.pop("spec")
            made.insert(0, {**secret, "type": "Opaque", "data": {"token": "dG9rZW4="}})
        for one in made:
            one["metadata"]["annotations"] = {f"{self.group}/create-once-hash": "0" * 64}
        return made

    def labels(self, service: Manifest) -> dict[str, str]:
        """Of a backend, and in its selector."""
        name = service["metadata"]["name"]
        return {
            "app.kubernetes.io/name": name,
            "app.kubernetes.io/managed-by": self.name,
            f"{self.group}/llmservice": name,
        }

    def part(self, service: Manifest, part: str) -> dict[str, str]:
        """Of the pods of a `gateway`, or of the `scaler` beside several."""
        name = service["metadata"]["name"]
        return {
            "app.kubernetes.io/name": f"{name}-{part}",
            "app.kubernetes.io/managed-by": self.name,
            f"{self.group}/{part}": name,
        }

    def _backend(self, service: Manifest, cache: str) -> Manifest:
        name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
        volumes: list[Manifest] = [{"name": "dshm", "emptyDir": {"medium": "Memory"}}]
        mounts = [{"name": "dshm", "mountPath": "/dev/shm"}]
        if cache != "None":
            mounts.append({"name": "model-cache", "mountPath": "/cache"})
            volumes.append({"name": "model-cache"})
        if cache == "NodeLocalPVC":
            volumes[-1]["persistentVolumeClaim"] = {"claimName": f"{name}-cache"}
        if cache == "HostPath":
            path = f"/var/lib/{self.name}/cache/{namespace}-{name}"
            volumes[-1]["hostPath"] = {"path": path, "type": "DirectoryOrCreate"}
        return {
            "automountServiceAccountToken": False,
            "containers": [{**self.engine, "volumeMounts": mounts}],
            "volumes": volumes,
        }

    def _disruptions(
        self, service: Manifest, labels: dict[str, str], selector: dict[str, str]
    ) -> Manifest:
        name = f"{service['metadata']['name']}-gateway"
        spec = {"minAvailable": 1, "selector": {"matchLabels": selector}}
        return self._owned(service, "policy/v1", "PodDisruptionBudget", name, labels, spec)

    def _scaled_object(self, service: Manifest) -> Manifest:
        name, labels = service["metadata"]["name"], self.labels(service)
        spec = self._scaled(service)
        return self._owned(service, "keda.sh/v1alpha1", "ScaledObject", name, labels, spec)

    def _scaled(self, service: Manifest) -> Manifest:
        name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
        return {
            "scaleTargetRef": {"name": name},
            "minReplicaCount": service["spec"].get("scaling", {}).get("min", 0),
            "maxReplicaCount": 1,
            "pollingInterval": 5,
            "cooldownPeriod": 300,
            "triggers": [
                {
                    "type": "external-push",
                    "metadata": {
                        "scalerAddress": f"{name}-scaler.{namespace}.svc:{SCALER_PORT}",
                        "metricName": "pending",
                        "targetValue": "10",
                    },
                }
            ],
        }

    def _deployment(
        self, service: Manifest, name: str, labels: dict[str, str], replicas: int
    ) -> Manifest:
        spec = {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [self.gateway]}},
        }
        return self._owned(service, "apps/v1", "Deployment", name, labels, spec)

    def _service(
        self,
        service: Manifest,
        name: str,
        labels: dict[str, str],
        selector: dict[str, str],
        *ports: tuple[str, int, Any],
    ) -> Manifest:
        spec = {
            "selector": selector,
            "ports": [
                {"name": n, "port": port, "targetPort": target, "protocol": "TCP"}
                for n, port, target in ports
            ],
        }
        return self._owned(service, "v1", "Service", name, labels, spec)

    def _owned(
        self,
        service: Manifest,
        api_version: str,
        kind: str,
        name: str,
        labels: dict[str, str],
        spec: Manifest,
    ) -> Manifest:
        owner = {
            "apiVersion": service["apiVersion"],
            "kind": "LLMService",
            "name": service["metadata"]["name"],
            "uid": service["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        metadata = {
            "name": name,
            "namespace": service["metadata"]["namespace"],
            "labels": labels,
            "ownerReferences": [owner],
        }
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def _engine() -> Manifest:
    """With fields that Hearth sets, and with some that it does not."""
    return {
        "name": "serving",
        "image": "engine:1",
        "command": ["old"],
        "args": ["--old"],
        "env": [{"name": "OLD", "value": "1"}],
        "ports": [{"name": "http", "containerPort": 8000, "protocol": "TCP"}],
    }


def first(engine: Manifest | None = None, gateway: Manifest | None = None) -> FormerController:
    """The first reference's."""
    return FormerController(
        group="serving.hearth.dev",
        name="hearth",
        manager="hearth-operator",
        engine=engine or _engine(),
        gateway=gateway or {"name": "gateway", "image": "gateway:1"},
    )


def second(engine: Manifest | None = None, gateway: Manifest | None = None) -> FormerController:
    """The second reference's."""
    return FormerController(
        group="serving.noctaya.io",
        name="noctaya",
        manager="noctaya-operator",
        engine=engine or _engine(),
        gateway=gateway or {"name": "gateway", "image": "gateway:1"},
    )
