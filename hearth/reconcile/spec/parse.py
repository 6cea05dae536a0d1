"""Parse LLMServices and check the API's rules: no manifest makes Hearth fail."""

from dataclasses import dataclass

from pydantic import ValidationError

from hearth.api import rules, schema, validation_messages
from hearth.api.llmservice import Authentication, LLMService
from hearth.api.meta import Manifest, format_path
from hearth.api.rules import Broken
from hearth.api.runtime import InferenceRuntime
from hearth.reconcile.spec import spec_errors
from hearth.routes import SpecRejection

_NO_NAME = "-"
"""What no Secret can be called."""


@dataclass(frozen=True, slots=True)
class ParsedService:
    """An LLMService as far as it can be read, and what is wrong with it by itself."""

    service: LLMService
    rejection: SpecRejection | None = None
    readable: bool = True
    """Else the service has its name and its API key, and the rest is that of an empty spec."""


def parse(manifest: Manifest) -> ParsedService:
    """Raises nothing: a broken rule, or a field that cannot be read, becomes the rejection."""
    try:
        service = LLMService.model_validate(manifest)
    except ValidationError as error:
        message = unreadable(error)
        bare = {
            **manifest,
            "spec": {"model": {}, "endpoint": _authentication(manifest.get("spec"))},
        }
        return ParsedService(
            LLMService.model_validate(bare),
            SpecRejection(reason=spec_errors.RENDER, message=message),
            readable=False,
        )
    for broken in _broken_rules(manifest):
        return ParsedService(service, SpecRejection(reason=_reason(broken), message=str(broken)))
    return ParsedService(service)


def unreadable(error: ValidationError) -> str:
    """The first thing that keeps a stored object from being read: its field, and what to write."""
    first = error.errors(include_url=False)[0]
    # pydantic marks a wrong key of a dict by one more step.
    path = tuple(step for step in first["loc"] if step != "[key]")
    return f"{format_path(path)}: {validation_messages.message(first, fields=())}"


def runtime_rejection(runtime: InferenceRuntime) -> SpecRejection | None:
    """The first rule that an InferenceRuntime breaks, as the services that use it are told."""
    manifest = {**runtime.manifest(), "apiVersion": runtime.api_version, "kind": runtime.kind}
    for broken in _broken_rules(manifest):
        message = f"InferenceRuntime {runtime.name}: {broken}"
        return SpecRejection(reason=spec_errors.RENDER, message=message)
    return None


def _broken_rules(manifest: Manifest) -> list[Broken]:
    """An API server holds objects to the rules, unless its CRDs are older than they are."""
    group = manifest["apiVersion"].partition("/")[0]
    structure = schema.of(manifest["kind"], group)
    return rules.broken(schema.with_defaults({**manifest, "status": {}}, structure))


def _reason(broken: Broken) -> str:
    match broken.path[:2]:
        case ("spec", "model"):
            return spec_errors.MODEL
        case ("spec", "runtime"):
            return spec_errors.RUNTIME
        case ("spec", "scaling"):
            return spec_errors.SCALED_OBJECT
        case _:
            return spec_errors.RENDER


def _authentication(spec: object) -> Manifest:
    """The API key of a spec that cannot be read: no mistake must open what runs to all clients."""
    endpoint = spec.get("endpoint") if isinstance(spec, dict) else None
    authentication = endpoint.get("authentication") if isinstance(endpoint, dict) else endpoint
    if authentication is None:
        return {}
    try:
        Authentication.model_validate(authentication)
    except ValidationError:
        authentication = {"secretRef": {"name": _NO_NAME, "key": _NO_NAME}}
    return {"authentication": authentication}
