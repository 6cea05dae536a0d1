"""Say in jinja2's language what the supported part of a Go template says.

No text of the author's gets into the jinja2 source: literals and pieces of text are constants that
the source refers to by number, names of fields among them, and what `with` sets is numbered too.
"""

from dataclasses import dataclass, field

from hearth.reconcile.render.go_template import functions, lexer
from hearth.reconcile.render.go_template.functions import TemplateError, Value

MAX_DEPTH = 24
"""How deep blocks and parentheses may nest; Python's own parser stands behind and has a limit."""

_REFUSED = (
    "range", "define", "template", "block", "break", "continue", "nil", "call", "true", "false",
    "lt", "le", "gt", "ge", "len", "index", "slice", "print", "println", "html", "js", "urlquery",
)  # fmt: skip
"""Words that Go's templates have and these have not."""
_FUNCTIONS = ("and", "or", *functions.FUNCTIONS)


@dataclass(slots=True)
class _Block:
    """An open `if` or `with`."""

    dot: str
    """What stands for dot outside."""
    ends: int = 1
    """How many jinja2 blocks its `end` closes: one more for each `else if`."""
    is_with: bool = False
    has_else: bool = False


@dataclass(frozen=True, slots=True)
class Translation:
    """A jinja2 template over `c` (the constants), `d` (the data), `call` and `field`."""

    source: str
    constants: tuple[Value, ...]


def translate(source: str) -> Translation:
    """Raises TemplateError, with the action it is about, for whatever Hearth does not support."""
    writer = _Writer()
    for piece in lexer.pieces(source):
        if isinstance(piece, str):
            writer.out(writer.constant(piece))
            continue
        try:
            writer.action(piece)
        except TemplateError as error:
            raise TemplateError(f"{piece.source[:120]}: {error}") from None
    if writer.blocks:
        raise TemplateError(f"{source[:120]}: an if or with has no end")
    return Translation("".join(writer.parts), tuple(writer.constants))


@dataclass(slots=True)
class _Writer:
    parts: list[str] = field(default_factory=list)
    constants: list[Value] = field(default_factory=list)
    blocks: list[_Block] = field(default_factory=list)
    dot: str = "d"
    withs: int = 0
    depth: int = 0

    def out(self, expression: str) -> None:
        self.parts.append(f"{{{{ {expression} }}}}")

    def constant(self, value: Value) -> str:
        self.constants.append(value)
        return f"c[{len(self.constants) - 1}]"

    def action(self, action: lexer.Action) -> None:
        if action.word("if"):
            self.blocks.append(_Block(self.dot))
            self._if(action)
        elif action.word("with"):
            self.blocks.append(_Block(self.dot, is_with=True))
            self._with(action)
        elif action.word("else"):
            self._else(action)
        elif action.word("end"):
            self._end(action)
        else:
            self.out(self._expression(action, "end"))

    def _if(self, action: lexer.Action) -> None:
        self._deeper()
        self.parts.append(f"{{% if {self._expression(action, 'end')} %}}")

    def _with(self, action: lexer.Action) -> None:
        self._deeper()
        self.withs += 1
        value = f"v{self.withs}"
        expression = self._expression(action, "end")
        self.parts.append(f"{{% set {value} = {expression} %}}{{% if {value} %}}")
        self.dot = value

    def _else(self, action: lexer.Action) -> None:
        if not self.blocks or self.blocks[-1].has_else:
            raise TemplateError("else without its if or with")
        block = self.blocks[-1]
        self.parts.append("{% else %}")
        self.dot = block.dot
        if not block.is_with and action.word("if"):
            block.ends += 1
            self._if(action)
        elif block.is_with and action.word("with"):
            raise TemplateError("else with is not supported")
        else:
            block.has_else = True
            self._nothing_more(action)

    def _end(self, action: lexer.Action) -> None:
        if not self.blocks:
            raise TemplateError("end without its if or with")
        self._nothing_more(action)
        block = self.blocks.pop()
        self.parts.append("{% endif %}" * block.ends)
        self.depth -= block.ends
        self.dot = block.dot

    def _nothing_more(self, action: lexer.Action) -> None:
        token = action.take()
        if token.kind != "end":
            raise TemplateError(f"{token.text} is not expected here")

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TemplateError(f"it nests more than {MAX_DEPTH} levels deep")

    def _expression(self, action: lexer.Action, end: str) -> str:
        """One operand, or a function with its operands, up to a token of kind `end`."""
        function = _function(action.take().text) if action.kind == "word" else ""
        operands = []
        while action.kind not in ("end", "close"):
            operands.append(self._operand(action))
        token = action.take()
        if token.kind != end:
            raise TemplateError(f"{token.text or 'the end'} is not expected here")
        if function:
            return _called(function, operands)
        if len(operands) > 1:
            raise TemplateError("only functions take arguments")
        if not operands:
            raise TemplateError("a value is missing")
        return operands[0]

    def _operand(self, action: lexer.Action) -> str:
        token = action.take()
        match token.kind:
            case "dot":
                return self.dot
            case "field":
                value = self.dot
                for name in token.text[1:].split("."):
                    value = f"field({value}, {self.constant(name)})"
                return value
            case "open":
                self._deeper()
                expression = self._expression(action, "close")
                self.depth -= 1
                return f"({expression})"
            case "word":
                raise TemplateError(f"put the call of {_function(token.text)} in parentheses")
            case _:
                return self.constant(lexer.literal(token))


def _function(name: str) -> str:
    if name in _FUNCTIONS:
        return name
    if name in _REFUSED:
        raise TemplateError(f"{name} is not supported")
    raise TemplateError(f"{name} is not a function; there is {', '.join(_FUNCTIONS)}")


def _called(function: str, operands: list[str]) -> str:
    if function not in ("and", "or"):
        return f"call('{function}', {', '.join(operands)})"
    if not operands:
        raise TemplateError(f"{function} takes at least 1 argument(s), not 0")
    return f"({f' {function} '.join(operands)})"
