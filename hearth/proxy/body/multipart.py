"""The values of one field of a multipart/form-data body, found without touching the rest."""

import re

Buffer = bytes | bytearray

MAX_PARTS = 1000
MAX_HEAD_BYTES = 16 * 1024

_TYPE = re.compile(r"\s*multipart/form-data\s*(;.*)?", re.IGNORECASE | re.DOTALL)
_BOUNDARY = re.compile(r';\s*boundary=(?:"([^"]{1,200})"|([^\s;"]{1,200}))', re.IGNORECASE)
_NAME = re.compile(rb';\s*name=(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))', re.IGNORECASE)
_DISPOSITION = re.compile(rb"(?:^|\r\n)content-disposition:([^\r\n]*)", re.IGNORECASE)


def boundary(content_type: str) -> bytes | None:
    """The delimiter between parts; None unless this is a form with files.

    A form without a usable boundary has an empty one, in which nothing is found.
    """
    if _TYPE.fullmatch(content_type) is None:
        return None
    match = _BOUNDARY.search(content_type)
    text = (match[1] or match[2]) if match else ""
    return text.encode("latin-1", "replace")


def find(body: Buffer, delimiter: bytes, name: str) -> list[tuple[int, int]]:
    """Byte offsets of the value of each field called `name`.

    Binary-safe; looks at no more than a thousand parts, and at no file's content.
    """
    spans: list[tuple[int, int]] = []
    if not delimiter:
        return spans
    opening = b"--" + delimiter
    closing = b"\r\n" + opening
    at = 0 if body.startswith(opening) else body.find(closing)
    if at < 0:
        return spans
    at += len(opening) if at == 0 and body.startswith(opening) else len(closing)
    for _ in range(MAX_PARTS):
        if body[at : at + 2] == b"--":
            break
        head = body.find(b"\r\n", at)
        head_end = body.find(b"\r\n\r\n", head, head + MAX_HEAD_BYTES) if head >= 0 else -1
        end = body.find(closing, head_end + 4) if head_end >= 0 else -1
        if end < 0:
            break
        if _field_name(bytes(body[head + 2 : head_end])) == name.encode():
            spans.append((head_end + 4, end))
        at = end + len(closing)
    return spans


def _field_name(head: bytes) -> bytes | None:
    disposition = _DISPOSITION.search(head)
    match = _NAME.search(disposition[1]) if disposition else None
    if match is None:
        return None
    return match[1] if match[1] is not None else match[2]
