"""Names of derived objects are legal and stable."""

import re

from hearth import names
from hearth.api import rules
from hearth.api.meta import ServiceKey

LABEL = re.compile(r"^[a-z]([-a-z0-9]*[a-z0-9])?$")
DERIVED = (
    names.deployment, names.backend_service, names.gateway_service, names.scaler_service,
    names.scaled_object, names.cache_pvc, names.prewarm_job,
)  # fmt: skip


def test_longest_name_leaves_room_for_every_derived_one():
    key = ServiceKey("ai", "a" * rules.MAX_NAME)
    for derive in DERIVED:
        assert LABEL.match(derive(key)) and len(derive(key)) <= 63
    assert len(f"keda-hpa-{names.scaled_object(key)}") <= 63


def test_derived_names_are_fixed_for_ever():
    key = ServiceKey("ai", "chat")
    assert [derive(key) for derive in DERIVED] == [
        "chat", "chat-backend", "chat", "chat-scaler", "chat", "chat-cache",
        "chat-prewarm",
    ]  # fmt: skip
    assert names.endpoint_url(key) == "http://chat.ai.svc/v1"
    assert names.release_gateway("hearth") == "hearth-gateway"
    assert names.release_scaler("hearth") == "hearth-scaler"
    assert names.release_admin("hearth") == "hearth-admin"


def test_label_values_stay_legal_and_distinct():
    assert names.label_value("vllm") == "vllm"
    long = [names.label_value("r" * 80 + end) for end in "ab"]
    assert all(len(value) <= 63 for value in long) and len(set(long)) == 2
    assert names.label_value("a" * 53 + "." + "b" * 30).count("..") == 0


def test_the_runtime_is_a_label_but_selects_nothing():
    key = ServiceKey("ai", "chat")
    assert names.labels(key, runtime="vllm").items() >= names.selector(key).items()
    assert names.RUNTIME_LABEL not in names.selector(key)
    assert names.RUNTIME_LABEL not in names.labels(key)


def test_pods_that_fetch_weights_are_no_backend():
    key = ServiceKey("ai", "chat")
    assert names.SERVICE_LABEL not in names.prewarm_labels(key)
    assert names.prewarm_labels(key)[names.PREWARM_LABEL] == "chat"
