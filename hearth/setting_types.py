"""Types of settings' values; the error for a wrong value says what to write instead."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from hearth.api import groups
from hearth.api.meta import Duration

_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_HOST = rf"{_LABEL}(\.{_LABEL})*"
_ORIGIN = r"\*|null|[a-z][-+.a-z0-9]*://[^/\s]+"


def _positive(value: Duration) -> Duration:
    if value <= 0:
        raise ValueError("must be above zero, for example 15s")
    return value


def _text(pattern: str, write: str, *, flags: re.RegexFlag = re.ASCII) -> Callable[[str], str]:
    """A check of a text; the empty one is for the setting that has it as its default."""

    def check(value: str) -> str:
        if value and not re.fullmatch(pattern, value, flags):
            raise ValueError(f"write {write}, not {value!r}")
        return value

    return check


_origin = _text(_ORIGIN, "* or an origin such as https://app.example.com")


def _origins(value: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(_origin, value))


_host = _text(_HOST, "a host name such as models.example.com", flags=re.ASCII | re.IGNORECASE)


def _hosts(value: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(_host, value))


def _groups(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value or not set(value) <= set(groups.GROUPS):
        raise ValueError(f"write {' or '.join(groups.GROUPS)}, or both with a comma between them")
    return value


def _counts(value: Mapping[str, int]) -> Mapping[str, int]:
    for name, count in value.items():
        if count < 0:
            raise ValueError(f"the number of {name} must be at least 0, not {count}")
    return value


def _claims(value: Mapping[str, str]) -> Mapping[str, str]:
    for claim, folder in value.items():
        if not re.fullmatch(rf"{_LABEL}/{_HOST}", claim):
            raise ValueError(f"write NAMESPACE/NAME=FOLDER, not {f'{claim}={folder}'!r}")
        if not _at_home(Path(folder)).is_dir():
            raise ValueError(f"there is no folder {folder}, which is given to claim {claim}")
    return value


def _at_home(value: Path) -> Path:
    try:
        return value.expanduser()
    except RuntimeError as error:
        raise ValueError(f"{value} cannot be found, since there is no such home folder") from error


Port = Annotated[int, Field(ge=0, le=65535)]
Positive = Annotated[Duration, AfterValidator(_positive)]
Label = Annotated[
    str, AfterValidator(_text(_LABEL, "a name of lower-case letters, digits and hyphens"))
]
Host = Annotated[str, AfterValidator(_host)]
Groups = Annotated[tuple[str, ...], AfterValidator(_groups)]
Hosts = Annotated[tuple[str, ...], AfterValidator(_hosts)]
Origins = Annotated[tuple[str, ...], AfterValidator(_origins)]
Folder = Annotated[Path, AfterValidator(_at_home)]
Claims = Annotated[Mapping[str, str], AfterValidator(_claims)]
Counts = Annotated[Mapping[str, int], AfterValidator(_counts)]
