"""A transport that remembers, for protocols without a socket."""


class Transport:
    """What a protocol did to it, in order."""

    def __init__(self) -> None:
        self.sent = b""
        self.did: list[str] = []
        self.protocol: object = None
        self.closing = False

    def write(self, data: bytes) -> None:
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

    def set_protocol(self, protocol: object) -> None:
        self.protocol = protocol

    def get_extra_info(self, name: str):
        return ("10.0.0.9", 1) if name == "peername" else None
