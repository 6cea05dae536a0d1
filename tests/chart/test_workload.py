"""The Deployment, its Services and its budget."""

import re

import pytest

from hearth import names
from hearth.api.meta import Duration
from hearth.reconcile.render import gateway_services
from hearth.reconcile.render.release import Release
from hearth.settings import ClusterSettings, read
from tests.chart.conftest import NAMESPACE, RELEASE, kinds, one

SELECTOR = {"app.kubernetes.io/name": "hearth", "app.kubernetes.io/instance": RELEASE}
LEADER = {**SELECTOR, names.LEADER_LABEL: names.LEADER}
IDENTITY = {
    "HEARTH_NAMESPACE": "metadata.namespace",
    "HEARTH_POD_NAME": "metadata.name",
    "HEARTH_POD_UID": "metadata.uid",
}


def _pod(documents):
    return one(documents, "Deployment")["spec"]["template"]["spec"]


def _container(documents):
    [container] = _pod(documents)["containers"]
    return container


def _env(documents):
    return {entry["name"]: entry.get("value") for entry in _container(documents)["env"]}


def test_with_the_defaults_nothing_optional_is_there(helm):
    assert kinds(helm.render()) == {
        "Deployment", "Service", "ServiceAccount", "PodDisruptionBudget", "Lease", "NetworkPolicy",
        "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
    }  # fmt: skip


def test_all_is_in_the_releases_namespace_and_labelled(helm):
    for document in helm.render(labels={"team": "ml"}):
        metadata = document["metadata"]
        assert metadata["labels"].items() >= {**SELECTOR, "team": "ml"}.items()
        if not document["kind"].startswith("Cluster"):
            assert metadata["namespace"] == NAMESPACE


def test_pod_security_is_restricted(helm):
    documents = helm.render()
    pod, container = _pod(documents)["securityContext"], _container(documents)["securityContext"]
    assert pod["runAsNonRoot"] is True and pod["runAsUser"] != 0
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert _container(documents)["volumeMounts"] == [{"name": "tmp", "mountPath": "/tmp"}]
    assert set(_pod(documents)["volumes"][0]) == {"name", "emptyDir"}


def test_a_user_id_can_be_left_to_the_platform(helm):
    documents = helm.render(podSecurityContext={"runAsUser": None, "runAsGroup": None})
    assert set(_pod(documents)["securityContext"]) == {"runAsNonRoot", "seccompProfile"}


def test_probes_ask_the_admin_port(helm):
    container = _container(helm.render())
    paths = {
        name: container[name]["httpGet"]["path"]
        for name in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert paths == {
        "startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz",
    }  # fmt: skip
    assert all(container[name]["httpGet"]["port"] == "admin" for name in paths)
    assert container["livenessProbe"]["timeoutSeconds"] == 5
    assert "lifecycle" not in container


@pytest.mark.parametrize("limit", ["2m", "1h30m", "1500ms", "90s", "0.5m"])
def test_the_grace_outlasts_the_drain(helm, limit):
    grace_s = _pod(helm.render(gateway={"drainLimit": limit}))["terminationGracePeriodSeconds"]
    assert 30 <= grace_s - Duration.parse(limit) < 31


def test_settings_arrive_as_the_program_reads_them(helm):
    documents = helm.render(
        namespaces=["ai"],
        clusterDomain="corp.example",
        sharedService="llm",
        noctaya={"enabled": True},
        gateway={
            "domain": "models.example.com", "domains": ["models.corp"], "clientIdle": "65m",
            "bodyLimitBytes": 134217728, "heldBytes": 10**10,
            "corsOrigins": ["https://a.example", "https://b.example"], "readyGrace": "20s",
            "drainLimit": "5m", "errorDetail": "full",
        },
        scaler={"pollingInterval": "30s", "watchdog": "20s", "hpaWatchdog": "2m"},
        admin={"hosts": ["hearth.example.com"]},
        log={"level": "debug", "format": "json", "access": True},
    )  # fmt: skip
    env = _env(documents)
    settings = read(ClusterSettings, {}, {name: value for name, value in env.items() if value})
    wanted = {
        "release": RELEASE,
        "groups": ("serving.hearth.dev", "serving.noctaya.io"),
        "default_namespace": "ai",
        "cluster_domain": "corp.example",
        "shared_service": "llm",
        "ingress_domain": ("models.example.com", "models.corp"),
        "client_idle": 3900,
        "body_limit_bytes": 134217728,
        "held_bytes": 10**10,
        "cors_origins": ("https://a.example", "https://b.example"),
        "admin_hosts": ("hearth.example.com",),
        "error_detail": "full",
        "ready_grace": 20,
        "drain_limit": 300,
        "polling_interval": 30,
        "watchdog": 20,
        "hpa_watchdog": 120,
        "log_level": "debug",
        "log_format": "json",
        "access_log": True,
    }
    assert {name: getattr(settings, name) for name in wanted} == wanted
    assert env["HEARTH_NAMESPACES"] == "ai"


def test_the_process_knows_who_it_is(helm):
    fields = {
        entry["name"]: entry["valueFrom"]["fieldRef"]["fieldPath"]
        for entry in _container(helm.render())["env"]
        if "valueFrom" in entry
    }
    assert fields == IDENTITY


def test_no_service_can_pass_for_a_setting(helm):
    # A Service called hearth-gateway would give HEARTH_GATEWAY_PORT=tcp://…
    assert _pod(helm.render())["enableServiceLinks"] is False


def test_services_lead_to_the_leader_and_to_every_admin_port(helm):
    documents = helm.render()
    services = {d["metadata"]["name"]: d["spec"] for d in documents if d["kind"] == "Service"}
    ports = {port["name"]: port["containerPort"] for port in _container(documents)["ports"]}
    shapes = {
        name: (spec["selector"], {p["port"]: ports[p["targetPort"]] for p in spec["ports"]})
        for name, spec in services.items()
    }
    release = Release()
    assert shapes == {
        names.release_gateway(RELEASE): (LEADER, {gateway_services.PORT: 8080}),
        names.release_scaler(RELEASE): (
            LEADER, {release.scaler_port: 9090, release.scaler_tls_port: 9443},
        ),
        names.release_admin(RELEASE): (SELECTOR, {8081: 8081}),
    }  # fmt: skip
    assert services[names.release_admin(RELEASE)]["publishNotReadyAddresses"] is True


def test_the_label_of_the_leader_is_nobodys_at_first(helm):
    documents = helm.render()
    template = one(documents, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert template.items() >= SELECTOR.items() and names.LEADER_LABEL not in template


def test_replicas_prefer_other_nodes_and_leave_one_at_a_time(helm):
    documents = helm.render()
    affinity = _pod(documents)["affinity"]["podAntiAffinity"]
    assert set(affinity) == {"preferredDuringSchedulingIgnoredDuringExecution"}
    budget = one(documents, "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1 and budget["selector"]["matchLabels"] == SELECTOR
    assert one(documents, "Deployment")["spec"]["replicas"] == 2
    assert "PodDisruptionBudget" not in kinds(helm.render(replicas=1))


def test_what_a_pod_may_be_given(helm):
    given = {
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [{"maxSkew": 1}],
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "high",
        "imagePullSecrets": [{"name": "registry"}],
    }
    documents = helm.render(
        **given,
        podLabels={"a": "b"},
        podAnnotations={"c": "d"},
        deploymentAnnotations={"e": "f"},
        serviceAccount={"annotations": {"g": "h"}},
        extraEnv=[{"name": "HTTPS_PROXY", "value": "http://proxy"}],
        extraArgs=["--host=::"],
        resources={"limits": {"memory": "2Gi"}},
        image={"repository": "registry.example/hearth", "digest": f"sha256:{'0' * 64}"},
    )
    assert _pod(documents).items() >= given.items()
    deployment = one(documents, "Deployment")
    assert deployment["metadata"]["annotations"] == {"e": "f"}
    metadata = deployment["spec"]["template"]["metadata"]
    assert metadata["labels"]["a"] == "b" and metadata["annotations"] == {"c": "d"}
    assert one(documents, "ServiceAccount")["metadata"]["annotations"] == {"g": "h"}
    container = _container(documents)
    assert container["args"] == ["run", "--host=::"]
    assert container["image"] == f"registry.example/hearth@sha256:{'0' * 64}"
    assert container["resources"]["limits"] == {"memory": "2Gi"}
    assert _env(documents)["HTTPS_PROXY"] == "http://proxy"


def test_a_look_into_the_image(helm):
    container = _container(helm.render(command=["sleep", "infinity"]))
    assert container["command"] == ["sleep", "infinity"] and "args" not in container


def test_both_versions_of_helm_render_the_same(each_helm, helm):
    everything = {
        "namespaces": ["ai", "web"],
        "gateway": {"domain": "models.example.com", "drainLimit": "90s"},
        "ingress": {"enabled": True},
        "httpRoute": {"enabled": True, "parentRefs": [{"name": "public"}]},
        "networkPolicy": {"enabled": True},
        "serviceMonitor": {"enabled": True, "backends": True},
        "rbac": {"aggregate": True},
    }
    assert each_helm.render(**everything) == helm.render(**everything)


@pytest.mark.parametrize("release", ["1st", "my.hearth"])
def test_a_release_that_no_service_can_be_named_after_is_refused(helm, release):
    assert "must begin with a letter" in helm.refused(release)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"replica": 3}, "replica"),
        ({"gateway": {"domian": "x"}}, "domian"),
        ({"log": {"level": "loud"}}, "level"),
    ],
)
def test_a_typo_is_refused_by_name(each_helm, values, told):
    assert re.search(rf"(?i)(schema|validation)[\s\S]*{told}", each_helm.refused(**values))


def test_field_case_93_services_have_the_ip_families_that_are_asked_for(helm):
    def families(**values):
        found = [d["spec"] for d in helm.render(**values) if d["kind"] == "Service"]
        assert len(found) == 3
        [one] = {(s.get("ipFamilyPolicy"), str(s.get("ipFamilies"))) for s in found}
        return one

    assert families() == (None, "None")
    assert families(ipFamilies=["IPv6"]) == (None, "['IPv6']")
    dual = {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv4"]}
    assert families(**dual) == ("PreferDualStack", "['IPv6', 'IPv4']")
    assert families(ipFamilyPolicy="SingleStack") == ("SingleStack", "None")


def test_field_case_93_nothing_in_the_chart_names_an_address_to_listen_on(helm):
    assert not {"HEARTH_HOST"} & set(_env(helm.render()))
    with_host = read(ClusterSettings, {}, {})
    assert with_host.host == ""
