"""Pick the InferenceRuntime that serves a service."""

from collections.abc import Iterable

from hearth.api.llmservice import LLMService
from hearth.api.runtime import InferenceRuntime
from hearth.reconcile import refusal
from hearth.reconcile.refusal import Refused


def pick(service: LLMService, runtimes: Iterable[InferenceRuntime]) -> InferenceRuntime:
    """By name; else of the first acceptable vendor that has any, the one of highest priority.

    Only runtimes of the service's own group count.  Raises Refused, naming equals and what there
    is.
    """
    own = {runtime.name: runtime for runtime in runtimes if runtime.group == service.group}
    wanted = service.spec.runtime
    if wanted is None or (wanted.name is None and wanted.selector is None):
        raise _refused("spec.runtime chooses none; set spec.runtime.name", own)
    if wanted.name is not None:
        if wanted.name not in own:
            raise _refused(f"spec.runtime.name: there is no InferenceRuntime {wanted.name!r}", own)
        return own[wanted.name]
    vendors = wanted.selector.vendor if wanted.selector else []
    for vendor in vendors:
        found = [runtime for runtime in own.values() if runtime.spec.vendor == vendor]
        if found:
            return _highest(vendor, found)
    raise _refused(
        f"spec.runtime.selector.vendor: no InferenceRuntime is of {' or '.join(vendors) or 'none'}",
        own,
    )


def uses(service: LLMService, runtime: InferenceRuntime) -> bool:
    """Whether a change of this runtime (or its end) may change what `pick` answers."""
    wanted = service.spec.runtime
    if wanted is None or runtime.group != service.group:
        return False
    if wanted.name is not None:
        return wanted.name == runtime.name
    # One that changed its vendor is no longer told by it: who resolved to it must look again.
    vendors = wanted.selector.vendor if wanted.selector else []
    return runtime.spec.vendor in vendors or service.status.resolved_runtime == runtime.name


def _highest(vendor: str, found: list[InferenceRuntime]) -> InferenceRuntime:
    top = max(runtime.spec.priority for runtime in found)
    best = sorted((r for r in found if r.spec.priority == top), key=lambda runtime: runtime.name)
    if len(best) > 1:
        names = ", ".join(runtime.name for runtime in best)
        raise Refused(
            refusal.RUNTIME,
            f"spec.runtime.selector: {names} are all of vendor {vendor} with priority {top};"
            " set spec.runtime.name, or give one a higher priority",
        )
    return best[0]


def _refused(problem: str, own: dict[str, InferenceRuntime]) -> Refused:
    known = ", ".join(sorted(own)[:10]) or "none"
    return Refused(refusal.RUNTIME, f"{problem} (there is {known})")
