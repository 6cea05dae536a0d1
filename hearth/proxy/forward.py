"""Relay one backend's answer to one client."""

from dataclasses import dataclass

import anyio

from hearth.proxy import answers, headers, upstream
from hearth.proxy.answers import Code, ErrorBody, Problem
from hearth.proxy.reply import Reply, is_event_stream

_ERROR_BYTES = 64 * 1024
"""How much of a late error answer is read for its message."""


class Silent(Exception):
    """The backend said nothing for longer than a limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much silence is too much."""

    first_byte: float
    """By when (anyio's clock) the first byte of the body must be here."""
    idle_s: float
    """Between two reads of the body."""
    stall_s: float
    """Of the client: it takes nothing."""


class Relay:
    """One answer on its way to one client.

    Its methods raise upstream.Lost and Silent; ConnectionError where the client is gone, or
    takes nothing.
    """

    def __init__(self, answer: upstream.Answer, limits: Limits) -> None:
        self._answer = answer
        self._limits = limits
        self._first: bytes | None = None
        self.status = answer.status
        encoded = answer.fields.get("Content-Encoding", "identity") != "identity"
        self._events = is_event_stream(answer.fields.get("Content-Type", "")) and not encoded

    async def first(self) -> bytes:
        """The first bytes of the body, once they are here."""
        if self._first is None:
            self._first = await self._read(self._limits.first_byte)
        return self._first

    async def head(self, reply: Reply, *, drop_cors: bool) -> None:
        """Send the answer's head, unless the client was given an early one."""
        if reply.begun:
            return
        if not self._events:
            # Trouble before the first byte of the body can still be told by a status.
            await self.first()
        fields = headers.response(
            self._answer.fields, keep_length=not self._events, drop_cors=drop_cors
        )
        await reply.head(self.status, self._answer.reason, fields)

    async def body(self, reply: Reply, *, until_done: bool) -> None:
        """Send the body as it comes.

        `until_done`: an event stream that ends without `[DONE]` was cut.
        """
        data = await self.first()
        writing = False
        with anyio.CancelScope() as scope:
            while data:
                writing = True
                scope.deadline = anyio.current_time() + self._limits.stall_s
                await reply.write(data)
                writing = False
                scope.deadline = anyio.current_time() + self._limits.idle_s
                data = await self._next(reply)
            if until_done and self._events and self.status == 200 and not reply.done:
                raise upstream.Lost("the stream ended without [DONE]")
            writing = True
            scope.deadline = anyio.current_time() + self._limits.stall_s
            await reply.finish()
        if scope.cancelled_caught:
            if writing:
                raise ConnectionAbortedError("the client takes nothing")
            raise Silent

    async def _next(self, reply: Reply) -> bytes:
        try:
            return await self._answer.read()
        except upstream.Lost:
            if self._events and reply.done:
                # The stream said that it is whole; how its connection ends is no part of it.
                return b""
            raise

    @property
    def fits_stream(self) -> bool:
        """Whether the body can follow an early 200 as it is."""
        return self.status == 200 and self._events

    async def error(self) -> ErrorBody:
        """An answer that does not fit, as an error of ours."""
        if self.status < 400:
            return answers.of(
                Problem(
                    Code.UPSTREAM_ERROR,
                    "The model server did not answer with an event stream; ask without 'stream'.",
                )
            )
        text = b""
        data = await self.first()
        while data and len(text) < _ERROR_BYTES:
            text += data
            data = await self._read(anyio.current_time() + self._limits.idle_s)
        return answers.relayed(self.status, text[:_ERROR_BYTES])

    def close(self) -> None:
        """Give the connection back, or close it where the answer was not read to its end."""
        self._answer.close()

    async def _read(self, deadline: float) -> bytes:
        with anyio.CancelScope(deadline=deadline) as scope:
            return await self._answer.read()
        assert scope.cancelled_caught
        raise Silent
