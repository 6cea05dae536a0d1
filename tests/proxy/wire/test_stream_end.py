"""Streams that say that they are whole, and such as only look so."""

import pytest

from hearth.proxy.errors import Dialect
from hearth.proxy.wire.framing import LAST_CHUNK, ChunkedBody, chunk
from hearth.proxy.wire.stream_end import StreamEnd, last_events

CHAT, RESPONSES, MESSAGES = Dialect.COMPLETIONS, Dialect.RESPONSES, Dialect.MESSAGES
COMPLETED = b'event: response.completed\ndata: {"type":"response.completed","response":{}}\n\n'
STOP = b'event: message_stop\ndata: {"type": "message_stop"}\n\n'
LONG = b'data: {"response":{"x":"' + b"x" * 500 + b'"},"type":"response.completed"}\n\n'


@pytest.mark.parametrize(
    ("dialect", "walked", "recent", "whole"),
    [
        (CHAT, b"", b"data: [DONE]\n\n", True),
        (CHAT, b"", b"data:[DONE]\r\n\r\n", True),
        (CHAT, b"", b"data: [DONE]", True),
        (CHAT, b"data: [DONE]\n\n", b": bye\n\n", True),
        (CHAT, b"data: [DONE]\n\n", b'data: {"usage":', True),
        (CHAT, b"e\r\ndata: [DONE]\n\n\r\n", b"", True),
        (CHAT, b"", b'data: {"choices":[{"text":"data: [DONE]"}]}\n\n', False),
        (CHAT, b"", b'data: {"choices":[]}\n\n', False),
        (CHAT, b"", b"", False),
        (CHAT, b"", COMPLETED, False),
        (CHAT, b"", b'data: {"error":{"message":"no"}}\n\n', True),
        (CHAT, b"", b'data: {"error": "no"}\r\n\r\n', True),
        (CHAT, b"", b'data: {"error":{"message":"no', False),
        (CHAT, b"", b'data: {"error":null,"choices":[]}\n\n', False),
        (CHAT, b"", b'data: {"choices":[{"text":"data: {\\"error\\":{}}"}]}\n\n', False),
        (RESPONSES, b"", COMPLETED, True),
        (RESPONSES, b"", COMPLETED.replace(b"completed", b"incomplete"), True),
        (RESPONSES, b"", COMPLETED.replace(b"completed", b"failed"), True),
        (RESPONSES, b"", COMPLETED.replace(b"\n", b"\r\n"), True),
        (RESPONSES, b"", COMPLETED + b": bye\n\n", True),
        (RESPONSES, COMPLETED, b"data: [DONE]\n\n", True),
        (RESPONSES, COMPLETED[:40], COMPLETED[40:], True),
        (RESPONSES, LONG[:300], LONG[300:], True),
        (RESPONSES, b"", COMPLETED[:-20], False),
        (RESPONSES, b"", COMPLETED[:-1], False),
        (RESPONSES, b"", b"data: [DONE]\n\n", False),
        (RESPONSES, b"", b'data: {"type":"response.created","error":null}\n\n', False),
        (RESPONSES, b"", b'data: {"delta":"event: response.completed"}\n\n', False),
        (RESPONSES, b"", b'event: error\ndata: {"message":"no"}\n\n', True),
        (RESPONSES, b"", b'data: {"type":"error","message":"no"}\n\n', True),
        (MESSAGES, b"", STOP, True),
        (MESSAGES, b"", b"event: message_stop\ndata: {}\n\n", True),
        (MESSAGES, STOP, b"data: [DONE]\n\n", True),
        (MESSAGES, b"", STOP[:-3], False),
        (MESSAGES, b"", b'data: {"delta":{"text":"message_stop"}}\n\n', False),
        (MESSAGES, b"", b'data: {"delta":{"text":"\\"message_stop\\""}}\n\n', False),
        (MESSAGES, b"", b'event: error\ndata: {"type":"error","error":{}}\n\n', True),
    ],
)
def test_what_is_whole(dialect, walked, recent, whole):
    completion = StreamEnd(dialect)
    if walked:
        completion.note(walked)
    assert completion.is_complete(recent) is whole
    assert completion.is_complete(recent) is whole


def test_an_error_of_the_engine_is_known():
    completion = StreamEnd(CHAT)
    assert not completion.failed
    completion.note(b'data: {"error":{"message":"no"}}\n\n')
    assert completion.is_complete(b"data: [DONE]\n\n")
    assert completion.failed


EVENT = b'data: {"type":"response.completed","text":"' + b"x" * 3000 + b'"}\n\n'


def followed(reads):
    chunked, completion = ChunkedBody(), StreamEnd(RESPONSES)
    chunked.follow(completion)
    for read in reads:
        chunked.feed(read)
    return chunked.ended and completion.is_complete(chunked.recent)


@pytest.mark.parametrize("size", [1, 3, 20])
@pytest.mark.parametrize("name", [b"event: response.completed\n", b""])
def test_field_case_c3_a_last_event_that_comes_in_pieces_is_one(name, size):
    body = chunk(name + EVENT) + LAST_CHUNK
    assert followed(body[begin : begin + size] for begin in range(0, len(body), size))


@pytest.mark.parametrize("size", [1, 3, 20, 100, 1000])
def test_field_case_c3_a_last_event_in_many_chunks_is_one(size):
    event = b"event: response.completed\n" + EVENT
    chunks = [chunk(event[begin : begin + size]) for begin in range(0, len(event), size)]
    assert followed([*chunks, LAST_CHUNK]), "each read by itself"
    assert followed([b"".join(chunks) + LAST_CHUNK])
    assert not followed([*chunks[:-1], LAST_CHUNK]), "half of it"


def test_what_says_that_a_stream_is_whole():
    assert last_events(Dialect.COMPLETIONS) == ("[DONE]",)
    assert last_events(Dialect.MESSAGES) == ("message_stop",)
