"""Services, runtimes and definitions as either reference's users have them, in Hearth's hands."""

import copy

import pytest

from hearth.api import crd, crd_compatibility, groups, schema
from hearth.cluster import kinds
from hearth.reconcile.crd_check import OutdatedCRDs
from tests.reconcile.reconciler_fixture import KEY, ReconcilerFixture
from tests.reconcile.reference import seen
from tests.reconcile.reference.test_services import ROWS, laid_over, rendered
from tests.reference import table

REFERENCES = {groups.HEARTH: "hearth", groups.NOCTAYA: "noctaya"}
GROUP = pytest.mark.parametrize("group", groups.GROUPS)
EACH = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
WRITTEN = ("HOME", "XDG_CACHE_HOME", "VLLM_CACHE_ROOT", "TRITON_CACHE_DIR")
"""Variables of places that engines and their libraries write to."""


def mount_of(path: str, mounts):
    """What lies behind a path of the container."""
    found = [at for at in mounts if f"{path}/".startswith(f"{at}/")]
    return mounts[max(found, key=len)]


@GROUP
@EACH
def test_field_case_71_an_image_without_root_finds_places_to_write(row, group):
    got = rendered(row, group)
    for name in WRITTEN:
        assert not mount_of(got["env"][name], got["mounts"]).get("readOnly"), name
    claims = [m for m in got["mounts"].values() if "persistentVolumeClaim" in m]
    if any(m["persistentVolumeClaim"]["claimName"] == "chat-cache" for m in claims):
        assert got["pod"]["securityContext"]["fsGroup"] == 1000


def definition_of(reference: str, definition):
    """The definition with those fields of the spec alone that a reference's tables have."""
    kind = definition["spec"]["names"]["kind"]
    paths = {f.path for f in table.FIELDS if f.kind == kind and reference in f.of.split()}
    older = copy.deepcopy(definition)
    spec = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    _keep(spec, "spec", paths)
    return older


def _keep(node, at, paths):
    for name in list(node.get("properties", {})):
        path = f"{at}.{name}"
        deeper = [one for one in paths if one.startswith((f"{path}.", f"{path}["))]
        if deeper:
            _keep(node["properties"][name], path, paths)
        elif path not in paths:
            del node["properties"][name]


@pytest.mark.parametrize(
    ("group", "dropped"),
    [
        (
            groups.HEARTH,
            [
                "spec.scaling.externalScaler",
                "spec.endpoint.maxQueue",
                "spec.endpoint.resources",
                "spec.endpoint.authentication",
            ],
        ),
        (groups.NOCTAYA, []),
    ],
)
def test_field_case_88_definitions_that_a_reference_left_are_told_by_field(group, dropped):
    """Those of the first close every service until they are upgraded: a key would be dropped."""
    services, runtimes = (definition_of(REFERENCES[group], d) for d in crd.documents([group]))
    assert crd_compatibility.missing_fields(services) == dropped
    assert crd_compatibility.missing_fields(runtimes) == []
    outdated = OutdatedCRDs((("llmservices", tuple(dropped)),))
    assert (outdated.rejection is not None) == bool(dropped)


@GROUP
def test_field_case_89_definitions_are_those_that_are_there(group):
    """Name, scope and stored version stay, so an installation takes them over, and every object
    under them."""
    names = {
        "LLMService": ("llmservices", "Namespaced"),
        "InferenceRuntime": ("inferenceruntimes", "Cluster"),
    }
    found = crd.documents([group])
    assert len(found) == len(names)
    for definition in found:
        spec = definition["spec"]
        kind = spec["names"]["kind"]
        plural, scope = names[kind]
        assert definition["metadata"]["name"] == f"{plural}.{group}"
        assert (spec["names"]["plural"], spec["names"]["singular"]) == (plural, kind.lower())
        assert (spec["names"]["listKind"], spec["scope"]) == (f"{kind}List", scope)
        versions = [(v["name"], v["served"], v["storage"]) for v in spec["versions"]]
        assert versions == [("v1alpha1", True, True)]


@GROUP
@EACH
async def test_field_case_90_stored_services_are_reconciled_edited_and_deleted(row, group):
    """As the reference's API server stored them: with its defaults filled in."""
    fixture = ReconcilerFixture()
    runtime = laid_over(seen.RUNTIME, row.runtime)
    await fixture.user("InferenceRuntime", "vllm", group=group, spec=runtime)
    structure = schema.of("LLMService", group)
    bare = {"spec": laid_over(seen.SERVICE, row.service)}
    stored = schema.with_defaults(bare, structure)["spec"]
    await fixture.user("LLMService", group=group, spec=stored)
    await fixture.reconcile_once()
    status = (await fixture.service(group=group))["status"]
    assert status["phase"] in ("ScaledToZero", "Pending"), status["conditions"]

    before = await fixture.cluster.get(kinds.DEPLOYMENT, "ai", "chat")
    edited = laid_over(stored, {"scaling": {"max": 7}, "resources": {"memory": "48Gi"}})
    service = await fixture.user("LLMService", group=group, spec=edited)
    await fixture.reconcile_once()
    scaled = await fixture.cluster.get(kinds.SCALED_OBJECT, "ai", "chat")
    assert scaled["spec"]["maxReplicaCount"] == 7
    deployment = await fixture.cluster.get(kinds.DEPLOYMENT, "ai", "chat")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"]["memory"] == "48Gi"
    assert deployment["spec"]["selector"] == before["spec"]["selector"]
    assert deployment["metadata"]["uid"] == before["metadata"]["uid"]

    await fixture.cluster.delete(service)
    await fixture.reconcile_once()
    assert await fixture.objects() == [] and KEY not in fixture.routes
