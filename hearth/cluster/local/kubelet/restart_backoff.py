"""How long to wait before a container is started again."""


class Backoff:
    """Kubernetes' restart back-off: none at first, then `base_s`, doubling up to `cap_s`.

    A container that stayed up for twice `cap_s` begins anew.
    """

    def __init__(self, *, base_s: float, cap_s: float) -> None:
        self._base_s = base_s
        self._cap_s = cap_s
        self._pause_s = 0.0

    def pause_s(self, *, ran_s: float) -> float:
        """Seconds to wait after a container that ran for `ran_s` ended."""
        pause_s = 0.0 if ran_s > 2 * self._cap_s else self._pause_s
        self._pause_s = min(self._cap_s, pause_s * 2) if pause_s else self._base_s
        return pause_s
