"""What Hearth may do: exactly what it uses, and where."""

import itertools

import pytest

from hearth import names
from hearth.cluster import kinds
from tests.chart.conftest import NAMESPACE, RELEASE, one
from tests.chart.conftest import kinds as kinds_of

CLUSTER_NAME = f"{NAMESPACE}-{RELEASE}"
HEARTH = "serving.hearth.dev"
READ, WRITE = {"get", "list", "watch"}, {"create", "patch", "delete"}

SERVED = {
    (HEARTH, "llmservices"): READ,
    (HEARTH, "llmservices/status"): {"patch"},
    ("apps", "deployments"): READ | WRITE,
    ("apps", "deployments/scale"): {"patch"},
    ("", "services"): READ | WRITE,
    ("", "persistentvolumeclaims"): READ | {"create", "patch"},
    ("batch", "jobs"): READ | WRITE,
    ("keda.sh", "scaledobjects"): READ | WRITE,
    ("networking.k8s.io", "networkpolicies"): READ | WRITE,
    ("", "pods"): READ,
    ("apps", "replicasets"): READ,
    ("", "secrets"): {"get"},
    ("", "events"): {"create"},
}
"""In each namespace that is served."""

CLUSTER = {
    (HEARTH, "inferenceruntimes"): READ,
    ("apiextensions.k8s.io", "customresourcedefinitions"): {"get"},
}
"""Always cluster-wide, since these have no namespace."""

OWN = {
    ("coordination.k8s.io", "leases"): {"create", "get", "update"},
    ("", "pods"): {"get", "list", "patch"},
}
"""In the release's own namespace."""


def _rights(role):
    rights = {}
    for rule in role["rules"]:
        assert set(rule) <= {"apiGroups", "resources", "verbs", "resourceNames"}
        for group, resource in itertools.product(rule["apiGroups"], rule["resources"]):
            rights.setdefault((group, resource), set()).update(rule["verbs"])
    return rights


def _bound(documents, kind, name, namespace=None):
    """The role of a binding whose only subject is our account."""
    [binding] = [
        d
        for d in documents
        if d["kind"] == f"{kind}Binding"
        and d["metadata"]["name"] == name
        and d["metadata"].get("namespace") == namespace
    ]
    account = {"kind": "ServiceAccount", "name": RELEASE, "namespace": NAMESPACE}
    assert binding["subjects"] == [account]
    assert binding["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name,
    }  # fmt: skip
    [role] = [
        d
        for d in documents
        if d["kind"] == kind
        and d["metadata"]["name"] == name
        and d["metadata"].get("namespace") == namespace
    ]
    return role


def test_cluster_wide(helm):
    documents = helm.render()
    assert _rights(_bound(documents, "ClusterRole", CLUSTER_NAME)) == SERVED | CLUSTER
    assert _rights(_bound(documents, "Role", RELEASE, NAMESPACE)) == OWN
    roles = [d for d in documents if d["kind"] in ("Role", "ClusterRole")]
    assert len(roles) == 2


def test_in_listed_namespaces_nothing_else_is_cluster_wide(helm):
    documents = helm.render(namespaces=["ai", "web"])
    assert _rights(_bound(documents, "ClusterRole", CLUSTER_NAME)) == CLUSTER
    for namespace in ("ai", "web"):
        assert _rights(_bound(documents, "Role", CLUSTER_NAME, namespace)) == SERVED
    assert _rights(_bound(documents, "Role", RELEASE, NAMESPACE)) == OWN
    assert len([d for d in documents if d["kind"] == "ClusterRole"]) == 1


@pytest.mark.parametrize("namespaces", [[], ["ai"]])
def test_field_case_108_without_a_lease_its_owner_can_be_read(helm, namespaces):
    documents = helm.render(lease={"create": False}, namespaces=namespaces)
    assert "Lease" not in kinds_of(documents)
    role = _bound(documents, "Role", RELEASE, NAMESPACE)
    assert _rights(role) == OWN | {("apps", "deployments"): {"get"}}
    named = [rule.get("resourceNames") for rule in role["rules"] if "apps" in rule["apiGroups"]]
    assert named == [[one(documents, "Deployment")["metadata"]["name"]]]
    assert "Lease" in kinds_of(helm.render())


def test_field_case_130_policies_are_written_only_where_it_is_asked_for(helm):
    def guard(documents):
        container = one(documents, "Deployment")["spec"]["template"]["spec"]["containers"][0]
        return next(e["value"] for e in container["env"] if e["name"] == "HEARTH_BACKEND_GUARD")

    assert guard(helm.render()) == "policy"
    for wanted in ("warn", "off"):
        documents = helm.render(backends={"guard": wanted})
        rights = _rights(_bound(documents, "ClusterRole", CLUSTER_NAME))
        assert ("networking.k8s.io", "networkpolicies") not in rights
        assert guard(documents) == wanted
    # Whose roles are somebody else's may lack the right.
    assert guard(helm.render(rbac={"create": False})) == "warn"
    granted = helm.render(rbac={"create": False}, backends={"guard": "policy"})
    assert guard(granted) == "policy"  # and whoever says so has granted it
    scraped = helm.render(backends={"scrapeNamespaces": ["monitoring"]})
    container = one(scraped, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert {"name": "HEARTH_SCRAPE_NAMESPACES", "value": "monitoring"} in container["env"]


@pytest.mark.parametrize("namespaces", [[], ["ai"]])
def test_field_case_106_pods_are_patched_only_where_it_is_asked_for(helm, namespaces):
    values = {"namespaces": namespaces, "backends": {"markLoading": True}}
    role = ("Role", CLUSTER_NAME, "ai") if namespaces else ("ClusterRole", CLUSTER_NAME)
    rights = _rights(_bound(helm.render(**values), *role))
    assert rights["", "pods"] == READ | {"patch"}
    rights = _rights(_bound(helm.render(namespaces=namespaces), *role))
    assert rights["", "pods"] == READ


@pytest.mark.parametrize("namespaces", [[], ["ai"]])
def test_what_another_controller_left_is_deleted_only_where_it_is_asked_for(helm, namespaces):
    role = ("Role", CLUSTER_NAME, "ai") if namespaces else ("ClusterRole", CLUSTER_NAME)
    documents = helm.render(namespaces=namespaces, migration={"cleanup": True})
    rights = _rights(_bound(documents, *role))
    assert rights["", "secrets"] == {"get", "delete"}
    assert rights["policy", "poddisruptionbudgets"] == {"get", "delete"}
    container = one(documents, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert {"name": "HEARTH_MIGRATION_CLEANUP", "value": "true"} in container["env"]
    rights = _rights(_bound(helm.render(namespaces=namespaces), *role))
    assert rights["", "secrets"] == {"get"}
    assert ("policy", "poddisruptionbudgets") not in rights


def test_names_narrow_what_has_no_other_bound(helm):
    documents = helm.render()
    rules = {
        (rule["resources"][0], *rule["verbs"]): rule.get("resourceNames")
        for role in documents
        if role["kind"] in ("Role", "ClusterRole")
        for rule in role["rules"]
    }
    assert rules["leases", "get", "update"] == [RELEASE]
    assert rules["customresourcedefinitions", "get"] == [
        f"llmservices.{HEARTH}",
        f"inferenceruntimes.{HEARTH}",
    ]


def test_the_other_group_is_named_only_where_it_is_served(helm):
    documents = helm.render(noctaya={"enabled": True})
    rights = _rights(_bound(documents, "ClusterRole", CLUSTER_NAME))
    other = "serving.noctaya.io"
    assert rights[other, "llmservices"] == rights[other, "inferenceruntimes"] == READ
    assert not any(group == other for group, _ in SERVED | CLUSTER)


def test_every_kind_that_the_program_knows_is_reachable(helm):
    rights = _rights(_bound(helm.render(noctaya={"enabled": True}), "ClusterRole", CLUSTER_NAME))
    known = {(kind.group, kind.plural) for kind in kinds.ALL}
    without = {
        ("", "configmaps"),  # only made by people, for `hearth local`
        ("keda.sh", "triggerauthentications"),  # KEDA reads them; Hearth only names them
        ("coordination.k8s.io", "leases"),  # in the release's own namespace
        ("policy", "poddisruptionbudgets"),  # only where migration.cleanup asks for it
    }
    assert known - without <= set(rights)


@pytest.mark.parametrize(("group", "resource"), [*SERVED, *CLUSTER, *OWN])
def test_no_wildcards(group, resource):
    assert "*" not in group + resource
    assert "*" not in "".join((SERVED | CLUSTER | OWN)[group, resource])


def test_roles_for_people_only_when_asked_for(helm):
    roles = [d for d in helm.render(rbac={"aggregate": True}) if d["kind"] == "ClusterRole"]
    aggregated = {
        label.removeprefix("rbac.authorization.k8s.io/aggregate-to-"): _rights(role)
        for role in roles
        for label in role["metadata"]["labels"]
        if "aggregate-to" in label
    }
    assert set(aggregated) == {"admin", "edit", "view"}
    assert aggregated["view"] == {(HEARTH, "llmservices"): READ}
    assert aggregated["edit"][HEARTH, "llmservices"] >= READ | WRITE | {"update"}
    assert not any(group != HEARTH for rights in aggregated.values() for group, _ in rights)


def test_accounts_and_roles_made_by_somebody_else(helm):
    documents = helm.render(
        rbac={"create": False}, serviceAccount={"create": False, "name": "given"}
    )
    assert not {"Role", "ClusterRole", "ServiceAccount"} & kinds_of(documents)
    pod = one(documents, "Deployment")["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "given"
    assert names.MANAGER not in kinds_of(documents)
