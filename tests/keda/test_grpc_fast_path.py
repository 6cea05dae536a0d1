"""Calls and pushes, byte by byte: the plain ones take the fast path, all others are right too."""

import logging
import random
from contextlib import asynccontextmanager

import anyio
import pytest
from grpclib import protocol, server
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
from h2.exceptions import TooManyStreamsError
from h2.settings import SettingCodes
from hpack import Decoder, Encoder

from hearth.externalscaler import externalscaler_pb2 as pb
from hearth.keda import grpc_fast_path
from hearth.keda.grpc_fast_path import ALL, MAX_REQUEST_BYTES, LazyCountConnection, Trick
from hearth.keda.scaler_server import CannotListen, ScalerServer
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
                    self.headers[event.stream_id] |= {str(k): str(v) for k, v in event.headers}
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


# Pushes

TRUE = framed(pb.IsActiveResponse(result=True).SerializeToString())


def test_a_message_is_preceded_by_its_length():
    assert grpc_fast_path.framed(b"") == b"\0\0\0\0\0"
    assert grpc_fast_path.framed(b"x" * 258) == b"\0\0\0\1\2" + b"x" * 258


async def stream(world, wire) -> int:
    """KEDA's, which has its initial metadata before anything is pushed."""
    number = wire.call(**{":path": f"{SERVICE}StreamIsActive"})
    await wire.until(lambda: "content-type" in wire.headers[number])
    await world.count.until(lambda: world.count.open == 1)
    return number


async def test_a_push_is_written_in_the_tick_of_the_request(world, wire):
    number = await stream(world, wire)
    world.demand.admit(KEY, limit=1)
    assert world.count.pushes == 1
    await wire.until(lambda: wire.data[number] == TRUE)
    # Its task knows of it: it waits for the time of the next.
    await world.time.sleeping(2)


async def test_a_peer_that_grants_no_window_gets_it_with_the_window(world, wire):
    wire.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
    number = await stream(world, wire)
    world.demand.admit(KEY, limit=1)
    assert world.count.pushes == 0
    wire.h2.increment_flow_control_window(len(TRUE), number)
    await wire.until(lambda: wire.data[number] == TRUE)
    await world.count.until(lambda: world.count.pushes == 1)


async def test_a_stream_that_its_peer_has_just_ended_gets_nothing(world, wire):
    number = await stream(world, wire)
    wire.h2.reset_stream(number)
    seen = []

    def closed(key):
        seen.append(world.count.pushes)

    world.demand.listen(closed)
    await wire.send()
    await world.count.until(lambda: world.count.open == 0)
    world.demand.admit(KEY, limit=1)
    assert seen == [0]
    assert world.server.push_streams.streams(KEY) == 0
    # The connection lives on.
    assert await wire.status(wire.call()) == "0"


# Header blocks

CALL = [
    (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a/IsActive"),
    (b"content-type", b"application/grpc"), (b"te", b"trailers"),
]  # fmt: skip
OTHER = [(b":method", b"POST"), (b":path", b"/a/GetMetrics"), (b"grpc-timeout", b"3S")]
ANSWER_HEAD = [(b":status", b"200"), (b"content-type", b"application/grpc+proto")]
TRAILERS = [(b"grpc-status", b"0")]


def codecs():
    """A decoder and an encoder as a connection of ours has them."""
    connection = H2Connection(H2Configuration(client_side=False))
    grpc_fast_path.cache_headers(connection)
    return connection.decoder, connection.encoder


def lists(seed, count=400):
    """Lists of headers as they may come: mostly the same few, sometimes another."""
    chance = random.Random(seed)
    for number in range(count):
        if chance.random() < 0.1:
            size = chance.choice((1, 40, 3000))
            yield [(b"x-%d" % chance.randrange(20), b"%d" % number * size)]
        yield chance.choice((CALL, OTHER, ANSWER_HEAD, TRAILERS))


@pytest.mark.parametrize("seed", range(5))
def test_a_decoder_reads_what_any_encoder_writes(seed):
    decoder, _ = codecs()
    encoder = Encoder()
    for number, headers in enumerate(lists(seed)):
        if number % 100 == 99:
            encoder.header_table_size = 4096 >> (number // 100)
        assert list(decoder.decode(encoder.encode(headers), raw=True)) == headers


@pytest.mark.parametrize("seed", range(5))
def test_any_decoder_reads_what_an_encoder_writes(seed):
    _, encoder = codecs()
    decoder = Decoder()
    for number, headers in enumerate(lists(seed)):
        if number % 100 == 99:  # as after the peer's settings
            encoder.header_table_size = 4096 >> (number // 100)
        assert list(decoder.decode(encoder.encode(iter(headers)), raw=True)) == headers


def test_a_block_means_what_the_table_says_now():
    decoder, _ = codecs()
    encoder = Encoder()
    decoder.decode(encoder.encode(CALL), raw=True)
    block = encoder.encode(CALL)
    assert list(decoder.decode(block, raw=True)) == CALL == list(decoder.decode(block, raw=True))
    decoder.decode(encoder.encode([(b"new", b"1"), (b"er", b"2"), (b"ones", b"3")]), raw=True)
    assert list(decoder.decode(block, raw=True)) != CALL


def test_texts_and_bytes_are_not_mixed_up():
    decoder, _ = codecs()
    block = Encoder().encode([(":method", "GET")])
    assert list(decoder.decode(block, raw=True)) == [(b":method", b"GET")]
    assert list(decoder.decode(block)) == [(":method", "GET")]
    assert list(decoder.decode(block, raw=True)) == [(b":method", b"GET")]


def test_only_some_blocks_are_kept():
    decoder, encoder = codecs()
    plain = Encoder()
    fields = [(b"n", b"%d" % number) for number in range(12)]
    many = [[one, other] for one in fields for other in fields]
    for _ in range(2):
        for headers in many:
            decoder.decode(plain.encode(headers), raw=True)
            encoder.encode(headers)
    assert 0 < len(decoder._known) <= 64 and 0 < len(encoder._known) <= 64


# Streams

HEAD = [(":method", "POST"), (":scheme", "http"), (":path", "/a"), (":authority", "b")]


class Pair:
    """A client and a server that hear each other."""

    def __init__(self, *, limit: int) -> None:
        self.client, self.server = self.ends = [
            H2Connection(H2Configuration(client_side=client)) for client in (True, False)
        ]
        for end in self.ends:
            end.initiate_connection()
            end.__class__ = LazyCountConnection
        self.server.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: limit})
        self.server.local_settings.acknowledge()
        self._pass_on()

    def begin(self) -> int:
        number = self.client.get_next_available_stream_id()
        self.client.send_headers(number, HEAD)
        self._pass_on()
        return number

    def end(self, number: int) -> None:
        self.client.end_stream(number)
        self._pass_on()
        self.server.send_headers(number, [(":status", "200")], end_stream=True)
        self._pass_on()

    def _pass_on(self) -> None:
        for _ in range(2):
            self.server.receive_data(self.client.data_to_send())
            self.client.receive_data(self.server.data_to_send())


def test_what_has_closed_is_dropped_in_time():
    pair = Pair(limit=20_000)
    for _ in range(200):
        pair.begin()
    most = 0
    for _ in range(1000):
        pair.end(pair.begin())
        most = max(most, *(len(end.streams) for end in pair.ends))
    assert 300 < most <= 2 * 201  # seldom, and never for long


def test_the_limit_is_exact():
    pair = Pair(limit=150)
    first, *_ = [pair.begin() for _ in range(149)]
    for _ in range(300):
        pair.end(pair.begin())
    pair.begin()
    with pytest.raises(TooManyStreamsError):
        pair.begin()
    pair.end(first)
    pair.begin()


# Other versions of the libraries


def rename_the_count(patch):
    """h2 counts streams by another name."""
    count = H2Connection._open_streams
    patch.setattr(H2Connection, "_count_streams", count, raising=False)
    patch.setattr(H2Connection, "open_inbound_streams", property(lambda h2: count(h2, 1)))
    patch.setattr(H2Connection, "open_outbound_streams", property(lambda h2: count(h2, 0)))
    patch.delattr(H2Connection, "_open_streams")


def name_an_argument(patch):
    """HPACK's decoder takes `raw` by its name alone."""
    decode = Decoder.decode
    patch.setattr(Decoder, "decode", lambda self, data, *, raw=False: decode(self, data, raw))


def take_the_outer_streams_own(patch):
    """grpclib's stream of a method hides the one below it."""
    patch.setattr(server.Stream, "__init__", lambda self, *_, **__: None)


def take_the_peer(patch):
    patch.delattr(protocol.Connection, "get_peer")


def take_the_transport(patch):
    patch.setattr(protocol.Peer, "__init__", lambda self, _: None)


def open_no_more_than_a_hundred(patch):
    patch.setattr(H2Connection, "update_settings", lambda *_: None)


async def test_a_rehearsal_finds_what_is_as_it_should_be():
    assert grpc_fast_path.rehearse(ALL) is None
    assert grpc_fast_path.rehearse(frozenset()) is None
    for trick in Trick:
        assert grpc_fast_path.rehearse(frozenset({trick})) is None


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (rename_the_count, "count of streams: 0, not 128"),
        (name_an_argument, "response to a call: "),
        (take_the_outer_streams_own, "AttributeError: "),
    ],
)
async def test_where_the_fast_path_does_not_fit_plain_grpclib_serves_after_one_warning(
    world, monkeypatch, caplog, change, problem
):
    world.serve()
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        change(patch)
        other = ScalerServer(world.demand, world.routes, observer=world.count)
        await other.start("127.0.0.1", 0)
        _, port = await other.start("127.0.0.1", 0)
    [record] = caplog.records
    assert record.message == "gRPC fast path not used" and record.error.startswith(problem)
    assert record.libraries.startswith("grpclib ")
    other.gate.open()
    async with await anyio.connect_tcp("127.0.0.1", port) as socket:
        wire = Wire(socket)
        assert await wire.status(wire.call()) == OK
        [connection] = other._servers[1].connections
        assert type(connection.connection._connection) is H2Connection
        assert type(connection.connection._connection.decoder) is Decoder
    await other.stop()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (take_the_peer, "AttributeError: .*get_peer"),
        (take_the_transport, "AttributeError: .*_transport"),
        (open_no_more_than_a_hundred, "limit of streams: 100, not 20000"),
    ],
)
async def test_where_nothing_fits_it_says_so_at_the_start(world, monkeypatch, change, problem):
    other = ScalerServer(world.demand, world.routes)
    with monkeypatch.context() as patch:
        change(patch)
        with pytest.raises(CannotListen, match=f"grpclib .*, h2 .*, hpack .*: {problem}"):
            await other.start("127.0.0.1", 0)
    await other.start("127.0.0.1", 0)
    await other.stop()
