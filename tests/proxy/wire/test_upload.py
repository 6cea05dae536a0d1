"""A big body into one buffer."""

import pytest

from hearth.proxy.wire.upload import FIRST_BYTES, LargeBodyReader


class Front:
    def __init__(self) -> None:
        self.heard: list[object] = []
        self.give = "at_best"

    def room(self, **sizes: int) -> int:
        self.heard.append(sizes)
        return sizes.get(self.give, 0)

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


def give(upload: LargeBodyReader, data: bytes) -> None:
    upload.get_buffer(-1)[: len(data)] = data
    upload.buffer_updated(len(data))


def test_it_is_filled_in_place_and_given_back_whole():
    front = Front()
    upload = LargeBodyReader(front, begun=b"he", size_bytes=5)
    assert len(upload.get_buffer(-1)) == 3
    give(upload, b"l")
    give(upload, b"lo")
    assert front.heard == [3, b"hello"]


@pytest.mark.parametrize(
    ("give_it", "sizes"), [("at_best", [1, 33]), ("at_least", [1, 2, 4, 8, 16, 32, 33])]
)
def test_its_buffer_grows_as_it_is_filled(give_it, sizes):
    front = Front()
    front.give = give_it
    upload = LargeBodyReader(front, begun=b"", size_bytes=33 * FIRST_BYTES)
    parts = [bytes((number,)) * FIRST_BYTES for number in range(33)]
    rooms = []
    for part in parts:
        rooms.append(upload.room_bytes // FIRST_BYTES)
        give(upload, part)
    assert sorted(set(rooms)) == sizes
    assert front.heard[-1] == b"".join(parts)
    asked = [heard for heard in front.heard if isinstance(heard, dict)]
    assert len(asked) == len(sizes) - 1
    assert asked[0] == {"at_least": 2 * FIRST_BYTES, "at_best": 33 * FIRST_BYTES}
    assert {one["at_best"] for one in asked} == {33 * FIRST_BYTES}


def test_it_begins_with_room_for_what_is_here():
    begun = b"x" * 2 * FIRST_BYTES
    assert (
        LargeBodyReader(Front(), begun=begun, size_bytes=9 * FIRST_BYTES).room_bytes
        == 4 * FIRST_BYTES
    )


def test_it_takes_no_more_where_there_is_no_room():
    front = Front()
    front.give = "nothing"
    upload = LargeBodyReader(front, begun=b"", size_bytes=5 * FIRST_BYTES)
    give(upload, b"x" * FIRST_BYTES)
    assert front.heard == [{"at_least": 2 * FIRST_BYTES, "at_best": 5 * FIRST_BYTES}]
    assert upload.room_bytes == FIRST_BYTES


def test_what_happens_to_the_connection_is_told():
    front = Front()
    upload = LargeBodyReader(front, begun=b"", size_bytes=5)
    upload.pause_writing()
    upload.resume_writing()
    upload.eof_received()
    upload.connection_lost(None)
    assert front.heard == ["pause", "resume", "lost"]
