"""Give one answer, at the pace asked for, and go wrong where asked."""

import asyncio
import os
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from aiohttp import web

from hearth.stub import answers, faults, options, record, vllm_metrics

JSON = {"Content-Type": "application/json"}
_EVENTS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
_LINGER_ZERO = struct.pack("ii", 1, 0)
_SLOW_BYTE_S = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What is to be said."""

    tokens: list[str]
    finish: answers.Finish
    usage: answers.Usage

    @property
    def text(self) -> str:
        return "".join(self.tokens)


class Refused(Exception):
    """The request is answered with an error object instead."""

    def __init__(self, status: int, type: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.type = type


class Turn:
    """One request that was let in.  `ended(how)` is called before the last bytes go out."""

    def __init__(
        self,
        request: web.Request,
        entry: record.Entry,
        play: options.Play,
        *,
        metrics: vllm_metrics.EngineMetrics,
        crash_code: int,
        ended: Callable[[str], None],
    ) -> None:
        self._request = request
        self._entry = entry
        self._play = play
        self._metrics = metrics
        self._crash_code = crash_code
        self._ended = ended
        self._started = time.monotonic()

    async def begin(self) -> None:
        """What goes wrong before the first byte of an answer."""
        fault = self._play.fault
        if fault is not None and fault.after is None and fault.kind is not faults.Kind.SLOW:
            if fault.kind is faults.Kind.STATUS:
                raise Refused(fault.status, "StubFault", f"this is the fault {fault.kind}")
            await self._break(fault.kind)

    async def stream(self, answer: answers.Format, words: Words) -> web.StreamResponse:
        """The answer as server-sent events."""
        response = web.StreamResponse(headers=_EVENTS)
        await response.prepare(self._request)
        self._entry.status = 200
        await self._send(response, answer.opening())
        last = time.monotonic()
        due = last + self._play.first_token_s
        for token in words.tokens:
            if (fault := self._due()) is not None:
                return await self._break_stream(response, fault)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            await self._send(response, answer.token(token))
            self._count(1, since=last)
            last = time.monotonic()
            due += self._play.token_interval_s
        if (fault := self._due()) is not None:
            return await self._break_stream(response, fault)
        self._ended("finished")
        await self._send(response, answer.closing(words.text, words.finish, words.usage))
        return response

    async def whole(self, body: bytes, *, tokens: int) -> web.StreamResponse:
        """The answer in one piece, after as long as streaming it would take."""
        play, fault = self._play, self._play.fault
        rest_s = play.token_interval_s * max(0, tokens - 1)
        await asyncio.sleep(play.first_token_s + rest_s)
        self._count(tokens, since=self._started)
        if fault is None or fault.kind is faults.Kind.STATUS:
            return web.Response(body=body, headers=JSON)
        if fault.kind in (faults.Kind.ERROR, faults.Kind.BARE_ERROR):
            raise Refused(500, "StubFault", f"this is the fault {fault.kind}")
        response = web.StreamResponse(headers=JSON)
        if fault.kind is faults.Kind.END:
            response.enable_chunked_encoding()
        else:
            response.content_length = len(body)
        await response.prepare(self._request)
        self._entry.status = 200
        if fault.kind is faults.Kind.SLOW:
            self._ended("finished")
            await self._send(response, body)
            return response
        await response.write(body[: len(body) // 2])
        if fault.kind is not faults.Kind.END:
            await self._break(fault.kind)
        self._ended(fault.kind)
        return response

    def _due(self) -> faults.Kind | None:
        fault = self._play.fault
        if fault is None or fault.after is None or fault.kind is faults.Kind.SLOW:
            return None
        return fault.kind if self._entry.tokens >= fault.after else None

    def _count(self, tokens: int, *, since: float) -> None:
        metrics, seconds = self._metrics, time.monotonic() - since
        if self._entry.tokens == 0:
            metrics.first_token_s.observe(time.monotonic() - self._started)
        else:
            metrics.token_s.observe(seconds)
        self._entry.tokens += tokens
        metrics.generated_tokens += tokens

    async def _send(self, response: web.StreamResponse, piece: bytes) -> None:
        fault = self._play.fault
        if fault is None or fault.kind is not faults.Kind.SLOW:
            if piece:
                await response.write(piece)
        elif fault.after is not None and self._entry.tokens < fault.after:
            await response.write(piece)
        else:
            for byte in piece:
                await response.write(bytes((byte,)))
                await asyncio.sleep(_SLOW_BYTE_S)

    async def _break_stream(
        self, response: web.StreamResponse, kind: faults.Kind
    ) -> web.StreamResponse:
        problem = answers.error(f"this is the fault {kind}", type="StubFault", code=500)
        match kind:
            case faults.Kind.END:
                tail = b""
            case faults.Kind.ERROR:
                tail = b"data: " + problem + b"\n\n" + answers.DONE
            case faults.Kind.BARE_ERROR:
                tail = problem
            case _:
                await self._break(kind)
        self._ended(kind)
        if tail:
            await response.write(tail)
        return response

    async def _break(self, kind: faults.Kind) -> NoReturn:
        transport = self._request.transport
        if transport is None:
            raise ConnectionResetError("the client is gone")
        match kind:
            case faults.Kind.CRASH:
                self._ended(kind)
                os._exit(self._crash_code)
            case faults.Kind.RESET:
                self._ended(kind)
                connection: socket.socket = transport.get_extra_info("socket")
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
                transport.abort()
            case faults.Kind.CLOSE:
                self._ended(kind)
                transport.close()
            case _:
                pass  # hang: the record says how that ended
        await asyncio.Event().wait()  # the end of the connection cancels this
        raise AssertionError("unreachable")
