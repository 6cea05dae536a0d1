"""An engine in this process, and one as a process of its own."""

import json
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager

import aiohttp
import anyio
import anyio.lowlevel
import pytest
from aiohttp import web

from hearth.stub import options, record, server
from tests import hanging


class Served:
    """An engine on a loopback port, a client of it, and what it recorded."""

    def __init__(self, engine, http, url, path):
        self.engine = engine
        self.http = http
        self.url = url
        self._path = path

    @property
    def lines(self):
        return [json.loads(line) for line in self._path.read_text().splitlines()]

    async def line(self):
        """The only line there is, once there is one."""
        with hanging.guard():
            while not self.lines:
                await anyio.lowlevel.checkpoint()
        [line] = self.lines
        return line

    async def post(self, path, body, **headers):
        async with self.http.post(path, json=body, headers=headers) as response:
            return response.status, await response.read()


@pytest.fixture
def serving(tmp_path):
    @asynccontextmanager
    async def serve(*, play=None, **fields):
        path = tmp_path / "record.jsonl"
        log = record.Record(path, engine="test")
        plays = options.Play(token_interval_s=0.0, **(play or {}))
        opts = options.Options(play=plays, **fields)
        engine = server.Engine(opts, log, ready_at=0.0)
        runner = web.AppRunner(
            engine.application(), handler_cancellation=True, access_log=None, shutdown_timeout=0.1
        )
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            async with aiohttp.ClientSession(url) as http:
                yield Served(engine, http, url, path)
        finally:
            await runner.cleanup()
            log.close()

    return serve


@pytest.fixture
def process():
    @contextmanager
    def start(*arguments):
        with subprocess.Popen(
            [sys.executable, "-m", "hearth.stub", "--port", "0", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as child:
            try:
                yield child
            finally:
                child.kill()

    return start
