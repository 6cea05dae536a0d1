"""Nothing happens: Hearth writes nothing but its Lease."""

import json
from collections import Counter
from pathlib import Path

import anyio
import pytest

from hearth.api.meta import ServiceKey
from tests.conftest import require
from tests.kubernetes.release import HOME, NAME, service, stub
from tests.kubernetes.world import variable

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("keda")]

QUIET_S = float(variable("HEARTH_TEST_QUIET_S") or 60)
READS = ("get", "list", "watch")


@pytest.fixture
def audit():
    """The lines that the API server's audit log gets from here on, when they are asked for."""
    log = Path(variable("HEARTH_TEST_AUDIT"))
    require("audit", log.is_file(), "HEARTH_TEST_AUDIT names the API server's audit log")
    with log.open() as lines:
        yield lines


async def test_in_quiet_minutes_only_the_lease_is_written(hearth, world, namespace, audit):
    asleep, awake = ServiceKey(namespace, "asleep"), ServiceKey(namespace, "awake")
    await world.apply(
        stub("quiet"),
        service("asleep", namespace, runtime="quiet"),
        service("awake", namespace, runtime="quiet", min=1),
    )
    await hearth.settled(asleep)
    await hearth.phase(awake, "Ready")
    assert await hearth.answer(asleep) == "one two three"
    await hearth.asleep(asleep)
    audit.seek(0, 2)
    await anyio.sleep(QUIET_S)
    entries = [json.loads(line) for line in audit if line.endswith("\n")]
    mine = [
        entry
        for entry in entries
        if entry["user"]["username"] == f"system:serviceaccount:{HOME}:{NAME}"
    ]
    written = Counter(
        (entry["verb"], entry["objectRef"]["resource"])
        for entry in mine
        if entry["verb"] not in READS
    )
    assert set(written) == {("update", "leases")}
    # Neither does it look: what it wants to know it is told.
    asked = {entry["objectRef"]["resource"] for entry in mine if entry["verb"] in ("get", "list")}
    assert asked <= {"leases"}
