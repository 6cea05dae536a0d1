"""Which service a request is for, and whether its sender may use it."""

from hearth.api.meta import ServiceKey
from hearth.proxy.errors import ErrorCode, GatewayError
from hearth.proxy.routing import auth, model_ids
from hearth.proxy.routing.api_keys import ApiKeys
from hearth.proxy.routing.hosts import Everything, HostTable, Scope
from hearth.routes import Route, RouteTable

_SCOPES = 1024
"""Hosts remembered."""


class Router:
    """What it cannot tell at once, `authenticate` finds out."""

    def __init__(
        self, routes: RouteTable, keys: ApiKeys, *, hosts: HostTable, default_namespace: str
    ) -> None:
        self._routes = routes
        self._keys = keys
        self._hosts = hosts
        self._default_namespace = default_namespace
        self._scopes: dict[bytes, Scope] = {}

    def find_scope(self, host: bytes) -> Scope | None:
        """What a Host header stands for; None for an unknown one."""
        scope = self._scopes.get(host)
        if scope is not None:
            return scope
        text = host.decode("utf-8", "replace")
        found = self._hosts.scope(text) if text else Everything()
        if found is not None:
            if len(self._scopes) >= _SCOPES:
                self._scopes.clear()
            self._scopes[host] = found
        return found

    def scope(self, host: bytes) -> Scope:
        """What a Host header stands for.  Raises GatewayError."""
        found = self.find_scope(host)
        if found is None:
            text = host.decode("utf-8", "replace")
            hosts = self._hosts
            raise GatewayError(
                ErrorCode.MODEL_NOT_FOUND,
                f"Nothing is served under the host {text[:200]!r}. Hosts that would work:"
                f" {hosts.usable_hosts()}.{hosts.unknown_name_hint(text)}",
            )
        return found

    def service_for(self, model: str | None, scope: Scope) -> ServiceKey:
        """The service that a body's `model` stands for.  Raises GatewayError."""
        if model is None:
            raise GatewayError(
                ErrorCode.INVALID_REQUEST,
                "The request names no model; GET /v1/models lists what can be used.",
                param="model",
            )
        key = model_ids.find(model, scope, default_namespace=self._default_namespace)
        if key is None or key not in self._routes:
            raise no_model(model)
        return key

    def route(self, key: ServiceKey) -> Route:
        """The route of the service that a Host stands for.  Raises GatewayError."""
        route = self._routes.find(key)
        if route is None:
            raise no_model(str(key), more=self._hosts.own_name_hint(key))
        return route

    def is_allowed(self, route: Route, sent_key: str | None) -> bool:
        """Whether the sender may pass by what is known; if not, `authenticate` decides."""
        return auth.is_known(route, sent_key, self._keys)

    async def authenticate(self, route: Route, sent_key: str | None) -> None:
        """Raises GatewayError unless the service is open or `sent_key` is its key."""
        await auth.check(route, sent_key, self._keys)


def no_model(model: str, *, more: str = "") -> GatewayError:
    """The 404 of a name that stands for nothing."""
    shown = model if len(model) <= 100 else f"{model[:100]}..."
    return GatewayError(
        ErrorCode.MODEL_NOT_FOUND,
        f"There is no model {shown!r} here. GET /v1/models lists those that you may use; on a host"
        f" shared by all namespaces their names are 'namespace/name'.{more}",
        param="model",
    )
