"""A process from its first line to its exit code."""

import http.client
import json
import re
import signal
from contextlib import closing, contextmanager

import pytest

from tests import hanging


def until(child, word):
    """Read lines up to one with this word; gives it."""
    for line in child.stdout:
        if word in line:
            return line
    pytest.fail(f"it ended without {word!r}")


def listening(child):
    return int(re.search(r"http://127\.0\.0\.1:(\d+)", until(child, "listening"))[1])


@contextmanager
def ask(port, method, path, body=None):
    with closing(
        http.client.HTTPConnection("127.0.0.1", port, timeout=hanging.limit_s())
    ) as connection:
        connection.request(method, path, body and json.dumps(body))
        with connection.getresponse() as answer:
            yield answer


def status(port):
    with ask(port, "GET", "/health") as answer:
        return answer.status


@contextmanager
def stream(child, **stub):
    body = {"prompt": "hi", "stream": True, "stub": stub}
    with ask(listening(child), "POST", "/v1/completions", body) as answer:
        assert answer.status == 200
        yield answer


def test_it_serves_and_a_signal_ends_it(process):
    with process("--served-model-name", "a", "b") as child:
        port = listening(child)
        until(child, "ready")
        assert status(port) == 200
        child.send_signal(signal.SIGTERM)
        assert child.wait(hanging.limit_s()) == 0
        assert "stopped" in child.stdout.read()


def test_it_listens_before_it_is_loaded_and_stops_while_loading(process):
    with process("--load-time", "1m") as child:
        assert status(listening(child)) == 503
        child.send_signal(signal.SIGINT)
        assert child.wait(hanging.limit_s()) == 0


def test_it_listens_only_when_loaded_if_told_so(process, tmp_path):
    file = tmp_path / "ready"
    with process("--listen-late", "--ready-file", str(file)) as child:
        assert "loading" in child.stdout.readline()
        file.touch()
        assert status(listening(child)) == 200
    with process("--listen-late", "--never-ready") as child:
        until(child, "loading")
        child.send_signal(signal.SIGTERM)
        assert child.wait(hanging.limit_s()) == 0
        assert "listening" not in child.stdout.read()


def test_it_crashes_at_start_until_a_file_mends_it(process, tmp_path):
    mended = tmp_path / "mended"
    arguments = ("--crash-at-start", "137", "--crash-until", str(mended))
    with process(*arguments) as child:
        assert child.wait(hanging.limit_s()) == 137
    mended.touch()
    with process(*arguments) as child:
        assert status(listening(child)) == 200


def test_a_request_crashes_it_after_its_tokens(process, tmp_path):
    record = tmp_path / "record"
    with process("--crash-code", "9", "--record", str(record)) as child:
        with (
            stream(child, fault="crash:2", text="a b c") as answer,
            pytest.raises(http.client.IncompleteRead),
        ):
            answer.read()
        assert child.wait(hanging.limit_s()) == 9
    line = json.loads(record.read_text())
    assert (line["end"], line["tokens"]) == ("crash", 2)


def test_a_stream_finishes_before_it_stops(process):
    with process("--drain", "1m") as child:
        with stream(child, tokens=10, token_interval="20ms") as answer:
            answer.readline()
            child.send_signal(signal.SIGTERM)
            assert "1 requests may finish" in until(child, "stopping")
            assert answer.read().endswith(b"data: [DONE]\n\n")
        assert child.wait(hanging.limit_s()) == 0


@pytest.mark.parametrize(("drain", "again"), [("50ms", False), ("1m", True)])
def test_the_drain_ends_at_its_limit_or_at_a_second_signal(process, tmp_path, drain, again):
    record = tmp_path / "record"
    with process("--drain", drain, "--record", str(record)) as child:
        with stream(child, fault="hang:1") as answer:
            answer.readline()
            child.send_signal(signal.SIGTERM)
            until(child, "stopping")
            if again:
                child.send_signal(signal.SIGTERM)
            until(child, "1 requests were cut off")
            with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
                answer.read()
        assert child.wait(hanging.limit_s()) == 0
    assert json.loads(record.read_text())["end"] == "stopped"


def test_a_port_in_use_is_one_line(process):
    with process() as first:
        port = listening(first)
        with process("--port", str(port)) as second:
            assert second.wait(hanging.limit_s()) == 1
            assert "cannot listen on 127.0.0.1" in (line := second.stdout.read())
            assert "give another --host or --port" in line
            assert "Traceback" not in line


def test_a_record_that_cannot_be_written_is_one_line(process, tmp_path):
    with process("--record", str(tmp_path / "none" / "r")) as child:
        assert child.wait(hanging.limit_s()) == 1
        assert "No such file or directory; give --record another file" in child.stdout.read()
