"""Calls of one message, byte by byte: plain ones are answered at once, all others correctly too."""

from contextlib import asynccontextmanager

import anyio
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.settings import SettingCodes

from hearth.externalscaler import externalscaler_pb2 as pb
from hearth.keda.unary import MAX_REQUEST_BYTES
from tests import hanging
from tests.keda.conftest import KEY, reference

SERVICE = "/externalscaler.ExternalScaler/"
HEADERS = {
    ":method": "POST",
    ":scheme": "http",
    ":authority": "x",
    ":path": f"{SERVICE}IsActive",
    "content-type": "application/grpc",
    "te": "trailers",
}
OK, UNKNOWN, INVALID, NOT_FOUND, UNIMPLEMENTED = "0", "2", "3", "5", "12"


def framed(message, *, flag=0):
    body = message if isinstance(message, bytes) else message.SerializeToString()
    return bytes([flag]) + len(body).to_bytes(4, "big") + body


class Wire:
    """A client that says exactly what it is told to."""

    def __init__(self, socket) -> None:
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.headers: dict[int, dict[str, str]] = {}
        self.data: dict[int, bytes] = {}
        self.ended: set[int] = set()
        self.reset: dict[int, int] = {}
        self._socket = socket

    def begin(self, **headers) -> int:
        number = self.h2.get_next_available_stream_id()
        said = {**HEADERS, **{k.replace("_", "-"): v for k, v in headers.items()}}
        self.h2.send_headers(number, [(k, v) for k, v in said.items() if v])
        self.headers[number], self.data[number] = {}, b""
        return number

    def call(self, body=None, **headers) -> int:
        number = self.begin(**headers)
        body = framed(reference()) if body is None else body
        self.h2.send_data(number, body, end_stream=True)
        return number

    async def send(self) -> None:
        await self._socket.send(self.h2.data_to_send())

    async def until(self, reached) -> None:
        with hanging.guard():
            while not reached():
                await self.send()
                self._take(await self._socket.receive())

    async def status(self, number: int) -> str:
        """What a call ended with."""
        await self.until(lambda: number in self.ended)
        return self.headers[number]["grpc-status"]

    def _take(self, data: bytes) -> None:
        for event in self.h2.receive_data(data):
            match event:
                case ResponseReceived() | TrailersReceived():
                    self.headers[event.stream_id] |= dict(event.headers)
                case DataReceived():
                    self.data[event.stream_id] += event.data
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                case StreamEnded():
                    self.ended.add(event.stream_id)
                case StreamReset():
                    self.reset[event.stream_id] = event.error_code
                case ConnectionTerminated():
                    raise AssertionError(event)


@pytest.fixture
async def dial(world):
    world.serve()

    @asynccontextmanager
    async def connect():
        async with await anyio.connect_tcp("127.0.0.1", world.port) as socket:
            yield Wire(socket)

    return connect


@pytest.fixture
async def wire(dial):
    async with dial() as wire:
        yield wire


async def test_a_call_is_answered_and_leaves_nothing(world, wire):
    numbers = [wire.call() for _ in range(30)]
    for number in numbers:
        assert await wire.status(number) == OK
        assert wire.headers[number] == {
            ":status": "200", "content-type": "application/grpc+proto", "grpc-status": "0"
        }  # fmt: skip
        assert wire.data[number] == framed(pb.IsActiveResponse(result=False))
    assert world.count.calls == [("IsActive", "OK")] * 30
    [connection] = world.server._servers[0].connections
    assert not connection.handler._tasks  # not one was made
    assert not connection.processor._calls and not connection.processor.streams


async def test_a_message_may_come_in_pieces(wire):
    number = wire.begin(**{"content-type": "application/grpc+proto", "grpc-encoding": "identity"})
    for byte in framed(reference()):
        wire.h2.send_data(number, bytes([byte]))
        await wire.send()
    wire.h2.end_stream(number)
    assert await wire.status(number) == OK


async def test_windows_are_given_back(wire):
    """More than a connection's window, in calls of which each is small."""
    body = framed(reference(padding="x" * 10_000))
    for _ in range(300):
        assert await wire.status(wire.call(body)) == OK


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (framed(reference(), flag=1), {}, UNIMPLEMENTED),
        (framed(b"\xff"), {}, INVALID),
        (framed(reference())[:-1], {}, INVALID),
        (framed(reference()) + b"x", {}, OK),  # what follows is not read
        (b"\0\0", {}, INVALID),
        (b"", {}, INVALID),
        (framed(reference(targetValue="none")), {}, INVALID),
        (framed(reference(uid="another")), {}, NOT_FOUND),
        (framed(pb.GetMetricsRequest(metricName="x")), {":path": f"{SERVICE}GetMetrics"}, INVALID),
        (None, {":path": f"{SERVICE}Nothing"}, UNIMPLEMENTED),
        (None, {"content-type": "application/grpc+json"}, UNKNOWN),
        (None, {"te": ""}, UNKNOWN),
        (None, {"grpc-timeout": "3S"}, OK),
    ],
)
async def test_whatever_is_not_plain_is_answered_as_grpc_wants_it(wire, body, headers, status):
    before, number, after = wire.call(), wire.call(body, **headers), wire.call()
    assert await wire.status(number) == status
    assert [await wire.status(one) for one in (before, after)] == [OK, OK]


async def test_a_peer_without_a_window_is_answered_once_it_grants_one(world, wire):
    wire.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
    world.demand.admit(KEY, limit=1)
    number = wire.call(
        framed(pb.GetMetricsRequest(scaledObjectRef=reference(), metricName="pending")),
        **{":path": f"{SERVICE}GetMetrics"},
    )
    await wire.until(lambda: wire.headers[number])
    assert not wire.data[number]
    wire.h2.increment_flow_control_window(100, number)
    assert await wire.status(number) == OK
    answer = pb.GetMetricsResponse.FromString(wire.data[number][5:])
    assert answer.metricValues[0].metricValue == 1


async def test_a_call_that_is_given_up_is_forgotten(world, dial):
    async with dial() as wire:
        number = wire.begin()
        wire.h2.send_data(number, framed(reference())[:9])
        wire.h2.reset_stream(number)
        both = wire.call()
        wire.h2.reset_stream(both)  # in one packet: it has ended when it is looked at
        assert await wire.status(wire.call()) == OK
        wire.begin()
        await wire.send()
        assert await wire.status(wire.call()) == OK
        [connection] = world.server._servers[0].connections
        assert len(connection.processor._calls) == 1
    await world.count.until(lambda: True)
    assert {code for _, code in world.count.calls} <= {"OK", "CANCELLED"}


async def test_a_peer_that_leaves_right_behind_its_call_breaks_nothing(world, dial):
    async with dial() as wire:
        wire.call()
        wire.h2.close_connection()
        await wire.send()
    async with dial() as wire:
        assert await wire.status(wire.call()) == OK


async def test_a_message_that_grows_too_large_is_cut_off(wire):
    assert await wire.status(wire.call()) == OK  # and has heard how much it may send
    number = wire.begin()
    for _ in range(5):
        wire.h2.send_data(number, b"x" * (MAX_REQUEST_BYTES // 4))
        await wire.send()
    await wire.until(lambda: number in wire.reset)
    assert wire.reset[number] == 11
    assert await wire.status(wire.call()) == OK
