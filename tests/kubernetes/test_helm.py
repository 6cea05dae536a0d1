"""Install, upgrade and remove with each Helm: services survive; rights end where listed."""

import json

import pytest

from hearth.api.meta import ServiceKey
from hearth.cluster import kinds
from tests import hanging
from tests.kubernetes import world as worlds
from tests.kubernetes.release import HOME, IMAGE, NAME, Release, service, stub
from tests.kubernetes.world import Failed, kubectl, run

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMESPACE = "test-helm"
ACCOUNT = f"system:serviceaccount:{HOME}:{NAME}"

MAY = (
    ("get", "secrets"),
    ("create", "deployments.apps"),
    ("create", "networkpolicies.networking.k8s.io"),
    ("patch", "deployments.apps/scale"),
    ("patch", "llmservices.serving.hearth.dev/status"),
    ("list", "inferenceruntimes.serving.hearth.dev"),
)
MAY_NOT = (
    ("list", "secrets"),
    ("watch", "secrets"),
    ("create", "secrets"),
    ("create", "pods"),
    ("delete", "pods"),
    ("patch", "pods"),
    ("create", "pods/exec"),
    ("get", "pods/log"),
    ("get", "configmaps"),
    ("delete", "persistentvolumeclaims"),
    ("update", "deployments.apps"),
    ("patch", "llmservices.serving.hearth.dev"),
    ("delete", "llmservices.serving.hearth.dev"),
    ("patch", "inferenceruntimes.serving.hearth.dev"),
    ("get", "leases.coordination.k8s.io"),
    ("create", "serviceaccounts/token"),
    ("create", "roles.rbac.authorization.k8s.io"),
    ("list", "nodes"),
    ("list", "namespaces"),
    ("patch", "customresourcedefinitions.apiextensions.k8s.io"),
)


@pytest.mark.usefixtures("keda")
async def test_services_outlive_the_release(world, release):
    key = ServiceKey(NAMESPACE, "chat")
    async with world.namespace(NAMESPACE):
        for helm, in_chart in (("helm", False), ("helm3", True)):
            hearth = Release(world, release.session, helm=helm)
            lease = {"create": in_chart}
            await hearth.install(lease=lease)
            await world.apply(stub("helm"), service("chat", NAMESPACE, runtime="helm"))
            await hearth.settled(key)
            assert await hearth.answer(key) == "one two three"
            before = await world.find(worlds.SERVICES, key)
            await hearth.install(
                "upgrade",
                lease=lease,
                log={"level": "debug"},
                gateway={"readyGrace": "1s", "drainLimit": "5s", "domain": "models.test"},
            )
            host = {"Host": f"chat.{NAMESPACE}.models.test"}
            url = f"http://hearth-gateway.{HOME}.svc.cluster.local/v1/models"
            async with release.session.get(url, headers=host) as response:
                assert [model["id"] for model in (await response.json())["data"]] == ["chat"]
            assert await hearth.answer(key) == "one two three"
            await hearth.uninstall()
            # Whoever made it: the next release must not wait for a holder that is gone.
            await world.until(kinds.LEASE, ServiceKey(HOME, NAME), lambda found: found is None)
            after = await world.find(worlds.SERVICES, key)
            assert after["metadata"]["uid"] == before["metadata"]["uid"]
            left = await kubectl(
                "get",
                "all,serviceaccounts,roles,rolebindings,leases",
                "-n",
                HOME,
                "-l",
                f"app.kubernetes.io/instance={NAME}",
                "-o",
                "name",
            )
            assert left == ""


@pytest.mark.usefixtures("hearth")
async def test_what_hearth_may_not_do():
    for verb, resource in MAY:
        assert await _may(verb, resource) == "yes", (verb, resource)
    for verb, resource in MAY_NOT:
        assert await _may(verb, resource) == "no", (verb, resource)
    with pytest.raises(Failed, match=r"(?s)forbidden.*cannot list resource \"secrets\""):
        await kubectl("get", "secrets", "-n", "default", "--as", ACCOUNT)


@pytest.mark.usefixtures("keda")
@pytest.mark.parametrize(
    ("helm", "undo"), [("helm", "--rollback-on-failure"), ("helm3", "--atomic")]
)
async def test_field_case_98_who_waits_for_a_release_waits_for_no_sleeper(
    world, hearth, tmp_path, helm, undo
):
    """One model in a chart of a team's own: install, upgrade, both ways back, and the waking."""
    namespace = f"{NAMESPACE}-models"
    key, name = ServiceKey(namespace, "chat"), f"llmservices.{worlds.SERVICES.group}/chat"
    chart = _chart_of_models(tmp_path, namespace)

    async def by_helm(verb, *words):
        where = ("--namespace", namespace, "--wait", "--timeout", hanging.duration(60))
        return await run(helm, verb, "models", *where, *words)

    async def window():
        found = await world.find(worlds.SERVICES, key)
        return found["spec"]["scaling"]["scaleDownStabilization"]

    await world.apply(stub("gitops"))
    async with world.namespace(namespace):
        await by_helm("install", chart)
        await hearth.settled(key)
        await by_helm("upgrade", chart, "--set", "window=4s")
        assert await window() == "4s"
        with pytest.raises(Failed, match="rolled back"):
            await by_helm(
                "upgrade",
                chart,
                "--set",
                "window=5s,stuck=true",
                undo,
                f"--timeout={hanging.duration(20)}",
            )
        assert await window() == "4s"
        await by_helm("rollback", "1")
        assert await window() == "3s"

        def wait(condition):
            return kubectl(
                "-n", namespace, "wait", f"--for=condition={condition}", name, worlds.WITHIN
            )

        await wait("Ready")
        await wait("Active=False")
        assert await hearth.answer(key) == "one two three"
        await wait("Active")
        await wait("Ready")
        await hearth.asleep(key)
        await wait("Active=False")
        await wait("Ready")
        await run(helm, "uninstall", "models", "--namespace", namespace, "--wait")


def _chart_of_models(folder, namespace):
    """A chart with one LLMService, and with a pod that never starts where `stuck` is set."""
    model = service(
        "chat", namespace, runtime="gitops", scaleDownStabilization="{{ .Values.window }}"
    )
    nowhere = {"nodeSelector": {"no": "where"}, "containers": [{"name": "c", "image": IMAGE}]}
    stuck = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stuck"}, "spec": nowhere}
    (folder / "templates").mkdir()
    (folder / "templates" / "model.yaml").write_text(json.dumps(model))
    (folder / "templates" / "stuck.yaml").write_text(
        f"{{{{ if .Values.stuck }}}}\n{json.dumps(stuck, indent=1)}\n{{{{ end }}}}\n"
    )
    (folder / "values.yaml").write_text(json.dumps({"window": "3s", "stuck": False}))
    (folder / "Chart.yaml").write_text(
        json.dumps({"apiVersion": "v2", "name": "models", "version": "0.1.0"})
    )
    return folder


@pytest.mark.usefixtures("keda")
async def test_field_case_132_what_the_notes_give_to_paste_serves_a_model(world, hearth):
    notes = await run("helm", "get", "notes", NAME, "--namespace", HOME)
    [block] = [part for part in notes.split("\n\n") if part.startswith("kubectl apply -f -")]
    key = ServiceKey("default", "chat")
    try:
        await run("bash", "-euo", "pipefail", stdin=block)
        await hearth.settled(key)
        assert await hearth.answer(key)
    finally:
        await world.delete(service("chat", "default"), stub("stub"))
        await world.until(kinds.SCALED_OBJECT, key, lambda found: found is None)


@pytest.mark.usefixtures("keda")
async def test_bound_to_one_namespace_it_reaches_no_other(world, hearth):
    await hearth.install("upgrade", namespaces=["default"])
    assert await _may("get", "secrets") == "yes"
    assert await _may("get", "secrets", namespace=HOME) == "no"
    key = ServiceKey("default", "bound")
    await world.apply(stub("bound"), service("bound", "default", runtime="bound"))
    try:
        await hearth.settled(key)
        assert await hearth.answer(key) == "one two three"
    finally:
        await world.delete(service("bound", "default"), stub("bound"))
        await world.until(kinds.SCALED_OBJECT, key, lambda found: found is None)


async def _may(verb, resource, *, namespace="default"):
    resource, _, part = resource.partition("/")
    part = [f"--subresource={part}"] if part else []
    asked = ("auth", "can-i", verb, resource, *part, "-n", namespace, "--as", ACCOUNT)
    return "yes" if "yes" in (await kubectl(*asked, check=False)).splitlines() else "no"
