"""A push that is written in the tick of the request, if the peer takes it."""

import anyio
import pytest
from h2.settings import SettingCodes

from hearth.externalscaler import externalscaler_pb2 as pb
from hearth.keda.messages import framed
from tests.keda.conftest import KEY
from tests.keda.test_unary import SERVICE, Wire

TRUE = framed(pb.IsActiveResponse(result=True).SerializeToString())


def test_a_message_is_preceded_by_its_length():
    assert framed(b"") == b"\0\0\0\0\0"
    assert framed(b"x" * 258) == b"\0\0\0\1\2" + b"x" * 258


@pytest.fixture
async def wire(world):
    world.serve()
    async with await anyio.connect_tcp("127.0.0.1", world.port) as socket:
        yield Wire(socket)


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
