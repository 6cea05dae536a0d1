"""The tables of header fields have what the gateway reads and writes, and nothing else."""

import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hearth.proxy import headers
from hearth.proxy.config import GatewayConfig
from hearth.proxy.errors import ErrorCode, GatewayError
from hearth.proxy.wire import head_parser, header_rules
from hearth.routes import ColdStart, KeyRef
from tests.proxy import backend
from tests.proxy.stage import BODY, CONFIG, HOST, STREAM, pod, stage

FRAMING = {"content-length", "transfer-encoding", "connection", "keep-alive", "date"}
"""HTTP's own; Content-Type of a response is that of its body."""
ORIGIN = "https://app.example"


def names(table) -> set[str]:
    return {header.name.lower() for header in table}


def read_by_name() -> set[str]:
    """Fields that the code asks a head for."""
    text = "".join(path.read_text() for path in Path(headers.__file__).parent.rglob("*.py"))
    found = re.findall(r'\.field\(\s*b"([a-z-]+)"', text)
    found += re.findall(r'headers\.get\("([A-Za-z-]+)"', text)
    found += re.findall(r'"([a-z-]+)" in request\.headers', text)
    return {name.lower() for name in found}


def test_all_that_is_read_of_a_request_is_in_the_table():
    noted = {name.decode() for name in head_parser._NOTED}
    ours = {name.decode() for name in header_rules._OURS | header_rules._SECRETS}
    assert (noted | ours | read_by_name()) - FRAMING - {"x-forwarded-host"} == names(
        headers.REQUEST
    ) - {"accept-encoding"}


def test_no_field_is_in_a_table_twice():
    for table in (headers.REQUEST, headers.RESPONSE, headers.UPSTREAM):
        assert len(names(table)) == len(table)


@pytest.mark.parametrize("code", ErrorCode)
def test_the_fields_of_an_error_are_in_the_table(code):
    error = GatewayError(code, "m", retry_after_s=3, allow="GET")
    assert {name.lower() for name in error.headers()} <= names(headers.RESPONSE)


async def test_all_that_is_written_is_in_the_table_and_the_reverse():
    """Responses of every kind: an engine's, early ones, errors, lists, preflights."""
    seen: set[str] = set()

    def note(response: aiohttp.ClientResponse) -> None:
        seen.update(name.lower() for name in response.headers)

    config = GatewayConfig(
        hosts=CONFIG.hosts, default_namespace="ai", cors_origins=(ORIGIN,), body_limit_bytes=1024
    )
    page = {"Origin": ORIGIN}
    async with backend.running() as server, stage(config) as s:
        s.put(pod(server))
        requests: list[tuple[Any, dict[str, Any]]] = [
            (BODY, {}),
            (STREAM, {}),
            (BODY, {"path": "/v1/nothing"}),
            (BODY, {"path": "/v1/messages", "host": "llm.test"}),
            (b"{", {"path": "/v1/messages"}),
            (BODY, {"headers": page | {"Content-Encoding": "br"}}),
            (b"x" * 2000, {}),
        ]
        for body, options in requests:
            async with s.post(body, **{"headers": page, **options}) as response:
                note(response)
        for path, method in (
            ("/v1/models", "GET"),
            ("/v1/models", "DELETE"),
            ("/healthz", "GET"),
            ("/v1/models", "OPTIONS"),
        ):
            async with s.get(path, method=method, headers=page) as response:
                note(response)
        s.put(authentication=KeyRef(secret="key", key="api"))
        async with s.post(BODY) as response:
            note(response)
        s.put(authentication=None, cold_start=ColdStart.REJECT)
        async with s.get("/v1/files") as response:
            note(response)
        async with s.post(BODY) as response:
            note(response)
        s.put(cold_start=ColdStart.KEEPALIVE)
        async with s.post(STREAM) as response:
            note(response)
    assert seen - FRAMING - {"content-type"} == names(headers.RESPONSE)


async def test_what_engines_are_sent_beside_the_clients_fields_is_in_the_table():
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        await s.ask()
        (call,) = server.calls()
        sent = {name.lower() for name, _ in call.headers}
        clients = {"accept", "accept-encoding", "content-type", "content-length", "user-agent"}
        assert sent - clients - {"host"} == names(headers.UPSTREAM)
        assert call.header("x-forwarded-host") == HOST
