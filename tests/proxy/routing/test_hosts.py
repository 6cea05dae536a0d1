"""Which services a Host header stands for."""

import pytest

from hearth.api.meta import ServiceKey
from hearth.proxy.routing.hosts import Everything, HostTable, Namespace, OneService

TABLE = HostTable(ingress_domains=("llm.example.com",), gateway_namespace="hearth-system")
CHAT = OneService(ServiceKey("ai", "chat"))
AI = Namespace("ai")
ALL = Everything()


@pytest.mark.parametrize(
    ("host", "scope"),
    [
        ("llm.example.com", ALL),
        ("LLM.Example.COM.:443", ALL),
        ("hearth-gateway", ALL),
        ("hearth-gateway.hearth-system", ALL),
        ("hearth-gateway.hearth-system.svc:80", ALL),
        ("hearth-gateway.hearth-system.svc.cluster.local", ALL),
        ("localhost:8080", ALL),
        ("127.0.0.1:8080", ALL),
        ("10.1.2.3", ALL),
        ("[::1]:8080", ALL),
        ("[fd00::1]", ALL),
        ("::1", ALL),
        ("chat.ai.llm.example.com", CHAT),
        ("chat.ai.llm.example.com.:8080", CHAT),
        ("ai.llm.example.com", AI),
        ("a.chat.ai.llm.example.com", None),
        ("chat.ai", CHAT),
        ("chat.ai.svc", CHAT),
        ("chat.ai2", OneService(ServiceKey("ai2", "chat"))),
        ("Chat.AI.svc.Cluster.Local.", CHAT),
        ("hearth.ai", AI),
        ("hearth.ai.svc", AI),
        ("hearth.ai.svc.cluster.local:80", AI),
        ("hearth.svc.ai.cluster.local", None),
        ("chat.ai.cluster.local", None),
        ("chat", None),
        ("chat.ai.other.domain", None),
        ("chat..ai", None),
        ("-chat.ai", None),
        ("chat_1.ai", None),
        ("chat.ai:http", None),
        ("[::1", None),
        ("[::1]x", None),
        ("", None),
        (".", None),
        (f"{'a' * 64}.ai", None),
    ],
)
def test_scope(host, scope):
    assert TABLE.scope(host) == scope


def test_another_cluster_domain_and_shared_name():
    table = HostTable(cluster_domain="k8s.corp.", shared_service="models")
    assert table.scope("models.ai.svc.k8s.corp") == AI
    assert table.scope("hearth.ai") == OneService(ServiceKey("ai", "hearth"))
    assert table.scope("chat.ai.svc.cluster.local") is None


def test_a_domain_below_localhost():
    table = HostTable(ingress_domains=("localhost",))
    assert table.scope("localhost:8080") == ALL
    assert table.scope("chat.ai.localhost:8080") == CHAT


@pytest.mark.parametrize("domain", ["", "llm.example.com"])
def test_the_advice_names_hosts_that_work(domain):
    text = HostTable(ingress_domains=(domain,) if domain else ()).usable_hosts()
    assert "<name>.<namespace>.svc" in text
    assert "hearth.<namespace>.svc" in text
    assert (domain or "hearth-gateway.hearth-system") in text


def test_a_host_that_may_be_this_machine_is_no_other_than_it_reads():
    table = HostTable()
    assert table.scope("laptop.local") == OneService(ServiceKey("local", "laptop"))
    assert "--ingress-domain laptop.local" in table.own_name_hint(ServiceKey("local", "laptop"))
    assert "--ingress-domain" in table.usable_hosts()
    told = HostTable(ingress_domains=("laptop.local",))
    assert told.scope("laptop.local") == ALL
    assert told.own_name_hint(ServiceKey("ai", "chat")) == ""


OWN = HostTable(own_hosts=(".localhost", "host.docker.internal", "Laptop.Corp.example", "laptop"))


@pytest.mark.parametrize(
    ("host", "scope"),
    [
        ("host.docker.internal:8080", ALL),
        ("foo.localhost", ALL),
        ("a.b.localhost:8080", ALL),
        ("LAPTOP:8080", ALL),
        ("laptop.corp.example", ALL),
        ("other.docker.internal", None),
        ("models", None),
        ("laptop.local", OneService(ServiceKey("local", "laptop"))),
        ("docker.internal", OneService(ServiceKey("internal", "docker"))),
    ],
)
def test_field_case_101_a_machine_answers_to_its_own_names_and_to_no_other(host, scope):
    assert OWN.scope(host) == scope


def test_field_case_101_a_domain_below_localhost_goes_before():
    table = HostTable(ingress_domains=("localhost",), own_hosts=(".localhost",))
    assert table.scope("chat.ai.localhost") == CHAT
    assert table.scope("localhost") == ALL


@pytest.mark.parametrize(
    ("host", "scope"),
    [
        ("models.corp", ALL),
        ("chat.ai.models.corp", CHAT),
        ("models.example.com", ALL),
        ("ai.models.example.com", AI),
        ("example.com", ALL),
        ("ai.example.com", AI),
        ("chat.ai.example.com", CHAT),
    ],
)
def test_field_case_101_a_gateway_has_several_names(host, scope):
    domains = ("example.com", "Models.Example.com.", "models.corp")
    assert HostTable(ingress_domains=domains).scope(host) == scope


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("models:8080", "--ingress-domain models."),
        ("my.own.example", "--ingress-domain my.own.example."),
        ("a.chat.ai.llm.example.com", ""),
        ("x.cluster.local", ""),
        ("no host at all", ""),
        ("", ""),
    ],
)
def test_field_case_101_a_host_that_is_unknown_is_told_the_setting(host, told):
    text = TABLE.unknown_name_hint(host)
    assert text.endswith(told) and bool(text) is bool(told)


@pytest.mark.parametrize(
    ("scope", "domains", "host"),
    [
        (ALL, (), "<name>.<namespace>.svc"),
        (AI, (), "<name>.ai.svc"),
        (AI, ("LLM.example.com.",), "<name>.ai.llm.example.com"),
    ],
)
def test_the_host_of_one_service_of_a_scope(scope, domains, host):
    assert HostTable(ingress_domains=domains).one_service_hosts(scope) == host
