"""An autoscaler's own word on its triggers."""

import pytest

from hearth.cluster.autoscaler import status
from hearth.cluster.autoscaler.status import READY, Ready


@pytest.mark.parametrize(
    ("active", "failure", "expected"),
    [
        (True, "", READY),
        (False, "", READY),
        (True, "why", Ready("Unknown", "PartialTriggerError", "why")),
        (False, "why", Ready("False", "TriggerError", "why")),
    ],
)
def test_ready(active, failure, expected):
    assert status.ready(active=active, failure=failure) == expected
