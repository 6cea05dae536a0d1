"""Lines reach whoever reads, and wait for nobody who does not."""

import os
import re
import subprocess
import sys
import threading

from hearth.line_writer import LineWriter
from tests import hanging


def read_all(descriptor: int) -> str:
    with os.fdopen(descriptor, "rb") as reader:
        return reader.read().decode()


def test_lines_come_in_order_and_whole():
    reader, writer = os.pipe()
    lines = LineWriter(writer)
    for number in range(100):
        lines.write(f"line {number} ä")
    lines.close()
    lines.close()
    os.close(writer)
    assert read_all(reader).splitlines() == [f"line {number} ä" for number in range(100)]
    assert lines.dropped == 0


def test_lines_that_nobody_reads_are_dropped_and_counted_for_the_next_reader():
    reader, writer = os.pipe()
    lines = LineWriter(writer, limit=10)
    for number in range(1000):
        lines.write(f"{number} " + "x" * 1000)
    assert lines.dropped > 900 - 64  # a pipe holds some 64 of them
    told = 0
    with os.fdopen(reader, "r") as text:
        while told < lines.dropped:
            line = text.readline()
            if found := re.match(r"\((\d+) lines were dropped here: nobody read them\)$", line):
                told += int(found[1])
            else:
                assert line.endswith("x\n")
        assert told == lines.dropped
        lines.close()
    os.close(writer)


def test_a_closed_reader_does_not_stop_the_process():
    reader, writer = os.pipe()
    os.close(reader)
    lines = LineWriter(writer)
    lines.write("nobody hears this")
    lines.close()
    os.close(writer)


def test_a_process_ends_though_nobody_reads_its_lines():
    script = """
import sys
from hearth import log
import logging
log.configure(level="info", format="text")
for number in range(20_000):
    logging.getLogger("x").info("y" * 100)
print(log.dropped(), flush=True)
"""
    reader, writer = os.pipe()
    try:
        ran = subprocess.run(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            stderr=writer,
            text=True,
            timeout=hanging.limit_s(),
        )
    finally:
        os.close(writer)
        os.close(reader)
    assert ran.returncode == 0 and 0 < int(ran.stdout) < 20_000


def test_without_a_thread_they_are_written_at_once():
    reader, writer = os.pipe()
    before = threading.stack_size(1 << 60)  # more than there is: none can be started
    try:
        lines = LineWriter(writer)
        lines.write("all the same")
    finally:
        threading.stack_size(before)
    lines.write("and later")
    lines.close()
    os.close(writer)
    assert read_all(reader).splitlines() == ["all the same", "and later"]


def test_lines_after_the_end_are_written_all_the_same():
    reader, writer = os.pipe()
    lines = LineWriter(writer)
    for text in ("before", "after", "at last"):
        lines.write(text)
        lines.close()
    os.close(writer)
    assert read_all(reader).splitlines() == ["before", "after", "at last"]


def test_what_stands_for_dropped_lines_is_in_the_form_of_the_others():
    reader, writer = os.pipe()
    lines = LineWriter(writer, limit=1, notice=lambda dropped: f"{{{dropped}}}")
    while not lines.dropped:
        lines.write("x" * 1000)
    with os.fdopen(reader, "r") as text:
        while (line := text.readline()) == "x" * 1000 + "\n":
            pass
        assert line == f"{{{lines.dropped}}}\n"
        lines.close()
    os.close(writer)
