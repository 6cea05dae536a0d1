"""Read an LLMService that a cluster holds: nothing in it makes Hearth fail."""

from pydantic import ValidationError

from hearth.api.llmservice import Authentication, LLMService
from hearth.api.meta import Manifest, format_path
from hearth.reconcile.spec import spec_errors
from hearth.routes import SpecRejection

_NO_NAME = "-"
"""What no Secret can be called."""


def parse(manifest: Manifest) -> tuple[LLMService, SpecRejection | None]:
    """The service; one that cannot be read keeps its name and its API key, and is refused."""
    try:
        return LLMService.model_validate(manifest), None
    except ValidationError as error:
        first = error.errors()[0]
        field = format_path(first["loc"])
        bare = {
            **manifest,
            "spec": {"model": {}, "endpoint": _authentication(manifest.get("spec"))},
        }
        return LLMService.model_validate(bare), SpecRejection(
            reason=spec_errors.RENDER, message=f"{field}: {first['msg']}"
        )


def _authentication(spec: object) -> Manifest:
    """Who may ask: what runs must not be open to all for a mistake elsewhere, nor for one here."""
    endpoint = spec.get("endpoint") if isinstance(spec, dict) else None
    said = endpoint.get("authentication") if isinstance(endpoint, dict) else endpoint
    if said is None:
        return {}
    try:
        Authentication.model_validate(said)
    except ValidationError:
        said = {"secretRef": {"name": _NO_NAME, "key": _NO_NAME}}
    return {"authentication": said}
