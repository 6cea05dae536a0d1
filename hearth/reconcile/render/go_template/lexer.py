"""Cut a Go template into texts and actions, and actions into tokens."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from hearth.reconcile.render.go_template.functions import TemplateError, Value

_COMMENT = re.compile(r"\{\{(-[ \t\r\n]+)?/\*.*?\*/([ \t\r\n]+-)?\}\}", re.S)
_OPEN = re.compile(r"\{\{(-(?=[ \t\r\n]))?")
_CLOSE = re.compile(r"[ \t\r\n]+-\}\}|\}\}")
_SPACES = " \t\r\n"
_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r\n]+)
    | (?P<text>"(?:[^"\\\n]|\\.)*"|`[^`]*`)
    | (?P<number>[+-]?\.?[0-9][0-9A-Za-z_.]*)
    | (?P<field>(?:\.[A-Za-z_][A-Za-z0-9_]*)+)
    | (?P<dot>\.)
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<open>\()
    | (?P<close>\))
    | (?P<refused>\$[A-Za-z0-9_]*|:?=|\|)
    """,
    re.X,
)
_NUMBER = re.compile(r"[+-]?(0|[1-9][0-9]*)(\.[0-9]+)?")
_ESCAPES = {"\\": "\\", '"': '"', "n": "\n", "r": "\r", "t": "\t"}


class Token(NamedTuple):
    """`kind` is the name of a group of the pattern, or `end`."""

    kind: str
    text: str


@dataclass(slots=True)
class Action:
    """What stands between one pair of braces; its last token is of kind `end`."""

    source: str
    tokens: list[Token]
    at: int = 0

    @property
    def kind(self) -> str:
        """Of the next token."""
        return self.tokens[self.at].kind

    def take(self) -> Token:
        token = self.tokens[self.at]
        self.at += 1
        return token

    def word(self, word: str) -> bool:
        """Take the next token if it is this word."""
        found = self.tokens[self.at] == ("word", word)
        self.at += found
        return found


def pieces(source: str) -> Iterator[str | Action]:
    """Texts (trimmed as the markers say) and actions, in turn.  Raises TemplateError."""
    at, trim = 0, False
    while True:
        start = source.find("{{", at)
        piece = source[at : start if start >= 0 else len(source)]
        if trim:
            piece = piece.lstrip(_SPACES)
        if start < 0:
            yield from filter(None, [piece])
            return
        comment = _COMMENT.match(source, start)
        if comment is not None:
            before, after, at, action = comment[1], comment[2], comment.end(), None
        else:
            before, action, at = _scan(source, start)
            after = action.source.endswith("-}}") and action.source[-4] in _SPACES
        yield from filter(None, [piece.rstrip(_SPACES) if before else piece])
        if action is not None:
            yield action
        trim = bool(after)


def _scan(source: str, start: int) -> tuple[bool, Action, int]:
    """The action that begins at `start`: whether it trims before itself, its tokens, its end."""
    opening = _OPEN.match(source, start)
    assert opening is not None
    at = opening.end()
    tokens: list[Token] = []
    joined = False
    """Whether the token before touches this one: only parentheses may."""
    while (closing := _CLOSE.match(source, at)) is None:
        match = _TOKEN.match(source, at)
        if match is None or match.lastgroup is None:
            rest = source[at : at + 12].partition("}}")[0]
            what = f"{rest!r} is not part of the language" if rest else "it has no closing braces"
            raise TemplateError(f"{source[start : start + 60]}: {what}")
        kind, at = match.lastgroup, match.end()
        if kind == "refused":
            raise TemplateError(f"{source[start : start + 60]}: {match[0]} is not supported")
        if joined and kind not in ("space", "close"):
            raise TemplateError(
                f"{source[start : start + 60]}: a space is missing before {match[0]}"
            )
        joined = kind not in ("space", "open")
        if kind != "space":
            tokens.append(Token(kind, match[0]))
    tokens.append(Token("end", ""))
    return bool(opening[1]), Action(source[start : closing.end()], tokens), closing.end()


def literal(token: Token) -> Value:
    """The value of a number or a text.  Raises TemplateError where it is spelled too cleverly."""
    if token.kind == "number":
        return _number(token.text)
    if token.text[0] == "`":
        return token.text[1:-1].replace("\r", "")
    return re.sub(r"\\(.)", _unescape, token.text[1:-1])


def _number(text: str) -> int | float:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise TemplateError(f"{text} is not supported; write a plain decimal number")
    if match[2]:
        return float(text)
    if not -(2**63) <= int(text) < 2**63:
        raise TemplateError(f"{text} does not fit into 64 bits")
    return int(text)


def _unescape(match: re.Match[str]) -> str:
    if match[1] not in _ESCAPES:
        raise TemplateError(f"{match[0]} is not supported; write the character itself")
    return _ESCAPES[match[1]]
