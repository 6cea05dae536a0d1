"""What is known of the Secrets with API keys, and who is told when it changes."""

import anyio
import pytest

from hearth.api.meta import ServiceKey
from hearth.cluster.interface import Forbidden, Unavailable
from hearth.reconcile.key_secrets import FRESH_S, REQUEUE_AFTER_S, KeySecrets
from tests.reconcile.builders import service

CHAT, CODE = ServiceKey("ai", "chat"), ServiceKey("ai", "code")


class Secrets:
    def __init__(self, clock):
        self.data = {}
        self.error = None
        self.reads = 0
        self.told = []
        self.clock = clock
        self.keys = KeySecrets(self.read, changed=self.told.append, clock=clock)

    async def read(self, namespace, name):
        self.reads += 1
        if self.error:
            raise self.error
        return self.data.get(name)


@pytest.fixture
def secrets(clock):
    return Secrets(clock)


def guarded(name="chat", secret="s", key="token"):
    reference = {"secretRef": {"name": secret, "key": key}}
    return service({"endpoint": {"authentication": reference}}, name=name)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "there is no Secret s; create it with the API key under 'token'"),
        ({}, "Secret s has no value under 'token'"),
        ({"other": b"x"}, "Secret s has no value under 'token'"),
        ({"token": b""}, "Secret s has no value under 'token'"),
        ({"token": b" \n"}, "Secret s has no value under 'token', or a blank one"),
        ({"token": b"x"}, None),
    ],
)
async def test_field_case_145_what_cannot_be_used_is_told(secrets, data, words):
    if data is not None:
        secrets.data["s"] = data
    assert secrets.keys.problem(guarded()) is None  # nobody has looked
    await secrets.keys.check(guarded())
    said = secrets.keys.problem(guarded())
    assert said is None if words is None else words in said
    assert secrets.keys.requeue_after_s(guarded()) == (None if words is None else REQUEUE_AFTER_S)
    assert secrets.told == []  # whoever looks knows


async def test_field_case_145_it_is_read_so_often_and_no_more(secrets, clock):
    await secrets.keys.check(guarded())
    await secrets.keys.check(guarded())
    assert secrets.reads == 1
    clock.now += REQUEUE_AFTER_S
    secrets.data["s"] = {"token": b"x"}
    await secrets.keys.check(guarded())
    assert secrets.reads == 2 and secrets.keys.problem(guarded()) is None
    clock.now += REQUEUE_AFTER_S
    await secrets.keys.check(guarded())
    assert secrets.reads == 2
    clock.now += FRESH_S
    await secrets.keys.check(guarded())
    assert secrets.reads == 3


async def test_field_case_145_what_a_request_finds_out_is_told_to_each_service(secrets):
    secrets.data["s"] = {"token": b"x"}
    await secrets.keys.check(guarded())
    await secrets.keys.check(guarded("code"))
    assert await secrets.keys.read("ai", "s") == {"token": b"x"}
    assert secrets.told == []
    del secrets.data["s"]
    assert await secrets.keys.read("ai", "s") is None
    assert sorted(secrets.told) == [CHAT, CODE]
    assert secrets.keys.problem(guarded()) and secrets.keys.problem(guarded("code"))


async def test_a_changed_secret_requeues_the_other_services(secrets, clock):
    for name in ("chat", "code"):
        await secrets.keys.check(guarded(name))
    clock.now += REQUEUE_AFTER_S
    secrets.data["s"] = {"token": b"x"}
    await secrets.keys.check(guarded("code"))
    assert secrets.told == [CHAT]


async def test_a_secret_that_cannot_be_read_keeps_its_last_state(secrets, clock):
    await secrets.keys.check(guarded())
    clock.now += REQUEUE_AFTER_S
    secrets.error = Unavailable()
    await secrets.keys.check(guarded())
    assert "there is no Secret" in secrets.keys.problem(guarded())
    with pytest.raises(Unavailable):
        await secrets.keys.read("ai", "s")


async def test_a_forbidden_secret_is_a_problem(secrets):
    secrets.error = Forbidden("no get on secrets")
    await secrets.keys.check(guarded())
    assert "may not be read (no get on secrets)" in secrets.keys.problem(guarded())


async def test_reading_a_secret_times_out(secrets):
    async def silent(namespace, name):
        await anyio.sleep_forever()

    secrets.keys = KeySecrets(silent, changed=secrets.told.append, read_limit_s=0.0)
    await secrets.keys.check(guarded())
    assert secrets.keys.problem(guarded()) is None


async def test_another_secret_another_key_none_at_all(secrets):
    secrets.data["s"] = {"token": b"x"}
    await secrets.keys.check(guarded())
    await secrets.keys.check(guarded(secret="t"))
    assert "no Secret t" in secrets.keys.problem(guarded(secret="t"))
    assert secrets.keys.problem(guarded(secret="s")) is None  # nobody's any more: not known
    await secrets.keys.check(service())
    assert secrets.keys.problem(service()) is None
    secrets.keys.remove(CHAT)
    assert await secrets.keys.read("ai", "t") is None and secrets.told == []
