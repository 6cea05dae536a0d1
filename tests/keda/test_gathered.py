"""What is written in one turn of the loop leaves in one piece, and before the end."""

import asyncio

import anyio
import pytest

from hearth.keda.gathered import Gathered


class Sent(asyncio.Transport):
    """The socket's side: what came, in pieces, and how it ended."""

    def __init__(self):
        super().__init__({"peername": ("127.0.0.1", 9)})
        self.pieces = []
        self.ended = ""

    def write(self, data):
        assert not self.ended
        self.pieces.append(data)

    def close(self):
        self.ended = "closed"

    def abort(self):
        self.ended = "aborted"

    def is_closing(self):
        return bool(self.ended)


@pytest.fixture
async def pair():
    sent = Sent()
    return sent, Gathered(sent)


async def test_one_turn_is_one_piece(pair):
    sent, gathered = pair
    gathered.write(b"headers ")
    gathered.write(b"message ")
    gathered.write(bytearray(b"trailers"))
    assert sent.pieces == []
    await anyio.lowlevel.checkpoint()
    gathered.write(b"next")
    await anyio.lowlevel.checkpoint()
    assert sent.pieces == [b"headers message trailers", b"next"]


async def test_a_close_sends_what_was_written(pair):
    sent, gathered = pair
    gathered.write(b"bye")
    gathered.close()
    assert (sent.pieces, sent.ended, gathered.is_closing()) == ([b"bye"], "closed", True)
    await anyio.lowlevel.checkpoint()
    assert sent.pieces == [b"bye"]


async def test_an_abort_does_not(pair):
    sent, gathered = pair
    gathered.write(b"bye")
    gathered.abort()
    await anyio.lowlevel.checkpoint()
    assert (sent.pieces, sent.ended) == ([], "aborted")


async def test_nothing_is_written_to_a_peer_that_left(pair):
    sent, gathered = pair
    gathered.write(b"late")
    sent.close()
    await anyio.lowlevel.checkpoint()
    assert sent.pieces == []


async def test_it_tells_who_the_peer_is(pair):
    _, gathered = pair
    assert gathered.get_extra_info("peername") == ("127.0.0.1", 9)
    assert gathered.get_extra_info("ssl_object") is None
