"""The gateway's behaviour once more, where there is IPv6 alone: field case 93."""

import pytest

from tests import hanging
from tests.loopback import needs_ipv6
from tests.proxy import backend

# ruff: noqa: F403 - each test of these runs here, too
from tests.proxy.behaviour.test_client_disconnects import *
from tests.proxy.behaviour.test_cold_start import *
from tests.proxy.behaviour.test_endpoint_failures import *
from tests.proxy.stage import pod, stage

pytestmark = needs_ipv6


@pytest.fixture(autouse=True)
def on_ipv6(monkeypatch):
    monkeypatch.setattr(backend, "LOOPBACK", "::1")


async def test_field_case_93_what_a_backend_hears_of_its_client_and_of_itself():
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        assert (await s.ask())[0] == 200
        assert (await s.ask(headers={"X-Pad": "x" * 5000}))[0] == 200
        for call in server.calls():
            assert call.header("host") == f"[::1]:{server.port}"
            assert call.header("x-forwarded-for") == "::1"


async def test_field_case_93_a_host_that_is_an_address_is_shared_by_all_namespaces():
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        with hanging.guard():
            for host in ("[::1]", f"[::1]:{s.address[1]}", "[fd00::7]:8080", "[::ffff:10.0.0.1]"):
                body = {"model": "ai/chat", "messages": []}
                assert (await s.ask(body, host=host))[0] == 200, host
            assert (await s.ask(body, host="[localhost]"))[0] == 404
