"""The two fields read from a request's body, and where its `model` stands in it."""

import json
import re
from dataclasses import dataclass

import msgspec

from hearth.proxy.body import json_errors, multipart
from hearth.proxy.errors import ErrorCode, GatewayError

Span = tuple[int, int]
"""Byte offsets, first and one past the last."""
Buffer = bytes | bytearray

OFF_LOOP_BYTES = 1 << 20
"""Bodies above this are read in a worker thread: reading 20 MB takes some 5 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyFields:
    """What the gateway needs to know of a body."""

    model: str | None = None
    stream: bool = False
    multipart: bool = False


class _Fields(msgspec.Struct):
    model: object = msgspec.UNSET
    stream: object = msgspec.UNSET


_FIELDS = msgspec.json.Decoder(_Fields)
_BOM = b"\xef\xbb\xbf"
"""One may stand before the JSON: some editors and platforms write it."""
_RULES = {"model": "'model' must be a string.", "stream": "'stream' must be true or false."}


def read(body: Buffer, content_type: str) -> BodyFields:
    """`model` and `stream` of a JSON or multipart body.  Raises GatewayError (400)."""
    boundary = multipart.boundary(content_type)
    if boundary is None:
        return _read_json(body)
    if not boundary:
        raise _invalid(
            "The Content-Type names no boundary; let your HTTP client write that header."
        )
    spans = multipart.find(body, boundary, "model")
    if not spans:
        return BodyFields(multipart=True)
    if len(spans) > 1:
        raise _invalid("The form has more than one field 'model'; send one.", param="model")
    try:
        return BodyFields(model=_named(bytes(body[slice(*spans[0])]).decode()), multipart=True)
    except UnicodeDecodeError as error:
        raise _invalid("The form field 'model' is not UTF-8.", param="model") from error


def model_spans(body: Buffer, content_type: str) -> tuple[Span, ...]:
    """Where the value of `model` stands: each top-level occurrence, quotes included for JSON.

    For a body that `read` accepted.
    """
    boundary = multipart.boundary(content_type)
    if boundary is not None:
        return tuple(multipart.find(body, boundary, "model"))
    only = single_model_span(body)
    return (only,) if only is not None else tuple(_top_level(body, "model"))


def read_plain(body: Buffer) -> tuple[str, bool] | None:
    """The model of a JSON body, and whether it asks for a stream; None where `read` must tell."""
    try:
        fields = _FIELDS.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    model, stream = fields.model, fields.stream
    if not isinstance(model, str) or not model:
        return None
    if stream is True:
        return model, True
    return (model, False) if stream is False or stream is None or stream is msgspec.UNSET else None


def replace_spans(
    body: Buffer, spans: tuple[Span, ...], value: bytes
) -> tuple[Buffer | memoryview, ...]:
    """`body` with each span replaced by `value`, as pieces; nothing is copied."""
    view = memoryview(body)
    pieces: list[Buffer | memoryview] = []
    at = 0
    for start, end in spans:
        pieces += (view[at:start], value)
        at = end
    return (*pieces, view[at:])


def _read_json(body: Buffer) -> BodyFields:
    begin = len(_BOM) if body.startswith(_BOM) else 0
    try:
        fields = _FIELDS.decode(memoryview(body)[begin:] if begin else body)
    except RecursionError as error:
        raise _invalid("The body is nested too deeply.") from error
    except msgspec.DecodeError as error:
        if not body[begin:].strip():
            raise _invalid("The body is empty; send a JSON object with 'model'.") from error
        if isinstance(error, msgspec.ValidationError):
            # Numbers so large that they cannot even be looked at.
            for name, rule in _RULES.items():
                if str(error).endswith(f"`$.{name}`"):
                    raise _invalid(rule, param=name) from error
        raise _invalid(json_errors.explain(body, error, begin=begin)) from error
    model: str | None = None
    match fields.model:
        case msgspec.UNSET | None:
            pass
        case str(text):
            model = _named(text)
        case _:
            raise _invalid(_RULES["model"], param="model")
    match fields.stream:
        case bool(stream):
            return BodyFields(model=model, stream=stream)
        case msgspec.UNSET | None:
            return BodyFields(model=model)
        case _:
            raise _invalid(_RULES["stream"], param="stream")


def _named(model: str) -> str:
    if not model:
        raise _invalid("'model' is empty; name the model to use.", param="model")
    return model


def _invalid(message: str, *, param: str | None = None) -> GatewayError:
    return GatewayError(ErrorCode.INVALID_REQUEST, message, param=param)


_SMALL_BYTES = 64 * 1024
_MODEL = b'"model"'
_PLAIN_VALUE = re.compile(rb'[ \t\n\r]*:[ \t\n\r]*("[^"\\]*")')


def single_model_span(body: Buffer) -> Span | None:
    """The value of the one `"model"` in a body that has a top-level one; None where it must be
    looked for.

    Without a `\\u` no key can be written in another way, and inside of a string the quotes would
    be escaped: the only such bytes are the key.
    """
    if len(body) > _SMALL_BYTES:
        # Searching all of it takes longer than jumping over its values.
        return None
    at = body.find(_MODEL)
    if at < 0 or body.find(_MODEL, at + 7) >= 0:
        return None
    if body.find(b"\\") >= 0 and b"\\u" in body:
        return None
    match = _PLAIN_VALUE.match(body, at + 7)
    return match.span(1) if match is not None else None


_SPACE = re.compile(rb"[ \t\n\r]*")
_STRUCTURE = re.compile(rb'["{}\[\]]')
_SCALAR_END = re.compile(rb"[,}\] \t\n\r]")


def _top_level(body: Buffer, name: str) -> list[Span]:
    """Spans of the values of `name` in the outermost object of valid JSON.

    Strings and nested values are jumped over by C code, not walked byte by byte.
    """
    spans = []
    at = _skip(body, _skip(body, len(_BOM) if body.startswith(_BOM) else 0) + 1)
    while body[at : at + 1] == b'"':
        end = _string_end(body, at)
        found = json.loads(bytes(body[at:end])) == name
        start = _skip(body, _skip(body, end) + 1)
        at = _value_end(body, start)
        if found:
            spans.append((start, at))
        at = _skip(body, at)
        if body[at : at + 1] == b",":
            at = _skip(body, at + 1)
    return spans


def _skip(body: Buffer, at: int) -> int:
    match = _SPACE.match(body, at)
    return match.end() if match else at


def _value_end(body: Buffer, at: int) -> int:
    first = body[at : at + 1]
    if first == b'"':
        return _string_end(body, at)
    if first not in (b"{", b"["):
        match = _SCALAR_END.search(body, at)
        return match.start() if match else len(body)
    depth = 0
    while (match := _STRUCTURE.search(body, at)) is not None:
        at = match.end()
        match match.group():
            case b'"':
                at = _string_end(body, match.start())
            case b"{" | b"[":
                depth += 1
            case _:
                depth -= 1
                if depth == 0:
                    return at
    return len(body)


def _string_end(body: Buffer, at: int) -> int:
    """One past the closing quote of the string that opens at `at`."""
    quote = at
    while True:
        quote = body.find(b'"', quote + 1)
        if quote < 0:
            return len(body)
        slash = quote
        while body[slash - 1 : slash] == b"\\":
            slash -= 1
        if (quote - slash) % 2 == 0:
            return quote + 1
