"""A service's external-push trigger: rendered into its ScaledObject, read back when KEDA calls."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from hearth.api.meta import ServiceKey

METRIC = "pending"
"""Constant, `[a-z0-9-]+`: KEDA puts it into an API path (KEDA prefixes it with `s0-`)."""


class BadTrigger(ValueError):
    """The metadata KEDA sent is not what Hearth writes; the message says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """What GetMetricSpec must know without any cache."""

    target: int
    uid: str = ""
    """Of the LLMService: a re-created one of the same name is another."""
    server_secret: str = ""
    """Secret with the certificate that KEDA is answered with; empty: plaintext."""


def render(trigger: Trigger, *, scaler_address: str) -> dict[str, str]:
    """The trigger's `metadata`, as KEDA requires it: strings only."""
    # KEDA before 2.17 knows no enableTLS: there the client's certificate alone switches TLS on.
    tls = {"enableTLS": "true", "serverSecretName": trigger.server_secret}
    return {
        "scalerAddress": scaler_address,
        "metricName": METRIC,
        "targetValue": str(trigger.target),
        "serviceUID": trigger.uid,
        **(tls if trigger.server_secret else {}),
    }


def read(metadata: Mapping[str, str]) -> Trigger:
    """The inverse of `render`; raises BadTrigger."""
    text = metadata.get("targetValue", "")
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) < 1:
        raise BadTrigger(f"targetValue must be a whole number of at least 1, not {text[:20]!r}")
    return Trigger(
        target=int(text),
        uid=metadata.get("serviceUID", ""),
        server_secret=metadata.get("serverSecretName", ""),
    )


def key(*, namespace: str, name: str) -> ServiceKey:
    """A ScaledObject bears the namespace and name of its LLMService."""
    return ServiceKey(namespace, name)
