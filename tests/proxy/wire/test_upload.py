"""A big body into one buffer."""

from hearth.proxy.wire.upload import FIRST_BYTES, GROWTH, Upload


class Front:
    def __init__(self) -> None:
        self.heard: list[object] = []
        self.room = True

    def makes_room(self, size_bytes: int) -> bool:
        self.heard.append(f"room for {size_bytes}")
        return self.room

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


def test_its_buffer_grows_as_it_is_filled():
    front = Front()
    size = 33 * FIRST_BYTES
    upload = Upload(front, begun=b"", size_bytes=size)
    assert upload.room_bytes == FIRST_BYTES
    parts = [bytes((number,)) * FIRST_BYTES for number in range(33)]
    for part in parts:
        give(upload, part)
    have = [n * FIRST_BYTES for n in range(1, 33)]
    asked = [f"room for {n * FIRST_BYTES}" for n in (GROWTH, 33)]
    assert front.heard == [asked[0], *have[:31], asked[1], have[31], b"".join(parts)]
    assert Upload(front, begun=b"x" * 2 * FIRST_BYTES, size_bytes=size).room_bytes == (
        4 * FIRST_BYTES
    )


def test_it_takes_no_more_where_there_is_no_room():
    front = Front()
    front.room = False
    upload = Upload(front, begun=b"", size_bytes=5 * FIRST_BYTES)
    give(upload, b"x" * FIRST_BYTES)
    assert front.heard == [f"room for {5 * FIRST_BYTES}"]
    assert upload.room_bytes == FIRST_BYTES


def test_what_happens_to_the_connection_is_told():
    front = Front()
    upload = Upload(front, begun=b"", size_bytes=5)
    upload.pause_writing()
    upload.resume_writing()
    assert upload.eof_received() is None
    upload.connection_lost(None)
    assert front.heard == ["pause", "resume", "lost"]
