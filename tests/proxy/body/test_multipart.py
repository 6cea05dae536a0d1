"""One field of a form, found without touching the rest."""

import pytest

from hearth.proxy.body import multipart


@pytest.mark.parametrize(
    ("content_type", "boundary"),
    [
        ("multipart/form-data; boundary=abc", b"abc"),
        ('Multipart/Form-Data; charset=utf-8; Boundary="a b:c"', b"a b:c"),
        ("multipart/form-data", b""),
        ("multipart/form-data; xboundary=abc", b""),
        ("multipart/mixed; boundary=abc", None),
        ("application/json", None),
        ("", None),
    ],
)
def test_boundary(content_type, boundary):
    assert multipart.boundary(content_type) == boundary


def values(body: bytes, name: str = "model") -> list[bytes]:
    return [body[start:end] for start, end in multipart.find(body, b"b", name)]


HEAD = b'Content-Disposition: form-data; name="model"'


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"--b\r\n" + HEAD + b"\r\n\r\nchat\r\n--b--\r\n", [b"chat"]),
        (b"preamble\r\n--b\r\n" + HEAD + b"\r\n\r\nchat\r\n--b--", [b"chat"]),
        (b"--b \t\r\n" + HEAD + b"\r\n\r\nchat\r\n--b--", [b"chat"]),
        (b"--b\r\n" + HEAD + b"\r\n\r\n\r\n--b--", [b""]),
        (b"--b\r\n" + HEAD + b"\r\n\r\na\r\nb\r\n--b--", [b"a\r\nb"]),
        (
            b"--b\r\nX: y\r\ncontent-disposition: form-data; name=model\r\n\r\nchat\r\n--b--",
            [b"chat"],
        ),
        (b"--b\r\n" + HEAD + b'; filename="f"\r\n\r\nchat\r\n--b--', [b"chat"]),
        (
            b'--b\r\nContent-Disposition: form-data; filename="; name=\\"model\\""; name="f"'
            b"\r\n\r\nx\r\n--b--",
            [],
        ),
        (b"--b\r\n\r\nno head\r\n--b\r\n" + HEAD + b"\r\n\r\nchat\r\n--b--", [b"chat"]),
        (b"--b\r\n" + HEAD + b"\r\n\r\nnever closed", []),
        (b"--b\r\n" + HEAD, []),
        (b"--b--", []),
        (b"nothing", []),
        (b"", []),
        (b"--b\r\n" + HEAD + b"\r\n\r\na\r\n--b\r\n" + HEAD + b"\r\n\r\nb\r\n--b--", [b"a", b"b"]),
    ],
)
def test_find(body, found):
    assert values(body) == found


def test_a_boundary_at_the_start_of_a_files_content_is_not_one():
    body = b'--b\r\nContent-Disposition: form-data; name="f"\r\n\r\n--b\r\n\r\n--b--'
    assert values(body, "f") == [b"--b\r\n"]


def test_no_boundary_finds_nothing():
    assert multipart.find(b"--\r\n" + HEAD + b"\r\n\r\nx\r\n--", b"", "model") == []


def test_no_more_than_a_thousand_parts_are_looked_at():
    other = b'--b\r\nContent-Disposition: form-data; name="f"\r\n\r\nx\r\n'
    wanted = b"--b\r\n" + HEAD + b"\r\n\r\nchat\r\n--b--"
    assert values(other * (multipart.MAX_PARTS - 1) + wanted) == [b"chat"]
    assert values(other * multipart.MAX_PARTS + wanted) == []
