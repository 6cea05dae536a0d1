"""Logging set-up: constant messages, and what varies as keys behind them."""

import json
import logging
import sys
import time
from typing import TextIO

from hearth.api.meta import rfc3339_milli
from hearth.line_writer import LineWriter

_QUIET = {"asyncio": logging.WARNING, "grpclib": logging.WARNING, "hpack": logging.WARNING,
          "watchfiles": logging.WARNING}  # fmt: skip
"""Libraries whose lines help nobody who runs Hearth."""

_STANDARD = set(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def _keys(record: logging.LogRecord) -> dict[str, object]:
    return {k: v for k, v in record.__dict__.items() if k not in _STANDARD}


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        # A cluster's words may have several lines; ours has one.
        keys = "".join(f" {k}={' '.join(str(v).splitlines())}" for k, v in _keys(record).items())
        line = f"{clock} {record.levelname.lower():7} {record.getMessage()}{keys}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": rfc3339_milli(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_keys(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


class _Handler(logging.Handler):
    """Formats at once, and lets another thread write."""

    def __init__(self, lines: LineWriter) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.write(self.format(record))
        except Exception:
            self.handleError(record)


_written: list[LineWriter] = []


def dropped() -> int:
    """Lines that were lost, since whoever reads the log, or the access log, was too slow."""
    return sum(lines.dropped for lines in _written)


def to_stdout() -> LineWriter:
    """For lines of JSON on standard output: the access log, which whoever wants one of the two
    alone can tell from the log, on standard error, by that."""
    lines = LineWriter(sys.stdout.fileno(), notice=lambda dropped: json.dumps({"dropped": dropped}))
    _written.append(lines)
    return lines


def configure(*, level: str, format: str, stream: TextIO | None = None) -> None:
    """Log to standard error, or `stream`, from now on; called once, by the command line."""
    file = None if stream is not None else _file()
    handler: logging.Handler
    if file is None:
        handler = logging.StreamHandler(stream)
    else:
        _written[:] = [LineWriter(file)]
        handler = _Handler(_written[0])
    handler.setFormatter(_Json() if format == "json" else _Text())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("aiohttp.server").filters[:] = [_is_ours]
    for name, least in _QUIET.items():
        logging.getLogger(name).setLevel(max(least, root.level))


def _file() -> int | None:
    """The file that standard error is; None where something stands in for it."""
    try:
        return sys.stderr.fileno()
    except (AttributeError, OSError):
        return None


def _is_ours(record: logging.LogRecord) -> bool:
    """aiohttp logs each malformed request with a traceback, though it got its 400."""
    error = record.exc_info[1] if record.exc_info else None
    return not type(error).__module__.startswith("aiohttp.http_exceptions")
