"""Connections: many streams, clean ends, peers that vanish or misbehave."""

from pathlib import Path

import anyio
import anyio.lowlevel
import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest
from grpclib.const import Status
from grpclib.exceptions import GRPCError, StreamTerminatedError

from hearth import tcp_keepalive
from hearth.api.meta import ServiceKey
from hearth.externalscaler import externalscaler_pb2 as pb
from hearth.keda.grpc_fast_path import MAX_REQUEST_BYTES
from hearth.keda.scaler_server import CannotListen, ScalerServer
from tests import hanging
from tests.keda.conftest import KEY, reference

STREAMS = 320


async def test_hundreds_of_streams_on_one_connection(world):
    """One push and one spec stream for each service, all answered, all ended cleanly by stop."""
    stub = world.stub()
    keys = [ServiceKey("ai", f"m{number}") for number in range(STREAMS)]
    ended, pushed = [], []

    async def push_stream(key: ServiceKey) -> None:
        async with stub.StreamIsActive.open() as stream:
            await stream.send_message(reference(key), end=True)
            pushed.extend([key async for message in stream if message.result])
        ended.append(key)

    async def spec_stream(key: ServiceKey) -> None:
        async with stub.StreamMetricSpec.open() as stream:
            await stream.send_message(reference(key), end=True)
            assert len([message async for message in stream]) == 1
        ended.append(key)

    for key in keys:
        world.serve(key)
    with hanging.guard():
        async with anyio.create_task_group() as group:
            for key in keys:
                group.start_soon(push_stream, key)
                group.start_soon(spec_stream, key)
            await world.count.until(lambda: world.count.open == STREAMS)
            assert world.server.connections() == 1
            assert not (await stub.IsActive(reference(keys[-1]))).result
            for key in keys:
                world.demand.admit(key, limit=1)
            await world.count.until(lambda: world.count.pushes == STREAMS)
            await world.server.stop()
    assert sorted(ended) == sorted(keys * 2)
    assert sorted(pushed) == sorted(keys)
    assert world.count.open == 0


async def test_a_client_that_resets_its_stream_is_forgotten(world):
    world.serve()
    async with world.stub().StreamIsActive.open() as stream:
        await stream.send_message(reference(), end=True)
        await world.count.until(lambda: world.count.open == 1)
        await stream.cancel()
    await world.count.until(lambda: world.count.open == 0)
    assert world.server.push_streams.streams(KEY) == 0


async def test_a_client_that_dies_is_forgotten(world):
    world.serve()
    stub = world.stub()

    async def listen() -> None:
        with pytest.raises(StreamTerminatedError):
            async with stub.StreamIsActive.open() as stream:
                await stream.send_message(reference(), end=True)
                await stream.recv_message()

    async with anyio.create_task_group() as group:
        for _ in range(50):
            group.start_soon(listen)
        await world.count.until(lambda: world.count.open == 50)
        stub.IsActive.channel._protocol.connection._transport.abort()
    await world.count.until(lambda: world.count.open == 0)
    assert repr(world.server) == "<ScalerServer 0 connections <PushStreams no streams>>"


async def test_stop_may_come_twice(world):
    await world.server.stop()
    await world.server.stop()
    assert repr(world.server) == "<ScalerServer 0 connections <PushStreams no streams>>"
    with pytest.raises(OSError):
        await anyio.connect_tcp("127.0.0.1", world.port)


async def test_a_peer_that_does_not_read_cannot_hold_up_the_end(world):
    """It grants no window: its push stays unsent, the stream does not end by itself."""
    world.serve()
    short = ScalerServer(world.demand, world.routes, observer=world.count, stop_grace_s=0.01)
    _, port = await short.start("127.0.0.1", 0)
    short.gate.open()
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    connection.initiate_connection()
    connection.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0})
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":authority": "x",
        ":path": "/externalscaler.ExternalScaler/StreamIsActive",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    body = reference().SerializeToString()
    connection.send_headers(1, list(headers.items()))
    connection.send_data(1, b"\0" + len(body).to_bytes(4, "big") + body, end_stream=True)
    async with await anyio.connect_tcp("127.0.0.1", port) as socket:
        await socket.send(connection.data_to_send())
        await world.count.until(lambda: world.count.open == 1)
        for _ in range(3):
            world.demand.admit(KEY, limit=9)
        events = []
        while not any(isinstance(event, h2.events.ResponseReceived) for event in events):
            events = connection.receive_data(await socket.receive())
        await short.stop()
    assert world.count.open == 0
    assert world.count.pushes == 0
    assert world.count.calls == [("StreamIsActive", "CANCELLED")]


async def test_calls_during_the_stop_hear_unavailable(world):
    world.serve()
    world.server.gate.close("Hearth is stopping")
    with pytest.raises(GRPCError, match="stopping") as caught:
        await world.stub().IsActive(reference())
    assert caught.value.status is Status.UNAVAILABLE


async def test_a_port_in_use_is_said(world):
    other = ScalerServer(world.demand, world.routes)
    with pytest.raises(CannotListen, match=f":{world.port}: the port is in use; stop what"):
        await other.start("127.0.0.1", world.port)


async def test_an_address_that_is_not_ours_is_said(world):
    with pytest.raises(CannotListen, match="this machine has no such address"):
        await ScalerServer(world.demand, world.routes).start("203.0.113.1", 0)


async def test_a_name_that_is_none_is_said(world):
    with pytest.raises(CannotListen, match=r"cannot listen for KEDA on a\.\.b:1: "):
        await ScalerServer(world.demand, world.routes).start("a..b", 1)


async def test_a_request_without_end_is_cut_off(world):
    world.serve()
    big = reference(padding="x" * (2 * MAX_REQUEST_BYTES))
    stub = world.stub()
    for method in (stub.IsActive, stub.StreamIsActive, stub.GetMetricSpec):
        with pytest.raises(StreamTerminatedError, match="reset by remote party, error_code: 11"):
            async with method.open() as stream:
                await stream.send_message(big, end=True)
                await stream.recv_message()
    assert not (await stub.IsActive(reference(padding="x" * 1000))).result


async def test_pings_without_calls_are_answered_for_ever(world):
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    connection.initiate_connection()
    answered = 0
    async with await anyio.connect_tcp("127.0.0.1", world.port) as socket:
        for _ in range(12):
            connection.ping(b"12345678")
            await socket.send(connection.data_to_send())
            before = answered
            while answered == before:
                for event in connection.receive_data(await socket.receive()):
                    assert not isinstance(event, h2.events.ConnectionTerminated)
                    answered += isinstance(event, h2.events.PingAckReceived)
    assert answered == 12


async def test_bytes_that_are_not_http2_close_only_their_connection(world):
    world.serve()
    async with await anyio.connect_tcp("127.0.0.1", world.port) as socket:
        await socket.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        with pytest.raises(anyio.EndOfStream):
            while True:
                await socket.receive()
    assert not (await world.stub().IsActive(reference())).result


async def test_the_wire_is_kedas(world):
    """Field numbers, as bytes: these are KEDA's, whatever our file calls them."""
    ref = pb.ScaledObjectRef(name="n", namespace="s", scalerMetadata={"k": "v"})
    assert ref.SerializeToString() == b"\n\x01n\x12\x01s\x1a\x06\n\x01k\x12\x01v"
    spec = pb.MetricSpec(metricName="m", targetSize=3, targetSizeFloat=3.0)
    double = b"\x19\x00\x00\x00\x00\x00\x00\x08@"
    assert spec.SerializeToString() == b"\n\x01m\x10\x03" + double
    value = pb.MetricValue(metricName="m", metricValue=3, metricValueFloat=3.0)
    assert value.SerializeToString() == b"\n\x01m\x10\x03" + double
    assert pb.IsActiveResponse(result=True).SerializeToString() == b"\x08\x01"
    asked = pb.GetMetricsRequest(scaledObjectRef=pb.ScaledObjectRef(name="n"), metricName="m")
    assert asked.SerializeToString() == b"\n\x03\n\x01n\x12\x01m"
    methods = pb.DESCRIPTOR.services_by_name["ExternalScaler"].methods_by_name
    assert pb.DESCRIPTOR.package == "externalscaler"
    assert {name: method.server_streaming for name, method in methods.items()} == {
        "IsActive": False,
        "StreamIsActive": True,
        "GetMetricSpec": False,
        "GetMetrics": False,
        "StreamMetricSpec": True,
    }


def timer(port: int) -> tuple[str, int]:
    """What the kernel's table says of the one connection accepted there: timer, hundredths left."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    [found] = [row[5] for row in rows if row[1].endswith(f":{port:04X}") and row[3] == "01"]
    kind, _, left = found.partition(":")
    return kind, int(left, 16)


async def test_field_case_56_the_kernel_asks_whether_a_silent_peer_is_still_there(world):
    """A host that vanished sends no RST; only the server's end of the connection can tell."""
    world.serve()
    async with world.stub().StreamIsActive.open() as stream:
        await stream.send_message(reference(), end=True)
        await world.count.until(lambda: world.count.open == 1)
        with hanging.guard():
            while timer(world.port)[0] == "01":  # what was sent is not acknowledged yet
                await anyio.lowlevel.checkpoint()
        kind, left = timer(world.port)
        assert kind == "02" and left <= tcp_keepalive.PEER_S * 100
        await stream.cancel()


async def test_field_case_97_a_web_page_finds_nobody_to_talk_to(world):
    """Browsers speak HTTP/1.1 to a port without TLS: what they say ends the connection, unread."""
    world.serve()
    page = b"POST /externalscaler.ExternalScaler/IsActive HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with hanging.guard():
        async with await anyio.connect_tcp("127.0.0.1", world.port) as stream:
            await stream.send(page)
            data = b""
            try:
                while True:
                    data += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                pass
    assert b"HTTP/1" not in data
