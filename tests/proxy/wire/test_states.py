"""What a callback raises stays in it."""

import pytest

from hearth.api.meta import ServiceKey
from hearth.proxy.errors import ErrorCode, GatewayError
from hearth.proxy.wire.states import ExchangeState, guarded


class Thing:
    def __init__(self) -> None:
        self.state = ExchangeState.NEW
        self.key = ServiceKey("ai", "chat")
        self.heard: list[object] = []

    def fail(self, problem: GatewayError) -> None:
        self.heard.append(problem.code)

    def failed(self) -> None:
        self.heard.append("failed")

    @guarded
    def act(self, error: Exception | None = None) -> None:
        self.heard.append("act")
        if error is not None:
            raise error


@pytest.mark.parametrize(
    ("error", "heard"),
    [
        (None, ["act"]),
        (GatewayError(ErrorCode.QUEUE_FULL, "m"), ["act", ErrorCode.QUEUE_FULL]),
        (ValueError("x"), ["act", "failed"]),
    ],
)
def test_what_is_raised_ends_the_request(error, heard):
    thing = Thing()
    thing.act(error)
    assert thing.heard == heard


def test_nothing_happens_to_a_request_that_is_over():
    thing = Thing()
    thing.state = ExchangeState.DONE
    thing.act(ValueError("x"))
    assert thing.heard == []
