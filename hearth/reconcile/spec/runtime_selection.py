"""Select the InferenceRuntime that serves a service."""

from collections.abc import Callable, Iterable, Iterator

from hearth.api.llmservice import LLMService
from hearth.api.meta import Manifest
from hearth.api.runtime import InferenceRuntime
from hearth.reconcile.spec import spec_errors
from hearth.reconcile.spec.spec_errors import SpecError

IndexKey = tuple[str, str]
"""`name` or `vendor`, and its value."""


def pick(
    service: LLMService,
    runtimes: Iterable[InferenceRuntime],
    *,
    unreadable: Callable[[str, str], str | None] = lambda group, name: None,
) -> InferenceRuntime:
    """By name; else of the first acceptable vendor that has any, the one of highest priority.

    Only runtimes of the service's own group count; those of another are told apart in the words,
    as is one that is there and cannot be read: `unreadable(group, name)` says why.
    Raises SpecError, naming equals and what there is.
    """
    there = list(runtimes)
    own = {runtime.name: runtime for runtime in there if runtime.group == service.group}
    ref = service.spec.runtime
    name = ref.name if ref is not None else None
    if name:
        if name not in own:
            if (why := unreadable(service.group, name)) is not None:
                raise SpecError(
                    spec_errors.RUNTIME,
                    f"spec.runtime.name: InferenceRuntime {name} cannot be read: {why}",
                )
            raise _error(service, f"spec.runtime.name: {_missing(service, name, there)}", own)
        return own[name]
    if ref is None or ref.selector is None:
        raise _error(service, "spec.runtime chooses none; set spec.runtime.name", own)
    vendors = ref.selector.vendor
    for vendor in vendors:
        candidates = [runtime for runtime in own.values() if runtime.spec.vendor == vendor]
        if candidates:
            return _highest(vendor, candidates)
    problem = (
        f"no InferenceRuntime is of {' or '.join(vendors)}"
        if vendors
        else "list at least one vendor, or set spec.runtime.name"
    )
    raise _error(service, f"spec.runtime.selector.vendor: {problem}", own)


def runtime_index_keys(runtime: Manifest) -> Iterator[IndexKey]:
    """Keys under which a service may ask for this runtime."""
    yield "name", runtime["metadata"]["name"]
    yield "vendor", _text(_part(runtime, "spec").get("vendor"))


def service_index_keys(service: Manifest) -> Iterator[IndexKey]:
    """Keys of runtimes whose change, or deletion, may change what `pick` returns.

    Read from the manifest as it is, for an index: to parse a thousand services for each change of
    a runtime would hold up the event loop.
    """
    ref = _part(_part(service, "spec"), "runtime")
    if name := _text(ref.get("name")):
        yield "name", name
        return
    vendors = _part(ref, "selector").get("vendor")
    for vendor in vendors if isinstance(vendors, list) else ():
        yield "vendor", _text(vendor)
    # A runtime that changed its vendor is found by its name only.
    if resolved := _text(_part(service, "status").get("resolvedRuntime")):
        yield "name", resolved


def _part(manifest: Manifest, field: str) -> Manifest:
    part = manifest.get(field)
    return part if isinstance(part, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _highest(vendor: str, candidates: list[InferenceRuntime]) -> InferenceRuntime:
    top = max(runtime.spec.priority for runtime in candidates)
    best = sorted(
        (r for r in candidates if r.spec.priority == top), key=lambda runtime: runtime.name
    )
    if len(best) > 1:
        names = ", ".join(runtime.name for runtime in best)
        raise SpecError(
            spec_errors.RUNTIME,
            f"spec.runtime.selector: {names} are all of vendor {vendor} with priority {top};"
            " set spec.runtime.name, or give one a higher priority",
        )
    return best[0]


def _missing(service: LLMService, name: str, there: list[InferenceRuntime]) -> str:
    groups = sorted(runtime.group for runtime in there if runtime.name == name)
    if not groups:
        return f"there is no InferenceRuntime {name!r}"
    return (
        f"InferenceRuntime {name} is of {groups[0]}; this service is of {service.group}, and needs"
        " one of its own group: apply that runtime with this apiVersion, too"
    )


def _error(service: LLMService, problem: str, own: dict[str, InferenceRuntime]) -> SpecError:
    names = sorted(own)
    known = (
        f"there is {', '.join(names[:10])}{', …' if names[10:] else ''}"
        if names
        else f"there is no InferenceRuntime of {service.group} yet: apply one"
    )
    return SpecError(spec_errors.RUNTIME, f"{problem} ({known})")
