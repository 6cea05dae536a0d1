import pytest

from hearth.api.meta import Manifest
from hearth.cluster import kinds
from hearth.cluster.interface import Invalid
from hearth.cluster.local.apiserver import defaults


@pytest.mark.parametrize(
    "written, stored",
    [
        (1, "1"), (0, "0"), ("1000m", "1"), ("1500m", "1500m"), ("0.5", "500m"), ("0.0001", "1m"),
        ("1024Mi", "1Gi"), ("1536Mi", "1536Mi"), ("0.5Gi", "512Mi"), ("0.1Ki", "102400m"),
        ("1e3", "1e3"), ("1000", "1k"),
        ("2000k", "2M"), ("16Gi", "16Gi"), ("0Gi", "0"), ("1Ki", "1Ki"), ("2048Ei", "2048Ei"),
        ("2000E", "2000E"),
    ],
)  # fmt: skip
def test_quantities(written, stored):
    assert defaults.quantity(written) == stored


def test_no_quantity():
    with pytest.raises(Invalid, match="is not a quantity"):
        defaults.quantity("much")


def test_nulls_mean_not_set_and_the_copy_is_a_copy():
    sent = {"a": None, "b": [{"c": None, "d": 1}]}
    copy = defaults.normalized(sent)
    assert copy == {"b": [{"d": 1}]}
    assert copy["b"] is not sent["b"]


def test_a_secrets_plain_text_is_stored_encoded():
    secret = {"data": {"a": "eA=="}, "stringData": {"b": "x", "n": 7}}
    defaults.prepare(kinds.SECRET, secret)
    assert secret == {"data": {"a": "eA==", "b": "eA==", "n": "Nw=="}}


def test_quantities_of_a_claim_and_of_volumes():
    claim = {"spec": {"resources": {"requests": {"storage": "1024Mi"}}}}
    defaults.prepare(kinds.PVC, claim)
    assert claim["spec"]["resources"]["requests"]["storage"] == "1Gi"
    memory = {"sizeLimit": "2048Mi"}
    pod = {"spec": {"volumes": [{"name": "shm", "emptyDir": memory}]}}
    defaults.prepare(kinds.POD, pod)
    assert memory["sizeLimit"] == "2Gi"


@pytest.mark.parametrize(
    "image, policy",
    [
        ("engine", "Always"),
        ("engine:latest", "Always"),
        ("engine:1", "IfNotPresent"),
        ("registry:5000/engine", "Always"),
        ("registry:5000/engine:1", "IfNotPresent"),
    ],
)
def test_default_image_pull_policy(image, policy):
    pod = {"spec": {"containers": [{"name": "a", "image": image}]}}
    defaults.fill(kinds.POD, pod)
    assert pod["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_defaults_of_volumes():
    volumes = [{"name": "h", "hostPath": {"path": "/x"}}, {"name": "s", "secret": {}}]
    deployment = {"spec": {"template": {"spec": {"volumes": volumes}}}}
    defaults.fill(kinds.DEPLOYMENT, deployment)
    assert volumes[0]["hostPath"] == {"path": "/x", "type": ""}
    assert volumes[1]["secret"] == {"defaultMode": 0o644}


POD = {"containers": [{"name": "a", "image": "b"}]}


def deployment(*, labels=None, replicas=1):
    template = {"metadata": {"labels": labels or {"app": "a"}}, "spec": POD}
    spec = {"selector": {"matchLabels": {"app": "a"}}, "template": template, "replicas": replicas}
    return {"metadata": {"name": "a"}, "spec": spec}


@pytest.mark.parametrize(
    "kind, manifest, said",
    [
        (kinds.SERVICE, {"metadata": {"name": "1st"}}, "metadata.name"),
        (kinds.CONFIG_MAP, {"metadata": {"name": "A"}}, "metadata.name"),
        (kinds.CONFIG_MAP, {"metadata": {"name": "a", "labels": {"k": "a b"}}}, "metadata.labels"),
        (kinds.POD, {"metadata": {"name": "a"}, "spec": {}}, "spec.containers: is required"),
        (kinds.POD, {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "x"}]}},
         r"spec.containers\[0\].image"),
        (kinds.DEPLOYMENT, {"metadata": {"name": "a"}, "spec": {"template": {"spec": POD}}},
         "spec.selector"),
        (kinds.DEPLOYMENT, deployment(labels={"app": "b"}), "does not select them"),
        (kinds.DEPLOYMENT, deployment(replicas=-1), "must not be negative"),
        (kinds.JOB, {"metadata": {"name": "a"},
                     "spec": {"template": {"spec": {**POD, "restartPolicy": "Always"}}}},
         "OnFailure or Never"),
    ],
)  # fmt: skip
def test_invalid_manifests(kind, manifest, said):
    with pytest.raises(Invalid, match=said):
        defaults.check(kind, None, manifest)


def test_a_claim_keeps_its_class():
    old = {"spec": {"storageClassName": "fast"}}
    new = {"metadata": {"name": "a"}, "spec": {"storageClassName": "slow"}}
    with pytest.raises(Invalid, match=r"spec\.storageClassName: field is immutable"):
        defaults.check(kinds.PVC, old, new)


def test_defaults_of_a_job_a_service_and_a_secret():
    job: Manifest = {
        "spec": {"template": {"spec": {**POD, "containers": [{"name": "a", "image": "b:1"}]}}}
    }
    defaults.fill(kinds.JOB, job)
    assert (job["spec"]["backoffLimit"], job["spec"]["completionMode"]) == (6, "NonIndexed")
    assert job["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    service: Manifest = {"spec": {"ports": [{"port": 80}, {"port": 9, "targetPort": "http"}]}}
    defaults.fill(kinds.SERVICE, service)
    assert [port["targetPort"] for port in service["spec"]["ports"]] == [80, "http"]
    secret: Manifest = {"data": {}}
    defaults.fill(kinds.SECRET, secret)
    assert secret["type"] == "Opaque"


def test_a_probe_without_a_request_gets_its_times_only():
    probe: Manifest = {"exec": {"command": ["true"]}}
    container = {"name": "a", "image": "b", "livenessProbe": probe}
    defaults.fill(kinds.POD, {"spec": {"containers": [container]}})
    assert probe == {
        "exec": {"command": ["true"]},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
