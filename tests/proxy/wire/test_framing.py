"""Where bodies end, byte by byte."""

import random

import pytest

from hearth.proxy.errors import Dialect
from hearth.proxy.wire.framing import (
    LAST_CHUNK,
    ChunkedBody,
    CloseDelimitedBody,
    FramingError,
    LengthBody,
    chunk,
)
from hearth.proxy.wire.stream_end import StreamEnd

CONTENT = (b"x" * 200, b"hello", b"a", b"data: [DONE]\n\n", b"y" * 70_000)
WIRE = (
    b"".join(map(chunk, CONTENT[:3]))
    + b'E;name=value;other="quoted"\r\n'
    + CONTENT[3]
    + b"\r\n"
    + chunk(CONTENT[4])
    + b"0\r\nX-Trailer: y\r\nX-Other:\r\n\r\n"
)
TEXT = b"".join(CONTENT)


def cut(data: bytes, seed: int):
    """Pieces of random sizes, many of one byte."""
    rng = random.Random(seed)
    while data:
        size = rng.choice((1, 1, 2, 3, 50, 300, 5000))
        yield data[:size]
        data = data[size:]


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("decode", [False, True])
def test_a_chunked_body_passes_however_it_is_cut(seed, decode):
    body, passed, rest = ChunkedBody(decode=decode), b"", b""
    for piece in cut(WIRE + b"NEXT", seed):
        if body.ended:
            rest += piece
        else:
            passed += body.feed(piece)
            assert body.tail == b"" or TEXT.find(body.tail) >= 0
    assert body.ended
    assert body.rest + rest == b"NEXT"
    assert body.tail == TEXT[-64:]
    assert passed + (b"" if decode else body.terminator) == (TEXT if decode else WIRE)


@pytest.mark.parametrize("at", range(len(WIRE[:260])))
def test_wherever_it_breaks_off_words_of_ours_can_follow(at):
    """The size of the next chunk is kept back, an open chunk is filled: all is well-formed."""
    body = ChunkedBody()
    passed = body.feed(WIRE[:at])
    whole = ChunkedBody(decode=True)
    text = whole.feed(passed + body.complete_with(b"data: bye\n\n") + LAST_CHUNK)
    assert whole.ended
    assert text.endswith(b"data: bye\n\n")
    said = text.removesuffix(b"data: bye\n\n")
    assert TEXT.startswith(said.rstrip(b" \n").removesuffix(b":"))


@pytest.mark.parametrize("left", range(1, 40))
@pytest.mark.parametrize("text", [b"", b"data: 12345678\n\n"])
def test_an_open_chunk_of_any_size_can_be_filled(left, text):
    body = ChunkedBody()
    passed = body.feed(b"%x\r\n" % (left + 1) + b"z")
    whole = ChunkedBody(decode=True)
    content = whole.feed(passed + body.complete_with(text) + LAST_CHUNK)
    assert whole.ended
    assert content.startswith(b"z") and content.endswith(text)


def test_a_chunk_too_large_to_be_filled_is_not():
    body = ChunkedBody()
    body.feed(b"fffffff\r\nx")
    with pytest.raises(FramingError):
        body.complete_with(b"")


@pytest.mark.parametrize(
    "wire",
    [
        b"2 \r\n{}\r\n",
        b" 2\r\n{}\r\n",
        b"+2\r\n{}\r\n",
        b"-2\r\n{}\r\n",
        b"0x2\r\n{}\r\n",
        b"2_0\r\n",
        b"2\n{}\r\n",
        b"2\r\n{}\n",
        b"2\r\n{}x\r\n",
        b"2\r\n{}\rx",
        b"2;a\nb\r\n{}\r\n",
        b"2;\x00\r\n{}\r\n",
        b"\r\n",
        b"g\r\n",
        b"1" * 16 + b"\r\n",
        b"2;" + b"a" * 3000 + b"\r\n",
        b"0\r\nbad trailer\r\n\r\n",
        b"0\r\n: x\r\n\r\n",
        b"0\r\nX: a\nb\r\n\r\n",
        b"0\r\nX\r\n",
        b"0\r\nX: " + b"y" * 20_000,
        b"0\r\n\rx",
    ],
)
def test_what_is_no_chunk_is_refused(wire):
    whole, by_bytes = ChunkedBody(), ChunkedBody()
    with pytest.raises(FramingError):
        whole.feed(wire)
    with pytest.raises(FramingError):
        for at in range(len(wire)):
            by_bytes.feed(wire[at : at + 1])


def test_a_chunk_that_comes_alone_is_known_by_its_length():
    for size in (*range(1, 300), 4000, 4085, 4086, 4087, 4088, 4089, 5000):
        wire = b"%x\r\n" % size + b"x" * size + b"\r\n"
        body = ChunkedBody()
        assert body.is_single_chunk(wire) is (size >= 64 and len(wire) < 4096), size
        assert body.feed(wire) == wire
        assert body.tail == b"x" * min(size, 64)


@pytest.mark.parametrize(
    "wire",
    [
        b"40\r\n" + b"x" * 63 + b"\r\n",
        b"40\r\n" + b"x" * 66,
        b"40\r\n" + b"x" * 65 + b"\r\n",
        b"040\r\n" + b"x" * 64 + b"\r\n",
        b"40;a=b\r\n" + b"x" * 64 + b"\r\n",
        b"20\r\n" + b"x" * 32 + b"\r\n20\r\n" + b"x" * 32 + b"\r\n",
    ],
)
def test_what_is_not_one_plain_chunk_is_walked(wire):
    assert not ChunkedBody().is_single_chunk(wire)


def test_a_body_of_known_length():
    body = LengthBody(5)
    assert (body.feed(b"hel"), body.ended) == (b"hel", False)
    assert (body.feed(b"loNEXT"), body.ended, body.rest) == (b"lo", True, b"NEXT")
    assert body.tail == b"hello"
    assert LengthBody(0).ended


def test_a_body_that_ends_with_its_connection():
    body = CloseDelimitedBody()
    assert body.feed(b"x" * 100) == b"x" * 100
    assert (body.ended, body.tail) == (False, b"x" * 64)


class Noted(StreamEnd):
    """Remembers what it was shown."""

    def __init__(self) -> None:
        super().__init__(Dialect.COMPLETIONS)
        self.marks = (b"stop",)
        self.data: list[bytes] = []

    def note(self, data: bytes) -> None:
        self.data.append(data)


def test_who_looks_at_a_body_sees_all_but_chunks_that_come_alone_and_bear_no_mark():
    body, noted = ChunkedBody(), Noted()
    assert body.can_pass_through and not ChunkedBody(decode=True).can_pass_through
    body.follow(noted)
    plain, marked = b"x" * 64, b"stop".rjust(64)
    body.feed(chunk(plain))
    assert noted.data == []
    body.feed(chunk(marked))
    assert noted.data == [marked]
    # The last that came alone is shown before what is walked after it.
    body.feed(chunk(b"a") + chunk(b"b"))
    assert noted.data[1] == marked
    assert b"".join(noted.data[2:]) == b"ab"


def test_who_looks_at_a_body_of_known_length_sees_all_of_it():
    body, noted = LengthBody(5), Noted()
    body.follow(noted)
    body.feed(b"hel")
    body.feed(b"lo")
    assert (b"".join(noted.data), body.recent) == (b"hello", b"hello")
