"""The short way and the long one part nowhere: in random scripts, nor where they once did."""

import gc

import pytest

from hearth.proxy.wire.exchange import Exchange
from hearth.proxy.wire.plain_request import PlainRequest
from hearth.proxy.wire.request import Request
from tests.proxy.stage import CHAT, HOST, SHARED
from tests.proxy.wire.bothways import GatewayFixture, Step, differences, script

_SEEDS = 25
_ROUNDS = 4


def ask(
    c: int,
    body: str = "plain",
    *,
    host: str = SHARED,
    path: str = CHAT,
    first: bytes = b"",
    cut: str = "whole",
    late: bool = False,
) -> Step:
    return "ask", c, body, host, path, b"", first, cut, late


def answer(n: int, kind: str = "ok", cut: str = "whole", then: str = "stay") -> Step:
    return "answer", n, kind, cut, then


ONE, TWO = ("route", "one"), ("route", "two")
ONCE: dict[str, list[Step]] = {
    "the client takes no more within the write of its answer": [
        ONE, ask(0), ("slow", 0), answer(0, "medium"), ask(1), answer(0), ("later", 700),
        ("read", 0), ask(0), answer(0),
    ],
    "turns are lost to bodies that must be looked through": [
        TWO, *[step for _ in range(4) for step in (ask(0, "escaped"), answer(0))],
    ],
    "a blank line before a request": [ONE, ask(0, first=b"\r\n"), answer(0)],
    "an endpoint that fails after the head of an answer": [
        ONE, ask(0), ask(1), answer(0, cut="head"), ("break", 1), ("later", 700), ask(2),
    ],
    "a length written in an odd way": [ONE, ask(0), answer(0, "odd length")],
    "a service that goes while its backend says 503": [
        ONE, ask(0), ("route", "dropped"), answer(0, "503"),
    ],
    "a client that goes before its backend is asked for names": [
        ONE, ("rush", 0, "alias", HOST, True), ask(1), answer(0),
    ],
    "a body that comes late": [ONE, ask(0, cut="head", late=True), answer(0), ask(0), answer(0)],
    "a pod that is gone": [
        TWO, ask(0), ask(1), ask(2, "streams"), answer(2, "events", cut="in body"), ("vanish", 0),
        ("vanish", 1), ask(0), answer(0),
    ],
    "a pod that is gone before its answer is whole": [
        ONE, ask(0), answer(0, cut="head"), ("vanish", 0), ask(0), answer(0), ("vanish", 0),
    ],
    "engines that ask for a key of their own": [
        ("route", "engine"), ask(0), answer(0), ask(0), ask(1, "streams"), answer(1, "events"),
        answer(0), ("rotate",), ("later", 11), ask(0), answer(0), ask(0), answer(0), ("rotate",),
        ask(0), answer(0), ("later", 11), ask(0), ask(1), ("rotate",), ("later", 11), ask(0),
        answer(0), ask(0), answer(0),
    ],
    "a request that waited, whose response begins with its head alone": [
        ("route", "none"), ask(0), ONE, answer(0, cut="head"), ("later", 1), ask(0), answer(0),
    ],
    "a kept connection that died": [ONE, ask(0), answer(0), ("break", 0), ask(0), answer(0)],
}  # fmt: skip


@pytest.mark.parametrize("name", ONCE)
async def test_scripts_that_parted_them_once(name, caplog):
    assert not await differences(ONCE[name])
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("round_", range(_ROUNDS))
async def test_random_scripts(round_, caplog):
    for seed in range(round_ * _SEEDS, (round_ + 1) * _SEEDS):
        assert not await differences(script(seed)), seed
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_defect_ends_its_request_and_leaves_nothing(caplog):
    assert not await differences([ONE, ("hurt",), ask(0), ask(1), answer(0), ask(0), answer(0)])
    assert "a defect" in caplog.text


async def test_a_client_that_takes_no_answers_is_read_no_further():
    world, sizes = GatewayFixture(short=True), [0]
    await world.play(
        [ONE, ask(0), ("slow", 0), answer(0, "medium"), ("flood", 0), ("read", 0), answer(0)],
        lambda step, seen: sizes.extend(len(client.front.buffer) for client in world.all),
    )
    assert 20_000 < max(sizes) < 200_000
    assert len(world.calls) >= 3, "what it sent is served once it reads"


async def test_requests_leave_nothing_that_only_a_collector_would_find():
    kinds: list[list[Step]] = [
        [ask(0), answer(0)],
        [ask(0, cut="head"), answer(0, cut="head"), ("more", 0)],
        [ask(0, "escaped"), answer(0, "events")],
        [ask(0), answer(0, "other ok", cut="in body", then="close"), ("more", 0)],
        [ask(0), ("reset", 0)],
        [ask(0), answer(0, cut="head"), ("leave", 0)],
        [ask(0), ("slow", 0), answer(0, "medium"), ("read", 0)],
        [ask(0), ("break", 0), ("later", 1), ("reset", 0)],
        [ask(0, cut="head", late=True), answer(0, "503")],
        [("route", "none"), ask(0), ONE, answer(0)],
        [("route", "none"), ask(0), ("leave", 0), ONE],
        [("route", "reject"), ask(0), ONE],
        [ask(0, "other"), ask(0, "no JSON"), ("rush", 0, "alias", HOST, True)],
    ]
    world, found = GatewayFixture(short=True), []

    def look(step: Step, seen: tuple) -> None:
        if step[0] == "later" and step[1] == 0:
            kinds = (Exchange, PlainRequest, Request)
            found.append(sum(isinstance(o, kinds) for o in gc.get_objects()))

    gc.collect()
    gc.disable()
    try:
        await world.play([ONE, *[s for kind in kinds for s in (*kind * 5, ("later", 0))]], look)
    finally:
        gc.enable()
    assert found == [0] * len(kinds)
