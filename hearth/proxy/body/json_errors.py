"""What is wrong with a body that is no JSON, for the person who sent it.  No I/O."""

import re

import msgspec

Buffer = bytes | bytearray | memoryview

_AT = re.compile(r"\(byte (\d+)\)")
_ESCAPES = re.compile(
    # A pair of halves; half of one; any other escape, so that no escaped backslash begins one.
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)
_NO_NUMBER = re.compile(rb"NaN|Infinity")
_OTHER_UNICODE = (b"\xff\xfe", b"\xfe\xff", b"{\0", b"\0{")


def explain(body: Buffer, error: msgspec.DecodeError, *, begin: int = 0) -> str:
    """A sentence, with the byte where it is.  `begin`: where what was read begins in `body`."""
    data = bytes(body)
    text = str(error)
    match = _AT.search(text)
    at = begin + int(match[1]) if match else None
    if data.startswith(_OTHER_UNICODE):
        return "The body is UTF-16 or UTF-32; send JSON in UTF-8."
    if "UTF-8" in text and (wrong := _not_utf8(data)) is not None:
        return f"The body is not UTF-8 at byte {wrong}."
    half = _half_a_pair(data)
    if half is not None and (at is None or half <= at):
        return (
            f"The body has half a character at byte {half}: \\{data[half + 1 : half + 6].decode()}"
            " is a lone surrogate, as when a text is cut within an emoji. Cut between characters."
        )
    if at is not None and (word := _NO_NUMBER.match(data, at)) is not None:
        return (
            f"The body has {word[0].decode()} at byte {at}, which JSON does not know; send null or"
            " a number."
        )
    if match is not None and at is not None:
        text = text.replace(match[0], f"(byte {at})")
    return f"The body is not a JSON object: {text}."


def _not_utf8(data: bytes) -> int | None:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start
    return None


def _half_a_pair(data: bytes) -> int | None:
    """Where the first lone surrogate stands, unless all ends with it: then more was to come."""
    for found in _ESCAPES.finditer(data):
        if found[1] is not None:
            return found.start() if found.end() < len(data) else None
    return None
