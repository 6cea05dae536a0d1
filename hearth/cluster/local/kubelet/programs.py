"""Map a container's image to a command on this machine.

A process has no image, so an image stands for the program that it would run: what the setting
`images` says (first match wins), then the built-in entries of `_BUILT_IN`.

* `command` of the container is used as it is written where its program is on this machine: an
  absolute path that can be executed, or a name found beside the mapped program or on the PATH
  (`python3` is at worst the Python that runs Hearth).
* A `command` that is not there gives way to the mapped one.  Where both name the same program
  (`/app/llama-server`), only the program is replaced and the rest of `command` stays.
* `args` follow.  `{ip}` and `{port}` in a mapped command are the pod's; `vllm` and `llama-server`
  get `--host` and `--port` where nothing says them.
"""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from hearth.api.meta import Manifest
from hearth.cluster.local.kubelet.environment import CannotStart

_HEARTH = (sys.executable, "-m", "hearth")
_BUILT_IN: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("*/vllm*", ("vllm", "serve")),
    ("vllm*", ("vllm", "serve")),
    ("*llama.cpp:server*", ("llama-server",)),
    ("*llama-server*", ("llama-server",)),
    ("*/oras:*", ("oras",)),
    ("*/oras@*", ("oras",)),
    ("*/oras", ("oras",)),
    ("hearth/hearth*", _HEARTH),
    ("hearth:*", _HEARTH),
    ("*/hearth:*", _HEARTH),
    ("*/hearth@*", _HEARTH),
    ("*/hearth", _HEARTH),
    ("localhost/hearth*", _HEARTH),
)
_LISTENS = ("vllm", "llama-server")
"""Programs that are told where to listen by `--host` and `--port`."""
_VARIABLES = {"llama-server": "LLAMA_SERVER", "oras": "ORAS", "vllm": "VLLM"}
"""The variable that says where a program is, if it is not on the PATH."""
_INSTALL = {
    "llama-server": "install llama.cpp or set LLAMA_SERVER to the path of llama-server",
    "oras": "install it (https://oras.land) or set ORAS to the path of oras",
    "vllm": "install it (pip install vllm) or set VLLM to the path of vllm",
}
_IMAGE = re.compile(
    r"(?:[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?(?::[0-9]+)?/)?"  # registry
    r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*"
    r"(?::[\w][\w.-]{0,127})?(?:@[A-Za-z][\w.+-]*:[0-9a-fA-F]{32,})?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramMap:
    """Where programs are looked for, and what a person mapped."""

    images: tuple[tuple[str, tuple[str, ...]], ...]
    environ: Mapping[str, str]

    @property
    def path(self) -> str:
        """The PATH, and the folder of the Python that runs Hearth: a venv need not be active."""
        return os.pathsep.join(
            [self.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)]
        )


def read_images(images: Mapping[str, str], environ: Mapping[str, str]) -> ProgramMap:
    """Read the setting.  Raises ValueError for a command line that cannot be split."""
    mapped = []
    for pattern, line in images.items():
        try:
            argv = tuple(shlex.split(line))
        except ValueError as error:
            raise ValueError(f"the command of image {pattern!r} is not closed: {error}") from error
        if not argv:
            raise ValueError(f"the command of image {pattern!r} is empty")
        mapped.append((pattern, argv))
    return ProgramMap(images=(*mapped, *_BUILT_IN), environ=environ)


def resolve(container: Manifest, program_map: ProgramMap, *, ip: str) -> list[str]:
    """The command line of a container.  Raises CannotStart with what to do about it.

    `$(NAME)` is still in it, and so are paths of the container's mounts.
    """
    image = container.get("image", "")
    if not _IMAGE.fullmatch(image):
        raise CannotStart(
            "InvalidImageName",
            f'Failed to apply default image tag "{image}": couldn\'t parse image name "{image}":'
            " invalid reference format",
        )
    mapped = next(
        (argv for pattern, argv in program_map.images if fnmatchcase(image, pattern)), None
    )
    port = _port(container)
    command = [str(word) for word in container.get("command") or ()]
    args = [str(word) for word in container.get("args") or ()]
    beside = _find(mapped[0], program_map) if mapped else None
    if command and (program := _runnable(command[0], program_map, beside=beside)):
        argv = [program, *command[1:]]
    elif mapped:
        argv = [beside or _missing(mapped[0], image), *_filled(mapped[1:], ip=ip, port=port)]
        if command and Path(command[0]).name == Path(mapped[0]).name:
            argv[1:] = command[1:]
    elif command:
        raise CannotStart(
            "CreateContainerError",
            f"{command[0]} of image {image} is not a program on this machine: install it, or say"
            f" which command to run instead with --images '{image}=COMMAND'",
        )
    else:
        raise _unknown(container, image)
    name = Path(argv[0]).name
    argv = _positional_model(argv, args) if name == "vllm" else [*argv, *args]
    has_placeholders = mapped is not None and any(
        "{ip}" in word or "{port}" in word for word in mapped
    )
    return argv if name not in _LISTENS or has_placeholders else _listening(argv, ip=ip, port=port)


def _find(program: str, program_map: ProgramMap) -> str | None:
    """A program by its variable, as a path, or on the PATH; None where it cannot be executed."""
    named = program_map.environ.get(_VARIABLES.get(program, ""), "")
    found = shutil.which(os.path.expanduser(named or program), path=program_map.path)
    return found and os.path.abspath(found)


def _runnable(program: str, program_map: ProgramMap, *, beside: str | None) -> str | None:
    if "/" in program:
        absolute = os.path.isabs(program) and os.path.isfile(program)
        return program if absolute and os.access(program, os.X_OK) else None
    folder = os.path.dirname(beside) if beside else ""
    found = (folder and shutil.which(program, path=folder)) or _find(program, program_map)
    return found or (sys.executable if program in ("python", "python3") else None)


def _missing(program: str, image: str) -> str:
    what_to_do = _INSTALL.get(
        Path(program).name, f"install it or correct the command of --images for {image}"
    )
    raise CannotStart(
        "CreateContainerError",
        f"image {image} runs {program} on this machine, and that is not an executable program on"
        f" the PATH: {what_to_do}",
    )


def _unknown(container: Manifest, image: str) -> CannotStart:
    what_to_do = (
        f"no command on this machine is known for image {image}: say which one to run with"
        f" --images '{image}=COMMAND' (a glob such as 'registry/name*' works too)"
    )
    if container.get("imagePullPolicy") == "Never":
        return CannotStart(
            "ErrImageNeverPull",
            f'Container image "{image}" is not present with pull policy of Never: {what_to_do}',
        )
    return CannotStart("ErrImagePull", what_to_do)


def _filled(words: Sequence[str], *, ip: str, port: str | None) -> list[str]:
    return [word.replace("{ip}", ip).replace("{port}", port or "") for word in words]


def _port(container: Manifest) -> str | None:
    ports = container.get("ports") or ()
    chosen = next((port for port in ports if port.get("name") == "http"), next(iter(ports), None))
    return str(chosen["containerPort"]) if chosen else None


def _positional_model(argv: list[str], args: list[str]) -> list[str]:
    """`vllm serve --model X` as `vllm serve X`: the image's older entry point took the option."""
    if argv[1:2] != ["serve"]:
        return [*argv, *args]
    words = [*argv[2:], *args]
    for index, word in enumerate(words):
        if word == "--model" and index + 1 < len(words):
            return [*argv[:2], words[index + 1], *words[:index], *words[index + 2 :]]
        if word.startswith("--model="):
            model = word.removeprefix("--model=")
            return [*argv[:2], model, *words[:index], *words[index + 1 :]]
    return [*argv[:2], *words]


def _listening(argv: list[str], *, ip: str, port: str | None) -> list[str]:
    words = [*argv]
    for option, value in (("--host", ip), ("--port", port)):
        if value and not any(w == option or w.startswith(f"{option}=") for w in argv):
            words += [option, value]
    return words
