"""Why a port cannot be opened, in words that say what to do."""

import errno

import pytest

from hearth import bind_errors


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.EADDRINUSE, "x"), "the port is in use; stop what listens there"),
        (OSError(errno.EACCES, "x"), "not permitted; choose a port from 1024 on"),
        (OSError(errno.EADDRNOTAVAIL, "x"), "this machine has no such address"),
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files"),
        (UnicodeError("label too long"), "label too long"),
    ],
)
def test_bind_errors_say_what_to_do(error, words):
    assert bind_errors.explain(error).startswith(words)
