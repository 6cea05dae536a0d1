"""Run one engine as a process: load, listen, drain on a signal, leave with a code."""

import asyncio
import os
import signal
import time
from pathlib import Path

from aiohttp import web

from hearth.host_port import authority
from hearth.stub import options, record, server

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_FILE_PERIOD_S = 0.02
_PLAUSIBLE_AGE_S = 30.0
"""Sandboxes that count a process's start from another zero make it look older."""
_CUT_S = 0.1
"""How long connections get to close once nothing may finish any more."""


async def run(opts: options.Options) -> int:
    """Serve until a signal comes; returns the exit code."""
    ready_at = time.monotonic() + opts.load_s - _age_s()
    stop = asyncio.Event()
    for number in _SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    _say(f"loading {opts.models[0]}" + (f", takes {opts.load_s:g}s" if opts.load_s else ""))
    code = _crash_code(opts)
    if code is not None:
        if await _stopped(stop, within_s=ready_at - time.monotonic()):
            return 0
        _say(f"crashing as told, exit code {code}")
        return code
    try:
        log = record.Record(opts.record, engine=authority(opts.host, opts.port))
    except OSError as error:
        _say(f"cannot write {opts.record}: {error.strerror}; give --record another file")
        return 1
    engine = server.Engine(opts, log, ready_at=ready_at)
    runner = web.AppRunner(
        engine.application(), handler_cancellation=True, access_log=None, shutdown_timeout=_CUT_S
    )
    await runner.setup()
    try:
        if not opts.listen_late or await _ready(engine, opts, stop, ready_at=ready_at):
            await _serve(engine, runner, opts, stop, ready_at=ready_at)
    except OSError as error:
        where = authority(opts.host, opts.port)
        _say(f"cannot listen on {where}: {error}; give another --host or --port")
        return 1
    finally:
        await runner.cleanup()
        log.close()
    _say("stopped")
    return 0


async def _serve(
    engine: server.Engine,
    runner: web.AppRunner,
    opts: options.Options,
    stop: asyncio.Event,
    *,
    ready_at: float,
) -> None:
    site = web.TCPSite(runner, opts.host, opts.port, backlog=4096)
    await site.start()
    host, port = runner.addresses[0][:2]
    _say(f"listening on http://{authority(host, port)} as {', '.join(opts.models)}")
    if await _ready(engine, opts, stop, ready_at=ready_at):
        _say("ready")
        await stop.wait()
    await site.stop()
    _say(f"stopping: {engine.active} requests may finish within {opts.drain_s:g}s")
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(opts.drain_s) as limit:
            for number in _SIGNALS:
                loop.add_signal_handler(number, lambda: limit.reschedule(loop.time()))
            await engine.drain()
    except TimeoutError:
        _say(f"{engine.active} requests were cut off")


async def _ready(
    engine: server.Engine, opts: options.Options, stop: asyncio.Event, *, ready_at: float
) -> bool:
    """Wait until the model is loaded; False when told to stop before."""
    while not engine.ready:
        if opts.never_ready:
            within_s = None
        else:
            within_s = max(ready_at - time.monotonic(), _FILE_PERIOD_S if opts.ready_file else 0.0)
        if await _stopped(stop, within_s=within_s):
            return False
    return True


async def _stopped(stop: asyncio.Event, *, within_s: float | None) -> bool:
    try:
        async with asyncio.timeout(within_s):
            await stop.wait()
    except TimeoutError:
        return False
    return True


def _crash_code(opts: options.Options) -> int | None:
    """The code to crash with at start, where it is to crash."""
    if opts.crash_until is not None:
        return None if opts.crash_until.exists() else (opts.crash_at_start or opts.crash_code)
    return opts.crash_at_start


def _age_s() -> float:
    """How long ago this process was started; 0 where the system does not tell, or tells tales."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, AttributeError, IndexError, ValueError):
        return 0.0
    return age if 0 <= age < _PLAUSIBLE_AGE_S else 0.0


def _say(line: str) -> None:
    now = time.time()
    clock = time.strftime("%H:%M:%S", time.localtime(now))
    print(f"{clock}.{int(now % 1 * 1000):03} hearth stub: {line}", flush=True)
