"""Is this request allowed to use this service."""

from hearth.proxy.errors import ErrorCode, GatewayError
from hearth.proxy.routing.api_keys import ApiKeys
from hearth.routes import Route


def sent_key(authorization: bytes, x_api_key: bytes = b"") -> str | None:
    """The key a client sent: a bearer token, or `x-api-key` where Anthropic's SDKs send it."""
    scheme, _, token = authorization.strip().partition(b" ")
    key = token.strip() if scheme.lower() == b"bearer" else b""
    key = key or x_api_key.strip()
    return key.decode("utf-8", "surrogateescape") if key else None


def is_known(route: Route, key: str | None, keys: ApiKeys) -> bool:
    """Whether `check` is certain to pass, as far as can be told without waiting."""
    if route.authentication is None:
        return True
    wanted = route.authentication
    return key is not None and keys.is_known(route.key.namespace, wanted.secret, wanted.key, key)


async def check(route: Route, key: str | None, keys: ApiKeys) -> None:
    """Raises GatewayError unless the service is open or `key` is its key."""
    if route.authentication is None:
        return
    wanted = route.authentication
    if key is None:
        raise GatewayError(
            ErrorCode.INVALID_API_KEY,
            "No API key was sent. Send the model's key as 'Authorization: Bearer <key>'.",
        )
    if not await keys.check(route.key.namespace, wanted.secret, wanted.key, key):
        raise GatewayError(
            ErrorCode.INVALID_API_KEY,
            "The API key is not the one of this model. Check the key and the model's name.",
        )


async def may_list(route: Route, key: str | None, keys: ApiKeys) -> bool:
    """Whether a listing may show the service to a caller with `key`.

    A listing asks for many services at once, so a wrong key forces no read of a Secret.
    """
    if route.authentication is None:
        return True
    wanted = route.authentication
    if key is None:
        return False
    try:
        return await keys.check(route.key.namespace, wanted.secret, wanted.key, key, force=False)
    except GatewayError:
        return False
