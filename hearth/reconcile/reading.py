"""Read an LLMService that a cluster holds: nothing in it makes Hearth fail."""

from pydantic import ValidationError

from hearth.api.llmservice import LLMService
from hearth.api.meta import Manifest, spelled
from hearth.reconcile import refusal
from hearth.routes import Refusal


def read(manifest: Manifest) -> tuple[LLMService, Refusal | None]:
    """The service; one that cannot be read keeps its name, and is refused."""
    try:
        return LLMService.model_validate(manifest), None
    except ValidationError as error:
        first = error.errors()[0]
        field = spelled(first["loc"])
        bare = {**manifest, "spec": {"model": {}}}
        return LLMService.model_validate(bare), Refusal(
            reason=refusal.RENDER, message=f"{field}: {first['msg']}"
        )
