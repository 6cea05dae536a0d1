"""Which services a Host header stands for."""

import pytest

from hearth.api.meta import ServiceKey
from hearth.proxy.hosts import Everything, HostTable, Namespace, OneService

TABLE = HostTable(ingress_domain="llm.example.com", gateway_namespace="hearth-system")
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
    table = HostTable(ingress_domain="localhost")
    assert table.scope("localhost:8080") == ALL
    assert table.scope("chat.ai.localhost:8080") == CHAT


@pytest.mark.parametrize("domain", ["", "llm.example.com"])
def test_the_advice_names_hosts_that_work(domain):
    text = HostTable(ingress_domain=domain).advice()
    assert "<name>.<namespace>.svc" in text
    assert "hearth.<namespace>.svc" in text
    assert (domain or "hearth-gateway.hearth-system") in text


def test_a_host_that_may_be_this_machine_is_no_other_than_it_reads():
    table = HostTable()
    assert table.scope("laptop.local") == OneService(ServiceKey("local", "laptop"))
    assert "--ingress-domain laptop.local" in table.perhaps_own(ServiceKey("local", "laptop"))
    assert "--ingress-domain" in table.advice()
    told = HostTable(ingress_domain="laptop.local")
    assert told.scope("laptop.local") == ALL
    assert told.perhaps_own(ServiceKey("ai", "chat")) == ""
