"""A spec that cannot be served, as an exception, and the condition reasons that it may have."""

from hearth import routes

MODEL = "ModelResolution"
RUNTIME = "RuntimeResolution"
RENDER = "Render"
SCALED_OBJECT = "ScaledObject"
NAME_TAKEN = "NameTaken"
NOT_OWNED = "NotOwned"
"""An object with a name that Hearth would write exists, and is not this service's."""
CLAIM_CHANGED = "ClaimChanged"
"""A PVC is written once, and the spec has changed since."""
PREWARM = "Prewarm"
"""Weights cannot be fetched before an engine starts, as the spec asks for."""
PREWARM_CHANGED = "PrewarmChanged"
"""A Job that fetches weights is written once, and the spec has changed since."""

API_KEY_UNAVAILABLE = "APIKeyUnavailable"
"""No rejection: what runs goes on running, but no key can be checked."""

CRD_OUTDATED = "CRDOutdated"
"""The cluster drops a field that says who may use a service."""


RETRY_S = 60.0
"""Requeue time of what the cluster rejects, or where another object has the name: no watch event
tells that either is over."""


class SpecError(Exception):
    """What runs goes on running; the status has the reason, and only a change leads to a retry."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.rejection = routes.SpecRejection(reason=reason, message=message)
