"""What `hearth local` tells the person at the terminal: addresses, models, and what changes."""

import re
import time
from collections.abc import Callable

from hearth.api.meta import ServiceKey
from hearth.routes import ProbeResult, Route, RouteTable

_WORDS = {
    "Pending": "wanted, starting",
    "Loading": "loading",
    "Ready": "ready",
    "ScaledToZero": "asleep",
    "Degraded": "degraded",
}
_RESTART = re.compile(r"container \S+ was restarted (once|[0-9]+ times)")
_ERROR = re.compile(r"error|exception|fatal|panic", re.IGNORECASE)


class Console:
    """Writes one line for each change of a model's state, in the order they happen."""

    def __init__(self, routes: RouteTable, write: Callable[[str], None]) -> None:
        self._routes = routes
        self._write = write
        self._shown: dict[ServiceKey, str] = {}
        self._warned: dict[ServiceKey, tuple[str, ...]] = {}

    def opening(self, *, gateway: str, admin: str, logs: str) -> None:
        """The addresses a person needs, once everything listens."""
        self._write(f"Hearth is up.  Gateway  {gateway}/v1")
        self._write(f"               Status   {admin}/")
        self._write(f"               Logs     {logs}")

    def nothing(self) -> None:
        """No model was found; what is wrong with files was told before."""
        self._line("no model to serve yet: put an LLMService into these files, they are watched")

    def report(self, line: str) -> None:
        """Something about a manifest that its author should read."""
        self._line(line)

    def changed(self, key: ServiceKey) -> None:
        """A listener of the route table."""
        route = self._routes.find(key)
        if route is None:
            self._warned.pop(key, None)
            if self._shown.pop(key, None) is not None:
                self._line(f"{key}  removed")
            return
        probe = self._routes.settled_probe(key)
        text = state(route, usable=len(self._routes.endpoints(key)), probe=probe)
        # Between two restarts it waits, which is another state of the same failure.
        restart = _RESTART.search(text)
        what = restart[0] if restart else text
        if self._shown.get(key) != what:
            self._shown[key] = what
            self._line(f"{key}  {text}")
        for sentence in route.warnings:
            if sentence not in self._warned.get(key, ()):
                self._line(f"{key}  warning: {brief(sentence)}")
        self._warned[key] = route.warnings

    def _line(self, text: str) -> None:
        self._write(f"{time.strftime('%H:%M:%S')}  {text}")


def state(route: Route, *, usable: int, probe: ProbeResult | None = None) -> str:
    """One phrase: what the model is doing, and why where that is not plain."""
    reason = route.failure or route.rejection
    if reason is not None:
        serving = f", {usable} still serving" if usable else ""
        return f"{_WORDS['Degraded']}: {reason.reason}{serving}: {brief(reason.message)}"
    if usable and route.phase != "Degraded":
        return "ready" if usable == 1 else f"ready, {usable} replicas"
    if route.delay is not None:
        return f"waiting: {route.delay.reason}: {brief(route.delay.message)}"
    word = _WORDS.get(route.phase, route.phase)
    # What an engine says while it loads is no news; that it does not know the request is.
    return f"{word}: {probe.words}" if probe is not None and probe.final else word


def brief(message: str) -> str:
    """One line: of the log that a failure ends with, only the last line that tells of an error.

    The whole log is in its file.
    """
    what, _, log = message.partition(": ")
    lines = [" ".join(line.split()) for line in log.splitlines()]
    if len(lines) < 2:
        return " ".join(message.split())
    words = [line for line in lines if any(map(str.isalpha, line))]
    errors = [line for line in words if _ERROR.search(line)]
    return f"{what}: {(errors or words or lines)[-1]}"
