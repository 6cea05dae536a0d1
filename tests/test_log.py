"""Lines of text and of JSON: a constant message, and the keys behind it."""

import io
import json
import logging

import pytest

from hearth import log


@pytest.fixture
def restored():
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    yield
    root.handlers[:], level = before
    root.setLevel(level)


def said(format, **extra):
    stream = io.StringIO()
    log.configure(level="info", format=format, stream=stream)
    logging.getLogger("hearth.x").debug("not this")
    logging.getLogger("hearth.x").info("went to sleep", extra=extra)
    return stream.getvalue()


def test_text(restored):
    line = said("text", service="ai/chat", demand=0)
    assert line.endswith("info    went to sleep service=ai/chat demand=0\n")
    assert len(line.splitlines()) == 1


def test_what_a_cluster_said_in_several_lines_is_one(restored):
    line = said("text", reason="denied:\n  no such class")
    assert line.endswith("went to sleep reason=denied:   no such class\n")


def test_json(restored):
    line = json.loads(said("json", service="ai/chat"))
    assert line["message"] == "went to sleep" and line["service"] == "ai/chat"
    assert line["level"] == "info" and line["logger"] == "hearth.x" and line["time"].endswith("Z")


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_failure_keeps_its_cause(restored, format):
    stream = io.StringIO()
    log.configure(level="info", format=format, stream=stream)
    try:
        raise ValueError("the cause")
    except ValueError:
        logging.getLogger("hearth.x").exception("reconcile failed", extra={"key": "ai/chat"})
    assert "the cause" in stream.getvalue() and "ai/chat" in stream.getvalue()
