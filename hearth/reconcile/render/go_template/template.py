"""Render the strings of a runtime's `args` and `env`: Go templates, run in jinja2's sandbox."""

import functools
from collections.abc import Iterable
from dataclasses import dataclass

import jinja2
from jinja2 import sandbox

from hearth.api.meta import ServiceKey
from hearth.reconcile.render.go_template import functions, translator
from hearth.reconcile.render.go_template.functions import TemplateError

_ENVIRONMENT = sandbox.ImmutableSandboxedEnvironment(
    undefined=jinja2.StrictUndefined,
    autoescape=False,
    keep_trailing_newline=True,
    cache_size=0,
    finalize=functions.text,
)
_ENVIRONMENT.globals = {"call": functions.call, "field": functions.field}


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """What a template can name: `.Model.Path`, `.Service.Name`, `.Service.Namespace`."""

    model_path: str
    service: ServiceKey


def render(text: str, data: Data) -> str:
    """`text` with its actions carried out.

    Supported are fields, texts and plain numbers, comments, trim markers, `if`, `else`, `else if`,
    `with`, `end`, `eq`, `ne`, `and`, `or`, `not`, and `printf` with `%s` and `%d`.  Raises
    TemplateError for all else, by its name, and where Go would write `%!d(…)` into the text.  The
    message begins with the text it is about.
    """
    if "{{" not in text:
        return text
    template, constants = _compile(text)
    try:
        return "".join(_bounded(template.generate(c=constants, d=_struct(data))))
    except TemplateError as error:
        raise TemplateError(f"{text[:120]}: {error}") from None


def _bounded(pieces: Iterable[str]) -> Iterable[str]:
    total = 0
    for piece in pieces:
        total += len(piece)
        if total > functions.MAX_CHARS:
            raise TemplateError(f"the result is longer than {functions.MAX_CHARS} characters")
        yield piece


# A service is rendered at every reconcile, and many share a runtime: compile each text once.
@functools.lru_cache(maxsize=1024)
def _compile(text: str) -> tuple[jinja2.Template, tuple[functions.Value, ...]]:
    if len(text) > functions.MAX_CHARS:
        raise TemplateError(f"the template is longer than {functions.MAX_CHARS} characters")
    translation = translator.translate(text)
    return _ENVIRONMENT.from_string(translation.source), translation.constants


def _struct(data: Data) -> functions.Struct:
    service = {"Name": data.service.name, "Namespace": data.service.namespace}
    return functions.Struct(
        "",
        {
            "Model": functions.Struct(".Model", {"Path": data.model_path}),
            "Service": functions.Struct(".Service", dict(service)),
        },
    )
