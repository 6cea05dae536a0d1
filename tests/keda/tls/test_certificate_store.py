"""Server names and their Secrets: read at once, read again, never forgotten by an outage."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel
import pytest

from hearth.api.meta import ServiceKey
from hearth.cluster.interface import Forbidden, Unavailable
from hearth.keda.tls import certificate_store
from hearth.keda.tls.certificate_store import CertificateStore, Identity
from hearth.routes import Route, RouteTable
from tests.keda.pki import Pki
from tests.virtualtime import VirtualTime

KEY, OTHER = ServiceKey("ai", "chat"), ServiceKey("ai", "other")
HOST = "chat-scaler.ai.svc"
GOOD_S, BAD_S, AWAY_S = 60.0, 10.0, 5.0


@dataclass
class CertificateStoreFixture:
    """A cluster that holds Secrets, the route table, and what came of both."""

    secrets: dict[str, dict[str, bytes] | Exception] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)
    told: list[ServiceKey] = field(default_factory=list)
    time: VirtualTime = field(default_factory=VirtualTime)
    unix_s: float | None = None
    share: float = 0.0
    routes: RouteTable = field(default_factory=RouteTable)

    def __post_init__(self) -> None:
        self.certificates = CertificateStore(
            self.routes,
            self._read,
            sleep=self.time.sleep,
            share=lambda: self.share,
            **({"wall": lambda: self.unix_s} if self.unix_s is not None else {}),
        )
        self.certificates.listen(self.told.append)

    async def _read(self, namespace: str, name: str) -> dict[str, bytes] | None:
        self.reads.append(f"{namespace}/{name}")
        found = self.secrets.get(name)
        if isinstance(found, Exception):
            raise found
        return found

    def serve(self, secret: str | None = "tls", *, key: ServiceKey = KEY) -> None:
        self.routes.put(Route(key=key, uid="u", created=0, phase="Ready", scaler_tls=secret))

    async def served(self, pause_s: float = GOOD_S) -> Identity | None:
        """Once the Secret has been read."""
        await self.time.sleeping(pause_s)
        return self.certificates.find(HOST)

    async def again(self, pause_s: float, then_s: float = GOOD_S) -> Identity | None:
        """After the next reading."""
        self.reads.clear()
        self.time.advance(pause_s)
        found = await self.served(then_s)
        assert self.reads == ["ai/tls"]
        return found

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.certificates.run)
            await anyio.lowlevel.checkpoint()
            yield
            tasks.cancel_scope.cancel()


def problem(world: CertificateStoreFixture) -> str | None:
    return world.certificates.problem(KEY)


async def test_a_service_that_is_there_and_one_that_comes(pki: Pki):
    world = CertificateStoreFixture(
        {"tls": pki.secret(), "more": pki.secret(pki.server("other-scaler.ai.svc"))}
    )
    world.serve()
    async with world.running():
        await world.certificates.settled()
        found = world.certificates.find("Chat-scaler.AI.svc")
        assert found is not None and found.service == KEY
        assert problem(world) is None and world.told == [KEY]
        world.serve("more", key=OTHER)
        await world.certificates.settled()
        other = world.certificates.find("other-scaler.ai.svc")
        assert other is not None and other.service == OTHER
        assert world.reads == ["ai/tls", "ai/more"]
        assert repr(world.certificates) == "<CertificateStore ai/chat=good ai/other=good>"


@pytest.mark.parametrize("name", ["", "chat.ai.svc", "chat-scaler.ai", "plain-scaler.ai.svc"])
async def test_a_name_that_stands_for_nobody(pki: Pki, name: str):
    world = CertificateStoreFixture({"tls": pki.secret()})
    async with world.running():
        world.serve()
        world.serve(None, key=ServiceKey("ai", "plain"))
        assert await world.served() is not None
        assert world.certificates.find(name) is None
        assert world.certificates.problem(ServiceKey("ai", "plain")) is None


async def test_nothing_is_read_for_services_without_tls():
    world = CertificateStoreFixture()
    async with world.running():
        world.serve(None)
        await world.certificates.settled()
        assert world.reads == []
        assert repr(world.certificates) == "<CertificateStore none>"


async def test_what_else_changes_of_a_service_reads_nothing(pki: Pki):
    world = CertificateStoreFixture({"tls": pki.secret()})
    async with world.running():
        world.serve()
        assert await world.served() is not None
        world.routes.put(Route(key=KEY, uid="u", created=0, phase="Pending", scaler_tls="tls"))
        await anyio.wait_all_tasks_blocked()
        assert world.reads == ["ai/tls"] and world.told == [KEY]


async def test_a_renewed_certificate_is_taken_and_its_clients_stay(pki: Pki):
    world = CertificateStoreFixture({"tls": pki.secret()})
    async with world.running():
        world.serve()
        old = await world.served()
        assert await world.again(GOOD_S) is old
        assert world.told == [KEY]
        world.secrets["tls"] = pki.secret(pki.server(by="another-ca"))
        new = await world.again(GOOD_S)
        assert new is not None and new is not old
        assert world.certificates.trusts(old) and world.certificates.trusts(new)
        assert world.told == [KEY, KEY]


async def test_clients_of_a_ca_stay_while_it_is_one_of_those_that_are_trusted(pki: Pki):
    world = CertificateStoreFixture({"tls": pki.secret()})
    async with world.running():
        world.serve()
        old = await world.served()
        both = pki.secret()["ca.crt"] + pki.secret(clients="new-ca")["ca.crt"]
        world.secrets["tls"] = {**pki.secret(), "ca.crt": both}
        between = await world.again(GOOD_S)
        assert world.certificates.trusts(old) and world.certificates.trusts(between)
        world.secrets["tls"] = pki.secret(clients="new-ca")
        new = await world.again(GOOD_S)
        trusted = [world.certificates.trusts(one) for one in (old, between, new)]
        assert trusted == [False, False, True]


async def test_a_secret_that_is_missing_heals_by_itself(pki: Pki):
    world = CertificateStoreFixture()
    async with world.running():
        world.serve()
        assert await world.served(BAD_S) is None
        assert problem(world) == "Secret tls does not exist"
        assert await world.again(BAD_S, BAD_S) is None
        assert world.told == [KEY]
        world.secrets["tls"] = pki.secret()
        assert await world.again(BAD_S) is not None
        assert problem(world) is None and world.told == [KEY, KEY]


async def test_a_secret_that_breaks_closes_the_name_and_keeps_who_is_in(pki: Pki):
    world = CertificateStoreFixture({"tls": pki.secret()})
    async with world.running():
        world.serve()
        old = await world.served()
        world.secrets["tls"] = {**pki.secret(), "tls.key": b""}
        for _ in range(2):
            assert await world.again(GOOD_S, BAD_S) is None
            assert problem(world) == "Secret tls: has no tls.key"
            assert world.certificates.trusts(old)
        world.secrets["tls"] = {**pki.secret(), "ca.crt": b""}
        assert await world.again(BAD_S, BAD_S) is None
        assert not world.certificates.trusts(old)
        world.secrets["tls"] = pki.secret()
        assert await world.again(BAD_S) is not None
        assert world.certificates.trusts(old)


async def test_a_secret_that_goes_takes_who_is_in_along(pki: Pki):
    world = CertificateStoreFixture({"tls": pki.secret()})
    async with world.running():
        world.serve()
        old = await world.served()
        del world.secrets["tls"]
        assert await world.again(GOOD_S, BAD_S) is None
        assert not world.certificates.trusts(old)


async def test_a_certificate_for_another_name(pki: Pki):
    world = CertificateStoreFixture({"tls": pki.secret(pki.server("other-scaler.ai.svc"))})
    async with world.running():
        world.serve()
        assert await world.served(BAD_S) is None
        assert "valid only for other-scaler.ai.svc, not for chat-scaler.ai.svc" in problem(world)


async def test_a_certificate_that_expires_unchanged(pki: Pki):
    world = CertificateStoreFixture({"tls": pki.secret()})
    async with world.running():
        world.serve()
        old = await world.served()
        later = CertificateStoreFixture({"tls": pki.secret()}, unix_s=old.certificate.not_after_s)
    async with later.running():
        later.serve()
        assert await later.served() is not None
        later.unix_s += 1
        assert await later.again(GOOD_S, BAD_S) is None
        assert problem(later).startswith("Secret tls: tls.crt expired on ")
        later.unix_s -= 1
        assert await later.again(BAD_S) is not None


@pytest.mark.parametrize(
    "error", [Unavailable(), Forbidden("secrets is forbidden"), TimeoutError()]
)
async def test_while_the_cluster_is_away_the_last_good_stays(pki: Pki, error: Exception):
    world = CertificateStoreFixture({"tls": pki.secret()})
    world.serve()
    async with world.running():
        good = await world.served()
        world.secrets["tls"] = error
        for pause_s in (GOOD_S, AWAY_S, AWAY_S):
            assert await world.again(pause_s, AWAY_S) is good
        assert problem(world) is None and world.certificates.trusts(good)
        world.secrets["tls"] = pki.secret()
        assert await world.again(AWAY_S) is good


async def test_a_cluster_that_never_answered(pki: Pki):
    world = CertificateStoreFixture({"tls": Forbidden("secrets is forbidden")})
    async with world.running():
        world.serve()
        await world.certificates.settled()
        assert await world.served(AWAY_S) is None
        assert problem(world) == "Secret tls: secrets is forbidden"
        world.secrets["tls"] = Unavailable()
        assert await world.again(AWAY_S, AWAY_S) is None
        assert world.told == [KEY]
        world.secrets["tls"] = pki.secret()
        assert await world.again(AWAY_S) is not None
        assert problem(world) is None


async def test_a_read_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(certificate_store, "READ_LIMIT_S", 0.01)
    routes, time = RouteTable(), VirtualTime()

    async def hang(namespace: str, name: str) -> None:
        await anyio.sleep_forever()

    stuck = CertificateStore(routes, hang, sleep=time.sleep, share=lambda: 0.0)
    routes.put(Route(key=KEY, uid="u", created=0, phase="Ready", scaler_tls="tls"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stuck.run)
        await time.sleeping(AWAY_S)
        assert stuck.problem(KEY) == "Secret tls: the cluster does not answer"
        tasks.cancel_scope.cancel()


async def test_another_secret_is_read_at_once_and_the_old_one_serves_until_then(pki: Pki):
    world = CertificateStoreFixture({"old": pki.secret(), "tls": Unavailable()})
    async with world.running():
        world.serve("old")
        old = await world.served()
        world.serve("tls")
        assert await world.served(AWAY_S) is old
        assert world.certificates.trusts(old)
        world.secrets["tls"] = pki.secret(clients="new-ca")
        new = await world.again(AWAY_S)
        assert new is not None and not world.certificates.trusts(old)


@pytest.mark.parametrize("how", ["field", "service"])
async def test_without_tls_the_name_is_gone_in_the_same_tick(pki: Pki, how: str):
    world = CertificateStoreFixture({"tls": pki.secret()})
    async with world.running():
        world.serve()
        old = await world.served()
        world.told.clear()
        if how == "field":
            world.serve(None)
        else:
            world.routes.drop(KEY)
        assert world.certificates.find(HOST) is None
        assert not world.certificates.trusts(old)
        assert world.told == [KEY]
        world.reads.clear()
        world.time.advance(1000)
        await anyio.wait_all_tasks_blocked()
        assert world.reads == []


async def test_readings_are_spread(pki: Pki):
    world = CertificateStoreFixture({"tls": pki.secret()}, share=0.5)
    async with world.running():
        world.serve()
        await world.time.sleeping(GOOD_S * 0.9)


async def test_when_it_ends_the_table_is_free_of_it(pki: Pki):
    world = CertificateStoreFixture({"tls": pki.secret()})
    async with world.running():
        world.serve()
        await world.served()
    world.serve(None)
    assert world.certificates.find(HOST) is not None
