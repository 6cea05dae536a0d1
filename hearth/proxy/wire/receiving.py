"""A client connection as far as it takes in the bodies of requests."""

import asyncio
from abc import abstractmethod

from hearth.proxy.body.body_budget import BufferedBody
from hearth.proxy.errors import GatewayError
from hearth.proxy.wire.lingering import Lingering
from hearth.proxy.wire.request_body import RequestBody
from hearth.proxy.wire.shared import Shared
from hearth.proxy.wire.upload import BIG_BYTES, LargeBodyReader


class Receiving(Lingering):
    """Has the bytes that were read and not yet understood."""

    __slots__ = ("body", "buffer")

    def __init__(self, parts: Shared) -> None:
        super().__init__(parts)
        self.buffer = b""
        self.body: RequestBody | None = None
        """The body that is being taken in."""

    @abstractmethod
    def whole(self, held: BufferedBody) -> None:
        """The body is here; what follows it is in the buffer."""

    @abstractmethod
    def refuse(self, problem: GatewayError) -> None:
        """The body is not wanted, or not well-formed."""

    @abstractmethod
    def advance(self) -> None:
        """Understand what is in the buffer."""

    def take_body(self) -> bool:
        """Take what is in the buffer; whether that was the rest of the body."""
        intake = self.body
        if intake is None:
            return False
        if not intake.done:
            try:
                self.buffer = intake.feed(self.buffer)
            except GatewayError as problem:
                self.refuse(problem)
                return False
        if intake.done:
            self.body = None
            self.whole(intake.buffered)
            return True
        have = len(self.buffer)
        if intake.sized and intake.size - have > BIG_BYTES and self.transport is not None:
            upload = LargeBodyReader(self, begun=self.buffer, size_bytes=intake.size)
            room = upload.room_bytes
            if not self.room(at_least=room, at_best=room):
                return False
            self.buffer = b""
            self.transport.set_protocol(upload)
        self.progressed(have)
        return False

    def room(self, *, at_least: int, at_best: int) -> int:
        """How many bytes a big body may take in memory; 0: its request is refused."""
        if self.body is None:
            return 0
        size = at_best if self.parts.budget.has_ample_room(at_best) else at_least
        try:
            self.body.buffered.grow(size)
        except GatewayError as problem:
            self.refuse(problem)
            return 0
        return size

    def uploaded(self, data: bytearray) -> None:
        """A big body is whole."""
        if self.transport is not None and self.body is not None:
            self.transport.set_protocol(self)
            self.body.fill(data)
            self.advance()

    def progressed(self, size_bytes: int) -> None:
        """So much of it is here: the client may go on for a while."""
        if self.body is not None:
            self.deadline = self.body.deadline(self.parts.deadlines.time(), have=size_bytes)

    def detach(self) -> asyncio.Transport | None:
        self.drop()
        return super().detach()

    def linger(self) -> None:
        self.drop()
        super().linger()

    def drop(self) -> None:
        """Nothing that was read is needed."""
        self.buffer = b""
        self.drop_intake()

    def drop_intake(self) -> None:
        """The body is not needed."""
        intake, self.body = self.body, None
        if intake is not None:
            intake.buffered.drop()
            if self.transport is not None:
                # A big body had it.
                self.transport.set_protocol(self)
