"""How the shared host is reached, who may reach which port, and what is scraped."""

import pytest

from hearth import names
from tests.chart.conftest import NAMESPACE, RELEASE, kinds, one

GATEWAY = names.release_gateway(RELEASE)
DOMAIN = {"domain": "models.example.com"}
SELECTOR = {"app.kubernetes.io/name": "hearth", "app.kubernetes.io/instance": RELEASE}


def _spec(documents, kind, name=RELEASE):
    return one(documents, kind, name)["spec"]


@pytest.mark.parametrize(
    ("values", "hosts"),
    [
        ({}, ["models.example.com", "*.models.example.com"]),
        ({"ingress": {"wildcard": False}}, ["models.example.com"]),
        (
            {"namespaces": ["ai"]},
            ["models.example.com", "*.models.example.com", "*.ai.models.example.com"],
        ),
        (
            {"namespaces": ["ai"], "ingress": {"namespaces": ["web"]}},
            ["models.example.com", "*.models.example.com", "*.web.models.example.com"],
        ),
    ],
)
def test_ingress(helm, values, hosts):
    wanted = {"enabled": True, "className": "nginx", "tlsSecretName": "models"}
    ingress = {**wanted, **values.get("ingress", {})}
    spec = _spec(helm.render(**{**values, "gateway": DOMAIN, "ingress": ingress}), "Ingress")
    assert spec["ingressClassName"] == "nginx"
    assert [rule["host"] for rule in spec["rules"]] == hosts
    assert spec["tls"] == [{"secretName": "models", "hosts": hosts}]
    backend = {"service": {"name": GATEWAY, "port": {"name": "http"}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    assert all(rule["http"] == {"paths": [path]} for rule in spec["rules"])


def test_http_route(helm):
    parents = [{"name": "public", "namespace": "gateways", "sectionName": "https"}]
    documents = helm.render(gateway=DOMAIN, httpRoute={"enabled": True, "parentRefs": parents})
    route = one(documents, "HTTPRoute")
    assert route["apiVersion"] == "gateway.networking.k8s.io/v1"
    assert route["spec"] == {
        "parentRefs": parents,
        "hostnames": ["models.example.com", "*.models.example.com"],
        "rules": [
            {
                "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
                "backendRefs": [{"name": GATEWAY, "port": 80}],
                "timeouts": {"request": "0s"},
            }
        ],
    }


def test_http_route_for_gateways_without_timeouts(helm):
    wanted = {"enabled": True, "wildcard": False, "parentRefs": [{"name": "public"}],
              "timeouts": {"request": None}}  # fmt: skip
    spec = _spec(helm.render(gateway=DOMAIN, httpRoute=wanted), "HTTPRoute")
    assert spec["hostnames"] == ["models.example.com"] and "timeouts" not in spec["rules"][0]


def test_field_case_101_every_domain_leads_here(helm):
    gateway = {"domain": "models.example.com", "domains": ["models.corp", "models.example.com"]}
    parents = [{"name": "public"}]
    documents = helm.render(
        gateway=gateway,
        namespaces=["ai"],
        ingress={"enabled": True},
        httpRoute={"enabled": True, "parentRefs": parents},
    )
    hosts = [rule["host"] for rule in _spec(documents, "Ingress")["rules"]]
    assert hosts == [
        "models.example.com", "*.models.example.com", "*.ai.models.example.com",
        "models.corp", "*.models.corp", "*.ai.models.corp",
    ]  # fmt: skip
    assert _spec(documents, "HTTPRoute")["hostnames"] == [
        "models.example.com",
        "*.models.example.com",
        "models.corp",
        "*.models.corp",
    ]
    alone = helm.render(gateway={"domains": ["models.corp"]}, ingress={"enabled": True})
    assert _spec(alone, "Ingress")["rules"][0]["host"] == "models.corp"


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"ingress": {"enabled": True}}, "set gateway.domain"),
        ({"httpRoute": {"enabled": True, "parentRefs": [{"name": "x"}]}}, "set gateway.domain"),
        ({"httpRoute": {"enabled": True}, "gateway": DOMAIN}, "set httpRoute.parentRefs"),
    ],
)
def test_what_is_missing_is_named(helm, values, told):
    assert told in helm.refused(**values)


def _allowed(spec):
    return {port["port"]: rule.get("from") for rule in spec["ingress"] for port in rule["ports"]}


def _namespace(name):
    return [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}]


OWN = {"podSelector": {"matchLabels": SELECTOR}}


def test_field_case_139_a_network_policy_by_default(helm):
    spec = _spec(helm.render(), "NetworkPolicy")
    assert spec["podSelector"]["matchLabels"] == SELECTOR and spec["policyTypes"] == ["Ingress"]
    prometheus = {
        "namespaceSelector": {},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}},
    }
    # Clients and KEDA come from anywhere; the kubelet's probes are never in question.
    assert _allowed(spec) == {
        "gateway": None, "scaler": None, "scaler-tls": None, "admin": [OWN, prometheus],
    }  # fmt: skip


def test_field_case_139_off_by_one_value(helm):
    assert "NetworkPolicy" not in kinds(helm.render(networkPolicy={"enabled": False}))


def test_network_policy_for_listed_peers(helm):
    wanted = {
        "gatewayFrom": _namespace("edge"),
        "adminFrom": _namespace("monitoring"),
        "kedaNamespace": "autoscaling",
    }
    assert _allowed(_spec(helm.render(networkPolicy=wanted), "NetworkPolicy")) == {
        "gateway": _namespace("edge"),
        "scaler": _namespace("autoscaling"),
        "scaler-tls": _namespace("autoscaling"),
        "admin": [OWN, *_namespace("monitoring")],
    }
    spec = _spec(helm.render(networkPolicy={"adminFrom": []}), "NetworkPolicy")
    assert _allowed(spec)["admin"] == [OWN]


def test_field_case_139_the_admin_token_comes_from_a_secret(helm):
    def entry(**values):
        env = _spec(helm.render(**values), "Deployment")["template"]["spec"]["containers"][0]["env"]
        return next((one for one in env if one["name"] == "HEARTH_ADMIN_TOKEN"), None)

    assert entry() is None
    reference = {"secretKeyRef": {"name": "admin", "key": "token"}}
    assert entry(admin={"tokenSecret": {"name": "admin"}})["valueFrom"] == reference


def test_service_monitor(helm):
    documents = helm.render(serviceMonitor={"enabled": True, "labels": {"release": "prometheus"}})
    monitor = one(documents, "ServiceMonitor")
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["endpoints"] == [
        {"port": "admin", "path": "/metrics", "interval": "30s", "scrapeTimeout": "10s",
         "honorLabels": True}
    ]  # fmt: skip
    chosen = monitor["spec"]["selector"]["matchLabels"]
    matching = [
        d["metadata"]["name"]
        for d in documents
        if d["kind"] == "Service" and d["metadata"]["labels"].items() >= chosen.items()
    ]
    assert matching == [names.release_admin(RELEASE)]
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": [NAMESPACE]}


@pytest.mark.parametrize(
    ("namespaces", "selected"), [([], {"any": True}), (["ai"], {"matchNames": ["ai"]})]
)
def test_service_monitor_of_the_engines(helm, namespaces, selected):
    wanted = {"enabled": True, "backends": True}
    documents = helm.render(serviceMonitor=wanted, namespaces=namespaces)
    spec = _spec(documents, "ServiceMonitor", f"{RELEASE}-backends")
    assert spec["namespaceSelector"] == selected
    assert spec["selector"]["matchLabels"] == {
        "app.kubernetes.io/managed-by": names.MANAGER,
        names.METRICS_LABEL: "true",
    }


def test_a_load_balancer_in_front_of_the_gateway(helm):
    service = {
        "type": "LoadBalancer", "annotations": {"a": "b"}, "loadBalancerClass": "internal",
        "loadBalancerSourceRanges": ["10.0.0.0/8"],
    }  # fmt: skip
    gateway = one(helm.render(gateway={"service": service}), "Service", GATEWAY)
    assert gateway["metadata"]["annotations"] == service["annotations"]
    rest = {name: value for name, value in service.items() if name != "annotations"}
    assert gateway["spec"].items() >= rest.items()
