"""What a request asks for, by method and path alone."""

import re
from dataclasses import dataclass
from urllib.parse import unquote

from hearth.proxy.errors import Dialect, ErrorCode, GatewayError


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """A POST that a model answers: the only requests that are demand."""

    streams: bool = False
    """Whether `stream: true` means server-sent events here."""
    dialect: Dialect = Dialect.COMPLETIONS

    @property
    def anthropic(self) -> bool:
        """Whether the key may come as `x-api-key`."""
        return self.dialect is Dialect.MESSAGES


@dataclass(frozen=True, slots=True)
class Models:
    """The gateway's own list; `id` for one entry of it."""

    id: str | None = None


@dataclass(frozen=True, slots=True)
class PassThrough:
    """Anything else below /v1/ of one service: relayed to an endpoint that runs, wakes nothing."""


ApiPath = Inference | Models | PassThrough

_CHAT = Inference(streams=True)
_PLAIN = Inference()

INFERENCE = {
    "/v1/chat/completions": _CHAT,
    "/v1/completions": _CHAT,
    "/v1/responses": Inference(streams=True, dialect=Dialect.RESPONSES),
    "/v1/messages": Inference(streams=True, dialect=Dialect.MESSAGES),
    "/v1/messages/count_tokens": Inference(dialect=Dialect.MESSAGES),
    **dict.fromkeys(
        (
            "/v1/embeddings",
            "/v1/rerank",
            "/v1/score",
            "/v1/classify",
            "/v1/pooling",
            "/v1/moderations",
            "/v1/audio/transcriptions",
            "/v1/audio/translations",
            "/v1/audio/speech",
            "/v1/images/generations",
            "/v1/images/edits",
            "/v1/images/variations",
            # What engines serve beside OpenAI's API, with the model in the body: vLLM's list.
            "/v1/chat/completions/batch",
            "/v1/chat/completions/render",
            "/v1/completions/render",
            "/v1/decisions",
            "/v2/embed",
            "/v2/rerank",
            "/rerank",
            "/score",
            "/classify",
            "/pooling",
            "/tokenize",
            "/detokenize",
            "/generative_scoring",
            "/invocations",
        ),
        _PLAIN,
    ),
}
"""Routes that start a model."""
INFERENCE_METHODS = ("POST",)

HEALTH = ("/", "/healthz")
"""Where load balancers look by themselves (GKE, AWS and Azure at the first), whatever the Host."""
HEALTH_METHODS = ("GET", "HEAD")

MODELS = "/v1/models"
MODELS_METHODS = ("GET", "HEAD")
# No empty, dot or percent-encoded segments: what a backend might normalise could leave /v1/.
_PASSIVE = re.compile(r"/v1(?!/v1/)(/(?!\.{1,2}(/|$))[A-Za-z0-9._~:@+-]+)+")
_REPEATED = re.compile(r"^(/v1)+(?=/v1/)")
PASS_THROUGH_METHODS = ("GET", "POST", "DELETE")


def canonical(path: str) -> str:
    """The path of the list that `path` can only mean: slashes too many, or `/v1` twice.

    It is what goes upstream.  Anything else is left as it is, and nothing is decoded.
    """
    if path in INFERENCE or not ("//" in path or path.endswith("/") or path.startswith("/v1/v1/")):
        return path
    meant = _REPEATED.sub("", re.sub("//+", "/", path).removesuffix("/"))
    return meant if meant in INFERENCE or meant == MODELS else path


def read(method: str, path: str) -> ApiPath:
    """What is asked for (`path` as it came, without query).  Raises GatewayError."""
    path = canonical(path)
    if path == MODELS or path.startswith(f"{MODELS}/"):
        if method not in MODELS_METHODS:
            raise _method(method, path, MODELS_METHODS)
        name = unquote(path[len(MODELS) + 1 :])
        return Models(name or None)
    inference = INFERENCE.get(path)
    if inference is not None:
        if method not in INFERENCE_METHODS:
            raise _method(method, path, INFERENCE_METHODS)
        return inference
    if _PASSIVE.fullmatch(path):
        if method not in PASS_THROUGH_METHODS:
            raise _method(method, path, PASS_THROUGH_METHODS)
        return PassThrough()
    raise unknown(method, path)


def dialect(path: str) -> Dialect:
    """The form of errors there, whether anything is served or not."""
    path = canonical(path)
    asked = INFERENCE.get(path)
    if asked is not None:
        return asked.dialect
    below = path == "/v1/messages" or path.startswith("/v1/messages/")
    return Dialect.MESSAGES if below else Dialect.COMPLETIONS


def unknown(method: str, path: str) -> GatewayError:
    """The 404 of a path that leads nowhere, with the path that was likely meant."""
    shown = path if len(path) <= 200 else f"{path[:200]}..."
    bare = "/" + re.sub(r"^(v1/+)+", "", path.strip("/"))
    meant = bare if bare in INFERENCE else "/v1" + bare
    hint = "Requests go below /v1/, for example POST /v1/chat/completions."
    if meant in INFERENCE or meant == MODELS:
        base = " The base URL of a client ends with /v1." if meant.startswith("/v1/") else ""
        hint = f"Did you mean {meant}?{base}"
    return GatewayError(ErrorCode.UNKNOWN_URL, f"Nothing is served at {method} {shown}. {hint}")


def names_no_model(method: str, path: str, *, host: str) -> GatewayError:
    """The 404 of what only the host of one service can lead to: `host` says which."""
    shown = path if len(path) <= 200 else f"{path[:200]}..."
    return GatewayError(
        ErrorCode.UNKNOWN_URL,
        f"{method} {shown} names no model, and this host is shared by several. Ask it under the"
        f" host of one model: {host}.",
    )


def _method(method: str, path: str, methods: tuple[str, ...]) -> GatewayError:
    allow = ", ".join(methods)
    return GatewayError(
        ErrorCode.METHOD_NOT_ALLOWED, f"{path} does not take {method}; use {allow}.", allow=allow
    )
