import json

import pytest

from hearth.cluster import kinds
from hearth.cluster.interface import Change, Expired, Forbidden, Unavailable
from hearth.cluster.kube import watch_stream
from tests.cluster.scripted import status


def line(type, body):
    return json.dumps({"type": type, "object": body}).encode()


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([b"a\nb\n"], [[b"a", b"b"]]),
        ([b"a", b"b\nc", b"\n"], [[], [b"ab"], [b"c"]]),
        ([b"\n\n \na\r\n"], [[b"a\r"]]),
        ([b"no end"], [[]]),
        ([b""], [[]]),
    ],
)
def test_lines_are_split_wherever_chunks_are(chunks, lines):
    splitter = watch_stream.LineSplitter()
    assert [splitter.feed(chunk) for chunk in chunks] == lines


def test_a_line_of_four_mebibytes_passes_in_small_chunks():
    splitter = watch_stream.LineSplitter()
    whole = b"x" * watch_stream.LONGEST_LINE_BYTES
    for start in range(0, len(whole), 2**16):
        assert splitter.feed(whole[start : start + 2**16]) == []
    assert splitter.feed(b"\n") == [whole]
    assert splitter.feed(b"next\n") == [b"next"]


def test_a_line_beyond_the_limit_has_expired():
    splitter = watch_stream.LineSplitter(longest_bytes=10)
    assert splitter.feed(b"1234567890\n") == [b"1234567890"]
    with pytest.raises(Expired, match="longer than 10 bytes"):
        splitter.feed(b"12345678901")


@pytest.mark.parametrize("type", ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"])
def test_a_line_is_a_change(type):
    body = {"metadata": {"name": "p", "resourceVersion": "7"}}
    kept = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "resourceVersion": "7"},
    }
    assert watch_stream.change(line(type, body), kind=kinds.POD) == Change(type, kept, "7")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (line("ERROR", status(410, "Expired")), Expired),
        (line("ERROR", status(410)), Expired),
        (line("ERROR", {"message": "too old resource version: 1 (9)"}), Expired),
        (line("ERROR", status(403, "Forbidden")), Forbidden),
        (line("ERROR", status(500, "InternalError")), Unavailable),
        (line("ERROR", {}), Unavailable),
        (line("ADDED", None), Unavailable),
        (line("INVENTED", {"metadata": {}}), Unavailable),
        (b"<html>busy</html>", Unavailable),
        (b"[]", Unavailable),
        (b'{"type": "ADDED"', Unavailable),
        (b"\xff", Unavailable),
    ],
)
def test_a_line_that_is_no_change_is_an_error(text, error):
    with pytest.raises(error) as caught:
        watch_stream.change(text, kind=kinds.POD)
    assert type(caught.value) is error
