"""Engines that ask for a key are told their own, and never a client's."""

import anyio
import pytest

from hearth.api.meta import ServiceKey
from hearth.cluster.interface import Unavailable
from hearth.proxy.errors import GatewayError
from hearth.proxy.routing.engine_keys import EngineKeys
from hearth.routes import Backend, KeyRef
from tests.proxy import backend
from tests.proxy.stage import BODY, STREAM, code_of, held, model, pod, stage

OWN = KeyRef(secret="engine", key="token")
KEYED = Backend(uid="1", pod="p", host="10.0.0.1", port=1, ready=True, engine_key=OWN)
OPEN = Backend(uid="2", pod="q", host="10.0.0.2", port=1, ready=True)


class EngineKeysFixture:
    def __init__(self):
        self.now = 0.0
        self.data = {"token": b" sesame\n"}
        self.error = None
        self.reads = 0
        self.keys = EngineKeys(self.read, clock=lambda: self.now)

    async def read(self, namespace, name):
        assert (namespace, name) == ("ai", "engine")
        self.reads += 1
        if self.error is not None:
            raise self.error
        return self.data

    async def refresh(self):
        await self.keys.refresh("ai", KEYED)
        return self.keys.field_line("ai", KEYED)


async def test_field_case_130_a_key_is_read_when_it_is_used_and_again_after_ten_seconds():
    world = EngineKeysFixture()
    assert not world.keys.is_fresh("ai", KEYED) and world.keys.field_line("ai", KEYED) == b""
    assert await world.refresh() == b"Authorization: Bearer sesame\r\n"
    assert world.keys.is_fresh("ai", KEYED)
    world.data = {"token": b"other"}
    assert await world.refresh() == b"Authorization: Bearer sesame\r\n"
    world.now = 10.0
    assert not world.keys.is_fresh("ai", KEYED)
    assert await world.refresh() == b"Authorization: Bearer other\r\n"
    assert world.reads == 2


async def test_an_engine_that_asks_for_none_is_told_none():
    world = EngineKeysFixture()
    assert world.keys.is_fresh("ai", OPEN)
    await world.keys.refresh("ai", OPEN)
    assert (world.keys.field_line("ai", OPEN), world.reads) == (b"", 0)


async def test_the_last_value_outlives_an_outage_of_ten_minutes():
    world = EngineKeysFixture()
    await world.refresh()
    world.error = Unavailable()
    world.now = 599.0
    assert await world.refresh() == b"Authorization: Bearer sesame\r\n"
    world.now = 611.0
    for _ in range(2):
        with pytest.raises(GatewayError, match=r"hearth\.dev/engine-key"):
            await world.refresh()
        assert not world.keys.is_fresh("ai", KEYED), "nor is it used until the next read"
    world.error, world.now = None, 622.0
    assert await world.refresh() == b"Authorization: Bearer sesame\r\n"


@pytest.mark.parametrize("data", [None, {}, {"token": b" "}, {"token": b"a\r\nX: y"}])
async def test_what_is_not_there_or_no_key_is_not_sent(data):
    world = EngineKeysFixture()
    world.data = data
    with pytest.raises(GatewayError):
        await world.refresh()
    assert world.keys.field_line("ai", KEYED) == b"" and not world.keys.is_fresh("ai", KEYED)


# As engines and clients see it

THEIRS = {"Authorization": "Bearer theirs", "X-Api-Key": "theirs", "Cookie": "theirs=1"}


def told(server):
    """What the engine was told with each request, its list of models among them."""
    assert b"theirs" not in repr([call.headers for call in server.seen]).encode()
    return [s.header("Authorization") for s in server.seen if s.target != "/health"]


@pytest.mark.parametrize("body", [BODY, STREAM, model("adapter")], ids=["plain", "stream", "other"])
async def test_field_case_130_an_engine_gets_its_own_key_and_no_client_s(body):
    async with backend.running() as server, stage() as s:
        s.secrets["ai/engine"] = {"token": b"sesame"}
        s.put(pod(server, engine_key=OWN), engine_keyed=True)
        for _ in range(3):
            assert (await s.ask(body, headers=THEIRS))[0] == 200
        assert len(server.calls()) == 3
        assert set(told(server)) == {"Bearer sesame"}


async def test_field_case_130_a_cold_request_too():
    async with backend.running() as server, stage() as s:
        s.secrets["ai/engine"] = {"token": b"sesame"}
        s.put(engine_keyed=True)
        async with anyio.create_task_group() as tasks:
            answer = await held(s, tasks, headers=THEIRS)
            s.put(pod(server, engine_key=OWN))
        assert answer.status == 200
        assert told(server) == ["Bearer sesame"]


async def test_field_case_130_the_client_s_key_opens_and_the_engine_gets_another():
    async with backend.running() as server, stage() as s:
        s.secrets |= {"ai/engine": {"token": b"sesame"}, "ai/keys": {"api": b"theirs"}}
        s.put(
            pod(server, engine_key=OWN),
            engine_keyed=True,
            authentication=KeyRef(secret="keys", key="api"),
        )
        assert (await s.ask(headers=THEIRS))[0] == 200
        assert (await s.ask(headers={"Authorization": "Bearer sesame"}))[0] == 401
        assert told(server) == ["Bearer sesame"]


async def test_field_case_130_without_its_secret_nothing_is_sent():
    async with backend.running() as server, stage() as s:
        s.put(pod(server, engine_key=OWN), engine_keyed=True)
        status, _, text = await s.ask(headers=THEIRS)
        assert (status, code_of(text)) == (503, "authentication_unavailable")
        assert server.calls() == []
        # While pods without a key are there still, what one says counts.
        s.put(pod(server), engine_keyed=True)
        assert (await s.ask(headers=THEIRS))[0] == 200
        assert told(server) == [None]
        assert s.demand.pending(ServiceKey("ai", "chat")) == 0
