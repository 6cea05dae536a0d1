"""A transport that remembers, for protocols without a socket."""

import asyncio
import struct
from typing import Any


class Kernel:
    """A socket that answers `TCP_INFO` as Linux does."""

    def __init__(self, *, sent: int, acked: int, size: int = 256) -> None:
        self.sent, self.acked, self.size = sent, acked, size

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        info = bytearray(256)
        struct.pack_into("=Q", info, 120, self.acked + 1)
        struct.pack_into("=QQ", info, 200, self.sent + 7, 7)
        return bytes(info[: min(size, self.size)])


class Transport(asyncio.Transport):
    """What a protocol did to it, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.did: list[str] = []
        self.protocol: asyncio.BaseProtocol | None = None
        self.closing = False
        self.kernel: Kernel | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data

    def write_eof(self) -> None:
        self.did.append("eof")

    def close(self) -> None:
        self.closing = True
        self.did.append("close")

    def abort(self) -> None:
        self.closing = True
        self.did.append("abort")

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self.did.append("pause")

    def resume_reading(self) -> None:
        self.did.append("resume")

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "socket":
            return self.kernel
        return ("10.0.0.9", 1) if name == "peername" else None
