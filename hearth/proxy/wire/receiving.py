"""A client connection as far as it takes in the bodies of requests."""

import asyncio
from abc import abstractmethod

from hearth.proxy.body.body_budget import BufferedBody
from hearth.proxy.errors import GatewayError
from hearth.proxy.wire.intake import Intake
from hearth.proxy.wire.lingering import Lingering
from hearth.proxy.wire.parts import Parts
from hearth.proxy.wire.upload import BIG_BYTES, Upload


class Receiving(Lingering):
    """Has the bytes that were read and not yet understood."""

    __slots__ = ("buffer", "intake")

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.buffer = b""
        self.intake: Intake | None = None
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
        intake = self.intake
        if intake is None:
            return False
        if not intake.done:
            try:
                self.buffer = intake.take(self.buffer)
            except GatewayError as problem:
                self.refuse(problem)
                return False
        if intake.done:
            self.intake = None
            self.whole(intake.held)
            return True
        have = len(self.buffer)
        if intake.sized and intake.size - have > BIG_BYTES and self.transport is not None:
            upload = Upload(self, begun=self.buffer, size_bytes=intake.size)
            room = upload.room_bytes
            if not self.room(at_least=room, at_best=room):
                return False
            self.buffer = b""
            self.transport.set_protocol(upload)
        self.progressed(have)
        return False

    def room(self, *, at_least: int, at_best: int) -> int:
        """How many bytes a big body may take in memory; 0: its request is refused."""
        if self.intake is None:
            return 0
        size = at_best if self.parts.budget.has_ample_room(at_best) else at_least
        try:
            self.intake.held.grow(size)
        except GatewayError as problem:
            self.refuse(problem)
            return 0
        return size

    def uploaded(self, data: bytearray) -> None:
        """A big body is whole."""
        if self.transport is not None and self.intake is not None:
            self.transport.set_protocol(self)
            self.intake.fill(data)
            self.advance()

    def progressed(self, size_bytes: int) -> None:
        """So much of it is here: the client may go on for a while."""
        if self.intake is not None:
            self.due = self.intake.due(self.parts.sweep.time(), have=size_bytes)

    def let_go(self) -> asyncio.Transport | None:
        self.drop()
        return super().let_go()

    def linger(self) -> None:
        self.drop()
        super().linger()

    def drop(self) -> None:
        """Nothing that was read is needed."""
        self.buffer = b""
        self.drop_intake()

    def drop_intake(self) -> None:
        """The body is not needed."""
        intake, self.intake = self.intake, None
        if intake is not None:
            intake.held.drop()
            if self.transport is not None:
                # A big body had it.
                self.transport.set_protocol(self)
