"""Deployments, Jobs and their pods as the tables of decisions want them."""

import datetime

NOW = datetime.datetime(2026, 1, 1, 12, 0, tzinfo=datetime.UTC)


def at(seconds):
    """That many seconds from NOW."""
    return NOW + datetime.timedelta(seconds=seconds)


def spelled(seconds=0.0):
    return at(seconds).strftime("%Y-%m-%dT%H:%M:%SZ")


def deployment(replicas=1, *, image="engine:1", status=None, generation=1, **spec):
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "chat", "namespace": "ai", "uid": "d", "generation": generation},
        "spec": {
            "replicas": replicas,
            "progressDeadlineSeconds": 600,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {}},
            "template": {
                "metadata": {"labels": {"app": "chat"}, "annotations": {"note": "x"}},
                "spec": {"containers": [{"name": "serving", "image": image}]},
            },
            **spec,
        },
        "status": status or {},
    }


def job(*, status=None, restart="OnFailure", **spec):
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "fill", "namespace": "ai", "uid": "j"},
        "spec": {
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": 2,
            "suspend": False,
            "template": {"spec": {"restartPolicy": restart, "containers": [{"name": "fetch"}]}},
            **spec,
        },
        "status": status or {},
    }


def pod(name, *, labels=None, phase="Running", ready=None, age=60, leaving=False, **status):
    """A pod created `age` seconds before NOW, Ready since `ready` seconds."""
    metadata = {
        "name": name,
        "uid": name,
        "labels": labels or {},
        "creationTimestamp": spelled(-age),
        **({"deletionTimestamp": spelled()} if leaving else {}),
    }
    if ready is not None:
        changed = spelled(-ready)
        condition = {"type": "Ready", "status": "True", "lastTransitionTime": changed}
        status["conditions"] = [condition]
    return {
        "metadata": metadata,
        "spec": {"restartPolicy": "OnFailure"},
        "status": {"phase": phase, **status},
    }


def names(pods):
    return [pod["metadata"]["name"] for pod in pods]
