"""Cut a Go template into texts and actions, and actions into tokens."""

import codecs
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from hearth.reconcile.render.go_template.values import TemplateError

_COMMENT = re.compile(r"\{\{(-[ \t\r\n]+)?/\*.*?\*/([ \t\r\n]+-)?\}\}", re.S)
_OPEN = re.compile(r"\{\{(-(?=[ \t\r\n]))?")
_CLOSE = re.compile(r"[ \t\r\n]+-\}\}|\}\}")
_TRIMMED = " \t\r\n"
_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r\n]+)
    | (?P<text>"(?:[^"\\\n]|\\.)*")
    | (?P<raw>`[^`]*`)
    | (?P<number>[+-]?\.?[0-9](?:[eE][+-]|[0-9A-Za-z_.])*)
    | (?P<field>\.[A-Za-z_][A-Za-z0-9_]*)(?=[\ \t\r\n.,|:()]|\}\}|$)
    | (?P<dot>\.)
    | (?P<variable>\$[A-Za-z0-9_]*)(?=[\ \t\r\n.,|:()]|\}\}|$)
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)(?=[\ \t\r\n.,|:()]|\}\}|$)
    | (?P<declare>:=)
    | (?P<assign>=)
    | (?P<pipe>\|)
    | (?P<open>\()
    | (?P<close>\))
    """,
    re.X,
)
_INTEGER = re.compile(
    r"[+-]?(0[xX](_?[0-9a-fA-F])+|0[bB](_?[01])+|0[oO]?(_?[0-7])+|0|[1-9][0-9]*(_[0-9]+)*)"
)
_FLOAT = re.compile(r"[+-]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][+-]?[0-9]+)?")
_ESCAPE = re.compile(
    r"""\\([abfnrtv\\"]|[0-7]{3}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|(?P<bad>.))""",
    re.S,
)


class Token(NamedTuple):
    kind: str
    text: str


@dataclass(slots=True)
class Action:
    """What stands between one pair of braces."""

    source: str
    tokens: list[Token]
    at: int = 0

    def peek(self) -> str:
        return self.tokens[self.at].kind

    def take(self) -> Token:
        token = self.tokens[self.at]
        self.at += 1
        return token

    def skip(self) -> None:
        if self.peek() == "space":
            self.at += 1

    def word(self, *words: str) -> bool:
        """Take the next token if it is one of these words."""
        token = self.tokens[self.at]
        found = token.kind == "word" and token.text in words
        self.at += found
        return found


def pieces(source: str) -> Iterator[str | Action]:
    """Texts (trimmed as the markers say) and actions, in turn."""
    at, trim = 0, False
    while True:
        start = source.find("{{", at)
        piece = source[at : start if start >= 0 else len(source)]
        if trim:
            piece = piece.lstrip(_TRIMMED)
        if start < 0:
            yield from filter(None, [piece])
            return
        comment = _COMMENT.match(source, start)
        if comment is not None:
            before, after, at, action = comment[1], comment[2], comment.end(), None
        else:
            before, action, at = _scan(source, start)
            after = action.source.endswith("-}}") and action.source[-4] in _TRIMMED
        yield from filter(None, [piece.rstrip(_TRIMMED) if before else piece])
        if action is not None:
            yield action
        trim = bool(after)


def _scan(source: str, start: int) -> tuple[bool, Action, int]:
    """The action that begins at `start`: whether it trims before itself, its tokens, its end."""
    opening = _OPEN.match(source, start)
    assert opening is not None
    at = opening.end()
    tokens: list[Token] = []
    while (closing := _CLOSE.match(source, at)) is None:
        match = _TOKEN.match(source, at)
        if match is None or match.lastgroup is None:
            rest = source[at : at + 12].partition("}}")[0]
            what = f"{rest!r} is not part of the language" if rest else "it has no closing braces"
            raise TemplateError(f"{source[start : start + 60]}: {what}")
        tokens.append(Token(match.lastgroup, match[0]))
        at = match.end()
    tokens.append(Token("end", ""))
    return bool(opening[1]), Action(source[start : closing.end()], tokens), closing.end()


def number(text: str) -> int | float:
    value: int | float
    if _INTEGER.fullmatch(text):
        digits = text.lstrip("+-")
        octal = digits[0] == "0" and digits[1:].replace("_", "").isdigit()
        value = int(digits.replace("_", ""), 8 if octal else 0) * (-1 if text[0] == "-" else 1)
        if -(2**63) <= value < 2**63:
            return value
    elif _FLOAT.fullmatch(text) and math.isfinite(value := float(text)):
        return value
    raise TemplateError(f"{text} is not a number it can be sure of")


def unquote(text: str) -> str:
    return _ESCAPE.sub(_unescape, text[1:-1])


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if match["bad"]:
        raise TemplateError(f"\\{code} is not an escape in a text")
    if code[0] in "01234567x" and int(code.lstrip("x"), 8 if code[0] != "x" else 16) > 127:
        raise TemplateError(f"\\{code} is half a character; write \\u and four digits")
    if code == '"':
        return '"'
    if code[0] in "uU" and (0xD800 <= int(code[1:], 16) < 0xE000 or int(code[1:], 16) > 0x10FFFF):
        raise TemplateError(f"\\{code} is not a character")
    return codecs.decode(f"\\{code}", "unicode_escape")
