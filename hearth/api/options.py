"""Per-service options that no field has: annotations of an LLMService under `hearth.dev/`."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from hearth.api.meta import Duration

PREFIX = "hearth.dev/"


MODEL_PATH = f"{PREFIX}model-path"
ModelPath = Literal["hub", "local"]


class BadOption(ValueError):
    """One or more annotations cannot be read; the message names each and what to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of one service; each field is the annotation of the same name."""

    max_in_flight: int | None = None
    """Requests forwarded to one pod at a time; the rest wait.  None: no bound."""
    response_timeout_s: float = 600.0
    """From forwarding a request to the first byte of the answer."""
    idle_timeout_s: float = 300.0
    """Between two reads of an answer."""
    model_path: ModelPath = "hub"
    """What an engine is told to serve: the hub's name of a model, or its folder in the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One annotation, as the reference shows it."""

    name: str
    field: str
    type: str
    default: str
    description: str
    read: Callable[[str], Any]
    """Raises ValueError, which says what to write."""


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) < 2**31):
        raise ValueError(f'write a whole number of at least 1, such as "32", not {text!r}')
    return int(text)


def _duration(text: str) -> float:
    try:
        seconds = Duration.parse(text)
    except ValueError:
        seconds = Duration(0.0)
    if seconds <= 0:
        raise ValueError(f"write a duration above zero, such as 10s, 2m or 1h30m, not {text!r}")
    return float(seconds)


def _model_path(text: str) -> str:
    if text not in get_args(ModelPath):
        raise ValueError(f"write hub or local, not {text[:80]!r}")
    return text


TABLE = (
    Option(
        name=f"{PREFIX}max-in-flight",
        field="max_in_flight",
        type="whole number, at least 1",
        default="no bound",
        description="Requests forwarded to one pod at a time; the rest wait in the gateway.",
        read=_count,
    ),
    Option(
        name=f"{PREFIX}response-timeout",
        field="response_timeout_s",
        type="duration",
        default="10m",
        description="Time from forwarding a request to the first byte of its answer.",
        read=_duration,
    ),
    Option(
        name=f"{PREFIX}idle-timeout",
        field="idle_timeout_s",
        type="duration",
        default="5m",
        description="Time between two parts of an answer.",
        read=_duration,
    ),
    Option(
        name=MODEL_PATH,
        field="model_path",
        type="hub or local",
        default="hub",
        description="What `.Model.Path` stands for where `spec.cache.prewarm` fetches the model of"
        " a hub: its name, and the engine asks the hub at each start; or with local its folder in"
        " the cache, and the engine starts without the hub (give it `--served-model-name`).",
        read=_model_path,
    ),
)


def parse(annotations: Mapping[str, str]) -> Options:
    """The options that annotations ask for.  Raises BadOption, naming every bad one."""
    return Options(**values(annotations, TABLE))


def problems(annotations: Mapping[str, str]) -> list[tuple[str, str]]:
    """Every annotation that `parse` would refuse, and why."""
    return read(annotations, TABLE)[1]


def values(annotations: Mapping[str, str], table: Iterable[Option]) -> dict[str, Any]:
    """What annotations say, by field, with the options of `table`.  Raises BadOption."""
    found, bad = read(annotations, table)
    if bad:
        raise BadOption("; ".join(f"annotation {name}: {message}" for name, message in bad))
    return found


def read(
    annotations: Mapping[str, str], table: Iterable[Option]
) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """What annotations say, by field, and each that cannot be read, with what to write."""
    known = {option.name: option for option in table}
    found: dict[str, Any] = {}
    bad = []
    for name, text in sorted(annotations.items()):
        if not name.startswith(PREFIX):
            continue
        option = known.get(name)
        if option is None:
            there = ", ".join(known)
            bad.append((name, f"there is no such option; remove it, or write one of {there}"))
            continue
        try:
            found[option.field] = option.read(text)
        except ValueError as error:
            bad.append((name, str(error)))
    return found, bad
