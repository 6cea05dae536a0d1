"""What Hearth writes into a trigger is what it reads back."""

import pytest

from hearth import trigger
from hearth.api.meta import ServiceKey


@pytest.mark.parametrize("server_secret", ["", "chat-tls"])
def test_round_trip(server_secret):
    wanted = trigger.Trigger(target=7, uid="u-1", server_secret=server_secret)
    metadata = trigger.render(wanted, scaler_address="hearth-scaler.hearth.svc:9090")
    assert metadata["scalerAddress"] == "hearth-scaler.hearth.svc:9090"
    assert all(isinstance(value, str) for value in metadata.values())
    assert metadata.get("enableTLS") == ("true" if server_secret else None)
    assert trigger.read(metadata) == wanted
    assert trigger.key(namespace="ai", name="chat") == ServiceKey("ai", "chat")


@pytest.mark.parametrize("target", [None, "", "0", "-1", "1.5", "ten"])
def test_bad_target_is_named(target):
    metadata = {} if target is None else {"targetValue": target}
    with pytest.raises(trigger.BadTrigger, match="targetValue must be a whole number"):
        trigger.read(metadata)
