"""Nobody gets past the gateway to a service with a key, where policies hold; else it is said."""

import pytest

from hearth.cluster import kinds
from hearth.cluster.interface import NotFound
from hearth.reconcile.render.release import Release
from tests.reconcile.builders import find, render, runtime, service
from tests.reconcile.reconciler_fixture import KEY, ReconcilerFixture

AUTHENTICATED = {"endpoint": {"authentication": {"secretRef": {"name": "keys", "key": "token"}}}}
POLICY = "NetworkPolicy"


def test_field_case_130_a_policy_lets_the_gateway_through_and_who_scrapes():
    got = find(
        render(service(AUTHENTICATED), backend_guard="policy", scrape_namespaces=("monitoring",)),
        POLICY,
    )
    assert got["metadata"]["name"] == "chat-backend"
    deployment = find(render(service(AUTHENTICATED)), "Deployment")
    pods = deployment["spec"]["template"]["metadata"]["labels"]
    assert got["spec"]["podSelector"]["matchLabels"].items() <= pods.items()
    assert got["spec"]["policyTypes"] == ["Ingress"]
    assert got["spec"]["ingress"] == [
        {
            "from": [
                {
                    "namespaceSelector": {
                        "matchLabels": {"kubernetes.io/metadata.name": "hearth-system"}
                    },
                    "podSelector": {
                        "matchLabels": {
                            "app.kubernetes.io/name": "hearth",
                            "app.kubernetes.io/instance": "hearth",
                        }
                    },
                },
                {
                    "namespaceSelector": {
                        "matchLabels": {"kubernetes.io/metadata.name": "monitoring"}
                    }
                },
            ]
        }
    ]


def test_field_case_130_it_stands_before_there_is_a_pod():
    kinds_of = [m["kind"] for m in render(service(AUTHENTICATED), backend_guard="policy").manifests]
    assert kinds_of.index(POLICY) < kinds_of.index("Deployment")


@pytest.mark.parametrize(
    ("spec", "guard", "policy", "warned"),
    [
        (AUTHENTICATED, "policy", True, False),
        (AUTHENTICATED, "warn", False, True),
        (AUTHENTICATED, "off", False, False),
        ({}, "policy", False, False),
        ({}, "warn", False, False),
    ],
)
def test_field_case_130_a_policy_or_a_warning(spec, guard, policy, warned):
    got = render(service(spec), backend_guard=guard)
    assert (POLICY in [m["kind"] for m in got.manifests]) is policy
    told = [line for line in got.warnings if line.startswith("spec.endpoint.authentication: ")]
    assert bool(told) is warned
    if warned:
        assert "chat-backend without it" in told[0] and "backends.guard=policy" in told[0]


def test_field_case_130_an_engine_with_a_key_of_its_own_needs_no_warning():
    keyed = runtime(annotations={"hearth.dev/engine-key": "keys/token"})
    assert render(service(AUTHENTICATED), keyed, backend_guard="warn").warnings == ()


async def test_field_case_130_it_comes_and_goes_with_the_key():
    world = ReconcilerFixture(release=Release(backend_guard="policy"))
    spec = {"model": {"source": {"uri": "hf://org/m"}}, "runtime": {"name": "stub"}}
    await world.runtime()
    await world.user("LLMService", spec={**spec, **AUTHENTICATED})
    await world.reconcile_once()
    policy = await world.cluster.get(kinds.NETWORK_POLICY, "ai", "chat-backend")
    assert policy["metadata"]["ownerReferences"][0]["name"] == KEY.name
    world.cluster.written.clear()
    await world.reconcile_once()
    assert world.cluster.written == []
    await world.cluster.delete(policy)
    await world.reconcile_once()
    await world.cluster.get(kinds.NETWORK_POLICY, "ai", "chat-backend")
    await world.user("LLMService", spec=spec)
    await world.reconcile_once()
    with pytest.raises(NotFound):
        await world.cluster.get(kinds.NETWORK_POLICY, "ai", "chat-backend")
