"""The reference of the gateway's HTTP interface as a Markdown page, from the tables it works by."""

from collections.abc import Iterable, Iterator

from hearth.proxy import errors, headers
from hearth.proxy.errors import ERROR_STATUSES, Dialect, ErrorBody, ErrorCode, ErrorStatus
from hearth.proxy.routing import api_paths
from hearth.proxy.wire import stream_end
from hearth.proxy.wire.response_writer import HEARTBEAT

_HEAD = """\
<!-- Generated from the tables in hearth/proxy; scripts/generate writes it anew. -->

# HTTP API

For the author of an application with an OpenAI or Anthropic client. Whatever an engine responds
passes as it came; this page is what the gateway itself does.

```python
from openai import OpenAI

client = OpenAI(base_url="https://models.example.com/v1", api_key="the model's key")
stream = client.chat.completions.create(
    model="team-a/chat", messages=[{"role": "user", "content": "hi"}], stream=True
)
```

- `base_url` ends with `/v1`; `api_key` is that of the model, or anything where the model has
  none.
- `model` is `namespace/name` on a host of all models, `name` on the host of a namespace, and
  anything on the host of one model. `GET /v1/models` lists those that a key may use.
- A model that sleeps is woken by the first request, which is held: with `stream=True` it gets
  heartbeats, so no proxy on the way cuts it. Give the client a time-out that is longer than a
  start. [clients.md](clients.md) has more of cold starts.
- Stock SDKs repeat 408, 409, 429 and 5xx twice, obey `Retry-After` below a minute, and stop at
  `X-Should-Retry: false`. The codes below are made for that.

## Routes

These wake the model that the body names in `model` (a field of JSON or of a form):
"""

_OTHERS = """\

A slash too many, or `/v1` twice, is forgiven where only one of these can be meant. The query
string passes to the engine.

What wakes nothing:
"""

_ERRORS = """\

## Errors

Before the first byte of a response an error is a status with a JSON body. In an open stream,
after an early 200 or in the middle of a response, it is an event, after which the stream ends
without its last event. `message` is for people and changes; programs read `code`.
"""

_ENGINES = """
An engine's own error passes with its status and body. Where it comes after an early 200 it is
told as an event with its own `message`, `type`, `param` and `code` (numbers become strings),
and has the status that it came with as `status`.

### Codes
"""

_RETRY = f"""
### Retry-After

Whole seconds, {errors.MIN_RETRY_AFTER_S} to {errors.MAX_RETRY_AFTER_S}: two widespread SDKs
ignore more. Of a model that starts it is how long its last starts took, with a margin, less
what has passed, and {errors.MAX_RETRY_AFTER_S} while none is known. Whoever comes at that time
finds the model up, or still starting: it is not put to sleep before. Where the table says *as
the client likes*, nothing is known: SDKs repeat 408 and 5xx by themselves.

## Streams

A held stream begins with 200 at once and gets a heartbeat every
`spec.endpoint.coldStart.heartbeatInterval` until the engine speaks. A request that is not a
stream gets no byte until then. Services with `coldStart.mode: reject` hold nobody.

A heartbeat is a comment line of the stream, with no blank line behind it: SDKs skip it. A
stream that ends without its last event was broken off, and the gateway appends an error event.
An error event of the engine's own ends a stream as well, and what follows the last event makes
no difference. Where an engine responds to `stream: true` with something else than a stream, the
client gets 502 `upstream_error`; an error object under a 200 keeps its own words.

## When a request is sent again

Only where no engine can have had it: its connection was refused, or ended before the engine's
kernel took a byte of the request (Linux tells; other systems do not, and nothing is sent again
there). A request that an engine took runs once, whatever becomes of the engine: the client gets
502, or an event in its stream. A 503 of an engine that still loads its model says that it ran
nothing: such a request waits and goes again. Idle connections to engines are closed after 3
seconds, and not used again where an engine's `Keep-Alive` announces less than 4.

## Headers

### Of requests
"""

_IDS = """
After an early 200 the engine's request id is in the log beside the gateway's, and log lines
about an endpoint bear the gateway's, as those of the access log do.

### Added for engines
"""

_DIALECTS = {
    Dialect.MESSAGES: "`/v1/messages…`, and requests with `Anthropic-Version` to `/v1/models`",
    Dialect.RESPONSES: "`/v1/responses`",
    Dialect.COMPLETIONS: "all others",
}
_EXAMPLE = ErrorBody(message="…", type="server_error", code=ErrorCode.UPSTREAM_ERROR)


def text() -> str:
    """The page, `docs/api.md`."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield _HEAD
    yield from _table(("route", "heartbeat", "a whole stream ends with", "errors"), _inference())
    yield _OTHERS
    yield from _table(("route", "what"), _others())
    yield _ERRORS
    yield from _table(("route", "body", "event"), _forms())
    yield _ENGINES
    yield from _table(("code", "status", "`type`", "come again", "meaning"), _codes())
    yield _RETRY
    for title, table in (
        (None, headers.REQUEST),
        ("\n### Of responses\n", headers.RESPONSE),
        (_IDS, headers.UPSTREAM),
    ):
        if title is not None:
            yield title
        yield from _table(("header", "meaning"), ((f"`{h.name}`", h.meaning) for h in table))


def _inference() -> Iterator[tuple[str, ...]]:
    methods = ", ".join(api_paths.INFERENCE_METHODS)
    for path, asked in api_paths.INFERENCE.items():
        heartbeat = events = "-"
        if asked.streams:
            heartbeat = f"`{HEARTBEAT.decode().strip()}`"
            events = ", ".join(f"`{name}`" for name in stream_end.last_events(asked.dialect))
        form = "Anthropic's" if asked.anthropic else "OpenAI's"
        yield f"`{methods} {path}`", heartbeat, events, form


def _others() -> Iterator[tuple[str, ...]]:
    def routes(methods: Iterable[str], *paths: str) -> str:
        return f"{', '.join(methods)}: {', '.join(f'`{path}`' for path in paths)}"

    models = api_paths.MODELS
    yield (
        routes(api_paths.MODELS_METHODS, models, f"{models}/<id>"),
        "The gateway's own list: `id`, `created`, `owned_by` (the namespace), `state`, and"
        " `max_model_len` of a model that runs, where its engine tells it.",
    )
    yield (
        routes(api_paths.PASS_THROUGH_METHODS, "/v1/<anything else>"),
        "On the host of one model alone: passes to an endpoint that runs (files, batches,"
        " `GET /v1/responses/<id>`).",
    )
    yield (
        routes(api_paths.HEALTH_METHODS, *api_paths.HEALTH),
        "Whether the gateway serves: 200 or 503. For load balancers, under any host.",
    )
    yield "`OPTIONS` of any path", "A browser's preflight, where the operator allows any origin."
    yield "anything else, WebSocket", "Rejected."


def _forms() -> Iterator[tuple[str, ...]]:
    for dialect, routes in _DIALECTS.items():
        body = errors.body(_EXAMPLE, dialect).decode()
        event = errors.event(_EXAMPLE, dialect).decode().strip().replace("\n", "` `")
        yield routes, f"`{body}`", f"`{event}`"


def _codes() -> Iterator[tuple[str, ...]]:
    for code, row in sorted(ERROR_STATUSES.items(), key=lambda item: item[1].status):
        yield f"`{code}`", str(row.status), f"`{row.type}`", _again(row), row.meaning


def _again(row: ErrorStatus) -> str:
    if not row.retry:
        return "`X-Should-Retry: false`"
    if row.starting:
        return "Retry-After: when it may be up"
    if row.retry_after_s is not None:
        return f"Retry-After: {row.retry_after_s}"
    return "as the client likes" if row.status >= 500 or row.status == 408 else "no SDK does"


def _table(names: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for cells in (names, ("---",) * len(names), *rows):
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
