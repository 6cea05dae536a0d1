"""A spec that cannot be served, as an exception on its way to the condition that reports it."""

from hearth import routes

MODEL = "ModelResolution"
RUNTIME = "RuntimeResolution"
RENDER = "Render"
SCALED_OBJECT = "ScaledObject"
NAME_TAKEN = "NameTaken"
NOT_OWNED = "NotOwned"
"""An object of the name that Hearth would write is there, and is not this service's."""
CLAIM_CHANGED = "ClaimChanged"
"""What the spec wants of a claim that is written once is not what was written."""

API_KEY_UNAVAILABLE = "APIKeyUnavailable"
"""No rejection: what runs runs on, but nobody's key can be checked."""

CRD_OUTDATED = "CRDOutdated"
"""The cluster drops a field that says who may use a service."""


RETRY_S = 60.0
"""When to look again at what the cluster refuses, or where somebody else's object is in the way:
nothing tells that either is over."""


class SpecError(Exception):
    """What runs goes on running; status says why, and nothing is tried again until a change."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.rejection = routes.SpecRejection(reason=reason, message=message)
