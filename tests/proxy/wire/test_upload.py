"""A big body into one buffer."""

from hearth.proxy.wire.upload import Upload


class Front:
    def __init__(self) -> None:
        self.heard: list[object] = []

    def uploaded(self, data: bytearray) -> None:
        self.heard.append(bytes(data))

    def progressed(self, size_bytes: int) -> None:
        self.heard.append(size_bytes)

    def connection_lost(self, exc) -> None:
        self.heard.append("lost")

    def pause_writing(self) -> None:
        self.heard.append("pause")

    def resume_writing(self) -> None:
        self.heard.append("resume")


def give(upload: Upload, data: bytes) -> None:
    upload.get_buffer(-1)[: len(data)] = data
    upload.buffer_updated(len(data))


def test_it_is_filled_in_place_and_given_back_whole():
    front = Front()
    upload = Upload(front, begun=b"he", size_bytes=5)
    assert len(upload.get_buffer(-1)) == 3
    give(upload, b"l")
    give(upload, b"lo")
    assert front.heard == [3, b"hello"]


def test_what_happens_to_the_connection_is_told():
    front = Front()
    upload = Upload(front, begun=b"", size_bytes=5)
    upload.pause_writing()
    upload.resume_writing()
    assert upload.eof_received() is None
    upload.connection_lost(None)
    assert front.heard == ["pause", "resume", "lost"]
