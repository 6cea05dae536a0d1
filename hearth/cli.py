"""The command line: argv to settings to the application."""

import argparse
import difflib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import hearth
from hearth import log, settings
from hearth.api import manifests

S = TypeVar("S", bound=settings.Settings)

_DESCRIPTION = """\
Serve self-hosted LLMs from accelerators that sleep while nobody asks.

  hearth local -f examples/     serve the models of these manifests on this machine
  hearth render -f service.yaml print every object that would be written, touch nothing
  hearth crd                    print the CustomResourceDefinitions
  hearth run                    run in a Kubernetes cluster
  hearth stub                   a small OpenAI-compatible engine for demos and tests
"""


class UserError(Exception):
    """What the user gave cannot be used; the message says what to do, in one line a mistake."""


class _Parser(argparse.ArgumentParser):
    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Here, since the parser of a verb is asked first: it knows what was probably meant."""
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(self._advice(unknown[0].partition("=")[0]))
        return known, unknown

    def _advice(self, unknown: str) -> str:
        flags = self._option_string_actions
        if "-f" in flags and not unknown.startswith("-"):
            return f"write -f before each file or folder: -f {unknown}"
        close = difflib.get_close_matches(unknown, flags, n=1)
        return f"there is no {unknown} here" + (f"; did you mean {close[0]}?" if close else "")

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} ('{self.prog} --help' lists what there is)\n")


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Exit with 0, with 1 and one line for what could not be done, with 2 for a wrong call."""
    options = _parser().parse_args(argv)
    try:
        sys.exit(_COMMANDS[options.command](options))
    except UserError as error:
        for line in str(error).splitlines():
            print(f"hearth {options.command}: {line}", file=sys.stderr)
        sys.exit(1)
    except settings.BadSettings as error:
        print(f"hearth {options.command}: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:  # before anything ran, for example while `-f -` waits for its text
        sys.exit(130)
    except BrokenPipeError:  # `hearth render | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _parser() -> _Parser:
    parser = _Parser(
        prog="hearth",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"hearth {hearth.__version__}")
    verbs = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    local = verbs.add_parser(
        "local",
        allow_abbrev=False,
        help="serve models on this machine",
        description="Serve the models of these manifests on this machine: no cluster needed. Files"
        " are watched; Ctrl-C stops everything. Every option is also a HEARTH_… variable.",
    )
    _file_option(local, required=False)
    _setting_options(local, settings.LocalSettings, without={"files"})

    render = verbs.add_parser(
        "render",
        allow_abbrev=False,
        help="print every object that would be written",
        description="Print every object that Hearth would write for the services in these files, as"
        " YAML. No cluster and no network is touched.",
    )
    _file_option(render, required=True)
    _setting_options(
        render,
        settings.RenderSettings,
        only={
            "backend_guard",
            "scrape_namespaces",
            "release",
            "namespace",
            "cluster_domain",
            "default_namespace",
            "groups",
            "polling_interval",
            "shared_service",
        },
    )

    crd = verbs.add_parser(
        "crd",
        allow_abbrev=False,
        help="print the CustomResourceDefinitions",
        description="Print the CustomResourceDefinitions of both API groups as YAML.",
    )
    _setting_options(crd, settings.Settings, only={"groups"})

    run = verbs.add_parser(
        "run",
        allow_abbrev=False,
        help="run in a Kubernetes cluster",
        description="Run in a Kubernetes cluster.",
    )
    _setting_options(run, settings.ClusterSettings)
    verbs.add_parser("stub", help="a small OpenAI-compatible engine for demos and tests")
    return parser


def _file_option(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument(
        "-f",
        "--file",
        action="append",
        dest="files",
        required=required,
        metavar="PATH",
        help="manifest file or folder, or - for what is piped in; may be given more than once",
    )


def _setting_options(
    parser: argparse.ArgumentParser,
    model: type[settings.Settings],
    *,
    only: set[str] | None = None,
    without: set[str] | None = None,
) -> None:
    for name, field in model.model_fields.items():
        if (only is not None and name not in only) or name in (without or ()):
            continue
        shown = settings.shown_default(field)
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            action="append",
            dest=name,
            metavar=settings.metavar(field),
            help=f"{field.description}{f' Default: {shown}.' if shown else ''}".replace("%", "%%"),
        )


def _settings(model: type[S], options: Mapping[str, Any]) -> S:
    given = {
        name: value
        for name, value in options.items()
        if name in model.model_fields and value is not None
    }
    return settings.read(model, given, os.environ)


def _piped() -> bytes:
    """What `-f -` stands for."""
    if sys.stdin is None:
        raise UserError("-f -: nothing is piped in")
    return sys.stdin.buffer.read()


def _local(options: argparse.Namespace) -> int:
    from hearth import app, local

    chosen = _settings(settings.LocalSettings, vars(options))
    if not chosen.files:
        raise UserError("name the manifests to serve, for example: hearth local -f examples/")
    log.configure(level=chosen.log_level, format=chosen.log_format)
    piped = _piped() if manifests.STDIN in chosen.files else b""
    try:
        local.run(chosen, piped)
    except app.CannotStart as error:
        raise UserError(str(error)) from error
    return 0


def _render(options: argparse.Namespace) -> int:
    from hearth import render

    chosen = _settings(settings.RenderSettings, vars(options))
    try:
        text = render.text(
            options.files,
            release=chosen.to_release(),
            namespace=chosen.default_namespace or "default",
            groups=chosen.groups,
            piped=_piped,
            warn=lambda line: print(f"hearth render: warning: {line}", file=sys.stderr),
        )
    except render.CannotRender as error:
        raise UserError(str(error)) from error
    sys.stdout.write(text)
    return 0


def _crd(options: argparse.Namespace) -> int:
    from hearth.api import crd

    sys.stdout.write(crd.yaml_text(_settings(settings.Settings, vars(options)).groups))
    return 0


def _run(options: argparse.Namespace) -> int:
    from hearth import app, run

    chosen = _settings(settings.ClusterSettings, vars(options))
    log.configure(level=chosen.log_level, format=chosen.log_format)
    try:
        return run.run(chosen)
    except app.CannotStart as error:
        raise UserError(str(error)) from error


_COMMANDS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "local": _local,
    "render": _render,
    "crd": _crd,
    "run": _run,
}
