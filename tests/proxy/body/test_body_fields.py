"""The two fields read from a body, and the splice."""

import json

import pytest

from hearth.proxy.body import body_fields
from hearth.proxy.body.body_fields import BodyFields
from hearth.proxy.errors import GatewayError

FORM = "multipart/form-data; boundary=b1"


def form(*fields: tuple[str, bytes], boundary: bytes = b"b1") -> bytes:
    parts = [
        b"--%s\r\nContent-Disposition: form-data; %s\r\n\r\n%s\r\n" % (boundary, n.encode(), v)
        for n, v in fields
    ]
    return b"".join(parts) + b"--%s--\r\n" % boundary


@pytest.mark.parametrize(
    ("body", "target"),
    [
        (b'{"model":"chat"}', BodyFields(model="chat")),
        (b' \n{"stream": true, "model" : "ai/chat" }\n', BodyFields(model="ai/chat", stream=True)),
        (b"{}", BodyFields()),
        (b'{"model":null,"stream":null}', BodyFields()),
        (b'{"stream":false}', BodyFields()),
        (b'{"messages":[{"model":"no","stream":true}]}', BodyFields()),
        (b'{"model":"a","model":"b"}', BodyFields(model="b")),
        (b'{"model":"x:latest"}', BodyFields(model="x:latest")),
        ('{"model":"模型"}'.encode(), BodyFields(model="模型")),
        (b'{"m\\u006fdel":"chat"}', BodyFields(model="chat")),
        (bytearray(b'{"model":"chat"}'), BodyFields(model="chat")),
    ],
)
def test_json(body, target):
    assert body_fields.read(body, "text/plain") == target


@pytest.mark.parametrize("kind", [bytes, bytearray])
@pytest.mark.parametrize("pad", [b"", b" " * 70_000, b'"a":"\\u00e4",'])
def test_field_case_146_one_byte_order_mark_is_skipped_and_kept(pad, kind):
    body = kind(b'\xef\xbb\xbf{%b"stream":true,"model":"chat"}' % pad)
    assert body_fields.read_plain(body) is None
    assert body_fields.read(body, "application/json") == BodyFields(model="chat", stream=True)
    pieces = body_fields.replace_spans(
        body, body_fields.model_spans(body, "application/json"), b'"served"'
    )
    assert b"".join(map(bytes, pieces)) == bytes(body).replace(b"chat", b"served")


@pytest.mark.parametrize(
    ("body", "words", "param"),
    [
        (b"", "empty", None),
        (b"  ", "empty", None),
        (b"{", "not a JSON object", None),
        (b'"model"', "not a JSON object", None),
        (b"[1]", "not a JSON object", None),
        (b'{"model":"chat"} x', "not a JSON object", None),
        (b'\xef\xbb\xbf\xef\xbb\xbf{"model":"chat"}', "not a JSON object", None),
        (b"\xef\xbb\xbf ", "empty", None),
        ('{"model":"chat"}'.encode("utf-16"), "UTF-16", None),
        (b'{"model":1e999}', "must be a string", "model"),
        (b'{"stream":' + b"1" * 5000 + b"}", "true or false", "stream"),
        (b'{"model":5}', "must be a string", "model"),
        (b'{"model":["chat"]}', "must be a string", "model"),
        (b'{"model":{"model":"chat"}}', "must be a string", "model"),
        (b'{"model":true}', "must be a string", "model"),
        (b'{"model":""}', "is empty", "model"),
        (b'{"stream":"true"}', "true or false", "stream"),
        (b'{"stream":1}', "true or false", "stream"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested", None),
    ],
)
def test_a_body_that_cannot_be_read(body, words, param):
    with pytest.raises(GatewayError, match=words) as caught:
        body_fields.read(body, "application/json")
    assert caught.value.status == 400
    assert caught.value.param == param


def test_a_form():
    body = form(('name="file"; filename="a"', b"\0--b1\xff\r\nx"), ('name="model"', b"whisper"))
    assert body_fields.read(body, FORM) == BodyFields(model="whisper", multipart=True)
    assert body_fields.read(form(('name="file"', b"x")), FORM) == BodyFields(multipart=True)


@pytest.mark.parametrize(
    ("body", "content_type", "words"),
    [
        (form(('name="model"', b"a"), ('name="model"', b"b")), FORM, "more than one"),
        (form(('name="model"', b"\xff")), FORM, "UTF-8"),
        (form(('name="model"', b"")), FORM, "is empty"),
        (form(('name="model"', b"a")), "multipart/form-data", "boundary"),
    ],
)
def test_a_form_that_cannot_be_read(body, content_type, words):
    with pytest.raises(GatewayError, match=words):
        body_fields.read(body, content_type)


@pytest.mark.parametrize(
    ("body", "spliced"),
    [
        ('{"model":"chat"}', '{"model":"NEW"}'),
        (' {\n "model" :\t"chat" ,"a":1}\n', ' {\n "model" :\t"NEW" ,"a":1}\n'),
        ('{"a":{"model":"x"},"model":"chat"}', '{"a":{"model":"x"},"model":"NEW"}'),
        ('{"a":["model","]\\"}"],"model":"c"}', '{"a":["model","]\\"}"],"model":"NEW"}'),
        ('{"model":"c\\"h\\\\","z":-1.5e3}', '{"model":"NEW","z":-1.5e3}'),
        ('{"model":"a","b":null,"model":"c"}', '{"model":"NEW","b":null,"model":"NEW"}'),
        ('{"m\\u006fdel":"chat"}', '{"m\\u006fdel":"NEW"}'),
        ('{"mode":"l","models":"x"}', '{"mode":"l","models":"x"}'),
        ('{"text":"\\\\","model":"chat"}', '{"text":"\\\\","model":"NEW"}'),
        (
            '{"t":"{\\"model\\":\\"x\\"}","model":"chat"}',
            '{"t":"{\\"model\\":\\"x\\"}","model":"NEW"}',
        ),
        ('{"a":12,"model":"chat"}', '{"a":12,"model":"NEW"}'),
        ('{"a":true ,"model":"chat"}', '{"a":true ,"model":"NEW"}'),
        ('{"a":[],"b":{},"model":"chat"}', '{"a":[],"b":{},"model":"NEW"}'),
        ('{"名":"模","model":"模型"}', '{"名":"模","model":"NEW"}'),
        ("{}", "{}"),
    ],
)
def test_the_splice_leaves_every_other_byte(body, spliced):
    data = body.encode()
    spans = body_fields.model_spans(data, "application/json")
    assert b"".join(body_fields.replace_spans(data, spans, b'"NEW"')).decode() == spliced
    json.loads(spliced)


def test_the_splice_of_a_form():
    body = form(('name="model"', b"chat"), ('name="file"; filename="x"', b"\xff\x00chat"))
    spans = body_fields.model_spans(body, FORM)
    assert b"".join(body_fields.replace_spans(body, spans, b"NEW")) == form(
        ('name="model"', b"NEW"), ('name="file"; filename="x"', b"\xff\x00chat")
    )


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"a"}',
        b'{"x":{"model":"b"},"model":"a"}',
        b'{"x":"model","model" : "a"}',
        b'{"x":"\\"model\\":","model":"a"}',
        b'{"mod\\u0065l":"a","x":{"model":"b"}}',
        b'{"x":["model"],"mod\\u0065l":"a"}',
        b'{"model":"\\u0061"}',
        b'{"model":"a","model":"a"}',
        b'{"x":"' + b"y" * 100_000 + b'","model":"a"}',
    ],
)
def test_a_short_cut_finds_what_the_long_way_finds(body):
    assert body_fields.model_spans(body, "") == tuple(body_fields._top_level(body, "model"))


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b'{"model": "m"}', ("m", False)),
        (b'{"stream": false, "model": "m"}', ("m", False)),
        (b'{"stream": null, "model": "m"}', ("m", False)),
        (b'{"model": "m", "stream": true}', ("m", True)),
        (b'{"model": "m", "stream": 0}', None),
        (b'{"model": "m", "stream": "no"}', None),
        (b'{"model": ""}', None),
        (b'{"model": 1}', None),
        (b'{"model": null}', None),
        (b"{}", None),
        (b"[]", None),
        (b"", None),
        (b"{", None),
        (b'{"model": "m", "a": ' + b"[" * 5000 + b"]" * 5000 + b"}", None),
    ],
)
def test_a_plain_body_says_its_model_and_whether_it_streams(body, found):
    assert body_fields.read_plain(body) == found


@pytest.mark.parametrize(
    "body",
    [b'{"a":"\\u0041","model":{"b":[', b'{"a":"\\u0041","model":"ch', b'{"a":"\\u0041","model":4'],
)
def test_a_body_that_breaks_off_is_looked_through_to_its_end(body):
    start = body.index(b'"model":') + len(b'"model":')
    assert body_fields.model_spans(body, "application/json") == ((start, len(body)),)


def test_nested_values_are_jumped_over():
    body = b'{"\\u0061":{"model":[{"model":"}"}],"b":{}},"model":"chat"}'
    ((start, end),) = body_fields.model_spans(body, "application/json")
    assert body[start:end] == b'"chat"'
