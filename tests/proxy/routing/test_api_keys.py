"""API keys out of Secrets: how old one may be."""

import anyio
import anyio.lowlevel
import pytest

from hearth.cluster.interface import Unavailable
from hearth.proxy.errors import ErrorCode, GatewayError
from hearth.proxy.routing.api_keys import MAX_WAITING, MAX_WAITING_BY_SECRET, ApiKeys


class Cluster:
    """One Secret, a clock, and how often it was read."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.data: dict[str, bytes] | None = {"key": b"old"}
        self.away = False
        self.reads = 0
        self.gate: anyio.Event | None = None
        self.keys = ApiKeys(self.read, clock=lambda: self.now, sleep=self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def read(self, namespace: str, name: str):
        assert (namespace, name[:6]) == ("ai", "secret")
        self.reads += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.away:
            raise Unavailable()
        return self.data

    async def check(self, offered: str, **options) -> bool:
        return await self.keys.check("ai", "secret", "key", offered, **options)

    async def unavailable(self, offered: str = "old") -> bool:
        try:
            await self.check(offered)
        except GatewayError as problem:
            return problem.code is ErrorCode.AUTHENTICATION_UNAVAILABLE
        return False


async def test_a_value_is_used_for_ten_seconds():
    c = Cluster()
    assert await c.check("old")
    c.now += 9.9
    assert await c.check("old")
    assert c.reads == 1
    c.now += 0.2
    assert await c.check("old")
    assert c.reads == 2


async def test_a_rotated_key_is_taken_at_once_and_the_old_one_refused_after_ten_seconds():
    c = Cluster()
    assert await c.check("old")
    c.data = {"key": b"new"}
    c.now += 5
    assert await c.check("old")
    assert await c.check("new")
    assert not await c.check("old")


@pytest.mark.parametrize("after_s", [0.0, 0.4, 1.0])
async def test_a_key_that_was_just_written_waits_for_the_next_read(after_s: float):
    c = Cluster()
    assert await c.check("old")
    c.data = {"key": b"new"}
    c.now += after_s
    assert await c.check("new")
    assert (c.reads, c.now) == (2, 1001.0)


async def test_a_read_that_began_before_a_key_came_tells_nothing_of_it():
    c = Cluster()
    assert await c.check("old")
    c.now += 2
    c.gate = anyio.Event()
    found: dict[str, bool] = {}

    async def ask(offered: str) -> None:
        found[offered] = await c.check(offered)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, "wrong")
        await anyio.wait_all_tasks_blocked()
        c.now += 0.1
        tasks.start_soon(ask, "new")
        await anyio.wait_all_tasks_blocked()
        gate, c.gate = c.gate, None
        gate.set()
        c.data = {"key": b"old"}
        await anyio.lowlevel.checkpoint()
        c.data = {"key": b"new"}
    assert found == {"wrong": False, "new": True}
    assert c.reads == 3


async def test_a_flood_of_wrong_keys_waits_for_one_read_and_piles_up_nowhere():
    c = Cluster()
    assert await c.check("old")
    woken = anyio.Event()
    answered: list[bool] = []

    async def sleep(seconds: float) -> None:
        await woken.wait()
        c.now = max(c.now, 1000.0 + seconds)

    c.keys._sleep = sleep

    async def ask(offered: str) -> None:
        answered.append(await c.check(offered))

    async with anyio.create_task_group() as tasks:
        for number in range(1000):
            tasks.start_soon(ask, f"wrong-{number}")
        await anyio.wait_all_tasks_blocked()
        assert (len(answered), c.reads) == (1000 - MAX_WAITING_BY_SECRET, 1)
        assert await c.check("old")  # who has the key notices nothing
        woken.set()
    assert answered == [False] * 1000
    assert c.reads == 2
    # The places are free again.
    c.data = {"key": b"new"}
    c.keys._sleep = c.sleep
    assert await c.check("new")


async def test_a_flood_over_many_secrets_piles_up_nowhere_either():
    c = Cluster()
    answered: list[bool] = []

    async def for_ever(seconds: float) -> None:
        await anyio.sleep_forever()

    c.keys._sleep = for_ever

    async def ask(secret: str) -> None:
        answered.append(await c.keys.check("ai", secret, "key", "wrong"))

    async with anyio.create_task_group() as tasks:
        for number in range(50):
            secret = f"secret-{number}"
            assert await c.keys.check("ai", secret, "key", "old")
            for _ in range(MAX_WAITING_BY_SECRET):
                tasks.start_soon(ask, secret)
        await anyio.wait_all_tasks_blocked()
        assert len(answered) == 50 * MAX_WAITING_BY_SECRET - MAX_WAITING
        tasks.cancel_scope.cancel()


async def test_to_leave_while_a_read_is_under_way_forces_no_more_of_them():
    c = Cluster()
    assert await c.check("old")
    c.now += 5
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await c.sleep(seconds)

    c.keys._sleep = sleep
    for _ in range(3):
        c.gate = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(c.check, "wrong")
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    assert (c.reads, slept) == (4, [1.0, 1.0])


async def test_who_waits_for_a_read_and_leaves_gives_its_place_back():
    c = Cluster()
    assert await c.check("old")

    async def for_ever(seconds: float) -> None:
        await anyio.sleep_forever()

    c.keys._sleep = for_ever
    async with anyio.create_task_group() as tasks:
        for _ in range(MAX_WAITING_BY_SECRET):
            tasks.start_soon(c.check, "wrong")
        await anyio.wait_all_tasks_blocked()
        assert not await c.check("one too many")
        tasks.cancel_scope.cancel()
    c.data = {"key": b"new"}
    c.keys._sleep = c.sleep
    assert await c.check("new")


async def test_the_old_key_ends_without_the_new_one_being_seen():
    c = Cluster()
    assert await c.check("old")
    c.data = {"key": b"new"}
    c.now += 10
    assert not await c.check("old")


async def test_wrong_keys_force_one_read_a_second():
    c = Cluster()
    assert await c.check("old")
    for _ in range(50):
        assert not await c.check("wrong")
    assert c.reads == 1 + 50 == 1 + c.now - 1000


async def test_a_listing_forces_nothing():
    c = Cluster()
    assert await c.check("old")
    c.now += 2
    assert not await c.check("wrong", force=False)
    assert c.reads == 1


@pytest.mark.parametrize("data", [None, {}, {"other": b"old"}, {"key": b""}, {"key": b" \n"}])
async def test_a_missing_or_empty_key_closes_the_service(data):
    c = Cluster()
    c.data = data
    assert await c.unavailable()


async def test_deleting_the_secret_closes_the_service():
    c = Cluster()
    assert await c.check("old")
    c.data = None
    c.now += 10
    assert await c.unavailable()


async def test_a_newline_at_the_end_is_no_part_of_the_key():
    c = Cluster()
    c.data = {"key": b"old\n"}
    assert await c.check("old")


async def test_the_last_value_stays_good_for_ten_minutes_while_the_cluster_is_away():
    c = Cluster()
    assert await c.check("old")
    c.away = True
    c.now += 598
    assert await c.check("old")
    assert not await c.check("wrong")  # a second later
    c.now += 1
    assert await c.unavailable()
    c.away = False
    c.now += 10
    assert await c.check("old")


async def test_a_cluster_that_is_away_is_not_asked_by_everybody():
    c = Cluster()
    c.away = True
    for _ in range(20):
        assert await c.unavailable()
    assert c.reads == 20 == 1 + c.now - 1000  # one a second


async def test_a_cluster_that_was_never_there():
    c = Cluster()
    c.away = True
    assert await c.unavailable()


async def test_one_read_in_flight_for_all_who_wait():
    c = Cluster()
    c.gate = anyio.Event()
    found = []

    async def ask() -> None:
        found.append(await c.check("old"))

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        c.gate.set()
    assert found == [True] * 10
    assert c.reads == 1


async def test_who_waits_takes_over_from_a_reader_that_is_cancelled():
    c = Cluster()
    c.gate = anyio.Event()
    found = []

    async def ask() -> None:
        found.append(await c.check("old"))

    first = anyio.CancelScope()

    async def reader() -> None:
        with first:
            await c.check("old")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reader)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        first.cancel()
        await anyio.wait_all_tasks_blocked()
        c.gate.set()
    assert found == [True]
    assert c.reads == 2


async def test_bytes_that_are_not_utf8_are_compared_as_bytes():
    c = Cluster()
    c.data = {"key": b"\xff\xfe"}
    assert await c.check(b"\xff\xfe".decode("utf-8", "surrogateescape"))
