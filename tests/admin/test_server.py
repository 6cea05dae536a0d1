"""The admin port over a real socket."""

import json
import os
import re
import socket
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import anyio
import anyio.lowlevel
import pytest

from hearth import tcp_keepalive
from hearth.admin import server
from hearth.admin.access import Access
from hearth.api.meta import ServiceKey
from hearth.demand import DemandTable
from hearth.metrics import prometheus
from hearth.routes import Failure, Route, RouteTable
from tests import alive, hanging

CHAT = ServiceKey("ai", "chat")


class AdminFixture:
    port = 0

    def __init__(self, access=None):
        self.demand = DemandTable(linger_s=30)
        self.routes = RouteTable()
        self.metrics = prometheus.Metrics(demand=self.demand, routes=self.routes)
        self.reasons = {"pods": None, "scaler": None}
        checks = {name: (lambda name=name: self.reasons[name]) for name in self.reasons}
        self.ages = {"pods": 3.0, "deployments.apps": 3.0}
        watches = {name: (lambda name=name: self.ages[name]) for name in self.ages}
        self.admin = server.Admin(
            self.demand,
            self.routes,
            self.metrics,
            checks,
            watches=watches,
            interval_s=0.01,
            domains=("hearth.corp.example", "", "k8s.corp"),
            access=access,
        )
        self.routes.put(Route(key=CHAT, uid="u", created=0, phase="ScaledToZero"))


@pytest.fixture
async def fixture():
    fixture = AdminFixture()
    _, fixture.port = await fixture.admin.start("127.0.0.1", 0)
    yield fixture
    await fixture.admin.stop()


@pytest.fixture
async def http(fixture):
    async with aiohttp.ClientSession(f"http://127.0.0.1:{fixture.port}") as session:
        yield session


@asynccontextmanager
async def events(http):
    async with http.get("/hearth/events") as response:
        assert response.content_type == "text/event-stream"

        async def next_event():
            line = await response.content.readuntil(b"\n\n")
            return json.loads(line.removeprefix(b"data: "))["services"]

        yield next_event


async def test_healthz_is_200_whatever_is_not_ready(fixture, http):
    fixture.reasons["pods"] = "not listed yet"
    async with http.get("/healthz") as response:
        assert (response.status, await response.json()) == (200, {"alive": True})


async def test_readyz_names_what_is_not_ready_and_why(fixture, http):
    async with http.get("/readyz") as response:
        assert (response.status, await response.json()) == (200, {"ready": True, "notReady": {}})
    fixture.reasons["pods"] = "not listed yet"
    async with http.get("/readyz") as response:
        assert response.status == 503
        assert await response.json() == {"ready": False, "notReady": {"pods": "not listed yet"}}


async def test_field_case_76_a_blind_watch_is_named_and_sends_nobody_away(fixture, http):
    fixture.ages["pods"] = server.STALE_S + 60
    async with http.get("/readyz") as response:
        told = {"ready": True, "notReady": {}, "staleS": {"pods": 660}}
        assert (response.status, await response.json()) == (200, told)


@pytest.mark.reference("noctaya:text.queue")
@pytest.mark.parametrize("path", ["/hearth/queue", "/noctaya/queue"])
async def test_the_demand_table_has_two_addresses(fixture, http, path):
    fixture.demand.admit(CHAT, limit=3)
    fixture.metrics.read_in_flight(lambda key: 1)
    async with http.get(path) as response:
        assert response.content_type == "application/json"
        [service] = (await response.json())["services"]
    assert (service["name"], service["pending"], service["inFlight"]) == ("chat", 1, 1)


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [("", "text/plain"), ("application/openmetrics-text; version=1.0.0", "openmetrics-text")],
)
async def test_metrics_come_in_the_format_asked_for(http, accept, content_type):
    async with http.get("/metrics", headers={"Accept": accept}) as response:
        assert response.status == 200
        assert content_type in response.headers["Content-Type"]
        assert 'hearth_pending_requests{namespace="ai",service="chat"} 0' in await response.text()


async def test_the_page_is_html_under_its_own_policy(http):
    async with http.get("/") as response:
        assert response.headers["Content-Type"] == "text/html; charset=utf-8"
        assert "script-src 'sha256-" in response.headers["Content-Security-Policy"]
        assert "<title>Hearth</title>" in await response.text()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/hearth/queue", 200),
        ("HEAD", "/healthz", 200),
        ("GET", "/nothing", 404),
        ("POST", "/hearth/queue", 405),
        ("HEAD", "/hearth/events", 405),
    ],
)
async def test_every_response_has_the_security_headers(http, method, path, status):
    async with http.request(method, path) as response:
        assert response.status == status
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert "frame-ancestors 'none'" in response.headers["Content-Security-Policy"]
        assert response.headers["Cache-Control"] == "no-store"
        assert response.headers["Server"] == "hearth"


async def test_404_names_the_paths_there_are(http):
    async with http.get("/queue") as response:
        assert (response.status, response.content_type) == (404, "text/plain")
        text = await response.text()
    named = set(re.findall(r"/[a-z/]*", text))
    assert named == {
        "/", "/healthz", "/readyz", "/metrics", "/hearth/queue", "/noctaya/queue", "/hearth/events",
        "/hearth/login",
    }  # fmt: skip


async def test_event_stream_sends_the_document_at_each_change(fixture, http):
    with hanging.guard():
        async with events(http) as next_event:
            [service] = await next_event()
            assert (service["phase"], service["pending"]) == ("ScaledToZero", 0)
            claim = fixture.demand.admit(CHAT, limit=3)
            [service] = await next_event()
            assert service["pending"] == 1
            fixture.routes.put(Route(key=CHAT, uid="u", created=0, phase="Loading"))
            [service] = await next_event()
            assert service["phase"] == "Loading"
            claim.release()
            fixture.routes.drop(CHAT)
            assert await next_event() == []


async def test_requests_to_the_admin_port_wake_no_service(fixture, http):
    for path in ("/", "/hearth/queue", "/metrics", "/readyz"):
        async with http.get(path) as response:
            await response.read()
    async with events(http) as next_event:
        await next_event()
    assert list(fixture.demand.rows()) == []


async def test_an_event_stream_ends_when_its_page_is_closed(fixture, http):
    with hanging.guard():
        async with events(http) as next_event:
            await next_event()
        while fixture.admin.followers:
            fixture.demand.admit(CHAT, limit=10**6)  # a write to a closed connection ends it
            await anyio.lowlevel.checkpoint()


async def test_open_event_streams_do_not_delay_stop(fixture, http):
    with hanging.guard():
        async with events(http) as next_event:
            await next_event()
            await fixture.admin.stop()
            with pytest.raises((aiohttp.ClientError, anyio.IncompleteRead, EOFError, ValueError)):
                await next_event()
        await fixture.admin.stop()
        with pytest.raises(aiohttp.ClientConnectorError):
            await http.get("/healthz")


async def test_a_port_in_use_is_explained(fixture):
    other = AdminFixture()
    with pytest.raises(server.CannotListen, match=f"127.0.0.1:{fixture.port}: the port is in use"):
        await other.admin.start("127.0.0.1", fixture.port)


async def test_an_address_this_machine_lacks_is_explained():
    with pytest.raises(server.CannotListen, match="this machine has no such address"):
        await AdminFixture().admin.start("192.0.2.1", 0)


PAGES = ("/", "/metrics", "/hearth/queue", "/noctaya/queue", "/hearth/events")


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize(
    "fields",
    [
        {"Origin": "https://page.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    ],
)
async def test_field_case_97_a_page_of_another_site_reads_nothing_here(http, path, fields):
    async with http.get(path, headers=fields) as response:
        assert response.status == 403
        assert "ai" not in (await response.text()).split()


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("host", ["page.example:8081", "localhost.page.example", "chat.ai"])
async def test_field_case_97_a_name_that_a_page_leads_here_is_not_answered(http, path, host):
    async with http.get(path, headers={"Host": host}) as response:
        assert response.status == 421
        assert "--admin-hosts" in await response.text()


async def test_field_case_97_operators_notice_nothing(fixture, http):
    page = {"Sec-Fetch-Site": "same-origin", "Origin": f"http://127.0.0.1:{fixture.port}"}
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    for fields in (page, {**link, "Sec-Fetch-Dest": "document"}):
        async with http.get("/", headers=fields) as response:
            assert response.status == 200
    hosts = (
        "10.1.2.3:8081", "[fd00::1]:8081", "localhost:8081", "hearth-admin", "hearth.corp.example",
        "hearth-admin.hearth-system.svc:8081", "hearth-admin.hearth-system.svc.k8s.corp",
    )  # fmt: skip
    for host in hosts:
        async with http.get("/hearth/queue", headers={"Host": host}) as response:
            assert response.status == 200
    for path in ("/healthz", "/readyz"):
        async with http.get(path, headers={"Host": "probe.example"}) as response:
            assert response.status == 200


LOG = "the engine says: token hf_secret"
FAILED = Route(
    key=CHAT,
    uid="u",
    created=0,
    phase="Degraded",
    failure=Failure(reason="CrashLoopBackOff", message=LOG, brief="its engine crashes"),
)


@asynccontextmanager
async def listening(token=""):
    fixture = AdminFixture(access=Access(token))
    fixture.routes.put(FAILED)
    _, port = await fixture.admin.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            yield session
    finally:
        await fixture.admin.stop()


async def told(http, **how):
    """The message of the failure, by the table and by the first event."""
    async with http.get("/hearth/queue", **how) as response:
        document = await response.json()
    async with http.get("/hearth/events", **how) as response:
        line = await response.content.readuntil(b"\n\n")
        assert json.loads(line.removeprefix(b"data: ")) == document
    return document["full"], document["services"][0]["failure"]["message"]


BRIEF = (False, "its engine crashes; kubectl -n ai describe llmservice chat shows more")


async def test_field_case_139_only_who_comes_from_the_pod_itself_reads_logs():
    with hanging.guard():
        async with listening() as http:
            assert await told(http) == (True, LOG)
            # As through an Ingress, or the API server's proxy.
            assert await told(http, headers={"X-Forwarded-For": "10.0.0.9"}) == BRIEF
            async with http.get("/hearth/login", headers={"X-Forwarded-For": "x"}) as response:
                assert response.status == 403
                assert "port-forward" in await response.text()


async def test_field_case_139_a_token_opens_the_rest():
    with hanging.guard():
        async with listening("s3cret") as http:
            assert await told(http) == BRIEF
            assert await told(http, headers={"Authorization": "Bearer wrong"}) == BRIEF
            assert await told(http, headers={"Authorization": "Bearer s3cret"}) == (True, LOG)
            basic = {"Authorization": aiohttp.encode_basic_auth("anybody", "s3cret")}
            assert await told(http, headers=basic) == (True, LOG)
            async with http.get("/hearth/login") as response:
                assert response.status == 401
                assert response.headers["WWW-Authenticate"].startswith("Basic ")
            async with http.get("/hearth/login", headers=basic, allow_redirects=False) as response:
                assert (response.status, response.headers["Location"]) == (303, "../")


async def test_field_case_139_probes_and_metrics_need_no_token():
    async with listening("s3cret") as http:
        for path in ("/healthz", "/readyz", "/metrics", "/"):
            async with http.get(path) as response:
                assert response.status == 200 and "hf_secret" not in await response.text()


async def test_field_case_94_who_follows_is_asked_whether_it_is_still_there(fixture, http):
    async with events(http):
        (serving,) = fixture.admin._listeners
        (listener,) = serving.sockets
        with socket.socket(fileno=os.dup(listener.fileno())) as same:
            assert alive.options(same) == alive.wanted(tcp_keepalive.CLIENT_S)


async def test_field_case_91_who_holds_many_connections_does_not_keep_a_probe_out(fixture, http):
    async with AsyncExitStack() as held:
        for _ in range(3 * server.MAX_CONNECTIONS):
            await held.enter_async_context(await anyio.connect_tcp("127.0.0.1", fixture.port))
        async with http.get("/healthz") as response:
            assert response.status == 200
        assert len(fixture.admin._runner.server.connections) <= server.MAX_CONNECTIONS
