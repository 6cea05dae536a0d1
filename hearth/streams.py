"""An HTTP/2 connection with thousands of open streams, at no more cost a call than with one."""

from h2.connection import H2Connection

_FEW = 128


class ManyStreams(H2Connection):
    """h2's connection, which does not look at every stream whenever a new one begins.

    h2 does, to count those that are open and to drop those that are not: with a thousand services,
    two open streams each, that took longer than all else about a call.  Here closed streams stay
    until they are as many as the open ones, and count as open; near the peer's limit, or ours,
    h2's own count is taken.
    """

    _sweep_at = _FEW

    @classmethod
    def take_over(cls, connection: H2Connection) -> None:
        """Make one of a connection that grpclib has made: it offers no choice of the class."""
        connection.__class__ = cls

    def _open_streams(self, remainder: int) -> int:
        ours = remainder == int(self.config.client_side)  # clients count from 1, servers from 2
        limits = self.remote_settings if ours else self.local_settings
        known = len(self.streams)
        if known < min(self._sweep_at, limits.max_concurrent_streams):
            return known
        count: int = super()._open_streams(remainder)
        self._sweep_at = max(_FEW, 2 * len(self.streams))
        return count
