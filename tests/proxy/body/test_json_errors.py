"""What is wrong with a body that is no JSON."""

import msgspec
import pytest

from hearth.proxy.body import body_fields, json_errors
from hearth.proxy.errors import GatewayError

BOM = b"\xef\xbb\xbf"
CUT = rb'{"model":"chat","messages":[{"role":"user","content":"cut \ud83d"}]}'


def told(body: bytes) -> str:
    with pytest.raises(GatewayError) as caught:
        body_fields.read(body, "application/json")
    assert caught.value.param is None
    return caught.value.message


@pytest.mark.parametrize("bom", [b"", BOM])
@pytest.mark.parametrize(
    "body",
    [
        CUT,
        rb'{"model":"cut \ud83d"}',
        rb'{"model":"cut \uD83D and more text"}',
        rb'{"model":"c","a":"cut \ude00 and more"}',
        rb'{"model":"c","a":"\ud83d\ud83d\ude00"}',
        rb'{"model":"c","a":"\\\ud83d\u0041"}',
        rb'{"model":"c","a":"\\ud83d \ud83d\ude00 \"\ud83d\""}',
    ],
)
def test_field_case_113_half_a_character_is_told_with_its_byte(body, bom):
    text = told(bom + body)
    for at in range(len(body)):
        if f"at byte {len(bom) + at}:" in text:
            break
    assert body[at : at + 2] == rb"\u"
    assert f": {body[at : at + 6].decode()} is a lone surrogate" in text
    whole = body[:at] + rb"\u00e4" + body[at + 6 :]
    assert body_fields.read(whole, "").model


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (CUT[:-7], "not a JSON object: Input data was truncated."),
        (rb'{"model":"c","a":"\ud83d', "truncated"),
        (rb'{"model":"c","a":"\\ud83d', "truncated"),
        (rb'{"model":1x,"a":"\ud83d"}', "(byte 10)"),
        (BOM + b'{"model":1x}', "(byte 13)"),
        (b'{"model":"\xff\xfe"}', "The body is not UTF-8 at byte 10."),
        (BOM + b'{"model":"\xed\xa0\xbd"}', "The body is not UTF-8 at byte 13."),
        (b'{"model":"c","t":NaN}', "has NaN at byte 17, which JSON does not know"),
        (b'{"model":"c","t":[-Infinity,1]}', "has Infinity at byte 19"),
        (b'{"model":"c","t":Infinity,"x":1}', "has Infinity at byte 17"),
        ('{"model":"c"}'.encode("utf-16-le"), "UTF-16"),
        ('{"model":"c"}'.encode("utf-16"), "UTF-16"),
        ('{"model":"c"}'.encode("utf-32"), "UTF-32"),
        (b"\xff\xff", "not a JSON object"),
    ],
)
def test_other_mistakes(body, words):
    assert words in told(body)


def test_an_error_that_names_no_byte():
    assert json_errors.explain(b'{"model":"c"}', msgspec.DecodeError("Invalid UTF-8 x")) == (
        "The body is not a JSON object: Invalid UTF-8 x."
    )
