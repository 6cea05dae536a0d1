"""When a push is due, on real streams."""

import anyio
import anyio.lowlevel

from hearth.keda import push_streams
from hearth.keda.demand_view import ScalerGate
from tests.keda.conftest import KEY, reference


async def test_push_is_due_in_the_tick_of_the_request(world):
    world.serve()
    async with world.stub().StreamIsActive.open() as stream:
        await stream.send_message(reference(), end=True)
        await world.count.until(lambda: world.count.open == 1)
        order = []
        world.demand.listen(lambda key: order.append(world.server.push_streams.unserved_since(key)))
        world.demand.admit(KEY, limit=1)
        assert order == [world.time.now]
        message = await stream.recv_message()
        assert message is not None and message.result
        assert world.count.pushes == 1
        await stream.cancel()


async def test_lost_pushes_are_resent_until_an_endpoint_is_there(world):
    world.serve()
    async with world.stub().StreamIsActive.open() as stream:
        await stream.send_message(reference(), end=True)
        world.demand.admit(KEY, limit=1)
        for pause in (2, 4, 8, 16, 30, 30):
            assert (await stream.recv_message()).result
            await world.time.sleep_out(pause)
        assert (await stream.recv_message()).result
        world.serve(ready=True)
        assert world.server.push_streams.unserved_since(KEY) is None
        await world.time.sleep_out(30)
        world.serve(ready=False)
        assert (await stream.recv_message()).result
        assert world.count.pushes == 8
        await stream.cancel()


async def test_an_active_service_is_pushed_when_the_stream_opens(world):
    world.serve(ready=True)
    world.demand.admit(KEY, limit=1).release()
    async with world.stub().StreamIsActive.open() as stream:
        await stream.send_message(reference(), end=True)
        assert (await stream.recv_message()).result
        await stream.cancel()
    await world.count.until(lambda: world.count.open == 0)
    assert world.count.pushes == 1


async def test_each_unserved_period_is_pushed_at_once(world):
    """Also one that begins after the last one's lease ran out with nobody looking."""
    world.serve()
    world.demand.renew_lease(KEY, seconds=3)
    async with world.stub().StreamIsActive.open() as stream:
        await stream.send_message(reference(), end=True)
        assert (await stream.recv_message()).result
        await world.time.sleep_out(2)
        assert (await stream.recv_message()).result
        await world.time.sleeping(4)
        world.time.advance(1.5)
        world.demand.renew_lease(KEY, seconds=60)
        assert world.server.push_streams.unserved_since(KEY) == world.time.now
        assert (await stream.recv_message()).result
        await world.time.sleeping(2)
        await stream.cancel()


async def test_what_happens_during_an_unsent_message_is_said_by_it(world):
    """A peer that does not read holds up one message, not a queue of them."""
    world.serve()
    gate = anyio.Event()
    sending = anyio.Event()
    sent = []

    async def send() -> None:
        sending.set()
        await gate.wait()
        sent.append(world.time.now)

    async with anyio.create_task_group() as group:
        group.start_soon(lambda: world.server.push_streams.stream(KEY, uid="", send=send))
        await world.count.until(lambda: world.count.open == 1)
        for _ in range(5):
            world.demand.admit(KEY, limit=1).release()
            await anyio.lowlevel.checkpoint()
        await sending.wait()
        gate.set()
        await world.count.until(lambda: world.count.pushes == 1)
        world.server.push_streams.end()
    assert len(sent) == 1


async def test_what_can_be_sent_at_once_is_sent_before_anything_else_happens(world):
    """And only where nothing is being sent already, on a stream that is open."""
    world.serve()
    said = []
    takes = True

    async def send() -> None:
        said.append("later")

    def send_now() -> bool:
        if takes:
            said.append("now")
        return takes

    def begin() -> None:
        group.start_soon(
            lambda: world.server.push_streams.stream(KEY, uid="", send=send, send_now=send_now)
        )

    async with anyio.create_task_group() as group:
        world.demand.admit(KEY, limit=1).release()
        begin()
        await world.count.until(lambda: world.count.pushes == 1)
        assert said == ["later"]
        world.serve(ready=True)
        world.serve()
        await world.count.until(lambda: world.count.open == 1)
        await anyio.wait_all_tasks_blocked()
        world.demand.admit(KEY, limit=1)
        assert said == ["later", "now"]
        assert world.count.pushes == 2
        await world.time.sleep_out(2)
        await world.count.until(lambda: world.count.pushes == 3)
        assert said == ["later", "now", "later"]
        world.serve(ready=True)
        await anyio.wait_all_tasks_blocked()
        takes = False
        world.serve()
        assert said == ["later", "now", "later"]
        await world.count.until(lambda: world.count.pushes == 4)
        assert said == ["later", "now", "later", "later"]
        world.server.push_streams.end()


async def test_nothing_is_pushed_while_the_gate_is_closed(world):
    world.server.gate.close("fenced")
    world.serve()
    async with world.stub().StreamIsActive.open() as stream:
        await stream.send_message(reference(), end=True)
        await world.count.until(lambda: world.count.open == 1)
        world.demand.admit(KEY, limit=1)
        assert world.server.push_streams.unserved_since(KEY) is None
        world.time.advance(5)
        world.server.gate.open()
        assert (await stream.recv_message()).result
        assert world.server.push_streams.unserved_since(KEY) == world.time.now
        assert world.count.pushes == 1
        await stream.cancel()


async def test_demand_is_watched_without_a_stream(world):
    """With KEDA dead there is nobody to push to; whoever watches over it reads this time."""
    world.serve()
    began = world.time.now
    world.demand.renew_lease(KEY, seconds=60)
    world.time.advance(11)
    assert world.server.push_streams.unserved_since(KEY) == began
    assert world.server.push_streams.streams(KEY) == 0
    world.demand.end_lease(KEY, grace_s=0)
    assert world.server.push_streams.unserved_since(KEY) is None


async def test_a_stream_waits_for_a_route_that_is_not_yet_published(world):
    async with world.stub().StreamIsActive.open() as stream:
        await stream.send_message(reference(), end=True)
        await world.time.sleeping(push_streams.APPEAR_S)
        world.serve()
        world.demand.admit(KEY, limit=1)
        assert (await stream.recv_message()).result
        await stream.cancel()


async def test_streams_that_come_and_go_are_told(world):
    pushes, record = world.server.push_streams, []
    stop = pushes.listen(lambda key: record.append((key, pushes.streams(key), pushes.any_stream())))
    world.serve()
    async with world.stub().StreamIsActive.open() as stream:
        await stream.send_message(reference(), end=True)
        await world.until_streams(1)
        await stream.cancel()
    await world.until_streams(0)
    assert record == [(KEY, 1, True), (KEY, 0, False)]
    stop()
    async with world.stub().StreamIsActive.open() as stream:
        await stream.send_message(reference(), end=True)
        await world.until_streams(1)
        await stream.cancel()
    assert len(record) == 2


async def test_repr_shows_the_streams(world):
    world.serve()
    assert repr(world.server.push_streams) == "<PushStreams no streams>"
    async with world.stub().StreamIsActive.open() as stream:
        await stream.send_message(reference(), end=True)
        await world.count.until(lambda: world.count.open == 1)
        assert repr(world.server.push_streams) == "<PushStreams ai/chat=1>"
        await stream.cancel()


async def test_unobserved_pushes_work(world):
    pushes = push_streams.PushStreams(
        world.demand, world.routes, ScalerGate(), observer=push_streams.Unobserved()
    )
    pushes.end()
    await pushes.stream(KEY, uid="", send=anyio.sleep_forever)
    assert pushes.streams(KEY) == 0


async def test_a_stream_that_waits_for_its_service_ends_with_the_rest(world):
    async with anyio.create_task_group() as group:
        group.start_soon(
            lambda: world.server.push_streams.stream(KEY, uid="", send=anyio.sleep_forever)
        )
        await world.time.sleeping(push_streams.APPEAR_S)
        world.server.push_streams.end()
    assert world.server.push_streams.streams(KEY) == 0


async def test_a_stream_opened_before_the_caches_are_synced_waits_for_them(world):
    world.server.gate.close("starting")
    async with world.stub().StreamIsActive.open() as stream:
        await stream.send_message(reference(), end=True)
        await world.until_streams(1)
        world.serve()
        world.server.gate.open()
        world.demand.admit(KEY, limit=1)
        assert (await stream.recv_message()).result
        await stream.cancel()


async def test_all_streams_of_a_service_hear_of_it(world):
    """KEDA's new stream may be there before its old one is known to be dead."""
    world.serve()
    stub = world.stub()
    async with stub.StreamIsActive.open() as old, stub.StreamIsActive.open() as new:
        for stream in (old, new):
            await stream.send_message(reference(), end=True)
        await world.count.until(lambda: world.count.open == 2)
        world.demand.admit(KEY, limit=1)
        assert (await old.recv_message()).result
        assert (await new.recv_message()).result
        await old.cancel()
        await world.count.until(lambda: world.count.open == 1)
        assert world.server.push_streams.streams(KEY) == 1
        await new.cancel()


async def test_field_cases_49_and_58_only_true_is_pushed_and_only_polls_say_no(world):
    """A stream of three minutes on a pod that is there; then nobody."""
    world.serve()
    stub = world.stub()

    async def active() -> bool:
        return (await stub.IsActive(reference())).result

    async def listen() -> None:
        async with stub.StreamIsActive.open() as stream:
            await stream.send_message(reference(), end=True)
            heard.extend([message.result async for message in stream])

    heard: list[bool] = []
    async with anyio.create_task_group() as group:
        group.start_soon(listen)
        await world.count.until(lambda: world.count.open == 1)
        claim = world.demand.admit(KEY, limit=1)
        await world.count.until(lambda: world.count.pushes == 1)
        world.serve(ready=True)
        for _ in range(18):
            world.time.advance(10)
            assert await active()
        claim.release()
        world.time.advance(29)
        assert await active()
        world.time.advance(1)
        assert not await active()
        world.serve(ready=False)
        assert not await active()
        await world.server.stop()
    assert heard == [True]


async def test_field_case_149_after_an_outage_only_what_is_unserved_is_pushed(world):
    """A stream is greeted once; who hears again of what is served writes for nothing."""
    world.serve(ready=True)
    claim = world.demand.admit(KEY, limit=1)
    async with world.stub().StreamIsActive.open() as stream:
        await stream.send_message(reference(), end=True)
        assert (await stream.recv_message()).result
        for _ in range(3):
            world.server.gate.close("fenced")
            world.time.advance(60)
            await anyio.wait_all_tasks_blocked()
            world.server.gate.open()
            await anyio.wait_all_tasks_blocked()
        assert world.count.pushes == 1
        world.server.gate.close("fenced")
        world.serve(ready=False)
        world.server.gate.open()
        assert (await stream.recv_message()).result
        assert world.count.pushes == 2
        world.serve(ready=True)
        async with world.stub().StreamIsActive.open() as new:
            await new.send_message(reference(), end=True)
            assert (await new.recv_message()).result
            assert world.count.pushes == 3
            await new.cancel()
        claim.release()
        await stream.cancel()


async def test_field_case_149_a_greeting_that_was_not_sent_is_not_forgotten(world):
    world.serve(ready=True)
    world.demand.admit(KEY, limit=1)
    world.server.gate.close("fenced")
    async with world.stub().StreamIsActive.open() as stream:
        await stream.send_message(reference(), end=True)
        await world.until_streams(1)
        await anyio.wait_all_tasks_blocked()
        assert world.count.pushes == 0
        world.server.gate.open()
        assert (await stream.recv_message()).result
        await stream.cancel()
