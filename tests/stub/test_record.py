"""The lines a test compares with."""

import base64
import hashlib
import json

from hearth.stub import record


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def entry(**fields):
    return record.Entry(method="POST", target="/v1/x?y=1", headers=[("X-A", "1")], at=5.0, **fields)


def test_a_text_body_is_readable(tmp_path):
    log = record.Record(tmp_path / "r", engine="e")
    log.write(entry(body="né".encode(), status=200, tokens=3, end="finished"))
    log.close()
    assert lines(tmp_path / "r") == [
        {
            "at": 5.0,
            "engine": "e",
            "method": "POST",
            "path": "/v1/x?y=1",
            "headers": [["X-A", "1"]],
            "body": "né",
            "body_bytes": 3,
            "body_sha256": hashlib.sha256("né".encode()).hexdigest(),
            "status": 200,
            "tokens": 3,
            "end": "finished",
        }
    ]


def test_other_bytes_are_kept_whole(tmp_path):
    log = record.Record(tmp_path / "r", engine="e")
    log.write(entry(body=b"\xff\x00"))
    log.write(entry())
    log.close()
    binary, unread = lines(tmp_path / "r")
    assert (binary["body"], base64.b64decode(binary["body_base64"])) == (None, b"\xff\x00")
    assert (unread["body"], unread["body_bytes"]) == (None, None)


def test_two_engines_share_a_file(tmp_path):
    first, second = (record.Record(tmp_path / "r", engine=name) for name in "ab")
    first.write(entry())
    second.write(entry())
    first.write(entry())
    first.close()
    second.close()
    assert [line["engine"] for line in lines(tmp_path / "r")] == ["a", "b", "a"]


def test_without_a_file_nothing_happens():
    log = record.Record(None, engine="e")
    log.write(entry())
    log.close()


def test_headers_keep_their_order_and_spelling():
    raw = [(b"X-b", b"\xe9"), (b"x-B", b"2")]
    assert record.decode(raw) == [("X-b", "é"), ("x-B", "2")]
