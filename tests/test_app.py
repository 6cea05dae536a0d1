"""The parts put together over the local store: ports, first look, truth on `/readyz`, drain."""

import json
import socket
from contextlib import aclosing, asynccontextmanager

import aiohttp
import anyio
import anyio.lowlevel
import pytest
import yaml
from grpclib.client import Channel
from grpclib.config import Configuration

from hearth.api import manifests
from hearth.api.meta import ServiceKey
from hearth.app import App, CannotStart
from hearth.cluster import kinds
from hearth.cluster.interface import Forbidden
from hearth.cluster.leader import Leader, Leadership
from hearth.cluster.local.cluster import LocalCluster
from hearth.externalscaler.externalscaler_grpc import ExternalScalerStub
from hearth.externalscaler.externalscaler_pb2 import ScaledObjectRef
from hearth.leader_label import LeaderLabel
from hearth.reconcile.render.release import Release
from hearth.run import _Replica
from hearth.settings import ClusterSettings, LocalSettings
from tests import demanded, hanging
from tests.keda.pki import Pki
from tests.loopback import needs_ipv6
from tests.proxy import backend
from tests.test_render import RUNTIME, SERVICE

CHAT = ServiceKey("ai", "chat")
SECRET = (
    "apiVersion: v1\nkind: Secret\nmetadata: {name: key, namespace: ai}\nstringData: {token: s}\n"
)
LOCKED = "  endpoint: {authentication: {secretRef: {name: key, key: token}}}\n"


def settings(**fields):
    free = {"gateway_port": 0, "admin_port": 0, "scaler_port": 0}
    return LocalSettings(**(free | fields))


async def apply(cluster, *texts):
    for manifest in manifests.parse("---\n".join(texts), file="test").manifests:
        await cluster.apply(manifest, manager="test")


@asynccontextmanager
async def serving(*texts, cluster=None, release=None, scaler_tls_port=None, **fields):
    """An App that leads a cluster with these objects in it; it, and where to reach it."""
    cluster = cluster or LocalCluster()
    await apply(cluster, *texts)
    app = App(cluster, settings(**fields), scaler_tls_port=scaler_tls_port)
    with hanging.guard():
        async with (
            app.listen() as bound,
            aiohttp.ClientSession() as session,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(app.watch)
            await tasks.start(app.lead, release or settings().to_release(scaler="127.0.0.1:9"))
            yield app, cluster, Client(session, bound)
            tasks.cancel_scope.cancel()


class Client:
    def __init__(self, session, bound):
        self.session = session
        self.gateway = "http://{}:{}".format(*bound.gateway)
        self.admin = "http://{}:{}".format(*bound.admin)
        self.scaler_tls = bound.scaler_tls

    async def ready(self):
        async with self.session.get(f"{self.admin}/readyz") as response:
            return response.status, (await response.json())["notReady"]

    async def ask(self, key=None):
        status, error = await self.error(key)
        return status, error["code"]

    async def error(self, key=None):
        body = {"model": "ai/chat", "prompt": "hi"}
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        url = f"{self.gateway}/v1/completions"
        async with self.session.post(url, json=body, headers=headers) as response:
            return response.status, (await response.json())["error"]


@pytest.mark.parametrize("port", ["gateway", "admin", "scaler"])
async def test_a_port_in_use_is_one_line_and_leaves_no_port_open(port):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        app = App(LocalCluster(), settings(**{f"{port}_port": number}))
        with pytest.RaisesGroup(
            pytest.RaisesExc(
                CannotStart,
                match=f"^cannot [^\n]*:{number}:[^\n(]* in use; [^\n]*--{port}-port[^\n]*$",
            ),
            allow_unwrapped=True,
            flatten_subgroups=True,
        ):
            async with app.listen():
                pass


async def test_not_ready_until_the_cluster_was_read():
    app = App(LocalCluster(), settings())
    async with app.listen() as bound, aiohttp.ClientSession() as session:
        status, why = await Client(session, bound).ready()
    assert status == 503 and "not read yet" in why["hearth"]


class Refusing(LocalCluster):
    """A cluster that lets nobody list ReplicaSets until `granted`."""

    granted = False

    async def list(self, kind, **how):
        if kind == kinds.REPLICA_SET and not self.granted:
            raise Forbidden("cannot list resource replicasets")
        return await super().list(kind, **how)


async def test_a_right_that_is_missing_is_named_and_keeps_nobody_else_from_leading():
    cluster = Refusing()
    app = App(cluster, settings(), replica_sets=True)
    leader = Leader(cluster, key=ServiceKey("sys", "hearth"), identity="me")
    leader_label = LeaderLabel(cluster, cluster, namespace="sys", pod="")
    replica = _Replica(app, leader, leader_label, ClusterSettings())
    async with app.listen() as bound, aiohttp.ClientSession() as session:
        client = Client(session, bound)
        with hanging.guard():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(replica.run, tasks)
                why = ""
                while "may not list and watch replicasets" not in why:
                    status, said = await client.ready()
                    assert status == 503
                    why = said["hearth"]
                assert (await cluster.list(kinds.LEASE)).items == []
                cluster.granted = True
                async for state in leader.changes():
                    if state is Leadership.LEADING:
                        break
                assert (await client.ready())[0] == 200
                tasks.cancel_scope.cancel()


async def test_leading_begins_once_every_service_has_its_route_and_its_objects():
    async with serving(RUNTIME, SERVICE) as (app, cluster, client):
        assert app.routes.find(CHAT).phase == "ScaledToZero"
        assert await client.ready() == (200, {})
        assert (await cluster.get(kinds.SCALED_OBJECT, "ai", "chat"))["spec"]["triggers"]
        async with client.session.get(f"{client.admin}/metrics") as response:
            text = await response.text()
    assert 'hearth_service_phase{namespace="ai",phase="ScaledToZero",service="chat"} 1.0' in text
    assert "hearth_informer_staleness_seconds" in text and 'queue="services"' in text


class Asking(LocalCluster):
    """A cluster whose KEDA asks for specs the moment a ScaledObject is written."""

    def __init__(self, port):
        super().__init__()
        self.port = port
        self.specs = []

    async def apply(self, manifest, **how):
        if manifest["kind"] == "ScaledObject":
            metadata = manifest["spec"]["triggers"][0]["metadata"]
            async with Channel("127.0.0.1", self.port) as channel:
                ref = ScaledObjectRef(name="chat", namespace="ai", scalerMetadata=metadata)
                answer = await ExternalScalerStub(channel).GetMetricSpec(ref)
            self.specs += [(spec.metricName, spec.targetSize) for spec in answer.metricSpecs]
        return await super().apply(manifest, **how)


async def test_field_case_52_the_scaler_answers_before_the_first_scaled_object_is_written():
    async with backend.refusing() as free:
        at = {"cluster": Asking(free.port), "scaler_port": free.port}
        async with serving(RUNTIME, SERVICE, **at) as (_, cluster, _):
            assert cluster.specs == [("pending", 10)]


class Broken(LocalCluster):
    async def list(self, kind, **where):
        if kind == kinds.DEPLOYMENT:
            raise ValueError("broken")
        return await super().list(kind, **where)


async def test_field_case_77_a_watch_that_breaks_for_a_mistake_of_ours_ends_the_process():
    """Whoever runs it starts it anew: never up and blind."""
    app = App(Broken(), settings())
    with hanging.guard(), pytest.RaisesGroup(ValueError, flatten_subgroups=True):
        await app.watch()


async def test_demand_alone_has_a_service_looked_at_again():
    async with serving(RUNTIME, SERVICE) as (app, _, _client):
        with app.demand.admit(CHAT, limit=1):
            await phase(app, "Pending")
        await phase(app, "ScaledToZero")


async def phase(app, wanted):
    while True:
        changed = app.routes.changed(CHAT)
        if app.routes.find(CHAT).phase == wanted:
            return
        await changed.wait()


async def test_keys_come_from_the_clusters_secrets():
    async with serving(RUNTIME, SERVICE + LOCKED) as (_, cluster, client):
        assert await client.ask("s") == (503, "authentication_unavailable")
        await apply(cluster, SECRET)
        # Read again after a second at most; until then the word is that it cannot be checked.
        while (answer := await client.ask("wrong"))[0] == 503:
            pass
        assert answer == (401, "invalid_api_key")


@pytest.mark.parametrize(("detail", "full"), [("brief", False), ("full", True)])
async def test_field_case_145_a_missing_key_is_in_the_status_until_it_can_be_checked(detail, full):
    async with serving(RUNTIME, SERVICE + LOCKED, error_detail=detail) as (app, cluster, client):
        await phase(app, "Degraded")
        status, error = await client.error("s")
        assert (status, error["code"]) == (503, "authentication_unavailable")
        assert ("Secret 'key'" in error["message"]) is full
        await apply(cluster, SECRET)
        while (answer := await client.ask("wrong"))[0] == 503:
            pass
        assert answer == (401, "invalid_api_key")
        await phase(app, "ScaledToZero")  # what the request found out, the status says


@pytest.mark.parametrize(("detail", "full"), [("brief", False), ("full", True)])
async def test_how_much_clients_hear_of_a_trouble_is_a_setting(detail, full):
    async with serving(SERVICE, error_detail=detail) as (app, _, client):
        rejection = app.routes.find(CHAT).rejection
        status, error = await client.error()
        assert (status, error["code"]) == (503, "service_degraded")
        assert rejection.reason in error["message"]
        assert (rejection.message in error["message"]) is full


TLS = "  scaling: {externalScaler: {tls: {serverSecretName: tls, authenticationRef: {name: a}}}}\n"


def tls_secret(pki):
    texts = {name: value.decode() for name, value in pki.secret().items()}
    head = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tls", "namespace": "ai"}}
    return yaml.safe_dump({**head, "stringData": texts})


async def test_a_leader_has_the_certificates_of_its_services(tmp_path):
    pki = Pki(tmp_path)
    texts = (RUNTIME, SERVICE + TLS, tls_secret(pki))
    async with serving(*texts, release=Release(), scaler_tls_port=0) as (app, _, client):
        app.scaler.gate.open()
        context = pki.dialler(pki.client(of="chat-ca"))
        config = Configuration(ssl_target_name_override="chat-scaler.ai.svc")
        async with Channel(*client.scaler_tls, ssl=context, config=config) as channel:
            ref = ScaledObjectRef(name="chat", namespace="ai", scalerMetadata={"targetValue": "1"})
            assert not (await ExternalScalerStub(channel).IsActive(ref)).result


async def test_a_certificate_that_is_missing_is_a_condition():
    texts = (RUNTIME, SERVICE + TLS)
    async with serving(*texts, release=Release(), scaler_tls_port=0) as (_, cluster, _client):
        kind = kinds.llm_service("serving.hearth.dev")
        wanted = ("ScalerCertificate", "Secret tls does not exist")
        listing = await cluster.list(kind)
        stored = listing.items[0]
        async with aclosing(cluster.watch(kind, since=listing.version)) as changes:
            while wanted not in said(stored):
                stored = (await anext(changes)).manifest


def said(service):
    conditions = service.get("status", {}).get("conditions", [])
    return [(one["reason"], one["message"]) for one in conditions]


async def test_draining_answers_the_held_and_says_so():
    async with serving(RUNTIME, SERVICE) as (app, _, client), anyio.create_task_group() as tasks:
        answers = []

        async def ask():
            answers.append(await client.ask())

        tasks.start_soon(ask)
        await demanded.until(app.demand, lambda: app.gateway.waiting(CHAT))
        await app.drain()
        assert await client.ready() == (503, {"hearth": "Hearth is stopping"})
    assert answers == [(503, "shutting_down")]


@needs_ipv6
async def test_field_case_93_by_default_every_port_is_open_on_both_families():
    free = {"gateway_port": 0, "admin_port": 0, "scaler_port": 0}
    app = App(LocalCluster(), ClusterSettings(**free), scaler_tls_port=0)
    async with app.listen() as bound:
        for _, port in (bound.gateway, bound.admin, bound.scaler, bound.scaler_tls):
            for address in ("127.0.0.1", "::1"):
                await (await anyio.connect_tcp(address, port)).aclose()


async def test_the_access_log_is_off_unless_it_is_asked_for(capfd):
    async with (
        serving(RUNTIME, SERVICE) as (_, _, client),
        client.session.get(f"{client.gateway}/v1/models") as response,
    ):
        assert response.status == 200
    assert capfd.readouterr().out == ""


async def test_a_request_is_a_line_on_standard_output(capfd):
    async with serving(RUNTIME, SERVICE, access_log=True) as (_, _, client):
        async with client.session.get(f"{client.gateway}/v1/models") as response:
            assert response.status == 200
        written = ""
        while not written.endswith("\n"):
            await anyio.lowlevel.checkpoint()
            written += capfd.readouterr().out
    line = json.loads(written)
    assert (line["status"], line["outcome"]) == (200, "ok")
