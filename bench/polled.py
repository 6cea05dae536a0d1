"""ScaledObjects for KEDA to poll: each of a Deployment that stays at zero."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol
from urllib.parse import urlsplit

import yaml

from hearth import trigger

NAMESPACE = "hearth-bench-polling"
WINDOW_S = 60.0
"""What is measured, each time: four polls of each ScaledObject."""
SETTLE_S = 20.0
"""From the last stream that opened until what comes with a new scaler is over."""
PATIENCE_S = 600.0
"""KEDA takes in some two ScaledObjects a second."""


class Kubectl(Protocol):
    def __call__(self, *words: str, given: str = "") -> str: ...


def kubectl(*words: str, given: str = "") -> str:
    """`kubectl` on the cluster of KUBECONFIG; ends the program where it fails."""
    done = subprocess.run(["kubectl", *words], input=given, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"kubectl {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def name(number: int) -> str:
    return f"model-{number}"


def uid(number: int) -> str:
    return f"uid-{number}"


def metadata(number: int, address: str) -> dict[str, str]:
    """As Hearth renders it."""
    return trigger.render(trigger.Trigger(target=1, uid=uid(number)), scaler_address=address)


@contextmanager
def scaled_objects(
    kubectl: Kubectl, objects: int, *, polling_s: float
) -> Iterator[Callable[[int], None]]:
    """A namespace with Deployments; what is given makes their ScaledObjects, for a port here."""
    host = _own_address(kubectl)
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    deployments = [_deployment(number) for number in range(objects)]

    def connect(port: int) -> None:
        address = f"{host}:{port}"
        wanted = [_scaled_object(n, address, polling_s=polling_s) for n in range(objects)]
        _apply(kubectl, *wanted)

    _apply(kubectl, space, *deployments)
    try:
        yield connect
    finally:
        kubectl("delete", "namespace", "--wait=false", NAMESPACE)


def wait(streams: Callable[[], int], wanted: int) -> None:
    """Until KEDA has opened its push streams, and asks evenly.  Ends the program where it does not.

    Nothing can be watched for that: the server is another process.
    """
    until = time.monotonic() + PATIENCE_S
    while (now := streams()) < wanted:
        if time.monotonic() > until:
            raise SystemExit(f"KEDA opened {now} push streams of {wanted}; see its operator's log")
        time.sleep(1)  # noqa: TID251 # nothing else runs in this process
    time.sleep(SETTLE_S)  # noqa: TID251
    print(f"KEDA holds {streams()} push streams.", file=sys.stderr, flush=True)


def _own_address(kubectl: Kubectl) -> str:
    """Of this machine, as the cluster sees it."""
    words = ("config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}")
    server = urlsplit(kubectl(*words))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((server.hostname, server.port or 443))  # sends nothing
        address: str = probe.getsockname()[0]
        return address


def _apply(kubectl: Kubectl, *manifests: dict[str, object]) -> None:
    text = yaml.safe_dump_all(manifests)
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", given=text)


def _deployment(number: int) -> dict[str, object]:
    labels = {"app": name(number)}
    container = {"name": "serving", "image": "engine"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name(number), "namespace": NAMESPACE},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def _scaled_object(number: int, address: str, *, polling_s: float) -> dict[str, object]:
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": name(number), "namespace": NAMESPACE},
        "spec": {
            "scaleTargetRef": {"name": name(number)},
            "minReplicaCount": 0,
            "maxReplicaCount": 1,
            "pollingInterval": round(polling_s),
            "cooldownPeriod": 10,
            "triggers": [{"type": "external-push", "metadata": metadata(number, address)}],
        },
    }
