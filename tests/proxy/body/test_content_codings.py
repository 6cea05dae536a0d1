"""Request bodies as they were before their coding."""

import gzip
import random
import sys
import tracemalloc
import zlib
from collections.abc import Callable

import pytest

from hearth.proxy import errors
from hearth.proxy.body import content_codings

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstd.compress,
}
CODINGS = pytest.mark.parametrize("coding", CODERS)
TEXTS = (b"x", b'{"model":"chat"}', bytes(300_000), random.Random(1).randbytes(200_000))


def decoded(coding: str, data: bytes, most_bytes: int = 1 << 20) -> bytes:
    decoding = content_codings.Decoding(coding, data)
    parts = []
    while not decoding.done:
        parts.append(decoding.step(most_bytes))
        assert len(parts[-1]) <= most_bytes
    return b"".join(parts)


@CODINGS
@pytest.mark.parametrize("most_bytes", [1, 7, 4096, 1 << 20])
def test_field_case_110_what_was_compressed_comes_out_again_in_steps(coding, most_bytes):
    assert content_codings.is_known(coding)
    for text in TEXTS if most_bytes > 7 else TEXTS[:2]:
        assert decoded(coding, CODERS[coding](text), most_bytes) == text
    assert decoded(coding, CODERS[coding](b"")) == b""


@CODINGS
def test_nothing_is_nothing(coding):
    assert decoded(coding, b"") == b""


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_series_of_members_is_one_body(coding):
    data = b"".join(map(CODERS[coding], TEXTS))
    assert decoded(coding, data) == b"".join(TEXTS)
    assert decoded(coding, data, 1000) == b"".join(TEXTS)


def test_a_frame_that_is_to_be_skipped_is():
    skipped = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
    assert decoded("zstd", skipped + zstd.compress(b"text") + skipped) == b"text"


@CODINGS
def test_what_breaks_off_is_told_from_what_is_whole(coding):
    data = CODERS[coding](TEXTS[3])
    for size in (1, 5, 100, len(data) // 2, len(data) - 1):
        with pytest.raises(content_codings.DecodingError, match="breaks off"):
            decoded(coding, data[:size])


@CODINGS
@pytest.mark.parametrize("bad", [b"plain text", b"\0" * 40, b'{"model":"chat","messages":[]}'])
def test_what_is_in_no_such_coding(coding, bad):
    with pytest.raises(content_codings.DecodingError):
        decoded(coding, bad)


@CODINGS
def test_what_was_changed_on_the_way(coding):
    coder = CODERS[coding]
    if coding == "zstd":
        coder = lambda text: zstd.compress(  # noqa: E731
            text, options={zstd.CompressionParameter.checksum_flag: 1}
        )
    data = bytearray(coder(b"so many words" * 50))
    data[-2] ^= 0xFF
    with pytest.raises(content_codings.DecodingError, match=f"^not {coding} as it should be"):
        decoded(coding, bytes(data))


@CODINGS
def test_what_follows_and_is_no_part_of_it(coding):
    with pytest.raises(content_codings.DecodingError):
        decoded(coding, CODERS[coding](b"text") + b"more")


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_body_in_endless_pieces_is_given_up(coding):
    with pytest.raises(content_codings.DecodingError, match="more than 1000 pieces"):
        decoded(coding, CODERS[coding](b"") * 1001)


@CODINGS
def test_field_case_110_a_bomb_takes_no_more_memory_than_is_asked_of_it(coding):
    bomb = CODERS[coding](bytes(100_000_000))
    tracemalloc.start()
    assert len(content_codings.Decoding(coding, bomb).step(1000)) == 1000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000


def test_a_frame_that_wants_much_memory_before_its_first_byte_is_refused():
    options: dict[int, int] = {
        zstd.CompressionParameter.window_log: 27,
        zstd.CompressionParameter.content_size_flag: 0,
    }
    coder = zstd.ZstdCompressor(options=options)
    data = coder.compress(b"text", zstd.ZstdCompressor.FLUSH_BLOCK) + coder.flush()
    with pytest.raises(content_codings.DecodingError, match="too much memory"):
        decoded("zstd", data)


@pytest.mark.parametrize("coding", ["", "br", "identity", "gzip, gzip", "GZIP", "zstd,"])
def test_what_is_not_known(coding):
    assert not content_codings.is_known(coding)


def test_those_that_clients_are_told_of_are_taken():
    assert all(map(content_codings.is_known, errors.CONTENT_CODINGS))
