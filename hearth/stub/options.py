"""The stub's command line, and what of it one request may change."""

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hearth.stub import faults

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "": 1.0}

_EPILOG = """\
faults (--fault, the request header x-stub-fault, or the body's "stub": {"fault": ...}):
  NAME           before the first byte of the answer
  NAME:TOKENS    after so many tokens
{faults}

one request can change its own answer with a field in its JSON body:
  "stub": {"tokens": 12, "token_interval": "5ms", "first_token": "1s",
           "text": "any words", "fault": "reset:3"}

examples:
  hearth stub --load-time 5s --tokens 30
  hearth stub --served-model-name chat --max-concurrent 4 --record /tmp/requests.jsonl
  hearth stub --crash-at-start 137 --load-time 2s
"""


class BadRequest(ValueError):
    """The request's own `stub` settings are wrong; the message says how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """How one answer is given."""

    tokens: int | None = None
    """None: as many as the text has."""
    token_interval_s: float = 0.02
    first_token_s: float = 0.0
    text: str | None = None
    fault: faults.Fault | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The whole command line."""

    models: tuple[str, ...] = ("stub",)
    """Names the engine answers to; the first is its own."""
    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = None
    load_s: float = 0.0
    """From the start of the process, not from when Python got round to it."""
    listen_late: bool = False
    never_ready: bool = False
    ready_file: Path | None = None
    crash_at_start: int | None = None
    crash_until: Path | None = None
    crash_code: int = 1
    play: Play = Play()
    max_concurrent: int | None = None
    max_num_seqs: int | None = None
    record: Path | None = None
    drain_s: float = 30.0


def duration_s(text: str) -> float:
    """Seconds from `2s`, `500ms`, `1m` or a bare number of seconds; raises ValueError."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration; write for example 2s, 500ms or 1m")
    return float(match[1]) * _SECONDS[match[2]]


def parse(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> Options:
    """Read the command line; like argparse, leaves with status 2 and a message if it is wrong."""
    parser = _parser(environ)
    given, unknown = parser.parse_known_args(argv)
    if unknown and not given.ignore_unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)} (see --ignore-unknown)")
    model = given.model or given.model_flag or "stub"
    return Options(
        models=tuple(given.served_model_name or [model]),
        host=given.host,
        port=given.port,
        api_key=given.api_key,
        load_s=given.load_time,
        listen_late=given.listen_late,
        never_ready=given.never_ready,
        ready_file=given.ready_file,
        crash_at_start=given.crash_at_start,
        crash_until=given.crash_until,
        crash_code=given.crash_code,
        play=Play(
            tokens=given.tokens,
            token_interval_s=given.token_interval,
            first_token_s=given.first_token,
            text=given.text,
            fault=given.fault,
        ),
        max_concurrent=given.max_concurrent,
        max_num_seqs=given.max_num_seqs,
        record=given.record,
        drain_s=given.drain,
    )


def play_for(play: Play, *, header: str | None, field: Any) -> Play:
    """The play of one request: the command line's, changed by its body's field and its header.

    Raises BadRequest.
    """
    try:
        if field is not None:
            play = replace(play, **_changes(field))
        if header is not None:
            play = replace(play, fault=faults.read(header))
    except ValueError as error:
        raise BadRequest(str(error)) from error
    return play


def _changes(field: Any) -> dict[str, Any]:
    if not isinstance(field, dict):
        raise ValueError('"stub" is an object such as {"tokens": 5}')
    changes: dict[str, Any] = {}
    for name, value in field.items():
        match name:
            case "tokens" if isinstance(value, int) and value >= 0:
                changes["tokens"] = value
            case "token_interval" | "first_token":
                changes[f"{name}_s"] = duration_s(str(value))
            case "text" if isinstance(value, str):
                changes["text"] = value
            case "fault":
                changes["fault"] = faults.read(str(value))
            case _:
                raise ValueError(
                    f'"stub": {name} = {value!r} is not understood; it takes tokens (a number),'
                    " token_interval and first_token (durations), text and fault"
                )
    return changes


def _parser(environ: Mapping[str, str]) -> argparse.ArgumentParser:
    listing = "\n".join(f"    {kind:<12} {faults.MEANING[kind]}" for kind in faults.Kind)
    parser = argparse.ArgumentParser(
        prog="hearth stub",
        description="An OpenAI-compatible engine without a model, for demos and tests: it loads,"
        " streams, fails and stops like a real one.",
        epilog=_EPILOG.replace("{faults}", listing),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("model", nargs="?", metavar="MODEL", help="name or path of the model (default: stub)")
    add("--model", dest="model_flag", metavar="MODEL", help="the same, as a flag")
    add(
        "--served-model-name",
        nargs="+",
        metavar="NAME",
        help="names to answer to (default: the model)",
    )
    pod_ip = environ.get("POD_IP") or "127.0.0.1"
    add("--host", default=pod_ip, help="address to listen on (default: $POD_IP, else 127.0.0.1)")
    add("--port", type=_whole(0), default=8000, help="0 takes a free one (default: 8000)")
    add("--api-key", metavar="KEY", help="require `Authorization: Bearer KEY` under /v1")
    add(
        "--ignore-unknown",
        action="store_true",
        help="ignore flags of other engines, so that their arguments can be used as they are",
    )

    group = parser.add_argument_group("loading")
    add = group.add_argument
    add(
        "--load-time",
        type=_duration,
        default=0.0,
        metavar="TIME",
        help="how long after its start the process becomes ready, e.g. 2s (default: at once)",
    )
    add(
        "--listen-late",
        action="store_true",
        help="open the port only when loaded, as vLLM does (else /health says 503 until then)",
    )
    add("--ready-file", type=Path, metavar="FILE", help="be ready only while FILE exists")
    add("--never-ready", action="store_true", help="/health says 503 for ever")
    add(
        "--crash-at-start",
        type=_whole(0),
        metavar="CODE",
        help="exit with CODE instead of becoming ready (after --load-time)",
    )
    add(
        "--crash-until",
        type=Path,
        metavar="FILE",
        help="crash at start only as long as FILE does not exist",
    )

    group = parser.add_argument_group("answers")
    add = group.add_argument
    add("--tokens", type=_whole(0), metavar="N", help="tokens of an answer (default: as the text)")
    add(
        "--token-interval",
        type=_duration,
        default=0.02,
        metavar="TIME",
        help="time between two tokens (default: 20ms)",
    )
    add(
        "--first-token",
        "--time-to-first-token",
        type=_duration,
        default=0.0,
        metavar="TIME",
        help="time to the first token (default: none)",
    )
    add("--text", help="say this instead of the stub's own words")
    add("--max-concurrent", type=_whole(1), metavar="N", help="503 for more than N at a time")
    add(
        "--max-num-seqs",
        type=_whole(1),
        metavar="N",
        help="let more than N at a time wait, as vLLM does",
    )

    group = parser.add_argument_group("failing and stopping")
    add = group.add_argument
    add("--fault", type=_fault, metavar="NAME[:TOKENS]", help="goes wrong in every request, below")
    add(
        "--crash-code",
        type=_whole(0),
        default=1,
        metavar="CODE",
        help="exit code of the crash fault (default: 1)",
    )
    add(
        "--record",
        type=Path,
        metavar="FILE",
        help="append one JSON line for each request: what was received, how it ended",
    )
    add(
        "--drain",
        type=_duration,
        default=30.0,
        metavar="TIME",
        help="how long SIGTERM lets answers finish; a second one ends them (default: 30s)",
    )
    return parser


def _whole(least: int) -> Any:
    def whole(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number >= {least}")
        return int(text)

    return whole


def _duration(text: str) -> float:
    try:
        return duration_s(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _fault(text: str) -> faults.Fault:
    try:
        return faults.read(text)
    except faults.BadFault as error:
        raise argparse.ArgumentTypeError(str(error)) from error
