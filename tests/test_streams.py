"""Streams are counted as h2 counts them, though seldom looked at."""

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.exceptions import TooManyStreamsError
from h2.settings import SettingCodes

from hearth.streams import ManyStreams

HEAD = [(":method", "POST"), (":scheme", "http"), (":path", "/a"), (":authority", "b")]


class Pair:
    """A client and a server that hear each other."""

    def __init__(self, *, limit: int) -> None:
        self.client, self.server = self.ends = [
            H2Connection(H2Configuration(client_side=client)) for client in (True, False)
        ]
        for end in self.ends:
            end.initiate_connection()
            ManyStreams.take_over(end)
        self.server.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: limit})
        self.server.local_settings.acknowledge()
        self._pass_on()

    def begin(self) -> int:
        number = self.client.get_next_available_stream_id()
        self.client.send_headers(number, HEAD)
        self._pass_on()
        return number

    def end(self, number: int) -> None:
        self.client.end_stream(number)
        self._pass_on()
        self.server.send_headers(number, [(":status", "200")], end_stream=True)
        self._pass_on()

    def _pass_on(self) -> None:
        for _ in range(2):
            self.server.receive_data(self.client.data_to_send())
            self.client.receive_data(self.server.data_to_send())


def test_what_has_closed_is_dropped_in_time():
    pair = Pair(limit=20_000)
    for _ in range(200):
        pair.begin()
    most = 0
    for _ in range(1000):
        pair.end(pair.begin())
        most = max(most, *(len(end.streams) for end in pair.ends))
    assert 300 < most <= 2 * 201  # seldom, and never for long


def test_the_limit_is_exact():
    pair = Pair(limit=150)
    first, *_ = [pair.begin() for _ in range(149)]
    for _ in range(300):
        pair.end(pair.begin())
    pair.begin()
    with pytest.raises(TooManyStreamsError):
        pair.begin()
    pair.end(first)
    pair.begin()
