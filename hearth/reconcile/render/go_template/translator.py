"""Say in jinja2's language what the supported part of a Go template says.

No text of the author's gets into the jinja2 source: literals and pieces of text are constants that
the source refers to by number, names of fields among them, and variables are numbered too.
"""

from dataclasses import dataclass, field

from hearth.reconcile.render.go_template import functions, lexer
from hearth.reconcile.render.go_template.values import TemplateError, Value

MAX_DEPTH = 24
"""How deep blocks and parentheses may nest; Python's own parser stands behind and has a limit."""

_REFUSED = ("range", "define", "template", "block", "break", "continue", "nil", "call")


@dataclass(slots=True)
class _Block:
    """An open `if` or `with`: what stands for dot and for variables inside."""

    dot: str
    names: list[dict[str, str]]
    ends: int = 1
    """How many jinja2 blocks its `end` closes: one more for each `else if`."""
    dotted: bool = False
    """Whether it is a `with`."""
    otherwise: bool = False
    """Whether its last `else` has been seen."""


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
    scopes: list[dict[str, str]] = field(default_factory=lambda: [{"$": "d"}])
    dot: str = "d"
    variables: int = 0
    depth: int = 0

    def out(self, expression: str) -> None:
        self.parts.append(f"{{{{ {expression} }}}}")

    def constant(self, value: Value) -> str:
        self.constants.append(value)
        return f"c[{len(self.constants) - 1}]"

    def action(self, action: lexer.Action) -> None:
        action.skip()
        if action.word("if"):
            self._open(action, _Block(self.dot, self.scopes))
        elif action.word("with"):
            self._open(action, _Block(self.dot, self.scopes, dotted=True))
        elif action.word("else"):
            self._else(action)
        elif action.word("end"):
            self._end(action)
        else:
            target, expression = self._pipeline(action, declares=True)
            if target is None:
                self.out(expression)
            else:
                self.parts.append(f"{{% set {target} = {expression} %}}")

    def _open(self, action: lexer.Action, block: _Block) -> None:
        self.blocks.append(block)
        self._condition(action, dotted=block.dotted)

    def _condition(self, action: lexer.Action, *, dotted: bool) -> None:
        self._deeper()
        self.scopes = [*self.scopes, {}]
        target, expression = self._pipeline(action, declares=True)
        value = target or self._variable()
        self.parts.append(f"{{% set {value} = {expression} %}}{{% if {value} %}}")
        self.scopes = [*self.scopes, {}]
        if dotted:
            self.dot = value

    def _else(self, action: lexer.Action) -> None:
        if not self.blocks or self.blocks[-1].otherwise:
            raise TemplateError("else without its if or with")
        block = self.blocks[-1]
        self.parts.append("{% else %}")
        self.dot = block.dot
        self.scopes = [*self.scopes[:-1], {}]
        action.skip()
        if action.word("with" if block.dotted else "if"):
            block.ends += 1
            self._condition(action, dotted=block.dotted)
        else:
            block.otherwise = True
            self._nothing_more(action)

    def _end(self, action: lexer.Action) -> None:
        if not self.blocks:
            raise TemplateError("end without its if or with")
        self._nothing_more(action)
        block = self.blocks.pop()
        self.parts.append("{% endif %}" * block.ends)
        self.depth -= block.ends
        self.dot, self.scopes = block.dot, block.names

    def _nothing_more(self, action: lexer.Action) -> None:
        action.skip()
        token = action.take()
        if token.kind != "end":
            raise TemplateError(f"{token.text} is not expected here")

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TemplateError(f"it nests more than {MAX_DEPTH} levels deep")

    def _variable(self) -> str:
        self.variables += 1
        return f"v{self.variables}"

    def _pipeline(self, action: lexer.Action, *, declares: bool = False) -> tuple[str | None, str]:
        """The variable it sets, if any, and the expression; takes all of the action or group."""
        action.skip()
        target, name, declared = self._target(action) if declares else (None, "", False)
        expression = self._command(action, piped=None)
        while action.peek() == "pipe":
            action.take()
            expression = self._command(action, piped=expression)
        token = action.take()
        if token.kind != ("end" if declares else "close"):
            raise TemplateError(f"{token.text or 'the end'} is not expected here")
        if declared:
            # Only from here on: `$x := $x` reads the variable outside.
            self.scopes[-1][name] = target or ""
        return target, expression

    def _target(self, action: lexer.Action) -> tuple[str | None, str, bool]:
        start = action.at
        if action.peek() == "variable":
            name = action.take().text
            action.skip()
            if action.peek() == "declare":
                action.take()
                return self._variable(), name, True
            if action.peek() == "assign":
                action.take()
                if name == "$":
                    raise TemplateError("$ stands for the data and cannot be set")
                return self._find(name), name, False
        action.at = start
        return None, "", False

    def _find(self, name: str) -> str:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        raise TemplateError(f"the variable {name} is not set before it is used")

    def _command(self, action: lexer.Action, *, piped: str | None) -> str:
        action.skip()
        token = action.tokens[action.at]
        function = ""
        if token.kind == "word" and token.text not in ("true", "false"):
            function = _function(action.take().text)
            self._separate(action)
        operands = []
        while action.peek() not in ("pipe", "close", "end"):
            operands.append(self._operand(action))
            self._separate(action)
        if function:
            return _called(function, [*operands, *([piped] if piped else [])])
        if not operands:
            raise TemplateError("a value is missing")
        if piped:
            raise TemplateError("after | comes one of the functions")
        if len(operands) > 1:
            raise TemplateError("only functions take arguments")
        return operands[0]

    def _separate(self, action: lexer.Action) -> None:
        if action.peek() not in ("space", "pipe", "close", "end"):
            raise TemplateError(f"a space is missing before {action.take().text}")
        action.skip()

    def _operand(self, action: lexer.Action) -> str:
        token = action.take()
        match token.kind:
            case "text":
                return self.constant(lexer.unquote(token.text))
            case "raw":
                return self.constant(token.text[1:-1].replace("\r", ""))
            case "number":
                return self.constant(lexer.number(token.text))
            case "word" if token.text in ("true", "false"):
                return self.constant(token.text == "true")
            case "word":
                raise TemplateError(f"put the call of {_function(token.text)} in parentheses")
            case "dot":
                return self.dot
            case "field":
                action.at -= 1
                return self._fields(action, self.dot)
            case "variable":
                return self._fields(action, self._find(token.text))
            case "open":
                self._deeper()
                _, expression = self._pipeline(action)
                self.depth -= 1
                return self._fields(action, f"({expression})")
            case _:
                raise TemplateError(f"{token.text} is not expected here")

    def _fields(self, action: lexer.Action, value: str) -> str:
        while action.peek() == "field":
            value = f"field({value}, {self.constant(action.take().text[1:])})"
        return value


def _function(name: str) -> str:
    if name in functions.FUNCTIONS or name in ("and", "or"):
        return name
    if name in _REFUSED:
        raise TemplateError(f"{name} is not supported")
    known = ", ".join(["and", "or", *functions.FUNCTIONS])
    raise TemplateError(f"{name} is not a function; there is {known}")


def _called(function: str, operands: list[str]) -> str:
    if function not in ("and", "or"):
        return f"call('{function}', {', '.join(operands)})"
    if not operands:
        raise TemplateError(f"{function} takes at least 1 argument(s), not 0")
    return f"({f' {function} '.join(operands)})"
