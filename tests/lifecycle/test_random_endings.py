"""Two hundred requests that end in every way there is: nothing is left of any of them."""

import os
import random
import re
from pathlib import Path

import aiohttp
import anyio

from tests import hanging
from tests.lifecycle import harness
from tests.lifecycle.harness import cold_start, runtime, service

SEED = 20260713
REQUESTS = 200
AT_A_TIME = 25
SERVICES = ("steady", "narrow", "hasty", "sleepy", "impatient")


async def test_nothing_is_left_of_two_hundred_requests(tmp_path):
    chance = random.Random(SEED)
    endings = [ENDINGS[i % len(ENDINGS)] for i in range(REQUESTS)]
    chance.shuffle(endings)
    slow = {"hearth.dev/response-timeout": "500ms", "hearth.dev/idle-timeout": "500ms"}
    documents = (
        runtime("stub"),
        runtime("loading", "--load-time=1s"),
        service("steady", annotations=slow),
        service("narrow", annotations=slow | {"hearth.dev/max-in-flight": "2"}, max=2),
        service("hasty", annotations=slow, endpoint=cold_start(maxQueue=4)),
        service("sleepy", runtime="loading", annotations=slow),
    )
    impatient = service("impatient", annotations=slow, endpoint=cold_start("reject"))
    async with harness.running(tmp_path, *documents, impatient) as hearth:
        await hearth.queue()  # the connection it is asked on later
        before = sockets(hearth.process.pid)
        limit = anyio.Semaphore(AT_A_TIME)
        ended: list[str] = []

        async def one(ending, name, seed):
            async with limit, aiohttp.ClientSession() as session:
                ended.append(await ending(hearth, session, name, random.Random(seed)))

        async with anyio.create_task_group() as tasks:
            for i, ending in enumerate(endings):
                tasks.start_soon(one, ending, SERVICES[i % len(SERVICES)], i)

        assert len(ended) == REQUESTS and len(set(ended)) > 5, sorted(set(ended))
        await hearth.all_until(
            lambda rows: (
                not any(row["pending"] or row["held"] or row["inFlight"] for row in rows.values())
            )
        )
        # Whoever was told when to come finds it there, for a minute: too long to wait for here.
        hearth.write("models.yaml", *documents)
        await hearth.all_until(lambda rows: not any(row["demand"] for row in rows.values()))
        await hearth.asleep()
        assert hearth.engines() == []
        # Each look is a request: Hearth has run in between, and closed what it was to close.
        with hanging.guard():
            while sockets(hearth.process.pid) > before:
                await hearth.queue()
        assert peers(hearth.process.pid) == []
        assert await hearth.answer("steady") == "one two three"


# Every ending says in a word how it ended.


async def whole(hearth, session, name, chance):
    return await told(session.post(url(hearth), json=body(name, stream=False)))


async def stream(hearth, session, name, chance):
    return await told(session.post(url(hearth), json=body(name)))


async def gone_while_it_waits(hearth, session, name, chance):
    """Held, or while the engine thinks: the client hangs up after no time at all, or some."""
    with anyio.move_on_after(chance.choice((0, 0.001, 0.01, 0.1))):
        return await told(session.post(url(hearth), json=body(name, first_token="300ms")))
    return "hung up waiting"


async def gone_before_the_head(hearth, session, name, chance):
    asked = body(name, stream=False, first_token="300ms")
    with anyio.move_on_after(chance.choice((0.01, 0.05, 0.2))):
        return await told(session.post(url(hearth), json=asked))
    return "hung up before the head"


async def gone_in_mid_stream(hearth, session, name, chance):
    asked = body(name, text="word " * 50, token_interval="10ms")
    async with session.post(url(hearth), json=asked) as response:
        async for line in response.content:
            if b'"content":"' in line and chance.random() < 0.2:
                response.close()
                return "hung up in mid-stream"
        return f"{response.status}"


async def broken(hearth, session, name, chance):
    fault = chance.choice(("reset", "close", "reset:2", "close:2", "end:2", "bare-error:1"))
    asked = body(name, stream=chance.random() < 0.7, fault=fault)
    return await told(session.post(url(hearth), json=asked))


async def crashed(hearth, session, name, chance):
    # One engine alone, so that the others' back-off does not grow with each.
    fault = chance.choice(("crash", "crash:1"))
    return await told(session.post(url(hearth), json=body("narrow", fault=fault)))


async def hung(hearth, session, name, chance):
    fault = chance.choice(("hang", "hang:1"))
    asked = body(name, stream=chance.random() < 0.7, fault=fault)
    return await told(session.post(url(hearth), json=asked))


async def refused(hearth, session, name, chance):
    asked = body(name, fault=f"status:{chance.choice((400, 429, 500, 503))}")
    return await told(session.post(url(hearth), json=asked))


async def nonsense(hearth, session, name, chance):
    bad = chance.choice((b"", b"{", b"[]", b'{"model": 7}', b'{"model": "nobody"}', b"\xff\xfe"))
    return await told(session.post(url(hearth), data=bad))


async def half_a_body(hearth, session, name, chance):
    host, port = re.match(r"http://(.+):(\d+)", hearth.gateway).groups()
    connection = await anyio.connect_tcp(host, int(port))
    await connection.send(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"
    )
    await connection.aclose()
    return "half a body"


ENDINGS = (
    whole, stream, gone_while_it_waits, gone_before_the_head, gone_in_mid_stream, broken, broken,
    hung, refused, nonsense, half_a_body, whole, stream, gone_while_it_waits, gone_in_mid_stream,
    whole, stream, broken, gone_before_the_head, crashed,
)  # fmt: skip


def url(hearth):
    return f"{hearth.gateway}/v1/chat/completions"


def body(name, *, stream=True, **stub):
    asked = {"model": name, "stream": stream, "messages": [{"role": "user", "content": "hi"}]}
    return asked | ({"stub": stub} if stub else {})


async def told(asked):
    """How an answer ended: its status, the code of its error, or that it broke off."""
    try:
        async with asked as response:
            raw = await response.read()
    except aiohttp.ClientError:
        return "broke off"
    if response.content_type != "text/event-stream":
        return str(response.status)
    if raw.endswith(harness.DONE):
        return "done"
    errors = [event["error"]["code"] for event in harness.events(raw) if "error" in event]
    assert len(errors) == 1, raw
    return errors[0]


def sockets(pid):
    """How many sockets a process has."""
    return len(inodes(pid))


def inodes(pid):
    links = []
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.append(os.readlink(fd))
        except OSError:
            continue  # closed meanwhile
    return {link[8:-1] for link in links if link.startswith("socket:")}


def peers(pid):
    """The addresses of pods that a process has connections to."""
    own = inodes(pid)
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    # Addresses are written backwards: 127.77.x.y ends with 4D7F.
    return [row[2] for row in rows if row[9] in own and row[2].split(":")[0].endswith("4D7F")]
