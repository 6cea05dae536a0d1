"""The models a caller may use, as OpenAI's clients read them."""

from collections.abc import Iterable
from typing import assert_never

import msgspec

from hearth.api.meta import ServiceKey
from hearth.proxy.routing.hosts import Everything, Namespace, OneService, Scope
from hearth.routes import Route


def find(model: str, scope: Scope, *, default_namespace: str) -> ServiceKey | None:
    """The service that `model` names under `scope`; None where it can name none."""
    match scope:
        case OneService(key):
            return key
        case Namespace(namespace):
            return ServiceKey(namespace, model)
        case Everything():
            namespace, slash, name = model.partition("/")
            if slash:
                return ServiceKey(namespace, name)
            return ServiceKey(default_namespace, model) if default_namespace else None
        case never:
            assert_never(never)


def id_of(key: ServiceKey, scope: Scope, *, default_namespace: str) -> str:
    """The inverse: what to send as `model`."""
    if isinstance(scope, Everything) and key.namespace != default_namespace:
        return str(key)
    return key.name


def within(scope: Scope, routes: Iterable[Route]) -> list[Route]:
    """The services of a scope, by name."""
    return sorted((r for r in routes if _covers(scope, r.key)), key=lambda r: r.key)


def _covers(scope: Scope, key: ServiceKey) -> bool:
    match scope:
        case OneService(only):
            return key == only
        case Namespace(namespace):
            return key.namespace == namespace
        case Everything():
            return True
        case never:
            assert_never(never)


def model_object(
    route: Route, model: str, *, max_model_len: int | None = None
) -> dict[str, object]:
    """One model object; `state` is the service's phase, `max_model_len` what its engine told.

    What else engines tell stays out: paths on their disks, and who they think owns the model.
    """
    told = {} if max_model_len is None else {"max_model_len": max_model_len}
    return {
        "id": model,
        "object": "model",
        "created": route.created,
        "owned_by": route.key.namespace,
        "state": route.phase,
        **told,
    }


def encode_list(entries: list[dict[str, object]]) -> bytes:
    """The list object."""
    return msgspec.json.encode({"object": "list", "data": entries})
