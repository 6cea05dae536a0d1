"""Each RPC, asked over a socket with good, unknown and malformed references."""

from typing import Any

import anyio
import pytest
from grpclib.client import Stream
from grpclib.const import Cardinality, Status
from grpclib.exceptions import GRPCError
from multidict import MultiDict

from hearth.api.meta import ServiceKey
from hearth.externalscaler import externalscaler_pb2 as pb
from hearth.keda import push_streams
from tests import hanging
from tests.keda.conftest import KEY, reference

METHODS = ("IsActive", "StreamIsActive", "GetMetricSpec", "StreamMetricSpec", "GetMetrics")
TABLE_METHODS = ("IsActive", "GetMetrics")


async def ask(stub, method, ref=None, *, metric="pending"):
    """The first message of the answer."""
    ref = reference() if ref is None else ref
    request = (
        pb.GetMetricsRequest(scaledObjectRef=ref, metricName=metric)
        if method == "GetMetrics"
        else ref
    )
    async with getattr(stub, method).open() as stream:
        await stream.send_message(request, end=True)
        message = await stream.recv_message()
        if method.startswith("Stream") and message is not None:
            await stream.cancel()
        return message


async def refused(stub, method, ref=None, **options) -> GRPCError:
    with pytest.raises(GRPCError) as caught, hanging.guard():
        await ask(stub, method, ref, **options)
    return caught.value


async def test_demand_is_told_in_both_number_fields(world):
    stub = world.stub()
    world.serve()
    assert not (await ask(stub, "IsActive")).result
    (idle,) = (await ask(stub, "GetMetrics")).metricValues
    assert (idle.metricName, idle.metricValue, idle.metricValueFloat) == ("pending", 0, 0.0)
    claims = [world.demand.admit(KEY, limit=9) for _ in range(3)]
    (busy,) = (await ask(stub, "GetMetrics")).metricValues
    assert (busy.metricName, busy.metricValue, busy.metricValueFloat) == ("pending", 3, 3.0)
    for claim in claims:
        claim.release()


async def test_activity_lingers_over_two_polls_and_then_ends(world):
    stub = world.stub()
    world.serve(ready=True)
    world.demand.admit(KEY, limit=1).release()
    assert (await ask(stub, "IsActive")).result
    assert (await ask(stub, "GetMetrics")).metricValues[0].metricValue == 0
    world.time.advance(29)
    assert (await ask(stub, "IsActive")).result
    world.time.advance(1)
    assert not (await ask(stub, "IsActive")).result


async def test_a_lease_is_demand(world):
    stub = world.stub()
    world.serve()
    world.demand.renew_lease(KEY, seconds=60)
    assert (await ask(stub, "IsActive")).result
    assert (await ask(stub, "GetMetrics")).metricValues[0].metricValue == 1


@pytest.mark.parametrize("method", ["GetMetricSpec", "StreamMetricSpec"])
async def test_specs_come_from_the_metadata_alone(world, method):
    """Of a service nobody knows, and before the caches are synced."""
    world.server.gate.close("starting")
    (spec,) = (await ask(world.stub(), method)).metricSpecs
    assert (spec.metricName, spec.targetSize, spec.targetSizeFloat) == ("pending", 4, 4.0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("ref", "words"),
    [
        (pb.ScaledObjectRef(), "name must have 1 to 253 characters"),
        (pb.ScaledObjectRef(name="chat"), "namespace must have"),
        (reference(ServiceKey("ai", "x" * 254)), "not 254"),
        (pb.ScaledObjectRef(name="chat", namespace="ai"), "targetValue must be a whole number"),
        (reference(targetValue="0"), "targetValue must be a whole number of at least 1, not '0'"),
        (reference(targetValue="9" * 5000), "targetValue must be a whole number"),
    ],
)
async def test_malformed_references_are_refused_with_words(world, method, ref, words):
    error = await refused(world.stub(), method, ref)
    assert error.status is Status.INVALID_ARGUMENT
    assert words in str(error.message)


@pytest.mark.parametrize("method", METHODS)
async def test_a_call_without_a_message_is_refused(world, method):
    stub = world.stub()
    plain = getattr(stub, method)
    nothing: Any = MultiDict()
    stream = Stream(
        plain.channel,
        plain.name,
        nothing,
        Cardinality.STREAM_STREAM,
        plain.request_type,
        plain.reply_type,
        codec=plain.channel._codec,
        status_details_codec=None,
        dispatch=plain.channel.__dispatch__,
    )
    with pytest.raises(GRPCError, match="bears no message") as caught:
        async with stream:
            await stream.send_request(end=True)
            await stream.recv_message()
    assert caught.value.status is Status.INVALID_ARGUMENT


class Garbage:
    """Stands for a message and is none."""

    __content_subtype__ = "proto"

    def encode(self, message, message_type):
        return b"\xff\xff\xff"

    def decode(self, data, message_type):
        return data


async def test_bytes_that_are_no_message_are_refused(world):
    channel = world.connect()
    channel._codec = Garbage()
    stream = channel.request(
        "/externalscaler.ExternalScaler/IsActive",
        Cardinality.UNARY_UNARY,
        pb.ScaledObjectRef,
        pb.IsActiveResponse,
    )
    with pytest.raises(GRPCError, match="cannot be decoded") as caught:
        async with stream:
            await stream.send_message(None, end=True)
            await stream.recv_message()
    assert caught.value.status is Status.INVALID_ARGUMENT


async def test_compression_is_refused(world):
    method = world.stub().IsActive
    with pytest.raises(GRPCError, match="compressed requests") as caught:
        async with method.open() as stream:
            await stream.send_request()
            await stream._stream.send_data(b"\x01\x00\x00\x00\x01x", end_stream=True)
            stream._send_message_done = True
            await stream.recv_message()
    assert caught.value.status is Status.UNIMPLEMENTED


@pytest.mark.parametrize("metric", ["", "s0-pending", "queue"])
async def test_an_unknown_metric_is_refused(world, metric):
    world.serve()
    error = await refused(world.stub(), "GetMetrics", metric=metric)
    assert error.status is Status.INVALID_ARGUMENT
    assert "ask for 'pending'" in str(error.message)


@pytest.mark.parametrize("method", TABLE_METHODS)
async def test_an_unknown_service_is_not_an_idle_one(world, method):
    error = await refused(world.stub(), method)
    assert error.status is Status.NOT_FOUND
    assert "ai/chat" in str(error.message)


@pytest.mark.parametrize("method", TABLE_METHODS)
async def test_a_deleted_services_scaled_object_hears_nothing_of_the_new_one(world, method):
    world.serve(uid="u-2")
    assert (await refused(world.stub(), method)).status is Status.NOT_FOUND
    assert await ask(world.stub(), method, reference(uid="u-2")) is not None
    assert await ask(world.stub(), method, reference(uid="")) is not None


@pytest.mark.parametrize("method", TABLE_METHODS)
async def test_unknown_is_not_zero(world, method):
    world.serve()
    for reason in ("the caches are not synced", "the API server is away"):
        world.server.gate.close(reason)
        error = await refused(world.stub(), method)
        assert error.status is Status.UNAVAILABLE
        assert error.message == reason
    world.server.gate.open()
    assert await ask(world.stub(), method) is not None


async def test_a_push_stream_of_an_unknown_service_ends_with_not_found(world):
    async with anyio.create_task_group() as group:
        group.start_soon(world.time.sleep_out, push_streams.APPEAR_S)
        error = await refused(world.stub(), "StreamIsActive")
    assert error.status is Status.NOT_FOUND


async def test_a_push_stream_ends_with_its_service(world):
    world.serve()
    with pytest.raises(GRPCError) as caught:
        async with world.stub().StreamIsActive.open() as stream:
            await stream.send_message(reference(), end=True)
            await world.count.until(lambda: world.count.open == 1)
            world.routes.drop(KEY)
            assert await stream.recv_message() is None
    assert caught.value.status is Status.NOT_FOUND
    assert world.count.open == 0


async def test_a_spec_stream_says_it_once_and_stays(world):
    heard: list[int | str] = []

    async def listen() -> None:
        async with world.stub().StreamMetricSpec.open() as stream:
            await stream.send_message(reference(), end=True)
            async for message in stream:
                heard.append(len(message.metricSpecs))
                first.set()
        heard.append("end")

    first = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(listen)
        await first.wait()
        assert heard == [1]
        await world.server.stop()
    assert heard == [1, "end"]


async def test_each_call_is_counted_with_its_end(world):
    world.serve()
    stub = world.stub()
    await ask(stub, "IsActive")
    await ask(stub, "StreamMetricSpec")
    await refused(stub, "GetMetrics", metric="queue")
    ends = [
        ("IsActive", "OK"),
        ("StreamMetricSpec", "CANCELLED"),
        ("GetMetrics", "INVALID_ARGUMENT"),
    ]
    await world.count.until(lambda: sorted(world.count.calls) == sorted(ends))


async def test_after_a_hand_over_nothing_shrinks_until_the_old_streams_have_ended(world):
    """A target of 4 and one endpoint: what another process still serves is not known here."""
    stub = world.stub()
    cold = ServiceKey("ai", "cold")
    world.serve(ready=True)
    world.serve(cold)
    world.server.after_handover(drain_s=60)
    assert (await ask(stub, "IsActive")).result
    assert (await refused(stub, "GetMetrics")).status is Status.UNAVAILABLE
    assert not (await ask(stub, "IsActive", reference(cold))).result
    assert (await ask(stub, "GetMetrics", reference(cold))).metricValues[0].metricValue == 0
    claims = [world.demand.admit(KEY, limit=9) for _ in range(4)]
    assert (await refused(stub, "GetMetrics")).status is Status.UNAVAILABLE
    claims.append(world.demand.admit(KEY, limit=9))
    assert (await ask(stub, "GetMetrics")).metricValues[0].metricValue == 5
    for claim in claims:
        claim.release()
    world.time.advance(60)
    assert (await ask(stub, "GetMetrics")).metricValues[0].metricValue == 0
    assert not (await ask(stub, "IsActive")).result
