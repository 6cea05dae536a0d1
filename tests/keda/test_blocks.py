"""What is remembered says what HPACK says, whatever happens to the tables in between."""

import random

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from hpack import Decoder, Encoder

from hearth.keda import blocks

CALL = [
    (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a/IsActive"),
    (b"content-type", b"application/grpc"), (b"te", b"trailers"),
]  # fmt: skip
OTHER = [(b":method", b"POST"), (b":path", b"/a/GetMetrics"), (b"grpc-timeout", b"3S")]
HEAD = [(b":status", b"200"), (b"content-type", b"application/grpc+proto")]
TRAILERS = [(b"grpc-status", b"0")]


def pair():
    """A decoder and an encoder as a connection of ours has them."""
    connection = H2Connection(H2Configuration(client_side=False))
    blocks.take_over(connection)
    return connection.decoder, connection.encoder


def lists(seed, count=400):
    """Lists of headers as they may come: mostly the same few, sometimes another."""
    chance = random.Random(seed)
    for number in range(count):
        if chance.random() < 0.1:
            size = chance.choice((1, 40, 3000))
            yield [(b"x-%d" % chance.randrange(20), b"%d" % number * size)]
        yield chance.choice((CALL, OTHER, HEAD, TRAILERS))


@pytest.mark.parametrize("seed", range(5))
def test_a_decoder_reads_what_any_encoder_writes(seed):
    decoder, _ = pair()
    encoder = Encoder()
    for number, headers in enumerate(lists(seed)):
        if number % 100 == 99:
            encoder.header_table_size = 4096 >> (number // 100)
        assert list(decoder.decode(encoder.encode(headers), raw=True)) == headers


@pytest.mark.parametrize("seed", range(5))
def test_any_decoder_reads_what_an_encoder_writes(seed):
    _, encoder = pair()
    decoder = Decoder()
    for number, headers in enumerate(lists(seed)):
        if number % 100 == 99:  # as after the peer's settings
            encoder.header_table_size = 4096 >> (number // 100)
        assert list(decoder.decode(encoder.encode(iter(headers)), raw=True)) == headers


def test_a_block_means_what_the_table_says_now():
    decoder, _ = pair()
    encoder = Encoder()
    decoder.decode(encoder.encode(CALL), raw=True)
    block = encoder.encode(CALL)
    assert list(decoder.decode(block, raw=True)) == CALL == list(decoder.decode(block, raw=True))
    decoder.decode(encoder.encode([(b"new", b"1"), (b"er", b"2"), (b"ones", b"3")]), raw=True)
    assert list(decoder.decode(block, raw=True)) != CALL


def test_texts_and_bytes_are_not_mixed_up():
    decoder, _ = pair()
    block = Encoder().encode([(":method", "GET")])
    assert list(decoder.decode(block, raw=True)) == [(b":method", b"GET")]
    assert list(decoder.decode(block)) == [(":method", "GET")]
    assert list(decoder.decode(block, raw=True)) == [(b":method", b"GET")]


def test_only_some_blocks_are_kept():
    decoder, encoder = pair()
    plain = Encoder()
    fields = [(b"n", b"%d" % number) for number in range(12)]
    many = [[one, other] for one in fields for other in fields]
    for _ in range(2):
        for headers in many:
            decoder.decode(plain.encode(headers), raw=True)
            encoder.encode(headers)
    assert 0 < len(decoder._known) <= 64 and 0 < len(encoder._known) <= 64
