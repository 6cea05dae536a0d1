"""Run the program on an event loop: uvloop where it is installed."""

from collections.abc import Awaitable, Callable
from typing import TypeVar, TypeVarTuple, Unpack

import anyio

from hearth import gc_settings
from hearth.app import CannotStart

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def run(main: Callable[[Unpack[Ts]], Awaitable[T]], *arguments: *Ts) -> T:
    """The result of `main`."""
    gc_settings.apply()
    return anyio.run(main, *arguments, backend_options={"use_uvloop": _has_uvloop()})


def to_cannot_start(
    group: BaseExceptionGroup[BaseException], *kinds: type[Exception]
) -> BaseException:
    """What ended the program: a CannotStart for one of `kinds`, else the group as it is."""
    known = group.subgroup(kinds)
    return CannotStart(str(_first(known))) if known is not None else group


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _has_uvloop() -> bool:
    try:
        import uvloop  # noqa: F401
    except ImportError:
        return False
    return True
